"""The law over all its facts, and verdicts over any facts and any rules."""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import FACTS, GROWING, Facts
from callkeeper.calls.law import LAW, articles, forbidden
from callkeeper.calls.rules import Outcome, Stage
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.rules.matching import failed_condition, holds, is_meant_for, is_valid, judge, table, wanted
from callkeeper.calls.statuses import VALIDATION_TYPES
from tests.unit.calls.rules.specimens import BOOK, any_book, any_facts, any_rule

EXPECTED = {
    EffectKind.ASSIGN: {
        "institution_not_allowed": {"allowed": False},
        "call_ended": {"ended": True},
        "somebody_assigned": {"assigned": True},
        "paused_entirely": {"paused_entirely": True},
    },
    EffectKind.ENROLL: {
        "institution_not_allowed": {"allowed": False},
        "voice_id_not_confirmed": {"real_voice_id": False},
        "final_analysis_awaited": {"ended": True, "final_analysis": False},
        "verified_too_late": {"verified": True, "verified_in_time": False},
        "voice_not_checked": {"voice_checked": False, "verified_by_desk": False},
        "voice_mismatch": {"voice_mismatch": True, "verified_by_desk": False},
        "identity_not_established": {"verified": False},
        "nobody_assigned": {"assigned": False},
        "verified_person_is_not_the_assigned": {"verified": True, "verified_person_is_assigned": False},
        "already_green": {"green": True},
        "fully_authenticated": {"fully_authenticated": True},
        "red_policy": {"red": True},
        "unclassified_policy": {"unclassified": True},
        "voice_rejected": {"rejected": True},
        "already_enrolled": {"enrolled": True},
        "unenrolled": {"unenrolled": True},
        "opted_out": {"opted_out": True},
        "opt_in_required": {"opted_in": False},
        "distrusted": {"distrusted": True},
        "determined_fraud": {"fraud": True},
        "fraud_elsewhere": {"fraud_elsewhere": True},
        "paused": {"paused": True},
        "redis_changed": {"redis_changed": True},
        "standing_unconfirmed": {"standing_unconfirmed": True},
    },
    EffectKind.REJECT: {
        "institution_not_allowed": {"allowed": False},
        "voice_id_not_confirmed": {"real_voice_id": False},
        "voice_rejected": {"rejected": True, "rejected_by_rule": False},
        "rejected_by_rule": {"rejected_by_rule": True, "distrusted": False},
        "reject_of_authenticated": {"green": True, "distrusted": False},
        "reject_of_enrolled": {"enrolled": True, "distrusted": False},
        "reject_of_verified": {"verified_by_desk": True, "distrusted": False},
        "paused": {"paused": True},
        "redis_changed": {"redis_changed": True},
        "standing_unconfirmed": {"standing_unconfirmed": True},
    },
}
"""The law once more, written by hand from the design and the Spec."""


def truths(count: int) -> Iterator[tuple[bool, ...]]:
    """Yield values of so many facts: every combination at night; else those in which at most four differ from the rest."""
    if os.environ.get("TEST_NIGHT"):
        yield from product((True, False), repeat=count)
        return
    for usual in (True, False):
        for differing in range(5):
            for chosen in combinations(range(count), differing):
                yield tuple(usual != (n in chosen) for n in range(count))


@pytest.mark.parametrize("kind", list(EffectKind))
@pytest.mark.parametrize("opt_in_required", [True, False])
def test_law_is_what_it_says_for_every_combination_of_its_facts(kind: EffectKind, opt_in_required: bool) -> None:
    """The law names exactly the reasons that hold: at night for all 2^n values, else where four or fewer facts differ."""
    expected = {name: when for name, when in EXPECTED[kind].items() if opt_in_required or name != "opt_in_required"}
    names = sorted({name for when in expected.values() for name in when})
    for values in truths(len(names)):
        known = dict(zip(names, values, strict=True))
        reasons = {name for name, when in expected.items() if all(known[fact] == value for fact, value in when.items())}
        found = forbidden(kind, Facts.from_dict(known), opt_in_required=opt_in_required)
        assert set(found) == reasons
        assert len(found) == len(reasons)


