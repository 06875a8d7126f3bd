"""The wake marker and the wake-up list: at most one job waits, and no wake-up is lost, on two kinds of Redis."""

import asyncio
from typing import Any

import uvloop
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Pushed
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.script_runner import Scripts
from tests.integration.calls.hand import Hand
from tests.sandbox_fixtures import START
from workers.job_watchdog import LATE_MS, QUIET_S, SOON_MS
from workers.shift import Wakeups

HINT = Pushed(has_ended=False, event_id="ev-1", received_at=START)


async def woken(store: Store, n: int = 1) -> int:
    """Leave a note and say whether a job has to be enqueued."""
    _, wake = await store.note(CallId("cu-1", f"v-{n}"), HINT, wake=True)
    return int(wake)


async def test_wake_marker_asks_for_one_job_a_second(store: Store) -> None:
    """A thousand events in a second enqueue one job, not a thousand."""
    assert sum(await asyncio.gather(*(woken(store, n) for n in range(50)))) == 1


async def test_wake_marker_is_cleared_by_a_shift_that_starts(store: Store) -> None:
    """An event that comes after a shift has begun asks for another job: no wake-up is lost."""
    assert await woken(store) == 1
    await store.claim(10, shift_starts=True)
    assert await woken(store) == 1
    await store.claim(10)
    assert await woken(store) == 0


async def test_wake_marker_is_not_won_while_a_job_waits(store: Store, redis: Redis) -> None:
    """No job is added to one that waits: a shift takes whatever is due."""
    client: Any = redis
    await client.rpush(store.keys.queue, "a job")
    assert await woken(store) == 0
    await client.lpop(store.keys.queue)
    assert await woken(store) == 1


async def test_wake_marker_from_the_future_counts_as_expired(store: Store, redis: Redis, hand: Hand) -> None:
    """C19: after Redis's clock is set back by an hour, wake-ups continue."""
    client: Any = redis
    await client.set(store.keys.wake, hand() + 3_600_000)
    assert await woken(store) == 1


async def test_burst_of_events_is_one_wake_up(store: Store, redis: Redis) -> None:
    """Fifty events push one element on the list; one of the shifts that wait takes it, and the next event pushes again."""
    wakeups, client = Wakeups(), redis
    for n in range(50):
        await woken(store, n)
    assert await client.llen(store.keys.wakeup) == 1
    listening = asyncio.ensure_future(wakeups.listen(client, store.keys.wakeup))
    await asyncio.wait_for(wakeups.wait(), 0.5)
    assert await client.llen(store.keys.wakeup) == 0
    wakeups.claims()
    await woken(store)
    await asyncio.wait_for(wakeups.wait(), 0.5)
    await end({listening})


def test_due_times_and_wake_ups_after_it_is_time_change_nothing() -> None:
    """On the event loop of production: whatever becomes due between the timer and the claim is found by that claim."""

    async def law() -> None:
        wakeups = Wakeups()
        wakeups.due_in(0.01)
        await asyncio.sleep(0.05)
        wakeups.due_in(0.0)
        wakeups.wake()
        await asyncio.wait_for(wakeups.wait(), 0.1)
        wakeups.claims()
        wakeups.claimed(found=True)
        await asyncio.sleep(0.05)
        wakeups.due_in(0.0)
        wakeups.due_in(0.01)
        wakeups.wake()
        await asyncio.wait_for(wakeups.wait(), 0.2)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(law())


async def test_wake_up_that_is_repeated_later_changes_nothing_more(store: Store, redis: Redis) -> None:
    """C14: the script that records is repeated when its answer was lost: one element, and no second job is asked for."""
    assert [await woken(store), await woken(store)] == [1, 0]
    assert await redis.llen(store.keys.wakeup) == 1


async def look(store: Store, redis: Redis, now_ms: int, late_ms: int = LATE_MS) -> int:
    """Look as the watchdog does; return whether a job is asked for."""
    return await pulse(Scripts(redis, keys=store.keys, now_ms=lambda: now_ms), late_ms)


async def pulse(scripts: Scripts, late_ms: int = LATE_MS) -> int:
    """Run the watchdog's script."""
    return int(await scripts.call("pulse", overdue_ms=late_ms, quiet_ms=int(QUIET_S * 1000)))


async def test_next_shift_is_asked_for_where_something_is_due_soon_and_no_job_waits(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """At its end a shift asks for a successor if something is due soon; a job that waits already is that."""
    keys = store.keys
    await store.claim(1)
    assert await look(store, redis, hand(), -SOON_MS) == 0
    await redis.zadd(keys.due, {"c:cu-1:v-1": hand() + 9000})
    await redis.rpush(keys.queue, "a job")
    assert await look(store, redis, hand(), -SOON_MS) == 0
    await redis.delete(keys.queue)
    assert await look(store, redis, hand(), -SOON_MS) == 1


async def test_overdue_work_asks_for_a_job_unless_the_service_is_left_alone(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """Work that is 60 ms late asks for a job; not while the service is left alone, when it would not be claimed."""
    await store.claim(1)
    await redis.zadd(store.keys.due, {"c:cu-1:v-1": hand() - LATE_MS})
    await redis.hset(store.keys.breakers, "", f"5 {hand()} {hand() + 1000} failure")
    assert await look(store, redis, hand()) == 0
    await redis.hset(store.keys.breakers, "", f"5 {hand()} {hand() - LATE_MS} failure")
    assert await look(store, redis, hand()) == 1
    assert await look(store, redis, hand()) == 0


async def test_shift_is_asked_for_after_ten_seconds_without_one(store: Store, redis: Redis, hand: Hand) -> None:
    """However quiet it is, and in an outage too, a shift runs somewhere every ten seconds; fifty pacemakers ask once."""
    await store.claim(1)
    await redis.hset(store.keys.breakers, "", f"5 {hand()} {hand() + 60_000} failure")
    assert await look(store, redis, hand() + 9_900) == 0
    # In one pipeline: the marker lasts a second of real time.
    scripts = Scripts(redis, keys=store.keys, now_ms=lambda: hand() + 10_000)
    assert sum(await asyncio.gather(*(pulse(scripts) for _ in range(50)))) == 1


async def test_claim_and_save_say_when_something_is_due(redis: Redis) -> None:
    """Whoever waits need not ask again and again: a claim names the next due time, a save that of its member."""
    told: list[float] = []
    store = Store(redis, due_in=told.append)
    await store.note(CallId("cu-1", "v-1"), HINT)
    (held,) = await store.claim(10)
    assert told == [store.lease.seconds]
    await store.save(held, b"{}", Placement(1500))
    assert told[1:] == [1.5]
    assert await store.claim(10) == []
    assert 0 < told[2] <= 1.5
