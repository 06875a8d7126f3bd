"""Long reads beside everything else in an event loop: one slice at a time, and then a pause as long as the slice.

So half of the loop's time is left for others, however many long reads there are, and nobody waits for more than a slice.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SLICE = 50
"""Records read in a slice: a few milliseconds."""


class TimeSlices:
    """Gives slices to the long reads of one process, in turn."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Wait for a slice, and end it with the block."""
        async with self._turn:
            began_s = time.monotonic()
            yield
            await asyncio.sleep(time.monotonic() - began_s)
