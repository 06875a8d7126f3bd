"""SAQ with a job per check: ``python -m benchmarks.peers.saq_check worker|give``."""

import sys
from typing import Any

import uvloop
from saq import Queue, Worker

from benchmarks.peers.ours import checked, reseller
from benchmarks.peers.plain import IDS, IN_FLIGHT, REDIS_URL, RESULTS, store


async def check(context: dict[str, Any], *, voice_id: str) -> None:
    """Make one check and store its result."""
    await context["redis"].hset(RESULTS, voice_id, await checked(context["reseller"], voice_id))


async def _work() -> None:
    queue = Queue.from_url(REDIS_URL)

    async def open_client(context: dict[str, Any]) -> None:
        context.update(redis=store(), reseller=reseller())

    await Worker(queue, [check], concurrency=IN_FLIGHT, startup=open_client).start()


async def _give() -> None:
    queue = Queue.from_url(REDIS_URL)
    for voice_id in await queue.redis.lrange(IDS, 0, -1):
        # Two attempts, because a job whose worker died counts as tried. A finished job is not kept.
        await queue.enqueue("check", voice_id=voice_id.decode(), retries=2, ttl=-1)
    await queue.disconnect()


if __name__ == "__main__":
    uvloop.run(_give() if sys.argv[1] == "give" else _work())
