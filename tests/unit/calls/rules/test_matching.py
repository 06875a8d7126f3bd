"""Verdicts over any facts and any rules."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import Facts
from callkeeper.calls.law import forbidden
from callkeeper.calls.rules import Outcome, Stage
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.rules.matching import failed_condition, holds, is_meant_for, is_valid, judge, table, wanted
from tests.unit.calls.rules.specimens import BOOK, any_book, any_facts, any_rule


@given(any_facts(), any_book(), st.sampled_from(["cu-1", "cu-2", "cu-3"]))
def test_verdict_is_one_lawful_outcome_the_same_for_the_same_facts(facts: Facts, book: RuleBook, key: str) -> None:
    """Any facts, any rules: exactly one outcome, the first live match's, never a forbidden one, always the same."""
    verdict = judge(facts, book, key)
    assert verdict.outcome in Outcome
    if verdict.outcome in {Outcome.ENROLL, Outcome.REJECT}:
        kind = EffectKind(verdict.outcome.value)
        assert forbidden(kind, facts, opt_in_required=book.require_opt_in) == ()
    live = [
        r
        for r in book.rules
        if r.stage is Stage.LIVE
        and is_meant_for(r, key)
        and is_valid(r, facts.at)
        and failed_condition(r, facts) is None
    ]
    assert verdict.rule == live[0].name
    assert verdict.outcome is (Outcome.HOLD if verdict.forbidden else live[0].outcome)
    assert judge(facts, book, key) == verdict


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
