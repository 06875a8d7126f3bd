"""How large must an installation be? Requests, workers, Redis, memory and lateness by live calls and institutions.

Costs are measured at two numbers of live calls. The estimates for three other numbers are compared with measurements.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, log, sqrt
from typing import Final

from benchmarks.answer import Answer, Cell, Table
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.scale import Watched, watch
from benchmarks.spread import Spread
from callkeeper.calls.schedule.reads import BUSY

PER_CALL: Final = 0.042 + 0.036 + 0.004
"""Checks, reads and effects per second and live call when there are many calls (``python -m benchmarks requests``)."""

LISTINGS: Final = ((1, 0.22), (10, 0.41), (40, 0.47), (500, 1.04))
"""Live calls of an institution, and how often per second its queue is then listed (from the same benchmark)."""

LATE_MS: Final = 17.0
LATER: Final = 2.7
"""A check is at most ``LATE_MS / (1 - share of a core)^LATER`` late (p99); both are fitted to figures of `scale`."""

SIZES: Final = ((1000, 1), (1000, 100), (10_000, 1), (10_000, 100), (50_000, 100), (100_000, 100), (100_000, 2000))
"""Live calls and institutions of the table."""

MEASURED: Final = ((1000, 1), (3000, 1))
COMPARED: Final = ((2000, 1), (3500, 1), (6000, 2))
"""Live calls and workers: those whose costs are measured, and those that the estimate is compared with.

No worker is busier than ``BUSY``: it would read less.
"""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of requests and calls.

    Attributes:
        worker_idle: Cores that a worker without calls uses.
        worker_each: Core seconds of a worker per request.
        redis_idle: Cores that Redis uses for each worker without calls.
        redis_each: Core seconds of Redis per request.
        worker_mb: Memory of a worker.
        call_kb: Memory of a live call in Redis with its trail.
    """

    worker_idle: float
    worker_each: float
    redis_idle: float
    redis_each: float
    worker_mb: float
    call_kb: float


@dataclass(frozen=True, slots=True)
class Need:
    """The needs of an installation. The cores are totals of all workers and of all Redis servers."""

    requests_per_s: float
    workers: int
    worker_cores: float
    installations: int
    redis_cores: float
    memory_mb: float

    @property
    def late_ms(self) -> float:
        """Return how late a check is at most (p99)."""
        return LATE_MS / float((1 - min(0.95, self.worker_cores / self.workers)) ** LATER)


def costs_of(few: Watched, many: Watched) -> Costs:
    """Measure the costs by watching few calls and then many, with one worker each time."""
    fewer, more = few.requests / few.wall_s, many.requests / many.wall_s
    additional = max(1.0, more - fewer)
    worker_each = max(0.0, many.cpu_s / many.wall_s - few.cpu_s / few.wall_s) / additional
    redis_each = max(0.0, many.redis_share - few.redis_share) / additional
    return Costs(
        max(0.0, few.cpu_s / few.wall_s - worker_each * fewer),
        worker_each,
        max(0.0, few.redis_share - redis_each * fewer),
        redis_each,
        many.memory_mb,
        (many.bytes_per_call + many.trail_bytes) / 1000,
    )


def requests_per_s(live: int, institutions: int) -> float:
    """Return how many requests live calls cause when they are spread evenly over institutions."""
    return live * PER_CALL + institutions * _listings_per_s(live / institutions)


def _listings_per_s(live: float) -> float:
    """Interpolate between the measurements. A queue of many pages is listed as often, but with more requests."""
    n = bisect_left(LISTINGS, (live,))
    if n == 0:
        return LISTINGS[0][1]
    if n == len(LISTINGS):
        return LISTINGS[-1][1] * sqrt(live / LISTINGS[-1][0])
    (few, seldom), (many, often) = LISTINGS[n - 1 : n + 1]
    return seldom + (often - seldom) * log(live / few) / log(many / few)


def need(per_s: float, live: int, costs: Costs, workers: int = 0) -> Need:
    """Return what an installation needs for these requests and live calls, with the given or the needed workers."""
    workers = workers or ceil(per_s * costs.worker_each / (BUSY - min(costs.worker_idle, BUSY / 2))) or 1
    redis_cores = workers * costs.redis_idle + per_s * costs.redis_each
    return Need(
        per_s,
        workers,
        workers * costs.worker_idle + per_s * costs.worker_each,
        ceil(redis_cores / BUSY) or 1,
        redis_cores,
        workers * costs.worker_mb + live * costs.call_kb / 1000,
    )


STEP: Final = 500
MOST: Final = 1_000_000


def most_calls(institutions: int, costs: Costs) -> int:
    """Return how many live calls one Redis carries, in steps of ``STEP``; 0 if not even the first."""

    def installations(live: int) -> int:
        return need(requests_per_s(live, institutions), live, costs).installations

    return (bisect_left(range(STEP, MOST, STEP), 2, key=installations)) * STEP


def answer(effort: Effort) -> Answer:
    """Measure the costs, compare the estimates with other sizes, and return what installations need."""
    few, many = (watch(effort.of(live), workers, effort) for live, workers in MEASURED)
    costs = costs_of(few, many)
    per_call = many.requests / many.wall_s / effort.of(MEASURED[1][0])
    rows: list[tuple[Cell, ...]] = []
    errors = []
    for size, workers in COMPARED:
        live = effort.of(size)
        found, told = watch(live, workers, effort), need(per_call * live, live, costs, workers)
        pairs = (
            (told.requests_per_s, found.requests / found.wall_s),
            (told.worker_cores, found.cpu_s / found.wall_s),
            (told.redis_cores, found.redis_share),
            (workers * costs.worker_mb, workers * found.memory_mb),
        )
        errors += [abs(one / other - 1) for one, other in pairs]
        late = f"{told.late_ms:.0f} and {found.late_ms(0.99):.0f}"
        rows.append((live, workers, *(f"{one:.3g} and {other:.3g}" for one, other in pairs), late))
    compared = Table(
        "Estimated and measured",
        ("live calls", "workers", "requests per s", "workers' cores", "Redis's core", "MB of workers", "late p99 ms"),
        tuple(rows),
    )
    needs = [
        (live, institutions, need(requests_per_s(live, institutions), live, costs)) for live, institutions in SIZES
    ]
    table = Table(
        "What an installation needs",
        ("live calls", "institutions", "requests per s", "workers", "Redis's cores", "Redis servers", "MB", "late p99 ms"),
        tuple(
            (live, count, round(it.requests_per_s), it.workers, it.redis_cores, it.installations, round(it.memory_mb),
             round(it.late_ms))
            for live, count, it in needs
        ),
        f"Each worker and each Redis uses at most {BUSY:.0%} of a core. More Redis servers mean more installations.",
    )  # fmt: skip
    most = {institutions: most_calls(institutions, costs) for institutions in (1, 100, 2000)}
    largest = Table(
        "The largest installation that one Redis carries",
        ("institutions", "live calls", "requests per s", "workers"),
        tuple(
            (count, live, round(per_s := requests_per_s(live, count)), need(per_s, live, costs).workers)
            for count, live in most.items()
        ),
        "With more calls, divide the institutions among installations with a Redis each (CALLKEEPER_INSTITUTIONS).",
    )
    goal = Goal.at_most("requests, cores, memory: error at most, %", Spread.of([100 * max(errors)]), 25.0)
    return Answer("How large must an installation be?", (compared, table, largest, goals_table(goal)))
