"""Looks at a queue: how far back each goes."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from reseller import QueueEntry
from sandbox.state import Happening, Kind
from tests.rig import Altered, Rig
from workers.listing import OVERLAP, WIDE

END = Happening(Kind.END, 300)


class Asked(Altered):
    """A service that remembers from when on the queue was asked for; None for all of it."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig)
        self.since: list[datetime | None] = []

    async def queue(self, *args: Any, **more: Any) -> tuple[QueueEntry, ...]:
        """Remember, and ask."""
        self.since.append(more["start_at"])
        return await super().queue(*args, **more)


async def test_look_after_a_push_goes_back_to_the_newest_call_that_is_known(rig: Rig) -> None:
    """However many calls started lately, a push costs the reading of its own; regular looks go back for minutes."""
    first = rig.stage.call(END)
    await rig.run(10)
    service = Asked(rig)
    rig.shift.listing = replace(rig.shift.listing, tools=replace(rig.tools, service=service))
    second = rig.stage.call(END)
    await rig.push(second)
    await rig.run(0.2)
    assert service.since == [first.started_at - OVERLAP]
    assert (await rig.record(second)).person_id is not None
    service.since.clear()
    await rig.run(6)
    (since,) = service.since
    assert since is not None
    assert rig.clock.now - since > WIDE - timedelta(seconds=10)
