"""Which statements of people may still lead to something, and which never do."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from callkeeper.calls.action_status import ActionState, ActionStatus, status_of
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import failures, needs_of
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.notes import (
    AssignWish,
    CheckWish,
    Distrusted,
    OptedIn,
    OptedOut,
    Resolved,
    Statement,
    Verified,
    Withdrawn,
)
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record import Asked, Call, Phase, Reason, with_effect
from callkeeper.calls.rules import Outcome
from callkeeper.calls.statement_folding import (
    NOT_APPLIED,
    UNSEEN,
    as_heard,
    may_reopen,
    may_return,
    stronger,
)
from callkeeper.calls.trail import Entry
from tests.records import with_stored
from tests.unit.calls.rules.specimens import EAGER
from tests.unit.calls.specimens import BOOK, NOW, call, reading, seconds, verified, word

ENROLL, REJECT = EffectKind.ENROLL, EffectKind.REJECT


def said(kind: type[Statement], number: int = 1, **fields: Any) -> Statement:
    """Return what Ann says."""
    return kind(**{"operator": "ann", "said_at": NOW, "number": number, **fields})


DOUBT = Distrusted(operator="ann", said_at=NOW, reason="sounds wrong")
CLEARED = dict.fromkeys(("reason", "settled_at", "not_found_since"))


def heard(known: Call, *notes: Statement) -> tuple[Call, list[Entry]]:
    """Return a call with statements, and what its trail says of them."""
    lines: list[Entry] = []
    for note in notes:
        known, more = fold_note(known, note, NOW)
        lines += more
    return known, lines


VERIFIED = {"person_id": "p-1", "validation_type": "OneTimePasswordAuth"}
WORDS = {
    "verified": said(Verified, 2, **VERIFIED),
    "distrusted": said(Distrusted, 2, reason="odd voice"),
    "assign": said(AssignWish, 2, person_id="p-1"),
}


def settled(**changes: Any) -> Call:
    """Return a call that has ended without a decision."""
    return call(**{"phase": Phase.SETTLED, "end_seen_at": NOW, **changes})


SENT = Effect(state=EffectState.UNRESOLVED, sent_at=NOW, attempts=1)
ENROLLED = {"enrolled_seen": True, "rejected_seen": True}


@pytest.mark.parametrize(
    ("changes", "reopens"),
    [
        ({}, {ENROLL, REJECT}),
        ({"phase": Phase.LIVE}, set()),
        ({"end_seen_at": None}, set()),
        ({"reading": None}, set()),
        ({"rejected_seen": True}, set()),
        ({"rejected_seen": True, "rejected_by_rule_only": True}, {ENROLL, REJECT}),
        (ENROLLED, {REJECT}),
        ({"enroll": SENT}, {REJECT}),
        ({"reject": SENT}, set()),
    ],
)
def test_late_word_reopens_only_a_call_in_which_it_can_be_carried_out(
    changes: dict[str, Any], reopens: set[EffectKind]
) -> None:
    """Ended, settled, under the service's own id; not rejected already, and no effect that may be in force."""
    assert {kind for kind in (ENROLL, REJECT) if may_reopen(settled(**changes), kind, NOW)} == reopens


@pytest.mark.parametrize(("kind", "within"), [(ENROLL, timedelta(minutes=10)), (REJECT, timedelta(days=1))])
def test_late_word_reopens_a_call_for_a_limited_time(kind: EffectKind, within: timedelta) -> None:
    """A caller is verified on the phone or soon after; who was distrusted may turn out the next day."""
    assert may_reopen(settled(), kind, NOW + within)
    assert not may_reopen(settled(), kind, NOW + within + timedelta(seconds=1))


@pytest.mark.parametrize("outcome", [Outcome.ENROLL, Outcome.REJECT])
def test_statement_is_marked_if_no_live_rule_can_act_on_it(outcome: Outcome) -> None:
    """Whoever said it saw that nothing happens. What was said before keeps its mark, or none."""
    only = replace(BOOK, rules=tuple(rule for rule in EAGER if rule.outcome is outcome))
    said = call(identity=verified(), distrusted=word())
    marked = as_heard(call(), said, only).statements
    assert marked.identity is not None
    assert marked.distrusted is not None
    assert marked.identity.in_shadow is (outcome is Outcome.REJECT)
    assert marked.distrusted.in_shadow is (outcome is Outcome.ENROLL)
    assert as_heard(said, said, only) == said
    assert as_heard(said, call(), only) == call()


