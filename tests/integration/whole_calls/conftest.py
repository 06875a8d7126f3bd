"""A rig with a busy group of institutions, whose callers are drawn from a seed."""

from collections.abc import AsyncIterator, Callable

import pytest
from redis.asyncio import Redis

from callkeeper.calls.rules import RuleBook
from callkeeper_sandbox.service import population
from callkeeper_sandbox.service.scenario import Progress, Scenario
from callkeeper_sandbox.service.state import PushSettings
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import START, Asgi

MakeRig = Callable[[RuleBook], Rig]


@pytest.fixture
async def busy(redis_url: str) -> AsyncIterator[MakeRig]:
    """Return what makes a rig with a scenario of seed 7, whose calls are found by listing alone."""
    opened: list[Redis] = []

    def make(book: RuleBook) -> Rig:
        stage = Asgi()
        population.settle(stage.world, PushSettings())
        stage.sandbox.begin(Scenario(Progress(seed=7, next_at=START)))
        redis = Redis.from_url(f"{redis_url.removesuffix('/0')}/{len(opened)}")
        opened.append(redis)
        return Rig(stage, redis, book)

    yield make
    for redis in opened:
        await redis.aclose()
