"""The example of a test in virtual time that tests/README.md shows."""

from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig


async def test_pushed_call_is_assigned_once(rig: Rig) -> None:
    """A call that was pushed is assigned, and a minute later there is still one assign."""
    call = rig.stage.call(Happening(Kind.END, 300))
    await rig.push(call)
    await rig.run(60)
    assert rig.ledger(call)["assign"] == 1
