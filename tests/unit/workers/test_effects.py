"""What the steps of an effect write, without a service."""

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.record import Asked
from callkeeper.calls.rules import Outcome
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.steps import Establish, Withdraw, WriteDecision
from callkeeper.calls.trail import Entry
from tests.unit.calls.specimens import NOW, call, seconds
from tests.unit.workers.claims import HeldClaim, as_claim
from workers.effects import establish, withdraw, write_decision

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


def test_withdrawn_intention_keeps_what_was_sent() -> None:
    """How often, when, and how often it could not be sent: else it might be sent once too often."""
    sent = Effect(state=EffectState.INTENDED, attempts=2, unsent=1, unauthorized=1, sent_at=NOW, last_word=4, rule="r")
    held = HeldClaim(call(enroll=sent))
    withdraw(as_claim(held), Withdraw(EffectKind.ENROLL, "because"))
    assert held.call.ledger.enroll == Effect(attempts=2, unsent=1, unauthorized=1, sent_at=NOW, last_word=4)
    assert [(entry.what, entry.because) for entry in held.entries] == [("withdrawn", "because")]


@pytest.mark.parametrize(("state", "counted"), [(EffectState.CONFIRMED, [EffectKind.ASSIGN]), (EffectState.ABSENT, [])])
def test_effect_that_details_show_is_in_force(state: EffectState, counted: list[EffectKind]) -> None:
    """As if its answer had arrived: a call that was assigned is watched."""
    held = HeldClaim(call(assign=Effect(state=EffectState.UNKNOWN, person_id="p-1")))
    establish(as_claim(held), Establish(EffectKind.ASSIGN, state))
    assert (held.call.ledger.assign.state, held.counted) == (state, counted)


def test_outcome_that_was_proved_is_told_as_it_is() -> None:
    """A refusal has the service's reason; what stays unresolved needs a person."""
    held = HeldClaim(call(reject=Effect(state=EffectState.UNKNOWN, refusal="no such voice")))
    establish(as_claim(held), Establish(EffectKind.REJECT, EffectState.REFUSED))
    assert (held.call.ledger.reject.state, held.entries[0].because) == (EffectState.REFUSED, "no such voice")
    assert held.events == ["effect_refused"]
    held = HeldClaim(call(reject=Effect(state=EffectState.UNKNOWN, refusal="no such voice")))
    establish(as_claim(held), Establish(EffectKind.REJECT, EffectState.UNRESOLVED))
    assert (held.entries[0].because, held.events) == (None, ["effect_unresolved"])
