"""The request budget on a real Redis: what takes permits, what waits for them, and what a 429 means."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import structlog
from msgspec.structs import replace as with_fields
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.breakers import (
    CHECK_TURN_EVERY_MS,
    FAILURES_THAT_OPEN,
    YIELDS_S,
    EndpointKind,
    RequestResult,
    open_breakers,
)
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import parse_errors
from callkeeper.calls.store.last_listing import LOOK_BACKS_A_MINUTE
from callkeeper.calls.store.request_budget import MARGIN, Permit, RequestBudget, budget_use
from callkeeper.service import (
    CallNotFound,
    LoginRefused,
    OutcomeUnknown,
    ResellerError,
    ServiceBusy,
    ServiceUnavailable,
    Unsendable,
)
from callkeeper.service.client import Reseller
from callkeeper.service.endpoints import DETAILS, ENROLL, INSTITUTIONS, QUEUE, TOKEN, Endpoint
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.integration.calls.hand import Hand
from tests.sandbox_fixtures import Asgi
from workers.service_gate import Held, ServiceGate, Wanted, Why

OTHER = "cu-2"
END = Happening(Kind.END, 60)


class Counted(httpx.AsyncBaseTransport):
    """The stand-in, and when it was asked for what."""

    def __init__(self, stage: Asgi) -> None:
        self._stage = stage
        self.asked: list[tuple[float, str]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Note a request and pass it on."""
        self.asked.append((self._stage.clock.monotonic(), request.headers.get("InstitutionKey", "")))
        return await self._stage.transport.handle_async_request(request)

    def most_in_10_s(self, key: str = "") -> int:
        """Return the most requests within 10 s, of an institution or of all."""
        times = [at_s for at_s, asked_for in self.asked if key in ("", asked_for)]
        return max(sum(begin <= at_s < begin + 10 for at_s in times) for begin in times)


def crowd(rig: Rig, calls: int, *, key: str = KEY) -> None:
    """Let callers come at one moment."""
    for number in range(calls):
        phone = f"55507{number:05}"
        rig.stage.world.add_member(key, f"p-{number + 50}", [phone])
        rig.stage.call(Happening(Kind.GREEN, 5), END, phone_number=phone, key=key)


class Asked:
    """A worker that asks the service twenty times per second, and observes what it is told to have been answered."""

    def __init__(self, store: Store, hand: Hand, redis: Redis) -> None:
        log = structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()])
        self._observe = ServiceGate(store, log, Figures()).report
        self._store, self._hand, self._redis = store, hand, redis

    async def __call__(self, seconds: float, *, every: int = 0, took_s: float = 0.05) -> float:
        """Let time pass. Every so many'th request gets 503, the others take so long. Return the rate, 0.0 if none."""
        await self._redis.hset(Keys().token, "expires", self._hand() + 10**9)
        for n in range(int(seconds * 20)):
            self._hand.ms += 50
            await self._store.budget.poll()
            await self._store.budget.wait_s(Permit.READ, f"m{n}", KEY)
            failed = ServiceUnavailable("queue", "status 503", 503) if every and not n % every else None
            await self._observe((QUEUE, DETAILS)[n % 2], KEY, failed, took_s)
        return next((use.limit_per_s for use in await budget_use(self._redis, Keys())), 0.0)


@pytest.fixture
def make(redis: Redis, hand: Hand) -> Callable[..., Store]:
    """Return what makes the store of one process."""

    def store(rps: float | None = None) -> Store:
        return Store(redis, now_ms=hand, monotonic=lambda: hand.ms / 1000, rps=rps)

    return store


async def take(budget: RequestBudget, kind: Permit, member: str, times: int = 1) -> list[float]:
    """Take permits one after the other at one moment; return how long each has to wait."""
    return [await budget.wait_s(kind, f"{member}{n}", KEY) for n in range(times)]


