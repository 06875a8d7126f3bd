"""The service's interface as methods: one per endpoint, and what a caller needs to know of the login."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import urlencode

import httpx
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from reseller import endpoints
from reseller.answers import (
    AssignAnswer,
    BaseAnswer,
    DetailsAnswer,
    InstitutionAnswer,
    LoginAsAnswer,
    QueueAnswer,
    TokenAnswer,
    UserTokenAnswer,
)
from reseller.config import ServiceConfig
from reseller.conversation import Conversation, Heed, InstitutionEndpoints, Observe, unheeded, unobserved
from reseller.enumerations import ValidationType
from reseller.errors import AnswerUnreadable, CallNotFound, OutcomeUnknown, ServiceRefused
from reseller.exchange import Exchange, Guard, Request
from reseller.phone_calls import PhoneCall, QueueEntry
from reseller.reading import Reader, Unreadable
from reseller.secret import Secret
from reseller.tokens import TokenStore
from reseller.transport import ServiceResponse

HOUR_S = 3600.0

_BASE = Reader(BaseAnswer)
_USER_TOKEN = Reader(UserTokenAnswer)
_QUEUE = Reader(QueueAnswer)
_ASSIGN = Reader(AssignAnswer)
_DETAILS = Reader(DetailsAnswer)
_CALL = Reader(PhoneCall)
_INSTITUTION = Reader(InstitutionAnswer)
_LOGIN_AS = Reader(LoginAsAnswer)


class Reseller(InstitutionEndpoints):
    """A client of the service for one service account.

    Reads and listings answer a 401 with one login and one repeat. Checks, effects and assign are never repeated here:
    a check costs one of a call's 20, and an effect that may have been applied must be looked at first.

    A client belongs to the event loop of its first request. Optional values that are None are not sent. Assumed: null and
    missing mean the same to the service.

    Every method may raise, beside what it names:

    - `ServiceUnavailable` (`ServiceBusy`), `AnswerUnreadable`: reads and checks only;
    - `ServiceRefused`: the service declined;
    - `AccessRefused`: reads and checks only; 401 although the token is good, or held back because of such a 401;
    - `LoginRefused`, `TokenFault`, `CertificateRefused`: reads and checks; effects have them as cause of `NotSent`;
    - what the token store raises: reads and checks only, as it is;
    - `Unsendable`: an identifier or a header value cannot travel in a request.

    Effects (`assign`, `enroll`, `reject_voice`, `add_institution`) have exactly one of these outcomes: they return
    (applied), or raise `ServiceRefused`, `NotSent` (`Unsendable`), `TokenLapsed` or `OutcomeUnknown`.

    Args:
        config: Where the service is, and who we are.
        tokens: Where the login is kept; share it between all clients of the account.
        reads_transport: Instead of the pooled one.
        effects_transport: Instead of fresh connections. It must call what the extension `FIRST_BYTE` of a request holds
            before it writes a byte.
        clock: Seconds, never going back.
        log: Where the session reports logins; see `Session`.
        observe: Awaited after every request, with how it went and how long it took.
        heed: Called with the messages of every answer that succeeded and has some.
    """

    def __init__(
        self,
        config: ServiceConfig,
        tokens: TokenStore,
        *,
        reads_transport: httpx.AsyncBaseTransport | None = None,
        effects_transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        log: FilteringBoundLogger | None = None,
        observe: Observe = unobserved,
        heed: Heed = unheeded,
    ) -> None:
        log = log if log is not None else structlog.get_logger("reseller")
        exchange = Exchange(config, reads_transport, effects_transport)
        super().__init__(Conversation(config, tokens, exchange, clock=clock, log=log, observe=observe, heed=heed), log)

    @property
    def deadline_s(self) -> float:
        """Return how many seconds a request may take, a login it needs included."""
        return self._talk.deadline_s

    def reads_barred_s(self, institution_key: str) -> float | None:
        """Return for how many seconds the records of an institution's calls are left alone; None if they are not barred.

        As far as this process knows: it learns of what others found when it next loads the token.
        """
        return self._talk.barred_s(endpoints.DETAILS, institution_key)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._talk.aclose()

    async def institution_keys(self) -> frozenset[str]:
        """Return the keys of the institutions the account can manage, as the current login told them.

        Logs in if there is no login.

        Spec: Token response.
        """
        return (await self._talk.current_token()).institution_keys

    async def renew(self, *, max_age_s: float = HOUR_S) -> None:
        """Log in anew if the token was refused or the login is older than ``max_age_s``; else do nothing.

        One login across all processes that share the token store. Call it after `TokenLapsed`; call it now and then,
        because a sliding token may live for ever while the institution keys come only with a login; call it with
        ``max_age_s=60`` when an institution key is unknown, which allows one login a minute.

        Raises:
            TokenFault: The last login's token was refused; waiting for the pause after it.
        """
        await self._talk.renew(max_age_s)

    async def token(self) -> TokenAnswer:
        """Log in now, past the token store, and return the whole answer.

        Raises:
            LoginRefused: The credentials are not accepted.

        Spec: Endpoints 1.
        """
        return await self._talk.request_token()

    async def user_token(self, institution_key: str, *, requested_by: str | None = None) -> Secret:
        """Exchange the login for a user token of one institution, valid for 30 minutes.

        Raises:
            ServiceRefused: The service granted none.

        Spec: Endpoints 2; Rules per operation 5.
        """
        endpoint = endpoints.USER_TOKEN
        request = Request(endpoint, endpoint.at(), self._talk.on_behalf(endpoint, institution_key, requested_by))
        answer, record = await self._talk.read(request, _USER_TOKEN)
        if not record.token:
            raise ServiceRefused(endpoint.name, status=answer.status_code)
        return record.token

    async def queue(
        self,
        institution_key: str,
        *,
        continue_from: int,
        page_size: int,
        search_string: str | None = None,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        requested_by: str | None = None,
    ) -> tuple[QueueEntry, ...]:
        """List active calls, a page of them.

        An entry that does not name its call is not ``is_usable``; one broken entry does not hide the others.

        Args:
            institution_key: Whose calls.
            continue_from: Where the page starts; see docs/assumptions.md.
            page_size: How many entries at most.
            search_string: Part of a phone number or of a member's name.
            start_at: Lower bound on the call's start, aware.
            end_at: Upper bound on the call's start, aware.
            requested_by: Core username recorded for audit; default: the configured one.

        Raises:
            ValueError: A bound has no zone.

        Spec: Endpoints 3; Queue query.
        """
        endpoint = endpoints.QUEUE
        params = {"continueFrom": str(continue_from), "pageSize": str(page_size)}
        params |= _given(searchString=search_string, startDate=_iso(start_at), endDate=_iso(end_at))
        headers = self._talk.on_behalf(endpoint, institution_key, requested_by)
        _, record = await self._talk.read(Request(endpoint, endpoint.at(), headers, urlencode(params)), _QUEUE)
        return record.phone_calls

    async def assign(
        self,
        institution_key: str,
        *,
        person_id: str,
        requested_by: str,
        voice_id: str | None = None,
        phone_number: str | None = None,
        guard: Guard | None = None,
    ) -> str:
        """Assign the caller of a call, and return the voice id to use from then on.

        An effect. With a phone number the service ignores the voice id. Assumed: an answer that succeeds without a voice
        id means the one that was sent.

        Raises:
            ServiceRefused: Declined, for one because neither id was given.
            NotSent: Provably no byte was written.
            TokenLapsed: 401; read before it is sent anew.
            OutcomeUnknown: May or may not have been applied.

        Spec: Endpoints 4; Rules per operation 1.
        """
        endpoint = endpoints.ASSIGN
        body = {"personId": person_id, **_given(voiceId=voice_id, phoneNumber=phone_number)}
        headers = self._talk.on_behalf(endpoint, institution_key, requested_by)
        record = await self._talk.effect(
            Request(endpoint, endpoint.at(), headers, content=msgspec.json.encode(body)), _ASSIGN, guard
        )
        settled = record.voice_id or voice_id
        if settled is None:
            raise OutcomeUnknown(endpoint.name, "the answer names no voice id")
        return settled

    async def details(self, institution_key: str, voice_id: str, *, check: bool, requested_by: str) -> PhoneCall:
        """Read a call's record, asking the voice provider again if ``check``.

        The record is read from ``phoneCall``, whole; if that is null or missing, from the top level of the answer, provided
        a call is named there. Assumed: the Spec shows both places and no order.

        Args:
            institution_key: Whose call.
            voice_id: Real or alternate id; the service resolves either.
            check: Costs one of the call's 20 authentication checks. Such a request is never repeated.
            requested_by: Core username recorded for audit.

        Raises:
            CallNotFound: The service knows no such call.
            TokenLapsed: 401 on a check; renew, then book another check.
            AccessRefused: 401 on a check although the token is good; renewing does not help.

        Spec: Endpoints 5; Rules per operation 2; Limits.
        """
        endpoint = endpoints.DETAILS
        headers = self._talk.on_behalf(endpoint, institution_key, requested_by)
        query = "checkVoiceAuthentication=true" if check else "checkVoiceAuthentication=false"
        request = Request(endpoint, endpoint.at(voice_id), headers, query, is_check=check)
        answer, record = await self._talk.read(request, _DETAILS, may_repeat=not check)
        return record.phone_call or _top_level_call(answer)

    async def enroll(
        self,
        institution_key: str,
        voice_id: str,
        *,
        person_id: str,
        validation_type: ValidationType,
        notes: str | None,
        requested_by: str,
        guard: Guard | None = None,
    ) -> None:
        """Enroll the caller's voice, whose identity was established otherwise.

        An effect, and not idempotent: a second one records a second verification and sends feedback again.

        Args:
            institution_key: Whose call.
            voice_id: Real or alternate id; the service resolves either.
            person_id: Whose voice it is.
            validation_type: How identity was established.
            notes: For the member's record.
            requested_by: Core username recorded for audit.
            guard: Called before the first byte.

        Raises:
            ServiceRefused: Declined.
            NotSent: Provably no byte was written.
            TokenLapsed: 401; read before it is sent anew.
            OutcomeUnknown: May or may not have been applied.

        Spec: Endpoints 6; Rules per operation 3.
        """
        endpoint = endpoints.ENROLL
        body = {"personId": person_id, "validationType": str(validation_type), **_given(notes=notes)}
        headers = self._talk.on_behalf(endpoint, institution_key, requested_by)
        await self._talk.effect(
            Request(endpoint, endpoint.at(voice_id), headers, content=msgspec.json.encode(body)), _BASE, guard
        )

    async def reject_voice(
        self, institution_key: str, voice_id: str, *, requested_by: str, guard: Guard | None = None
    ) -> None:
        """Reject the caller's voice, which also un-enrolls the member's manual authentications.

        An effect. Alternate ids are not resolved: ``voice_id`` must be the real one.

        Raises:
            ServiceRefused: Declined.
            NotSent: Provably no byte was written.
            TokenLapsed: 401; read before it is sent anew.
            OutcomeUnknown: May or may not have been applied.

        Spec: Endpoints 7; States and transitions.
        """
        endpoint = endpoints.REJECT_VOICE
        headers = self._talk.on_behalf(endpoint, institution_key, requested_by)
        await self._talk.effect(Request(endpoint, endpoint.at(voice_id), headers), _BASE, guard)


def _top_level_call(answer: ServiceResponse) -> PhoneCall:
    name = endpoints.DETAILS.name
    try:
        call = _CALL.read(answer.content)
    except Unreadable as error:
        reason = str(error)
    else:
        if call.voice_id or call.phone_call_id:
            return call
        raise CallNotFound(name, status=answer.status_code)
    raise AnswerUnreadable(name, reason)


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _iso(instant: datetime | None) -> str | None:
    if instant is None:
        return None
    if instant.tzinfo is None:
        raise ValueError("an instant without zone")
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
