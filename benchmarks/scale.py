"""How many live calls can a worker watch? Lateness of checks, CPU, memory and Redis by the number of calls."""

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from benchmarks.answer import Answer, Table
from benchmarks.answers import KEY
from benchmarks.due_calls import due_call, lay_calls
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.listing import Took, list_twice
from benchmarks.process import cpu_s, resident_mb
from benchmarks.spread import Spread, quantile
from benchmarks.stage import Stage, stage, wait_until
from callkeeper.calls.context import Context
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.calls.rules import RuleBook, load_rules
from callkeeper.calls.schedule.plan import Schedule
from callkeeper.calls.schedule.reads import next_read
from callkeeper.calls.store.keys import Keys

AGES_S = 240.0
"""The largest age of a call. Calls of all ages are live at once, as in a call centre."""

LAID_PER_S = 1000.0
"""How many calls are stored per second, at least. Their due times are relative to the end of storing them."""

SETTLING_S = 25.0
"""How long after that the measurement begins. At first, reads are due as often as without load."""

WATCHED_S = 25.0


Size = tuple[int, int]
"""Numbers of live calls and of workers."""

SIZES: tuple[Size, ...] = ((100, 1), (1000, 1), (10000, 1), (10000, 2), (20000, 1), (20000, 2))
SMALL, LARGE = SIZES[1], SIZES[2]
"""The sizes that the goals compare."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The result of watching a number of calls."""

    lateness_s: list[float]
    requests: int
    cpu_s: float
    wall_s: float
    memory_mb: float
    redis_share: float
    bytes_per_call: float
    trail_bytes: float

    @property
    def cores(self) -> float:
        """Return how many cores the workers used on average."""
        return self.cpu_s / self.wall_s

    def late_ms(self, share: float) -> float:
        """Return the milliseconds after its time within which the given share of checks arrived."""
        return quantile(self.lateness_s, share) * 1000


def answer(effort: Effort) -> Answer:
    """Watch growing numbers of calls; then list a queue."""
    rounds: dict[Size, list[Watched]] = {size: [] for size in (SIZES[1:4] if effort.is_smoke else SIZES)}
    for _ in range(effort.rounds):
        for (calls, workers), found in rounds.items():
            found.append(watch(effort.of(calls), workers, effort))
    columns = (
        *("live calls", "workers", "checks per s", "late p50 ms", "late p99 ms", "checks and reads per s"),
        *("CPU ms each", "workers' cores", "MB per worker", "Redis's core", "bytes per call", "of trail"),
    )
    rows = tuple(
        (
            effort.of(calls),
            workers,
            Spread.of(len(each.lateness_s) / each.wall_s for each in found),
            Spread.of(each.late_ms(0.5) for each in found),
            Spread.of(each.late_ms(0.99) for each in found),
            Spread.of(each.requests / each.wall_s for each in found),
            Spread.of(each.cpu_s / each.requests * 1000 for each in found),
            Spread.of(each.cores for each in found),
            Spread.of(each.memory_mb for each in found),
            Spread.of(each.redis_share for each in found),
            Spread.of(each.bytes_per_call for each in found),
            Spread.of(each.trail_bytes for each in found),
        )
        for (calls, workers), found in rounds.items()
    )
    note = "Shipped rules: a check at each slot, reads as the rules say. Lateness counts until the request arrives."
    listings = [list_twice(effort.of(10000)) for _ in range(effort.rounds)]
    listing = Table(
        f"Listing a queue of {effort.of(10000):,}",
        ("queue", "seconds", "CPU seconds"),
        (
            ("found for the first time, each told", *_of(listings, 0)),
            ("listed again, nothing new", *_of(listings, 1)),
        ),
    )
    goals = goals_table(*_goals(rounds[SMALL], rounds[LARGE]))
    return Answer("How many live calls can a worker watch?", (Table("Live calls", columns, rows, note), listing, goals))


def _goals(small: list[Watched], large: list[Watched]) -> list[Goal]:
    growth = Spread.of(
        (most.cores / LARGE[0]) / (fewest.cores / SMALL[0]) for fewest, most in zip(small, large, strict=True)
    )
    late = Spread.of(each.late_ms(0.99) for each in large)
    return [
        Goal.at_most("10,000 live calls, one worker: checks at most 500 ms late (p99)", late, 500.0),
        Goal.at_most("at most 0.7 of a core", Spread.of(each.cores for each in large), 0.7),
        Goal.at_most("CPU per live call: times as much as with 1,000 calls", growth, 1.25),
        Goal.at_most("a worker under 150 MB", Spread.of(each.memory_mb for each in large), 150.0),
        Goal.at_most(
            "a live call under 4 KB in Redis, trail apart", Spread.of(each.bytes_per_call for each in large), 4096.0
        ),
    ]


