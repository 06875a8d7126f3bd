"""Folding notes and readings into a record."""

from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from callkeeper.calls.action_status import ActionState, ActionStatus, status_of
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.facts import Facts
from callkeeper.calls.fold import assigned, fold_check, fold_note, new_call, reading_of, unassigned
from callkeeper.calls.item_names import CallId
from callkeeper.calls.member_evidence import usable_answers
from callkeeper.calls.notes import (
    AssignWish,
    CheckWish,
    Distrusted,
    Listed,
    Merged,
    Note,
    Pushed,
    Resolved,
    Unlisted,
    Verified,
    Withdrawn,
)
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record import Asked, Call, Candidate, History, Marks, Phase, Reason, with_effect
from callkeeper.calls.trail import Entry
from callkeeper.service import PhoneCall
from callkeeper.service.phone_calls import ResearchCase, VendorCall, VendorEvent
from tests.conftest import examples
from tests.records import facts_of_record, with_stored
from tests.unit.calls.specimens import BOOK, CALLS, NOW, call, read_again, reading, seconds, verified

ID = CallId("cu-1", "v-1")
LISTED = Listed(listed_at=NOW, started_at=NOW - seconds(1), candidates=(Candidate(person_id="p-1"),))
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
    settled = call(phase=Phase.SETTLED, reason=Reason.UNDECIDED, next_read_at=None)
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


def test_fold_of_a_reading_charges_what_a_lost_record_made_for_the_person() -> None:
    """If only the service knows a call's person, the checks that a lost record can have made count once."""
    new = call(watch_from=None, next_check_at=None, checks_used=3, checks_if_assigned=4, assign=Effect())
    begun = read_again(new, core_username="ann")
    assert (begun.plan.checks_used, begun.plan.checks_if_assigned) == (7, 0)
    assert read_again(begun).plan.checks_used == 7


def test_fold_of_a_reading_waits_for_our_assign_of_a_person_whom_the_service_filled_in() -> None:
    """A lost record would have assigned them before a check, if they are the only candidate: the next listing says so."""
    new = call(watch_from=None, next_check_at=None, checks_used=3, checks_if_assigned=4, assign=Effect())
    filled_in = read_again(new)
    assert (filled_in.plan.checks_used, filled_in.plan.checks_if_assigned, filled_in.plan.watch_from) == (3, 4, None)
    named, _ = fold_note(filled_in, replace(LISTED, listed_at=NOW + seconds(1)), NOW + seconds(1))
    assert read_again(named, NOW + seconds(2)).plan.watch_from is None, "the rules assign them now"
    unnamed, _ = fold_note(filled_in, replace(LISTED, listed_at=NOW + seconds(1), candidates=()), NOW + seconds(1))
    assert read_again(unnamed, NOW + seconds(2)).plan.checks_used == 7, (
        "the rules assign nobody: they may have checked before"
    )


def test_fold_of_a_reading_that_shows_our_own_assign_charges_nothing() -> None:
    """We assigned because nobody was: a lost record checked for no person, although the answer to the assign was lost."""
    sent = Effect(state=EffectState.UNKNOWN, person_id="p-1", sent_at=NOW, attempts=1)
    new = call(watch_from=None, next_check_at=None, checks_used=3, checks_if_assigned=4, person_id=None, assign=sent)
    begun = read_again(new)
    assert (begun.plan.checks_used, begun.plan.checks_if_assigned, begun.plan.watch_from) == (3, 0, NOW)
    other = read_again(replace(new, ledger=replace(new.ledger, assign=replace(sent, person_id="p-2"))))
    assert other.plan.checks_used == 7, "somebody else was assigned: a lost record may have known of it"


@pytest.mark.parametrize(("username", "used"), [(None, 3), ("bob", 7)])
def test_assign_of_a_call_that_somebody_had_claimed_charges_what_may_have_been_checked(
    username: str | None, used: int
) -> None:
    """A record that Redis lost may have checked it for whoever stood there."""
    new = call(watch_from=None, next_check_at=None, checks_used=3, checks_if_assigned=4, core_username=username)
    assert assigned(new, BOOK, NOW).plan.checks_used == used


def test_call_that_we_assign_to_another_person_is_read_before_anything_else() -> None:
    """The last reading is not about this person. It is, if the same person stood there before."""
    for stood, is_read_again in (("p-2", True), ("p-1", False), (None, False)):
        assert assigned(call(person_id=stood), BOOK, NOW).plan.needs_verifying == is_read_again


def test_fold_of_a_listing_from_the_future_counts_as_now() -> None:
    """A note written before Redis's clock was set back does not look fresh for an hour (C19)."""
    folded, _ = fold_note(call(), replace(LISTED, listed_at=NOW + seconds(3600)), NOW)
    assert folded.life.listed_at == NOW


