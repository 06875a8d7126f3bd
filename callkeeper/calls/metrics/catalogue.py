"""Everything that is counted or measured: the name, meaning and labels of each figure.

Label values are names from closed lists, institutions and rules; never a voice id, a phone number or a person. One test
checks the labels against a list, another searches all exported figures for the ids of real calls.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

_QUICK: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 6.0)
_LAG: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 30.0, 60.0)


class Figure(NamedTuple):
    """One figure. ``bounds`` are the upper bounds of a histogram's buckets; a counter has none.

    ``known`` are the values of labels with a short closed list. Such a figure is exported as 0 before it is first
    counted, so that the first count also shows as an increase.

    ``good`` is the value of the last label that ends a row of the others: how often each of those was counted since the
    last good one is kept as well, by the labels before it. A figure with it names all values of that label.
    """

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    known: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    good: str = ""

    @property
    def bad(self) -> tuple[str, ...]:
        """Return the values of the last label that are counted in a row."""
        return tuple(value for value in self.known[self.labels[-1]] if value != self.good) if self.good else ()


# Push events

PUSHES: Final = Figure(
    "pushes",
    "push events recorded and answered with 202",
    ("type",),
    known={"type": ("CallStart", "CallEnd", "sample", "doctor", "other")},
)
PUSHES_REFUSED: Final = Figure(
    "pushes_refused",
    "push events refused",
    ("reason",),
    known={"reason": ("credentials", "media_type", "too_large", "unreadable", "client_left", "not_recorded")},
)

PUSH_LAG: Final = Figure(
    "push_lag_seconds", "from the time in a push to its receipt; includes the difference of the clocks", (), _LAG
)
PUSH_ANSWER: Final = Figure("push_answer_seconds", "from the end of a push's body to its record in Redis", (), _QUICK)

# Calls

CALLS_FOUND: Final = Figure(
    "calls_found",
    "calls that the service confirmed, by what reported them first: a push, or the queue",
    ("institution", "by"),
    known={"by": ("push", "queue")},
)
CALLS_PUSHED: Final = Figure(
    "calls_pushed",
    "calls whose push came, also if the queue had shown them before; and calls whose push was missing when it did",
    ("institution", "result"),
    known={"result": ("came", "missing")},
    good="came",
)
PUSHED_CALLS: Final = Figure(
    "pushed_calls",
    "calls whose start was pushed, by whether the queue has listed them",
    ("institution", "result"),
    known={"result": ("listed", "unlisted")},
    good="listed",
)

PUSHES_LOST: Final = Figure(
    "pushes_lost",
    "calls that were settled without the push of this type",
    ("institution", "type"),
    known={"type": ("CallStart", "CallEnd")},
)
HINTS_DROPPED: Final = Figure("hints_dropped", "pushed calls that the queue never showed", ("institution",))
CALLS_SETTLED: Final = Figure("calls_settled", "settled calls, by reason", ("institution", "reason"))
DETECTION_LAG: Final = Figure(
    "detection_lag_seconds",
    "from the last check without a result to the one that showed it: no result waited longer",
    (),
    _LAG,
)

# Checks

CHECKS: Final = Figure("checks", "authentication checks booked, by result", ("outcome",))
"""``outcome``: answered, or the kind of failure."""

PROVIDER_ANSWERS: Final = Figure(
    "provider_answers",
    "calls by what their checks brought: a result; after eight answers still pending or nothing",
    ("institution", "result"),
    known={"result": ("shown", "pending", "silent")},
    good="shown",
)
POLICIES_SHOWN: Final = Figure(
    "policies_shown",
    "calls by what their records show first: policies that all have a colour, one that has none, an unknown status",
    ("institution", "result"),
    known={"result": ("classified", "unclassified", "status_unknown")},
)

CHECK_LATE: Final = Figure("check_late_seconds", "from the instant a check was planned for to its booking", (), _LAG)
CHECKS_SPENT: Final = Figure(
    "checks_spent", "checks of a call when it was settled, of 20", (), (0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19, 20)
)
BUDGET_SPENT: Final = Figure(
    "budget_spent",
    "calls without a result whose automatic checks are spent: before its last but one check time, or as planned",
    ("institution", "when"),
    known={"when": ("early", "planned")},
)

# Decisions and effects

DECISIONS: Final = Figure("decisions", "verdicts of rules, as written to trails", ("rule", "stage", "outcome"))
EFFECTS: Final = Figure(
    "effects", "changes of the ledger state of assigns, enrolls and rejects, by new state", ("kind", "state")
)
OUTCOMES: Final = Figure("outcomes", "attempts to post an outcome", ("result",))
"""``result``: delivered, put_off, parked; replayed and not_replayed if a person asked for it again."""

ARCHIVED: Final = Figure(
    "archived",
    "calls passed to the archive, by result",
    ("result",),
    known={"result": ("written", "put_off", "parked")},
)

# The service

SERVICE_REQUESTS: Final = Figure("service_requests", "requests to the service", ("endpoint", "outcome"))
"""``outcome``: answered, or the kind of error."""

REQUESTS_DISTURBED: Final = Figure(
    "requests_disturbed",
    "requests that failed right after one was answered, or whose answer could not be read, while no requests were stopped",
    ("endpoint",),
)

REQUESTS_POSTPONED: Final = Figure(
    "requests_postponed",
    "times that a request had to wait for the request budget, by what it was for",
    ("kind",),
    known={"kind": ("effect", "check", "listing", "read")},
)
REQUESTS_TURNED_AWAY: Final = Figure("requests_turned_away", "requests that were answered 429")

ANSWERS_MISNAMED: Final = Figure(
    "answers_misnamed",
    "answers about one call that named another; they were not used",
    ("institution", "endpoint"),
    known={"endpoint": ("read", "check", "assign")},
)

SERVICE_SECONDS: Final = Figure(
    "service_request_seconds", "how long requests to the service took", ("endpoint",), _QUICK
)
LOGINS: Final = Figure(
    "logins",
    "logins of the service account",
    ("outcome",),
    known={"outcome": ("answered", "LoginRefused", "ServiceUnavailable")},
)
INSTITUTIONS_MISSING: Final = Figure(
    "institutions_missing", "logins that did not list an institution that was listed before", ("institution",)
)
INSTITUTIONS_UNREADABLE: Final = Figure(
    "institutions_unreadable", "times that an institution's standing could not be read", ("institution",)
)
UNANSWERED_LISTINGS: Final = ("refused", "failed", "busy")
"""The outcomes of listings that show no queue; `busy` is a 429."""
LISTINGS: Final = Figure(
    "listings",
    "readings of an institution's queue",
    ("institution", "outcome"),
    known={"outcome": ("answered", *UNANSWERED_LISTINGS)},
)
ENTRIES_SKIPPED: Final = Figure(
    "queue_entries_skipped",
    "entries of the queue that could not be used",
    ("institution", "reason"),
    known={"reason": ("no_voice_id", "odd_voice_id", "unreadable")},
)
QUEUE_MISREAD: Final = Figure(
    "queue_bounds_misread",
    "listings from a start time on that left out a live call with a later one",
    ("institution",),
)
INSTITUTIONS_UNLISTED: Final = Figure(
    "institutions_unlisted", "readings of the list of institutions whose answer could not be read"
)
ACCESS_REFUSED: Final = Figure(
    "access_refused",
    "401 although the token is good: an institution, or an operation of it, is refused",
    ("institution", "endpoint"),
)
SERVICE_OUTAGES: Final = Figure("service_outages", "times that the account's circuit breaker opened")

# Workers

SHIFTS: Final = Figure("shifts", "shifts that ended", ("outcome",))
"""``outcome``: finished, or failed if steps raised errors."""

SHIFT_SECONDS: Final = Figure("shift_seconds", "how long shifts lasted", (), (0.1, 0.5, 1, 2, 5, 10, 20, 30, 45, 60))
STEPS_FAILED: Final = Figure("steps_failed", "steps of calls that failed because of bugs")
LEASES_LOST: Final = Figure(
    "leases_lost", "steps that ended because another worker held the call, or its data had changed", ("why",)
)
WRITES_UNREPLICATED: Final = Figure(
    "writes_unreplicated", "writes that no replica of Redis confirmed within 0.1 s: a failover could lose them"
)
STORED_UNREADABLE: Final = Figure(
    "stored_unreadable",
    "kinds of values in Redis that a process could not read; each concerns itself alone",
    ("kind",),
    known={"kind": ("cursor", "listing", "member", "newer", "owned", "pause", "standing", "trail")},
)
REDIS_FAILED: Final = Figure("redis_failed", "steps that ended because Redis failed")

# Processes

LOG_LINES_LOST: Final = Figure(
    "log_lines_lost", "lines of a process's log that nobody read for too long, or whose disk was full"
)

FIGURES: Final[dict[str, Figure]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Figure)
}
"""Every figure by its name."""
