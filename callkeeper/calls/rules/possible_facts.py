"""What can be true of a call at the same time: the values of facts, and their implications.

It is used to prove faults in rules before any call comes: that a rule can never match, that an earlier rule takes all
its calls, or that the law always forbids it. Calls that the rules cannot distinguish are examined once. Of numbers,
only the values around a change of a condition count; of policies, one name for each set of patterns that a name can
match; of checks, which conditions can be met on enough of them. So the search is finite, and complete for the listed
implications.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

from callkeeper.calls.facts import ENOUGH_ANSWERS, FACTS, LEAST_ANSWERS, Value
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.rules.book import Condition, Includes, InList, Not, OnChecks, OneOf, Test, tests_in, turns
from callkeeper.calls.rules.matching import admits, needs_voice_checked
from callkeeper.calls.rules.patterns import kinds_of_names
from callkeeper.calls.rules.solver import Clause, Domains, Literal, Values, equivalent, only, satisfiable, without
from callkeeper.calls.statuses import ESTABLISHES, FRAUD, REJECTED
from callkeeper.service.enumerations import CallStatus

OTHER: Final = "\0any other value"
"""Represents every value of a text that no condition names."""

MOST_HISTORIES: Final = 20_000
"""How many different courses of the checks are distinguished. More would take seconds."""

MOST_INNER: Final = 8
"""How many different conditions rules may count checks by."""

Plain = tuple[str, Value]

IMPLICATIONS: tuple[tuple[Plain, Plain], ...] = (
    (("verified_by_desk", True), ("verified", True)),
    (("verified_person_is_assigned", True), ("verified", True)),
    (("verified_person_is_assigned", True), ("assigned", True)),
    (("verified", False), ("validation_type", None)),
    (("validation_type", None), ("verified", False)),
    (("manual", True), ("enrolled", True)),
    (("authenticated", True), ("green", True)),
    (("authenticated", True), ("manual", False)),
    (("authenticated", True), ("fully_authenticated", True)),
    (("green", True), ("red", False)),
    (("paused_entirely", True), ("paused", True)),
    (("status", CallStatus.CALL_ENDED.value), ("ended", True)),
    (("status", CallStatus.VOICE_OPT_OUT.value), ("opted_out", True)),
    (("status", CallStatus.VOICE_OPT_IN.value), ("opted_in", True)),
    (("status", CallStatus.ACCEPT_CALLER_VOICE.value), ("enrolled", True)),
    *((("status", status.value), ("rejected", True)) for status in sorted(REJECTED)),
    (("status", CallStatus.REJECT_CALLER_VOICE.value), ("rejected_by_rule", False)),
    (("rejected_by_rule", True), ("rejected", True)),
    (("status", CallStatus.FULL_AUTHENTICATION_UNENROLLED.value), ("unenrolled", True)),
    (("unenrolled", True), ("enrolled", False)),
    *((("status", status.value), ("verified", True)) for status in sorted(ESTABLISHES)),
    (("fraud", True), ("research", FRAUD)),
    (("research", FRAUD), ("fraud", True)),
    (("fraud_elsewhere", True), ("research_elsewhere", FRAUD)),
    (("research_elsewhere", FRAUD), ("fraud_elsewhere", True)),
    (("assigned", False), ("assigned_s", None)),
    (("assigned_s", None), ("assigned", False)),
    (("ended", False), ("ended_s", None)),
    (("ended_s", None), ("ended", False)),
    (("verified", False), ("verified_s", None)),
    (("verified_s", None), ("verified", False)),
    (("assigned", False), ("person_type", None)),
    (("final_analysis", True), ("ended", True)),
    (("verified_in_time", True), ("verified", True)),
    (("status", CallStatus.VOICE_PENDING.value), ("voice_pending", True)),
    (("voice_pending", True), ("status", CallStatus.VOICE_PENDING.value)),
    (("red", True), ("red_seen", True)),
    (("unclassified", True), ("unclassified_seen", True)),
    (("person_is_candidate", True), ("assigned", True)),
    (("evidence_against", True), ("verified", True)),
    (("distrusted_as_another", True), ("distrusted", True)),
    (("distrusted_as_another", True), ("assigned", True)),
    (("named_as_another", True), ("assigned", True)),
    (("voice_undecided", True), ("green", False)),
    (("voice_undecided", True), ("red", False)),
    (("voice_undecided", True), ("voice_mismatch", False)),
)
"""Pairs in which the second holds whenever the first does, because of how ``facts_of`` derives them."""

UNSUSPICIOUS: tuple[Plain, ...] = (
    ("red", False),
    ("red_seen", False),
    ("unclassified", False),
    ("voice_mismatch", False),
    ("high_risk_device", False),
    ("fraud", False),
    ("rejected", False),
    ("distrusted", False),
)
"""What is true of a call if nothing is known that speaks against the caller."""

_SIGNS: Final = tuple(name for name, fact in FACTS.items() if fact.by_check and fact.kind is bool)
"""Facts that every check's answer shows anew."""

