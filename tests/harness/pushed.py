"""A rig that the stand-in pushes to by itself, and a Redis for programs that are run without pytest."""

import asyncio
import datetime as dt
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from redis.asyncio import Redis

from callkeeper.calls.rules import RuleBook
from callkeeper.service.config import LoginPolicy
from callkeeper.service.push_event import PushUnreadable, parse_push
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.service.state import PushSettings
from receiver.push import PushCounting
from tests.harness.virtual_time import KEY, SHIPPED, Rig
from tests.sandbox_fixtures import Asgi


class PushedRig(Rig):
    """A rig whose calls are pushed as the stand-in's faults and variants say.

    Args:
        redis: A client.
        book: The rules.
        institutions: The keys of the institutions.
        between: Puts something between the worker and the stand-in.
        more: As a `Rig` takes it.
    """

    def __init__(
        self,
        redis: Any,
        book: RuleBook = SHIPPED,
        *,
        institutions: Sequence[str] = (KEY,),
        between: Callable[[httpx.AsyncBaseTransport], httpx.AsyncBaseTransport] = lambda stage: stage,
        **more: Any,
    ) -> None:
        endpoint = _PushEndpoint()
        stage = Asgi(endpoint)
        for key in institutions[1:]:
            stage.world.add_institution(key)
        for institution in stage.world.state.institutions.values():
            institution.push = PushSettings("http://us/push")
        login = LoginPolicy(min_interval_s=0.0)
        super().__init__(stage, redis, book, transport=between(stage.transport), login=login, **more)
        endpoint.rig, endpoint.counting = self, PushCounting(self.figures)
        stage.sandbox.sleep = self._sleep_together

    async def pass_time(self, seconds: float) -> None:
        """Let time pass by the second, with pushes and everything that falls due in it."""
        for _ in range(int(seconds)):
            await self.stage.sandbox.deliver()
            await self.run(1)

    async def _sleep_together(self, seconds: float) -> None:
        """Wait together with others: waits that begin together and are equally long end together."""
        until = self.clock.now + dt.timedelta(seconds=seconds)
        for _ in range(20):
            await asyncio.sleep(0)
        self.clock.now = max(self.clock.now, until)


class _PushEndpoint(httpx.AsyncBaseTransport):
    """Our push endpoint for the stand-in: it parses, records and counts pushes."""

    rig: Rig
    counting: PushCounting

    def __init__(self) -> None:
        self._events = itertools.count(1)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Take one push."""
        try:
            event = parse_push(request.content)
        except PushUnreadable:
            self.counting.refused("unreadable")
            return httpx.Response(400)
        await self.rig.intake.record(event, event_id=f"ev-{next(self._events)}")
        self.counting.accepted(event, self.rig.clock.now, 0.0)
        return httpx.Response(202)


@asynccontextmanager
async def own_redis() -> AsyncIterator[Redis]:
    """Run a Redis until the block ends, and yield a client."""
    with TemporaryDirectory() as folder, embedded_redis(Path(folder)) as server:
        async with Redis.from_url(server.url) as redis:
            yield redis
