"""The life of a call, from push to settled, as the service sees it."""

import json
from dataclasses import replace as changed
from datetime import timedelta
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.effect_resolution import ENDLESS
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import AssignWish, Verified
from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.rules import load_rules
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, PHONE, Rig
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 40)
NO_CALLS = '{"success": true, "phoneCalls": []}'
TWO = [{"personId": "p-1", "name": "A"}, {"personId": "p-2", "name": "B"}]


class Spy(httpx.AsyncBaseTransport):
    """Stands between worker and service and keeps the bodies of what is sent, by the end of the path."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.bodies: dict[str, list[Any]] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if request.content:
            self.bodies.setdefault(request.url.path.rpartition("/")[2], []).append(json.loads(request.content))
        return await self.inner.handle_async_request(request)


def asked(rig: Rig, institution_key: str) -> set[str]:
    """Return what was asked of the service with an institution's key."""
    entries = rig.stage.sandbox.ledger
    arrivals = [*entries.other_arrivals(), *(a for of_call in entries.entries.of_calls.values() for a in of_call)]
    return {str(arrival.operation) for arrival in arrivals if arrival.institution_key == institution_key}


async def test_call_goes_from_push_to_settled(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Pushed, confirmed, assigned by voice id alone, checked until green, read to its end, settled."""
    spy = Spy(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, transport=spy)
    call = await rig.begin_call(Happening(Kind.GREEN, 20), END, run_s=62)
    record = await rig.record(call)
    assert (record.life.phase, record.life.reason) == (Phase.SETTLED, Reason.AUTHENTICATED)
    assert spy.bodies["assign"] == [{"personId": "p-1", "voiceId": call.voice_id}]
    assert rig.ledger(call)["check"] == record.plan.checks_used < 8
    assert not {"enroll", "reject_voice"} & set(rig.ledger(call))
    assert call.aliases == [f"{KEY}-p-1"]


async def test_call_that_the_service_verified_is_enrolled_once_and_settled(rig: Rig) -> None:
    """From push to settled with one assign and one enroll, whatever is looked at again in between (promise 3)."""
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 12), END, run_s=62)
    assert (await rig.record(call)).life.reason is Reason.ENROLLED
    assert rig.ledger(call)["enroll"] == rig.ledger(call)["assign"] == 1


UNASSIGNABLE: dict[str, list[dict[str, Any]]] = {
    "nobody": [],
    "two candidates": TWO,
    "one without an id": [{"name": "A"}],
    "one and one without an id": [TWO[0], {"name": "B"}],
}


@pytest.mark.parametrize("persons", UNASSIGNABLE.values(), ids=UNASSIGNABLE)
async def test_call_without_exactly_one_candidate_is_not_assigned(rig: Rig, persons: list[dict[str, Any]]) -> None:
    """Only an unambiguous candidate is assigned; an unassigned call spends no checks (D10)."""
    call = await rig.begin_call(END, persons=persons, run_s=62)
    assert set(rig.ledger(call)) == {"read"}
    assert (await rig.record(call)).life.reason is Reason.UNASSIGNED


async def test_call_claimed_by_an_operator_is_left_to_her(rig: Rig) -> None:
    """A call that an operator has claimed is not assigned automatically."""
    call = rig.stage.call(Happening(Kind.CLAIMED, 0, "ann"), END)
    rig.stage.advance(0)
    await rig.push(call)
    await rig.run(62)
    assert set(rig.ledger(call)) == {"read"}


async def test_call_of_another_person_type_is_not_assigned(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Where the rules name person types, a candidate of another one is not assigned."""
    cautious = load_rules(None)
    joint = changed(cautious, assign=changed(cautious.assign, person_types=frozenset({"Joint"})))
    rig = Rig(sandbox_asgi, redis, joint)
    call = await rig.begin_call(END, run_s=20, is_pushed=False)
    assert set(rig.ledger(call)) == {"read"}


async def test_call_assigned_by_somebody_else_is_watched(rig: Rig) -> None:
    """A person assigned elsewhere is kept; the call is checked and settled."""
    call = rig.stage.call(Happening(Kind.CLAIMED, 0, "ann", "p-9"), END)
    rig.stage.advance(0)
    await rig.push(call)
    await rig.run(62)
    record = await rig.record(call)
    assert "assign" not in rig.ledger(call)
    assert rig.ledger(call)["check"] > 3
    assert (record.seen.person_id, record.life.reason) == ("p-9", Reason.UNDECIDED)


async def test_call_is_assigned_at_the_word_of_the_desk(rig: Rig) -> None:
    """Of several candidates the desk names one; that person is assigned once, in the operator's name."""
    call = await rig.begin_call(END, persons=TWO, run_s=10, is_pushed=False)
    await rig.note(call, AssignWish(person_id="p-2", operator="ann", said_at=rig.clock.now))
    await rig.run(10)
    assert (call.person_id, call.core_username, rig.ledger(call)["assign"]) == ("p-2", "ann", 1)


@pytest.mark.parametrize("calls_before", [0, 5], ids=["idle", "busy"])
async def test_call_whose_push_was_lost_is_found_within_ten_seconds(rig: Rig, calls_before: int) -> None:
    """Without a push, a call is assigned within 10 s of its listing (B4)."""
    for _ in range(calls_before):
        rig.stage.call(Happening(Kind.END, 300))
    await rig.run(33.3)
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    assert rig.ledger(call)["assign"] == 1


async def test_call_pushed_a_thousand_times_is_one_call(rig: Rig) -> None:
    """Duplicates before and while checks are made: one assign, and the checks of the schedule (B1, B12)."""
    call = rig.stage.call(Happening(Kind.END, 300))
    for n in range(20):
        for _ in range(50):
            await rig.push(call)
        await rig.run(1 + n / 10)
    record = await rig.record(call)
    assert record.plan.watch_from is not None
    slots = rig.book.schedule.paced(call.voice_id).slots_passed(record.plan.watch_from, rig.clock.now)
    assert rig.ledger(call)["assign"] == 1
    assert rig.ledger(call)["check"] == record.plan.checks_used == slots


async def test_push_of_an_unknown_id_causes_looks_only(rig: Rig) -> None:
    """For a voice id that the queue does not list, only the queue is requested, and the hint is dropped."""
    event = PushEvent(type="CallStart", institution_key=KEY, voice_id="nobody", phone_number=PHONE)
    await rig.run(1)
    await rig.intake.record(event, event_id="ev-1")
    await rig.run(9)
    assert await rig.find("nobody") is not None
    await rig.run(5)
    assert await rig.find("nobody") is None
    assert asked(rig, KEY) == {"queue"}


async def test_push_of_an_end_before_the_start_leaves_a_settled_record(rig: Rig) -> None:
    """Reversed events of an ended call cause listings and one read, and no effect (B2)."""
    call = rig.stage.call(Happening(Kind.END, 1))
    rig.stage.advance(2)
    await rig.push(call, "CallEnd")
    await rig.run(3)
    await rig.push(call, "CallStart")
    await rig.run(15)
    assert (await rig.record(call)).is_settled
    assert rig.ledger(call) == {"read": 1}


async def test_push_of_a_false_end_ends_nothing(rig: Rig) -> None:
    """A pushed end is believed only if stored details say so; the call goes on."""
    call = await rig.begin_call(Happening(Kind.GREEN, 20), END, run_s=5)
    await rig.push(call, "CallEnd")
    await rig.run(20)
    record = await rig.record(call)
    assert (record.life.phase, record.seen.authenticated) == (Phase.LIVE, True)


async def test_push_of_an_end_that_details_show_late_is_followed_up(rig: Rig) -> None:
    """After a pushed end stored details are read every second for a while, until they say so."""
    call = await rig.begin_call(Happening(Kind.END, 18), run_s=15)
    await rig.push(call, "CallEnd")
    await rig.run(4.5)
    ended_at = (await rig.record(call)).life.ended_at
    assert ended_at is not None
    assert call.ended_at is not None
    assert (ended_at - call.ended_at).total_seconds() <= 1.3


async def test_call_whose_end_was_never_pushed_is_settled(rig: Rig) -> None:
    """Reads and listings find the end without a push (B3)."""
    call = await rig.begin_call(END, run_s=80, is_pushed=False)
    assert (await rig.record(call)).life.phase is Phase.SETTLED
    assert not await rig.listings.has_open(KEY)


async def test_call_listed_late_is_found(rig: Rig) -> None:
    """An event may outrun the queue by seconds (B10)."""
    call = await rig.begin_call(END, listed_after_s=3, run_s=4.5)
    assert rig.ledger(call)["assign"] == 1


async def test_calls_from_one_number_are_two_calls(rig: Rig) -> None:
    """Two calls from one number are assigned each by its own voice id (B5)."""
    calls = [rig.stage.call(END) for _ in range(2)]
    for call in calls:
        await rig.push(call)
    await rig.run(62)
    assert [rig.ledger(call)["assign"] for call in calls] == [1, 1]


@pytest.mark.parametrize("number", [None, "", "anonymous"])
async def test_call_without_a_number_is_handled(rig: Rig, number: str | None) -> None:
    """A withheld number changes nothing: calls are known by voice id (B9)."""
    call = rig.stage.call(END, persons=TWO[:1], phone_number=number or "")
    await rig.push(call, phone_number=number)
    await rig.run(5)
    assert rig.ledger(call)["assign"] == 1


async def test_call_pushed_by_its_alternate_id_first_is_one_call(rig: Rig) -> None:
    """The alternate id first, the voice id later: one record, one assign, one budget (B6)."""
    call = rig.stage.call(END, listed_after_s=2)
    await rig.push(call, voice_id=None)
    await rig.run(1)
    await rig.push(call)
    await rig.run(62)
    assert rig.ledger(call)["assign"] == 1
    assert rig.ledger(call)["check"] == (await rig.record(call)).plan.checks_used
    await rig.push(call, voice_id=None)
    await rig.run(12)
    assert await rig.find(call.alternate_id) is None


async def test_records_of_two_ids_become_one(rig: Rig) -> None:
    """Two records that a push and an answer say are one call are merged: one assign, one budget, one trail (B11)."""
    call = rig.stage.call(END, listed_after_s=2)
    await rig.push(call, voice_id=None)
    await rig.run(1)
    verified = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now, wish="a" * 32)
    await rig.store.note(CallId(KEY, call.alternate_id), verified)
    await rig.run(20)
    await rig.push(call)
    await rig.run(42)
    assert (rig.ledger(call)["assign"], rig.ledger(call)["enroll"]) == (1, 1)
    record = await rig.record(call)
    assert (record.names.alternate_id, record.life.reason) == (call.alternate_id, Reason.ENROLLED)
    assert rig.ledger(call)["check"] == record.plan.checks_used
    assert "merged" in await rig.whats(call)