REMEMBERED: dict[str, tuple[dict[str, Any], str]] = {
    "green by the voice": ({"status": "FullAuthentication", "is_voice_verified": True}, "green"),
    "fully authenticated": ({"status": "FullAuthentication"}, "fully_authenticated"),
    "rejected": ({"status": "RejectCallerVoice"}, "rejected"),
    "rejected by a rule": ({"status": "RejectCallerVoiceFromValidationRule"}, "rejected"),
    "enrolled elsewhere": ({"status": "AcceptCallerVoice"}, "enrolled"),
    "the manual policy": ({"policies": ("Green Manual Authentication",)}, "enrolled"),
    "opted out": ({"status": "VoiceOptOut"}, "opted_out"),
    "opted in": ({"status": "VoiceOptIn"}, "opted_in"),
    "mismatch by status": ({"status": "VoiceMismatch"}, "voice_mismatch"),
    "mismatch by flag": ({"is_voice_mismatch": True}, "voice_mismatch"),
    "a result of the voice is to come": ({"status": "Voice Pending"}, "voice_undecided"),
    "verified by questions": ({"status": "AnsweredQuestions"}, "verified"),
    "verified by passcode": ({"status": "MFAValidated"}, "verified"),
}


@pytest.mark.parametrize(("seen", "fact"), REMEMBERED.values(), ids=REMEMBERED)
def test_fold_of_a_reading_remembers_for_the_whole_call(seen: dict[str, Any], fact: str) -> None:
    """What was seen once stays true, although the status is overwritten by the next activity."""
    later = read_again(read_again(call(), **seen), NOW + seconds(5), status="AgentViewed")
    assert not getattr(facts_of_record(call(), BOOK.policies), fact)
    assert getattr(facts_of_record(later, BOOK.policies), fact)


BY_RULE, BY_VOICE = "RejectCallerVoiceFromValidationRule", "RejectCallerVoice"


@pytest.mark.parametrize(
    ("statuses", "by_rule_only"),
    [
        ([BY_RULE], True),
        ([BY_RULE, "AgentViewed"], True),
        ([BY_RULE, BY_VOICE], False),
        ([BY_VOICE, BY_RULE], False),
        ([BY_RULE, BY_VOICE, BY_RULE], False),
        ([BY_VOICE], False),
    ],
)
def test_reject_is_of_a_rule_only_until_somebody_rejects_the_voice(statuses: list[str], by_rule_only: bool) -> None:
    """A person's reject takes enrolls back, and none follows it; after a rule's a person's distrust still leads to one."""
    known = call()
    for after_s, status in enumerate(statuses):
        known = read_again(known, NOW + seconds(after_s), status=status)
    assert (known.seen.rejected, known.seen.rejected_by_rule_only) == (True, by_rule_only)


def test_fold_of_a_reading_remembers_what_no_fact_says() -> None:
    """That it went on, that it named a person, that the member has a voiceprint. Nothing of it is known before."""
    fresh = call(person_id=None)
    silent = read_again(fresh, person_id=None, has_ended=True)
    assert (silent.life.was_live, silent.seen.was_named, silent.seen.voiceprint) == (False, False, False)
    shown = read_again(fresh, is_voice_enrolled=True)
    later = read_again(shown, NOW + seconds(5), person_id=None, has_ended=True)
    assert (later.life.was_live, later.seen.was_named, later.seen.voiceprint) == (True, True, True)


def test_fold_of_a_listing_remembers_that_there_were_several_candidates() -> None:
    """The one that is left need not be the caller."""
    several = replace(LISTED, candidates=(Candidate(person_id="p-1"), Candidate(person_id="p-2")))
    assert not fold_note(call(), LISTED, NOW)[0].seen.had_several_candidates
    found, _ = fold_note(call(), several, NOW)
    assert fold_note(found, replace(LISTED, listed_at=NOW + seconds(1)), NOW)[0].seen.had_several_candidates


@pytest.mark.parametrize(
    ("changes", "is_shown"),
    [
        ({}, True),
        ({"state": EffectState.CONFIRMED}, True),
        ({"state": EffectState.UNKNOWN}, False),
        ({"person_id": "p-2"}, False),
    ],
)
def test_assign_was_shown_once_the_queue_or_the_details_name_its_person(
    changes: dict[str, Any], is_shown: bool
) -> None:
    """So it was not ignored."""
    assign = replace(Effect(state=EffectState.APPLIED, person_id="p-1", sent_at=NOW), **changes)
    known = call(assign=assign)
    assert not fold_note(known, replace(LISTED, person_id=None), NOW)[0].ledger.assign.was_shown
    assert not read_again(known, person_id=None).ledger.assign.was_shown
    assert fold_note(known, replace(LISTED, person_id="p-1"), NOW)[0].ledger.assign.was_shown is is_shown
    assert read_again(known, person_id="p-1").ledger.assign.was_shown is is_shown


