"""Marks that a call must not leave: of a withheld number, and of a member whose voice was green."""

import pytest
from msgspec.structs import replace

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted, Withdrawn
from callkeeper.calls.store.earlier_calls import digits_compared
from callkeeper.calls.story import story_of
from callkeeper.calls.trail import recorded
from callkeeper_sandbox.service.state import GREEN_POLICY, Happening, Kind
from callkeeper_sandbox.service.state import Call as SandboxCall
from tests.harness.virtual_time import KEY, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.integration.whole_calls.test_pause import pause
from tests.records import facts_of_record

H = Happening


@pytest.mark.parametrize("number", ["+10000000000", "+1 999 999 9999"])
def test_placeholder_with_a_country_code_is_no_number(number: str) -> None:
    """Its last ten digits, which are compared, are equal."""
    assert digits_compared(number) is None


async def test_prankster_with_a_withheld_number_puts_no_other_caller_under_suspicion(rig: Rig) -> None:
    """Nothing is found for a withheld number (docs/rules.md), also if it is written +10000000000."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    prank = rig.stage.call(H(Kind.RED, 12), H(Kind.END, 60), phone_number="+10000000000", persons=[])
    await rig.push(prank)
    await rig.run(5)
    rig.stage.happen(prank, Kind.CLAIMED, "agent-9", "p-1")
    await rig.run(100)
    honest = rig.stage.call(H(Kind.MFA_VALIDATED, 40), H(Kind.END, 100), phone_number="+10000000000", persons=[])
    await rig.push(honest)
    await rig.run(5)
    rig.stage.happen(honest, Kind.CLAIMED, "agent-9", "p-2")
    await rig.run(200)
    assert rig.ledger(honest).get("enroll") == 1, await rig.queries.attention()


async def test_member_whose_voice_is_green_leaves_no_suspicion(rig: Rig) -> None:
    """Her device was a risk, and her voice green, although another activity hid FullAuthentication."""
    first = rig.stage.call(H(Kind.HIGH_RISK, 5), H(Kind.END, 100))
    await rig.push(first)
    await rig.run(20)
    first.policies = first.provider.policies = [GREEN_POLICY]
    first.voice_validated = first.fully_authenticated = True
    rig.stage.happen(first, Kind.VIEWED)
    await rig.run(120)
    record = await rig.record(first)
    assert (record.life.reason, facts_of_record(record, rig.book.policies).green) == ("authenticated", True)
    second = rig.stage.call(H(Kind.END, 100))
    await rig.push(second)
    await rig.run(20)
    assert not facts_of_record(await rig.record(second), rig.book.policies).suspected_before


async def marked(rig: Rig) -> set[str]:
    """Return the members under suspicion."""
    places = {f"p-{n}": rig.store.keys.earlier(KEY, f"p:p-{n}") for n in (1, 2)}
    return {person_id for person_id, place in places.items() if await rig.redis.zcard(place)}


@pytest.mark.parametrize("despite", [(), ("voice_mismatch",)], ids=["in ignorance", "overruled"])
async def test_mismatch_stays_a_suspicion_whatever_a_person_says(rig: Rig, despite: tuple[str, ...]) -> None:
    """An insider's word wipes nothing that the next call would show."""
    call = await rig.begin_call(H(Kind.MISMATCH, 10), H(Kind.END, 100), run_s=20)
    await rig.note(call, replace(verified(rig), despite=despite))
    await rig.run(100)
    assert (call.manual_person_id == "p-1") is bool(despite)
    assert await marked(rig) == {"p-1"}
    assert [key async for key in rig.redis.scan_iter(match=rig.store.keys.earlier(KEY, "n:*"))]


@pytest.mark.parametrize("comes_back", [False, True])
async def test_distrust_that_is_taken_back_leaves_no_member_of_the_call_suspected(rig: Rig, comes_back: bool) -> None:
    """The member was corrected between the word and its withdrawal."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    await pause(rig)
    call = await rig.begin_call(H(Kind.END, 300), run_s=20)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, wish="r1"))
    await rig.run(10)
    for person_id in ("p-2", "p-1") if comes_back else ("p-2",):
        rig.stage.happen(call, Kind.CLAIMED, "zed", person_id)
        await rig.run(20)
    assert await marked(rig) == {"p-1", "p-2"}
    await rig.note(call, Withdrawn(operator="bob", said_at=rig.clock.now, wish="w1", what="distrusted"))
    await rig.run(20)
    assert await marked(rig) == set()


async def test_caller_whose_device_is_a_risk_is_known_by_the_number(rig: Rig) -> None:
    """He was taken for p-1, then says that he is p-2. When he calls again as p-2, a person is asked."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    prepaid = "5559999999"
    first = await rig.begin_call(H(Kind.HIGH_RISK, 5), H(Kind.END, 80), phone_number=prepaid, persons=[], run_s=5)
    rig.stage.happen(first, Kind.CLAIMED, "zed", "p-1")
    await rig.run(40)
    rig.stage.happen(first, Kind.CLAIMED, "zed", "p-2")
    await rig.run(60)
    script = (H(Kind.MFA_VALIDATED, 30), H(Kind.END, 100))
    second = await rig.begin_call(*script, phone_number=prepaid, persons=[], run_s=5)
    rig.stage.happen(second, Kind.CLAIMED, "zed", "p-2")
    await rig.run(200)
    assert "enroll" not in rig.ledger(second)
    asked_by = ["asked by rule 'member_changed'", "asked by rule 'verified, but suspected before'"]
    assert list((await rig.queries.attention()).values()) == asked_by
    [decision] = [line for line in await rig.trail(second) if line.kind == "ask"]
    assert decision.earlier_calls == {"suspected_before": first.voice_id}
    story = story_of(recorded(await rig.record(second), await rig.trail(second)))
    [asked] = [line.text for line in story.lines if "verify the caller" in line.text]
    assert f"[suspected_before: call {first.voice_id}]" in asked


