"""An institution's decisions about its calls, as read from its rules file: frozen records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar
from zoneinfo import ZoneInfo

from msgspec.structs import replace as with_fields

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.facts import FACTS, GROWING, Facts, Value
from callkeeper.calls.person_lists import NO_LISTS, NamedLists
from callkeeper.calls.policies import Policies
from callkeeper.calls.schedule.plan import Schedule
from callkeeper.calls.statuses import WEEKDAYS

AS_VERIFIED = "as_verified"
"""The validation type by which the person or the service verified the caller."""

LOCAL = frozenset({"hour", "weekday"})
"""Facts that depend on the institution's time zone."""

_OF_EARLIER_CALLS: Final = "_before"
"""The end of the name of every fact about earlier calls."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """The fact has one of these values."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """The number lies between two bounds, inclusive; None: no bound. An unknown value never meets it."""

    least: int | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Includes:
    """A policy is applied whose name matches one of these patterns (``*`` matches anything)."""

    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InList:
    """The member or the number is in this list (``in_list``), or the number matches this pattern (``like``)."""

    name: str
    is_pattern: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a test."""

    test: "Test"


@dataclass(frozen=True, slots=True)
class OnChecks:
    """The answers of at least ``least`` of the call's checks met the test."""

    test: "Test"
    least: int


Test = Value | OneOf | Between | Includes | InList | Not | OnChecks
"""A test of a fact. A plain value must be equal."""

Condition = tuple[str, Test]
"""A fact and its test."""

Kind = TypeVar("Kind", bound=Test)


class Outcome(StrEnum):
    """What a rule asks for."""

    ENROLL = "enroll"
    REJECT = "reject"
    ASK = "ask"  # ask a person, and send nothing
    HOLD = "hold"


EFFECTS: Final = {Outcome.ENROLL: EffectKind.ENROLL, Outcome.REJECT: EffectKind.REJECT}
"""What is sent for an outcome. The others send nothing."""


class Stage(StrEnum):
    """Whether a rule's verdict is carried out or only recorded."""

    SHADOW = "shadow"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: conditions (all must hold), what it asks for, and why. ``line`` is its first line in the file.

    It is in force from ``valid_from`` until before ``valid_until``. ``on_red_alone``: it rejects although only a red
    policy speaks against the caller. ``against_mismatch``: it enrolls although the voice does not match.
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
    against_mismatch: bool = False

    def is_always_about(self, name: str) -> bool:
        """Tell whether it matches every call of its institutions of which this fact is true, at any time."""
        return self.when == ((name, True),) and (self.valid_from, self.valid_until) == (None, None)

    def shares_institutions_with(self, other: "Rule") -> bool:
        """Tell whether there can be a call that both rules are for."""
        mine, theirs = self.institutions, other.institutions
        return mine is None or theirs is None or not mine.isdisjoint(theirs)

    @property
    def enrolls_on_nobodys_word(self) -> bool:
        """Tell whether it enrolls without a person at the desk who vouches for the caller."""
        return self.outcome is Outcome.ENROLL and ("verified_by_desk", True) not in self.when


_REACTIONS = frozenset({Outcome.REJECT, Outcome.ASK})
"""What can be done about a caller whom a person distrusts."""


@dataclass(frozen=True, slots=True)
class AssignRule:
    """When the only candidate that the service found may be assigned without a person's request.

    ``institutions`` and ``person_types`` are None for all.
    """

    automatic: bool = True
    institutions: frozenset[str] | None = None
    person_types: frozenset[str] | None = None

    def is_automatic_at(self, institution_key: str) -> bool:
        """Tell whether it may be at an institution."""
        return self.automatic and (self.institutions is None or institution_key in self.institutions)


