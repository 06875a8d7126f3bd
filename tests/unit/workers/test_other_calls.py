"""Which other calls of a member keep an enroll or a reject from being sent."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import ENROLLED_SINCE, RECOGNISED_BESIDE
from callkeeper.calls.member_evidence import recognised_member
from callkeeper.calls.notes import EnrolledBeside
from callkeeper.calls.record import Call
from tests.unit.calls.specimens import BOOK, NOW, call, reading, seconds, word
from tests.unit.workers.claims import HeldClaim, as_claim
from tests.unit.workers.test_effects import INTENDED
from workers.effects import send
from workers.other_calls import note_recognised

BY_SERVICE = NOW + timedelta(hours=1)
"""When the call began, by the service's clock, which is ahead."""

BESIDE: dict[str, tuple[Call | None, bool]] = {
    "it goes on": (call(enroll=Effect(state=EffectState.APPLIED)), True),
    "it ended after this one began": (call(enrolled_seen=True, end_seen_at=NOW - seconds(30.9)), True),
    "it ended before": (call(enrolled_seen=True, end_seen_at=NOW - seconds(31)), False),
    "its end was read late": (call(enrolled_seen=True, end_seen_at=NOW, changed_at_end=BY_SERVICE), False),
    "its end was read late, and was late": (
        call(enrolled_seen=True, end_seen_at=NOW, changed_at_end=BY_SERVICE + seconds(0.1)),
        True,
    ),
    "it was lost after this one began": (call(enrolled_seen=True, settled_at=NOW - seconds(30.9)), True),
    "it was lost before": (call(enrolled_seen=True, settled_at=NOW - seconds(31)), False),
    "its record is gone": (None, False),
    "it was not sent": (call(enroll=Effect(state=EffectState.ABSENT)), False),
    "it was taken back": (call(enroll=Effect(state=EffectState.TAKEN_BACK), unenrolled_seen=True), False),
    **{
        f"it is {state}": (call(enroll=Effect(state=state)), True)
        for state in (EffectState.INTENDED, EffectState.SENT, EffectState.UNKNOWN, EffectState.UNRESOLVED)
    },
}


@pytest.mark.parametrize(("other", "is_held"), BESIDE.values(), ids=BESIDE)
async def test_enroll_beside_another_one_of_the_member_waits_for_a_person(other: Call | None, is_held: bool) -> None:
    """Two calls at once are of two callers, and one of them is not the member. It may still be under way in the other."""
    known = call(enroll=replace(INTENDED, operator=None), hinted_at=NOW - seconds(31), started_at=BY_SERVICE)
    found = {"v-2": other} if other is not None else {}
    held = HeldClaim(known, enrolled=["v-1", "v-3", "v-2"], records=found)
    await send(as_claim(held), EffectKind.ENROLL)
    assert (held.announced, held.since) == (["p-1"], [NOW - seconds(31 + BOOK.maximum_age_s)])
    enroll = held.call.ledger.enroll
    if is_held:
        assert (held.service.sent, enroll.state, enroll.refusal) == ([], EffectState.REFUSED, ENROLLED_SINCE)
    else:
        assert (len(held.service.sent), enroll.state) == (1, EffectState.APPLIED)


@pytest.mark.parametrize(
    ("changes", "announced"),
    [
        ({"person_id": None}, []),
        ({"hinted_at": None, "first_seen_at": None}, ["p-1"]),
    ],
    ids=["nobody is assigned", "nobody knows when it began"],
)
async def test_enroll_that_is_compared_with_no_other_is_announced_to_them(
    changes: dict[str, Any], announced: list[str]
) -> None:
    """An enroll in another call, which is due at the same moment, must learn of this one."""
    held = HeldClaim(call(**{"enroll": replace(INTENDED, operator=None), **changes}), enrolled=["v-2"])
    held.records["v-2"] = call(enrolled_seen=True)
    await send(as_claim(held), EffectKind.ENROLL)
    assert (held.announced, held.since, len(held.service.sent)) == (announced, [], 1)


