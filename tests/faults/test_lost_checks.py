"""The limit of 20 checks on a Redis that repeatedly loses its last writes, or all of them (C15, E4).

A whole callkeeper runs in virtual time. Hypothesis draws what is lost, what people ask, what the service answers, and
by how much the clock of the next server differs.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from callkeeper.calls.notes import CheckWish
from callkeeper.calls.record import Call
from callkeeper.calls.rules import load_rules
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import automatic_checks
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call as SandboxCall
from tests.faults.failover import OneServer
from tests.faults.test_model import IS_NIGHTLY
from tests.faults.world import NOBODY, ONE, World

pytestmark = pytest.mark.timeout(3600 if IS_NIGHTLY else 600)

SHIPPED = load_rules(None)
UNASSIGNED = replace(SHIPPED, checks_unassigned=18)
"""Rules that also check calls without an assigned person."""

STEPS = st.one_of(
    st.tuples(st.just("time"), st.sampled_from([0.3, 2.0, 9.0, 30.0, 80.0])),
    st.tuples(st.just("time"), st.sampled_from([2.0, 9.0, 30.0])),
    st.tuples(st.just("person asks"), st.sampled_from([0.0, 0.4])),
    st.tuples(st.just("no answer"), st.sampled_from([1.0, 3.0])),
    st.tuples(st.just("copy"), st.just(0.0)),
    st.tuples(st.just("roll back"), st.sampled_from([0.0, 0.0, 1.0])),
    st.tuples(st.just("empty"), st.just(0.0)),
)


FORGOTTEN_AGAIN = [
    *[("time", 80.0), ("no answer", 1.0), ("empty", 0.0), ("time", 80.0), ("time", 9.0), ("empty", 0.0)],
    *[("copy", 0.0), ("person asks", 0.4), ("roll back", 0.0), ("person asks", 0.4), ("empty", 0.0)],
]


async def begin(book: RuleBook, number: str) -> tuple[World, SandboxCall]:
    """Begin a call that stays undecided; return it and its world."""
    servers = OneServer()
    await servers.fail_over()
    world = World(servers, book)
    await world.settle_in()
    call = world.stage.call(phone_number=number, voice_id="v-1", alternate_id="alt-1")
    world.calls.append(call)
    await world.push(call, "CallStart", voice=True, alternate=True)
    await world.run(2)
    return world, call


async def take(world: World, call: SandboxCall, step: str, amount: float) -> None:
    """Do one step."""
    match step:
        case "time":
            await world.run(amount)
        case "person asks":
            await world.hear(call, CheckWish(operator="ann", said_at=world.clock.now))
            await world.run(amount)
        case "no answer":
            fault = Fault(target=Operation.CHECK, action=Action.DROP, applied=True, times=int(amount))
            world.stage.sandbox.faults.add(fault)
        case "copy":
            await world.copy()
        case "roll back":
            world.set_clock_back(3600 * amount)
            await world.roll_back()
        case _:
            await world.empty()


async def lose(book: RuleBook, number: str, steps: list[tuple[str, float]]) -> None:
    """Play a call through the drawn steps, then let people ask for the remaining checks."""
    world, call = await begin(book, number)
    for step, amount in steps:
        await take(world, call, step, amount)
        await world.check()
    await world.run(260)
    for _ in range(3):
        await take(world, call, "person asks", 3.0)
    await world.check()
    await world.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on its own loop."""
    with asyncio.Runner() as runner:
        runner.run(work)


@pytest.mark.parametrize(
    ("book", "number"),
    [(SHIPPED, ONE), pytest.param(UNASSIGNED, NOBODY, marks=pytest.mark.night)],
    ids=["assigned", "nobody assigned"],
)
@example(steps=[("time", 0.3), ("time", 2.0), ("person asks", 0.0), ("empty", 0.0)])
@example(steps=FORGOTTEN_AGAIN)
@given(steps=st.lists(STEPS, min_size=8, max_size=24))
@settings(
    max_examples=600 if IS_NIGHTLY else 5,
    derandomize=not IS_NIGHTLY,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_call_is_checked_twenty_times_at_most(book: RuleBook, number: str, steps: list[tuple[str, float]]) -> None:
    """However much and however often Redis loses writes, and whatever its clock says, there is no 21st check."""
    run(lose(book, number, steps))


@pytest.mark.parametrize("lost_s", [pytest.param(0.3, marks=pytest.mark.night), 2.0])
@pytest.mark.parametrize("second", [3.0, 11.0, 21.2, 33.0, 60.0])
async def test_failover_leaves_a_call_its_checks(second: float, lost_s: float) -> None:
    """A failover that loses up to 2 s costs an undecided call at most two automatic checks."""
    world, call = await begin(SHIPPED, ONE)
    await world.run(second)
    before = await record(world, call)
    await world.copy()
    await world.run(lost_s)
    await world.roll_back()
    await world.run(0.1)
    after = await record(world, call)
    assert automatic_checks(after) <= automatic_checks(before) + 2
    await world.run(300 - second)
    made = world.stage.sandbox.ledger.tally("v-1").authenticated[Operation.CHECK]
    assert made >= 16
    await world.check()
    await world.close()


async def record(world: World, call: SandboxCall) -> Call:
    """Return our record of a call."""
    found, _ = await world.load(call.voice_id)
    assert found is not None
    return found
