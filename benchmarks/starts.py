"""Calls that the stand-in starts and pushes, each at its time, for `benchmarks.assigning`."""

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from benchmarks.load import Line, Sender, by_the_clock


class Starts(Sender):
    """Pushes the start of a new call with every request, and remembers when."""

    def __init__(self, path: str, begin: Callable[[], str]) -> None:
        super().__init__(path)
        self._begin = begin
        self.pushed_at: dict[str, float] = {}

    def event(self) -> bytes:
        """Begin a call and return its push."""
        voice_id = self._begin()
        self.pushed_at[voice_id] = time.time()
        return self.request(voice_id)


async def start_calls(starts: Starts, url: str, count: int, rate: float) -> None:
    """Start calls at a fixed rate, over connections that stay open."""
    place, loop = urlsplit(url), asyncio.get_running_loop()
    # A receiver closes connections that are idle for long.
    for _ in range(max(1, min(20, int(rate / 10)))):
        await loop.create_connection(lambda: Line(starts, goes_on=False), str(place.hostname), int(place.port or 0))
    await by_the_clock(starts, count, 1 / rate)
