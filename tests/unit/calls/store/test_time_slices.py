"""Long reads in slices."""

import asyncio

from callkeeper.calls.store.time_slices import TimeSlices


async def test_only_one_read_has_a_slice() -> None:
    """The others wait for their turn, in order."""
    slices, running, most, order = TimeSlices(), 0, 0, []

    async def read(name: str) -> None:
        nonlocal running, most
        async with slices.one():
            running += 1
            most = max(most, running)
            order.append(name)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*map(read, "abc"))
    assert (most, order) == (1, ["a", "b", "c"])
