"""``/healthz`` (the process answers) and ``/readyz`` (events can be recorded, and whether the service is available)."""

import asyncio
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


def health_routes(redis: Redis, keys: Keys = KEYS) -> list[BaseRoute]:
    """Build both routes. Their answers reveal no details.

    If the service is down, we stay ready. Otherwise the platform would stop routing pushes to us, and they would be
    lost.
    """

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"healthy": True})

    async def readyz(_request: Request) -> Response:
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                is_ready = await _takes_writes(redis, keys)
                away = await service_away(redis, keys)
        except (RedisError, OSError, TimeoutError):
            is_ready, away = False, None
        if not is_ready:
            return JSONResponse({"ready": False}, 503)
        return JSONResponse({"ready": True, "service": "away" if away else "there"})

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


async def _takes_writes(redis: Redis, keys: Keys) -> bool:
    """Tell whether Redis accepts writes. A replica or a full server does not."""
    role = await redis.role()
    return role[0] == b"master" and await refusal_of(redis, keys) is None
