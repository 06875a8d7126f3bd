"""The beginning of a receiver's answer, as it is kept for people: bounded, plain text, without what looks like a secret.

A receiver may answer anything, for ever, and repeat what we sent. Its answer never decides anything, and never holds a
post up.
"""

import asyncio
import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Final
from urllib.parse import unquote, urlsplit

import aiohttp
import httpx

MOST_BYTES: Final = 1024
"""How much of a body is read, in bytes. The rest is dropped with its connection."""

MOST_CHARACTERS: Final = 300
"""How much of it is kept."""

WITHIN_S: Final = 0.5
"""How long a body may take after its status, in seconds."""

_TEXT: Final = re.compile(r"text/(?!html)[\w.+-]+|application/(?:[\w.-]+\+)?json", re.IGNORECASE)
_HIDDEN: Final = re.compile(
    r"whsec_\S*"
    r"|v1,\S+"  # a signature
    r"|[A-Za-z0-9+/_=.~]{32,}"  # a token; ids have hyphens
    r"|\S+@\S+"
    r"|\d{7,}"
    r"|\(?\d{3}\)?[ .-]\d{2,3}[ .-]\d{4}"  # a phone number, or a social security number
)
HIDDEN: Final = "***"


_LEAST: Final = 4
"""How many characters of a part of an address may be a secret. Shorter ones, as in ``/v1``, would hide other words."""


@cache
def parts_of(url: str) -> tuple[str, ...]:
    """Return what of a receiver's address may be a secret, as a receiver may repeat it: user, path and query."""
    address = urlsplit(url)
    user = unquote(address.netloc.rpartition("@")[0])
    pieces = [*address.path.split("/"), *re.split("[&=]", address.query), *user.split(":")]
    target = f"{address.path}?{address.query}" if address.query else address.path
    whole = [target, address.query, user, b64encode(user.encode()).decode()]
    found = {each for piece in (*whole, *pieces) for each in (piece, unquote(piece))}
    return tuple(sorted((each for each in found if len(each) >= _LEAST), key=len, reverse=True))


async def beginning_of(answer: httpx.Response, secrets: Sequence[str] = ()) -> str:
    """Read the beginning of an answer's body. Empty if it is no plain text, compressed, or does not come soon.

    ``secrets``: texts that are hidden if the answer repeats them.
    """
    kind = answer.headers.get("content-type", "").partition(";")[0].strip()
    if not _TEXT.fullmatch(kind) or answer.headers.get("content-encoding", "identity") != "identity":
        return ""
    read = bytearray()
    with suppress(TimeoutError, httpx.HTTPError, httpx.StreamError, OSError, aiohttp.ClientError):
        async with asyncio.timeout(WITHIN_S):
            async for part in answer.aiter_raw():
                read += part[:MOST_BYTES]
                if len(read) >= MOST_BYTES:
                    break
    return kept(bytes(read[:MOST_BYTES]), secrets)


def kept(body: bytes, secrets: Sequence[str] = ()) -> str:
    """Return what is kept of the beginning of a body: one line, with secrets, tokens, numbers and addresses hidden."""
    text = "".join(each if each.isprintable() else " " for each in body.decode(errors="replace"))
    if secrets:
        text = re.sub("|".join(map(re.escape, secrets)), HIDDEN, text, flags=re.IGNORECASE)
    hidden = _HIDDEN.sub(HIDDEN, " ".join(text.split()))
    return hidden if len(hidden) <= MOST_CHARACTERS else f"{hidden[: MOST_CHARACTERS - 1]}…"
