"""Calls drawn from known laws and observed through a schedule: what a fit is tried on."""

from collections.abc import Iterator, Sequence
from math import inf, sqrt
from random import Random

from calls.backoff import Schedule
from calls.schedule.laws import Lognormal
from calls.schedule.observed import Observation

GOLDEN = (sqrt(5) - 1) / 2


def even_calls(result: Lognormal, call: Lognormal, count: int, *, longest_s: float) -> list[tuple[float, float]]:
    """Return pairs of result and life spread evenly over two laws (a golden lattice): a sample with little luck in it."""
    shares = [((n + 0.5) / count, (n * GOLDEN + 0.5) % 1) for n in range(count)]
    return [(_time(result, p), min(_time(call, q), longest_s)) for p, q in shares]


def _time(law: Lognormal, p: float) -> float:
    return law.quantile(p / law.share) if 0 < p < law.share else inf


def drawn_times(law: Lognormal, count: int, draw: Random) -> list[float]:
    """Return times drawn from a law; infinite for those that never come."""
    return [
        law.median_s * draw.lognormvariate(0, law.sigma) if draw.random() < law.share else inf for _ in range(count)
    ]


def observed_through(schedule: Schedule, results_s: Sequence[float], lives_s: Sequence[float]) -> Iterator[Observation]:
    """Watch calls with given results and lives, each at its own pace, as a worker would."""
    for n, (result_s, lived_s) in enumerate(zip(results_s, lives_s, strict=True)):
        checks = [t for t in schedule.paced(f"call-{n}").at_s if t < lived_s]
        missed = [t for t in checks if t < result_s]
        found = [t for t in checks if t >= result_s]
        if found:
            yield Observation(missed[-1] if missed else 0.0, found[0], lived_s)
        elif result_s < lived_s:
            yield Observation(missed[-1] if missed else 0.0, lived_s, lived_s)
        else:
            yield Observation(lived_s, None, lived_s)
