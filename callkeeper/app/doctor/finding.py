"""One finding of the doctor: what was checked, its state, and the remedy of a fault."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


class Topic(StrEnum):
    """What is checked. docs/operations.md has a section for each, and for each incident."""

    INCIDENT = "incident"
    SETTINGS = "settings"
    RULES = "rules"
    REDIS = "redis"
    REDIS_TLS = "redis tls"
    REDIS_EVICTION = "redis eviction"
    REDIS_PERSISTENCE = "redis persistence"
    REDIS_LATENCY = "redis latency"
    REDIS_MEMORY = "redis memory"
    REDIS_FAILOVER = "redis failover"
    CLOCK = "clock"
    LOGIN = "login"
    INSTITUTIONS = "institutions"
    QUEUE = "queue"
    WEB = "web"
    WORKERS = "workers"
    BUDGET = "request budget"
    PUSHES = "pushes"
    JOBS = "jobs"
    OUTCOMES = "outcomes"
    ARCHIVE = "archive"
    ALERTS = "alerts"
    ATTENTION = "attention"
    PAUSE = "pause"
    CALL = "call"
    DASHBOARD = "dashboard"


OUTSIDE: Final = "from outside"
"""What the doctor's own requests to the web process are about. They follow from nothing that workers see."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, its state, and the remedy of a fault.

    ``about`` distinguishes findings of one topic: an institution's key, a variable.
    """

    topic: Topic
    severity: Severity
    detail: str
    remedy: str = ""
    about: str = ""

    @property
    def what(self) -> str:
        """Return the topic and its subject."""
        return f"{self.topic} {self.about}".strip()


def ok(topic: Topic, detail: str, *, about: str = "") -> Finding:
    """Return a finding without a problem."""
    return Finding(topic, Severity.OK, detail, about=about)


def warning(topic: Topic, detail: str, remedy: str, *, about: str = "") -> Finding:
    """Return a finding that should be corrected although everything works."""
    return Finding(topic, Severity.WARNING, detail, remedy, about)


def fault(topic: Topic, detail: str, remedy: str, *, about: str = "") -> Finding:
    """Return a finding that prevents the installation from working."""
    return Finding(topic, Severity.FAULT, detail, remedy, about)


def graded(topic: Topic, value: float, detail: str, remedy: str, *, warn: float, fail: float) -> Finding:
    """Return a finding whose severity follows from a figure: larger is worse."""
    if value < warn:
        return ok(topic, detail)
    return (fault if value >= fail else warning)(topic, detail, remedy)
