"""What happened since something went well, and processes that shut down or vanish, in a real Redis."""

from datetime import datetime

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import ALIVE_S, Author, FigureWriter, Reporter
from callkeeper.calls.metrics.redis_writer import Kind as ProcessKind
from callkeeper.calls.metrics.signals import SignalReader, Signals
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.integration.figures.test_figures import Hand, writer

END = Happening(Kind.END, 400)


async def signals(redis: Redis, hand: Hand) -> Signals:
    """Read the signals."""
    return await SignalReader(redis, Keys()).read(now=hand.now)


async def test_row_grows_over_processes_and_ends_with_a_good_one(redis: Redis) -> None:
    """Bad ones of two processes are one row; a good one of either ends it. Words are those of the last."""
    hand = Hand()
    first, second = writer(hand, "box-1-a"), writer(hand, "box-2-b")
    for process in (first, second):
        process.figures.count(figure.PUSHED_CALLS, KEY, "unlisted", n=2)
        process.figures.note_name(f"of {process.author.name}", figure.PUSHED_CALLS, KEY)
        await process.write_async(redis)
    lately = (await signals(redis, hand)).lately
    assert lately.in_a_row(figure.PUSHED_CALLS, KEY, "unlisted") == 4
    assert lately.last_name(figure.PUSHED_CALLS, KEY) == "of box-2-b"
    first.figures.count(figure.PUSHED_CALLS, KEY, "listed")
    await first.write_async(redis)
    assert (await signals(redis, hand)).lately.in_a_row(figure.PUSHED_CALLS, KEY, "unlisted") == 0


async def test_process_that_reports_no_more_has_vanished(redis: Redis) -> None:
    """After ten seconds it is named with its host, and forgotten after ten minutes."""
    hand = Hand()
    other = writer(hand, "box-2-8-bb")
    await other.write_async(redis)
    await writer(hand, "box-1-7-aa").write_async(redis)
    for _ in range(2):
        hand.ms += ALIVE_S * 500 + 1
        await other.write_async(redis)
    [gone] = (await signals(redis, hand)).vanished
    assert (gone.name, gone.kind, gone.host) == ("box-1-7-aa", "worker", "box-1")
    hand.ms += 601_000
    await other.write_async(redis)
    assert (await signals(redis, hand)).vanished == []


def test_process_that_shuts_down_has_not_vanished(redis_url: str) -> None:
    """One that is stopped counts as gone at once, and did not vanish."""
    client = BlockingRedis.from_url(redis_url)
    reporter = Reporter(client, FigureWriter(Figures(), Author.here("worker")), every_s=60)
    reporter.start()
    reporter.stop()
    assert client.exists(Keys().processes, Keys().running) == 0
    client.close()


async def test_each_new_process_replaces_one_that_vanished(redis: Redis) -> None:
    """For good: also when it shuts down in order, or vanishes itself and is replaced."""
    hand, writers = Hand(), dict[str, FigureWriter]()

    async def report(*names: str, after_s: int = 0) -> list[str]:
        hand.ms += after_s * 1000
        for name in names:
            await writers.setdefault(name, writer(hand, name)).write_async(redis)
        seen = await signals(redis, hand)
        kinds = [incident.kind for incident in incidents_of(seen)]
        assert (IncidentKind.PROCESS_GONE in kinds) is bool(seen.vanished)
        return [one.name for one in seen.vanished]

    await report("box-1-a", "box-2-b", "box-3-c")
    await report("box-1-a", after_s=ALIVE_S - 1)
    assert await report("box-1-a", after_s=2) == ["box-2-b", "box-3-c"]
    assert await report("box-1-a", "box-4-d") == ["box-3-c"]
    assert await report("box-1-a", "box-4-d", after_s=5) == ["box-3-c"], "one replaces one"
    leaving = writers["box-4-d"]
    await redis.register_script(leaving._script.source)(*leaving._arguments(Figures().batch(), is_last=True))
    assert await report("box-1-a", after_s=5) == ["box-3-c"], "it is missed no more than before"
    assert await report("box-1-a", "box-5-e", after_s=5) == []
    await report("box-1-a", after_s=ALIVE_S - 1)
    assert await report("box-1-a", after_s=2) == ["box-5-e"]
    assert await report("box-1-a", "box-6-f") == []


