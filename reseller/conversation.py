"""What all endpoints have in common: headers of the auth mode, exchange, result; and the endpoints of institutions.

Assumed: the list of institutions, whose wrapper the Spec does not show, is either a bare array, or an object in which
exactly one property beside the base response's own is an array. Five fields of each entry are read; the rest of it,
secrets included, never becomes a value.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from structlog.typing import FilteringBoundLogger

from reseller import endpoints
from reseller.answers import BaseAnswer, Institution, InstitutionAnswer, InstitutionSummary, LoginAsAnswer, TokenAnswer
from reseller.config import ServiceConfig
from reseller.endpoints import INSTITUTIONS, TOKEN, Endpoint, header_value, scope_of
from reseller.enumerations import CoreType
from reseller.errors import (
    AccessRefused,
    AnswerUnreadable,
    InstitutionNotFound,
    LoginRefused,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
)
from reseller.exchange import Exchange, Guard, Request
from reseller.reading import Reader, Unreadable
from reseller.results import check_status, effect_verdict, verdict
from reseller.secret import Secret
from reseller.session import Session
from reseller.tokens import Login, SsoToken, TokenStore
from reseller.transport import ServiceResponse

A = TypeVar("A", bound=BaseAnswer)
T = TypeVar("T")

_TOKEN = Reader(TokenAnswer)

Observe = Callable[[Endpoint, str, BaseException | None, float], Awaitable[None]]
"""Awaited after every request, with everything that belongs to it (a login, a repeat after a 401): the endpoint, the
institution's key, the error if there was one, and how many seconds it took."""


Heed = Callable[[tuple[Secret, ...]], None]
"""Called with what an answer that succeeded says besides. Spec: Base response, ``messages``."""


def unheeded(_messages: tuple[Secret, ...]) -> None:
    """Let informational messages pass."""


async def unobserved(_endpoint: Endpoint, _institution_key: str, _error: BaseException | None, _seconds: float) -> None:
    """Observe nothing."""


