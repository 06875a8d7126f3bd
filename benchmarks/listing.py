"""How long does it take to list a long queue when every call in it is new, and when none is?"""

import asyncio
import time

import structlog
from redis.asyncio import Redis

from benchmarks.answers import KEY
from benchmarks.stage import Stage, stage
from callkeeper.app.connections import with_command_packing
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.inbox import Ask
from callkeeper.calls.store.last_listing import Listings
from callkeeper.service import Secret, ServiceConfig
from callkeeper.service.client import Reseller
from callkeeper.service.memory import MemoryTokenStore
from workers.claimed_call import Tools
from workers.job_summary import JobSummary
from workers.queue_listing import Listing
from workers.service_clock import ServiceClock
from workers.service_gate import ServiceGate

Took = tuple[float, float]
"""Seconds, and CPU seconds of this process."""


def list_twice(count: int) -> tuple[Took, Took]:
    """Fill the queue with calls, and list all of it twice."""
    with stage(latency_ms=20.0) as on:
        on.begin_calls(count)
        return asyncio.run(_list_twice(on))


async def _list_twice(on: Stage) -> tuple[Took, Took]:
    anybody = Secret("bench")
    config = ServiceConfig(base_url=on.service_url, access_token=anybody, email=anybody, password=anybody)
    log = structlog.wrap_logger(structlog.testing.ReturnLogger(), processors=[structlog.processors.KeyValueRenderer()])
    async with with_command_packing(Redis.from_url(on.redis_url)) as redis:
        store, reseller = Store(redis), Reseller(config, MemoryTokenStore(), log=log)
        monotonic, book = time.monotonic, load_rules(None)
        gate, clock = ServiceGate(store, log, Figures()), ServiceClock(monotonic)
        tools = Tools(store, Listings(redis), reseller, gate, clock, book, lambda _: "bench", monotonic, log)
        listing = Listing(tools, 5.0)
        await reseller.institution_keys()
        first = await _list(store, listing)
        again = await _list(store, listing)
        await reseller.aclose()
        return first, again


async def _list(store: Store, listing: Listing) -> Took:
    await store.request_listing(KEY, Ask.FULL)
    held = next(held for held in await store.claim(20_000) if held.member.startswith("i:"))
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    await listing.run(held, KEY, JobSummary())
    return time.perf_counter() - began_s, time.process_time() - cpu_began_s
