"""Evaluates an expression over scrapes at an instant, as Prometheus does."""

import operator
from collections.abc import Callable, Iterable
from itertools import pairwise

from tests.promql.history import History, Labels
from tests.promql.syntax import Aggregate, Apply, Binary, Number, Selector, Tree

Vector = dict[Labels, float]
Value = float | Vector

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": lambda values: float(len(values)),
    "avg": lambda values: sum(values) / len(values),
}


def evaluate(tree: Tree, history: History, now_s: float) -> Value:
    """Return a number or a vector.

    Raises:
        NotImplementedError: The expression is readable, and more than our alerts need.
    """
    match tree:
        case Number():
            return tree.value
        case Selector():
            return history.at(tree, now_s)
        case Aggregate():
            return _aggregate(tree, _vector(evaluate(tree.inner, history, now_s)))
        case Apply(function="increase" | "rate", arguments=(Selector() as inner,)):
            return _increase(inner, history, now_s, is_rate=tree.function == "rate")
        case Binary():
            left, right = evaluate(tree.left, history, now_s), evaluate(tree.right, history, now_s)
            return _join(tree, left, right)
    raise NotImplementedError(str(tree))


def _increase(inner: Selector, history: History, now_s: float, *, is_rate: bool) -> Vector:
    """Return what counters rose by: extrapolated to the ends of the range as Prometheus does, resets made up for."""
    assert inner.range_s is not None, "a range is needed"
    start_s, rises = now_s - inner.range_s, {}
    for labels, points in history.over(inner, now_s).items():
        if len(points) < 2:
            continue
        (first_s, first), (last_s, _) = points[0], points[-1]
        values = [value for _, value in points]
        rise = values[-1] - first + sum(a for a, b in pairwise(values) if b < a)
        sampled_s = last_s - first_s
        gap_s = sampled_s / (len(points) - 1)
        to_start, to_end = first_s - start_s, now_s - last_s
        if rise > 0 and first >= 0:
            to_start = min(to_start, sampled_s * first / rise)
        reach_s = sampled_s
        reach_s += to_start if to_start < 1.1 * gap_s else gap_s / 2
        reach_s += to_end if to_end < 1.1 * gap_s else gap_s / 2
        rises[labels] = rise * reach_s / sampled_s / (inner.range_s if is_rate else 1)
    return rises


def _aggregate(tree: Aggregate, inner: Vector) -> Vector:
    groups: dict[Labels, list[float]] = {}
    for labels, value in inner.items():
        kept = frozenset(pair for pair in labels if (pair[0] in tree.labels) is not tree.is_without)
        groups.setdefault(kept, []).append(value)
    return {labels: _AGGREGATES[tree.function](values) for labels, values in groups.items()}


def _join(tree: Binary, left: Value, right: Value) -> Value:
    if isinstance(left, float) and isinstance(right, float):
        return _ARITHMETIC[tree.sign](left, right)
    if tree.sign in {"and", "or", "unless"}:
        return _sets(tree, _vector(left), _vector(right))
    pairs = _pairs(left, right, tree.on)
    if tree.sign in _COMPARISONS:
        return {labels: a for labels, a, b in pairs if _COMPARISONS[tree.sign](a, b)}
    return {labels: _ARITHMETIC[tree.sign](a, b) for labels, a, b in pairs}


def _sets(tree: Binary, left: Vector, right: Vector) -> Vector:
    known = {_key(labels, tree.on) for labels in right}
    match tree.sign:
        case "and":
            return {labels: value for labels, value in left.items() if _key(labels, tree.on) in known}
        case "unless":
            return {labels: value for labels, value in left.items() if _key(labels, tree.on) not in known}
        case _:
            mine = {_key(labels, tree.on) for labels in left}
            return left | {labels: value for labels, value in right.items() if _key(labels, tree.on) not in mine}


def _pairs(left: Value, right: Value, on: tuple[str, ...] | None) -> Iterable[tuple[Labels, float, float]]:
    if isinstance(right, float):
        return [(labels, value, right) for labels, value in _vector(left).items()]
    if isinstance(left, float):
        return [(labels, left, value) for labels, value in right.items()]
    theirs = {_key(labels, on): value for labels, value in right.items()}
    return [(labels, a, theirs[_key(labels, on)]) for labels, a in left.items() if _key(labels, on) in theirs]


def _key(labels: Labels, on: tuple[str, ...] | None) -> Labels:
    return labels if on is None else frozenset(pair for pair in labels if pair[0] in on)


def _vector(value: Value) -> Vector:
    assert isinstance(value, dict), "a vector is needed"
    return value