async def test_without_a_limit_redis_is_not_asked(rig: Rig, redis: Redis) -> None:
    """Nothing set and no 429: no permit leaves a trace in Redis, and nothing is postponed."""
    crowd(rig, 3)
    await rig.run(30)
    assert not await redis.keys("ck:2:permits*")
    assert await budget_use(redis, Keys()) == []


async def test_look_back_without_a_turn_takes_no_permit(make: Callable[..., Store], hand: Hand, redis: Redis) -> None:
    """Hundreds that wait for the next minute leave the requests of this one to live calls."""
    store, now = make(6.0), datetime.fromtimestamp(hand() / 1000, tz=UTC)
    gate = ServiceGate(store, structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]), Figures())
    wanted = Wanted(KEY, "m", Permit.READ, is_free=True, looks_back=True)
    await redis.set(store.keys.look_backs(hand() // 60_000), LOOK_BACKS_A_MINUTE)
    held = await gate.ask(wanted, now)
    assert held is not None
    assert (held.why, held.permits) == (Why.LOOK_BACKS, 0)
    assert not await redis.keys("ck:2:permits*")
    assert await gate.ask(with_fields(wanted, looks_back=False), now) is None
    assert await redis.keys("ck:2:permits*")


@pytest.mark.parametrize(
    ("barred_s", "kind", "is_free", "held"),
    [
        (7.0, EndpointKind.CALLS, True, Held(Why.REFUSED, 7.0)),
        (7.0, EndpointKind.CHECK, False, Held(Why.REFUSED, 7.0)),
        (7.0, EndpointKind.QUEUE, False, None),
        (0.0, EndpointKind.CALLS, False, Held(Why.REFUSAL_TESTED)),
        (0.0, EndpointKind.CALLS, True, None),
        (None, EndpointKind.CALLS, False, None),
    ],
    ids=["read", "check", "listing", "costly test", "free test", "not refused"],
)
async def test_refused_institution_is_asked_nothing_but_a_free_read(
    make: Callable[..., Store], hand: Hand, barred_s: float | None, kind: EndpointKind, is_free: bool, held: Held | None
) -> None:
    """After a 401, a read that changes nothing tests whether calls are still refused. Listings go on."""
    gate = ServiceGate(make(), structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]), Figures())
    gate.see_bars_of(cast("Reseller", SimpleNamespace(barred_s=lambda _, key: {KEY: barred_s}.get(key))))
    asked_at = datetime.fromtimestamp(hand() / 1000, tz=UTC)
    assert await gate.ask(Wanted(KEY, "m", Permit.READ, kind=kind, is_free=is_free), asked_at) == held
    assert await gate.ask(Wanted(OTHER, "m", Permit.READ, kind=kind, is_free=is_free), asked_at) is None


async def test_only_checks_take_turns_where_checks_bring_no_results(
    make: Callable[..., Store], redis: Redis, hand: Hand
) -> None:
    """Reads go on. A check that is known to wait takes no permit, and waits longer if its call's last one failed."""
    store = make()
    gate = ServiceGate(store, structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]), Figures())
    await redis.hset(store.keys.token, "expires", hand() + 10**9)
    for member in ("v-1", "v-2", "v-3"):
        await store.breakers.report(RequestResult.FAILURE, KEY, EndpointKind.CHECK, member=member)
    hand.ms += CHECK_TURN_EVERY_MS
    check = Wanted(KEY, "m", Permit.CHECK, kind=EndpointKind.CHECK)
    asked_at = datetime.fromtimestamp(hand() / 1000, tz=UTC)
    assert await gate.ask(check, asked_at) is None
    wait_s = CHECK_TURN_EVERY_MS / 1000
    assert await gate.ask(check, asked_at) == Held(Why.CHECKS_FAIL, wait_s, permits=1), "another process had the turn"
    await store.claim(1)
    assert await gate.ask(check, asked_at) == Held(Why.CHECKS_FAIL, wait_s)
    assert await gate.ask(with_fields(check, yields=True), asked_at) == Held(Why.CHECKS_FAIL, wait_s + YIELDS_S)
    assert await gate.ask(with_fields(check, kind=EndpointKind.CALLS), asked_at) is None


