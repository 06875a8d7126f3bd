"""The two connections to the service: httpx transports over aiohttp, at a tenth of the CPU cost of httpx's own.

*Reads* (and checks, listings, logins) use kept-alive connections. *Effects* (assign, enroll, reject-voice) use a fresh
connection each, which the service cannot have dropped before the request. Both verify TLS, follow no redirects, keep no
cookies, use no proxy but the configured one and never repeat a request. Call them through ``handle_async_request``,
because ``httpx.AsyncClient.send`` costs more CPU than the request itself.

The size of a response is limited after decompression. A limit on the received bytes is not enough, because a gzip body
of a kilobyte can become a megabyte, and a limit after decompressing a whole chunk comes too late. So zlib is told how
much it may still return. What arrives is limited too: a compressed body can go on for ever and stand for nothing.
"""

import re
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from typing import Any, Final

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from callkeeper.service.config import ServiceConfig
from callkeeper.service.endpoints import Request, ServiceResponse
from callkeeper.service.proxy import Proxy

_GZIP: Final = b"\x1f\x8b"
_MOST_MEMBERS: Final = 16
_UNASKED: Final = re.compile(r"\b(br|zstd|deflate|compress)\b", re.IGNORECASE)

_LONGER_ENCODED: Final = 64 * 1024
"""By how many bytes a compressed body may be longer than its limit: incompressible data grows a little."""


class BodyRefused(Exception):
    """The body is too large, or does not match its encoding."""


async def receive(response: httpx.Response, max_bytes: int) -> ServiceResponse:
    """Read a response to its end and close it.

    Raises:
        BodyRefused: The body is larger than ``max_bytes``, in an encoding that was not asked for, or badly encoded.
    """
    # Not with ``response.aread()``: httpx decodes without a limit, and its layers of iterators cost more than all this.
    stream, left, parts = response.stream, max_bytes + _LONGER_ENCODED, []
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101  (narrows: our transports are async)
    try:
        async for chunk in stream:
            parts.append(chunk)
            if (left := left - len(chunk)) < 0:
                raise BodyRefused(f"the body exceeds {max_bytes} bytes")
    finally:
        await stream.aclose()
    body = b"".join(parts)
    if not body.startswith(_GZIP) and _UNASKED.search(response.headers.get("content-encoding", "")):
        raise BodyRefused("the body has an encoding that was not asked for")
    return ServiceResponse(response.status_code, response.headers, _unpacked(body, max_bytes))


def _unpacked(body: bytes, most: int) -> bytes:
    """Return a body, unpacked if it begins like gzip, whatever its headers say: JSON never begins so."""
    parts = [] if body.startswith(_GZIP) else [body]
    left = most - sum(map(len, parts))
    while left >= 0 and body.startswith(_GZIP) and len(parts) < _MOST_MEMBERS:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            parts.append(member.decompress(body, left + 1))
        except zlib.error:
            break
        left -= len(parts[-1])
        if not member.eof:
            break
        body = member.unused_data  # another member, or padding
    if left < 0:
        raise BodyRefused(f"the body exceeds {most} bytes")
    if body.startswith(_GZIP):
        raise BodyRefused("the compressed body is cut off, broken, or in too many parts")
    return b"".join(parts)


FIRST_BYTE: Final = "callkeeper.first_byte"
"""The request extension that holds a callback without arguments. A transport calls it at the last point before the
first byte of the request. If it raises, nothing is written."""

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


_EVERY_REQUEST = (
    (b"accept", b"application/json"),
    (b"accept-encoding", b"identity, gzip"),
    (b"user-agent", b"callkeeper"),
)


