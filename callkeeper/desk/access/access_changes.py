"""Open streams end within a second when their reader loses the right to them: a counter in Redis says when to look."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import Keys

CHANGED_EVERY_S: Final = 0.5
"""Seconds between two looks whether anybody's access has changed: one read for all streams of a process."""

RENEWED_EVERY_S: Final = 15.0
"""Seconds between two looks whether the reader of a stream is still admitted, although nothing is known to have changed."""


async def note_change(redis: RedisInBytes, keys: Keys) -> None:
    """Record that somebody's access has changed: an account, a session or a token."""
    await redis.incr(keys.access_changes)


class AccessChanges:
    """Tells the streams of a process when somebody's access has changed."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._redis = in_bytes(redis)
        self._keys = keys
        self._count: bytes | None = None
        self._read_at = -CHANGED_EVERY_S
        self._closing: set[asyncio.Task[None]] = set()

    async def count(self) -> bytes | None:
        """Return a value that differs after each change. While Redis is away, nobody can change anything.

        An emptied Redis counts as a change.
        """
        if time.monotonic() >= self._read_at + CHANGED_EVERY_S:
            self._read_at = time.monotonic()
            with suppress(RedisError, OSError):
                self._count = await self._redis.get(self._keys.access_changes)
        return self._count

    async def while_admitted(
        self,
        events: AsyncGenerator[bytes],
        is_admitted: Callable[[], Awaitable[bool]],
        *,
        until: datetime | None = None,
    ) -> AsyncGenerator[bytes]:
        """Yield a stream's events until its reader loses the right to it. Their session is renewed meanwhile.

        ``until``: when that is certain. Between two looks it may pass, and Redis may be away.
        """
        following = asyncio.ensure_future(_next(events))
        try:
            known, check_at = await self.count(), time.monotonic() + RENEWED_EVERY_S
            while until is None or datetime.now(UTC) < until:
                await asyncio.wait([following], timeout=CHANGED_EVERY_S)
                count = await self.count()
                if count != known or time.monotonic() >= check_at:
                    with suppress(RedisError, OSError):  # nobody can have been turned away meanwhile
                        if not await is_admitted():
                            return
                        known, check_at = count, time.monotonic() + RENEWED_EVERY_S
                if following.done():
                    event = following.result()
                    if event is None:
                        return
                    yield event
                    following = asyncio.ensure_future(_next(events))
        finally:
            # A client that leaves cancels this task again at every wait, so the events are closed in another one.
            closing = asyncio.create_task(_close(following, events))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _close(following: "asyncio.Future[bytes | None]", events: AsyncGenerator[bytes]) -> None:
    await end([following])
    await events.aclose()


async def _next(events: AsyncGenerator[bytes]) -> bytes | None:
    """Return the next event; None at the end."""
    return await anext(events, None)
