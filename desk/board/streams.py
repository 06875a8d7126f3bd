"""The streams of the board's pages: pieces that have changed, as long as somebody looks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final

from redis.exceptions import RedisError

from calls.keys import CallId
from desk.board.call_page import CallWriter, call_page
from desk.board.frame import Frame
from desk.board.live import ALIVE, BEGIN, News
from desk.board.painter import Painter
from desk.board.wall import Wall
from desk.desk import Desk
from desk.feed import RETRY_S

HEARTBEAT_S: Final = 15.0
"""After so long without news a comment shows both sides that the connection lives."""

CALL_LOOK_S: Final = 5.0
"""How often a call's page looks anew, also when nothing seems to have changed."""


class Streams:
    """Yields events; each begins with everything."""

    def __init__(
        self, wall: Wall, desk: Desk, painter: Painter, writer: CallWriter, *, now: Callable[[], datetime]
    ) -> None:
        self._wall = wall
        self._desk = desk
        self._painter = painter
        self._writer = writer
        self._now = now

    async def of_wall(self, only: str | None) -> AsyncIterator[bytes]:
        """Yield what is new on the board, or of one institution."""
        news, seen = News(), 0
        yield BEGIN
        async with self._wall.watching():
            while not self._wall.is_broken:
                frame = await self._wall.next(seen, HEARTBEAT_S)
                if frame is None:
                    yield ALIVE
                    continue
                seen = frame.n
                event = news.of(self._painter.view(frame, only), _said(frame))
                if event is not None:
                    yield event

    async def of_call(self, place: CallId, wish: str | None, operator: str) -> AsyncIterator[bytes]:
        """Yield what is new on the page of a call, until there is no such call."""
        news = News()
        yield BEGIN
        with self._desk.feed.listen() as listener:
            while not listener.is_over:
                try:
                    known = await self._desk.lookup.known(*place)
                except (RedisError, OSError, TimeoutError):
                    yield ALIVE
                    await asyncio.sleep(RETRY_S)
                    continue
                if known is None:
                    return
                page = call_page(known, self._desk.book, wish, self._now())
                yield news.of(self._writer.view(page, self._now(), operator)) or ALIVE
                change = await listener.next(CALL_LOOK_S)
                while change is not None and change.call_id != known.call_id and not listener.is_over:
                    change = await listener.next(CALL_LOOK_S)


def _said(frame: Frame) -> str:
    """Say what needs a human, for those who hear the page."""
    count = len(frame.alarms)
    return f"{count} need{'' if count > 1 else 's'} a human: {frame.alarms[0].title}" if count else ""
