"""Sends the figures of all processes by OTLP: what ``/metrics`` shows, under the same names.

The figures are sums over all processes, kept in Redis. If each process sent them, a backend would add them up again. So
one web process at a time is the leader and sends them, as one source that has no process in its name: when another takes
over, the same series go on. They are built from the samples of ``/metrics`` instead of the SDK's instruments, which
count within one process and cannot be given a histogram.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import metadata
from secrets import token_hex
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family
from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.app.collector import DeliveryWatch, collector_session
from callkeeper.app.connections import worker_redis
from callkeeper.app.settings import StoreSettings, TelemetrySettings
from callkeeper.calls.metrics.redis_writer import host
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.leadership import Leadership
from callkeeper.desk.prometheus_page import read_everything

SINCE: Final = "since"
"""The field of the totals that holds when they were first sent, in ms. It goes when they go. Readers ignore it."""

SOURCE: Final = "source"
"""The field beside it that holds a random id, by which a collector tells the figures of two installations apart."""

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE
_Labels = tuple[tuple[str, str], ...]


def metrics_data(families: Iterable[Family], source: Resource, *, since_ns: int, now_ns: int) -> MetricsData:
    """Return the samples of ``/metrics`` as OTLP has them. Names are the same, less the ``_total`` of counters.

    A backend that follows Prometheus's conventions adds it again. ``since_ns``: when counting began, or else the present.
    """
    scope = ScopeMetrics(
        InstrumentationScope("callkeeper", metadata.version("callkeeper")),
        [Metric(each.name, each.documentation, "", _data(each, since_ns, now_ns)) for each in families],
        "",
    )
    return MetricsData([ResourceMetrics(source, [scope], "")])


def _data(family: Family, since_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        return Histogram(list(_spreads(family, since_ns, now_ns)), _CUMULATIVE)
    points = [NumberDataPoint(each.labels, since_ns, now_ns, each.value) for each in family.samples]
    return Sum(points, _CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)


def _spreads(family: Family, since_ns: int, now_ns: int) -> Iterable[HistogramDataPoint]:
    """Yield a histogram for each set of labels. Buckets of Prometheus count what lies below, those of OTLP do not."""
    below: dict[_Labels, list[tuple[float, int]]] = {}
    sums: dict[_Labels, float] = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", "")
        key = tuple(labels.items())
        if bound:
            below.setdefault(key, []).append((float(bound), int(sample.value)))
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, buckets in below.items():
        counts = [n for _, n in buckets]
        yield HistogramDataPoint(
            attributes=dict(key),
            start_time_unix_nano=since_ns,
            time_unix_nano=now_ns,
            count=counts[-1],
            sum=sums[key],
            bucket_counts=[n - before for n, before in zip(counts, [0, *counts], strict=False)],
            explicit_bounds=[bound for bound, _ in buckets[:-1]],
            min=None,  # type: ignore[arg-type]  # nobody measured them, and OTLP has them optional
            max=None,  # type: ignore[arg-type]
        )


class FigureExport:
    """Sends the figures now and then, in a thread of its own, while this process is the leader."""

    def __init__(
        self,
        open_redis: Callable[[], Redis],
        keys: Keys,
        exporter: MetricExporter,
        source: Resource,
        watch: DeliveryWatch,
        *,
        every_s: float,
    ) -> None:
        """Prepare. The source is the same for every process; the instance's id is added."""
        self._open_redis = open_redis
        self._keys = keys
        self._exporter = exporter
        self._source = source
        self._watch = watch
        self._every_s = every_s
        self._process = f"{host()}-{os.getpid()}-{token_hex(4)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="figures by OTLP", daemon=True)

    @classmethod
    def open(
        cls, settings: TelemetrySettings, store: StoreSettings, source: Resource, watch: DeliveryWatch
    ) -> "FigureExport":
        """Build the export of a web process. The SDK reads where the collector is from the environment."""
        exporter, every_s = OTLPMetricExporter(session=collector_session()), settings.every_ms / 1000
        return cls(lambda: worker_redis(store.redis), store.keys, exporter, source, watch, every_s=every_s)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let another process lead, and send no more. An export that hangs is abandoned."""
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
        # Not in the thread's own loop: an export that hangs blocks it.
        with suppress(RedisError, OSError), asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._let_go())
        self._exporter.shutdown()
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner, suppress(asyncio.CancelledError):
            self._loop = runner.get_loop()
            runner.run(self._go_on())

    async def _go_on(self) -> None:
        self._task = asyncio.current_task()
        async with self._open_redis() as redis:
            while True:
                await asyncio.sleep(self._every_s)
                await self._turn(redis)

    async def _let_go(self) -> None:
        async with self._open_redis() as redis:
            await self.leadership(redis).lead(lets_go=True)

    async def _turn(self, redis: Redis) -> None:
        """Export if this process leads. No error ends the thread: the next turn may succeed."""
        try:
            leads = await self.export(redis)
        except Exception:  # noqa: BLE001  (Redis is away, or holds what this release cannot read: the figures are not sent)
            self._watch.note(False)
        else:
            if not leads:
                self._watch.note(True)  # another process sends them, and logs if it cannot

    async def export(self, redis: Redis) -> bool:
        """Send the figures once, if this process is or becomes the leader; return whether it is.

        Raises:
            redis.exceptions.RedisError: Redis is down or refuses writes.
        """
        if not await self.leadership(redis).lead():
            return False
        now_ms = time.time_ns() // 1_000_000
        since_ms, source = await self._begun(redis, now_ms)
        everything = await read_everything(redis, keys=self._keys)
        since_ns, now_ns = min(since_ms, now_ms) * 1_000_000, now_ms * 1_000_000
        data = metrics_data(everything.collect(), source, since_ns=since_ns, now_ns=now_ns)
        # It blocks, but nothing else runs in this thread.
        self._watch.export(lambda: self._exporter.export(data) is MetricExportResult.SUCCESS)
        return True

    async def _begun(self, redis: Redis, now_ms: int) -> tuple[int, Resource]:
        """Return when the series began, in ms, and who sends them. Both stay until Redis loses the figures.

        The first point of a series that began unseen has no duration. That is how OTLP says so: see its data model.
        """
        figures = self._keys.figures
        async with redis.pipeline() as pipe:
            pipe.hsetnx(figures, SINCE, str(now_ms))
            pipe.hsetnx(figures, SOURCE, token_hex(8))
            pipe.hmget(figures, [SINCE, SOURCE])
            _, _, (since, source) = await pipe.execute()
        instance = f"{self._keys.setting}-{source.decode()}"
        return int(since), self._source.merge(Resource({SERVICE_INSTANCE_ID: instance}))

    def leadership(self, redis: Redis) -> Leadership:
        """Return this process's part in being the one that sends."""
        leads_ms = int(self._every_s * 3000)
        return Leadership(redis, self._keys, at=self._keys.figures_leader, process=self._process, leads_ms=leads_ms)
