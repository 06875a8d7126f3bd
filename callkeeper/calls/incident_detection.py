"""What is wrong with the installation now, causes before symptoms. A pure function of `callkeeper.calls.metrics.signals`.

The board, the doctor, the metrics and the alerts all use this list. Each kind has a section in docs/operations.md. An
incident ends with its cause, so nothing here is counted over a longer time than the end of the cause takes to show.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from callkeeper.calls.acknowledgement import acknowledgement_of
from callkeeper.calls.incident import Incident, IncidentKind, named
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.signals import UNSTARTED_KEPT_S, Replaced, Signals
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
    found = list(
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
    found += [one for one in quiet_outages(signals) if (one.kind, one.institution_key) not in found_already]
    unlisted = {one.institution_key for one in found if one.kind is _K.NOT_LISTED}
    return [one for one in found if one.kind is not _K.NO_PUSH or one.institution_key not in unlisted]


def symptoms_of(found: Iterable[Incident]) -> frozenset[IncidentKind]:
    """Return the kinds that follow from what was found. While it lasts, nobody can tell whether they are over."""
    return frozenset().union(*(_SYMPTOMS.get(incident.kind, frozenset()) for incident in found))


def _detailed(incident: Incident, signals: Signals) -> Incident:
    """Add what the last error said, and who has acknowledged it. Some faults have a remedy of their own."""
    kind, key = incident.kind, incident.institution_key
    since = incident.since if kind in _EVENTS else None
    known = [one for one in signals.acknowledged if since is None or one.at >= since]
    incident = replace(incident, acknowledged=acknowledgement_of(kind, key, known))
    error = error_behind(kind, key, signals.errors)
    if error is None:
        return incident
    words = fault_words(error.fault) if kind in _BY_FAULT else None
    title, advice = words or (incident.title, incident.advice)
    return replace(incident, last_error=error.words.rstrip("."), title=title, advice=advice)


_EVENTS: Final = frozenset({_K.EMERGENCY_LOGIN, _K.REDIS_REPLACED})
"""They happen at one moment and are shown for some time. Who knows of one does not know of the next."""

_BY_FAULT: Final = frozenset({_K.SERVICE_AWAY, _K.INSTITUTION_AWAY, _K.LISTING_REFUSED})
_OF_AN_OUTAGE: Final = frozenset(
    {
        *(_K.SERVICE_SLOW, _K.LATE, _K.INSTITUTION_AWAY, _K.LISTING_REFUSED, _K.STANDING_UNCONFIRMED, _K.NO_PUSH),
        *(_K.REQUESTS_FAIL, _K.NO_RESULTS, _K.NOT_LISTED, _K.LIMIT_TOO_LOW, _K.WORKER_CUT_OFF),
    }
)
_SYMPTOMS: Final = {
    # Processes cannot report to a Redis that refuses writes.
    _K.REDIS_REFUSES: frozenset(
        {
            *(_K.NO_WORKER, _K.NO_WEB, _K.WORKER_VANISHED, _K.LATE, _K.NO_PUSH),
            *(_K.VERSIONS_DIFFER, _K.RULES_DIFFER, _K.SETTINGS_DIFFER),
        }
    ),
    _K.NO_WORKER: frozenset({_K.LATE}),
    _K.NO_WEB: frozenset({_K.NO_PUSH, _K.PUSHES_REFUSED}),
    _K.LOGIN_REFUSED: _OF_AN_OUTAGE | {_K.SERVICE_AWAY, _K.INSTITUTION_REFUSED},
    _K.SERVICE_AWAY: _OF_AN_OUTAGE,
    _K.SERVICE_SLOW: frozenset({_K.LATE}),
}


def _redis(signals: Signals) -> Iterator[Incident]:
    if signals.refusal is not None:
        words = REFUSALS[signals.refusal]
        advice = f"{words.advice} Meanwhile pushes get 503 and calls are not handled. More workers do not help."
        yield Incident(_K.REDIS_REFUSES, f"Redis refuses writes: {words.what}", advice)
    replaced = signals.replaced
    is_told = replaced is not None and replaced.is_empty and replaced.restored  # by the pause, until it is resumed
    is_recent = replaced is not None and not is_told and signals.now - replaced.at <= REPLACED_SHOWN
    if replaced is not None and (replaced.standing or replaced.again or is_recent):
        lost = (
            "Everything in it is gone: users, desk tokens and sessions, the audit log and settled calls that are not in the "
            "archive. Add users and tokens again. Live calls are found again, and their checks count as spent. "
            if replaced.is_empty
            else "It is an older one, or was restarted without its last writes. Users, desk tokens and sessions that were "
            "removed since are valid again: remove them again. What was added since may be gone, also audit lines and "
            "outcomes. Live calls are read again. "
        )
        yield Incident(
            _K.REDIS_REPLACED,
            "Redis was replaced",
            lost + _restored(replaced),
            since=replaced.at,
            limited_advice=f"{lost}The pauses that are in force are shown.",
        )


def _restored(replaced: Replaced) -> str:
    told = []
    if replaced.restored:
        told.append(f"Restored: the pause of {_places(replaced.restored)}.")
    if replaced.again:
        told.append(f"In force now, and not before Redis was replaced: the pause of {_places(replaced.again)}.")
    if not told:
        return "No process remembers a pause that is missing now. If you had paused something, pause it again."
    return f"{' '.join(told)} Resume what is no longer needed."


def _places(keys: Sequence[str]) -> str:
    return ", ".join("all institutions" if key == EVERYWHERE else key for key in keys)


def _processes(signals: Signals) -> Iterator[Incident]:
    yield from _not_started(signals)
    yield from _none_alive(signals)
    yield from _account_shared(signals)
    yield from _cut_off(signals)
    yield from process_differences(signals)


def _not_started(signals: Signals) -> Iterator[Incident]:
    gone = [one for one in signals.unstarted if signals.now - one.at <= timedelta(seconds=UNSTARTED_KEPT_S)]
    if not gone:
        return
    names = named({f"{one.kind} on {one.host}" for one in gone})
    advice = f"The rules or settings have errors: {names}. The log there names each. Correct them and start it again."
    title = f"{len(gone)} processes did not start" if len(gone) > 1 else f"A {gone[0].kind} process did not start"
    yield Incident(_K.NOT_STARTED, title, advice, since=min(one.at for one in gone))


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
        yield Incident(_K.NO_WORKER, "No worker is alive", f"{due}{loss}. Start workers.{hint}", since=last_at)
    if "web" not in alive:
        are_found = "workers find their calls in the queue some seconds later"
        will_be = "their calls are found in the queue once a worker runs"
        last_at, hint = _last_vanished(signals, "web")
        advice = (
            f"Pushes are lost, because the service sends each only once; {are_found if 'worker' in alive else will_be}. "
            f"The board and the desk API do not answer. Start callkeeper web.{hint}"
        )
        yield Incident(_K.NO_WEB, "No web process is alive", advice, since=last_at)


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
        advice = (
            f"Workers with CALLKEEPER_REDIS_PREFIX={named(prefixes)} in this Redis use our service account for the same "
            "institutions: each call is checked, enrolled and rejected twice. If that prefix is misspelled, correct it; "
            "else stop the workers of one installation, or give each its own CALLKEEPER_INSTITUTIONS."
        )
        yield Incident(_K.ACCOUNT_SHARED, "Another installation works with our account", advice)


def _cut_off(signals: Signals) -> Iterator[Incident]:
    """Find the workers that say that they cannot reach the service although others can."""
    since, foreign = {}, set()
    for process in signals.processes:
        if process.doing is not None and process.doing.cut_off_s is not None:
            since[process.place] = (process.reported_at or signals.now) - timedelta(seconds=process.doing.cut_off_s)
            foreign.add(process.doing.foreign_answer)
    if not since:
        return
    title = f"Worker {next(iter(since))} cannot" if len(since) == 1 else f"{len(since)} workers cannot"
    instead = f" Something between it and the service answers: {named(foreign - {''})}." if foreign - {""} else ""
    advice = (
        f"{named(since)}: no request is answered there, or none over a new connection, and others are.{instead} The fault "
        "is on that host: its network, firewall, NAT, proxy, name server, certificates, or CALLKEEPER_SERVICE_URL. The "
        "others do its work. It tries every two seconds and works on by itself; if that takes long, stop it."
    )
    yield Incident(_K.WORKER_CUT_OFF, f"{title} reach the service; others can", advice, since=min(since.values()))


def _service(signals: Signals) -> Iterator[Incident]:
    refused_at = signals.last.at(figure.LOGINS, "LoginRefused")
    accepted_at = signals.last.at(figure.LOGINS, "answered")
    if refused_at and signals.now - refused_at < _LONGEST_GATE and (accepted_at is None or accepted_at < refused_at):
        advice = (
            "Compare the service account's settings with the credentials from onboarding, correct them and restart the "
            "workers. If the fault was the service's and is corrected, run: callkeeper service retry."
        )
        since = first_refusal(signals.errors.get((ErrorArea.LOGIN, ACCOUNT)), accepted_at, refused_at)
        yield Incident(_K.LOGIN_REFUSED, "The service refuses our login", advice, since=since)
    away = {breaker.institution_key for breaker in signals.breakers if breaker.scope.kind is EndpointKind.CALLS}
    for breaker in signals.breakers:
        if breaker.scope.kind is EndpointKind.CALLS or breaker.institution_key not in away:
            yield _left_alone(breaker)
    if _is_slow(signals):
        advice = f"Every request of the last seconds took longer than {SLOW_S:g} s. Checks come late; ask its operator."
        yield Incident(_K.SERVICE_SLOW, "The service is slow", advice)


_WITHOUT_A_QUEUE: Final = (
    "Calls without a push are not found, and nobody is assigned to new calls, because candidates come with the queue"
)


def _left_alone(breaker: Breaker) -> Incident:
    key, since = breaker.institution_key, breaker.since
    if breaker.scope.kind is EndpointKind.QUEUE:
        title = "The service does not list an institution's calls" if key else "The service does not list calls"
        advice = f"{_WITHOUT_A_QUEUE}: {breaker.words}."
        return Incident(_K.LISTING_REFUSED, title, advice, key, since)
    if breaker.scope.kind is EndpointKind.CHECK:
        advice = f"Its calls are handled, but further checks wait: {breaker.words}. Ask the service's operator."
        return Incident(_K.NO_RESULTS, "Checks bring no results", advice, key, since)
    if breaker.why is RequestResult.PAUSE:
        advice = (
            f"No requests are sent until then: {breaker.words}. If it lasts, ask the service's operator for the allowed "
            "rate, and set CALLKEEPER_SERVICE_RPS."
        )
        return Incident(_K.RATE_LIMITED, "The service limits our requests", advice, key, since)
    if breaker.scope == WHOLE:
        advice = f"Calls are not handled until it answers again: {breaker.words}."
        return Incident(_K.SERVICE_AWAY, "The service is away", advice, since=since)
    advice = f"Its calls wait; other institutions are not affected: {breaker.words}."
    return Incident(_K.INSTITUTION_AWAY, "The service fails for an institution", advice, key, since)


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
        advice = f"{signals.due} due, the first for {signals.late_s:.0f} s. Start more workers, or look at their logs."
        yield Incident(_K.LATE, "Calls are late", advice)
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
        advice = (
            f"{quantity(len(ages), 'queue')} waited over a minute for a listing, up to {max(ages).total_seconds():.0f} s: "
            "calls without a push are found so late. Ask the service for a higher rate (CALLKEEPER_SERVICE_RPS)."
        )
        yield Incident(_K.LIMIT_TOO_LOW, "The request limit is too low", advice)


def _barred(signals: Signals) -> Iterator[Incident]:
    for key in sorted({bar.institution_key for bar in signals.barred}):
        bars = [bar for bar in signals.barred if bar.institution_key == key]
        advice = (
            f"It answers {', '.join(sorted(bar.operation for bar in bars))} with 401 although the token is good. Other "
            "institutions are not affected. Ask the service's operator what the account may do there."
        )
        since = min(bar.since for bar in bars)
        yield Incident(_K.INSTITUTION_REFUSED, "The service refuses an institution", advice, key, since)


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
                kind, title = _K.RATE_LIMITED, "The service limits our requests"
                ask = (
                    "Its queue is answered with 429. Ask the service's operator for the allowed rate, and set "
                    "CALLKEEPER_SERVICE_RPS."
                )
            case "refused":
                kind, title = _K.LISTING_REFUSED, "The service refuses to list an institution's calls"
                ask = "Is the name in CALLKEEPER_REQUESTED_BY a core username there?"
            case _:
                kind, title = _K.LISTING_REFUSED, "The service does not list an institution's calls"
                ask = "Ask the service's operator."
        yield Incident(kind, title, f"{_WITHOUT_A_QUEUE}. {ask}", key, since)


def _unconfirmed(signals: Signals) -> Iterator[Incident]:
    advice = (
        "It does not answer for it, and has not named it as Active for 15 minutes. Calls are checked and assigned; enrolls "
        "and rejects wait. Ask the service's operator."
    )
    title = "The service does not say whether an institution is active"
    known = {one.key: one for one in signals.standings if one.told_at is not None}
    for one in sorted(known.values(), key=lambda one: one.key):
        if one.is_unknown(signals.now):
            yield Incident(_K.STANDING_UNCONFIRMED, title, advice, one.key, one.told_at)
    yield from _unknown(
        signals, _listed_lately(signals) - known.keys() - {bar.institution_key for bar in signals.barred}
    )


def _unknown(signals: Signals, keys: Iterable[str]) -> Iterator[Incident]:
    """Yield an incident for each institution of which nothing is known, unless we have just begun to ask."""
    if signals.last.began_at is None or signals.now - signals.last.began_at < _TO_ASK:
        return
    advice = (
        "Nothing is done for its calls: the service's list does not name it, and no request by its key was answered in the "
        "last hour. Ask the service's operator."
    )
    for key in sorted(keys):
        error = signals.errors.get((ErrorArea.STANDING, key))
        since = None if error is None else error.first_at
        yield Incident(_K.STANDING_UNCONFIRMED, "Nothing is known of an institution's standing", advice, key, since)


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
        advice = "Outcomes wait for it and are sent when it answers, within a day. Look at CALLKEEPER_OUTCOME_URL."
        # The breaker opens with the fifth failure in a row, minutes after the first where there are few posts.
        instants = (untaken, None if breaker is None else breaker.since)
        since = min((at for at in instants if at is not None), default=None)
        yield Incident(_K.RECEIVER_AWAY, "The webhook receiver does not answer", advice, since=since)
    elif is_long:
        advice = (
            "It answers and refuses. Outcomes are posted again, for a day each; then they wait for a person. Was its secret "
            "changed? callkeeper outcomes log --failed shows its answers."
        )
        yield Incident(_K.RECEIVER_AWAY, "The webhook receiver accepts nothing", advice, since=untaken)


def _others(signals: Signals) -> Iterator[Incident]:
    late = sum(minute.figures.count(figure.WRITES_UNREPLICATED) for minute in signals.minutes)
    if late:
        advice = (
            f"No replica had {late} writes of the last ten minutes within 0.1 s: a failover could lose such "
            "writes. Look at the replica and its connection."
        )
        yield Incident(_K.REPLICA_BEHIND, "The Redis replica falls behind", advice)
    yield from _receiver(signals)
    if signals.archive is not None:
        advice = (
            "Settled calls wait in Redis, do not expire, and are archived when the database can be used. Watch Redis's "
            "memory; run callkeeper doctor."
        )
        yield Incident(_K.ARCHIVE_AWAY, "The archive cannot be written", advice, since=signals.archive.since)
    if signals.emergency_login_at is not None:
        advice = (
            "Somebody logged in with CALLKEEPER_ADMIN from another machine: ask who and why. If nobody knows, change its "
            "password. This line disappears a day after the last use."
        )
        yield Incident(_K.EMERGENCY_LOGIN, "The emergency login was used", advice, since=signals.emergency_login_at)
    apart = [process for process in signals.processes if abs(process.ahead_s) >= SKEW_S]
    if apart:
        worst = max(apart, key=lambda process: abs(process.ahead_s))
        advice = (
            f"The clock of {worst.host} is {worst.ahead_s:+.0f} s from Redis's. Calls are handled correctly, but logs and "
            "trails are hard to compare. Synchronise the machines (NTP)."
        )
        yield Incident(_K.CLOCKS_APART, "Clocks differ", advice)
