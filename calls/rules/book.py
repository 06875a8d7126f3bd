"""What an institution has decided about how its calls are handled: frozen records, as read from its rules file."""

from dataclasses import dataclass, replace
from enum import StrEnum

from calls.facts import Policies, Value
from calls.schedule.check_plan import Schedule

AS_VERIFIED = "as_verified"
"""The validation type the person or the service verified by."""

Condition = tuple[str, Value]
"""A fact and the value it must have."""


class Outcome(StrEnum):
    """What a rule asks for."""

    ENROLL = "enroll"
    REJECT = "reject"
    HOLD = "hold"


class Stage(StrEnum):
    """Whether a rule's verdict is acted on or only written down."""

    SHADOW = "shadow"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: conditions (all must hold), what it asks for, and why. ``line`` is where its file begins it."""

    name: str
    when: tuple[Condition, ...]
    outcome: Outcome
    because: str
    validation_type: str | None = None
    stage: Stage = Stage.LIVE
    institutions: frozenset[str] | None = None
    line: int = 0

    def applies_to(self, institution_key: str | None) -> bool:
        """Tell whether the rule is meant for an institution; None stands for one that no rule names."""
        return self.institutions is None or institution_key in self.institutions


@dataclass(frozen=True, slots=True)
class AssignRule:
    """When the one candidate the service found may be assigned without anybody asking."""

    automatic: bool = True
    person_types: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class RuleBook:
    """Everything an institution may decide about how its calls are handled.

    Intervals are in seconds. ``reads_*``: how often stored details are read while a call lives. ``checks_unassigned``: how
    many of the automatic checks a call may spend while nobody is assigned.
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

    def with_schedule(self, schedule: Schedule) -> "RuleBook":
        """Return the same rules with other check times; the digest tells."""
        return replace(self, schedule=schedule, digest=f"{self.digest}+at")

    @property
    def institutions(self) -> frozenset[str]:
        """Return the keys of the institutions that rules name."""
        return frozenset[str]().union(*(rule.institutions or () for rule in self.rules))
