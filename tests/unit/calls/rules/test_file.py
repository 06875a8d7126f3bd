"""Everything that can be wrong with a rules file: one fault each, told with its line, its rule and what is allowed."""

from typing import NamedTuple

import pytest

from callkeeper.calls.rules import Fault, RulesError, parse_rules
from tests.unit.calls.rules.specimens import SOUND

OWNED = frozenset({"cu-1", "cu-2"})


class Spoilt(NamedTuple):
    """One change to the sound file, and what must be said of it.

    ``at``: a text that begins on the line of the fault; empty: the line that begins the rule.
    """

    what: str
    old: str
    new: str
    at: str
    rule: str | None
    problem: str
    allowed: str


def one(what: str, old: str, new: str, at: str, problem: str, allowed: str = "", *, rule: str | None = None) -> Spoilt:
    """Return a change; of ``old`` the first occurrence goes."""
    return Spoilt(what, old, new, at, rule, problem, allowed)


RULES = SOUND[SOUND.index("[[rule]]") :]
BEFORE_POLICIES = SOUND[: SOUND.index("[policies]")]
LAST = '[[rule]]\nname = "otherwise"'


FILES = [
    # keys
    one(
        "unknown table",
        "[consent]",
        "[consnet]",
        "[consnet]",
        "the file has no key 'consnet'",
        "did you mean 'consent'?",
    ),
    one(
        "unknown key",
        "reserve = 2",
        "reserves = 2",
        "reserves",
        "[checks] has no key 'reserves'",
        "did you mean 'reserve'?",
    ),
    one("key of a rule", "stage =", "stages =", "stages", "no key 'stages'", "did you mean 'stage'?", rule="mismatch"),
    one(
        "no table",
        BEFORE_POLICIES,
        "reads = 5\n[checks]\nat = [10]\n",
        "reads",
        "reads must be a table",
        "write [reads]",
    ),
    one("no list of rules", RULES, '[rule]\nname = "x"\n', "[rule]", "rule must be a list of tables", "write [[rule]]"),
    one("no rules", RULES, "", "[checks]", "there are no rules", "the last rule must hold every call"),
    # checks and reads
    one(
        "no schedule",
        "at = [10, 20, 40]",
        "",
        "[checks]",
        "at is missing from [checks]",
        "for example at = [10, 20, 40]",
    ),
    one("schedule of texts", "at = [10, 20, 40]", 'at = ["10 s"]', "at =", "at must be a list of numbers"),
    one("schedule empty", "at = [10, 20, 40]", "at = []", "at =", "at is empty"),
    one("schedule shrinks", "at = [10, 20, 40]", "at = [10, 30, 40]", "at =", "gaps shrink from 20 s to 10 s"),
    one("schedule falls", "at = [10, 20, 40]", "at = [10, 20, 20]", "at =", "at does not rise"),
    one("schedule before the call", "at = [10, 20, 40]", "at = [-1, 20, 50]", "at =", "at begins at -1"),
    one("over 20 checks", "at = [10, 20, 40]", f"at = {list(range(1, 22))}", "at =", "at names 21 checks", ""),
    one("over 20 less reserve", "at = [10, 20, 40]", f"at = {list(range(1, 20))}", "at =", "and 2 are kept back"),
    one("schedule not finite", "at = [10, 20, 40]", "at = [10, inf]", "at =", "at must be a list of numbers"),
    one("reserve too large", "reserve = 2", "reserve = 20", "reserve", "not 20", "allowed: 0 to 19"),
    one("reserve a text", "reserve = 2", 'reserve = "2"', "reserve", "must be a whole number, not '2'", "0 to 19"),
    one("share a flag", "unassigned = 0", "unassigned = true", "unassigned", "not true", "allowed: 0 to 18"),
    one("share over the budget", "unassigned = 0", "unassigned = 19", "unassigned", "not 19", "allowed: 0 to 18"),
    one("reads too often", "undecided_s = 5.0", "undecided_s = 0.1", "undecided_s", "not 0.1", "allowed: 1 or more"),
    one("reads a flag", "decided_s = 15.0", "decided_s = true", "decided_s = true", "must be a number, not true"),
    # policies, assign, consent
    one("policy in two colours", '"Orange Alert"', '"Blue *"', "neutral", "is both red and neutral", "one colour"),
    one("patterns meet", '"Orange Alert"', '"Gr*"', '"Gr*"', "would be both green and red", "one colour"),
    one(
        "other wildcards", '"Orange Alert"', '"Orange ?"', '"Orange ?"', "holds one of ? [ ]", "the only wildcard is *"
    ),
    one(
        "policies no list",
        'neutral = ["Blue *"]',
        'neutral = "Blue *"',
        "neutral",
        "must be a list of texts, not 'Blue *'",
    ),
    one("person type", '"Joint"]', '"Jiont"]', "Jiont", "'Jiont' is no person type", "did you mean 'Joint'?"),
    one("automatic a text", "automatic = true", 'automatic = "yes"', "automatic", "must be true or false, not 'yes'"),
    one(
        "opt-in a number", "require_opt_in = false", "require_opt_in = 0", "require_opt", "must be true or false, not 0"
    ),
    # a rule's keys
    one(
        "no name",
        'name = "mismatch"\n',
        "",
        '[[rule]]\nthen = "reject"\nbecause = "Two',
        "name is missing",
        "of its own",
        rule="number 3",
    ),
    one(
        "name twice",
        'name = "mismatch"',
        'name = "verified"',
        'name = "verified"\nthen = "reject"',
        "is called 'verified' too",
        "must differ",
        rule="verified",
    ),
    one(
        "no because", 'because = "Two signs."\n', "", "", "because is missing", "say in a sentence why", rule="mismatch"
    ),
    one("empty because", '"Two signs."', '" "', 'because = " "', "because must be a text", "sentence", rule="mismatch"),
    one(
        "no outcome",
        'then = "reject"\n',
        "",
        "",
        "then is missing",
        "allowed: enroll, reject, ask, hold",
        rule="distrusted",
    ),
    one(
        "outcome misspelt",
        '"enroll"',
        '"enrol"',
        '"enrol"',
        "then cannot be 'enrol'",
        "did you mean 'enroll'?",
        rule="verified",
    ),
    one(
        "stage unknown",
        '"shadow"',
        '"shadowed"',
        "stage",
        "cannot be 'shadowed'",
        "did you mean 'shadow'?",
        rule="mismatch",
    ),
    one("stage a flag", '"shadow"', "true", "stage", "stage cannot be true", "allowed: shadow, live", rule="mismatch"),
    one(
        "no type",
        'validation_type = "as_verified"\n',
        "",
        'then = "enroll"',
        "needs a validation_type",
        rule="verified",
    ),
    one(
        "type unknown",
        '"as_verified"',
        '"KnowledgeAuth"',
        "KnowledgeAuth",
        "cannot be 'KnowledgeAuth'",
        "mean 'KnowledgeBasedAuth'?",
        rule="verified",
    ),
    one(
        "type without proof",
        '"as_verified"',
        '"NoAuth"',
        "NoAuth",
        "cannot be 'NoAuth'",
        "OneTimePasswordAuth, KnowledgeBasedAuth, Other",
        rule="verified",
    ),
    one(
        "type with a reject",
        'because = "A person said so."',
        'because = "x"\nvalidation_type = "Other"',
        'validation_type = "Other"',
        "reject takes no validation_type",
        "enroll alone",
        rule="distrusted",
    ),
    one(
        "institution not owned",
        '["cu-1"]',
        '["cu-11"]',
        "cu-11",
        "'cu-11' is not one of",
        "mean 'cu-1'?",
        rule="verified",
    ),
    one(
        "institutions empty", '["cu-1"]', "[]", "institutions", "institutions is empty", "leave it out", rule="verified"
    ),
    one("institutions a text", '["cu-1"]', '"cu-1"', "institutions", "must be a list of texts", rule="verified"),
    one(
        "assigns elsewhere",
        'person_types = ["Primary", "Joint"]',
        'institutions = ["cu-11"]',
        "cu-11",
        "'cu-11' is not one of",
        "mean 'cu-1'?",
    ),
    # conditions
    one(
        "fact unknown",
        "when.verified",
        "when.verifed",
        "verifed",
        "no fact 'verifed'",
        "mean 'verified'?",
        rule="verified",
    ),
    one(
        "fact's type",
        "when.green = false",
        'when.green = "no"',
        "when.green",
        "true or false, not 'no'",
        rule="verified",
    ),
    one(
        "flag for a text",
        "high_risk_device = true",
        "status = true",
        "status = true",
        "a text, not true",
        rule="mismatch",
    ),
    one(
        "flag for a number",
        "high_risk_device = true",
        "candidates = true",
        "candidates",
        "a whole number",
        rule="mismatch",
    ),
    one(
        "number too large",
        "high_risk_device = true",
        "checks_used = 21",
        "checks_used",
        "never 21",
        "0 to 20",
        rule="mismatch",
    ),
    one(
        "status misspelt",
        "high_risk_device = true",
        'status = "VoiceOptOutt"',
        "VoiceOptOutt",
        "status is never 'VoiceOptOutt'",
        "did you mean 'VoiceOptOut'?",
        rule="mismatch",
    ),
    one(
        "raw score",
        "high_risk_device = true",
        "voiceScore = 3",
        "voiceScore",
        'raw scores are "not to be used for caller-handling decisions" (Spec: "Vendor call")',
        'decide by policies ("metaData.vendorPolicies")',
        rule="mismatch",
    ),
    one(
        "when no table",
        "when = { distrusted = true }",
        "when = true",
        "when = true",
        "must be a table",
        rule="distrusted",
    ),
    # what can be proved
    one(
        "contradiction",
        "when.verified = true",
        'when.verified = false\nwhen.validation_type = "Other"',
        "",
        "its conditions contradict each other",
        'verified = false and validation_type = "Other" cannot both be',
        rule="verified",
    ),
    one(
        "one sign",
        "high_risk_device = true\n",
        "",
        "",
        "a single piece of evidence",
        "a person's word",
        rule="mismatch",
    ),
    one("a sign the law gives", "high_risk_device", "real_voice_id", "", "a single piece", "the law", rule="mismatch"),
    one(
        "a sign that follows",
        "high_risk_device = true",
        'status = "VoiceMismatch"',
        "",
        "a single piece of evidence",
        "from the others",
        rule="mismatch",
    ),
    one(
        "law forbids",
        "when.green = false",
        "when.green = true",
        "",
        "forbids it (already_green)",
        "The law",
        rule="verified",
    ),
    one(
        "law forbids reject",
        "high_risk_device = true",
        'status = "RejectCallerVoice"\nenrolled = false',
        "",
        "forbids it (voice_rejected)",
        "The law",
        rule="mismatch",
    ),
    one(
        "never reached",
        "voice_mismatch = true",
        "distrusted = true",
        "",
        "every call it would match is taken by 'distrusted' (line",
        "put it earlier",
        rule="mismatch",
    ),
    # the end
    one(
        "no final hold",
        'then = "hold"',
        'then = "hold"\nwhen = { ended = true }',
        LAST,
        "no final hold",
        "hold every call",
    ),
    one("final hold in shadow", 'then = "hold"', 'then = "hold"\nstage = "shadow"', LAST, "there is no final hold"),
    one(
        "final hold for one", 'then = "hold"', 'then = "hold"\ninstitutions = ["cu-1"]', LAST, "there is no final hold"
    ),
    # the file itself
    one("not TOML", "reserve = 2", "reserve = ", "reserve", "is not TOML"),
    one("not UTF-8", "Orange", "Or\udcffange", "Or", "is not UTF-8", "save the file as UTF-8"),
]