async def test_pause_is_as_long_as_the_service_asks(make: Callable[..., Store], redis: Redis, hand: Hand) -> None:
    """A 429 that says when to come back keeps an institution's requests back until then."""
    gate = ServiceGate(make(), structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]), Figures())
    await redis.hset(Keys().token, "expires", hand() + 10**9)
    await gate.report(DETAILS, KEY, ServiceBusy(DETAILS.name, "status 429", 30.0), 0.1)
    [paused] = await open_breakers(redis)
    assert paused.tried_at == instant(hand() + 30_000)


ERRORS: dict[str, tuple[Endpoint, ResellerError, set[tuple[str, str]]]] = {
    "read": (DETAILS, ServiceUnavailable(DETAILS.name, "status 503", 503), {("calls", KEY)}),
    "refusal of one call": (DETAILS, CallNotFound(DETAILS.name, status=404), set()),
    "value that cannot be sent": (DETAILS, Unsendable(DETAILS.name, "a line break"), set()),
    "login before a read": (DETAILS, ServiceUnavailable(TOKEN.name, "status 503", 503), set()),
    "listing": (QUEUE, ServiceUnavailable(QUEUE.name, "status 503", 503), {("queue", KEY)}),
    "standing": (INSTITUTIONS, ServiceUnavailable(INSTITUTIONS.name, "status 503", 503), {("standing", KEY)}),
    "login": (TOKEN, LoginRefused(TOKEN.name, "status 401"), {("login", KEY)}),
}


@pytest.mark.parametrize(("endpoint", "error", "told"), ERRORS.values(), ids=ERRORS)
async def test_people_are_told_the_last_error_of_what_failed(
    make: Callable[..., Store],
    redis: Redis,
    hand: Hand,
    endpoint: Endpoint,
    error: ResellerError,
    told: set[tuple[str, str]],
) -> None:
    """An error of a login is told once, as one of logins. One that says something of a single call is not told here."""
    gate = ServiceGate(make(), structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]), Figures())
    await gate.report(endpoint, KEY, error, 0.1)
    client: Any = redis
    assert set(parse_errors([await client.hgetall(Keys().errors)], instant(hand()))) == told


@pytest.mark.parametrize(("failing", "outages"), [((KEY,), 0), ((KEY, OTHER), 1)], ids=["one", "all"])
async def test_outage_is_logged_and_counted_by_what_is_away(rig: Rig, failing: tuple[str, ...], outages: int) -> None:
    """An institution that does not answer is not the service. The end is logged in the same words."""
    log = structlog.testing.LogCapture()
    gate = ServiceGate(rig.store, structlog.wrap_logger(None, processors=[log]), rig.figures)
    rig.store.breakers.acted_for = frozenset({KEY, OTHER})
    await rig.redis.hset(Keys().token, "expires", rig.now_ms() + 10**9)
    for key in failing * FAILURES_THAT_OPEN:
        for endpoint in (QUEUE, DETAILS):
            await gate.report(endpoint, key, ServiceUnavailable(endpoint.name, "status 503", 503), 0.1)
    away = [entry["event"] for entry in log.entries]
    assert (away.count("institution_away"), away.count("service_away")) == (len(failing), outages)
    assert (await rig.counted()).count(figure.SERVICE_OUTAGES) == outages
    log.entries.clear()
    await gate.report(DETAILS, KEY, None, 0.1)
    back = [entry["event"] for entry in log.entries]
    assert (back.count("institution_back"), back.count("service_back")) == (1, outages)


