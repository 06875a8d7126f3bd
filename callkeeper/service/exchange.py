"""Sends one request and interprets its answer, within one deadline that includes a login if one is needed.

Failures are raised as our own errors, outside the ``except`` that caught the HTTP library's error, because that error
refers to the request, and the request holds the token.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import httpx
import msgspec
from structlog.typing import FilteringBoundLogger

from callkeeper.service.aiohttp_transport import (
    BodyRefused,
    FirstByte,
    Guard,
    effects_transport,
    http_request,
    reads_transport,
    receive,
)
from callkeeper.service.answer_meaning import effect_verdict, foreign_answer, institution_list, login_verdict, verdict
from callkeeper.service.answer_parsing import Reader
from callkeeper.service.answer_records import BaseAnswer, InstitutionSummary, TokenAnswer
from callkeeper.service.answer_tap import AnswerTap, See
from callkeeper.service.config import ServiceConfig
from callkeeper.service.endpoints import INSTITUTIONS, TOKEN, Endpoint, Request, ServiceResponse, header_value
from callkeeper.service.errors import (
    AccessRefused,
    AnswerUnreadable,
    CertificateRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceUnavailable,
)
from callkeeper.service.login_session import Session
from callkeeper.service.network_failure import certificate_fault, network_failure
from callkeeper.service.secret import Secret
from callkeeper.service.tokens import Login, SsoToken, TokenStore
from callkeeper.service.tracing import SpanKind, span, trace_headers

A = TypeVar("A", bound=BaseAnswer)
T = TypeVar("T")

_TOKEN = Reader(TokenAnswer)
_REFUSED = re.compile(rb'"success"\s*:\s*false')

Observe = Callable[[Endpoint, str, BaseException | None, float], Awaitable[None]]
"""Awaited after every request, including its login or repeat after a 401: the endpoint, the institution's key, the
error if there was one, and the duration in seconds."""

Heed = Callable[[tuple[Secret, ...]], None]
"""Called with the messages of a successful answer. Spec: Base response, ``messages``.

