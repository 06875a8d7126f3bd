"""Quiet outages: everything answers, but not as it should. Pure functions of the signals.

Each is judged by rows: how often something went wrong since it last went well (`Figure.good`), so that it ends with the
first good one; or by counts of the last minutes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from callkeeper.calls.causes import TOKENS_LAPSE, IncidentKind
from callkeeper.calls.incident import Incident
from callkeeper.calls.institutions import NOT_ACTIVE, OBSTACLES, REMEDIES
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.catalogue import Figure
from callkeeper.calls.metrics.signals import Signals
from callkeeper.calls.metrics.snapshot import Snapshot
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.breakers import EndpointKind
from callkeeper.calls.survey import Contradiction, contradictions

QUEUE: Final = "queue"
"""The endpoint that lists calls."""

DETAILS: Final = "details"
"""The endpoint that reads a call's record."""

EFFECTS: Final = ("assign", "enroll", "reject-voice")
"""The endpoints that change something. They share a breaker with reads, whose answers clear its failures."""

NOT_OURS: Final = "unknown"
"""The label of all institutions that are not ours."""

IN_A_ROW: Final = 3
"""This many calls in a row are no accident."""

LAPSES: Final = 4
"""With this many logins in two minutes, tokens do not last. The very first login and one lapse are normal."""

SILENT_CALLS: Final = 8
"""If the provider says nothing of the voice in this many calls in a row, something is wrong. A few have no voiceprint."""

DISTURBED: Final = 6
"""With this many failures in two minutes between answers, or in four without any, requests fail. Five in a row open a
breaker, if no other request about the institution's calls is answered meanwhile."""

SILENT_MINUTES: Final = 4
"""For how many minutes failures without any answer count. Of an endpoint with few requests, as many as are told must be
left when a minute begins: else people are told every minute that it is over, and that it began."""

FAILURES: Final = frozenset(
    {"ServiceUnavailable", "OutcomeUnknown", "AnswerUnreadable", "CertificateRefused", "NotSent"}
)
"""The outcomes of requests without a usable answer. Refusals and answers that ask for a pause have signs of their own."""

UNKNOWN_CALLS: Final = 20
"""If this many reads in two minutes find no call, the calls are not to blame: each is read four times in that time."""

DISTURBED_SHARE: Final = 0.15
"""The least share of all requests that are such failures. If half of all fail at random, a quarter follows an answer."""

_LATELY: Final = timedelta(minutes=10)
"""How old the last bad one may be. Without calls nobody knows whether it is over."""

_ONE_LISTING: Final = timedelta(seconds=8)
_UNDER_WAY: Final = timedelta(seconds=10)
"""How long requests may go on that were sent before a breaker opened."""

_JUST_NOW: Final = timedelta(seconds=30)
_TWO_MINUTES: Final = timedelta(minutes=2)
_GONE: Final = timedelta(seconds=90)
"""It is over this long after the last one: people are told within two minutes."""


def quiet_outages(signals: Signals) -> Iterator[Incident]:
    """Yield what is wrong, the most harmful first."""
    yield from _no_results(signals)
    yield from _not_listed(signals)
    yield from list(_lapsing_tokens(signals)) or _requests_fail(signals)  # requests fail because tokens lapse
    yield from _not_active(signals)
    yield from _unknown_names(signals)
    yield from _assumptions(signals)


def _rows(signals: Signals, of: Figure, bad: str, least: int) -> Iterator[tuple[str, int]]:
    """Yield the institutions with a row of something bad that grew lately, and how long the row is."""
    for labels, _, at in sorted(signals.last.rows(of)):
        key, value = labels[0], labels[-1]
        count = signals.lately.in_a_row(of, *labels) if value == bad and key != NOT_OURS else 0
        if count >= least and signals.now - at <= _LATELY:
            yield key, count


def _no_results(signals: Signals) -> Iterator[Incident]:
    pending = dict(_rows(signals, figure.PROVIDER_ANSWERS, "pending", IN_A_ROW))
    silent = dict(_rows(signals, figure.PROVIDER_ANSWERS, "silent", SILENT_CALLS))
    for key in sorted(pending | silent):
        shown_at = signals.last.at(figure.PROVIDER_ANSWERS, key, "shown")
        if key not in pending and shown_at is None:
            continue  # a new institution, whose members have no voiceprints yet
        what = (
            f"{pending[key]} calls in a row are still pending after eight checks"
            if key in pending
            else f"{silent[key]} calls in a row have nothing after eight checks, not even a policy"
        )
        detail = f"{what}. Its callers are neither green nor red."
        yield Incident(IncidentKind.NO_RESULTS, detail, key, shown_at)


def _not_listed(signals: Signals) -> Iterator[Incident]:
    for key, count in _rows(signals, figure.PUSHED_CALLS, "unlisted", IN_A_ROW):
        if not _answers(signals, key):
            continue  # that the queue is not listed is an incident of its own
        detail = (
            f"Its queue answers, and shows none of the last {count} pushed calls: nobody is assigned to them, and they are "
            "neither checked nor enrolled."
        )
        yield Incident(IncidentKind.NOT_LISTED, detail, key, signals.last.at(figure.PUSHED_CALLS, key, "listed"))


