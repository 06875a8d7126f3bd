"""arq with a job per check: ``python -m benchmarks.peers.arq_check worker|give``."""

import asyncio
import sys
from typing import Any

import uvloop
from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.peers.plain import IDS, IN_FLIGHT, REDIS_URL, RESULTS, checked, reseller

SETTINGS = RedisSettings.from_dsn(REDIS_URL)


async def check(context: dict[str, Any], voice_id: str) -> None:
    """Make one check and store its result."""
    await context["redis"].hset(RESULTS, voice_id, await checked(context["reseller"], voice_id))


async def _open(context: dict[str, Any]) -> None:
    context["reseller"] = reseller()


async def _give() -> None:
    pool = await create_pool(SETTINGS)
    ids: list[bytes] = await pool.lrange(IDS, 0, -1)
    for voice_id in ids:
        await pool.enqueue_job("check", voice_id.decode())


if __name__ == "__main__":
    if sys.argv[1] == "give":
        uvloop.run(_give())
    else:
        asyncio.set_event_loop(uvloop.new_event_loop())
        functions = [func(check, name="check")]
        Worker(functions, redis_settings=SETTINGS, max_jobs=IN_FLIGHT, poll_delay=0.02, on_startup=_open).run()