@pytest.mark.parametrize("validation_type", VALIDATION_TYPES)
def test_law_enrolls_nobody_whose_identity_was_not_established_otherwise(validation_type: str) -> None:
    """NoAuth establishes nothing, VoiceAuth not otherwise (Spec: Rules per operation 3); each has a reason of its own."""
    known = {"allowed": True, "real_voice_id": True, "assigned": True, "verified": True, "verified_in_time": True}
    more = {"verified_person_is_assigned": True, "opted_in": True, "voice_checked": True}
    facts = Facts.from_dict({**known, **more, "validation_type": validation_type})
    reasons = {"NoAuth": ("no_auth",), "VoiceAuth": ("voice_auth",)}
    assert forbidden(EffectKind.ENROLL, facts) == reasons.get(validation_type, ())


@given(any_facts())
def test_law_forbids_less_to_assign_the_person_who_stands_there(facts: Facts) -> None:
    """Only the articles against replacing a person do not apply, because nobody is replaced."""
    replacing = {"somebody_assigned", "authenticated_as_another", "enrolled_for_another", "rejected_for_another"}
    against = forbidden(EffectKind.ASSIGN, facts)
    stays = forbidden(EffectKind.ASSIGN, facts, person_stays=True)
    assert stays == tuple(name for name in against if name not in replacing)


@given(any_facts(), any_facts(), st.sampled_from(EffectKind))
def test_law_looks_at_no_other_facts(facts: Facts, other: Facts, kind: EffectKind) -> None:
    """Facts that no article of a kind names do not change what is forbidden."""
    named = {name: getattr(facts, name) for article in articles(kind) for name, _ in article.when}
    assert forbidden(kind, with_fields(other, **named)) == forbidden(kind, facts)


IN_SHADOW = ("verified_in_shadow", "distrusted_in_shadow")
"""What only the law asks for."""


def test_law_has_a_meaning_and_a_name_of_its_own_for_every_article() -> None:
    """Trails refer to articles by name, people read what they mean: no kind of effect has two of one name."""
    for kind in EffectKind:
        names = [article.name for article in LAW if kind in article.forbids]
        assert len(set(names)) == len(names)
    assert all(
        article.meaning and article.forbids and set(dict(article.when)) <= {*FACTS, *IN_SHADOW} for article in LAW
    )


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
        assert replace(judge(facts, other, "cu-1"), shadows=()) == replace(plain, shadows=())


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


@given(any_facts())
def test_facts_are_read_back_as_written(facts: Facts) -> None:
    """What a trail leaves out is false, none or 0: nothing is lost."""
    known = Facts.from_dict(facts.as_dict(), policies=facts.policies)
    assert {n: getattr(known, n) or None for n in FACTS} == {n: getattr(facts, n) or None for n in FACTS}


@given(any_facts(), any_facts())
def test_signature_differs_when_any_fact_but_the_checks_does(facts: Facts, other: Facts) -> None:
    """A trail gets a line for every change of facts; checks have lines of their own."""
    apart = {name: getattr(facts, name) for name in {*GROWING_OR_LOCAL, "history", "at"} - {"checks_left"}}
    same = with_fields(other, **apart) == facts
    assert (facts.signature == other.signature) == same


GROWING_OR_LOCAL = {*GROWING, "checks_used", "checks_left", "checks_answered", "hour"}
"""Facts that have lines of their own in a trail, or that follow from the time."""


@pytest.mark.parametrize("name", sorted(FACTS.keys() - GROWING_OR_LOCAL))
def test_signature_differs_when_one_fact_does(name: str) -> None:
    """Else a trail misses a change on which other rules may decide, and replay with it."""
    nothing = Facts.from_dict({})
    changed: Any = {bool: True, int: 1, str: "a", tuple: ("a",)}[FACTS[name].kind]
    assert with_fields(nothing, **{name: changed}).signature != nothing.signature


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