def _of(listings: list[tuple[Took, Took]], n: int) -> tuple[Spread, Spread]:
    return Spread.of(each[n][0] for each in listings), Spread.of(each[n][1] for each in listings)


def watch(count: int, workers: int, effort: Effort) -> Watched:
    """Run workers that watch this many live calls for a while."""
    with stage(latency_ms=20.0) as on, ExitStack() as stack:
        processes = [stack.enter_context(on.worker()) for _ in range(workers)]
        wait_until(lambda: on.asked()["counts"].get("queue", 0) > 0, "the first look at the queue", *processes)
        begun, before = on.begin_calls(count, assigned=True), _memory(on)
        due_from = datetime.now(UTC) + timedelta(seconds=count / LAID_PER_S)
        calls, book = _lay(on, begun, due_from)
        bytes_each, trail_each = (_memory(on) - before) / count, _trail_bytes(on, begun)
        time.sleep(max(0.0, due_from.timestamp() - time.time()) + (0.5 if effort.is_smoke else SETTLING_S))
        pids = [worker.process.pid for worker in processes]
        asked, used, redis_used, begin_s = on.asked(), sum(map(cpu_s, pids)), cpu_s(on.redis_pid), time.time()
        time.sleep(1.5 if effort.is_smoke else WATCHED_S)
        wall_s, cpu = time.time() - begin_s, sum(map(cpu_s, pids)) - used
        redis_share = (cpu_s(on.redis_pid) - redis_used) / wall_s
        now = on.asked()
        requests = _requests(now) - _requests(asked)
        late = [
            _lateness_s(book.schedule, calls[voice_id], at)
            for voice_id, at in now["checked_at"]
            if at >= begin_s and voice_id in calls
        ]
        memory = max(map(resident_mb, pids))
        return Watched(sorted(late), requests, cpu, wall_s, memory, redis_share, bytes_each - trail_each, trail_each)


def _requests(asked: dict[str, dict[str, int]]) -> int:
    return asked["counts"].get("check", 0) + asked["counts"].get("read", 0)


def _lay(on: Stage, begun: list[str], now: datetime) -> tuple[dict[str, Call], RuleBook]:
    """Write calls of all ages into Redis, each at its place in the schedule at an instant."""
    book, draw = load_rules(None), random.Random(1)  # noqa: S311  (repeatable)
    calls, due_at = {}, {}
    for voice_id in begun:
        watch_from = now - timedelta(seconds=draw.uniform(0, AGES_S))
        schedule = book.schedule.paced(voice_id)
        call = due_call(voice_id, now, book)
        call = replace(
            call,
            plan=replace(
                call.plan,
                watch_from=watch_from,
                next_check_at=schedule.next_slot(watch_from, now),
                checks_used=schedule.slots_passed(watch_from, now),
            ),
        )
        periods = (book.reads_undecided_s, book.reads_decided_s)
        latest = next_read(
            call, Context(call.last_claim, len(begun)), book.policies, now, undecided_s=periods[0], decided_s=periods[1]
        )
        read_at = now + (latest - now) * draw.random()
        call = replace(call, plan=replace(call.plan, next_read_at=read_at))
        calls[voice_id] = call
        due_at[voice_id] = min(read_at, call.plan.next_check_at or read_at)
    lay_calls(on.redis, calls, due_at)
    return calls, book


def _lateness_s(schedule: Schedule, call: Call, arrived_s: float) -> float:
    """Return how long after its slot a check arrived."""
    paced, watch_from = schedule.paced(call.voice_id), call.plan.watch_from or datetime.now(UTC)
    after_s = arrived_s - watch_from.timestamp()
    return after_s - max((t for t in paced.at_s if t <= after_s), default=0.0)


def _memory(on: Stage) -> int:
    return int(on.redis.info("memory")["used_memory"])


def _trail_bytes(on: Stage, voice_ids: list[str]) -> float:
    sample = voice_ids[:: max(1, len(voice_ids) // 50)]
    keys = Keys()
    found: list[int] = [on.redis.memory_usage(keys.trail(CallId(KEY, each).member)) for each in sample]
    return sum(found) / len(found)
