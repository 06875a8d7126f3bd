"""What the proofs say is possible, held against every call that there can be in a small world."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import combinations, combinations_with_replacement, product
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from callkeeper.calls.facts import Facts
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call, Candidate, History, Reading
from callkeeper.calls.rules import Outcome, Rule, Stage
from callkeeper.calls.rules.book import Between, Condition, Includes, Not, OnChecks, OneOf, Test
from callkeeper.calls.rules.matching import holds, judge
from callkeeper.calls.rules.patterns import kinds_of_names
from callkeeper.calls.rules.possible_facts import World
from callkeeper.calls.rules.proofs import Proofs
from tests.conftest import examples
from tests.records import facts_of_record, with_stored
from tests.unit.calls.rules.specimens import BOOK

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
POLICIES = Policies(green=("Green *",), red=("Red *",), neutral=("Zebra *",))
NAMES = ("Green Voice", "Green Manual Authentication", "Red Fraud", "Red Alert", "Zebra Device Policy", "Unheard of")
"""One name for each set of patterns that a name can fit, of those that are asked about here."""

PATTERNS = ("Zebra *", "Red Fraud", "Green *", "Red *")


def call(**known: Any) -> Call:
    """Return a live call of which some things are known."""
    policies = known.pop("policies", ())
    reading = Reading(read_at=NOW, voice_id="v", policies=tuple(policies))
    return with_stored(Call(institution_key="cu-1", voice_id="v"), reading=reading, **known)


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(names) + 1):
        yield from combinations(names, size)


def _flags(*names: str) -> Iterator[dict[str, bool]]:
    for values in product((False, True), repeat=len(names)):
        yield dict(zip(names, values, strict=True))


def facts(one: Call) -> Facts:
    """Return the facts of a call as production derives them."""
    return facts_of_record(one, POLICIES, NOW)


SEEN = ("authenticated_seen", "enrolled_seen", "unenrolled_seen", "full_authentication_seen")
CHECKED: dict[str, Any] = {"history": History(answered=(1 << 18) - 1), "checks_used": 18}
BY_POLICY = [
    facts(call(policies=names, **seen, **known))
    for names in _subsets(NAMES)
    for seen in _flags(*SEEN)
    for known in ({}, CHECKED)
]

BY_NUMBER = [
    facts(
        call(
            checks_used=used,
            candidates=tuple(Candidate(person_id=str(n)) for n in range(candidates)),
            person_id=None if since is None else "p",
            watch_from=None if since is None else NOW - timedelta(seconds=since),
        )
    )
    for used in range(21)
    for candidates in range(7)
    for since in (None, *range(7))
]

ANSWERS = [
    (names, signs) for names in _subsets(("Red Fraud", "Zebra Device Policy")) for signs in ((), ("voice_mismatch",))
]


FINAL = {"end_seen_at": NOW - timedelta(seconds=9), "final_since": NOW - timedelta(seconds=9)}
"""The final analysis was read: what checks did not show is known."""


def _histories() -> Iterator[Facts]:
    for size in range(5):
        for answers in combinations_with_replacement(ANSWERS, size):
            history = History()
            for n, (policies, signs) in enumerate(answers, 1):
                history = history.with_answer(n, policies, signs)
            for seen in {True, bool(history.signs)}:
                for used, ended in product({*range(size, 6), 20}, ({}, FINAL)):  # checks may go without an answer
                    yield facts(call(history=history, mismatch_seen=seen, checks_used=used, **ended))


BY_HISTORY = list(_histories())


def either(tests: st.SearchStrategy[Test]) -> st.SearchStrategy[Test]:
    """Return tests and their opposites."""
    return st.one_of(tests, tests.map(Not))


def of(names: Sequence[str], tests: st.SearchStrategy[Test]) -> st.SearchStrategy[Condition]:
    """Return conditions on one of these facts."""
    return st.tuples(st.sampled_from(names), tests)


patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(lambda found: Includes(tuple(found)))
numbers = st.one_of(
    st.integers(0, 4),
    st.builds(lambda one, two: Between(min(one, two), max(one, two)), st.integers(0, 5), st.integers(0, 5)),
    st.builds(Between, st.integers(0, 5)),
    st.builds(lambda most: Between(most=most), st.integers(0, 5)),
    st.lists(st.integers(0, 4), min_size=1, max_size=3).map(lambda values: OneOf(tuple(values))),
)
by_policy = st.one_of(
    of(
        ("green", "red", "unclassified", "green_policy", "manual", "authenticated", "unenrolled"), either(st.booleans())
    ),
    of(("policies",), either(patterns)),
)
by_number = st.one_of(
    of(("checks_used", "checks_left", "candidates", "assigned_s"), either(numbers)), of(("assigned",), st.booleans())
)
counted = st.one_of(
    st.tuples(
        st.just("policies"),
        st.builds(OnChecks, st.sampled_from([Includes(("Zebra *",)), Not(Includes(("Red *",)))]), st.integers(1, 2)),
    ),
    st.tuples(st.sampled_from(("voice_mismatch", "red")), st.builds(OnChecks, st.booleans(), st.integers(1, 2))),
)
by_history = st.one_of(
    counted,
    counted.map(lambda one: (one[0], Not(one[1]))),
    of(("checks_used",), numbers),
    of(("voice_mismatch",), st.booleans()),
)


def agree(every: Sequence[Facts], must: list[Condition], never: list[list[Condition]]) -> None:
    """Hold the search against every call."""
    world = World(POLICIES, (*must, *(one for group in never for one in group)))
    shown = any(
        all(holds(one, known) for one in must) and not any(all(holds(one, known) for one in group) for group in never)
        for known in every
    )
    assert world.possible(must, never) == shown


def asked(condition: st.SearchStrategy[Condition], size: int = 3) -> tuple[Any, Any]:
    """Return what must hold and what must never."""
    groups = st.lists(condition, min_size=1, max_size=2)
    return st.lists(condition, max_size=size), st.lists(groups, max_size=2)


@given(*asked(by_policy))
def test_policies_are_possible_exactly_where_some_call_shows_them(
    must: list[Condition], never: list[list[Condition]]
) -> None:
    """Names, colours and what follows from both, for every set of names and everything that was seen."""
    agree(BY_POLICY, must, never)


@examples(40)
@given(*asked(by_number))
def test_numbers_are_possible_exactly_where_some_call_shows_them(
    must: list[Condition], never: list[list[Condition]]
) -> None:
    """Comparisons, lists and their opposites; checks used and left are one number; nobody assigned has no seconds."""
    agree(BY_NUMBER, must, never)


@examples(40)
@given(*asked(by_history, 2))
@example(
    must=[("red", Not(OnChecks(test=True, least=1))), ("checks_used", 1)],
    never=[[("policies", OnChecks(Not(Includes(("Red *",))), 1))]],
)
def test_histories_are_possible_exactly_where_some_checks_show_them(
    must: list[Condition], never: list[list[Condition]]
) -> None:
    """What was seen on several checks needs so many checks, and answers that can show it at once."""
    named = {str(one) for group in (must, *never) for one in group if "OnChecks" in str(one)}
    if len(named) <= 2:  # four answers show all that two conditions can tell apart
        agree(BY_HISTORY, must, never)


@given(st.lists(st.text("ab*", min_size=1, max_size=4), min_size=1, max_size=3))
def test_kinds_of_names_are_those_that_names_show(found: list[str]) -> None:
    """Every name of up to six letters is of a kind that is known, and every kind has a name that is of it."""
    one_by_one = {pattern: Policies(green=(pattern,)) for pattern in found}

    def fits(name: str) -> frozenset[str]:
        return frozenset(pattern for pattern, colours in one_by_one.items() if colours.colour(name) == "green")

    kinds = kinds_of_names(tuple(found))
    assert all(fits(name) == kind for kind, name in kinds.items())
    shown = {fits("".join(letters)) for size in range(1, 7) for letters in product("abx", repeat=size)}
    assert shown <= set(kinds)


DAYS = (None, *(NOW + timedelta(days=day) for day in range(3)))


@st.composite
def dated_rules(draw: st.DrawFn) -> list[Rule]:
    """Return rules with dates, for institutions."""
    rules = []
    for n in range(draw(st.integers(1, 4))):
        begins, ends = draw(st.sampled_from([(a, b) for a in DAYS for b in DAYS if None in {a, b} or str(a) < str(b)]))
        rules.append(
            Rule(
                f"rule {n}",
                tuple(draw(st.lists(by_number, max_size=2))),
                Outcome.HOLD,
                "because",
                stage=draw(st.sampled_from((Stage.LIVE, Stage.LIVE, Stage.SHADOW))),
                institutions=draw(st.sampled_from((None, None, frozenset({"cu-1"}), frozenset({"cu-2"})))),
                valid_from=begins,
                valid_until=ends,
            )
        )
    return rules


@examples(25)
@given(dated_rules())
def test_rule_is_reached_exactly_where_some_call_gets_to_it(rules: list[Rule]) -> None:
    """A rule is called unreachable when no call, of no institution, at no time is decided by it; asked of the last one."""
    last = replace(rules[-1], stage=Stage.LIVE)
    proofs = Proofs.of(rules, POLICIES)
    if not proofs.world.possible(last.when):
        return
    times = [at for at in (NOW - timedelta(days=1), *DAYS[1:]) if at is not None]
    book = replace(BOOK, rules=(*rules[:-1], last))
    small = [known for known in BY_NUMBER if known.checks_used in {*range(7), *range(14, 21)}]
    decided = (
        judge(with_fields(known, at=at), book, key).rule == last.name
        for at in times
        for key in ("cu-1", "cu-2", "cu-3")
        for known in small
    )
    assert (proofs.taken_by(rules[:-1], last) is None) == any(decided)