_HISTORY: Final = "history"
_POLICY: Final = "policy "
_EITHER: Final[Values] = frozenset({True, False})
_REMEMBERED: Final = tuple((name, OnChecks(test=True, least=1)) for name in ("voice_mismatch", "high_risk_device"))
"""Signs that stay true for the whole call once a check has shown them."""


class TooManyHistories(Exception):
    """The conditions about checks have more combinations than can be examined."""


@dataclass(frozen=True)
class World:
    """Everything that can be true of a call, as far as these conditions distinguish calls.

    ``conditions`` are all conditions that will be asked about. ``policies`` gives the colours of names.
    """

    policies: Policies
    conditions: tuple[Condition, ...]

    def possible(self, conditions: Iterable[Condition], never: Iterable[Sequence[Condition]] = ()) -> bool:
        """Tell whether a call can meet all ``conditions`` and fail at least one condition of each group in ``never``.

        Raises:
            TooManyNames: The patterns of policies have too many combinations.
            TooManyHistories: The conditions about checks have too many combinations.
        """
        domains = self._domains
        demands: list[Clause] = [(literal,) for one in conditions for literal in self._literals(one, domains)]
        demands += [
            tuple(without(domains, literal) for one in group for literal in self._literals(one, domains))
            for group in never
        ]
        return satisfiable(domains, [*demands, *self._laws])

    def speaks_against(self, condition: Condition) -> bool:
        """Tell whether a condition is met only by calls for which something speaks against the caller.

        A neutral policy counts if a rule names it.
        """
        domains = self._domains
        good = [self._literal(one, domains) for one in (condition, *UNSUSPICIOUS)]
        good += [only(_POLICY + name, False) for name, colour in self._kinds.items() if colour is not Colour.GREEN]
        return not satisfiable(domains, [*((literal,) for literal in good), *self._laws])

    def _literals(self, condition: Condition, domains: Domains) -> list[Literal]:
        """Return what a condition demands: values of its fact and, for absent evidence, that the voice had its say."""
        known = [only("voice_checked", True)] if needs_voice_checked(condition) else []
        return [self._literal(condition, domains), *known]

    def _literal(self, condition: Condition, domains: Domains) -> Literal:
        """Return a condition as the values that a variable must have."""
        name, test = condition
        match test:
            case Not(inner):
                return without(domains, self._literal((name, inner), domains))
            case Includes():
                return only(_includes(self._fitting(test)), True)
            case InList():
                return _listed(condition), frozenset({True})
            case OnChecks():
                n = self._on_checks.index((name, test))
                return _HISTORY, frozenset(met for met in self._histories if met[n])
            case _:
                met = [value for value in domains[name] if admits(test, value)]  # type: ignore[arg-type]  # a fact's values
                return name, frozenset(met)

    @cached_property
    def _domains(self) -> dict[str, Values]:
        domains: dict[str, Values] = {_HISTORY: frozenset(self._histories), **self._policy_domains}
        for name, fact in FACTS.items():
            if fact.kind is int:
                domains[name] = self._numbers(name)
            elif fact.kind is str:
                named = (value for one, test in self.conditions if one == name for value in _values(test))
                others = () if name == "validation_type" else (OTHER,)  # the service may use any status
                domains[name] = frozenset({*fact.named, None, *others, *named})
            elif fact.kind is bool:
                domains[name] = _EITHER
        domains |= {_listed((name, one)): _EITHER for name, test in self.conditions for one in tests_in(test, InList)}
        return domains

    def _numbers(self, name: str) -> Values:
        """Return the values around each change of a condition, or all values if there are few."""
        most = FACTS[name].most
        if most is not None:
            return frozenset(range(most + 1))
        changes = {turn for fact, test in self.conditions if fact == name for turn in turns(test)}
        numbers: set[int | None] = {0, *(n for n in changes if n >= 0), *(n - 1 for n in changes if n >= 1)}
        return frozenset(numbers | {None} if FACTS[name].since else numbers)

    @cached_property
    def _laws(self) -> list[Clause]:
        domains = self._domains
        laws: list[Clause] = [(without(domains, only(*first)), only(*second)) for first, second in IMPLICATIONS]
        laws += [
            (without(domains, only("checks_used", used)), only("checks_left", CHECK_LIMIT - used))
            for used in range(CHECK_LIMIT + 1)
        ]
        for met, (fewest, most) in self._histories.items():
            other = without(domains, only(_HISTORY, met))
            laws.append((other, only("checks_used", *range(fewest, CHECK_LIMIT + 1))))
            laws.append((other, only("checks_answered", *range(most + 1))))
        laws.append((only("ended", True), only("verified", False), only("verified_in_time", True)))
        # The record shows one case at a time; what an investigator once determined is remembered beside it.
        laws.append((only("research", None, FRAUD), only("research_elsewhere", None, FRAUD)))
        laws += [
            (without(domains, only("checks_answered", n)), only("checks_used", *range(n, CHECK_LIMIT + 1)))
            for n in range(1, CHECK_LIMIT + 1)
        ]
        least, enough = (only("checks_answered", *range(n, CHECK_LIMIT + 1)) for n in (LEAST_ANSWERS, ENOUGH_ANSWERS))
        final = (only("final_analysis", True), only("voice_pending", False), only("provider_error", False), least)
        laws += [(only("voice_checked", False), enough, needed) for needed in final]
        laws.append((without(domains, enough), only("voice_checked", True)))
        for sign in _REMEMBERED:
            if sign in self._on_checks:
                laws.append((without(domains, self._literal(sign, domains)), only(sign[0], True)))
        return [*laws, *self._policy_laws(domains), *self._green_laws(domains)]

    # The policies of a call: one name represents all that match the same patterns.

    @cached_property
    def _kinds(self) -> dict[str, Colour]:
        """Return a name for each set of patterns that a name can match, with its colour."""
        lists = (self.policies.green, self.policies.red, self.policies.neutral, (MANUAL_GREEN,))
        named = (pattern for _, test in self.conditions for one in tests_in(test, Includes) for pattern in one.patterns)
        names = kinds_of_names(tuple(sorted({*named}.union(*lists))))
        return {name: self.policies.colour(name) for name in names.values()}

    def _of(self, colour: Colour) -> list[Literal]:
        """Return the literals that a policy of a colour is applied, one for each name."""
        return [only(_POLICY + name, True) for name, its in self._kinds.items() if its is colour]

    def _fitting(self, test: Includes) -> frozenset[str]:
        return frozenset(name for name in self._kinds if admits(test, (name,)))

    @cached_property
    def _sets_of_names(self) -> frozenset[frozenset[str]]:
        """Return, for every condition about policies, which kinds of names meet it."""
        return frozenset(self._fitting(one) for _, test in self.conditions for one in tests_in(test, Includes))

    @cached_property
    def _policy_domains(self) -> dict[str, Values]:
        names = [*(_POLICY + name for name in self._kinds), *map(_includes, self._sets_of_names)]
        return dict.fromkeys(names, _EITHER)

    def _policy_laws(self, domains: Domains) -> list[Clause]:
        """Return what holds for the policies of a call, and for those of one check's answer."""
        laws: list[Clause] = []
        for colour in (Colour.RED, Colour.UNCLASSIFIED):
            laws += equivalent(only(colour.value, True), self._of(colour), domains)
        for names in self._sets_of_names:
            laws += equivalent(only(_includes(names), True), [only(_POLICY + name, True) for name in names], domains)
        return laws

    def _green_laws(self, domains: Domains) -> list[Clause]:
        by_hand = only(_POLICY + MANUAL_GREEN, True)
        by_voice = [literal for literal in self._of(Colour.GREEN) if literal != by_hand]
        return [
            (without(domains, by_hand), only("enrolled", True), only("unenrolled", True)),
            (only("green", False), only("authenticated", True), *by_voice),
            (
                without(domains, only("status", CallStatus.FULL_AUTHENTICATION.value)),
                only("fully_authenticated", True),
                only("member_changed", True),
            ),
            *equivalent(only("green_policy", True), [*by_voice, by_hand], domains),
        ]

    # The history: which conditions about checks can be met together, and how many checks that takes.

    @cached_property
    def _on_checks(self) -> list[Condition]:
        """Return the conditions about checks, each once."""
        found = [(name, test) for name, whole in self.conditions for test in tests_in(whole, OnChecks)]
        ever = [sign for sign in _REMEMBERED if any(name == sign[0] for name, _ in found)]
        return list(dict.fromkeys([*found, *ever]))

    @cached_property
    def _histories(self) -> dict[tuple[bool, ...], tuple[int, int]]:
        """Return each combination of met conditions about checks, with the fewest and most answers that give it."""
        on_checks = [(name, test) for name, test in self._on_checks if isinstance(test, OnChecks)]
        inner = list(dict.fromkeys((name, test.test) for name, test in on_checks))
        most = tuple(max(test.least for name, test in on_checks if (name, test.test) == one) for one in inner)
        places = [(inner.index((name, test.test)), test.least) for name, test in on_checks]
        found: dict[tuple[bool, ...], tuple[int, int]] = {}
        answers = self._answers(inner)
        for counts, (fewest, longest) in _counts(answers, most).items():
            met = tuple(counts[place] >= least for place, least in places)
            known = found.get(met, (fewest, longest))
            found[met] = (min(fewest, known[0]), max(longest, known[1]))
        return found

    def _answers(self, inner: Sequence[Condition]) -> list[tuple[bool, ...]]:
        """Return which conditions the answer of one check can meet together."""
        domains: dict[str, Values] = {**dict.fromkeys(_SIGNS, _EITHER), **self._policy_domains}
        laws = self._policy_laws(domains)
        literals = [self._literal(condition, domains) for condition in inner]
        if len(literals) > MOST_INNER:
            raise TooManyHistories

        def can_be(met: tuple[bool, ...]) -> bool:
            answered = [(one if holds else without(domains, one),) for one, holds in zip(literals, met, strict=True)]
            return satisfiable(domains, [*answered, *laws])

        return [met for met in product((True, False), repeat=len(literals)) if can_be(met)]


