"""Plays the same call again and again, each time with one failure at another crossing of a seam.

The call is found, assigned, checked, verified and enrolled, distrusted and rejected, and ends. The failure happens at
the n-th crossing of a seam, for every n. The other worker goes on; a frozen one continues long after its lease has
ended. A second test rolls Redis back to every moment of a call.

For every change only each sixteenth crossing fails (each kind of failure begins at another one), and Redis is rolled
back to each third. With ``TEST_MODEL=nightly`` none is left out.
"""

import os

import pytest

from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.notes import Distrusted, Verified
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Kind
from tests.faults.failover import OneServer
from tests.faults.judge import EFFECTS
from tests.faults.seams import Failure, PlannedFailure, Seam
from tests.faults.world import ONE, World

pytestmark = pytest.mark.timeout(900)

STRIDE = 1 if os.environ.get("TEST_MODEL") == "nightly" else 16


def first_check_s(world: World) -> float:
    """Return how many seconds after its assign the call is checked first."""
    return float(world.web.book.schedule.paced("v-1").at_s[0])


async def play(planned: PlannedFailure | None) -> World:
    """Play one call to its end, with one failure planned for both workers."""
    servers = OneServer()
    await servers.fail_over()
    world = World(servers)
    await world.settle_in()
    now = world.clock.now
    if planned is not None:
        world.plan_failure(0, planned)
        world.plan_failure(1, planned)
    call = world.stage.call(phone_number=ONE, voice_id="v-1", alternate_id="alt-1")
    world.calls.append(call)
    await world.push(call, "CallStart", voice=True, alternate=True)
    await world.run(first_check_s(world) + 2)
    await world.hear(call, Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=now))
    await world.run(12)
    await world.wake_frozen()
    await world.run(15)
    await world.hear(call, Distrusted(operator="ann", said_at=now))
    await world.run(12)
    await world.wake_frozen()
    await world.calm()
    await world.check()
    await world.close()
    return world


async def test_call_without_a_failure_has_one_of_each_effect() -> None:
    """The call of these tests has one assign, one enroll, one reject and at least one check."""
    world = await play(None)
    seen = world.stage.sandbox.ledger.tally("v-1").applied
    assert [seen[kind] for kind in (Operation.ASSIGN, Operation.ENROLL, Operation.REJECT_VOICE)] == [1, 1, 1]
    assert seen[Operation.CHECK] >= 1


@pytest.mark.parametrize("seam", Seam)
@pytest.mark.parametrize("failure", Failure)
async def test_call_with_a_failure_at_any_crossing_keeps_every_promise(failure: Failure, seam: Seam) -> None:
    """Whichever crossing fails, every promise holds, and the call settles with true ledgers (C6, C14, C18)."""
    if failure is Failure.TWICE and seam is Seam.HTTP:
        return
    crossings = 1 + list(Failure).index(failure) % STRIDE
    while True:
        planned = PlannedFailure(failure, seam, crossings)
        try:
            await play(planned)
        except AssertionError as broken:
            broken.add_note(f"{failure} at crossing {crossings} of {seam}")
            raise
        if planned.crossings > 0:
            return
        crossings += STRIDE


class Moment:
    """Remembers what Redis holds after the n-th crossing of either worker."""

    def __init__(self, world: World, n: int) -> None:
        self.world = world
        self.left = n

    async def pass_by(self) -> None:
        """Count a crossing."""
        self.left -= 1
        if self.left == 0:
            await self.world.copy()


async def forget(n: int) -> Moment:
    """Verify and distrust a caller, overwriting the status each time; then roll Redis back to the n-th crossing."""
    servers = OneServer()
    await servers.fail_over()
    world = World(servers)
    await world.settle_in()
    moment = Moment(world, n)
    for worker in world.workers:
        worker.state.after_each = moment.pass_by
    call = world.stage.call(phone_number=ONE, voice_id="v-1", alternate_id="alt-1")
    world.calls.append(call)
    await world.push(call, "CallStart", voice=True, alternate=True)
    await world.run(1)
    words = (
        Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=world.clock.now),
        Distrusted(operator="ann", said_at=world.clock.now),
    )
    for word in words:
        await world.hear(call, word)
        await world.run(0.2)
        world.stage.happen(call, Kind.VIEWED)
    await world.roll_back()
    await world.run(3)
    await world.calm()
    await world.check()
    await world.close()
    return moment


async def test_redis_rolled_back_to_any_moment_repeats_no_effect_it_still_knows_of() -> None:
    """If Redis is rolled back to any moment of a call, an effect whose intention it still has is not repeated (C15).

    In this worst case the status that would show the reject was overwritten. Only an effect of which Redis has nothing
    may be sent once more, and only after stored details were read that do not show it.
    """
    n = 1
    while True:
        try:
            moment = await forget(n)
        except AssertionError as broken:
            broken.add_note(f"rolled back to crossing {n}")
            raise
        if moment.left > 0:
            return
        n += min(STRIDE, 3)


@pytest.mark.parametrize("kind", [EffectKind.ENROLL, EffectKind.REJECT])
async def test_effect_under_way_that_redis_forgot_is_not_sent_again(kind: EffectKind) -> None:
    """If Redis loses an effect whose request is under way, no other request is sent before that one is over (C15, E1).

    Stored details that are read at once would not show the effect yet.
    """
    servers = OneServer()
    await servers.fail_over()
    world = World(servers)
    await world.settle_in()
    call = world.stage.call(phone_number=ONE, voice_id="v-1", alternate_id="alt-1")
    world.calls.append(call)
    await world.push(call, "CallStart", voice=True, alternate=True)
    await world.run(3)
    said_at = world.clock.now
    verified = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=said_at)
    await world.hear(call, verified if kind is EffectKind.ENROLL else Distrusted(operator="ann", said_at=said_at))
    await world.copy()
    for n in range(len(world.workers)):
        world.plan_failure(n, PlannedFailure(Failure.FREEZE_BEFORE, Seam.HTTP, 1, only=kind.value))
    await world.run(0.5)
    (slow,) = [n for n, worker in enumerate(world.workers) if worker.state.is_frozen]
    world.workers[1 - slow].state.planned = None
    await world.roll_back()
    await world.run(5)
    await world.thaw(slow)
    await world.calm()
    assert world.stage.sandbox.ledger.tally("v-1").authenticated[EFFECTS[kind]] == 1
    await world.close()
