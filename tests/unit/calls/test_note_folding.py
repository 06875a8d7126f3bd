"""Folding notes into a record."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.note_folding import fold_note, new_call
from callkeeper.calls.notes import (
    AssignWish,
    CheckWish,
    Distrusted,
    Merged,
    Note,
    Pushed,
    Resolved,
    SameMember,
    Unlisted,
    Verified,
)
from callkeeper.calls.record import Call, Candidate, Marks, Phase, Reason
from tests.conftest import examples
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, CALLS, LISTED, NOW, call, read_again, reading, seconds

ID = CallId("cu-1", "v-1")


PUSHED = Pushed(has_ended=False, event_id="ev-1", received_at=NOW)

ENDED = Pushed(has_ended=True, event_id="ev-2", received_at=NOW)

NOTES: dict[str, Note] = {
    "pushed start": PUSHED,
    "pushed end": ENDED,
    "listed": LISTED,
    "unlisted": Unlisted(listed_at=NOW),
    "merged": Merged(call=call(voice_id="alt-1", enroll=Effect(state=EffectState.UNKNOWN, sent_at=NOW))),
    "verified": Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=NOW),
    "distrusted": Distrusted(operator="ann", said_at=NOW, reason="sounds wrong"),
    "assign": AssignWish(person_id="p-1", operator="ann", said_at=NOW),
    "check": CheckWish(operator="ann", said_at=NOW),
    "resolved": Resolved(applied=True, operator="ann", said_at=NOW),
}


@pytest.mark.parametrize("note", NOTES.values(), ids=NOTES)
@given(any_call=CALLS)
@examples(6)
def test_fold_of_a_note_twice_changes_nothing_more(any_call: Call, note: Note) -> None:
    """A note that is folded again after a crash changes nothing."""
    once, _ = fold_note(any_call, note, NOW)
    twice, _ = fold_note(once, note, NOW)
    assert twice == once


@pytest.mark.parametrize("note", [PUSHED, LISTED, Unlisted(listed_at=NOW)], ids=["pushed", "listed", "unlisted"])
def test_fold_of_a_late_hint_leaves_a_settled_call_settled(note: Note) -> None:
    """A push or listing that arrives after the end does not reopen the call (B2)."""
    settled = call(phase=Phase.SETTLED, reason=Reason.UNDECIDED, next_read_at=None, end_seen_at=NOW)
    folded, _ = fold_note(settled, note, NOW)
    assert (folded.life.phase, folded.plan.next_read_at) == (Phase.SETTLED, None)


def test_fold_of_a_push_believes_nothing_but_the_hint() -> None:
    """A pushed end only leads to a read: the call continues until stored details show the end."""
    folded, _ = fold_note(call(reading=reading(read_at=NOW - seconds(5))), ENDED, NOW)
    assert (folded.life.phase, folded.life.ended_at, folded.plan.next_read_at) == (Phase.LIVE, None, NOW)


def test_fold_of_many_pushed_ends_reads_at_most_once_a_second() -> None:
    """However often an end is pushed, the next read is a second after the last."""
    folded, _ = fold_note(call(reading=reading(read_at=NOW - seconds(0.3))), ENDED, NOW)
    assert folded.plan.next_read_at == NOW + seconds(0.7)


def test_fold_of_a_pushed_end_of_a_call_that_was_never_read_reads_at_once() -> None:
    """There is no last read to keep a distance from."""
    folded, _ = fold_note(call(reading=None), ENDED, NOW)
    assert folded.plan.next_read_at == NOW


def test_fold_of_notes_never_brings_a_check_forward() -> None:
    """Pushes and listings do not change the time of the next check (B12)."""
    folded = call()
    for note in (PUSHED, ENDED, LISTED, Unlisted(listed_at=NOW)):
        folded, _ = fold_note(folded, note, NOW)
    assert (folded.plan.next_check_at, folded.plan.checks_used) == (call().plan.next_check_at, 0)


def test_fold_of_a_listing_makes_a_hint_live() -> None:
    """The queue confirms a call; its candidates and its start are the service's."""
    hint, _ = fold_note(new_call(ID, [PUSHED], NOW), PUSHED, NOW)
    live, _ = fold_note(hint, LISTED, NOW)
    assert (hint.life.phase, live.life.phase, live.seen.candidates) == (Phase.HINTED, Phase.LIVE, LISTED.candidates)


