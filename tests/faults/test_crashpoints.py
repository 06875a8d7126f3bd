"""Plans of crash points are validated; the crash matrix tests that every point is passed."""

import pytest

from tests.faults.crashpoints import Crashpoint


@pytest.mark.parametrize("plan", ["enroll.after-sent:explode", "enroll.sometime:kill", "enroll.after-sent", "a:kill"])
def test_crashpoint_refuses_a_plan_that_could_never_strike(plan: str) -> None:
    """A misspelt plan raises ValueError, because a test with it would test nothing."""
    with pytest.raises(ValueError, match=r".+"):
        Crashpoint(plan)
