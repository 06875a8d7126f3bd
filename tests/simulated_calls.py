"""Calls drawn from known distributions and observed through a schedule, to test the optimum and the fit."""

from collections.abc import Iterator, Sequence
from math import inf, sqrt
from random import Random

from callkeeper.calls.schedule.estimate import Observation
from callkeeper.calls.schedule.model import Lognormal, Model
from callkeeper.calls.schedule.plan import Schedule

GOLDEN = (sqrt(5) - 1) / 2


def even_calls(result: Lognormal, call: Lognormal, count: int, *, longest_s: float) -> list[tuple[float, float]]:
    """Return pairs of result and life, spread evenly over two distributions (a golden lattice)."""
    shares = [((n + 0.5) / count, (n * GOLDEN + 0.5) % 1) for n in range(count)]
    return [(_time(result, p), min(_time(call, q), longest_s)) for p, q in shares]


def _time(law: Lognormal, p: float) -> float:
    return law.quantile(p / law.share) if 0 < p < law.share else inf


def drawn_times(law: Lognormal, count: int, draw: Random) -> list[float]:
    """Return times drawn from a distribution; infinite for results that never come."""
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


def closed_rule(model: Model, n: int) -> tuple[float, ...]:
    """Return n check times by the rule for many checks: their density is proportional to sqrt(f S).

    A gap d around t costs about f S d^2 / 2, so with the density r = 1 / d the cost is int f S / (2 r): least, for a given
    int r = n, where r is proportional to sqrt(f S). The k-th check is where the share (k - 1/2) / n of the density is used.
    """
    density = [
        sqrt(max(0.0, model.known[i + 1] - model.known[i]) * (model.alive[i] + model.alive[i + 1]) / 2)
        for i in range(model.end)
    ]
    total, used = sum(density), 0.0
    times: list[float] = []
    for i, share in enumerate(density):
        while len(times) < n and used + share >= total * (len(times) + 0.5) / n and share > 0:
            inside = (total * (len(times) + 0.5) / n - used) / share
            times.append((i + inside) * model.step_s)
        used += share
    return tuple(times)