async def test_process_that_ends_before_the_killed_one_is_missed_replaces_it(redis: Redis) -> None:
    """A killed process is missed after ten seconds only."""
    hand = Hand()
    other = writer(hand, "box-2-b")
    await other.write_async(redis)
    await writer(hand, "box-1-a").write_async(redis)
    hand.ms += 1000
    heir = writer(hand, "box-3-c")
    await heir.write_async(redis)
    await redis.register_script(heir._script.source)(*heir._arguments(Figures().batch(), is_last=True))
    for _ in range(2):
        hand.ms += ALIVE_S * 500 + 1
        await other.write_async(redis)
    assert (await signals(redis, hand)).vanished == []


async def test_process_that_could_not_report_for_long_replaces_nobody(redis: Redis) -> None:
    """After a stall of Redis it still runs since its start, so the one that vanished meanwhile is missed."""
    hand = Hand()
    survivor = FigureWriter(Figures(), Author("box-1-a", "worker"), now_ms=hand, monotonic=lambda: hand.ms / 1000)
    hand.ms += 60_000
    for process in (survivor, writer(hand, "box-2-b")):
        await process.write_async(redis)
    [before] = [one.since for one in (await signals(redis, hand)).processes if one.name == "box-1-a"]
    hand.ms += ALIVE_S * 1000 + 1000
    await redis.delete(Keys().process("box-1-a"))  # as its end of life in Redis: the hand does not move Redis's clock
    await survivor.write_async(redis)
    seen = await signals(redis, hand)
    assert [one.name for one in seen.vanished] == ["box-2-b"]
    assert [one.since for one in seen.processes] == [before]


@pytest.mark.parametrize(("kind", "other"), [("web", "worker"), ("worker", "web")])
async def test_time_without_a_process_ends_when_one_of_its_kind_begins_to_report(
    redis: Redis, kind: ProcessKind, other: ProcessKind
) -> None:
    """Not when one of several is replaced. One that could not report for ten seconds counts as begun."""
    hand = Hand()

    async def report(*names: str, after_s: int) -> datetime | None:
        hand.ms += after_s * 1000
        for name in names:
            await FigureWriter(Figures(), Author(name, kind), now_ms=hand).write_async(redis)
        return (await signals(redis, hand)).last.began_at

    await FigureWriter(Figures(), Author("box-0-z", other), now_ms=hand).write_async(redis)
    begun = await report("box-1-a", after_s=1)
    assert begun == hand.now
    assert await redis.ttl(Keys().counted) > 0
    assert await report("box-1-a", "box-2-b", after_s=9) == begun
    assert await report("box-2-b", after_s=9) == begun
    missing = FigureWriter(Figures(), Author("box-4-d", kind), now_ms=hand)
    missing.figures.count(figure.CALLS_PUSHED, KEY, "missing")
    await missing.write_async(redis)
    assert (await signals(redis, hand)).lately.in_a_row(figure.CALLS_PUSHED, KEY, "missing") == 1
    assert await report("box-3-c", after_s=ALIVE_S + 1) == hand.now
    assert (await signals(redis, hand)).lately.in_a_row(figure.CALLS_PUSHED, KEY, "missing") == 0


async def test_push_that_comes_after_the_queue_is_not_missing(rig: Rig) -> None:
    """If the queue is faster than the pushes, calls are found by it, and pushes arrive all the same."""
    await rig.report()
    await rig.run(9)
    calls = [rig.stage.call(END) for _ in range(4)]
    for _ in range(3):
        await rig.report()
        await rig.run(5)
    await rig.report()
    reader = SignalReader(rig.redis, Keys())
    found = incidents_of(await reader.read(now=rig.clock.now))
    assert [one.kind.value for one in found] == ["no_push"]
    await rig.push(calls[0])
    await rig.run(5)
    await rig.report()
    assert incidents_of(await reader.read(now=rig.clock.now)) == []


async def test_due_calls_are_counted_once_they_wait(redis: Redis) -> None:
    """The number of due members is read only if the first one has waited for more than a second."""
    hand = Hand()
    await redis.zadd(Keys().due, {f"c:cu-1:v-{n}": hand.ms - 5000 for n in range(31)})
    await redis.zadd(Keys().due, {"c:cu-1:later": hand.ms + 5000})
    assert (await signals(redis, hand)).due == 31
