"""Builds a worker from its parts."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import uvloop
from msgspec.structs import replace
from redis import Redis
from redis.exceptions import RedisError

from callkeeper.app.alert_watch import alert_watch
from callkeeper.app.connections import blocking_redis, warn_of_redis, worker_redis
from callkeeper.app.logs import flush_log, leave_now, lines_lost
from callkeeper.app.process import collect_seldom, leave_unless_migrated
from callkeeper.app.redis_location import RedisLocation
from callkeeper.app.settings import OutcomeSettings, ServiceSettings, WorkerArchiveSettings, WorkerSettings
from callkeeper.app.terminal import Misset
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter, Reporter, host
from callkeeper.calls.rules.book import Stage
from callkeeper.calls.store.account_use import FRESH_S, AccountUse
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.job_queue import ADVANCE, RECONCILE, Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import OwnRules
from callkeeper.service import Secret, ServiceConfig
from workers.job_summary import JobSummary
from workers.job_watchdog import Watchdog
from workers.jobs import CallJob, job_class
from workers.managed_keys import InstitutionSettings
from workers.outbox import Outbox
from workers.rq_worker import CallWorker, work
from workers.runtime import Outlets, ServiceUse, WorkerRuntime
from workers.signed_webhooks import WebhookClient


def service_config(settings: ServiceSettings) -> ServiceConfig:
    """Return the configuration of the service's client."""
    return ServiceConfig(
        base_url=settings.url,
        access_token=settings.access_token,
        email=Secret(settings.email),
        password=settings.password,
        requested_by=settings.requested_by.default,
        ca_file=settings.network.ca_file,
        proxy=settings.network.proxy_to(settings.url),
        allow_plain_http=True,  # the settings allow it only for this machine and hosts of a private network
    )


def _open_webhook_client(settings: OutcomeSettings) -> WebhookClient:
    ca_file, proxy = settings.network.ca_file, settings.network.proxy_to(settings.url)
    return WebhookClient.open(settings.url, settings.secrets, ca_file=ca_file, proxy=proxy)


def _archive(settings: WorkerArchiveSettings, log: Any, figures: Figures) -> Callable[[ArchiveQueue], Outbox]:
    def open_archive(queue: ArchiveQueue) -> Outbox:
        from callkeeper.archive.writing import Writer  # noqa: PLC0415  (SQLAlchemy is imported only with an archive)
        from workers.archive_delivery import ArchiveDeliveries  # noqa: PLC0415

        return ArchiveDeliveries(queue, Writer(settings.open()), log, flush_log, settings.key, figures)

    return open_archive


class AccountInUse(Misset):
    """Another installation in this Redis works with our account, for the same institutions."""

    remedy: Final = (
        f"correct CALLKEEPER_REDIS_PREFIX, or stop the other installation's workers and wait {FRESH_S} s. Two "
        "installations of one account need CALLKEEPER_INSTITUTIONS, with no institution in common"
    )

    def __init__(self, own: str, prefixes: Sequence[str]) -> None:
        self.prefixes = prefixes
        self.detail = (
            f"workers with CALLKEEPER_REDIS_PREFIX={' and '.join(prefixes)} work with this account; ours is {own}. Both "
            "would check, enroll and reject the same calls"
        )
        super().__init__(self.detail, self.remedy)


def run_worker(settings: WorkerSettings, log: Any, *, runtime_class: type[WorkerRuntime] = WorkerRuntime) -> None:
    """Run one worker process until it is stopped. Everything is saved then; end the process with `leave_now`.

    Raises:
        callkeeper.calls.rules.RulesError: The rules have faults: nothing is started.
        AccountInUse: Another installation uses the account: nothing is started.
    """
    place, keys = settings.store.redis, settings.store.keys
    warn_of_redis(place, log)
    figures, book = Figures(), settings.rule_book()
    account_use, pulse = settings.account_use(), blocking_redis(place)
    _require_account(account_use, keys, pulse)
    author = Author.here("worker", rules=book.digest, settings=settings.digests())
    runtime = runtime_class(
        worker_redis(place),
        keys=keys,
        kept_s=settings.store.retention.calls_s,
        service=ServiceUse(
            service_config(settings.service),
            settings.service.requested_by.for_institution,
            rps=settings.service_rps,
        ),
        institutions=InstitutionSettings(
            only=frozenset(settings.institutions) if settings.institutions is not None else None,
            in_test=frozenset(settings.test_institutions),
            named=settings.named_institutions(book.institutions),
            is_acted_for_beside=account_use.is_acted_for_beside,
        ),
        book=book,
        outlets=Outlets(
            open_webhook_client=partial(_open_webhook_client, settings.outcomes) if settings.outcomes else None,
            open_archive=_archive(settings.archive, log, figures) if settings.archive else None,
        ),
        log=log,
        figures=figures,
        name=author.name,
        loop_factory=uvloop.new_event_loop,
    )
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
    started = partial(leave_unless_migrated, pulse, keys, log)
    functions = {
        ADVANCE: _resting(advance, watchdog, started),
        RECONCILE: _resting(runtime.reconcile, watchdog, started),
    }
    jobs = job_class(functions, queue_name=keys.queue_name)
    runtime.tidy()
    writer = FigureWriter(figures, author, keys=keys)
    writer.doing = lambda: replace(runtime.doing(), shares_account_with=account_use.shared_with)
    writer.lines_lost = lines_lost
    reporter = Reporter(blocking_redis(place), writer, also=_noting(account_use, log))
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
        runtime.disconnect()
        with suppress(RedisError, OSError):
            account_use.end(pulse)


def _require_account(account_use: AccountUse, keys: Keys, redis: Redis) -> None:
    """Make sure that no other installation uses the account. If Redis is away, the log tells of one later."""
    others: Sequence[str] = ()
    with suppress(RedisError, OSError):
        others = account_use.others_now(redis)  # those that work would find a note, and log that both do
        if not others and (others := account_use.note(redis)):  # they have started at the same time
            account_use.end(redis)
    if others:
        raise AccountInUse(keys.setting, others)


def _noting(account_use: AccountUse, log: Any) -> Callable[[Redis], None]:
    """Return what notes the use of the account, and logs once if another installation began while Redis was away."""
    known: list[str] = []

    def note(redis: Redis) -> None:
        nonlocal known
        others = account_use.note(redis)
        if others and others != known:
            log.error("account_shared", prefixes=others)
        known = others

    return note


def _worker(place: RedisLocation, keys: Keys, jobs: type[CallJob], runtime: WorkerRuntime) -> CallWorker:
    return CallWorker(
        blocking_redis(place), job_class=jobs, on_stop=runtime.stop, leave=leave_now, queue_name=keys.queue_name
    )


def _resting(
    job: Callable[..., JobSummary], watchdog: Watchdog, started: Callable[[], None]
) -> Callable[..., JobSummary]:
    """Do something before a job, and tell the watchdog when it ends, so that it expects no progress between jobs."""

    def run(*args: str) -> JobSummary:
        try:
            started()
            return job(*args)
        finally:
            watchdog.rest()

    return run
