"""A small satisfiability solver over finite domains. It knows nothing of calls.

A variable has a finite set of values. A demand (``Clause``) is met if at least one of its literals is: a variable and
values of which it must have one. The search is complete, so "no" is a proof.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence

Values = frozenset[Hashable]
Literal = tuple[str, Values]
Clause = tuple[Literal, ...]
Domains = Mapping[str, Values]


def satisfiable(domains: Domains, clauses: Iterable[Clause]) -> bool:
    """Tell whether the variables can have values in their domains so that every clause is met."""
    settled = _propagate(dict(domains), list(clauses))
    if settled is None:
        return False
    domains, still_open = settled
    if _greedily_met(domains, still_open):
        return True
    (variable, values), *_ = min(still_open, key=len)
    chosen, others = domains[variable] & values, domains[variable] - values
    return any(satisfiable({**domains, variable: part}, still_open) for part in (chosen, others) if part)


def _greedily_met(domains: Domains, clauses: Iterable[Clause]) -> bool:
    """Meet each clause by its first literal that can still be met. If that fails, another choice may succeed."""
    left = dict(domains)
    for clause in clauses:
        if not any(left[variable] <= values for variable, values in clause):
            for variable, values in clause:
                if not left[variable].isdisjoint(values):
                    left[variable] &= values
                    break
            else:
                return False
    return True


def _propagate(domains: dict[str, Values], clauses: list[Clause]) -> tuple[dict[str, Values], list[Clause]] | None:
    """Apply clauses that leave one choice. Return the domains and the clauses still open; None if one cannot be met."""
    if not all(domains.values()):
        return None
    changed = True
    while changed:
        changed = False
        still_open = []
        for clause in clauses:
            left = _still_possible(domains, clause)
            if left is None:
                continue
            if not left:
                return None
            if len(left) > 1:
                still_open.append(left)
                continue
            variable, values = left[0]
            domains[variable] = domains[variable] & values
            changed = True
        clauses = still_open
    return domains, clauses


def _still_possible(domains: Domains, clause: Clause) -> Clause | None:
    """Return the literals of a clause that can still be met; None if it is met whatever is chosen."""
    left: list[Literal] = []
    for variable, values in clause:
        domain = domains[variable]
        if domain <= values:
            return None
        if not domain.isdisjoint(values):
            left.append((variable, values))
    return tuple(left)


def only(fact: str, *values: Hashable) -> Literal:
    """Return the literal that a variable has one of these values."""
    return fact, frozenset(values)


def without(domains: Domains, literal: Literal) -> Literal:
    """Return the opposite of a literal."""
    variable, values = literal
    return variable, domains[variable] - values


def equivalent(one: Literal, others: Sequence[Literal], domains: Domains) -> list[Clause]:
    """Return the clauses that one literal is met exactly if any of the others is."""
    return [(without(domains, one), *others), *((one, without(domains, other)) for other in others)]
