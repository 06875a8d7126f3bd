"""Taskiq with a task per check, on a Redis stream: ``python -m benchmarks.peers.taskiq_check worker|give``."""

import sys

import uvloop
from taskiq.api import run_receiver_task
from taskiq_redis import RedisStreamBroker

from benchmarks.peers.plain import IDS, IN_FLIGHT, REDIS_URL, RESULTS, checked, reseller, store

broker = RedisStreamBroker(REDIS_URL, consumer_id="0", xread_count=IN_FLIGHT)


async def _check(voice_id: str) -> None:
    """Make one check and store its result."""
    await broker.state.redis.hset(RESULTS, voice_id, await checked(broker.state.reseller, voice_id))


check = broker.task("check")(_check)


async def _run(what: str) -> None:
    await broker.startup()
    broker.state.redis = store()
    if what == "give":
        for voice_id in await broker.state.redis.lrange(IDS, 0, -1):
            await check.kiq(voice_id.decode())
        return
    broker.state.reseller = reseller()
    await run_receiver_task(broker, validate_params=False, max_async_tasks=IN_FLIGHT)


if __name__ == "__main__":
    uvloop.run(_run(sys.argv[1]))