def http_request(
    request: Request, base_url: str, headers: Mapping[str, str], first_byte: FirstByte | None
) -> httpx.Request:
    """Return a request as it is sent. Its URL is the service's base address; the extension ``target`` has path and query.

    Assumed (`content-type`): a body is named as JSON; without one no type is named.

    The request has a complete path and the headers that name institution and operator; ``headers`` are those that only
    this attempt has. ``first_byte`` is called before the first byte: such a request gets a connection of its own.
    """
    # As a part of the URL, the path would be parsed and quoted once more, at a twelfth of a check's CPU time (*measured*).
    url = _url(base_url)
    path = f"{request.path}?{request.query}" if request.query else request.path
    extensions: dict[str, Any] = {"target": url.raw_path.rstrip(b"/") + path.encode("ascii")}
    if first_byte is not None:
        extensions[FIRST_BYTE] = first_byte
    sent_headers = [*_EVERY_REQUEST]
    sent_headers += [(name.encode(), value.encode()) for name, value in {**request.headers, **headers}.items()]
    if request.content is not None:
        sent_headers.append((b"content-type", b"application/json"))
    if first_byte is not None:
        sent_headers.append((b"connection", b"close"))
    # With ``content`` instead of a stream, httpx looks for headers to add, at four times the cost. aiohttp adds
    # them.
    stream = httpx.ByteStream(request.content or b"")
    return httpx.Request(request.endpoint.method, url, headers=sent_headers, stream=stream, extensions=extensions)


@cache
def _url(base_url: str) -> httpx.URL:
    return httpx.URL(base_url)


_LONGEST_HEADER: Final = 64 * 1024
_MOST_HEADERS: Final = 1000
"""Gateways add long policies and many cookies. None of them is read."""

KEEPALIVE_S = 15.0
"""How long an idle connection is kept, in seconds. Servers usually keep it longer, so they rarely drop it first."""


def reads_transport(config: ServiceConfig) -> httpx.AsyncBaseTransport:
    """Return the transport for reads: many requests over few connections."""
    tls, limit = _tls(config.ca_file), config.max_connections
    return AiohttpTransport(
        lambda: aiohttp.TCPConnector(ssl=tls, limit=limit, keepalive_timeout=KEEPALIVE_S), config.proxy
    )


def effects_transport(config: ServiceConfig) -> httpx.AsyncBaseTransport:
    """Return the transport for effects: one connection for each request."""
    tls, limit = _tls(config.ca_file), config.max_connections
    return AiohttpTransport(lambda: aiohttp.TCPConnector(ssl=tls, limit=limit, force_close=True), config.proxy)


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends requests over an aiohttp session, which the first request opens in its event loop.

    It raises aiohttp's errors. The caller sets the deadline around the whole exchange.
    """

    def __init__(self, open_connector: Callable[[], aiohttp.TCPConnector], proxy: Proxy | None = None) -> None:
        self._open_connector = open_connector
        self._proxy: Mapping[str, Any] = (
            {} if proxy is None else {"proxy": proxy.address, "proxy_headers": proxy.headers}
        )
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request whose URL and ``target`` are already quoted. The response's body is not decoded."""
        if self._session is None:
            self._session = self._open_session()
        assert isinstance(request.stream, httpx.ByteStream)  # noqa: S101  (narrows: see `http_request`)
        content, announce = b"".join(request.stream), request.extensions.get(FIRST_BYTE)
        target = request.extensions.get("target") or request.url.raw_path
        response = await self._session.request(
            request.method,
            URL(f"{request.url.scheme}://{request.url.netloc.decode()}{target.decode()}", encoded=True),
            headers=[(name.decode("ascii"), value.decode("ascii")) for name, value in request.headers.raw],
            data=_Announced(content, announce) if announce is not None else content or None,
            # aiohttp would call a POST without a body application/octet-stream.
            skip_auto_headers=("Content-Type",) if request.method == "POST" and not content else None,
            allow_redirects=False,
            **self._proxy,
        )
        return httpx.Response(response.status, headers=response.raw_headers, stream=_Body(response))

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
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            max_headers=_MOST_HEADERS,
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


class _Body(httpx.AsyncByteStream):
    """The raw body of a response. Closing it releases the connection, or ends it if the body was not read completely."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.content.iter_any()

    async def aclose(self) -> None:
        self._response.release()


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
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context
