"""Finds the cheapest n checks for a model whose gaps never shrink after the first check.

The next gap is part of the state:

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


def backoff_optimum(model: Model, n: int) -> tuple[float, ...]:
    """Return the n check times with the lowest cost, in seconds, if gaps never shrink after the first check.

    Raises:
        TooManyChecks: The grid has fewer inner nodes than ``n``.
    """
    if not 1 <= n < model.end:
        raise TooManyChecks(f"{n} checks do not fit between {model.end} nodes")
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
    cost: list[list[float]] = [[c] for c in tail]  # [b][g - 1]: the last check is at b and the next gap is g at least
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
