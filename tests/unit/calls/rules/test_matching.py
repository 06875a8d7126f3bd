"""Verdicts over any facts and any rules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from callkeeper.calls.facts import Facts
from callkeeper.calls.law import forbidden, question, sentence_of
from callkeeper.calls.rules import Outcome, Stage, load_rules
from callkeeper.calls.rules.book import EFFECTS, RuleBook
from callkeeper.calls.rules.matching import holds, is_meant_for, is_valid, judge, may_act, table, wanted
from tests.conftest import examples
from tests.unit.calls.rules.specimens import BOOK, any_book, any_facts, any_rule


@given(any_facts(), any_book(), st.sampled_from(["cu-1", "cu-2", "cu-3"]))
@examples(50)
def test_verdict_is_what_the_first_match_asks_for_within_the_law(facts: Facts, book: RuleBook, key: str) -> None:
    """Any facts, any rules: the first live match decides, with every reason that forbids what it asks for.

    Each rule in shadow that matches before it is judged alike.
    """
    verdict = judge(facts, book, key)
    matching = [
        rule
        for rule in book.rules
        if is_meant_for(rule, key) and is_valid(rule, facts.at) and all(holds(each, facts) for each in rule.when)
    ]
    first = next(n for n, rule in enumerate(matching) if rule.stage is Stage.LIVE)
    asking, does_more_than_watch = question(facts), any(may_act(book, outcome, key) for outcome in EFFECTS)
    if asking is not None and does_more_than_watch and verdict.outcome not in EFFECTS:
        assert (verdict.outcome, verdict.rule, verdict.because) == (Outcome.ASK, asking.name, sentence_of(asking.name))
        by_rule, outcome = matching[first], Outcome.HOLD if verdict.forbidden else matching[first].outcome
        verdict = with_fields(verdict, rule=by_rule.name, outcome=outcome, because=by_rule.because)
    for rule, judged in zip(matching[: first + 1], (*verdict.shadows, verdict), strict=True):
        kind = EFFECTS.get(rule.outcome)
        marks = {"on_red_alone": rule.on_red_alone, "against_mismatch": rule.against_mismatch}
        reasons = () if kind is None else forbidden(kind, facts, opt_in_required=book.require_opt_in, **marks)
        assert (judged.rule, judged.asked, judged.forbidden) == (rule.name, rule.outcome, reasons)
        assert judged.outcome is (Outcome.HOLD if reasons else rule.outcome)
    assert judge(facts, book, key) == judge(facts, book, key)


@pytest.mark.parametrize("what", ["same_member_live", "member_changed"])
@pytest.mark.parametrize(
    ("changes", "asks"),
    [
        ({}, True),
        (None, False),
        ({"rejected": True}, False),
        ({"distrusted": True}, False),
        ({"distrusted": True, "distrusted_as_another": True}, True),
        ({"verified_by_desk": True, "verified_person_is_assigned": True}, False),
        ({"verified_by_desk": True}, True),
    ],
)
def test_law_asks_a_person_whatever_the_rules_say(what: str, changes: dict[str, bool] | None, asks: bool) -> None:
    """Where rules act. A person's word about the member is an answer, and a rejected caller is none to be enrolled."""
    facts = with_fields(
        Facts.from_dict({what: True, "allowed": True}), **({what: False} if changes is None else changes)
    )
    for name in ("default", "demo"):
        verdict = judge(facts, load_rules(None if name == "default" else name), "cu-1")
        assert (verdict.outcome is Outcome.ASK and verdict.rule == what) is asks
    assert judge(facts, load_rules("watch-only"), "cu-1").outcome is not Outcome.ASK


@given(any_facts(), any_book(), st.data())
def test_rules_in_shadow_never_change_the_verdict(facts: Facts, book: RuleBook, data: st.DataObject) -> None:
    """Adding rules in shadow anywhere, or taking all of them out, leaves what is decided as it was."""
    place = data.draw(st.integers(0, len(book.rules)))
    more = data.draw(any_rule("new", stage=Stage.SHADOW))
    with_more = replace(book, rules=(*book.rules[:place], more, *book.rules[place:]))
    without = replace(book, rules=tuple(rule for rule in book.rules if rule.stage is Stage.LIVE))
    plain = judge(facts, without, "cu-1")
    for other in (book, with_more):
        assert with_fields(judge(facts, other, "cu-1"), shadows=()) == with_fields(plain, shadows=())


@given(any_facts(), any_book(), st.sampled_from(["cu-1", "cu-2", "cu-3"]))
def test_table_tells_what_the_verdict_decided(facts: Facts, book: RuleBook, key: str) -> None:
    """The table of a decision names the same rule and shadows, and for every other rule a condition that really failed."""
    verdict, lines = judge(facts, book, key), table(facts, book, key)
    assert [line.rule for line in lines] == [rule.name for rule in book.rules]
    asking = question(facts)
    if asking is None or verdict.rule != asking.name:  # then the law asks, whatever the rule does
        assert [line.rule for line in lines if line.result == "matched"] == [verdict.rule]
    assert [line.rule for line in lines if line.result == "shadowed"] == [shadow.rule for shadow in verdict.shadows]
    assert next(line.forbidden for line in lines if line.result == "matched") == verdict.forbidden
    for line, rule in zip(lines, book.rules, strict=True):
        if line.result == "failed":
            failed = next(((name, test) for name, test in rule.when if not holds((name, test), facts)), None)
            said = ("the date", is_valid(rule, facts.at)) if failed is None else (failed[0], wanted(failed[1]))
            is_dated = not is_valid(rule, facts.at)
            assert line.fact == "the date" if is_dated else (line.fact, line.wanted) == said
            assert line.wanted != line.was


def test_shadow_verdicts_say_what_would_have_been() -> None:
    """A rule in shadow is judged within the law like a live one."""
    first = replace(BOOK.rules[0], when=(), stage=Stage.SHADOW)
    verdict = judge(Facts.from_dict({"allowed": True}), replace(BOOK, rules=(first, BOOK.rules[-1])), "cu-1")
    (shadow,) = verdict.shadows
    assert (shadow.asked, shadow.outcome, shadow.forbidden) == (
        Outcome.REJECT,
        Outcome.HOLD,
        ("voice_id_not_confirmed",),
    )
