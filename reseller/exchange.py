"""One request and its whole answer: sent over one of the two ways, inside one deadline.

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
from reseller.session import Session
from reseller.tokens import SsoToken
from reseller.tracing import trace_headers
from reseller.transports import effects_wire, reads_wire
from reseller.wire import Answer, HttpxWire, Wire

Guard = Callable[[], None]
"""Called at the last point before the first byte of an effect; if it raises, nothing is written."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to send: an endpoint's path already filled in, its query as it is written, headers without the token."""

    endpoint: Endpoint
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    content: bytes | None = None

    @property
    def target(self) -> str:
        """Return the path with its query."""
        return f"{self.path}?{self.query}" if self.query else self.path


class Exchange:
    """Send requests to the service and return whole answers."""

    def __init__(
        self,
        config: ServiceConfig,
        reads: httpx.AsyncBaseTransport | None,
        effects: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._deadline_s = config.deadline_s
        url, limit = config.base_url, config.max_body_bytes
        self._reads = reads_wire(config) if reads is None else HttpxWire(url, reads, limit)
        self._effects = effects_wire(config) if effects is None else HttpxWire(url, effects, limit)

    async def ask(self, request: Request, session: Session | None = None, *, may_repeat: bool = False) -> Answer:
        """Send a request that may be lost without harm; repeated only after a 401, by its ``session``.

        Args:
            request: Without the token.
            session: Adds the token; None for a request that needs none.
            may_repeat: Whether a 401 is followed by a login and the same request once more.

        Raises:
            ServiceUnavailable: No whole answer within the deadline.
            CertificateRefused: TLS does not verify.
            AnswerUnreadable: The body is too large or badly encoded.
        """
        failure: ResellerError
        try:
            async with asyncio.timeout(self._deadline_s):
                return await _send(self._reads, request, session, may_repeat=may_repeat)
        except TimeoutError:
            failure = ServiceUnavailable(request.endpoint.name, f"no whole answer within {self._deadline_s:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, BodyRefused) as error:
            failure = _failure(request.endpoint.name, error)
        raise failure

    async def effect(self, request: Request, session: Session, guard: Guard | None) -> Answer:
        """Send a request that changes something, once, over a connection of its own.

        Raises:
            NotSent: Provably no byte was written, or the guard forbade it (its error is the cause).
            OutcomeUnknown: Something was or may have been written, and no whole answer came.
        """
        first_byte = _FirstByte(guard)
        cause: Exception | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                return await _send(self._effects, request, session, may_repeat=False, first_byte=first_byte)
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

    def __call__(self) -> None:
        """Pass, unless the guard objects."""
        if self._guard is not None:
            try:
                self._guard()
            except Exception as error:
                self.forbidden = error
                raise
        self.may_be_written = True


async def _send(
    wire: Wire,
    request: Request,
    session: Session | None,
    *,
    may_repeat: bool,
    first_byte: _FirstByte | None = None,
) -> Answer:
    target, content = request.target, request.content
    headers = {**request.headers, **trace_headers()}
    if content is not None:
        headers["content-type"] = "application/json"
    if first_byte is not None:
        headers["connection"] = "close"

    async def send(token: SsoToken) -> Answer:
        headers["SsoToken"] = token.value.reveal()
        return await wire.send(request.endpoint.method, target, headers, content, first_byte)

    if session is None:
        return await wire.send(request.endpoint.method, target, headers, content, first_byte)
    return await session.spend(send, may_repeat=may_repeat)


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
