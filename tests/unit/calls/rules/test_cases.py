"""Cases: an institution's own examples."""

from dataclasses import replace
from pathlib import Path

import pytest

from callkeeper.calls.rules import SHIPPED, Outcome, Rule, RulesError, load_rules
from callkeeper.calls.rules.cases import load_cases, parse_cases, try_cases

BOOKS = Path(__file__).parents[4] / "callkeeper" / "calls" / "rulebooks"

SOUND = """\
rules = "default"

[[case]]
name = "a passcode enrolls"
facts = { validation_type = "OneTimePasswordAuth", final_analysis = true }
policies = ["Blue x"]
institution = "cu-1"
expect = "hold"
rule = "passcode validated"
forbidden = ["unclassified_policy"]
shadow = []
"""


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_rules_come_to_what_their_cases_say(name: str) -> None:
    """Every shipped rule book has cases beside it, and all of them pass."""
    cases = load_cases(BOOKS / f"{name}.cases.toml")
    assert cases.rules == name
    assert [result.failures for result in try_cases(cases, load_rules(name)) if result.failures] == []


def test_voice_of_a_case_is_not_authenticated_while_a_policy_is_red() -> None:
    """A case has the facts that a live call would have."""
    case = SOUND.replace("validation_type =", "authenticated = true, validation_type =").replace("Blue", "Red")
    cases = parse_cases(case.encode(), name="c")
    book = load_rules(None)
    tell = Rule("authenticated", (("authenticated", True),), Outcome.ASK, "because")
    red = replace(book, rules=(tell, *book.rules), policies=replace(book.policies, red=("Red *",)))
    (result,) = try_cases(cases, red)
    assert "rule: expected passcode validated, got authenticated" not in result.failures


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_cases_speak_of_every_rule(name: str) -> None:
    """Each rule of a shipped rule book decides a case or would have, in shadow."""
    spoken = {
        word for case in load_cases(BOOKS / f"{name}.cases.toml").cases for word in (case.rule, *(case.shadow or ()))
    }
    assert {rule.name for rule in load_rules(name).rules} <= spoken


@pytest.mark.parametrize(
    ("old", "new", "failure"),
    [
        ('"hold"', '"enroll"', "outcome: expected enroll, got hold"),
        ('"passcode validated"', '"otherwise"', "rule: expected otherwise, got passcode validated"),
        ('["unclassified_policy"]', "[]", "the law's reasons: expected none, got unclassified_policy"),
        ("shadow = []", 'shadow = ["otherwise"]', "rules in shadow: expected otherwise, got none"),
        ("shadow = []", 'validation_type = "Other"', "validation type: expected Other, got OneTimePasswordAuth"),
    ],
)
def test_failing_case_says_what_was_expected_and_how_the_rules_fared(old: str, new: str, failure: str) -> None:
    """A failure names the expected and the actual value, and shows the result of every rule."""
    (result,) = try_cases(parse_cases(SOUND.replace(old, new, 1).encode(), name="c"), load_rules(None))
    assert result.failures == (failure,)
    assert len(result.explained) == len(load_rules(None).rules)
    assert any("passcode validated" in line for line in result.explained)
    assert result.case.line == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('rules = "default"', "", "c:1: rules is missing"),
        (
            "facts = { validation",
            "facts = { validaton",
            "c:5: case 'a passcode enrolls': there is no fact 'validaton_type'",
        ),
        ("expect", "expected", "c:8: case 'a passcode enrolls': a case has no key 'expected'; did you mean 'expect'?"),
        ('"hold"', '"holds"', "c:8: case 'a passcode enrolls': expect cannot be 'holds'; did you mean 'hold'?"),
        ('name = "a passcode enrolls"\n', "", "c:3: case number 1: name is missing"),
        (SOUND[SOUND.index("[[case]]") :], "", "c:1: there are no cases"),
    ],
)
def test_faulty_cases_file_is_told_by_line(old: str, new: str, said: str) -> None:
    """A cases file is checked like a rules file: line, case, what is allowed."""
    with pytest.raises(RulesError) as caught:
        parse_cases(SOUND.replace(old, new, 1).encode(), name="c")
    assert any(line.startswith(said) for line in caught.value.lines), caught.value.lines


def test_cases_file_names_its_rules_from_its_own_folder(tmp_path: Path) -> None:
    """A path is meant from where the cases file is; a shipped name stays a name."""
    path = tmp_path / "cases.toml"
    path.write_text(SOUND.replace('"default"', '"ours.toml"'))
    assert load_cases(path).rules == str(tmp_path / "ours.toml")


def test_cases_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    """A missing file is said like any other fault."""
    with pytest.raises(RulesError, match="cannot be read"):
        load_cases(tmp_path / "none.toml")
