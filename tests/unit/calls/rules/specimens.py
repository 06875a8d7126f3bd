"""Rules files and facts to judge: a sound file to spoil, facts of every kind, rule books of every kind."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from callkeeper.calls.fact_derivation import coloured
from callkeeper.calls.facts import FACTS, Facts
from callkeeper.calls.record import History
from callkeeper.calls.rules import AS_VERIFIED, Outcome, Rule, RuleBook, Stage, load_rules
from callkeeper.calls.rules.book import Between, Condition, Includes, InList, Not, OnChecks, OneOf, Test
from callkeeper.calls.statuses import VALIDATION_TYPES

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

LISTS = ("vip", "staff")
"""Names of lists."""


def line_of(text: str, marker: str) -> int:
    """Return the number of the first line that contains a marker."""
    return next(n for n, line in enumerate(text.splitlines(), 1) if marker in line)


def _values(name: str) -> st.SearchStrategy[Any]:
    kind = FACTS[name].kind
    if kind is bool:
        return st.booleans()
    if kind is tuple:
        names = LISTS if FACTS[name].by_list else NAMES
        return st.lists(st.sampled_from(names), max_size=2, unique=True).map(tuple)
    return st.integers(0, 20) if kind is int else st.sampled_from((*(FACTS[name].named or ("Two of three",)), None))


NAMES = ("Green Voice", "Red Fraud", "Zebra Device Policy", "Blue Moon", "Green Manual Authentication")
"""Names of policies: of each colour, and one that has none."""

PATTERNS = ("Green *", "Red Fraud", "Zebra *", "*e*", "Blue Moon")


def histories() -> st.SearchStrategy[History]:
    """Return what up to four checks showed."""
    answer = st.tuples(
        st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        st.lists(st.sampled_from(["voice_mismatch", "high_risk_device", "provider_error"]), max_size=2, unique=True),
    )
    return st.lists(answer, max_size=4).map(history_of)


def history_of(answers: Iterable[tuple[Iterable[str], Iterable[str]]]) -> History:
    """Return the history of checks that showed these policies and signs, one after the other."""
    history = History()
    for n, (policies, signs) in enumerate(answers, 1):
        history = history.with_answer(n, policies, signs)
    return coloured(history, BOOK.policies)


MOMENTS = tuple(datetime(2026, 12, day, tzinfo=UTC) for day in (1, 2, 3, 4))


_ALLOWING = (
    "allowed real_voice_id assigned verified verified_in_time verified_person_is_assigned voice_checked opted_in"
)
ALLOWING = Facts.from_dict(dict.fromkeys(_ALLOWING.split(" "), True))
"""Facts against which neither an enroll nor a reject is forbidden."""


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    """Draw any facts, also such as no call can have. Half of them differ in up to three from those that forbid nothing.

    Otherwise hardly any would allow an enroll or a reject.
    """
    named = [name for name in FACTS if name != "checks_left"]
    if draw(st.booleans()):
        named = draw(st.lists(st.sampled_from(named), max_size=3, unique=True))
    known: dict[str, Any] = {name: draw(_values(name)) for name in named}
    history, at = draw(histories()), draw(st.sampled_from(MOMENTS))
    return with_fields(ALLOWING, **known, history=history, at=at)


def any_test(name: str) -> st.SearchStrategy[Test]:
    """Return anything that a rule can ask of a fact."""
    fact = FACTS[name]
    plain: st.SearchStrategy[Test] = _values(name).filter(lambda value: value is not None)
    if fact.by_list:
        plain = st.sampled_from(LISTS).map(InList)
    elif fact.kind is tuple:
        plain = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(lambda found: Includes(tuple(found)))
    elif fact.kind is int:
        plain = st.one_of(
            plain, st.builds(lambda one, two: Between(min(one, two), max(one, two)), *[st.integers(0, 20)] * 2)
        )
    elif fact.kind is str:
        plain = st.one_of(plain, st.lists(plain, min_size=1, max_size=3).map(lambda values: OneOf(tuple(values))))  # type: ignore[arg-type]
    counted = st.builds(OnChecks, plain, st.integers(1, 4)) if fact.by_check else plain
    tests = st.one_of(plain, counted)
    return st.one_of(tests, tests.map(Not))


def any_condition() -> st.SearchStrategy[Condition]:
    """Return any condition that a rule can have."""
    return st.sampled_from(sorted(FACTS)).flatmap(lambda name: st.tuples(st.just(name), any_test(name)))


def any_rule(name: str, *, stage: Stage | None = None) -> st.SearchStrategy[Rule]:
    """Return any rule of a name."""
    return st.builds(
        lambda when, outcome, validation, stage, institutions, valid_from, is_marked: Rule(
            name=name,
            when=tuple(when),
            outcome=outcome,
            because="because",
            validation_type=validation if outcome is Outcome.ENROLL else None,
            stage=stage,
            institutions=institutions,
            valid_from=valid_from,
            on_red_alone=is_marked,
            against_mismatch=is_marked,
        ),
        st.lists(any_condition(), max_size=3),
        st.sampled_from(Outcome),
        st.sampled_from((*VALIDATION_TYPES, AS_VERIFIED)),
        st.just(stage) if stage else st.sampled_from(Stage),
        st.sampled_from((None, frozenset({"cu-1"}), frozenset({"cu-2"}))),
        st.sampled_from((None, None, *MOMENTS)),
        st.booleans(),
    )


EAGER = [
    Rule("eager", (), outcome, "because", how)
    for outcome, how in ((Outcome.ENROLL, AS_VERIFIED), (Outcome.REJECT, None))
]
"""Rules that ask for an effect in every call, so that only the law holds it back."""


def any_book() -> st.SearchStrategy[RuleBook]:
    """Return any rule book: up to five rules, often an eager one, then the final hold; an opt-in demanded or not."""
    rules = st.integers(0, 5).flatmap(lambda n: st.tuples(*(any_rule(f"rule {i}") for i in range(n))))
    eager = st.just(()) | st.sampled_from(EAGER).map(lambda rule: (rule,))
    return st.builds(
        lambda chosen, eager, opt_in: replace(BOOK, rules=(*chosen, *eager, BOOK.rules[-1]), require_opt_in=opt_in),
        rules,
        eager,
        st.booleans(),
    )
