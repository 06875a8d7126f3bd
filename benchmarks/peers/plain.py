"""The work of every peer: make one check over HTTP and store the fields that matter in one Redis hash."""

import os
from typing import Final

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis

from callkeeper.calls.reading_folding import policies_of
from callkeeper.service import Secret, ServiceConfig
from callkeeper.service.client import Reseller
from callkeeper.service.memory import MemoryTokenStore

REDIS_URL: Final = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379/0")
SERVICE_URL: Final = os.environ.get("BENCH_SERVICE_URL", "http://127.0.0.1:8000")
RESULTS: Final = "bench:results"
IDS: Final = "bench:ids"
IN_FLIGHT: Final = 256
"""Concurrent checks for ways that support them: as many as one of our shifts makes."""


def store() -> Redis:
    """Return a client for storing results. All checks in flight share 64 connections."""
    return Redis(connection_pool=BlockingConnectionPool.from_url(REDIS_URL, max_connections=64, timeout=None))


def reseller() -> Reseller:
    """Return our HTTP client alone: no record, no Redis for the token."""
    anybody = Secret("bench")
    config = ServiceConfig(base_url=SERVICE_URL, access_token=anybody, email=anybody, password=anybody)
    return Reseller(config, MemoryTokenStore())


async def checked(client: Reseller, voice_id: str) -> bytes:
    """Make one check and return the part of its answer to store."""
    call = await client.details("cu-1", voice_id, check=True, requested_by="bench")
    return msgspec.json.encode({"status": call.status, "policies": policies_of(call), "ended": call.call_ended})
