"""What is proved about rules from what facts mean: against every call there could be."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import FACTS, Facts, Value
from callkeeper.calls.policies import Colour, Policies
from callkeeper.calls.reading_folding import fold_reading
from callkeeper.calls.record import Call, Reading
from callkeeper.calls.rules import Outcome, Rule, Stage
from callkeeper.calls.rules.book import Condition, Not, OneOf, Test
from callkeeper.calls.rules.matching import admits, needs_voice_checked
from callkeeper.calls.rules.patterns import overlap
from callkeeper.calls.rules.possible_facts import IMPLICATIONS, World
from callkeeper.calls.rules.proofs import Proofs
from callkeeper.calls.statuses import FRAUD, RESEARCH, STATUSES, VALIDATION_TYPES
from callkeeper.service import ResearchStatus
from tests.conftest import examples
from tests.records import facts_of_record
from tests.unit.calls.rules.specimens import any_condition
from tests.unit.calls.specimens import BOOK, CALLS, NOW, READINGS

SOME = (
    "verified",
    "verified_by_desk",
    "verified_person_is_assigned",
    "assigned",
    "manual",
    "enrolled",
    "green",
    "voice_checked",
)
"""Facts that are tried in every combination: most of those that imply each other."""


Known = dict[str, Value]


def _world(flags: tuple[bool, ...], validation: str | None) -> Known:
    return {**dict(zip(SOME, flags, strict=True)), "validation_type": validation}


def _consistent(known: Known) -> bool:
    return not any(
        fact in known and known[fact] == value and known.get(then, so) != so
        for (fact, value), (then, so) in IMPLICATIONS
    )


WORLDS = [
    world
    for flags in product((True, False), repeat=len(SOME))
    for validation in (*VALIDATION_TYPES, None)
    if _consistent(world := _world(flags, validation))
]

conditions = st.one_of(
    st.tuples(st.sampled_from(SOME), st.booleans()),
    st.tuples(st.just("validation_type"), st.sampled_from(VALIDATION_TYPES[:2])),
    st.tuples(
        st.just("validation_type"),
        st.lists(st.sampled_from(VALIDATION_TYPES), min_size=1, max_size=3).flatmap(
            lambda types: st.sampled_from((OneOf(tuple(types)), Not(OneOf(tuple(types)))))
        ),
    ),
)
groups = st.lists(conditions, min_size=1, max_size=3)


def _holds(world: Known, group: list[Condition]) -> bool:
    """Tell whether a world meets conditions. What the voice has not shown counts only once it had its say."""
    return all(
        admits(test, world[fact]) and (bool(world["voice_checked"]) or not needs_voice_checked((fact, test)))
        for fact, test in group
    )


@given(groups, st.lists(groups, max_size=4))
@example([("verified", False)], [[("green", False)], [("green", True)]])
def test_possible_is_what_some_world_shows(must: list[Condition], never: list[list[Condition]]) -> None:
    """The search says "possible" exactly where trying every combination finds one."""
    found = any(_holds(world, must) and not any(_holds(world, group) for group in never) for world in WORLDS)
    world = World(BOOK.policies, (*must, *(one for group in never for one in group)))
    assert world.possible(must, never) == found


@given(st.lists(any_condition(), max_size=4), st.lists(st.lists(any_condition(), min_size=1, max_size=3), max_size=4))
def test_possible_comes_to_an_end(must: list[Condition], never: list[list[Condition]]) -> None:
    """Any conditions at all are answered; what is possible under more demands is possible under fewer."""
    world = World(BOOK.policies, (*must, *(one for group in never for one in group)))
    if world.possible(must, never):
        assert world.possible(must)
        assert world.possible(must, never[1:])


@given(CALLS, READINGS)
@examples(100)
def test_implications_hold_in_every_call(before: Call, reading: Reading) -> None:
    """What the proofs take for granted is true of the facts of any record that has just been read."""
    facts = facts_of_record(fold_reading(before, reading, BOOK, NOW), BOOK.policies)
    for (fact, value), (then, so) in IMPLICATIONS:
        assert getattr(facts, fact) != value or getattr(facts, then) == so, (fact, value, then)
    assert not {None, FRAUD}.isdisjoint({facts.research, facts.research_elsewhere})


def rule(
    name: str, outcome: Outcome = Outcome.HOLD, stage: Stage = Stage.LIVE, at: str | None = None, **when: Value
) -> Rule:
    """Return a rule, for one institution or for all."""
    return Rule(
        name, tuple(when.items()), outcome, "because", stage=stage, institutions=frozenset({at}) if at else None
    )


@pytest.mark.parametrize(
    ("earlier", "last", "taken"),
    [
        ([rule("a", verified=True)], rule("z", verified=True, green=False), ["a"]),
        ([rule("a", verified=True)], rule("z", verified_by_desk=True), ["a"]),
        ([rule("a", verified=True)], rule("z", validation_type="Other"), ["a"]),
        ([rule("a", manual=True), rule("b", manual=False)], rule("z", red=True), ["a", "b"]),
        ([rule("x", fraud=True), rule("a", manual=True), rule("b", manual=False)], rule("z", red=True), ["a", "b"]),
        ([rule("a", manual=True)], rule("z", red=True), None),
        ([rule("a", green=False)], rule("z", red=True), None),  # a red policy may come before the voice had its say
        ([rule("a", green=False)], rule("z", red=True, voice_checked=True), ["a"]),
        ([rule("a", voice_checked=True)], rule("z", high_risk_device=False), ["a"]),
        ([rule("a", stage=Stage.SHADOW)], rule("z", red=True), None),
        ([rule("a", at="cu-1", red=True)], rule("z", red=True), None),
        ([rule("a", at="cu-1", red=True)], rule("z", at="cu-1", red=True), ["a"]),
        ([rule("a", at="cu-1", red=True)], rule("z", at="cu-2", red=True), None),
        ([rule("a", red=True)], rule("z", at="cu-2", red=True), ["a"]),
        ([rule("a", candidates=1)], rule("z", candidates=2), None),
        ([rule("a", status="VoiceMismatch")], rule("z", voice_mismatch=True), None),
        # The mismatch may be of the member before.
        ([rule("a", voice_mismatch=True)], rule("z", status="VoiceMismatch"), None),
        ([rule("a", opted_out=True)], rule("z", status="VoiceOptOut"), ["a"]),
    ],
)
def test_rule_is_unreachable_when_earlier_live_rules_take_all_its_calls(
    earlier: list[Rule], last: Rule, taken: list[str] | None
) -> None:
    """Alone or together, by implication too; rules in shadow or for others take nothing. The fewest are named."""
    found = Proofs.of([*earlier, last], BOOK.policies).taken_by(earlier, last)
    assert (None if found is None else [other.name for other in found]) == taken


@pytest.mark.parametrize(
    ("asked", "reasons"),
    [
        (rule("r", Outcome.ENROLL, verified=True, green=True), ["already_green"]),
        (rule("r", Outcome.ENROLL, status="RejectCallerVoice", verified=True), ["voice_rejected"]),
        (rule("r", Outcome.ENROLL, verified=False), ["identity_not_established"]),
        (rule("r", Outcome.ENROLL, verified=True), []),
        (rule("r", Outcome.ENROLL), []),
        (rule("r", Outcome.ENROLL, verified=True, fraud=True), ["determined_fraud"]),
        (rule("r", Outcome.ENROLL, verified=True, research_elsewhere="DeterminedFraud"), ["fraud_elsewhere"]),
        (rule("r", Outcome.REJECT, fraud=True, distrusted=False), []),
        (rule("r", Outcome.REJECT, status="RejectCallerVoice", distrusted=True, enrolled=False), ["voice_rejected"]),
        (rule("r", Outcome.REJECT, status="RejectCallerVoice", distrusted=True), []),
        (rule("r", Outcome.REJECT, fraud=True, distrusted=True), []),
        (rule("r", Outcome.HOLD, fraud=True), []),
    ],
)
def test_rule_that_the_law_always_holds_is_found(asked: Rule, reasons: list[str]) -> None:
    """Only what is forbidden in every call that the rule can match is told."""
    assert Proofs.of([asked], BOOK.policies).always_forbidden(asked) == reasons


SINGLE = "it rejects on a single piece of evidence"
TWO = {"voice_mismatch": True, "high_risk_device": True}


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        ({"fraud": True}, SINGLE),
        ({"research": "DeterminedFraud"}, SINGLE),
        ({"fraud": True, "research": "DeterminedFraud"}, SINGLE),
        ({"voice_mismatch": True, "research": "InReview"}, SINGLE),
        ({"fraud": True, "voice_mismatch": True}, None),
        ({"voice_mismatch": True, "unclassified": True}, SINGLE),
        ({"fraud_elsewhere": True, "voice_mismatch": True}, "it rejects on fraud_elsewhere = true"),
        ({"fraud": False, "fraud_elsewhere": True, **TWO}, "it rejects on fraud_elsewhere = true"),
        ({"research_elsewhere": "InReview", **TWO}, 'it rejects on research_elsewhere = "InReview"'),
        ({"rejected_before": True, **TWO}, "it rejects on rejected_before = true"),
        ({"unenrolled_before": True, "fraud": True, **TWO}, "it rejects on unenrolled_before = true"),
        ({"fraud_before": Not(False), **TWO}, "it rejects on fraud_before = { not = false }"),
        ({"fraud_elsewhere": False, **TWO}, None),
        ({"research_elsewhere": Not("FalsePositive"), **TWO}, None),
        ({"fraud_elsewhere": True, "distrusted": True}, None),
    ],
    ids=str,
)
def test_case_about_this_call_is_one_piece_of_evidence_and_other_calls_are_none(
    when: dict[str, Test], problem: str | None
) -> None:
    """Fraud determined in this call and another sign may reject. What another call showed may only spare a caller."""
    asked = Rule("r", tuple(when.items()), Outcome.REJECT, "because")
    fault = Proofs.of([asked], BOOK.policies).fault_of([], asked, frozenset(), frozenset())
    assert (fault.problem if fault else None) == problem
    for outcome in (Outcome.ASK, Outcome.HOLD):
        assert (
            Proofs.of([asked], BOOK.policies).fault_of([], replace(asked, outcome=outcome), frozenset(), frozenset())
            is None
        )


@pytest.mark.parametrize("state", RESEARCH)
@pytest.mark.parametrize("elsewhere", ["InReview", FRAUD])
def test_record_shows_one_case_and_remembers_fraud(state: str, elsewhere: str) -> None:
    """A rule that wants a case about this call and one about another never matches, unless one was determined as fraud."""
    asked = rule("r", Outcome.ASK, research=state, research_elsewhere=elsewhere)
    fault = Proofs.of([asked], BOOK.policies).fault_of([], asked, frozenset(), frozenset())
    contradiction = "its conditions contradict each other: it never matches"
    assert (fault and fault.problem) == (None if FRAUD in {state, elsewhere} else contradiction)


def test_fault_of_a_reject_on_another_call_says_what_the_rule_may_do() -> None:
    """Who wrote it learns the danger: a reject un-enrolls the member, and the victim may be the one who calls."""
    for name, cause in (("fraud_elsewhere", "the case may be about"), ("rejected_before", "the earlier call may")):
        asked = Rule("r", ((name, True), ("voice_mismatch", True)), Outcome.REJECT, "because")
        fault = Proofs.of([asked], BOOK.policies).fault_of([], asked, frozenset(), frozenset())
        assert fault is not None
        assert fault.allowed.startswith(f"it may ask or hold, not reject: {cause}")
        assert "victim may be the one who calls now" in fault.allowed


@given(
    st.text("ab*", min_size=1, max_size=5),
    st.text("ab*", min_size=1, max_size=5),
    st.text("ab", min_size=1, max_size=6),
)
def test_patterns_overlap_wherever_a_name_fits_both(one: str, other: str, name: str) -> None:
    """A name that fits both patterns proves an overlap; the order of the two does not matter."""
    fits = (Policies(green=(one,)).colour(name), Policies(green=(other,)).colour(name))
    fits_both = fits == (Colour.GREEN, Colour.GREEN)
    assert overlap(one, other) or not fits_both
    assert overlap(one, other) == overlap(other, one)


def test_patterns_that_no_name_fits_both_do_not_overlap() -> None:
    """No overlap is claimed where there is none."""
    assert not overlap("Green *", "Red *")
    assert not overlap("*a", "*b")
    assert not overlap("a*c", "a*cb")
    assert overlap("a*", "*b")


NOT_FOR_RULES = {"history", "at", "verified_in_shadow", "distrusted_in_shadow"}


def test_closed_facts_know_their_values() -> None:
    """Every text fact is a closed list, so that a misspelt value is a fault."""
    assert FACTS["status"].named == STATUSES
    assert FACTS["validation_type"].named == VALIDATION_TYPES
    assert FACTS["research"].named == FACTS["research_elsewhere"].named == tuple(ResearchStatus)
    assert {name for name, fact in FACTS.items() if fact.is_open} == {"validation_rule"}
    assert set(FACTS) == set(Facts.__struct_fields__) - NOT_FOR_RULES | {"checks_left"}
    assert set(EffectKind) == {"assign", "enroll", "reject"}
