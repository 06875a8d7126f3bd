"""What the steps of an effect write, without a store."""

from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.claimed_item import LEASE, Epoch, RefusedBy, WriteRefused
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import ENROLLED_SINCE, NO_CLEAR_ANSWER, NOT_SHOWN, RECORD_LOST, may_begin
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.record import Asked, Phase
from callkeeper.calls.record_storage import SCHEMA
from callkeeper.calls.rules import Outcome
from callkeeper.calls.rules.assignment import Assignment
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.steps import Establish, Intend, Wait, Withdraw, WriteDecision, WriteFacts
from callkeeper.calls.trail import Entry
from callkeeper.service import NotSent, OutcomeUnknown, ServiceRefused, TokenLapsed, Unsendable
from tests.records import with_stored
from tests.unit.calls.specimens import BOOK, NOW, call, reading, seconds, verified, word
from tests.unit.workers.claims import Answering, HeldClaim, as_claim
from workers.effects import establish, intend, send, withdraw, write_decision, write_facts

ASKING = Verdict(Outcome.ASK, "look", "it is strange", asked=Outcome.ASK)
OPEN = Asked(rule="look", because="it was strange", asked_at=NOW - seconds(9))


def asked_after(verdict: Verdict, before: Asked | None) -> tuple[Asked | None, list[str]]:
    """Return the question that is open after a verdict, and what was logged."""
    held = HeldClaim(call(asked=before))
    write_decision(as_claim(held), WriteDecision(verdict, Entry(at=NOW, what="decided")))
    return held.call.statements.asked, held.events


def test_rule_asks_once() -> None:
    """While its question is open it stays as it was, and nobody is told again."""
    assert asked_after(ASKING, OPEN) == (OPEN, [])


def test_another_rule_asks_anew() -> None:
    """The question is then that rule's, since now."""
    other = replace(OPEN, rule="other")
    asked, logged = asked_after(ASKING, other)
    assert asked == Asked(rule="look", because="it is strange", asked_at=NOW)
    assert logged == ["person_asked"]
    assert asked_after(ASKING, None) == (asked, logged)


def test_question_ends_with_its_verdict() -> None:
    """A verdict that asks nobody closes it."""
    hold = Verdict(Outcome.HOLD, "wait", "")
    assert asked_after(hold, OPEN) == (None, [])


@pytest.mark.parametrize(
    ("known", "closed_by", "news"),
    [
        (("red",), "sue", ("voice_mismatch",)),
        (("voice_mismatch", "red"), "sue", ()),
        (("red",), None, ()),
    ],
    ids=["more evidence", "known", "still open"],
)
def test_a_question_about_more_evidence_is_another_one(
    known: tuple[str, ...], closed_by: str | None, news: tuple[str, ...]
) -> None:
    """It is asked from then on, and told once more if it was closed."""
    open_ = replace(OPEN, evidence=known)
    held = HeldClaim(call(asked=replace(open_, closed_by=closed_by)))
    step = WriteDecision(ASKING, Entry(at=NOW, what="decided"), evidence=("voice_mismatch", "red"))
    write_decision(as_claim(held), step)
    is_same = known == ("voice_mismatch", "red")
    expected = (
        replace(open_, closed_by=closed_by)
        if is_same
        else replace(open_, asked_at=NOW, evidence=("red", "voice_mismatch"))
    )
    assert held.call.statements.asked == expected
    assert (held.entries[-1].signs, held.events) == (news, ["person_asked"] if news else [])


def test_withdrawn_intention_keeps_what_was_sent() -> None:
    """How often, when, whether it may be repeated: else it might be sent once too often."""
    sent = Effect(attempts=2, unsent=1, unauthorized=1, sent_at=NOW, retry_at=NOW, last_word=4)
    held = HeldClaim(call(enroll=replace(sent, state=EffectState.INTENDED, rule="r")))
    withdraw(as_claim(held), Withdraw(EffectKind.ENROLL, "because"))
    assert held.call.ledger.enroll == sent
    assert [(entry.what, entry.because) for entry in held.entries] == [("withdrawn", "because")]


