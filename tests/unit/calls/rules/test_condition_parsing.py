"""Conditions as they are written: what each form means at its bounds, and what is said of a wrong one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import Facts
from callkeeper.calls.law import forbidden
from callkeeper.calls.rules import Fault, Outcome, RuleBook, RulesError, parse_rules
from callkeeper.calls.rules.condition_parsing import describe_condition
from callkeeper.calls.rules.matching import judge
from tests.unit.calls.rules.specimens import history_of

HEAD = '[checks]\nat = [10, 20, 40]\n[policies]\ngreen = ["Green *"]\nred = ["Red *"]\nneutral = ["Zebra *"]\n'
HOLD = '[[rule]]\nname = "otherwise"\nthen = "hold"\nbecause = "Nothing to do."\n'


def file(when: str, then: str = 'then = "ask"', more: str = "") -> str:
    """Return a rules file with one rule; its conditions are in line 9, one each line from there on."""
    return f'{HEAD}[[rule]]\nname = "mine"\n{when}\n{then}\nbecause = "Our reason."\n{HOLD}{more}'


def book(when: str, then: str = 'then = "ask"', more: str = "") -> RuleBook:
    """Return the rules of such a file."""
    return parse_rules(file(when, then, more).encode(), name="rules.toml")


def faults(when: str, then: str = 'then = "ask"', more: str = "") -> tuple[Fault, ...]:
    """Return what is wrong with such a file."""
    with pytest.raises(RulesError) as caught:
        book(when, then, more)
    return caught.value.faults


def facts(**known: Any) -> Facts:
    """Return the facts of a live call."""
    policies, history = known.pop("policies", ()), history_of(known.pop("answers", ()))
    return Facts.from_dict(
        {"allowed": True, "real_voice_id": True, "assigned": True, **known}, policies=policies, history=history
    )


ZEBRA, LION = ("Zebra Device Policy",), ("Lion Policy",)
MISMATCH = ((), ("voice_mismatch",))
KNOWN = {"voice_checked": True}


@pytest.mark.parametrize(
    ("when", "met", "missed"),
    [
        ('when.policies = { includes = "Zebra *" }', {"policies": ZEBRA}, {"policies": LION}),
        ('when.policies = { includes_any = ["Zebra *", "Lion Policy"] }', {"policies": LION}, {"policies": ("Lion",)}),
        ('when.policies = { includes_none = ["Zebra *"] }', {**KNOWN, "policies": LION}, {**KNOWN, "policies": ZEBRA}),
        ('when.policies = { not = { includes = "Zebra *" } }', KNOWN, {}),
        (
            'when.policies = { includes = "Zebra *", includes_none = ["Lion *"] }',
            {**KNOWN, "policies": ZEBRA},
            {**KNOWN, "policies": (*ZEBRA, *LION)},
        ),
        ("when.checks_used = { at_least = 10 }", {"checks_used": 10}, {"checks_used": 9}),
        ("when.checks_left = { at_most = 10 }", {"checks_used": 10}, {"checks_used": 9}),
        ("when.checks_left = 0", {"checks_used": 20}, {"checks_used": 19}),
        ("when.candidates = { at_most = 1 }", {"candidates": 1}, {"candidates": 2}),
        ("when.candidates = { at_least = 2, at_most = 3 }", {"candidates": 3}, {"candidates": 4}),
        ("when.candidates = { in = [0, 3] }", {"candidates": 3}, {"candidates": 1}),
        ("when.candidates = { not = 1 }", {"candidates": 0}, {"candidates": 1}),
        ("when.assigned_s = { at_least = 30 }", {"assigned_s": 30}, {"assigned_s": 29}),
        ("when.assigned_s = { at_most = 30 }", {"assigned_s": 30}, {"assigned": False}),
        (
            'when.status = { in = ["AnsweredQuestions", "MFAValidated"] }',
            {"status": "MFAValidated"},
            {"status": "SentSmsMFA"},
        ),
        ('when.status = { not = { in = ["CallEnded"] } }', {"status": None}, {"status": "CallEnded"}),
        ("when.green = { not = true }", KNOWN, {**KNOWN, "green": True}),
        ("when.red = false", KNOWN, {}),
        ("when.high_risk_device = { not = true }", KNOWN, {}),
        ("when.high_risk_device = { not = false }", {"high_risk_device": True}, {}),
        ("when.ended_s = { at_most = 30 }", {"ended": True, "ended_s": 30}, {}),
        ('when.validation_rule = { in = ["Two of three"] }', {"validation_rule": "Two of three"}, {}),
        ("when.voice_enrolled = false", {}, {"voice_enrolled": True}),
        ("when.provider_error = true", {"provider_error": True}, {}),
        (
            "when.voice_mismatch = { on_checks = 2 }",
            {"answers": [MISMATCH, ((), ()), MISMATCH]},
            {"answers": [MISMATCH]},
        ),
        (
            'when.policies = { includes = "Zebra *", on_checks = 2 }',
            {"answers": [(ZEBRA, ()), ((), ()), (ZEBRA, ())]},
            {"answers": [(ZEBRA, ()), (LION, ())], "policies": ZEBRA},
        ),
        (
            'when.policies = { includes_none = ["Green *"], on_checks = 3 }',
            {"answers": [(ZEBRA, ()), ((), ()), (LION, ())]},
            {"answers": [(("Green Voice",), ()), ((), ()), (LION, ())]},
        ),
        ("when.red = { on_checks = 1 }", {"answers": [(("Red Fraud",), ())]}, {"answers": [(ZEBRA, ())], "red": True}),
        (
            "when.voice_mismatch = { not = { on_checks = 2 } }",
            {**KNOWN, "answers": [MISMATCH]},
            {"answers": [MISMATCH]},
        ),
    ],
)
def test_condition_is_met_and_missed_at_its_bounds(when: str, met: dict[str, Any], missed: dict[str, Any]) -> None:
    """Each form: the nearest call that meets it, and the nearest that does not."""
    rules = book(when)
    assert judge(facts(**met), rules, "cu-1").outcome is Outcome.ASK
    assert judge(facts(**missed), rules, "cu-1").outcome is Outcome.HOLD


@pytest.mark.parametrize(
    ("when", "problem", "remedy"),
    [
        ('when.policies = "Zebra Device Policy"', "are several names", 'write { includes = "Zebra Device Policy" }'),
        ('when.policies = { include = "Zebra *" }', "no condition 'include'", "did you mean 'includes'?"),
        ("when.policies = { includes_any = [] }", "includes_any is empty", "for example includes_any"),
        ('when.policies = { includes_any = "Zebra *" }', "must be a list, not 'Zebra *'", 'includes_any = ["Zebra *"]'),
        ('when.policies = { includes = "Zebra ?" }', "holds one of ? [ ]", "the only wildcard is *"),
        ("when.policies = { includes = 3 }", "is the name of a policy, not 3", "a name in quotes"),
        ('when.policies = { not = "Zebra *" }', "not takes a condition here", 'not = { includes = "Zebra *" }'),
        ("when.policies = { on_checks = 2 }", "there is none", "on_checks = 2"),
        ('when.policies = { includes = "Zebra *", on_checks = 0 }', "a whole number, not 0", "1 to 20"),
        ('when.policies = { includes = "a", includes_none = ["b"], on_checks = 2 }', "there are 2", "for example"),
        ("when.checks_used = { at_least = 21 }", "checks_used is never 21", "0 to 20"),
        ('when.checks_used = { at_least = "10" }', "is a whole number, not '10'", "{ at_least = 2 }"),
        (
            "when.candidates = { at_least = 3, at_most = 2 }",
            "no number is at least 3 and at most 2",
            "the smaller number",
        ),
        ("when.checks_used = { on_checks = 2 }", "cannot be counted", "allowed: at_least, at_most, in, not"),
        ("when.green = { at_least = 1 }", "green is no number", "allowed: not"),
        (
            'when.status = { in = ["AnsweredQuestion"] }',
            "is never 'AnsweredQuestion'",
            "did you mean 'AnsweredQuestions'?",
        ),
        ("when.status = { in = [] }", "in is empty", "for example in"),
        ("when.status = {}", "asks for nothing", "for example status"),
        (
            'when.policies = { not = { includes = "a", includes_none = ["b"] } }',
            "not takes one condition",
            "in a rule of its own",
        ),
        ("when.assigned_s = -1", "assigned_s is never -1", "0 or more seconds"),
    ],
)
def test_wrong_condition_is_told_with_its_line_and_remedy(when: str, problem: str, remedy: str) -> None:
    """One fault, at the line of the condition: what is wrong, and what to write instead."""
    (fault,) = faults(when)
    assert (fault.line, fault.rule) == (9, "'mine'")
    assert problem in fault.problem
    assert remedy in fault.allowed


@pytest.mark.parametrize(
    ("when", "problem", "said"),
    [
        (
            'when.policies = { includes = "Red Fraud" }\nwhen.red = false',
            "contradict",
            'policies = { includes = "Red Fraud" }',
        ),
        ("when.checks_used = { at_least = 11 }\nwhen.checks_left = { at_least = 10 }", "contradict", "checks_left"),
        ("when.assigned = false\nwhen.assigned_s = { at_least = 1 }", "contradict", "assigned_s = { at_least = 1 }"),
        ("when.voice_mismatch = { on_checks = 2 }\nwhen.checks_used = 1", "contradict", "checks_used = 1"),
        ("when.voice_mismatch = { on_checks = 1 }\nwhen.voice_mismatch = false", "is not TOML", ""),
        ('when.status = { not = "MFAValidated", in = ["MFAValidated"] }', "contradict", "cannot both be"),
    ],
)
def test_condition_parsing_that_no_call_meets_are_found(when: str, problem: str, said: str) -> None:
    """Also where it takes the colours of names, the number of checks, or that two facts are one number."""
    (fault,) = faults(when)
    assert problem in fault.problem
    assert said in fault.allowed


REJECT = 'then = "reject"'
RED_ALONE = '[reject]\non_red_alone = ["cu-1"]\n'


@pytest.mark.parametrize(
    "when",
    [
        "when.red = true",
        'when.red = true\nwhen.policies = { includes = "Red *" }',
        "when.red = true\nwhen.checks_used = { at_least = 1 }",
        "when.red = true\nwhen.assigned_s = { at_least = 0 }",
        "when.red = true\nwhen.opted_out = false",
        'when.policies = { includes = "Red *", on_checks = 2 }\nwhen.red = true',
        'when.red = true\nwhen.policies = { includes = "*" }',
        'when.red = true\nwhen.status = { not = "CallEnded" }',
    ],
)
def test_second_piece_of_evidence_that_is_none_is_refused(when: str) -> None:
    """What follows from red or the law, what any good call meets, or the same sign seen twice, is no evidence."""
    (fault,) = faults(when, REJECT)
    assert "a single piece of evidence" in fault.problem
    assert "[reject] on_red_alone" in fault.allowed


@pytest.mark.parametrize(
    "when",
    [
        "when.red = true\nwhen.voice_mismatch = true",
        'when.red = true\nwhen.policies = { includes = "Zebra *" }',
        "when.voice_mismatch = { on_checks = 2 }\nwhen.high_risk_device = true",
    ],
)
def test_two_pieces_of_evidence_reject(when: str) -> None:
    """Two signs that speak against the caller and do not follow from each other."""
    assert not any(rule.on_red_alone for rule in book(when, REJECT).rules)


@pytest.mark.parametrize(
    ("institutions", "opted_in", "is_sound"),
    [('["cu-1"]', '["cu-1"]', True), ('["cu-1", "cu-2"]', '["cu-1"]', False), ('["cu-2"]', '["cu-1"]', False)],
)
def test_red_alone_needs_both_the_rule_and_the_institution(institutions: str, opted_in: str, is_sound: bool) -> None:
    """The rule names its institutions, and every one of them has opted in; then a warning stays."""
    text = file(f"when.red = true\ninstitutions = {institutions}", REJECT, f"[reject]\non_red_alone = {opted_in}\n")
    if is_sound:
        rules = parse_rules(text.encode(), name="rules.toml")
        assert rules.rules[0].on_red_alone
        assert rules.warnings == ["cu-1: rule 'mine' rejects on a red policy alone ([reject] on_red_alone)"]
    else:
        with pytest.raises(RulesError, match="a single piece of evidence"):
            parse_rules(text.encode(), name="rules.toml")


def test_mismatch_alone_is_refused_whoever_opts_in() -> None:
    """Only red can be accepted as the one piece of evidence."""
    (fault,) = faults('when.voice_mismatch = true\ninstitutions = ["cu-1"]', REJECT, RED_ALONE)
    assert "[reject]" not in fault.allowed


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({"green_policy": True}, "red_alone_while_green"),
        ({"fully_authenticated": True}, "red_alone_while_authenticated"),
        ({"verified": True}, "red_alone_while_verified"),
        ({}, None),
    ],
)
def test_law_holds_red_alone_back(known: dict[str, Any], reason: str | None) -> None:
    """Never while the call is green, after FullAuthentication, or once identity was established by other means.

    A reject for two reasons, or by a person's word, is not held by these articles.
    """
    call = facts(red=True, **known)
    assert forbidden(EffectKind.REJECT, call, on_red_alone=True) == (() if reason is None else (reason,))
    assert forbidden(EffectKind.REJECT, call) == ()
    verdict = judge(call, book('when.red = true\ninstitutions = ["cu-1"]', REJECT, RED_ALONE), "cu-1")
    assert verdict.outcome is (Outcome.REJECT if reason is None else Outcome.HOLD)


BEGINS = datetime(2027, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("at", "is_valid"),
    [
        (BEGINS - SECOND, False),
        (BEGINS, True),
        (BEGINS + 59 * SECOND, True),
        (BEGINS + 60 * SECOND, False),
        (None, False),
    ],
)
def test_rule_is_in_force_from_its_beginning_and_before_its_end(at: datetime | None, is_valid: bool) -> None:
    """The first instant counts, the last does not; who does not know when it is knows no rule with dates."""
    rules = book("when.assigned = true\nvalid_from = 2027-01-01T01:00:00+01:00\nvalid_until = 2027-01-01T00:01:00Z")
    verdict = judge(replace(facts(), at=at), rules, "cu-1")
    assert (verdict.outcome is Outcome.ASK) == is_valid


@pytest.mark.parametrize(
    ("dates", "problem", "remedy"),
    [
        ("valid_from = 2027-01-01", "must be an instant with its zone, not 2027-01-01", "2027-01-31T00:00:00Z"),
        ('valid_from = "2027-01-01T00:00:00Z"', "must be an instant with its zone", "without quotes"),
        ("valid_until = 2027-01-01T00:00:00", "must be an instant with its zone, not 2027-01-01T00:00:00", "Z"),
        (
            "valid_until = 2027-01-01T00:00:00Z\nvalid_from = 2027-01-01T00:00:00Z",
            "ends before it begins",
            "a later instant",
        ),
    ],
)
def test_wrong_dates_are_told(dates: str, problem: str, remedy: str) -> None:
    """A date without a zone is not guessed."""
    (fault,) = faults(f"{dates}\nwhen.assigned = true")
    assert fault.rule == "'mine'"
    assert problem in fault.problem
    assert remedy in fault.allowed


def test_rule_that_holds_every_call_and_is_not_last_is_told_as_such() -> None:
    """One fault, at that rule; not one for every rule behind it, nor a missing final hold."""
    behind = '[[rule]]\nname = "late"\nwhen = { distrusted = true }\nthen = "reject"\nbecause = "Said so."\n'
    (fault,) = faults("when.assigned = true", more=behind)
    assert fault.rule == "'otherwise'"
    assert fault.problem == "it holds every call and is not the last rule: the rule behind it is never reached"
    assert fault.allowed == "move it to the end of the file"


def test_dated_rule_takes_calls_only_while_it_is_in_force() -> None:
    """A later rule is reached before and after; where both have the same dates it never is."""
    dated = "valid_from = 2027-01-01T00:00:00Z\n"
    later = '[[rule]]\nname = "late"\nwhen = { assigned = true, green = false }\nthen = "ask"\nbecause = "x"\n'
    text = file(f"when.assigned = true\n{dated}").replace(HOLD, later + HOLD)
    assert len(parse_rules(text.encode(), name="r").rules) == 3
    with pytest.raises(RulesError, match="never reached"):
        parse_rules(text.replace('name = "late"\n', f'name = "late"\n{dated}').encode(), name="r")


@pytest.mark.parametrize(
    "when",
    [
        'policies = { includes = "Zebra *", on_checks = 2 }',
        'policies = { includes_none = ["Zebra *", "Lion"] }',
        "checks_used = { at_least = 2, at_most = 5 }",
        'status = { not = { in = ["CallEnded"] } }',
        "voice_mismatch = { on_checks = 2 }",
        "green = true",
        "candidates = { not = 1 }",
    ],
)
def test_condition_is_described_as_it_is_written(when: str) -> None:
    """Messages and differences show what the author of the file knows."""
    rules = book(f"when.{when}")
    assert [describe_condition(*one) for one in rules.rules[0].when] == [when]
