"""A shift: one worker claims due work and handles it concurrently, until nothing is due or its time is over.

It claims at the next known due time, after a wake-up, or after one second, whatever is in flight: one hung call never
delays the others. A push, a person's statement and ``callkeeper service retry`` leave an element on the list ``wakeup``,
and one waiting shift takes it. If no shift takes it, the watchdog finds the overdue work within half a second.

While others reach the service and this process does not (`workers.own_way`), the shift goes on, claims nothing, and
releases what it has.

No task outlives a shift: each is finished or, at the deadline, cancelled and awaited.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import ClaimedItem, Placement, RefusedBy, WriteRefused
from callkeeper.calls.institutions import FOREIGN
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.pause import Pauses
from callkeeper.calls.record_storage import NewerRecord
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import MOST_OF_ONE
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.traceback_filter import innermost_place
from callkeeper.calls.trail import Entry
from callkeeper.service.tracing import SpanKind, span
from workers.claimed_call import FORGET, Claim, Tools, follow_member, follow_trace
from workers.job_summary import JobSummary
from workers.managed_institutions import RELOAD_AT_ONCE_S, Institutions
from workers.move import move
from workers.queue_listing import Listing
from workers.retry_schedule import STEPS

APART_S: Final = 0.02
"""Minimum time between claims at due times, in seconds. Work that falls due in between is claimed together."""

WOKEN_APART_S: Final = 0.005
"""Minimum time between claims after a wake-up. A new call needs two of them: one for the look, one for the call."""

APART_AT_MOST_S: Final = 0.32
"""The upper limit of that time. It doubles whenever a claim finds nothing because other shifts were first."""

LONGEST_WAIT_S: Final = 1.0
"""The longest time without a claim. It covers changed clocks, pauses, and wake-ups that another shift took and lost."""

LISTEN_S: Final = 1.0
"""How long one BLPOP waits, in seconds: less than the connection's read timeout."""

RETRY_S: Final = 0.2
"""The wait after Redis failed, in seconds."""


class Wakeups:
    """Decides when to claim next. All shifts of a process share one. Use it in the event loop's thread only."""

    def __init__(self) -> None:
        self._is_time = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at_s = inf
        self._claimed_at_s = -inf
        self._apart_s = APART_S
        self._was_woken = False

    def wake(self) -> None:
        """Claim as soon as possible, because something was made due."""
        self._was_woken = True
        self._claim_at(self._claimed_at_s + WOKEN_APART_S)

    def due_in(self, seconds: float) -> None:
        """Claim in this many seconds, because something is due then."""
        self._claim_at(max(asyncio.get_running_loop().time() + seconds, self._claimed_at_s + self._apart_s))

    async def wait(self) -> None:
        """Wait until it is time to claim. A wake-up since the last claim counts."""
        self.due_in(LONGEST_WAIT_S)
        await self._is_time.wait()

    def claims(self) -> None:
        """Note that a claim begins. It finds everything that is due by now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._rings_at_s = inf
        self._is_time.clear()
        self._claimed_at_s = asyncio.get_running_loop().time()

    def claimed(self, *, found: bool) -> None:
        """Note how a claim ended. This decides how soon the next claim at a due time may follow."""
        useful = found or self._was_woken
        self._apart_s = APART_S if useful else min(2 * self._apart_s, APART_AT_MOST_S)
        self._was_woken = False

    async def listen(self, redis: Redis, key: str, *, leaves_it: Callable[[], bool] = lambda: False) -> None:
        """Wake for every element that this process takes from the list ``key``, until cancelled.

        ``leaves_it``: tells whether to leave the elements to other processes now.
        """
        while True:
            if leaves_it():
                await asyncio.sleep(RETRY_S)
                continue
            try:
                if await in_bytes(redis).blpop([key], timeout=LISTEN_S) is not None:
                    self.wake()
                    # A burst of pushes counts as one wake-up: the claim takes the work of all of them.
                    await asyncio.sleep(APART_S / 2)
            except RedisError:
                await asyncio.sleep(RETRY_S)

    def _claim_at(self, at_s: float) -> None:
        if self._is_time.is_set() or self._rings_at_s <= at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        # Stored here because uvloop's handle of a timer that is due at once cannot tell its time.
        self._rings_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._is_time.set)


SHIFT_S = 30.0
"""After this time, in seconds, a shift ends as soon as nothing is in flight, so that its job's result can be read."""

LONGEST_SHIFT_S = 300.0
"""After this time, in seconds, a shift claims no more, whatever is in flight."""