@pytest.mark.parametrize(("state", "counted"), [(EffectState.CONFIRMED, [EffectKind.ASSIGN]), (EffectState.ABSENT, [])])
def test_effect_that_details_show_is_in_force(state: EffectState, counted: list[EffectKind]) -> None:
    """As if its answer had arrived: a call that was assigned is watched."""
    held = HeldClaim(call(assign=Effect(state=EffectState.UNKNOWN, person_id="p-1")))
    establish(as_claim(held), Establish(EffectKind.ASSIGN, state))
    assert (held.call.ledger.assign.state, held.counted) == (state, counted)


@pytest.mark.parametrize("kind", EffectKind)
@pytest.mark.parametrize(
    "state", [EffectState.CONFIRMED, EffectState.ABSENT, EffectState.REFUSED, EffectState.UNRESOLVED]
)
def test_only_what_is_proved_absent_may_be_sent_again(kind: EffectKind, state: EffectState) -> None:
    """A refusal that stands is final, also if a person's later word is taken back before it was sent."""
    held = HeldClaim(call(**{kind.value: Effect(state=EffectState.UNKNOWN, refusal="no", retry_at=NOW)}))
    establish(as_claim(held), Establish(kind, state))
    assert (held.call.effect(kind).retry_at is not None) is (state is EffectState.ABSENT)


def test_outcome_that_was_proved_is_told_as_it_is() -> None:
    """A refusal has the service's reason; what stays unresolved needs a person."""
    held = HeldClaim(call(reject=Effect(state=EffectState.UNKNOWN, refusal="no such voice")))
    establish(as_claim(held), Establish(EffectKind.REJECT, EffectState.REFUSED))
    assert (held.call.ledger.reject.state, held.entries[0].because) == (EffectState.REFUSED, "no such voice")
    assert held.events == ["effect_refused"]
    held = HeldClaim(call(reject=Effect(state=EffectState.UNKNOWN, refusal="no such voice")))
    establish(as_claim(held), Establish(EffectKind.REJECT, EffectState.UNRESOLVED))
    assert (held.entries[0].because, held.events) == (None, ["effect_unresolved"])


INTENDED = Effect(
    state=EffectState.INTENDED, person_id="p-1", validation_type="Other", operator="ann", because="she said so"
)
ASKED_FOR = {
    EffectKind.ASSIGN: ("cu-1", "p-1", "v-1", "ann"),
    EffectKind.ENROLL: ("cu-1", "v-1", "p-1", "Other", "she said so", "ann"),
    EffectKind.REJECT: ("cu-1", "v-1", "ann"),
}
"""Whom each request is about, and in whose name it is made."""


async def sent(kind: EffectKind, outcome: str | Exception = "v-1", *, unsent: int = 0, **more: Any) -> HeldClaim:
    """Return a claim after an intended effect was sent."""
    known = call(**{kind.value: replace(INTENDED, unsent=unsent)}, person_id=None)
    held = HeldClaim(known, service=Answering(outcome), **more)
    await send(as_claim(held), kind)
    return held


@pytest.mark.parametrize("kind", EffectKind)
async def test_effect_is_written_as_sent_and_then_sent_once(kind: EffectKind) -> None:
    """The write has all its conditions, and the request what the intention says. What was applied is in force."""
    held = await sent(kind)
    ((written, conditions),) = held.kept
    assert (written.effect(kind).state, written.effect(kind).attempts) == (EffectState.SENT, 1)
    scope = PauseScope.ALL if kind is EffectKind.ASSIGN else PauseScope.EFFECTS
    assert conditions == {"only_if_no_notes": True, "unless_paused": scope, "replicated": True}
    assert held.service.sent == [ASKED_FOR[kind]]
    assert held.call.effect(kind) == replace(written.effect(kind), state=EffectState.APPLIED)
    assert ([entry.what for entry in held.entries], held.counted) == (["sent", "answered"], [kind])
    assert (held.entries[0].n, held.entries[0].operator, held.entries[1].state) == (1, "ann", EffectState.APPLIED)
    assert (held.saved, held.events) == ([], ["effect_answered"])


