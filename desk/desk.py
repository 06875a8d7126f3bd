"""The desk of one web process: its parts put together, and how they begin and end."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from redis.asyncio import Redis
from starlette.types import ASGIApp
from structlog.typing import FilteringBoundLogger

from calls.rules.book import RuleBook
from calls.store.change_stream import Changes
from calls.store.job_queue import Waker
from calls.store.queries import Lookup
from calls.store.store import Store
from desk.access import DeskToken, DeskTokens
from desk.actions import Actions
from desk.api import DeskApi
from desk.feed import BUFFER, Feed
from desk.stream import HEARTBEAT_S, STREAMS_PER_TOKEN, Stream, Tickets


class Desk:
    """The API, the stream and what the board needs, over two kinds of connection: for answers, and for waiting."""

    def __init__(
        self,
        redis: "Redis",
        waiting_redis: "Redis",
        *,
        tokens: Sequence[DeskToken],
        origins: tuple[str, ...],
        book: RuleBook,
        waker: Waker,
        log: FilteringBoundLogger,
        now: Callable[[], datetime],
        store: Store,
        room: int = BUFFER,
        heartbeat_s: float = HEARTBEAT_S,
        streams_per_token: int = STREAMS_PER_TOKEN,
        country: str = "US",
    ) -> None:
        """Put the parts together.

        Args:
            redis: For answers; not closed here.
            waiting_redis: Waits for changes, so it must bear ``desk.feed.BLOCK_MS`` of silence; closed at the end.
            tokens: Who may use the desk.
            origins: Of web pages that may use it from a browser.
            book: The rules that the workers go by.
            waker: Enqueues a job where a note asks for one.
            log: Where to log.
            now: Returns the present, aware UTC.
            store: Takes the notes, over the first connection.
            room: Changes that a listener may be behind.
            heartbeat_s: After how long a silent stream shows that it lives.
            streams_per_token: Streams that one token may have open.
            country: Where phone numbers without a country's code belong.
        """
        keys = store.keys
        known, changes = DeskTokens(tokens), Changes(redis, keys=keys)
        self.lookup = Lookup(redis, keys=keys)
        self.book = book
        self._waiting = waiting_redis
        self.feed = Feed(Changes(waiting_redis, keys=keys), self.lookup, log, room=room)
        self.waker = waker
        self.actions = Actions(redis, store, self.lookup, self.feed, book, waker, log, now=now)
        stream = Stream(self.feed, changes, book.policies, heartbeat_s=heartbeat_s, per_token=streams_per_token)
        tickets = Tickets(redis, tokens, keys=keys)
        api = DeskApi(known, self.lookup, self.actions, stream, tickets, book.policies, log, country=country)
        self.app: ASGIApp = api.app(origins)

    def leave(self) -> None:
        """End every stream and every wait, so that the process can."""
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
