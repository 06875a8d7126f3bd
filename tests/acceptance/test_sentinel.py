"""Redis behind sentinels: every kind of connection finds the master, also after a failover."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MaxConnectionsError
from redis.exceptions import TimeoutError as RedisTimeoutError

from callkeeper.app.connections import MOST_CONNECTIONS, blocking_redis, feed_redis, receiver_redis, worker_redis
from callkeeper.app.doctor import Severity
from callkeeper.app.doctor.redis_server import store_findings
from callkeeper.app.redis_location import RedisLocation, parse_location
from callkeeper.calls.store.job_queue import Waker, calls_queue
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import Scripts
from tests.faults.sentinel import SENTINEL_PASSWORD, Watched, watched_redis


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    """Run a master, a replica and a sentinel; one more sentinel in the URL is away."""
    with watched_redis(tmp_path) as running:
        yield running


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Watched]:
    """Run a master that takes no writes without a replica, two of them, and a sentinel."""
    with watched_redis(tmp_path, replicas=2, least_replicas=1) as running:
        yield running


NOTE: dict[str, Any] = {
    "statement_key": "",
    "member": "c:cu-1:v-1",
    "note_id": "hint",
    "note": b"x",
    "even_settled": "",
    "wakes": "",
    "statement_kind": "",
    "mark_kept_s": 1,
    "most": 0,
}


class Connections:
    """One connection of each kind that our processes have, and what they do with it."""

    def __init__(self, place: RedisLocation) -> None:
        self.all = [connect(place) for connect in (receiver_redis, worker_redis, feed_redis)]
        self.jobs = blocking_redis(place)
        self._scripts = Scripts(self.all[1], keys=Keys())
        self._waker = Waker(self.jobs)

    async def write(self) -> None:
        """Write by command, by script and by RQ, as often as it takes."""
        for each in self.all:
            await again(lambda each=each: each.incr("seen"))  # type: ignore[misc]  # bound per round
        await again(lambda: self._scripts.call("note", **NOTE))
        await again(lambda: asyncio.to_thread(self._waker.enqueue, "a test"))

    async def read(self) -> tuple[int, bytes | None, int]:
        """Return how often was written by command, what by script, how often by RQ."""
        redis: Any = self.all[0]
        return (
            int(await redis.get("seen")),
            await redis.hget("ck:2:inbox:c:cu-1:v-1", "hint"),
            len(calls_queue(self.jobs).job_ids),
        )

    async def aclose(self) -> None:
        """Close all."""
        for each in self.all:
            await each.aclose()
        self.jobs.close()


async def again(ask: Callable[[], Awaitable[Any]]) -> Any:
    """Ask as our processes do: once more after a little while, until it is answered."""
    for _ in range(200):
        try:
            return await ask()
        except (RedisConnectionError, RedisTimeoutError, OSError):
            await asyncio.sleep(0.05)
    raise AssertionError("no connection has found the new master")


async def test_every_connection_follows_the_master(watched: Watched) -> None:
    """Receiver, workers, feed and RQ find their data before and after the master is killed."""
    async with aclosing(Connections(parse_location(watched.url))) as connections:
        await connections.write()
        replicated: Any = connections.all[0]
        await replicated.wait(1, 5000)
        before = watched.kill_master()
        await asyncio.to_thread(watched.wait_for_another, before)
        await connections.write()
        assert await connections.read() == (6, b"x", 2)
        asked = (connections.all[1].ping() for _ in range(5 * MOST_CONNECTIONS))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert not any(isinstance(answer, MaxConnectionsError) for answer in answers), "a sentinel may be slow, though"


async def test_every_connection_leaves_a_master_that_lives_on(guarded: Watched) -> None:
    """A drill promotes a replica while the old master lives: it refuses to write, and nobody asks it a second time.

    The refusal reaches a script in other words than a command; either way the connection asks the sentinel anew.
    """
    async with aclosing(Connections(parse_location(guarded.url))) as connections:
        await connections.write()
        replicated: Any = connections.all[0]
        await replicated.wait(2, 5000)
        await asyncio.to_thread(guarded.fail_over)
        await connections.write()
        assert await connections.read() == (6, b"x", 2)
        ports = {(await each.info("server"))["tcp_port"] for each in connections.all}
        assert ports == {guarded.master_port}


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("redis-word", "other-word", "refuses the login"),
        ("sentinel-word", "other-word", "does not answer: no sentinel names its master"),
        ("/calls-master/", "/other-master/", "does not answer: no sentinel names its master"),
    ],
    ids=["the server's password", "the sentinels' password", "the master's name"],
)
async def test_doctor_names_what_is_wrong_with_the_url(watched: Watched, right: str, wrong: str, told: str) -> None:
    """A refused login differs from a server that is down. If sentinels name no master, all causes are listed."""
    place = parse_location(watched.url.replace(right, wrong))
    async with worker_redis(place) as redis:
        [finding] = await store_findings(redis, place)
    assert finding.severity is Severity.FAULT
    assert told in finding.detail
    assert ("Correct user and password" in finding.remedy) is (right == "redis-word")
    assert wrong not in finding.detail or right == "/calls-master/"


async def test_doctor_names_a_sentinel_that_the_url_takes_for_the_server(watched: Watched) -> None:
    """``redis://`` with a sentinel's port: the doctor says what answers there, and what to set instead."""
    place = parse_location(f"redis://:{SENTINEL_PASSWORD}@127.0.0.1:{watched.sentinel_port}/0")
    async with worker_redis(place) as redis:
        [finding] = await store_findings(redis, place)
    assert finding.severity is Severity.FAULT
    assert finding.detail == f"{place.address} is a sentinel, not the server itself"
    assert "redis+sentinel://" in finding.remedy
