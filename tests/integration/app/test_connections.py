"""Connections to Redis: commands share them."""

import asyncio
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from callkeeper.app.connections import MOST_CONNECTIONS, feed_redis, receiver_redis, worker_redis
from callkeeper.app.redis_location import RedisLocation, parse_location
from tests.waiting import until_async


@pytest.mark.parametrize("connect", [receiver_redis, worker_redis, feed_redis])
async def test_commands_wait_for_a_connection_while_all_are_in_use(
    connect: Callable[[RedisLocation], Redis], redis_url: str
) -> None:
    """However many are sent at once, none fails, and there are no more connections than allowed."""
    async with connect(parse_location(redis_url)) as redis:
        asked = (redis.ping() for _ in range(5 * MOST_CONNECTIONS))
        assert set(await asyncio.gather(*asked, return_exceptions=True)) == {True}

        async def are_few() -> bool:
            return len(await redis.client_list()) <= MOST_CONNECTIONS + 1  # and the one that empties the server

        await until_async(are_few)  # the server may still be closing one of the test before
