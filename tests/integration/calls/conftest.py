"""A store whose clock is moved by hand."""

import pytest
from redis.asyncio import Redis

from callkeeper.calls.store.claims import Store
from tests.integration.calls.hand import Hand


@pytest.fixture
def hand() -> Hand:
    """Return the clock of the store."""
    return Hand()


@pytest.fixture
def store(redis: Redis, hand: Hand) -> Store:
    """Return a store."""
    return Store(redis, now_ms=hand, monotonic=lambda: hand.ms / 1000)
