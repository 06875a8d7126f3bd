"""What one person or token may take of a web process: streams at a time, searches at a time.

Without such bounds one viewer could hold all connections or all of the event loop, and keep the administrator out.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

STREAMS_PER_PERSON: Final = 64
"""Streams that one person may have open in a web process, unless it has fewer connections: one for each open page."""

SEARCHES_PER_PERSON: Final = 2
"""Searches of one person that run or wait in a web process: one, and one that replaces it."""

SEARCHES_PER_TOKEN: Final = 8
"""The same of one token, which many agents may share."""

SEARCHES: Final = 24
"""Searches that run or wait in a web process."""

REFUSED_AFTER_S: Final = 1.0
"""After how many seconds a search is refused: one that is sent again at once would cost more than it does in vain."""

AGAIN_S: Final = 5
"""When to try again, in seconds."""

_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class QuotaUsed(Exception):
    """As many are open, or run, as there may be. The message can be shown to the person."""


class OpenStreams:
    """Counts streams while they are sent."""

    def __init__(self, most: int) -> None:
        """``most``: how many one person or token may have open."""
        self._most = most
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Return how many are open."""
        return sum(list(self._open.values()))  # a copy: another thread asks

    def response(self, who: str, events: AsyncIterator[bytes]) -> StreamingResponse:
        """Return a stream of events that counts as one of somebody's while it is sent.

        Raises:
            QuotaUsed: They have as many as they may have.
        """
        if self._open[who] >= self._most:
            raise QuotaUsed(f"You have {self._most} pages or streams open. Close some of them.")
        # Nothing may be awaited between this question and the count in _CountedStream, or a burst gets past the bound.
        return _CountedStream(events, who, self._open)


class _CountedStream(StreamingResponse):
    def __init__(self, events: AsyncIterator[bytes], who: str, streams: Counter[str]) -> None:
        super().__init__(events, headers=_HEADERS, media_type="text/event-stream")
        self._who = who
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client leaves."""
        self._streams[self._who] += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams[self._who] -= 1


class SearchTurns:
    """Lets searches run one after the other."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, who: str, *, most: int = SEARCHES_PER_PERSON) -> AsyncIterator[None]:
        """Wait for a turn, and end it with the block. ``most``: how many of this person or token run or wait.

        Raises:
            QuotaUsed: Too many searches run or wait, of this person or token or of all.
        """
        is_own = self._asked[who] >= most
        if is_own or self._asked.total() >= SEARCHES:
            await asyncio.sleep(REFUSED_AFTER_S)
            words = "Your last searches have not ended yet." if is_own else "Too many searches run at this moment."
            raise QuotaUsed(f"{words} Try again in some seconds.")
        self._asked[who] += 1
        try:
            async with self._turn:
                yield
        finally:
            self._asked[who] -= 1
            if not self._asked[who]:
                del self._asked[who]