def test_fold_of_an_old_listing_changes_nothing() -> None:
    """An earlier listing does not replace a later one, however late it is delivered."""
    seen = call(listed_at=NOW)
    for old in (replace(LISTED, listed_at=NOW - seconds(1), person_id="p-9"), Unlisted(listed_at=NOW - seconds(1))):
        assert fold_note(seen, old, NOW) == (seen, [])


def test_fold_of_a_listing_that_names_another_person_than_details_has_details_read_again() -> None:
    """An entry of the queue can be late or garbled, so details decide. The entry counts while no details were read."""
    other = replace(LISTED, person_id="p-2")
    doubted, _ = fold_note(call(), other, NOW)
    assert (doubted.seen.person_id, doubted.plan.needs_verifying) == ("p-1", True)
    unread, _ = fold_note(call(reading=None), other, NOW)
    assert (unread.seen.person_id, unread.plan.needs_verifying) == ("p-2", True)


def test_fold_of_a_listing_from_the_future_counts_as_now() -> None:
    """A note written before Redis's clock was set back does not look fresh for an hour (C19)."""
    folded, _ = fold_note(call(), replace(LISTED, listed_at=NOW + seconds(3600)), NOW)
    assert folded.life.listed_at == NOW


def test_fold_of_a_listing_remembers_that_there_were_several_candidates() -> None:
    """The one that is left need not be the caller."""
    several = replace(LISTED, candidates=(Candidate(person_id="p-1"), Candidate(person_id="p-2")))
    assert not fold_note(call(), LISTED, NOW)[0].seen.had_several_candidates
    found, _ = fold_note(call(), several, NOW)
    assert fold_note(found, replace(LISTED, listed_at=NOW + seconds(1)), NOW)[0].seen.had_several_candidates


@pytest.mark.parametrize(("number", "is_known"), [("5550100", True), (None, True), ("5550199", False)])
def test_marks_under_a_number_are_looked_up_again_for_another_number(number: str | None, is_known: bool) -> None:
    """What other calls left under the one before says nothing of this one."""
    marks = Marks(person_id="p-1", has_number=True, kinds=("fraud",))
    known = call(phone_number="5550100", earlier_marks=marks)
    found, _ = fold_note(known, replace(LISTED, phone_number=number), NOW)
    assert found.seen.earlier_marks == replace(marks, has_number=is_known)
    assert fold_note(call(), replace(LISTED, phone_number=number), NOW)[0].seen.earlier_marks is None


def test_fold_of_a_first_reading_long_after_the_pushed_end_begins_the_final_analysis() -> None:
    """Workers may have stood still meanwhile. The provider had time for its analysis, so no read more is needed."""
    hinted, _ = fold_note(call(reading=reading(read_at=NOW - seconds(5))), ENDED, NOW)
    ended = read_again(hinted, NOW + seconds(10), has_ended=True)
    assert facts_of_record(read_again(ended, NOW + seconds(15), has_ended=True), BOOK.policies).final_analysis


def test_call_beside_is_recorded_once_and_never_the_call_itself() -> None:
    """A note can come twice, and two records of one call may find each other."""
    known = call(alternate_id="alt-1")
    for own in ("v-1", "alt-1"):
        assert fold_note(known, SameMember(voice_id=own), NOW) == (known, [])
    found, lines = fold_note(known, SameMember(voice_id="v-2"), NOW)
    assert (found.ledger.beside, found.statements.asked, lines) == (("v-2",), None, [])
    assert fold_note(found, SameMember(voice_id="v-2"), NOW) == (found, [])
    assert fold_note(found, SameMember(voice_id="v-3"), NOW)[0].ledger.beside == ("v-2", "v-3")


def test_settled_call_asks_a_person_about_the_call_beside_it_at_once() -> None:
    """Nothing is decided for it any more, and its voice may be enrolled."""
    settled = call(phase=Phase.SETTLED, reason=Reason.ENROLLED, enrolled_seen=True)
    found, (line,) = fold_note(settled, SameMember(voice_id="v-2"), NOW)
    asked = found.statements.open_question
    assert asked is not None
    assert (asked.rule, asked.asked_at, asked.because.endswith("The other call is v-2.")) == (
        "same_member_live",
        NOW,
        True,
    )
    assert (line.what, line.kind, line.rule, line.because) == ("decided", "ask", asked.rule, asked.because)
    assert line.earlier_calls == {"same_member_live": "v-2"}
