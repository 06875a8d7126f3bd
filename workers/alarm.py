"""The alarm of a shift: rings when it has to claim, because something falls due or somebody says that something is."""

import asyncio
from typing import Final

CLAIM_EVERY_S: Final = 0.02
"""What falls due sooner than this after a claim is claimed together."""

LONGEST_WAIT_S: Final = 1.0
"""A shift claims this often however quiet it is: what others made due without ringing, a changed clock, a pause."""


class Alarm:
    """One for all shifts of a process. Use it in the event loop's thread."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Ring now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rung.set()

    def ring_in(self, seconds: float) -> None:
        """Ring in so many seconds at the latest."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(seconds, CLAIM_EVERY_S)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self.ring)

    async def wait(self) -> None:
        """Wait until it rings; a ring since the last time counts."""
        self.ring_in(LONGEST_WAIT_S)
        await self._rung.wait()
        self._rung.clear()
