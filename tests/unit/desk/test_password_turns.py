"""Who may log in next while many guess passwords."""

import asyncio

import pytest

from callkeeper.desk.access.password_turns import FORGOTTEN_S, PasswordTurns, TooManyWait


class Crowd:
    """Networks that wait for a turn, and the order in which they get one."""

    def __init__(self, *, most_waiting: int = 100) -> None:
        self.now_s = 0.0
        self.turns = PasswordTurns(most_waiting=most_waiting, now=lambda: self.now_s)
        self.order: list[str] = []
        self.may_end = asyncio.Event()
        self.turned_away: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *networks: str) -> None:
        """Let networks ask for a turn, one after the other."""
        for network in networks:
            self.tasks.append(asyncio.ensure_future(self._check(network)))
            await asyncio.sleep(0)

    async def finish(self) -> list[str]:
        """Let turns end, and return their order."""
        self.may_end.set()
        await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), 5)
        return self.order

    async def _check(self, network: str) -> None:
        try:
            async with self.turns.turn(network):
                self.order.append(network)
                await self.may_end.wait()
        except TooManyWait:
            self.turned_away.append(network)


async def test_networks_that_failed_wait_for_those_that_did_not() -> None:
    """Whoever has not failed waits for one check at most, however many guess; known networks go first."""
    crowd = Crowd()
    for number in range(50):
        crowd.turns.failed(f"guesser-{number}")
    crowd.turns.succeeded("office")
    await crowd.come(*(f"guesser-{number}" for number in range(50)), "new", "office")
    order = await crowd.finish()
    assert order[:3] == ["guesser-0", "office", "new"]
    assert len(order) == 52


async def test_a_login_and_an_hour_clear_a_network() -> None:
    """A person who mistyped is no guesser for longer than that."""
    crowd = Crowd()
    for network in ("mistyped", "guesser", "forgotten"):
        crowd.turns.failed(network)
    crowd.turns.succeeded("mistyped")
    await crowd.come("first", "guesser", "mistyped")
    assert await crowd.finish() == ["first", "mistyped", "guesser"]
    crowd.may_end.clear()
    crowd.now_s = FORGOTTEN_S
    crowd.turns.failed("guesser")
    await crowd.come("next", "guesser", "forgotten")
    assert (await crowd.finish())[-3:] == ["next", "forgotten", "guesser"]


async def test_only_so_many_wait() -> None:
    """Beyond the bound the last of those with the most failures is told to come back, and nobody who did not fail."""
    crowd = Crowd(most_waiting=2)
    crowd.turns.failed("guesser-1")
    crowd.turns.failed("guesser-2")
    await crowd.come("first", "guesser-1", "guesser-2", "guesser-1", "new")
    assert await crowd.finish() == ["first", "new", "guesser-1"]
    assert crowd.turned_away == ["guesser-1", "guesser-2"]


@pytest.mark.parametrize("has_turn", [False, True])
async def test_whoever_leaves_gives_the_turn_on(has_turn: bool) -> None:
    """A browser that hangs up while it waits, or during its turn, blocks nobody."""
    crowd = Crowd()
    await crowd.come(*(["leaves", "waits"] if has_turn else ["first", "leaves", "waits"]))
    crowd.tasks[-2].cancel()
    await asyncio.sleep(0)
    await crowd.come("later")
    assert (await crowd.finish())[-2:] == ["waits", "later"]
