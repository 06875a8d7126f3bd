"""Requests that take time, in virtual time: whole shifts against a service that is slow."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fakeredis import FakeAsyncRedis

from calls.endings import end
from calls.held import Held
from sandbox.state import Call, Happening, Kind
from tests.faults.test_wakeups import VirtualLoop
from tests.rig import KEY, Rig
from tests.sandbox_fixtures import START, Asgi, HandClock
from workers.shift import Shift

END = Happening(Kind.END, 600)

Run = Callable[[Coroutine[Any, Any, None]], None]


class LoopClock(HandClock):
    """The clock of the event loop, whose time is virtual."""

    def __init__(self) -> None:
        """Begin with the loop."""

    @property
    def now(self) -> dt.datetime:  # type: ignore[override]  # nobody moves this hand
        """Return the loop's time as an instant."""
        return START + dt.timedelta(seconds=self.monotonic())

    def __call__(self) -> dt.datetime:
        """Return the present."""
        return self.now

    def monotonic(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class Between(httpx.AsyncBaseTransport):
    """Stands between worker and service: slow for one institution."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.slow: dict[str, float] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Wait, then pass the request on."""
        await asyncio.sleep(self.slow.get(request.headers.get("InstitutionKey", ""), 0.02))
        return await self.inner.handle_async_request(request)


class Works:
    """A worker that works shift after shift."""

    def __init__(self) -> None:
        stage = Asgi(clock=LoopClock())
        self.between = Between(stage.transport)
        self.rig = Rig(stage, FakeAsyncRedis(), transport=self.between)
        self.longest_s = 0.0

    async def work(self) -> None:
        """Work shift after shift."""
        own, made = self.rig.shift, self

        class Timed(Shift):
            async def move(self, held: Held) -> None:
                began_s = asyncio.get_running_loop().time()
                await super().move(held)
                made.longest_s = max(made.longest_s, asyncio.get_running_loop().time() - began_s)

        while True:
            shift = Timed(own.tools, own.institutions, own.listing, own.log, wakeups=own.wakeups)
            await shift.run()
            await asyncio.sleep(0.01)

    async def tick(self) -> None:
        """Let things happen in the service."""
        while True:
            self.rig.stage.sandbox.tick()
            await asyncio.sleep(0.25)

    async def call(self, key: str = KEY) -> Call:
        """Let a call begin, and push it."""
        call = self.rig.stage.call(END, key=key)
        await self.rig.push(call)
        self.rig.shift.wakeups.wake()
        return call


@asynccontextmanager
async def working() -> AsyncIterator[Works]:
    """Return a worker at work."""
    works = Works()
    tasks = {asyncio.ensure_future(works.work()), asyncio.ensure_future(works.tick())}
    try:
        yield works
    finally:
        await end(tasks)


@pytest.fixture
def virtual() -> Iterator[Run]:
    """Return what runs a test in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        yield runner.run


@pytest.mark.parametrize("answer_s", [1.2, 3.6, 5.5])
def test_claim_lets_go_between_requests_of_a_slow_service(virtual: Run, answer_s: float) -> None:
    """No claim lasts longer than an effect needs: its confirming read and itself; nothing is called a bug."""

    async def law() -> None:
        async with working() as works:
            await asyncio.sleep(2)
            works.between.slow[KEY] = answer_s
            call = await works.call()
            await asyncio.sleep(400)
            assert works.longest_s <= 2 * answer_s + 2
            assert works.rig.shift.failures == []
            assert not [entry for entry in works.rig.log.entries if entry["event"] == "step_failed"]
            assert (await works.rig.record(call)).checks_used >= 14

    virtual(law())