@pytest.mark.parametrize("heard", [False, True])
async def test_reject_that_is_given_up_is_not_begun_again_by_the_same_word(heard: bool) -> None:
    """The member was enrolled since: nothing is sent, and only a person's later word asks for it once more."""
    reject = replace(INTENDED, attempts=int(heard), sent_at=NOW if heard else None, last_word=8 if heard else 0)
    held = HeldClaim(call(reject=reject, distrusted=word(number=8)), enrolled=["v-2"])
    await send(as_claim(held), EffectKind.REJECT)
    given_up = held.call.ledger.reject
    assert (held.service.sent, given_up.state, given_up.refusal) == ([], EffectState.REFUSED, ENROLLED_SINCE)
    assert not may_begin(EffectKind.REJECT, given_up, held.call)
    assert may_begin(EffectKind.REJECT, given_up, with_stored(held.call, distrusted=word(number=9)))


HERE_S, OLDEST_S = 600, BOOK.maximum_age_s
LOST_RECORDS: dict[str, tuple[dict[str, Any], float, float | None, bool]] = {
    "older than this Redis": ({}, HERE_S, HERE_S + 1, True),
    "not older": ({}, HERE_S, HERE_S, False),
    "of any age": ({}, HERE_S, None, True),
    "older than any record": ({}, OLDEST_S + 9, OLDEST_S + 1, True),
    "not older than any record": ({}, OLDEST_S + 9, OLDEST_S, False),
    "seen live": ({"was_live": True}, HERE_S, None, False),
    "not ended": ({"end_seen_at": None}, HERE_S, None, False),
    "not read": ({"reading": None}, HERE_S, None, False),
    "said once more": ({"enroll": replace(INTENDED, last_word=1)}, HERE_S, None, False),
}


@pytest.mark.parametrize(("changes", "here_s", "found_s", "is_lost"), LOST_RECORDS.values(), ids=LOST_RECORDS)
async def test_enroll_of_a_call_whose_record_may_be_lost_is_given_up(
    changes: dict[str, Any], here_s: float, found_s: float | None, is_lost: bool
) -> None:
    """Its voice may have been rejected, and the end hides that. Only where Redis was replaced."""
    ended = call(**{"enroll": INTENDED, "phase": Phase.ENDED, "end_seen_at": NOW - seconds(5), **changes})
    for is_replaced in (True, False):
        epoch = Epoch("epoch", NOW - seconds(here_s), is_replaced=is_replaced)
        held = HeldClaim(ended, epoch=epoch, found_s=found_s)
        await send(as_claim(held), EffectKind.ENROLL)
        refusal = RECORD_LOST if is_lost and is_replaced else None
        assert (held.call.ledger.enroll.refusal, not held.service.sent) == (refusal, refusal is not None)


@pytest.mark.parametrize(("here_s", "may_be_old"), [(OLDEST_S - 1, True), (OLDEST_S, False)])
async def test_call_may_be_older_than_a_redis_that_is_younger_than_any_record(here_s: float, may_be_old: bool) -> None:
    """The service's clock cannot be learned from such a call."""
    held = HeldClaim(call(enroll=INTENDED, end_seen_at=NOW), epoch=Epoch("epoch", NOW - seconds(here_s)))
    await send(as_claim(held), EffectKind.ENROLL)
    assert held.may_be_old[0] is may_be_old


async def test_effect_of_nobody_is_sent_in_the_name_of_the_bot() -> None:
    """An enroll has a person's own remark if she made one, and else says why it is made."""
    rules = replace(INTENDED, operator=None, validation_type=None, remark="knows her")
    held = HeldClaim(call(enroll=rules))
    await send(as_claim(held), EffectKind.ENROLL)
    assert held.service.sent == [("cu-1", "v-1", "p-1", "Other", "knows her", "bot")]


