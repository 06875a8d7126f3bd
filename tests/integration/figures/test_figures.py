"""Figures in Redis: counted in any process, added up once, read as totals and by minute."""

import time
from datetime import UTC, datetime

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures, field_name, parse_field
from callkeeper.calls.metrics.redis_writer import ALIVE_S, Author, FigureWriter, Reporter
from callkeeper.calls.metrics.signals import SignalReader, note_unstarted
from callkeeper.calls.metrics.snapshot import FigureReader
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script import Arg
from tests.waiting import until

NOON = 1_795_262_400_000


class Hand:
    """Redis's clock, in milliseconds."""

    def __init__(self) -> None:
        self.ms = NOON

    def __call__(self) -> int:
        """Return the time."""
        return self.ms

    @property
    def now(self) -> datetime:
        """Return the time as an instant."""
        return datetime.fromtimestamp(self.ms / 1000, UTC)


@pytest.fixture
def hand() -> Hand:
    """Return the clock."""
    return Hand()


def writer(hand: Hand, name: str = "worker-1") -> FigureWriter:
    """Return the writer of a process of that name."""
    return FigureWriter(Figures(), Author(name, "worker"), now_ms=hand, memory=lambda: 1000, cpu_share=lambda: 0.25)


async def test_figures_of_all_processes_add_up(redis: Redis, hand: Hand) -> None:
    """What two processes counted under the same labels is one figure; other labels are told apart."""
    for process in (writer(hand, "worker-1"), writer(hand, "web-1")):
        process.figures.count(figure.EFFECTS, "enroll", "applied")
        process.figures.count(figure.EFFECTS, "assign", "applied", n=2)
        await process.write_async(redis)
    totals = await FigureReader(redis).totals()
    assert totals.count(figure.EFFECTS) == 6
    assert totals.by(figure.EFFECTS, "kind") == {"enroll": 2, "assign": 4}
    assert totals.count(figure.EFFECTS, kind="enroll", state="applied") == 2


async def test_figures_measure_in_buckets(redis: Redis, hand: Hand) -> None:
    """A histogram keeps count, sum and about where its values lie; a value on a bound belongs below it."""
    process = writer(hand)
    for value in (0.1, 0.2, 0.2, 100.0):
        process.figures.observe(figure.SHIFT_SECONDS, value)
    await process.write_async(redis)
    spread = (await FigureReader(redis).totals()).spread(figure.SHIFT_SECONDS)
    assert spread.n == 4
    assert spread.total == pytest.approx(100.5)
    assert (spread.counts[0], spread.counts[1], spread.counts[-1]) == (1, 2, 1)
    assert spread.quantile(0.5) == pytest.approx(0.3)
    assert spread.quantile(1.0) == 60


async def test_figures_are_kept_by_the_minute(redis: Redis, hand: Hand) -> None:
    """Each minute has its own figures, oldest first; the totals go on."""
    process = writer(hand)
    for _ in range(3):
        process.figures.count(figure.CHECKS, "answered")
        await process.write_async(redis)
        hand.ms += 120_000
    minutes = await FigureReader(redis).minutes(hand.now, 7)
    assert [minute.figures.count(figure.CHECKS) for minute in minutes] == [1, 0, 1, 0, 1, 0, 0]
    assert minutes[-1].at == hand.now.replace(second=0, microsecond=0)
    assert (await FigureReader(redis).totals()).count(figure.CHECKS) == 3