OLD_S = 1.0
"""A task that has run longer than this may hang. A shift does not end while it would have to wait for such a task."""

PAUSE_S = 0.3
"""How long a shift that wants to end claims nothing, to see whether everything in flight finishes."""

SOON_S = 10.0
"""An idle shift waits for work that is due this soon. It is longer than the time between two looks at a queue."""

YIELD_AFTER_S = 1.0
"""An idle shift that is older than this ends if another job waits."""

PASSED_ON_MS = 1000
"""When something is due again that this worker has claimed and only others may handle, in milliseconds."""

NOT_KNOWN_YET_MS = 1000
"""How long an institution waits to be listed while it is not known which are ours, in milliseconds."""

LEAVE_S = 8.0
"""How long tasks may go on after the worker was told to stop. The process has to be gone within 10 s."""

IN_FLIGHT, CLAIM_AT_ONCE = 256, 128
"""How many members a shift handles at a time, and how many it claims at a time."""


def log_pauses(before: Pauses, now: Pauses, log: Any) -> None:
    """Log the pauses that have begun or ended between two claims of this process."""
    if now is before:
        return
    for key, pause in now.by_institution.items():
        if before.by_institution.get(key) != pause:
            log.warning("pause_seen", institution=key, scope=pause.scope, operator=pause.operator)
    for key in sorted(before.by_institution.keys() - now.by_institution.keys()):
        log.warning("pause_over", institution=key, scope=before.by_institution[key].scope)


class StepsFailed(Exception):
    """Steps of calls raised unexpected errors: bugs. The message gives only code places: values may be personal."""

    def __init__(self, failures: list[str]) -> None:
        super().__init__(f"{len(failures)} failed: " + "; ".join(failures[:20]))