def test_desk_is_believed_before_the_service() -> None:
    """Whichever came later: a person has asked the caller."""
    desk, service = verified(), verified(by_desk=False)
    assert stronger(desk, service) == stronger(service, desk) == desk


@pytest.mark.parametrize("kind", WORDS)
def test_word_that_is_taken_back_counts_no_longer(kind: str) -> None:
    """Only what is said later does. What the service has established counts again."""
    by_service = verified(by_desk=False)
    known, _ = heard(call(identity=by_service), *WORDS.values())
    taken, lines = heard(known, said(Withdrawn, 3, what=kind))
    left: dict[str, Any] = {
        "verified": {"identity": by_service, "shown_identity": None},
        "distrusted": {"distrusted": None},
        "assign": {"assign_wish": None},
    }
    assert taken.statements == with_fields(known.statements, withdrawn={kind: 3}, **left[kind])
    assert [(line.kind, line.asked) for line in lines] == [("withdrawn", kind)]
    repeated, _ = heard(taken, said(Withdrawn, 1, what=kind), WORDS[kind])
    assert repeated.statements == taken.statements
    anew, _ = heard(taken, with_fields(WORDS[kind], number=4))
    assert anew.statements.identity != by_service or kind != "verified"
    assert None not in {anew.statements.distrusted, anew.statements.assign_wish}


def test_second_verification_keeps_what_the_service_established() -> None:
    """Otherwise it would be forgotten when both are taken back."""
    known, _ = heard(
        call(identity=verified(by_desk=False)), said(Verified, 1, **VERIFIED), said(Verified, 2, **VERIFIED)
    )
    assert known.statements.shown_identity == verified(by_desk=False)


NOTED: dict[str, tuple[Statement, dict[str, Any]]] = {
    "verified": (WORDS["verified"], {"last_verdict": None}),
    "distrusted": (WORDS["distrusted"], {"last_verdict": None}),
    "assign": (WORDS["assign"], {"assign_wish": word(person_id="p-1", number=2)}),
    "withdrawn": (said(Withdrawn, what="distrusted"), {"last_verdict": None}),
    "opted out": (said(OptedOut), {"last_verdict": None, "opted_out_seen": True}),
    "a check": (said(CheckWish), {"check_wish": word(number=1)}),
}


@pytest.mark.parametrize(("note", "kept"), NOTED.values(), ids=NOTED)
def test_statement_is_kept_and_judged(note: Statement, kept: dict[str, Any]) -> None:
    """The call is not dropped as a hint, and what is decided next is written, also if it is the same as before."""
    found, lines = heard(call(last_verdict="earlier"), note)
    assert with_stored(found, has_statements=True, heard_at=NOW, **kept) == found
    told = {"person_id": "person_id", "validation_type": "validation_type", "reason": "because"}
    assert [[getattr(line, name) for name in told.values()] for line in lines] == [
        [getattr(note, name, None) for name in told]
    ]


@pytest.mark.parametrize(
    ("changes", "member"),
    [
        ({}, "p-1"),
        ({"assign_wish": word(person_id="p-2")}, "p-2"),
        ({"person_id": None}, ""),
        ({"person_id": None, "assign_wish": word(person_id="p-2")}, "p-2"),
        ({"person_id": None, "reading": None}, None),
    ],
)
def test_distrust_is_of_the_member_who_stood_there(changes: dict[str, Any], member: str | None) -> None:
    """Or whom the desk had named, whoever stood there. Before the first read nobody knows."""
    known, _ = heard(call(**changes), said(Distrusted))
    assert known.statements.distrusted is not None
    assert known.statements.distrusted.member == member


@pytest.mark.parametrize(
    ("received_s", "said_s", "now_s", "reopens"),
    [
        (600, 1200, 1200, True),
        (601, 1, 1200, False),
        (None, 600, 1200, True),
        (None, 601, 1200, False),
        (9999, 1, 600, True),
    ],
)
def test_late_verification_counts_from_when_it_was_received(
    received_s: float | None, said_s: float, now_s: float, reopens: bool
) -> None:
    """The clock of the desk may be wrong. A number that lies in the future is from before Redis's clock was set back."""
    over = settled(reason=Reason.UNDECIDED, settled_at=NOW, not_found_since=NOW, reads_failed=3)
    number = int((NOW + seconds(received_s)).timestamp() * 1000) if received_s else 0
    note = said(Verified, number, said_at=NOW + seconds(said_s), **VERIFIED)
    found, _ = fold_note(over, note, NOW + seconds(now_s))
    again = with_stored(over, phase=Phase.ENDED, is_reopened=True, **CLEARED)
    assert found.life == (again if reopens else over).life
    assert found.plan.reads_failed == (0 if reopens else 3)


