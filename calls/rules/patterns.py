"""Patterns of policy names, in which ``*`` stands for anything: whether two of them can mean the same name."""

from functools import cache


def overlap(one: str, other: str) -> bool:
    """Tell whether any name fits both patterns."""

    @cache
    def fit(i: int, j: int) -> bool:
        if i == len(one) or j == len(other):
            return set(one[i:] + other[j:]) <= {"*"}
        if one[i] == "*":
            return fit(i + 1, j) or fit(i, j + 1)
        if other[j] == "*":
            return fit(i, j + 1) or fit(i + 1, j)
        return one[i] == other[j] and fit(i + 1, j + 1)

    return fit(0, 0)
