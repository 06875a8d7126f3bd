"""A whole callkeeper in virtual time, on a real Redis."""

import pytest
from redis.asyncio import Redis

from callkeeper.calls.store.claims import Store
from tests.integration.calls.hand import Hand
from tests.rig import Rig
from tests.sandbox_fixtures import Asgi


@pytest.fixture
async def rig(sandbox_asgi: Asgi, redis: "Redis") -> Rig:
    """Return a rig."""
    return Rig(sandbox_asgi, redis)


@pytest.fixture
def hand() -> Hand:
    """Return the clock of the store."""
    return Hand()


@pytest.fixture
def store(redis: Redis, hand: Hand) -> Store:
    """Return a store."""
    return Store(redis, now_ms=hand, monotonic=lambda: hand.ms / 1000)
