"""What forbids a further check, in the order in which it is named."""

from typing import Any

import pytest

from callkeeper.calls.institutions import FOREIGN
from callkeeper.calls.record import CHECK_LIMIT, Call
from callkeeper.calls.stop_rule import check_obstacle, desk_check_obstacle
from tests.unit.calls.specimens import BOOK, NOW, call, read_again

OBSTACLES: dict[str, dict[str, Any]] = {
    "institution_not_allowed": {"standing": FOREIGN},
    "call_ended": {"end_seen_at": NOW},
    "voice_rejected": {"rejected_seen": True},
    "no_checks_left": {"checks_used": CHECK_LIMIT},
}


def obstacle(known: Call) -> str | None:
    """Return what forbids a further check."""
    return check_obstacle(known, known.last_claim, BOOK.policies)


def desk_obstacle(known: Call) -> str | None:
    """Return what forbids a check that a person asks for."""
    return desk_check_obstacle(known, known.last_claim, BOOK.schedule, BOOK.policies)


def test_live_undecided_call_may_be_checked() -> None:
    """Nothing speaks against it."""
    assert obstacle(call()) is None
    assert obstacle(call(checks_used=CHECK_LIMIT - 1)) is None


@pytest.mark.parametrize(("name", "changes"), OBSTACLES.items(), ids=OBSTACLES)
def test_each_obstacle_forbids_a_check_and_is_named(name: str, changes: dict[str, Any]) -> None:
    """One is enough, and of several the first is named (Spec: Polling stop rule for authentication checks)."""
    assert obstacle(call(**changes)) == name
    all_together = {field: value for one in OBSTACLES.values() for field, value in one.items()}
    assert obstacle(call(**all_together)) == "institution_not_allowed"


def test_decided_call_is_checked_no_more() -> None:
    """A green policy decides."""
    green = read_again(call(), policies=("Green Voice Authentication",))
    assert obstacle(green) == "already_decided"


def test_person_may_spend_the_reserve_and_no_more() -> None:
    """A check that a person asks for ends with the reserve; otherwise the stop rule holds for it too."""
    reserve = BOOK.schedule.reserve
    assert desk_obstacle(call(checks_by_desk=reserve - 1)) is None
    assert desk_obstacle(call(checks_by_desk=reserve)) == "reserve_spent"
    assert desk_obstacle(call(end_seen_at=NOW)) == "call_ended"
