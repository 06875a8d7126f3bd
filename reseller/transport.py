"""The two ways to the service: httpx transports over aiohttp, which costs a tenth of httpx's own per request.

*Reads* (and checks, listings, logins) use kept-alive connections. *Effects* (assign, enroll, reject-voice) use a fresh
connection each, which the service cannot have dropped before the request. Both verify TLS, follow no redirect, keep no
cookie, read no proxy from the environment and never repeat a request. Call them through ``handle_async_request``:
``httpx.AsyncClient.send`` costs more CPU than the request itself.

A response is read with a cap on what comes out. A gzip body of a kilobyte can unfold to a megabyte, so a cap on what
arrives is not enough, and a cap after unfolding a whole chunk is late. zlib is told how much it may still give.
"""

import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from reseller.config import ServiceConfig

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class BodyRefused(Exception):
    """The body is larger than allowed or not what its encoding says."""


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """A response that was received whole: its body decoded, no longer than allowed."""

    status_code: int
    headers: httpx.Headers
    content: bytes


async def receive(response: httpx.Response, max_bytes: int) -> ServiceResponse:
    """Read a response to its end and close it.

    Raises:
        BodyRefused: The body is larger than ``max_bytes``, in an unknown encoding, or badly encoded.
    """
    # Not by ``response.aread()``: httpx decodes without a cap, and its layers of iterators cost more than all the rest here.
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  (narrows: our transports are async)
    try:
        unfolding = Unfolding(response.headers.get("content-encoding"), max_bytes)
        parts = [unfolding.feed(chunk) async for chunk in response.stream]
        unfolding.finish()
    finally:
        await response.aclose()
    return ServiceResponse(response.status_code, response.headers, b"".join(parts))


class Unfolding:
    """Decodes a body, chunk after chunk, and counts what comes out.

    Args:
        encoding: The Content-Encoding header; None if there is none.
        max_bytes: The cap.

    Raises:
        BodyRefused: Of an unknown encoding; by `feed` and `finish`, too large or badly encoded.
    """

    def __init__(self, encoding: str | None, max_bytes: int) -> None:
        self._decoder = _decoder("identity" if encoding is None else encoding.strip().lower())
        self._max_bytes = self._left = max_bytes

    def feed(self, chunk: bytes) -> bytes:
        """Return what a chunk unfolds to."""
        part = self._decoder.decode(chunk, self._left + 1)
        self._left -= len(part)
        if self._left < 0:
            raise BodyRefused(f"the body exceeds {self._max_bytes} bytes")
        return part

    def finish(self) -> None:
        """Make sure that nothing is missing."""
        self._decoder.finish()


def _decoder(encoding: str) -> "_Identity | _Deflate":
    if encoding in ("identity", ""):
        return _Identity()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Deflate()
    raise BodyRefused("the body has an unknown encoding")


class _Identity:
    def decode(self, chunk: bytes, limit: int) -> bytes:
        return chunk

    def finish(self) -> None:
        return None


class _Deflate:
    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_begun = False

    def decode(self, chunk: bytes, limit: int) -> bytes:
        """Unfold at most ``limit`` bytes; what does not fit shows as a part longer than what is left."""
        self._has_begun = True
        try:
            return self._zlib.decompress(chunk, limit)
        except zlib.error:
            pass
        raise BodyRefused("the body is not what its encoding says")

    def finish(self) -> None:
        if self._has_begun and not self._zlib.eof:
            raise BodyRefused("the compressed body is cut off")


FIRST_BYTE: Final = "callkeeper.first_byte"
"""The request extension that holds a callback without arguments. A transport calls it at the last point before the first
byte of the request; if it raises, nothing is written."""

KEEPALIVE_S = 15.0
"""How long an idle connection is kept: shorter than servers usually do, so that they rarely drop it first."""


def reads_transport(config: ServiceConfig) -> httpx.AsyncBaseTransport:
    """Return the transport of reads: many requests over few connections."""
    tls, limit = _tls(config.ca_file), config.max_connections
    return AiohttpTransport(lambda: aiohttp.TCPConnector(ssl=tls, limit=limit, keepalive_timeout=KEEPALIVE_S))


def effects_transport(config: ServiceConfig) -> httpx.AsyncBaseTransport:
    """Return the transport of effects: one connection for each request."""
    tls, limit = _tls(config.ca_file), config.max_connections
    return AiohttpTransport(lambda: aiohttp.TCPConnector(ssl=tls, limit=limit, force_close=True))


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends requests over an aiohttp session, which the first request opens in its event loop.

    Raises what aiohttp raises. The caller sets the deadline around the whole exchange.
    """

    def __init__(self, open_connector: Callable[[], aiohttp.TCPConnector]) -> None:
        self._open_connector = open_connector
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request whose URL is quoted already; the body of the response is not decoded."""
        if self._session is None:
            self._session = self._open_session()
        content, announce = request.content, request.extensions.get(FIRST_BYTE)
        response = await self._session.request(
            request.method,
            URL(str(request.url), encoded=True),
            headers=[(name.decode("ascii"), value.decode("ascii")) for name, value in request.headers.raw],
            data=_Announced(content, announce) if announce is not None else content or None,
            # aiohttp would call a POST without a body application/octet-stream.
            skip_auto_headers=("Content-Type",) if request.method == "POST" and not content else None,
            allow_redirects=False,
        )
        return httpx.Response(response.status, headers=response.raw_headers, stream=_Body(response))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._open_connector(),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            trust_env=False,
            auto_decompress=False,
            middlewares=(_once,),
        )


class _Announced(aiohttp.BytesPayload):
    """A body that calls back before its first byte: aiohttp writes the head of a request together with its body's start."""

    def __init__(self, content: bytes, first_byte: Callable[[], None]) -> None:
        super().__init__(content)
        self._first_byte = first_byte

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._first_byte()
        await super().write_with_length(writer, content_length)


class _Body(httpx.AsyncByteStream):
    """The raw body of a response. Closing it gives the connection back, or closes it if the body was not read whole."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.content.iter_any():
            yield chunk

    async def aclose(self) -> None:
        self._response.release()


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Hide from aiohttp that a connection was lost, or it would send a GET a second time by itself.

    A check that is sent twice costs two of a call's 20. Failures to connect pass: those it does not repeat.
    """
    try:
        return await send(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientSSLError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError("the connection was lost") from error


@cache
def _tls(ca_file: str | None) -> ssl.SSLContext:
    if ca_file is None:
        return httpx.create_ssl_context(trust_env=False)
    return ssl.create_default_context(cafile=ca_file)
