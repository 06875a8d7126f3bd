"""Everything a worker process keeps between jobs: the event loop, the connections, and the jobs' code.

The loop outlives the shifts, so that connections stay open; no task of a shift outlives the shift. Once an hour expired
items are removed from the list of what needs a person.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, ClassVar

from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import Lease
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.cpu_share import CpuShare
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.breakers import service_away
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.delivery_log import DeliveryLog
from callkeeper.calls.store.earlier_calls import number_key
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.inbox import Ask
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.store.queries import Lookup, Queries
from callkeeper.calls.store.sso_token import RedisTokenStore
from callkeeper.service import ServiceConfig
from callkeeper.service.client import Reseller
from workers.claimed_call import Tools
from workers.counting import Counting
from workers.job_description import progress
from workers.job_summary import JobSummary
from workers.managed_institutions import Institutions
from workers.managed_keys import InstitutionSettings
from workers.outbox import Outbox
from workers.queue_listing import LIST_EVERY_S, PAGE, Listing
from workers.service_clock import ServiceClock
from workers.service_gate import ServiceGate
from workers.service_health import Probing
from workers.shift import Shift, Wakeups
from workers.signed_webhooks import LONGEST_PAUSE_S, WebhookClient
from workers.webhook_delivery import Deliveries

TIDY_EVERY_S = 3600.0
OUTAGE_REPORT_EVERY_S = 600


@dataclass(slots=True)
class Tidying:
    """Tidies each store at the start and then once an hour. It does no harm if several workers do it."""

    stores: Sequence[Store]
    monotonic: Callable[[], float]
    _done_at_s: float | None = None

    async def tidy(self) -> None:
        """Tidy if an hour has passed."""
        now_s = self.monotonic()
        if self._done_at_s is not None and now_s - self._done_at_s < TIDY_EVERY_S:
            return
        self._done_at_s = now_s
        with suppress(RedisError):
            for store in self.stores:
                await store.tidy()


@dataclass(slots=True)
class UnreadableLog:
    """Logs and counts stored values that cannot be read, once for each kind of value and institution."""

    log: Any
    figures: Figures
    _known: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, what: str, institution_key: str) -> None:
        """Report one unreadable value. ``institution_key`` is empty if it belongs to no institution."""
        if (what, institution_key) in self._known:
            return
        self._known.add((what, institution_key))
        self.figures.count(figure.STORED_UNREADABLE, what)
        self.log.error("stored_unreadable", what=what, institution=institution_key)


@dataclass(frozen=True, slots=True)
class ServiceUse:
    """How a worker uses the service: as whom, and how often at most."""

    config: ServiceConfig
    requested_by: Callable[[str], str]
    """Returns the core username, by institution, for requests that no person asked for."""
    rps: float | None
    """The most requests in a second; None: no limit of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """Where settled calls are sent. Each is opened inside the event loop; None: nothing is sent there."""

    open_webhook_client: Callable[[], WebhookClient] | None
    open_archive: Callable[[ArchiveQueue], Outbox] | None


