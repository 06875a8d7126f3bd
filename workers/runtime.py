"""One worker process's means: an event loop that lives as long as the process, its connections, and the jobs it can do.

The loop outlives the shifts so that connections do; a shift leaves no task behind in it. Once an hour what has expired
is taken off the list of what needs a person.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from calls.lease import Lease
from calls.metrics.counting import Figures
from calls.rules.book import RuleBook
from calls.store.breakers import service_away
from calls.store.inbox import Ask
from calls.store.keys import KEPT_S, Keys
from calls.store.listings import Listings
from calls.store.queries import Lookup, Queries
from calls.store.sso_token import RedisTokenStore
from calls.store.store import Store
from calls.store.tasks import end
from reseller import Reseller, ServiceConfig
from workers.claim import Tools
from workers.listing import Listing
from workers.managed_institutions import Institutions, ServiceClock
from workers.measurements import Counting, JobSummary, UnreadableLog
from workers.service_health import Probing, ServiceObserver
from workers.shift import Shift, Wakeups
from workers.webhook_client import WebhookClient
from workers.webhook_delivery import Deliveries

TIDY_EVERY_S = 3600.0


@dataclass(slots=True)
class Tidying:
    """Tidies each store once an hour; the worker that finds it already done does no harm."""

    stores: Sequence[Store]
    monotonic: Callable[[], float]
    _done_at_s: float | None = None

    async def tidy(self) -> None:
        """Tidy if it is time."""
        now_s = self.monotonic()
        if self._done_at_s is not None and now_s - self._done_at_s < TIDY_EVERY_S:
            return
        self._done_at_s = now_s
        with suppress(RedisError):
            for store in self.stores:
                await store.tidy()


T = TypeVar("T")

PROGRESS_EVERY_S = 1.0
OUTAGE_REPORT_EVERY_S = 600


class WorkerRuntime:
    """Runs shifts. Built in the worker process, used by its jobs, stopped by its signals.

    A subclass may replace the classes that speak to Redis and to the service.
    """

    store_class: ClassVar[type[Store]] = Store
    listings_class: ClassVar[type[Listings]] = Listings
    client_class: ClassVar[type[Reseller]] = Reseller

    def __init__(
        self,
        redis: "Redis",
        *,
        service: ServiceConfig,
        book: RuleBook,
        requested_by: Callable[[str], str],
        only: frozenset[str] | None,
        named: Mapping[str, frozenset[str]] | None = None,
        reconcile_s: float,
        queue_page: int,
        log: Any,
        figures: Figures,
        keys: Keys,
        kept_s: int = KEPT_S,
        open_webhook_client: Callable[[], WebhookClient] | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._runner = asyncio.Runner(loop_factory=loop_factory)
        self._loop = self._runner.get_loop()
        self._redis = redis
        self._keys = keys
        self._kept_s = kept_s
        self._tidying: Tidying | None = None
        self._book = book
        self._log = log
        self._shift: Shift | None = None
        self._is_stopping = False
        self._service_config = service
        self._requested_by = requested_by
        self._only = only
        self._named = named
        self._reconcile_s = reconcile_s
        self._queue_page = queue_page
        self._figures = figures
        self._open_sink = open_webhook_client
        self._deliveries: Deliveries | None = None
        self._wakeups = Wakeups()
        self._means: tuple[Reseller, Tools, Institutions, Listing] | None = None
        self.beat: Callable[[], None] = lambda: None

    def advance(self, job_key: str | None = None) -> JobSummary:
        """Work one shift; the ``advance`` job.

        Args:
            job_key: The Redis key of the job, whose description says every second how far the shift is.

        Raises:
            StepsFailed: Steps raised something unexpected.
        """
        return self._run(self._advance(job_key))

    def reconcile(self, job_key: str | None, institution_key: str) -> JobSummary:
        """List an institution's queue now and work a shift; the ``reconcile`` job. Arguments and errors as `advance`."""
        return self._run(self._reconcile(job_key, institution_key))

    def stop(self) -> None:
        """Make the shift under way claim no more. Safe from a signal handler and from any thread."""
        self._is_stopping = True
        if self._shift is not None:
            # Not in the context of the task that the signal happened to interrupt: its call has nothing to do with it.
            self._loop.call_soon_threadsafe(self._shift.stop, context=Context())

    def close(self) -> None:
        """Close the connections and the loop."""
        self._run(self._close())
        self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _advance(self, job_key: str | None, about: str = "") -> JobSummary:
        tools, institutions, listing = self._tools()
        shift = Shift(tools, institutions, listing, self._log, wakeups=self._wakeups, beat=self.beat)
        self._shift = shift
        shift.tally.about = about
        try:
            if self._is_stopping:
                shift.stop()
            probing = Probing(tools, institutions, told=self._wakeups.wake)
            async with self._beside(shift), probing.running(), self._progress(shift.tally, job_key):
                tally = await shift.run()
            if self._tidying is not None:
                await self._tidying.tidy()
            tally.attention = len(await Queries(self._redis, keys=self._keys).attention())
            await self._note_outage(tally)
            return tally
        finally:
            self._shift = None

    @asynccontextmanager
    async def _beside(self, shift: Shift) -> AsyncIterator[None]:
        """Listen for wake-ups while a shift lasts; send outcomes, if they are to be sent anywhere."""
        listening = asyncio.ensure_future(self._wakeups.listen(self._redis, self._keys.wakeup))
        try:
            if self._deliveries is None:
                yield
                return
            shift.is_wanted = lambda: self._deliveries is not None and self._deliveries.is_busy
            async with self._deliveries.running():
                yield
        finally:
            await end({listening})

    @asynccontextmanager
    async def _progress(self, tally: JobSummary, job_key: str | None) -> AsyncIterator[None]:
        """Write into the job's description, every second, what has been done so far."""
        if job_key is None:
            yield
            return
        writing = asyncio.ensure_future(self._write_progress(tally, job_key))
        try:
            yield
        finally:
            await end({writing})

    async def _write_progress(self, tally: JobSummary, job_key: str) -> None:
        redis: Any = self._redis
        name = f"reconcile {tally.about}" if tally.about else "advance"
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            with suppress(RedisError):
                # A job that somebody deleted meanwhile must not come back as a hash that never expires.
                if await redis.exists(job_key):
                    await redis.hset(job_key, "description", f"{name}, running: {tally.sentence()}")

    async def _note_outage(self, tally: JobSummary) -> None:
        """Say since when the service has not answered; one job in ten minutes reports it by failing."""
        away = await service_away(self._redis, self._keys)
        if away is None:
            return
        tally.unreachable_since = away.since
        redis: Any = self._redis
        tally.is_outage_report = bool(
            await redis.set(self._keys.outage_reported, "1", nx=True, ex=OUTAGE_REPORT_EVERY_S)
        )

    async def _reconcile(self, job_key: str | None, institution_key: str) -> JobSummary:
        tools, _, _ = self._tools()
        await tools.store.ask_to_look(institution_key, Ask.FULL)
        return await self._advance(job_key, institution_key)

    def _tools(self) -> tuple[Tools, Institutions, Listing]:
        if self._means is None:
            self._means = self._build()
        return self._means[1:]

    def _build(self) -> tuple[Reseller, Tools, Institutions, Listing]:
        """Build the means inside the running loop, to which their connections belong."""
        keys, outbox = self._keys, self._keys.outbox
        figures = self._figures
        unreadable = UnreadableLog(self._log, figures)
        store = self.store_class(
            self._redis,
            keys=keys,
            kept_s=self._kept_s,
            lease=Lease(self._service_config.deadline_s),
            outbox=outbox if self._open_sink else None,
            due_in=self._wakeups.due_in,
            figures=figures,
            unreadable=unreadable,
        )
        listings = self.listings_class(self._redis, keys=keys, unreadable=unreadable)
        if self._open_sink is not None:
            sent = Store(self._redis, keys=outbox, kept_s=self._kept_s, unreadable=unreadable)
            lookup = Lookup(self._redis, keys=keys)
            self._deliveries = Deliveries(sent, lookup, self._open_sink(), self._log, figures=figures)
        stores = [store, *([self._deliveries.store] if self._deliveries else [])]
        self._tidying = Tidying(stores, self._loop.time)
        tokens = RedisTokenStore(self._redis, keys.prefix)
        observe, monotonic = ServiceObserver(store, self._log, figures), self._loop.time
        reseller = self.client_class(self._service_config, tokens, log=self._log, observe=observe)
        institutions = Institutions(
            reseller,
            listings,
            store,
            only=self._only,
            named=self._named,
            monotonic=monotonic,
            log=self._log,
            figures=figures,
        )
        tools = Tools(
            store,
            reseller,
            ServiceClock(store.monotonic),
            self._book,
            self._requested_by,
            monotonic,
            self._log,
            counting=Counting(figures, institutions.label),
        )
        listing = Listing(tools, listings, self._reconcile_s, self._queue_page, told=self._wakeups.wake)
        return reseller, tools, institutions, listing

    async def _close(self) -> None:
        if self._means is not None:
            await self._means[0].aclose()
        if self._deliveries is not None:
            await self._deliveries.client.aclose()
        await self._redis.aclose()
