"""What the board remembers between two looks, after Redis's clock was set back: it must not wait for the old time."""

import time
from datetime import UTC, datetime, timedelta

from redis.asyncio import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.metrics.snapshot import FigureReader
from callkeeper.calls.store.push_intake import Intake
from callkeeper.calls.store.queries import Lookup
from callkeeper.desk.board.board_context import BoardContextReader, HourReader
from callkeeper.service.push_event import PushEvent

AHEAD = timedelta(hours=3)


async def test_minutes_are_read_again_after_the_clock_was_set_back(redis: Redis) -> None:
    """Incidents on the board follow from them: for three hours it would show those of before, and no new ones."""
    now = datetime(2026, 11, 28, 12, tzinfo=UTC)
    hour = HourReader(FigureReader(redis))
    await hour.minutes(now + AHEAD)
    figures = Figures()
    figures.count(figure.SERVICE_OUTAGES)
    at_ms = int(now.timestamp() * 1000)
    await FigureWriter(figures, Author("w", "worker"), now_ms=lambda: at_ms, memory=lambda: 1).write_async(redis)
    minutes = await hour.minutes(now)
    assert [minute.at for minute in minutes][-1] == now
    assert minutes[-1].figures.count(figure.SERVICE_OUTAGES) == 1
    assert len(minutes) == 60


async def test_pushes_are_seen_after_the_clock_was_set_back(redis: Redis) -> None:
    """The board would say for three hours that the last push came before, whatever arrives."""

    async def push(voice_id: str, ahead: timedelta) -> None:
        at_ms = int((time.time() + ahead.total_seconds()) * 1000)
        event = PushEvent(type="CallStart", institution_key="cu-1", voice_id=voice_id)
        await Intake(redis, now_ms=lambda: at_ms).record(event, event_id=voice_id)

    reader = BoardContextReader(redis, Lookup(redis), HourReader(FigureReader(redis)))
    await push("before", AHEAD)
    await reader.read()
    await push("after", timedelta())
    for _ in range(2):
        context = await reader.read()
    assert context.pushes.last_at is not None
    assert abs(context.pushes.last_at - context.now) < timedelta(minutes=1)
