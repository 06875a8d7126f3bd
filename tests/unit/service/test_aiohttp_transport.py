"""Bodies are decoded within a bound: neither what comes out nor what is held on the way exceeds it."""

import gzip
import tracemalloc
from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.service.aiohttp_transport import BodyRefused, http_request, receive
from callkeeper.service.endpoints import DETAILS, Request

MIB = 1024 * 1024


class Chunks(httpx.AsyncByteStream):
    """A body that comes in pieces."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Give one piece after the other."""
        for chunk in self._chunks:
            yield chunk


def encoded(body: bytes, encoding: str | None) -> bytes:
    """Return a body in an encoding."""
    match encoding:
        case "gzip":
            return gzip.compress(body)
        case "two members":
            return gzip.compress(body[:9]) + gzip.compress(body[9:])
        case _:
            return body


async def received(*chunks: bytes, encoding: str | None, max_bytes: int) -> bytes:
    """Return what a client reads of an answer."""
    headers = {} if encoding is None else {"content-encoding": encoding}
    response = httpx.Response(200, headers=headers, stream=Chunks(*chunks))
    return (await receive(response, max_bytes)).content


@given(
    st.text(max_size=2000).map(lambda text: text.encode()),
    st.sampled_from(["plain", "gzip", "two members"]),
    st.sampled_from([None, "gzip", "identity", "none", "utf-8", "identity, gzip", "x-gzip"]),
    st.integers(1, 50),
)
async def test_body_within_the_bound_is_read_whole(body: bytes, form: str, named: str | None, size: int) -> None:
    """However it is packed, whatever its headers say, and however it is cut, a body of exactly the bound comes out."""
    raw = encoded(body, form)
    chunks = [raw[at : at + size] for at in range(0, len(raw), size)]
    assert await received(*chunks, encoding=named, max_bytes=max(1, len(body))) == body


async def test_what_follows_a_packed_body_means_nothing() -> None:
    """Some servers pad it with zeros. Members without end are refused."""
    packed = gzip.compress(b"{}")
    assert await received(packed + bytes(16), bytes(9), encoding="gzip", max_bytes=100) == b"{}"
    with pytest.raises(BodyRefused, match="too many parts"):
        await received(packed * 17, encoding="gzip", max_bytes=100)


@pytest.mark.parametrize("encoding", [None, "gzip"])
async def test_body_one_byte_over_the_bound_is_refused(encoding: str | None) -> None:
    """The bound is exact."""
    raw = encoded(b"x" * 101, encoding)
    with pytest.raises(BodyRefused, match="exceeds 100 bytes"):
        await received(raw, encoding=encoding, max_bytes=100)


async def test_bomb_is_never_unfolded() -> None:
    """One piece that would unfold to 64 MiB takes no more memory than the bound and its own size."""
    bomb = gzip.compress(b" " * (64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(BodyRefused):
            await received(bomb, encoding="gzip", max_bytes=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


EMPTY_BLOCKS = b"\x00\x00\x00\xff\xff" * 20_000


@pytest.mark.parametrize(
    ("begin", "more"),
    [(gzip.compress(b"{}"), b"x" * 100_000), (gzip.compress(b"")[:10], EMPTY_BLOCKS)],
    ids=["behind the end", "empty blocks"],
)
async def test_body_that_goes_on_without_content_is_refused(begin: bytes, more: bytes) -> None:
    """What comes out is bounded, and so is what comes in: bytes that mean nothing are neither held nor read for long."""
    chunks = (begin, *[more] * 200)
    tracemalloc.start()
    try:
        with pytest.raises(BodyRefused, match="exceeds 1048576 bytes"):
            await received(*chunks, encoding="gzip", max_bytes=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MIB


@pytest.mark.parametrize("chunks", [(gzip.compress(b"abc")[:-4],), (b"\x1f\x8bno gzip",), (gzip.compress(b"abc")[:5],)])
async def test_broken_encoding_is_refused(chunks: tuple[bytes, ...]) -> None:
    """Cut off, or not what it begins as."""
    with pytest.raises(BodyRefused):
        await received(*chunks, encoding="gzip", max_bytes=100)


@pytest.mark.parametrize(
    ("base_url", "host", "target"),
    [
        ("https://Bänk.example:443/a b", b"xn--bnk-qla.example", b"/a%20b/external/calls/v%2F1/details?a=1"),
        ("http://127.0.0.1:8080", b"127.0.0.1:8080", b"/external/calls/v%2F1/details?a=1"),
    ],
)
def test_address_is_sent_encoded_once(base_url: str, host: bytes, target: bytes) -> None:
    """Host and path of the base address are encoded; what is quoted in the path stays as it is."""
    request = Request(DETAILS, DETAILS.at("v/1"), query="a=1")
    sent = http_request(request, base_url, {}, None)
    assert (sent.url.netloc, sent.extensions["target"]) == (host, target)
