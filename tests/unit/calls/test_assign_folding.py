"""Who is assigned to a call, in its record."""

from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.assign_folding import assigned, unassigned
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.member_evidence import usable_answers
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.record import History
from tests.records import with_stored
from tests.unit.calls.specimens import BOOK, LISTED, NOW, call, read_again, reading


def test_call_that_we_assign_to_another_person_is_read_before_anything_else() -> None:
    """The last reading is not about this person. It is, if the same person stood there before."""
    for stood, is_read_again in (("p-2", True), ("p-1", False), (None, False)):
        assert assigned(call(person_id=stood), BOOK, NOW).plan.needs_verifying == is_read_again


@pytest.mark.parametrize(
    ("changes", "is_shown"),
    [
        ({}, True),
        ({"state": EffectState.CONFIRMED}, True),
        ({"state": EffectState.UNKNOWN}, False),
        ({"person_id": "p-2"}, False),
    ],
)
def test_assign_was_shown_once_the_queue_or_the_details_name_its_person(
    changes: dict[str, Any], is_shown: bool
) -> None:
    """So it was not ignored."""
    assign = replace(Effect(state=EffectState.APPLIED, person_id="p-1", sent_at=NOW), **changes)
    known = call(assign=assign)
    assert not fold_note(known, replace(LISTED, person_id=None), NOW)[0].ledger.assign.was_shown
    assert not read_again(known, person_id=None).ledger.assign.was_shown
    assert fold_note(known, replace(LISTED, person_id="p-1"), NOW)[0].ledger.assign.was_shown is is_shown
    assert read_again(known, person_id="p-1").ledger.assign.was_shown is is_shown


@pytest.mark.parametrize("is_operators", [True, False])
def test_person_of_an_operator_stays_theirs_after_our_assign(is_operators: bool) -> None:
    """Only whom we have chosen may be replaced by a person at the desk."""
    assign = Effect(
        state=EffectState.APPLIED, person_id="p-1", requested_by="bot", is_operators=is_operators, sent_at=NOW
    )
    ledger = assigned(call(assign=assign), BOOK, NOW).ledger
    assert (ledger.assigned_person_id, ledger.assigned_as) == ((None, None) if is_operators else ("p-1", "bot"))


@pytest.mark.parametrize("shown", [None, "p-2"])
def test_call_whose_assign_was_ignored_is_nobodys(shown: str | None) -> None:
    """Unless details name somebody: that is not whom we had assigned."""
    known = call(person_id=shown or "p-1", history=History(answered=3), assigned_person_id="p-1", assigned_as="bot")
    found = unassigned(with_stored(known, reading=reading(person_id=shown)))
    assert (found.ledger.assigned_person_id, found.ledger.assigned_as) == (None, None)
    assert (found.seen.person_id, usable_answers(found.seen)) == ((None, 0) if shown is None else (shown, 3))
