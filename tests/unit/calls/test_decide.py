"""What a call needs next."""

import dataclasses
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from callkeeper.calls.context import Context
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.facts import VERIFIED_AFTER_END
from callkeeper.calls.institutions import FOREIGN, UNKNOWN
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.person_lists import NamedLists
from callkeeper.calls.record import Asked, Call, Candidate, Life, Phase, Reason
from callkeeper.calls.rules import Outcome, Rule, RuleBook
from callkeeper.calls.rules.assignment import Assignment
from callkeeper.calls.rules.book import Between, InList
from callkeeper.calls.schedule import reads
from callkeeper.calls.schedule.reads import BUSY, FEW, LATE_TOLERANCE, MANY
from callkeeper.calls.steps import (
    Check,
    Decline,
    Drop,
    Establish,
    Intend,
    Read,
    RequestListing,
    Rest,
    Send,
    Settle,
    Step,
    Wait,
    Withdraw,
    WriteDecision,
    WriteFacts,
)
from tests.conftest import examples
from tests.records import decide_record, facts_of_record, with_stored
from tests.unit.calls.specimens import (
    BEGINNINGS,
    BOOK,
    BY_DESK,
    CALLS,
    INSTANTS,
    NOW,
    call,
    calls_near,
    next_deed,
    read_again,
    reading,
    seconds,
    verified,
    word,
)

DUE = NOW - seconds(1)
OTP, KBA = "OneTimePasswordAuth", "KnowledgeBasedAuth"
ENROLLED = Effect(state=EffectState.APPLIED, person_id="p-1", validation_type=OTP, sent_at=NOW - seconds(20))


# What a status read while a check is due leads to: every line of the design's table.
STATUSES: dict[str, type[Step]] = {
    "FullAuthentication": Wait,
    "FullAuthenticationUnenrolled": Check,
    "AcceptCallerVoice": Wait,
    "AnsweredQuestions": Check,
    "MFAValidated": Check,
    "RejectCallerVoice": Wait,
    "RejectCallerVoiceFromValidationRule": Wait,
    "CallEnded": Wait,
    "VoiceOptOut": Check,
    "VoiceOptIn": Check,
    "VoiceMismatch": Check,
    "CallStarted": Check,
    "CheckRiskAndAuthentication": Check,
    "GrabbedCall": Check,
    "AgentViewed": Check,
    "SentEmailMFA": Check,
    "SentSmsMFA": Check,
    "Voice Pending": Check,
    "A status of next year": Check,
}


@pytest.mark.parametrize(("status", "expected"), STATUSES.items(), ids=STATUSES)
def test_decide_follows_the_table_of_statuses(status: str, expected: type[Step]) -> None:
    """Every status has the meaning in the design's table: stop, continue, or nothing."""
    assert type(next_deed(read_again(call(next_check_at=DUE), status=status))) is expected


@pytest.mark.parametrize("status", ["AnsweredQuestions", "MFAValidated"])
def test_decide_after_an_opt_out_never_enrolls(status: str) -> None:
    """An opt-out seen at any time in the call forbids the enroll for good, although a person verified the caller (E7)."""
    wanted = call(identity=verified())
    assert isinstance(next_deed(read_again(wanted, status=status)), Intend)
    opted_out = read_again(wanted, status="VoiceOptOut")
    assert not isinstance(next_deed(read_again(opted_out, status=status)), Intend)


def test_decide_after_our_enroll_reads_full_authentication_as_manual() -> None:
    """FullAuthentication after our enroll is manual: it stops checks and is never green."""
    enrolled = read_again(call(next_check_at=DUE, enroll=ENROLLED), status="FullAuthentication")
    facts = facts_of_record(enrolled, BOOK.policies)
    assert (facts.green, facts.manual) == (False, True)
    assert type(next_deed(enrolled)) is Wait


@pytest.mark.parametrize("outcome", [Outcome.ASK, Outcome.HOLD])
def test_decide_after_our_enroll_writes_only_what_asks_a_person(outcome: Outcome) -> None:
    """After an enroll, a new verdict is written if it puts the call before a person, and otherwise not."""
    rule = Rule("odd", (("assigned", True),), outcome, "Is it her?")
    book = dataclasses.replace(BOOK, rules=(rule, BOOK.rules[-1]))
    enrolled = call(enroll=ENROLLED, last_verdict="earlier")
    step = decide_record(enrolled, book, NOW)
    written = step.then if isinstance(step, WriteFacts) else step
    assert isinstance(written, WriteDecision) is (outcome is Outcome.ASK)


def test_decide_after_our_enroll_writes_the_verdict_that_ends_a_question() -> None:
    """A person is asked until a verdict says otherwise: it is written although an enroll is in force."""
    asked = Asked(rule="odd", because="Is it her?", asked_at=NOW)
    step = decide_record(call(enroll=ENROLLED, last_verdict="earlier", asked=asked), BOOK, NOW)
    assert isinstance(step.then if isinstance(step, WriteFacts) else step, WriteDecision)