UNTOUCHED: dict[str, dict[str, Any]] = {
    "a sample": {"is_test": True},
    "an unknown type": {"type": "CallTransferred"},
}


@pytest.mark.parametrize("changes", UNTOUCHED.values(), ids=UNTOUCHED)
async def test_push_that_is_no_call_event_touches_nothing(rig: Rig, changes: dict[str, Any]) -> None:
    """Samples and types that we do not know are logged and have no effect at all (B7, B8)."""
    event = PushEvent(type="CallStart", institution_key=KEY, voice_id="v-1")
    await rig.run(1)
    before = rig.stage.sandbox.ledger.entries.number
    wake = await rig.intake.record(replace(event, **changes), event_id="ev-1")
    assert not wake
    assert await rig.store.claim(10) == []
    assert rig.stage.sandbox.ledger.entries.number == before
    assert await rig.redis.zcard(rig.store.keys.events) == 1


async def test_push_with_a_foreign_key_sends_nothing_with_it(rig: Rig) -> None:
    """With the key of an institution that is not ours no request is ever made (A12)."""
    rig.stage.world.add_institution("cu-9", owned=False)
    await rig.begin_call(END, key="cu-9", run_s=30)
    assert asked(rig, "cu-9") == set()


async def test_institution_added_after_the_login_is_found(rig: Rig) -> None:
    """A push with a key that the login did not name leads to a new login, and the call is handled (B13)."""
    await rig.run(65)
    rig.stage.world.add_institution("cu-2")
    call = await rig.begin_call(END, key="cu-2", persons=TWO[:1], run_s=20)
    assert rig.ledger(call)["assign"] == 1