async def test_rate_that_is_set_is_kept(sandbox_asgi: Asgi, redis: Redis) -> None:
    """At 6 requests per second no 10 s hold more than 60, and every call is served."""
    wire = Counted(sandbox_asgi)
    rig = Rig(sandbox_asgi, redis, transport=wire, rps=6)
    rig.step_s = 0.05
    crowd(rig, 20)
    await rig.run(50)
    assert wire.most_in_10_s() <= 60
    # A listing that waits holds the rig's clock: `tests/faults/test_request_budget.py` says how much is used.
    assert sum(at_s < 10 for at_s, _ in wire.asked) > 0.6 * 60
    assert all(call.aliases and call.voice_validated for call in rig.stage.world.state.calls.values())


@pytest.mark.parametrize("back_s", [20, 600])
async def test_clock_that_goes_back_stops_no_requests(
    make: Callable[..., Store], hand: Hand, redis: Redis, back_s: int
) -> None:
    """Redis's clock goes back: no request waits for the time of permits that were given before (c2)."""
    budget = make(6.0).budget
    for n in range(40):
        await budget.wait_s(Permit.READ, f"m{n}", KEY)
    hand.ms -= back_s * 1000
    given = 0
    for n in range(20):
        given += await budget.wait_s(Permit.CHECK, f"n{n}", KEY) == 0
        hand.ms += 500
    assert given >= 15, "most of them, at a third of the rate"


