"""A whole callkeeper in virtual time: the real store, moves and listings against the stand-in, without waiting.

``Rig.run(seconds)`` moves the clock from one due time to the next; claimed work runs to its end in between.
"""

import asyncio
import datetime as dt
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as dataclass_replace
from math import ceil
from typing import Any

import httpx
import pytest
import structlog
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import Lease
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.metrics.snapshot import FigureReader, Snapshot
from callkeeper.calls.notes import Note
from callkeeper.calls.record import Call
from callkeeper.calls.rules import RuleBook, load_rules
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.earlier_calls import number_key
from callkeeper.calls.store.keys import Keys, Retention
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.store.push_intake import Intake
from callkeeper.calls.store.queries import Queries
from callkeeper.calls.store.sso_token import RedisTokenStore
from callkeeper.calls.trail import Entry
from callkeeper.service import Secret, ServiceConfig
from callkeeper.service.client import Reseller
from callkeeper.service.config import LoginPolicy
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening
from tests.sandbox_fixtures import CREDENTIALS, KEY, PHONE, Asgi
from tests.transports import AnnouncingTransport
from tests.workers_built import institution_settings
from workers.claimed_call import Tools
from workers.counting import Counting
from workers.managed_institutions import Institutions
from workers.queue_listing import Listing
from workers.runtime import UnreadableLog
from workers.service_clock import ServiceClock
from workers.service_gate import ServiceGate
from workers.service_health import Probing
from workers.shift import Shift, Wakeups

SHIPPED = load_rules(None)
"""The cautious rules that come with the software, loaded once for all tests."""

DEMO = load_rules("demo")
"""Those of the demonstration, which enroll and reject sooner."""

EAGER = dataclass_replace(
    SHIPPED,
    rules=tuple(
        dataclass_replace(rule, when=tuple(one for one in rule.when if one[0] != "final_analysis"))
        for rule in SHIPPED.rules
    ),
)
"""The cautious rules, except that they enroll in the call, once the voice was checked."""

STEP_S = 0.25
"""The clock moves in multiples of this, to what is due next."""

LONGEST_S = 5.0
"""The most that the clock moves at once. Nothing is due between: what happens in the stand-in is told with its own time."""

LONG_S = 300.0
"""After this long a wait passes in strides, each a tenth of what has passed since. Hours of idle listings would be slow."""

LONGEST_STRIDE_S = 60.0
"""The longest stride. What falls due within one is done at its end, as by a worker that was busy: in the last minute of a
wait there are none, so that everything is done before its end."""

PROBED_S = 2.0
"""The same while a breaker is open: probes are in no schedule."""


class Altered(Reseller):
    """The client of a rig, with its connections and its observer; a test overrides methods."""

    def __init__(self, rig: "Rig") -> None:
        self._exchange, self._log = rig.service._exchange, rig.service._log


@dataclass(frozen=True, slots=True)
class RigLease(Lease):
    """A worker's lease, except that effects may wait for another time when Redis is new."""

    hold_s: float = 0.0

    @property
    def hold(self) -> dt.timedelta:
        """Return for how long effects wait when Redis is new."""
        return dt.timedelta(seconds=self.hold_s)


