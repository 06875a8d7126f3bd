"""Reads a request's body up to a limit, and not one chunk further."""

from typing import Final

from starlette.types import Receive

BODY_LIMIT: Final = 16 * 1024
"""Bytes; a push is some 300."""


class BodyTooLarge(Exception):
    """The body is, or says it will be, longer than the limit."""


class ClientLeft(Exception):
    """The client closed the connection before its request was whole."""


async def read_body(receive: Receive, *, declared: bytes | None, limit: int = BODY_LIMIT) -> bytes:
    """Return the whole body.

    Args:
        receive: Where ASGI hands out the chunks.
        declared: The Content-Length header, if there is one.
        limit: Bytes.

    Raises:
        BodyTooLarge: By its declared length, before anything is read; else at the limit.
        ClientLeft: The connection ended mid-body.
    """
    if declared is not None and _length(declared) > limit:
        raise BodyTooLarge
    chunks: list[bytes] = []
    room = limit
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        chunk = message.get("body", b"")
        room -= len(chunk)
        if room < 0:
            raise BodyTooLarge
        chunks.append(chunk)
        more = message.get("more_body", False)
    return b"".join(chunks)


def _length(declared: bytes) -> int:
    """Read a Content-Length; one that is no number is the server's business, which has already refused it."""
    return int(declared) if declared.isdigit() and len(declared) <= 18 else 0
