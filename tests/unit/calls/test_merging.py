"""Merging two records of one call."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.member_evidence import usable_answers
from callkeeper.calls.merging import continued, merged
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.notes import AssignWish, Distrusted, Merged, Verified
from callkeeper.calls.record import Asked, Call, Candidate, History, Marks, Phase, Reason
from tests.records import stored_value, with_stored
from tests.unit.calls.specimens import INSTANTS, NOW, call, read_again, reading, verified, word

WISHES: dict[str, Any] = {
    "check_wish": word(),
    "assign_wish": word(person_id="p-1"),
    "distrusted": word(),
    "identity": verified(),
}


@pytest.mark.parametrize(("field", "value"), WISHES.items(), ids=WISHES)
def test_fold_of_a_merge_loses_no_statement(field: str, value: Any) -> None:
    """A statement that either record has is in the merged one (B11)."""
    for ours, theirs in (({}, {field: value}), ({field: value}, {})):
        folded, _ = fold_note(call(**ours), Merged(call=call(voice_id="alt-1", **theirs)), NOW)
        assert stored_value(folded, field) == value


P_3, P_4 = Marks(person_id="p-3"), Marks(person_id="p-4")
EARLIER = NOW - timedelta(minutes=9)
FLAGS = {
    "seen": "authenticated full_authentication rejected enrolled unenrolled opted_out opted_in mismatch risky_device red "
    "pending failed_feedback expects_voice was_named had_several_candidates recognised member_changed",
    "life": "was_live",
    "plan": "is_age_unknown",
    "statements": "were_made",
}
JOINED: dict[str, tuple[Any, Any, Any]] = {
    **{f"{part}.{name}": (True, True, True) for part, names in FLAGS.items() for name in names.split()},
    "names.phone_number": ("1", "2", "1"),
    "life.started_at": (NOW, EARLIER, NOW),
    "life.end_hinted_at": (NOW, EARLIER, NOW),
    "seen.person_id": ("p-1", "p-2", "p-1"),
    "seen.core_username": ("ann", "bob", "ann"),
    "seen.candidates": ((Candidate(person_id="p-1"),), (Candidate(person_id="p-2"),), (Candidate(person_id="p-1"),)),
    "seen.of_another": (("Red",), ("Green",), ("Red", "Green")),
    "seen.frauds": (("v-2",), ("v-3",), ("v-2", "v-3")),
    "seen.history": (
        History(answered=1, signs={"red": 1}),
        History(answered=2, signs={"red": 2}),
        History(answered=3, signs={"red": 3}),
    ),
    "seen.unusable_answers": (1, 2, 3),
    "plan.watch_from": (NOW, EARLIER, NOW),
    "plan.next_check_at": (NOW, EARLIER, NOW),
    "plan.recheck_from": (NOW, EARLIER, NOW),
    "plan.checks_by_desk": (1, 2, 2),
    "ledger.assigned_person_id": ("p-1", "p-2", "p-1"),
    "ledger.assigned_as": ("ann", "bob", "ann"),
    "ledger.enrolled_for": ("p-1", "p-2", "p-1"),
    "ledger.beside": (("v-2",), ("v-3",), ("v-2", "v-3")),
    "ledger.rejected_for": ("p-1", "p-2", "p-1"),
    "ledger.kept_marks": (
        Marks(person_id="p-1", kinds=("fraud",)),
        Marks(person_id="p-2", kinds=("suspected",)),
        Marks(person_id="p-1", kinds=("fraud", "suspected")),
    ),
    "ledger.marks_before": ((P_3,), (P_4,), (P_3, P_4)),
    "ledger.marked_numbers": (("a", "b"), ("b", "c"), ("a", "b", "c")),
    "statements.heard_at": (EARLIER, NOW, NOW),
    "statements.shown_identity": (verified(), verified(person_id="p-2"), verified()),
    "statements.withdrawn": ({"check": 1}, {"check": 2, "assign": 1}, {"check": 2, "assign": 1}),
    "statements.unenroll_closed_by": ("ann", "bob", "ann"),
    "statements.opt_out_closed_by": ("ann", "bob", "ann"),
}
"""What our record knows, what the other one does, and what the merged one must know then."""


@pytest.mark.parametrize(("field", "known"), JOINED.items(), ids=JOINED)
def test_merge_knows_what_either_record_knew(field: str, known: tuple[Any, Any, Any]) -> None:
    """Whatever one record knows is in the merged one; of two answers ours counts, the larger number, or all names."""
    part, name = field.split(".")

    def knowing(value: Any, voice_id: str) -> Call:
        record = call(voice_id=voice_id)
        return replace(record, **{part: replace(getattr(record, part), **{name: value})})

    ours, theirs, both = known
    nothing = getattr(type(getattr(call(), part))(), name)
    for one, other, expected in (
        (nothing, nothing, nothing),
        (ours, nothing, ours),
        (nothing, theirs, theirs),
        (ours, theirs, both),
    ):
        found = merged(knowing(one, "v-1"), knowing(other, "alt-1"), NOW)
        assert getattr(getattr(found, part), name) == expected


def test_two_records_of_one_call_are_no_callers_at_the_same_time() -> None:
    """Each may have found the other before it was known that they are one."""
    found = merged(call(beside=("alt-1", "v-3")), call(voice_id="alt-1", beside=("v-1",)), NOW)
    assert found.ledger.beside == ("v-3",)


def test_merge_knows_of_whom_the_person_who_closed_an_enroll_had_heard() -> None:
    """If both records were closed, ours counts."""
    ann = {"unenroll_closed_by": "ann", "unenroll_closed_members": ("p-2",)}
    bob = {"unenroll_closed_by": "bob", "unenroll_closed_members": ("p-3",)}
    for ours, theirs, closed in ((ann, bob, ("p-2",)), (ann, {}, ("p-2",)), ({}, bob, ("p-3",)), ({}, {}, None)):
        found = merged(call(**ours), call(voice_id="alt-1", **theirs), NOW)
        assert found.statements.unenroll_closed_members == closed


@pytest.mark.parametrize(
    ("ours", "theirs", "by_rule_only"),
    [
        *((None, True, True), (True, None, True), (True, True, True)),
        *((True, False, False), (False, True, False), (None, None, False)),
    ],
)
def test_merge_takes_no_reject_for_one_of_a_rule(ours: bool | None, theirs: bool | None, by_rule_only: bool) -> None:
    """Only if every record that shows a reject has it of a validation rule; None: it shows none."""
    shown = [{"rejected_seen": each is not None, "rejected_by_rule_only": bool(each)} for each in (ours, theirs)]
    seen = merged(call(**shown[0]), call(voice_id="alt-1", **shown[1]), NOW).seen
    assert (seen.rejected, seen.rejected_by_rule_only) == (None is not ours or None is not theirs, by_rule_only)


@pytest.mark.parametrize(
    ("ours", "theirs", "opted_in_last"),
    [
        *((None, True, True), (True, None, True), (True, True, True)),
        *((True, False, False), (False, True, False), (None, None, False)),
    ],
)
def test_merge_takes_no_opt_out_for_one_that_was_taken_back(
    ours: bool | None, theirs: bool | None, opted_in_last: bool
) -> None:
    """Only if every record that shows an opt-out has an opt-in after it; None: it shows none."""
    shown = [{"opted_out_seen": each is not None, "opted_in_last": bool(each)} for each in (ours, theirs)]
    seen = merged(call(**shown[0]), call(voice_id="alt-1", **shown[1]), NOW).seen
    assert (seen.opted_out, seen.opted_in_last) == (None is not ours or None is not theirs, opted_in_last)


@given(ours=st.sampled_from(EffectState), theirs=st.sampled_from(EffectState))
def test_fold_of_a_merge_never_forgets_a_request(ours: EffectState, theirs: EffectState) -> None:
    """If either ledger shows that a request was sent, the merged one does too."""
    other = call(voice_id="alt-1", enroll=Effect(state=theirs))
    merged, _ = fold_note(call(enroll=Effect(state=ours)), Merged(call=other), NOW)
    silent = {EffectState.NONE, EffectState.INTENDED}
    assert (merged.ledger.enroll.state in silent) == (ours in silent and theirs in silent)


@pytest.mark.parametrize("failed", [EffectState.REFUSED, EffectState.ABSENT])
@pytest.mark.parametrize("done", [EffectState.APPLIED, EffectState.CONFIRMED])
def test_fold_of_a_merge_keeps_what_was_done_under_either_id(failed: EffectState, done: EffectState) -> None:
    """An effect that failed under one id and succeeded under the other is in force: a second one would not be the first."""
    for ours, theirs in ((failed, done), (done, failed)):
        other = call(voice_id="alt-1", enroll=Effect(state=theirs, attempts=1))
        merged, _ = fold_note(call(enroll=Effect(state=ours, attempts=1)), Merged(call=other), NOW)
        assert merged.ledger.enroll.state is done


@pytest.mark.parametrize("state", [EffectState.NONE, EffectState.INTENDED])
def test_merge_counts_the_request_of_an_effect_that_was_withdrawn(state: EffectState) -> None:
    """It was lost under one id, and what a person asked for once more withdrawn. Nothing was sent under the other."""
    lost, unsent = Effect(attempts=1, sent_at=NOW), Effect(state=state, attempts=2, unsent=2)
    for ours, theirs in ((lost, unsent), (unsent, lost)):
        assert merged(call(enroll=ours), call(voice_id="alt-1", enroll=theirs), NOW).ledger.enroll == lost


VOICE: dict[str, Any] = {
    "authenticated_seen": True,
    "full_authentication_seen": True,
    "recognised": True,
    "mismatch_seen": True,
    "voiceprint_seen": True,
    "checks_used": 3,
    "history": History(answered=6, policies={"Green Voice": 2}, signs={"voice_mismatch": 4}),
}


@pytest.mark.parametrize(("first", "second"), [(VOICE, {}), ({}, VOICE), (VOICE, VOICE)])
def test_records_of_two_members_show_a_call_whose_member_was_changed(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    """What the voice showed in either of them counts for and against nobody; what was red or of the device stays."""
    left = reading(person_id="p-2", policies=("Green Voice",))
    other = call(voice_id="alt-1", person_id="p-2", red_seen=True, risky_device_seen=True, reading=left, **second)
    joint = fold_note(call(**first), Merged(call=other), NOW)[0]
    seen = joint.seen
    assert (seen.person_id, seen.member_changed, seen.red, seen.risky_device) == ("p-1", True, True, True)
    assert not any((seen.authenticated, seen.full_authentication, seen.recognised, seen.mismatch, seen.expects_voice))
    assert seen.history == History(answered=6, policies={"Green Voice": 0})
    assert usable_answers(seen) == 0
    assert not read_again(joint, policies=("Green Voice",)).seen.recognised


def test_records_of_two_members_who_were_never_checked_show_no_change() -> None:
    """As in one record, the first member was a mistake that nothing followed from."""
    seen = merged(call(), call(voice_id="alt-1", person_id="p-2"), NOW).seen
    assert (seen.person_id, seen.member_changed) == ("p-1", False)


@pytest.mark.parametrize(("ours", "theirs"), [("p-1", "p-1"), (None, "p-1"), ("p-1", None)])
def test_fold_of_a_merge_takes_the_evidence_of_a_record_whose_member_is_the_same_or_unknown(
    ours: str | None, theirs: str | None
) -> None:
    """What it shows of the voice counts."""
    seen = fold_note(call(person_id=ours), Merged(call=call(voice_id="alt-1", person_id=theirs, **VOICE)), NOW)[0].seen
    assert (seen.person_id, seen.member_changed, seen.recognised, seen.mismatch) == ("p-1", False, True, True)
    assert seen.history == VOICE["history"]
    assert usable_answers(seen) == 6


STATEMENTS = (
    st.builds(
        AssignWish,
        person_id=st.sampled_from(["p-1", "p-2", "p-3"]),
        operator=st.sampled_from(["ann", "bob"]),
        said_at=INSTANTS,
    )
    | st.builds(
        Verified,
        person_id=st.sampled_from(["p-1", "p-2", "p-3"]),
        validation_type=st.just("Other"),
        operator=st.sampled_from(["ann", "bob"]),
        said_at=INSTANTS,
    )
    | st.builds(Distrusted, operator=st.sampled_from(["ann", "bob"]), said_at=INSTANTS)
)


@given(said=st.lists(STATEMENTS, min_size=2, max_size=6), data=st.data())
def test_fold_of_statements_ends_with_the_one_that_redis_received_last(said: list[Any], data: st.DataObject) -> None:
    """In whatever order statements are folded, alone or by a merge, the one received last counts."""
    numbered = [replace(statement, number=n) for n, statement in enumerate(said, 1)]
    shuffled = data.draw(st.permutations(numbered))
    here = data.draw(st.integers(0, len(said)))
    folded, other = call(), call(voice_id="alt-1")
    for statement in shuffled[:here]:
        folded, _ = fold_note(folded, statement, NOW)
    for statement in shuffled[here:]:
        other, _ = fold_note(other, statement, NOW)
    folded, _ = fold_note(folded, Merged(call=other), NOW)
    for kind, field in ((AssignWish, "assign_wish"), (Verified, "identity"), (Distrusted, "distrusted")):
        numbers = [statement.number for statement in numbered if isinstance(statement, kind)]
        kept = stored_value(folded, field)
        assert (kept.number if kept else None) == max(numbers, default=None)


def test_merge_keeps_an_open_question() -> None:
    """A question that was handled hides no open one."""
    handled, open_ = (
        Asked(rule=rule, because="", asked_at=NOW, closed_by=by) for rule, by in (("a", "ann"), ("b", None))
    )
    for ours, theirs, kept in (
        *((handled, open_, open_), (open_, handled, open_)),
        *((handled, None, handled), (None, handled, handled)),
    ):
        found = merged(call(asked=ours), call(voice_id="alt-1", asked=theirs), NOW).statements
        assert found.asked == kept


LATER = {"end_seen_at": NOW - timedelta(minutes=11)}
GIVEN_UP = {"end_seen_at": None, "reason": Reason.LOST}
GONE = {"end_seen_at": None, "reason": Reason.UNDECIDED, "not_found_since": NOW}


@pytest.mark.parametrize(
    ("ours", "theirs", "phase"),
    [
        ({}, {}, Phase.SETTLED),
        ({}, {"distrusted": word()}, Phase.ENDED),
        ({}, {"identity": verified()}, Phase.ENDED),
        ({}, {"identity": verified(), "distrusted": word()}, Phase.ENDED),
        ({"distrusted": word()}, {"distrusted": word()}, Phase.SETTLED),
        ({"identity": verified()}, {"identity": verified()}, Phase.SETTLED),
        ({"rejected_seen": True}, {"distrusted": word()}, Phase.SETTLED),
        ({"rejected_seen": True}, {"distrusted": word(), "identity": verified()}, Phase.SETTLED),
        ({"rejected_seen": True, "enrolled_seen": True}, {"distrusted": word(), "identity": verified()}, Phase.ENDED),
        (LATER, {"distrusted": word()}, Phase.ENDED),
        (LATER, {"identity": verified()}, Phase.SETTLED),
        (LATER, {"check_wish": word()}, Phase.SETTLED),
        (GIVEN_UP, {}, Phase.LIVE),
        (GIVEN_UP, {"check_wish": word()}, Phase.LIVE),
        (GONE, {}, Phase.LIVE),
    ],
)
def test_merge_reopens_a_settled_call_for_a_word_that_it_did_not_know(
    ours: dict[str, Any], theirs: dict[str, Any], phase: Phase
) -> None:
    """As if the word had been said of the record that stays: only if it can still be carried out."""
    settled = call(**{"phase": Phase.SETTLED, "end_seen_at": NOW, "next_read_at": None, **ours})
    found = merged(settled, call(voice_id="alt-1", **theirs), NOW)
    assert found.life.phase is phase
    assert not found.is_settled or found.plan.next_read_at is None


def test_merge_of_a_late_distrust_ends_an_earlier_verification() -> None:
    """If the distrust is taken back, no enroll follows from what was said before; what was said with it may count."""
    settled = call(phase=Phase.SETTLED, end_seen_at=NOW)
    distrusted = call(voice_id="alt-1", distrusted=word())
    earlier = merged(with_stored(settled, identity=verified()), distrusted, NOW)
    assert (earlier.life.phase, earlier.statements.identity) == (Phase.ENDED, None)
    assert merged(settled, with_stored(distrusted, identity=verified()), NOW).statements.identity == verified()
    enrolled = merged(with_stored(settled, identity=verified(), enrolled_seen=True), distrusted, NOW)
    assert enrolled.statements.identity == verified()


def test_merge_lets_a_live_call_be_read_at_once() -> None:
    """A hint that is known under another id is no hint any more."""
    hint = merged(call(phase=Phase.HINTED), call(voice_id="alt-1"), NOW)
    assert (hint.life.phase, hint.plan.next_read_at) == (Phase.LIVE, NOW)
    ended = merged(call(phase=Phase.ENDED, end_seen_at=NOW), call(voice_id="alt-1"), NOW)
    assert (ended.life.phase, ended.plan.next_read_at) == (Phase.ENDED, NOW)


def test_merge_takes_the_higher_revision() -> None:
    """Whoever has seen either record must not take the merged one for an older one."""
    one, other = replace(call(), revision=3), replace(call(voice_id="alt-1"), revision=5)
    assert merged(one, other, NOW).revision == merged(other, one, NOW).revision == 5


GUID = "0b0f2bd4-27a0-4c3e-9d1c-3f1c5b3c9a11"


@pytest.mark.parametrize(
    ("other_id", "ours", "theirs", "names"),
    [
        ("alt-1", {}, {}, ("alt-1", None)),
        ("alt-2", {"alternate_id": "alt-1", "spelled": "ours"}, {}, ("alt-1", "ours")),
        (GUID.upper(), {}, {"alternate_id": "alt-1"}, ("alt-1", GUID.upper())),
    ],
)
def test_merge_knows_both_ids_of_the_call(
    other_id: str, ours: dict[str, Any], theirs: dict[str, Any], names: tuple[str | None, str | None]
) -> None:
    """A research case may name either. Another spelling is no other id, and requests spell the id as the service does."""
    known = call(voice_id=GUID, **ours)
    found = merged(known, call(voice_id=other_id, **theirs), NOW).names
    assert (found.alternate_id, found.spelled) == names


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (call(voice_id="alt-1", phone_number="5550100"), ("alt-1", None, "5550100")),
        (call(voice_id=GUID.upper(), alternate_id="alt-1"), ("alt-1", GUID.upper(), None)),
        (call(voice_id="alt-1", spelled="theirs"), ("alt-1", "theirs", None)),
    ],
)
def test_record_under_a_new_id_goes_on_as_the_other(other: Call, names: tuple[str | None, ...]) -> None:
    """Under the new id nothing was listed or read yet, and no check of it was counted elsewhere."""
    known = with_stored(other, checks_moved=3, checks_used=5)
    found = continued(CallId("cu-1", GUID), known)
    assert (found.names.alternate_id, found.names.spelled, found.names.phone_number) == names
    assert (found.voice_id, found.life.listed_at, found.seen.reading) == (GUID, None, None)
    assert (found.plan.checks_moved, found.plan.checks_used, found.ledger) == (0, 5, known.ledger)
