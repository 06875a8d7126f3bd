"""What every peer does: one check over HTTP, its result decoded, cut to what matters and stored in one Redis hash."""

import json
import os
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis

REDIS_URL: Final = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379/0")
SERVICE_URL: Final = os.environ.get("BENCH_SERVICE_URL", "http://127.0.0.1:8000")
RESULTS: Final = "bench:results"
IDS: Final = "bench:ids"
IN_FLIGHT: Final = 256
"""Checks at the same time, where a way can have many: as many as a shift of ours."""

HEADERS: Final = {"SsoToken": "bench", "InstitutionKey": "cu-1", "RequestedBy": "bench"}
PARAMS: Final = {"checkVoiceAuthentication": "true"}


def waiting(redis: Any) -> list[str]:
    """Return the ids that wait to be checked."""
    return [voice_id.decode() for voice_id in redis.lrange(IDS, 0, -1)]


def store() -> "Redis":
    """Return a client for results: those of all checks in flight share 64 connections."""
    return Redis(connection_pool=BlockingConnectionPool.from_url(REDIS_URL, max_connections=64, timeout=None))


def url(voice_id: str) -> str:
    """Return where a call is checked."""
    return f"{SERVICE_URL}/external/calls/{voice_id}/details"


def result(answer: bytes) -> str:
    """Return what is stored of an answer."""
    call: dict[str, Any] = json.loads(answer)["phoneCall"]
    kept = {"status": call["status"], "policies": call["metaData"]["vendorPolicies"], "ended": call["callEnded"]}
    return json.dumps(kept)
