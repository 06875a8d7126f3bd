"""Which alerts were sent, and which process sends them."""

from fakeredis import FakeAsyncRedis

from callkeeper.calls.store.alert_state import AlertState
from callkeeper.calls.store.keys import Keys
from tests.unit.calls.specimens import NOW


async def test_one_process_leads_until_it_steps_down(fake_redis: FakeAsyncRedis) -> None:
    """Then another may."""
    one, other = (AlertState(fake_redis, Keys(), name) for name in ("one", "other"))
    assert await one.lead()
    assert await one.lead()
    assert not await other.lead()
    await one.lead(lets_go=True)
    assert await other.lead()
    assert not await one.lead()


async def test_alerts_of_another_format_are_left_out(fake_redis: FakeAsyncRedis) -> None:
    """They stop no alert of ours."""
    state = AlertState(fake_redis, Keys(), "one")
    await fake_redis.hset(Keys().alerts, "x", "{")
    assert await state.load() == {}
    await state.save({}, {})
    assert await fake_redis.hlen(Keys().alerts) == 1


async def test_target_fails_since_its_first_failure_until_it_accepts(fake_redis: FakeAsyncRedis) -> None:
    """For the doctor."""
    state = AlertState(fake_redis, Keys(), "one")
    await state.note_target("mail", "name not found", NOW)
    await state.note_target("mail", "status 404", NOW.replace(hour=13))
    assert await state.failing_targets() == {"mail": (NOW, "status 404")}
    await state.note_target("mail", None, NOW)
    assert await state.failing_targets() == {}


async def test_attention_is_read_by_member(fake_redis: FakeAsyncRedis) -> None:
    """The reason of each."""
    await fake_redis.hset(Keys().attention, "c:cu-1:v-1", "unresolved")
    assert await AlertState(fake_redis, Keys(), "one").attention() == {"c:cu-1:v-1": "unresolved"}
