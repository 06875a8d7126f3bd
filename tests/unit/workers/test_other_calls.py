"""Which other calls of a member speak against a call's caller, and keep a reject from being sent."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.member_evidence import established_member
from callkeeper.calls.notes import SameMember
from callkeeper.calls.record import Call
from tests.unit.calls.specimens import BOOK, NOW, call, reading, seconds, verified, word
from tests.unit.workers.claims import HeldClaim, as_claim
from tests.unit.workers.test_effects import INTENDED
from workers.effects import send
from workers.other_calls import find_beside

BY_SERVICE = NOW + timedelta(hours=1)
"""When the call began, by the service's clock, which is ahead."""

KNOWN: dict[str, Any] = {"person_id": "p-1", "recognised": True, "hinted_at": NOW - seconds(31)}
OTHER: dict[str, Any] = {**KNOWN, "voice_id": "v-2"}
BESIDE: dict[str, tuple[dict[str, Any], bool]] = {
    "it goes on": ({}, True),
    "it ended after this one began": ({"end_seen_at": NOW - seconds(30.9)}, True),
    "it ended before": ({"end_seen_at": NOW - seconds(31)}, False),
    "its end was read late": ({"end_seen_at": NOW, "changed_at_end": BY_SERVICE}, False),
    "its end was read late, and was late": ({"end_seen_at": NOW, "changed_at_end": BY_SERVICE + seconds(0.1)}, True),
    "it was lost after this one began": ({"settled_at": NOW - seconds(30.9)}, True),
    "it was lost before": ({"settled_at": NOW - seconds(31)}, False),
    "verified by a person": ({"recognised": False, "identity": verified()}, True),
    "verified by the service": ({"recognised": False, "identity": verified(by_desk=False)}, True),
    "verified as another": ({"recognised": False, "identity": replace(verified(), person_id="p-2")}, False),
    "enrolled by somebody": ({"recognised": False, "enrolled_seen": True}, True),
    "nothing is known of it": ({"recognised": False}, False),
    "as another": ({"person_id": "p-2", "recognised": True}, False),
    "as the member before": ({"person_id": "p-2"}, False),
    "rejected": ({"rejected_seen": True}, False),
}


def known(**changes: Any) -> Call:
    """Return a call whose caller is established as p-1, and which began with the service's clock."""
    return call(**{**KNOWN, "started_at": BY_SERVICE, **changes})


@pytest.mark.parametrize(("changes", "is_beside"), BESIDE.values(), ids=BESIDE)
async def test_two_callers_at_once_who_are_one_member_are_both_told(changes: dict[str, Any], is_beside: bool) -> None:
    """However each of them is established, and whoever came first."""
    held = HeldClaim(known(), established=["v-2"], records={"v-2": call(**{**OTHER, **changes})})
    await find_beside(as_claim(held))
    assert held.call.ledger.beside == (("v-2",) if is_beside else ())
    assert held.left == ([("v-2", SameMember(voice_id="v-1"), True)] if is_beside else [])
    assert held.since == [NOW - seconds(31 + BOOK.maximum_age_s)]


@pytest.mark.parametrize(("ended_s", "is_beside"), [(31, False), (30.9, True)])
async def test_call_that_was_over_when_the_other_one_began_is_not_beside_it(ended_s: float, is_beside: bool) -> None:
    """The member's line dropped, and an agent speaks about the first call while the second one goes on."""
    ours = known(end_seen_at=NOW - seconds(ended_s), hinted_at=NOW - seconds(100))
    held = HeldClaim(ours, established=["v-2"], records={"v-2": call(**{**OTHER, "first_seen_at": NOW - seconds(31)})})
    await find_beside(as_claim(held))
    assert bool(held.call.ledger.beside) is is_beside


