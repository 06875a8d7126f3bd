"""Applies a fault to an answer, and sends the answer completely, in part, or not at all."""

import gzip
from collections.abc import Awaitable, Callable

import msgspec
from starlette.types import Receive, Send

from callkeeper_sandbox.service.answers import JSON, RefusedError, Reply, reply
from callkeeper_sandbox.service.connection import Line, gone
from callkeeper_sandbox.service.faults import Action, Fault

BOMB_BYTES = 100_000_000
_HTML = "<!doctype html><title>Maintenance</title><p>We will be back soon.</p>"
_FOREIGN = '{"weather": "fine", "degrees": [12, 14]}'
_REFUSED = RefusedError("Refused by a script.").answer()

SILENCES: dict[Action, Callable[[Line, Receive], Awaitable[None]]] = {
    Action.HANG: lambda _line, receive: gone(receive),
    Action.RESET: lambda line, receive: line.reset(receive),
    Action.DROP: lambda line, receive: line.close(receive),
}
"""The actions that send nothing."""


def distort(answer: Reply, fault: Fault) -> Reply | None:
    """Return the response to send instead of the service's answer; None to send nothing."""
    if fault.action in SILENCES:
        return None
    changed = _replaced(answer, fault)
    return msgspec.structs.replace(changed, headers={**changed.headers, **fault.headers})


def _replaced(answer: Reply, fault: Fault) -> Reply:
    match fault.action:
        case Action.ANSWER:
            return Reply(fault.status, (fault.body or "").encode(), {"content-type": "text/plain"})
        case Action.REFUSED:
            return _text(fault.body, JSON) if fault.body else reply(_REFUSED)
        case Action.HTML:
            return _text(fault.body or _HTML, "text/html")
        case Action.FOREIGN:
            return _text(fault.body or _FOREIGN, JSON)
        case Action.EMPTY:
            return msgspec.structs.replace(answer, body=b"")
        case Action.CUT:
            return msgspec.structs.replace(answer, body=answer.body[: len(answer.body) // 2])
        case Action.GZIP:
            return _compressed(answer, gzip.compress(answer.body))
        case Action.GZIP_BOMB:
            return _compressed(answer, _bomb())
        case _:
            return answer


def _text(body: str, media_type: str) -> Reply:
    return Reply(200, body.encode(), {"content-type": media_type})


def _compressed(answer: Reply, body: bytes) -> Reply:
    return Reply(answer.status, body, {**answer.headers, "content-encoding": "gzip"})


def _bomb() -> bytes:
    """Return a small body that unpacks to `BOMB_BYTES`."""
    return gzip.compress(b" " * BOMB_BYTES, compresslevel=1)


async def transmit(answer: Reply, send: Send, *, is_truncated: bool) -> None:
    """Send an answer. A truncated one has half the body that its length announces."""
    headers = {**answer.headers, "content-length": str(len(answer.body))}
    raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": raw})
    body = answer.body[: len(answer.body) // 2] if is_truncated else answer.body
    await send({"type": "http.response.body", "body": body, "more_body": is_truncated})