def _answers(signals: Signals, key: str) -> bool:
    """Tell whether the last listing of an institution's queue was answered."""
    answered_at = signals.last.at(figure.LISTINGS, key, "answered")
    others = (signals.last.at(figure.LISTINGS, key, outcome) for outcome in figure.UNANSWERED_LISTINGS)
    return answered_at is not None and all(other is None or other <= answered_at for other in others)


def _lapsing_tokens(signals: Signals) -> Iterator[Incident]:
    """Yield an incident if tokens lapse long before the 30 minutes that the Spec gives them: each lapse costs a login."""
    recent = signals.minutes[-2:]
    logins = sum(minute.figures.count(figure.LOGINS, outcome="answered") for minute in recent)
    if logins >= LAPSES:
        detail = (
            f"{logins} logins in two minutes, though a token lasts for 30. Requests are refused with 401 and repeated, so "
            "calls of every institution come late."
        )
        headline, remedy = TOKENS_LAPSE
        yield Incident(IncidentKind.REQUESTS_FAIL, detail, headline=headline, remedy=remedy)


def _requests_fail(signals: Signals) -> Iterator[Incident]:
    recent = [minute.figures for minute in signals.minutes[-2:]]
    rates: dict[str, str] = {}
    begun: list[datetime | None] = []
    for (endpoint,), _, at in sorted(signals.last.rows(figure.REQUESTS_DISTURBED)):
        disturbed = sum(minute.count(figure.REQUESTS_DISTURBED, endpoint=endpoint) for minute in recent)
        outcomes = _outcomes(recent, endpoint)
        if endpoint == QUEUE and (_has_silent_queue(signals) or _is_of_one_queue(recent)):
            continue  # that a queue is not listed is an incident of its own
        if disturbed < DISTURBED or disturbed < DISTURBED_SHARE * outcomes.total() or signals.now - at > _JUST_NOW:
            continue
        failed = outcomes.total() - outcomes["answered"]
        rates[endpoint] = f"{endpoint}: {failed} of {outcomes.total()} in two minutes"
        disturbed_at = (
            one.at for one in signals.minutes[-2:] if one.figures.count(figure.REQUESTS_DISTURBED, endpoint=endpoint)
        )
        begun.append(next(disturbed_at, None))
    longer = [minute.figures for minute in signals.minutes[-SILENT_MINUTES:]]
    for endpoint in (DETAILS, *EFFECTS):
        if endpoint not in rates and _is_silent(signals, longer, endpoint):
            rates[endpoint] = f"{endpoint}: none of the last {_unanswered(longer, endpoint).total()} was answered"
            begun.append(signals.last.at(figure.SERVICE_REQUESTS, endpoint, "answered"))
    if (unknown := _unknown_calls(recent)) is not None:
        rates.setdefault(DETAILS, unknown)
    if rates:
        lost = ", and an assign, enroll or reject is hardly ever sent again" if rates.keys() & {*EFFECTS} else ""
        detail = (
            f"{'. '.join(rates.values())}. Calls of every institution may be affected: reads that fail are tried again, so "
            f"they come late; checks that fail are spent{lost}."
        )
        since = min((at for at in begun if at is not None), default=None)
        yield Incident(IncidentKind.REQUESTS_FAIL, detail, since=since)


def _is_silent(signals: Signals, recent: Sequence[Snapshot], endpoint: str) -> bool:
    """Tell whether an endpoint answers none of its requests, and no breaker or bar explains that.

    Requests of an institution whose breaker is open are kept back, but for reads that test it. So effects that fail later
    are others'. Answered reads close a breaker, or let it never open: it has no kind of its own for each endpoint.
    """
    outcomes = _unanswered(recent, endpoint)
    at = [signals.last.at(figure.SERVICE_REQUESTS, endpoint, outcome) for outcome in FAILURES]
    failed_at = max((one for one in at if one is not None), default=None)
    if sum(outcomes[one] for one in FAILURES) < DISTURBED or failed_at is None:
        return False
    kept_back = [
        one.since for one in signals.breakers if one.scope.kind is EndpointKind.CALLS and one.since is not None
    ]
    is_kept_back = any(endpoint == DETAILS or failed_at <= since + _UNDER_WAY for since in kept_back)
    is_barred = any(bar.operation == endpoint for bar in signals.barred)
    return signals.now - failed_at <= _JUST_NOW and not (is_kept_back or is_barred)


def _unanswered(recent: Sequence[Snapshot], endpoint: str) -> Counter[str]:
    """Count the requests to an endpoint by outcome, in the minutes since one was answered."""
    return _outcomes(
        list(takewhile(lambda one: not _outcomes([one], endpoint)["answered"], reversed(recent))), endpoint
    )


def _outcomes(recent: Sequence[Snapshot], endpoint: str) -> Counter[str]:
    """Count the requests to an endpoint by outcome."""
    return sum((minute.by(figure.SERVICE_REQUESTS, "outcome", endpoint=endpoint) for minute in recent), Counter())