@pytest.mark.parametrize(("into", "is_beside"), [("v-2", True), ("v-1", False)], ids=["another call", "this call"])
async def test_record_that_was_merged_counts_as_the_one_that_it_is_in(into: str, is_beside: bool) -> None:
    """The two ids are of one call, which may be this one."""
    records = {into: call(**{**OTHER, "voice_id": into})}
    held = HeldClaim(known(), established=["v-9"], merged={"v-9": into}, records=records)
    await find_beside(as_claim(held))
    assert bool(held.call.ledger.beside) is is_beside


async def test_who_finds_a_caller_reads_in_the_record_as_whom_it_is_established() -> None:
    """The record is written first, and once for each member: another call may look at the same moment."""
    held = HeldClaim(known())
    await find_beside(as_claim(held))
    assert [established_member(stored) for stored in held.established_in] == ["p-1"]
    await find_beside(as_claim(held))
    assert (len(held.established_in), len(held.kept)) == (1, 1)


async def test_caller_beside_is_forgotten_once_it_turns_out_to_be_none() -> None:
    """Its end was read late, or a person has found out that it was somebody else."""
    held = HeldClaim(known(beside=("v-2",), established_for="p-1"), records={})
    await find_beside(as_claim(held))
    assert held.call.ledger.beside == ()


@pytest.mark.parametrize("operator", [None, "ann"])
@pytest.mark.parametrize("is_known", [False, True])
async def test_enroll_is_decided_again_if_another_caller_is_found_before_it_is_sent(
    operator: str | None, is_known: bool
) -> None:
    """Redis may have lost what the other one had stored. An enroll that knows of the other one is a person's."""
    enroll = replace(INTENDED, operator=operator)
    ours = known(enroll=enroll, beside=("v-2",) if is_known else (), identity=verified())
    held = HeldClaim(ours, established=["v-2"], records={"v-2": call(**OTHER)})
    await send(as_claim(held), EffectKind.ENROLL)
    assert (held.call.ledger.enroll == enroll, len(held.service.sent)) == ((True, 0) if not is_known else (False, 1))


async def test_enroll_is_announced_for_rejects_before_it_is_sent() -> None:
    """A reject in another call must not take it back by mistake. With nobody assigned there is nothing to announce."""
    for person_id, announced in (("p-1", ["p-1"]), (None, [])):
        held = HeldClaim(call(enroll=INTENDED, person_id=person_id))
        await send(as_claim(held), EffectKind.ENROLL)
        assert (held.announced, len(held.service.sent)) == (announced, 1)


@pytest.mark.parametrize(
    ("hinted_s", "age_s", "since_s"), [(None, 29, -30), (-29, 0, -30), (-31, 0, -31), (-31, 32, -32), (-31, None, -31)]
)
async def test_call_began_when_it_was_first_heard_of_or_earlier_if_the_service_says_so(
    hinted_s: float | None, age_s: float | None, since_s: float
) -> None:
    """By its push, its first listing or its age. No other call goes on for longer than the rules say."""
    hinted_at = None if hinted_s is None else NOW + seconds(hinted_s)
    held = HeldClaim(known(hinted_at=hinted_at), found_s=age_s)
    await find_beside(as_claim(held))
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


@pytest.mark.parametrize(("created_s", "is_beside"), [(0, False), (-0.1, True)])
@pytest.mark.parametrize("listed_s", [None, 0.0, 5.0])
async def test_start_of_a_call_is_the_earlier_one_of_queue_and_record(
    listed_s: float | None, created_s: float, is_beside: bool
) -> None:
    """An end that was read late is compared with it, by the service's clock."""
    started_at = None if listed_s is None else BY_SERVICE + seconds(listed_s)
    ours = known(started_at=started_at, reading=reading(created_at=BY_SERVICE + seconds(created_s)))
    other = call(**{**OTHER, "end_seen_at": NOW, "changed_at_end": BY_SERVICE})
    held = HeldClaim(ours, established=["v-2"], records={"v-2": other})
    await find_beside(as_claim(held))
    assert bool(held.call.ledger.beside) is is_beside
