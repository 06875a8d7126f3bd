"""An outbox beside a shift."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.claimed_item import ClaimedItem
from tests.waiting import until_async
from workers.outbox import Outbox


class Letters(Outbox):
    """Sends letters, which takes until it is told that they have arrived."""

    grace_s: ClassVar[float] = 0.01

    def __init__(self, room: int = 2, failures: int = 0, failure: Exception | None = None) -> None:
        self._tasks = set()
        self.room, self.failures = room, failures
        self.failure = failure or RedisConnectionError("down")
        self.asked: list[tuple[int, bool]] = []
        self.arrived, self.begun = asyncio.Event(), asyncio.Event()
        self.opened: list[str] = []
        self.work: Callable[[], Awaitable[object]] = self.arrived.wait
        self.store = cast(
            "Any",
            SimpleNamespace(
                breakers=SimpleNamespace(opened=self.opened, take_probes=self._take_probes), claim=self._claim
            ),
        )

    async def _take_probes(self) -> list[str]:
        return list(self.opened)

    async def _claim(self, most: int, *, is_probe: bool) -> list[str]:
        if self.failures:
            self.failures -= 1
            raise self.failure
        self.asked.append((most, is_probe))
        return ["letter"]

    async def burn(self) -> None:
        """Fail as a bug does."""
        raise ValueError("canary")

    async def close(self) -> None:
        """Close nothing."""

    def _room(self) -> int:
        return self.room - len(self._tasks)

    def _begin(self, claimed: Sequence[ClaimedItem]) -> None:
        for _ in claimed:
            self._start(self.work())
            self.begun.set()

    async def _before_claim(self) -> None:
        pass


async def test_unexpected_error_is_logged_and_ends_nothing(log: FilteringBoundLogger, logged: LogCapture) -> None:
    """A task that fails makes room again, and claiming goes on after a failure, each with a line that says where."""
    letters = Letters(failures=1, failure=KeyError("canary"))
    letters.log = log
    letters.poll_every_s = letters.failed_wait_s = 0.001  # type: ignore[misc]
    letters.work = letters.burn
    async with letters.running():
        await until_async(lambda: len(logged.entries) >= 4)
    found = [(each["event"], each["error"], each["where"].partition(":")[0]) for each in logged.entries[:3]]
    assert found == [
        ("outbox_failed", "KeyError", "Letters._claim"),
        ("outbox_failed", "ValueError", "Letters.burn"),
        ("outbox_failed", "ValueError", "Letters.burn"),
    ]
    assert "canary" not in repr(logged.entries)
    assert not letters.in_flight


async def test_no_more_is_claimed_than_there_is_room_for() -> None:
    """Without room nothing is asked for."""
    letters = Letters()
    assert [await letters.claim() for _ in range(3)] == [1, 1, 0]
    assert letters.asked == [(2, False), (1, False)]
    assert letters.in_flight
    letters.arrived.set()
    await letters.settle()
    await asyncio.sleep(0)
    assert not letters.in_flight


async def test_only_a_probe_is_claimed_while_a_breaker_is_open() -> None:
    """One letter shows whether the receiver is back."""
    letters = Letters()
    letters.opened.append("receiver")
    await letters.claim()
    assert letters.asked == [(1, True)]


@pytest.mark.parametrize("failures", [0, 1])
async def test_no_task_outlives_the_block_and_a_failure_of_redis_ends_none(failures: int) -> None:
    """What was not sent is claimed again later."""
    letters = Letters(failures=failures)
    letters.poll_every_s = 0.001  # type: ignore[misc]
    async with letters.running():
        await asyncio.wait_for(letters.begun.wait(), 5)
        tasks = set(letters._tasks)
    assert tasks
    assert all(task.done() for task in tasks)
