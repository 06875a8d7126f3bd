"""A new Redis may have lost an effect that is still in flight, so nothing is sent for one lease."""

from datetime import timedelta

from redis.asyncio import Redis

from callkeeper.calls.claimed_item import LEASE, Placement
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import AssignWish, Distrusted, Pushed, Verified
from callkeeper.calls.record import Reason
from callkeeper.calls.store.claims import Store
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.integration.calls.hand import Hand
from tests.sandbox_fixtures import Asgi

HOLD_S = LEASE.seconds
CALL = CallId("cu-1", "v-1")


async def seen_since(store: Store, hand: Hand) -> timedelta:
    """Claim something; return for how long Redis is known."""
    await store.note(CALL, Pushed(has_ended=False, event_id="ev", received_at=await store.now()))
    (held,) = await store.claim(1)
    await store.save(held, b"{}", Placement(None))
    return held.now - held.epoch.since


async def test_redis_is_new_from_the_first_claim_that_saw_it(store: Store, redis: Redis, hand: Hand) -> None:
    """An empty Redis and another server both begin a new time; otherwise it goes on for every worker (C15)."""
    assert await seen_since(store, hand) == timedelta(0)
    hand.ms += 5000
    assert await seen_since(Store(redis, now_ms=hand), hand) == timedelta(seconds=5)
    await redis.hset(store.keys.epoch, "id", "another server")
    assert await seen_since(store, hand) == timedelta(0)
    hand.ms -= 3_600_000
    assert await seen_since(store, hand) == timedelta(0), "a clock set back does not hold effects for an hour (C19)"


async def test_redis_stays_new_when_its_clock_jumps_ahead(redis: Redis, hand: Hand) -> None:
    """A process that saw Redis change waits by its own clock too: what is under way takes its time (C15, C19)."""
    seconds = [0.0]
    store = Store(redis, now_ms=hand, monotonic=lambda: seconds[0])
    await seen_since(store, hand)
    await redis.hset(store.keys.epoch, "id", "another server")
    store._epochs._last = ("another server", hand.ms, 0.0)
    assert await seen_since(store, hand) == timedelta(0)
    seconds[0] += 3
    hand.ms += 60_000
    assert await seen_since(store, hand) == timedelta(seconds=3)


async def test_look_of_another_worker_since_redis_is_new_is_the_first_one(redis: Redis, hand: Hand) -> None:
    """Whether a queue was looked at in this Redis is by its clock. Effects wait from when a worker itself saw the change."""
    seconds = [0.0]
    workers = [Store(redis, now_ms=hand, monotonic=lambda: seconds[0]) for _ in range(2)]
    for worker in workers:
        await seen_since(worker, hand)
    await redis.hset(workers[0].keys.epoch, "id", "another server")
    found = []
    for worker in workers:
        await worker.note(CALL, Pushed(has_ended=False, event_id="ev", received_at=await worker.now()))
        (held,) = await worker.claim(1)
        await worker.save(held, b"{}", Placement(None))
        found.append(held.epoch)
        seconds[0] += 3
        hand.ms += 3000
    first, second = found
    assert second.since - first.since == timedelta(seconds=3)
    assert first.first_claimed_at == second.first_claimed_at == first.since


async def test_enroll_waits_until_redis_is_no_longer_new(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Verified in the first seconds: the trail says why nothing is sent yet, then it is sent, once (C4)."""
    rig = Rig(sandbox_asgi, redis, hold_s=HOLD_S)
    call = await rig.begin_call(Happening(Kind.END, 45), run_s=2, is_pushed=False)
    await rig.note(
        call, Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.stage.clock.now)
    )
    await rig.run(HOLD_S - 2.5)
    assert "enroll" not in rig.ledger(call)
    assert ("redis_changed",) in [entry.forbidden for entry in await rig.trail(call)]
    await rig.run(1.5)
    assert rig.ledger(call)["enroll"] == 1


async def test_reject_of_a_call_that_ended_meanwhile_is_still_sent(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A reject takes effect after the end too: the call is not closed while only a new Redis stands in its way."""
    rig = Rig(sandbox_asgi, redis, hold_s=HOLD_S)
    call = await rig.begin_call(Happening(Kind.END, 3), run_s=1, is_pushed=False)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.stage.clock.now))
    await rig.run(HOLD_S + 10)
    assert rig.ledger(call)["reject_voice"] == 1
    assert (await rig.record(call)).life.reason is Reason.REJECTED


async def test_call_that_an_operator_had_claimed_may_have_been_checked(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The core username is still on it, so somebody was assigned, and a lost record may have made 13 checks."""
    rig = Rig(sandbox_asgi, redis)
    call = rig.stage.call(Happening(Kind.END, 900), persons=[])
    await rig.push(call)
    await rig.run(3)
    rig.stage.happen(call, Kind.CLAIMED, "agent-9", "p-1")
    await rig.run(80)
    before = rig.ledger(call)["check"]
    assert before > 10
    call.person_id = None
    await rig.run(10)
    await redis.flushdb()
    rig = Rig(sandbox_asgi, redis)
    await rig.run(15)
    await rig.note(call, AssignWish(operator="ann", said_at=rig.clock.now, wish="a", person_id="p-1"))
    await rig.run(400)
    assert rig.ledger(call)["check"] <= 20