def spoil(file: Spoilt) -> str:
    """Return the sound file with one change."""
    assert file.old in SOUND
    return SOUND.replace(file.old, file.new, 1)


def expected_line(file: Spoilt, text: str) -> int:
    """Return the line on which the fault is."""
    marker = file.at or f'[[rule]]\nname = "{file.rule}"'
    return text.count("\n", 0, text.index(marker)) + 1


def faults_of(text: str) -> tuple[Fault, ...]:
    """Return what is said of a file."""
    with pytest.raises(RulesError) as caught:
        parse_rules(text.encode("utf-8", "surrogateescape"), name="rules.toml", owned=OWNED)
    return caught.value.faults


def test_sound_file_has_no_fault() -> None:
    """What the faulty files are made from is sound, so each of their faults is its change's."""
    assert len(parse_rules(SOUND.encode(), name="rules.toml", owned=OWNED).rules) == 4


@pytest.mark.parametrize("file", FILES, ids=[file.what for file in FILES])
def test_faulty_file_is_told_with_line_rule_and_what_is_allowed(file: Spoilt) -> None:
    """One fault, one line: where it is, in which rule, what is wrong, what is allowed."""
    text = spoil(file)
    (fault,) = faults_of(text)
    rule = file.rule if file.rule is None or file.rule.startswith("number") else repr(file.rule)
    assert (fault.line, fault.rule) == (expected_line(file, text), rule)
    assert file.problem in fault.problem
    assert file.allowed in fault.allowed
    assert fault.allowed


