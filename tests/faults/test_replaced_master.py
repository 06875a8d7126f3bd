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

from callkeeper.app.connections import receiver_redis
from callkeeper.app.redis_location import parse_location
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from tests.faults.sentinel import Watched, watched_redis
from tests.waiting import until_async

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