LOST: dict[str, Any] = {
    "phase": Phase.SETTLED,
    "reason": Reason.LOST,
    "settled_at": NOW,
    "not_found_since": NOW,
    "reads_failed": 3,
}


@pytest.mark.parametrize(
    ("changes", "returns"),
    [
        ({}, True),
        ({"not_found_since": None}, True),
        ({"not_found_since": None, "reason": Reason.UNRESOLVED}, True),
        ({"end_seen_at": NOW}, False),
        ({"end_seen_at": NOW, "not_found_since": None}, False),
        ({"phase": Phase.LIVE, "reason": None}, False),
        ({"phase": Phase.LIVE, "reason": None, "not_found_since": None}, False),
        ({"reason": Reason.UNCONFIRMED}, False),
    ],
)
def test_call_that_was_lost_is_read_again_for_a_word(changes: dict[str, Any], returns: bool) -> None:
    """One that the service did not know any more, or that was too old; not one that has ended."""
    lost = call(**LOST | changes)
    assert may_return(lost) == returns
    found, _ = heard(lost, said(CheckWish))
    if returns:
        expected = with_stored(lost, phase=Phase.LIVE, needs_verifying=True, reads_failed=0, **CLEARED)
    elif lost.life.reason is Reason.UNCONFIRMED:
        expected = with_stored(lost, phase=Phase.HINTED, **CLEARED)
    else:
        is_missing = not lost.is_settled and lost.life.not_found_since is not None
        expected = with_stored(lost, reads_failed=0) if is_missing else lost
    assert (found.life, found.plan) == (expected.life, expected.plan)


NEEDY: dict[str, dict[str, Any]] = {
    "a refusal": {"reject": Effect(state=EffectState.REFUSED, refusal="no", attempts=1, sent_at=NOW)},
    "an enroll that was taken back": {"unenrolled_seen": True},
    "an opt-out after an enroll": {"opted_out_seen": True, "enrolled_seen": True},
    "a question": {"asked": Asked(rule="new device", because="Is it the member's?", asked_at=NOW)},
}


@pytest.mark.parametrize("needs", NEEDY.values(), ids=NEEDY)
def test_answer_closes_what_its_page_has_shown(needs: dict[str, Any]) -> None:
    """And nothing that came up since. Where nothing is open any more, somebody else has closed it."""
    needy = call(**needs)
    for shown in (needs_of(needy), None):
        closed, lines = heard(needy, said(Resolved, applied=False, seen=shown))
        assert (needs_of(closed), lines[0].because) == ("", "seen")
        assert [line.state for line in lines[1:]] == [needy.effect(kind).state for kind in failures(needy)]
    left, lines = heard(needy, said(Resolved, applied=False, seen="another page"))
    assert (needs_of(left), [line.because for line in lines]) == (needs_of(needy), [UNSEEN])
    _, lines = heard(call(), said(Resolved, applied=False, seen="another page"))
    assert [line.because for line in lines] == ["seen"]


@pytest.mark.parametrize("kind", [ENROLL, REJECT])
@pytest.mark.parametrize("applied", [True, False])
def test_answer_about_an_effect_closes_nothing_else(kind: EffectKind, applied: bool) -> None:
    """The trail has both the answer and what it established. Only a reject lets the member's other calls be read."""
    doubt = Effect(state=EffectState.UNRESOLVED, sent_at=NOW, attempts=2, retry_at=NOW)
    needy = call(enrolled_seen=True, rejected_for="p-1", **NEEDY["a question"], **{kind: doubt})
    found, lines = heard(needy, said(Resolved, applied=applied, effect=kind, seen="another page"))
    state = EffectState.CONFIRMED if applied else EffectState.ABSENT
    assert found.effect(kind) == with_fields(doubt, state=state, retry_at=None, resolved=1)
    assert found.statements.open_question is not None
    assert (found.ledger.rejected_for is None) is (applied and kind is REJECT)
    answer, because = ("applied", None) if applied else ("absent", NOT_APPLIED)
    assert [(line.because, line.asked, line.state) for line in lines] == [
        (answer, kind, None),
        (because, None, state),
    ]