async def test_effect_that_no_request_can_carry_is_refused_and_says_that_nothing_was_sent() -> None:
    """Nobody else will tell: the person at the desk reads it."""
    held = await sent(EffectKind.ENROLL, Unsendable("enroll", "a line break"))
    effect = held.call.ledger.enroll
    assert (effect.state, effect.refusal) == (EffectState.REFUSED, "nothing was sent: a line break")
    assert [entry.what for entry in held.entries] == ["sent", "answered", "established"]
    assert held.entries[-1].because == effect.refusal


@pytest.mark.parametrize("kind", EffectKind)
async def test_effect_that_could_not_be_sent_waits_longer_each_time(kind: EffectKind) -> None:
    """Three seconds three times, then twice as long up to a minute. An assign is not made to wait: a caller is."""
    waits = []
    for unsent in (0, 1, 2, 3, 4, 5, 6, 7, 5000):
        held = await sent(kind, NotSent("effect", "no connection"), unsent=unsent)
        assert (held.call.effect(kind).state, held.call.effect(kind).unsent) == (EffectState.INTENDED, unsent + 1)
        waits += [(until - NOW).total_seconds() for until in held.saved]
    assert waits == ([3.0] * 9 if kind is EffectKind.ASSIGN else [3, 3, 3, 6, 12, 24, 48, 60, 60])


async def test_repetition_that_could_not_be_sent_may_still_be_sent() -> None:
    """Else an enroll that got a 401 would be over after a pause, if the next login failed."""
    repeated = replace(INTENDED, attempts=1, sent_at=NOW - seconds(60), retry_at=NOW - seconds(59))
    held = HeldClaim(call(enroll=repeated), service=Answering(NotSent("effect", "no connection")))
    await send(as_claim(held), EffectKind.ENROLL)
    withdraw(as_claim(held), Withdraw(EffectKind.ENROLL, "paused"))
    assert may_begin(EffectKind.ENROLL, held.call.ledger.enroll, held.call)


@pytest.mark.parametrize("kind", EffectKind)
async def test_effect_whose_outcome_is_unknown_is_in_doubt(kind: EffectKind) -> None:
    """A refusal is kept for people, a 401 is counted: both may be followed by one more request. Nothing is in force."""
    unknown, refused, lapsed = OutcomeUnknown("e", "reset"), ServiceRefused("e", status=200), TokenLapsed("e", "401")
    for error in (unknown, refused, lapsed):
        held = await sent(kind, error)
        effect = held.call.effect(kind)
        assert (effect.state, effect.attempts, held.counted) == (EffectState.UNKNOWN, 1, ["effects_in_doubt"])
        assert effect.refusal == (refused.plain if error is refused else None)
        assert effect.unauthorized == (1 if error is lapsed else 0)
        assert (effect.retry_at is None) is (error is unknown)
        said = effect.refusal or f"{NO_CLEAR_ANSWER} ({error.reason})"
        assert (held.entries[-1].what, held.entries[-1].because) == ("answered", said)
        assert held.saved == []


async def test_effect_of_a_process_that_stood_still_is_not_sent() -> None:
    """The lease is counted from before the write, and its last moment still counts."""
    in_time = await sent(EffectKind.REJECT, keeps_s=LEASE.first_byte_s)
    assert in_time.call.ledger.reject.state is EffectState.APPLIED
    late = await sent(EffectKind.REJECT, keeps_s=LEASE.first_byte_s + 0.01)
    assert (late.service.sent, late.call.ledger.reject.state) == ([], EffectState.INTENDED)


@pytest.mark.parametrize("why", RefusedBy)
async def test_effect_is_not_sent_if_its_write_is_refused(why: RefusedBy) -> None:
    """A note or a pause leaves the intention as it was, and the call is claimed again at once. Else the claim is over."""
    held = HeldClaim(call(reject=INTENDED), refused_by=why)
    if why in {RefusedBy.NOTES, RefusedBy.PAUSED}:
        await send(as_claim(held), EffectKind.REJECT)
        assert (held.call.ledger.reject, held.entries, held.saved) == (INTENDED, [], [NOW])
    else:
        with pytest.raises(WriteRefused):
            await send(as_claim(held), EffectKind.REJECT)
    assert held.service.sent == []


