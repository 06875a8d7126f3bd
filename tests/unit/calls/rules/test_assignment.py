"""Whom rules assign: whom a person named, or the only candidate of a call that nobody has claimed."""

from dataclasses import replace
from typing import Any

import pytest

from callkeeper.calls.effect_ledger import Effect
from callkeeper.calls.record import Call, Candidate
from callkeeper.calls.rules.assignment import Assignment, assign_obstacle, judge_assignment
from callkeeper.calls.rules.book import RuleBook
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, call, verified, word

ONE, TWO = Candidate(person_id="p-1", person_type="Primary"), Candidate(person_id="p-2", person_type="Joint")
FREE: dict[str, Any] = {"person_id": None, "assign": Effect(), "candidates": (ONE,)}


def judged(known: Call, book: RuleBook = BOOK) -> Assignment:
    """Return whom rules assign."""
    return judge_assignment(known, book, facts_of_record(known, book.policies))


def test_only_candidate_of_an_unclaimed_call_is_assigned() -> None:
    """Also if the service has filled it in already: only an assign correlates the account."""
    assert judged(call(**FREE)).allowed_person == "p-1"
    assert assign_obstacle(call(**FREE), BOOK) is None
    assert assign_obstacle(call(**FREE | {"person_id": "p-1"}), BOOK) is None


BOOKS = {
    "manual": replace(BOOK, assign=replace(BOOK.assign, automatic=False)),
    "elsewhere": replace(BOOK, assign=replace(BOOK.assign, institutions=frozenset({"cu-2"}))),
    "owners": replace(BOOK, assign=replace(BOOK.assign, person_types=frozenset({"Joint"}))),
}
OBSTACLES = {
    "the call has a person": (FREE | {"person_id": "p-9"}, BOOK),
    "[assign] automatic is false": (FREE, BOOKS["manual"]),
    "[assign] institutions leaves it out": (FREE, BOOKS["elsewhere"]),
    "an operator has claimed the call": (FREE | {"core_username": "ann"}, BOOK),
    "no candidates, exactly one is needed": (FREE | {"candidates": ()}, BOOK),
    "2 candidates, exactly one is needed": (FREE | {"candidates": (ONE, TWO)}, BOOK),
    "one candidate, but there were several before: a person chooses": (FREE | {"had_several_candidates": True}, BOOK),
    "a person verified the caller as somebody else": (FREE | {"identity": verified(person_id="p-2")}, BOOK),
    "the only candidate has no person id": (FREE | {"candidates": (Candidate(person_id=""),)}, BOOK),
    "the only candidate is of person type Primary, not among [assign] person_types": (FREE, BOOKS["owners"]),
}


@pytest.mark.parametrize(("because", "case"), OBSTACLES.items(), ids=OBSTACLES)
def test_nobody_is_assigned_against_an_obstacle(because: str, case: tuple[dict[str, Any], RuleBook]) -> None:
    """Each is named."""
    changes, book = case
    answer = judged(call(**changes), book)
    assert (answer.person_id, answer.because) == (None, because)
    assert assign_obstacle(call(**changes), book) == because


def test_only_candidate_is_assigned_at_an_institution_of_the_list() -> None:
    """So that another one can be watched first."""
    here = replace(BOOK, assign=replace(BOOK.assign, institutions=frozenset({"cu-1", "cu-2"})))
    assert judged(call(**FREE), here).allowed_person == "p-1"


def test_person_at_the_desk_is_believed_against_every_obstacle_but_the_law() -> None:
    """The trail then names the operator; the law may still forbid to replace somebody."""
    wish = word("ann", person_id="p-2")
    answer = judged(call(**FREE | {"candidates": (), "assign_wish": wish}))
    assert (answer.allowed_person, answer.operator) == ("p-2", "ann")
    replacing = judged(call(assign_wish=wish))
    assert replacing.person_id == "p-2"
    assert replacing.forbidden
    assert replacing.allowed_person is None


def test_fingerprint_changes_with_everything_that_a_trail_tells() -> None:
    """So that each decision is written once."""
    base = Assignment("p-1", "because", rules="d")
    others = [replace(base, person_id="p-2"), replace(base, because="x"), replace(base, forbidden=("y",))]
    assert len({each.fingerprint for each in [base, *others, replace(base, rules="e")]}) == 5