FORBIDDEN: dict[str, dict[str, Any]] = {
    "disabled": {"status": InstitutionStatus.DISABLED},
    "in review": {"status": InstitutionStatus.REVIEW},
    "test mode": {"is_test_mode": True},
    "no voice authentication": {"has_voice_auth": False},
}


@pytest.mark.parametrize("standing", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_institution_that_may_not_be_served_gets_reads_only(rig: Rig, standing: dict[str, Any]) -> None:
    """Not active, in test mode or without voice authentication: its calls are looked at, and nothing else."""
    rig.stage.world.add_institution("cu-2", **standing)
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 10), END, key="cu-2", persons=TWO[:1], run_s=62)
    assert asked(rig, "cu-2") <= {"queue", "read"}
    assert (await rig.record(call)).life.phase is Phase.SETTLED


NO_CALLS = '{"success": true, "phoneCalls": []}'
NOT_FOUND = '{"success": false, "error": "Phone call not found."}'


async def test_call_the_service_does_not_know_any_more_is_lost(rig: Rig) -> None:
    """Details that are "not found" for a minute settle a call that the queue does not list either (D8)."""
    call = await rig.begin_call(Happening(Kind.END, 500), run_s=5, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="details", action=Action.REFUSED, body=NOT_FOUND))
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=NO_CALLS))
    await rig.run(50)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    await rig.run(60)
    assert (await rig.record(call)).life.reason is Reason.LOST


