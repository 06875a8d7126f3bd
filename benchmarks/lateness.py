"""How late are checks with many live calls? Lateness, requests and CPU by the number of calls."""

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from benchmarks.due_calls import due_call, lay_calls
from benchmarks.figures import Answer, Effort, Goal, Spread, Table, quantile
from benchmarks.stage import Stage, cpu_s, stage, wait_until
from callkeeper.calls.context import Context
from callkeeper.calls.record import Call
from callkeeper.calls.rules import RuleBook, load_rules
from callkeeper.calls.schedule.plan import Schedule
from callkeeper.calls.schedule.reads import next_read

AGES_S = 240.0
"""The largest age of a call. Calls of all ages are live at once, as in a call centre."""

LAID_PER_S = 1000.0
"""How many calls are stored per second, at least. Their due times are relative to the end of storing them."""

SETTLING_S = 25.0
"""How long after that the measurement begins. At first, reads are due as often as without load."""

WATCHED_S = 25.0

SIZES = ((1000, 1), (10000, 1), (10000, 2))
"""Numbers of live calls and of workers. The goals compare the first two."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The result of watching a number of calls."""

    lateness_s: list[float]
    requests_per_s: float
    checks_per_s: float
    cores: float
    redis_cores: float

    def late_ms(self, share: float) -> float:
        """Return the milliseconds after its time within which the given share of checks arrived."""
        return quantile(self.lateness_s, share) * 1000


def answer(effort: Effort) -> Answer:
    """Watch growing numbers of calls."""
    rounds: dict[tuple[int, int], list[Watched]] = {size: [] for size in SIZES}
    for _ in range(effort.rounds):
        for (calls, workers), found in rounds.items():
            found.append(_watch(effort.of(calls), workers, effort))
    columns = (
        *("live calls", "workers", "checks per s", "requests per s", "late p50 ms", "late p99 ms"),
        *("workers' cores", "Redis's core"),
    )
    rows = tuple(
        (
            effort.of(calls),
            workers,
            Spread.of(each.checks_per_s for each in found),
            Spread.of(each.requests_per_s for each in found),
            Spread.of(each.late_ms(0.5) for each in found),
            Spread.of(each.late_ms(0.99) for each in found),
            Spread.of(each.cores for each in found),
            Spread.of(each.redis_cores for each in found),
        )
        for (calls, workers), found in rounds.items()
    )
    small, large = rounds[SIZES[0]], rounds[SIZES[1]]
    growth = Spread.of(SIZES[0][0] / SIZES[1][0] * b.cores / a.cores for a, b in zip(small, large, strict=True))
    goals = (
        Goal("10,000 calls, one worker: late p99 ms", Spread.of(each.late_ms(0.99) for each in large), most=500.0),
        Goal("its cores", Spread.of(each.cores for each in large), most=0.7),
        Goal("its CPU per live call, times that of 1,000 calls", growth, most=1.25),
    )
    return Answer(Table("Live calls, shipped rules; late until the request arrives", columns, rows), goals)


def _watch(count: int, workers: int, effort: Effort) -> Watched:
    """Run workers that watch this many live calls for a while."""
    with stage(latency_ms=20.0) as on, ExitStack() as stack:
        processes = [stack.enter_context(on.worker()) for _ in range(workers)]
        wait_until(lambda: on.asked()["counts"].get("queue", 0) > 0, "the first look at the queue", *processes)
        due_from = datetime.now(UTC) + timedelta(seconds=count / LAID_PER_S)
        calls, book = _lay(on, on.begin_calls(count), due_from)
        time.sleep(max(0.0, due_from.timestamp() - time.time()) + (0.5 if effort.is_smoke else SETTLING_S))
        pids = [worker.process.pid for worker in processes]
        asked, used, redis_used, begin_s = on.asked(), sum(map(cpu_s, pids)), cpu_s(on.redis_pid), time.time()
        time.sleep(1.5 if effort.is_smoke else WATCHED_S)
        wall_s, cpu, redis_cpu = time.time() - begin_s, sum(map(cpu_s, pids)) - used, cpu_s(on.redis_pid) - redis_used
        now = on.asked()
        late = [
            _lateness_s(book.schedule, calls[voice_id], at)
            for voice_id, at in now["checked_at"]
            if at >= begin_s and voice_id in calls
        ]
        requests = sum(now["counts"].get(kind, 0) - asked["counts"].get(kind, 0) for kind in ("check", "read"))
        return Watched(late, requests / wall_s, len(late) / wall_s, cpu / wall_s, redis_cpu / wall_s)


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
