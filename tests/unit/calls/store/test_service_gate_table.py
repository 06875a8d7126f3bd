"""The gate's table as people see it."""

from fakeredis import FakeAsyncRedis

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.service_gate_table import GateState, gate_table
from tests.unit.calls.specimens import NOW

KEYS = Keys()


async def test_nothing_is_listed_while_everything_may_go(fake_redis: FakeAsyncRedis) -> None:
    """A scope that is open has no row."""
    assert await gate_table(fake_redis) == []


async def test_pause_is_a_row_of_its_scope(fake_redis: FakeAsyncRedis) -> None:
    """Those of all institutions come first."""
    for key, scope in (("cu-1", PauseScope.EFFECTS), ("*", PauseScope.ALL)):
        pause = Pause(scope=scope, operator="ann", because="a drill", at=NOW)
        await Pausing(fake_redis, keys=KEYS).pause(None if key == "*" else key, pause)
    whole, one = await gate_table(fake_redis)
    assert (whole.institution_key, whole.requests, whole.state) == ("", "automatic", GateState.STOPPED)
    assert (one.institution_key, one.requests) == ("cu-1", "effects")
    assert "by ann: a drill" in one.words


async def test_effects_wait_for_a_lease_after_redis_is_new(fake_redis: FakeAsyncRedis) -> None:
    """And then not any more."""
    seconds, _ = await fake_redis.time()
    await fake_redis.hset(KEYS.epoch, "since", str(seconds * 1000))
    (row,) = await gate_table(fake_redis)
    assert (row.requests, row.state) == ("effects", GateState.CLOSED)
    assert row.since is not None
    assert row.until == row.since + LEASE.hold
    await fake_redis.hset(KEYS.epoch, "since", str((seconds - 60) * 1000))
    assert await gate_table(fake_redis) == []
