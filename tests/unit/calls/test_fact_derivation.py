"""Facts are derived from a record, each by name."""

import ast
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from callkeeper.calls import fact_derivation
from callkeeper.calls.fact_derivation import has_result, is_decided
from callkeeper.calls.facts import Facts
from callkeeper.calls.record import Call
from tests.conftest import examples
from tests.records import facts_of_record
from tests.unit.calls.specimens import BEGINNINGS, BOOK, NOW, call, calls_near, seconds


@pytest.mark.parametrize(
    ("assigned", "expected"),
    [
        (call(watch_from=NOW - seconds(29.9)), 29),
        (call(watch_from=NOW), 0),
        (call(watch_from=None), 0),
        (call(watch_from=NOW - seconds(29), person_id=None), None),
    ],
    ids=["for a while", "just now", "not yet watched", "nobody"],
)
def test_time_since_the_assignment(assigned: Call, expected: int | None) -> None:
    """Whole seconds since the call got its person; none while it has none."""
    assert facts_of_record(assigned, BOOK.policies, NOW).assigned_s == expected


def test_time_since_the_end_of_a_call_that_was_never_saved_is_0() -> None:
    """Such a record does not say when it was written. The call has ended all the same, so the time is not missing."""
    ended = call(end_seen_at=NOW)
    assert ended.saved_at is None
    assert facts_of_record(ended, BOOK.policies).ended_s == 0


def test_every_fact_is_derived_by_name() -> None:
    """``facts_of`` sets every declared fact explicitly; none silently keeps its default."""
    tree = ast.parse(inspect.getsource(fact_derivation))
    (made,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Facts"
    ]
    assert {keyword.arg for keyword in made.keywords} == set(Facts.__struct_fields__)


DECIDING = {"authenticated_seen", "enrolled_seen", "enroll", "reading"}


@examples(150)
@given(calls_near(*BEGINNINGS, fields=DECIDING, most=len(DECIDING)), st.booleans(), st.booleans())
def test_questions_that_need_no_other_fact_agree_with_the_facts(one: Call, is_full: bool, unenrolled: bool) -> None:
    """They are asked several times for each answer, and so they are not derived from all facts."""
    one = replace(one, seen=replace(one.seen, full_authentication=is_full, unenrolled=unenrolled))
    facts = facts_of_record(one, BOOK.policies, NOW)
    assert has_result(one, BOOK.policies) == (facts.green or facts.red)
    decided = facts.green or facts.red or facts.enrolled or facts.fully_authenticated
    assert is_decided(one, BOOK.policies) == decided