@pytest.mark.parametrize("is_operators", [True, False])
def test_person_of_an_operator_stays_theirs_after_our_assign(is_operators: bool) -> None:
    """Only whom we have chosen may be replaced by a person at the desk."""
    assign = Effect(
        state=EffectState.APPLIED, person_id="p-1", requested_by="bot", is_operators=is_operators, sent_at=NOW
    )
    ledger = assigned(call(assign=assign), BOOK, NOW).ledger
    assert (ledger.assigned_person_id, ledger.assigned_as) == ((None, None) if is_operators else ("p-1", "bot"))


@pytest.mark.parametrize(
    ("shown", "now_reads", "verified_as"),
    [
        (reading(), "p-1", "p-1"),
        (reading(), "p-2", ""),
        (reading(), None, ""),
        (reading(person_id=None), "p-1", ""),
        (None, "p-1", "p-1"),
        (None, "p-2", ""),
        (None, None, "p-1"),
    ],
)
def test_passcode_that_came_with_another_member_is_nobodys(shown: Any, now_reads: str | None, verified_as: str) -> None:
    """It may be of either. If details have named nobody so far, the queue's member counts."""
    found = read_again(call(reading=shown, started_at=NOW), person_id=now_reads, status="MFAValidated")
    assert found.statements.identity is not None
    assert found.statements.identity.person_id == verified_as


def test_passcode_of_a_call_that_was_found_late_is_nobodys() -> None:
    """Others may have stood there before the first read."""
    found = read_again(call(reading=None, started_at=NOW - seconds(16)), status="MFAValidated")
    assert found.statements.identity is not None
    assert found.statements.identity.person_id == ""


def test_passcode_that_came_with_our_assign_is_of_the_member_whom_we_assigned() -> None:
    """Nobody else has put anybody on the call meanwhile."""
    known = call(reading=reading(person_id=None), assigned_person_id="p-1")
    found = read_again(known, person_id="p-1", status="MFAValidated").statements.identity
    assert found is not None
    assert found.person_id == "p-1"


@pytest.mark.parametrize("shown", [None, "p-2"])
def test_call_whose_assign_was_ignored_is_nobodys(shown: str | None) -> None:
    """Unless details name somebody: that is not whom we had assigned."""
    known = call(person_id=shown or "p-1", answered_for="p-1", assigned_person_id="p-1", assigned_as="bot")
    found = unassigned(with_stored(known, reading=reading(person_id=shown)))
    assert (found.ledger.assigned_person_id, found.ledger.assigned_as) == (None, None)
    assert (found.seen.person_id, found.seen.answered_for) == ((None, "") if shown is None else (shown, "p-1"))


@pytest.mark.parametrize(("number", "is_known"), [("5550100", True), (None, True), ("5550199", False)])
def test_marks_under_a_number_are_looked_up_again_for_another_number(number: str | None, is_known: bool) -> None:
    """What other calls left under the one before says nothing of this one."""
    marks = Marks(person_id="p-1", has_number=True, kinds=("fraud",))
    known = call(phone_number="5550100", earlier_marks=marks)
    found, _ = fold_note(known, replace(LISTED, phone_number=number), NOW)
    assert found.seen.earlier_marks == replace(marks, has_number=is_known)
    assert fold_note(call(), replace(LISTED, phone_number=number), NOW)[0].seen.earlier_marks is None


FORGOTTEN = ("AgentViewed", "GrabbedCall", "A status of next year")


@pytest.mark.parametrize("status", FORGOTTEN)
def test_fold_of_a_status_without_meaning_changes_no_fact(status: str) -> None:
    """Statuses that mean nothing to us leave every fact but the status itself as it was."""

    def blank(facts: Facts) -> dict[str, Any]:
        return {name: value for name, value in facts.as_dict().items() if name != "status"}

    assert blank(facts_of_record(read_again(call(), status=status), BOOK.policies)) == blank(
        facts_of_record(call(), BOOK.policies)
    )


@pytest.mark.parametrize("reported", [{"has_ended": True}, {"status": "CallEnded"}], ids=["callEnded", "status"])
def test_fold_of_a_reading_believes_the_end(reported: dict[str, Any]) -> None:
    """The end is believed from stored details, by flag or by status."""
    ended = read_again(call(), **reported)
    assert (ended.life.phase, ended.life.ended_at) == (Phase.ENDED, NOW)
    assert read_again(ended, NOW + seconds(2), **reported).life.ended_at == NOW


