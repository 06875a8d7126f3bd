"""The turns in which passwords are checked: one at a time, networks that have not failed first.

A check takes a tenth of a second and 64 MiB, so whoever sends many guesses makes others wait. An attacker can guess from
any number of networks, and one who has 300 kept everybody out. A network that failed within the hour therefore waits for
those that did not, and goes behind the networks from which somebody has logged in.
"""

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

MOST_WAITING: Final = 40
"""Checks that wait at a time. With more, the last of those with the most failures is turned away."""

FORGOTTEN_S: Final = 3600.0
"""Seconds after which a network's failures are forgotten."""

REMEMBERED: Final = 4096
"""How many networks are remembered: those with the latest failures, and those with the latest logins."""


class TooManyWait(Exception):
    """Too many checks wait. Try again in ``wait_s`` seconds."""

    wait_s = 10


class PasswordTurns:
    """Gives turns. Use it in the event loop's thread only."""

    def __init__(self, *, most_waiting: int = MOST_WAITING, now: Callable[[], float] = time.monotonic) -> None:
        """Start with nobody waiting. ``now`` is a monotonic clock, in seconds."""
        self._most_waiting = most_waiting
        self._now = now
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._numbers = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, network: str) -> AsyncIterator[None]:
        """Wait for a turn, and end it with the block.

        Raises:
            TooManyWait: Too many others wait, and this network has failed most.
        """
        if self._is_taken:
            await self._wait(self._rank(network))
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def failed(self, network: str) -> None:
        """Remember that a password from a network was wrong."""
        failures, _ = self._failed.pop(network, (0, 0.0))
        self._failed[network] = (failures + 1, self._now())
        if len(self._failed) > REMEMBERED:
            self._failed.popitem(last=False)

    def succeeded(self, network: str) -> None:
        """Remember that somebody logged in from a network."""
        self._failed.pop(network, None)
        self._known.pop(network, None)
        self._known[network] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def _rank(self, network: str) -> int:
        failures, failed_at = self._failed.get(network, (0, 0.0))
        if failures and self._now() - failed_at < FORGOTTEN_S:
            return failures
        return -1 if network in self._known else 0

    async def _wait(self, rank: int) -> None:
        if len(self._waiting) >= self._most_waiting:
            last = max(self._waiting)
            if rank >= last[0]:
                raise TooManyWait
            self._waiting.remove(last)
            heapq.heapify(self._waiting)
            last[2].set_exception(TooManyWait())
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (rank, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._pass_on()  # it was given the turn, and does not want it any more
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = heapq.heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return  # it stays taken, so that nobody comes in between
        self._is_taken = False
