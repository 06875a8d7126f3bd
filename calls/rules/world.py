"""What can be true of a call at once: the facts' values and what follows from what.

Used to prove things about rules before any call comes: that a rule can never match, that an earlier one takes all of its
calls, that the law would always hold it. The search is complete: "impossible" is a proof, over the implications listed here.
"""

from collections.abc import Iterable, Mapping, Sequence

from calls.facts import ESTABLISHES, FACTS, REJECTED, Status, Value
from calls.rules.book import Condition

OTHER = "\0any other value"
"""Stands for every value of a fact that no condition names."""

Domains = Mapping[str, frozenset[Value]]

IMPLICATIONS: tuple[tuple[Condition, Condition], ...] = (
    (("verified_by_desk", True), ("verified", True)),
    (("verified_person_is_assigned", True), ("verified", True)),
    (("verified_person_is_assigned", True), ("assigned", True)),
    (("verified", False), ("validation_type", None)),
    (("validation_type", None), ("verified", False)),
    (("manual", True), ("enrolled", True)),
    (("enrolled", True), ("manual", True)),
    (("authenticated", True), ("green", True)),
    (("authenticated", True), ("manual", False)),
    (("authenticated", True), ("fully_authenticated", True)),
    (("green", True), ("red", False)),
    (("status", Status.FULL_AUTHENTICATION.value), ("fully_authenticated", True)),
    (("paused_entirely", True), ("paused", True)),
    (("status", Status.CALL_ENDED.value), ("ended", True)),
    (("status", Status.OPT_OUT.value), ("opted_out", True)),
    (("status", Status.OPT_IN.value), ("opted_in", True)),
    (("status", Status.MISMATCH.value), ("voice_mismatch", True)),
    (("status", Status.ACCEPT_CALLER_VOICE.value), ("enrolled", True)),
    *((("status", status.value), ("rejected", True)) for status in sorted(REJECTED)),
    (("status", Status.REJECT_CALLER_VOICE.value), ("rejected_by_rule", False)),
    (("rejected_by_rule", True), ("rejected", True)),
    (("status", Status.FULL_AUTHENTICATION_UNENROLLED.value), ("unenrolled", True)),
    (("unenrolled", True), ("enrolled", False)),
    *((("status", status.value), ("verified", True)) for status in sorted(ESTABLISHES)),
)
"""Pairs of which the second holds whenever the first does, by the way ``facts_of`` derives them."""

_LINKED = sorted({fact for pair in IMPLICATIONS for fact, _ in pair})


def possible(conditions: Iterable[Condition], never: Iterable[Sequence[Condition]] = ()) -> bool:
    """Tell whether a call can meet all ``conditions`` and fail at least one condition of each group in ``never``."""
    conditions, never = tuple(conditions), [tuple(group) for group in never]
    domains = _domains([*conditions, *(condition for group in never for condition in group)])
    for fact, value in conditions:
        domains[fact] &= {value}
    return _search(domains, never)


def _domains(conditions: Iterable[Condition]) -> dict[str, frozenset[Value]]:
    """Return every fact's values: of texts and numbers those that are known or named, and one that is not."""
    domains = {name: frozenset(fact.values) for name, fact in FACTS.items()}
    for name, fact in FACTS.items():
        if fact.kind is not bool:
            domains[name] |= {OTHER}
    for name, value in conditions:
        domains[name] |= {value}
    return domains


def _search(domains: Domains, never: Sequence[Sequence[Condition]]) -> bool:
    settled = _propagate(domains)
    if settled is None:
        return False
    for n, group in enumerate(never):
        if any(value not in settled[fact] for fact, value in group):
            continue
        return _fail_one(settled, group, never[n + 1 :])
    undecided = next((fact for fact in _LINKED if len(settled[fact]) > 1), None)
    if undecided is None:
        return True
    return any(_search({**settled, undecided: frozenset({value})}, ()) for value in settled[undecided])


def _fail_one(domains: Domains, group: Sequence[Condition], rest: Sequence[Sequence[Condition]]) -> bool:
    """Try to fail the first condition of a group, else hold it and fail the next."""
    for fact, value in group:
        without = domains[fact] - {value}
        if without and _search({**domains, fact: without}, rest):
            return True
        domains = {**domains, fact: frozenset({value})}
    return False


def _propagate(domains: Domains) -> Domains | None:
    """Draw all conclusions; None if they contradict each other."""
    known = dict(domains)
    changed = True
    while changed:
        changed = False
        for (fact, value), (then, so) in IMPLICATIONS:
            if known[fact] == {value} and known[then] != {so}:
                known[then] &= {so}
                changed = True
            elif value in known[fact] and so not in known[then]:
                known[fact] -= {value}
                changed = True
            if not known[fact] or not known[then]:
                return None
    return known if all(known.values()) else None