@pytest.mark.parametrize("reported", [{"has_ended": True}, {"status": "CallEnded"}], ids=["callEnded", "status"])
@pytest.mark.parametrize(
    ("life", "is_taken_back"),
    [({}, True), ({"end_hinted_at": NOW}, False), ({"is_unlisted": True}, False), ({"is_reopened": True}, False)],
    ids=["details-alone", "pushed-too", "unlisted", "reopened"],
)
def test_end_that_details_take_back(reported: dict[str, Any], life: dict[str, Any], *, is_taken_back: bool) -> None:
    """One wrong answer, or the end of one leg, ends no call that goes on. A later status hides no end that others show."""
    ended = read_again(call(), **reported)
    shown = replace(ended, life=replace(ended.life, **life))
    after = read_again(shown, NOW + seconds(2))
    assert (after.life.phase is Phase.LIVE, after.life.ended_at is None) == (is_taken_back, is_taken_back)


def test_fold_of_a_reading_notes_whom_the_service_verified() -> None:
    """Identity established by the service counts for the person assigned when it said so, not for a later one (E6)."""
    first = read_again(call(), status="MFAValidated")
    moved = read_again(first, NOW + seconds(5), status="MFAValidated", person_id="p-2")
    assert facts_of_record(first, BOOK.policies).verified_person_is_assigned
    assert not facts_of_record(moved, BOOK.policies).verified_person_is_assigned


def test_fold_of_a_reading_after_the_end_keeps_who_was_verified_in_time() -> None:
    """The caller was verified in the call; that the service says it once more after the end makes that no later."""
    before = read_again(call(), NOW, status="AnsweredQuestions")
    before = read_again(before, NOW + seconds(10), status="CallEnded", has_ended=True)
    after = read_again(before, NOW + seconds(15), status="MFAValidated", has_ended=True)
    assert facts_of_record(after, BOOK.policies).verified_in_time


def test_fold_of_a_reading_after_the_end_that_shows_something_else_begins_the_final_analysis_anew() -> None:
    """Also one that does not show the end: a late copy of the record, or one whose status was overwritten."""
    ended = read_again(read_again(call(), NOW, has_ended=True), NOW + seconds(3), has_ended=True)
    assert facts_of_record(read_again(ended, NOW + seconds(8), has_ended=True), BOOK.policies).final_analysis
    late = read_again(ended, NOW + seconds(8), is_high_risk_device=True)
    assert not facts_of_record(late, BOOK.policies).final_analysis
    assert not facts_of_record(read_again(late, NOW + seconds(9), has_ended=True), BOOK.policies).final_analysis


def test_fold_of_a_reading_with_policies_in_another_order_is_the_same_analysis() -> None:
    """The Spec names no order. Else such a record would be read for hours, and no verified caller enrolled."""
    ended = read_again(call(), NOW, has_ended=True)
    ended = read_again(ended, NOW + seconds(3), has_ended=True, policies=("Yellow Review", "Blue Carrier"))
    same = read_again(ended, NOW + seconds(8), has_ended=True, policies=("Blue Carrier", "Yellow Review"))
    assert facts_of_record(same, BOOK.policies).final_analysis


def test_fold_of_a_reading_directly_after_the_end_begins_no_final_analysis() -> None:
    """The provider's analysis comes with the end or after it: a read in the same second may be too early."""
    ended = read_again(call(), NOW, has_ended=True)
    assert not facts_of_record(read_again(ended, NOW + seconds(6), has_ended=True), BOOK.policies).final_analysis


def test_fold_of_a_first_reading_long_after_the_pushed_end_begins_the_final_analysis() -> None:
    """Workers may have stood still meanwhile. The provider had time for its analysis, so no read more is needed."""
    hinted, _ = fold_note(call(reading=reading(read_at=NOW - seconds(5))), ENDED, NOW)
    ended = read_again(hinted, NOW + seconds(10), has_ended=True)
    assert facts_of_record(read_again(ended, NOW + seconds(15), has_ended=True), BOOK.policies).final_analysis


def test_fold_of_a_reading_ends_the_count_of_failed_reads() -> None:
    """Else the next read waits as after a failure, and a doubt about an effect is given up too early."""
    assert read_again(call(reads_failed=3)).plan.reads_failed == 0


def test_fold_of_a_reading_keeps_the_word_of_the_desk() -> None:
    """A person's verification of a caller stays, whatever the service says later."""
    said = call(identity=verified())
    assert read_again(said, status="AnsweredQuestions").statements.identity == said.statements.identity