def test_answer_that_may_mean_another_effect_closes_nothing() -> None:
    """Both effects are in doubt; or the one that it names is not. What else needs a person stays open."""
    doubt = Effect(state=EffectState.UNRESOLVED, sent_at=NOW, attempts=2)
    unnamed = call(**NEEDY["a question"], enroll=doubt, reject=doubt)
    named = call(**NEEDY["a question"])
    for needy, effect in ((unnamed, None), (named, REJECT)):
        found, lines = heard(needy, said(Resolved, applied=False, effect=effect))
        assert (found.ledger, found.statements.open_question) == (needy.ledger, needy.statements.open_question)
        assert [line.because for line in lines] == ["absent"]


@pytest.mark.parametrize("effect", [None, ENROLL])
def test_answer_corrects_nothing_that_details_have_shown(effect: EffectKind | None) -> None:
    """Otherwise an enroll in force would count as absent, and a second one would be sent."""
    known = call(enroll=Effect(state=EffectState.CONFIRMED, sent_at=NOW, attempts=1))
    found, _ = heard(known, said(Resolved, applied=False, effect=effect))
    assert found.ledger == known.ledger


def test_answer_that_corrects_an_earlier_one_is_told_as_one() -> None:
    """Nothing is in doubt any more, and nothing else needs a person."""
    known = call(enroll=Effect(state=EffectState.CONFIRMED, sent_at=NOW, attempts=2, resolved=1))
    found, lines = heard(known, said(Resolved, 2, applied=False))
    assert (found.ledger.enroll.state, found.ledger.enroll.resolved) == (EffectState.ABSENT, 2)
    assert [line.because for line in lines] == ["absent", NOT_APPLIED]


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
    folded = with_effect(folded, EffectKind.REJECT, with_fields(folded.ledger.reject, state=EffectState.UNRESOLVED))
    folded, _ = fold_note(folded, Resolved(applied=True, operator="ann", said_at=NOW, number=2), NOW)
    assert (folded.ledger.enroll.state, folded.ledger.reject.state) == (EffectState.REFUSED, EffectState.CONFIRMED)


@pytest.mark.parametrize("missing", [None, NOW])
def test_word_about_a_call_that_is_over_says_why(missing: Any) -> None:
    """What could not be sent for a call that was given up is told with the reason; it is not said to have ended."""
    folded, lines = fold_note(call(), Distrusted(operator="ann", said_at=NOW, wish="1" * 32), NOW)
    over = with_fields(
        folded, life=with_fields(folded.life, phase=Phase.SETTLED, reason=Reason.LOST, not_found_since=missing)
    )
    assert status_of(over, lines, lines[0]) == ActionStatus(ActionState.HELD, ("call_lost",))


@pytest.mark.parametrize("why", [{}, {"not_found_since": NOW}], ids=["too old", "not found"])
def test_fold_of_a_word_returns_a_call_that_was_given_up(why: dict[str, Any]) -> None:
    """A word that arrives while the call is given up is not lost: details are read once more, at once."""
    over = call(phase=Phase.SETTLED, reason=Reason.LOST, reads_failed=5, **why)
    folded, _ = fold_note(over, DOUBT, NOW)
    assert (folded.life.phase, folded.plan.needs_verifying, folded.plan.reads_failed, folded.statements.heard_at) == (
        Phase.LIVE,
        True,
        0,
        NOW,
    )
    about_to_be = call(reads_failed=5, not_found_since=NOW - seconds(58))
    assert fold_note(about_to_be, DOUBT, NOW)[0].plan.reads_failed == 0


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


@pytest.mark.parametrize(("said_s", "counts"), [(-1, False), (0, False), (1, True)])
def test_opt_in_takes_back_only_an_opt_out_that_was_read_before_it(said_s: int, counts: bool) -> None:
    """At the same instant nobody knows which came last: the caller counts as opted out."""
    known = call(reading=reading(status="VoiceOptOut", read_at=NOW), opted_out_seen=True)
    note = OptedIn(operator="ann", said_at=NOW + seconds(said_s), wish="1" * 32, remark="agreed")
    folded, _ = fold_note(known, note, NOW + seconds(2))
    assert folded.seen.opted_in_last is counts
