"""A shift: one worker claims whatever is due and moves it on concurrently, until there is nothing to do or its time is over.

It claims at the next due time that it knows of, when somebody made something due, or after a second, whatever is in
flight: one hung call never holds up the others. Whoever makes something due pushes one element on the list ``wakeup``;
one of the shifts that wait takes it. A wake-up that nobody takes costs a quarter of a second: the watchdog sees what is
overdue.

Nothing outlives a shift: every task is finished or, at the deadline, cancelled and gathered.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, Final

from redis.exceptions import RedisError

from calls.lease import ClaimedItem, LeaseLost, Placement
from calls.metrics import catalogue as figure
from calls.store.keys import CallId, names_of, parse_member
from calls.store.store import MOST_OF_ONE
from calls.store.tasks import end
from calls.traceback_filter import innermost_place
from calls.trail import Entry
from workers.claim import FORGET, Claim, Tools, follow_member, follow_trace
from workers.listing import Listing
from workers.managed_institutions import Institutions
from workers.measurements import JobSummary
from workers.move import move

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


SHIFT_S = 30.0
"""After so long a shift ends as soon as it can without standing still, so that its job can be read."""

LONGEST_SHIFT_S = 300.0
"""After so long a shift claims no more, whatever is in flight."""

OLD_S = 1.0
"""What has been in flight for longer may hang: a shift does not end while it would have to wait for that."""

PAUSE_S = 0.3
"""For how long a shift that is about to end claims nothing, to see whether everything in flight finishes."""

SOON_S = 10.0
"""An idle shift waits for what is due this soon, which is longer than an institution between two looks at its queue."""

YIELD_AFTER_S = 1.0
"""An idle shift that is this old ends for a job that waits."""

NOT_KNOWN_YET_MS = 1000
LEAVE_S = 8.0
"""How long what is in flight may go on in a worker that was told to stop: it has to be gone within 10 s."""

MAX_FAILURES = 5
"""Steps that fail in a row until a call is parked for a person."""

IN_FLIGHT = 256
CLAIM_AT_ONCE = 128


class StepsFailed(Exception):
    """Steps of calls raised something nobody expected: bugs. Holds where, never what: values may be personal."""

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
    """How long calls in flight may go on once the shift claims no more. None: as long as the lease says."""
    leave_s: float = LEAVE_S
    tally: JobSummary = field(default_factory=JobSummary)
    failures: list[str] = field(default_factory=list)
    wakeups: Wakeups = field(default_factory=Wakeups)
    beat: Callable[[], None] = lambda: None
    is_wanted: Callable[[], bool] = lambda: False
    """Tells whether something beside the calls needs the shift to go on."""
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: dict[asyncio.Task[None], float] = field(default_factory=dict)
    """What is in flight, and since when by the loop's clock."""
    _refreshing: asyncio.Task[None] | None = None
    _holds: Counter[str] = field(default_factory=Counter)
    """How many calls of each institution are in flight."""

    def stop(self) -> None:
        """Claim no more; finish what is in flight. Call it in the loop's thread."""
        self.log.info("shift_stopping", in_flight=len(self._tasks))
        self._stopping.set()
        self.wakeups.wake()

    async def run(self) -> JobSummary:
        """Move on whatever is due.

        Raises:
            StepsFailed: Steps raised something unexpected; their calls will be tried again, at most five times.
            redis.exceptions.RedisError: Redis is away; what was claimed becomes due again when its lease ends.
        """
        loop, figures = asyncio.get_running_loop(), self.tools.counting.figures
        began_s = loop.time()
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
        return self.tally

    async def _claim_until_over(self) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        first = True
        while not self._stopping.is_set():
            self.beat()
            self._look_after_institutions()
            await self.institutions.enlist()
            room = min(CLAIM_AT_ONCE, IN_FLIGHT - len(self._tasks))
            claimed = await self._claim(room, shift_starts=first) if room > 0 else []
            first = False
            for item in claimed:
                self._start(item)
            if await self._is_over(loop.time() - started_s):
                return
            if room == 0:
                await asyncio.sleep(APART_S)
            elif len(claimed) < room:
                await self.wakeups.wait()

    def _look_after_institutions(self) -> None:
        """Notice how the refreshing ended; begin anew as long as the service has not told which institutions there are."""
        if self._refreshing is None or not self._refreshing.done():
            return
        self._refreshing.result()  # a Redis that is away ends the shift
        if not self.institutions.are_known and not self.tools.store.breakers.opened:
            self._refreshing = asyncio.ensure_future(self.institutions.refresh())

    async def _claim(self, room: int, *, shift_starts: bool) -> list[ClaimedItem]:
        self.wakeups.claims()
        holds = self._holds if len(self.institutions.keys) > 1 else None
        claimed = await self.tools.store.claim(room, shift_starts=shift_starts, holds=holds)
        self.wakeups.claimed(found=bool(claimed))
        self.tally.pauses = self.tools.store.pauses
        self.tools.pauses.see(self.tally.pauses, self.log)
        return claimed

    async def _is_over(self, age_s: float) -> bool:
        """Tell, after a claim, whether the shift ends.

        It does not end while something in flight may hang: a single worker would claim nothing until that has finished.
        """
        if age_s >= self.longest_s:
            return True
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
        task = asyncio.ensure_future(self.move(item))
        self._tasks[task] = asyncio.get_running_loop().time()
        institution_key, voice_id = names_of(item.member)
        owner = institution_key if voice_id else ""  # only calls are limited
        self._holds[owner] += 1
        task.add_done_callback(partial(self._forget, owner))

    def _forget(self, owner: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if self._holds[owner] == MOST_OF_ONE:
            self.wakeups.wake()  # more of its calls may be due
        self._holds[owner] -= 1
        if not self._holds[owner]:
            del self._holds[owner]

    async def _gather(self) -> None:
        """Let what is in flight finish; at the deadline cancel it. What it had booked, the next claim finds booked."""
        loop = asyncio.get_running_loop()
        ended_s = loop.time()
        finish_s = self.tools.store.lease.finish_s if self.finish_s is None else self.finish_s
        while self._tasks and loop.time() - ended_s < (self.leave_s if self._stopping.is_set() else finish_s):
            self.beat()
            await asyncio.wait(self._tasks, timeout=0.5)
        if self._tasks:
            self.log.warning("shift_cut_short", tasks=len(self._tasks))
        await end(self._tasks)

    async def move(self, item: ClaimedItem) -> None:
        """Move one member on; whatever goes wrong stays with it."""
        try:
            await self._advance(item)
        except LeaseLost as lost:
            self.tools.counting.figures.count(figure.LEASES_LOST, lost.why)
            self.log.info("lease_lost", member_kind=item.member[:1], why=lost.why)
            await self._release(item, lost)
        except RedisError as error:
            self.tools.counting.figures.count(figure.REDIS_FAILED)
            self.log.warning("redis_failed", error=type(error).__name__)
        except Exception as error:  # noqa: BLE001  (a bug in one call must not stop the others)
            await self._failed(item, error)

    async def _advance(self, item: ClaimedItem) -> None:
        try:
            owner = parse_member(item.member)
        except ValueError:
            await self.tools.store.save(item, FORGET, Placement(None))
            return
        if isinstance(owner, CallId):
            follow_member(*owner)
            await self._advance_call(item, owner)
            return
        follow_member(owner)
        follow_trace()
        if not self.institutions.are_known:
            await self.tools.store.save(item, None, Placement(NOT_KNOWN_YET_MS))
        elif await self.institutions.knows(owner):
            if await self.listing.run(item, owner, self.tally):
                await self.institutions.refused(owner)
        else:
            self.log.warning("institution_foreign", institution=owner)
            await self.tools.store.save(item, FORGET, Placement(None))

    async def _advance_call(self, item: ClaimedItem, call_id: CallId) -> None:
        self.tally.add("calls")
        obstacle = self.institutions.obstacle(call_id.institution_key)
        await move(Claim.begin(self.tools, item, call_id, obstacle, self.tally))

    async def _release(self, item: ClaimedItem, lost: LeaseLost) -> None:
        """Still the holder, but on wrong premises: let go, and let the next claim see what is new."""
        if lost.why == "lease":
            return
        with suppress(LeaseLost, RedisError):
            await self.tools.store.save(item, None, Placement(0), failures=item.failures)

    async def _failed(self, item: ClaimedItem, error: Exception) -> None:
        """Count a failure; after five in a row park the call for a person."""
        failures = item.failures + 1
        is_parked = failures >= MAX_FAILURES
        where = innermost_place(error)
        self.tools.counting.figures.count(figure.STEPS_FAILED)
        self.failures.append(f"{type(error).__name__} at {where}")
        self.tally.add("steps_failed")
        self.log.error("step_failed", error=type(error).__name__, where=where, failures=failures, parked=is_parked)
        placement = Placement(None if is_parked else 1000 * 2**failures, attention="parked" if is_parked else "")
        entries = [Entry(at=item.now, what="parked", because=f"{type(error).__name__} at {where}")] if is_parked else []
        with suppress(LeaseLost, RedisError):
            await self.tools.store.save(item, None, placement, entries=entries, failures=failures)
