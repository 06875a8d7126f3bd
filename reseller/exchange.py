"""One request and its whole response, inside one deadline; and the trace of the event that it is made for, in its header.

Failures leave here as errors of ours. They are raised outside the ``except`` that caught the HTTP library's error,
because that error refers to the request, and the request holds the token.

Whoever handles an event sets its trace for the task that does; every request that the task sends carries it, under the
name that tracing tools know. A trace is a random number: it says nothing about a call or a person. Assumed: the service
ignores a header that it does not know. The Spec names the headers that it reads, and no other.
"""

import asyncio
import re
import secrets
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import aiohttp
import httpx

from reseller.config import ServiceConfig
from reseller.endpoints import Endpoint, scope_of
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
from reseller.transport import FIRST_BYTE, BodyRefused, ServiceResponse, effects_transport, reads_transport, receive

HEADER: Final = "traceparent"
"""Of W3C Trace Context: version, trace, the request's own number, flags."""

_TRACE: Final = re.compile(r"[0-9a-f]{32}")
_current: ContextVar[str | None] = ContextVar("trace", default=None)


def new_trace() -> str:
    """Return the trace of an event that brought none."""
    return secrets.token_hex(16)


def is_trace(text: str) -> bool:
    """Tell whether a text is a trace: 32 hexadecimal digits, not all zero."""
    return _TRACE.fullmatch(text) is not None and text.strip("0") != ""


def follow(trace: str) -> None:
    """Send every further request of this task for an event."""
    _current.set(trace)


def trace_headers() -> dict[str, str]:
    """Return the header of a request that is about to be sent; none where no event is followed."""
    trace = _current.get()
    return {} if trace is None else {HEADER: f"00-{trace}-{secrets.token_hex(8)}-01"}


Guard = Callable[[], None]
"""Called at the last point before the first byte of an effect; if it raises, nothing is written."""


_EVERY_REQUEST = (
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"user-agent", b"callkeeper"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request before it has a token: the endpoint's path filled in and quoted, the query as it is written."""

    endpoint: Endpoint
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    query: str = ""
    content: bytes | None = None
    is_check: bool = False
    about: str = ""
    """The institution that the path names, where no header does: what goes wrong concerns that one only."""

    @property
    def scope(self) -> str:
        """Return what a 401 may be about: the operation and the institution. A check is another operation than a read."""
        return scope_of("check" if self.is_check else self.endpoint.name, self.institution_key)

    @property
    def institution_key(self) -> str:
        """Return the institution that the request is made for, or about; empty if it names none."""
        return self.headers.get("InstitutionKey", self.about)

    def build(self, base_url: str, token: SsoToken | None, first_byte: "FirstByte | None") -> httpx.Request:
        """Return the request as it is sent.

        Args:
            base_url: Where the service is, without a slash at the end.
            token: Sent as ``SsoToken``; None for a request that needs none.
            first_byte: Called before the first byte; such a request has a connection of its own.
        """
        url = _url(f"{base_url}{self.path}?{self.query}" if self.query else base_url + self.path)
        headers = [*_EVERY_REQUEST]
        headers += [(name.encode(), value.encode()) for name, value in {**self.headers, **trace_headers()}.items()]
        if token is not None:
            headers.append((b"SsoToken", token.value.reveal().encode()))
        if self.content is not None:
            headers.append((b"content-type", b"application/json"))
        if first_byte is not None:
            headers.append((b"connection", b"close"))
        extensions = {} if first_byte is None else {FIRST_BYTE: first_byte}
        # Given ``content`` instead of a stream, httpx looks for headers to add: four times the work. aiohttp adds the same.
        stream = httpx.ByteStream(self.content or b"")
        sent = httpx.Request(self.endpoint.method, url, headers=headers, stream=stream, extensions=extensions)
        sent.read()
        return sent


@lru_cache(maxsize=16_384)
def _url(text: str) -> httpx.URL:
    """Parse a URL once: a call's are asked for dozens of times, and httpx takes 14 microseconds each time."""
    return httpx.URL(text)


class Exchange:
    """Send requests to the service and return whole answers."""

    def __init__(
        self,
        config: ServiceConfig,
        reads: httpx.AsyncBaseTransport | None,
        effects: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._deadline_s = config.deadline_s
        self._base_url = config.base_url
        self._max_body_bytes = config.max_body_bytes
        self._reads = reads_transport(config) if reads is None else reads
        self._effects = effects_transport(config) if effects is None else effects

    async def ask(
        self, request: Request, session: Session | None = None, *, may_repeat: bool = False
    ) -> ServiceResponse:
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
                return await self._send(self._reads, request, session, may_repeat=may_repeat)
        except TimeoutError:
            failure = ServiceUnavailable(request.endpoint.name, f"no whole answer within {self._deadline_s:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, aiohttp.ClientError, OSError, BodyRefused) as error:
            failure = _failure(request.endpoint.name, error)
        raise failure

    async def effect(self, request: Request, session: Session, guard: Guard | None) -> ServiceResponse:
        """Send a request that changes something, once, over a connection of its own.

        Raises:
            NotSent: Provably no byte was written, or the guard forbade it (its error is the cause).
            OutcomeUnknown: Something was or may have been written, and no whole answer came.
        """
        first_byte = FirstByte(guard)
        cause: Exception | None = None
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._send(self._effects, request, session, may_repeat=False, first_byte=first_byte)
        except ResellerError as error:
            reason, cause = error.reason, error
        except Exception as error:  # noqa: BLE001  (whatever it was, the effect has one of two outcomes)
            reason, cause = _effect_failure(request.endpoint.name, error)
        if first_byte.may_be_written:
            raise OutcomeUnknown(request.endpoint.name, reason)
        if first_byte.forbidden is not None:
            raise NotSent(request.endpoint.name, "the guard forbade it") from first_byte.forbidden
        raise NotSent(request.endpoint.name, reason) from cause

    async def _send(
        self,
        transport: httpx.AsyncBaseTransport,
        request: Request,
        session: Session | None,
        *,
        may_repeat: bool,
        first_byte: "FirstByte | None" = None,
    ) -> ServiceResponse:
        async def send(token: SsoToken | None) -> ServiceResponse:
            response = await transport.handle_async_request(request.build(self._base_url, token, first_byte))
            return await receive(response, self._max_body_bytes)

        return await send(None) if session is None else await session.spend(send, request.scope, may_repeat=may_repeat)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._reads.aclose()
        await self._effects.aclose()


class FirstByte:
    """Runs the guard of an effect before its first byte, and knows whether a byte may have been written."""

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self.may_be_written = False
        self.forbidden: Exception | None = None

    def __call__(self) -> None:
        """Run the guard; from here on the request may have reached the service.

        Raises:
            Exception: The guard's own; nothing is written then.
        """
        if self._guard is not None:
            try:
                self._guard()
            except Exception as error:
                self.forbidden = error
                raise
        self.may_be_written = True


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
