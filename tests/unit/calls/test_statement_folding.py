"""Which statements of people may still lead to something, and which never do."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.rules import Outcome
from callkeeper.calls.statement_folding import in_shadow, may_reopen, stronger
from tests.unit.calls.rules.specimens import EAGER
from tests.unit.calls.specimens import BOOK, NOW, call, verified, word

ENROLL, REJECT = EffectKind.ENROLL, EffectKind.REJECT


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
    marked = in_shadow(call(), said, only).statements
    assert marked.identity is not None
    assert marked.distrusted is not None
    assert marked.identity.in_shadow is (outcome is Outcome.REJECT)
    assert marked.distrusted.in_shadow is (outcome is Outcome.ENROLL)
    assert in_shadow(said, said, only) == said
    assert in_shadow(said, call(), only) == call()


def test_desk_is_believed_before_the_service() -> None:
    """Whichever came later: a person has asked the caller."""
    desk, service = verified(), verified(by_desk=False)
    assert stronger(desk, service) == stronger(service, desk) == desk