async def test_call_that_could_not_be_read_is_not_lost(rig: Rig) -> None:
    """One "not found" and then an outage is no proof that the call is gone."""
    call = await rig.begin_call(Happening(Kind.END, 500), run_s=5, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="read", action=Action.REFUSED, body=NOT_FOUND, times=1))
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=500))
    await rig.run(120)
    rig.stage.sandbox.faults.clear()
    await rig.run(60)
    assert (await rig.record(call)).life.phase is Phase.LIVE


async def test_call_that_is_listed_for_ever_is_watched_and_told(rig: Rig) -> None:
    """No checks, a read every ten minutes, and a person is told. What it shows counts; its end settles it (D8)."""
    rig.tools = changed(rig.tools, book=changed(rig.book, maximum_age_s=40))
    rig.shift.tools = rig.tools
    call = await rig.begin_call(Happening(Kind.RED, 3000), Happening(Kind.END, 4000), run_s=62)
    before = rig.ledger(call)
    await rig.run(1800)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    assert list((await rig.queries.attention()).values()) == [ENDLESS]
    after = rig.ledger(call)
    assert (after["check"] - before["check"], after["read"] - before["read"]) in {(0, 2), (0, 3)}
    await rig.run(2400)
    assert (await rig.record(call)).life.reason is Reason.RED
    assert not await rig.queries.attention()


async def test_clock_that_jumps_while_all_workers_are_replaced_loses_no_listed_call(rig: Rig) -> None:
    """Nobody can tell the jump from hours without a worker. The queue still lists the call, so it goes on."""
    call = await rig.begin_call(Happening(Kind.END, 300), run_s=60)
    record = await rig.record(call)
    seen = record.life.first_seen_at
    assert seen is not None
    old = replace(record, life=replace(record.life, first_seen_at=seen - timedelta(hours=5)))
    await rig.redis.hset(rig.store.keys.item(rig.call_id(call).member), "rec", encode_call(old))
    await rig.run(120)
    assert (await rig.record(call)).life.phase is Phase.LIVE
    await rig.run(1000)
    assert (await rig.record(call)).life.reason is Reason.UNDECIDED


async def test_pushed_end_of_a_call_that_was_settled_without_one_is_read_once(rig: Rig) -> None:
    """The queue had lost the call for hours, and it was settled. What its end shows is known from then on."""
    rig.tools = changed(rig.tools, book=changed(rig.book, maximum_age_s=40))
    rig.shift.tools = rig.tools
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=20)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=200, body=NO_CALLS))
    await rig.run(120)
    assert (await rig.record(call)).life.reason is Reason.LOST
    before = rig.ledger(call)["read"]
    await rig.push(call, "CallEnd")
    await rig.run(20)
    assert (await rig.record(call)).life.reason is Reason.LOST, "its record does not say that it has ended"
    assert rig.ledger(call)["read"] == before + 1
    rig.stage.happen(call, Kind.RED)
    rig.stage.happen(call, Kind.END)
    await rig.push(call, "CallEnd")
    await rig.run(20)
    assert (await rig.record(call)).life.reason is Reason.RED


async def test_trail_tells_the_whole_story(rig: Rig) -> None:
    """What happened, in order: the push, the listing, the assign with its intention, the checks, the end (promise 7)."""
    call = await rig.begin_call(Happening(Kind.GREEN, 12), END, run_s=62)
    whats = [what for what in await rig.whats(call) if not what.startswith("decided")]
    story = [
        "pushed start",
        "listed",
        "intended assign",
        "sent assign",
        "answered assign",
        "checked",
        "ended",
        "settled",
    ]
    places = [whats.index(what) for what in story]
    assert places == sorted(places)
    answered = next(entry for entry in await rig.trail(call) if entry.what == "answered")
    assert answered.state == "applied"


async def test_institution_in_test_mode_is_handled_where_the_settings_name_it(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A staging host looks so: its calls are assigned as any others, and the board sees no obstacle."""
    institution = sandbox_asgi.world.state.institutions[KEY]
    institution.record = replace(institution.record, is_test_mode=True)
    rig = Rig(sandbox_asgi, redis, in_test=frozenset({KEY}))
    call = await rig.begin_call(END, run_s=10)
    assert rig.ledger(call)["assign"] == 1
    assert (await rig.listings.standings())[KEY].obstacle is None
