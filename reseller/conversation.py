"""What all endpoints have in common: the headers of their auth mode, the exchange, the verdict on its answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec
from structlog.typing import FilteringBoundLogger

from reseller.answers import BaseAnswer, TokenAnswer
from reseller.bounded import ServiceResponse
from reseller.config import ServiceConfig
from reseller.endpoints import TOKEN, Endpoint
from reseller.errors import (
    AccessRefused,
    AnswerUnreadable,
    LoginRefused,
    ServiceRefused,
    ServiceUnavailable,
    TokenLapsed,
)
from reseller.exchange import Exchange, Guard, Request
from reseller.identifiers import header_value
from reseller.reading import Reader
from reseller.session import Session
from reseller.tokens import Login, SsoToken, TokenStore, scope_of
from reseller.verdict import effect_verdict, verdict

A = TypeVar("A", bound=BaseAnswer)
T = TypeVar("T")

_TOKEN = Reader(TokenAnswer)

Observe = Callable[[Endpoint, str, BaseException | None, float], Awaitable[None]]
"""Awaited after every request, with everything that belongs to it (a login, a repeat after a 401): the endpoint, the
institution's key, the error if there was one, and how many seconds it took."""


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
    ) -> None:
        self._config = config
        self._exchange = exchange
        self._clock = clock
        self._observe = observe
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
            return answer, verdict(request.endpoint, answer, reader, needs_success=needs_success)

    async def effect(self, request: Request, reader: Reader[A], guard: Guard | None) -> A:
        """Send an effect once; return the record that says that it was applied."""
        async with self._observed(request.endpoint, request.institution_key):
            answer = await self._exchange.effect(request, self._session, guard)
            return effect_verdict(request.endpoint, answer, reader)

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
            record = verdict(TOKEN, answer, _TOKEN)
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
