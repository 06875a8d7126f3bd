"""The feed: one reader of the stream of changes in each web process, and its listeners.

Listeners have bounded buffers. One that does not keep up is disconnected, and resumes with the id of the last event that
it saw. So no listener delays another, or the reader.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.record import Call
from callkeeper.calls.record_storage import readable_call
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.change_stream import Changes, order
from callkeeper.calls.store.queries import Lookup

BLOCK_MS: Final = 5000
"""How long one wait for changes lasts, in milliseconds; the connection's timeout has to be longer."""

BUFFER: Final = 1000
"""How many changes a listener may be behind."""

RETRY_S: Final = 0.25


class CallChange(msgspec.Struct, frozen=True):
    """A call that changed, as it was right after; None if it is gone. ``id`` is the place in the stream."""

    id: str
    call_id: CallId
    call: Call | None


class Listener:
    """One listener's buffer."""

    def __init__(self, room: int) -> None:
        self._queue: asyncio.Queue[CallChange | None] = asyncio.Queue(room)
        self.is_over = False

    def offer(self, change: CallChange) -> None:
        """Put a change into the buffer. If it is full, end the listening."""
        if self.is_over:
            return
        try:
            self._queue.put_nowait(change)
        except asyncio.QueueFull:
            self.end()

    def end(self) -> None:
        """End the listening and drop the buffer. The listener resumes after the last change that it has seen."""
        self.is_over = True
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def next(self, within_s: float) -> CallChange | None:
        """Return the next change; None if there is none in time, or ever again (``is_over``)."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                return await self._queue.get()
        return None


class Feed:
    """Reads the stream while the process lives, and hands every change to every listener."""

    def __init__(self, changes: Changes, lookup: Lookup, log: FilteringBoundLogger, *, room: int = BUFFER) -> None:
        self._changes = changes
        self._lookup = lookup
        self._log = log
        self._room = room
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.position: str | None = None
        """The last id that listeners got; None before the reader has begun."""

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    def close(self) -> None:
        """End every listening, so that connections can end. The reader continues until ``stop``."""
        self._is_closed = True
        for listener in list(self._listeners):
            listener.end()

    async def stop(self) -> None:
        self.close()
        if self._task is not None:
            await end({self._task})

    @contextmanager
    def listen(self) -> Iterator[Listener]:
        """Listen from now on until the block ends."""
        listener = Listener(self._room)
        self._listeners.add(listener)
        if self._is_closed:
            listener.end()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    async def read(self, entries: Sequence[tuple[str, str]]) -> list[CallChange]:
        """Return the changes of some entries. Several entries of one call are one change, with the id of the last."""
        last = {member: entry_id for entry_id, member in entries}
        records = await self._lookup.records(list(last))
        changes = []
        for member, entry_id in sorted(last.items(), key=lambda pair: order(pair[1])):
            owner = parse_member(member)
            call = readable_call(records[member]) if member in records else None
            # A call whose record cannot be read is not gone, so it is left out.
            if isinstance(owner, CallId) and (call is not None or member not in records):
                changes.append(CallChange(entry_id, owner, call))
        return changes

    async def _run(self) -> None:
        is_away = False
        while True:
            try:
                await self._follow()
                if is_away:
                    self._log.info("feed_back")
                is_away = False
            except (RedisError, OSError) as error:
                if not is_away:
                    self._log.warning("feed_away", error=type(error).__name__)
                is_away = True
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        """Wait for changes once, and give them to the listeners."""
        if self.position is None:
            self.position = await self._changes.last()
        entries = await self._changes.wait(self.position, for_ms=BLOCK_MS)
        if not entries:
            await self._restart_if_lost()
            return
        changes = await self.read(entries)
        self.position = entries[-1][0]
        for change in changes:
            for listener in list(self._listeners):
                listener.offer(change)

    async def _restart_if_lost(self) -> None:
        """After a silence: if Redis has lost its newest entries, listeners start again."""
        if self.position is not None and not await self._changes.holds_all_since(self.position):
            self.position = None
            for listener in list(self._listeners):
                listener.end()
