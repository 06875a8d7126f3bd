"""The cheapest n checks for a model, whatever their gaps: what the law of gaps that never shrink is measured against.

``optimum`` is a dynamic programme over the number of checks and the node of the last one. Its step

    best[k][b] = min over a < b of best[k-1][a] + C(a, b)

needs no search: C(a, b) = known_s[b] + (F[a] alive_s[a] - known_s[a]) - F[a] alive_s[b]. For a fixed a this is a
straight line in alive_s[b], with slopes -F[a] that never rise and arguments that never fall. The minimum is the lower
envelope of the lines, walked once: O(n G). (The same monotonicity is the quadrangle inequality C(a,b) + C(a',b') <=
C(a,b') + C(a',b) for a <= a' <= b <= b', which holds since F never falls and S is never negative.)
"""

from collections.abc import Sequence
from math import inf

from callkeeper.calls.schedule.model import Model


def optimum(model: Model, n: int) -> tuple[float, ...]:
    """Return the n check times with the lowest cost, in seconds, for any gaps."""
    best = [model.gap(0, b) for b in range(model.end + 1)]
    parents = []
    for k in range(2, n + 1):
        best, parent = one_more(model, best, k)
        parents.append(parent)
    totals = [best[b] + model.gap(b, model.end) for b in range(model.end)]
    nodes = [min(range(n, model.end), key=totals.__getitem__)]
    for parent in reversed(parents):
        nodes.append(parent[nodes[-1]])
    return model.times(nodes[::-1])


def one_more(model: Model, best: Sequence[float], k: int) -> tuple[list[float], list[int]]:
    """Return the lowest cost of k checks with the last one at each node, and the node of the one before it."""
    known, known_s, alive_s = model.known, model.known_s, model.alive_s
    hull: list[tuple[float, float, int]] = []  # slope, intercept, node: lines that are lowest somewhere ahead
    first = 0
    costs, parent = [inf] * (model.end + 1), [0] * (model.end + 1)
    for b in range(k, model.end + 1):
        a = b - 1
        slope, intercept = -known[a], best[a] - known_s[a] + known[a] * alive_s[a]
        while len(hull) > first and _is_useless(hull, first, slope, intercept):
            hull.pop()
        hull.append((slope, intercept, a))
        x = alive_s[b]
        while (
            first + 1 < len(hull) and hull[first + 1][0] * x + hull[first + 1][1] <= hull[first][0] * x + hull[first][1]
        ):
            first += 1
        costs[b] = known_s[b] + hull[first][0] * x + hull[first][1]
        parent[b] = hull[first][2]
    return costs, parent


def _is_useless(hull: Sequence[tuple[float, float, int]], first: int, slope: float, intercept: float) -> bool:
    """Tell whether, with a new line, the last line of the hull is lowest nowhere ahead."""
    last_slope, last_intercept, _ = hull[-1]
    if slope == last_slope:
        return intercept <= last_intercept
    if len(hull) - first < 2:
        return False
    before_slope, before_intercept, _ = hull[-2]
    return (intercept - before_intercept) * (before_slope - last_slope) <= (last_intercept - before_intercept) * (
        before_slope - slope
    )
