"""A statement that the desk has taken is never lost: whatever becomes of the call's record, it has an end and a reason."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.item_names import CallId
from callkeeper.calls.note_folding import fold_note, new_call
from callkeeper.calls.notes import MOST_WAITING, AssignWish, Distrusted, parse_note
from callkeeper.calls.record import Call, Phase, Reason
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.keys import Retention
from callkeeper.calls.store.queries import Lookup
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.desk import OPERATOR, DeskRig
from tests.harness.virtual_time import KEY, PHONE
from workers.claimed_call import FORGET

END = Happening(Kind.END, 200)
WRONG = {"operator": OPERATOR, "reason": "wrong answers"}


async def say_by(desk: DeskRig, any_id: str, action: str = "distrusted", **body: Any) -> httpx.Response:
    """Say something about a call by an id of the speaker's choice."""
    answer = await desk.http.post(f"/calls/{KEY}/{any_id}/{action}", json=body or WRONG)
    assert answer.status_code == 202, answer.text
    return answer


async def state_by(desk: DeskRig, any_id: str, said: httpx.Response) -> tuple[str, list[str]]:
    """Return the state of a statement and its reasons, asked for by an id of the speaker's choice."""
    answer = await desk.http.get(f"/calls/{KEY}/{any_id}/actions/{said.json()['action_id']}")
    assert answer.status_code in {200, 202}, answer.text
    view = answer.json()
    return view["state"], [reason["name"] for reason in view["reasons"]]


LATE: dict[str, dict[str, Any]] = {
    "listed 12 s after the push": {"listed_after_s": 12.0},
    "listed a minute after the push": {"listed_after_s": 60.0},
    "the queue fails": {"fault": Fault(target="queue", action=Action.ANSWER, status=500, times=40)},
    "the service fails": {"fault": Fault(target="*", action=Action.ANSWER, status=500, times=8)},
}
FOR_EVERY_CHANGE = ("listed a minute after the push", "the service fails")
"""The longest wait, and the failure of everything."""


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(late, id=name, marks=() if name in FOR_EVERY_CHANGE else pytest.mark.night)
        for name, late in LATE.items()
    ],
)
async def test_distrust_about_a_call_that_is_only_hinted_rejects_it(desk: DeskRig, late: dict[str, Any]) -> None:
    """A distrust on a pushed call that the queue does not show yet rejects it once, however late the queue is."""
    await desk.run(20)
    if "fault" in late:
        desk.stage.sandbox.faults.add(late["fault"])
    call = await desk.begin_call(END, listed_after_s=late.get("listed_after_s", 0.0), run_s=2)
    said = await say_by(desk, call.voice_id)
    await desk.run(120)
    assert await state_by(desk, call.voice_id, said) == ("done", [])
    assert desk.ledger(call)["reject_voice"] == 1


async def pushed_ghost(desk: DeskRig, voice_id: str = "v-ghost", key: str = KEY) -> None:
    """Record a push about a call that the service does not know."""
    await desk.intake.record(PushEvent(type="CallStart", institution_key=key, voice_id=voice_id), event_id="ev-1")
    await desk.run(1)


async def test_statement_about_a_call_that_the_service_never_shows_ends_with_that_reason(desk: DeskRig) -> None:
    """The hint is settled and kept as long as other settled calls, and says why nothing was done."""
    await desk.run(5)
    await pushed_ghost(desk)
    said = await say_by(desk, "v-ghost")
    await desk.run(20)
    assert (await state_by(desk, "v-ghost", said))[0] == "pending", "a call not found may only be late"
    await desk.run(80)
    assert await state_by(desk, "v-ghost", said) == ("held", ["call_unconfirmed"])
    record = await desk.find("v-ghost")
    assert record is not None
    assert (record.life.phase, record.life.reason) == (Phase.SETTLED, Reason.UNCONFIRMED)
    item = desk.store.keys.item(CallId(KEY, "v-ghost").member)
    assert Retention().calls_s - 200 < await desk.redis.ttl(item) <= Retention().calls_s
    again = await desk.http.post(f"/calls/{KEY}/v-ghost/distrusted", json=WRONG)
    assert again.status_code == 202
    await desk.run(5)
    assert (await state_by(desk, "v-ghost", again))[0] == "pending", "it is looked for once more"
    await desk.run(100)
    assert await state_by(desk, "v-ghost", again) == ("held", ["call_unconfirmed"])
    assert await desk.http.get(f"/calls/{KEY}/v-ghost") is not None


async def test_hint_without_a_statement_is_still_dropped(desk: DeskRig) -> None:
    """A hint that nobody spoke of leaves no record, and nothing is asked about it."""
    await desk.run(5)
    await pushed_ghost(desk)
    await desk.run(20)
    assert await desk.find("v-ghost") is None
    assert not [name for name in desk.stage.sandbox.ledger.entries.by_call if name == "v-ghost"]


