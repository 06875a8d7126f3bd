"""Trouble of one endpoint (the queue, checks) does not stop the others."""

import pytest

from calls.notes import Distrusted
from calls.store.breakers import service_away
from sandbox.faults import Action, Fault
from sandbox.state import Happening, Kind
from tests.rig import EAGER, KEY, Rig

IDLE = [f"cu-{n}" for n in range(2, 10)]


@pytest.mark.parametrize("idle", [IDLE, []], ids=["eight idle institutions", "one institution"])
async def test_queue_that_fails_stops_no_check_and_no_effect(rig: Rig, idle: list[str]) -> None:
    """Only the queue answers 500, for everybody: verified callers are enrolled, distrusted ones rejected, all checked."""
    rig = Rig(rig.stage, rig.redis, EAGER)
    for key in idle:
        rig.stage.world.add_institution(key, key)
    verified = [rig.stage.call(Happening(Kind.MFA_VALIDATED, 120), Happening(Kind.END, 295)) for _ in range(3)]
    rig.stage.world.add_member(KEY, "p-9", ["5550100999"])
    distrusted = rig.stage.call(Happening(Kind.END, 295), phone_number="5550100999")
    await rig.run(15)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=500))
    await rig.run(60)
    assert await service_away(rig.redis) is None
    await rig.note(distrusted, Distrusted(operator="ann", said_at=rig.clock.now, token="t", wish="d" * 32))
    await rig.run(240)
    assert [rig.ledger(call).get("enroll") for call in verified] == [1, 1, 1]
    assert rig.ledger(distrusted)["reject_voice"] == 1
    assert all(rig.ledger(call)["check"] > 10 for call in verified)
    assert "service_away" not in {entry["event"] for entry in rig.log.entries}
