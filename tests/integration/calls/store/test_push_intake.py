"""What a recorded push leaves in a real Redis."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.notes import Pushed, parse_note
from callkeeper.calls.settlement import CONFIRM_LOOKS_S
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys, Retention
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import PushEvent
from tests.integration.calls.hand import Hand
from tests.integration.calls.store.test_claims import RECORD, A, claim, live

KEYS, INSTITUTION = Keys(), institution_member("cu-1")


@pytest.fixture
def intake(redis: Redis, hand: Hand) -> Intake:
    """Return an intake that keeps three events, for a minute."""
    return Intake(redis, retention=Retention(events=3, calls_s=60), now_ms=hand, within_s=60.0)


def event(*, voice_id: str | None = "v-1", alternate: str | None = None, is_test: bool | None = None) -> PushEvent:
    """Return the event that a call has started."""
    return PushEvent(
        type="CallStart", institution_key="cu-1", voice_id=voice_id, alternate_voice_id=alternate, is_test=is_test
    )


async def test_event_of_a_known_call_makes_it_due_at_once(store: Store, redis: Any, hand: Hand, intake: Intake) -> None:
    """One of an unknown call waits for the look at its queue. Both are dated by Redis's clock."""
    await live(store, due_in_ms=5000)
    assert await intake.record(event(), event_id="ev-1")
    await intake.record(event(voice_id="v-2"), event_id="ev-2")
    due = {name.decode(): int(at) - hand.ms for name, at in await redis.zrange(KEYS.due, 0, -1, withscores=True)}
    assert due == {A.member: 0, CallId("cu-1", "v-2").member: CONFIRM_LOOKS_S[0] * 1000, INSTITUTION: 0}
    [note] = (parse_note(each) for each in await redis.hvals(KEYS.inbox(A.member)))
    assert isinstance(note, Pushed)
    assert note.recorded_ms == hand.ms


async def test_event_of_a_settled_call_leaves_it_settled(store: Store, redis: Any, intake: Intake) -> None:
    """Only the queue is looked at."""
    await live(store)
    await store.save(await claim(store), RECORD, Placement(None, listed="settled"))
    await intake.record(event(), event_id="ev-1")
    assert await redis.zrange(KEYS.due, 0, -1) == [INSTITUTION.encode()]


async def test_alternate_id_alone_leads_to_the_call_that_it_was_pushed_with(
    store: Store, redis: Any, intake: Intake
) -> None:
    """For a day. One that was never pushed with another id is an id of its own."""
    told: list[tuple[str | None, str | None, set[str]]] = [
        ("v-1", "alt-1", {"v-1"}),
        (None, "alt-1", {"v-1"}),
        (None, "alt-2", {"v-1", "alt-2"}),
        ("alt-1", None, {"v-1", "alt-2", "alt-1"}),  # named as the id of a call
    ]
    for number, (voice_id, alternate, calls) in enumerate(told):
        await intake.record(event(voice_id=voice_id, alternate=alternate), event_id=f"ev-{number}")
        due = {name.decode() for name in await redis.zrange(KEYS.due, 0, -1)}
        assert due == {INSTITUTION, *(CallId("cu-1", name).member for name in calls)}
    assert await store.alias(CallId("cu-1", "alt-1")) == "v-1"
    assert await store.alias(CallId("cu-1", "alt-2")) is None
    assert 0 < await redis.ttl(KEYS.alias("cu-1", "alt-1")) <= 86_400


async def test_sample_is_remembered_and_wakes_nobody(redis: Any, intake: Intake) -> None:
    """It shows for a week that the header works. An event is none."""
    assert not await intake.record(event(is_test=True), event_id="ev-1")
    assert await redis.zcard(KEYS.due) == await redis.llen(KEYS.wakeup) == 0
    assert 0 < await redis.ttl(KEYS.sample("cu-1")) <= 604_800
    await redis.delete(KEYS.sample("cu-1"))
    await intake.record(event(), event_id="ev-2")
    assert not await redis.exists(KEYS.sample("cu-1"))


async def test_log_of_events_has_no_whole_phone_number(redis: Any, intake: Intake) -> None:
    """Nor a type of any length. It tells a sample from an event."""
    sample = PushEvent(type="T" * 50, institution_key="cu-1", phone_number="5550100001", is_test=True)
    await intake.record(sample, event_id="ev-1")
    await intake.record(event(), event_id="ev-2")
    assert [json.loads(line) for line in await redis.zrange(KEYS.events, 0, -1)] == [
        {"id": "ev-1", "type": "T" * 40, "institution_key": "cu-1", "phone_last4": "0001", "is_test": True},
        {"id": "ev-2", "type": "CallStart", "institution_key": "cu-1", "voice_id": "v-1"},
    ]


async def test_event_of_an_erased_call_is_recorded_without_its_number(store: Store, redis: Any, intake: Intake) -> None:
    """Also under its alternate id, and if it is a sample or of an unknown type. Those of other calls keep theirs."""
    await live(store)
    await intake.record(event(alternate="alt-1"), event_id="ev-0")
    await redis.hset(KEYS.item(A.member), "erased", "1")
    await redis.hset(KEYS.item(CallId("cu-1", "alt-1").member), "erased", "1")
    unknown = replace(event(), type="CallTransferred")
    told = (event(), event(voice_id=None, alternate="alt-1"), event(is_test=True), unknown, event(voice_id="v-2"))
    for number, each in enumerate(told):
        await redis.delete(KEYS.inbox(A.member), KEYS.events)
        await intake.record(replace(each, phone_number="5550177123"), event_id=f"ev-{number}")
        [logged] = [json.loads(entry) for entry in await redis.zrange(KEYS.events, 0, -1)]
        assert (logged["id"], logged.get("phone_last4")) == (f"ev-{number}", "7123" if number == 4 else None)
        notes = [parse_note(note) for note in await redis.hvals(KEYS.inbox(A.member))]
        assert [(note.event_id, note.phone_number) for note in notes if isinstance(note, Pushed)] == (
            [(f"ev-{number}", None)] if number < 2 else []
        )
    await intake.record(replace(event(voice_id="v-3", alternate="alt-3"), phone_number="5550177123"), event_id="ev-5")
    await intake.record(replace(event(voice_id="v-4", alternate="alt-1"), phone_number="5550177123"), event_id="ev-6")
    for voice_id, phone in (("v-2", "5550177123"), ("v-3", "5550177123"), ("v-4", None)):
        [other] = [parse_note(note) for note in await redis.hvals(KEYS.inbox(CallId("cu-1", voice_id).member))]
        assert isinstance(other, Pushed)
        assert other.phone_number == phone, voice_id


async def test_log_of_events_is_bounded(redis: Any, hand: Hand, intake: Intake) -> None:
    """By number, and by age."""
    for n in range(5):
        hand.ms += 1000
        await intake.record(event(), event_id=f"ev-{n}")
    assert [b'"ev-%d"' % n in line for n, line in enumerate(await redis.zrange(KEYS.events, 0, -1), 2)] == [True] * 3
    hand.ms += 59_000
    await intake.record(event(), event_id="ev-5")
    assert [b'"ev-%d"' % n in line for n, line in enumerate(await redis.zrange(KEYS.events, 0, -1), 4)] == [True] * 2
