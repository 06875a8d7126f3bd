"""What a call leaves for later calls of the same member or number: in Redis, in facts, and in what rules may do with it."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields
from redis.asyncio import Redis

from callkeeper.calls.action_status import statuses_of
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.fact_derivation import earlier_calls_of
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted, Verified
from callkeeper.calls.record import Call as Record
from callkeeper.calls.record import Marks
from callkeeper.calls.record_storage import encode_call, parse_call
from callkeeper.calls.rules import AS_VERIFIED, Outcome, Rule, RuleBook, load_rules
from callkeeper.calls.store.earlier_calls import DAY_S, MOST, MOST_NUMBERS, digits_compared
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Known
from callkeeper.desk.board.call_page import Fact, call_page
from callkeeper.desk.board.rows import row_of
from callkeeper.desk.views import call_view
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.records import facts_of_record, with_stored
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 60)
FRAUD = "DeterminedFraud"
HOME, WORK, OTHER = "5550300001", "5550300002", "5550300003"
BEFORE = ("rejected_before", "unenrolled_before", "fraud_before")


def a_rig(stage: Asgi, redis: Redis, book: RuleBook) -> Rig:
    """Return a rig: one member has two numbers, at home and at work, and another member a third one."""
    stage.world.add_institution("cu-2")
    for key in (KEY, "cu-2"):
        stage.world.add_member(key, "p-home", [HOME, WORK])
        stage.world.add_member(key, "p-other", [OTHER])
    return Rig(stage, redis, book)


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a rig with the shipped rules."""
    return a_rig(sandbox_asgi, redis, load_rules(None))


async def begun(rig: Rig, *script: Happening, phone_number: str = HOME, **more: Any) -> Call:
    """Return a live call that was found and assigned."""
    return await rig.begin_call(*script, END, phone_number=phone_number, **more, run_s=4)


async def reject(rig: Rig, call: Call) -> None:
    """Have the voice of a call rejected."""
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, wish=f"w{call.voice_id}"))
    await rig.run(4)
    assert call.rejected


async def rejected(rig: Rig, **more: Any) -> Call:
    """Return a call that was rejected, and is over."""
    call = await begun(rig, **more)
    await reject(rig, call)
    await rig.run(80)
    assert (await rig.record(call)).is_settled
    return call


def without_reject(record: Record) -> Record:
    """Return the record of a call that nothing speaks against any more."""
    seen = {"rejected_seen": False, "failed_feedback_seen": False}
    return with_stored(record, reject=Effect(), distrusted=None, **seen)


async def before(rig: Rig, call: Call) -> set[str]:
    """Return which facts about earlier calls a call has."""
    facts = facts_of_record(await rig.record(call), rig.book.policies)
    return {name for name in BEFORE if getattr(facts, name)}


async def test_later_call_of_the_member_knows_of_the_reject(rig: Rig) -> None:
    """From another number too. The trail shows it; nothing is known of another member on another number."""
    first = await rejected(rig)
    assert await before(rig, first) == set(), "a call is no earlier call of its own"
    again = await begun(rig, phone_number=WORK)
    assert (await rig.record(again)).seen.person_id == "p-home"
    assert await before(rig, again) == {"rejected_before"}
    facts: list[dict[str, Any]] = [entry.facts for entry in await rig.trail(again) if entry.facts]
    assert facts[-1]["rejected_before"] is True
    assert await before(rig, await begun(rig, phone_number=OTHER)) == set()


async def test_desk_and_board_show_what_earlier_calls_showed(rig: Rig) -> None:
    """And that the voice was not checked yet, so that an agent sees why nothing happens."""
    first = await rejected(rig)
    call = await begun(rig)
    record = await rig.record(call)
    view = call_view(record, rig.book.policies, sees_people=False)
    assert (view.rejected_before, view.fraud_before, view.voice_checked) == (True, False, False)
    assert view.earlier_calls == {"rejected_before": first.voice_id}
    assert "rejected before" in row_of(record, rig.book).tags
    known = Known(rig.call_id(call), record, (), is_certain=True, is_merging=False)
    page = call_page(known, rig.book, None, rig.clock.now, institution="CU 1")
    assert Fact("Earlier calls", f"rejected_before: {first.voice_id}", is_personal=False) in page.facts


