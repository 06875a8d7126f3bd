"""Streams the changed pieces of the board's pages as server-sent events, while a page is open.

A new connection gets everything, so no position in the stream has to be kept.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zlib import crc32

import msgspec
from redis.exceptions import RedisError

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record_storage import NewerRecord
from callkeeper.desk.access.rights import Person
from callkeeper.desk.access.visitor import Visitor
from callkeeper.desk.board.alarms import IncidentReader
from callkeeper.desk.board.call_page import CallRenderer, call_page
from callkeeper.desk.board.frame_source import FrameSource
from callkeeper.desk.board.renderer import Renderers, View
from callkeeper.desk.desk import Desk
from callkeeper.desk.feed import RETRY_S, Listener

POLL_S: Final = 5.0
"""Seconds without updates after which a comment is sent to keep the connection alive, or an event if Redis is down."""

BYTES_A_SECOND: Final = 20_000
"""How much of the board one page is sent, after its first event. A frame is a state, so those in between are skipped."""

_LOOK_EVERY_S: Final = 0.5

CALL_POLL_S: Final = 5.0
"""How often a call's page is refreshed, also when nothing seems to have changed."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Yields events. Each stream begins with everything."""

    frames: FrameSource
    desk: Desk
    renderers: Renderers
    incidents: IncidentReader
    now: Callable[[], datetime]

    async def of_board(self, only: str | None, person: Person) -> AsyncGenerator[bytes]:
        """Yield changes of the board, or of one institution, as far as a person may see them."""
        updates, seen, renderer = PageUpdates(), 0, self.renderers.of(person)
        is_first = True
        yield begin(person)
        async with self.frames.watching():
            while not self.frames.is_broken:
                frame = await self.frames.next(seen, POLL_S)
                if frame is None:
                    yield DARK if self.frames.is_dark else ALIVE
                    continue
                seen = frame.n
                view = renderer.view(frame, only, person.institutions)
                event = updates.of(view, lamp=AWAY if frame.is_stale else "")
                if event is not None:
                    yield event
                    await self._pause(0 if is_first else len(event) / BYTES_A_SECOND)
                    is_first = False

    async def _pause(self, seconds: float) -> None:
        """Wait before the next event of a page, unless no more frames will be made."""
        while seconds > 0 and not self.frames.is_broken:
            await asyncio.sleep(min(seconds, _LOOK_EVERY_S))
            seconds -= _LOOK_EVERY_S

    async def of_call(self, place: CallId, action_id: str | None, visitor: Visitor) -> AsyncGenerator[bytes]:
        """Yield changes of the page of a call, until the call no longer exists."""
        updates, writer = PageUpdates(), CallRenderer(self.renderers.of(visitor.person))
        yield begin(visitor.person)
        with self.desk.feed.listen() as listener:
            while not listener.is_over:
                try:
                    known = await self.desk.known(place)
                    institution = await self.desk.lookup.name(place.institution_key)
                    alarms = await self.incidents.of(place.institution_key, visitor.person.institutions)
                except (NewerRecord, ArchiveAway, RedisError, OSError):
                    yield DARK
                    updates = PageUpdates()  # the next event switches the lamp on again
                    await asyncio.sleep(RETRY_S)
                    continue
                if known is None:
                    yield GONE
                    return
                page = call_page(known, self.desk.book, action_id, self.now(), institution=institution, alarms=alarms)
                yield updates.of(writer.view(page, self.now(), visitor)) or ALIVE
                await _change_of(known.call_id, listener)


async def _change_of(call_id: CallId, listener: Listener) -> None:
    """Wait for a change of a call, but no longer than `CALL_POLL_S`, however often others change."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CALL_POLL_S):
            while (change := await listener.next(CALL_POLL_S)) and change.call_id != call_id:
                pass


class PageUpdates:
    """What one page has been sent so far."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._order: Mapping[str, Any] = {}
        self._lamp = ""

    def of(self, view: View, *, lamp: str = "") -> bytes | None:
        """Return the event with what has changed in a view; None if nothing has. ``lamp``: why it is not live."""
        marks = {slot: crc32(view.marks.get(slot, markup).encode()) for slot, markup in view.html.items()}
        html = {slot: markup for slot, markup in view.html.items() if markup and self._marks.get(slot) != marks[slot]}
        order = {slot: slots for slot, slots in view.order.items() if self._order.get(slot) != slots}
        is_same = lamp == self._lamp
        self._marks, self._order, self._lamp = marks, view.order, lamp
        if not html and not order and is_same:
            return None
        now_ms = int(view.now.timestamp() * 1000)
        data = msgspec.json.encode({"now": now_ms, "html": html, "order": order, "said": view.said, "lamp": lamp})
        return b"event: updates\ndata: %b\n\n" % data


def begin(person: Person) -> bytes:
    """Return the beginning of a stream, which names who is logged in now."""
    return b"retry: 1000\nevent: who\ndata: %b\n\n" % msgspec.json.encode(person.shown_name)


ALIVE: Final = b": alive\n\n"
AWAY: Final = "Redis does not answer"
DARK: Final = b'event: dark\ndata: "%b"\n\n' % AWAY.encode()
"""Shown on a page that was opened while Redis was unreachable: there is no data, not even old data."""
GONE: Final = b'event: gone\ndata: "The record of this call is gone: it expired or was lost. Reload to look again"\n\n'
"""The last event of a call that no longer exists (an erasure leaves its record). Its page does not connect again."""
