"""streaQ with a task per check: ``python -m benchmarks.peers.streaq_check worker|give``. It needs Redis 7."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from streaq import Worker

from benchmarks.peers.ours import checked, reseller
from benchmarks.peers.plain import IDS, IN_FLIGHT, REDIS_URL, RESULTS
from callkeeper.service.client import Reseller


@asynccontextmanager
async def _client() -> AsyncIterator[Reseller]:
    yield reseller()


worker = Worker(REDIS_URL, concurrency=IN_FLIGHT, lifespan=_client)


async def _check(voice_id: str) -> None:
    """Make one check and store its result."""
    await worker.redis.hset(RESULTS, {voice_id: (await checked(worker.context, voice_id)).decode()})


check = worker.task(name="check", ttl=0, silent=True)(_check)


async def _give() -> None:
    async with worker:
        await worker.enqueue_many([check.enqueue(voice_id) for voice_id in await worker.redis.lrange(IDS, 0, -1)])


if __name__ == "__main__":
    uvloop.run(_give() if sys.argv[1] == "give" else worker.run_async())
