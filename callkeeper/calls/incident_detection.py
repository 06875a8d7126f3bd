"""What is wrong with the installation now, causes before symptoms. A pure function of `callkeeper.calls.metrics.signals`.

The board, the doctor, the metrics and the alerts all use this list. `causes` says what each kind means. An incident ends
with its cause, so nothing here is counted over a longer time than the end of the cause takes to show.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from callkeeper.calls.acknowledgement import acknowledgement_of
from callkeeper.calls.causes import CAUSES, NOT_ALLOWED, NOT_LISTABLE, IncidentKind
from callkeeper.calls.incident import Incident, folded, named
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.signals import UNSTARTED_KEPT_S, Replaced, Signals, Vanished
from callkeeper.calls.missing_pushes import missing_pushes
from callkeeper.calls.pause import EVERYWHERE
from callkeeper.calls.process_differences import process_differences
from callkeeper.calls.quantity import quantity
from callkeeper.calls.quiet_outages import quiet_outages
from callkeeper.calls.store.breakers import ACCOUNT, WHOLE, Breaker, EndpointKind, RequestResult
from callkeeper.calls.store.last_errors import ANSWERED, ErrorArea, error_behind, fault_words, first_refusal
from callkeeper.calls.store.writable import REFUSALS

LATE_S: Final = 5.0
"""If a due call waits longer than this, there are too few workers."""

SKEW_S: Final = 3.0
"""The least difference of clocks that is reported, in seconds."""

SLOW_S: Final = 1.0
"""A request that takes longer than this is slow."""

LISTED_RARELY: Final = timedelta(minutes=1)
"""A queue is listed too rarely if its last listing is at least this long ago: idle ones are listed every 8 s."""

LISTED_NO_MORE: Final = timedelta(minutes=30)
"""Nobody acts any more for an institution whose queue was listed this long ago."""

REPLACED_SHOWN: Final = timedelta(hours=1)
"""For how long people are told that Redis lost data, if no pause had to be restored."""

_SOON: Final = timedelta(seconds=15)
_MINUTE: Final = timedelta(minutes=1)
_A_WHILE: Final = timedelta(seconds=10)
_TO_ASK: Final = timedelta(minutes=2)
"""How long it may take until all institutions were asked for."""

_LONGEST_GATE: Final = timedelta(minutes=20)
"""After a refused login the next one is tried within a quarter of an hour."""

_K = IncidentKind


def incidents_of(signals: Signals) -> list[Incident]:
    """Return what is wrong, causes first. A symptom is left out if its cause is in the list."""
    found = found_in(signals)
    hidden = symptoms_of(found)
    return [_detailed(incident, signals) for incident in found if incident.kind not in hidden]


def found_in(signals: Signals) -> list[Incident]:
    """Return what is wrong, causes first, with the symptoms of other incidents."""
    found = folded(
        chain(
            _redis(signals),
            _processes(signals),
            _service(signals),
            _institutions(signals),
            missing_pushes(signals),
            _others(signals),
        )
    )
    found_already = {(one.kind, one.institution_key) for one in found}
    found += folded(one for one in quiet_outages(signals) if (one.kind, one.institution_key) not in found_already)
    unlisted = {one.institution_key for one in found if one.kind is _K.NOT_LISTED}
    return [one for one in found if one.kind is not _K.NO_PUSH or one.institution_key not in unlisted]


def symptoms_of(found: Iterable[Incident]) -> frozenset[IncidentKind]:
    """Return the kinds that follow from what was found. While it lasts, nobody can tell whether they are over."""
    return frozenset(kind for one in found for kind in CAUSES[one.kind].hides)


def _detailed(incident: Incident, signals: Signals) -> Incident:
    """Add what the last error said, and who has acknowledged it. Some faults have a remedy of their own."""
    kind, key = incident.kind, incident.institution_key
    since = incident.since if kind in _EVENTS else None
    known = [one for one in signals.acknowledged if since is None or one.at >= since]
    incident = replace(incident, acknowledged=acknowledgement_of(kind, key, known, incident.parts))
    error = error_behind(kind, key, signals.errors)
    if error is None:
        return incident
    incident = replace(incident, last_error=error.words.rstrip("."))
    words = fault_words(error.fault) if kind in _BY_FAULT else None
    return incident if words is None else replace(incident, headline=words[0], detail="", remedy=words[1])


_EVENTS: Final = frozenset({_K.EMERGENCY_LOGIN, _K.REDIS_REPLACED})
"""They happen at one moment and are shown for some time. Who knows of one does not know of the next."""

_BY_FAULT: Final = frozenset({_K.SERVICE_AWAY, _K.INSTITUTION_FAILS})


def _redis(signals: Signals) -> Iterator[Incident]:
    if signals.refusal is not None:
        words = REFUSALS[signals.refusal]
        yield Incident(_K.REDIS_REFUSES, words.advice, headline=f"Redis refuses writes: {words.what}")
    replaced = signals.replaced
    is_told = replaced is not None and replaced.is_empty and replaced.restored  # by the pause, until it is resumed
    is_recent = replaced is not None and not is_told and signals.now - replaced.at <= REPLACED_SHOWN
    if replaced is not None and (replaced.standing or replaced.again or is_recent):
        older = "It is an older one, or was restarted without its last writes."
        lost = "Everything in it is gone." if replaced.is_empty else older
        detail, limited = f"{lost} {_restored(replaced)}", f"{lost} The pauses that are in force are shown."
        yield Incident(_K.REDIS_REPLACED, detail, since=replaced.at, limited_detail=limited)


def _restored(replaced: Replaced) -> str:
    told = []
    if replaced.restored:
        told.append(f"Restored: the pause of {_places(replaced.restored)}.")
    if replaced.again:
        told.append(f"In force now, and not before Redis was replaced: the pause of {_places(replaced.again)}.")
    if not told:
        return "No process remembers a pause that is missing now."
    return " ".join(told)


def _places(keys: Sequence[str]) -> str:
    return ", ".join("all institutions" if key == EVERYWHERE else key for key in keys)


def _processes(signals: Signals) -> Iterator[Incident]:
    yield from _none_alive(signals)
    yield from _gone(signals)
    yield from _account_shared(signals)
    yield from _cut_off(signals)
    yield from process_differences(signals)


def _gone(signals: Signals) -> Iterator[Incident]:
    """Find processes that did not start, and those that vanished and were not replaced.

    If none of a kind is left, that is an incident of its own, which names the last one.
    """
    recent = [one for one in signals.unstarted if signals.now - one.at <= timedelta(seconds=UNSTARTED_KEPT_S)]
    alive = {process.kind for process in signals.processes}
    vanished = [one for kind in ("worker", "web") if kind in alive for one in _unreplaced(signals, kind)]
    gone = [one.at for one in recent] + [one.at for one in vanished]
    if not gone:
        return
    told = []
    if recent:
        told.append(f"Did not start: {named({f'{one.kind} on {one.host}' for one in recent})}.")
    if vanished:
        names = {f"{one.kind} {one.name} on {one.host} at {one.at:%H:%M:%S} UTC" for one in vanished}
        told.append(f"Vanished: {named(names, most=4)}.")
    headline = f"{len(gone)} processes are gone" if len(gone) > 1 else ""
    yield Incident(_K.PROCESS_GONE, " ".join(told), since=min(gone), headline=headline)


def _unreplaced(signals: Signals, kind: str) -> Sequence[Vanished]:
    """Return the processes of a kind that vanished, without those for which another one was started since.

    A process that has replaced one, which is forgotten then, replaces no other.
    """
    gone = sorted((one for one in signals.vanished if one.kind == kind), key=lambda one: one.at)
    started = sorted(one.since for one in signals.processes if one.kind == kind and not one.has_replaced)
    left = []
    for one in gone:
        later = next((at for at in started if at > one.at), None)
        if later is None:
            left.append(one)
        else:
            started.remove(later)
    return left


def _none_alive(signals: Signals) -> Iterator[Incident]:
    """Find the kinds of processes of which none reports."""
    # Processes show themselves anew within a second or two in a Redis that lost its data.
    if signals.replaced is not None and signals.now - signals.replaced.at <= _A_WHILE:
        return
    alive = {process.kind for process in signals.processes}
    if "worker" not in alive:
        due = f"{signals.due} due. " if signals.due else ""
        loss = "Pushes are recorded, but calls are not handled" if "web" in alive else "Calls are not handled"
        last_at, hint = _last_vanished(signals, "worker")
        yield Incident(_K.NO_WORKER, f"{due}{loss}.{hint}", since=last_at)
    if "web" not in alive:
        are_found = "workers find their calls in the queue some seconds later"
        will_be = "their calls are found in the queue once a worker runs"
        last_at, hint = _last_vanished(signals, "web")
        found = are_found if "worker" in alive else will_be
        yield Incident(_K.NO_WEB, f"Pushes are lost; {found}.{hint}", since=last_at)


def _last_vanished(signals: Signals, kind: str) -> tuple[datetime | None, str]:
    """Return when the last process of a kind vanished, and a sentence about it; nothing if all were shut down."""
    last = max((one for one in signals.vanished if one.kind == kind), key=lambda one: one.at, default=None)
    if last is None:
        return None, ""
    return last.at, f" The last one, on {last.host}, stopped without shutting down: see its platform's log."


def _account_shared(signals: Signals) -> Iterator[Incident]:
    """Find other installations with our account: one that began to work while Redis was away was not kept from it."""
    prefixes = {prefix for one in signals.processes if one.doing for prefix in one.doing.shares_account_with}
    if prefixes:
        detail = f"Workers with CALLKEEPER_REDIS_PREFIX={named(prefixes)} in this Redis act at the same institutions."
        yield Incident(_K.ACCOUNT_SHARED, detail)


def _cut_off(signals: Signals) -> Iterator[Incident]:
    """Find the workers that say that they cannot reach the service although others can."""
    since, foreign = {}, set()
    for process in signals.processes:
        if process.doing is not None and process.doing.cut_off_s is not None:
            since[process.place] = (process.reported_at or signals.now) - timedelta(seconds=process.doing.cut_off_s)
            foreign.add(process.doing.foreign_answer)
    if not since:
        return
    who = f"Worker {next(iter(since))} cannot" if len(since) == 1 else f"{len(since)} workers cannot"
    instead = f" Something between it and the service answers: {named(foreign - {''})}." if foreign - {""} else ""
    detail = f"{named(since)}: no request is answered there, or none over a new connection, and others are.{instead}"
    headline = f"{who} reach the service; others can"
    yield Incident(_K.WORKER_CUT_OFF, detail, since=min(since.values()), headline=headline)


def _service(signals: Signals) -> Iterator[Incident]:
    refused_at = signals.last.at(figure.LOGINS, "LoginRefused")
    accepted_at = signals.last.at(figure.LOGINS, "answered")
    if refused_at and signals.now - refused_at < _LONGEST_GATE and (accepted_at is None or accepted_at < refused_at):
        since = first_refusal(signals.errors.get((ErrorArea.LOGIN, ACCOUNT)), accepted_at, refused_at)
        yield Incident(_K.LOGIN_REFUSED, since=since)
    away = {breaker.institution_key for breaker in signals.breakers if breaker.scope.kind is EndpointKind.CALLS}
    for breaker in signals.breakers:
        if breaker.scope.kind is EndpointKind.CALLS or breaker.institution_key not in away:
            yield _left_alone(breaker)
    if _is_slow(signals):
        yield Incident(_K.SERVICE_SLOW, f"Every request of the last seconds took longer than {SLOW_S:g} s.")


_WITHOUT_A_QUEUE: Final = (
    "Calls without a push are not found, and nobody is assigned to new calls, because candidates come with the queue"
)
_UNLISTED: Final = "The service does not list an institution's calls"


def _left_alone(breaker: Breaker) -> Incident:
    key, since = breaker.institution_key, breaker.since
    if breaker.scope.kind is EndpointKind.QUEUE:
        headline = _UNLISTED if key else "The service does not list calls"
        detail = f"{_WITHOUT_A_QUEUE}: {breaker.words}."
        return Incident(_K.INSTITUTION_FAILS, detail, key, since, headline=headline)
    if breaker.scope.kind is EndpointKind.CHECK:
        return Incident(_K.NO_RESULTS, f"Its calls are handled, but further checks wait: {breaker.words}.", key, since)
    if breaker.why is RequestResult.PAUSE:
        return Incident(_K.RATE_LIMITED, f"No requests are sent until then: {breaker.words}.", key, since)
    if breaker.scope == WHOLE:
        return Incident(_K.SERVICE_AWAY, f"Calls are not handled until it answers again: {breaker.words}.", since=since)
    return Incident(_K.INSTITUTION_FAILS, f"Its calls wait: {breaker.words}.", key, since)


def _is_slow(signals: Signals) -> bool:
    """Tell whether requests were answered in the last seconds, and all of them slowly."""
    fast = [str(n) for n, bound in enumerate(figure.SERVICE_SECONDS.bounds) if bound <= SLOW_S]
    quick = [at for _, part, at in signals.last.rows(figure.SERVICE_SECONDS) if part in fast]
    slow = [
        at for _, part, at in signals.last.rows(figure.SERVICE_SECONDS) if part not in fast and (part or "").isdigit()
    ]
    return bool(slow) and signals.now - max(slow) < _SOON and (not quick or signals.now - max(quick) > _A_WHILE)


def _institutions(signals: Signals) -> Iterator[Incident]:
    yield from _barred(signals)
    yield from _unlisted(signals)
    yield from _unconfirmed(signals)
    if signals.late_s > LATE_S:
        yield Incident(_K.LATE, f"{signals.due} due, the first for {signals.late_s:.0f} s.")
    yield from _listed_rarely(signals)


def _listed_rarely(signals: Signals) -> Iterator[Incident]:
    """Yield an incident if listings wait for permits so long that calls without a push are found much too late."""
    postponed_at = signals.last.at(figure.REQUESTS_POSTPONED, "listing")
    if postponed_at is None or signals.now - postponed_at > _A_WHILE:
        return
    ours = {one.key for one in signals.standings if one.obstacle is None}
    answered = {
        key: signals.now - at
        for (key, outcome), _, at in signals.last.rows(figure.LISTINGS)
        if outcome == "answered" and key in ours and _unlisted_at(signals, key) is None
    }
    ages = [age for age in answered.values() if LISTED_RARELY < age < LISTED_NO_MORE]
    if ages:
        detail = (
            f"{quantity(len(ages), 'queue')} waited over a minute for a listing, up to {max(ages).total_seconds():.0f} s: "
            "calls without a push are found so late."
        )
        yield Incident(_K.RATE_LIMITED, detail, headline="The request limit is too low")


def _barred(signals: Signals) -> Iterator[Incident]:
    for key in sorted({bar.institution_key for bar in signals.barred}):
        bars = [bar for bar in signals.barred if bar.institution_key == key]
        operations = ", ".join(sorted(bar.operation for bar in bars))
        detail = f"It answers {operations} with 401 although the token is good."
        since, (headline, remedy) = min(bar.since for bar in bars), NOT_ALLOWED
        yield Incident(_K.INSTITUTION_FAILS, detail, key, since, headline=headline, remedy=remedy)


def _unlisted(signals: Signals) -> Iterator[Incident]:
    left_alone = {one.institution_key for one in signals.breakers if one.scope.kind is not EndpointKind.CHECK}
    if ACCOUNT in left_alone:
        return
    barred = {bar.institution_key for bar in signals.barred}
    for key in sorted({labels[0] for labels, _, _ in signals.last.rows(figure.LISTINGS)} - barred - left_alone):
        since = _unlisted_at(signals, key)
        if since is None:
            continue
        at = _unanswered_at(signals, key)
        match max(at, key=at.__getitem__):
            case "busy":
                yield Incident(_K.RATE_LIMITED, f"{_WITHOUT_A_QUEUE}: it is answered with 429.", key, since)
            case "refused":
                headline, remedy = NOT_LISTABLE
                yield Incident(
                    _K.INSTITUTION_FAILS, f"{_WITHOUT_A_QUEUE}.", key, since, headline=headline, remedy=remedy
                )
            case _:
                yield Incident(_K.INSTITUTION_FAILS, f"{_WITHOUT_A_QUEUE}.", key, since, headline=_UNLISTED)


def _unconfirmed(signals: Signals) -> Iterator[Incident]:
    detail = (
        "It does not answer for it, and has not named it as Active for 15 minutes. Calls are checked and assigned; enrolls "
        "and rejects wait."
    )
    headline = "The service does not say whether an institution is active"
    known = {one.key: one for one in signals.standings if one.told_at is not None}
    for one in sorted(known.values(), key=lambda one: one.key):
        if one.is_unknown(signals.now):
            yield Incident(_K.INSTITUTION_FAILS, detail, one.key, one.told_at, headline=headline)
    yield from _unknown(
        signals, _listed_lately(signals) - known.keys() - {bar.institution_key for bar in signals.barred}
    )


def _unknown(signals: Signals, keys: Iterable[str]) -> Iterator[Incident]:
    """Yield an incident for each institution of which nothing is known, unless we have just begun to ask."""
    if signals.last.began_at is None or signals.now - signals.last.began_at < _TO_ASK:
        return
    detail = (
        "Nothing is done for its calls: the service's list does not name it, and no request by its key was answered in the "
        "last hour."
    )
    for key in sorted(keys):
        error = signals.errors.get((ErrorArea.STANDING, key))
        since, headline = None if error is None else error.first_at, "Nothing is known of an institution's standing"
        yield Incident(_K.INSTITUTION_FAILS, detail, key, since, headline=headline)


def _listed_lately(signals: Signals) -> set[str]:
    """Return the institutions whose queues were asked for in the last minute: workers act for them."""
    rows = signals.last.rows(figure.LISTINGS)
    return {key for (key, _), _, at in rows if signals.now - at < _MINUTE}


def _unlisted_at(signals: Signals, key: str) -> datetime | None:
    """Return since when an institution is not listed; None if it was listed since or it may be an accident.

    A refusal is an answer and counts at once. A single failure of another kind means little.
    """
    listed_at, at = signals.last.at(figure.LISTINGS, key, "answered"), _unanswered_at(signals, key)
    last = max(at.values(), default=None)
    if last is None or signals.now - last > timedelta(minutes=2):
        return None
    if listed_at is not None and (listed_at >= last or ("refused" not in at and last - listed_at < _A_WHILE)):
        return None
    return first_refusal(signals.errors.get((ErrorArea.QUEUE, key)), listed_at, last)


def _unanswered_at(signals: Signals, key: str) -> dict[str, datetime]:
    """Return when an institution's queue was last not shown, by outcome; a refusal first."""
    last = {outcome: signals.last.at(figure.LISTINGS, key, outcome) for outcome in figure.UNANSWERED_LISTINGS}
    return {outcome: at for outcome, at in last.items() if at is not None}