async def test_later_call_from_the_number_knows_of_the_reject(rig: Rig) -> None:
    """Whoever the member is, and before there is one: one caller may try several members from one number."""
    await rejected(rig)
    again = await begun(rig, persons=[])
    assert (await rig.record(again)).seen.person_id is None
    assert await before(rig, again) == {"rejected_before"}
    rig.stage.happen(again, Kind.CLAIMED, person_id="p-other")
    await rig.run(20)
    assert (await rig.record(again)).seen.person_id == "p-other"
    assert await before(rig, again) == {"rejected_before"}


async def test_call_behind_a_fact_is_the_latest_of_the_number_else_of_the_member(rig: Rig) -> None:
    """What was found by a number stays with the caller, and so does its call; what was found by the member does not."""
    await rejected(rig)
    second = await rejected(rig)
    await rejected(rig, phone_number=WORK)
    elsewhere = await begun(rig, Happening(Kind.CASE, 1, FRAUD), phone_number=WORK)
    await rig.run(80)
    third = await begun(rig)
    both = {"rejected_before": second.voice_id, "fraud_before": elsewhere.voice_id}
    assert earlier_calls_of(await rig.record(third)) == both
    rig.stage.happen(third, Kind.CLAIMED, person_id="p-other")
    await rig.run(20)
    assert earlier_calls_of(await rig.record(third)) == {"rejected_before": second.voice_id}


async def test_record_of_the_release_before_names_no_call(rig: Rig) -> None:
    """It holds what a number showed, not of which call. Nor is the member's own call named for that; others are."""
    first = await rejected(rig)
    elsewhere = await begun(rig, Happening(Kind.CASE, 1, FRAUD), phone_number=WORK)
    await rig.run(80)
    again = await begun(rig)
    record = await rig.record(again)
    assert record.seen.earlier_marks is not None
    stored = msgspec.json.decode(encode_call(record))
    del stored["earlier_marks"]["calls"]
    before = parse_call(msgspec.json.encode(stored))
    assert earlier_calls_of(before) == {}
    assert facts_of_record(before, rig.book.policies).rejected_before
    before = with_stored(before, phone_number=OTHER)
    look_up = partial(
        rig.store.earlier_calls.look_up, policies=rig.book.policies, days=30, now=rig.clock.now, anew=True
    )
    found = await look_up(rig.call_id(again), before)
    assert facts_of_record(found, rig.book.policies).rejected_before
    assert earlier_calls_of(found) == {"fraud_before": elsewhere.voice_id}
    found = await look_up(rig.call_id(again), with_stored(found, phone_number=HOME))
    assert earlier_calls_of(found)["rejected_before"] == first.voice_id


async def test_institutions_know_nothing_of_each_others_calls(rig: Rig) -> None:
    """A member's id and a number mean something within one institution only."""
    await rejected(rig)
    call = await begun(rig, key="cu-2")
    assert (await rig.record(call)).seen.person_id == "p-home"
    assert await before(rig, call) == set()


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("+1 (555) 030-0001", "5550300001"),
        ("5550300001", "5550300001"),
        ("15550300001", "5550300001"),
        ("030 123456", "030123456"),
        (None, None),
        ("", None),
        ("Anonymous", None),
        ("911", None),
        ("0000000000", None),
        ("+266696687", None),
        ("٥٥٥٠٣٠٠٠٠١", None),
    ],
)
def test_numbers_are_compared_by_their_last_digits(text: str | None, digits: str | None) -> None:
    """With or without a country code. What networks write for a withheld number is no number."""
    assert digits_compared(text) == digits


