"""The upper limit: a bare event loop, our HTTP client, no queue: ``python -m benchmarks.peers.bare worker``."""

import asyncio
from collections.abc import Iterator

import uvloop
from redis.asyncio import Redis

from benchmarks.peers.plain import IDS, IN_FLIGHT, RESULTS, checked, reseller, store
from callkeeper.service.client import Reseller


async def _run() -> None:
    redis, client = store(), reseller()
    while True:
        await redis.blpop(["bench:go"])
        ids = [voice_id.decode() for voice_id in await redis.lrange(IDS, 0, -1)]  # type: ignore[union-attr]  # bytes here
        left = iter(ids)
        await asyncio.gather(*(_check(redis, client, left) for _ in range(min(IN_FLIGHT, len(ids)))))


async def _check(redis: Redis, client: Reseller, left: Iterator[str]) -> None:
    for voice_id in left:
        await redis.hset(RESULTS, voice_id, await checked(client, voice_id))


if __name__ == "__main__":
    uvloop.run(_run())
