"""What ``decide`` does with any rules and any call: one step, never a forbidden effect, nothing changed by shadows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.law import forbidden
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.record import Call
from callkeeper.calls.rules import RuleBook, Stage
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.steps import Check, Intend, Read, Send, Settle, Wait, Withdraw, WriteDecision
from tests.conftest import examples
from tests.records import decide_record, facts_of_record
from tests.unit.calls.rules.specimens import BOOK, EAGER, any_book, any_rule
from tests.unit.calls.specimens import BEGINNINGS, CALLS, NOW, call, calls_near, next_deed, verified

SCOPES = st.none() | st.sampled_from(PauseScope)


BOOKS = any_book() | st.sampled_from([BOOK, *(replace(BOOK, rules=(rule, BOOK.rules[-1])) for rule in EAGER)])
ACTING = calls_near(*(name for name in BEGINNINGS if "intend" in name or "send" in name))
"""Calls near those for which something is sent."""


@given(ACTING | CALLS, BOOKS, SCOPES)
@examples(40)
def test_decide_takes_one_lawful_step(before: Call, book: RuleBook, paused: PauseScope | None) -> None:
    """Any call, any rules, any pause: one step, and no effect that the law forbids."""
    before = with_fields(before, last_claim=with_fields(before.last_claim, paused=paused))
    step = next_deed(before, book=book)
    if isinstance(step, Intend | Send):
        facts = facts_of_record(before, book.policies)
        opt_in = book.require_opt_in and step.kind is EffectKind.ENROLL
        person_id = step.person_id if isinstance(step, Intend) else before.effect(step.kind).person_id
        person_stays = person_id is not None and person_id == before.seen.person_id
        assert forbidden(step.kind, facts, opt_in_required=opt_in, person_stays=person_stays) == ()
    if isinstance(step, Check) and not step.by_desk:
        assert paused is not PauseScope.ALL


@given(CALLS, any_book(), st.data())
def test_rules_in_shadow_change_no_deed(before: Call, book: RuleBook, data: st.DataObject) -> None:
    """With or without rules in shadow the next thing that is done is the same; only the trail has more to say.

    Except that a call that could be closed is read once more, if a rule in shadow may match at the final analysis.
    """
    bare = replace(book, rules=tuple(rule for rule in book.rules if rule.stage is Stage.LIVE))
    more = data.draw(any_rule("more", stage=Stage.SHADOW))
    alone, *with_shadows = (
        _bare(next_deed(before, book=each)) for each in (bare, book, replace(book, rules=(more, *book.rules)))
    )
    for deed in with_shadows:
        assert deed == alone or (isinstance(alone, Settle) and deed in {Read("final analysis"), Wait(NOW)})


def _bare(step: object) -> object:
    """Return a step without what its verdict, its trail entry and the length of a wait know of shadows."""
    if isinstance(step, Wait):
        return Wait(NOW)  # time may make a rule in shadow match sooner
    if isinstance(step, Intend) and isinstance(step.verdict, Verdict):
        return with_fields(step, verdict=with_fields(step.verdict, shadows=()), decision=None)
    return step


def test_paused_effect_is_withdrawn_and_decided_again() -> None:
    """Under a pause an intention is given up; without it the same call intends anew, from what is true then."""
    live = call(identity=verified())
    intended = next_deed(live)
    assert isinstance(intended, Intend)
    effect = with_fields(
        live.ledger.enroll, state=EffectState.INTENDED, person_id="p-1", validation_type="OneTimePasswordAuth"
    )
    held = next_deed(
        with_fields(
            live,
            ledger=with_fields(live.ledger, enroll=effect),
            last_claim=with_fields(live.last_claim, paused=PauseScope.EFFECTS),
        )
    )
    assert (type(held).__name__, getattr(held, "because", "")) == ("Withdraw", "paused")
    assert next_deed(live) == intended


def test_new_rules_write_a_decision_anew() -> None:
    """The digest of the rules in force is in the trail of every call: after a deploy the decision is written again."""
    live = call()
    step = decide_record(live, BOOK, NOW)
    assert isinstance(step, WriteDecision)
    assert isinstance(step.verdict, Verdict)
    told = with_fields(
        live,
        written=with_fields(
            live.written, verdict=step.verdict.fingerprint, facts=facts_of_record(live, BOOK.policies).signature
        ),
    )
    assert not isinstance(decide_record(told, BOOK, NOW), WriteDecision)
    assert isinstance(decide_record(told, replace(BOOK, digest="another"), NOW), WriteDecision)


def test_assign_for_nobody_is_withdrawn() -> None:
    """Where the law leaves nobody to assign, an intention is given up, whomever it was for."""
    intention = Effect(state=EffectState.INTENDED, person_id=None)
    step = decide_record(call(assign=intention), BOOK, NOW)
    assert isinstance(step, Withdraw)
    assert step.because == "somebody_assigned"
