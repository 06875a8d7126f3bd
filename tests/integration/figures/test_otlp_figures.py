"""The figures by OTLP: the same as at /metrics, sent by one process, as one source."""

import asyncio
import math
import os
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis
from structlog.testing import LogCapture

from callkeeper.app.collector import DeliveryWatch, collector_session
from callkeeper.app.connections import worker_redis
from callkeeper.app.otlp_figures import SINCE, SOURCE, FigureExport
from callkeeper.app.redis_location import parse_location
from callkeeper.app.settings import StoreSettings, TelemetrySettings
from callkeeper.app.telemetry import ENDS_WITHIN_S, source_of_figures, telemetry
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.catalogue import FIGURES
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.prometheus_page import read_everything
from callkeeper.service.tracing import span
from tests.harness.virtual_time import Rig
from tests.otlp_receiver import OtlpReceiver, otlp_receiver, words_of
from tests.waiting import until_async

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    """Return a collector."""
    with otlp_receiver() as running:
        yield running


def export_of(url: str, receiver: OtlpReceiver, logged: LogCapture, *, every_s: float = 60) -> FigureExport:
    """Return the export of one web process."""
    exporter = OTLPMetricExporter(f"{receiver.url}/v1/metrics", timeout=2.0, session=collector_session())
    watch = DeliveryWatch(structlog.wrap_logger(None, processors=[logged]), "figures")
    place = parse_location(url)
    return FigureExport(lambda: worker_redis(place), Keys(), exporter, source_of_figures(), watch, every_s=every_s)


def events(logged: LogCapture) -> list[str]:
    """Return the names of what was logged."""
    return [entry["event"] for entry in logged.entries]


@pytest.fixture
async def counted(rig: Rig) -> FigureWriter:
    """Count everything once."""
    writer = FigureWriter(Figures(), Author("web-1", "web"), now_ms=rig.now_ms, memory=lambda: 7, cpu_share=lambda: 0.5)
    for each in FIGURES.values():
        if each.bounds:
            writer.figures.observe(each, 1.0, *["x"] * len(each.labels))
            writer.figures.observe(each, 1e9, *["x"] * len(each.labels))
        else:
            writer.figures.count(each, *["x"] * len(each.labels))
    await writer.write_async(rig.redis)
    return writer


def by_prometheus(metrics: dict[str, Metric]) -> Samples:
    """Return metrics of OTLP as a backend that follows Prometheus's conventions stores them."""
    found: Samples = {}

    def keep(name: str, attributes: Any, value: float, **more: str) -> None:
        labels = {key: str(word) for key, word in words_of(attributes).items()} | more
        found[name, frozenset(labels.items())] = value

    for name, metric in metrics.items():
        for number in (*metric.sum.data_points, *metric.gauge.data_points):
            value = number.as_int if number.WhichOneof("value") == "as_int" else number.as_double
            keep(f"{name}_total" if metric.HasField("sum") else name, number.attributes, value)
        for spread in metric.histogram.data_points:
            below = 0
            for bound, n in zip((*spread.explicit_bounds, math.inf), spread.bucket_counts, strict=True):
                below += n
                keep(f"{name}_bucket", spread.attributes, below, le=f"{bound:g}")
            keep(f"{name}_sum", spread.attributes, spread.sum)
            keep(f"{name}_count", spread.attributes, spread.count)
    return found


async def by_scraping(rig: Rig) -> Samples:
    """Return what Prometheus reads at /metrics."""
    text = generate_latest(await read_everything(rig.redis)).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (
            sample.name,
            frozenset((k, f"{float(v):g}" if k == "le" else v) for k, v in sample.labels.items()),
        ): sample.value
        for sample in samples
    }


SHAKY = {"callkeeper_redis_memory_bytes", "callkeeper_late_seconds"}
"""They change between two readings."""


async def test_everything_at_metrics_is_sent_with_the_same_numbers(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver
) -> None:
    """Every sample of /metrics, under its name and labels, and nothing else."""
    assert await export_of(redis_url, receiver, LogCapture()).export(rig.redis)
    [(sender, metrics)] = receiver.figures
    sent, scraped = by_prometheus(metrics), await by_scraping(rig)
    assert sent.keys() == scraped.keys()
    assert {key: n for key, n in sent.items() if key[0] not in SHAKY} == {
        key: n for key, n in scraped.items() if key[0] not in SHAKY
    }
    assert len(sent) > 200
    assert sender["service.name"] == "callkeeper"
    assert all(
        each.sum.is_monotonic and each.sum.aggregation_temporality == 2
        for each in metrics.values()
        if each.HasField("sum")
    )


async def test_one_process_sends_the_figures(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver, logged: LogCapture
) -> None:
    """Of two web processes one sends. Another goes on with the same series when it ends, and no sum grows by that."""
    one, other = (export_of(redis_url, receiver, logged) for _ in range(2))
    assert [await one.export(rig.redis), await other.export(rig.redis), await one.export(rig.redis)] == [
        True,
        False,
        True,
    ]
    await one.leadership(rig.redis).lead(lets_go=True)
    assert await other.export(rig.redis)
    assert events(logged) == []
    senders = [sender for sender, _ in receiver.figures]
    assert senders == [senders[0]] * 3
    pushes = [metrics["callkeeper_shifts"].sum.data_points for _, metrics in receiver.figures]
    assert [[(point.as_int, point.start_time_unix_nano) for point in points] for points in pushes] == [
        [(1, pushes[0][0].start_time_unix_nano)]
    ] * 3


