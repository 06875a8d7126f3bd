"""Wake-ups in virtual time, with real shifts, watchdogs, scripts and jobs, while jobs and workers are lost."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from redis import Redis as BlockingRedis

from callkeeper.calls.claimed_item import ClaimedItem, Placement
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.notes import Pushed
from callkeeper.calls.store.breakers import FAILURES_THAT_OPEN, RequestResult
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from tests.harness.redis_in_step import VirtualLoop, emptied, in_step
from tests.workers_built import institution_settings
from workers.job_watchdog import POLL_EVERY_S, SOON_MS, Watchdog
from workers.managed_institutions import ENLIST_S
from workers.managed_keys import ManagedKeys
from workers.shift import Shift, Wakeups

RESUMED_S = 1.5
"""Due work is claimed at most this late, whatever was lost."""

FOUND_S = 10.0
"""What is in no schedule is claimed at most this late."""

KEY = "cu-1"

TAKE_S = 0.005
"""How long a worker takes from fetching a job to the start of its shift."""

Run = Callable[[Coroutine[Any, Any, None]], None]

_BEGAN_MS = int(datetime(2026, 11, 2, 9, tzinfo=UTC).timestamp() * 1000)


class Institutions:
    """Institutions that are all known; a refresh may be slow."""

    are_known = True
    keys: frozenset[str] = frozenset()

    def __init__(self, refresh_s: float, store: Store) -> None:
        self.refresh_s = refresh_s
        self._store = store
        self._enlisted_at_s = -ENLIST_S
        self.managed_keys = ManagedKeys(institution_settings(), structlog.get_logger())

    def is_stale(self) -> bool:
        """Tell that what is known is new."""
        return False

    async def refresh(self) -> None:
        """Take a while."""
        await asyncio.sleep(self.refresh_s)

    async def enlist(self) -> None:
        """Look every few seconds whether a call or an institution is in no schedule, as a worker does."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._enlisted_at_s >= ENLIST_S:
            self._enlisted_at_s = now_s
            await self._store.enlist([KEY])


class CountedStore(Store):
    """Reports each claim."""

    on_claim: Callable[[], None]

    async def claim(self, limit: int, **options: Any) -> list[ClaimedItem]:
        """Claim, and report it."""
        claimed = await super().claim(limit, **options)
        self.on_claim()
        return claimed


class WorkShift(Shift):
    """A shift that only waits for each call: ``work`` says for how long, and when the call is due again."""

    world: "World"

    async def handle(self, item: ClaimedItem) -> None:
        """Wait, then end the claim."""
        self.world.late_s.append((self.world.now_s, item.late.total_seconds()))
        work_s, again_ms = self.world.work(item)
        await asyncio.sleep(work_s)
        await self.tools.store.save(item, b"{}", Placement(again_ms))


