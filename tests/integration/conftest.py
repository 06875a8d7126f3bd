"""What tests over one real thing ask for by name: rigs in virtual time, an archive, a store with a clock moved by hand."""

import asyncio
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from callkeeper.calls.store.claims import Store
from tests.harness.archivist import database
from tests.harness.courier import courier
from tests.harness.desk import board_rig, desk
from tests.harness.virtual_time import rig
from tests.integration.calls.hand import Hand

__all__ = ["board_rig", "courier", "database", "desk", "rig"]


@pytest.fixture(autouse=True)
def no_loop_of_a_browser() -> Iterator[None]:
    """Hide the event loop that Playwright marks as running while a browser is open in this process."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)


@pytest.fixture
def hand() -> Hand:
    """Return the clock of the store."""
    return Hand()


@pytest.fixture
def store(redis: Redis, hand: Hand) -> Store:
    """Return a store."""
    return Store(redis, now_ms=hand, monotonic=lambda: hand.ms / 1000)
