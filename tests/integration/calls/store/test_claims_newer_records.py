"""A record or a note that a newer release wrote is left as it is, for a worker of that release."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select

from callkeeper.archive.database import Database
from callkeeper.archive.lines import content_of
from callkeeper.archive.tables import lines
from callkeeper.calls.claimed_item import Placement, WriteRefused
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.record_storage import NEWER, SCHEMA, NewerRecord, parse_call
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.archivist import Archivist
from tests.harness.courier import Courier
from tests.harness.virtual_time import KEY, Rig
from tests.integration.whole_calls.test_unreadable import noticed

KEYS = Keys()
END = Happening(Kind.END, 600)
LEFT = [Happening(Kind.GREEN, 60), END]


def newer(record: bytes, **changes: Any) -> bytes:
    """Return a record as a newer release may write it: with a phase that ours does not know."""
    return json.dumps({**json.loads(record), "schema": SCHEMA + 1, "phase": "teleported", **changes}).encode()


async def with_newer_record(rig: Rig) -> tuple[SandboxCall, str, bytes]:
    """Return a call that a newer release has saved, its member, and its record."""
    call = await rig.begin_call(*LEFT, run_s=15)
    member = rig.call_id(call).member
    stored = newer(await rig.redis.hget(KEYS.item(member), "rec"))
    await rig.redis.hset(KEYS.item(member), "rec", stored)
    return call, member, stored


async def a_minute_later(rig: Rig) -> SandboxCall:
    """Return a call that no newer worker has taken for a minute."""
    call, _, _ = await with_newer_record(rig)
    await rig.run(70)
    return call


async def handled_by_a_newer_worker(rig: Rig, member: str, record: bytes, due_in_ms: int | None) -> None:
    """Claim and save a member as a worker of the newer release does."""
    while True:
        for item in await rig.store.claim(100):
            if item.member == member:
                await rig.store.save(item, record, Placement(due_in_ms, listed="live"))
                return
            await rig.shift.handle(item)
        rig.stage.advance(0.25)


async def test_newer_record_is_left_for_a_newer_worker(rig: Rig) -> None:
    """Nothing is written or sent for it, no step fails, it is logged and counted once, and other calls go on."""
    call, member, stored = await with_newer_record(rig)
    sent, trail = rig.ledger(call), await rig.trail(call)
    await rig.push(call, "CallEnd")
    await rig.run(45)
    assert await rig.redis.hget(KEYS.item(member), "rec") == stored
    assert (rig.ledger(call), await rig.trail(call)) == (sent, trail)
    assert set(await rig.redis.hkeys(KEYS.inbox(member))) >= {b"push:end"}
    assert noticed(rig) == {"newer": 1}
    counted = await rig.counted()
    assert counted.count(figure.STORED_UNREADABLE) == 1
    assert counted.count(figure.STEPS_FAILED) == 0
    other = await rig.begin_call(END, run_s=5)
    assert rig.ledger(other)["assign"] == 1


async def test_newer_record_is_tried_again_soon_and_then_every_five_seconds(rig: Rig) -> None:
    """A newer worker gets it within half a second at first; an older one does not claim it all the time."""
    _, member, _ = await with_newer_record(rig)
    waits: list[float] = []
    while sum(waits) < 40:
        for item in await rig.store.claim(100):
            await rig.shift.handle(item)
            if item.member == member:
                due_ms = await rig.redis.zscore(KEYS.due, member)
                waits.append((due_ms - rig.now_ms()) / 1000)
        rig.stage.advance(0.25)
    assert waits[0] == 0.5
    assert max(waits) == 5


async def test_newer_worker_claims_what_was_left_at_once(rig: Rig) -> None:
    """A newer worker claims such a member at once, before it is due and before older workers."""
    _, member, stored = await with_newer_record(rig)
    await rig.run(30)
    assert await rig.redis.zscore(KEYS.left, member) == SCHEMA
    newer_store = Store(rig.redis, now_ms=rig.now_ms)
    newer_store.schema = SCHEMA + 1
    assert member not in {item.member for item in await rig.store.claim(100)}
    (item,) = [each for each in await newer_store.claim(100) if each.member == member]
    assert await rig.redis.exists(KEYS.left) == 0
    assert member not in {each.member for each in await newer_store.claim(100)}
    await newer_store.save(item, stored, Placement(1000))
    assert await rig.queries.attention() == {}


async def test_newer_record_needs_a_person_after_a_minute(rig: Rig) -> None:
    """The item in the attention list names the remedy, and ends when a newer worker has handled the call."""
    _, member, stored = await with_newer_record(rig)
    await rig.run(50)
    assert await rig.queries.attention() == {}
    await rig.run(20)
    assert await rig.queries.attention() == {member: NEWER}
    await handled_by_a_newer_worker(rig, member, stored, 1000)
    assert await rig.queries.attention() == {}
    await rig.run(50)
    assert await rig.queries.attention() == {}, "the minute begins anew"
    await rig.run(20)
    await handled_by_a_newer_worker(rig, member, b"-", None)
    await rig.redis.delete(KEYS.inbox(member))
    assert await rig.queries.attention() == {}


@pytest.mark.parametrize(
    "note",
    [
        {"type": "unheard_of", "said_at": "2027-01-01T00:00:00Z"},
        {"type": "merged", "call": {"institution_key": KEY, "voice_id": "v-0", "schema": SCHEMA + 1}},
        {
            "type": "merged",
            "call": {"institution_key": KEY, "voice_id": "v-0", "schema": SCHEMA + 1, "phase": "teleported"},
        },
    ],
    ids=["kind", "merged", "merged with an unknown phase"],
)
async def test_newer_note_leaves_its_call_for_a_newer_worker(rig: Rig, note: dict[str, Any]) -> None:
    """A note of an unknown kind, or one that holds a newer record, stays in the inbox, and no step fails."""
    call = await rig.begin_call(*LEFT, run_s=15)
    member = rig.call_id(call).member
    before = await rig.redis.hget(KEYS.item(member), "rec")
    await rig.redis.hset(KEYS.inbox(member), "later", json.dumps(note))
    await rig.run(70)
    assert await rig.redis.hget(KEYS.item(member), "rec") == before
    assert await rig.redis.hexists(KEYS.inbox(member), "later")
    assert await rig.queries.attention() == {member: NEWER}
    assert (await rig.counted()).count(figure.STEPS_FAILED) == 0


async def test_note_that_cannot_be_read_is_a_fault_of_its_call(rig: Rig) -> None:
    """A note of a known kind that has not our format is no newer release's: the call is parked."""
    call = await rig.begin_call(*LEFT, run_s=15)
    await rig.redis.hset(KEYS.inbox(rig.call_id(call).member), "later", b'{"type":"pushed"}')
    await rig.run(70)
    assert await rig.queries.attention() == {rig.call_id(call).member: "parked"}


