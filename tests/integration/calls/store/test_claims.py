"""Claims, fenced writes and due times, on a Redis in this process and on a real one."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from math import inf
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import LEASE, ClaimedItem, LostWrites, Placement, WriteRefused, instant
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Listed, Merged, Note, Pushed, Statement, Unlisted, Verified, encode_note, parse_note
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Call, Names, Plan
from callkeeper.calls.record_storage import encode_call, parse_call
from callkeeper.calls.store.claims import FARTHEST_MS, LONGEST_WAIT_MS, Store
from callkeeper.calls.store.keys import KEPT_S, Keys
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.script import ScriptName
from callkeeper.calls.store.script_runner import Scripts
from callkeeper.calls.trail import Entry
from tests.integration.calls.hand import Hand
from tests.sandbox_fixtures import START
from workers.claimed_call import FORGET

A, B = CallId("cu-1", "v-1"), CallId("cu-1", "v-2")


def record_of(call_id: CallId, *, checks: int = 0) -> Call:
    """Return a record that has spent some checks."""
    return Call(institution_key=call_id.institution_key, voice_id=call_id.voice_id, plan=Plan(checks_used=checks))


RECORD = encode_call(Call(institution_key="cu-1", voice_id="v-1"))
NEWER = encode_call(Call(institution_key="cu-1", voice_id="v-1", plan=Plan(checks_used=3)))
LINE = Entry(at=START, what="read")
HINT = Pushed(has_ended=False, event_id="ev-1", received_at=START)
NEWER_HINT = Pushed(has_ended=False, event_id="ev-2", received_at=START)
LISTED = Listed(listed_at=START)
WORD = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=START, wish="a" * 32)


class Twice(Scripts):
    """Scripts whose answer is lost every time: the client runs each one twice and sees the second answer."""

    async def call(self, name: ScriptName, /, **given: Any) -> Any:
        """Run a script twice."""
        await super().call(name, **given)
        return await super().call(name, **given)


async def claim(store: Store) -> ClaimedItem:
    """Claim the one member that is due."""
    [item] = await store.claim(10)
    return item


def said(item: ClaimedItem) -> list[Note]:
    """Return the notes that a claim found, without the numbers that Redis gave."""
    notes = map(parse_note, item.notes.values())
    return [replace(note, number=0) if isinstance(note, Statement) else note for note in notes]


async def live(store: Store, call_id: CallId = A, due_in_ms: int = 0) -> None:
    """Store a live call."""
    await store.note(call_id, HINT)
    item = await claim(store)
    await store.save(item, RECORD, Placement(due_in_ms, listed="live"))


async def dump(redis: Redis) -> dict[bytes, Any]:
    """Return everything that is stored."""
    client: Any = redis
    stored: dict[bytes, Any] = {}
    for key in sorted(await client.keys("ck:2:*")):
        match await client.type(key):
            case b"hash":
                stored[key] = await client.hgetall(key)
            case b"zset":
                stored[key] = await client.zrange(key, 0, -1, withscores=True)
            case b"list":
                stored[key] = await client.lrange(key, 0, -1)
            case b"string":
                stored[key] = await client.get(key)
            case b"stream":
                stored[key] = await client.xlen(key)
            case b"set":
                stored[key] = await client.smembers(key)
            case b"none":
                continue  # it has just expired
            case kind:
                raise AssertionError(kind)
    return stored


async def test_claim_gives_a_member_to_one_claimer(store: Store, redis: Redis, hand: Hand) -> None:
    """Each due call is claimed by one worker only, however many claim at once (C8)."""
    for n in range(20):
        await store.note(CallId("cu-1", f"v-{n}"), HINT)
    others = [Store(redis, now_ms=hand) for _ in range(5)]
    claims = await asyncio.gather(*(other.claim(7) for other in others))
    members = [item.member for held_by_one in claims for item in held_by_one]
    assert len(members) == len(set(members)) == 20
    assert len({item.nonce for held_by_one in claims for item in held_by_one}) == 20
    epochs = [item.epoch for held_by_one in claims for item in held_by_one]
    assert {(epoch.lost, epoch.is_replaced) for epoch in epochs} == {(None, False)}


async def test_claim_of_a_new_call_has_spent_nothing(store: Store) -> None:
    """Its first step has not failed before, and all checks are left."""
    await store.note(A, HINT)
    item = await claim(store)
    assert (item.checks, item.failures, item.record) == (0, 0, b"")


@pytest.mark.parametrize(("stored", "is_erased", "unnamed"), [("1", True, set()), ('["p-1"]', False, {"p-1"})])
async def test_claim_says_what_was_erased_of_a_call(
    store: Store, redis: Redis, stored: str, is_erased: bool, unnamed: set[str]
) -> None:
    """All of the caller, or names of others, so that no later move brings it back."""
    await live(store)
    await redis.hset(store.keys.item(A.member), "erased", stored)
    item = await claim(store)
    assert (item.is_erased, set(item.unnamed)) == (is_erased, unnamed)


async def test_claim_holds_for_the_lease_and_no_longer(store: Store, hand: Hand) -> None:
    """A dead worker's call is due again when its lease has ended."""
    await store.note(A, HINT)
    await claim(store)
    hand.ms += LEASE.ms - 1
    assert await store.claim(10) == []
    hand.ms += 1
    assert [item.member for item in await store.claim(10)] == [A.member]


