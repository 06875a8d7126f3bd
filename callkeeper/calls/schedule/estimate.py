"""Estimates F and S from settled calls: when results come, and how long calls live.

A check without a result shows that there was none yet. The first check with one, or the last read after the end, shows
that it had come by then. So each observation is an interval.

``turnbull`` assumes no shape: it finds the distribution that makes the observed intervals most likely, by
self-consistency (the EM algorithm) on a grid. ``fit_lognormal`` assumes a lognormal for the share of calls that get a
result at all, also by EM. ``likelihood`` compares the two. ``kaplan_meier`` estimates S; calls that were lost count as
censored.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from math import ceil, erfc, exp, inf, log, pi, sqrt

from callkeeper.calls.effect_ledger import DONE, EffectKind
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import Reason
from callkeeper.calls.schedule.model import Curve, Lognormal
from callkeeper.calls.trail import Entry, Recorded
from callkeeper.service.enumerations import CallStatus


@dataclass(frozen=True, slots=True)
class Observation:
    """One watched call, in seconds after its watch began.

    Attributes:
        after_s: The result had not come by then.
        by_s: The result had come by then; None if it was never seen.
        lived_s: How long the call lived.
        has_ended: Whether it ended then; False if it was lost.
    """

    after_s: float
    by_s: float | None
    lived_s: float
    has_ended: bool = True


def observe(call: Recorded, policies: Policies) -> Observation | None:
    """Return what a settled call shows; None if it was never watched, or is not settled.

    If the service's final analysis shows no result, there was none until the end. Assumed (`final-shows-earlier`): what
    the final analysis shows could have been seen in the moment before.
    """
    begin, end = _watched_from(call), _last(call.trail, "ended") or _last(call.trail, "settled")
    if begin is None or end is None or call.reason is None:
        return None
    has_ended = call.reason is not Reason.LOST
    lived_s = _since(begin, end)
    after_s, by_s = _interval(begin, call.trail, policies)
    if by_s is None and has_ended:
        after_s = max(after_s, lived_s)
    if by_s is not None:
        by_s = max(after_s, min(by_s, lived_s))
    return Observation(after_s, by_s, lived_s, has_ended)


def _watched_from(call: Recorded) -> datetime | None:
    """Return when the watch began: at the first entry that names the call's person.

    A call that had one when it was first listed is watched from its start.
    """
    for entry in call.trail:
        if entry.what == "listed" and entry.person_id is not None:
            return min(call.started_at or entry.at, entry.at)
        was_read = entry.what in {"read", "checked"} and entry.person_id is not None
        was_assigned = entry.kind == EffectKind.ASSIGN and entry.what in {"answered", "established"}
        if was_read or (was_assigned and entry.state in DONE):
            return entry.at
    return None


def _last(trail: Iterable[Entry], what: str) -> datetime | None:
    return max((entry.at for entry in trail if entry.what == what), default=None)


def _interval(begin: datetime, trail: Iterable[Entry], policies: Policies) -> tuple[float, float | None]:
    """Return when a check last showed no result (the time it was sent), and when the result was first seen."""
    after_s = 0.0
    for entry in trail:
        if entry.what in {"checked", "read"} and shows_result(entry, policies):
            return after_s, _since(begin, entry.at)
        if entry.what == "checked":
            after_s = max(after_s, _since(begin, entry.at) - (entry.took_ms or 0) / 1000)
    return after_s, None


def shows_result(entry: Entry, policies: Policies) -> bool:
    """Tell whether an answer shows a result of the provider: a green or red policy, or an authenticated voice."""
    colours = policies.colours(name for name in entry.policies if name != MANUAL_GREEN)
    by_voice = entry.status == CallStatus.FULL_AUTHENTICATION and MANUAL_GREEN not in entry.policies
    return by_voice or not colours.isdisjoint({Colour.GREEN, Colour.RED})


def _since(begin: datetime, instant: datetime) -> float:
    return max(0.0, (instant - begin).total_seconds())


Interval = tuple[float, float]
"""After the first and by the second, in seconds. By infinity: not seen, perhaps never."""

SMOOTHED_BY = 1.2
"""About the ratio of neighbouring check times. With a smaller value the jumps between them remain."""

ROUNDED_TO_S = 0.5
"""Ends of intervals are rounded to this. That gives fewer different ones, and is far finer than any gap."""


def interval_of(observation: Observation) -> Interval:
    """Return the interval in which a call's result came."""
    by_s = observation.by_s
    return _rounded(observation.after_s), inf if by_s is None else _rounded(by_s)


def _rounded(t_s: float) -> float:
    return round(t_s / ROUNDED_TO_S) * ROUNDED_TO_S


def turnbull(
    intervals: Mapping[Interval, int], nodes: int, step_s: float, *, rounds: int = 1000, start: Sequence[float] = ()
) -> list[float]:
    """Return F at the nodes of a grid: the most likely distribution of any shape.

    Args:
        intervals: With their counts.
        nodes: Number of nodes of the grid, from 0 on. What lies beyond the last one is one more cell.
        step_s: Seconds between two nodes.
        rounds: Maximum number of steps. It ends earlier if a step moves no value of F by more than 1e-5.
        start: F to start from; empty: an even one.
    """
    cells = [(*_cells(after, by, nodes, step_s), count) for (after, by), count in intervals.items()]
    total = sum(intervals.values())
    known = list(start) or [n / nodes for n in range(nodes)]
    for _ in range(rounds):
        below = [*known, 1.0]
        gain = [0.0] * (nodes + 2)
        for first, last, count in cells:
            weight = count / max(below[last] - below[first], 1e-300)
            gain[first + 1] += weight
            gain[last + 1] -= weight
        factors = list(accumulate(gain))
        masses = ((below[n] - below[n - 1]) * factors[n] / total for n in range(1, nodes))
        better = list(accumulate(masses, initial=0.0))
        moved = max(abs(a - b) for a, b in zip(known, better, strict=True))
        known = [min(1.0, value) for value in better]
        if moved < 1e-5:
            break
    return known