async def test_figures_of_a_minute_expire(redis: Redis, hand: Hand) -> None:
    """A minute is kept for a little more than an hour; nothing that figures write stays for ever."""
    process = writer(hand)
    process.figures.count(figure.CHECKS, "answered")
    await process.write_async(redis)
    keys = Keys()
    assert 3600 < await redis.ttl(keys.minute(NOON // 60_000)) <= 3900
    assert 0 < await redis.ttl(keys.figures) <= 30 * 86400
    assert 0 < await redis.ttl(keys.process("worker-1")) <= ALIVE_S


async def test_figures_written_twice_count_once(redis: Redis, hand: Hand) -> None:
    """A batch whose confirmation was lost is written again by the next round, and adds nothing then (C14)."""

    class AnswerLost:
        def register_script(self, source: str) -> object:
            script = redis.register_script(source)

            async def run(keys: list[str], args: list[Arg]) -> None:
                await script(keys, args)
                raise RedisConnectionError

            return run

    process = writer(hand)
    process.figures.count(figure.CHECKS, "answered")
    with pytest.raises(RedisConnectionError):
        await process.write_async(AnswerLost())  # type: ignore[arg-type]  # all of a Redis that is used
    process.figures.count(figure.CHECKS, "answered")
    await process.write_async(redis)
    await process.write_async(redis)
    assert (await FigureReader(redis).totals()).count(figure.CHECKS) == 2


async def test_figures_wait_for_a_redis_that_is_away(redis: Redis, hand: Hand) -> None:
    """Counts that Redis did not accept are written as soon as it does."""

    class Away:
        def register_script(self, _source: str) -> object:
            async def run(*_: object) -> None:
                raise RedisConnectionError

            return run

    process = writer(hand)
    for _ in range(3):
        process.figures.count(figure.CHECKS, "answered")
        with pytest.raises(RedisConnectionError):
            await process.write_async(Away())  # type: ignore[arg-type]  # all of a Redis that is used
    await process.write_async(redis)
    await process.write_async(redis)
    assert (await FigureReader(redis).totals()).count(figure.CHECKS) == 3


async def test_processes_are_alive_as_long_as_they_report(redis: Redis, hand: Hand) -> None:
    """A process that reports is listed with its memory and its share of a core; one that is silent for long is not."""
    first, second = writer(hand, "worker-1"), writer(hand, "worker-2")
    await first.write_async(redis)
    hand.ms += 6_000
    await second.write_async(redis)
    alive = await FigureReader(redis).processes()
    assert [(process.name, process.kind, process.memory, process.cpu) for process in alive] == [
        ("worker-1", "worker", 1000, 0.25),
        ("worker-2", "worker", 1000, 0.25),
    ]
    hand.ms += 6_000
    await second.write_async(redis)
    assert [process.name for process in await FigureReader(redis).processes()] == ["worker-2"]


async def test_figures_ignore_what_another_version_wrote(redis: Redis, hand: Hand) -> None:
    """A figure that this version does not know, or knows with other labels, is left out and breaks nothing (C12)."""
    process = writer(hand)
    process.figures.count(figure.CHECKS, "answered")
    await process.write_async(redis)
    await redis.hset(Keys().figures, mapping={"tomorrow|x": 1, "checks|a|b": 1, "shift_seconds|99": 1})
    totals = await FigureReader(redis).totals()
    assert totals.count(figure.CHECKS) == 1
    assert totals.spread(figure.SHIFT_SECONDS).n == 0


def test_reporter_writes_what_is_left_when_it_ends(redis_url: str) -> None:
    """A process that ends normally writes all its counts."""
    figures = Figures()
    with BlockingRedis.from_url(redis_url) as client:
        reporter = Reporter(client, FigureWriter(figures, Author.here("web")), every_s=60)
        reporter.start()
        figures.count(figure.PUSHES, "CallStart")
        reporter.stop()
        assert client.hgetall(Keys().figures) == {b"pushes|CallStart": b"1"}


def test_reporter_writes_at_once(redis_url: str) -> None:
    """A process that has just started is counted as alive, long before its first period is over."""
    with BlockingRedis.from_url(redis_url) as client:
        reporter = Reporter(client, FigureWriter(Figures(), Author.here("web")), every_s=60)
        reporter.start()
        until(lambda: client.zcard(Keys().processes) == 1, 10, "the process to report", every_s=0.01)
        reporter.stop()


async def test_process_that_starts_ends_what_was_said_of_its_kind(redis: Redis, redis_url: str) -> None:
    """A worker did not start, another one of the machine did: that is over for good, also when all workers die later."""
    with BlockingRedis.from_url(redis_url) as client:
        for kind in ("web", "worker"):
            note_unstarted(client, Keys(), kind)
        reporter = Reporter(client, FigureWriter(Figures(), Author.here("worker")), every_s=60)
        reporter.start()
        reporter.stop()
        client.delete(Keys().processes)
    told = incidents_of(await SignalReader(redis, Keys()).read())
    assert [incident.title for incident in told if incident.kind is IncidentKind.PROCESS_GONE] == ["A process is gone"]


def test_figures_labels_may_hold_anything() -> None:
    """A rule may have any name, without a collision with another figure."""
    for name in ("a|b", "ü 100%", "", "sum"):
        field = field_name(figure.DECISIONS.name, (name, "live", "hold"))
        assert parse_field(field) == (figure.DECISIONS, (name, "live", "hold"), None)


async def test_clocks_are_compared_by_short_exchanges_alone(redis: Redis) -> None:
    """A report that waited until a frozen Redis thawed says nothing new of the clocks."""
    process = FigureWriter(Figures(), Author("box-1-7-aa", "worker"), clock=lambda: time.time() + 90)
    ahead_s = []
    for pause_ms in (1, 1, 1500):
        await redis.client_pause(pause_ms)
        await process.write_async(redis)
        [shown] = await FigureReader(redis).processes()
        ahead_s.append(shown.ahead_s)
    assert ahead_s == [0, pytest.approx(90, abs=0.6), pytest.approx(90, abs=0.6)]