async def test_claim_says_when_the_next_member_is_due(store: Store) -> None:
    """A worker knows how long it may wait: until the lease of what it claimed ends, or for ever."""
    await store.claim(1)
    assert store.next_due_s == inf
    await store.note(A, HINT)
    await store.claim(1)
    assert store.next_due_s == LEASE.ms / 1000


async def test_process_that_has_claimed_is_forgotten_in_time(store: Store, redis: Redis) -> None:
    """Every process has a name of its own, so the names would add up."""
    await store.claim(1)
    assert await redis.ttl(store.keys.claimer(store._claimer)) > 0


async def test_claim_says_how_late_it_is(store: Store, hand: Hand) -> None:
    """A claim returns how late workers are: with calls of other institutions only if those of two are late."""
    calls = [CallId(institution_key, f"v-{n}") for n, institution_key in enumerate(("a", "a", "b", "c"))]
    due_in_ms = dict(zip(calls, (1000, 1700, 1300, 1600), strict=True))
    for call_id, wait_ms in due_in_ms.items():
        await live(store, call_id, wait_ms)
    hand.ms += 1700
    late_ms = {item.owner: item.late // timedelta(milliseconds=1) for item in await store.claim(10)}
    assert late_ms == dict(zip(calls, (700, 700, 400, 400), strict=True))


async def test_claim_with_one_late_institution_delays_no_other(store: Store, hand: Hand) -> None:
    """If only one institution's calls are late, the others' are not."""
    for call_id, wait_ms in ((A, 100), (CallId("cu-2", "v-3"), 1700)):
        await live(store, call_id, wait_ms)
    hand.ms += 1700
    assert [item.late.total_seconds() for item in await store.claim(10)] == [1.6, 0.0]


LATE: dict[str, Callable[[Store, ClaimedItem], Awaitable[object]]] = {
    "keep": lambda store, item: store.keep(item, NEWER, entries=[LINE], book_check=1),
    "save": lambda store, item: store.save(item, NEWER, Placement(0), entries=[LINE]),
    "merge": lambda store, item: store.merge(item, record_of(A, checks=0), B),
}


@pytest.mark.parametrize("write", LATE.values(), ids=LATE)
async def test_writes_of_a_former_holder_are_refused(
    store: Store, redis: Redis, hand: Hand, write: Callable[[Store, ClaimedItem], Awaitable[object]]
) -> None:
    """After another worker has claimed a call, all writes of the former one are refused (C18)."""
    await live(store)
    frozen = await claim(store)
    hand.ms += LEASE.ms
    await claim(store)
    before = await dump(redis)
    with pytest.raises(WriteRefused):
        await write(store, frozen)
    assert await dump(redis) == before


async def test_keep_renews_the_lease(store: Store, hand: Hand) -> None:
    """A booking makes the lease as long again as a request may take."""
    await store.note(A, HINT)
    item = await claim(store)
    hand.ms += LEASE.ms - 10
    await store.keep(item, RECORD)
    hand.ms += LEASE.ms - 1
    assert await store.claim(10) == []


async def test_keep_refuses_to_book_over_an_unread_note(store: Store, redis: Redis) -> None:
    """An effect is not booked while a note is unread, and the refusal writes nothing."""
    await live(store)
    item = await claim(store)
    await store.note(A, WORD)
    before = without_nonces(await dump(redis))
    with pytest.raises(WriteRefused, match="notes"):
        await store.keep(item, NEWER, only_if_no_notes=True, entries=[LINE])
    assert without_nonces(await dump(redis)) == before
    await store.keep(item, NEWER)


async def test_keep_refuses_a_booking_on_a_wrong_count(store: Store, redis: Redis) -> None:
    """Two workers that count the same number of checks can book only one, because the count is compared (C14)."""
    await live(store)
    item = await claim(store)
    await redis.hset(store.keys.item(A.member), "checks", "5")
    with pytest.raises(WriteRefused, match="checks"):
        await store.keep(item, NEWER, book_check=1)
    assert await redis.hget(store.keys.item(A.member), "checks") == b"5"


async def test_note_replaced_meanwhile_survives_the_old_fold(store: Store, redis: Redis) -> None:
    """A note of the same kind that came after the claim is not removed with the one that was folded."""
    await store.note(A, HINT)
    item = await claim(store)
    await store.note(A, NEWER_HINT)
    await store.save(item, RECORD, Placement(5000, listed="live"))
    again = await claim(store)
    assert list(again.notes.values()) == [encode_note(NEWER_HINT)]


async def test_note_unread_makes_a_saved_call_due_at_once(store: Store) -> None:
    """A note that came while a call was moved is read as soon as it is let go, however far the next step is."""
    await live(store)
    item = await claim(store)
    await store.note(A, WORD)
    assert await store.claim(10) == [], "still held"
    await store.save(item, RECORD, Placement(50_000, listed="live"))
    assert said(await claim(store)) == [WORD]


async def test_save_by_itself_counts_no_check(store: Store) -> None:
    """Only a booking spends one, or a record that knows of more."""
    await live(store)
    assert (await claim(store)).checks == 0


async def test_worker_is_told_when_something_is_due(redis: Redis, hand: Hand) -> None:
    """After a save that is when the call is due, or at once if a note came meanwhile: the worker claims again then."""
    told: list[float] = []
    store = Store(redis, now_ms=hand, due_in=told.append)
    await live(store, due_in_ms=2_000)
    assert told[-1] == 2.0
    hand.ms += 2_000
    item = await claim(store)
    assert told[-1] == LEASE.seconds
    await store.note(A, NEWER_HINT)
    await store.save(item, RECORD, Placement(2_000, listed="live"))
    assert told[-1] == 0.0
    await store.note(B, HINT)
    told.clear()
    await store.claim(1)
    assert told == [0.0], "the other one is due"


async def test_save_without_entries_tells_nobody(redis: Redis, hand: Hand) -> None:
    """Neither those who follow the stream of changes nor the delivery of outcomes."""
    outbox = Keys().outbox
    store = Store(redis, now_ms=hand, outbox=outbox)
    await live(store)
    assert await redis.exists(store.keys.changes, outbox.due) == 0


async def test_note_does_not_hurry_a_failed_step(store: Store, hand: Hand) -> None:
    """A failed step waits before it is tried again, also with unread notes."""
    await live(store)
    item = await claim(store)
    await store.note(A, WORD)
    await store.save(item, None, Placement(2000), failures=1)
    assert await store.claim(10) == []
    hand.ms += 2000
    again = await claim(store)
    assert (again.failures, said(again)) == (1, [WORD])


async def test_note_for_a_settled_call_is_refused_unless_meant_for_one(store: Store) -> None:
    """Hints do not reopen a settled call, but a person's statement reaches it."""
    await live(store)
    await store.save(await claim(store), RECORD, Placement(None, listed="settled"))
    assert (await store.note(A, HINT))[0] is False
    assert await store.claim(10) == []
    assert (await store.note(A, WORD, even_settled=True))[0] is True
    assert (await claim(store)).member == A.member


async def test_call_that_the_queue_lists_after_all_takes_hints_again(store: Store) -> None:
    """It was settled because the service never showed it. From the listing on it is a live call, before it is claimed."""
    await live(store)
    await store.save(await claim(store), RECORD, Placement(None, listed="unconfirmed"))
    assert [(await store.note(A, note))[0] for note in (HINT, LISTED, HINT)] == [False, True, True]


@pytest.mark.parametrize("listed", ["settled", "unconfirmed", "lost"])
async def test_call_that_is_settled_expires_until_it_is_opened_again(
    store: Store, redis: Redis, listed: Literal["settled", "unconfirmed", "lost"]
) -> None:
    """Whatever it is settled as. Afterwards it is a live call like any other."""
    keys = store.keys
    item, trail = keys.item(A.member), keys.trail(A.member)
    await live(store)
    await store.save(await claim(store), RECORD, Placement(None, listed=listed), entries=[LINE])
    assert [0 < await redis.ttl(key) <= KEPT_S for key in (item, trail)] == [True, True]
    assert [await redis.zcard(keys.live), await redis.zcard(keys.settled)] == [0, 1]
    await store.note(A, WORD, even_settled=True)
    await store.save(await claim(store), RECORD, Placement(0, listed="live"))
    assert [await redis.ttl(item), await redis.ttl(trail)] == [-1, -1]
    assert [await redis.zcard(keys.live), await redis.zcard(keys.settled)] == [1, 0]
    assert not await redis.hexists(item, "settled")


@pytest.mark.parametrize("state", ["claimed", "noted", ""])
async def test_tidy_lets_expire_what_nobody_will_save(store: Store, redis: Redis, hand: Hand, state: str) -> None:
    """What was settled under a longer setting expires, unless it is saved soon, under the lower one."""
    await live(store)
    await store.save(await claim(store), RECORD, Placement(None, listed="settled"))
    if state:
        await store.note(A, WORD, even_settled=True)
    if state == "claimed":
        await claim(store)
        await redis.delete(store.keys.inbox(A.member))
    hand.ms += 61_000
    await Store(redis, kept_s=60, now_ms=hand).tidy()
    assert (await redis.ttl(store.keys.item(A.member)) > 1) == (state in {"claimed", "noted"})
    assert await redis.zcard(store.keys.settled) == 0


async def test_save_counts_checks_up_and_never_down(store: Store) -> None:
    """What was booked meanwhile counts."""
    await live(store)
    for checks, booked in ((1, 1), (4, 4), (2, 4)):
        await store.save(await claim(store), RECORD, Placement(0), checks=checks)
        item = await claim(store)
        assert item.checks == booked
        await store.save(item, RECORD, Placement(0))


async def test_save_appends_entries_and_no_notes(store: Store, redis: Redis) -> None:
    """However many notes were folded."""
    for note in (HINT, WORD, LISTED):
        await store.note(A, note)
    await store.save(await claim(store), RECORD, Placement(0, listed="live"), entries=[LINE])
    assert await redis.llen(store.keys.trail(A.member)) == 1


async def test_save_keeps_the_entry_that_the_queue_is_expected_to_have(store: Store, redis: Redis) -> None:
    """Of a call that the queue lists."""
    opened = store.keys.opened("cu-1")
    await live(store)
    await store.save(await claim(store), RECORD, Placement(0, listed="live", entry="print"))
    assert not await redis.exists(opened)
    await redis.hset(opened, A.voice_id, "")
    await store.save(await claim(store), RECORD, Placement(0, listed="live", entry="print"))
    assert await redis.hget(opened, A.voice_id) == b"print"


async def test_note_for_a_forgotten_call_begins_anew(store: Store, redis: Redis) -> None:
    """A hint that is dropped while another note comes is not forgotten: the note is read by the next claim."""
    await store.note(A, HINT)
    item = await claim(store)
    await store.note(A, Unlisted(listed_at=START))
    await store.save(item, FORGET, Placement(None))
    again = await claim(store)
    assert (again.record, list(again.notes)) == (b"", [b"unlisted"])


async def test_save_that_forgets_leaves_nothing(store: Store, redis: Redis) -> None:
    """A dropped hint leaves its trail for a day, that it went in the stream of changes, and which Redis this is."""
    await store.note(A, HINT)
    await store.save(await claim(store), FORGET, Placement(None), entries=[LINE])
    keys = store.keys
    stored = [key.decode() for key in without_nonces(await dump(redis))]
    assert stored == [keys.changes, keys.epoch, keys.trail(A.member)]
    assert 0 < await redis.ttl(store.keys.trail(A.member)) <= 86_400


async def test_due_times_from_before_the_clock_went_back_are_repaired(store: Store, redis: Redis, hand: Hand) -> None:
    """A call due in an hour was due before Redis's clock was set back: it is claimed now (C19)."""
    await live(store, due_in_ms=5000)
    hand.ms -= 3_600_000
    assert (await claim(store)).member == A.member
    assert LONGEST_WAIT_MS < FARTHEST_MS, "no legal due time looks like one from another time"
    await store.note(B, HINT)
    await redis.zadd(store.keys.due, {B.member: hand.ms + 120_000})
    assert await store.claim(10) == []
    await redis.zadd(store.keys.due, {B.member: hand.ms + 120_001})
    assert (await claim(store)).member == B.member


async def test_clock_that_goes_back_a_little_makes_calls_due(store: Store, hand: Hand) -> None:
    """Redis's clock goes back by half a minute: a call is claimed when it would have been, or earlier, not later.

    A second is no step: two processors of one server may differ.
    """
    await live(store, due_in_ms=5000)
    await store.claim(10)  # a worker saw the clock before
    hand.ms -= 1000
    assert await store.claim(10) == []
    hand.ms -= 1001
    assert (await claim(store)).member == A.member


async def test_keep_writes_record_and_trail_and_removes_what_it_folded(store: Store, redis: Redis, hand: Hand) -> None:
    """A note that came since the claim stays for the next one."""
    await store.note(A, HINT)
    item = await claim(store)
    await store.note(A, WORD)
    await store.keep(item, NEWER, entries=[LINE, LINE])
    assert await redis.llen(store.keys.trail(A.member)) == 2
    hand.ms += LEASE.ms
    again = await claim(store)
    assert (again.record, said(again)) == (NEWER, [WORD])


@pytest.mark.parametrize("paused", [PauseScope.EFFECTS, PauseScope.ALL])
@pytest.mark.parametrize("asked", [None, PauseScope.EFFECTS, PauseScope.ALL])
async def test_keep_is_refused_under_a_pause_that_covers_it(
    store: Store, redis: Redis, paused: PauseScope, asked: PauseScope | None
) -> None:
    """An effect is not booked under either, a check not while everything is paused."""
    await live(store)
    item = await claim(store)
    await Pausing(redis).pause("cu-1", Pause(scope=paused, operator="ann", because="x", at=START))
    is_covered = asked is PauseScope.EFFECTS or (asked is PauseScope.ALL and paused is PauseScope.ALL)
    with pytest.raises(WriteRefused, match="paused") if is_covered else nullcontext():
        await store.keep(item, NEWER, unless_paused=asked)


@pytest.mark.parametrize("back_ms", [30_000, 600_000])
async def test_clock_that_goes_back_ends_no_lease(store: Store, hand: Hand, back_ms: int) -> None:
    """A held call is not claimed by a second worker because Redis's clock went back, and is after one lease."""
    await live(store)
    held = await claim(store)
    hand.ms -= back_ms
    assert await store.claim(10) == []
    hand.ms += store.lease.ms - 1
    await store.keep(held, RECORD)
    assert await store.claim(10) == []
    hand.ms += store.lease.ms + 1
    assert (await claim(store)).member == A.member


async def test_due_names_without_a_record_are_removed(store: Store, redis: Redis) -> None:
    """A member of the due set without a record and notes is removed."""
    await redis.zadd(store.keys.due, {A.member: 0, "somebody else's": 0})
    assert await store.claim(10) == []
    assert await redis.zcard(store.keys.due) == 0


async def test_save_never_lets_a_call_wait_longer_than_a_minute(store: Store, hand: Hand) -> None:
    """A live call is claimed at least once a minute."""
    await live(store, due_in_ms=10_000_000)
    hand.ms += LONGEST_WAIT_MS
    assert (await claim(store)).member == A.member


WRITES = ("note", "claim", "keep", "book", "save", "forget", "fail", "merge")


@pytest.mark.parametrize("write", WRITES)
async def test_script_run_twice_leaves_the_state_of_once(redis: Redis, hand: Hand, write: str) -> None:
    """Every script that the client repeats, because its answer was lost, changes nothing and answers the same (C14)."""
    once, twice = [await _written(redis, hand, write, twice=twice) for twice in (False, True)]
    assert twice == once


async def _written(redis: Redis, hand: Hand, write: str, *, twice: bool) -> dict[bytes, Any]:
    client: Any = redis
    await client.flushdb()
    store = Store(redis, now_ms=hand)
    store._claimer = "claimer"
    await live(store)
    item = None if write in {"note", "claim"} else await claim(store)
    await store.note(A, NEWER_HINT)
    store._scripts = Twice(redis, keys=store.keys, now_ms=hand) if twice else store._scripts
    match write, item:
        case "note", _:
            await store.note(A, WORD)
        case "claim", _:
            assert len(await store.claim(10)) == 1
        case "keep", ClaimedItem():
            await store.keep(item, NEWER, entries=[LINE])
        case "book", ClaimedItem():
            await store.keep(item, NEWER, entries=[LINE], book_check=1)
            await store.keep(item, NEWER, entries=[LINE], book_check=2)
        case "save", ClaimedItem():
            await store.save(item, NEWER, Placement(50, listed="settled", attention="look"), entries=[LINE], checks=4)
        case "forget", ClaimedItem():
            item.notes = dict((await client.hgetall(store.keys.inbox(A.member))).items())
            await store.save(item, FORGET, Placement(None), entries=[LINE])
        case "fail", ClaimedItem():
            await store.save(item, None, Placement(4000), failures=2)
        case _, ClaimedItem():
            await store.merge(item, record_of(A, checks=2), B)
    return without_nonces(await dump(redis))


def without_nonces(stored: dict[bytes, Any]) -> dict[bytes, Any]:
    """Leave out who writes, and how often that was: it is drawn by lot."""
    drawn = {b"nonce", b"saved", b"kept"}
    return {
        key: {k: v for k, v in value.items() if k not in drawn} if isinstance(value, dict) else value
        for key, value in stored.items()
        if b":claimer:" not in key
    }


async def test_save_of_an_earlier_claim_repeated_late_changes_nothing(store: Store, redis: Redis) -> None:
    """A repetition that arrives after somebody else has claimed neither writes nor frees the member."""
    await live(store)
    first = await claim(store)
    await store.save(first, NEWER, Placement(0, listed="live"))
    second = await claim(store)
    before = await dump(redis)
    await store.save(first, RECORD, Placement(0, listed="live"), entries=[LINE])
    assert await dump(redis) == before
    await store.keep(second, NEWER)


async def test_merge_adds_checks_and_carries_notes_and_trail(store: Store, redis: Redis) -> None:
    """The record that goes on has both budgets' checks, the other's notes and its trail (B11)."""
    await live(store, B, 60_000)
    await redis.hset(store.keys.item(B.member), "checks", "4")
    await live(store, A)
    item = await claim(store)
    await store.keep(item, RECORD, entries=[LINE])
    await store.note(A, WORD)
    call = record_of(A, checks=3)
    note = encode_note(Merged(call=call))
    await store.merge(item, call, B)
    merged = await claim(store)
    assert (merged.member, merged.checks) == (B.member, 7)
    assert note in merged.notes.values()
    assert WORD in said(merged)
    assert len(await redis.lrange(store.keys.trail(B.member), 0, -1)) == 1
    assert [await store.end_of(one) for one in (A, B)] == [B, B]


async def test_merge_never_counts_past_the_limit(store: Store, redis: Redis) -> None:
    """The merged number of checks is at most 20."""
    await live(store, B, 60_000)
    await redis.hset(store.keys.item(B.member), "checks", "15")
    await live(store, A)
    await store.merge(await claim(store), record_of(A, checks=12), B)
    assert await redis.hget(store.keys.item(B.member), "checks") == b"20"


async def test_merge_loses_nothing_of_either_record(store: Store, redis: Redis) -> None:
    """Both have an unread hint. The tombstone outlives the other record, which begins to expire later."""
    await live(store, A)
    item = await claim(store)
    await store.keep(item, RECORD, entries=[LINE, LINE, LINE])
    await store.note(A, HINT)
    await store.note(B, NEWER_HINT)
    await store.merge(item, record_of(A), B)
    assert await redis.llen(store.keys.trail(B.member)) == 3
    assert await redis.zscore(store.keys.live, A.member) is None
    assert await store.alias(A) == B.voice_id
    assert 0 < await redis.ttl(store.keys.trail(A.member)) <= KEPT_S
    assert KEPT_S < await redis.ttl(store.keys.item(A.member)) <= KEPT_S + 86_400
    read = said(await claim(store))
    assert [note for note in (HINT, NEWER_HINT) if note not in read] == []


@pytest.mark.parametrize(
    ("ours", "theirs", "whole", "unnamed"),
    [
        ("", '["p-2"]', False, {"p-2"}),
        ('["p-1"]', "", False, {"p-1"}),
        ('["p-1"]', '["p-2"]', False, {"p-1", "p-2"}),
        ('["p-1"]', "1", True, set()),
        ("1", '["p-2"]', True, set()),
    ],
)
async def test_merge_keeps_what_was_erased_of_either_record(
    store: Store, redis: Redis, ours: str, theirs: str, *, whole: bool, unnamed: set[str]
) -> None:
    """Different members may have been erased in the two records of a call."""
    await live(store, B, 60_000)
    await live(store, A)
    for call_id, erased in ((A, ours), (B, theirs)):
        if erased:
            await redis.hset(store.keys.item(call_id.member), "erased", erased)
    await store.merge(await claim(store), record_of(A, checks=0), B)
    item = await claim(store)
    assert (item.member, item.is_erased, set(item.unnamed)) == (B.member, whole, unnamed)


async def test_merge_leaves_a_tombstone_that_forwards(store: Store, redis: Redis) -> None:
    """Notes to the old id reach the merged record."""
    await live(store, A)
    await store.merge(await claim(store), record_of(A, checks=0), B)
    await store.save(await claim(store), RECORD, Placement(None))
    await store.note(A, WORD)
    item = await claim(store)
    assert (item.member, said(item)) == (B.member, [WORD])


async def test_merged_record_that_the_queue_lists_after_all_follows_no_assign_again(store: Store, redis: Redis) -> None:
    """It is certainly a call of its own: without this it would be merged again after every look at the queue.

    Its checks are spent all the same, and its trail no longer expires.
    """
    await store.note(A, HINT)
    await store.save(await claim(store), RECORD, Placement(0, listed="live"), entries=[LINE])
    moved = replace(record_of(A, checks=3), names=Names(assigned_id="v-2", phone_number="5550100001"))
    await store.merge(await claim(store), moved, B)
    await store.save(await claim(store), RECORD, Placement(None))
    assert await redis.ttl(store.keys.trail(A.member)) > 0
    await store.note(A, LISTED)
    item = await claim(store)
    assert (item.checks, await redis.ttl(store.keys.trail(A.member))) == (3, -1)
    record = item.record
    assert record is not None
    assert parse_call(record).names == Names(is_confirmed=True, phone_number="5550100001")


async def test_call_that_goes_on_is_due_at_the_outbox_after_it_was_done_there(redis: Redis, hand: Hand) -> None:
    """A later line of its trail may be an outcome that must be delivered, such as what a person found out."""
    outbox = Keys().outbox
    calls, deliveries = Store(redis, now_ms=hand, outbox=outbox), Store(redis, now_ms=hand, keys=outbox)
    await calls.note(A, HINT)
    for _ in range(2):
        item = await claim(calls)
        await calls.save(item, RECORD, Placement(0, listed="live"), entries=[LINE])
        await deliveries.save(await claim(deliveries), b"{}", Placement(None, listed="settled"))


async def test_merge_is_refused_where_the_other_id_leads_back(store: Store, redis: Redis) -> None:
    """Two ids that name each other end in one record: what was merged into ours is not merged into again (B11)."""
    await live(store, A)
    assert await store.merge(await claim(store), record_of(A, checks=0), B)
    item = await claim(store)
    assert item.member == B.member
    await store.keep(item, RECORD)
    assert not await store.merge(item, record_of(B, checks=0), A)
    await store.save(item, NEWER, Placement(0))
    assert (await claim(store)).record == NEWER


async def test_merge_during_a_booking_refuses_the_booking(store: Store, hand: Hand) -> None:
    """A mover that counted before another record's checks were added does not book on the old count."""
    await live(store, B)
    mover = await claim(store)
    await live(store, A)
    await store.merge(await claim(store), record_of(A, checks=2), B)
    with pytest.raises(WriteRefused, match="checks"):
        await store.keep(mover, NEWER, book_check=1)


async def fail_over(redis: Redis) -> None:
    """Let the server be promoted: it keeps what it has, and has another replication id."""
    client: Any = redis
    await client.execute_command("REPLICAOF", "127.0.0.1", "1")
    await client.execute_command("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize("lose", [fail_over, Redis.flushall], ids=["promoted", "emptied"])
async def test_every_process_is_told_that_redis_holds_other_data(
    store: Store, redis: Redis, hand: Hand, lose: Callable[[Redis], Awaitable[object]]
) -> None:
    """Also one that starts later and knew no other, once one that did has claimed."""
    await live(store)
    assert not (await claim(store)).epoch.is_replaced
    await lose(redis)
    for process in (store, Store(redis, now_ms=hand)):
        hand.ms += LEASE.ms
        await store.note(A, HINT)
        assert (await claim(process)).epoch.is_replaced


async def test_redis_whose_clock_went_back_is_known_since_then(store: Store, hand: Hand) -> None:
    """Effects wait a while for a Redis that is new. They must not wait anew with each claim until its old time comes."""
    await live(store)
    hand.ms -= 3_600_000
    known_since = (await claim(store)).epoch.first_claimed_at
    assert known_since == instant(hand.ms)
    hand.ms += LEASE.ms
    assert (await claim(store)).epoch.first_claimed_at == known_since


async def test_claim_after_a_failover_says_in_which_time_writes_were_lost(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """Lost can be what was written between the last claim that is known and the first claim of the new Redis (C15)."""
    await live(store)
    last_ms = hand.ms
    await fail_over(redis)
    hand.ms += 1500
    item = await claim(Store(redis, now_ms=hand))
    assert item.lost == LostWrites(instant(last_ms), instant(hand.ms))
    assert (item.epoch.lost, item.epoch.is_replaced) == (timedelta(seconds=1.5), True)


@pytest.mark.parametrize("ahead_s", [-3600, -1, 0, 3, 3600])
async def test_claim_measures_lost_time_where_the_new_clock_differs(redis: Redis, hand: Hand, ahead_s: int) -> None:
    """Clocks of two servers may differ by hours: a process that was there before says how much time has passed.

    Ahead by up to the 5 s in which a Redis client may repeat a claim, the new clock is believed.
    """
    seconds = [0.0]
    store = Store(redis, now_ms=hand, monotonic=lambda: seconds[0])
    await live(store)
    last_ms = hand.ms
    await fail_over(redis)
    seconds[0] += 2
    hand.ms += 2000 + 1000 * ahead_s
    await redis.zadd(store.keys.due, {A.member: 0})
    item = await claim(store)
    assert item.lost == LostWrites(instant(last_ms), instant(last_ms + 2000 + 1000 * max(0, min(ahead_s, 5))))


async def test_claim_by_a_new_process_under_a_clock_that_is_behind_knows_no_end(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """A process that was not there before cannot tell how long the lost time was if the clock went back."""
    await live(store)
    await fail_over(redis)
    hand.ms -= 3_600_000
    assert (await claim(Store(redis, now_ms=hand))).lost == LostWrites(None, None)


async def test_claim_after_two_failovers_knows_only_the_end(store: Store, redis: Redis, hand: Hand) -> None:
    """A record that nobody claimed between two failovers may miss writes from before the first."""
    await live(store)
    await fail_over(redis)
    assert await store.claim(0) == []
    await fail_over(redis)
    item = await claim(store)
    assert item.lost == LostWrites(None, instant(hand.ms))


@pytest.mark.parametrize("write", ["save", "keep"])
async def test_claim_says_so_until_a_record_was_written(store: Store, redis: Redis, hand: Hand, write: str) -> None:
    """A worker that dies between taking over and writing leaves the next one what it has to know."""
    await live(store)
    await fail_over(redis)
    first = await claim(store)
    hand.ms += LEASE.ms
    again = await claim(store)
    assert again.lost is not None
    assert again.lost == first.lost
    if write == "save":
        await store.save(again, NEWER, Placement(0, listed="live"))
    else:
        await store.keep(again, NEWER)
        hand.ms += LEASE.ms
    assert (await claim(store)).lost is None


async def test_claim_does_not_outlive_the_redis_that_gave_it(store: Store, redis: Redis) -> None:
    """After a failover, a holder's writes are refused, because a rollback may have restored an old nonce (C15, C18)."""
    await live(store)
    item = await claim(store)
    await fail_over(redis)
    before = await dump(redis)
    for write in LATE.values():
        with pytest.raises(WriteRefused):
            await write(store, item)
    assert await dump(redis) == before


async def test_epoch_changes_with_a_restart_and_with_a_promotion(redis_url: str) -> None:
    """A restarted server has another run id, one that was promoted again has another replication id (C4, C15)."""
    async with Redis.from_url(redis_url) as redis:
        client: Any = redis
        store = Store(redis)
        await store.note(A, HINT)
        before = (await claim(store)).epoch.id
        assert before.split("/")[0] == (await client.info("server"))["run_id"]
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        await client.execute_command("REPLICAOF", "NO", "ONE")
        await store.note(B, HINT)
        assert (await claim(store)).epoch.id != before
