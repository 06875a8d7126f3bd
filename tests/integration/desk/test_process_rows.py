"""The table of processes over a whole callkeeper: who reports, what each does."""

import asyncio
import html

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import ClaimedItem
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.metrics.snapshot import FigureReader
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import put_in_force
from tests.harness.desk import BoardRig
from workers.shift import Shift


@pytest.fixture
async def rig(begun_now: None, board_rig: BoardRig, redis: Redis, blocking_redis: BlockingRedis) -> BoardRig:
    """Return a board with a worker and a web process of two releases."""
    put_in_force(blocking_redis, Keys(), "aaaa", "rules.toml")
    worker = FigureWriter(Figures(), Author("box-2-77-abcd", "worker", "0.4.0", "bbbb"), cpu_share=lambda: 0.87)
    worker.doing = lambda: Doing(shift_s=12, calls=3, listings=1, did="37 calls, 35 checks; <b>")
    web = FigureWriter(Figures(), Author("box-1-78-abcd", "web", "0.4.0", "aaaa"), memory=lambda: 90 << 20)
    for process in (worker, web):
        await process.write_async(redis)
    return board_rig


async def test_processes_are_shown_with_what_they_do(rig: BoardRig) -> None:
    """Host, release, rules, CPU, last report, and what each does now; a worker's words are text, no markup."""
    page = html.unescape(await rig.page("/incidents"))
    for shown in ("box-2", "0.4.0", "bbbb", "not in force", "87 %", "shift of 12 s, 3 calls, 1 listing in flight"):
        assert shown in page
    for shown in ("box-1", "0 open streams", "0 s ago"):
        assert shown in page
    assert "checks; <b>" in page
    assert "checks; <b>" not in await rig.page("/incidents")


async def test_process_of_an_earlier_release_is_shown_without_what_it_does(rig: BoardRig) -> None:
    """Releases up to 0.3.0 do not say what they do, nor some the rest: the page still has their line."""
    key = Keys().process("box-2-77-abcd")
    await rig.redis.hdel(key, "doing", "cpu", "version", "rules", "ahead")
    page = await rig.page("/incidents")
    assert "not reported by this release" in page
    [old] = [process for process in await FigureReader(rig.redis).processes() if process.kind == "worker"]
    assert (old.cpu, old.doing, old.version) == (None, None, "")


async def test_page_without_processes_says_so(rig: BoardRig) -> None:
    """Nothing reports: an empty table would look like a fault of the page."""
    await rig.redis.delete(Keys().processes)
    assert "No process reports." in await rig.page("/incidents")


class SlowShift(Shift):
    """A shift whose work waits until it may end."""

    may_end = asyncio.Event()
    has_both = asyncio.Event()

    async def handle(self, item: ClaimedItem) -> None:
        """Wait, and leave the member to the next claim."""
        if len(self._tasks) == 2:
            self.has_both.set()
        await self.may_end.wait()


async def test_shift_tells_what_it_has_in_flight(rig: BoardRig) -> None:
    """A running shift counts the calls and listings in flight and tells its age; afterwards nothing is in flight."""
    await rig.begin_call(run_s=3, is_pushed=False)
    rig.stage.advance(60)  # the call and its institution are due
    shift = SlowShift(rig.tools, rig.institutions, rig.shift.listing, rig.tools.log)
    now_s = asyncio.get_running_loop().time
    assert shift.doing(now_s()) == Doing(shift_s=0.0, did="nothing was due")
    shift.may_end, shift.has_both = asyncio.Event(), asyncio.Event()
    running = asyncio.ensure_future(shift.run())
    await asyncio.wait_for(shift.has_both.wait(), 10)
    doing = shift.doing(now_s())
    assert (doing.calls, doing.listings) == (1, 1)
    shift.stop()
    shift.may_end.set()
    await running
    after = shift.doing(now_s() + 5)
    assert (after.calls, after.listings) == (0, 0)
    assert 5 <= (after.shift_s or 0) < 20
