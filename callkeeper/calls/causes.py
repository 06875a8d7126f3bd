"""What can be wrong with an installation: one table of causes, with what people see, what they do, and when it ends.

The board, the doctor, alerts, Prometheus's rules and docs/operations.md all print it. `incident_detection` says which
cause is there now, and adds what only the moment knows: numbers, names, the last error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final


class IncidentKind(StrEnum):
    """The causes, those that explain others first."""

    REDIS_REFUSES = "redis_refuses"
    REDIS_REPLACED = "redis_replaced"
    NO_WORKER = "no_worker"
    NO_WEB = "no_web"
    PROCESS_GONE = "process_gone"
    ACCOUNT_SHARED = "account_shared"
    LOGIN_REFUSED = "login_refused"
    SERVICE_AWAY = "service_away"
    WORKER_CUT_OFF = "worker_cut_off"
    RATE_LIMITED = "rate_limited"
    SERVICE_SLOW = "service_slow"
    INSTITUTION_FAILS = "institution_fails"
    LATE = "late"
    PUSHES_REFUSED = "pushes_refused"
    NO_PUSH = "no_push"
    NO_RESULTS = "no_results"
    NOT_LISTED = "not_listed"
    REQUESTS_FAIL = "requests_fail"
    NOT_ACTIVE = "not_active"
    RECEIVER_AWAY = "receiver_away"
    ARCHIVE_AWAY = "archive_away"
    REPLICA_BEHIND = "replica_behind"
    PROCESSES_DIFFER = "processes_differ"
    CLOCKS_APART = "clocks_apart"
    POLICIES_UNKNOWN = "policies_unknown"
    ASSUMPTION_WRONG = "assumption_wrong"
    EMERGENCY_LOGIN = "emergency_login"


class Weight(StrEnum):
    """How much a cause matters: a person is needed now, or in the morning."""

    PAGE = "page"
    TICKET = "ticket"


FIRES_AFTER: Final = timedelta(seconds=15)
"""A problem that passes sooner is not reported: a worker that is replaced, a request that is repeated."""

DEPLOYED_WITHIN: Final = timedelta(minutes=10)
"""While a deployment replaces processes, they differ. This is reported if it lasts longer."""

_K = IncidentKind


@dataclass(frozen=True, slots=True)
class Cause:
    """One row: ``see`` is what happens meanwhile, ``do`` the remedy, ``ends`` what ends the incident.

    ``hides``: the causes that are not known to be there, or to be over, while this one lasts: they may follow from it.
    """

    name: str
    title: str
    see: str
    do: str
    ends: str
    weight: Weight = Weight.TICKET
    told_after: timedelta = FIRES_AFTER
    hides: frozenset[IncidentKind] = frozenset()
    special: tuple[tuple[str, str], ...] = ()
    """What an incident is called instead in some cases, and what to do then."""

    @property
    def section(self) -> str:
        """Return the heading of its section in docs/operations.md, as an anchor."""
        return f"incident-{self.name.replace('_', '-')}"


_OF_AN_OUTAGE: Final = frozenset(
    {
        *(_K.SERVICE_SLOW, _K.LATE, _K.INSTITUTION_FAILS, _K.NO_PUSH, _K.REQUESTS_FAIL, _K.NO_RESULTS, _K.NOT_LISTED),
        *(_K.RATE_LIMITED, _K.WORKER_CUT_OFF),
    }
)

NOT_ALLOWED: Final = ("The service refuses an institution", "Ask the service's operator what the account may do there.")
NOT_LISTABLE: Final = (
    "The service refuses to list an institution's calls",
    "Is the name in CALLKEEPER_REQUESTED_BY a core username there?",
)
TOKENS_LAPSE: Final = (
    "The service's tokens lapse again and again",
    "Does something else use the same account? Give callkeeper one of its own, or ask the service's operator.",
)
PUSHES_LATE: Final = ("Pushes arrive late", "Ask the network team, then the service's operator.")

REDIS_AWAY: Final = Cause(
    "redis_away",
    "Redis does not answer",
    "Pushes get 503 and no call is handled. Nothing that was stored is lost.",
    "Repair Redis; callkeeper doctor names what is wrong with it. Do not restart workers: they survive it.",
    "with Redis's first answer. A failed job at /rq that names RedisAway is of that time.",
    Weight.PAGE,
)
"""Redis holds what incidents are found by, so this one is found by whoever cannot read it."""

_ROWS: Final = (
    Cause(
        _K.REDIS_REFUSES,
        "Redis refuses writes",
        "Pushes and /readyz get 503, calls are not handled, and nobody can log in.",
        "Mend what keeps it from writing; more workers do not help.",
        "with the first write that Redis accepts.",
        Weight.PAGE,
        hides=frozenset(
            {_K.NO_WORKER, _K.NO_WEB, _K.PROCESS_GONE, _K.LATE, _K.NO_PUSH, _K.PROCESSES_DIFFER}
        ),  # processes cannot report
    ),
    Cause(
        _K.REDIS_REPLACED,
        "Redis was replaced",
        "It lost its data, or an older state was put in place. Live calls are found again by the queue, and their checks "
        "count as spent. Pauses that a running process had seen are written back.",
        "Look at callkeeper pauses: resume what is no longer needed, pause again what is missing. If everything is gone, "
        "issue desk tokens again. If it is an older state, revoke again what was revoked since.",
        "when the restored pauses are resumed; with an older state, or if nothing was restored, after an hour.",
        Weight.PAGE,
    ),
    Cause(
        _K.NO_WORKER,
        "No worker is alive",
        "Pushes are recorded, but calls are not handled. Missed checks cannot be made later.",
        "Start workers. If they were started, their log says why they ended.",
        "when a worker reports.",
        Weight.PAGE,
        hides=frozenset({_K.LATE}),
    ),
    Cause(
        _K.NO_WEB,
        "No web process is alive",
        "Pushes are lost, because the service sends each only once; workers find their calls in the queue some seconds "
        "later. The board, the desk API and /metrics do not answer.",
        "Start callkeeper web. If it was started, its log says why it ended.",
        "when a web process reports.",
        Weight.PAGE,
        hides=frozenset({_K.NO_PUSH, _K.PUSHES_REFUSED}),
    ),
    Cause(
        _K.PROCESS_GONE,
        "A process is gone",
        "It did not start, because its settings or rules have errors or another installation uses its account; or it "
        "vanished without shutting down: killed, out of memory, frozen, or cut off from Redis. Other workers take a "
        "worker's calls over within seconds.",
        "Read the log of that process, and of the platform on that host. Correct what it names, and start another.",
        "when another of its kind starts, or ten minutes after the last attempt.",
    ),
    Cause(
        _K.ACCOUNT_SHARED,
        "Another installation works with our account",
        "Both use one service account for the same institutions in one Redis, so each call is checked, enrolled and "
        "rejected twice.",
        "Stop the workers of one installation now. If the prefix is misspelled, correct it; else give each its own "
        "CALLKEEPER_INSTITUTIONS.",
        "within 20 s.",
        Weight.PAGE,
    ),
    Cause(
        _K.LOGIN_REFUSED,
        "The service refuses our login",
        "Work goes on until the shared token expires, 30 minutes after its last use. The waits between logins grow to 15 "
        "minutes, so that the account is not locked.",
        "Compare the service account's settings with the credentials from onboarding, correct them and restart the "
        "workers. If the fault was the service's and is corrected, run callkeeper service retry.",
        "with the first login that is accepted.",
        Weight.PAGE,
        hides=_OF_AN_OUTAGE | {_K.SERVICE_AWAY},
    ),
    Cause(
        _K.SERVICE_AWAY,
        "The service is away",
        "Calls are not handled, nothing is sent and no check is spent. It is tried every 3 s.",
        "Ask the service's operator. More workers do not help.",
        "with its first answer; work resumes by itself.",
        Weight.PAGE,
        hides=_OF_AN_OUTAGE,
    ),
    Cause(
        _K.WORKER_CUT_OFF,
        "A worker cannot reach the service; others can",
        "No request is answered there, or none over a new connection. The other workers do its work.",
        "On that host run callkeeper doctor --only worker. Look at its network, name server, firewall, NAT, proxy, "
        "certificates and CALLKEEPER_SERVICE_URL.",
        "with its first answer. It tries every two seconds.",
    ),
    Cause(
        _K.RATE_LIMITED,
        "The service limits our requests",
        "It answers 429, or listings wait for the request limit: calls without a push are found late.",
        "If it lasts, ask the service's operator for a higher rate, and set CALLKEEPER_SERVICE_RPS. More workers do not "
        "help.",
        "when the pause is over, and queues are listed again within a minute.",
    ),
    Cause(
        _K.SERVICE_SLOW,
        "The service is slow",
        "Every request takes longer than a second, so checks come late.",
        "Ask the service's operator. More workers do not help.",
        "with the first quick answer.",
        hides=frozenset({_K.LATE}),
    ),
    Cause(
        _K.INSTITUTION_FAILS,
        "The service fails for an institution",
        "It does not answer for it, refuses it although the token is good, does not list its calls, or does not say "
        "whether it is active. Other institutions are not affected.",
        "Ask the service's operator.",
        "with the first answer to what failed.",
        special=(NOT_ALLOWED, NOT_LISTABLE),
    ),
    Cause(
        _K.LATE,
        "Calls are late",
        "Due calls have waited for more than five seconds.",
        "Start more workers. If there are enough, look at their logs.",
        "when no due call waits longer.",
        Weight.PAGE,
    ),
    Cause(
        _K.PUSHES_REFUSED,
        "Pushes are refused: wrong header",
        "At least three were refused in ten minutes, and calls come that only the queue shows, some seconds late.",
        "Enter in the service's dashboard exactly the value of CALLKEEPER_PUSH_HEADERS, and send a sample from there.",
        "with the first accepted push or sample. Without further calls it is over after ten minutes, and comes back with "
        "the next ones.",
        Weight.PAGE,
    ),
    Cause(
        _K.NO_PUSH,
        "No pushes arrive",
        "Three new calls in a row were found by the queue, some seconds late. Nothing is lost.",
        "Look at the push settings and attempts in the service's dashboard, and at what stands before the web process. If "
        "we answered 202 there, its pushes name another InstitutionKey: small and capital letters differ.",
        "with the first call that is pushed. Without further calls it is over after ten minutes, and comes back with the "
        "next ones.",
        special=(PUSHES_LATE,),
    ),
    Cause(
        _K.NO_RESULTS,
        "Checks bring no results",
        "Callers are neither green nor red, so nobody is enrolled on the voice's word. Only one call at a time makes "
        "checks while they fail.",
        "Verify callers in another way, and ask the service's operator whether the voice provider works.",
        "with the first call whose voice shows.",
    ),
    Cause(
        _K.NOT_LISTED,
        "Pushed calls are never listed",
        "The queue answers and leaves them out: nobody is assigned to them, and they are neither checked nor enrolled.",
        "Are their numbers on its ignore list? Then this is right. If not, ask the service's operator why the queue "
        "leaves them out, or shows them under other ids than the pushes.",
        "when a pushed call is listed, or ten minutes after the last one that was not.",
    ),
    Cause(
        _K.REQUESTS_FAIL,
        "Many requests to the service fail",
        "Others are answered, so no breaker opens. Reads that fail are tried again, so calls come late; checks that fail "
        "are spent; an assign, enroll or reject is looked up, and hardly ever sent again.",
        "Ask the service's operator. If only assigns, enrolls and rejects fail, look at name server, firewall and NAT of "
        "the workers' hosts first: each of these opens a new connection. More workers do not help.",
        "when requests are answered for a minute.",
        special=(TOKENS_LAPSE,),
    ),
    Cause(
        _K.NOT_ACTIVE,
        "Nothing is done for an institution with calls",
        "The service names it as Disabled, in Review, in test mode or without voice authentication: nothing is assigned, "
        "checked, enrolled or rejected there.",
        "Have the service's operator end that, or take it out of CALLKEEPER_INSTITUTIONS.",
        "two minutes after the service says that it is active.",
    ),
    Cause(
        _K.RECEIVER_AWAY,
        "The receiver of outcomes does not accept them",
        "Outcomes are kept and posted again, for a day each; then they wait for a person.",
        "Look at callkeeper outcomes log --failed, at the receiver and CALLKEEPER_OUTCOME_URL. If it answers 401: was its "
        "secret changed?",
        "with the first outcome that it accepts.",
    ),
    Cause(
        _K.ARCHIVE_AWAY,
        "The archive cannot be written",
        "Settled calls wait in Redis, do not expire, and are archived when the database can be used: about 10 kB each. "
        "Live calls are not affected.",
        "Repair the database, and watch Redis's memory. The log event archive_away names the cause.",
        "with the first call that is written.",
    ),
    Cause(
        _K.REPLICA_BEHIND,
        "The Redis replica falls behind",
        "A failover could lose the writes that no replica had within 0.1 s.",
        "Look at the replica, its connection and INFO replication.",
        "ten minutes after the last such write.",
    ),
    Cause(
        _K.PROCESSES_DIFFER,
        "Processes differ",
        "They have different rules, settings or releases, so what becomes of a call, a push or a login depends on the "
        "process that handles it. This is normal during a deployment, and told after ten minutes.",
        "Give all processes of a kind the same CALLKEEPER_RULES, settings and release, and restart them. After workers "
        "without CALLKEEPER_ARCHIVE_URL run callkeeper archive fill.",
        "when they are alike.",
        told_after=DEPLOYED_WITHIN,
    ),
    Cause(
        _K.CLOCKS_APART,
        "Clocks differ",
        "Calls are handled correctly, but logs and trails are hard to compare, and RQ may call running jobs failed.",
        "Synchronise the machines (NTP).",
        "when the clock is right.",
    ),
    Cause(
        _K.POLICIES_UNKNOWN,
        "Unknown policies or statuses",
        "No rule acts on them, so they may hide a green or a red voice.",
        "Ask the service's operator what they mean; give a policy its colour in [policies] of the rules file, and report "
        "a status.",
        "90 s after the last such call, once others come.",
    ),
    Cause(
        _K.ASSUMPTION_WRONG,
        "The service behaves differently than assumed",
        "What is concerned is left out, or handled more slowly; calls are not decided on it.",
        "Run callkeeper service survey: it says what is done about it and which setting answers it. Ask the service's "
        "operator, and report it with the log. Acknowledge this when you know.",
        "when somebody acknowledges it, and comes back only with another contradiction.",
    ),
    Cause(
        _K.EMERGENCY_LOGIN,
        "The emergency login was used",
        "Somebody logged in with CALLKEEPER_ADMIN from another machine.",
        "Ask who and why (callkeeper audit --event emergency_login). If nobody knows, change its password and restart "
        "web, which ends its sessions. If it was Prometheus, give it CALLKEEPER_METRICS_TOKEN.",
        "a day after the last use.",
    ),
)

CAUSES: Final[Mapping[IncidentKind, Cause]] = {_K(row.name): row for row in _ROWS}
