"""Reading calls for people."""

from fakeredis import FakeAsyncRedis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Queries, attention_of
from callkeeper.calls.trail import Entry, encode_entry
from tests.unit.calls.specimens import NOW, call

KEYS, ONE, OTHER = Keys(), CallId("cu-1", "v-1"), CallId("cu-1", "v-2")
LINE = Entry(at=NOW, what="listed")


async def store(redis: FakeAsyncRedis) -> Queries:
    """Store a call, and another id that became it."""
    await redis.hset(KEYS.item(ONE.member), "rec", encode_call(call()))
    await redis.rpush(KEYS.trail(ONE.member), encode_entry(LINE))
    await redis.hset(KEYS.item(OTHER.member), "moved", ONE.member)
    await redis.zadd(KEYS.live, {ONE.member: 1, "c:cu-1:gone": 2})
    return Queries(redis)


async def test_call_is_read_by_either_of_its_ids(fake_redis: FakeAsyncRedis) -> None:
    """With its trail; one that is unknown is none."""
    queries = await store(fake_redis)
    for known in (ONE, OTHER):
        assert await queries.load(known) == call()
        assert await queries.trail(known) == (LINE,)
    assert await queries.load(CallId("cu-1", "v-9")) is None


async def test_live_calls_are_read_without_what_has_gone(fake_redis: FakeAsyncRedis) -> None:
    """A record may expire between two reads."""
    queries = await store(fake_redis)
    assert [each async for each in queries.live()] == [call()]
    assert [each.trail async for each in queries.recordings()] == [(LINE,)]
    assert (await queries.institutions()).live == {"cu-1": 2}


async def test_call_is_found_by_its_id_where_its_institution_was_listed(fake_redis: FakeAsyncRedis) -> None:
    """An institution that was only pushed may be invented."""
    queries = await store(fake_redis)
    assert await queries.find("v-1") == []
    await fake_redis.zadd(KEYS.due, {"i:cu-1": 1})
    await fake_redis.hset(KEYS.item("i:cu-1"), "rec", "{}")
    assert await queries.find("v-1") == [ONE]


def test_reasons_of_a_member_are_told_together() -> None:
    """Each once."""
    found = attention_of([{b"c:cu-1:v-1": b"parked"}, {b"c:cu-1:v-1": b"unresolved", b"c:cu-1:v-2": b"parked"}])
    assert set(found) == {"c:cu-1:v-1", "c:cu-1:v-2"}
    assert all(word in found["c:cu-1:v-1"] for word in ("parked", "unresolved"))
