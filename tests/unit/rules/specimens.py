"""Rules files and facts to judge: a sound file to spoil, facts of every kind, rule books of every kind."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from calls.facts import FACTS, STATUSES, VALIDATION_TYPES, Facts, Value
from calls.rules import AS_VERIFIED, Outcome, Rule, RuleBook, Stage, load_rules

SOUND = """\
[checks]
at = [10, 20, 40]
reserve = 2
unassigned = 0

[reads]
undecided_s = 5.0
decided_s = 15.0

[policies]
green = ["Green *"]
red = [
    "Red *",
    "Orange Alert",
]
neutral = ["Blue *"]

[assign]
automatic = true
person_types = ["Primary", "Joint"]

[consent]
require_opt_in = false

[[rule]]
name = "distrusted"
when = { distrusted = true }
then = "reject"
because = "A person said so."

[[rule]]
name = "verified"
then = "enroll"
validation_type = "as_verified"
because = "Verified otherwise."
institutions = ["cu-1"]
when.verified = true
when.green = false

[[rule]]
name = "mismatch"
then = "reject"
because = "Two signs."
stage = "shadow"
[rule.when]
voice_mismatch = true
high_risk_device = true

[[rule]]
name = "otherwise"
then = "hold"
because = "No rule asks for anything."
"""
"""A file with everything in it and no fault; conditions in all three spellings."""

BOOK = load_rules(None)

_TEXTS = {
    "status": (*STATUSES, None),
    "validation_type": (*VALIDATION_TYPES, None),
    "validation_rule": ("Two of three", None),
}


def line_of(text: str, marker: str) -> int:
    """Return the number of the first line that contains a marker."""
    return next(n for n, line in enumerate(text.splitlines(), 1) if marker in line)


def _values(name: str) -> st.SearchStrategy[Any]:
    kind = FACTS[name].kind
    if kind is bool:
        return st.booleans()
    return st.integers(0, 20) if kind is int else st.sampled_from(_TEXTS[name])


def any_facts() -> st.SearchStrategy[Facts]:
    """Return any facts, also such as no call can have."""
    return st.builds(Facts, **{name: _values(name) for name in FACTS})


def any_condition() -> st.SearchStrategy[tuple[str, Value]]:
    """Return any condition that a rule can have."""
    return st.sampled_from(sorted(FACTS)).flatmap(
        lambda name: st.tuples(st.just(name), _values(name).filter(lambda value: value is not None))
    )


def any_rule(name: str, *, stage: Stage | None = None) -> st.SearchStrategy[Rule]:
    """Return any rule of a name."""
    return st.builds(
        lambda when, outcome, validation, stage, institutions: Rule(
            name=name,
            when=tuple(dict(when).items()),
            outcome=outcome,
            because="because",
            validation_type=validation if outcome is Outcome.ENROLL else None,
            stage=stage,
            institutions=institutions,
        ),
        st.lists(any_condition(), max_size=3),
        st.sampled_from(Outcome),
        st.sampled_from((*VALIDATION_TYPES, AS_VERIFIED)),
        st.just(stage) if stage else st.sampled_from(Stage),
        st.sampled_from((None, frozenset({"cu-1"}), frozenset({"cu-2"}))),
    )


def any_book() -> st.SearchStrategy[RuleBook]:
    """Return any rule book: up to six rules, then the final hold; an opt-in demanded or not."""
    rules = st.integers(0, 6).flatmap(lambda n: st.tuples(*(any_rule(f"rule {i}") for i in range(n))))
    return st.builds(
        lambda chosen, opt_in: replace(BOOK, rules=(*chosen, BOOK.rules[-1]), require_opt_in=opt_in),
        rules,
        st.booleans(),
    )