async def test_institution_has_a_limit_of_its_own(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A limit in the rules file holds for its institution, and another one is not delayed."""
    sandbox_asgi.world.add_institution(OTHER)
    wire = Counted(sandbox_asgi)
    book = replace(load_rules(None), limits=((OTHER, 6.0),))
    rig = Rig(sandbox_asgi, redis, book, transport=wire)
    crowd(rig, 20, key=OTHER)
    crowd(rig, 20)
    await rig.run(30)
    assert wire.most_in_10_s(OTHER) <= 60
    assert wire.most_in_10_s(KEY) > 60


async def test_limit_is_learned_from_429(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Each 429 lowers the rate, opens no breaker, and is rare soon: less than 5 % from 15 s on."""
    sandbox_asgi.sandbox.choose(["limit-15"])
    wire = Counted(sandbox_asgi)
    rig = Rig(sandbox_asgi, redis, transport=wire)
    crowd(rig, 40)
    await rig.run(15)
    asked, refused = len(wire.asked), (await rig.counted()).count(figure.REQUESTS_TURNED_AWAY)
    await rig.run(30)
    asked = len(wire.asked) - asked
    refused = (await rig.counted()).count(figure.REQUESTS_TURNED_AWAY) - refused
    assert await open_breakers(redis) == []
    assert (await budget_use(redis, Keys()))[0].limit_per_s < 30
    assert refused < 0.05 * asked


async def test_processes_share_one_budget(make: Callable[..., Store], hand: Hand) -> None:
    """Two processes get no more together than one alone."""
    one, other = make(10.0).budget, make(10.0).budget
    granted = []
    for n in range(400):
        granted += [not wait_s for wait_s in await take(one if n % 2 else other, Permit.READ, f"{n}-", 2)]
        hand.ms += 50
    assert 0.85 * 200 * MARGIN <= sum(granted) <= 200 * MARGIN + 5


async def test_waiting_effect_comes_before_reads(make: Callable[..., Store], hand: Hand) -> None:
    """Whoever waits with an effect gets the next permit; a read that asks meanwhile does not."""
    budget = make(2.0).budget
    await take(budget, Permit.READ, "r", 4)
    wait_s = await budget.wait_s(Permit.EFFECT, "e", KEY, 2)
    assert 0 < wait_s < 2
    hand.ms += int(wait_s * 1000)
    assert (await take(budget, Permit.READ, "new"))[0] > 0
    assert await budget.wait_s(Permit.EFFECT, "e", KEY, 2) == 0


async def test_effect_that_waits_comes_first_while_every_class_has_a_share(
    make: Callable[..., Store], hand: Hand
) -> None:
    """Then priority counts: what was let through before was of another class."""
    budget = make(2.0 / MARGIN).budget
    await take(budget, Permit.LISTING, "full", 2)
    wait_s = await budget.wait_s(Permit.EFFECT, "e", KEY)
    hand.ms += int(wait_s * 1000)
    assert await budget.wait_s(Permit.READ, "r", KEY) > 0
    assert await budget.wait_s(Permit.EFFECT, "e", KEY) == 0


async def test_class_that_had_its_share_lets_one_pass_that_had_not(make: Callable[..., Store], hand: Hand) -> None:
    """Also a read, which comes last otherwise. A new budget begins with one permit for each class."""
    budget = make(2.0 / MARGIN).budget
    await take(budget, Permit.CHECK, "first")
    await take(budget, Permit.LISTING, "full")
    wait_s = await budget.wait_s(Permit.READ, "r", KEY)
    hand.ms += int(wait_s * 1000)
    assert await budget.wait_s(Permit.CHECK, "again", KEY, 2) > 0
    assert await budget.wait_s(Permit.READ, "r", KEY) == 0


async def test_waiting_effect_holds_back_two_permits(make: Callable[..., Store], hand: Hand) -> None:
    """That is as many as its member takes at most. What else a window has is for others."""
    budget = make(3.0 / MARGIN).budget
    await take(budget, Permit.READ, "full", 3)
    await budget.wait_s(Permit.EFFECT, "e", KEY, 2)
    hand.ms += 1500
    first, second = await take(budget, Permit.READ, "new", 2)
    assert (first, second > 0) == (0, True)
    assert await budget.wait_s(Permit.EFFECT, "e", KEY, 2) == 0


async def test_wait_is_as_long_as_the_window_and_the_turn(make: Callable[..., Store]) -> None:
    """At ten requests per second a turn takes a tenth. Who asks again has a place, and waits at most a quarter of it."""
    budget = make(10.0 / MARGIN).budget
    await take(budget, Permit.READ, "full", 10)
    assert 1.0 <= await budget.wait_s(Permit.EFFECT, "e", KEY) <= 1.11
    assert 1.0 <= await budget.wait_s(Permit.EFFECT, "e", KEY) <= 1.03


async def test_class_that_waits_for_an_effect_expects_as_many_permits_as_it_had(
    make: Callable[..., Store], hand: Hand
) -> None:
    """Not only its share: reads of which ten per second were sent are asked about again in time."""
    budget = make(10.0 / MARGIN).budget
    await take(budget, Permit.READ, "full", 10)
    hand.ms += 950
    await budget.wait_s(Permit.EFFECT, "e", KEY)
    hand.ms += 51
    assert await take(budget, Permit.READ, "again", 10) == [0.0] * 10
    hand.ms += 60
    assert 0.9 <= await budget.wait_s(Permit.READ, "behind", KEY) <= 1.1


async def test_use_says_what_is_postponed_and_for_how_long(
    make: Callable[..., Store], redis: Redis, hand: Hand
) -> None:
    """The line of board and doctor names the rate, how many requests of a class wait, and how long the last one does."""
    hand.ms = 1000 * (await redis.time())[0]
    await take(make(2.0).budget, Permit.READ, "r", 12)
    use = (await budget_use(redis, Keys()))[0]
    assert (round(use.limit_per_s, 1), use.waiting[Permit.READ]) == (2 * MARGIN, 10)
    assert use.longest_s[Permit.READ] > use.longest_s[Permit.CHECK] == 0
    assert use.words.endswith(f"waiting: 10 reads (up to {use.longest_s[Permit.READ]:.0f} s)")


async def test_budget_and_those_that_wait_are_forgotten(make: Callable[..., Store], redis: Redis) -> None:
    """An hour after the last request. Queues of members that no longer wait would stay for ever."""
    budget = make(2.0).budget
    await take(budget, Permit.READ, "r", 3)
    await budget.wait_s(Permit.EFFECT, "e", KEY)
    kept = await redis.keys("ck:2:permits*")
    assert len(kept) == 3
    assert [key for key in kept if not 0 < await redis.ttl(key) <= 3600] == []


async def test_single_institution_learns_alone(make: Callable[..., Store], redis: Redis) -> None:
    """A 429 lowers an institution's own rate; those of all institutions together make it the account's."""
    budget = make().budget
    await budget.turned_away(KEY, 2)
    assert [use.institution_key for use in await budget_use(redis, Keys())] == [KEY]
    assert await budget.wait_s(Permit.READ, "m", OTHER) == 0
    await budget.turned_away(OTHER, 2)
    assert [use.institution_key for use in await budget_use(redis, Keys())] == [""]


@pytest.mark.parametrize(("apart_ms", "scopes"), [(4999, {""}), (5000, {KEY, OTHER})])
async def test_limit_is_the_account_s_if_institutions_meet_it_together(
    make: Callable[..., Store], redis: Redis, hand: Hand, apart_ms: int, scopes: set[str]
) -> None:
    """Within five seconds."""
    budget = make().budget
    await budget.turned_away(KEY, 2)
    hand.ms += apart_ms
    await budget.turned_away(OTHER, 2)
    assert {use.institution_key for use in await budget_use(redis, Keys())} == scopes


@pytest.mark.parametrize(("answered", "learned"), [(15, {"cu-1", "cu-2", "cu-3"}), (0, {""})])
async def test_limits_of_a_few_institutions_are_their_own(
    make: Callable[..., Store], redis: Redis, hand: Hand, answered: int, learned: set[str]
) -> None:
    """Three are turned away again and again: with many others answered, it is not the account's rate that falls."""
    store, few = make(), [f"cu-{number}" for number in range(1, 4)]
    others = [f"cu-{number}" for number in range(4, 4 + answered)]
    store.breakers.acted_for = frozenset((*few, *others))
    gate = ServiceGate(store, structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]), Figures())
    await redis.hset(Keys().token, "expires", hand() + 10**9)
    for _ in range(30):
        for key in few:
            await gate.report(QUEUE, key, ServiceBusy(QUEUE.name, "status 429"), 0.1)
        for key in (*few, *others):
            await gate.report(DETAILS, key, None, 0.1)
        hand.ms += 2000
    assert {use.institution_key for use in await budget_use(redis, Keys()) if use.limit_per_s < 5} == learned


