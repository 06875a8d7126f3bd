"""When results come and how long calls live: the two distributions that a check schedule is made for.

Times are seconds after the watch of a call began.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import erf, exp, log, sqrt
from statistics import NormalDist

Curve = Callable[[float], float]
"""A probability as a function of seconds after the watch began."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A time whose logarithm is normal, for the ``share`` of calls that have one at all.

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
        """Return the time by which it has come with probability ``p``, of those that have one; 0 < p < 1."""
        return self.median_s * exp(self.sigma * _NORMAL.inv_cdf(p))


PRIOR_RESULT = Lognormal(25.0, 0.7)
"""When a result comes, until an institution's own calls say better."""

PRIOR_CALL = Lognormal(240.0, 0.85)
"""How long a call lives, likewise."""
