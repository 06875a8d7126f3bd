"""The solver's answers are those of trying every combination of values."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.rules.solver import Clause, satisfiable

DOMAINS = {name: frozenset(range(3)) for name in "abcd"}

literals = st.tuples(st.sampled_from(sorted(DOMAINS)), st.frozensets(st.integers(0, 2), min_size=1, max_size=2))
clauses = st.lists(st.lists(literals, min_size=1, max_size=3).map(tuple), min_size=4, max_size=16)


@given(clauses)
def test_solver_finds_values_exactly_if_there_are_any(demands: list[Clause]) -> None:
    """A set of clauses is satisfiable exactly if one of all combinations of values meets each of them."""
    every = (dict(zip(DOMAINS, values, strict=True)) for values in product(*DOMAINS.values()))
    expected = any(all(any(one[name] in values for name, values in clause) for clause in demands) for one in every)

    assert satisfiable(DOMAINS, demands) is expected


def test_solver_tries_another_value_where_the_first_fails() -> None:
    """A first choice that contradicts a later clause does not make a set of clauses unsatisfiable."""
    yes, no = frozenset({1}), frozenset({0})
    domains = dict.fromkeys("abc", frozenset({0, 1}))
    demands: list[Clause] = [(("a", yes), ("b", yes)), (("a", no), ("c", yes)), (("a", no), ("c", no))]

    assert satisfiable(domains, demands)
    assert not satisfiable(domains, [*demands, (("b", no), ("c", yes)), (("b", no), ("c", no))])
