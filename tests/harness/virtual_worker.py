"""A worker in virtual time: whole shifts, one after the other, at a service where calls begin and end."""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from callkeeper.calls.claimed_item import ClaimedItem
from callkeeper.calls.rules import RuleBook
from callkeeper.calls.store.breakers import retry_service
from callkeeper.calls.store.cancelling import end
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.redis_in_step import emptied, in_step
from tests.harness.virtual_time import KEY, SHIPPED, Rig
from tests.sandbox_fixtures import CREDENTIALS, START, Asgi, HandClock
from workers.service_health import Probing
from workers.shift import Shift

OTHER: Final = "cu-2"
ANSWER_S: Final = 0.02

NEW: Final = Credentials(password="another")


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
    """Stands between workers and service. It can be slow for an institution, refuse connections, hang, or lose answers.

    ``hangs_at`` and ``drops_at`` are the ends of paths whose requests hang, or lose their connection. ``stands_in``: the
    status, content type and body with which it answers by itself, as a proxy or a captive portal does.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.slow: dict[str, float] = {}
        self.hangs_at = self.drops_at = "nowhere"
        self.is_refusing = False
        self.is_hanging = False
        self.is_losing = False
        self.stands_in: tuple[int, str, bytes] | None = None
        self.begun = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Wait, then pass the request on, unless the service is away."""
        self.begun += 1
        if self.is_refusing:
            raise httpx.ConnectError("connection refused")
        path = request.url.path
        if path.endswith(self.drops_at):
            raise httpx.ReadError("connection reset")
        if self.is_hanging or path.endswith(self.hangs_at):
            await asyncio.sleep(3600)
        await asyncio.sleep(self.slow.get(request.headers.get("InstitutionKey", ""), ANSWER_S))
        if self.stands_in is not None:
            status, media_type, body = self.stands_in
            return httpx.Response(status, headers={"content-type": media_type}, content=body, request=request)
        answer = await self.inner.handle_async_request(request)
        if self.is_losing:
            await asyncio.sleep(3600)
        return answer


class Works:
    """A worker that works shift after shift, at a service with one institution or more. Others may join it."""

    def __init__(self, *, institutions: int = 1, book: RuleBook = SHIPPED) -> None:
        self.book = book
        self.stage = Asgi(clock=LoopClock())
        for n in range(2, institutions + 1):
            self.stage.world.add_institution(f"cu-{n}", f"Number {n}")
            self.stage.world.add_member(f"cu-{n}", "p-1", ["5550100001"])
        self.between = Between(self.stage.transport)
        self._redis_url = emptied()
        self._connected: list[Any] = []
        self.rig = self._hire()
        self.longest_s = 0.0
        self.in_flight: Counter[str] = Counter()
        self._working: asyncio.Task[None] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self.others: list[tuple[Rig, asyncio.Task[None]]] = []
        self.most_in_flight: Counter[str] = Counter()

    def _hire(
        self,
        credentials: Credentials = CREDENTIALS,
        *,
        between: Between | None = None,
        connecting: Between | None = None,
        name: str = "worker-1",
    ) -> Rig:
        self._connected.append(in_step(self._redis_url))
        return Rig(
            self.stage,
            self._connected[-1],
            self.book,
            transport=self.between if between is None else between,
            connecting=connecting,
            credentials=credentials,
            name=name,
        )

    def join(self, between: Between, name: str = "box-2-7-aa", *, connecting: Between | None = None) -> Rig:
        """Let another worker begin, which has its own way to the service, or two: another one for new connections."""
        rig = self._hire(between=between, connecting=connecting, name=name)
        self.others.append((rig, asyncio.ensure_future(self.work(rig))))
        return rig

    async def mend(self, name: str) -> None:
        """End the outage of this name. Some need an action of a person."""
        self.stage.sandbox.faults.clear()
        self.between.is_refusing = self.between.is_hanging = False
        if name.endswith("new password"):
            self.rig = self._hire(NEW)
            await self.stop()
            self.begin()
        else:
            self.stage.sandbox.credentials = CREDENTIALS
        if name.endswith("retry`"):
            await retry_service(self.rig.redis, now_ms=self.rig.now_ms())

    def begin(self) -> None:
        """Begin to work."""
        self._working, self._ticking = asyncio.ensure_future(self.work()), asyncio.ensure_future(self.tick())

    def look_after(self) -> None:
        """Raise what ended the work, if anything did."""
        for task in (self._working, self._ticking, *(task for _, task in self.others)):
            if task is not None and task.done():
                task.result()

    async def stop(self) -> None:
        """End the work."""
        working = (self._working, self._ticking, *(task for _, task in self.others))
        await end({task for task in working if task is not None})

    async def close(self) -> None:
        """End the work and close the connections."""
        await self.stop()
        for redis in self._connected:
            await redis.aclose()

    async def work(self, rig: Rig | None = None) -> None:
        """Work shift after shift, with the probing beside it, as a worker does."""
        while True:
            own = self.rig if rig is None else rig
            shift = Watched(own.tools, own.institutions, own.shift.listing, own.shift.log, wakeups=own.shift.wakeups)
            shift.works = self
            async with Probing(own.tools, own.institutions, on_probed=own.shift.wakeups.wake).running():
                await shift.run()
            await asyncio.sleep(0.01)

    async def tick(self) -> None:
        """Let things happen in the service, and let workers report."""
        while True:
            self.stage.sandbox.tick()
            for rig in (self.rig, *(rig for rig, _ in self.others)):
                await rig.writer.write_async(rig.redis)
            await asyncio.sleep(0.25)

    async def call(self, key: str = KEY, *, lasts_s: float = 600, pushed: bool = True) -> Call:
        """Let a call begin, and push it."""
        call = self.stage.call(Happening(Kind.END, lasts_s), key=key)
        if pushed:
            await self.rig.push(call)
            for rig in (*(rig for rig, _ in self.others), self.rig):
                rig.shift.wakeups.wake()
        return call

    def assigned_s(self, call: Call) -> float | None:
        """Return how many seconds after its start a call was first assigned; None if it was not."""
        arrivals = self.stage.sandbox.ledger.arrivals(call.voice_id)
        done = [arrival.at for arrival in arrivals if arrival.operation == "assign" and arrival.applied]
        return (min(done) - call.started_at).total_seconds() if done else None

    def checks_s(self, call: Call) -> list[float]:
        """Return how many seconds after its start each check of a call was made."""
        arrivals = self.stage.sandbox.ledger.arrivals(call.voice_id)
        return [(arrival.at - call.started_at).total_seconds() for arrival in arrivals if arrival.operation == "check"]

    def events(self) -> Counter[str]:
        """Return how often each event was logged."""
        return Counter(entry["event"] for entry in self.rig.log.entries)


class Watched(Shift):
    """A shift that records how long its claims last and how many there are of each institution."""

    works: Works

    async def handle(self, item: ClaimedItem) -> None:
        """Move one member on."""
        works, key = self.works, item.member.split(":")[1]
        began_s = asyncio.get_running_loop().time()
        works.in_flight[key] += 1
        works.most_in_flight[key] = max(works.most_in_flight[key], works.in_flight[key])
        try:
            await super().handle(item)
        finally:
            works.in_flight[key] -= 1
            works.longest_s = max(works.longest_s, asyncio.get_running_loop().time() - began_s)


@asynccontextmanager
async def working(*, institutions: int = 1, book: RuleBook = SHIPPED) -> AsyncIterator[Works]:
    """Return a worker at work."""
    works = Works(institutions=institutions, book=book)
    works.begin()
    try:
        yield works
        works.look_after()
    finally:
        await works.close()
