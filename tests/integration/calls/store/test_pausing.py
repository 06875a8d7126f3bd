"""A Redis that lost its data gets the pauses back from the processes that saw them, before anything is sent."""

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest
from redis.asyncio import Redis

from callkeeper.app.connections import receiver_redis
from callkeeper.app.redis_location import RedisLocation
from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.notes import Verified
from callkeeper.calls.pause import EVERYWHERE, Pause, PauseScope
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import KEPT, RESTORED, PauseWatch, Pausing
from callkeeper.service.secret import Secret
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.integration.calls.hand import Hand

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAUSE = Pause(scope=PauseScope.EFFECTS, operator="ops", because="odd enrolls", at=AT)
WHOLE = Pause(scope=PauseScope.ALL, operator="ops", because="storm", at=AT)


async def reasons(redis: Redis) -> dict[str, str]:
    """Return the pauses in force, with who paused and why."""
    return {place: pause.reason for place, pause in (await Pausing(redis).pauses()).by_institution.items()}


async def lose(redis: Redis, how: str) -> None:
    """Let Redis lose the pauses: all of its data, or what was written since a backup was made."""
    if how == "emptied":
        await redis.flushall()
    else:
        await redis.hset(Keys().epoch, "id", "an earlier run")
        await redis.delete(Keys().pause)


@pytest.mark.parametrize("how", ["emptied", "older"])
async def test_worker_writes_back_the_pauses_that_it_saw(redis: Redis, hand: Hand, how: str) -> None:
    """With its first claim, marked as restored, and in the history. Another worker that saw them adds nothing."""
    one, other, late = (Store(redis, now_ms=hand) for _ in range(3))
    await Pausing(redis).pause("cu-1", PAUSE)
    await Pausing(redis).pause(None, WHOLE)
    for store in (one, other, late):
        await store.claim(1)
    await lose(redis, how)
    await one.claim(1)
    restored = {"cu-1": f"by ops: {RESTORED}odd enrolls", EVERYWHERE: f"by ops: {RESTORED}storm"}
    assert await reasons(redis) == restored
    assert one.pauses.over("cu-2") is not None, "the claim that restores them goes by them"
    await other.claim(1)
    assert [change.because for change in await Pausing(redis).history()].count(f"{RESTORED}storm") == 1
    await Pausing(redis).resume(None, operator="ops", because="over", at=AT)
    await late.claim(1)
    assert set(await reasons(redis)) == {"cu-1"}, "what a person has resumed since is not paused again"
    await other.claim(1)
    await lose(redis, how)
    await other.claim(1)
    assert set(await reasons(redis)) == {"cu-1"}


async def test_pause_that_redis_gets_twice_does_not_come_back(redis: Redis) -> None:
    """The Redis client repeats it after somebody lifted it: one pause and one resumption are all that happened."""
    pausing = Pausing(redis)
    await pausing.pause("cu-1", PAUSE)
    assert await pausing.resume("cu-1", operator="ops", because="over", at=AT)
    await pausing.pause("cu-1", PAUSE)
    assert await reasons(redis) == {}
    assert [change.because for change in await pausing.history()] == ["over", "odd enrolls"]
    assert not await pausing.resume("cu-2", operator="ops", because="never paused", at=AT)


async def test_history_of_pauses_is_bounded(redis: Redis) -> None:
    """The newest stay."""
    for n in range(KEPT + 2):
        await Pausing(redis).pause("cu-1", msgspec.structs.replace(PAUSE, because=str(n)))
    assert [change.because for change in await Pausing(redis).history()] == [str(n) for n in range(KEPT + 1, 1, -1)]


async def test_pause_of_a_person_is_not_replaced(redis: Redis, hand: Hand) -> None:
    """Somebody paused anew before a worker came: that pause stands."""
    store = Store(redis, now_ms=hand)
    await Pausing(redis).pause(None, PAUSE)
    await store.claim(1)
    await redis.flushall()
    await Pausing(redis).pause(None, WHOLE)
    await store.claim(1)
    assert await reasons(redis) == {EVERYWHERE: "by ops: storm"}