@pytest.mark.parametrize(("institutions", "limited"), [(3, {""}), (4, {"", KEY})])
async def test_limit_is_an_institution_s_own_if_it_alone_of_four_is_turned_away(
    make: Callable[..., Store], redis: Redis, institutions: int, limited: set[str]
) -> None:
    """Logins and lists are answered, too, but they are not for an institution, so they do not count as one."""
    store, keys = make(10.0), [f"cu-{number}" for number in range(1, 1 + institutions)]
    store.breakers.acted_for = frozenset(keys)
    gate = ServiceGate(store, structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()]), Figures())
    await take(store.budget, Permit.READ, "r", 1)
    await gate.report(TOKEN, "", None, 0.1)
    for key in keys:
        await gate.report(DETAILS, key, None, 0.1)
    for _ in range(2):
        await gate.report(QUEUE, KEY, ServiceBusy(QUEUE.name, "status 429"), 0.1)
    assert {use.institution_key for use in await budget_use(redis, Keys())} == limited


async def test_others_hear_of_a_learned_rate(make: Callable[..., Store], hand: Hand) -> None:
    """A process that was not refused goes by what another learned, a second later at most."""
    refused, other = make().budget, make().budget
    await refused.turned_away(KEY, 1)
    hand.ms += 1000
    await other.poll()
    waits = await take(other, Permit.READ, "r", 14)
    assert waits[0] == 0
    assert all(waits[10:])