async def test_late_release_of_a_newer_record_changes_nothing(rig: Rig) -> None:
    """Whoever has lost the claim makes nothing due and needs nobody; a repetition is answered as the first."""
    _, member, stored = await with_newer_record(rig)
    rig.stage.advance(5)
    (item,) = [each for each in await rig.store.claim(100) if each.member == member]
    await rig.store.leave(item)
    due = await rig.redis.zscore(KEYS.due, member)
    await rig.store.leave(item)
    assert await rig.redis.zscore(KEYS.due, member) == due
    with pytest.raises(WriteRefused):
        await rig.store.keep(item)
    await handled_by_a_newer_worker(rig, member, stored, 30_000)
    due = await rig.redis.zscore(KEYS.due, member)
    await rig.store.leave(item)
    assert await rig.redis.zscore(KEYS.due, member) == due


async def test_newer_fields_survive_a_save(rig: Rig) -> None:
    """A field of the record that this release does not know is still there after it has handled the call."""
    call = await rig.begin_call(*LEFT, run_s=15)
    item = KEYS.item(rig.call_id(call).member)
    invented = {"since": "2027-01-01", "numbers": [1, 2.50, 3], "name": "äöü\n"}
    record = {**json.loads(await rig.redis.hget(item, "rec")), "invented_later": invented}
    await rig.redis.hset(item, "rec", json.dumps(record))
    await rig.run(60)
    stored = json.loads(await rig.redis.hget(item, "rec"))
    assert stored["saved_at"] > record["saved_at"]
    assert stored["invented_later"] == invented
    assert stored.keys() >= record.keys() - {"held_back"}


async def test_newer_fields_are_not_archived(rig: Rig) -> None:
    """They may be personal, and this release could not erase them."""
    call = await rig.begin_call(*LEFT, run_s=15)
    record = json.loads(await rig.redis.hget(KEYS.item(rig.call_id(call).member), "rec"))
    known = parse_call(json.dumps({**record, "invented_later": "Ann Smith"}).encode())
    assert "Ann Smith" not in content_of(known, await rig.trail(call)).body


