"""How one request travels and its whole answer comes back: nothing is repeated, followed or remembered on the way.

Two implementations. `HttpxWire` carries whatever an httpx transport does: effects, whose first byte has to be known, and the
stand-ins of tests. `PooledWire` carries reads and checks over aiohttp's connection pool with nothing in between: httpx's
client and its types cost more than the request itself.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import httpx
from yarl import URL

from reseller.bounded import BoundedTransport, Unfolding

Trace = Callable[[str, object], Awaitable[None]]
"""Told what a transport does, as httpcore tells it."""

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
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, trace: Trace | None = None
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
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, trace: Trace | None = None
    ) -> Answer:
        """Send one request."""
        extensions = {} if trace is None else {"trace": trace}
        request = httpx.Request(
            method,
            self._base_url + target,
            headers={**EVERY_REQUEST, **headers},
            content=content,
            extensions=extensions,
        )
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


class PooledWire:
    """Carries requests over an aiohttp session, which the first of them opens, in its loop."""

    def __init__(self, base_url: str, open_session: Callable[[], aiohttp.ClientSession], max_body_bytes: int) -> None:
        self._base_url = base_url
        self._open_session = open_session
        self._max_body_bytes = max_body_bytes
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, target: str, headers: Mapping[str, str], content: bytes | None, trace: Trace | None = None
    ) -> Answer:
        """Send one request; ``trace`` is told nothing."""
        if self._session is None:
            self._session = self._open_session()
        url = URL(self._base_url + target, encoded=True)
        async with self._session.request(method, url, headers=headers, data=content, allow_redirects=False) as response:
            told = response.headers
            unfolding = Unfolding(told.get("content-encoding"), self._max_body_bytes)
            parts = [unfolding.feed(chunk) async for chunk in response.content.iter_any()]
            unfolding.finish()
            return Answer(response.status, b"".join(parts), told.get("retry-after"), told.get("date"))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
