"""``/healthz`` (the process answers) and ``/readyz`` (events can be recorded, and whether the service is available)."""

import asyncio
import time
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from callkeeper.calls.store.breakers import service_away
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.store.writable import refusal_of

READY_WITHIN_S: Final = 1.0

REMEMBERED_S: Final = 1.0
"""How long ``/readyz`` repeats its answer without asking Redis: strangers may ask it, too."""


def health_routes(redis: Redis, keys: Keys = KEYS) -> list[BaseRoute]:
    """Build both routes. Their answers reveal no details.

    If the service is down, we stay ready. Otherwise the platform would stop routing pushes to us, and they would be
    lost.
    """

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"healthy": True})

    asking, until_s = asyncio.Lock(), 0.0
    ready: dict[str, object] = {}

    async def readyz(_request: Request) -> Response:
        nonlocal ready, until_s
        async with asking:
            if time.monotonic() >= until_s:
                ready = await _ready(redis, keys)
                until_s = time.monotonic() + REMEMBERED_S
        return JSONResponse(ready, 200 if ready["ready"] else 503)

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


async def _ready(redis: Redis, keys: Keys) -> dict[str, object]:
    """Return whether events can be recorded now, and whether the service is available."""
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            if await _takes_writes(redis, keys):
                return {"ready": True, "service": "away" if await service_away(redis, keys) else "there"}
    except (RedisError, OSError, TimeoutError):
        pass
    return {"ready": False}


async def _takes_writes(redis: Redis, keys: Keys) -> bool:
    """Tell whether Redis accepts writes. A replica or a full server does not."""
    role = await redis.role()
    return role[0] == b"master" and await refusal_of(redis, keys) is None