@dataclass(slots=True)
class Shift:
    """What one ``advance`` job does."""

    tools: Tools
    institutions: Institutions
    listing: Listing
    log: Any
    shift_s: float = SHIFT_S
    longest_s: float = LONGEST_SHIFT_S
    finish_s: float | None = None
    """How long tasks may go on once the shift claims no more, in seconds. None: as long as the lease allows."""
    leave_s: float = LEAVE_S
    summary: JobSummary = field(default_factory=JobSummary)
    failures: list[str] = field(default_factory=list)
    wakeups: Wakeups = field(default_factory=Wakeups)
    beat: Callable[[], None] = lambda: None
    is_wanted: Callable[[], bool] = lambda: False
    """Tells whether the shift must go on for something besides calls."""
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: dict[asyncio.Task[None], float] = field(default_factory=dict)
    """The tasks in flight, with their start times by the loop's clock."""
    _items: dict[asyncio.Task[None], ClaimedItem] = field(default_factory=dict)
    _refreshing: asyncio.Task[None] | None = None
    _holds: Counter[str] = field(default_factory=Counter)
    """How many calls of each institution are in flight; under the empty key, how many institutions."""
    _began_s: float | None = None

    def doing(self, now_s: float) -> Doing:
        """Return what the shift does, ``now_s`` by the loop's clock. It can be called from any thread."""
        listings = self._holds.get("", 0)  # no iteration: the loop's thread changes it
        calls = max(0, len(self._tasks) - listings)
        shift_s = 0.0 if self._began_s is None else round(max(0.0, now_s - self._began_s), 1)
        return Doing(shift_s=shift_s, calls=calls, listings=listings, did=self.summary.sentence())

    def stop(self) -> None:
        """Stop claiming, and finish what is in flight. Call it in the loop's thread."""
        self.log.info("shift_stopping", in_flight=len(self._tasks))
        self._stopping.set()
        self.wakeups.wake()

    async def run(self) -> JobSummary:
        """Handle due work until the shift is over.

        Raises:
            StepsFailed: Steps raised unexpected errors. Their calls are tried again, at most five times.
            redis.exceptions.RedisError: Redis is down. Claimed work becomes due again when its lease ends.
        """
        loop, figures = asyncio.get_running_loop(), self.tools.counting.figures
        began_s = self._began_s = loop.time()
        self._refreshing = asyncio.ensure_future(self.institutions.refresh())
        try:
            if not self.institutions.are_known:
                await self._refreshing
            await self._claim_until_over()
        finally:
            await end({self._refreshing})
            await self._gather()
            figures.observe(figure.SHIFT_SECONDS, loop.time() - began_s)
            figures.count(figure.SHIFTS, "failed" if self.failures else "finished")
        if self.failures:
            raise StepsFailed(self.failures)
        return self.summary

    async def _claim_until_over(self) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        first = True
        while not self._stopping.is_set():
            self.beat()
            self._keep_institutions_fresh()
            await self.institutions.enlist()
            leaves_work = self.tools.gate.way.leaves_work
            if self.tools.gate.way.is_broken:
                await self._leave_to_others()
            room = 0 if leaves_work else min(CLAIM_AT_ONCE, self._free)
            # A claim of nothing still reads pauses and breakers, which may change while the own way is doubted.
            claimed = await self._claim(room, shift_starts=first) if room > 0 or leaves_work else []
            first = False
            for item in claimed:
                self._start(item)
            if await self._is_over(loop.time() - started_s):
                return
            if leaves_work or len(claimed) < room:
                await self.wakeups.wait()
            elif room == 0:
                await asyncio.sleep(APART_S)

    def _keep_institutions_fresh(self) -> None:
        """Check how the refresh ended. Start another if it is time, or the institutions are not known yet."""
        if self._refreshing is None or not self._refreshing.done():
            return
        self._refreshing.result()  # a Redis error ends the shift
        is_due = self.institutions.is_stale() if self.institutions.are_known else not self.tools.store.breakers.opened
        if is_due:
            self._refreshing = asyncio.ensure_future(self.institutions.refresh())

    @property
    def _free(self) -> int:
        return IN_FLIGHT - len(self._tasks)

    @property
    def _most_of_one(self) -> int:
        """Return how many calls of one institution may be in flight: at most as many as there are places free for others."""
        return min(MOST_OF_ONE, max(1, self._free)) if len(self.institutions.keys) > 1 else IN_FLIGHT

    async def _claim(self, room: int, *, shift_starts: bool) -> list[ClaimedItem]:
        self.wakeups.claims()
        holds: Mapping[str, int] | None = self._holds if len(self.institutions.keys) > 1 else None
        if left := self.institutions.managed_keys.left_to_others():
            # As if we held as many as we may: we have nothing else to do, and would claim them before the others do.
            holds = self._holds | Counter(dict.fromkeys(left, IN_FLIGHT))
        store = self.tools.store
        known = store.pauses
        claimed = await store.claim(room, shift_starts=shift_starts, holds=holds, free=self._free)
        self.wakeups.claimed(found=bool(claimed))
        self.summary.pauses = store.pauses
        log_pauses(known, store.pauses, self.log)
        return claimed

    async def _is_over(self, age_s: float) -> bool:
        """Tell, after a claim, whether the shift ends.

        It does not end while a task may hang: a single worker would claim nothing until that task has finished.
        """
        if age_s >= self.longest_s:
            return True
        if self.tools.gate.way.leaves_work:
            return False  # it would only start another job, which a worker that is not cut off could run
        if age_s >= self.shift_s and not self._has_old():
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=PAUSE_S)
            return not self._tasks
        if self._tasks or self.is_wanted():
            return False
        store = self.tools.store
        return bool(store.jobs_waiting and age_s >= YIELD_AFTER_S) or store.next_due_s > SOON_S

    def _has_old(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        return any(now_s - began_s > OLD_S for began_s in self._tasks.values())

    def _start(self, item: ClaimedItem) -> None:
        task = asyncio.ensure_future(self.handle(item))
        self._tasks[task] = asyncio.get_running_loop().time()
        self._items[task] = item
        owner = item.institution_key if isinstance(item.owner, CallId) else ""  # only calls are limited
        self._holds[owner] += 1
        task.add_done_callback(partial(self._forget, owner))

    def _forget(self, owner: str, task: asyncio.Task[None]) -> None:
        most_before = self._most_of_one
        self._tasks.pop(task, None)
        self._items.pop(task, None)
        if owner and most_before <= self._holds[owner] <= self._most_of_one:
            self.wakeups.wake()  # the institution was at its limit, so another of its calls may be due
        self._holds[owner] -= 1
        if not self._holds[owner]:
            del self._holds[owner]

    async def _leave_to_others(self) -> None:
        """Release the calls that wait long for an answer, because others get theirs."""
        now_s = asyncio.get_running_loop().time()
        await self._abandon([task for task in self._items if now_s - self._tasks[task] > OLD_S])

    async def _abandon(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Cancel tasks and release what they had claimed, except those that send an effect."""
        waiting = {task: item for task in tasks if not (item := self._items[task]).is_sending}
        await end(waiting)
        for item in waiting.values():
            with suppress(WriteRefused, RedisError):  # it was released meanwhile, or the end of the lease does it
                await self.tools.store.save(item, None, Placement(0), failures=item.failures)

    async def _gather(self) -> None:
        """Let tasks finish, and cancel the rest at the deadline. The next claim finds what they had booked."""
        loop = asyncio.get_running_loop()
        ended_s = loop.time()
        finish_s = self.tools.store.lease.finish_s if self.finish_s is None else self.finish_s
        while self._tasks and loop.time() - ended_s < (self.leave_s if self._stopping.is_set() else finish_s):
            self.beat()
            await asyncio.wait(self._tasks, timeout=0.5)
        if self._tasks:
            self.log.warning("shift_cut_short", tasks=len(self._tasks))
            await self._abandon(list(self._items))
        await end(self._tasks)

    async def handle(self, item: ClaimedItem) -> None:
        """Handle one member. An error affects no other member."""
        try:
            await self._advance(item)
        except WriteRefused as refused:
            self.tools.counting.figures.count(figure.LEASES_LOST, refused.why)
            self.log.info("lease_lost", member_kind=item.member[:1], why=refused.why)
            await self._release(item, refused)
        except NewerRecord:
            await self.tools.store.leave(item)
        except RedisError as error:
            self.tools.counting.figures.count(figure.REDIS_FAILED)
            self.log.warning("redis_failed", error=type(error).__name__)
        except Exception as error:  # noqa: BLE001  (a bug in one call must not stop the others)
            await self._failed(item, error)

    async def _advance(self, item: ClaimedItem) -> None:
        owner = item.owner
        if owner is None:
            await self.tools.store.save(item, FORGET, Placement(None))
            return
        if isinstance(owner, CallId):
            follow_member(*owner)
            if self.institutions.managed_keys.is_left_to_others(owner.institution_key):
                await self._pass_on(item)
                return
            if self.institutions.obstacle(owner.institution_key) == FOREIGN:
                await self.institutions.refresh(max_age_s=RELOAD_AT_ONCE_S)
            claim = Claim.begin(self.tools, self.institutions, item, owner, self.summary)
            with claim.span() as handling:
                await move(claim)
                handling.note(phase=claim.call.life.phase)
            return
        follow_member(owner)
        follow_trace()
        with span("list queue", SpanKind.CONSUMER, is_first=True, institution=owner):
            await self._list(item, owner)

    async def _list(self, item: ClaimedItem, owner: str) -> None:
        if not self.institutions.are_known:
            await self.tools.store.save(item, None, Placement(NOT_KNOWN_YET_MS))
        elif self.institutions.managed_keys.is_left_to_others(owner):
            await self._pass_on(item)
        elif await self.institutions.knows(owner):
            if await self.listing.run(item, owner, self.summary):
                await self.institutions.refused(owner)
        else:
            self.log.warning("institution_foreign", institution=owner)
            await self.institutions.leave(owner)
            await self.tools.store.save(item, FORGET, Placement(None))

    async def _pass_on(self, item: ClaimedItem) -> None:
        """Release what our settings exclude and other workers act for, as it is: one of them claims it next, or soon."""
        await self.tools.store.save(item, None, Placement(PASSED_ON_MS, "as it is"), failures=item.failures)

    async def _release(self, item: ClaimedItem, refused: WriteRefused) -> None:
        """Release a call that we still hold but with outdated data, so that the next claim reads it again."""
        if refused.why is RefusedBy.LEASE:
            return
        with suppress(WriteRefused, RedisError):
            await self.tools.store.save(item, None, Placement(0), failures=item.failures)

    async def _failed(self, item: ClaimedItem, error: Exception) -> None:
        """Count a failure. After five in a row, park the call for a person."""
        failures = item.failures + 1
        placement = STEPS.placement(failures, "parked")
        is_parked = placement.due_in_ms is None
        where = innermost_place(error)
        self.tools.counting.figures.count(figure.STEPS_FAILED)
        self.failures.append(f"{type(error).__name__} at {where}")
        self.summary.add("steps_failed")
        self.log.error("step_failed", error=type(error).__name__, where=where, failures=failures, parked=is_parked)
        entries = [Entry(at=item.now, what="parked", because=f"{type(error).__name__} at {where}")] if is_parked else []
        with suppress(WriteRefused, RedisError):
            await self.tools.store.save(item, None, placement, entries=entries, failures=failures)