def smoothed(known: Sequence[float]) -> list[float]:
    """Return F averaged from t / SMOOTHED_BY to t * SMOOTHED_BY at each time t. The raw one has jumps between checks."""
    areas = list(accumulate(((a + b) / 2 for a, b in pairwise(known)), initial=0.0))
    last = len(known) - 1

    def area(x: float) -> float:
        k = min(int(x), last - 1)
        part = x - k
        return areas[k] + known[k] * part + (known[k + 1] - known[k]) * part * part / 2

    spans = ((n / SMOOTHED_BY, min(n * SMOOTHED_BY, last)) for n in range(1, last + 1))
    averages = ((area(high) - area(low)) / (high - low) for low, high in spans)
    return list(accumulate(averages, max, initial=0.0))


def interpolated(known: Sequence[float], step_s: float) -> Curve:
    """Return F, given at the nodes of a grid, as a function of time; constant beyond the grid."""
    last = len(known) - 1

    def at(t_s: float) -> float:
        x = min(t_s / step_s, last)
        k = min(int(x), last - 1)
        return known[k] + (x - k) * (known[k + 1] - known[k])

    return at


def likelihood(known: Curve, intervals: Mapping[Interval, int]) -> float:
    """Return the logarithm of the probability of the observed intervals under F."""
    return sum(
        count * log(max((known(by) if by < inf else 1.0) - known(after), 1e-9))
        for (after, by), count in intervals.items()
    )


def _cells(after_s: float, by_s: float, nodes: int, step_s: float) -> tuple[int, int]:
    """Return the nodes around an interval, at least one apart. Node ``nodes`` is the cell beyond the grid."""
    first = min(int(after_s / step_s + 1e-9), nodes - 1)
    last = nodes if by_s > (nodes - 1) * step_s else ceil(by_s / step_s - 1e-9)
    return first, max(last, first + 1)


def fit_lognormal(intervals: Mapping[Interval, int], *, rounds: int = 300, start: Lognormal | None = None) -> Lognormal:
    """Return the most likely lognormal with a share of calls that never get a result.

    It ends after ``rounds`` steps, or when one changes nothing to four digits.
    """
    law = Lognormal(25.0, 1.0, 0.9) if start is None else start
    ends = [(log(a) if a > 0 else -inf, log(b) if b < inf else inf, count) for (a, b), count in intervals.items()]
    for _ in range(rounds):
        better = _likelier(ends, law)
        settled = (
            abs(better.median_s / law.median_s - 1) < 1e-5
            and abs(better.sigma - law.sigma) < 1e-5
            and abs(better.share - law.share) < 1e-5
        )
        law = better
        if settled:
            break
    return law


def _likelier(ends: Sequence[tuple[float, float, int]], law: Lognormal) -> Lognormal:
    """Take one step of EM: expected first and second moments of each logarithm within its interval."""
    mean, sigma, share = log(law.median_s), law.sigma, law.share
    weight = first = second = total = 0.0
    for low, high, count in ends:
        a, b = (low - mean) / sigma, (high - mean) / sigma
        inside, z1, z2 = _moments(a, b)
        part = count * (1.0 if high < inf else share * inside / (1 - share + share * inside))
        weight += part
        first += part * z1
        second += part * z2
        total += count
    z = first / weight
    return Lognormal(
        median_s=exp(mean + sigma * z),
        sigma=max(0.02, sigma * sqrt(max(second / weight - z * z, 0.0))),
        share=min(weight / total, 1.0),
    )


def _moments(a: float, b: float) -> tuple[float, float, float]:
    """Return the probability that a standard normal lies in (a, b), and its mean and mean square there."""
    inside = 0.5 * (erfc(a / sqrt(2)) - erfc(b / sqrt(2))) if a > 0 else 0.5 * (erfc(-b / sqrt(2)) - erfc(-a / sqrt(2)))
    if inside < 1e-12:
        nearest = a if a > 0 else b
        return max(inside, 0.0), nearest, nearest * nearest
    pa, pb = _density(a), _density(b)
    mean = (pa - pb) / inside
    square = 1 + ((a * pa if a > -inf else 0.0) - (b * pb if b < inf else 0.0)) / inside
    return inside, mean, square


def _density(z: float) -> float:
    return exp(-z * z / 2) / sqrt(2 * pi)


def kaplan_meier(lives: Iterable[tuple[float, bool]], nodes: int, step_s: float) -> list[float]:
    """Return S at the nodes of a grid, from how long calls lived and whether they ended then."""
    ended, gone = Counter[int](), Counter[int]()
    for lived_s, has_ended in lives:
        node = min(nodes, -int(-lived_s / step_s))
        (ended if has_ended else gone)[node] += 1
    at_risk = ended.total() + gone.total()
    alive, value = [], 1.0
    for node in range(nodes):
        if ended[node]:
            value *= 1 - ended[node] / at_risk
        at_risk -= ended[node] + gone[node]
        alive.append(value)
    return alive