def test_fold_of_a_reading_begins_the_watch_once() -> None:
    """The watch begins with the first reading that shows a person, and is never begun again."""
    new = call(watch_from=None, next_check_at=None)
    begun = read_again(new)
    assert begun.plan.watch_from == NOW
    assert read_again(begun, NOW + seconds(7)).plan.watch_from == NOW
    nobody = read_again(call(watch_from=None, next_check_at=None, person_id=None, assign=Effect()), person_id=None)
    assert nobody.plan.watch_from is None


def test_fold_of_statements_without_numbers_orders_them_by_when_they_were_said() -> None:
    """A statement of an earlier release is ordered among numbered ones by its receiver's clock."""
    old = AssignWish(person_id="p-1", operator="ann", said_at=NOW)
    later = AssignWish(person_id="p-2", operator="bob", said_at=NOW, number=int(NOW.timestamp() * 1000) + 1)
    for order in ((old, later), (later, old)):
        folded = call()
        for statement in order:
            folded, _ = fold_note(folded, statement, NOW)
        assert folded.statements.assign_wish is not None
        assert folded.statements.assign_wish.person_id == "p-2"


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "late"])
def test_fold_of_a_persons_answer_is_corrected_by_a_later_one(in_order: bool) -> None:
    """A later resolution corrects an earlier one, and an earlier one changes nothing any more."""
    first = Resolved(applied=True, operator="ann", said_at=NOW, number=1, wish="1" * 32)
    second = Resolved(applied=False, operator="bob", said_at=NOW, number=2, wish="2" * 32)
    folded = call(phase=Phase.SETTLED, reason=Reason.UNRESOLVED, enroll=Effect(state=EffectState.UNRESOLVED))
    trail: list[Entry] = []
    for note in (first, second) if in_order else (second, first):
        folded, lines = fold_note(folded, note, NOW)
        trail += lines
    assert folded.ledger.enroll.state is EffectState.ABSENT
    states = {line.wish: status_of(folded, trail, line).state for line in trail if line.what == "said"}
    expected = ActionState.SUPERSEDED if in_order else ActionState.HELD
    assert states == {"1" * 32: expected, "2" * 32: ActionState.DONE}


def test_fold_of_a_persons_answer_twice_closes_nothing_else() -> None:
    """The first time it resolves the enroll. The second time it must not count as having seen what a rule asks."""
    answer = Resolved(applied=True, operator="ann", said_at=NOW, number=1)
    doubt = Effect(state=EffectState.UNRESOLVED)
    once, _ = fold_note(call(enroll=doubt, asked=Asked(rule="r", because="why", asked_at=NOW)), answer, NOW)
    twice, _ = fold_note(once, answer, NOW)
    assert twice.statements.open_question is not None


@pytest.mark.parametrize("applied", [True, False])
def test_fold_of_a_persons_answer_that_a_reject_was_applied_tells_all_enrolls(applied: bool) -> None:
    """As after a reject of known outcome: the call looks for its own enroll, and tells the member's other calls."""
    doubtful = call(
        phase=Phase.SETTLED,
        enroll=Effect(state=EffectState.APPLIED, person_id="p-1"),
        reject=Effect(state=EffectState.UNRESOLVED, person_id="p-1"),
        rejected_for="p-1",
    )
    folded, _ = fold_note(doubtful, Resolved(applied=applied, operator="ann", said_at=NOW, number=1), NOW)
    told = (folded.plan.recheck_from, folded.ledger.rejected_for)
    assert told == ((NOW, None) if applied else (None, "p-1"))


def test_fold_of_a_persons_answer_changes_no_refusal_that_a_person_has_seen() -> None:
    """What the service refused was not applied, also if a person says later that another effect of the call was."""
    refused = Effect(state=EffectState.REFUSED, sent_at=NOW, attempts=2, refusal="busy")
    doubtful = call(enroll=refused, reject=Effect(state=EffectState.UNKNOWN, sent_at=NOW, attempts=1))
    folded, _ = fold_note(doubtful, Resolved(applied=False, operator="ann", said_at=NOW, number=1), NOW)
    folded = with_effect(folded, EffectKind.REJECT, replace(folded.ledger.reject, state=EffectState.UNRESOLVED))
    folded, _ = fold_note(folded, Resolved(applied=True, operator="ann", said_at=NOW, number=2), NOW)
    assert (folded.ledger.enroll.state, folded.ledger.reject.state) == (EffectState.REFUSED, EffectState.CONFIRMED)


