"""The beginning of a receiver's answer, as it is kept for people: bounded, plain text, without what looks like a secret.

A receiver may answer anything, for ever, and repeat what we sent. Its answer never decides anything, and never holds a
post up.
"""

import asyncio
import re
from contextlib import suppress
from typing import Final

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


async def beginning_of(answer: httpx.Response) -> str:
    """Read the beginning of an answer's body. Empty if it is no plain text, compressed, or does not come soon."""
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
    return kept(bytes(read[:MOST_BYTES]))


def kept(body: bytes) -> str:
    """Return what is kept of the beginning of a body: one line, with tokens, numbers and addresses hidden."""
    text = "".join(each if each.isprintable() else " " for each in body.decode(errors="replace"))
    hidden = _HIDDEN.sub(HIDDEN, " ".join(text.split()))
    return hidden if len(hidden) <= MOST_CHARACTERS else f"{hidden[: MOST_CHARACTERS - 1]}…"
