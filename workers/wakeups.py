"""When a shift claims: at the next due time that it knows of, when somebody made something due, or after a second.

Whoever makes something due pushes one element on the list ``wakeup``; one of the shifts that wait takes it. A wake-up that
nobody takes costs a quarter of a second: the pacemaker sees what is overdue.
"""

import asyncio
from math import inf
from typing import Any, Final

from redis.exceptions import RedisError

APART_S: Final = 0.02
"""Claims at due times are at least this far apart: what falls due meanwhile is claimed together."""

WOKEN_APART_S: Final = 0.005
"""The same for claims after a wake-up. A start needs two of them, one for the look and one for the call."""

APART_AT_MOST_S: Final = 0.32
"""Claims at a due time that find nothing, because other shifts were first, get rarer up to this."""

LONGEST_WAIT_S: Final = 1.0
"""A shift claims this often however quiet it is: a changed clock, a pause, a wake-up that another shift took and lost."""

LISTEN_S: Final = 1.0
"""How long one BLPOP waits: less than a connection waits for an answer."""

RETRY_S: Final = 0.2
"""After Redis failed."""


class Wakeups:
    """One for all shifts of a process. Use it in the event loop's thread."""

    def __init__(self) -> None:
        self._is_time = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at_s = inf
        self._claimed_at_s = -inf
        self._apart_s = APART_S
        self._was_woken = False

    def wake(self) -> None:
        """Claim as soon as possible: somebody made something due."""
        self._was_woken = True
        self._claim_at(self._claimed_at_s + WOKEN_APART_S)

    def due_in(self, seconds: float) -> None:
        """Claim in so many seconds: something is due then."""
        self._claim_at(max(asyncio.get_running_loop().time() + seconds, self._claimed_at_s + self._apart_s))

    async def wait(self) -> None:
        """Wait until it is time to claim; a wake-up since the last claim counts."""
        self.due_in(LONGEST_WAIT_S)
        await self._is_time.wait()

    def claims(self) -> None:
        """Note that a claim begins: it finds whatever was made due until now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rings_at_s = inf
        self._is_time.clear()
        self._claimed_at_s = asyncio.get_running_loop().time()

    def claimed(self, *, found: bool) -> None:
        """Note how a claim ended, which decides how soon one at a due time may follow."""
        useful = found or self._was_woken
        self._apart_s = APART_S if useful else min(2 * self._apart_s, APART_AT_MOST_S)
        self._was_woken = False

    async def listen(self, redis: Any, key: str) -> None:
        """Wake at every wake-up that this process takes from the list ``key``, until cancelled."""
        while True:
            try:
                if await redis.blpop([key], timeout=LISTEN_S) is not None:
                    self.wake()
                    # A burst of pushes is one wake-up: the others find the list empty while the claim goes on.
                    await asyncio.sleep(APART_S / 2)
            except RedisError:
                await asyncio.sleep(RETRY_S)

    def _claim_at(self, at_s: float) -> None:
        if self._is_time.is_set() or self._rings_at_s <= at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        # Kept here, because uvloop returns a handle that cannot say when it is due if it is due at once.
        self._rings_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._is_time.set)
