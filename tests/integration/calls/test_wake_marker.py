"""The wake marker: few jobs wait, and no wake-up is lost. On a Redis in this process and on a real one."""

import asyncio
from functools import partial
from typing import Any

from redis.asyncio import Redis

from calls.bell import Bell
from calls.endings import end
from calls.held import Placement
from calls.keys import CallId
from calls.notes import Pushed
from calls.scripts import Scripts
from calls.store import Store
from tests.integration.calls.hand import Hand
from tests.sandbox_fixtures import START

HINT = Pushed(has_ended=False, event_id="ev-1", received_at=START)


async def woken(store: Store, n: int = 1) -> int:
    """Leave a note and say whether a job has to be enqueued."""
    _, wake = await store.note(CallId("cu-1", f"v-{n}"), HINT, wake=True)
    return int(wake)


async def test_wake_marker_asks_for_one_job_a_second(store: Store) -> None:
    """A thousand events in a second enqueue one job, not a thousand."""
    assert sum([await woken(store, n) for n in range(50)]) == 1


async def test_wake_marker_is_cleared_by_a_shift_that_starts(store: Store) -> None:
    """An event that comes after a shift has begun asks for another job: no wake-up is lost."""
    assert await woken(store) == 1
    await store.claim(10, shift_starts=True)
    assert await woken(store) == 1
    await store.claim(10)
    assert await woken(store) == 0


async def test_wake_marker_is_not_won_while_enough_jobs_wait(store: Store, redis: Redis) -> None:
    """No job is added while twice as many wait as there are workers."""
    client: Any = redis
    await client.sadd(store.keys.workers, "rq:worker:a", "rq:worker:b")
    await client.rpush(store.keys.queue, *"abcd")
    assert await woken(store) == 0
    await client.lpop(store.keys.queue)
    assert await woken(store) == 1


async def test_shift_that_attends_is_told_and_no_job_is_asked_for(store: Store, redis: Redis) -> None:
    """While a shift hears the bell a burst of events is one ring; when it has left, an event asks for a job again."""
    bell, rings = Bell(redis), list[int]()
    await store.claim(10, shift_starts=True, attended_ms=1500)
    assert sum([await woken(store, n) for n in range(50)]) == 0
    listening = asyncio.ensure_future(bell.listen(lambda: rings.append(1)))
    await asyncio.sleep(0.1)
    assert rings == [1]
    await woken(store)
    await asyncio.sleep(0.1)
    assert rings == [1, 1]
    await end({listening})
    await bell.leave()
    assert await woken(store) == 1


async def test_next_shift_is_asked_for_where_something_is_due_soon_and_no_job_waits(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """A shift hands over to the next one for what is to come; a job that waits already is that."""
    keys, client = store.keys, redis
    pulse = partial(
        Scripts(client).call, "pulse", [keys.due, keys.wake, keys.queue, keys.workers, keys.service], [hand(), -10_000]
    )
    assert (await pulse())[0] == 0
    await client.zadd(keys.due, {"c:cu-1:v-1": hand() + 9000})
    await client.rpush(keys.queue, "a job")
    assert (await pulse())[0] == 0
    await client.delete(keys.queue)
    assert (await pulse())[0] == 1


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
