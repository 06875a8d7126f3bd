"""Results do not change if the clocks of Redis, the service and a web process differ by hours, or jump."""

import asyncio
from collections.abc import Callable
from dataclasses import replace as but
from datetime import UTC, datetime, timedelta
from itertools import product
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.record import Phase, Reason
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

HOURS = timedelta(hours=3)
NOT_FOUND = '{"success": false, "error": "Phone call not found."}'


class Clocks:
    """By how much Redis's clock and a web process's are ahead of the stage's true time."""

    def __init__(self, stage: Asgi, redis: timedelta = timedelta(), web: timedelta = timedelta()) -> None:
        self.stage = stage
        self.redis = redis
        self.web = web

    def redis_ms(self) -> int:
        """Return what Redis's clock says."""
        return int((self.stage.clock.now + self.redis).timestamp() * 1000)

    def web_now(self) -> datetime:
        """Return what the clock of a web process says."""
        return self.stage.clock.now + self.web


def rig_of(stage: Asgi, redis: Redis, clocks: Clocks, transport: httpx.AsyncBaseTransport | None = None) -> Rig:
    """Return a whole callkeeper with these clocks."""
    rig = Rig(stage, redis, now_ms=clocks.redis_ms, transport=transport)
    rig.intake._clock = clocks.web_now
    return rig


def service_ahead(stage: Asgi, by: timedelta) -> None:
    """Let the service's clock differ."""
    stage.world.options = but(stage.world.options, clock_ahead_s=by.total_seconds())


async def told(redis: Redis, *, redis_by: timedelta, service_by: timedelta, web_by: timedelta) -> object:
    """Let three calls come, and return what the service was asked, and when, and how the calls ended."""
    await redis.flushall()
    stage = Asgi()
    service_ahead(stage, service_by)
    rig = rig_of(stage, redis, Clocks(stage, redis_by, web_by))
    await rig.run(70)
    began_at = stage.clock.now
    green = stage.call(Happening(Kind.GREEN, 40), Happening(Kind.END, 100), voice_id="green", alternate_id="a-1")
    await rig.push(green)
    await rig.run(7)
    stage.world.add_member(green.institution_key, "p-2", ["5550100222"], first_name="Bo", last_name="Example")
    verified = stage.call(
        Happening(Kind.MFA_VALIDATED, 20),
        Happening(Kind.END, 90),
        phone_number="5550100222",
        voice_id="verified",
        alternate_id="a-2",
        listed_after_s=3.0,
    )
    await rig.push(verified)
    await rig.run(200)
    ledger = stage.sandbox.ledger
    return [
        (
            call.voice_id,
            [(str(one.operation), (one.at - began_at).total_seconds()) for one in ledger.arrivals(call.voice_id)],
            (await rig.record(call)).life.reason,
            (await rig.record(call)).plan.checks_used,
        )
        for call in (green, verified)
    ]


USUAL = [(-HOURS, HOURS, -HOURS), (HOURS, -HOURS, timedelta(seconds=-12))]
"""For every change: each clock ahead of the others and behind them, and once a difference of some seconds."""


@pytest.fixture(scope="module")
def expected() -> list[object]:
    """Hold what happens where all clocks agree; filled by whoever asks first."""
    return []


@pytest.mark.parametrize(
    ("redis_by", "service_by", "web_by"),
    [
        pytest.param(*by, marks=[] if by in USUAL else pytest.mark.night)
        for by in product((-HOURS, HOURS), (-HOURS, HOURS), (-HOURS, timedelta(seconds=-12), HOURS))
    ],
    ids=lambda by: f"{by.total_seconds() / 3600:+.3g}h",
)
async def test_clocks_that_differ_by_hours_change_nothing(
    redis: Redis, expected: list[object], redis_by: timedelta, service_by: timedelta, web_by: timedelta
) -> None:
    """The service gets the same requests at the same moments, and the calls end the same."""
    zero = timedelta()
    if not expected:
        expected.append(await told(redis, redis_by=zero, service_by=zero, web_by=zero))
    assert await told(redis, redis_by=redis_by, service_by=service_by, web_by=web_by) == expected[0]


