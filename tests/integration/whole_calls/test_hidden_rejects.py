"""Rejects and findings of fraud that a later status of the service hides."""

import pytest

from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig

H = Happening


async def live(rig: Rig, *script: Happening, run: float = 30, end: float = 900) -> Call:
    """Push a call and let it run for some seconds."""
    call = rig.stage.call(*script, H(Kind.END, end))
    await rig.push(call)
    await rig.run(run)
    return call


@pytest.mark.parametrize("gap", [1, 2, 4])
async def test_reject_elsewhere_just_before_the_end(rig: Rig, gap: int) -> None:
    """A colleague presses reject in another tool. The end, or another activity, hides the status, but not the feedback."""
    call = await live(rig, H(Kind.MFA_VALIDATED, 60), H(Kind.REJECTED, 200 - gap, "agent-9"), end=200, run=300)
    assert call.rejected
    assert "FAILED" in call.feedback
    assert "enroll" not in rig.ledger(call)


async def test_determined_fraud_is_remembered_when_its_case_is_archived(rig: Rig) -> None:
    """SystemArchived says that nobody works on the case, not that it was no fraud."""
    script = H(Kind.MFA_VALIDATED, 60), H(Kind.CASE, 70, "DeterminedFraud"), H(Kind.CASE, 120, "SystemArchived")
    call = await live(rig, *script, end=200, run=300)
    assert "enroll" not in rig.ledger(call)