class Conversation:
    """Requests to the service as one account; see `reseller.client.Reseller` for the arguments."""

    def __init__(
        self,
        config: ServiceConfig,
        tokens: TokenStore,
        exchange: Exchange,
        *,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        observe: Observe = unobserved,
        heed: Heed = unheeded,
    ) -> None:
        self._config = config
        self._exchange = exchange
        self._clock = clock
        self._observe = observe
        self._heed = heed
        deadline_s = config.deadline_s
        self._session = Session(
            tokens,
            self._login,
            config.login,
            deadline_s=deadline_s,
            account=config.account,
            clock=clock,
            log=log,
        )

    @property
    def deadline_s(self) -> float:
        """Return how many seconds a request may take."""
        return self._config.deadline_s

    async def ask(self, request: Request, *, may_repeat: bool = True) -> ServiceResponse:
        """Send a read or a check and return its answer, whatever it is.

        Args:
            request: Without the token.
            may_repeat: Whether a 401 is followed by a login and the same request once more.
        """
        if may_repeat:
            await self._session.enter(request.endpoint.name, request.scope)
        return await self._exchange.ask(request, self._session, may_repeat=may_repeat)

    async def read(
        self, request: Request, reader: Reader[A], *, may_repeat: bool = True, needs_success: bool = True
    ) -> tuple[ServiceResponse, A]:
        """Send a read or a check; return its answer and the record in it.

        Raises:
            AccessRefused: The request was, or would be, answered 401 although the token is good.
        """
        if may_repeat:
            await self._session.enter(request.endpoint.name, request.scope)
        async with self._observed(request.endpoint, request.institution_key):
            answer = await self._exchange.ask(request, self._session, may_repeat=may_repeat)
            if answer.status_code == 401 and (wait_s := self._session.barred_s(request.scope)) is not None:
                raise AccessRefused(request.endpoint.name, wait_s)
            return answer, self._heeded(verdict(request.endpoint, answer, reader, needs_success=needs_success))

    async def effect(self, request: Request, reader: Reader[A], guard: Guard | None) -> A:
        """Send an effect once; return the record that says that it was applied."""
        async with self._observed(request.endpoint, request.institution_key):
            answer = await self._exchange.effect(request, self._session, guard)
            return self._heeded(effect_verdict(request.endpoint, answer, reader))

    def on_behalf(self, endpoint: Endpoint, institution_key: str, requested_by: str | None) -> dict[str, str]:
        """Return the headers that name the institution and the operator.

        Raises:
            Unsendable: One of the two cannot be a header.

        Spec: Authentication 2.
        """
        operator = self._config.requested_by if requested_by is None else requested_by
        return {
            "InstitutionKey": header_value(endpoint.name, "InstitutionKey", institution_key),
            "RequestedBy": header_value(endpoint.name, "RequestedBy", operator),
        }

    def barred_s(self, endpoint: Endpoint, institution_key: str) -> float | None:
        """Return for how many seconds an institution's endpoint is left alone; None if it is not barred."""
        return self._session.barred_s(scope_of(endpoint.name, institution_key))

    async def current_token(self) -> SsoToken:
        """Return the token in use, logging in if there is none, within the deadline."""
        return await self._in_time(self._session.current)

    async def renew(self, max_age_s: float) -> None:
        """Replace a refused or old token, within the deadline."""
        await self._in_time(lambda: self._session.renew(max_age_s=max_age_s))

    async def request_token(self) -> TokenAnswer:
        """Log in, past the token store.

        Raises:
            LoginRefused: The credentials are not accepted.
            AnswerUnreadable: No token in the answer.
            ServiceUnavailable: No answer.

        Spec: Endpoints 1; Authentication.
        """
        async with self._observed(TOKEN):
            return await self._request_token()

    async def _request_token(self) -> TokenAnswer:
        answer = await self._exchange.ask(self._token_request())
        try:
            record = self._heeded(verdict(TOKEN, answer, _TOKEN))
        except (TokenLapsed, ServiceRefused) as error:
            reason, texts = error.reason, error.texts
        else:
            if record.token:
                return record
            raise AnswerUnreadable(TOKEN.name, "token is missing")
        raise LoginRefused(TOKEN.name, reason).saying(texts)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._exchange.aclose()

    def _heeded(self, record: A) -> A:
        if record.messages:
            self._heed(record.messages)
        return record

    @asynccontextmanager
    async def _observed(self, endpoint: Endpoint, institution_key: str = "") -> AsyncIterator[None]:
        began_s = self._clock()
        try:
            yield
        except BaseException as error:
            await self._observe(endpoint, institution_key, error, self._clock() - began_s)
            raise
        await self._observe(endpoint, institution_key, None, self._clock() - began_s)

    def _token_request(self) -> Request:
        config = self._config
        access_token = header_value(TOKEN.name, "accessToken", config.access_token.reveal())
        credentials = {"email": config.email.reveal(), "password": config.password.reveal()}
        content = msgspec.json.encode(credentials)
        return Request(TOKEN, TOKEN.at(), {"accessToken": access_token}, content=content)

    async def _login(self) -> Login:
        record = await self.request_token()
        assert record.token is not None  # noqa: S101  (request_token sees to it)
        return Login(record.token, frozenset(record.institution_keys))

    async def _in_time(self, what: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._config.deadline_s):
                return await what()
        except TimeoutError:
            pass
        raise ServiceUnavailable(TOKEN.name, f"no login within {self._config.deadline_s:g} s")


_BASE = Reader(BaseAnswer)
_SUMMARY = Reader(InstitutionSummary)
_BASE_LISTS = ("errors", "messages")
_array = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def institution_list(answer: ServiceResponse) -> tuple[tuple[InstitutionSummary, ...], int]:
    """Return the institutions that can be read, and how many cannot.

    Raises:
        ServiceRefused: ``success`` is there and false.
        AnswerUnreadable: No list is found.
        TokenLapsed: 401.
        ServiceUnavailable: 429 or 5xx.

    Spec: Endpoints 8.
    """
    check_status(INSTITUTIONS, answer)
    entries = _entries(answer)
    if entries is None or not 200 <= answer.status_code < 300:
        raise AnswerUnreadable(INSTITUTIONS.name, f"status {answer.status_code}, no list of institutions")
    summaries = [_summary(entry) for entry in entries]
    readable = tuple(summary for summary in summaries if summary is not None)
    return readable, len(summaries) - len(readable)


