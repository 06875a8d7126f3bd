"""The push endpoint's answers: small, fixed, and never an echo of what was sent.

The service shows them to people on its settings page (Spec: Events 2), so they say what to repair.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

RETRY_AFTER_S: Final = 5


WHOLE: Final = "callkeeper.whole"
"""An ASGI extension: ``write(head: bytes, body: bytes) -> bool`` sends both at once, or returns False and sends nothing. The
head is lines, each with its end; the server adds what it says itself, and the empty line.

*Measured*: an answer of eleven headers costs 14 microseconds by messages, which uvicorn checks anew every time, and 1 so.
"""


class Accepted:
    """The answer that an event is recorded, and under which id our log has it.

    It is given thousands of times a second and always has the same length, so all of it but the id is made once.
    """

    _BODY = b'{"accepted":true,"event_id":"%b"}'

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Prepare the answer, with headers of the whole process beside its own."""
        own = {"Content-Length": str(len(self._BODY % bytes(32))), "Content-Type": "application/json"}
        pairs = {**headers, **own}.items()
        self._headers = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in pairs]
        self._head = b"".join([b"HTTP/1.1 202 Accepted\r\n", *(b"%b: %b\r\n" % pair for pair in self._headers)])

    async def __call__(self, event_id: str, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send it; an id is 32 characters that JSON need not quote."""
        body = self._BODY % event_id.encode("ascii")
        whole = scope.get("extensions", {}).get(WHOLE)
        if whole is None or not whole["write"](self._head, body):
            await send({"type": "http.response.start", "status": 202, "headers": list(self._headers)})
            await send({"type": "http.response.body", "body": body})


def unauthorized() -> Response:
    """Answer that the configured headers are missing or wrong, the same way whichever it is."""
    return _refusal(401, "unauthorized", {"WWW-Authenticate": 'Headers realm="push"'})


def ignored(wait_s: int) -> Response:
    """Answer the next of many with missing or wrong headers; it may be our own sender, set up wrongly."""
    return _refusal(429, "unauthorized too often: check the configured request headers", {"Retry-After": str(wait_s)})


def method_not_allowed() -> Response:
    """Answer that events are posted."""
    return _refusal(405, "method not allowed", {"Allow": "POST"})


def unsupported_media_type() -> Response:
    """Answer that events are plain JSON."""
    return _refusal(415, "the content type must be application/json, not compressed")


def too_large() -> Response:
    """Answer that no event is that long."""
    return _refusal(413, "too large")


def unreadable(field: str, remedy: str) -> Response:
    """Answer which field is wrong and what it should be."""
    return _json(400, {"accepted": False, "error": "unreadable", "field": field, "expected": remedy})


def unavailable() -> Response:
    """Answer that the event could not be recorded."""
    return _json(503, {"accepted": False, "error": "try again later"}, {"Retry-After": str(RETRY_AFTER_S)})


def _refusal(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    """Refuse without having read the body; the connection ends, or the rest of it would be waited for."""
    return _json(status, {"accepted": False, "error": error}, {"Connection": "close", **(headers or {})})


def _json(status: int, content: dict[str, object], headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
