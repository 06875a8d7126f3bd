"""What an institution has decided about how its calls are handled: frozen records, as read from its rules file."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import assert_never

from calls.facts import Facts, Policies, Value
from calls.schedule.check_plan import Schedule

AS_VERIFIED = "as_verified"
"""The validation type the person or the service verified by."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """The fact has one of these values."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The number lies between two bounds, both of them allowed; None stands for no bound. Never met by what is not known."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Includes:
    """A policy is applied whose name fits one of these patterns (``*`` stands for anything)."""

    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    test: "Test"


@dataclass(frozen=True, slots=True)
class OnChecks:
    """The answers of at least so many of the call's checks met the test."""

    test: "Test"
    least: int


Test = Value | OneOf | Between | Includes | Not | OnChecks
"""What is asked of a fact. A plain value asks for just that."""

Condition = tuple[str, Test]
"""A fact and what is asked of it."""


class Outcome(StrEnum):
    """What a rule asks for."""

    ENROLL = "enroll"
    REJECT = "reject"
    ASK = "ask"  # put the call before a person, and send nothing
    HOLD = "hold"


class Stage(StrEnum):
    """Whether a rule's verdict is acted on or only written down."""

    SHADOW = "shadow"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: conditions (all must hold), what it asks for, and why. ``line`` is where its file begins it.

    It is in force from ``valid_from`` on and before ``valid_until``. ``on_red_alone``: it rejects, and nothing but a red
    policy speaks against the caller.
    """

    name: str
    when: tuple[Condition, ...]
    outcome: Outcome
    because: str
    validation_type: str | None = None
    stage: Stage = Stage.LIVE
    institutions: frozenset[str] | None = None
    line: int = 0
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    on_red_alone: bool = False

    def applies_to(self, institution_key: str | None) -> bool:
        """Tell whether the rule is meant for an institution; None stands for one that no rule names."""
        return self.institutions is None or institution_key in self.institutions

    def is_valid(self, at: datetime | None) -> bool:
        """Tell whether the rule is in force at an instant. Without an instant no rule is that has a date."""
        if self.valid_from is None and self.valid_until is None:
            return True
        if at is None:
            return False
        return (self.valid_from is None or self.valid_from <= at) and (
            self.valid_until is None or at < self.valid_until
        )


@dataclass(frozen=True, slots=True)
class AssignRule:
    """When the one candidate the service found may be assigned without anybody asking."""

    automatic: bool = True
    person_types: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RuleBook:
    """Everything an institution may decide about how its calls are handled.

    Intervals are in seconds. ``reads_*``: how often stored details are read while a call lives. ``checks_unassigned``: how
    many of the automatic checks a call may spend while nobody is assigned. ``red_alone`` are the institutions that let
    a rule reject although nothing but a red policy speaks against the caller.
    """

    schedule: Schedule
    policies: Policies
    assign: AssignRule
    rules: tuple[Rule, ...]
    digest: str
    name: str = "rules"
    reads_undecided_s: float = 5.0
    reads_decided_s: float = 15.0
    checks_unassigned: int = 0
    require_opt_in: bool = False
    maximum_age_s: float = 4 * 3600.0
    red_alone: frozenset[str] = frozenset()
    turns_s: tuple[int, ...] = field(init=False)
    """Seconds after the assignment at which a condition may begin or cease to hold; and ``dates``, the same of rules."""
    dates: tuple[datetime, ...] = field(init=False)

    def __post_init__(self) -> None:
        tests = [test for rule in self.rules for name, test in rule.when if name == "assigned_s"]
        object.__setattr__(self, "turns_s", tuple(sorted({turn for test in tests for turn in turns(test)})))
        object.__setattr__(self, "dates", dates_of(self.rules))

    def with_schedule(self, schedule: Schedule) -> "RuleBook":
        """Return the same rules with other check times; the digest tells."""
        return replace(self, schedule=schedule, digest=f"{self.digest}+at")

    def next_turn(self, assigned_at: datetime | None, now: datetime) -> datetime | None:
        """Return when time alone may next change what the rules come to for a call; None if it never does."""
        turns = [] if assigned_at is None else [assigned_at + timedelta(seconds=turn_s) for turn_s in self.turns_s]
        return min((at for at in (*turns, *self.dates) if at > now), default=None)

    @property
    def warnings(self) -> list[str]:
        """Say what the institutions have accepted that is off by default."""
        found = []
        for key in sorted(self.red_alone):
            rules = [repr(rule.name) for rule in self.rules if rule.on_red_alone and rule.applies_to(key)]
            what = f"rule {', '.join(rules)} rejects" if rules else "a rule may reject"
            found.append(f"{key}: {what} on a red policy alone ([reject] on_red_alone)")
        return found

    def dated(self, now: datetime) -> list[str]:
        """Say which rules are not in force yet, and which are over."""
        ahead = [
            (rule.name, rule.valid_from) for rule in self.rules if rule.valid_from is not None and rule.valid_from > now
        ]
        over = [
            (rule.name, rule.valid_until)
            for rule in self.rules
            if rule.valid_until is not None and rule.valid_until <= now
        ]
        return [
            *(f"rule {name!r} is in force from {at:%Y-%m-%d %H:%M:%S} UTC on" for name, at in ahead),
            *(f"rule {name!r} is over since {at:%Y-%m-%d %H:%M:%S} UTC" for name, at in over),
        ]

    @property
    def institutions(self) -> frozenset[str]:
        """Return the keys of the institutions that rules name."""
        return frozenset[str]().union(self.red_alone, *(rule.institutions or () for rule in self.rules))


def dates_of(rules: tuple[Rule, ...]) -> tuple[datetime, ...]:
    """Return the instants at which a rule comes into force or goes out of it, in order."""
    found = {at for rule in rules for at in (rule.valid_from, rule.valid_until) if at is not None}
    return tuple(sorted(found))


def holds(condition: Condition, facts: Facts) -> bool:
    """Tell whether a condition holds of a call's facts."""
    name, test = condition
    return _met(name, test, facts)


