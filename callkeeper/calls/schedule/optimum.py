"""Finds the cheapest n checks for a model: exactly for any gaps, and for gaps that never shrink.

``optimum`` is a dynamic programme over the number of checks and the node of the last one. Its step

    best[k][b] = min over a < b of best[k-1][a] + C(a, b)

needs no search: C(a, b) = known_s[b] + (F[a] alive_s[a] - known_s[a]) - F[a] alive_s[b]. For a fixed a this is a
straight line in alive_s[b], with slopes -F[a] that never rise and arguments that never fall. The minimum is the lower
envelope of the lines, walked once: O(n G). (The same monotonicity is the quadrangle inequality C(a,b) + C(a',b') <=
C(a,b') + C(a',b) for a <= a' <= b <= b', which holds since F never falls and S is never negative.)

``backoff_optimum`` requires in addition that gaps never shrink after the first check. Then the next gap is part of the
state:

    cost[k][b][g] = min over g' >= g of C(b, b+g') + cost[k-1][b+g'][g']

This is a running minimum over g: O(1) for each state, and G^2 (log n) / 2 states, as the k remaining gaps have to fit.
It is computed exhaustively on a coarse grid, and refined on finer grids among the neighbours of the solution.
"""

from collections.abc import Sequence
from math import inf

from callkeeper.calls.schedule.model import Model

COARSE_NODES = 300
"""Up to this many nodes the backoff schedule is optimised exhaustively, which takes a tenth of a second."""

REACH = 3
"""How many nodes around the coarser solution a refinement examines, in each direction."""


class TooManyChecks(ValueError):
    """There are fewer moments than checks."""


def optimum(model: Model, n: int) -> tuple[float, ...]:
    """Return the n check times with the lowest cost, in seconds, for any gaps.

    Raises:
        TooManyChecks: The grid has fewer inner nodes than ``n``.
    """
    _require(model, n)
    best = [model.gap(0, b) for b in range(model.end + 1)]
    parents = []
    for k in range(2, n + 1):
        best, parent = _one_more(model, best, k)
        parents.append(parent)
    totals = [best[b] + model.gap(b, model.end) for b in range(model.end)]
    nodes = [min(range(n, model.end), key=totals.__getitem__)]
    for parent in reversed(parents):
        nodes.append(parent[nodes[-1]])
    return model.times(nodes[::-1])


def _one_more(model: Model, best: Sequence[float], k: int) -> tuple[list[float], list[int]]:
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


def backoff_optimum(model: Model, n: int) -> tuple[float, ...]:
    """Return the n check times with the lowest cost, in seconds, if gaps never shrink after the first check.

    Raises:
        TooManyChecks: The grid has fewer inner nodes than ``n``.
    """
    _require(model, n)
    doublings = 0
    while model.end >> doublings > COARSE_NODES and model.end >> (doublings + 1) >= 2 * n:
        doublings += 1
    nodes = exhaustive_backoff(model.coarser(1 << doublings), n)
    for doubling in reversed(range(doublings)):
        nodes = _refined(model.coarser(1 << doubling), [2 * node for node in nodes])
    return model.times(nodes)


def exhaustive_backoff(model: Model, n: int) -> list[int]:
    """Return the nodes of the cheapest checks whose gaps never shrink after the first, by examining all states."""
    end, choices = model.end, []
    tail = [model.gap(b, end) for b in range(end + 1)]
    cost: list[list[float]] = [
        [c] for c in tail
    ]  # cost[b][g - 1]: the last check is at b and the next gap is g at least
    for left in range(1, n):
        cost, choice = _one_gap_more(model, cost, left, tail)
        choices.append(choice)
    first = min(range(1, end - n + 2), key=lambda b: model.gap(0, b) + (cost[b][0] if cost[b] else inf))
    nodes, gap = [first], 1
    for choice in reversed(choices):
        gap = choice[nodes[-1]][gap - 1]
        nodes.append(nodes[-1] + gap)
    return nodes


def _one_gap_more(
    model: Model, cost: Sequence[Sequence[float]], left: int, tail: Sequence[float]
) -> tuple[list[list[float]], list[list[int]]]:
    """Return, for each node and minimum gap, the cost from there with ``left`` checks to come, and the gap to take."""
    end, known, known_s, alive_s = model.end, model.known, model.known_s, model.alive_s
    costs, choices = [], []
    for b in range(end + 1):
        widest = (end - 1 - b) // left if b < end else 0
        row, chosen = [inf] * widest, [0] * widest
        best, taken = inf, 0
        offset = known[b] * alive_s[b] - known_s[b]
        slope = known[b]
        for gap in range(widest, 0, -1):
            c = b + gap
            rest = tail[c] if left == 1 else cost[c][gap - 1]
            value = known_s[c] - slope * alive_s[c] + offset + rest
            if value < best:
                best, taken = value, gap
            row[gap - 1], chosen[gap - 1] = best, taken
        costs.append(row)
        choices.append(chosen)
    return costs, choices


def _refined(model: Model, nodes: list[int]) -> list[int]:
    """Move checks by a few nodes to the cheapest schedule nearby, until nothing improves."""
    while True:
        moved = _best_nearby(model, nodes)
        if model.cost_of(moved) >= model.cost_of(nodes) - 1e-12:
            return nodes
        nodes = moved


def _best_nearby(model: Model, nodes: Sequence[int]) -> list[int]:
    """Return the cheapest backoff schedule in which every check is within ``REACH`` nodes of a given one."""
    bands = [range(max(1, node - REACH), min(model.end, node + REACH + 1)) for node in nodes]
    paths: dict[tuple[int, int], tuple[float, list[int]]] = {(0, b): (model.gap(0, b), [b]) for b in bands[0]}
    for k, band in enumerate(bands[1:]):
        longer: dict[tuple[int, int], tuple[float, list[int]]] = {}
        for (a, b), (cost, path) in paths.items():
            least = 1 if k == 0 else b - a
            for c in band:
                if c - b < least:
                    continue
                total = cost + model.gap(b, c)
                if total < longer.get((b, c), (inf, path))[0]:
                    longer[b, c] = (total, [*path, c])
        paths = longer
    return min(paths.values(), key=lambda found: found[0] + model.gap(found[1][-1], model.end))[1]


def _require(model: Model, n: int) -> None:
    if not 1 <= n < model.end:
        raise TooManyChecks(f"{n} checks do not fit between {model.end} nodes")
