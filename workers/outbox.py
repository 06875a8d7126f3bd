"""An outbox: calls with outcomes for a webhook, or entries for an archive, still to be sent.

It is handled beside the calls of a shift and never delays a call. What is sent comes from records and trails. The outbox
holds only names of calls, under keys like those of calls (claim, lease, nonce, due time, breaker), so two workers never
send for one call.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import ClaimedItem
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import Store
from callkeeper.calls.traceback_filter import innermost_place


class Outbox(ABC):
    """Claims and handles what is due while a shift runs. ``store`` works on the outbox's keys."""

    poll_every_s: ClassVar[float] = 0.1
    grace_s: ClassVar[float] = 1.0
    """How long tasks may go on after the shift, in seconds. Then they are cancelled and done again later."""
    failed_wait_s: ClassVar[float] = 1.0
    """How long nothing is claimed after an unexpected error, in seconds."""

    store: Store
    log: Any
    _tasks: set[asyncio.Task[Any]]

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Claim what falls due until the block ends. No task outlives it."""
        claiming = asyncio.ensure_future(self._claim_on())
        try:
            yield
        finally:
            await end({claiming})
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=self.grace_s)
            await end(self._tasks)

    async def claim(self) -> int:
        """Start with what is due now. Return how many calls that is."""
        room = self._room()
        is_probe = bool(self.store.breakers.opened and await self.store.breakers.take_probes())
        claimed = await self.store.claim(1 if is_probe else room, is_probe=is_probe) if room > 0 else []
        self._begin(claimed)
        return len(claimed)

    async def settle(self) -> None:
        """Wait for the tasks in flight."""
        await asyncio.gather(*self._tasks)

    @abstractmethod
    async def close(self) -> None:
        """Close connections."""

    @abstractmethod
    def _room(self) -> int:
        """Return how many calls may be claimed now."""

    @abstractmethod
    def _begin(self, claimed: Sequence[ClaimedItem]) -> None:
        """Start the work for claimed calls."""

    @abstractmethod
    async def _before_claim(self) -> None:
        """Do periodic work."""

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _claim_on(self) -> None:
        while True:
            with suppress(RedisError):
                if not await self._watched(self._claim_once()):
                    await asyncio.sleep(self.failed_wait_s)
            await asyncio.sleep(self.poll_every_s)

    async def _claim_once(self) -> None:
        await self._before_claim()
        await self.claim()

    async def _watched(self, work: Awaitable[Any]) -> bool:
        """Do something; tell whether it ended without an unexpected error, which is logged.

        What was claimed is claimed again when its lease has ended.
        """
        try:
            await work
        except RedisError:
            raise
        except Exception as error:  # noqa: BLE001  (a bug: the rest goes on)
            self._log_failure(error)
            return False
        return True

    def _log_failure(self, error: Exception) -> None:
        self.log.error("outbox_failed", error=type(error).__name__, where=innermost_place(error))