async def test_what_an_earlier_number_of_the_call_showed_stays_when_it_is_looked_up_again(rig: Rig) -> None:
    """As it is before each request of an enroll: the decision that is written then has to tell it."""
    first = await rejected(rig)
    call = await begun(rig, phone_number=OTHER)
    for number, known in ((OTHER, set()), (HOME, {"rejected_before"}), (OTHER, {"rejected_before"})):
        call.phone_number = number
        await rig.run(12)
        record = await rig.record(call)
        assert (record.names.phone_number, await before(rig, call)) == (number, known)
    look_up, policies = rig.store.earlier_calls.look_up, rig.book.policies
    again = await look_up(rig.call_id(call), record, policies=policies, days=30, now=rig.clock.now, anew=True)
    assert again.seen.earlier_marks == record.seen.earlier_marks
    assert earlier_calls_of(again) == {"rejected_before": first.voice_id}


async def test_marks_under_an_alternate_id_are_the_calls_own(rig: Rig) -> None:
    """A record that was kept under the call's other id, and was merged, is no other call."""
    call = with_stored(await rig.record(await rejected(rig)), kept_marks=None, earlier_marks=None)
    earlier, now = rig.store.earlier_calls, rig.clock.now
    other = CallId(KEY, "new-id")
    merged = with_fields(call, voice_id="new-id", names=with_fields(call.names, alternate_id=call.voice_id))
    stranger = with_fields(merged, names=with_fields(merged.names, alternate_id=None))
    for one, kinds in ((merged, ()), (stranger, ("rejected",))):
        marks = (await earlier.look_up(other, one, policies=rig.book.policies, days=30, now=now)).seen.earlier_marks
        assert marks is not None
        assert marks.kinds == kinds


async def test_marks_are_left_under_a_limited_number_of_numbers_and_all_taken_back(rig: Rig) -> None:
    """A queue that shows another number at each look must not make the record grow, nor leave marks that nobody knows."""
    call = with_stored(await rig.record(await rejected(rig)), kept_marks=None, marked_numbers=())
    earlier, now, call_id = rig.store.earlier_calls, rig.clock.now, CallId(KEY, "v-1")
    kept: dict[str, Any] = {"policies": rig.book.policies, "days": 30, "now": now}

    async def places() -> int:
        mark = "rejected:v-1"
        return len(
            [one async for one in rig.redis.scan_iter("ck:2:earlier:*:n:*") if await rig.redis.zscore(one, mark)]
        )

    for n in range(MOST_NUMBERS + 2):
        shown = with_fields(call, names=with_fields(call.names, phone_number=f"555040000{n}"))
        call = await earlier.keep(call_id, shown, **kept)
        assert await places() == len(call.ledger.marked_numbers) == min(n + 1, MOST_NUMBERS)
    call = await earlier.keep(call_id, without_reject(call), **kept)
    assert (await places(), call.ledger.marked_numbers) == (0, ())


async def test_mark_that_an_earlier_release_left_under_the_number_is_taken_back(rig: Rig) -> None:
    """Its records do not say under which numbers marks are, but the present one is known."""
    call = await rejected(rig)
    record = without_reject(with_stored(await rig.record(call), marked_numbers=()))
    kept: dict[str, Any] = {"policies": rig.book.policies, "days": 30, "now": rig.clock.now}
    await rig.store.earlier_calls.keep(rig.call_id(call), record, **kept)
    assert await rig.redis.keys("ck:2:earlier:*") == []


async def test_what_the_wrong_member_s_calls_showed_does_not_count_for_the_right_one(rig: Rig) -> None:
    """An agent chose a member with a rejected call, and then the caller, who has nothing to do with that call."""
    await rejected(rig)
    call = await begun(rig, phone_number=OTHER, persons=[])
    for member, known in (("p-home", {"rejected_before"}), ("p-other", set())):
        rig.stage.happen(call, Kind.CLAIMED, person_id=member)
        await rig.run(20)
        assert ((await rig.record(call)).seen.person_id, await before(rig, call)) == (member, known)


