"""Records after Redis's clock was set back, or jumped ahead."""

from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from callkeeper.calls.claimed_item import CLOCK_TOLERANCE, Jump
from callkeeper.calls.decide import FRESH
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import evidence
from callkeeper.calls.record import Call
from callkeeper.calls.redis_restart import NEVER_FRESH, catch_up, set_back
from callkeeper.calls.steps import Send
from tests.records import decide_record, stored_values
from tests.unit.calls.specimens import BOOK, CALLS, NOW, call, reading, seconds, verified

UNTOUCHED = {"saved_at", "started_at", "settled_at"}
"""Ours to say when it was, or the service's: never compared with the present."""


@given(CALLS, st.integers(0, 5))
def test_set_back_leaves_a_record_alone_within_the_tolerance(any_call: Call, back_s: int) -> None:
    """A clock that went on, or back by less than the tolerance, changes nothing."""
    assert set_back(any_call, NOW, NOW - seconds(back_s)) == any_call
    assert seconds(5) == CLOCK_TOLERANCE


@given(CALLS, st.sampled_from([6.0, 60.0, 3600.0, 86_400.0]))
def test_set_back_keeps_every_distance_from_the_present(any_call: Call, back_s: float) -> None:
    """Every instant that decisions compare is as far from now as before, and what was last read a little farther.

    Nothing stalls, and nothing looks fresh although nobody can tell how long ago it was saved (C19).
    """
    shifted = set_back(any_call, NOW, NOW - seconds(back_s))
    before, after = _instants(any_call), _instants(shifted)
    stale = {name: NEVER_FRESH if name in WHAT_WAS_SAID else seconds(0) for name in before}
    assert {name: at - seconds(back_s) - stale[name] for name, at in before.items()} == after
    assert NEVER_FRESH > FRESH


WHAT_WAS_SAID = {"listed_at", "reading.read_at"}


def _instants(record: Any) -> dict[str, datetime]:
    fields = stored_values(record)
    found = {name: at for name, at in fields.items() if isinstance(at, datetime) and name not in UNTOUCHED}
    for name in ("assign", "enroll", "reject", "reading", "identity"):
        if fields[name] is not None:
            found |= {f"{name}.{key}": at for key, at in asdict(fields[name]).items() if isinstance(at, datetime)}
    return found


def test_set_back_never_turns_an_old_reading_into_a_proof() -> None:
    """A reading from before the sending stays from before: it neither proves an effect absent nor lets one be sent."""
    doubtful = call(
        reading=reading(read_at=NOW - seconds(1)),
        enroll=Effect(state=EffectState.UNKNOWN, person_id="p-1", sent_at=NOW),
    )
    then = NOW - seconds(3600)
    assert evidence(EffectKind.ENROLL, set_back(doubtful, NOW, then), then) is None
    intended = Effect(
        state=EffectState.INTENDED,
        person_id="p-1",
        validation_type="OneTimePasswordAuth",
        operator="ann",
        intended_at=NOW,
        was_read_since=True,
    )
    stale = call(reading=reading(read_at=NOW - seconds(5)), identity=verified(), enroll=intended)
    assert not isinstance(decide_record(set_back(stale, NOW, then), BOOK, then), Send)


def test_record_of_before_a_jump_ahead_keeps_every_distance_from_the_present() -> None:
    """One that was saved after it is right. Later jumps shift what earlier ones have shifted."""
    first, second = Jump(NOW, seconds(3600)), Jump(NOW + seconds(3700), seconds(60))
    before = call(saved_at=NOW - seconds(1), next_check_at=NOW + seconds(5))
    between = call(saved_at=NOW + seconds(3600), next_check_at=NOW + seconds(3605))
    after = call(saved_at=NOW + seconds(3760), next_check_at=NOW + seconds(3765))
    for known, late_s in ((before, 3660), (between, 60), (after, 0)):
        caught_up = catch_up(known, (first, second))
        expected = _instants(known)
        assert _instants(caught_up) == {name: at + seconds(late_s) for name, at in expected.items()}
    assert catch_up(call(saved_at=None), (first, second)) == call(saved_at=None)
