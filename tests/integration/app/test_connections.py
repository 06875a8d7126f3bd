"""Connections to Redis: commands share them."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from callkeeper.app.connections import MOST_CONNECTIONS, blocking_redis, feed_redis, receiver_redis, worker_redis
from callkeeper.app.redis_location import RedisLocation, parse_location
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from tests.faults.proxy import Proxy, proxied
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


class Moving:
    """An address that follows the primary of two servers. Connections that are open stay with the old one."""

    def __init__(self, line: Proxy, servers: list[BlockingRedis], ports: list[int]) -> None:
        self._line, self._servers, self._ports = line, servers, ports
        self.place = parse_location(f"redis://127.0.0.1:{line.port}/0")

    def move(self) -> None:
        """Make the other server the primary, and the present one its replica."""
        old, new = self._servers
        new.replicaof("NO", "ONE")
        self._line.target_port = self._ports[1]
        old.replicaof("127.0.0.1", self._ports[1])


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Moving]:
    """Run two servers behind one address."""
    with embedded_redis(tmp_path / "a") as first, embedded_redis(tmp_path / "b") as second:
        servers: list[Any] = [BlockingRedis.from_url(each.url) for each in (first, second)]
        ports = [int(each.url.rpartition(":")[2].partition("/")[0]) for each in (first, second)]
        servers[1].replicaof("127.0.0.1", ports[0])
        with proxied(ports[0]) as line:
            yield Moving(line, servers, ports)
        for each in servers:
            each.close()


async def test_all_connections_leave_a_server_once_one_hears_that_it_was_demoted(moving: Moving) -> None:
    """One write is refused; then every connection of every client resolves the address again, also those that only read."""
    async with worker_redis(moving.place) as redis, feed_redis(moving.place) as feed:
        with blocking_redis(moving.place) as jobs:
            await asyncio.gather(*(redis.ping() for _ in range(9)))
            await feed.ping()
            waker = Waker(jobs)
            waker.enqueue("test")
            moving.move()
            with pytest.raises(ResponseError, match=r"READONLY|read only"):
                await redis.register_script("return redis.call('SET', 'a', '1')")()
            assert set(await asyncio.gather(*(redis.set(f"b:{n}", 1) for n in range(9)))) == {True}
            assert await feed.get("b:1") == b"1"
            assert (await feed.info("replication"))["role"] == "master"
            waker.enqueue("test")
            assert jobs.exists(Keys().queue)


async def test_blocked_command_tells_of_a_demotion_too(moving: Moving) -> None:
    """A connection that waits for changes writes nothing, and hears of it first."""
    async with feed_redis(moving.place) as feed:
        waiting = asyncio.ensure_future(feed.xread({"changes": "$"}, block=5000))
        await until_async(lambda: _has_blocked(moving))
        moving.move()
        with pytest.raises(ResponseError, match="UNBLOCKED"):
            await waiting
        assert await feed.set("a", 1)


async def _has_blocked(moving: Moving) -> bool:
    async with worker_redis(moving.place) as redis:
        return bool((await redis.info("clients"))["blocked_clients"])
