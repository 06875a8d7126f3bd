"""How long do events wait for the replicas of Redis? The receiver's recorder runs with and without replicas."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from benchmarks.answer import Answer, Table
from benchmarks.effort import Effort
from benchmarks.spread import Spread
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.demo.embedded_redis import embedded_redis

REPLICAS = (0, 1, 2)
ABREAST = 8
PUSH = PushEvent(type="CallStart", institution_key="cu-1", voice_id="v-1")


def answer(effort: Effort) -> Answer:
    """Record events without a replica, then with one, then with two."""
    found = asyncio.run(_rounds(effort))
    rows = [
        (
            f"{replicas} replicas, {abreast} at a time",
            Spread.of(each[len(each) // 2] for each in found[replicas, abreast]),
            Spread.of(each[int(len(each) * 0.99)] for each in found[replicas, abreast]),
        )
        for abreast in (1, ABREAST)
        for replicas in REPLICAS
    ]
    note = "All servers on this machine. Each event waits until every replica has it, or 100 ms."
    table = Table("From the event to Redis's confirmation", ("", "p50 ms", "p99 ms"), tuple(rows), note)
    return Answer("What does it cost to wait for replicas?", (table,))


async def _rounds(effort: Effort) -> dict[tuple[int, int], list[list[float]]]:
    found: dict[tuple[int, int], list[list[float]]] = {}
    async with _servers() as (master, replicas):
        for _ in range(effort.rounds):
            for count in REPLICAS:
                await _follow(master, replicas, count)
                for abreast in (1, ABREAST):
                    found.setdefault((count, abreast), []).append(await _record(master, effort.of(2000), abreast))
    return found


@asynccontextmanager
async def _servers() -> AsyncIterator[tuple[Any, list[Any]]]:
    """Run a master, and the servers that can become its replicas."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as started:
        folders = [Path(temporary) / str(n) for n in range(1 + max(REPLICAS))]
        urls = [started.enter_context(embedded_redis(folder)).url for folder in folders]
        async with AsyncExitStack() as opened:
            master, *replicas = [await opened.enter_async_context(Redis.from_url(url)) for url in urls]
            yield master, replicas


async def _follow(master: Any, replicas: list[Any], count: int) -> None:
    """Attach the given number of replicas to the master, and wait until they are online."""
    port = (await master.info("server"))["tcp_port"]
    for n, replica in enumerate(replicas):
        await replica.replicaof(*(("127.0.0.1", port) if n < count else ("NO", "ONE")))
    told: dict[str, Any] = {}
    while [told.get(f"slave{n}", {}).get("state") for n in range(told.get("connected_slaves", -1))] != [
        "online"
    ] * count:
        await asyncio.sleep(0.05)
        told = await master.info("replication")


async def _record(redis: Any, events: int, abreast: int) -> list[float]:
    """Record events, and return how long each took, in ms, the shortest first."""
    intake, took_ms = Intake(redis), list[float]()
    left = iter(range(events))

    async def sender(number: int) -> None:
        for n in left:
            began_s = time.perf_counter()
            await intake.record(PUSH, event_id=f"{number}-{n}-{began_s}")
            took_ms.append((time.perf_counter() - began_s) * 1000)

    await asyncio.gather(*map(sender, range(abreast)))
    return sorted(took_ms)