class Asked(httpx.AsyncBaseTransport):
    """Remembers from which start each look at a queue asked."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.starts: list[datetime] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        url = urlsplit(str(request.url))
        for start in parse_qs(url.query).get("startDate", ()) if url.path.endswith("/queue") else ():
            self.starts.append(datetime.fromisoformat(start).astimezone(UTC))
        return await self.inner.handle_async_request(request)


@pytest.mark.parametrize("by", [timedelta(), HOURS], ids=["agree", "redis ahead"])
async def test_a_look_begins_at_the_newest_start_that_the_service_named(redis: Redis, by: timedelta) -> None:
    """Listings begin at the newest start by the service's clock, not Redis's, so they miss no new call."""
    stage = Asgi()
    asked = Asked(stage.transport)
    rig = rig_of(stage, redis, Clocks(stage, by), asked)
    calls = [stage.call(Happening(Kind.END, 300)) for _ in range(2)]
    await rig.run(30)
    newest = calls[-1].started_at
    await rig.push(stage.call(Happening(Kind.END, 300)))
    await rig.run(0.2)
    assert asked.starts
    assert all(newest - timedelta(seconds=125) <= start <= newest for start in asked.starts)


class Odd(httpx.AsyncBaseTransport):
    """Says of one call in the queue that it starts in three hours."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        answer = await self.inner.handle_async_request(request)
        if not request.url.path.endswith("/queue"):
            return answer
        await answer.aread()
        told = answer.json()
        for entry in told["phoneCalls"]:
            if entry["voiceId"] == "odd":
                entry["startDateTime"] = (datetime.fromisoformat(entry["startDateTime"]) + HOURS).isoformat()
        return httpx.Response(200, json=told)


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=30)], ids=["set back", "an odd start"])
async def test_start_far_ahead_of_all_others_costs_no_checks_for_ever(redis: Redis, ahead: timedelta) -> None:
    """A clock that is set back, or one odd entry, must not make every later call look old, as long as a process lives.

    What a call counts that may be older than an emptied Redis are the checks that a lost record may have used.
    """
    stage = Asgi()
    rig = rig_of(stage, redis, Clocks(stage))
    await rig.run(10)
    service_ahead(stage, ahead)
    await rig.begin_call(Happening(Kind.END, 30), run_s=5)
    service_ahead(stage, timedelta())
    for _ in range(3):
        await rig.begin_call(Happening(Kind.END, 60), run_s=3600)
    await redis.flushall()
    await rig.run(130)
    call = await rig.begin_call(Happening(Kind.END, 300), run_s=60)
    assert "verifying" not in await rig.whats(call)


async def test_pushed_call_is_read_while_its_queue_fails_also_if_the_clock_of_redis_was_set_back(redis: Redis) -> None:
    """The last look at the queue then lies in the future. It is not one that began after the push and lacks the call."""
    stage = Asgi()
    rig = rig_of(stage, redis, clocks := Clocks(stage))
    await rig.run(20)
    stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=500))
    clocks.redis = -HOURS
    call = await rig.begin_call(Happening(Kind.END, 300), run_s=60)
    assert (await rig.record(call)).life.phase is Phase.LIVE


async def test_one_start_far_ahead_of_all_others_hides_no_call(redis: Redis) -> None:
    """A single start far in the future is not used as the beginning of later listings."""
    stage = Asgi()
    rig = rig_of(stage, redis, Clocks(stage), Odd(stage.transport))
    stage.call(Happening(Kind.END, 400))
    await rig.run(30)
    stage.call(Happening(Kind.END, 400), voice_id="odd", alternate_id="a-odd")
    await rig.run(8)
    later = stage.call(Happening(Kind.END, 300))
    await rig.run(10)
    assert rig.ledger(later)["assign"] == 1


async def test_calls_are_found_after_the_clock_of_the_service_was_set_back(redis: Redis) -> None:
    """After the next full listing, the service's earlier start times are no longer used."""
    stage = Asgi()
    service_ahead(stage, HOURS)
    rig = rig_of(stage, redis, Clocks(stage))
    stage.call(Happening(Kind.END, 400))
    await rig.run(30)
    service_ahead(stage, timedelta())
    await rig.run(65)
    later = stage.call(Happening(Kind.END, 300))
    await rig.run(10)
    assert rig.ledger(later)["assign"] == 1


@pytest.mark.parametrize(
    ("zone", "clock"),
    [
        ("dates-local-east", "clock-3-min-behind"),
        ("dates-local-west", "clock-5-h-behind"),
        ("dates-local-east", "clock-5-h-ahead"),
        pytest.param("dates-local-west", "clock-3-min-behind", marks=pytest.mark.night),
        pytest.param("dates-local-east", "clock-5-h-behind", marks=pytest.mark.night),
        pytest.param("dates-local-west", "clock-5-h-ahead", marks=pytest.mark.night),
    ],
)
async def test_calls_are_found_where_the_service_compares_other_times_than_it_shows(
    redis: Redis, zone: str, clock: str
) -> None:
    """If a listing misses the newest call although it is live, later listings ask for all calls."""
    stage = Asgi()
    stage.sandbox.choose([clock, zone])
    asked = Asked(stage.transport)
    rig = rig_of(stage, redis, Clocks(stage), asked)
    stage.call(Happening(Kind.END, 400))
    await rig.run(8)
    for n in range(4):
        later = stage.call(Happening(Kind.END, 300), voice_id=f"later-{n}", alternate_id=f"a-{n}")
        await rig.run(8)
        assert rig.ledger(later).get("assign") == 1, f"call {n}"
    events = [entry["event"] for entry in rig.log.entries]
    assert events.count("queue_bound_misread") <= 1
    if "queue_bound_misread" in events:
        before = len(asked.starts)
        await rig.run(30)
        assert len(asked.starts) == before, "asks with no start any more"


