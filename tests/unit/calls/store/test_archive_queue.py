"""What waits to be archived."""

from fakeredis import FakeAsyncRedis

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.archive_queue import ArchiveQueue, waiting_calls
from callkeeper.calls.store.keys import Keys
from tests.unit.calls.specimens import call

KEYS, MEMBER = Keys(), CallId("cu-1", "v-1").member


async def settled(redis: FakeAsyncRedis) -> ArchiveQueue:
    """Store a settled call that nobody has queued."""
    await redis.hset(KEYS.item(MEMBER), mapping={"rec": encode_call(call()), "settled": "1"})
    await redis.expire(KEYS.item(MEMBER), 60)
    await redis.zadd(KEYS.settled, {MEMBER: 1})
    return ArchiveQueue(redis, KEYS)


async def test_settled_call_that_was_never_archived_is_found_and_does_not_expire(fake_redis: FakeAsyncRedis) -> None:
    """The sweep queues it once; one that is archived is left alone."""
    queue = await settled(fake_redis)
    assert await queue.sweep() == 1
    assert (await waiting_calls(fake_redis, KEYS)).calls == 1
    assert await fake_redis.ttl(KEYS.item(MEMBER)) == -1
    await fake_redis.hset(KEYS.item(MEMBER), "archived", "1")
    await fake_redis.delete(queue.keys.due)
    assert await ArchiveQueue(fake_redis, KEYS).sweep() == 0, "another process has had this hour's turn"
    assert (await waiting_calls(fake_redis, KEYS)).calls == 0


async def test_refill_queues_what_was_archived_before(fake_redis: FakeAsyncRedis) -> None:
    """After a restore of the archive."""
    queue = await settled(fake_redis)
    await fake_redis.hset(KEYS.item(MEMBER), "archived", "1")
    await queue.refill()
    assert await fake_redis.hget(KEYS.item(MEMBER), "archived") is None


async def test_first_that_waits_says_since_when(fake_redis: FakeAsyncRedis) -> None:
    """None if nothing does."""
    assert (await waiting_calls(fake_redis, KEYS)).since is None
    await fake_redis.zadd(KEYS.archive.due, {"a": 5000, "b": 9000})
    assert await waiting_calls(fake_redis, KEYS) == (2, instant(5000))


async def test_heads_of_chains_are_kept_and_logged(fake_redis: FakeAsyncRedis) -> None:
    """Where the database's owner cannot change them."""
    queue = await settled(fake_redis)
    await queue.note_head("cu-1", 7, "abc")
    assert await queue.noted_heads() == {"cu-1": (7, "abc")}
    assert await fake_redis.xlen(KEYS.audit) == 1