@pytest.mark.parametrize(("missing", "reason"), [(None, "call_given_up"), (NOW, "call_lost")])
def test_word_about_a_call_that_is_over_says_why(missing: Any, reason: str) -> None:
    """What could not be sent for a call that was given up is told with the reason; it is not said to have ended."""
    folded, lines = fold_note(call(), Distrusted(operator="ann", said_at=NOW, wish="1" * 32), NOW)
    over = replace(folded, life=replace(folded.life, phase=Phase.SETTLED, reason=Reason.LOST, not_found_since=missing))
    assert status_of(over, lines, lines[0]) == ActionStatus(ActionState.HELD, (reason,))


@pytest.mark.parametrize("why", [{}, {"not_found_since": NOW}], ids=["too old", "not found"])
def test_fold_of_a_word_returns_a_call_that_was_given_up(why: dict[str, Any]) -> None:
    """A word that arrives while the call is given up is not lost: details are read once more, at once."""
    over = call(phase=Phase.SETTLED, reason=Reason.LOST, reads_failed=5, **why)
    folded, _ = fold_note(over, NOTES["distrusted"], NOW)
    assert (folded.life.phase, folded.plan.needs_verifying, folded.plan.reads_failed, folded.statements.heard_at) == (
        Phase.LIVE,
        True,
        0,
        NOW,
    )
    about_to_be = call(reads_failed=5, not_found_since=NOW - seconds(58))
    assert fold_note(about_to_be, NOTES["distrusted"], NOW)[0].plan.reads_failed == 0


@pytest.mark.parametrize("state", [EffectState.CONFIRMED, EffectState.ABSENT])
def test_fold_of_a_persons_answer_corrects_no_evidence(state: EffectState) -> None:
    """What stored details have shown is known; a person may correct only what a person has said."""
    known = call(enroll=Effect(state=state, sent_at=NOW, attempts=1))
    answer = Resolved(
        applied=state is EffectState.ABSENT, effect="enroll", operator="ann", said_at=NOW, number=1, wish="1" * 32
    )
    assert fold_note(known, answer, NOW)[0].ledger.enroll == known.ledger.enroll


@pytest.mark.parametrize("reason", ["another voice", ""])
def test_fold_of_a_distrust_writes_its_reason(reason: str) -> None:
    """And none if none was given."""
    said = Distrusted(operator="ann", said_at=NOW, reason=reason, wish="1" * 32)
    folded, [line] = fold_note(call(), said, NOW)
    assert (line.because, folded.statements.distrusted and folded.statements.distrusted.reason) == (
        reason or None,
        reason,
    )


@pytest.mark.parametrize(("number", "is_taken"), [(6, True), (7, True), (8, False)])
def test_fold_of_a_withdrawal_takes_back_what_was_said_until_then(number: int, is_taken: bool) -> None:
    """Also if it is folded first, and what has the same number; not what is said afterwards."""
    said = Distrusted(operator="ann", said_at=NOW, number=number, wish="1" * 32)
    taken = Withdrawn(what="distrusted", operator="bob", said_at=NOW, number=7, wish="2" * 32)
    for order in ((said, taken), (taken, said)):
        folded = call()
        for note in order:
            folded, _ = fold_note(folded, note, NOW)
        assert (folded.statements.distrusted is None) is is_taken


@pytest.mark.parametrize("is_enrolled", [True, False], ids=["enrolled", "not enrolled"])
def test_fold_of_a_mistaken_distrust_after_the_end_keeps_the_verification_of_an_enrolled_call(
    is_enrolled: bool,
) -> None:
    """What the enroll rests on stays. Where there was none, the verification must not enroll hours later."""
    over = call(
        phase=Phase.SETTLED,
        reason=Reason.ENROLLED if is_enrolled else Reason.UNDECIDED,
        end_seen_at=NOW - seconds(60),
        identity=verified(),
        enrolled_seen=is_enrolled,
    )
    folded, _ = fold_note(over, Distrusted(operator="ann", said_at=NOW, number=1, wish="1" * 32), NOW)
    assert folded.life.phase is Phase.ENDED
    taken = Withdrawn(what="distrusted", operator="ann", said_at=NOW, number=2, wish="2" * 32)
    folded, _ = fold_note(folded, taken, NOW)
    assert (folded.statements.identity is not None) is is_enrolled
    assert folded.statements.distrusted is None


def test_fold_of_a_persons_answer_says_seen_where_no_effect_was_in_doubt() -> None:
    """The trail must not claim that somebody declared an effect absent."""
    answer = Resolved(applied=False, operator="ann", said_at=NOW, number=1, wish="1" * 32)
    asked = call(asked=Asked(rule="new device", because="Is it the member's?", asked_at=NOW))
    folded, lines = fold_note(asked, answer, NOW)
    assert [line.because for line in lines] == ["seen"]
    assert folded.statements.open_question is None
    doubtful = call(enroll=Effect(state=EffectState.UNRESOLVED))
    assert fold_note(doubtful, answer, NOW)[1][0].because == "absent"