async def test_mark_under_the_alternate_id_and_a_former_member_is_taken_back(rig: Rig) -> None:
    """The call was merged after its record under the other id had left a mark, and then got its right member."""
    call = with_stored(await rig.record(await rejected(rig)), kept_marks=None, marked_numbers=())
    kept: dict[str, Any] = {"policies": rig.book.policies, "days": 30, "now": rig.clock.now}
    call = await rig.store.earlier_calls.keep(CallId(KEY, "a-1"), call, **kept)
    merged = with_stored(without_reject(call), alternate_id="a-1", person_id="p-other")
    await rig.store.earlier_calls.keep(CallId(KEY, "v-1"), merged, **kept)
    places = await rig.redis.keys("ck:2:earlier:*")
    assert [mark for place in places for mark in await rig.redis.zrange(place, 0, -1) if mark.endswith(b":a-1")] == []


@pytest.mark.parametrize("now_of", ["p-other", "p-home"], ids=["corrected", "come back"])
async def test_every_mark_under_a_former_member_is_taken_back(rig: Rig, now_of: str) -> None:
    """Also if two merged records left different ones there, or if that member comes back to the call."""
    record, place = await rig.record(await rejected(rig)), Keys().earlier(KEY, "p:p-home")
    before = (Marks(person_id="p-home", kinds=("rejected",)), Marks(person_id="p-home", kinds=("fraud",)))
    await rig.redis.delete(place)
    await rig.redis.zadd(place, {"rejected:v-1": rig.clock.now.timestamp(), "fraud:v-1": rig.clock.now.timestamp()})
    ledger = {"kept_marks": Marks(person_id="p-other"), "marks_before": before}
    call = with_stored(without_reject(record), person_id=now_of, **ledger)
    await rig.store.earlier_calls.keep(CallId(KEY, "v-1"), call, policies=rig.book.policies, days=30, now=rig.clock.now)
    assert await rig.redis.zrange(place, 0, -1) == []


async def test_withheld_number_finds_nothing(rig: Rig) -> None:
    """Two callers who withhold their number are not one caller."""
    for withheld in ("", "Anonymous", "+266696687"):
        first = await begun(rig, phone_number=withheld, persons=[])
        rig.stage.happen(first, Kind.REJECTED)
        await rig.run(80)
        assert (await rig.record(first)).seen.rejected
        assert await before(rig, await begun(rig, phone_number=withheld, persons=[])) == set()
    assert await rig.redis.keys("ck:2:earlier:*") == []


@pytest.mark.parametrize(
    ("kind", "text"), [(Kind.REJECTED_BY_RULE, None), (Kind.CASE, "InReview"), (Kind.VIEWED, None)]
)
async def test_call_without_a_finding_leaves_nothing(rig: Rig, kind: Kind, text: str | None) -> None:
    """A validation rule's reject meets members too, and a case under review is no finding."""
    await begun(rig, Happening(kind, 1, text))
    await rig.run(80)
    assert await rig.redis.keys("ck:2:earlier:*") == []


async def test_fraud_of_an_earlier_call_is_known_and_taken_back_when_the_case_is(rig: Rig) -> None:
    """Only of a case about that call itself; an investigator may find later that it was none."""
    first = await begun(rig, Happening(Kind.CASE, 1, FRAUD))
    await rig.run(10)
    assert await before(rig, await begun(rig, phone_number=WORK)) == {"fraud_before"}
    rig.stage.happen(first, Kind.CASE, "FalsePositive")
    await rig.run(20)
    assert await before(rig, await begun(rig, phone_number=WORK)) == set()
    await begun(rig, Happening(Kind.CASE_ELSEWHERE, 1, FRAUD))
    await rig.run(10)
    assert await before(rig, await begun(rig, phone_number=WORK)) == set()


