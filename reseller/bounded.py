"""Answers that cannot grow: decompressed here, with a cap on what comes out.

A gzip body of a kilobyte can unfold to a megabyte, so a cap on what arrives is not enough, and a cap after
unfolding a whole chunk is late. zlib is told how much it may still give.
"""

import zlib
from collections.abc import AsyncIterator

import httpx

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_HOP_HEADERS = (b"content-encoding", b"content-length", b"transfer-encoding")


class BodyRefused(Exception):
    """The body is larger than allowed or not what its encoding says."""


class BoundedTransport(httpx.AsyncBaseTransport):
    """Pass requests on; hand answers back decoded and cut at ``max_bytes``.

    Raises:
        BodyRefused: While the body is read: too large, in an unknown encoding, or badly encoded.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and return its answer with a bounded stream."""
        answer = await self._inner.handle_async_request(request)
        encoding = answer.headers.get("content-encoding")
        assert isinstance(answer.stream, httpx.AsyncByteStream)  # noqa: S101  (narrows: this transport is async)
        return httpx.Response(
            answer.status_code,
            headers=[(name, value) for name, value in answer.headers.raw if name.lower() not in _HOP_HEADERS],
            stream=_BoundedStream(answer.stream, encoding, self._max_bytes),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._inner.aclose()


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


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, encoding: str | None, max_bytes: int) -> None:
        self._inner = inner
        self._encoding = encoding
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unfolding = Unfolding(self._encoding, self._max_bytes)
        async for chunk in self._inner:
            yield unfolding.feed(chunk)
        unfolding.finish()

    async def aclose(self) -> None:
        await self._inner.aclose()


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