VERDICT = Verdict(Outcome.ENROLL, "passcode", "the passcode was right")
REMARKED = replace(verified(), remark="knows her")


async def intended(kind: EffectKind, **known: Any) -> HeldClaim:
    """Return a claim after the rules wanted an effect for a person."""
    held = HeldClaim(call(identity=REMARKED, **known))
    decision = WriteDecision(VERDICT, Entry(at=NOW, what="decided"), facts="facts")
    await intend(as_claim(held), Intend(kind, "p-1", "Other", "ann", VERDICT, decision))
    return held


@pytest.mark.parametrize("kind", EffectKind)
async def test_intention_says_what_is_wanted_and_why(kind: EffectKind) -> None:
    """After the decision. That of an enroll or a reject is saved at once, because a read follows."""
    before = Effect(attempts=1, sent_at=NOW - seconds(60), refusal="no", state=EffectState.ABSENT)
    held = await intended(kind, **{kind.value: before})
    assert held.call.effect(kind) == Effect(
        state=EffectState.INTENDED,
        person_id="p-1",
        validation_type="Other",
        operator="ann",
        rule="passcode",
        because="the passcode was right",
        intended_at=NOW,
        attempts=1,
        sent_at=NOW - seconds(60),
        person_stood=kind is EffectKind.ASSIGN,
        remark="knows her" if kind is EffectKind.ENROLL else None,
    )
    assert ([entry.what for entry in held.entries], held.call.written.facts) == (["decided", "intended"], "facts")
    entry = held.entries[1]
    assert (entry.kind, entry.person_id, entry.validation_type, entry.operator) == (kind, "p-1", "Other", "ann")
    assert len(held.kept) == (0 if kind is EffectKind.ASSIGN else 1)
    assert held.marks_kept == (1 if kind is EffectKind.REJECT else 0)


LOST = Effect(state=EffectState.ABSENT, attempts=1, sent_at=NOW)


@pytest.mark.parametrize(
    ("before", "stands"),
    [
        pytest.param(LOST, EffectState.NONE, id="absent"),
        pytest.param(replace(LOST, state=EffectState.UNRESOLVED), EffectState.UNRESOLVED, id="unresolved"),
        pytest.param(replace(LOST, retry_at=NOW), EffectState.NONE, id="is repeated"),
        pytest.param(replace(LOST, resolved=1), EffectState.NONE, id="seen"),
        pytest.param(replace(LOST, state=EffectState.REFUSED, refusal="no"), EffectState.REFUSED, id="refused"),
        pytest.param(replace(LOST, state=EffectState.APPLIED), EffectState.NONE, id="applied"),
    ],
)
async def test_failure_stands_again_if_the_intention_after_it_is_withdrawn(before: Effect, stands: EffectState) -> None:
    """Unless a person has seen it."""
    held = HeldClaim(call(reject=before, identity=REMARKED))
    await intend(as_claim(held), Intend(EffectKind.REJECT, "p-1", None, "ann", VERDICT))
    withdraw(as_claim(held), Withdraw(EffectKind.REJECT, "because"))
    refusal = "no" if stands is EffectState.REFUSED else None
    person_id = "p-1" if stands is EffectState.UNRESOLVED else None
    stood = replace(LOST, state=stands, refusal=refusal, retry_at=before.retry_at, person_id=person_id)
    assert held.call.ledger.reject == stood


async def test_assign_of_nobody_s_call_is_seen_by_its_person() -> None:
    """Only the person who stood there before proves nothing."""
    assert not (await intended(EffectKind.ASSIGN, person_id=None)).call.ledger.assign.person_stood


