"""Many idle institutions under a request limit that is too low to list them all as often as planned."""

from redis.asyncio import Redis

from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import Asgi

IDLE = 100
RPS = 8
"""Listing a hundred idle queues every eight seconds takes more than twelve requests a second."""

WINDOWS_S = 2 * 8 / (0.95 * RPS)
"""A look and an assign wait for one window of the request budget each, at most: eight permits at 95 % of the rate."""

END = Happening(Kind.END, 300)


async def test_pushed_call_does_not_wait_behind_idle_queues(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The look that a push asks for comes before looks that nobody asked for: each waits for its windows only."""
    for number in range(IDLE):
        sandbox_asgi.world.add_institution(f"cu-1{number:02}")
    rig = Rig(sandbox_asgi, redis, rps=RPS)
    await rig.run(40)
    for _ in range(5):
        call = await rig.begin_call(END, key=KEY, run_s=WINDOWS_S + 0.25)
        assert call.aliases
        await rig.run(5)