Assumed (`base-response`): they are for people, and change nothing."""


Keep = Callable[[], Awaitable[None]]
"""Awaited every few seconds while an answer is late: it renews the lease, or raises an error that ends the request."""

MOST_OVERDUE = 16
"""How many requests at a time may be late without an earlier late answer of their scope."""

LATE_S = 60.0
"""For this many seconds after a late answer, others of the same scope may be late, too."""


async def unkept() -> None:
    """Keep no lease: for requests that are made without one."""


def unheeded(_messages: tuple[Secret, ...]) -> None:
    """Ignore messages."""


async def unobserved(_endpoint: Endpoint, _institution_key: str, _error: BaseException | None, _seconds: float) -> None:
    """Observe nothing."""


class Exchange:
    """Exchanges requests and answers with the service for one account. For arguments see `client.Reseller`."""

    def __init__(
        self,
        config: ServiceConfig,
        tokens: TokenStore,
        *,
        reads: httpx.AsyncBaseTransport | None,
        effects: httpx.AsyncBaseTransport | None,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        observe: Observe,
        heed: Heed,
        see: See,
        now: Callable[[], datetime],
    ) -> None:
        self._config = config
        self._host = urlsplit(config.base_url).hostname or ""
        self._reads = reads_transport(config) if reads is None else reads
        self._effects = effects_transport(config) if effects is None else effects
        self._clock = clock
        self._observe = observe
        self._heed = heed
        self.tap = AnswerTap(see, clock=clock, now=now)
        self._late_at_s: dict[str, float] = {}  # scope -> when its last late answer came
        self._overdue: set[str] = set()  # scopes of which one request waits longer than the deadline
        deadline_s, account = config.deadline_s, config.account
        self.session = Session(
            tokens, self._login, config.login, deadline_s=deadline_s, account=account, clock=clock, log=log
        )

    @property
    def deadline_s(self) -> float:
        """Return how many seconds a request may take."""
        return self._config.deadline_s

    def on_behalf(
        self,
        endpoint: Endpoint,
        institution_key: str,
        requested_by: str | None,
        voice_id: str | None = None,
        *,
        query: str = "",
        body: dict[str, str] | None = None,
        is_check: bool = False,
    ) -> Request:
        """Return a request for an institution, with the headers that name it and the operator.

        Raises:
            Unsendable: An identifier or a header value cannot be sent.

        Spec: Authentication 2.
        """
        operator = self._config.requested_by if requested_by is None else requested_by
        headers = {
            "InstitutionKey": header_value(endpoint.name, "InstitutionKey", institution_key),
            "RequestedBy": header_value(endpoint.name, "RequestedBy", operator),
        }
        content = None if body is None else msgspec.json.encode(body)
        return Request(endpoint, endpoint.at(voice_id), headers, query, content, is_check)

    async def list_institutions(self, *, connects: bool) -> tuple[tuple[InstitutionSummary, ...], int]:
        """Return the readable institutions, and how many are unreadable. Errors as `read` and `institution_list`."""
        request = Request(INSTITUTIONS, INSTITUTIONS.path)
        await self.session.enter(request.endpoint.name, request.scope)
        answer = await self._in_time(
            request, self._send_with_token(self._transport(connects), request, may_repeat=True)
        )
        self.tap.look(request, answer)
        return institution_list(answer)

    async def read(
        self,
        request: Request,
        reader: Reader[A],
        *,
        may_repeat: bool = True,
        needs_success: bool = True,
        connects: bool = False,
        keep: Keep | None = None,
    ) -> tuple[ServiceResponse, A]:
        """Send a read or a check. Return its answer and the record in it.

        ``may_repeat``: a 401 is followed by a login and one repetition. ``needs_success`` is as in `verdict`.
        ``connects``: it opens a connection of its own, as an effect does. With ``keep`` the answer may be late.

        Raises:
            ServiceUnavailable: No whole answer in time.
            CertificateRefused: TLS does not verify.
            AnswerUnreadable: The body is too large or badly encoded.
            AccessRefused: The request got, or would get, 401 although the token is good.
        """
        endpoint, session = request.endpoint, self.session
        transport = self._transport(connects)
        if may_repeat:
            await session.enter(endpoint.name, request.scope)
        async with self._observed(endpoint, request.institution_key):
            sending = self._send_with_token(transport, request, may_repeat=may_repeat)
            answer = await self._in_time(request, sending, keep)
            if answer.status_code == 401 and (wait_s := session.barred_s(request.scope)) is not None:
                raise AccessRefused(endpoint.name, wait_s)
            self.tap.look(request, answer)
            return answer, self._heeded(verdict(endpoint, answer, reader, needs_success=needs_success))

    async def effect(self, request: Request, reader: Reader[A], guard: Guard | None) -> A:
        """Send a request that changes something, once, over its own connection. Return the record that confirms it.

        Raises:
            NotSent: Certainly no byte was written, or the guard stopped it (its error is the cause).
            OutcomeUnknown: Something was or may have been written, and no whole answer came.
        """
        async with self._observed(request.endpoint, request.institution_key):
            answer = await self._send_once(request, FirstByte(guard))
            self.tap.look(request, answer)
            return self._heeded(effect_verdict(request.endpoint, answer, reader))

    def _transport(self, connects: bool) -> httpx.AsyncBaseTransport:
        return self._effects if connects else self._reads

    async def _send_once(self, request: Request, first_byte: FirstByte) -> ServiceResponse:
        cause: Exception | None = None
        try:
            async with asyncio.timeout(self._config.deadline_s):
                return await self._send_with_token(self._effects, request, first_byte)
        except ResellerError as error:
            reason, cause = error.reason, error
        except Exception as error:  # noqa: BLE001  (whatever it was, the effect has one of two outcomes)
            reason, cause = _effect_failure(request.endpoint.name, error)
        if first_byte.may_be_written:
            raise OutcomeUnknown(request.endpoint.name, reason)
        if first_byte.forbidden is not None:
            raise NotSent(request.endpoint.name, "the guard stopped it") from first_byte.forbidden
        raise NotSent(request.endpoint.name, reason) from cause

    async def _send_with_token(
        self,
        transport: httpx.AsyncBaseTransport,
        request: Request,
        first_byte: FirstByte | None = None,
        *,
        may_repeat: bool = False,
    ) -> ServiceResponse:
        """Send a request with the token, and once more after a 401 if allowed. A final 401 is the answer.

        A lapse that the service tells otherwise (`Session.lapsed`) is answered as a 401, too. An answer that is not the
        service's says nothing of the token.
        """
        session, scope = self.session, request.scope
        token = await session.token_for(scope)
        answer = await self._send(transport, request, token, first_byte)
        if foreign_answer(answer) is not None:
            return answer
        answer, succeeded = _told(session, token, scope, answer)
        status = answer.status_code
        other = await session.record_answer(token, scope, status, succeeded=succeeded, may_repeat=may_repeat)
        if other is not None:
            repeated = await self._send(transport, request, other, first_byte, is_repeat=True)
            answer, succeeded = _told(session, other, scope, repeated)
            await session.record_answer(other, scope, answer.status_code, succeeded=succeeded, is_repeat=True)
        return answer

    async def _send(
        self,
        transport: httpx.AsyncBaseTransport,
        request: Request,
        token: SsoToken | None,
        first_byte: FirstByte | None = None,
        *,
        is_repeat: bool = False,
    ) -> ServiceResponse:
        endpoint = request.endpoint
        with span(endpoint.title, SpanKind.CLIENT) as sending:
            if sending.is_recorded:
                sending.note(
                    endpoint=request.operation,
                    host=self._host,
                    method=endpoint.method,
                    route=endpoint.path,
                    institution=request.institution_key,
                    resends=int(is_repeat),
                )
            sent = http_request(request, self._config.base_url, _own_headers(token), first_byte)
            response = await transport.handle_async_request(sent)
            answer = await receive(response, self._config.max_body_bytes)
            sending.note(status=answer.status_code)
            if answer.status_code >= 400:
                sending.fail(str(answer.status_code))
            return answer

    async def _in_time(
        self, request: Request, sending: Awaitable[ServiceResponse], keep: Keep | None = None
    ) -> ServiceResponse:
        failure: ResellerError
        began_s = asyncio.get_running_loop().time()
        try:
            if keep is not None:
                return await self._patiently(request, sending, keep)
            async with asyncio.timeout(self._config.deadline_s):
                return await sending
        except TimeoutError:
            waited_s = asyncio.get_running_loop().time() - began_s
            failure = ServiceUnavailable(request.endpoint.name, f"no whole answer within {waited_s:.2g} s")
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, BodyRefused) as error:
            failure = _failure(request.endpoint.name, error)
        raise failure

    def is_late(self, scope: str) -> bool:
        """Tell whether an answer of a scope was late just now: the service is slow there, and not away."""
        late_at_s = self._late_at_s.get(scope)
        return late_at_s is not None and self._clock() - late_at_s < LATE_S

    async def _patiently(self, request: Request, sending: Awaitable[ServiceResponse], keep: Keep) -> ServiceResponse:
        """Wait for an answer that may be late: up to ``patience_s``, and keep the lease meanwhile.

        Only one request of a scope may be late, until it is answered: then the others of that scope may, too. So it is
        noticed in time that a service is away, and few of the calls in flight wait for it.
        """
        answering, rounds, is_first = asyncio.ensure_future(sending), 0, False
        try:
            async with asyncio.timeout(self._config.patience_s):
                while not (await asyncio.wait({answering}, timeout=self._config.deadline_s / 2))[0]:
                    rounds += 1
                    if rounds == 2 and not self.is_late(request.scope):
                        if request.scope in self._overdue or len(self._overdue) >= MOST_OVERDUE:
                            raise TimeoutError
                        self._overdue.add(request.scope)
                        is_first = True
                    await keep()
            if rounds >= 2:
                self._late_at_s[request.scope] = self._clock()
            return answering.result()
        finally:
            if is_first:
                self._overdue.discard(request.scope)
            while not answering.done():
                answering.cancel()
                await asyncio.wait({answering}, timeout=0.1)
            _ = answering.cancelled() or answering.exception()

    async def current_token(self) -> SsoToken:
        """Return the token in use within the deadline, logging in if there is none."""
        return await self._logged_in(self.session.current())

    async def renew(self, max_age_s: float) -> None:
        """Replace a refused or old token, within the deadline."""
        await self._logged_in(self.session.renew(max_age_s=max_age_s))

    async def _logged_in(self, login: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._config.deadline_s):
                return await login
        except TimeoutError:
            pass
        raise ServiceUnavailable(TOKEN.name, f"no login within {self._config.deadline_s:g} s")

    async def request_token(self) -> TokenAnswer:
        """Log in without the token store.

        Raises:
            ServiceUnavailable: No answer in time.
            ResellerError: As `login_verdict`.

        Spec: Endpoints 1; Authentication.
        """
        async with self._observed(TOKEN):
            request = self._token_request()
            answer = await self._in_time(request, self._send(self._reads, request, None))
            self.tap.look(request, answer)
            return self._heeded(login_verdict(answer, _TOKEN))

    def _token_request(self) -> Request:
        config = self._config
        access_token = header_value(TOKEN.name, "accessToken", config.access_token.reveal())
        credentials = {"email": config.email.reveal(), "password": config.password.reveal()}
        return Request(TOKEN, TOKEN.at(), {"accessToken": access_token}, content=msgspec.json.encode(credentials))

    async def _login(self) -> Login:
        record = await self.request_token()
        assert record.token is not None  # noqa: S101  (request_token ensures it)
        return Login(record.token, frozenset(record.institution_keys))

    def _heeded(self, record: A) -> A:
        if record.messages:
            self._heed(record.messages)
        return record

    @asynccontextmanager
    async def _observed(self, endpoint: Endpoint, institution_key: str = "") -> AsyncIterator[None]:
        """Report the result and the duration of the request in the block to the observer."""
        began_s = self._clock()
        try:
            yield
        except BaseException as error:
            await self._observe(endpoint, institution_key, error, self._clock() - began_s)
            raise
        await self._observe(endpoint, institution_key, None, self._clock() - began_s)

    async def aclose(self) -> None:
        await self._reads.aclose()
        await self._effects.aclose()


def _told(session: Session, token: SsoToken, scope: str, answer: ServiceResponse) -> tuple[ServiceResponse, bool]:
    """Return an answer, as a 401 if it tells a lapse otherwise, and whether it succeeded."""
    is_refusal = answer.status_code < 429 and answer.status_code != 401 and _REFUSED.search(answer.content) is not None
    succeeded = 200 <= answer.status_code < 300 and not is_refusal
    if (succeeded or is_refusal) and session.lapsed(token, scope, succeeded=succeeded):
        return ServiceResponse(401, answer.headers, answer.content), False
    return answer, succeeded


def _own_headers(token: SsoToken | None) -> dict[str, str]:
    """Return the headers that only one attempt has. Keep them out of a frame that waits: tracebacks may show locals."""
    return trace_headers() | ({} if token is None else {"SsoToken": token.value.reveal()})


def _failure(endpoint: str, error: Exception) -> ResellerError:
    if isinstance(error, BodyRefused):
        return AnswerUnreadable(endpoint, str(error))
    if (fault := certificate_fault(error)) is not None:
        return CertificateRefused(endpoint, fault)
    return ServiceUnavailable(endpoint, f"no whole answer: {network_failure(error)}")


def _effect_failure(endpoint: str, error: Exception) -> tuple[str, ResellerError | None]:
    if isinstance(error, TimeoutError):
        return "no whole answer within the deadline", None
    failure = _failure(endpoint, error)
    return failure.reason, failure if isinstance(failure, CertificateRefused) else None
