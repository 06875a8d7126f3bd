"""The client of the service: one method per endpoint, and what a caller needs to know of the login."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

import httpx
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from callkeeper.service import answer_records, endpoints
from callkeeper.service.aiohttp_transport import Guard
from callkeeper.service.answer_meaning import top_level_call
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.answer_tap import AnswerTap, See, unseen, utc_now
from callkeeper.service.config import ServiceConfig
from callkeeper.service.endpoints import Endpoint, Request
from callkeeper.service.enumerations import CoreType, ValidationType
from callkeeper.service.errors import AnswerUnreadable, InstitutionNotFound, OutcomeUnknown, ServiceRefused
from callkeeper.service.exchange import Exchange, Heed, Keep, Observe, unheeded, unobserved
from callkeeper.service.phone_calls import PhoneCall, QueueEntry
from callkeeper.service.secret import Secret
from callkeeper.service.tokens import TokenStore

HOUR_S = 3600.0

_BASE = Reader(answer_records.BaseAnswer)
_USER_TOKEN = Reader(answer_records.UserTokenAnswer)
_QUEUE = Reader(answer_records.QueueAnswer)
_ASSIGN = Reader(answer_records.AssignAnswer)
_DETAILS = Reader(answer_records.DetailsAnswer)
_INSTITUTION = Reader(answer_records.InstitutionAnswer)
_LOGIN_AS = Reader(answer_records.LoginAsAnswer)


class Reseller:
    """A client of the service for one service account.

    Reads and listings answer a 401 with one login and one repeat. Checks, effects and assign are never repeated here: a
    check costs one of a call's 20, and an effect that may have been applied must be looked up first.

    A client belongs to the event loop of its first request. Optional values that are None are not sent. Assumed
    (`null-is-missing`): null and missing mean the same to the service. ``requested_by`` is the core username recorded
    for audit; the default is the configured one.

    Every method may raise, in addition to what it names:

    - `ServiceUnavailable` (`ServiceBusy`), `AnswerUnreadable`: reads and checks only;
    - `ServiceRefused`: the service refused the request;
    - `AccessRefused`: reads and checks only; 401 although the token is good, or held back because of such a 401;
    - `LoginRefused`, `TokenFault`, `CertificateRefused`: reads and checks; for effects they are the cause of `NotSent`;
    - what the token store raises: reads and checks only, unchanged;
    - `Unsendable`: an identifier or a header value cannot be sent in a request.

    Effects (`assign`, `enroll`, `reject_voice`, `add_institution`) have exactly one of these outcomes: they return
    (applied), or raise `ServiceRefused` (refused), `NotSent` (`Unsendable`; certainly no byte was written),
    `TokenLapsed` (401; read before sending again) or `OutcomeUnknown` (may or may not have been applied). ``guard`` is
    called before the first byte.

    Args:
        config: Where the service is, and who we are.
        tokens: Where the login is kept; share it between all clients of the account.
        reads_transport: Instead of the pooled one.
        effects_transport: Instead of fresh connections. It must call the request's extension `FIRST_BYTE` before it
            writes a byte.
        clock: A monotonic clock, in seconds.
        log: Where the session reports logins; see `Session`.
        observe: Awaited after every request, with its result and duration.
        heed: Called with the messages of every successful answer that has some.
        see: Called with answers that contradict what is assumed of the service.
        now: The present, to compare the service's instants with.
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
        see: See = unseen,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        log = log if log is not None else structlog.get_logger("reseller")
        self._log = log
        self._exchange = Exchange(
            config,
            tokens,
            reads=reads_transport,
            effects=effects_transport,
            clock=clock,
            log=log,
            observe=observe,
            heed=heed,
            see=see,
            now=now,
        )

    @property
    def deadline_s(self) -> float:
        """Return how many seconds an effect may take, including a login it needs, and any request without ``keep``."""
        return self._exchange.deadline_s

    @property
    def tap(self) -> AnswerTap:
        """Return what samples the answers of this client."""
        return self._exchange.tap

    def barred_s(self, endpoint: Endpoint, institution_key: str) -> float | None:
        """Return for how many seconds an institution's endpoint must not be used; None if it is not barred.

        That is after a 401, as far as this process knows. It learns what others found when it next loads the token.
        """
        return self._exchange.session.barred_s(endpoints.scope_of(endpoint.name, institution_key))

    def is_late(self, endpoint: Endpoint, institution_key: str) -> bool:
        """Tell whether an institution's endpoint was answered late just now, as far as this process knows."""
        return self._exchange.is_late(endpoints.scope_of(endpoint.name, institution_key))

    async def aclose(self) -> None:
        await self._exchange.aclose()

    async def has_token(self) -> bool:
        """Tell whether a request would need no login."""
        return await self._exchange.session.has_token()

    async def institution_keys(self) -> frozenset[str]:
        """Return the keys of the institutions the account can manage, as of the login; log in if there is no token.

        Spec: Token response.
        """
        return (await self._exchange.current_token()).institution_keys

    async def renew(self, *, max_age_s: float = HOUR_S) -> None:
        """Log in again if the token was refused or the login is older than ``max_age_s``; else do nothing.

        There is one login for all processes that share the token store. Call it after `TokenLapsed`. Call it now and
        then, because a sliding token may live for ever but the institution keys come only with a login. If an
        institution key is unknown, call it with ``max_age_s=60``, which allows one login a minute.

        Raises:
            TokenFault: The last login's token was refused; waiting for the pause after it.
        """
        await self._exchange.renew(max_age_s)

    async def token(self) -> answer_records.TokenAnswer:
        """Log in now, without the token store, and return the whole answer.

        Raises:
            LoginRefused: The credentials are not accepted.

        Spec: Endpoints 1.
        """
        return await self._exchange.request_token()

    async def user_token(self, institution_key: str) -> Secret:
        """Exchange the login for a user token of one institution, valid for 30 minutes.

        Raises:
            ServiceRefused: The service granted none.

        Spec: Endpoints 2; Rules per operation 5.
        """
        endpoint = endpoints.USER_TOKEN
        request = self._exchange.on_behalf(endpoint, institution_key, None)
        answer, record = await self._exchange.read(request, _USER_TOKEN)
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
        connects: bool = False,
        keep: Keep | None = None,
    ) -> tuple[QueueEntry, ...]:
        """List a page of active calls.

        An entry that cannot be read has no voice id; it does not hide the others.

        ``continue_from`` is where the page starts; see docs/assumptions.md. ``search_string`` is part of a phone number
        or of a member's name. ``start_at`` and ``end_at`` are bounds on a call's start, with a zone. ``connects``: over a
        connection of its own. ``keep``: the answer may be late, and this keeps the lease meanwhile.

        Raises:
            ValueError: A bound has no zone.

        Spec: Endpoints 3; Queue query.
        """
        params = {"continueFrom": str(continue_from), "pageSize": str(page_size)}
        params |= _given(searchString=search_string, startDate=_iso(start_at), endDate=_iso(end_at))
        query = urlencode(params)
        request = self._exchange.on_behalf(endpoints.QUEUE, institution_key, requested_by, query=query)
        _, record = await self._exchange.read(request, _QUEUE, connects=connects, keep=keep)
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

        An effect. With a phone number the service ignores the voice id. Assumed (`assign-names-id`): a successful
        answer without a voice id means the one that was sent.

        Raises:
            ServiceRefused: Refused, for example because neither id was given.

        Spec: Endpoints 4; Rules per operation 1.
        """
        endpoint = endpoints.ASSIGN
        body = {"personId": person_id, **_given(voiceId=voice_id, phoneNumber=phone_number)}
        request = self._exchange.on_behalf(endpoint, institution_key, requested_by, body=body)
        record = await self._exchange.effect(request, _ASSIGN, guard)
        settled = record.voice_id or voice_id
        if settled is None:
            raise OutcomeUnknown(endpoint.name, "the answer names no voice id")
        return settled

    async def details(
        self,
        institution_key: str,
        voice_id: str,
        *,
        check: bool,
        requested_by: str,
        connects: bool = False,
        keep: Keep | None = None,
    ) -> PhoneCall:
        """Read a call's record, asking the voice provider again if ``check``.

        The record is in ``phoneCall``; if that is null or missing, at the top level of the answer (Assumed
        (`details-two-records`): of two, ``phoneCall`` counts). ``voice_id`` is the
        real or an alternate id; the service resolves either. A check costs one of the call's 20 and is never repeated.
        ``connects``: over a connection of its own. ``keep``: as for `queue`.

        Raises:
            CallNotFound: The service knows no such call.
            TokenLapsed: 401 on a check; renew, then book another check.
            AccessRefused: 401 on a check although the token is good; renewing does not help.

        Spec: Endpoints 5; Rules per operation 2; Limits.
        """
        query = "checkVoiceAuthentication=true" if check else "checkVoiceAuthentication=false"
        request = self._exchange.on_behalf(
            endpoints.DETAILS, institution_key, requested_by, voice_id, query=query, is_check=check
        )
        exchange = self._exchange
        answer, record = await exchange.read(request, _DETAILS, may_repeat=not check, connects=connects, keep=keep)
        return record.phone_call or top_level_call(answer)

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
        """Enroll the voice of a caller whose identity was established by other means.

        An effect, and not idempotent: a second one records a second verification and sends feedback again.

        ``voice_id`` is the real or an alternate id, ``validation_type`` how identity was established, ``notes`` are for
        the member's record.

        Spec: Endpoints 6; Rules per operation 3.
        """
        body = {"personId": person_id, "validationType": str(validation_type), **_given(notes=notes)}
        request = self._exchange.on_behalf(endpoints.ENROLL, institution_key, requested_by, voice_id, body=body)
        await self._exchange.effect(request, _BASE, guard)

    async def reject_voice(
        self, institution_key: str, voice_id: str, *, requested_by: str, guard: Guard | None = None
    ) -> None:
        """Reject the caller's voice, which also un-enrolls the member's manual authentications.

        An effect. Alternate ids are not resolved: ``voice_id`` must be the real one.

        Spec: Endpoints 7; States and transitions.
        """
        request = self._exchange.on_behalf(endpoints.REJECT_VOICE, institution_key, requested_by, voice_id)
        await self._exchange.effect(request, _BASE, guard)

    async def institutions(self, *, connects: bool = False) -> tuple[answer_records.InstitutionSummary, ...]:
        """List the institutions, with five fields each. Their secrets never leave the parser.

        ``connects``: over a connection of its own.

        Spec: Endpoints 8. Assumed (`institution-list-form`): the list's wrapper is not shown; see
        `callkeeper.service.answer_meaning`.
        """
        summaries, left_out = await self._exchange.list_institutions(connects=connects)
        if left_out:
            self._log.warning("institutions_left_out", institutions=left_out)
        return summaries

    async def institution(self, key: str) -> answer_records.Institution:
        """Read an institution's full record, with secrets masked.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 10.
        """
        endpoint = endpoints.INSTITUTION
        answer, record = await self._exchange.read(Request(endpoint, endpoint.at(key), about=key), _INSTITUTION)
        if record.institution is None:
            raise InstitutionNotFound(endpoint.name, status=answer.status_code)
        return record.institution

    async def add_institution(self, fields: Mapping[str, object]) -> None:
        """Add an institution. An effect.

        Args:
            fields: The request's body; its fields are not shown. Assumed (`added-institution`): at least ``name`` and
            ``core``, as in update.

        Raises:
            ServiceRefused: Refused, also by a 400 problem response.

        Spec: Endpoints 9; Errors 3.
        """
        endpoint = endpoints.ADD_INSTITUTION
        request = Request(endpoint, endpoint.path, content=msgspec.json.encode(dict(fields)))
        await self._exchange.effect(request, _BASE, None)

    async def update_institution(self, key: str, *, name: str | None, core: CoreType) -> None:
        """Change an institution's name and core type. Repeating it changes nothing more.

        Assumed (`update-null-name`): nothing depends on what a null name does.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 11.
        """
        endpoint = endpoints.UPDATE_INSTITUTION
        body = msgspec.json.encode({"name": name, "core": str(core)})
        await self._exchange.read(Request(endpoint, endpoint.at(key), content=body, about=key), _BASE)

    async def login_as(self, key: str) -> answer_records.LoginAsAnswer:
        """Log in as an institution: return a token and the places it gives access to.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 12; Rules per operation 6. Assumed (`login-as-base`): the base response may be missing there.
        """
        endpoint = endpoints.LOGIN_AS
        request = Request(endpoint, endpoint.at(key), about=key)
        _, record = await self._exchange.read(request, _LOGIN_AS, needs_success=False)
        if not record.token:
            raise AnswerUnreadable(endpoint.name, "token is missing")
        return record


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _iso(instant: datetime | None) -> str | None:
    if instant is None:
        return None
    if instant.tzinfo is None:
        raise ValueError("the instant has no time zone")
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