def both_unresolved() -> Call:
    """Return a settled call whose enroll and reject are both unresolved."""
    doubt = Effect(state=EffectState.UNRESOLVED, sent_at=NOW, attempts=2)
    return call(phase=Phase.SETTLED, reason=Reason.UNRESOLVED, enroll=doubt, reject=doubt)


@pytest.mark.parametrize("applied", [True, False])
def test_fold_of_a_persons_answer_that_may_mean_either_effect_changes_nothing(applied: bool) -> None:
    """Where both are unresolved, an answer that does not name one is refused, and recorded as such if it comes anyway."""
    answer = Resolved(applied=applied, operator="ann", said_at=NOW, number=1, wish="1" * 32)
    doubtful = both_unresolved()
    folded, lines = fold_note(doubtful, answer, NOW)
    assert status_of(folded, lines, lines[0]) == ActionStatus(ActionState.HELD, ("effect_not_named",))
    assert (folded.ledger.enroll, folded.ledger.reject, folded.life.reason) == (
        doubtful.ledger.enroll,
        doubtful.ledger.reject,
        Reason.UNRESOLVED,
    )
    assert [line.what for line in lines] == ["said"]


def test_fold_of_a_persons_answer_resolves_the_effect_that_it_names() -> None:
    """The reject was applied, the enroll was not: two answers, and the second one is not about the first effect."""
    answers = [
        Resolved(applied=True, effect="reject", operator="ann", said_at=NOW, number=1, wish="1" * 32),
        Resolved(applied=False, effect="enroll", operator="bob", said_at=NOW, number=2, wish="2" * 32),
    ]
    folded, trail = both_unresolved(), list[Entry]()
    for answer in answers:
        folded, lines = fold_note(folded, answer, NOW)
        trail += lines
    assert (folded.ledger.enroll.state, folded.ledger.reject.state) == (EffectState.ABSENT, EffectState.CONFIRMED)
    states = {line.wish: status_of(folded, trail, line).state for line in trail if line.what == "said"}
    assert states == {"1" * 32: ActionState.DONE, "2" * 32: ActionState.DONE}


def test_answer_that_is_corrected_is_told_as_an_outcome_each_time() -> None:
    """Otherwise whoever receives outcomes would believe for ever in a reject that was not applied."""
    answers = [
        Resolved(applied=n != 2, effect="reject", operator="ann", said_at=NOW, number=n, wish=str(n) * 32)
        for n in (1, 2, 3)
    ]
    folded, trail = both_unresolved(), list[Entry]()
    for answer in answers:
        folded, lines = fold_note(folded, answer, NOW)
        trail += lines
    assert [one.type for one in outcomes(trail)] == ["rejected", "not_carried_out", "rejected"]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("state", [EffectState.CONFIRMED, EffectState.ABSENT])
@pytest.mark.parametrize("kind", [EffectKind.ENROLL, EffectKind.REJECT])
def test_fold_of_a_persons_answer_leaves_what_details_have_proved(
    kind: EffectKind, state: EffectState, applied: bool
) -> None:
    """Only another person's answer can be corrected. Otherwise an enroll that is in force could be sent once more."""
    proved = Effect(state=state, sent_at=NOW, attempts=1)
    answer = Resolved(applied=applied, effect=kind.value, operator="ann", said_at=NOW, number=1)
    folded, _ = fold_note(call(**{kind.value: proved}), answer, NOW)
    assert folded.effect(kind) == proved


def test_fold_of_what_a_person_has_seen_takes_no_earlier_answer_back() -> None:
    """Somebody said that the enroll was applied. Whoever has later seen what a rule asks says nothing about the enroll."""
    confirmed = Effect(state=EffectState.CONFIRMED, sent_at=NOW, attempts=1, resolved=1)
    asking = call(enroll=confirmed, asked=Asked(rule="r", because="why", asked_at=NOW))
    folded, _ = fold_note(asking, Resolved(applied=False, operator="bob", said_at=NOW, number=2), NOW)
    assert folded.ledger.enroll == confirmed
    assert folded.statements.asked is not None
    assert folded.statements.asked.closed_by == "bob"


