"""Laws of what a settled call tells: the interval in which its result came, and how long it lived."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Phase, Reason
from callkeeper.calls.schedule.estimate import Observation, observe
from callkeeper.calls.trail import Entry, Recorded, What

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
POLICIES = Policies(green=("Green *",), red=("Red *",))


def line(seconds: float, what: What, **more: Any) -> Entry:
    """Return a line of a trail, some seconds after the call began."""
    return Entry(at=START + timedelta(seconds=seconds), what=what, **more)


ASSIGNED = line(2, "answered", kind="assign", state=EffectState.APPLIED)
MISSED = line(12.5, "checked", n=1, status="Voice Pending", person_id="p-1", took_ms=500)
GREEN = line(22, "checked", n=2, policies=("Green Voice Authentication",), person_id="p-1")
RED = line(22, "checked", n=2, policies=("Red High Risk",), person_id="p-1")
FULL = line(22, "read", status="FullAuthentication", person_id="p-1")
MANUAL = line(22, "read", status="FullAuthentication", policies=("Green Manual Authentication",), person_id="p-1")
ENDED, SETTLED = line(62, "ended"), line(65, "settled")
FINAL = line(62, "read", status="CallEnded", policies=("Green Voice Authentication",), person_id="p-1")


def call(*trail: Entry, reason: Reason | None = Reason.UNDECIDED) -> Recorded:
    """Return a recorded call."""
    return Recorded(
        institution_key="cu-1", voice_id="v-1", phase=Phase.SETTLED, trail=trail, started_at=START, reason=reason
    )


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        pytest.param(call(ASSIGNED, MISSED, GREEN, ENDED, SETTLED), Observation(10, 20, 60), id="green"),
        pytest.param(call(ASSIGNED, MISSED, RED, ENDED, SETTLED), Observation(10, 20, 60), id="red"),
        pytest.param(call(ASSIGNED, MISSED, FULL, ENDED, SETTLED), Observation(10, 20, 60), id="seen-by-a-read"),
        pytest.param(call(ASSIGNED, GREEN, ENDED, SETTLED), Observation(0, 20, 60), id="first-check"),
        pytest.param(call(ASSIGNED, MISSED, FINAL, ENDED, SETTLED), Observation(10, 60, 60), id="only-at-the-end"),
        pytest.param(call(ASSIGNED, MISSED, ENDED, SETTLED), Observation(60, None, 60), id="never"),
        pytest.param(
            call(ASSIGNED, MISSED, MANUAL, ENDED, SETTLED), Observation(60, None, 60), id="manual-is-no-result"
        ),
        pytest.param(
            call(ASSIGNED, MISSED, SETTLED, reason=Reason.LOST), Observation(10, None, 63, has_ended=False), id="lost"
        ),
        pytest.param(
            call(line(5, "listed", person_id="p-1"), GREEN, ENDED, SETTLED),
            Observation(0, 22, 62),
            id="listed-assigned",
        ),
        pytest.param(
            call(line(4, "read", person_id="p-1"), GREEN, ENDED, SETTLED),
            Observation(0, 18, 58),
            id="assigned-elsewhere",
        ),
        pytest.param(call(line(5, "listed"), ENDED, SETTLED, reason=Reason.UNASSIGNED), None, id="never-assigned"),
        pytest.param(call(ASSIGNED, MISSED, reason=None), None, id="still-live"),
        pytest.param(call(), None, id="no-trail"),
    ],
)
def test_observation_is_what_the_trail_shows(recorded: Recorded, expected: Observation | None) -> None:
    """A result came after the last check that was sent without one, and by the first answer that shows one."""
    assert observe(recorded, POLICIES) == expected
