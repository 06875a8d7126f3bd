"""How one request travels and its whole answer comes back: nothing is repeated, followed or remembered on the way.

Two implementations. `AiohttpWire` carries requests over an aiohttp session with nothing in between: httpx's client and its
types cost more than the request itself. `HttpxWire` carries whatever an httpx transport does: the stand-ins of tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from reseller.bounded import BoundedTransport, Unfolding

FirstByte = Callable[[], None]
"""Called at the last point before a request's first byte; if it raises, nothing is written."""

EVERY_REQUEST: Mapping[str, str] = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "user-agent": "callkeeper",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, whole. ``retry_after`` and ``date`` are the headers of these names."""

    status: int
    body: bytes
    retry_after: str | None = None
    date: str | None = None


class Wire(Protocol):
    """Carries requests to one base address. Raises what its HTTP library raises, and `BodyRefused`."""

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None,
        first_byte: FirstByte | None = None,
    ) -> Answer:
        """Send a request to a path with its query, both already quoted, and read the whole answer."""

    async def aclose(self) -> None:
        """Close all connections."""


class HttpxWire:
    """Carries requests over an httpx transport."""

    def __init__(self, base_url: str, transport: httpx.AsyncBaseTransport, max_body_bytes: int) -> None:
        self._base_url = base_url
        self._transport = BoundedTransport(transport, max_body_bytes)

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None,
        first_byte: FirstByte | None = None,
    ) -> Answer:
        """Send one request; whatever the transport does with it comes after its first byte."""
        request = httpx.Request(method, self._base_url + target, headers={**EVERY_REQUEST, **headers}, content=content)
        if first_byte is not None:
            first_byte()
        response = await self._transport.handle_async_request(request)
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        told = response.headers
        return Answer(response.status_code, body, told.get("retry-after"), told.get("date"))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


class _Announced(aiohttp.BytesPayload):
    """A body that announces its first byte: aiohttp writes the head of a request together with the beginning of its body."""

    def __init__(self, content: bytes, first_byte: FirstByte) -> None:
        super().__init__(content)
        self._first_byte = first_byte

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._first_byte()
        await super().write_with_length(writer, content_length)


class AiohttpWire:
    """Carries requests over an aiohttp session, which the first of them opens, in its loop."""

    def __init__(self, base_url: str, open_session: Callable[[], aiohttp.ClientSession], max_body_bytes: int) -> None:
        self._base_url = base_url
        self._open_session = open_session
        self._max_body_bytes = max_body_bytes
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes | None,
        first_byte: FirstByte | None = None,
    ) -> Answer:
        """Send one request."""
        if self._session is None:
            self._session = self._open_session()
        url = URL(self._base_url + target, encoded=True)
        data = content if first_byte is None else _Announced(content or b"", first_byte)
        async with self._session.request(method, url, headers=headers, data=data, allow_redirects=False) as response:
            told = response.headers
            unfolding = Unfolding(told.get("content-encoding"), self._max_body_bytes)
            parts = [unfolding.feed(chunk) async for chunk in response.content.iter_any()]
            unfolding.finish()
            return Answer(response.status, b"".join(parts), told.get("retry-after"), told.get("date"))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