def test_faulty_files_are_many() -> None:
    """The table holds at least 40 kinds of fault, and no kind twice."""
    assert len({file.what for file in FILES}) == len(FILES) >= 40


def test_file_with_ten_faults_reports_ten() -> None:
    """All faults are told at once, by line."""
    text = SOUND
    for old, new in (
        ("at = [10, 20, 40]", "at = [10, 30, 40]"),
        ("reserve = 2", "reserves = 2"),
        ("undecided_s = 5.0", "undecided_s = 0"),
        ('"Orange Alert"', '"Orange ?"'),
        ('"Joint"', '"Jiont"'),
        ("require_opt_in = false", "require_opt_in = 0"),
        ("when = { distrusted = true }", "when = { distrustd = true }"),
        ('validation_type = "as_verified"', 'validation_type = "as_verifed"'),
        ('stage = "shadow"', 'stage = "shadows"'),
        ("high_risk_device = true", "riskScore = 1"),
    ):
        text = text.replace(old, new, 1)
    faults = faults_of(text)
    assert len(faults) == 10
    assert [fault.line for fault in faults] == sorted(fault.line for fault in faults)


def test_fault_is_said_as_editors_follow_it() -> None:
    """A fault reads ``file:line: rule: problem; what is allowed``."""
    text = SOUND.replace('"shadow"', '"shadows"')
    with pytest.raises(RulesError) as caught:
        parse_rules(text.encode(), name="deploy/rules.toml")
    line = text[: text.index("shadows")].count("\n") + 1
    assert str(caught.value) == (
        f"deploy/rules.toml:{line}: rule 'mismatch': stage cannot be 'shadows'; did you mean 'shadow'? allowed: shadow, live"
    )


def test_misspelt_fact_is_answered_with_the_one_that_was_meant() -> None:
    """The list of all facts does not follow it; without a similar one, the list is all there is to say."""

    def answer(written: str) -> str:
        with pytest.raises(RulesError) as caught:
            parse_rules(SOUND.replace("voice_mismatch = ", f"{written} = ").encode(), name="r")
        return caught.value.faults[0].allowed

    assert answer("voice_missmatch") == "did you mean 'voice_mismatch'?"
    assert answer("xyzzy").startswith("allowed: green, manual, red, ")
