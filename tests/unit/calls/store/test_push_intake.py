"""Recording of events that arrive at the same moment."""

import asyncio
from typing import Any, cast

from fakeredis import FakeAsyncRedis

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import MOST_TOGETHER, Intake
from callkeeper.service.push_event import PushEvent


class Counted(FakeAsyncRedis):
    """A Redis that counts how often it is sent something."""

    pipelines = 0

    def pipeline(self, *arguments: Any, **options: Any) -> Any:
        """Count one more."""
        self.pipelines += 1
        return super().pipeline(*arguments, **options)


async def test_events_of_one_moment_share_scripts_and_lose_nothing() -> None:
    """Every event is in the log and on its call, every institution is due, and one caller enqueues a job."""
    redis, keys = Counted(), Keys()
    events = [
        *(PushEvent(type="CallStart", institution_key=f"cu-{n % 3}", voice_id=f"v-{n}") for n in range(MOST_TOGETHER)),
        *(PushEvent(type="CallEnd", institution_key="cu-0", voice_id=f"v-{n}") for n in range(3)),
        PushEvent(type="CallStart", institution_key="cu-9", voice_id="v-1", is_test=True),
        PushEvent(type="Other", institution_key="cu-9", voice_id="v-1"),
    ]
    intake = Intake(redis, within_s=60.0)
    wakes = await asyncio.gather(*(intake.record(each, event_id=f"{n:032x}") for n, each in enumerate(events)))
    assert redis.pipelines == 2  # one loads the scripts
    assert wakes.count(True) == 1
    assert await redis.zcard(keys.events) == len(events)
    due = {str(member, "utf-8") for member in cast("list[bytes]", await redis.zrange(keys.due, 0, -1))}
    assert due == {f"c:cu-{n % 3}:v-{n}" for n in range(MOST_TOGETHER)} | {
        *(f"c:cu-0:v-{n}" for n in range(3)),
        *(f"i:cu-{n}" for n in range(3)),
    }
    assert set(await redis.hkeys(keys.inbox("c:cu-0:v-0"))) == {b"push:start", b"push:end"}
    assert await redis.exists(keys.sample("cu-9"))