async def test_enroll_that_a_reject_took_back_is_known(rig: Rig) -> None:
    """The enrolled call was un-enrolled, the other one rejected; a third knows both."""
    first = await begun(rig)
    said: dict[str, Any] = {"operator": "ann", "said_at": rig.clock.now, "wish": "e"}
    await rig.note(first, Verified(person_id="p-home", validation_type="OneTimePasswordAuth", **said))
    await rig.run(6)
    assert (await rig.record(first)).ledger.enroll.state is EffectState.APPLIED
    await rejected(rig, phone_number=WORK)
    assert (await rig.record(first)).seen.unenrolled
    assert await before(rig, await begun(rig)) == {"rejected_before", "unenrolled_before"}


async def test_earlier_calls_are_forgotten_after_the_days_of_the_rules(rig: Rig, redis: Redis) -> None:
    """The keys expire, and older marks are ignored."""
    await rejected(rig)
    places = await redis.keys("ck:2:earlier:*")
    assert len(places) == 2
    for place in places:
        assert 29 * DAY_S < await redis.ttl(place) <= 30 * DAY_S
    rig.stage.advance(30 * DAY_S)
    assert await before(rig, await begun(rig)) == set()


async def test_rules_without_history_keep_and_look_up_nothing(sandbox_asgi: Asgi, redis: Redis) -> None:
    """``[history] days = 0``: the institution's choice."""
    rig = a_rig(sandbox_asgi, redis, replace(load_rules(None), history_days=0))
    await rejected(rig)
    assert await redis.keys("ck:2:earlier:*") == []
    assert await before(rig, await begun(rig)) == set()


async def test_marks_are_few_and_name_no_number(rig: Rig, redis: Redis) -> None:
    """Redis holds a keyed hash of the number, and no more than the newest marks of a member."""
    untyped: Any = redis
    record = await rig.record(await rejected(rig))
    places = [str(place, "utf-8") for place in await untyped.keys("ck:2:earlier:*")]
    assert sorted(re.sub("[0-9a-f]{32}", "HASH", place) for place in places) == [
        f"ck:2:earlier:{KEY}:n:HASH",
        f"ck:2:earlier:{KEY}:p:p-home",
    ]
    stored = [*places, *[str(await redis.zrange(place, 0, -1)) for place in places]]
    assert not any(HOME in text for text in stored)
    for n in range(MOST + 5):
        other = CallId(KEY, f"v-{n}")
        call = with_fields(record, ledger=with_fields(record.ledger, kept_marks=None))
        await rig.store.earlier_calls.keep(other, call, policies=rig.book.policies, days=30, now=rig.clock.now)
    assert [await redis.zcard(place) for place in places] == [MOST, MOST]


ASK = Rule("seen before", (("verified", True), ("rejected_before", True)), Outcome.ASK, "An earlier call was rejected.")
ENROLL = Rule("verified", (("verified", True), ("final_analysis", True)), Outcome.ENROLL, "Verified.", AS_VERIFIED)


def book(*rules: Rule) -> RuleBook:
    """Return rules: a person's distrust first, these, then the final hold."""
    cautious = load_rules("default")
    return replace(cautious, rules=(cautious.rules[0], *rules, cautious.rules[-1]))


