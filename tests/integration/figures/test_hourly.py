"""Hourly sums in Redis: by institution and for all, kept for 90 days in little memory, and hits of rules by the day."""

from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.hourly import (
    DAY_BYTES,
    EVERYWHERE,
    HOURS_KEPT_S,
    HourlySums,
    Slot,
    Sums,
    hours_of,
    slot_of_delay,
    slot_of_reason,
)
from callkeeper.calls.metrics.redis_writer import HITS_KEPT_S, Author, FigureWriter
from callkeeper.calls.record import Reason
from callkeeper.calls.store.keys import Keys
from tests.integration.figures.test_figures import NOON, Hand

TODAY = NOON // 86_400_000
HOUR = timedelta(hours=1)


@pytest.fixture
def hand() -> Hand:
    """Return the clock."""
    return Hand()


@pytest.fixture
def process(hand: Hand) -> FigureWriter:
    """Return the writer of a process."""
    return FigureWriter(Figures(), Author("worker-1", "worker"), now_ms=hand, memory=lambda: 1000)


async def test_sums_are_kept_by_hour_and_institution(redis: Redis, hand: Hand, process: FigureWriter) -> None:
    """Each hour and institution has its own sums, which all processes add to; all institutions together have theirs."""
    for institution in ("cu-1", "cu-1", "bank: 2"):
        process.figures.sum_up(institution, Slot.STARTED)
        await process.write_async(redis)
    hand.ms += 3_600_000
    process.figures.sum_up("cu-1", Slot.REJECTED)
    await process.write_async(redis)
    noon, reader = datetime.fromtimestamp(NOON / 1000, UTC), HourlySums(redis)
    begin, end = noon - 24 * HOUR, noon + 2 * HOUR
    for institutions, expected in (
        (["cu-1"], [(2, 0), (0, 1)]),
        (["bank: 2"], [(1, 0), (0, 0)]),
        (["cu-1", "bank: 2"], [(3, 0), (0, 1)]),
        ([EVERYWHERE], [(3, 0), (0, 1)]),
    ):
        found = await reader.between(begin, end, institutions)
        assert [
            (found.by_hour[at][Slot.STARTED], found.by_hour[at][Slot.REJECTED]) for at in (noon, noon + HOUR)
        ] == expected
        assert (len(found.by_hour), min(found.by_hour), found.since) == (26, begin, noon)


async def test_sums_take_the_memory_that_is_promised(redis: Redis, process: FigureWriter) -> None:
    """A day of an institution is one string of 1,008 bytes without spare room, and ends by itself after 90 days."""
    for slot in range(14):
        process.figures.sum_up("cu-1", slot)
    await process.write_async(redis)
    key = Keys().hours(TODAY, "cu-1")
    assert await redis.strlen(key) == DAY_BYTES == 1008
    assert (await redis.memory_usage(key) or 0) < 1200
    for lasting in (key, Keys().hours_since, Keys().hours(TODAY, EVERYWHERE)):
        assert HOURS_KEPT_S - 10 <= await redis.ttl(lasting) <= HOURS_KEPT_S + 86400


async def test_sum_stays_at_its_maximum(redis: Redis, hand: Hand, process: FigureWriter) -> None:
    """A number that is full stays full, and its neighbours are not changed."""
    process.figures.sum_up("cu-1", Slot.AUTHENTICATED)
    await process.write_async(redis)
    key = Keys().hours(TODAY, "cu-1")
    await redis.bitfield(key).set("u24", f"#{12 * 14 + Slot.STARTED}", 2**24 - 1).execute()
    process.figures.sum_up("cu-1", Slot.STARTED)
    await process.write_async(redis)
    stored: bytes = await redis.get(key)  # type: ignore[assignment]
    found = hours_of(stored)[12]
    assert (found[Slot.STARTED], found[Slot.AUTHENTICATED], found[Slot.ENROLLED]) == (2**24 - 1, 1, 0)


async def test_hits_of_rules_are_kept_by_the_day(redis: Redis, hand: Hand, process: FigureWriter) -> None:
    """Each verdict of a rule counts on its day, under the rule's name, its stage and what it asked for; for five weeks."""
    for _ in range(2):
        process.figures.count(figure.DECISIONS, "by | passcode", "live", "enroll")
        process.figures.count(figure.CHECKS, "answered")
        await process.write_async(redis)
    hand.ms += 86_400_000
    process.figures.count(figure.DECISIONS, "by | passcode", "shadow", "enroll")
    await process.write_async(redis)
    first, second = [await redis.hgetall(Keys().rule_hits(day)) for day in (TODAY, TODAY + 1)]
    assert first == {b"decisions|by %7C passcode|live|enroll": b"2"}
    assert second == {b"decisions|by %7C passcode|shadow|enroll": b"1"}
    assert 0 < await redis.ttl(Keys().rule_hits(TODAY)) <= HITS_KEPT_S


def test_every_reason_counts_as_settled_once() -> None:
    """However a call is settled, it is one of the results that make up the settled calls."""
    for reason in set(Reason) - {Reason.UNCONFIRMED}:
        sums = Sums()
        sums.numbers[slot_of_reason(reason)] += 1
        assert sums.settled == 1, reason


@pytest.mark.parametrize(
    ("delays", "median"),
    [([], None), ([0.5], 0.5), ([1.0, 1.5, 2.0], 1.25), ([9.0, 9.0], 11.5), ([100.0], 30.0)],
    ids=["none", "first bucket", "within a bucket", "a later bucket", "beyond the last bound"],
)
def test_delay_is_interpolated_in_its_bucket(delays: list[float], median: float | None) -> None:
    """The median lies in the bucket that holds the middle one; beyond the last bound it is that bound."""
    sums = Sums()
    for seconds in delays:
        sums.numbers[slot_of_delay(seconds)] += 1
    assert sums.delay(0.5) == median


def test_short_day_reads_as_zeros() -> None:
    """A day that another version wrote shorter, or that is missing, has zeros where it has nothing."""
    assert hours_of(None) == hours_of(b"\0" * 5) == [Sums() for _ in range(24)]