async def test_series_begin_anew_when_redis_lost_the_figures(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver
) -> None:
    """A backend must not take the fall for a count. The first point of a series has no duration: its start is unknown."""
    export = export_of(redis_url, receiver, LogCapture())
    await export.export(rig.redis)
    await export.export(rig.redis)
    await rig.redis.delete(Keys().figures)
    counted.figures.count(figure.SHIFTS, "x")
    await counted.write_async(rig.redis)
    await export.export(rig.redis)
    points = [metrics["callkeeper_shifts"].sum.data_points[0] for _, metrics in receiver.figures]
    starts = [point.start_time_unix_nano for point in points]
    assert starts[0] == starts[1] < starts[2]
    assert [point.time_unix_nano == point.start_time_unix_nano for point in points] == [True, False, True]


async def test_source_is_the_same_in_every_pod(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenTelemetry's operator names the pod in the environment; a change of the leader must begin no new series."""
    for pod in ("a", "b"):
        of_pod = f"service.instance.id={pod},k8s.pod.name={pod},container.id={pod},host.name={pod},process.pid={pod}"
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"deployment.environment=prod,service.name=web,{of_pod}")
        export = export_of(redis_url, receiver, LogCapture())
        assert await export.export(rig.redis)
        await export.leadership(rig.redis).lead(lets_go=True)
    [one, other] = [sender for sender, _ in receiver.figures]
    assert one == other
    assert (one["deployment.environment"], one["service.name"]) == ("prod", "callkeeper")


async def test_two_installations_are_two_sources(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver
) -> None:
    """Staging and production have the same settings. So has one whose Redis lost the figures, which begins anew."""
    for _ in range(2):
        assert await export_of(redis_url, receiver, LogCapture()).export(rig.redis)
        await rig.redis.flushdb()
        await counted.write_async(rig.redis)
    one, other = (str(sender["service.instance.id"]) for sender, _ in receiver.figures)
    assert one != other
    assert one.startswith("ck-")
    assert other.startswith("ck-")


@pytest.mark.parametrize("stored", ["no number", None], ids=["unreadable", "refused"])
async def test_figures_go_on_after_an_error(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver, logged: LogCapture, stored: str | None
) -> None:
    """A value that cannot be read, or a key of another type, stops the figures only as long as it is there."""
    if stored is None:
        await rig.redis.delete(Keys().figures)
        await rig.redis.set(Keys().figures, "another type")
    else:
        await rig.redis.hset(Keys().figures, SINCE, stored)
    export = export_of(redis_url, receiver, logged, every_s=0.05)
    export.start()
    async with asyncio.timeout(10):
        await until_async(lambda: events(logged) == ["telemetry_away"])
        await rig.redis.delete(Keys().figures)
        await until_async(lambda: events(logged) == ["telemetry_away", "telemetry_back"])
    await asyncio.to_thread(export.stop)
    assert receiver.figures


async def test_hanging_collector_delays_the_end_once(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch, log: Any
) -> None:
    """Spans and figures end at the same time, and another process leads at once."""
    with otlp_receiver() as receiver:
        receiver.hangs = True
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1000")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        settings, store = TelemetrySettings.load(dict(os.environ)), StoreSettings.load({"REDIS_URL": redis_url})
        with telemetry(settings, store, "web", log):
            with span("claim"):
                pass
            async with asyncio.timeout(10):
                await until_async(lambda: receiver.asked == 2)
            assert await redis.exists(Keys().figures_leader)
            began_s = time.monotonic()
        assert time.monotonic() - began_s < ENDS_WITHIN_S + 1
        assert not await redis.exists(Keys().figures_leader)
    async with asyncio.timeout(10):  # the abandoned thread closes its connection when the collector is gone
        await until_async(lambda: "figures by OTLP" not in [thread.name for thread in threading.enumerate()])


async def test_start_of_the_series_is_no_figure(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver
) -> None:
    """Whoever reads the totals, also an earlier release, leaves it out."""
    before = await rig.counted()
    await export_of(redis_url, receiver, LogCapture()).export(rig.redis)
    assert all(await rig.redis.hmget(Keys().figures, [SINCE, SOURCE]))
    assert (await rig.counted()).counts == before.counts


async def test_refused_export_is_noted(
    rig: Rig, redis_url: str, counted: FigureWriter, receiver: OtlpReceiver, logged: LogCapture
) -> None:
    """A collector that answers 400 takes nothing, and the next export goes on."""
    receiver.status = 400
    export = export_of(redis_url, receiver, logged)
    await export.export(rig.redis)
    receiver.status = 200
    await export.export(rig.redis)
    assert events(logged) == ["telemetry_away", "telemetry_back"]