async def test_call_that_is_listed_after_all_is_watched_and_its_statement_heard(desk: DeskRig) -> None:
    """A call that the service shows only after its hint was settled is not missed, and the distrust rejects it."""
    await desk.run(5)
    await pushed_ghost(desk, "v-late")
    said = await say_by(desk, "v-late")
    await desk.run(100)
    assert (await state_by(desk, "v-late", said))[0] == "held"
    call = await desk.begin_call(END, voice_id="v-late", run_s=30, is_pushed=False)
    assert await state_by(desk, "v-late", said) == ("done", [])
    assert desk.ledger(call)["reject_voice"] == 1
    assert (await desk.record(call)).life.reason is None
    keys, member = desk.store.keys, CallId(KEY, "v-late").member
    assert await desk.redis.ttl(keys.item(member)) == await desk.redis.ttl(keys.trail(member)) == -1
    assert await desk.redis.zscore(keys.settled, member) is None
    await desk.run(300)
    assert (await desk.record(call)).life.reason is Reason.REJECTED


async def test_nothing_is_asked_for_a_hint_of_a_foreign_institution(desk: DeskRig) -> None:
    """A statement about a hint of an institution that is not ours is answered without a request."""
    desk.stage.world.add_institution("cu-foreign", owned=False)
    await desk.run(5)
    await pushed_ghost(desk, key="cu-foreign")
    before = len(desk.stage.sandbox.ledger.entries.by_call)
    place = CallId("cu-foreign", "v-ghost")
    await desk.store.note(place, Distrusted(operator="ann", said_at=desk.clock.now, wish="a" * 32))
    await desk.run(100)
    record = await desk.queries.load(place)
    assert record is not None
    assert record.life.reason is Reason.UNCONFIRMED
    assert len(desk.stage.sandbox.ledger.entries.by_call) == before


CONFIRMED: dict[str, tuple[tuple[dict[str, Any], ...], bool]] = {
    "a push names both ids later": (({"voice_id": None}, {}), False),
    "only a push has named the id": (({},), False),
    "the call's record names it": (({"voice_id": None},), True),
}


@pytest.mark.parametrize(("pushes", "in_record"), CONFIRMED.values(), ids=CONFIRMED)
async def test_distrust_by_the_alternate_id_reaches_the_call(
    desk: DeskRig, pushes: tuple[dict[str, Any], ...], in_record: bool
) -> None:
    """A distrust by the alternate id rejects the call under its real id, and is answered under both."""
    await desk.run(20)
    call = desk.stage.call(END, listed_after_s=1.0)
    if in_record:
        desk.mixed_up.alternates[call.voice_id] = call.alternate_id
    for changes in pushes:
        await desk.push(call, **changes)
        await desk.run(2)
    said = await say_by(desk, call.alternate_id)
    assert await state_by(desk, call.alternate_id, said) == ("pending", [])
    await desk.run(4)
    for any_id in (call.alternate_id, call.voice_id):
        assert await state_by(desk, any_id, said) == ("done", [])
    assert desk.ledger(call)["reject_voice"] == 1
    await desk.run(300)
    for any_id in (call.alternate_id, call.voice_id):
        assert await state_by(desk, any_id, said) == ("done", [])


async def test_distrust_by_an_alternate_id_in_capitals_reaches_the_call(desk: DeskRig) -> None:
    """The desk leaves the statement under the id as it was spelled, and the service is asked by that spelling."""
    desk.stage.sandbox.choose(["ids-capital"])
    await desk.run(20)
    call = desk.stage.call(END, listed_after_s=1.0)
    assert (call.alternate_id or "").isupper()
    await desk.push(call)
    await desk.run(2)
    said = await say_by(desk, call.alternate_id)
    assert await state_by(desk, call.alternate_id, said) == ("pending", [])
    await desk.run(4)
    for any_id in (call.alternate_id, call.voice_id):
        assert await state_by(desk, any_id, said) == ("done", [])
    assert desk.ledger(call)["reject_voice"] == 1


async def test_statement_by_an_alternate_id_waits_for_the_service_to_confirm_it(desk: DeskRig) -> None:
    """What a push alone says of two ids is no reason to act: while the id cannot be read, nothing is sent for the call."""
    await desk.run(20)
    call = await desk.begin_call(END, voice_id="v-1", alternate_id="alt-1", run_s=5)
    desk.mixed_up.mix["alt-1"] = ("v-2", 10**6)
    desk.stage.call(END, voice_id="v-2", phone_number="5550100002")
    said = await say_by(desk, "alt-1")
    await desk.run(90)
    assert "reject_voice" not in desk.ledger(call)
    assert (await desk.record(call)).statements.distrusted is None
    assert await state_by(desk, "alt-1", said) == ("held", ["other_call_named"])


