"""The work of every peer: make one check over HTTP, decode it, and store the fields that matter in one Redis hash."""

import json
import os
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis

REDIS_URL: Final = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379/0")
SERVICE_URL: Final = os.environ.get("BENCH_SERVICE_URL", "http://127.0.0.1:8000")
RESULTS: Final = "bench:results"
IDS: Final = "bench:ids"
IN_FLIGHT: Final = 256
"""Concurrent checks for ways that support them: as many as one of our shifts makes."""

HEADERS: Final = {"SsoToken": "bench", "InstitutionKey": "cu-1", "RequestedBy": "bench"}
PARAMS: Final = {"checkVoiceAuthentication": "true"}


def waiting(redis: Any) -> list[str]:
    """Return the ids that wait to be checked."""
    return [voice_id.decode() for voice_id in redis.lrange(IDS, 0, -1)]


def store() -> Redis:
    """Return a client for storing results. All checks in flight share 64 connections."""
    return Redis(connection_pool=BlockingConnectionPool.from_url(REDIS_URL, max_connections=64, timeout=None))


def url(voice_id: str) -> str:
    """Return the URL that checks a call."""
    return f"{SERVICE_URL}/external/calls/{voice_id}/details"


def result(answer: bytes) -> str:
    """Return the part of an answer that is stored."""
    call: dict[str, Any] = json.loads(answer)["phoneCall"]
    kept = {"status": call["status"], "policies": call["metaData"]["vendorPolicies"], "ended": call["callEnded"]}
    return json.dumps(kept)
