"""Checks the work: live processes, late calls, stopped requests, jobs, outcomes, calls that need a person."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from redis.asyncio import Redis

from callkeeper.app.commands.pause_and_resume import pause_lines
from callkeeper.app.doctor.finding import Finding, Topic, fault, graded, ok, warning
from callkeeper.app.redis_query import redis_now
from callkeeper.calls.incident import Incident, IncidentKind
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.snapshot import FigureReader, Minute, Present, Process, read_present
from callkeeper.calls.quantity import quantity
from callkeeper.calls.schedule.reads import BUSY
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.store.request_budget import budget_use

LATE_S, TOO_LATE_S = 1.0, 5.0
"""If a due call waits longer than this, there are too few workers."""

_LOGINS_IN_VAIN: Final = 2
_STOPS: Final = frozenset(
    {
        IncidentKind.LOGIN_REFUSED,
        IncidentKind.SERVICE_AWAY,
        IncidentKind.RATE_LIMITED,
        IncidentKind.INSTITUTION_AWAY,
        IncidentKind.INSTITUTION_REFUSED,
    }
)
_UNDELIVERED: Final = "outcome "
_LIFT: Final = (
    "when the reason is gone: callkeeper resume, with --institution KEY unless the pause is for all institutions; "
    "callkeeper pauses shows all"
)


async def work_findings(redis: Redis, keys: Keys, incidents: Sequence[Incident]) -> list[Finding]:
    """Check processes, due times and everything that waits. ``incidents`` have lines of their own."""
    figures = FigureReader(redis, keys=keys)
    processes = await figures.processes()
    present = await read_present(redis, keys=keys)
    return [
        _web(processes),
        _workers(processes),
        _lateness(present, processes),
        *_logins(present, incidents),
        *(ok(Topic.BUDGET, use.words, about=use.institution_key) for use in await budget_use(redis, keys)),
        *(_missing(key, since) for key, since in sorted((await Listings(redis, keys=keys).missing()).items())),
        *_replication(await figures.minutes(await redis_now(redis))),
        _jobs(present),
        *_outcomes(present),
    ]


async def waiting_findings(redis: Redis, keys: Keys) -> list[Finding]:
    """Check what waits for a person: attention items and pauses."""
    present = await read_present(redis, keys=keys)
    return [_attention(present.attention), *await _pauses(redis, keys)]


def _web(processes: list[Process]) -> Finding:
    alive = sum(process.kind == "web" for process in processes)
    if alive:
        return ok(Topic.WEB, f"{alive} alive")
    return fault(Topic.WEB, "none is alive: pushes are lost, calls are found by the queue", "start callkeeper web")


def _workers(processes: list[Process]) -> Finding:
    workers = [process for process in processes if process.kind == "worker"]
    if workers:
        busiest = max((worker.cpu for worker in workers if worker.cpu is not None), default=0.0)
        if busiest <= BUSY:
            return ok(Topic.WORKERS, f"{len(workers)} alive")
        detail = f"{len(workers)} alive; one uses {busiest:.0%} of a core, so it reads details less often"
        return warning(Topic.WORKERS, detail, "start more workers")
    remedy = "start callkeeper worker; if it was started, its log says why it ended"
    return fault(Topic.WORKERS, "none is alive: calls are recorded, but not handled", remedy)


def _lateness(present: Present, processes: list[Process]) -> Finding:
    live = quantity(present.live, "call is", "calls are")
    detail = f"{present.overdue} due, {present.late_s:.1f} s late at most; {live} live"
    is_moved = any(process.kind == "worker" for process in processes)
    remedy = "start more workers; if there are enough, read their logs" if is_moved else "see the line workers"
    return graded(Topic.DUE_CALLS, present.late_s, detail, remedy, warn=LATE_S, fail=TOO_LATE_S)


def _logins(present: Present, incidents: Sequence[Incident]) -> list[Finding]:
    """Check whether requests are stopped. Incidents say so by themselves."""
    if any(incident.kind in _STOPS for incident in incidents):
        return []
    if present.login_failures >= _LOGINS_IN_VAIN:
        detail = f"{present.login_failures} logins in a row failed; the next one waits"
        remedy = "see the line login; correct the account's password everywhere"
        return [warning(Topic.BREAKER, detail, remedy)]
    return [ok(Topic.BREAKER, "no requests are stopped")]


def _missing(institution_key: str, since: datetime) -> Finding:
    detail = (
        f"logins since {since:%Y-%m-%d %H:%M:%S} UTC do not list it any more; it is kept while its queue can be read"
    )
    remedy = "ask the service operator whether the account may still act for it"
    return warning(Topic.INSTITUTIONS, detail, remedy, about=institution_key)


def _replication(hour: list[Minute]) -> list[Finding]:
    late = sum(minute.figures.count(figure.WRITES_UNREPLICATED) for minute in hour)
    if not late:
        return []
    detail = f"no replica had {late} writes of the last hour within 0.1 s: a failover could lose such writes"
    remedy = "look at INFO replication: is a replica connected, is its lag small?"
    return [warning(Topic.REDIS_FAILOVER, detail, remedy)]


def _jobs(present: Present) -> Finding:
    if present.jobs_failed:
        remedy = "read them in the RQ dashboard (/rq, failed), and report bugs; they expire after seven days"
        return warning(Topic.JOBS, f"{present.jobs_failed} have failed, {present.jobs_waiting} wait", remedy)
    return ok(Topic.JOBS, f"none has failed, {present.jobs_waiting} wait")


def _outcomes(present: Present) -> list[Finding]:
    parked = sum(count for why, count in present.attention.items() if why.startswith(_UNDELIVERED))
    if parked:
        remedy = "check the receiver; then callkeeper outcomes replay --failed-since 7d"
        return [warning(Topic.OUTCOMES, f"those of {parked} calls were not accepted for a day", remedy)]
    if present.outcomes_waiting:
        return [ok(Topic.OUTCOMES, f"those of {quantity(present.outcomes_waiting, 'call')} wait for delivery")]
    return []


def _attention(reasons: Counter[str]) -> Finding:
    doubts = Counter({why: count for why, count in reasons.items() if not why.startswith(_UNDELIVERED)})
    if not doubts:
        return ok(Topic.ATTENTION, "no call and no outcome waits for a person")
    detail = ", ".join(f"{count} {why}" for why, count in sorted(doubts.items()))
    remedy = "callkeeper calls list names them; close each on the call's page (docs/operations.md says how)"
    return warning(Topic.ATTENTION, f"{quantity(doubts.total(), 'needs a person', 'need a person')}: {detail}", remedy)


async def _pauses(redis: Redis, keys: Keys) -> list[Finding]:
    """Report every pause. A pause of an institution that does not exist stops nothing."""
    known = await Queries(redis, keys=keys).institutions()
    lines = pause_lines(await Pausing(redis, keys=keys).pauses(), known)
    if not lines:
        return [ok(Topic.PAUSE, "nothing is paused")]
    return [_pause(line, problem) for line, problem in lines]


def _pause(line: str, problem: str) -> Finding:
    if problem:
        remedy = "pause the intended institution, then callkeeper resume this one"
        return warning(Topic.PAUSE, f"{line}; it holds no call now: {problem}", remedy)
    return warning(Topic.PAUSE, line, _LIFT)