async def test_distrust_by_an_id_that_the_queue_has_left_says_what_to_do(desk: DeskRig) -> None:
    """The service goes on under another id, because somebody elsewhere has assigned the caller: nothing proves it."""
    desk.stage.world.options = replace(desk.stage.world.options, moves_id=True)
    desk.stage.world.add_member(KEY, "p-2", [PHONE])
    call = await desk.begin_call(END, is_pushed=False, run_s=20)
    desk.stage.happen(call, Kind.CLAIMED, "zed", "p-1")
    await desk.run(20)
    said = await say_by(desk, call.alternate_id)
    await desk.run(5)
    assert await state_by(desk, call.alternate_id, said) == ("held", ["other_call_named"])


async def test_distrust_by_an_alternate_id_that_nothing_confirms_says_what_to_do(desk: DeskRig) -> None:
    """Where no push and no record name the two ids together nothing is done; said by the call's own id it is."""
    await desk.run(20)
    call = desk.stage.call(END, listed_after_s=1.0)
    await desk.push(call, voice_id=None)
    await desk.push(call, alternate_voice_id=None)
    await desk.run(1)
    said = await say_by(desk, call.alternate_id)
    await desk.run(20)
    assert await state_by(desk, call.alternate_id, said) == ("pending", []), "a push may still come"
    await desk.run(70)
    assert await state_by(desk, call.alternate_id, said) == ("held", ["other_call_named"])
    assert "reject_voice" not in desk.ledger(call)
    again = await say_by(desk, call.voice_id)
    await desk.run(5)
    assert await state_by(desk, call.voice_id, again) == ("done", [])


async def test_distrust_by_the_alternate_id_after_the_call_is_closed_is_heard(desk: DeskRig) -> None:
    """A distrust on a hint by the alternate id of a call that is settled meanwhile rejects the voice all the same."""
    await desk.run(20)
    call = await desk.begin_call(Happening(Kind.END, 15), run_s=40, is_pushed=False)
    assert (await desk.record(call)).is_settled
    await desk.push(call, voice_id=None)
    await desk.run(1)
    said = await say_by(desk, call.alternate_id)
    await desk.run(60)
    assert await state_by(desk, call.alternate_id, said) == ("done", [])
    assert desk.ledger(call)["reject_voice"] == 1


async def test_statement_that_comes_while_the_hint_is_dropped_is_heard(desk: DeskRig) -> None:
    """A statement between the claim that drops a hint and its write begins the hint anew."""
    await desk.run(5)
    await pushed_ghost(desk)
    desk.stage.advance(60)
    [held] = [held for held in await desk.store.claim(10) if held.member.startswith("c:")]
    said = await say_by(desk, "v-ghost")
    await desk.store.save(held, FORGET, Placement(None))
    assert await state_by(desk, "v-ghost", said) == ("pending", [])
    await desk.run(120)
    assert await state_by(desk, "v-ghost", said) == ("held", ["call_unconfirmed"])


async def test_statement_is_found_through_several_merges(desk: DeskRig) -> None:
    """Under an id whose record was merged into one that was merged again, the statement is still answered."""
    await desk.run(5)
    call = await desk.begin_call(END, voice_id="v-3", run_s=5, is_pushed=False)
    for voice_id, into in (("v-1", "v-2"), ("v-2", "v-3")):
        place = CallId(KEY, voice_id)
        said = Distrusted(operator="ann", said_at=desk.clock.now, wish=voice_id[-1] * 32)
        await desk.store.note(place, said)
        held = next(held for held in await desk.store.claim(10) if held.member == place.member)
        assert await desk.store.merge(held, Call(institution_key=KEY, voice_id=voice_id), CallId(KEY, into))
    await desk.run(5)
    assert desk.ledger(call)["reject_voice"] == 1
    for action_id in ("1" * 32, "2" * 32):
        for any_id in ("v-1", "v-2", "v-3"):
            answer = await desk.http.get(f"/calls/{KEY}/{any_id}/actions/{action_id}")
            assert (answer.status_code, answer.json()["state"]) == (200, "done")