def _receiver(signals: Signals) -> Iterator[Incident]:
    """Yield an incident if the breaker is open, or if nothing was accepted for a minute: few posts open no breaker."""
    breaker, untaken = signals.receiver, signals.untaken_since
    is_long = untaken is not None and abs(signals.now - untaken) > _MINUTE  # ahead of now: the clock was set back
    error = signals.errors.get((ErrorArea.OUTCOMES, ACCOUNT))
    is_silent = error is not None and not error.words.startswith(ANSWERED)
    if breaker is not None or (is_long and is_silent):
        # The breaker opens with the fifth failure in a row, minutes after the first where there are few posts.
        instants = (untaken, None if breaker is None else breaker.since)
        since = min((at for at in instants if at is not None), default=None)
        yield Incident(_K.RECEIVER_AWAY, since=since, headline="The webhook receiver does not answer")
    elif is_long:
        detail, headline = "It answers and refuses.", "The webhook receiver accepts nothing"
        yield Incident(_K.RECEIVER_AWAY, detail, since=untaken, headline=headline)


def _others(signals: Signals) -> Iterator[Incident]:
    late = sum(minute.figures.count(figure.WRITES_UNREPLICATED) for minute in signals.minutes)
    if late:
        yield Incident(_K.REPLICA_BEHIND, f"No replica had {late} writes of the last ten minutes within 0.1 s.")
    yield from _receiver(signals)
    if signals.archive is not None:
        yield Incident(_K.ARCHIVE_AWAY, "Settled calls wait in Redis.", since=signals.archive.since)
    if signals.emergency_login_at is not None:
        yield Incident(_K.EMERGENCY_LOGIN, CAUSES[_K.EMERGENCY_LOGIN].see, since=signals.emergency_login_at)
    apart = [process for process in signals.processes if abs(process.ahead_s) >= SKEW_S]
    if apart:
        worst = max(apart, key=lambda process: abs(process.ahead_s))
        yield Incident(_K.CLOCKS_APART, f"The clock of {worst.host} is {worst.ahead_s:+.0f} s from Redis's.")
