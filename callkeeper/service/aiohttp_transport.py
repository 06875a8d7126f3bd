"""The two connections to the service, over aiohttp, at a tenth of the CPU cost of httpx.

*Reads* (and checks, listings, logins) use kept-alive connections. *Effects* (assign, enroll, reject-voice) use a fresh
connection each, which the service cannot have dropped before the request. Both verify TLS, follow no redirects, keep no
cookies, use no proxy but the configured one and never repeat a request.

The size of a response is limited after decompression. A limit on the received bytes is not enough, because a gzip body
of a kilobyte can become a megabyte, and a limit after decompressing a whole chunk comes too late. So zlib is told how
much it may still return. What arrives is limited too: a compressed body can go on for ever and stand for nothing.
"""

import ssl
import zlib
from collections.abc import AsyncIterable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from callkeeper.service.config import ServiceConfig
from callkeeper.service.endpoints import Request
from callkeeper.service.proxy import Proxy

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS

_LONGER_ENCODED: Final = 64 * 1024
"""By how many bytes a compressed body may be longer than its limit: incompressible data grows a little."""


class BodyRefused(Exception):
    """The body is too large, or does not match its encoding."""


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """A completely received response with a decoded body of limited size. Case does not matter in names of headers."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


async def read_body(chunks: AsyncIterable[bytes], encoding: str | None, max_bytes: int) -> bytes:
    """Read a body to its end. ``encoding`` is the response's header Content-Encoding.

    Raises:
        BodyRefused: The body is larger than ``max_bytes``, in an unknown encoding, or badly encoded.
    """
    left, left_encoded, parts = max_bytes, max_bytes + _LONGER_ENCODED, []
    decoder = _decoder(encoding)
    async for chunk in chunks:
        part = chunk if decoder is None else _decoded(decoder, chunk, left + 1)
        left -= len(part)
        left_encoded -= len(chunk)
        if left < 0 or left_encoded < 0:
            raise BodyRefused(f"the body exceeds {max_bytes} bytes")
        parts.append(part)
    if decoder is not None and parts and not decoder.eof:
        raise BodyRefused("the compressed body is cut off")
    return b"".join(parts)


def _decoder(encoding: str | None) -> "zlib._Decompress | None":
    """Return what decodes a body with this Content-Encoding header; None if it is sent as it is."""
    encoding = (encoding or "").strip().lower()
    if encoding in ("identity", ""):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(_GZIP_OR_ZLIB)
    raise BodyRefused("the body has an unknown encoding")


def _decoded(decoder: "zlib._Decompress", chunk: bytes, limit: int) -> bytes:
    """Decode at most ``limit`` bytes. A body that is too large shows as a part longer than what is left."""
    if decoder.eof:
        return b""  # zlib would keep what follows the end, and copy all of it with each chunk
    try:
        return decoder.decompress(chunk, limit)
    except zlib.error:
        pass
    raise BodyRefused("the body is not what its encoding says")


Guard = Callable[[], None]
"""Called at the last point before the first byte of an effect. If it raises, nothing is written."""


class FirstByte:
    """Runs the guard of an effect before its first byte, and records whether a byte may have been written."""

    def __init__(self, guard: Guard | None) -> None:
        self._guard = guard
        self.may_be_written = False
        self.forbidden: Exception | None = None

    def __call__(self) -> None:
        """Run the guard. After it the request may have reached the service.

        Raises:
            Exception: The guard's own error; nothing is written then.
        """
        if self._guard is not None:
            try:
                self._guard()
            except Exception as error:
                self.forbidden = error
                raise
        self.may_be_written = True


_EVERY_REQUEST: Final = {"accept": "application/json", "accept-encoding": "gzip, deflate", "user-agent": "callkeeper"}


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as it is sent: the whole URL, quoted, and all headers of ours."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    """They hold the token."""
    content: bytes = field(default=b"", repr=False)
    first_byte: Callable[[], None] | None = None
    """Called at the last point before the first byte. If it raises, nothing is written. Only effects have one."""


class Transport(Protocol):
    """Sends requests over connections of one kind."""

    async def send(self, request: SentRequest, max_bytes: int) -> ServiceResponse:
        """Send a request, and return its whole response. The caller sets the deadline.

        Raises:
            aiohttp.ClientError, OSError: No whole response came.
            BodyRefused: As `read_body`.
        """

    async def aclose(self) -> None:
        """Close the connections."""


def http_request(
    request: Request, base_url: str, headers: Mapping[str, str], first_byte: FirstByte | None
) -> SentRequest:
    """Return a request as it is sent.

    Assumed (`content-type`): a body is named as JSON; without one no type is named.

    The request has a complete path and the headers that name institution and operator; ``headers`` are those that only
    this attempt has. ``first_byte`` is called before the first byte: such a request gets a connection of its own.
    """
    url = encoded(base_url) + request.path
    if request.query:
        url = f"{url}?{request.query}"
    sent = {**_EVERY_REQUEST, **request.headers, **headers}
    if request.content is not None:
        sent["content-type"] = "application/json"
    if first_byte is not None:
        sent["connection"] = "close"
    return SentRequest(request.endpoint.method, url, sent, request.content or b"", first_byte)


@cache
def encoded(base_url: str) -> str:
    """Return a base address as it is sent: a host with umlauts in its ASCII form, a blank in the path quoted."""
    return str(URL(base_url)).rstrip("/")


KEEPALIVE_S = 15.0
"""How long an idle connection is kept, in seconds. Servers usually keep it longer, so they rarely drop it first."""


def reads_transport(config: ServiceConfig) -> Transport:
    """Return the transport for reads: many requests over few connections."""
    tls, limit = _tls(config.ca_file), config.max_connections
    return AiohttpTransport(
        lambda: aiohttp.TCPConnector(ssl=tls, limit=limit, keepalive_timeout=KEEPALIVE_S), config.proxy
    )


def effects_transport(config: ServiceConfig) -> Transport:
    """Return the transport for effects: one connection for each request."""
    tls, limit = _tls(config.ca_file), config.max_connections
    return AiohttpTransport(lambda: aiohttp.TCPConnector(ssl=tls, limit=limit, force_close=True), config.proxy)


class AiohttpTransport:
    """Sends requests over an aiohttp session, which the first request opens in its event loop."""

    def __init__(self, open_connector: Callable[[], aiohttp.TCPConnector], proxy: Proxy | None = None) -> None:
        self._open_connector = open_connector
        self._proxy: Mapping[str, Any] = (
            {} if proxy is None else {"proxy": proxy.address, "proxy_headers": proxy.headers}
        )
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: SentRequest, max_bytes: int) -> ServiceResponse:
        if self._session is None:
            self._session = self._open_session()
        content = request.content
        response = await self._session.request(
            request.method,
            URL(request.url, encoded=True),
            headers=request.headers,
            data=_Announced(content, request.first_byte) if request.first_byte is not None else content or None,
            # aiohttp would call a POST without a body application/octet-stream.
            skip_auto_headers=("Content-Type",) if request.method == "POST" and not content else None,
            allow_redirects=False,
            **self._proxy,
        )
        try:
            body = await read_body(response.content.iter_any(), response.headers.get("content-encoding"), max_bytes)
        finally:
            response.release()  # it ends the connection if the body was not read completely
        return ServiceResponse(response.status, response.headers, body)

    async def aclose(self) -> None:
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
    """A body that calls back before its first byte, because aiohttp writes a request's head with the start of its body."""

    def __init__(self, content: bytes, first_byte: Callable[[], None]) -> None:
        super().__init__(content)
        self._first_byte = first_byte

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._first_byte()
        await super().write_with_length(writer, content_length)


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Hide a lost connection from aiohttp, because it would send a GET a second time by itself.

    A check that is sent twice costs two of a call's 20. Failures to connect pass, because aiohttp does not repeat
    those.
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
