"""Facts are derived from a record, each by name."""

import ast
import inspect

import pytest

from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.facts import Facts
from callkeeper.calls.record import Call
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, NOW, call, seconds


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
    tree = ast.parse(inspect.getsource(facts_of))
    (made,) = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Facts"
    ]
    assert {keyword.arg for keyword in made.keywords} == set(Facts.__struct_fields__)