@dataclass
class World:
    """Workers with a watchdog each, on one Redis."""

    work: Callable[[ClaimedItem], tuple[float, int | None]] = lambda _: (0.03, None)
    refresh_s: float = 0.0
    late_s: list[tuple[float, float]] = field(default_factory=list)
    shifts: int = 0
    jobs: int = 0
    claims: int = 0
    keys: Keys = field(default_factory=Keys)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        url = emptied()
        self.redis: Any = in_step(url)
        self._blocking: Any = BlockingRedis.from_url(url)
        self._waker = Waker(self._blocking)
        self._web = Store(self.redis, now_ms=self.now_ms)

    @property
    def now_s(self) -> float:
        """Return the virtual time."""
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        """Return the virtual time as Redis's clock."""
        return _BEGAN_MS + int(self.now_s * 1000)

    def enqueue(self, trigger: str) -> None:
        """Enqueue a job as production does."""
        self.jobs += 1
        self._waker.enqueue(trigger)
        self._tell()

    async def push(self, number: int) -> None:
        """Record a push about a call, as a web process does."""
        hint = Pushed(has_ended=False, event_id="ev-1", received_at=datetime.now(UTC))
        _, asks = await self._web.note(CallId(KEY, f"v-{number}"), hint, wake=True)
        self._tell()
        if asks:
            self.enqueue("a push")

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled at the end of the test."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        return task

    def worker(self) -> "asyncio.Task[None]":
        """Start a worker process: its main thread and its watchdog."""
        watchdog = Watchdog(self._blocking, self, structlog.get_logger(), now_ms=self.now_ms)  # type: ignore[arg-type]
        wakeups = Wakeups()
        store = CountedStore(self.redis, now_ms=self.now_ms, monotonic=lambda: self.now_s, due_in=wakeups.due_in)
        store.on_claim = self._count_claim
        beats = self.begin(self._beat(watchdog))
        main = self.begin(self._work(store, wakeups, watchdog))
        main.add_done_callback(lambda _: beats.cancel())
        return main

    async def _beat(self, watchdog: Watchdog) -> None:
        while True:
            await asyncio.sleep(POLL_EVERY_S)
            watchdog.check()

    async def _work(self, store: Store, wakeups: Wakeups, watchdog: Watchdog) -> None:
        while True:
            if await self.redis.lpop(self.keys.queue) is None:
                await self._something_new(10.0)
                continue
            await asyncio.sleep(TAKE_S)
            self.shifts += 1
            await self._shift(store, wakeups)
            watchdog.check(late_ms=-SOON_MS)

    async def _shift(self, store: Store, wakeups: Wakeups) -> None:
        gate = SimpleNamespace(way=SimpleNamespace(leaves_work=False, is_broken=False))
        tools = SimpleNamespace(store=store, gate=gate, counting=SimpleNamespace(figures=Figures()))
        shift = WorkShift(tools, Institutions(self.refresh_s, store), None, structlog.get_logger(), wakeups=wakeups)  # type: ignore[arg-type]
        shift.world = self
        listening = asyncio.ensure_future(wakeups.listen(self, self.keys.wakeup))  # type: ignore[arg-type]
        try:
            await shift.run()
        finally:
            await end({listening})

    def _count_claim(self) -> None:
        self.claims += 1

    async def blpop(self, keys: list[str], timeout: float) -> bytes | None:  # noqa: ASYNC109  (the library's own name)
        """Wait for a wake-up in virtual time."""
        until_s = self.now_s + timeout
        while (found := await self.redis.lpop(keys[0])) is None and self.now_s < until_s:
            await self._something_new(until_s - self.now_s)
        return None if found is None else bytes(found)

    def _tell(self) -> None:
        """Wake all waiting tasks, because something was pushed."""
        self._news.set()
        self._news = asyncio.Event()

    async def _something_new(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()

    def latest_s(self, since_s: float = 0.0) -> float:
        """Return the longest time that a due call waited for its claim."""
        return max(late_s for at_s, late_s in self.late_s if at_s >= since_s)

    async def close(self) -> None:
        """Cancel all tasks and close the connections."""
        await end(self._tasks)
        await self.redis.aclose()
        self._blocking.close()


@pytest.fixture
def virtual() -> Iterator[Run]:
    """Return a function that runs a test in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield runner.run


def test_idle_worker_takes_a_push_at_once(virtual: Run) -> None:
    """An idle worker enqueues at most a job in about ten seconds, and claims a pushed call at once."""

    async def law() -> None:
        world = World()
        world.worker()
        await asyncio.sleep(120)
        assert world.jobs <= 14  # one in ten seconds
        await world.push(1)
        await asyncio.sleep(0.1)
        assert world.latest_s() <= 0.05
        await world.close()

    virtual(law())


def test_single_worker_never_stands_still(virtual: Run) -> None:
    """One worker with steady calls, some hanging requests and slow refreshes claims everything in time."""

    async def law() -> None:
        hung = {n * 40 for n in range(1, 40)}
        count = iter(range(1, 1_000_000))
        world = World(work=lambda _: (6.0 if next(count) in hung else 0.05, 1000), refresh_s=6.0)
        world.worker()
        for number in range(20):
            await world.push(number)
        await asyncio.sleep(150)
        assert world.shifts >= 3
        assert world.latest_s() <= RESUMED_S
        await world.close()

    virtual(law())


def test_fifty_idle_workers_enqueue_few_jobs_and_miss_nothing(virtual: Run) -> None:
    """Fifty idle workers together enqueue about one job in ten seconds; a pushed call is claimed at once."""

    async def law() -> None:
        world = World()
        for _ in range(50):
            world.worker()
        await asyncio.sleep(30)
        assert world.jobs <= 5
        await world.push(1)
        await asyncio.sleep(0.1)
        assert world.latest_s() <= 0.05
        await world.close()

    virtual(law())


def test_overlapping_shifts_share_the_work_without_a_storm_of_claims(virtual: Run) -> None:
    """Fifty shifts that wait for the same due times claim at most eight times a second each, and are not late."""

    async def law() -> None:
        world = World(work=lambda _: (0.05, 1000))
        for _ in range(50):
            world.worker()
        for _ in range(50):
            world.enqueue("a test")
        for number in range(5):
            await world.push(number)
        await asyncio.sleep(2)
        before = world.claims
        await asyncio.sleep(10)
        assert (world.claims - before) / 10 / 50 <= 8
        assert world.latest_s() <= 0.4
        await world.close()

    virtual(law())


def test_job_of_a_worker_that_dies_before_its_shift_is_replaced(virtual: Run) -> None:
    """If a worker takes a job and is killed, another one claims the due call within a second and a half."""

    async def law() -> None:
        world = World()
        victim = world.worker()
        await asyncio.sleep(15)
        victim.cancel()
        with suppress(asyncio.CancelledError):
            await victim
        world.worker()
        await world.push(1)
        assert await world.redis.lpop(world.keys.queue) is not None  # the job goes with the dead worker
        await asyncio.sleep(3)
        assert world.latest_s() <= RESUMED_S
        await world.close()

    virtual(law())


@pytest.mark.parametrize("number", [1, pytest.param(50, marks=pytest.mark.night)])
def test_job_that_a_failover_loses_is_replaced(virtual: Run, number: int) -> None:
    """If a failover loses the job and the wake-up, the due call is claimed within a second and a half."""

    async def law() -> None:
        world = World()
        for _ in range(number):
            world.worker()
        await asyncio.sleep(15)
        await world.push(1)
        await world.redis.delete(world.keys.queue, world.keys.wakeup)
        await asyncio.sleep(3)
        assert world.latest_s() <= RESUMED_S
        await world.close()

    virtual(law())


@pytest.mark.parametrize("lost", ["breakers", "due"])
def test_call_in_no_schedule_is_found(virtual: Run, lost: str) -> None:
    """A parked call whose breaker was forgotten, or a live one that is not due any more, is claimed within ten seconds.

    All workers stop for an hour, so that every key that can expire has expired.
    """

    async def law() -> None:
        world = World(work=lambda _: (0.03, 20_000))
        worker = world.worker()
        await world.push(1)
        await asyncio.sleep(1)
        opener = Store(world.redis, now_ms=world.now_ms)
        if lost == "breakers":
            await world.redis.hset(world.keys.token, "expires", world.now_ms() + 10**9)
            for _ in range(FAILURES_THAT_OPEN):
                await opener.breakers.report(RequestResult.FAILURE, KEY)
            await asyncio.sleep(25)
            assert await world.redis.zcard(f"ck:2:parked:{KEY}")
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        await world.redis.delete(world.keys.breakers, *([world.keys.due] if lost == "due" else []))
        await asyncio.sleep(3660)
        began_s = world.now_s
        world.worker()
        await asyncio.sleep(FOUND_S)
        assert [at_s for at_s, _ in world.late_s if at_s > began_s]
        await world.close()

    virtual(law())


def test_push_during_a_shift_enqueues_a_job_unless_one_waits(virtual: Run) -> None:
    """A hundred pushes during a shift are claimed by it, and enqueue one job."""

    async def law() -> None:
        world = World(work=lambda _: (0.5, None))
        world.worker()
        await world.push(0)
        await asyncio.sleep(0.1)
        before = world.jobs
        for number in range(1, 101):
            await world.push(number)
        assert world.jobs == before + 1
        assert await world.redis.llen(world.keys.queue) == 1
        await asyncio.sleep(0.2)
        assert world.latest_s() <= 0.1
        await world.close()

    virtual(law())