async def test_newest_call_that_has_ended_proves_nothing_about_the_bound(redis: Redis) -> None:
    """If the newest call is missing because it ended, one full listing shows that, and listings by start continue."""
    stage = Asgi()
    rig = rig_of(stage, redis, Clocks(stage), asked := Asked(stage.transport))
    stage.call(Happening(Kind.END, 400))
    stage.call(Happening(Kind.END, 20))
    await rig.run(50)
    await rig.push(stage.call(Happening(Kind.END, 400)))
    await rig.run(2)
    before = len(asked.starts)
    await rig.push(stage.call(Happening(Kind.END, 400)))
    await rig.run(2)
    assert len(asked.starts) > before
    assert "queue_bound_misread" not in [entry["event"] for entry in rig.log.entries]


async def not_found(rig: Rig, seconds: float) -> None:
    """Let details say for so long that there is no such call."""
    fault = Fault(target="details", action=Action.ANSWER, status=404, body=NOT_FOUND)
    rig.stage.sandbox.faults.add(fault)
    await rig.run(seconds)
    rig.stage.sandbox.faults.clear()


async def test_call_that_the_queue_lists_is_not_settled_as_lost(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Details that are "not found" for minutes do not settle a call that the queue lists."""
    rig = Rig(sandbox_asgi, redis)
    calls = [rig.stage.call(Happening(Kind.GREEN, 180), Happening(Kind.END, 240)) for _ in range(3)]
    await rig.run(5)
    await not_found(rig, 150)
    assert [(await rig.record(call)).life.phase for call in calls] == [Phase.LIVE] * 3
    await rig.run(150)
    assert Reason.LOST not in [(await rig.record(call)).life.reason for call in calls]


async def lived(redis: Redis, jumps: Callable[[Clocks, float], None]) -> object:
    """Let calls live while Redis's clock jumps; return how they ended and how many checks they had."""
    await redis.flushall()
    stage = Asgi()
    clocks = Clocks(stage)
    rig = rig_of(stage, redis, clocks)
    names = [f"v-{n}" for n in range(3)]
    calls = [
        stage.call(Happening(Kind.GREEN, 60), Happening(Kind.END, 200), voice_id=name, alternate_id=f"a-{name}")
        for name in names
    ]
    for at_s in range(0, 320, 10):
        jumps(clocks, at_s)
        await rig.run(10)
    return [(await rig.record(call)).life.reason for call in calls]


@pytest.mark.parametrize(
    "by_s", [-14_460, *(pytest.param(by_s, marks=pytest.mark.night) for by_s in (-300, 30, 300)), 14_460]
)
async def test_jump_of_the_clock_of_redis_ends_no_call(redis: Redis, by_s: int) -> None:
    """After jumps of Redis's clock in both directions, timeouts still count the time that has passed."""

    def jump(clocks: Clocks, at_s: float) -> None:
        clocks.redis = timedelta(seconds=by_s if 20 <= at_s < 100 else 0)

    assert await lived(redis, jump) == [Reason.AUTHENTICATED] * 3


class Held(httpx.AsyncBaseTransport):
    """Holds the first enroll on its way until it is let go."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.arrived, self.go = asyncio.Event(), asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if request.url.path.endswith("/enroll") and not self.arrived.is_set():
            self.arrived.set()
            await self.go.wait()
        return await self.inner.handle_async_request(request)


@pytest.mark.parametrize("by_s", [30, 1000])
@pytest.mark.parametrize("is_new", [False, True], ids=["seen", "by a process that starts then"])
async def test_effect_under_way_while_the_clock_of_redis_jumps_is_not_called_absent(
    redis: Redis, is_new: bool, by_s: int
) -> None:
    """The request began a moment ago, whatever Redis's clock says. After a jump of 1000 s a person may look."""
    stage = Asgi()
    clocks, held = Clocks(stage), Held(stage.transport)
    one, two = rig_of(stage, redis, clocks, held), rig_of(stage, redis, clocks)
    call: Call = stage.call(Happening(Kind.MFA_VALIDATED, 10), Happening(Kind.END, 120))
    if not is_new:
        await two.tick()
    moving: asyncio.Task[int] | None = None
    while not held.arrived.is_set():
        moving = asyncio.ensure_future(one.tick())
        await asyncio.wait({moving, asyncio.ensure_future(held.arrived.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if not held.arrived.is_set():
            await moving
            stage.advance(0.25)
    assert moving is not None
    if not is_new:
        await two.store.claim(0)
    clocks.redis = timedelta(seconds=by_s)
    for _ in range(6):
        stage.advance(0.5)
        await two.tick()
    state = (await two.record(call)).ledger.enroll.state
    assert state in {EffectState.SENT, EffectState.UNKNOWN, EffectState.UNRESOLVED}
    held.go.set()
    await moving
    await two.run(130)
    shown = {EffectState.APPLIED, EffectState.CONFIRMED, *({EffectState.UNRESOLVED} if by_s == 1000 and is_new else ())}
    assert (await two.record(call)).ledger.enroll.state in shown
    assert two.ledger(call)["enroll"] == 1
