"""If a running Redis master is replaced, the next one has every event that was confirmed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError
from rq.utils import utcformat

from callkeeper.app import sentinels
from callkeeper.app.connections import blocking_redis, receiver_redis, worker_redis
from callkeeper.app.redis_location import parse_location
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from tests.faults.sentinel import Watched, watched_redis
from tests.waiting import until_async
from workers.jobs import CallJob
from workers.rq_worker import CallWorker

ABREAST = 4
AFTERWARDS_S = 1.0
PUSH = PushEvent(type="CallStart", institution_key="cu-1", voice_id="v-1")


@contextlib.asynccontextmanager
async def pushing(redis: Any) -> AsyncIterator[set[str]]:
    """Record events continuously until the block ends; yield the ids of the confirmed ones."""
    intake, confirmed, over = Intake(redis, figures=Figures()), set[str](), asyncio.Event()

    async def push(sender: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            with contextlib.suppress(RedisError, TimeoutError, OSError):
                await intake.record(PUSH, event_id=f"{sender}-{count}")
                confirmed.add(f"{sender}-{count}")
            await asyncio.sleep(0.01)

    senders = [asyncio.create_task(push(sender)) for sender in range(ABREAST)]
    yield confirmed
    over.set()
    await asyncio.gather(*senders)


async def logged(redis: Any) -> set[str]:
    """Return the ids of the events that a server has."""
    return {json.loads(event)["id"] for event in await redis.zrange(Keys().events, 0, -1)}


def forced(watched: Watched) -> None:
    """Replace the master with ``SENTINEL FAILOVER``: the old one is demoted only eight seconds later."""
    watched.fail_over()


def planned(watched: Watched) -> None:
    """Replace the master as docs/operations.md says: its writes are paused first."""
    watched.switch_over()


@pytest.mark.parametrize("replace", [forced, planned], ids=["forced", "planned"])
@pytest.mark.parametrize("least_replicas", [1, 0], ids=["recommended", "writes without replicas"])
async def test_event_confirmed_by_a_master_that_is_replaced_is_known_to_the_next(
    tmp_path: Path, least_replicas: int, replace: Callable[[Watched], None]
) -> None:
    """No event is confirmed that only the old master and a replica of it have."""
    with watched_redis(tmp_path, replicas=2, least_replicas=least_replicas) as watched:
        async with receiver_redis(parse_location(watched.url)) as redis, pushing(redis) as confirmed:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(replace, watched)
            before = len(confirmed)
            await until_async(lambda: len(confirmed) > before)  # the next master confirms
            await asyncio.sleep(AFTERWARDS_S)
        async with receiver_redis(parse_location(watched.url)) as redis:
            assert sorted(confirmed - await logged(redis)) == []


async def test_connection_in_use_while_the_master_is_replaced_is_not_used_again(tmp_path: Path) -> None:
    """What is confirmed afterwards is confirmed by the new master, also where a connection to the old one was busy."""
    with watched_redis(tmp_path, replicas=2, least_replicas=0) as watched:
        async with receiver_redis(parse_location(watched.url)) as redis:
            intake, confirmed = Intake(redis, figures=Figures()), set[str]()
            pool: Any = redis.connection_pool
            await intake.record(PUSH, event_id="before")
            busy = [await pool.get_connection() for _ in range(ABREAST)]
            await asyncio.to_thread(watched.fail_over)

            async def confirm(event_id: str) -> bool:
                with contextlib.suppress(RedisError, TimeoutError, OSError):
                    await intake.record(PUSH, event_id=event_id)
                    confirmed.add(event_id)
                return event_id in confirmed

            await until_async(lambda: confirm("after"))
            for connection in busy:
                await pool.release(connection)
            for n in range(2 * ABREAST):
                await confirm(str(n))
        async with receiver_redis(parse_location(watched.url)) as redis:
            assert sorted(confirmed - await logged(redis)) == []
            assert len(confirmed) == 1 + 2 * ABREAST


async def test_command_is_repeated_at_the_new_master(tmp_path: Path) -> None:
    """While the old master answers nothing, a command whose connection leads to it goes to the new one."""
    with watched_redis(tmp_path, replicas=1, least_replicas=0) as watched:
        place = parse_location(watched.url)
        async with worker_redis(place) as redis:
            with blocking_redis(place) as in_thread:
                await redis.ping()
                in_thread.ping()
                await asyncio.to_thread(watched.switch_over)
                asked = (redis.incr("asyncio"), asyncio.to_thread(in_thread.incr, "blocking"))
                assert await asyncio.gather(*asked) == [1, 1]
        async with receiver_redis(place) as redis:
            assert await redis.mget("asyncio", "blocking") == [b"1", b"1"]


async def test_idle_connections_leave_an_old_master_that_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not demoted yet, and answers like any other. An idle worker must not wait there for jobs."""
    monkeypatch.setattr(sentinels, "_ASK_EVERY_S", 0.0)
    with watched_redis(tmp_path, replicas=1, least_replicas=0) as watched:
        place = parse_location(watched.url)
        async with worker_redis(place) as redis:
            with blocking_redis(place) as in_thread:
                worker = CallWorker(in_thread, job_class=CallJob, on_stop=lambda: None, leave=lambda _: None)
                worker.heartbeat()
                await redis.ping()
                await asyncio.to_thread(watched.fail_over)
                worker.heartbeat()
                await redis.set("moved", 1)
        assert worker.last_heartbeat is not None
        with blocking_redis(place) as new:
            assert new.hget(worker.key, "last_heartbeat") == utcformat(worker.last_heartbeat).encode()
            assert new.get("moved") == b"1"


async def test_event_confirmed_during_a_failover_command_is_known_to_the_next_master(tmp_path: Path) -> None:
    """Redis's own FAILOVER loses no confirmed event, because it pauses writes until the replica has them all."""
    with embedded_redis(tmp_path / "one") as one, embedded_redis(tmp_path / "two") as two:
        port = int(one.url.rsplit(":", 1)[1].split("/")[0])
        async with AsyncRedis.from_url(one.url) as master, AsyncRedis.from_url(two.url) as replica:
            await replica.replicaof("127.0.0.1", port)
            await until_async(lambda: _is(replica, master_link_status="up"))
            async with pushing(master) as confirmed:
                await asyncio.sleep(0.3)
                await master.execute_command("FAILOVER")  # type: ignore[no-untyped-call]  # the library's
                await until_async(lambda: _is(replica, role="master"))
                await asyncio.sleep(0.2)
            assert confirmed
            assert confirmed - await logged(replica) == set()


async def _is(redis: Any, **wanted: str) -> bool:
    told = await redis.info("replication")
    return all(told.get(name) == value for name, value in wanted.items())
