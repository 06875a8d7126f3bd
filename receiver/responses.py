"""The push endpoint's responses: small, fixed, and never repeating what was sent.

The service shows them to people on its settings page (Spec: Events 2). So each refusal names the ``field`` that is wrong
and what is ``expected`` of it. A field is one of the payload, a header, or ``body``.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.background import BackgroundTask
from starlette.responses import Response

RETRY_AFTER_S: Final = 5


_ACCEPTED: Final = b'{"accepted":true,"event_id":"%32b"}'
_ACCEPTED_HEADERS: Final = ((b"content-length", b"%d" % len(_ACCEPTED % b"")), (b"content-type", b"application/json"))


class _Accepted(Response):
    """Has prepared headers, because making them for each answer costs as much as parsing the event."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        self.raw_headers = list(_ACCEPTED_HEADERS)


def accepted(event_id: str, background: BackgroundTask | None = None) -> Response:
    """Answer that the event is recorded, with its id in the log.

    Args:
        event_id: 32 hexadecimal digits, so no JSON escaping is needed.
        background: Runs after the answer has been sent.
    """
    return _Accepted(_ACCEPTED % event_id.encode("ascii"), 202, background=background)


_HEADERS: Final = ("request headers", "each header that this receiver is configured for, once, with its current value")


def unauthorized() -> Response:
    """Answer that the configured headers are missing or wrong, without saying which."""
    return _early_refusal(401, "unauthorized", *_HEADERS, {"WWW-Authenticate": 'Headers realm="push"'})


def too_many_attempts(wait_s: int) -> Response:
    """Answer repeated requests with missing or wrong headers. It may be the real sender with a wrong configuration."""
    return _early_refusal(429, "unauthorized too often", *_HEADERS, {"Retry-After": str(wait_s)})


def unsupported_media_type() -> Response:
    """Answer that events must be plain JSON."""
    return _early_refusal(415, "not plain JSON", "Content-Type", "application/json, without a Content-Encoding")


def too_large(limit: int) -> Response:
    """Answer that the body is longer than any event. ``limit``: in bytes."""
    return _early_refusal(413, "too large", "body", f"at most {limit} bytes")


def client_left() -> Response:
    """Answer a client that closed the connection before its request was complete. It never receives the answer."""
    return _early_refusal(400, "incomplete", "body", "the whole body")


def unreadable(field: str, remedy: str) -> Response:
    """Answer which field is wrong and what is expected."""
    return _refusal(400, "unreadable", field, remedy)


def unavailable() -> Response:
    """Answer that the event could not be recorded. Nothing is wrong with it."""
    content = {"accepted": False, "error": "not recorded: try again later"}
    return _json(503, content, {"Retry-After": str(RETRY_AFTER_S)})


def _early_refusal(
    status: int, error: str, field: str, expected: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Refuse before the whole body was read. The connection is closed; else the server would wait for the rest."""
    return _refusal(status, error, field, expected, {"Connection": "close", **(headers or {})})


def _refusal(status: int, error: str, field: str, expected: str, headers: Mapping[str, str] | None = None) -> Response:
    return _json(status, {"accepted": False, "error": error, "field": field, "expected": expected}, headers)


def _json(status: int, content: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")