async def test_newer_record_is_left_out_of_lists(rig: Rig) -> None:
    """Lists have the other calls; one call alone is refused with the remedy; the feed does not say that it is gone."""
    call, member, _ = await with_newer_record(rig)
    other = await rig.begin_call(END, run_s=5)
    assert [known.voice_id async for known in rig.queries.live()] == [other.voice_id]
    assert [known.voice_id async for known in rig.queries.recordings()] == [other.voice_id]
    lookup = Lookup(rig.redis)
    assert set(await lookup.calls([member, rig.call_id(other).member])) == {rig.call_id(other).member}
    for question in (rig.queries.load(rig.call_id(call)), lookup.known(KEY, call.voice_id)):
        with pytest.raises(NewerRecord, match="roll forward"):
            await question


async def test_outcomes_of_a_newer_record_wait(sandbox_asgi: Any, redis: Any) -> None:
    """They are not posted, not lost, and need a person after a minute; a release that reads the record posts them."""
    courier = Courier(sandbox_asgi, redis)
    call = await courier.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 300), run_s=4, is_pushed=False)
    member = courier.call_id(call).member
    item = KEYS.item(member)
    record = await redis.hget(item, "rec")
    await redis.hset(item, "rec", newer(record))
    await redis.zadd(KEYS.outbox.due, {member: 0})
    await redis.hset(KEYS.outbox.inbox(member), "lines", "1")
    await courier.run(75)
    assert courier.receiver.taken == []
    assert await redis.hgetall(KEYS.outbox.attention) == {member.encode(): NEWER.encode()}
    assert await courier.queries.attention() == {member: NEWER}
    await redis.hset(item, "rec", record)
    await courier.run(30)
    assert [message["type"] for message in courier.receiver.taken] == ["call.authenticated"]
    assert await courier.queries.attention() == {}
    await courier.deliveries.client.aclose()


async def test_newer_record_is_not_archived(sandbox_asgi: Any, redis: Any, database: Database) -> None:
    """It waits for a newer worker, does not expire, and needs a person after a minute; the others are archived."""
    rig = Archivist(sandbox_asgi, redis, database)
    numbers = [rig.stage.other_member(n) for n in range(3)]
    calls = [
        rig.stage.call(Happening(Kind.GREEN, 5), Happening(Kind.END, 10), phone_number=number) for number in numbers
    ]
    await rig.redis.set(f"{KEYS.archive.prefix}:turn:sweep", "1")
    for call in calls:
        await rig.push(call)
    while await redis.zcard(KEYS.settled) < len(calls):
        await Rig.tick(rig)
        rig.stage.advance(0.25)
    member = rig.call_id(calls[1]).member
    record = await redis.hget(KEYS.item(member), "rec")
    await redis.hset(KEYS.item(member), "rec", newer(record))
    await rig.run(70)
    assert await redis.hgetall(KEYS.archive.attention) == {member.encode(): NEWER.encode()}
    assert await redis.ttl(KEYS.item(member)) == -1
    with rig.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(lines)) == 2
    await redis.hset(KEYS.item(member), "rec", record)
    await rig.run(10)
    assert await rig.queries.attention() == {}
    with rig.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(lines)) == 3


async def test_record_that_cannot_be_read_is_left_out_of_lists(rig: Rig) -> None:
    """A damaged record is parked for a person, and lists have the other calls."""
    call = rig.stage.call(END)
    other = rig.stage.call(END)
    await rig.push(call)
    await rig.push(other)
    await rig.run(15)
    await rig.redis.hset(KEYS.item(rig.call_id(call).member), "rec", b"{")
    assert [known.voice_id async for known in rig.queries.live()] == [other.voice_id]
    with pytest.raises(msgspec.MsgspecError):
        await rig.queries.load(rig.call_id(call))
    await rig.run(80)
    assert await rig.queries.attention() == {rig.call_id(call).member: "parked"}


async def test_clock_set_back_does_not_lengthen_the_minute(rig: Rig) -> None:
    """Since when a newer worker is waited for is never in the future."""
    _, member, _ = await with_newer_record(rig)
    await rig.run(5)
    await rig.redis.hset(KEYS.item(member), "left", rig.now_ms() + int(timedelta(hours=1).total_seconds()) * 1000)
    await rig.run(75)
    assert await rig.queries.attention() == {member: NEWER}
