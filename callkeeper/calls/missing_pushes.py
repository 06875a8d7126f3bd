"""Calls that the queue shows before their push arrives, and why: pushes are refused, late, or do not arrive at all."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from callkeeper.calls.causes import PUSHES_LATE, IncidentKind
from callkeeper.calls.incident import Incident
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.signals import Signals
from callkeeper.calls.metrics.snapshot import Spread
from callkeeper.calls.quiet_outages import IN_A_ROW
from callkeeper.calls.store.breakers import ACCOUNT

REPEATED: Final = 3
"""This many refused pushes in ten minutes are no accident."""

LATE_PUSH_S: Final = 15.0
"""A push that arrives later than this after its event is late. By then the queue has shown the call."""

REFUSED_WITHIN: Final = timedelta(seconds=30)
"""The longest time from a push that is refused for its header until its call is found by the queue."""

_LATELY: Final = timedelta(minutes=2)
_MINUTE: Final = timedelta(minutes=1)
_A_WHILE: Final = timedelta(seconds=10)
_BATCH: Final = timedelta(seconds=1.5)
"""Counts are written once a second. Of two that lie this close together, the order is unknown."""

_K: Final = IncidentKind


def missing_pushes(signals: Signals) -> Iterator[Incident]:
    """Yield an incident for each reason why calls come without their pushes."""
    missing, late_s = _unpushed(signals), _lateness_s(signals)
    late = [] if late_s is None else [_late(key, late_s) for key in sorted(missing) if _came_lately(key, signals)]
    yield from late
    covered = {incident.institution_key for incident in late}
    refused = _refused_pushes(signals, {key: at for key, at in missing.items() if key not in covered})
    yield from refused
    covered |= {incident.institution_key for incident in refused}
    if ACCOUNT in covered:
        return  # that no pushes arrive follows from it
    yield from (one for one in _no_pushes(signals) if one.institution_key not in covered)


def _no_pushes(signals: Signals) -> Iterator[Incident]:
    for (key, result), _, at in sorted(signals.last.rows(figure.CALLS_PUSHED)):
        calls = signals.lately.in_a_row(figure.CALLS_PUSHED, key, result)
        if calls >= IN_A_ROW and not _is_over(signals, at):
            detail = f"The queue showed {calls} new calls in a row that were not pushed."
            yield Incident(_K.NO_PUSH, detail, key, signals.last.at(figure.CALLS_PUSHED, key, "came"))


def _refused_pushes(signals: Signals, missing: Mapping[str, datetime | None]) -> list[Incident]:
    """Return an incident if pushes are refused for their header, and pushes of calls are missing.

    Strangers can send what is refused, so refusals alone say nothing: calls must come that only the queue shows. If
    other pushes are accepted, it is about the institutions of those calls.
    """
    refused_at = signals.last.at(figure.PUSHES_REFUSED, "credentials")
    if refused_at is None:
        return []
    missing = {key: at for key, at in missing.items() if _may_be_refused(key, refused_at, signals)}
    refusals = [
        (minute.at, minute.figures.count(figure.PUSHES_REFUSED, reason="credentials")) for minute in signals.minutes
    ]
    if sum(count for _, count in refusals) < REPEATED or not missing:
        return []
    taken = [at for labels, _, at in signals.last.rows(figure.PUSHES) if labels != ("doctor",)]
    is_accepted = bool(taken) and max(taken) + _BATCH >= refused_at
    found = []
    for key, pushed_at in sorted(missing.items()) if is_accepted else [(ACCOUNT, max(taken, default=None))]:
        begun = (at for at, count in refusals if count and (pushed_at is None or at + _MINUTE > pushed_at))
        since = max(min(begun, default=refused_at), pushed_at or signals.minutes[0].at)
        headline = "Pushes of an institution are refused: wrong header" if key else ""
        found.append(Incident(_K.PUSHES_REFUSED, "", key, min(since, refused_at), headline=headline))
    return found


def _unpushed(signals: Signals) -> dict[str, datetime | None]:
    """Return the institutions whose last new calls the queue showed before a push, and when a push last came before one.

    One such call within seconds of a pushed one may have been a race; three in a row are none.
    """
    found: dict[str, datetime | None] = {}
    for (key, result), _, at in signals.last.rows(figure.CALLS_PUSHED):
        if result != "missing" or _is_over(signals, at):
            continue
        pushed_at = signals.last.at(figure.CALLS_FOUND, key, "push")
        in_a_row = signals.lately.in_a_row(figure.CALLS_PUSHED, key, "missing")
        if pushed_at is None or pushed_at + _A_WHILE < at or in_a_row >= IN_A_ROW:
            found[key] = pushed_at
    return found


def _may_be_refused(key: str, refused_at: datetime, signals: Signals) -> bool:
    """Tell whether an institution's last missing push may be among those that were refused.

    It is not if one has come since, which was late, or if no push was refused since shortly before its call was found.
    """
    came_at, missing_at = (signals.last.at(figure.CALLS_PUSHED, key, result) for result in ("came", "missing"))
    if missing_at is None:
        return came_at is None
    has_come = came_at is not None and came_at + _BATCH >= missing_at
    return not has_come and refused_at >= missing_at - REFUSED_WITHIN


def _came_lately(key: str, signals: Signals) -> bool:
    came_at = signals.last.at(figure.CALLS_PUSHED, key, "came")
    return came_at is not None and signals.now - came_at < _LATELY


def _is_over(signals: Signals, at: datetime) -> bool:
    """Tell whether a missing push is too old, was followed by an accepted sample, or came to nobody, because of us."""
    tested_at, began_at = signals.last.at(figure.PUSHES, "sample"), signals.last.began_at
    is_tested = tested_at is not None and tested_at > at
    # The queue shows a call up to ten seconds after its push, which may have been lost before we began.
    is_ours = began_at is not None and at < began_at + _A_WHILE
    return is_tested or is_ours or signals.now - at > timedelta(minutes=10)


def _lateness_s(signals: Signals) -> float | None:
    """Return how late pushes arrived lately, in seconds; None if they did not. Clocks that differ look the same."""
    lags = Spread.empty(figure.PUSH_LAG)
    for minute in signals.minutes:
        if signals.now - minute.at < _LATELY:
            lags.add(minute.figures.spread(figure.PUSH_LAG))
    median = lags.quantile(0.5)
    return median if median is not None and lags.n >= REPEATED and median >= LATE_PUSH_S else None


def _late(key: str, late_s: float) -> Incident:
    detail = (
        f"They come {late_s:.0f} s late or more, after the queue has shown their calls. Nothing is lost, and the header is "
        "right: something before the web process holds them back, or the service sends them late."
    )
    return Incident(_K.NO_PUSH, detail, key, headline=PUSHES_LATE[0], remedy=PUSHES_LATE[1])
