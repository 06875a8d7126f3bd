"""Acknowledgements in Redis."""

from datetime import timedelta

from fakeredis import FakeAsyncRedis

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.keys import Keys

LATE, AWAY = IncidentKind.LATE, IncidentKind.SERVICE_AWAY
HOUR = timedelta(hours=1)


async def test_acknowledgement_is_kept_until_its_end_or_somebodys(fake_redis: FakeAsyncRedis) -> None:
    """One for each institution and incident; a later one replaces it."""
    acknowledging = Acknowledging(fake_redis, Keys())
    last = await acknowledging.acknowledge(LATE, "cu-1", "cu-2", operator="ann", lasts=HOUR)
    assert (last.institution_key, last.until - last.at) == ("cu-2", HOUR)
    await acknowledging.acknowledge(LATE, "cu-1", operator="bob", lasts=HOUR)
    assert [(one.institution_key, one.operator) for one in await acknowledging.all()] == [
        ("cu-1", "bob"),
        ("cu-2", "ann"),
    ]
    assert await acknowledging.end(LATE, "cu-1")
    assert not await acknowledging.end(LATE, "cu-1")
    await acknowledging.drop(await acknowledging.all())
    assert await acknowledging.all() == []


async def test_ended_ones_are_forgotten_with_the_next(fake_redis: FakeAsyncRedis) -> None:
    """So none is kept longer than it lasts."""
    acknowledging, key = Acknowledging(fake_redis, Keys()), Keys().acknowledged
    await acknowledging.acknowledge(AWAY, "", operator="ann", lasts=timedelta(0))
    assert await acknowledging.all() == []
    assert await fake_redis.hlen(key) == 1
    await acknowledging.acknowledge(LATE, "", operator="ann", lasts=HOUR)
    assert await fake_redis.hkeys(key) == [b"late "]