async def test_check_that_waits_is_not_booked(sandbox_asgi: Asgi, redis: Redis) -> None:
    """No check is spent on a request that has to wait, and no effect is intended."""
    rig = Rig(sandbox_asgi, redis, rps=1)
    rig.stage.sandbox.faults.add(Fault(target="enroll", action=Action.ANSWER, status=500))
    crowd(rig, 10)
    await rig.run(20)
    booked = [(await rig.record(call)).plan.checks_used for call in rig.stage.world.state.calls.values()]
    arrived = [
        rig.stage.sandbox.ledger.tally(call.voice_id).arrived.get("check", 0)
        for call in rig.stage.world.state.calls.values()
    ]
    assert booked == arrived


async def test_rate_is_learned_from_503(make: Callable[..., Store], hand: Hand, redis: Redis) -> None:
    """503s lower the rate; half a minute after the last one it is free."""
    asked = Asked(make(), hand, redis)
    assert await asked(5) == 0
    assert 0.5 * 20 < await asked(15, every=4) < 20
    assert await redis.hkeys(Keys().budget) == [b""]
    await asked(32)
    assert await redis.hkeys(Keys().budget) == []


async def test_latency_lowers_no_rate(make: Callable[..., Store], hand: Hand, redis: Redis) -> None:
    """Answers that take longer than before say nothing of the load: waiting makes none of them faster."""
    asked = Asked(make(), hand, redis)
    await asked(5)
    assert await asked(15, took_s=3.0) == 0
    assert await redis.hkeys(Keys().budget) == []


async def test_rate_that_is_set_is_not_lowered_by_load(make: Callable[..., Store], hand: Hand, redis: Redis) -> None:
    """Whoever set a rate knows it."""
    asked = Asked(make(100.0), hand, redis)
    await asked(5)
    assert await asked(15, every=4) == 100 * MARGIN


async def test_outage_teaches_nothing(make: Callable[..., Store], hand: Hand, redis: Redis) -> None:
    """While a breaker is open no answer counts, a probe's neither; and when one opens, what was learned is forgotten."""
    asked = Asked(make(), hand, redis)
    await asked(5)
    assert await asked(10, every=4) > 0
    await asked(10, every=1)
    assert await open_breakers(redis)
    assert await redis.hkeys(Keys().budget) == []
    await asked(0.1)
    assert not await open_breakers(redis)
    assert await redis.hkeys(Keys().budget) == []


async def test_load_of_one_institution_is_its_own(make: Callable[..., Store], hand: Hand, redis: Redis) -> None:
    """503s for one of several institutions lower that one's rate; another's requests need no permit."""
    store = make()
    store.breakers.acted_for = frozenset({KEY, OTHER, "cu-3"})
    await Asked(store, hand, redis)(10, every=4)
    assert await redis.hkeys(Keys().budget) == [KEY.encode()]
    assert [await store.budget.wait_s(Permit.READ, f"o{n}", OTHER) for n in range(60)] == [0.0] * 60


NO_ANSWER = ServiceUnavailable(DETAILS.name, "no whole answer within 6 s")


async def with_another_that_is_answered(rig: Rig, seconds_ago: float = 0.1) -> ServiceGate:
    """Return the gate of a worker that was answered some time ago, beside another one, which was a moment ago."""
    await rig.institutions.refresh()
    rig.stage.advance(10)
    other = FigureWriter(Figures(), Author("box-2-7-aa", "worker"), now_ms=rig.now_ms)
    other.doing = partial(Doing, answered_s_ago=seconds_ago, connected_s_ago=seconds_ago)
    await other.write_async(rig.redis)
    return rig.tools.gate


async def away(rig: Rig) -> set[str]:
    """Return whose breakers are open."""
    return {breaker.institution_key for breaker in await open_breakers(rig.redis)}


async def test_failures_on_a_broken_way_count_for_no_breaker(rig: Rig) -> None:
    """While another process is answered, a worker that gets no answers accuses no institution, also not afterwards."""
    gate = await with_another_that_is_answered(rig)
    for _ in range(3 * FAILURES_THAT_OPEN):
        await gate.report(DETAILS, KEY, NO_ANSWER, 6.0)
        await gate.report(QUEUE, OTHER, NO_ANSWER, 6.0)
    assert gate.way.take_probe()
    gate.way.probe_ended(gate.way.doubted_since_s)
    await gate.report(QUEUE, OTHER, None, 0.1)
    await gate.report(DETAILS, KEY, NO_ANSWER, 6.0)
    assert await away(rig) == set()


