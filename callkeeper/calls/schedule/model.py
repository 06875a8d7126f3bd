"""The cost of a schedule: how long a result exists before we know it, given when results come and how long calls live.

Times are seconds after the watch of a call began. Let F(u) be the probability that the result exists at u, and S(u)
that the call still lives then. A gap between two checks at a and b costs

    C(a, b) = int_a^b (F(u) - F(a)) S(u) du

and a schedule costs the sum over its gaps, the last one up to the horizon. F is what the call would show if it lived
on: results and ends are independent (Assumed (`results-independent`): a call does not end sooner because its result
came). On an even grid the integrals are running sums (trapezoids), so every C is a few look-ups.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import erf, exp, log, sqrt
from statistics import NormalDist

Curve = Callable[[float], float]
"""A probability as a function of seconds after the watch began."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A time whose logarithm is normal, for the ``share`` of calls that have one.

    Attributes:
        median_s: Median of those that have one, in seconds.
        sigma: Standard deviation of the natural logarithm.
        share: 0 to 1.
    """

    median_s: float
    sigma: float
    share: float = 1.0

    def cdf(self, t_s: float) -> float:
        """Return the probability that it has come by a time."""
        if t_s <= 0:
            return 0.0
        return self.share * 0.5 * (1 + erf(log(t_s / self.median_s) / (self.sigma * sqrt(2))))

    def survival(self, t_s: float) -> float:
        """Return the probability that it has not come by a time."""
        return 1 - self.cdf(t_s)

    def quantile(self, p: float) -> float:
        """Return the time by which it has come with probability ``p``, among those that have one; 0 < p < 1."""
        return self.median_s * exp(self.sigma * _NORMAL.inv_cdf(p))


PRIOR_RESULT = Lognormal(25.0, 0.7)
"""When a result comes, unless fitted to an institution's own calls."""

PRIOR_CALL = Lognormal(240.0, 0.85)
"""How long a call lives, unless fitted."""

HORIZON_S = 900.0
STEP_S = 0.25


@dataclass(frozen=True)
class Model:
    """F and S at the nodes of an even grid.

    Attributes:
        step_s: Seconds between two nodes; the first node is the start of the watch.
        known: F, never falling.
        alive: S, never rising.
    """

    step_s: float
    known: tuple[float, ...]
    alive: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.known) != len(self.alive) or len(self.known) < 3 or self.step_s <= 0:
            raise ValueError("F and S need the same grid, of three nodes or more")
        if any(later < earlier for earlier, later in pairwise(self.known)):
            raise ValueError("F falls somewhere: a result does not go away")
        if any(later > earlier for earlier, later in pairwise(self.alive)):
            raise ValueError("S rises somewhere: a call does not come back")

    @classmethod
    def of(cls, known: Curve, alive: Curve, *, step_s: float = STEP_S) -> "Model":
        """Sample two curves on a grid up to `HORIZON_S`."""
        nodes = [n * step_s for n in range(round(HORIZON_S / step_s) + 1)]
        return cls(step_s, tuple(map(known, nodes)), tuple(map(alive, nodes)))

    @property
    def end(self) -> int:
        """Return the last node: the horizon."""
        return len(self.known) - 1

    @property
    def horizon_s(self) -> float:
        """Return the horizon in seconds. Costs beyond it are not counted."""
        return self.end * self.step_s

    @cached_property
    def alive_s(self) -> tuple[float, ...]:
        """Return int_0^t S at every node."""
        return _running(self.alive, self.step_s)

    @cached_property
    def known_s(self) -> tuple[float, ...]:
        """Return int_0^t F S at every node."""
        return _running([f * s for f, s in zip(self.known, self.alive, strict=True)], self.step_s)

    @cached_property
    def decided_share(self) -> float:
        """Return the probability that a call's result comes while the call lives, before the horizon."""
        gains = (
            (f1 - f0) * (s0 + s1) / 2
            for (f0, f1), (s0, s1) in zip(pairwise(self.known), pairwise(self.alive), strict=True)
        )
        return self.known[0] + sum(gains)

    def gap(self, a: int, b: int) -> float:
        """Return C between two nodes, in seconds per call."""
        return self.known_s[b] - self.known_s[a] - self.known[a] * (self.alive_s[b] - self.alive_s[a])

    def cost_of(self, nodes: Sequence[int]) -> float:
        """Return the cost of checks at nodes, in seconds per call."""
        return sum(self.gap(a, b) for a, b in pairwise([0, *nodes, self.end]))

    def cost(self, at_s: Sequence[float]) -> float:
        """Return the cost of checks at any times, in seconds per call. Those beyond the horizon do not count."""
        times = [0.0, *(t for t in at_s if t < self.horizon_s), self.horizon_s]
        return sum(self._gap_at(a, b) for a, b in pairwise(times))

    def lag(self, at_s: Sequence[float]) -> float:
        """Return the mean time in seconds that a result exists before it is known, over calls that get one alive."""
        return self.cost(at_s) / self.decided_share

    def known_at(self, t_s: float) -> float:
        """Return F at any time up to the horizon."""
        return self._between(self.known, t_s)

    def alive_at(self, t_s: float) -> float:
        """Return S at any time up to the horizon."""
        return self._between(self.alive, t_s)

    def times(self, nodes: Sequence[int]) -> tuple[float, ...]:
        """Return nodes as seconds."""
        return tuple(node * self.step_s for node in nodes)

    def coarser(self, factor: int) -> "Model":
        """Return the model at every ``factor``-th node, with a horizon that is no later."""
        return Model(self.step_s * factor, self.known[::factor], self.alive[::factor])

    def _gap_at(self, a: float, b: float) -> float:
        known = self._between(self.known, a)
        return (
            self._between(self.known_s, b)
            - self._between(self.known_s, a)
            - known * (self._between(self.alive_s, b) - self._between(self.alive_s, a))
        )

    def _between(self, values: Sequence[float], t_s: float) -> float:
        place = min(t_s / self.step_s, self.end)
        node = min(int(place), self.end - 1)
        return values[node] + (place - node) * (values[node + 1] - values[node])


def prior() -> Model:
    """Return the model of the shipped schedule."""
    return Model.of(PRIOR_RESULT.cdf, PRIOR_CALL.survival)


def _running(values: Sequence[float], step_s: float) -> tuple[float, ...]:
    return tuple(accumulate((step_s * (a + b) / 2 for a, b in pairwise(values)), initial=0.0))
