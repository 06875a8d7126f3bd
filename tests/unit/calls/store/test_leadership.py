"""One of several processes leads."""

from fakeredis import FakeAsyncRedis

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.leadership import Leadership


def of(redis: FakeAsyncRedis, process: str, at: str = "ck:2:alerts:leader") -> Leadership:
    """Return a process's part."""
    return Leadership(redis, Keys(), at=at, process=process, leads_ms=30_000)


async def test_one_process_leads_until_it_steps_down(fake_redis: FakeAsyncRedis) -> None:
    """It stays the leader while it renews that; then another may be."""
    one, other = of(fake_redis, "one"), of(fake_redis, "other")
    assert [await one.lead(), await one.lead(), await other.lead()] == [True, True, False]
    assert not await one.lead(lets_go=True)
    assert [await other.lead(), await one.lead()] == [True, False]


async def test_leader_that_is_gone_is_followed(fake_redis: FakeAsyncRedis) -> None:
    """Its time ends by itself."""
    assert await of(fake_redis, "one").lead()
    assert 0 < await fake_redis.pttl("ck:2:alerts:leader") <= 30_000


async def test_leader_of_before_the_clock_was_set_back_is_followed(fake_redis: FakeAsyncRedis) -> None:
    """The end of its time seems to be far ahead then. The next one that asks bounds it."""
    assert await of(fake_redis, "one").lead()
    await fake_redis.pexpire("ck:2:alerts:leader", 3_600_000)
    assert not await of(fake_redis, "other").lead()
    assert 0 < await fake_redis.pttl("ck:2:alerts:leader") <= 30_000
