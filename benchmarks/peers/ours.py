"""Our HTTP client alone, as peers use it: no queue, no record, no Redis for the token."""

import msgspec

from benchmarks.peers.plain import SERVICE_URL
from callkeeper.calls.reading_folding import policies_of
from callkeeper.service import Secret, ServiceConfig
from callkeeper.service.client import Reseller
from callkeeper.service.memory import MemoryTokenStore


def reseller() -> Reseller:
    """Return a client that keeps its token in memory and does not share it."""
    anybody = Secret("bench")
    config = ServiceConfig(base_url=SERVICE_URL, access_token=anybody, email=anybody, password=anybody)
    return Reseller(config, MemoryTokenStore())


async def checked(client: Reseller, voice_id: str) -> bytes:
    """Make one check and return the part of its answer to store."""
    call = await client.details("cu-1", voice_id, check=True, requested_by="bench")
    return msgspec.json.encode({"status": call.status, "policies": policies_of(call), "ended": call.call_ended})