Counts = tuple[int, ...]


def _counts(answers: Sequence[tuple[bool, ...]], most: Counts) -> dict[Counts, tuple[int, int]]:
    """Return how often conditions can be met by up to 20 answers, with the fewest and most answers for that.

    Counts end at ``most``, because higher ones make no difference.
    """

    def after(counts: Counts, answer: tuple[bool, ...]) -> Counts:
        return tuple(min(count + met, end) for count, met, end in zip(counts, answer, most, strict=True))

    fewest = {(0,) * len(most): 0}
    latest = set(fewest)
    for n in range(1, CHECK_LIMIT + 1):
        latest = {after(counts, answer) for counts in latest for answer in answers} - fewest.keys()
        fewest |= dict.fromkeys(latest, n)
        if len(fewest) > MOST_HISTORIES:
            raise TooManyHistories
    longest = dict.fromkeys(fewest, 0)
    for counts in sorted(fewest, key=sum):  # an answer never makes a count smaller
        later = {after(counts, answer) for answer in answers}
        if counts in later:
            longest[counts] = CHECK_LIMIT
        for one in later & longest.keys():
            longest[one] = max(longest[one], min(CHECK_LIMIT, longest[counts] + 1))
    return {counts: (n, longest[counts]) for counts, n in fewest.items()}


def _includes(names: frozenset[str]) -> str:
    return f"includes {sorted(names)}"


def _values(test: Test) -> Iterator[Value]:
    """Yield the values that a test of a text names."""
    match test:
        case OneOf(values):
            yield from values
        case Not(inner):
            yield from _values(inner)
        case str():
            yield test
        case _:
            return


def _listed(condition: Condition) -> str:
    """Return the variable for being in a list. Lists may have anything in common, so each has its own."""
    return f"listed {condition}"