class Rig:
    """One worker, one stand-in, one Redis, and one clock that tests move.

    Args:
        stage: The stand-in.
        redis: A client, or what a test puts in front of one.
        book: The rules; the shipped ones unless told otherwise.
        transport: Replaces the stand-in's own, for tests that change requests or answers.
        connecting: The same for requests over connections of their own, if they have another one.
        now_ms: Redis's clock, where it differs from the stand-in's.
        login: How often the service account may log in.
        outbox: Where outcomes wait to be sent, if there is a receiver.
        archive: Where calls wait to be archived, if there is an archive.
        retention: How long what is over is kept.
        hold_s: For how long effects wait when Redis is new. A test's Redis always is.
        credentials: What the service account logs in with.
        rps: Requests per second that were set.
        in_test: Institutions that are handled in test mode.
        name: The name under which its worker reports.
    """

    def __init__(
        self,
        stage: Asgi,
        redis: Any,
        book: RuleBook = SHIPPED,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        connecting: httpx.AsyncBaseTransport | None = None,
        now_ms: Callable[[], int] | None = None,
        login: LoginPolicy | None = None,
        outbox: Keys | None = None,
        archive: Keys | None = None,
        retention: Retention | None = None,
        hold_s: float = 0.0,
        credentials: Credentials = CREDENTIALS,
        rps: float | None = None,
        in_test: frozenset[str] = frozenset(),
        name: str = "worker-1",
    ) -> None:
        retention = Retention() if retention is None else retention
        self.stage = stage
        self.redis = redis
        self.clock = stage.clock
        self.step_s = STEP_S
        self._events = itertools.count(1)
        self._now_ms = now_ms
        self.book = book
        self.log = structlog.testing.LogCapture()
        log = structlog.wrap_logger(None, processors=[structlog.contextvars.merge_contextvars, self.log])
        self.figures = Figures()
        config = self.config = ServiceConfig(
            base_url="http://127.0.0.1",
            access_token=Secret(credentials.access_token),
            email=Secret(credentials.email),
            password=Secret(credentials.password),
            login=LoginPolicy() if login is None else login,
        )
        tokens = RedisTokenStore(redis, clock=lambda: self.clock.now.timestamp())  # noqa: PLW0108  (the hand moves)
        self.writer = FigureWriter(self.figures, Author(name, "worker"), now_ms=self.now_ms, memory=lambda: 1)
        self.web = FigureWriter(Figures(), Author("web-1", "web"), now_ms=self.now_ms, memory=lambda: 1)
        wakeups, unreadable, counting = Wakeups(), UnreadableLog(log, self.figures), Counting(self.figures)
        self.store = Store(
            redis,
            now_ms=self.now_ms,
            outbox=outbox,
            archive=archive,
            kept_s=retention.calls_s,
            lease=RigLease(hold_s=hold_s),
            due_in=wakeups.due_in,
            monotonic=self.clock.monotonic,
            unreadable=unreadable,
            rps=rps,
            limits=dict(self.book.limits),
            number_key=number_key(config.access_token),
        )
        gate = ServiceGate(self.store, log, self.figures, name=name)
        self.writer.doing = lambda: gate.way.told_in(Doing())
        self.wire = wire = AnnouncingTransport(stage.transport if transport is None else transport)
        self.service = Reseller(
            config,
            tokens,
            reads_transport=wire,
            effects_transport=wire if connecting is None else AnnouncingTransport(connecting),
            clock=self.clock.monotonic,
            log=log,
            observe=gate.report,
            see=self.figures.see,
            now=lambda: self.clock.now,
        )
        gate.see_bars_of(self.service)
        self.listings = Listings(redis, unreadable=unreadable)
        self.queries = Queries(redis)
        self.intake = Intake(  # a busy machine may stand still for longer than a sender waits
            redis, now_ms=self.now_ms, clock=lambda: self.clock.now, retention=retention, within_s=60.0
        )
        self.institutions = Institutions(
            self.service,
            self.listings,
            self.store,
            gate,
            institution_settings(in_test=in_test),
            monotonic=self.clock.monotonic,
            log=log,
            counting=counting,
        )
        self.tools = Tools(
            self.store,
            self.listings,
            self.service,
            gate,
            ServiceClock(self.clock.monotonic),
            self.book,
            lambda _: "bot",
            self.clock.monotonic,
            log,
            counting=counting,
            sleep=self.clock.sleep,
        )
        listing = Listing(self.tools, 5.0, choose=lambda _, high: high, on_due=wakeups.wake)
        self.shift = Shift(self.tools, self.institutions, listing, log, wakeups=wakeups)
        self.probing = Probing(self.tools, self.institutions, on_probed=wakeups.wake)

    def now_ms(self) -> int:
        """Return Redis's clock in milliseconds: the hand-moved one, unless the rig has another."""
        return self._now_ms() if self._now_ms else int(self.clock.now.timestamp() * 1000)

    async def push(self, call: SandboxCall, kind: str = "CallStart", **changes: Any) -> None:
        """Record a push about a call of the stand-in, as the receiver would."""
        await self.intake.record(replace(self.event(call, kind), **changes), event_id=f"ev-{next(self._events)}")

    async def begin_call(self, *script: Happening, run_s: float, is_pushed: bool = True, **options: Any) -> SandboxCall:
        """Begin a call of the stand-in, push its start, and let time pass."""
        call = self.stage.call(*script, **options)
        if is_pushed:
            await self.push(call)
        await self.run(run_s)
        return call

    def event(self, call: SandboxCall, kind: str) -> PushEvent:
        """Return a push about a call of the stand-in."""
        return PushEvent(
            type=kind,
            institution_key=call.institution_key,
            voice_id=call.voice_id,
            alternate_voice_id=call.alternate_id,
            phone_number=call.phone_number,
        )

    async def tick(self) -> int:
        """Claim what is due now and move it on; return how much that was."""
        await self.institutions.refresh()
        await asyncio.gather(*await self.probing.start_due())
        claimed = await self.store.claim(0 if self.tools.gate.way.leaves_work else 100)
        await asyncio.gather(*(self.shift.handle(held) for held in claimed))
        return len(claimed)

    async def run(self, seconds: float) -> None:
        """Let time pass, with everything that falls due in it. A long wait passes in strides."""
        begun, end = self.clock.now, self.clock.now + dt.timedelta(seconds=seconds)
        while True:
            for _ in range(50):
                found = await self.tick()
                ahead_s = await self._due_in_s()
                if not found or ahead_s > 0:
                    break
            else:
                raise AssertionError("something is due again and again without time passing")
            if self.clock.now >= end:
                return
            longest_s = PROBED_S if self.store.breakers.opened else LONGEST_S
            passed_s, left_s = (self.clock.now - begun).total_seconds(), (end - self.clock.now).total_seconds()
            stride_s = min((passed_s - LONG_S) / 10, LONGEST_STRIDE_S, left_s - LONGEST_STRIDE_S)
            step_s = max(self.step_s, stride_s, min(longest_s, ceil(ahead_s / self.step_s) * self.step_s))
            self.stage.advance(min(step_s, left_s))

    async def _due_in_s(self) -> float:
        """Return in how many seconds something is due: 0 or less if it is due now."""
        first = await self.redis.zrange(self.store.keys.due, 0, 0, withscores=True)
        return (first[0][1] - self.now_ms()) / 1000 if first else LONGEST_S

    async def report(self) -> None:
        """Report as a worker and a web process do every second."""
        for process in (self.web, self.writer):
            await process.write_async(self.redis)

    async def counted(self) -> Snapshot:
        """Write what was counted and return the totals."""
        await self.writer.write_async(self.redis)
        return await FigureReader(self.redis).totals()

    async def record(self, call: SandboxCall) -> Call:
        """Return our record of a call of the stand-in."""
        record = await self.queries.load(CallId(call.institution_key, call.voice_id))
        assert record is not None, "there is no record of the call"
        return record

    def call_id(self, call: SandboxCall) -> CallId:
        """Return the id of our record of a call of the stand-in."""
        return CallId(call.institution_key, call.voice_id)

    async def find(self, voice_id: str) -> Call | None:
        """Return our record under an id, or None."""
        return await self.queries.load(CallId(KEY, voice_id))

    async def note(self, call: SandboxCall, note: Note, *, even_settled: bool = False) -> bool:
        """Say something to a call; return whether it was taken."""
        taken, _ = await self.store.note(self.call_id(call), note, even_settled=even_settled)
        return taken

    async def trail(self, call: SandboxCall) -> Sequence[Entry]:
        """Return the trail of a call."""
        return await self.queries.trail(CallId(call.institution_key, call.voice_id))

    async def whats(self, call: SandboxCall) -> list[str]:
        """Return what happened to a call, in order, as words."""
        return [f"{entry.what} {entry.kind}" if entry.kind else entry.what for entry in await self.trail(call)]

    def ledger(self, call: SandboxCall) -> dict[str, int]:
        """Return how many requests of each kind the stand-in saw for a call, past authentication."""
        tally = self.stage.sandbox.ledger.entries.by_call.get(call.voice_id)
        return dict(tally.authenticated) if tally else {}


@pytest.fixture
async def rig(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a rig."""
    return Rig(sandbox_asgi, redis)


__all__ = ["KEY", "PHONE", "EffectKind", "Rig", "rig"]
