"""Answers that cannot grow: decompressed here, with a cap on what comes out.

A gzip body of a kilobyte can unfold to a megabyte, so a cap on what arrives is not enough, and a cap after
unfolding a whole chunk is late. zlib is told how much it may still give.
"""

import zlib
from dataclasses import dataclass

import httpx

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
