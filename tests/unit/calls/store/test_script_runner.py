"""Scripts without an answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import ScriptCall, Scripts


class Silent(Scripts):
    """Scripts whose answers come when they are let come."""

    def __init__(self, redis: FakeAsyncRedis) -> None:
        super().__init__(redis, keys=Keys())
        self.answered = asyncio.Event()

    async def _run(self, calls: Sequence[ScriptCall], *, replicated: bool = False) -> list[Any]:
        await self.answered.wait()
        return [1 for _ in calls]


async def test_script_without_an_answer_in_time_is_given_up(fake_redis: FakeAsyncRedis) -> None:
    """A caller with a deadline gets a TimeoutError; others continue to wait, and later callers are served."""
    scripts = Silent(fake_redis)
    patient = asyncio.ensure_future(scripts.call("retry"))
    with pytest.raises(TimeoutError):
        await scripts.call("retry", within_s=0.001)
    assert not patient.done()
    scripts.answered.set()
    assert await patient == 1
    assert await scripts.call("retry", within_s=60) == 1
