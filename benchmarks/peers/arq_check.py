"""arq with a job per check: ``python -m benchmarks.peers.arq_check httpx|ours|give``. ``ours``: our HTTP client."""

import asyncio
import sys
from typing import Any

import httpx
import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker

from benchmarks.peers.plain import HEADERS, IDS, IN_FLIGHT, PARAMS, REDIS_URL, RESULTS, result, url

SETTINGS = RedisSettings.from_dsn(REDIS_URL)


async def check_with_httpx(context: dict[str, Any], voice_id: str) -> None:
    """Make one check and store its result."""
    answer = await context["client"].get(url(voice_id))
    await context["redis"].hset(RESULTS, voice_id, result(answer.content))


async def check_with_ours(context: dict[str, Any], voice_id: str) -> None:
    """Make one check with our client and store its result."""
    from benchmarks.peers.ours import checked  # noqa: PLC0415  (only one of the two ways needs it)

    await context["redis"].hset(RESULTS, voice_id, await checked(context["reseller"], voice_id))


async def _open_httpx(context: dict[str, Any]) -> None:
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    context["client"] = httpx.AsyncClient(headers=HEADERS, params=PARAMS, trust_env=False, limits=limits)


async def _open_ours(context: dict[str, Any]) -> None:
    from benchmarks.peers.ours import reseller  # noqa: PLC0415  (as above)

    context["reseller"] = reseller()


async def _give() -> None:
    pool = await create_pool(SETTINGS)
    ids: list[bytes] = await pool.lrange(IDS, 0, -1)
    for voice_id in ids:
        await pool.enqueue_job("check", voice_id.decode())


def main() -> None:
    """Run the mode that the first argument names."""
    uvloop.install()
    if sys.argv[1] == "give":
        asyncio.run(_give())
        return
    from arq import func  # noqa: PLC0415

    is_ours = sys.argv[1] == "ours"
    check = func(check_with_ours if is_ours else check_with_httpx, name="check")
    opening = _open_ours if is_ours else _open_httpx
    asyncio.set_event_loop(asyncio.new_event_loop())
    Worker([check], redis_settings=SETTINGS, max_jobs=IN_FLIGHT, poll_delay=0.02, on_startup=opening).run()


if __name__ == "__main__":
    main()