class WorkerRuntime:
    """Runs shifts. It is built in the worker process, used by its jobs, and stopped by its signals.

    ``name`` is the process's, ``institutions`` what the settings say about institutions.

    A subclass may replace the classes that talk to Redis and to the service.
    """

    store_class: ClassVar[type[Store]] = Store
    listings_class: ClassVar[type[Listings]] = Listings
    client_class: ClassVar[type[Reseller]] = Reseller

    def __init__(
        self,
        redis: Redis,
        *,
        keys: Keys,
        kept_s: int,
        service: ServiceUse,
        institutions: InstitutionSettings,
        book: RuleBook,
        outlets: Outlets,
        log: Any,
        figures: Figures,
        name: str,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory)
        self._loop = self._runner.get_loop()
        self._redis = redis
        self._keys = keys
        self._kept_s = kept_s
        stores = [Store(redis, keys=of_keys, kept_s=kept_s) for of_keys in (keys, keys.outbox, keys.archive)]
        self._tidying = Tidying(stores, self._loop.time)
        self._book = book
        self._log = log
        self._shift: Shift | None = None
        self._is_stopping = False
        self._service = service
        self._institution_settings = institutions
        self._outlets = outlets
        self._figures = figures
        self._name = name
        self._outboxes: list[Outbox] = []
        self._wakeups = Wakeups()
        self._parts: tuple[Tools, Institutions, Listing] | None = None
        self.beat: Callable[[], None] = lambda: None

    def advance(self, job_key: str | None = None) -> JobSummary:
        """Work one shift: the ``advance`` job.

        The description of the job under ``job_key`` is updated every second with the progress.

        Raises:
            StepsFailed: Steps raised unexpected errors.
        """
        return self._runner.run(self._advance(job_key))

    def reconcile(self, job_key: str | None, institution_key: str) -> JobSummary:
        """List a queue now, and work a shift: the ``reconcile`` job. Arguments and errors as in `advance`."""
        return self._runner.run(self._reconcile(job_key, institution_key))

    def tidy(self) -> None:
        """Free what is kept no longer. Done before the first job, because a full Redis takes no jobs."""
        self._runner.run(self._tidying.tidy())

    def stop(self) -> None:
        """Make the running shift claim no more. Safe to call from a signal handler and from any thread."""
        self._is_stopping = True
        if self._shift is not None:
            # A new context: the interrupted task's one belongs to a call that has nothing to do with the signal.
            self._loop.call_soon_threadsafe(self._shift.stop, context=Context())

    def doing(self) -> Doing:
        """Return what the worker does at the moment. It can be called from any thread."""
        doing = self._working()
        return doing if self._parts is None else self._parts[0].gate.way.told_in(doing)

    def _working(self) -> Doing:
        shift = self._shift
        if shift is None:
            return Doing()
        outcomes = sum(one.in_flight for one in self._outboxes if isinstance(one, Deliveries))
        archived = sum(one.in_flight for one in self._outboxes if not isinstance(one, Deliveries))
        return replace(shift.doing(self._loop.time()), outcomes=outcomes, archived=archived)

    def disconnect(self) -> None:
        """Close the connections, and leave the loop open: to close it waits for every name server that was asked."""
        self._runner.run(self._close())

    def close(self) -> None:
        """Close the connections and the loop."""
        self.disconnect()
        self._runner.close()

    async def _advance(self, job_key: str | None, about: str = "") -> JobSummary:
        tools, institutions, listing = self._tools()
        shift = Shift(tools, institutions, listing, self._log, wakeups=self._wakeups, beat=self.beat)
        self._shift = shift
        shift.summary.about = about
        try:
            if self._is_stopping:
                shift.stop()
            probing = Probing(tools, institutions, on_probed=self._wakeups.wake)
            async with self._beside(shift), probing.running(), progress(self._redis, shift.summary, job_key):
                summary = await shift.run()
            await self._tidying.tidy()
            summary.attention = len(await Queries(self._redis, keys=self._keys).attention())
            await self._note_outage(summary)
            return summary
        finally:
            self._shift = None

    @asynccontextmanager
    async def _beside(self, shift: Shift) -> AsyncIterator[None]:
        """Listen for wake-ups and run the outboxes while a shift runs."""
        way = shift.tools.gate.way
        listening = asyncio.ensure_future(
            self._wakeups.listen(self._redis, self._keys.wakeup, leaves_it=lambda: way.leaves_work)
        )
        try:
            shift.is_wanted = lambda: any(outbox.in_flight for outbox in self._outboxes)
            async with AsyncExitStack() as running:
                for outbox in self._outboxes:
                    await running.enter_async_context(outbox.running())
                yield
        finally:
            await end({listening})

    async def _note_outage(self, summary: JobSummary) -> None:
        """Note since when the service has not answered. One job in ten minutes fails, to show it on the dashboard."""
        away = await service_away(self._redis, self._keys)
        if away is None:
            return
        summary.unreachable_since = away.since
        summary.is_outage_report = bool(
            await in_bytes(self._redis).set(self._keys.outage_reported, "1", nx=True, ex=OUTAGE_REPORT_EVERY_S)
        )

    async def _reconcile(self, job_key: str | None, institution_key: str) -> JobSummary:
        tools, _, _ = self._tools()
        await tools.store.request_listing(institution_key, Ask.FULL)
        return await self._advance(job_key, institution_key)

    def _tools(self) -> tuple[Tools, Institutions, Listing]:
        if self._parts is None:
            self._parts = self._build()
        return self._parts

    def _build(self) -> tuple[Tools, Institutions, Listing]:
        """Build the clients inside the running loop, because their connections belong to it."""
        keys, figures, service, outlets = self._keys, self._figures, self._service, self._outlets
        counting = Counting(figures)
        unreadable = UnreadableLog(self._log, figures)
        store = self.store_class(
            self._redis,
            keys=keys,
            kept_s=self._kept_s,
            lease=Lease(service.config.deadline_s),
            outbox=keys.outbox if outlets.open_webhook_client else None,
            archive=keys.archive if outlets.open_archive else None,
            due_in=self._wakeups.due_in,
            figures=figures,
            unreadable=unreadable,
            rps=service.rps,
            limits=dict(self._book.limits),
            number_key=number_key(service.config.access_token),
        )
        listings = self.listings_class(self._redis, keys=keys, unreadable=unreadable)
        self._outboxes += self._open_outboxes(unreadable)
        tokens = RedisTokenStore(self._redis, keys)
        gate, monotonic = ServiceGate(store, self._log, figures, name=self._name), self._loop.time
        reseller = self.client_class(service.config, tokens, log=self._log, observe=gate.report, see=figures.see)
        gate.see_bars_of(reseller)
        institutions = Institutions(
            reseller,
            listings,
            store,
            gate,
            self._institution_settings,
            monotonic=monotonic,
            log=self._log,
            counting=counting,
        )
        tools = Tools(
            store,
            listings,
            reseller,
            gate,
            ServiceClock(store.monotonic),
            self._book,
            service.requested_by,
            monotonic,
            self._log,
            counting=counting,
            cpu_share=CpuShare(time.thread_time),  # other threads do not hold up the loop
        )
        listing = Listing(tools, LIST_EVERY_S, PAGE, on_due=self._wakeups.wake)
        return tools, institutions, listing

    def _open_outboxes(self, unreadable: UnreadableLog) -> Iterator[Outbox]:
        """Yield what sends settled calls to the webhook's receiver and to the archive, where there is one."""
        redis, keys, kept_s, log = self._redis, self._keys, self._kept_s, self._log
        if self._outlets.open_webhook_client is not None:
            sent = Store(redis, keys=keys.outbox, kept_s=kept_s, unreadable=unreadable, longest_pause_s=LONGEST_PAUSE_S)
            attempts = DeliveryLog(redis, keys.outbox, kept_s=kept_s)
            client = self._outlets.open_webhook_client()
            yield Deliveries(sent, Lookup(redis, keys=keys), client, attempts, log, figures=self._figures)
        if self._outlets.open_archive is not None:
            yield self._outlets.open_archive(ArchiveQueue(redis, keys, kept_s=kept_s, unreadable=unreadable))

    async def _close(self) -> None:
        if self._parts is not None:
            tools, _, _ = self._parts
            await tools.service.aclose()
        for outbox in self._outboxes:
            await outbox.close()
        await self._redis.aclose()