async def test_web_writes_back_what_no_worker_knows(redis: Redis, hand: Hand) -> None:
    """All workers were replaced together with Redis: the web processes still know. Restored once, also with a new worker."""
    watch = PauseWatch(redis, keys=Keys())
    await Store(redis, now_ms=hand).claim(1)
    await Pausing(redis).pause("cu-1", PAUSE)
    await watch.poll()
    await redis.flushall()
    await watch.poll()
    assert await reasons(redis) == {"cu-1": f"by ops: {RESTORED}odd enrolls"}
    await Pausing(redis).resume("cu-1", operator="ops", because="over", at=AT)
    await Store(redis, now_ms=hand).claim(1)
    await watch.poll()
    assert await reasons(redis) == {}


async def test_web_process_names_data_that_has_no_name(redis: Redis, hand: Hand) -> None:
    """So that it notices if Redis is emptied before a worker has claimed. A name that is there stays."""
    watch, epoch = PauseWatch(redis, keys=Keys()), Keys().epoch
    await watch.poll()
    first = await redis.hget(epoch, "born")
    await watch.poll()
    assert await redis.hmget(epoch, ["born", "replaced"]) == [first, None]
    await redis.flushall()
    await watch.poll()
    born, replaced = await redis.hmget(epoch, ["born", "replaced"])
    assert replaced == b"1"
    assert None not in (first, born)
    assert born != first
    await Store(redis, now_ms=hand).claim(1)
    named = await redis.hget(epoch, "born")
    await PauseWatch(redis, keys=Keys()).poll()
    assert await redis.hget(epoch, "born") == named


async def test_watch_that_was_ended_does_not_connect_again(redis: Redis, redis_url: str) -> None:
    """A look is under way when the process closes its connections: nothing of it is left on the server."""
    client = receiver_redis(RedisLocation(url=Secret(redis_url), sentinels=None, address=redis_url))
    before = {other["id"] for other in await redis.client_list()}
    await client.ping()
    await redis.client_pause(400)
    watching = asyncio.create_task(PauseWatch(client, keys=Keys()).run())
    await asyncio.sleep(0.1)
    await end({watching})
    await client.aclose()
    await asyncio.sleep(0.8)
    assert [other for other in await redis.client_list() if other["id"] not in before] == []


async def test_new_installation_and_a_restart_restore_nothing(redis: Redis, hand: Hand) -> None:
    """A process that starts knows nothing, and a Redis that kept its data needs nothing."""
    store, watch = Store(redis, now_ms=hand), PauseWatch(redis, keys=Keys())
    await watch.poll()
    await store.claim(1)
    await Pausing(redis).pause("cu-1", PAUSE)
    await store.claim(1)
    await watch.poll()
    await redis.hset(Keys().epoch, "id", "the run before")
    await store.claim(1)
    await watch.poll()
    assert await reasons(redis) == {"cu-1": "by ops: odd enrolls"}
    assert await redis.exists(Keys().pauses_restored) == 0


async def test_emptied_redis_is_an_incident_until_the_pause_is_resumed(redis: Redis, hand: Hand) -> None:
    """It says what was lost, what was restored, and what a person must do."""
    store, reader = Store(redis, now_ms=hand), SignalReader(redis, Keys())
    now = datetime.fromtimestamp(hand.ms / 1000, UTC)

    async def told() -> list[str]:
        found = incidents_of(await reader.read(now=now))
        return [incident.advice for incident in found if incident.kind is IncidentKind.REDIS_REPLACED]

    await Pausing(redis).pause("cu-1", PAUSE)
    await store.claim(1)
    assert await told() == []
    await redis.flushall()
    await store.claim(1)
    [advice] = await told()
    assert "desk tokens" in advice
    assert "Restored: the pause of cu-1." in advice
    await Pausing(redis).resume("cu-1", operator="ops", because="over", at=AT)
    assert await told() == []
    await store.claim(1)
    await redis.flushall()
    await store.claim(1)
    [advice] = await told()
    assert "No process remembers a pause" in advice


async def test_no_effect_is_sent_after_redis_lost_a_pause(rig: Rig) -> None:
    """Redis is emptied during a pause: the call is found again, and its enroll waits for a person's resume."""
    call = rig.stage.call(Happening(Kind.END, 400))
    await Pausing(rig.redis).pause(None, PAUSE)
    await rig.run(10)
    await rig.redis.flushall()
    await rig.run(60)
    word = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now, wish="a" * 32)
    assert await rig.note(call, word)
    await rig.run(60)
    assert "enroll" not in rig.ledger(call)
    await Pausing(rig.redis).resume(None, operator="ops", because="repaired", at=rig.clock.now)
    await rig.run(60)
    assert rig.ledger(call)["enroll"] == 1
