"""How fast does one worker write the calls that waited in Redis while the archive's database was unavailable?

The calls are settled, in Redis, and queued as the sweep queues them; then the outbox runs as it does in a shift.
"""

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from redis.asyncio import Redis

from benchmarks.answer import Answer, Table
from benchmarks.archive import PER_S, server, simulated_call
from benchmarks.effort import Effort
from callkeeper.app.logs import flush_log, quiet_log
from callkeeper.archive.database import Database
from callkeeper.archive.migrating import migrate
from callkeeper.archive.reading import ArchiveReader
from callkeeper.archive.writing import Writer
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.archive_queue import ArchiveQueue, waiting_calls
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.trail import encode_entry
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from workers.archive_delivery import ArchiveDeliveries

CALLS: Final = 10_000
FILLED: Final = 500


def answer(effort: Effort) -> Answer:
    """Queue settled calls, and write them with one worker."""
    calls = 400 if effort.is_smoke else CALLS
    with server() as url, TemporaryDirectory() as folder, embedded_redis(Path(folder)) as redis:
        took_s, written = asyncio.run(_caught_up_s(redis.url, url, calls))
    rate = calls / took_s
    broken = [f"{written} of {calls} calls are in the archive"] if written != calls else []
    if rate < PER_S and not effort.is_smoke:
        broken.append(f"{rate:.0f} calls a second are caught up, {PER_S:g} are promised")
    rows = (("calls that waited", calls), ("caught up by one worker, calls a second", round(rate)))
    return Answer((__doc__ or "").splitlines()[0], (Table("The backlog", ("what", "figure"), rows),), tuple(broken))


async def _caught_up_s(redis_url: str, url: str, calls: int) -> tuple[float, int]:
    """Return how many seconds it took until no call waited, and how many calls are then in the archive."""
    database = Database(url)
    migrate(database)
    async with Redis.from_url(redis_url) as redis:
        await _settle(redis, calls)
        queue = ArchiveQueue(redis, Keys())
        while await queue.sweep():
            pass
        assert (await waiting_calls(redis, Keys())).calls == calls  # noqa: S101  (otherwise nothing is measured)
        archiving = ArchiveDeliveries(queue, Writer(database), quiet_log(), flush_log)
        began_s = time.monotonic()
        async with archiving.running():
            while (await waiting_calls(redis, Keys())).calls:  # noqa: ASYNC110  (Redis sends no event for this)
                await asyncio.sleep(0.05)
        took_s = time.monotonic() - began_s
        await archiving.close()
    reader = ArchiveReader(Database(url))
    written = reader.count()
    reader.close()
    return took_s, written


async def _settle(redis: Redis, calls: int) -> None:
    """Store settled calls in Redis that were never archived."""
    keys = Keys()
    for start in range(0, calls, FILLED):
        pipe = redis.pipeline(transaction=False)
        for n in range(start, min(start + FILLED, calls)):
            call, trail = simulated_call(n)
            member = CallId(call.institution_key, call.voice_id).member
            pipe.hset(keys.item(member), mapping={"rec": encode_call(call), "settled": "1"})
            pipe.rpush(keys.trail(member), *map(encode_entry, trail))
            pipe.zadd(keys.settled, {member: n})
        await pipe.execute()