def _entries(answer: ServiceResponse) -> list[msgspec.Raw] | None:
    try:
        if answer.content.lstrip()[:1] == b"[":
            return _array.decode(answer.content)
        wrapper = _object.decode(answer.content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    verdict(INSTITUTIONS, answer, _BASE, needs_success=False)
    arrays = [raw for name, raw in wrapper.items() if name not in _BASE_LISTS and bytes(raw)[:1] == b"["]
    return _array.decode(arrays[0]) if len(arrays) == 1 else None


def _summary(entry: msgspec.Raw) -> InstitutionSummary | None:
    try:
        return _SUMMARY.read(bytes(entry))
    except Unreadable:
        return None


_INSTITUTION = Reader(InstitutionAnswer)
_LOGIN_AS = Reader(LoginAsAnswer)


class InstitutionEndpoints:
    """List, read, add and change institutions; log in as one. Part of `reseller.client.Reseller`."""

    def __init__(self, talk: Conversation, log: FilteringBoundLogger) -> None:
        self._talk = talk
        self._log = log

    async def institutions(self) -> tuple[InstitutionSummary, ...]:
        """List the institutions, five fields of each; their secrets never leave the parser.

        Spec: Endpoints 8. Assumed: the list's wrapper is not shown; see `reseller.conversation`.
        """
        endpoint = endpoints.INSTITUTIONS
        summaries, left_out = institution_list(await self._talk.ask(Request(endpoint, endpoint.at())))
        if left_out:
            self._log.warning("institutions_left_out", institutions=left_out)
        return summaries

    async def institution(self, key: str) -> Institution:
        """Read an institution's full record, secrets masked.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 10.
        """
        endpoint = endpoints.INSTITUTION
        answer, record = await self._talk.read(Request(endpoint, endpoint.at(key), about=key), _INSTITUTION)
        if record.institution is None:
            raise InstitutionNotFound(endpoint.name, status=answer.status_code)
        return record.institution

    async def add_institution(self, fields: Mapping[str, object]) -> None:
        """Add an institution. An effect.

        Args:
            fields: The request's body; its fields are not shown. Assumed: at least ``name`` and ``core``, as update.

        Raises:
            ServiceRefused: Declined, also by a 400 problem response.
            NotSent: Provably no byte was written.
            TokenLapsed: 401; renew, then send anew.
            OutcomeUnknown: May or may not have been applied.

        Spec: Endpoints 9; Errors 3.
        """
        endpoint = endpoints.ADD_INSTITUTION
        await self._talk.effect(
            Request(endpoint, endpoint.at(), content=msgspec.json.encode(dict(fields))), _BASE, None
        )

    async def update_institution(self, key: str, *, name: str | None, core: CoreType) -> None:
        """Change an institution's name and core type. Repeating it changes nothing more.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 11.
        """
        endpoint = endpoints.UPDATE_INSTITUTION
        body = msgspec.json.encode({"name": name, "core": str(core)})
        await self._talk.read(Request(endpoint, endpoint.at(key), content=body, about=key), _BASE)

    async def login_as(self, key: str) -> LoginAsAnswer:
        """Log in as an institution: a token and the places it opens.

        Raises:
            InstitutionNotFound: The service knows no such institution.

        Spec: Endpoints 12; Rules per operation 6. Assumed: the base response may be missing there.
        """
        endpoint = endpoints.LOGIN_AS
        request = Request(endpoint, endpoint.at(key), about=key)
        _, record = await self._talk.read(request, _LOGIN_AS, needs_success=False)
        if not record.token:
            raise AnswerUnreadable(endpoint.name, "token is missing")
        return record
