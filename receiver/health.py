"""``/healthz`` (the process answers) and ``/readyz`` (it can record events)."""

import asyncio
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

READY_WITHIN_S: Final = 1.0


def health_routes(redis: "Redis") -> list[BaseRoute]:
    """Build both routes; neither says more than a yes or a no."""

    async def healthz(_request: Request) -> Response:
        return JSONResponse({"healthy": True})

    async def readyz(_request: Request) -> Response:
        is_ready = await _answers(redis)
        return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


async def _answers(redis: "Redis") -> bool:
    """Tell whether Redis can be reached and is a server that takes writes."""
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            role = await redis.role()
    except (RedisError, OSError, TimeoutError):
        return False
    return role[0] in {b"master", "master"}
