"""A transport that stands in for the network."""

import aiohttp
import httpx

from callkeeper.service.aiohttp_transport import SentRequest, ServiceResponse, read_body


class HttpxTransport:
    """Sends requests to the service over a transport of httpx, such as `httpx.MockTransport`.

    Errors of httpx become one of aiohttp. Bodies are read by production's code, with its limit.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def send(self, request: SentRequest, max_bytes: int) -> ServiceResponse:
        """Call the request's first-byte callback, send the request, and read the response."""
        if request.first_byte is not None:
            request.first_byte()
        sent = httpx.Request(request.method, request.url, headers=request.headers, content=request.content or None)
        try:
            response = await self._inner.handle_async_request(sent)
            stream = response.stream
            assert isinstance(stream, httpx.AsyncByteStream)
            try:
                body = await read_body(stream, response.headers.get("content-encoding"), max_bytes)
            finally:
                await stream.aclose()
        except httpx.HTTPError as error:
            raise aiohttp.ClientError("a failure of httpx") from error
        return ServiceResponse(response.status_code, response.headers, body)

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()