async def test_rule_asks_a_person_about_a_member_whose_earlier_call_was_rejected(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """A passcode alone enrolls nobody then; whoever has no such call is enrolled as before."""
    rig = a_rig(sandbox_asgi, redis, book(ASK, ENROLL))
    await rejected(rig)
    asked = await begun(rig, Happening(Kind.MFA_VALIDATED, 5), phone_number=WORK)
    enrolled = await begun(rig, Happening(Kind.MFA_VALIDATED, 5), phone_number=OTHER)
    await rig.run(80)
    assert (await rig.record(asked)).statements.asked is not None
    assert "enroll" not in rig.ledger(asked)
    assert rig.ledger(enrolled)["enroll"] == 1


async def test_reject_in_another_call_at_the_same_time_stops_the_enroll(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Earlier calls are looked up again before an enroll: two calls of one member at a time are no way round it."""
    rig = a_rig(sandbox_asgi, redis, book(ASK, ENROLL))
    one, two = await begun(rig), await begun(rig, phone_number=WORK)
    assert await before(rig, two) == set()
    await reject(rig, one)
    assert await before(rig, two) == set(), "it was looked up when the call got its person"
    rig.stage.happen(two, Kind.MFA_VALIDATED)
    await rig.run(80)
    assert await before(rig, two) == {"rejected_before"}
    assert "enroll" not in rig.ledger(two)
    assert "withdrawn enroll" in await rig.whats(two)
    assert (await rig.record(two)).statements.asked is not None


MISMATCH, RISKY = Happening(Kind.MISMATCH, 6), Happening(Kind.HIGH_RISK, 6)
KNOWN = Rule("known fraudster", (("fraud", True), ("voice_mismatch", True)), Outcome.REJECT, "Fraud was determined.")
TWO = Rule("two signs", (("voice_mismatch", True), ("high_risk_device", True)), Outcome.REJECT, "Two signs.")
TIED = Rule("tied", (("fraud_elsewhere", True),), Outcome.ASK, "A case about another call.")


@pytest.mark.parametrize(
    ("rules", "script", "is_rejected"),
    [
        ([KNOWN], [Happening(Kind.CASE, 1, FRAUD), MISMATCH], True),
        ([TWO], [Happening(Kind.CASE, 1, FRAUD), MISMATCH, RISKY], True),
        ([KNOWN], [Happening(Kind.CASE, 1, FRAUD)], False),
        ([KNOWN], [MISMATCH], False),
        ([KNOWN], [Happening(Kind.CASE_ELSEWHERE, 1, FRAUD), MISMATCH], False),
        ([KNOWN], [Happening(Kind.CASE, 1, "InReview"), MISMATCH], False),
    ],
    ids=["fraud-and-mismatch", "two-signs-and-fraud", "fraud-alone", "mismatch-alone", "elsewhere", "in-review"],
)
async def test_fraud_in_this_call_is_evidence_and_fraud_elsewhere_is_not(
    sandbox_asgi: Asgi, redis: Redis, rules: list[Rule], script: list[Happening], is_rejected: bool
) -> None:
    """A case about this call protects no impostor; the victim of another call is not un-enrolled because of its case."""
    rig = a_rig(sandbox_asgi, redis, book(*rules, TIED))
    call = await begun(rig, *script)
    await rig.run(40)
    assert rig.ledger(call).get("reject_voice", 0) == is_rejected
    is_asked = (await rig.record(call)).statements.asked is not None
    assert is_asked == any(one.kind is Kind.CASE_ELSEWHERE for one in script)


@pytest.mark.parametrize(
    ("kind", "reason"), [(Kind.CASE, "determined_fraud"), (Kind.CASE_ELSEWHERE, "fraud_elsewhere")]
)
async def test_nobody_is_enrolled_while_a_case_says_fraud(rig: Rig, kind: Kind, reason: str) -> None:
    """Wherever the fraud was; once the investigator says that there was none, the verified caller is enrolled."""
    call = await begun(rig, Happening(kind, 1, FRAUD))
    await rig.run(10)
    said: dict[str, Any] = {"operator": "ann", "said_at": rig.clock.now, "wish": "e"}
    await rig.note(call, Verified(person_id="p-home", validation_type="Other", **said))
    await rig.run(5)
    assert "enroll" not in rig.ledger(call)
    assert statuses_of(await rig.record(call), await rig.trail(call))["e"].reasons == (reason,)
    rig.stage.happen(call, kind, "FalsePositive")
    await rig.run(15)
    assert rig.ledger(call)["enroll"] == 1
