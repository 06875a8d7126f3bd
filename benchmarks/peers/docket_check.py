"""Docket with a task per check: ``python -m benchmarks.peers.docket_check worker|give``.

It keeps no state of finished tasks, as its documentation advises for the highest throughput.
"""

import sys
from datetime import timedelta

import uvloop
from docket import Docket, Worker
from redis.asyncio import Redis

from benchmarks.peers.plain import IDS, IN_FLIGHT, REDIS_URL, RESULTS, checked, reseller, store
from callkeeper.service.client import Reseller


class Check:
    """The clients that a check needs."""

    client: Reseller
    redis: Redis


async def check(voice_id: str) -> None:
    """Make one check and store its result."""
    await Check.redis.hset(RESULTS, voice_id, await checked(Check.client, voice_id))


async def _run(what: str) -> None:
    Check.client, Check.redis = reseller(), store()
    url = f"{REDIS_URL}?max_connections={2 * IN_FLIGHT}"
    async with Docket(url=url, execution_ttl=timedelta(0)) as docket:
        docket.register(check)
        if what == "give":
            for voice_id in await Check.redis.lrange(IDS, 0, -1):
                await docket.add(check)(voice_id.decode())  # type: ignore[union-attr]  # bytes here
            return
        poll = timedelta(milliseconds=20)
        async with Worker(docket, concurrency=IN_FLIGHT, minimum_check_interval=poll) as worker:
            await worker.run_forever()


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1]))