async def test_failures_that_were_kept_back_count_if_the_own_way_is_sound(rig: Rig) -> None:
    """If the worker's probe is answered, the institution failed: its breaker opens with the fifth failure, as ever."""
    gate = await with_another_that_is_answered(rig)
    for _ in range(FAILURES_THAT_OPEN):
        await gate.report(DETAILS, KEY, NO_ANSWER, 6.0)
    assert gate.way.take_probe()
    assert await away(rig) == set()
    await gate.report(QUEUE, OTHER, None, 0.1)
    assert await away(rig) == {KEY}


async def test_failures_that_come_at_once_wait_until_it_can_be_known_whose_fault_they_are(rig: Rig) -> None:
    """A proxy on this host fails five requests before anybody can compare. The way turns out to be sound: they count."""
    gate = await with_another_that_is_answered(rig)
    await gate.report(QUEUE, OTHER, None, 0.1)
    rig.stage.advance(0.1)
    for _ in range(FAILURES_THAT_OPEN):
        await gate.report(DETAILS, KEY, NO_ANSWER, 0.0)
    assert (gate.way.leaves_work, gate.way.is_doubted) == (True, False)
    assert await away(rig) == set()
    await gate.report(QUEUE, OTHER, None, 0.1)
    assert not gate.way.leaves_work
    assert await away(rig) == {KEY}


async def test_failures_count_at_once_if_nobody_else_is_answered(rig: Rig) -> None:
    """A single worker, or one of several without an answer, opens breakers as ever."""
    gate = await with_another_that_is_answered(rig, seconds_ago=6.0)
    for _ in range(FAILURES_THAT_OPEN):
        await gate.report(DETAILS, KEY, NO_ANSWER, 6.0)
    assert await away(rig) == {KEY}


async def test_answered_reads_hide_no_effects_without_an_answer(rig: Rig) -> None:
    """Effects open connections, reads keep theirs. The failures are kept back until an effect is answered."""
    gate = await with_another_that_is_answered(rig)
    lost = OutcomeUnknown(ENROLL.name, "no whole answer: connection closed")
    for _ in range(FAILURES_THAT_OPEN):
        await gate.report(ENROLL, KEY, lost, 6.0)
        await gate.report(DETAILS, OTHER, None, 0.1)
    assert gate.way.is_doubted
    assert await away(rig) == set()
    gate.way.answered(connects=True)
    await gate.report(QUEUE, OTHER, None, 0.1)
    assert await away(rig) == {KEY}


async def test_status_is_an_answer_also_to_a_worker_beside_others(rig: Rig) -> None:
    """502 to one worker alone is no broken way: it opens breakers, whatever others get."""
    gate = await with_another_that_is_answered(rig)
    for _ in range(FAILURES_THAT_OPEN):
        await gate.report(DETAILS, KEY, ServiceUnavailable(DETAILS.name, "status 502", 502), 6.0)
    assert await away(rig) == {KEY}


async def test_worker_that_doubts_its_own_way_leaves_standings_and_logins_to_others(rig: Rig) -> None:
    """Whoever takes the turn to ask, or to log in, keeps the others waiting. It asks again when it was answered."""
    gate = await with_another_that_is_answered(rig)
    for _ in range(2):
        await gate.report(DETAILS, KEY, NO_ANSWER, 6.0)
    before = (await rig.counted()).count(figure.SERVICE_REQUESTS)
    rig.stage.advance(4000)
    await rig.institutions.refresh()
    assert (await rig.counted()).count(figure.SERVICE_REQUESTS) == before
    gate.way.answered()
    await rig.institutions.refresh()
    assert (await rig.counted()).count(figure.SERVICE_REQUESTS) > before
