"""The push endpoint's responses: small, fixed, and never an echo of what was sent.

The service shows them to people on its settings page (Spec: Events 2), so they say what to repair.
"""

from typing import Final

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import Response

RETRY_AFTER_S: Final = 5


def accepted(event_id: str, background: BackgroundTask | None = None) -> Response:
    """Answer that the event is recorded, and with which id the log names it.

    Args:
        event_id: 32 hexadecimal digits, which JSON need not quote.
        background: Runs after the answer has been sent.
    """
    body = b'{"accepted":true,"event_id":"%b"}' % event_id.encode("ascii")
    return Response(body, 202, media_type="application/json", background=background)


def unauthorized() -> Response:
    """Answer that the configured headers are missing or wrong, the same way whichever it is."""
    return _refusal(401, "unauthorized", {"WWW-Authenticate": 'Headers realm="push"'})


def ignored(wait_s: int) -> Response:
    """Answer the next of many with missing or wrong headers; it may be our own sender, set up wrongly."""
    return _refusal(429, "unauthorized too often: check the configured request headers", {"Retry-After": str(wait_s)})


def unsupported_media_type() -> Response:
    """Answer that events are plain JSON."""
    return _refusal(415, "the content type must be application/json, not compressed")


def too_large() -> Response:
    """Answer that no event is that long."""
    return _refusal(413, "too large")


def client_left() -> Response:
    """Answer a client that closed the connection before its request was complete; the answer is never received."""
    return _refusal(400, "incomplete")


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
