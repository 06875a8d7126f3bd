"""Upper limit: a bare event loop, our HTTP client, no queue: ``python -m benchmarks.peers.bare stored|unstored``.

``stored`` writes each result with a command of its own, as the other ways do; ``unstored`` only counts them at the end.
"""

import asyncio
import sys
from collections.abc import Iterator

import uvloop
from redis.asyncio import Redis

from benchmarks.peers.ours import checked, reseller
from benchmarks.peers.plain import IDS, IN_FLIGHT, RESULTS, store
from callkeeper.service.client import Reseller


async def _run(*, is_stored: bool) -> None:
    redis, client = store(), reseller()
    while True:
        await redis.blpop(["bench:go"])
        ids = [voice_id.decode() for voice_id in await redis.lrange(IDS, 0, -1)]  # type: ignore[union-attr]  # bytes here
        left = iter(ids)
        movers = range(min(IN_FLIGHT, len(ids)))
        await asyncio.gather(*(_check(redis, client, left, is_stored=is_stored) for _ in movers))
        if not is_stored:
            await redis.hset(RESULTS, mapping=dict.fromkeys(ids, ""))


async def _check(redis: Redis, client: Reseller, left: Iterator[str], *, is_stored: bool) -> None:
    for voice_id in left:
        result = await checked(client, voice_id)
        if is_stored:
            await redis.hset(RESULTS, voice_id, result)


if __name__ == "__main__":
    uvloop.run(_run(is_stored=sys.argv[1] == "stored"))
