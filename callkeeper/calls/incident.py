"""An incident: one problem of the installation, of one institution or of all, and how equal ones are merged."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from callkeeper.calls.acknowledgement import Acknowledgement


class IncidentKind(StrEnum):
    """What can be wrong, causes first."""

    REDIS_REFUSES = "redis_refuses"
    REDIS_REPLACED = "redis_replaced"
    NOT_STARTED = "not_started"
    NO_WORKER = "no_worker"
    NO_WEB = "no_web"
    ACCOUNT_SHARED = "account_shared"
    LOGIN_REFUSED = "login_refused"
    SERVICE_AWAY = "service_away"
    WORKER_CUT_OFF = "worker_cut_off"
    RATE_LIMITED = "rate_limited"
    SERVICE_SLOW = "service_slow"
    INSTITUTION_AWAY = "institution_away"
    INSTITUTION_REFUSED = "institution_refused"
    LISTING_REFUSED = "listing_refused"
    STANDING_UNCONFIRMED = "standing_unconfirmed"
    LATE = "late"
    LIMIT_TOO_LOW = "limit_too_low"
    PUSHES_REFUSED = "pushes_refused"
    NO_PUSH = "no_push"
    REPLICA_BEHIND = "replica_behind"
    RECEIVER_AWAY = "receiver_away"
    ARCHIVE_AWAY = "archive_away"
    RULES_DIFFER = "rules_differ"
    SETTINGS_DIFFER = "settings_differ"
    CLOCKS_APART = "clocks_apart"
    VERSIONS_DIFFER = "versions_differ"
    NO_RESULTS = "no_results"
    NOT_LISTED = "not_listed"
    REQUESTS_FAIL = "requests_fail"
    NOT_ACTIVE = "not_active"
    POLICIES_UNKNOWN = "policies_unknown"
    ASSUMPTION_WRONG = "assumption_wrong"
    WORKER_VANISHED = "worker_vanished"
    EMERGENCY_LOGIN = "emergency_login"

    @property
    def section(self) -> str:
        """Return the heading of its section in docs/operations.md, as an anchor."""
        return f"incident-{self.value.replace('_', '-')}"


class Weight(StrEnum):
    """How much an incident matters: a person is needed now, in the morning, or only has to know."""

    PAGE = "page"
    TICKET = "ticket"
    NOTE = "note"


_NOTES: Final = frozenset({IncidentKind.VERSIONS_DIFFER})
_PAGES: Final = frozenset(
    {
        IncidentKind.REDIS_REFUSES,
        IncidentKind.REDIS_REPLACED,
        IncidentKind.NO_WORKER,
        IncidentKind.NO_WEB,
        IncidentKind.ACCOUNT_SHARED,
        IncidentKind.LOGIN_REFUSED,
        IncidentKind.SERVICE_AWAY,
        IncidentKind.LATE,
        IncidentKind.PUSHES_REFUSED,
    }
)


@dataclass(frozen=True, slots=True)
class Incident:
    """One problem: what it is, what to do, for which institution, and since when if known.

    ``institutions``: those of several equal incidents that were merged into this one. ``last_error``: its words, if
    requests fail. ``acknowledged``: by whom, if people asked not to be told of it again. ``limited_advice``: the advice
    for people who are limited to institutions, if ``advice`` names others.
    """

    kind: IncidentKind
    title: str
    advice: str
    institution_key: str = ""
    since: datetime | None = None
    institutions: tuple[str, ...] = ()
    last_error: str = ""
    acknowledged: Acknowledgement | None = None
    limited_advice: str = ""

    @property
    def known(self) -> str:
        """Return who has acknowledged it, in a line; empty if nobody has."""
        return self.acknowledged.words if self.acknowledged is not None else ""

    @property
    def weight(self) -> Weight:
        """Return how much it matters. Refused pushes of one institution can wait: its calls are found by the queue."""
        is_of_some = bool(self.institution_key or self.institutions)
        is_page = self.kind in _PAGES and not (self.kind is IncidentKind.PUSHES_REFUSED and is_of_some)
        return Weight.PAGE if is_page else Weight.NOTE if self.kind in _NOTES else Weight.TICKET


MERGED_FROM: Final = 3
"""If at least this many institutions have the same trouble, it is one incident."""


def merged(found: Iterable[Incident]) -> list[Incident]:
    """Return incidents with equal ones of many institutions as one, in the place of the first."""
    equal: dict[object, list[Incident]] = {}
    for incident in found:
        same = (incident.kind, incident.title, bool(incident.institution_key), incident.known)
        equal.setdefault(same, []).append(incident)
    together: list[Incident] = []
    for group in equal.values():
        keys = tuple(sorted(incident.institution_key for incident in group))
        if len(group) < MERGED_FROM or not all(keys):
            together += group
            continue
        since = min((incident.since for incident in group if incident.since is not None), default=None)
        shared = shared_advice((incident.institution_key, incident.advice) for incident in group)
        advice = f"{len(keys)} institutions: {named(keys)}. {shared}"
        last_error = named({incident.last_error for incident in group if incident.last_error}, most=2)
        together.append(
            replace(group[0], advice=advice, institution_key="", since=since, institutions=keys, last_error=last_error)
        )
    return together


def shared_advice(advices: Iterable[tuple[str, str]]) -> str:
    """Return the advice of merged incidents, given by institution. If it differs, it is the first one's and says so."""
    (key, first), *others = advices
    return first if all(advice == first for _, advice in others) else f"Of {key}: {first}"


_NAMED: Final = 8
"""How many institutions a line names."""


def named(keys: Iterable[str], most: int = _NAMED) -> str:
    """Return a list of institutions for people, cut where it is long."""
    names = sorted(keys)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
