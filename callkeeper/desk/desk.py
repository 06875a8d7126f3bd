"""The desk of one web process: builds its parts, starts and stops them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from redis.asyncio import Redis
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.item_names import CallId
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.change_stream import Changes
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.queries import Known, Lookup
from callkeeper.calls.store.time_slices import TimeSlices
from callkeeper.desk.access.access_changes import AccessChanges
from callkeeper.desk.access.desk_tokens import DeskTokens
from callkeeper.desk.access.visitor import Auditor
from callkeeper.desk.api import DeskApi
from callkeeper.desk.archived_calls import ArchivedCalls, known_or_archived
from callkeeper.desk.feed import Feed
from callkeeper.desk.quotas import SearchTurns
from callkeeper.desk.statements import Actions
from callkeeper.desk.stream import STREAMS_PER_TOKEN, Stream, Tickets


class Desk:
    """The API, the stream and what the board needs. It has two kinds of connections: for answers, and for waiting."""

    def __init__(
        self,
        redis: Redis,
        waiting_redis: Redis,
        *,
        origins: tuple[str, ...],
        book: RuleBook,
        waker: Waker,
        log: FilteringBoundLogger,
        now: Callable[[], datetime],
        store: Store,
        auditor: Auditor,
        streams_per_token: int = STREAMS_PER_TOKEN,
        country: str = "US",
        archive: ArchivedCalls | None = None,
    ) -> None:
        """``redis`` is not closed here; the connection that waits, longer than `feed.BLOCK_MS`, and the archive are."""
        keys = store.keys
        known, changes = DeskTokens(redis, keys=keys), Changes(redis, keys=keys)
        self.access = AccessChanges(redis, keys=keys)
        self.searches = SearchTurns()
        self.lookup = Lookup(redis, keys=keys, slices=TimeSlices())
        self.book = book
        self.archive = archive
        self._waiting = waiting_redis
        self.feed = Feed(Changes(waiting_redis, keys=keys), self.lookup, log)
        self.waker = waker
        self.actions = Actions(redis, store, self.lookup, self.feed, book, waker, log, now=now)
        sources = (self.feed, changes, book.policies, known, self.access)
        stream = Stream(*sources, per_token=streams_per_token, country=country)
        self.streams = stream
        tickets = Tickets(redis, known, keys=keys)
        parts = (known, self.lookup, self.actions, stream, tickets, book, log, auditor, self.searches)
        api = DeskApi(*parts, country=country, archive=archive, now=now)
        self.app: ASGIApp = api.app(origins)

    def leave(self) -> None:
        """End every stream and every wait, so that the process can end."""
        self.feed.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read changes until the block ends."""
        self.feed.start()
        try:
            yield
        finally:
            await self.feed.stop()
            await self._waiting.aclose()
            if self.archive is not None:
                self.archive.close()

    async def known(self, place: CallId) -> Known | None:
        """Return a call with its trail, from Redis or from the archive; None if nothing is known of it.

        Raises:
            ArchiveAway: Redis does not know the call, and the archive does not answer.
        """
        return await known_or_archived(self.lookup, self.archive, place)