KNOWN: dict[str, Any] = {"person_id": "p-1", "authenticated_members": ("p-1",)}
RECOGNISED: dict[str, tuple[dict[str, Any], bool]] = {
    "it goes on": (KNOWN, True),
    "it ended before": ({**KNOWN, "end_seen_at": NOW - seconds(31)}, False),
    "as another": ({"person_id": "p-2", "authenticated_members": ("p-2",)}, False),
    "as the member before": ({**KNOWN, "person_id": "p-2"}, False),
    "and rejected": ({**KNOWN, "rejected_seen": True}, False),
}


@pytest.mark.parametrize(("changes", "is_held"), RECOGNISED.values(), ids=RECOGNISED)
@pytest.mark.parametrize("operator", [None, "ann"])
async def test_enroll_beside_a_caller_whose_voice_is_the_members_waits_for_a_person(
    changes: dict[str, Any], is_held: bool, operator: str | None
) -> None:
    """Of two callers at once, the one with the member's voice is the member."""
    known = call(enroll=replace(INTENDED, operator=operator), hinted_at=NOW - seconds(31))
    held = HeldClaim(known, recognised=["v-2"], records={"v-2": call(voice_id="v-2", **changes)})
    await send(as_claim(held), EffectKind.ENROLL)
    assert held.call.ledger.enroll.refusal == (RECOGNISED_BESIDE if is_held and operator is None else None)


@pytest.mark.parametrize(("into", "is_held"), [("v-2", True), ("v-1", False)], ids=["another call", "this call"])
@pytest.mark.parametrize("what", ["enrolled", "recognised"])
async def test_record_that_was_merged_counts_as_the_one_that_it_is_in(what: str, into: str, is_held: bool) -> None:
    """The two ids are of one call, which may be this one."""
    known = call(enroll=replace(INTENDED, operator=None), hinted_at=NOW - seconds(31))
    changes = KNOWN if what == "recognised" else {"enrolled_seen": True}
    found: dict[str, Any] = {what: ["v-9"]}
    held = HeldClaim(known, **found, merged={"v-9": into}, records={into: call(voice_id=into, **changes)})
    await send(as_claim(held), EffectKind.ENROLL)
    assert (held.call.ledger.enroll.state is EffectState.REFUSED) == is_held


async def test_who_finds_a_recognised_caller_reads_so_in_the_record() -> None:
    """An enroll in another call may be due at the same moment: it looks at the record as soon as it finds the call."""
    held = HeldClaim(call(**KNOWN))
    await note_recognised(as_claim(held))
    assert [recognised_member(stored) for stored in held.recognised_in] == ["p-1"]
    await note_recognised(as_claim(held))
    assert (len(held.recognised_in), len(held.kept)) == (1, 1), "once for each member"


BY_RULE = Effect(state=EffectState.APPLIED)
ENROLLED_BY: dict[str, tuple[dict[str, Any], bool]] = {
    "a rule": ({"enroll": BY_RULE}, True),
    "a rule, perhaps": ({"enroll": replace(BY_RULE, state=EffectState.UNKNOWN)}, True),
    "a person": ({"enroll": replace(BY_RULE, operator="bob")}, False),
    "another tool": ({"enrolled_seen": True}, False),
    "a rule, before this one began": ({"enroll": BY_RULE, "end_seen_at": NOW - seconds(31)}, False),
}


@pytest.mark.parametrize(("changes", "is_told"), ENROLLED_BY.values(), ids=ENROLLED_BY)
@pytest.mark.parametrize("was_given_up", [False, True])
async def test_enroll_by_a_person_makes_one_by_a_rule_beside_it_a_question(
    changes: dict[str, Any], is_told: bool, was_given_up: bool
) -> None:
    """Her word stands. Who called there is not known, unless she was told of that call and said it again."""
    enroll = replace(INTENDED, failed=ENROLLED_SINCE if was_given_up else None)
    held = HeldClaim(call(enroll=enroll), enrolled=["v-2"], records={"v-2": call(voice_id="v-2", **changes)})
    await send(as_claim(held), EffectKind.ENROLL)
    assert (held.announced, len(held.service.sent)) == (["p-1"], 1)
    assert held.left == ([("v-2", EnrolledBeside(voice_id="v-1"), True)] if is_told and not was_given_up else [])