async def test_statements_of_one_operator_that_wait_together_are_all_answered(desk: DeskRig) -> None:
    """An operator who corrects herself before anybody moved the call is told that the first statement was superseded."""
    desk.stage.world.add_member(KEY, "p-2", ["5550100002"])
    call: SandboxCall = desk.stage.call(END, persons=[])
    await desk.run(10)
    first, second = [await desk.say(call, "assign", person_id=person) for person in ("p-1", "p-2")]
    await desk.run(5)
    assert await state_by(desk, call.voice_id, first) == ("superseded", [])
    assert await state_by(desk, call.voice_id, second) == ("done", [])
    assert (await desk.record(call)).seen.person_id == "p-2"


async def test_statement_with_a_repeated_key_keeps_its_place(desk: DeskRig) -> None:
    """A client that repeats its request under one Idempotency-Key does not beat a correction that came in between."""
    desk.stage.world.add_member(KEY, "p-2", ["5550100002"])
    call = await desk.begin_call(END, persons=[], run_s=10, is_pushed=False)
    first = await desk.say(call, "assign", key="4711", person_id="p-1")
    second = await desk.say(call, "assign", operator="agent-8", person_id="p-2")
    repeated = await desk.say(call, "assign", key="4711", person_id="p-1")
    assert repeated.json()["action_id"] == first.json()["action_id"]
    await asyncio.sleep(0)
    await desk.run(5)
    assert (await desk.record(call)).seen.person_id == "p-2"
    assert [await state_by(desk, call.voice_id, said) for said in (first, second)] == [("superseded", []), ("done", [])]


async def test_statements_that_wait_are_bounded_and_none_that_was_taken_is_lost(desk: DeskRig) -> None:
    """With 100 statements waiting the next one is refused with 429 and leaves nothing; said again later it is heard."""
    call = await desk.begin_call(END, run_s=5)
    place = desk.call_id(call)
    for n in range(MOST_WAITING):
        person = AssignWish(person_id=f"p-{n}", operator="ann", said_at=desk.clock.now, wish=f"{n:032x}")
        await desk.store.note(place, person)
    repeated = AssignWish(person_id="p-0", operator="ann", said_at=desk.clock.now, wish=f"{0:032x}")
    assert (await desk.store.note(place, repeated))[0], "it waits already"
    refused = await desk.say(call, "distrusted", key="4711", reason="wrong answers")
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
        429,
        "too_many_waiting",
        "5",
    )
    inbox = desk.store.keys.inbox(place.member)
    assert await desk.redis.hlen(inbox) == MOST_WAITING
    await desk.push(call, "CallEnd")
    assert await desk.redis.hlen(inbox) == MOST_WAITING + 1, "pushes and listings are taken all the same"
    await desk.run(5)
    assert (await desk.say(call, "distrusted", key="4711", reason="wrong answers")).status_code == 202
    await desk.run(5)
    said = [line.wish for line in await desk.trail(call) if line.what == "said"]
    assert len(said) == len(set(said)) == MOST_WAITING + 1
    assert desk.ledger(call)["reject_voice"] == 1


async def test_statement_that_a_merge_carries_is_pending_until_it_was_read(desk: DeskRig) -> None:
    """The trail of a call has the line of a merged record before its own record knows the statement."""
    await desk.run(20)
    call = await desk.begin_call(END, listed_after_s=1.0, run_s=5)
    said = await say_by(desk, call.alternate_id)
    place, other = CallId(KEY, call.alternate_id), CallId(KEY, call.voice_id)
    [held] = [found for found in await desk.store.claim(10) if found.member == place.member]
    [note] = map(parse_note, held.notes.values())
    heard, lines = fold_note(new_call(place, [note], held.now), note, held.now)
    await desk.store.keep(held, encode_call(heard), entries=lines)
    assert await desk.store.merge(held, heard, other)
    assert await state_by(desk, call.alternate_id, said) == ("pending", [])


async def test_call_that_is_merged_during_a_look_is_found(desk: DeskRig) -> None:
    """A look resolves the id first, and then reads the record. Between the two a worker may merge it."""
    await desk.run(5)
    call = await desk.begin_call(END, run_s=5, is_pushed=False)
    place, other = CallId(KEY, call.alternate_id), CallId(KEY, call.voice_id)
    said = Distrusted(operator="ann", said_at=desk.clock.now, wish="1" * 32)
    await desk.store.note(place, said)
    [held] = [held for held in await desk.store.claim(10) if held.member == place.member]
    record = Call(institution_key=KEY, voice_id=place.voice_id)
    await desk.store.keep(held, encode_call(record))

    class Merging(Lookup):
        """A lookup during whose first look the record is merged."""

        async def _resolve(self, institution_key: str, any_id: str) -> tuple[CallId | None, bool]:
            found = await super()._resolve(institution_key, any_id)
            await desk.store.merge(held, record, other)
            return found

    known = await Merging(desk.redis, keys=desk.store.keys).known(*place)
    assert known is not None
    assert known.call_id == other
