"""Merging two records of one call."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.fold import fold_note
from callkeeper.calls.member_evidence import of_member
from callkeeper.calls.merging import merged
from callkeeper.calls.notes import AssignWish, Distrusted, Merged, Verified
from callkeeper.calls.record import Asked
from tests.records import stored_value
from tests.unit.calls.specimens import INSTANTS, NOW, call, verified, word

MERGED_WISHES: dict[str, Any] = {
    "check_wish": word(),
    "assign_wish": word(person_id="p-1"),
    "distrusted": word(),
    "identity": verified(),
    "authenticated_seen": True,
    "rejected_seen": True,
    "enrolled_seen": True,
    "opted_out_seen": True,
    "opted_in_seen": True,
    "mismatch_seen": True,
    "core_username": "ann",
    "end_hinted_at": NOW,
    "heard_at": NOW,
}


@pytest.mark.parametrize(("field", "value"), MERGED_WISHES.items(), ids=MERGED_WISHES)
def test_fold_of_a_merge_loses_nothing_that_was_known(field: str, value: Any) -> None:
    """Statements and facts of either record are in the merged one (B11)."""
    other = call(voice_id="alt-1", **{field: value})
    merged, _ = fold_note(call(), Merged(call=other), NOW)
    assert stored_value(merged, field) == value


def test_fold_of_a_merge_keeps_the_last_moment_at_which_a_person_spoke() -> None:
    """Whichever record it is in: a call is not given up while a person's word may still be carried out."""
    spoke, before = call(heard_at=NOW), call(voice_id="alt-1", heard_at=NOW - timedelta(minutes=9))
    for one, other in ((spoke, before), (before, spoke)):
        assert fold_note(one, Merged(call=other), NOW)[0].statements.heard_at == NOW


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
        other = call(voice_id="alt-1", enroll=Effect(state=theirs))
        merged, _ = fold_note(call(enroll=Effect(state=ours)), Merged(call=other), NOW)
        assert merged.ledger.enroll.state is done


def test_fold_of_a_merge_takes_no_evidence_about_another_person() -> None:
    """What the voice showed of the member who stood on one record says nothing of the one on the other."""
    other = call(voice_id="alt-1", person_id="p-2", authenticated_seen=True, mismatch_seen=True, red_seen=True)
    merged, _ = fold_note(call(), Merged(call=other), NOW)
    assert (merged.seen.authenticated, merged.seen.mismatch, merged.seen.red) == (False, False, True)
    assert of_member(merged.seen, "p-2").mismatch


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


def test_merge_keeps_an_open_question_and_a_doubt_and_an_acknowledgement() -> None:
    """A question that was handled hides no open one; what was acknowledged is not asked again; a doubt stays one."""
    handled, open_ = (
        Asked(rule=rule, because="", asked_at=NOW, closed_by=by) for rule, by in (("a", "ann"), ("b", None))
    )
    other = call(voice_id="alt-1", asked=open_, unenroll_closed_by="bob", recheck_from=NOW)
    found = merged(call(asked=handled), other, NOW)
    assert found.statements.open_question == open_
    assert (found.statements.unenroll_closed_by, found.plan.recheck_from) == ("bob", NOW)
