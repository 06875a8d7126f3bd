"""``/metrics``: figures and present state as Prometheus metrics, to be mounted behind the gate.

Every web process exports the same figures, those of all processes together: scrape one address, or take the maximum.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident import Incident
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.catalogue import FIGURES, Figure
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.metrics.snapshot import FigureReader, Present, Process, Snapshot, Spread, read_present
from callkeeper.calls.pause import EVERYWHERE, Pauses
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.store.pausing import Pausing

PREFIX: Final = "callkeeper_"
_KINDS: Final = ("web", "worker")
_AWAY: Final = "institutions that get no requests, because requests fail or the service asked for a pause"
_PAUSED: Final = "for how long a pause has been in force, by institution (empty: all) and scope"
_FAILURES: Final = "requests in a row without a usable answer, for the institution with the most"

Samples = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Everything:
    """All that is exported at one moment. ``institutions`` are the keys that are acted for.

    ``paused_s``: for how many seconds each pause that is in force has lasted, by institution and scope.
    """

    figures: Snapshot
    present: Present
    processes: Sequence[Process]
    institutions: Sequence[str]
    incidents: Sequence[Incident] = ()
    paused_s: Samples = field(default_factory=dict)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric; prometheus-client asks for them by this name."""
        yield from _gauges(self.present, self.processes)
        yield _incidents(self.incidents)
        yield _gauge("paused_seconds", _PAUSED, ("institution", "scope"), self.paused_s)
        for figure in FIGURES.values():
            if figure.bounds:
                yield _histogram(figure, self.figures)
            else:
                yield _counter(figure, self.figures, self.institutions)


def _incidents(incidents: Sequence[Incident]) -> Metric:
    """Return 1 for what is wrong, 2 if it is acknowledged: alerts are about 1.

    Every kind is also exported as 0 without an institution, so that a rise can be seen.
    """
    samples: dict[tuple[str, ...], float] = dict.fromkeys(((kind.value, "") for kind in IncidentKind), 0.0)
    samples |= {(each.kind.value, each.institution_key): 2.0 if each.acknowledged else 1.0 for each in incidents}
    meaning = (
        "1 while something is wrong, 2 while somebody has acknowledged it, by its kind: what the board shows; "
        "docs/operations.md has a section for each"
    )
    return _gauge("incident", meaning, ("kind", "institution"), samples)


def _counter(figure: Figure, figures: Snapshot, institutions: Sequence[str]) -> Metric:
    family = CounterMetricFamily(PREFIX + figure.name, figure.meaning, labels=figure.labels)
    counts = dict.fromkeys(_expected(figure, institutions), 0) | dict(figures.rows(figure))
    for labels, n in sorted(counts.items()):
        family.add_metric(labels, n)
    return family


def _expected(figure: Figure, institutions: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the labels of a figure that is exported as 0 before anything was counted."""
    values = [institutions if label == "institution" else figure.known.get(label, ()) for label in figure.labels]
    return list(product(*values))


def _histogram(figure: Figure, figures: Snapshot) -> Metric:
    family = HistogramMetricFamily(PREFIX + figure.name, figure.meaning, labels=figure.labels)
    spreads = dict(figures.spread_rows(figure)) or ({} if figure.labels else {(): Spread.empty(figure)})
    for labels, spread in spreads.items():
        family.add_metric(labels, _buckets(spread), spread.total)
    return family


def _buckets(spread: Spread) -> list[tuple[str, float]]:
    """Return each bucket's bound and how many values lie at or below it."""
    names = [*(f"{bound:g}" for bound in spread.bounds), "+Inf"]
    return [(name, sum(spread.counts[: n + 1])) for n, name in enumerate(names)]


def _gauges(present: Present, processes: Sequence[Process]) -> Iterator[Metric]:
    alive = {kind: sum(process.kind == kind for process in processes) for kind in _KINDS}
    yield _gauge(
        "calls",
        "calls by phase; a live call may have ended without being settled yet",
        ("phase",),
        {("hinted",): present.hinted, ("live",): present.live, ("settled",): present.settled},
    )
    yield _gauge(
        "attention", "calls that need a person, by reason", ("reason",), {(r,): n for r, n in present.attention.items()}
    )
    yield _gauge(
        "jobs", "RQ jobs by state", ("state",), {("waiting",): present.jobs_waiting, ("failed",): present.jobs_failed}
    )
    yield _gauge("processes", "processes that are alive", ("kind",), {(kind,): n for kind, n in alive.items()})
    yield _gauge(
        "process_memory_bytes",
        "memory of each process that is alive",
        ("kind", "process"),
        {(process.kind, process.name): process.memory for process in processes},
    )
    yield _gauge(
        "process_cpu_share",
        "share of a core that each process uses, over about 30 seconds",
        ("kind", "process"),
        {(process.kind, process.name): process.cpu for process in processes if process.cpu is not None},
    )
    for name, value, meaning in (
        ("overdue", present.overdue, "calls and institutions that are due now"),
        ("late_seconds", present.late_s, "how late the most overdue call or institution is"),
        ("service_away", int(present.is_service_away), "1 while no requests are sent to the service"),
        ("institutions_away", present.institutions_away, _AWAY),
        ("service_failures", present.service_failures, _FAILURES),
        ("login_failures", present.login_failures, "logins in a row without a proven token"),
        ("archive_waiting", present.archive_waiting, "calls that wait to be archived"),
        ("outcomes_waiting", present.outcomes_waiting, "calls with an outcome that is not delivered"),
        ("redis_memory_bytes", present.redis_memory, "memory that Redis uses"),
        ("redis_memory_limit_bytes", present.redis_memory_limit, "memory that Redis may use; 0 without a limit"),
    ):
        yield _gauge(name, meaning, (), {(): value})


def _gauge(name: str, meaning: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, meaning, labels=labels)
    for values, value in sorted(samples.items()):
        family.add_metric(values, value)
    return family


async def read_everything(redis: Redis, *, keys: Keys = KEYS, now: datetime | None = None) -> Everything:
    """Read all that is exported; ``now`` replaces Redis's clock.

    Raises:
        redis.exceptions.RedisError: Redis is away.
    """
    reader = FigureReader(redis, keys=keys)
    standings = await Listings(redis, keys=keys).standings()
    now_ms = int(now.timestamp() * 1000) if now else None
    signals = await SignalReader(redis, keys).read(now=now)
    return Everything(
        await reader.totals(),
        await read_present(redis, keys=keys, now_ms=now_ms),
        await reader.processes(),
        sorted(standings),
        incidents_of(signals),
        _paused_s(await Pausing(redis, keys=keys).pauses(), signals.now),
    )


def _paused_s(pauses: Pauses, now: datetime) -> Samples:
    places = pauses.by_institution.items()
    return {
        ("" if key == EVERYWHERE else key, str(each.scope)): (now - each.at).total_seconds() for key, each in places
    }


class MetricsPage:
    """The page, an ASGI application."""

    def __init__(self, redis: Redis, *, keys: Keys = KEYS) -> None:
        self._redis = redis
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = await self._answer(request) if request.method in {"GET", "HEAD"} else Response(status_code=405)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            everything = await read_everything(self._redis, keys=self._keys)
        except (RedisError, OSError):
            return PlainTextResponse("Redis does not answer.\n", 503)
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(everything), media_type=media_type)
