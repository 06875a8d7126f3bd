"""Rules as records: what they say about themselves."""

from dataclasses import replace

from callkeeper.calls.rules.book import EFFECTS, Outcome, Rule
from tests.unit.calls.specimens import NOW

RULE = Rule("r", (("green", True),), Outcome.ENROLL, "because")


def test_rule_is_always_about_a_fact_if_it_has_no_other_condition() -> None:
    """One condition, at any time, in its institutions."""
    assert RULE.is_always_about("green")
    assert not RULE.is_always_about("red")
    assert not replace(RULE, when=(("green", False),)).is_always_about("green")
    assert not replace(RULE, when=(*RULE.when, ("red", False))).is_always_about("green")
    assert replace(RULE, institutions=frozenset({"cu-1"})).is_always_about("green")
    assert not replace(RULE, valid_from=NOW).is_always_about("green")
    assert not replace(RULE, valid_until=NOW).is_always_about("green")


def test_rules_share_institutions_unless_each_names_others() -> None:
    """A rule that names none is for all."""
    first, second = (replace(RULE, institutions=frozenset({key})) for key in ("cu-1", "cu-2"))
    assert RULE.shares_institutions_with(first)
    assert first.shares_institutions_with(RULE)
    assert first.shares_institutions_with(first)
    assert not first.shares_institutions_with(second)


def test_enroll_without_a_persons_word_is_recognised() -> None:
    """Only a condition on the desk's word makes the difference, and only for an enroll."""
    assert RULE.enrolls_on_nobodys_word
    assert not replace(RULE, outcome=Outcome.HOLD).enrolls_on_nobodys_word
    assert not replace(RULE, when=(("verified_by_desk", True),)).enrolls_on_nobodys_word
    assert replace(RULE, when=(("verified_by_desk", False),)).enrolls_on_nobodys_word


def test_effects_are_the_outcomes_that_send_something() -> None:
    """A question and a hold send nothing."""
    assert set(EFFECTS) == {Outcome.ENROLL, Outcome.REJECT}
