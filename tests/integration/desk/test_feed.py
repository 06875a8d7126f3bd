"""The stream of changes: one reader, many listeners, each at its own pace."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisAway
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.item_names import CallId
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.change_stream import Changes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup
from callkeeper.desk.feed import Feed
from tests.unit.calls.specimens import call
from tests.waiting import until_async

MEMBER = CallId("cu-1", "v-1").member


class Wire:
    """A feed on a real Redis, and the way to make a call change."""

    def __init__(self, redis: Redis, log: FilteringBoundLogger) -> None:
        self.redis: Any = redis  # its stubs cannot know that answers are bytes here
        self.changes = Changes(redis)
        self.feed = Feed(self.changes, Lookup(redis), log, room=10)

    async def change(self, n: int = 1, voice_id: str = "v-1") -> str:
        """Let a call change so often; return the last id."""
        member = CallId("cu-1", voice_id).member
        await self.redis.hset(Keys().item(member), "rec", encode_call(call(voice_id=voice_id)))
        ids = [await self.redis.xadd(Keys().changes, {"member": member}) for _ in range(n)]
        return str(ids[-1].decode())


@pytest.fixture
async def wire(redis_url: str, log: FilteringBoundLogger) -> AsyncIterator[Wire]:
    """Return a feed that reads."""
    async with Redis.from_url(redis_url, socket_timeout=8) as redis:
        wire = Wire(redis, log)
        await wire.change()
        wire.feed.position = await wire.changes.last()
        wire.feed.start()
        yield wire
        await wire.feed.stop()


async def test_feed_tells_every_listener(wire: Wire) -> None:
    """Whoever listens is told of a change, with the call as it is."""
    with wire.feed.listen() as one, wire.feed.listen() as other:
        last = await wire.change()
        for listener in (one, other):
            change = await listener.next(10)
            assert change is not None
            assert (change.id, change.call_id.voice_id) == (last, "v-1")
            assert change.call is not None


async def test_feed_logs_when_redis_goes_and_comes_back(
    redis_url: str, log: FilteringBoundLogger, logged: LogCapture
) -> None:
    """However often Redis is asked in vain: one line when it cannot be read, one when it can."""
    async with Redis.from_url(redis_url, socket_timeout=8) as redis:
        wire = Wire(redis, log)
        wait, attempts = wire.changes.wait, 0

        async def fails_twice(after: str, *, for_ms: int) -> Any:
            nonlocal attempts
            attempts += 1
            if attempts <= 2:
                raise RedisAway
            return await wait(after, for_ms=min(for_ms, 10))

        wire.changes.wait = fails_twice  # type: ignore[method-assign]
        wire.feed.start()
        await until_async(lambda: attempts > 3)
        await wire.feed.stop()
    assert [entry["event"] for entry in logged.entries] == ["feed_away", "feed_back"]


async def test_slow_listener_is_let_go_and_holds_up_nobody(wire: Wire) -> None:
    """A listener whose buffer is full is ended; the others are told everything."""
    with wire.feed.listen() as slow, wire.feed.listen() as quick:
        for n in range(12):
            await wire.change(voice_id=f"v-{n}")
            change = await quick.next(10)
            assert change is not None
            assert change.call_id.voice_id == f"v-{n}"
        assert slow.is_over
        assert not quick.is_over


async def test_several_changes_of_a_call_are_one(wire: Wire) -> None:
    """What is read together is told once for each call, under the id of the last: no more is needed, none is lost."""
    last = await wire.change(5)
    entries = await wire.changes.between("0-0", last)
    assert [(change.id, change.call_id.voice_id) for change in await wire.feed.read(entries)] == [(last, "v-1")]


async def test_call_that_is_gone_is_told_as_gone(wire: Wire) -> None:
    """A hint that was dropped changed too: its record is no more."""
    with wire.feed.listen() as listener:
        await wire.redis.xadd(Keys().changes, {"member": CallId("cu-1", "dropped").member})
        change = await listener.next(10)
    assert change is not None
    assert change.call is None


@pytest.mark.parametrize(("position", "holds"), [("0-0", True), ("9999999999999-0", False)])
async def test_place_that_redis_never_reached_is_not_resumed(wire: Wire, position: str, holds: bool) -> None:
    """A place after the newest entry comes from a Redis that lost it: whoever resumes there is told to begin anew."""
    assert await wire.changes.holds_all_since(position) is holds
