"""Refusal of ambiguous paths, and the client's address behind routers."""

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from callkeeper.app.middleware import MAX_TARGET, Forwarded, PlainPath, is_plain


@pytest.mark.parametrize(
    "path",
    [b"/", b"/push", b"/rq/", b"/desk/calls/cu-1/a%2Fb/verified", b"/desk/calls/cu-1/%2e%2ex", b"/board/static/a.css"],
)
def test_plain_paths_pass(path: bytes) -> None:
    """A plain path passes, also with a percent-encoded id."""
    assert is_plain(path)


@pytest.mark.parametrize(
    "path",
    [
        *(b"", b"*", b"push", b"http://a/push", b"//push", b"/%70ush", b"/rq%2f", b"/rq//", b"/a//b", b"/./push"),
        *(b"/x/../rq/", b"/x/%2e%2E/rq/", b"/x/.%2e", b"/x/..", b"/..", b"/push;x", b"/pu\\sh", b"/push\n"),
        *(b"/desk/calls/cu-1/..%2f..%2F..%2fpush", b"/rq/x%2f%2e%2e%2fboard", b"/board/a%5c..%5Cb", b"/board/a\\..\\b"),
        b"/" + b"x" * MAX_TARGET,
    ],
)
def test_paths_that_two_readers_read_differently_do_not(path: bytes) -> None:
    """Another spelling of /rq/ cannot evade a router's rule for it."""
    assert not is_plain(path)


@given(path=st.binary())
def test_plain_path_takes_any_bytes(path: bytes) -> None:
    """For all bytes, the function returns without an error."""
    assert is_plain(path) in {True, False}


async def test_plain_path_answers_404() -> None:
    """The refusal is the same as for an address that does not exist."""
    transport = httpx.ASGITransport(PlainPath(PlainTextResponse("passed")))
    async with httpx.AsyncClient(transport=transport, base_url="http://web") as client:
        assert (await client.get("/push")).text == "passed"
        assert (await client.get("/%70ush")).status_code == 404
        ambiguous = await client.get("/desk/calls/cu-1/an-id%5C.")
        assert (ambiguous.status_code, ambiguous.headers["content-type"]) == (404, "application/problem+json")


async def show(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the address that the request is said to come from."""
    await PlainTextResponse(str(scope["client"][0]))(scope, receive, send)


@pytest.mark.parametrize(
    ("hops", "lines", "address"),
    [
        (0, ["198.51.100.1"], "203.0.113.7"),
        (1, ["198.51.100.1"], "198.51.100.1"),
        (1, ["127.0.0.1, 198.51.100.1"], "198.51.100.1"),
        (1, ["127.0.0.1", "198.51.100.1"], "198.51.100.1"),
        (2, ["127.0.0.1, 198.51.100.1, 10.0.0.1"], "198.51.100.1"),
        (2, ["198.51.100.1"], "203.0.113.7"),
        (1, [], "203.0.113.7"),
        (1, ["198.51.100.1,"], "203.0.113.7"),
        (1, ["198.51.100.1:49152"], "198.51.100.1"),
        (1, ["[2001:db8::1]:49152"], "2001:db8::1"),
        (1, ["2001:db8::1"], "2001:db8::1"),
        (1, ["unknown"], "203.0.113.7"),
    ],
)
async def test_forwarded_believes_our_own_routers_only(hops: int, lines: list[str], address: str) -> None:
    """Only the entry of our outermost router is used. Entries that the client added before it are ignored."""
    transport = httpx.ASGITransport(Forwarded(show, hops), client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://web") as client:
        answer = await client.get("/", headers=[("X-Forwarded-For", line) for line in lines])
    assert answer.text == address
