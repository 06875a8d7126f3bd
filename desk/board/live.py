"""``/board/stream``: pieces of the board that have changed, as server-sent events. Of one moment only what is new is sent.

Who connects is told everything, so it does not matter what was missed: no place in any stream has to be remembered.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from zlib import crc32

import msgspec
from starlette.responses import Response, StreamingResponse

from desk.board.painter import View

_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class News:
    """What one page has been told so far."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._order: Mapping[str, Any] = {}

    def of(self, view: View, said: str = "") -> bytes | None:
        """Return the event that tells what is new in a view; None if nothing is."""
        marks = {slot: crc32(view.marks.get(slot, markup).encode()) for slot, markup in view.html.items()}
        html = {slot: markup for slot, markup in view.html.items() if markup and self._marks.get(slot) != marks[slot]}
        order = {slot: slots for slot, slots in view.order.items() if self._order.get(slot) != slots}
        self._marks, self._order = marks, view.order
        if not html and not order:
            return None
        now_ms = int(view.now.timestamp() * 1000)
        data = msgspec.json.encode({"now": now_ms, "html": html, "order": order, "said": said})
        return b"event: news\ndata: %b\n\n" % data


def stream(events: AsyncIterator[bytes]) -> Response:
    """Return the answer that sends events as they come."""
    return StreamingResponse(events, headers=_HEADERS, media_type="text/event-stream")


BEGIN: Final = b"retry: 1000\n\n"
ALIVE: Final = b": alive\n\n"
