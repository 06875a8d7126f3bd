"""Transports that stand in for the network."""

import httpx

from callkeeper.service.aiohttp_transport import FIRST_BYTE


class AnnouncingTransport(httpx.AsyncBaseTransport):
    """Does what our requests ask for by extensions, reads a request's body, then passes it to a transport that does not.

    For `httpx.MockTransport` and `httpx.ASGITransport`: without it a guard would never run, and every failure of an effect
    would count as "not sent". They look for the path in the URL.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Announce and read the request, then send it."""
        announce = request.extensions.get(FIRST_BYTE)
        if announce is not None:
            announce()
        if (target := request.extensions.get("target")) is not None:
            request.url = request.url.copy_with(raw_path=target)
        await request.aread()
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()
