"""The inbox of a call: statements are numbered, and none of those that wait is left."""

import asyncio

import pytest
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import Placement, instant
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import MOST_WAITING, Distrusted, InboxFull, Pushed
from callkeeper.calls.store.claims import Store
from tests.harness.virtual_time import KEY, Rig
from tests.integration.calls.hand import Hand
from tests.integration.calls.test_statement_folding import WISHES, unassigned


async def test_numbers_of_statements_rise_without_their_counter(store: Store, redis: Redis, hand: Hand) -> None:
    """If the counter is lost, or Redis's clock goes back, a later statement still has the higher number."""
    call_id = CallId(KEY, "v-1")
    numbers = []
    for step_ms in (0, 5, -3_600_000):
        hand.ms += step_ms
        await store.note(call_id, Distrusted(operator="ann", said_at=instant(hand.ms), wish=next(WISHES)))
        numbers.append(int(await redis.get(store.keys.statements) or 0))
        if step_ms == 0:
            await redis.delete(store.keys.statements)
    assert numbers == sorted(set(numbers))


async def test_all_statements_that_wait_are_folded(rig: Rig) -> None:
    """As many statements as may wait for a call are folded and removed by its next move."""
    call = await unassigned(rig)
    said = [Distrusted(operator="ann", said_at=rig.clock.now, wish=next(WISHES)) for _ in range(MOST_WAITING)]
    await asyncio.gather(*(rig.note(call, statement) for statement in said))
    await rig.run(5)
    assert [line.what for line in await rig.trail(call)].count("said") == MOST_WAITING
    assert not await rig.redis.exists(rig.store.keys.inbox(CallId(KEY, call.voice_id).member))


async def test_full_inbox_accepts_no_further_statement(store: Store, redis: Redis) -> None:
    """One that waits already is accepted again, and notes that are no statements are accepted all the same."""
    call_id = CallId(KEY, "v-1")
    *said, further = [
        Distrusted(operator="ann", said_at=instant(1), wish=next(WISHES)) for _ in range(MOST_WAITING + 1)
    ]
    for statement in said:
        await store.note(call_id, statement)
    await redis.delete(*await redis.keys(store.keys.statement("*")))
    assert (await store.note(call_id, said[0]))[0]
    with pytest.raises(InboxFull):
        await store.note(call_id, further)
    assert (await store.note(call_id, Pushed(has_ended=False, event_id="ev-1", received_at=instant(1))))[0]


async def test_note_wakes_a_worker_only_if_it_was_accepted_and_is_to(store: Store, redis: Redis) -> None:
    """A job is enqueued for a note that asks for it, and not for one that a settled call refuses."""
    call_id, hint = CallId(KEY, "v-1"), Pushed(has_ended=False, event_id="ev-1", received_at=instant(1))
    assert await store.note(call_id, hint) == (True, False)
    assert await redis.llen(store.keys.wakeup) == 0
    assert await store.note(call_id, hint, wake=True) == (True, True)
    assert await redis.llen(store.keys.wakeup) == 1
    [item] = await store.claim(1)
    await store.save(item, b"{}", Placement(None, listed="settled"))
    await redis.delete(store.keys.wakeup, store.keys.wake)
    assert await store.note(call_id, hint, wake=True) == (False, False)
    assert await redis.llen(store.keys.wakeup) == 0


async def test_job_is_asked_for_once_a_second_until_a_shift_starts(store: Store, redis: Redis, hand: Hand) -> None:
    """Many notes ask for one job. A clock that was set back holds up none, nor a claim that begins no shift."""
    call_id, hint = CallId(KEY, "v-1"), Pushed(has_ended=False, event_id="ev-1", received_at=instant(1))
    asked = []
    for step_ms in (0, 0, 999, 1, -1):
        hand.ms += step_ms
        asked.append((await store.note(call_id, hint, wake=True))[1])
    assert asked == [True, False, False, True, True]
    await store.claim(0)
    assert (await store.note(call_id, hint, wake=True)) == (True, False)
    await store.claim(0, shift_starts=True)
    assert (await store.note(call_id, hint, wake=True)) == (True, True)