@pytest.mark.parametrize(
    ("changes", "can_tell"),
    [
        ({}, True),
        ({"assigned_person_id": None, "core_username": "ann"}, True),
        ({"end_seen_at": NOW}, False),
        ({"assigned_person_id": None}, False),
        ({"assigned_person_id": "p-2"}, False),
        ({"assigned_person_id": None, "person_id": None}, False),
    ],
)
def test_answer_of_a_check_tells_of_the_voice_of_an_assigned_member_before_the_end(
    changes: dict[str, Any], can_tell: bool
) -> None:
    """Otherwise an enroll could follow although the voice had no say: after the end it is not compared any more."""
    checked = fold_check(call(**{"assigned_person_id": "p-1", **changes}), 3, reading(is_voice_mismatch=True))
    assert usable_answers(checked.seen) == (0b100 if can_tell else 0)
    assert checked.seen.history == History(answered=0b100, signs={"voice_mismatch": 0b100})


@pytest.mark.parametrize(
    ("before", "shown", "frauds"),
    [
        ((), ("DeterminedFraud", "v-1"), ("v-1",)),
        ((), ("DeterminedFraud", None), ("",)),
        (("v-2",), ("DeterminedFraud", "v-1"), ("v-2", "v-1")),
        (("v-1",), (None, None), ("v-1",)),
        (("v-1",), ("SystemArchived", "v-1"), ("v-1",)),
        (("v-1",), ("FalsePositive", "v-1"), ()),
        (("v-1",), ("InReview", "v-1"), ()),
        (("v-1",), ("FalsePositive", "v-2"), ("v-1",)),
        (("",), ("FalsePositive", None), ()),
    ],
)
def test_fraud_is_remembered_until_the_same_case_is_refuted(
    before: tuple[str, ...], shown: tuple[str | None, str | None], frauds: tuple[str, ...]
) -> None:
    """The record shows one case at a time. A case that is archived was not refuted."""
    case: dict[str, Any] = {"research_status": shown[0], "research_voice_id": shown[1]}
    assert read_again(call(frauds=before), **case).seen.frauds == frauds


def test_fraud_that_only_the_last_reading_of_an_older_record_shows_is_remembered() -> None:
    """Versions that did not remember it wrote the reading alone."""
    for voice_id in ("v-1", None):
        older = call(reading=reading(research_status="DeterminedFraud", research_voice_id=voice_id))
        assert read_again(older).seen.frauds == (voice_id or "",)


@pytest.mark.parametrize(
    ("changes", "shown", "is_authenticated"),
    [
        ({}, {}, True),
        ({}, {"is_voice_verified": False}, False),
        ({}, {"status": "AgentViewed"}, False),
        ({}, {"policies": ("Green Manual Authentication",)}, False),
        ({"enrolled_seen": True}, {}, False),
        ({"enroll": Effect(state=EffectState.APPLIED, sent_at=NOW)}, {}, False),
        ({"enroll": Effect(state=EffectState.UNKNOWN, sent_at=NOW)}, {}, False),
        ({"enroll": Effect(state=EffectState.ABSENT, sent_at=NOW)}, {}, True),
        ({"of_another": ("full_authentication",)}, {}, False),
    ],
)
def test_voice_is_authenticated_by_nothing_that_an_enroll_writes_too(
    changes: dict[str, Any], shown: dict[str, Any], is_authenticated: bool
) -> None:
    """FullAuthentication with a verified voice, of this member, and without anybody's enroll. It is remembered."""
    last = reading(status="FullAuthentication", is_voice_verified=True)
    before = call(reading=last if "of_another" in changes else reading(), **changes)
    folded = read_again(before, **{"status": "FullAuthentication", "is_voice_verified": True, **shown})
    assert folded.seen.authenticated is is_authenticated
    assert read_again(folded).seen.authenticated is is_authenticated


def test_member_as_whom_a_green_policy_shows_the_voice_is_remembered() -> None:
    """Once; and nobody, where nobody is assigned or no policy is green."""
    green: dict[str, Any] = {"policies": ("Green Voice Authentication",)}
    recognised = read_again(call(), **green)
    assert recognised.seen.authenticated_members == ("p-1",)
    assert read_again(recognised, **green).seen.authenticated_members == ("p-1",)
    assert read_again(call()).seen.authenticated_members == ()
    assert read_again(call(person_id=None), **green, person_id=None).seen.authenticated_members == ()


def test_case_that_names_the_alternate_id_is_about_this_call() -> None:
    """The provider's events in the record give the alternate id, also of a call whose push was lost."""
    alternate_id = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    event = VendorEvent(call=VendorCall(correlation_alt_id=alternate_id))
    case = ResearchCase(voice_id=alternate_id.upper(), research_status="DeterminedFraud")
    shown = PhoneCall(voice_id="v-1", vendor_events=(event,), research_case=case)
    assert reading_of(shown, NOW).research_voice_id == "v-1"
    assert reading_of(PhoneCall(voice_id="v-1", research_case=case), NOW).research_voice_id == alternate_id
