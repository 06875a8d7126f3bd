"""The limit of 20 checks of a call whose record is lost with everything in Redis, where nobody can tell how old it is."""

from collections.abc import Awaitable, Callable

import pytest

from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.faults.failover import OneServer
from tests.faults.world import ONE, World

LIVED_S = 150.0
"""How long the call lives before Redis is emptied: most of its automatic checks are made."""


async def begin(*variants: str) -> tuple[World, SandboxCall]:
    """Begin a call that stays undecided, at workers that have found a call before; return it and its world."""
    servers = OneServer()
    await servers.fail_over()
    world = World(servers, variants=variants)
    await world.settle_in()
    await world.run(130)
    earlier = world.stage.call(Happening(Kind.END, 20), phone_number=ONE, voice_id="v-0", alternate_id="alt-0")
    await world.run(40)
    assert earlier.ended_at is not None
    call = world.stage.call(phone_number=ONE, voice_id="v-1", alternate_id="alt-1")
    world.calls.append(call)
    await world.run(LIVED_S)
    return world, call


async def flush(world: World) -> None:
    """Empty Redis without a restart: the server stays the same."""
    await world.servers.current().flushall()


def made(world: World, call: SandboxCall) -> int:
    """Return how many checks the service has made of a call."""
    return world.stage.sandbox.ledger.tally(call.voice_id).authenticated[Operation.CHECK]


HOW = pytest.mark.parametrize("empty", [flush, World.empty], ids=["FLUSHALL", "another server"])
AHEAD = ["clock-3-min-ahead", pytest.param("clock-5-h-ahead", marks=pytest.mark.night)]


@HOW
async def test_call_whose_start_is_not_told_is_not_checked_anew(empty: Callable[[World], Awaitable[None]]) -> None:
    """A call that the first look at a replaced Redis finds may have used all its checks if its start is not told."""
    world, call = await begin("starts-in-year-1")
    assert made(world, call) >= 15
    await empty(world)
    await world.run(300)
    assert made(world, call) <= 20
    await world.close()


@HOW
@pytest.mark.parametrize("variant", AHEAD)
@pytest.mark.parametrize("new", [0, 1])
async def test_call_that_a_new_worker_finds_is_not_checked_anew(
    empty: Callable[[World], Awaitable[None]], variant: str, new: int
) -> None:
    """A worker that began after Redis was emptied cannot know how far ahead the service's clock is."""
    world, call = await begin(variant)
    await empty(world)
    await world._replace_worker(new)
    await world.run(300)
    assert made(world, call) <= 20
    await world.close()
