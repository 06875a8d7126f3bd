"""Recording of events that arrive at the same moment."""

import asyncio
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import cast

from fakeredis import FakeAsyncRedis

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import Intake, PushArguments
from callkeeper.service.push_event import PushEvent


class Sized(Intake):
    """An intake that notes how many events each script has."""

    sizes: tuple[int, ...] = ()

    async def _record(self, events: Sequence[tuple[PushEvent, str]]) -> list[bool]:
        self.sizes = (*self.sizes, len(events))
        return await super()._record(events)


async def test_events_of_one_moment_share_scripts_and_lose_nothing() -> None:
    """Every event is in the log and on its call, every institution is due, and one caller enqueues a job.

    No script has more than 64.
    """
    redis, keys = FakeAsyncRedis(), Keys()
    events = [
        *(PushEvent(type="CallStart", institution_key=f"cu-{n % 3}", voice_id=f"v-{n}") for n in range(64)),
        *(PushEvent(type="CallEnd", institution_key="cu-0", voice_id=f"v-{n}") for n in range(3)),
        PushEvent(type="CallStart", institution_key="cu-9", voice_id="v-1", is_test=True),
        PushEvent(type="Other", institution_key="cu-9", voice_id="v-1"),
    ]
    intake = Sized(redis, within_s=60.0)
    wakes = await asyncio.gather(*(intake.record(each, event_id=f"{n:032x}") for n, each in enumerate(events)))
    assert intake.sizes == (64, len(events) - 64)
    assert wakes.count(True) == 1
    assert await redis.zcard(keys.events) == len(events)
    due = {str(member, "utf-8") for member in cast("list[bytes]", await redis.zrange(keys.due, 0, -1))}
    assert due == {f"c:cu-{n % 3}:v-{n}" for n in range(64)} | {
        *(f"c:cu-0:v-{n}" for n in range(3)),
        *(f"i:cu-{n}" for n in range(3)),
    }
    assert set(await redis.hkeys(keys.inbox("c:cu-0:v-0"))) == {b"push:start", b"push:end"}
    assert await redis.exists(keys.sample("cu-9"))


def test_script_names_the_values_of_an_event_as_we_do() -> None:
    """They are passed by their order, so both sides must have the same one."""
    source = (files("callkeeper.calls") / "lua" / "push.lua").read_text()
    named = re.search(r"local ([\w, ]+) = unpack\(ARGV, n, n \+ (\d+)\)", source)
    assert named is not None
    assert tuple(named[1].split(", ")) == PushArguments._fields
    assert int(named[2]) + 1 == len(PushArguments._fields)
    assert f"for n = rest, #ARGV, {len(PushArguments._fields)} do" in source