@dataclass(frozen=True, slots=True)
class RuleBook:
    """Everything an institution may decide about its calls.

    Intervals are in seconds. ``reads_*``: how often stored details are read while a call lives. ``checks_unassigned``:
    how many automatic checks a call may use while nobody is assigned. ``red_alone``: the institutions that let a rule
    reject although only a red policy speaks against the caller, ``against_mismatch`` those that let a rule enroll although
    the voice does not match.
    """

    schedule: Schedule
    policies: Policies
    assign: AssignRule
    rules: tuple[Rule, ...]
    digest: str
    name: str = "rules"
    reads_undecided_s: float = 8.0
    reads_decided_s: float = 60.0
    checks_unassigned: int = 0
    require_opt_in: bool = False
    is_consent_decided: bool = False
    """The file says either way whether an enroll needs an opt-in."""
    maximum_age_s: float = 4 * 3600.0
    limits: tuple[tuple[str, float], ...] = ()
    """Requests per second of single institutions."""
    red_alone: frozenset[str] = frozenset()
    against_mismatch: frozenset[str] = frozenset()
    history_days: int = 30
    """For how many days marks of calls are kept for later calls of the member or number; 0: none are."""
    lists: NamedLists = NO_LISTS
    """The lists that rules ask about."""
    text: bytes = field(default=b"", repr=False)
    """The content of the rules file."""
    zones: Mapping[str, ZoneInfo] = field(default_factory=dict)
    """The time zones of institutions, by key; under the empty key that of all others."""
    turns_s: Mapping[str, tuple[int, ...]] = field(init=False)
    """For each fact that counts seconds, when a condition may change its result. ``dates`` is the same for rules."""
    dates: tuple[datetime, ...] = field(init=False)
    is_hourly: bool = field(init=False)
    """A rule asks for the hour or the weekday."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "turns_s", {name: _turns_of(self.rules, name) for name in GROWING})
        object.__setattr__(self, "dates", dates_of(self.rules))
        object.__setattr__(self, "is_hourly", any(LOCAL & {name for name, _ in rule.when} for rule in self.rules))

    def local(self, facts: Facts, institution_key: str) -> Facts:
        """Return facts with the hour and the weekday in an institution's zone. Those that are given already stay."""
        zone = self._zone(institution_key)
        if zone is None or facts.at is None:
            return facts
        at = facts.at.astimezone(zone)
        hour = at.hour if facts.hour is None else facts.hour
        return with_fields(facts, hour=hour, weekday=facts.weekday or WEEKDAYS[at.weekday()])

    def next_hour(self, institution_key: str, now: datetime) -> datetime | None:
        """Return when the hour changes next in an institution's zone; None if no rule asks for it."""
        zone = self._zone(institution_key)
        if zone is None:
            return None
        local = now.astimezone(zone)
        return (
            now
            + timedelta(hours=1)
            - timedelta(minutes=local.minute, seconds=local.second, microseconds=local.microsecond)
        )

    def _zone(self, institution_key: str) -> ZoneInfo | None:
        return self.zones.get(institution_key, self.zones.get("")) if self.is_hourly else None

    def with_schedule(self, schedule: Schedule) -> "RuleBook":
        """Return the same rules with other check times. The digest shows it."""
        return replace(self, schedule=schedule, digest=f"{self.digest}+at")

    @property
    def warnings(self) -> list[str]:
        """Return what the institutions have enabled that is off by default."""
        allowed = (
            (self.red_alone, "on_red_alone", "reject", "on a red policy alone ([reject] on_red_alone)"),
            (
                self.against_mismatch,
                "against_mismatch",
                "enroll",
                "a voice that does not match ([enroll] against_mismatch)",
            ),
        )
        found = []
        for keys, mark, verb, how in allowed:
            for key in sorted(keys):
                rules = [
                    repr(rule.name)
                    for rule in self.rules
                    if getattr(rule, mark) and key in (rule.institutions or {key})
                ]
                what = f"rule {', '.join(rules)} {verb}s" if rules else f"a rule may {verb}"
                found.append(f"{key}: {what} {how}")
        return found

    @property
    def oversights(self) -> list[str]:
        """Return what the author of the rules may not have thought of."""
        return [*self._on_distrust(), *self._on_enrolls(), *self._on_shadows(), *self._on_history()]

    def _on_distrust(self) -> Iterator[str]:
        on_distrust = [rule for rule in self.rules if rule.is_always_about("distrusted") and rule.outcome in _REACTIONS]
        live = [rule.institutions for rule in on_distrust if rule.stage is Stage.LIVE]
        if not on_distrust:
            yield "no rule reacts to distrusted = true alone: a person's distrust at the desk leads to nothing"
        elif live and None not in live:
            where = ", ".join(sorted(frozenset[str]().union(*(keys or () for keys in live))))
            yield (
                f"only for {where} a live rule reacts to distrusted = true alone: "
                "elsewhere a person's distrust at the desk leads to nothing"
            )
        elif not live and self._is_anything_live:
            yield f"rule {on_distrust[0].name!r} is in shadow: a person's distrust at the desk leads to nothing"

    @property
    def _is_anything_live(self) -> bool:
        return any(rule.stage is Stage.LIVE and rule.outcome is not Outcome.HOLD for rule in self.rules)

    def _on_enrolls(self) -> Iterator[str]:
        """An enroll that nobody vouches for should wait for the final analysis and name the signs against the caller.

        Some of these are in earlier calls.
        """
        for rule in self.rules:
            if rule.enrolls_on_nobodys_word:
                wanted = (
                    ("final_analysis", True),
                    ("voice_mismatch", rule.against_mismatch),
                    ("high_risk_device", False),
                )
                missing = [f"{name} = {str(value).lower()}" for name, value in wanted if (name, value) not in rule.when]
                if missing:
                    yield f"rule {rule.name!r}: it enrolls on nobody's word without {' and '.join(missing)}"
                if not any(name.endswith(_OF_EARLIER_CALLS) for name, _ in rule.when):
                    yield (
                        f"rule {rule.name!r}: it enrolls on nobody's word and looks at nothing of earlier calls: "
                        f"name {', '.join(f'{name} = false' for name in FACTS if name.endswith(_OF_EARLIER_CALLS))}"
                    )

    def _on_shadows(self) -> Iterator[str]:
        shadow: list[Rule] = []
        for rule in self.rules:
            if rule.outcome is Outcome.ASK and rule.stage is Stage.SHADOW:
                shadow.append(rule)
            elif rule.stage is Stage.LIVE and rule.enrolls_on_nobodys_word:
                first = next((asks.name for asks in shadow if asks.shares_institutions_with(rule)), None)
                if first is not None:
                    yield f"rule {rule.name!r} enrolls, and rules before it that ask a person are in shadow: {first!r} first"

    def _on_history(self) -> Iterator[str]:
        asked = sorted({name for rule in self.rules for name, _ in rule.when if name.endswith(_OF_EARLIER_CALLS)})
        if asked and not self.history_days:
            yield f"{asked[0]} is never true: [history] days is 0, so that earlier calls leave nothing"

    def dated(self, now: datetime) -> list[str]:
        """Return which rules are not in force yet, and which are no longer in force."""
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
            *(f"rule {name!r} is no longer in force since {at:%Y-%m-%d %H:%M:%S} UTC" for name, at in over),
        ]

    @property
    def institutions(self) -> frozenset[str]:
        """Return the keys of the institutions that rules name."""
        return frozenset[str]().union(
            self.red_alone,
            self.against_mismatch,
            self.assign.institutions or (),
            dict(self.limits),
            *(rule.institutions or () for rule in self.rules),
        )


def dates_of(rules: tuple[Rule, ...]) -> tuple[datetime, ...]:
    """Return the instants at which a rule comes into force or ends, in order."""
    found = {at for rule in rules for at in (rule.valid_from, rule.valid_until) if at is not None}
    return tuple(sorted(found))


def _turns_of(rules: tuple[Rule, ...], name: str) -> tuple[int, ...]:
    """Return the values of a growing number at which a rule's condition may change its result, in order."""
    tests = [test for rule in rules for fact, test in rule.when if fact == name]
    return tuple(sorted({turn for test in tests for turn in turns(test)}))


def turns(test: Test) -> Iterator[int]:
    """Yield the values at which a test of a growing number may change its result."""
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


def tests_in(test: Test, kind: type[Kind]) -> Iterator[Kind]:
    """Yield the test, or the test within it, that is of a kind."""
    if isinstance(test, kind):
        yield test
    elif isinstance(test, Not | OnChecks):
        yield from tests_in(test.test, kind)