@pytest.mark.parametrize(
    ("hinted_s", "age_s", "since_s"), [(None, 29, -30), (-29, 0, -30), (-31, 0, -31), (-31, 32, -32), (-31, None, -31)]
)
async def test_call_began_when_it_was_first_heard_of_or_earlier_if_the_service_says_so(
    hinted_s: float | None, age_s: float | None, since_s: float
) -> None:
    """By its push, its first listing or its age. No other call goes on for longer than the rules say."""
    hinted_at = None if hinted_s is None else NOW + seconds(hinted_s)
    held = HeldClaim(call(enroll=replace(INTENDED, operator=None), hinted_at=hinted_at), found_s=age_s)
    await send(as_claim(held), EffectKind.ENROLL)
    assert held.since == [NOW + seconds(since_s - BOOK.maximum_age_s)]
    assert held.may_be_old == [False]


@pytest.mark.parametrize(
    ("sent_s", "last_word", "said_s", "since_s"),
    [
        (None, 0, None, -5),
        (None, 0, -20, -20),
        (-60, 0, None, -60),
        (-60, 9e15, -20, -60),
        (-60, 0, -20, -20),
        (-60, 0, 20, 0),
    ],
    ids=["a rule's", "a person's", "a rule's again", "the same word", "a later word", "Redis's clock was set back"],
)
@pytest.mark.parametrize("enrolled", [[], ["v-1"], ["v-1", "v-2"]])
async def test_reject_is_given_up_only_for_an_enroll_that_came_after_its_reason(
    sent_s: float | None, last_word: float, said_s: float | None, since_s: float, enrolled: list[str]
) -> None:
    """The reason is a person's last word; of a repeated one, the first request; of a rule's, its intention."""
    at = None if sent_s is None else NOW + seconds(sent_s)
    requests = {"sent_at": at, "attempts": int(at is not None), "last_word": int(last_word)}
    reject = replace(INTENDED, intended_at=NOW - seconds(5), **requests)
    said = None if said_s is None else word(number=int((NOW + seconds(said_s)).timestamp() * 1000))
    held = HeldClaim(call(reject=reject, distrusted=said), enrolled=enrolled)
    await send(as_claim(held), EffectKind.REJECT)
    assert held.since == [NOW + seconds(since_s)]
    assert len(held.service.sent) == (0 if "v-2" in enrolled else 1)


@pytest.mark.parametrize("changes", [{"person_id": None}, {"reject": replace(INTENDED, intended_at=None)}])
async def test_reject_that_can_be_compared_with_no_enroll_is_sent(changes: dict[str, Any]) -> None:
    """Nobody is assigned, or nobody knows since when it has waited."""
    held = HeldClaim(call(**{"reject": replace(INTENDED, intended_at=NOW), **changes}), enrolled=["v-2"])
    await send(as_claim(held), EffectKind.REJECT)
    assert (held.since, len(held.service.sent)) == ([], 1)


@pytest.mark.parametrize(("created_s", "is_held"), [(0, False), (-0.1, True)])
@pytest.mark.parametrize("listed_s", [None, 0.0, 5.0])
async def test_start_of_a_call_is_the_earlier_one_of_queue_and_record(
    listed_s: float | None, created_s: float, is_held: bool
) -> None:
    """An end that was read late is compared with it, by the service's clock."""
    started_at = None if listed_s is None else BY_SERVICE + seconds(listed_s)
    shown = reading(created_at=BY_SERVICE + seconds(created_s))
    known = call(enroll=replace(INTENDED, operator=None), started_at=started_at, reading=shown)
    other = call(enrolled_seen=True, end_seen_at=NOW, changed_at_end=BY_SERVICE)
    held = HeldClaim(known, enrolled=["v-2"], records={"v-2": other})
    await send(as_claim(held), EffectKind.ENROLL)
    assert held.call.ledger.enroll.refusal == (ENROLLED_SINCE if is_held else None)
