"""Checks the work: live processes, jobs, outcomes, calls that need a person. What is wrong now is an incident."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from redis.asyncio import Redis

from callkeeper.app.commands.pause_and_resume import pause_lines
from callkeeper.app.doctor.finding import Finding, Topic, ok, warning
from callkeeper.calls.metrics.snapshot import FigureReader, Present, Process, read_present
from callkeeper.calls.quantity import quantity
from callkeeper.calls.schedule.reads import BUSY
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.store.request_budget import budget_use

_UNDELIVERED: Final = "outcome "
_LIFT: Final = (
    "when the reason is gone: callkeeper resume, with --institution KEY unless the pause is for all institutions; "
    "callkeeper pauses shows all"
)


async def work_findings(redis: Redis, keys: Keys) -> list[Finding]:
    """Check processes, and everything that waits. If none of a kind is alive, that is an incident."""
    present = await read_present(redis, keys=keys)
    return [
        *_alive(await FigureReader(redis, keys=keys).processes()),
        *(ok(Topic.BUDGET, use.words, about=use.institution_key) for use in await budget_use(redis, keys)),
        *(_missing(key, since) for key, since in sorted((await Listings(redis, keys=keys).missing()).items())),
        _jobs(present),
        *_outcomes(present),
    ]


async def waiting_findings(redis: Redis, keys: Keys) -> list[Finding]:
    """Check what waits for a person: attention items and pauses."""
    present = await read_present(redis, keys=keys)
    return [_attention(present.attention), *await _pauses(redis, keys)]


def _alive(processes: list[Process]) -> Iterator[Finding]:
    webs, workers = ([process for process in processes if process.kind == kind] for kind in ("web", "worker"))
    if webs:
        yield ok(Topic.WEB, f"{len(webs)} alive")
    busiest = max((worker.cpu for worker in workers if worker.cpu is not None), default=0.0)
    if busiest > BUSY:
        detail = f"{len(workers)} alive; one uses {busiest:.0%} of a core, so it reads details less often"
        yield warning(Topic.WORKERS, detail, "start more workers")
    elif workers:
        yield ok(Topic.WORKERS, f"{len(workers)} alive")


def _missing(institution_key: str, since: datetime) -> Finding:
    detail = (
        f"logins since {since:%Y-%m-%d %H:%M:%S} UTC do not list it any more; it is kept while its queue can be read"
    )
    remedy = "ask the service operator whether the account may still act for it"
    return warning(Topic.INSTITUTIONS, detail, remedy, about=institution_key)


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