def _met(name: str, test: Test, facts: Facts) -> bool:
    match test:
        case OnChecks(inner, least):
            return checks_meeting(name, inner, facts) >= least
        case Not(inner):
            return not _met(name, inner, facts)
        case _:
            return admits(test, getattr(facts, name))


def admits(test: Test, value: Value | tuple[str, ...]) -> bool:
    """Tell whether a value meets a test; the names of policies are one value.

    Raises:
        TypeError: The test asks for a history, which no value has.
    """
    match test:
        case OneOf(values):
            return value in values
        case Between(least, most):
            if not isinstance(value, int):
                return False
            return (least is None or value >= least) and (most is None or value <= most)
        case Includes(patterns):
            names = value if isinstance(value, tuple) else ()
            return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
        case Not(inner):
            return not admits(inner, value)
        case OnChecks():
            raise TypeError("only the history of a call can meet it")
        case bool() | int() | str() | None:
            return value == test
        case _:
            assert_never(test)


def checks_meeting(name: str, test: Test, facts: Facts) -> int:
    """Return of how many checks the answers met a test."""
    history = facts.history
    match test:
        case Not(inner):
            return history.answered.bit_count() - checks_meeting(name, inner, facts)
        case Includes(patterns):
            checks = 0
            for policy, on in history.policies.items():
                if any(fnmatchcase(policy, pattern) for pattern in patterns):
                    checks |= on
            return checks.bit_count()
        case _:
            shown = history.signs.get(name, 0).bit_count()
            unshown = history.answered.bit_count() - shown
            return (shown if admits(test, True) else 0) + (unshown if admits(test, False) else 0)


def turns(test: Test) -> Iterator[int]:
    """Yield the numbers from which on a test of a growing number may come out otherwise."""
    match test:
        case Not(inner):
            yield from turns(inner)
        case Between(least, most):
            yield from (() if least is None else (least,))
            yield from (() if most is None else (most + 1,))
        case OneOf(values):
            for value in values:
                yield from turns(value)
        case int():
            yield from (test, test + 1)
        case _:
            return
