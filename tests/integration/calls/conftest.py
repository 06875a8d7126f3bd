"""A whole callkeeper in virtual time, on a Redis in this process or on a real one."""

from collections.abc import AsyncIterator

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from redis.asyncio import Redis

from calls.store import Store
from tests.integration.calls.hand import Hand
from tests.rig import Rig
from tests.sandbox_fixtures import Asgi


@pytest.fixture
async def rig(sandbox_asgi: Asgi, fake_redis: FakeAsyncRedis) -> Rig:
    """Return a rig on fakeredis."""
    return Rig(sandbox_asgi, fake_redis)


@pytest.fixture
async def real_rig(sandbox_asgi: Asgi, redis_url: str) -> AsyncIterator[Rig]:
    """Return a rig on the embedded real Redis."""
    async with Redis.from_url(redis_url) as redis:
        yield Rig(sandbox_asgi, redis)


@pytest.fixture(params=["fakeredis", "redis"])
async def any_redis(request: pytest.FixtureRequest) -> AsyncIterator[Redis]:
    """Return a client of a Redis in this process, then of a real one."""
    if request.param == "fakeredis":
        async with FakeAsyncRedis(server=FakeServer()) as redis:
            yield redis
        return
    async with Redis.from_url(request.getfixturevalue("redis_url")) as redis:
        yield redis


@pytest.fixture
def hand() -> Hand:
    """Return the clock of the store."""
    return Hand()


@pytest.fixture
def store(any_redis: Redis, hand: Hand) -> Store:
    """Return a store on either Redis."""
    return Store(any_redis, now_ms=hand)