STOPS: dict[str, dict[str, Any]] = {
    "fully authenticated": {"authenticated_seen": True},
    "a green policy": {"reading": reading(policies=("Green Voice Authentication",))},
    "authenticated by hand": {"reading": reading(policies=("Green Manual Authentication",))},
    "rejected": {"rejected_seen": True},
    "a red policy": {"reading": reading(policies=("Red High Risk",))},
    "ended": {"end_seen_at": NOW, "phase": Phase.ENDED},
    "20 checks": {"checks_used": 20},
    "institution not allowed": {"standing": "not_active"},
}


@pytest.mark.parametrize("stopped_by", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("wish", [False, True], ids=["by schedule", "by the desk"])
def test_decide_stops_checks_at_each_stop_condition(stopped_by: dict[str, Any], wish: bool) -> None:
    """Each of the service's stop conditions, and the law, ends the checks: the automatic ones and the desk's (E5)."""
    asked = word() if wish else None
    assert not isinstance(next_deed(call(next_check_at=DUE, check_wish=asked, **stopped_by)), Check)


def test_decide_keeps_the_last_two_checks_for_the_desk() -> None:
    """18 checks are made unasked; the last two only when the desk asks."""
    spent = call(next_check_at=DUE, checks_used=18)
    assert not isinstance(next_deed(spent), Check)
    assert next_deed(replace(spent, statements=replace(spent.statements, check_wish=word()))) == Check(by_desk=True)
    assert next_deed(replace(spent, plan=replace(spent.plan, checks_used=17))) == Check()


def test_decide_makes_no_automatic_check_under_a_pause_of_everything() -> None:
    """A pause of effects lets checks go on, and a person's check is made under either pause."""
    due = call(next_check_at=DUE)
    assert next_deed(with_stored(due, paused=PauseScope.EFFECTS)) == Check()
    assert not isinstance(next_deed(with_stored(due, paused=PauseScope.ALL)), Check)
    assert next_deed(with_stored(due, paused=PauseScope.ALL, check_wish=word())) == Check(by_desk=True)


def test_decide_spends_no_checks_on_a_call_without_a_person() -> None:
    """A call nobody is assigned to spends no automatic checks by default."""
    nobody = call(next_check_at=DUE, person_id=None, assign=Effect(state=EffectState.REFUSED))
    assert not isinstance(next_deed(nobody), Check)


def test_decide_writes_facts_when_they_change() -> None:
    """Once: the trail says what was known, and the next step is the same."""
    known = call()
    decided = decide_record(known, BOOK, NOW)
    assert isinstance(decided, WriteDecision)
    told = with_stored(known, last_verdict=decided.verdict.fingerprint, last_facts=decided.facts)
    step = decide_record(told, BOOK, NOW)
    assert not isinstance(step, WriteFacts)
    changed = decide_record(with_stored(told, last_facts="earlier"), BOOK, NOW)
    assert isinstance(changed, WriteFacts)
    assert (changed.facts, changed.then) == (decided.facts, step)


def test_decide_declines_a_check_that_must_not_be_made() -> None:
    """The desk is told at once, and not when the facts change."""
    assert isinstance(next_deed(call(checks_used=20, check_wish=word())), Decline)
    assert not isinstance(next_deed(call(checks_used=20)), Decline)


def test_decide_judges_no_call_that_was_not_read() -> None:
    """Nothing is known of it, whatever the queue and the desk say."""
    step = decide_record(call(reading=None, identity=verified(), next_read_at=NOW), BOOK, NOW)
    assert step == Read("watch")


def test_decide_knows_the_lists_that_rules_ask_about() -> None:
    """A member on the list of a bank's own fraud desk must not be enrolled because the list was not looked at."""
    listed = Rule("listed", (("person", InList("watched")),), Outcome.HOLD, "because")
    lists = NamedLists({"watched": frozenset({"p-1"})})
    book = dataclasses.replace(BOOK, rules=(listed, *BOOK.rules), lists=lists)
    assert isinstance(next_deed(call(identity=verified())), Intend)
    assert not isinstance(next_deed(call(identity=verified()), book=book), Intend)


def test_decide_waits_for_the_earlier_of_check_and_read() -> None:
    """Between two due times the call is let go until the first of them."""
    assert next_deed(call()) == Wait(NOW + seconds(5))
    assert next_deed(call(next_check_at=NOW + seconds(2))) == Wait(NOW + seconds(2))


@pytest.mark.parametrize("words", BEGINNINGS)
def test_decide_takes_the_step_of_a_beginning(words: str) -> None:
    """The calls that the laws below are tried on begin at every kind of step that these forbid under some condition."""
    step = next_deed(BEGINNINGS[words])
    kind = f" {step.kind}" if isinstance(step, Intend | Send) else ""
    assert words.startswith(f"{type(step).__name__.lower()}{kind}")


@given(CALLS, INSTANTS)
@examples(60)
def test_decide_is_total_and_pure(any_call: Call, now: Any) -> None:
    """For every record and time there is exactly one step, and the same input gives the same step."""
    step = decide_record(any_call, BOOK, now)
    assert isinstance(step, Step)
    assert decide_record(any_call, BOOK, now) == step


STOPPED_BY = (
    "authenticated_seen",
    "checks_used",
    "end_seen_at",
    "enrolled_seen",
    "needs_verifying",
    "phase",
    "reading",
    "rejected_seen",
    "standing",
)
"""What a call has when checks stop."""


@given(calls_near("check", fields=STOPPED_BY), INSTANTS)
@examples(60)
def test_decide_never_checks_what_the_stop_rule_forbids(any_call: Call, now: Any) -> None:
    """A check is decided only for a live call of ours that nothing has stopped, within the budget."""
    step = next_deed(any_call, now)
    if isinstance(step, Check):
        assert any_call.last_claim.standing is None
        assert any_call.life.phase in {Phase.LIVE, Phase.ENDED}
        assert any_call.plan.checks_used < (20 if step.by_desk else 18)
        assert any_call.life.ended_at is None
        assert True not in {any_call.seen.authenticated, any_call.seen.rejected, any_call.seen.enrolled}
        policies = any_call.seen.reading.policies if any_call.seen.reading else ()
        assert not any(name.startswith(("Red", "Green")) for name in policies)
        assert not any_call.plan.needs_verifying


@given(calls_near("send assign", "read before enroll", "send enroll", "send reject"), INSTANTS)
@examples(100)
def test_decide_never_sends_without_an_intention_and_a_fresh_look(any_call: Call, now: Any) -> None:
    """An effect is sent only for a saved intention, and only if the service was read within two seconds before."""
    step = next_deed(any_call, now)
    if not isinstance(step, Send):
        return
    effect = any_call.effect(step.kind)
    assert effect.state is EffectState.INTENDED
    assert any_call.last_claim.standing is None
    read_at = any_call.seen.reading.read_at if any_call.seen.reading else None
    looks = [
        at for at in (read_at, any_call.life.listed_at if step.kind is EffectKind.ASSIGN else None) if at is not None
    ]
    assert now - max(looks) <= seconds(2)
    if step.kind is not EffectKind.ASSIGN:
        assert read_at is not None
        assert effect.was_read_since


@given(calls_near("intend enroll", "intend reject", fields=("enroll", "reject")), INSTANTS)
@examples(60)
def test_decide_never_intends_an_effect_twice(any_call: Call, now: Any) -> None:
    """An enroll or a reject is intended only where nothing was ever sent for it."""
    step = next_deed(any_call, now)
    if isinstance(step, Intend) and step.kind is not EffectKind.ASSIGN:
        assert any_call.effect(step.kind).state is EffectState.NONE


@given(CALLS, INSTANTS)
@examples(60)
def test_decide_waits_only_for_the_future(any_call: Call, now: Any) -> None:
    """A wait ends later than now, so a call cannot be due again and again at the same time."""
    step = next_deed(any_call, now)
    if isinstance(step, Wait):
        assert step.until > now


@given(calls_near("settle", fields=("assign", "enroll", "reject")), INSTANTS)
@examples(60)
def test_decide_never_settles_while_an_effect_is_in_doubt(any_call: Call, now: Any) -> None:
    """A call is not settled while the outcome of a request is unknown, unless its institution is not ours."""
    step = next_deed(any_call, now)
    if isinstance(step, Settle) and any_call.last_claim.standing != FOREIGN:
        states = {any_call.effect(kind).state for kind in EffectKind}
        assert not states & {EffectState.SENT, EffectState.UNKNOWN, EffectState.INTENDED}


LOOKS = ((0, 0.5), (1, 1.5), (2, 3.5), (3, 7.5))


@pytest.mark.parametrize(("looks", "at_s"), LOOKS)
def test_decide_looks_for_a_hint_at_growing_distances(looks: int, at_s: float) -> None:
    """A hint the queue does not list is looked for after 0.5, 1, 2 and 4 s more (B10)."""
    hint = Call(institution_key="cu-1", voice_id="v-1", life=Life(hinted_at=NOW, confirm_looks=looks))
    due = NOW + seconds(at_s)
    assert decide_record(hint, BOOK, due - seconds(0.1)) == Wait(due)
    assert decide_record(hint, BOOK, due) == RequestListing()


def test_decide_drops_a_hint_that_the_queue_never_lists() -> None:
    """After the last look a hint is dropped; a listing will find a real call."""
    hint = Call(institution_key="cu-1", voice_id="v-1", life=Life(hinted_at=NOW, confirm_looks=4))
    assert isinstance(decide_record(hint, BOOK, NOW + seconds(9.9)), Wait)
    assert isinstance(decide_record(hint, BOOK, NOW + seconds(10)), Drop)


def test_decide_asks_nothing_about_a_foreign_institution() -> None:
    """With the key of an institution that is not ours nothing is sent, not even a read (A12)."""
    foreign = call(standing=FOREIGN, next_check_at=DUE, next_read_at=DUE, identity=verified())
    assert isinstance(decide_record(foreign, BOOK, NOW), Wait)


DOUBTS = {"assign": EffectKind.ASSIGN, "enroll": EffectKind.ENROLL, "reject": EffectKind.REJECT}


@pytest.mark.parametrize("kind", DOUBTS.values(), ids=DOUBTS)
@pytest.mark.parametrize("state", [EffectState.SENT, EffectState.UNKNOWN])
def test_decide_clears_doubt_before_anything_else(kind: EffectKind, state: EffectState) -> None:
    """While an outcome is unknown stored details are read: no check, no other effect, no end."""
    doubt = Effect(state=state, person_id="p-1", intended_at=NOW - seconds(3), sent_at=NOW - seconds(3), attempts=1)
    full = call(next_check_at=DUE, identity=verified(), check_wish=word(), reading=reading(read_at=NOW - seconds(4)))
    assert isinstance(decide_record(with_stored(full, **{kind: doubt}), BOOK, NOW), Read)


def test_decide_settles_only_after_a_last_look() -> None:
    """After the end, wait for the service to settle its record, read once more, then settle."""
    ended = call(phase=Phase.ENDED, end_seen_at=NOW, reading=reading(has_ended=True))
    assert next_deed(ended) == Wait(NOW + seconds(3))
    assert next_deed(ended, NOW + seconds(3)) == Read("last read")
    read = replace(ended, seen=replace(ended.seen, reading=reading(has_ended=True, read_at=NOW + seconds(3))))
    assert next_deed(read, NOW + seconds(3)) == Settle(Reason.UNDECIDED)


def test_decide_withdraws_an_enroll_when_the_call_ends() -> None:
    """An intention that nothing was sent for waits for the final analysis; verified too late is not enrolled (E8)."""
    intended = Effect(state=EffectState.INTENDED, person_id="p-1", validation_type=OTP, operator="ann", intended_at=NOW)
    ended = call(phase=Phase.ENDED, end_seen_at=NOW, identity=verified(), enroll=intended)
    step = next_deed(ended)
    assert isinstance(step, Withdraw)
    assert "final_analysis_awaited" in step.because
    over = NOW - VERIFIED_AFTER_END - seconds(1)
    late = next_deed(call(phase=Phase.ENDED, end_seen_at=over, final_since=over, identity=verified()))
    assert not isinstance(late, Intend)


CHANGED: dict[str, dict[str, Any]] = {
    "another person": {"person_id": "p-2", "identity": verified(person_id="p-2")},
    "another way": {"identity": verified(validation_type=KBA)},
    "another operator": {"identity": replace(verified(), operator="bob")},
    "no identity": {"identity": None},
    "a red policy": {"reading": reading(policies=("Red High Risk",))},
    "a rule of another name": {"enroll": replace(BY_DESK, was_read_since=True, rule="the rule before")},
    "a rule with another reason": {"enroll": replace(BY_DESK, was_read_since=True, because="The reason before.")},
}


@pytest.mark.parametrize("changes", CHANGED.values(), ids=CHANGED)
def test_decide_withdraws_an_intention_that_is_not_wanted_any_more(changes: dict[str, Any]) -> None:
    """An effect is sent only if person, statement and validation type are still the wanted ones."""
    intended = replace(BY_DESK, was_read_since=True)
    wanted = call(enroll=intended, identity=verified())
    assert next_deed(wanted) == Send(EffectKind.ENROLL)
    assert isinstance(next_deed(with_stored(wanted, **changes)), Withdraw)
    assert next_deed(with_stored(wanted, identity=None)) == Withdraw(EffectKind.ENROLL, "now hold: otherwise")


SETTLED = {
    "rejected": ({"rejected_seen": True, "enrolled_seen": True}, Reason.REJECTED),
    "enrolled": ({"enrolled_seen": True}, Reason.ENROLLED),
    "authenticated": ({"authenticated_seen": True}, Reason.AUTHENTICATED),
    "red": ({"reading": reading(has_ended=True, policies=("Red High Risk",))}, Reason.RED),
    "unassigned": ({"person_id": None}, Reason.UNASSIGNED),
    "undecided": ({}, Reason.UNDECIDED),
    "enroll unresolved": ({"enroll": Effect(state=EffectState.UNRESOLVED)}, Reason.UNRESOLVED),
    "reject unresolved": ({"rejected_seen": True, "reject": Effect(state=EffectState.UNRESOLVED)}, Reason.UNRESOLVED),
}


@pytest.mark.parametrize(("changes", "reason"), SETTLED.values(), ids=SETTLED)
def test_decide_settles_for_the_strongest_reason(changes: dict[str, Any], reason: Reason) -> None:
    """A call has one reason: first what a person must handle, then the strongest fact."""
    ended = call(phase=Phase.ENDED, end_seen_at=NOW - seconds(3), reading=reading(has_ended=True))
    assert next_deed(with_stored(ended, **changes)) == Settle(reason)


def test_decide_gives_up_a_call_that_is_listed_no_more() -> None:
    """At the maximum age; and one that the service does not know any more after a minute (D8).

    The age counts from when we first saw the call: the service's clock may be hours behind.
    """
    old = call(first_seen_at=NOW - seconds(BOOK.maximum_age_s + 1), is_unlisted=True, next_read_at=NOW + seconds(1))
    assert next_deed(old) == Settle(Reason.LOST)
    assert next_deed(with_stored(old, is_unlisted=False, listed_at=NOW)) != Settle(Reason.LOST)
    assert next_deed(call(started_at=NOW - seconds(BOOK.maximum_age_s + 1))) != Settle(Reason.LOST)
    missing = call(not_found_since=NOW - seconds(61), is_unlisted=True)
    assert next_deed(missing) == Settle(Reason.LOST)
    assert next_deed(replace(missing, life=replace(missing.life, not_found_since=NOW - seconds(59)))) != Settle(
        Reason.LOST
    )
    assert next_deed(
        replace(missing, life=replace(missing.life, is_unlisted=False, listed_at=NOW - seconds(60)))
    ) != Settle(Reason.LOST)
    assert next_deed(
        replace(missing, life=replace(missing.life, is_unlisted=False, listed_at=NOW - seconds(181)))
    ) == Settle(Reason.LOST)


@pytest.mark.parametrize(
    "why",
    [
        {"first_seen_at": NOW - seconds(BOOK.maximum_age_s + 1), "is_unlisted": True, "next_read_at": NOW + seconds(1)},
        {"not_found_since": NOW - seconds(61), "is_unlisted": True},
    ],
    ids=["too old", "not found"],
)
def test_decide_gives_up_no_call_that_a_person_has_just_spoken_about(why: dict[str, Any]) -> None:
    """For a minute after a word the call is read, and what the word asks for is done, before it is given up."""
    assert next_deed(call(heard_at=NOW - seconds(60), distrusted=word(), **why)) != Settle(Reason.LOST)
    assert next_deed(call(heard_at=NOW - seconds(61), **why)) == Settle(Reason.LOST)


def test_decide_gives_up_a_call_that_can_never_be_verified() -> None:
    """A call whose details are gone after a Redis restart is read, but not for ever (C4)."""
    unverified = call(needs_verifying=True, is_unlisted=True)
    assert decide_record(unverified, BOOK, NOW) == Read("verify")
    assert next_deed(replace(unverified, life=replace(unverified.life, not_found_since=NOW - seconds(61)))) == Settle(
        Reason.LOST
    )


def test_decide_lets_a_settled_call_rest() -> None:
    """Nothing is sent for a settled call. A doubt that a merge brought in needs a person."""
    settled = call(phase=Phase.SETTLED, next_check_at=DUE, next_read_at=DUE)
    assert decide_record(settled, BOOK, NOW) == Rest()
    for kind in (EffectKind.ENROLL, EffectKind.REJECT):
        doubtful = with_stored(settled, **{kind: Effect(state=EffectState.SENT, sent_at=NOW)})
        assert decide_record(doubtful, BOOK, NOW) == Establish(kind, EffectState.UNRESOLVED)


def test_read_that_is_due_makes_room_for_checks_while_workers_are_late_or_busy() -> None:
    """A due read is delayed, at most until the next check. A check, a first read and an end are not."""
    watched = call(reading=reading(read_at=NOW - seconds(20)), next_read_at=DUE, next_check_at=NOW + seconds(60))
    late = LATE_TOLERANCE + seconds(0.1)
    assert next_deed(watched, late=LATE_TOLERANCE) == Read("watch")
    assert next_deed(watched, late=late) == Wait(DUE + seconds(2)), "20 s for every second"
    put_off = next_deed(watched, late=seconds(60))
    assert isinstance(put_off, Wait)
    assert NOW + seconds(36) < put_off.until < NOW + seconds(44), "60 s after the last one, give or take a tenth"
    assert next_deed(
        replace(watched, seen=replace(watched.seen, reading=reading(read_at=NOW - seconds(64)))), late=late
    ) == Read("watch")
    assert next_deed(
        replace(watched, plan=replace(watched.plan, next_check_at=NOW + seconds(2))), late=seconds(60)
    ) == Wait(NOW + seconds(2))
    assert next_deed(replace(watched, plan=replace(watched.plan, next_check_at=DUE)), late=late) == Check()
    assert next_deed(replace(watched, life=replace(watched.life, end_hinted_at=NOW)), late=late) == Read("watch")
    assert next_deed(replace(watched, seen=replace(watched.seen, reading=None)), late=late) == Read("watch")
    for happened in (
        {"is_unlisted": True},
        {"not_found_since": NOW - seconds(3)},
        {"end_hinted_at": NOW - seconds(15)},
        {"recheck_from": NOW - seconds(1)},
        {"enroll": Effect(state=EffectState.CONFIRMED, sent_at=NOW - seconds(1))},
        {"checks_failed": 1, "last_check_at": NOW - seconds(1)},
    ):
        assert type(next_deed(with_stored(watched, **happened), late=late)) is Read, happened
    assert next_deed(watched, busy=BUSY) == Read("watch")
    assert next_deed(watched, busy=BUSY + 0.01) == Wait(DUE + seconds(2)), "2 s for every hundredth of a core"
    assert next_deed(watched, busy=BUSY + 0.01, late=LATE_TOLERANCE + seconds(1)) == Wait(DUE + seconds(20)), (
        "the longer"
    )


def next_read(read: Call, book: RuleBook, *, live: int, late: timedelta = timedelta(), busy: float = 0.0) -> datetime:
    """Return when a call that was read at ``NOW`` is read next, by the periods of a rule book."""
    return reads.next_read(
        read,
        Context(read.last_claim, live, late, busy),
        book.policies,
        NOW,
        undecided_s=book.reads_undecided_s,
        decided_s=book.reads_decided_s,
    )


def test_next_read_of_an_undecided_call_comes_soon_whatever_the_number_of_live_calls() -> None:
    """Evidence for an enroll must be noticed before the call ends: every 8 s, or as often as the rules say."""
    waits = {live: next_read(call(next_check_at=None), BOOK, live=live) - NOW for live in (1, 25, 500)}
    assert waits[1] == waits[25] == waits[500]
    assert seconds(7.6) <= waits[1] <= seconds(8.4)
    often = dataclasses.replace(BOOK, reads_undecided_s=3.0)
    assert next_read(call(next_check_at=None), often, live=500) - NOW <= seconds(3.2)


def test_next_read_of_a_decided_call_comes_soon_only_while_few_calls_are_live() -> None:
    """Up to 10 live calls every 8 s, from 40 on as often as the rules say."""
    decided = call(rejected_seen=True)
    waits = {live: next_read(decided, BOOK, live=live) - NOW for live in (1, 10, 25, 40, 500)}
    assert waits[1] == waits[10] < waits[25] < waits[40] == waits[500]
    assert waits[10] <= seconds(8.4)
    assert seconds(57) <= waits[40] <= seconds(63)


def test_next_read_comes_later_the_older_a_call_is() -> None:
    """A call that lived for long lives on for longer, so that less is lost by a gap: a fiftieth of its age."""

    def waited(age: float) -> timedelta:
        old = call(first_seen_at=NOW - seconds(age), next_check_at=None)
        return next_read(old, BOOK, live=MANY) - NOW

    ages = {age: waited(age) for age in (30, 390, 800, 14_000)}
    assert ages[30] == ages[390] == ages[800] / 2
    assert ages[14_000] == ages[30] * BOOK.reads_decided_s / BOOK.reads_undecided_s


def test_next_read_of_a_verified_call_comes_half_as_often_while_many_calls_are_live() -> None:
    """Details are read again directly before the enroll, so a verified caller needs fewer reads until then."""
    open_call, known = call(next_check_at=None), call(next_check_at=None, identity=verified())
    waits = {live: [next_read(one, BOOK, live=live) - NOW for one in (open_call, known)] for live in (FEW, FEW + 1)}
    assert waits[FEW][1] == waits[FEW][0], "few calls can be read all the same"
    assert waits[FEW + 1][1] == 2 * waits[FEW + 1][0]
    seldom = dataclasses.replace(BOOK, reads_undecided_s=50.0)
    assert next_read(known, seldom, live=MANY) == next_read(call(rejected_seen=True), seldom, live=MANY), (
        "as a decided one"
    )


def test_next_read_gives_way_to_a_check_that_comes_shortly_after() -> None:
    """A check returns the same record: a read less than a quarter of the period before it is left out."""
    usual = next_read(call(next_check_at=None), BOOK, live=MANY)
    for after, is_left_out in ((-1, False), (1, True), (1.9, True), (2.1, False), (60, False)):
        check_at = usual + seconds(after)
        read_at = next_read(call(next_check_at=check_at), BOOK, live=MANY)
        assert read_at == (check_at + seconds(1) if is_left_out else usual), after
    few = call(next_check_at=usual + seconds(1))
    assert next_read(few, BOOK, live=FEW) == usual, "few calls can be read all the same"


def test_next_read_makes_room_for_checks_while_workers_are_late_or_busy() -> None:
    """What is open is read less often the later workers are, never less often than what is decided; that stays as it is."""
    undecided, decided = call(next_check_at=None), call(rejected_seen=True)
    usual, seldom = next_read(undecided, BOOK, live=MANY), next_read(decided, BOOK, live=MANY)
    put_off = [
        next_read(undecided, BOOK, late=LATE_TOLERANCE + seconds(late_s), live=MANY) for late_s in (0, 0.1, 0.2, 60)
    ]
    assert usual == put_off[0] < put_off[1] < put_off[2] < put_off[3] == seldom
    assert next_read(undecided, BOOK, busy=BUSY, live=MANY) == usual
    assert usual < next_read(undecided, BOOK, busy=BUSY + 0.01, live=MANY) < seldom
    assert next_read(undecided, BOOK, busy=1.0, live=MANY) == seldom
    assert next_read(decided, BOOK, late=seconds(60), busy=1.0, live=MANY) == seldom
    hurried = call(end_hinted_at=NOW)
    assert next_read(hurried, BOOK, late=seconds(60), live=MANY) == next_read(hurried, BOOK, live=MANY)


FREE: dict[str, Any] = {"person_id": None, "candidates": (Candidate(person_id="p-1", person_type="Primary"),)}
ABSENT = Effect(state=EffectState.ABSENT, attempts=1, sent_at=NOW - seconds(9), person_id="p-1")


def test_decide_about_a_foreign_institution_waits_a_minute() -> None:
    """No request may be sent with its key."""
    assert decide_record(call(standing=FOREIGN), BOOK, NOW) == Wait(NOW + seconds(60))


@pytest.mark.parametrize("kind", EffectKind)
def test_decide_leaves_the_doubts_of_a_foreign_institution_to_a_person(kind: EffectKind) -> None:
    """After ten minutes, because its calls may not be read. Then they age like others."""
    doubt = Effect(state=EffectState.UNKNOWN, sent_at=NOW - seconds(600), attempts=1)
    foreign = call(standing=FOREIGN, **{kind: doubt})
    assert decide_record(foreign, BOOK, NOW) == Wait(NOW + seconds(60))
    assert decide_record(foreign, BOOK, NOW + seconds(1)) == Establish(kind, EffectState.UNRESOLVED)
    old = call(standing=FOREIGN, first_seen_at=NOW - seconds(BOOK.maximum_age_s + 1))
    assert decide_record(old, BOOK, NOW) == Settle(Reason.LOST)


WAKES: dict[str, tuple[dict[str, Any], float]] = {
    "effects are held after a change of Redis": ({"effects_held_until": NOW + seconds(1)}, 1),
    "effects are held until the institution is known": ({"standing_held_until": NOW + seconds(1)}, 1),
    "the institution is not known": ({"standing": UNKNOWN}, 2),
    "a rule waits": ({"watch_from": NOW - seconds(28)}, 2),
    "nothing": ({}, 5),
}


@pytest.mark.parametrize(("held", "after_s"), WAKES.values(), ids=WAKES)
def test_decide_looks_again_when_what_holds_a_call_up_may_be_over(held: dict[str, Any], after_s: float) -> None:
    """Not only when it would be read anyway: a caller waits for the assign, and an enroll may come too late."""
    waiting = Rule("waits", (("assigned_s", Between(30, None)),), Outcome.HOLD, "because")
    book = dataclasses.replace(BOOK, rules=(waiting, *BOOK.rules)) if "watch_from" in held else BOOK
    assert next_deed(call(**held), book=book) == Wait(NOW + seconds(after_s))


TOLD: dict[str, tuple[dict[str, Any], bool]] = {
    "another person stands there": ({}, True),
    "it was told": ({"last_assignment": None}, False),
    "the queue has not listed it": ({"listed_at": None}, False),
    "it has ended": ({"phase": Phase.ENDED, "end_seen_at": NOW}, False),
    "whom we had assigned": ({"assign_wish": word(person_id="p-1"), "person_id": "p-2"}, False),
    "nobody asked": ({"assign_wish": None, "assign": ABSENT}, False),
    "nobody asked, and nobody is assigned": ({"assign_wish": None, "assign": Effect(), "person_id": None}, True),
}


@pytest.mark.parametrize(("changes", "is_told"), TOLD.values(), ids=TOLD)
def test_decide_tells_what_the_law_holds_back_of_an_assign(changes: dict[str, Any], is_told: bool) -> None:
    """Of a person's wish, whoever is assigned; of the rules', while nobody is. Once, and while it can be assigned."""
    known = call(assign_wish=word(person_id="p-2"))
    if "last_assignment" in changes:
        step = decide_record(known, BOOK, NOW)
        assert isinstance(step, WriteDecision)
        changes = {"last_assignment": step.verdict.fingerprint}
    step = decide_record(with_stored(known, **changes), BOOK, NOW)
    assert (isinstance(step, WriteDecision) and isinstance(step.verdict, Assignment)) is is_told


def test_decide_intends_the_assign_that_the_law_allows() -> None:
    """Nothing is held back then, so nothing is told before."""
    asked = call(assign_wish=word(person_id="p-2"), person_id=None, reading=reading(person_id=None))
    assert isinstance(decide_record(asked, BOOK, NOW), Intend)


@pytest.mark.parametrize(("retry_s", "is_sent"), [(None, True), (-1, True), (0, True), (1, False)])
def test_decide_assigns_again_once_the_wait_after_a_refusal_is_over(retry_s: float | None, is_sent: bool) -> None:
    """Not a moment earlier, and then the call is due."""
    retry_at = None if retry_s is None else NOW + seconds(retry_s)
    step = next_deed(call(**FREE, assign=replace(ABSENT, retry_at=retry_at)))
    assert isinstance(step, Intend) is is_sent
    if not is_sent:
        assert isinstance(step, Wait | Read)
        assert not isinstance(step, Wait) or step.until <= NOW + seconds(1)


@pytest.mark.parametrize(("ago_s", "is_sent"), [(1.9, True), (2.0, True), (2.1, False)])
def test_decide_sends_an_assign_only_to_a_call_that_was_just_seen(ago_s: float, is_sent: bool) -> None:
    """Within two seconds, by the queue or by stored details; else it is read."""
    seen_at = NOW - seconds(ago_s)
    intended = Effect(state=EffectState.INTENDED, person_id="p-1", intended_at=NOW)
    known = call(**FREE, assign=intended, listed_at=seen_at, reading=reading(read_at=seen_at, person_id=None))
    assert isinstance(next_deed(known), Send) is is_sent


@pytest.mark.parametrize(("ago_s", "step"), [(2.0, Send(EffectKind.ENROLL)), (2.1, Read("before enroll"))])
def test_decide_sends_an_enroll_only_after_a_fresh_read(ago_s: float, step: Step) -> None:
    """Stored details were read since it was intended, at most two seconds ago; else they are read again."""
    intended = replace(BY_DESK, was_read_since=True)
    read_at = NOW - seconds(ago_s)
    assert next_deed(call(enroll=intended, identity=verified(), reading=reading(read_at=read_at))) == step


@pytest.mark.parametrize(("username", "step"), [(None, Send(EffectKind.ASSIGN)), ("bob", Read("before assign"))])
def test_decide_reads_before_it_assigns_the_person_on_a_claimed_call(username: str | None, step: Step) -> None:
    """The service fills in a call's only match by itself. That is free, unless an operator has claimed the call."""
    intended = Effect(state=EffectState.INTENDED, person_id="p-1", intended_at=NOW)
    known = call(assign=intended, assign_wish=word(person_id="p-1"), person_id="p-1", core_username=username)
    assert next_deed(with_stored(known, reading=reading(core_username=username))) == step


@pytest.mark.parametrize(("was_read", "step"), [(False, Read("before assign")), (True, Send(EffectKind.ASSIGN))])
def test_decide_reads_before_it_replaces_our_own_assign(was_read: bool, step: Step) -> None:
    """Once since it was intended: whom we replace may have been claimed by then."""
    intended = Effect(state=EffectState.INTENDED, person_id="p-2", intended_at=NOW, was_read_since=was_read)
    known = call(assign=intended, assign_wish=word(person_id="p-2"), assigned_person_id="p-1")
    assert next_deed(known) == step


def test_decide_reads_before_an_assign_over_somebody_elses() -> None:
    """A call that is not free is assigned only after a read of its own."""
    intended = Effect(state=EffectState.INTENDED, person_id="p-2", intended_at=NOW)
    known = call(assign=intended, assign_wish=word(person_id="p-2"), core_username="bob")
    free = call(**FREE, assign=replace(intended, person_id="p-1"))
    assert not isinstance(next_deed(known), Send)
    assert isinstance(next_deed(free), Send)


def test_decision_in_a_trail_has_the_policies_that_it_was_made_on() -> None:
    """So that it can be replayed."""
    known = read_again(call(), policies=("Red High Risk",))
    step = decide_record(known, BOOK, NOW)
    assert isinstance(step, WriteDecision)
    assert step.entry.policies == ("Red High Risk",)
