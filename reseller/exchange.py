"""One request and its whole answer: sent over one of the two clients, inside one deadline.

What goes wrong leaves here as an error of ours. It is raised outside the ``except`` that caught the HTTP library's
error: that one knows the request, and the request knows the token.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import aiohttp
import httpx

from reseller.bounded import BodyRefused
from reseller.config import ServiceConfig
from reseller.endpoints import Endpoint
from reseller.errors import (
    AnswerUnreadable,
    CertificateRefused,
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceUnavailable,
)
from reseller.transports import bounded_client, effects_transport, reads_transport

Guard = Callable[[], None]
"""Called at the last point before the first byte of an effect; if it raises, nothing is written."""

FIRST_BYTE = "http11.send_request_headers.started"
"""The trace event after which httpcore may have written something."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to send: an endpoint's path already filled in, headers without the token."""

    endpoint: Endpoint
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] | None = None
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whole. ``retry_after`` and ``date`` are the headers of these names."""

    status: int
    body: bytes
    retry_after: str | None = None
    date: str | None = None


class Exchange:
    """Send requests to the service and return whole answers."""

    def __init__(
        self,
        config: ServiceConfig,
        reads: httpx.AsyncBaseTransport | None,
        effects: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._deadline_s = config.deadline_s
        self._reads = bounded_client(config, reads or reads_transport(config))
        self._effects = bounded_client(config, _announcing(effects or effects_transport(config)))

    async def ask(self, request: Request, auth: httpx.Auth | None = None) -> Answer:
        """Send a request that may be lost without harm; never repeated here, only by its ``auth``.

        Raises:
            ServiceUnavailable: No whole answer within the deadline.
            CertificateRefused: TLS does not verify.
            AnswerUnreadable: The body is too large or badly encoded.
        """
        failure: ResellerError
        try:
            async with asyncio.timeout(self._deadline_s):
                return await _whole(self._reads, request, auth)
        except TimeoutError:
            failure = ServiceUnavailable(request.endpoint.name, f"no whole answer within {self._deadline_s:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, BodyRefused) as error:
            failure = _failure(request.endpoint.name, error)
        raise failure

    async def effect(self, request: Request, auth: httpx.Auth, guard: Guard | None) -> Answer:
        """Send a request that changes something, once, over a connection of its own.

        Raises:
            NotSent: Provably no byte was written, or the guard forbade it (its error is the cause).
            OutcomeUnknown: Something was or may have been written, and no whole answer came.
        """
        first_byte = _FirstByte(guard)
        cause: Exception | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                return await _whole(self._effects, request, auth, first_byte)
        except ResellerError as error:
            reason, cause = error.reason, error
        except Exception as error:  # noqa: BLE001  (whatever it was, the effect has one of two outcomes)
            reason, cause = _effect_failure(request.endpoint.name, error)
        if first_byte.may_be_written:
            raise OutcomeUnknown(request.endpoint.name, reason)
        if first_byte.forbidden is not None:
            raise NotSent(request.endpoint.name, "the guard forbade it") from first_byte.forbidden
        raise NotSent(request.endpoint.name, reason) from cause

    async def aclose(self) -> None:
        """Close all connections."""
        await self._reads.aclose()
        await self._effects.aclose()


class _FirstByte:
    """Hold the guard at the door, and remember whether anything may have passed."""

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self.may_be_written = False
        self.forbidden: Exception | None = None

    async def trace(self, event: str, info: object) -> None:
        """Follow httpcore's trace; nothing is awaited between the guard and the write."""
        if event != FIRST_BYTE or self.may_be_written:
            return
        if self._guard is not None:
            try:
                self._guard()
            except Exception as error:
                self.forbidden = error
                raise
        self.may_be_written = True


class _Announcing(httpx.AsyncBaseTransport):
    """Announce the first byte for a transport that does not: nothing after the hand-over counts as unsent."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.extensions["trace"](FIRST_BYTE, {})
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _announcing(transport: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
    return transport if isinstance(transport, httpx.AsyncHTTPTransport) else _Announcing(transport)


async def _whole(
    client: httpx.AsyncClient, request: Request, auth: httpx.Auth | None, first_byte: _FirstByte | None = None
) -> Answer:
    headers = dict(request.headers)
    if request.content is not None:
        headers["content-type"] = "application/json"
    if first_byte is not None:
        headers["connection"] = "close"
    response = await client.request(
        request.endpoint.method,
        request.path,
        headers=headers,
        params=request.params,
        content=request.content,
        auth=auth,
        extensions={} if first_byte is None else {"trace": first_byte.trace},
    )
    return Answer(
        response.status_code,
        response.content,
        retry_after=response.headers.get("retry-after"),
        date=response.headers.get("date"),
    )


def _failure(endpoint: str, error: Exception) -> ResellerError:
    if isinstance(error, BodyRefused):
        return AnswerUnreadable(endpoint, str(error))
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in _chain(error)):
        return CertificateRefused(endpoint, "the certificate does not verify")
    return ServiceUnavailable(endpoint, f"no whole answer ({type(error).__name__})")


def _effect_failure(endpoint: str, error: Exception) -> tuple[str, ResellerError | None]:
    if isinstance(error, TimeoutError):
        return "no whole answer within the deadline", None
    failure = _failure(endpoint, error)
    return failure.reason, failure if isinstance(failure, CertificateRefused) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
