"""What a decision must know besides the call, the rules and the time."""

from callkeeper.calls.fact_derivation import facts_of
from callkeeper.calls.record import Obstacles
from tests.unit.calls.specimens import BOOK, call


def test_facts_come_from_what_holds_now_and_not_from_the_record() -> None:
    """What held at the last claim is only shown."""
    known = call(standing="not_active", effects_held_until=None)
    assert not facts_of(known, known.last_claim, BOOK.policies).allowed
    assert facts_of(known, Obstacles(), BOOK.policies).allowed