async def test_intention_without_a_rule_has_none() -> None:
    """An assignment has a reason of its own, and is decided before."""
    held = HeldClaim(call(identity=None))
    await intend(as_claim(held), Intend(EffectKind.ENROLL, "p-1", "Other", None, Assignment("p-1", "the only one")))
    effect = held.call.ledger.enroll
    assert (effect.rule, effect.because, effect.remark) == (None, "the only one", None)
    assert [entry.what for entry in held.entries] == ["intended"]


@pytest.mark.parametrize("kind", EffectKind)
@pytest.mark.parametrize("state", [EffectState.APPLIED, EffectState.CONFIRMED, EffectState.ABSENT])
async def test_earlier_reject_counts_while_another_is_intended(kind: EffectKind, state: EffectState) -> None:
    """Its effect is forgotten with the ledger: without it a withdrawn intention would leave the voice free to enroll."""
    held = await intended(kind, reject=Effect(state=state), rejected_by_rule_only=True)
    seen, counts = held.call.seen, kind is EffectKind.REJECT and state is not EffectState.ABSENT
    assert (seen.rejected, seen.rejected_by_rule_only) == (counts, not counts)


async def test_request_is_written_with_what_was_shown_before_it() -> None:
    """What changed since tells what became of it. An assign over an operator's own claim stays the operator's."""
    shown = reading(status="Before")
    for person_stood, core_username, is_operators in (
        (True, "agent-9", True),
        (True, "ann", False),
        (True, None, False),
        (False, "agent-9", False),
    ):
        effect = replace(INTENDED, person_stood=person_stood)
        held = HeldClaim(call(assign=effect, reading=shown, core_username=core_username))
        await send(as_claim(held), EffectKind.ASSIGN)
        written = held.kept[0][0].ledger.assign
        assert written.status_before == "Before"
        assert (written.is_operators, written.requested_by, written.sent_at) == (is_operators, "ann", NOW)
    held = HeldClaim(call(assign=INTENDED, reading=None))
    await send(as_claim(held), EffectKind.ASSIGN)
    assert held.kept[0][0].ledger.assign.status_before is None


def test_decision_is_written_with_the_pause_and_changed_facts_with_nothing_else() -> None:
    """Both are written once: the record says which facts and which verdict the trail has."""
    held = HeldClaim(call())
    held.pause = "all, by ann"
    write_decision(as_claim(held), WriteDecision(VERDICT, Entry(at=NOW, what="decided"), facts="facts"))
    assert (held.call.written.verdict, held.call.written.facts) == (VERDICT.fingerprint, "facts")
    write_facts(as_claim(held), WriteFacts(Entry(at=NOW, what="facts"), "others", Wait(NOW)))
    assert (held.call.written.verdict, held.call.written.facts) == (VERDICT.fingerprint, "others")
    assignment = Assignment("p-1", "the only one")
    write_decision(as_claim(held), WriteDecision(assignment, Entry(at=NOW, what="decided")))
    assert (held.call.written.assignment, held.call.written.facts) == (assignment.fingerprint, "others")
    told = [(entry.what, entry.pause) for entry in held.entries]
    assert told == [("decided", "all, by ann"), ("facts", None), ("decided", "all, by ann")]


def test_assign_that_was_ignored_is_forgotten() -> None:
    """The call is nobody's again; after the last try the refusal says why."""
    for state, refusal in ((EffectState.ABSENT, None), (EffectState.REFUSED, NOT_SHOWN)):
        assigned = Effect(state=EffectState.APPLIED, person_id="p-1", refusal="old")
        held = HeldClaim(call(assign=assigned, reading=reading(person_id=None)))
        establish(as_claim(held), Establish(EffectKind.ASSIGN, state))
        assert (held.call.ledger.assign.state, held.call.ledger.assign.refusal) == (state, refusal)
        assert (held.events[0], held.call.seen.person_id) == ("assign_ignored", None)
    assert (held.events, held.call.schema) == (["assign_ignored", "effect_refused"], SCHEMA)
