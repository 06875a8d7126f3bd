"""Builds a worker from its parts."""

from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

from callkeeper.app.alert_watch import alert_watch
from callkeeper.app.connections import blocking_redis, warn_of_redis, worker_redis
from callkeeper.app.logs import leave_now, lines_lost
from callkeeper.app.process import collect_seldom
from callkeeper.app.redis_location import RedisLocation
from callkeeper.app.settings import OutcomeSettings, ServiceSettings, WorkerArchiveSettings, WorkerSettings
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter, Reporter, host
from callkeeper.calls.rules.book import Stage
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.job_queue import ADVANCE, RECONCILE, Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import OwnRules
from callkeeper.service import Secret, ServiceConfig
from workers.job_summary import JobSummary
from workers.job_watchdog import Watchdog
from workers.jobs import CallJob, job_class
from workers.outbox import Outbox
from workers.rq_worker import CallWorker, work
from workers.runtime import WorkerRuntime
from workers.signed_webhooks import WebhookClient


def service_config(settings: ServiceSettings) -> ServiceConfig:
    """Return the configuration of the service's client."""
    return ServiceConfig(
        base_url=settings.url,
        access_token=settings.access_token,
        email=Secret(settings.email),
        password=settings.password,
        requested_by=settings.requested_by.default,
        ca_file=None if settings.ca_file is None else str(settings.ca_file),
        proxy=settings.proxy,
        allow_plain_http=True,  # the settings allow it only for this machine and hosts of a private network
    )


def _open_webhook_client(settings: OutcomeSettings) -> WebhookClient:
    ca_file = None if settings.ca_file is None else str(settings.ca_file)
    private, proxy = settings.may_be_private, settings.proxy
    return WebhookClient.open(settings.url, settings.secrets, may_be_private=private, ca_file=ca_file, proxy=proxy)


def _archive(settings: WorkerArchiveSettings, log: Any, figures: Figures) -> Callable[[ArchiveQueue], Outbox]:
    def open_archive(queue: ArchiveQueue) -> Outbox:
        from callkeeper.archive.writing import Writer  # noqa: PLC0415  (SQLAlchemy is imported only with an archive)
        from workers.archive_delivery import ArchiveDeliveries  # noqa: PLC0415

        return ArchiveDeliveries(queue, Writer(settings.open()), log, settings.key, figures)

    return open_archive


def run_worker(settings: WorkerSettings, log: Any, *, runtime_class: type[WorkerRuntime] = WorkerRuntime) -> None:
    """Run one worker process until it is stopped.

    Raises:
        callkeeper.calls.rules.RulesError: The rules have faults: nothing is started.
    """
    place, keys = settings.store.redis, settings.store.keys
    warn_of_redis(place, log)
    figures, book = Figures(), settings.rule_book()
    author = Author.here("worker", rules=book.digest)
    runtime = runtime_class(
        worker_redis(place),
        service=service_config(settings.service),
        book=book,
        requested_by=settings.service.requested_by.for_institution,
        only=frozenset(settings.institutions) if settings.institutions is not None else None,
        in_test=frozenset(settings.test_institutions),
        named=settings.named_institutions(book.institutions),
        reconcile_s=settings.reconcile_s,
        queue_page=settings.queue_page,
        rps=settings.service_rps,
        log=log,
        figures=figures,
        name=author.name,
        keys=keys,
        kept_s=settings.store.retention.calls_s,
        open_webhook_client=partial(_open_webhook_client, settings.outcomes) if settings.outcomes else None,
        open_archive=_archive(settings.archive, log, figures) if settings.archive else None,
        loop_factory=uvloop.new_event_loop,
    )
    pulse = blocking_redis(place)
    rules = OwnRules(pulse, keys, book.digest, book.name, book.text, host=host(), release=author.version)

    def advance(*args: str) -> JobSummary:
        rules.put_in_force()  # in a Redis that lost its data, or was away when the worker started
        return runtime.advance(*args)

    rules.put_in_force()
    live = sum(rule.stage is Stage.LIVE for rule in book.rules)
    log.info(
        "rules_in_force",
        rules=book.name,
        digest=book.digest,
        assigns=book.assign.automatic,
        live=live,
        shadow=len(book.rules) - live,
    )
    watchdog = Watchdog(pulse, Waker(pulse, keys=keys), log, keys=keys, leave=leave_now)
    runtime.beat = watchdog.beat
    functions = {ADVANCE: _resting(advance, watchdog), RECONCILE: _resting(runtime.reconcile, watchdog)}
    jobs = job_class(functions, queue_name=keys.queue_name)
    runtime.tidy()
    minutes_s = settings.store.retention.minutes_s
    writer = FigureWriter(figures, author, keys=keys, minutes_kept_s=minutes_s)
    writer.doing, writer.lines_lost = runtime.doing, lines_lost
    reporter = Reporter(blocking_redis(place), writer)
    collect_seldom()
    watch = alert_watch(settings.alerts, settings.store, log)
    watchdog.start()
    reporter.start()
    watch.start()
    try:
        work(lambda: _worker(place, keys, jobs, runtime), log)
    finally:
        watchdog.stop()
        watch.stop()
        reporter.stop()
        runtime.close()


def _worker(place: RedisLocation, keys: Keys, jobs: type[CallJob], runtime: WorkerRuntime) -> CallWorker:
    return CallWorker(
        blocking_redis(place), job_class=jobs, on_stop=runtime.stop, leave=leave_now, queue_name=keys.queue_name
    )


def _resting(job: Callable[..., JobSummary], watchdog: Watchdog) -> Callable[..., JobSummary]:
    """Tell the watchdog when a job ends, so that it expects no progress between jobs."""

    def run(*args: str) -> JobSummary:
        try:
            return job(*args)
        finally:
            watchdog.rest()

    return run