def _unknown_calls(recent: Sequence[Snapshot]) -> str | None:
    """Describe how many reads of details found no such call; None if any was answered."""
    outcomes = _outcomes(recent, DETAILS)
    if outcomes["CallNotFound"] < UNKNOWN_CALLS or outcomes["answered"]:
        return None
    return f"{DETAILS}: {outcomes['CallNotFound']} of {outcomes.total()} in two minutes, because it knows no such call"


def _is_of_one_queue(recent: Sequence[Snapshot]) -> bool:
    """Tell whether one institution's listings fail or failed, between the answered ones of others."""
    keys = {is_good: set[str]() for is_good in (True, False)}
    for minute in recent:
        for (key, outcome), _ in minute.rows(figure.LISTINGS):
            keys[outcome == "answered"].add(key)
    return len(keys[False]) == 1 and bool(keys[True] - keys[False])


def _has_silent_queue(signals: Signals) -> bool:
    """Tell whether an institution's queue is asked, and only fails."""
    listings = {labels: at for labels, _, at in signals.last.rows(figure.LISTINGS)}
    failed = ((listings.get((key, "answered")), at) for (key, outcome), at in listings.items() if outcome != "answered")
    return any(
        signals.now - at <= _TWO_MINUTES and (answered_at is None or at - answered_at > _ONE_LISTING)
        for answered_at, at in failed
    )


def _not_active(signals: Signals) -> Iterator[Incident]:
    for one in sorted(signals.standings, key=lambda one: one.key):
        count = signals.open_calls.get(one.key, 0)
        pushed_at = _pushed_at(signals, one.key)
        is_pushed = pushed_at is not None and signals.now - pushed_at <= _TWO_MINUTES
        # One that was never handled stays quiet, as on a staging host.
        was_handled = one.obstacle == NOT_ACTIVE or signals.last.at(figure.LISTINGS, one.key, "answered") is not None
        if one.obstacle is None or not was_handled or not (count or is_pushed):
            continue
        named_as = f"names it as {one.status}" if one.status else "does not name it as Active"
        says = named_as if one.obstacle == NOT_ACTIVE else f"says that {OBSTACLES[one.obstacle]}"
        calls = quantity(count, "live call") if count else "pushed calls"
        detail = f"The service {says}, and it has {calls}: nothing is assigned, checked, enrolled or rejected there."
        remedy = f"To end that, {REMEDIES[one.obstacle]}, or take it out of CALLKEEPER_INSTITUTIONS."
        yield Incident(IncidentKind.NOT_ACTIVE, detail, one.key, remedy=remedy)


def _pushed_at(signals: Signals, key: str) -> datetime | None:
    seen = (signals.last.at(figure.CALLS_FOUND, key, "push"), signals.last.at(figure.HINTS_DROPPED, key))
    return max((at for at in seen if at is not None), default=None)


def _unknown_names(signals: Signals) -> Iterator[Incident]:
    counts: Counter[str] = Counter()
    begun: dict[str, datetime] = {}
    for minute in signals.minutes:
        for (key, result), n in minute.figures.rows(figure.POLICIES_SHOWN):
            if result != "classified" and key != NOT_OURS:
                counts[key] += n
                begun.setdefault(key, minute.at)
    for key, calls in sorted(counts.items()):
        known_at = signals.last.at(figure.POLICIES_SHOWN, key, "classified")
        unknown = (signals.last.at(figure.POLICIES_SHOWN, key, bad) for bad in ("unclassified", "status_unknown"))
        last = max((at for at in unknown if at is not None), default=None)
        is_over = last is None or (known_at is not None and known_at > last and signals.now - last > _GONE)
        if calls < IN_A_ROW or is_over:
            continue
        words = signals.lately.last_name(figure.POLICIES_SHOWN, key)
        detail = (
            f"{calls} calls in ten minutes show policies without a colour, or statuses that the service's document does "
            f"not name{f', last: {words}' if words else ''}. No rule acts on them, so they may hide a green or a red voice."
        )
        yield Incident(IncidentKind.POLICIES_UNKNOWN, detail, key, begun[key])


def _assumptions(signals: Signals) -> Iterator[Incident]:
    """Yield, for each institution, what contradicts our assumptions about the service and nobody has acknowledged."""
    wrong: dict[str, list[Contradiction]] = {}
    ours = {standing.key for standing in signals.standings}
    for one in contradictions(signals.survey):
        key = one.institution_key
        is_ours = key in ours or (not ours and key != NOT_OURS)  # pushes may name any; no list is stored at first
        wrong.setdefault(key if is_ours else "", []).append(one)
    for key, found in sorted(wrong.items()):
        words = "; ".join(f"{one.answer.words} ({one.sight.times})" for one in found)
        detail = f"{words[:1].upper()}{words[1:]}."
        yield Incident(IncidentKind.ASSUMPTION_WRONG, detail, key, min(one.since for one in found))
