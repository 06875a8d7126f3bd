"""What of a receiver's answer is kept: a bounded line of text, without what looks like a secret or a number."""

from collections.abc import AsyncIterator

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.webhook_answer_excerpt import HIDDEN, MOST_BYTES, MOST_CHARACTERS, beginning_of, kept, parts_of


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("  busy,\n\ttry later ", "busy, try later"),
        ('{"error": "no member p-1001 in 5f0c9d1e-0001-4bbe-98d3-27484e3a7ea1"}', None),
        ("signature v1,bm90IHRoZSBzaWduYXR1cmU= wrong", f"signature {HIDDEN} wrong"),
        ("secret whsec_Y2FuYXJ5LW91dGNvbWUta2V5", f"secret {HIDDEN}"),
        ("token eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.c2ln", f"token {HIDDEN}"),
        ("call 6025550123 or (602) 555-0123 or 602-555-0123", f"call {HIDDEN} or {HIDDEN} or {HIDDEN}"),
        ("ssn 078-05-1120", f"ssn {HIDDEN}"),
        ("mail ada@bank.example now", f"mail {HIDDEN} now"),
        ("at 2026-11-26T09:40:12Z line 4711", None),
        ("x\x1b[31m\u202ered\x00", "x [31m red"),
    ],
    ids=["spaces", "ids", "signature", "secret", "token", "phones", "ssn", "mail", "time", "control characters"],
)
def test_answer_is_kept_without_secrets(body: str, expected: str | None) -> None:
    """Tokens, long numbers and addresses are hidden, control characters removed; ids, times and words stay."""
    assert kept(body.encode()) == (body if expected is None else expected)


ECHOED = (
    "Cannot POST /hooks/T0c4n/b0gus?key=Xy-7zq&mode=a",
    '{"path": "/hooks/T0c4n/b0gus", "query": {"key": "Xy-7zq"}}',
    '{"url": "https:\\/\\/sink.example\\/hooks\\/T0c4n\\/b0gus"}',
    "GET https://sink.example/HOOKS/T0C4N/B0GUS?KEY=XY-7ZQ",
    "wrong key Xy%2D7zq, decoded Xy-7zq, of ann:s3cr+t1 (Basic YW5uOnMzY3IrdDE=)",
)


@pytest.mark.parametrize("body", ECHOED)
def test_answer_is_kept_without_the_address_that_was_posted_to(body: str) -> None:
    """A receiver that repeats the request shows no part of the configured address that may be a secret."""
    line = kept(body.encode(), parts_of("https://ann:s3cr%2Bt1@sink.example/hooks/T0c4n/b0gus?key=Xy%2D7zq&mode=a"))
    found = [part for part in ("t0c4n", "b0gus", "7zq", "s3cr", "yw5u") if part in line.casefold()]
    assert (found, HIDDEN in line) == ([], True), line


@given(st.binary(max_size=4 * MOST_BYTES))
def test_any_answer_is_a_short_line(body: bytes) -> None:
    """Whatever bytes come, what is kept is one printable line of 300 characters at most, without a long number."""
    line = kept(body)
    assert len(line) <= MOST_CHARACTERS
    assert line.isprintable()
    assert not any(part.isdecimal() and part.isascii() and len(part) >= 7 for part in line.split())


async def parts(*each: bytes) -> AsyncIterator[bytes]:
    """Yield the parts of a body."""
    for one in each:
        yield one


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"content-type": "text/plain; charset=utf-8"}, "a no b"),
        ({"content-type": "application/problem+json"}, "a no b"),
        ({"content-type": "text/html"}, ""),
        ({"content-type": "application/octet-stream"}, ""),
        ({"content-type": "text/plain", "content-encoding": "gzip"}, ""),
        ({}, ""),
    ],
    ids=["text", "json", "html", "bytes", "compressed", "no type"],
)
async def test_only_plain_text_is_read(headers: dict[str, str], expected: str) -> None:
    """Text and JSON are kept; pages, bytes and compressed bodies are not even read."""
    assert await beginning_of(httpx.Response(503, headers=headers, content=parts(b"a no ", b"b"))) == expected


async def test_no_more_is_read_than_is_kept() -> None:
    """An endless body ends after the first kilobyte."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"no " * 100

    answer = httpx.Response(500, headers={"content-type": "text/plain"}, content=endless())
    assert len(await beginning_of(answer)) == MOST_CHARACTERS
    assert taken <= MOST_BYTES // 300 + 1
