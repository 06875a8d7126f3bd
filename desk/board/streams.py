"""The streams of the board's pages: pieces that have changed, as server-sent events, while a page is open.

A new connection is sent everything, so nothing is lost with a connection and no position in a stream is kept.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import msgspec
from redis.exceptions import RedisError
from starlette.responses import Response, StreamingResponse

from calls.store.keys import CallId
from desk.board.call_page import CallRenderer, call_page
from desk.board.frame import Frame
from desk.board.frame_source import FrameSource
from desk.board.renderer import Renderer, View
from desk.desk import Desk
from desk.feed import RETRY_S

LOOK_S: Final = 5.0
"""After so long without updates a comment shows both sides that the connection lives, or an event that Redis does not."""

CALL_LOOK_S: Final = 5.0
"""How often a call's page looks anew, also when nothing seems to have changed."""


class Streams:
    """Yields events; each begins with everything."""

    def __init__(
        self,
        frames: FrameSource,
        desk: Desk,
        renderer: Renderer,
        call_renderer: CallRenderer,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._frames = frames
        self._desk = desk
        self._renderer = renderer
        self._call_renderer = call_renderer
        self._now = now

    async def of_board(self, only: str | None) -> AsyncIterator[bytes]:
        """Yield what is new on the board, or of one institution."""
        updates, seen = PageUpdates(), 0
        yield BEGIN
        async with self._frames.watching():
            while not self._frames.is_broken:
                frame = await self._frames.next(seen, LOOK_S)
                if frame is None:
                    yield DARK if self._frames.is_dark else ALIVE
                    continue
                seen = frame.n
                event = updates.of(self._renderer.view(frame, only), _said(frame), lamp=AWAY if frame.is_stale else "")
                if event is not None:
                    yield event

    async def of_call(self, place: CallId, action_id: str | None, operator: str) -> AsyncIterator[bytes]:
        """Yield what is new on the page of a call, until there is no such call."""
        updates = PageUpdates()
        yield BEGIN
        with self._desk.feed.listen() as listener:
            while not listener.is_over:
                try:
                    known = await self._desk.lookup.known(*place)
                except (RedisError, OSError, TimeoutError):
                    yield DARK
                    updates = PageUpdates()  # what comes next lights the lamp again
                    await asyncio.sleep(RETRY_S)
                    continue
                if known is None:
                    return
                page = call_page(known, self._desk.book, action_id, self._now())
                yield updates.of(self._call_renderer.view(page, self._now(), operator)) or ALIVE
                change = await listener.next(CALL_LOOK_S)
                while change is not None and change.call_id != known.call_id and not listener.is_over:
                    change = await listener.next(CALL_LOOK_S)


def _said(frame: Frame) -> str:
    """Say what needs a human, for those who hear the page."""
    count = len(frame.alarms)
    return f"{count} need{'' if count > 1 else 's'} a human: {frame.alarms[0].title}" if count else ""


_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class PageUpdates:
    """What one page has been told so far."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._order: Mapping[str, Any] = {}
        self._lamp = ""

    def of(self, view: View, said: str = "", *, lamp: str = "") -> bytes | None:
        """Return the event that tells what is new in a view; None if nothing is.

        Args:
            view: What the page shows now.
            said: What is read out to those who hear the page.
            lamp: Why what is shown is not live; empty if it is.
        """
        marks = {slot: crc32(view.marks.get(slot, markup).encode()) for slot, markup in view.html.items()}
        html = {slot: markup for slot, markup in view.html.items() if markup and self._marks.get(slot) != marks[slot]}
        order = {slot: slots for slot, slots in view.order.items() if self._order.get(slot) != slots}
        is_same = lamp == self._lamp
        self._marks, self._order, self._lamp = marks, view.order, lamp
        if not html and not order and is_same:
            return None
        now_ms = int(view.now.timestamp() * 1000)
        data = msgspec.json.encode({"now": now_ms, "html": html, "order": order, "said": said, "lamp": lamp})
        return b"event: updates\ndata: %b\n\n" % data


def stream(events: AsyncIterator[bytes]) -> Response:
    """Return the answer that sends events as they come."""
    return StreamingResponse(events, headers=_HEADERS, media_type="text/event-stream")


BEGIN: Final = b"retry: 1000\n\n"
ALIVE: Final = b": alive\n\n"
AWAY: Final = "Redis does not answer"
DARK: Final = b'event: dark\ndata: "%b"\n\n' % AWAY.encode()
"""Nothing is known, not even what was: said to a page that was opened while Redis was away."""
