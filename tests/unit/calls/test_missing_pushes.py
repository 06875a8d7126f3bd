"""Pushes that arrive late are told as that, and not as a wrong header."""

from dataclasses import replace

from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.signals import LastCounted
from callkeeper.calls.metrics.snapshot import Minute, Snapshot, Spread
from tests.unit.calls.specimens import NOW
from tests.unit.calls.test_quiet_outages import MISSING, WELL, at, lately

FOUND = at(MISSING, (figure.PUSHES_REFUSED, ("credentials",), 9.0), (figure.PUSHES, ("CallStart",), 4.0))
"""The queue alone has shown a new call. A push was refused shortly before; others are accepted."""

WRONG_HEADER = {"Pushes of an institution are refused: wrong header"}


def minutes(lag_s: float, n: int) -> list[Minute]:
    """Return a present minute in which pushes arrived this long after their event, and one with refused pushes."""
    refused, present, lags = Snapshot(), Snapshot(), Spread.empty(figure.PUSH_LAG)
    refused.counts[figure.PUSHES_REFUSED.name] = {("credentials",): 9}
    lags.counts[next(k for k, bound in enumerate((*lags.bounds, float("inf"))) if lag_s <= bound)] = n
    present.spreads[figure.PUSH_LAG.name] = {(): lags}
    return [Minute(NOW.replace(minute=(NOW.minute - 5) % 60), refused), Minute(NOW, present)]


def titles(lag_s: float, n: int, *, came_s_ago: float | None = None) -> set[str]:
    """Return the titles of what is found while pushes arrive this late, and when one of cu-1 came last."""
    came = [] if came_s_ago is None else [(figure.CALLS_PUSHED, ("cu-1", "came"), came_s_ago)]
    last = LastCounted({**FOUND.at_ms, **at(*came).at_ms})
    return {one.title for one in incidents_of(replace(WELL, last=last, minutes=minutes(lag_s, n)))}


def test_late_pushes_are_no_wrong_header() -> None:
    """The header is right, as they are accepted: whoever looked at the dashboard would look in the wrong place."""
    assert titles(75.0, 3, came_s_ago=60.0) == {"Pushes arrive late"}


def test_wrong_header_is_named_while_pushes_of_others_are_late() -> None:
    """None of this institution's came lately, so hers are not late."""
    for came_s_ago in (None, 121.0):
        assert titles(75.0, 3, came_s_ago=came_s_ago) == WRONG_HEADER


def test_pushes_in_time_or_too_few_are_not_late() -> None:
    """Two late pushes may be an accident. Then the refused ones explain the missing calls, as before."""
    for lag_s, n in ((0.4, 9), (75.0, 2)):
        assert titles(lag_s, n, came_s_ago=60.0) == WRONG_HEADER


def test_push_that_came_after_the_queue_had_shown_its_call_was_not_refused() -> None:
    """Refusals alone are no incident: strangers can cause them."""
    assert titles(0.4, 9, came_s_ago=3.0) == set()


def test_header_that_becomes_wrong_within_seconds_is_named_after_three_calls() -> None:
    """A call without its push, seconds after one with it, may be a race. Three in a row are refused pushes."""
    last = LastCounted({**FOUND.at_ms, **at((figure.CALLS_FOUND, ("cu-1", "push"), 9.0)).at_ms})
    for n, expected in ((1, set()), (3, WRONG_HEADER)):
        seen = replace(WELL, last=last, minutes=minutes(0.4, 9), lately=lately(missing=n))
        assert {one.title for one in incidents_of(seen)} == expected


def test_header_that_was_wrong_before_does_not_explain_why_pushes_are_missing_now() -> None:
    """The refused push of a call is at most half a minute older than the moment when the queue has shown it."""
    for refused_s_ago, expected in ((34.9, WRONG_HEADER), (35.1, {"No pushes arrive"})):
        refused = at((figure.PUSHES_REFUSED, ("credentials",), refused_s_ago))
        last = LastCounted({**FOUND.at_ms, **refused.at_ms})
        seen = replace(WELL, last=last, minutes=minutes(0.4, 9), lately=lately(missing=3))
        assert {one.title for one in incidents_of(seen)} == expected