async def test_call_whose_number_changes_is_known_by_the_new_one_too(rig: Rig) -> None:
    """The queue shows the number of a rejected caller later: his call finds that mark, and leaves one there itself."""
    number = "5550100222"
    rig.stage.world.add_member(KEY, "p-2", [number])
    first = await rig.begin_call(H(Kind.END, 60), phone_number=number, run_s=20)
    await rig.note(first, Distrusted(operator="bob", said_at=rig.clock.now, wish="r1"))
    await rig.run(100)
    second = await rig.begin_call(H(Kind.HIGH_RISK, 5), H(Kind.END, 300), run_s=30)
    assert not facts_of_record(await rig.record(second), rig.book.policies).rejected_before
    second.phone_number = number
    await rig.run(30)
    assert facts_of_record(await rig.record(second), rig.book.policies).rejected_before
    mark, numbers = f"suspected:{second.voice_id}", rig.store.keys.earlier(KEY, "n:*")
    left = [await rig.redis.zscore(place, mark) async for place in rig.redis.scan_iter(numbers)]
    assert len(left) == 2
    assert None not in left
    second.phone_number = "5550100333"
    await rig.run(30)
    record = await rig.record(second)
    assert record.names.phone_number == second.phone_number
    assert facts_of_record(record, rig.book.policies).rejected_before, "the caller is still the one of that number"


@pytest.mark.parametrize("before", ["5550100333", ""])
async def test_number_alone_that_changes_is_taken_in(rig: Rig, before: str) -> None:
    """No member has either number, or there was none: the entry differs in nothing else.

    The caller was rejected under the second one.
    """
    number = "5550100222"
    first = await rig.begin_call(H(Kind.CLAIMED, 5, "zed", "p-1"), H(Kind.END, 60), phone_number=number, run_s=20)
    await rig.note(first, Distrusted(operator="bob", said_at=rig.clock.now, wish="r1"))
    await rig.run(100)
    call = await rig.begin_call(H(Kind.END, 300), phone_number=before, run_s=30)
    listed = (await rig.whats(call)).count("listed")
    call.phone_number = number
    await rig.run(30)
    record = await rig.record(call)
    assert record.names.phone_number == number
    assert facts_of_record(record, rig.book.policies).rejected_before
    assert (await rig.whats(call)).count("listed") == listed + 1


async def numbers_marked(rig: Rig, call: SandboxCall) -> int:
    """Return under how many numbers a call has left marks."""
    places = [place async for place in rig.redis.scan_iter(rig.store.keys.earlier(KEY, "n:*"))]
    marks = [mark for place in places for mark in {m.partition(b":")[2] for m in await rig.redis.zrange(place, 0, -1)}]
    return marks.count(call.voice_id.encode())


async def test_distrust_that_is_taken_back_leaves_no_number_of_the_call_suspected(rig: Rig) -> None:
    """The queue showed another number between the word and its withdrawal: the first one may be an innocent caller's."""
    numbers = ("5550100222", "5550100333")
    for n, number in enumerate(numbers, 2):
        rig.stage.world.add_member(KEY, f"p-{n}", [number])
    await pause(rig)
    call = await rig.begin_call(H(Kind.END, 300), run_s=20)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, wish="r1"))
    await rig.run(10)
    for n, number in enumerate(numbers, 2):
        call.phone_number = number
        await rig.run(20)
        assert await numbers_marked(rig, call) == n
    await rig.note(call, Withdrawn(operator="bob", said_at=rig.clock.now, wish="w1", what="distrusted"))
    await rig.run(20)
    assert await numbers_marked(rig, call) == 0


async def test_what_an_earlier_number_showed_counts_whoever_is_the_member(rig: Rig) -> None:
    """One caller may try several members from one number. So they do from another one that the queue shows later."""
    number = "5550100222"
    for person_id in ("p-2", "p-3"):  # so nobody is assigned without a person
        rig.stage.world.add_member(KEY, person_id, [number])
    first = await rig.begin_call(H(Kind.END, 60), run_s=20)
    await rig.note(first, Distrusted(operator="bob", said_at=rig.clock.now, wish="r1"))
    await rig.run(100)
    call = await rig.begin_call(H(Kind.END, 300), persons=[], run_s=20)
    call.phone_number, call.persons = number, None
    await rig.run(20)
    for member in (None, "p-2", "p-3"):
        if member is not None:
            rig.stage.happen(call, Kind.CLAIMED, "zed", member)
            await rig.run(20)
        record = await rig.record(call)
        assert (record.names.phone_number, record.seen.person_id) == (number, member)
        assert facts_of_record(record, rig.book.policies).rejected_before


async def test_mark_that_a_call_left_under_its_alternate_id_is_taken_back(rig: Rig) -> None:
    """The word was said while only that id was known, and taken back after the two records were merged."""
    await pause(rig)
    call = rig.stage.call(H(Kind.END, 300))
    await rig.push(call, voice_id=None)
    await rig.run(0.5)
    said = Distrusted(operator="bob", said_at=rig.clock.now, wish="r1")
    await rig.store.note(CallId(KEY, call.alternate_id), said)
    await rig.run(20)
    await rig.push(call)
    await rig.run(20)
    numbers = [one async for one in rig.redis.scan_iter(rig.store.keys.earlier(KEY, "n:*"))]
    assert [await rig.redis.zcard(one) for one in numbers] == [2]
    await rig.note(call, Withdrawn(operator="bob", said_at=rig.clock.now, wish="w1", what="distrusted"))
    await rig.run(20)
    assert await rig.redis.keys("ck:2:earlier:*") == []
