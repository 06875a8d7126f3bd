"""One worker's host has no way to the service, and the other workers have one: calls and other workers are not affected."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident import Incident
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.rules import RuleBook
from callkeeper.calls.store.breakers import open_breakers, service_away
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.redis_in_step import virtually
from tests.harness.virtual_time import DEMO, KEY, SHIPPED, Rig
from tests.harness.virtual_worker import OTHER, Between, Works, working

BAD: Final = "box-2-7-aa"
NOTICED_S: Final = 20
"""Requests that hang fail after 6 s, and the bad worker has to have two; then a probe has 6 s."""


PAGE: Final = b"<html><body>Log in to this network</body></html>"
STAND_INS: Final = {
    "portal": (200, "text/html; charset=utf-8", PAGE),
    "forbidden": (403, "text/html", PAGE),
    "words": (403, "text/plain", b"Access denied"),
    "proxy-login": (407, "application/json", b'{"error":"log in"}'),
    "bad-gateway": (502, "text/html", PAGE),
    "redirect": (302, "", b""),
}
"""What a proxy or a captive portal answers in the service's place."""


def afflict(how: str, *ways: Between) -> None:
    """Break ways to the service; an empty ``how`` repairs them."""
    for way in ways:
        way.is_refusing, way.is_hanging, way.is_losing = how == "refused", how == "hanging", how == "losing"
        way.stands_in = STAND_INS.get(how)


async def calls_for(works: Works, seconds: float) -> Sequence[Call]:
    """Let a call begin every second, of one institution and the other in turn."""
    calls = []
    for n in range(int(seconds)):
        calls.append(await works.call((KEY, OTHER)[n % 2], lasts_s=40))
        await asyncio.sleep(1)
    return calls


@asynccontextmanager
async def with_bad_host(
    how: str, *, from_the_start: bool = True, book: RuleBook = SHIPPED
) -> AsyncIterator[tuple[Works, Rig, Between]]:
    """Return a sound worker at work, with two institutions, another one whose host is bad, and the way of that."""
    async with working(institutions=2, book=book) as works:
        between = Between(works.stage.transport)
        if from_the_start:
            afflict(how, between)
        bad = works.join(between, BAD)
        await calls_for(works, 15)
        afflict(how, between)
        yield works, bad, between


async def incidents(works: Works) -> list[Incident]:
    """Return what is wrong, except that no web process runs here."""
    found = incidents_of(await SignalReader(works.rig.redis, Keys()).read(now=works.stage.clock.now))
    return [incident for incident in found if incident.kind is not IncidentKind.NO_WEB]


async def until_broken(works: Works, bad: Rig) -> Sequence[Call]:
    """Let calls begin until the bad worker knows that its way is broken. Return them."""
    calls: list[Call] = []
    while not bad.tools.gate.way.is_broken:
        calls += await calls_for(works, 1)
        assert len(calls) < NOTICED_S
    return calls


async def calls_in_turn(works: Works, bad: Rig) -> None:
    """Let calls begin until the bad worker knows that its way is broken. Each worker is woken for every other call."""
    for n in range(2 * NOTICED_S):
        await works.rig.push(works.stage.call(Happening(Kind.END, 40), key=(KEY, OTHER)[n % 2]))
        (bad, works.rig)[n % 2].shift.wakeups.wake()
        await asyncio.sleep(1)
        if bad.tools.gate.way.is_broken:
            return
    raise AssertionError("the bad worker never doubted its way")


@pytest.mark.parametrize("from_the_start", [True, False])
@pytest.mark.parametrize("how", ["refused", "hanging", *STAND_INS])
def test_calls_are_assigned_by_the_worker_that_can(how: str, from_the_start: bool) -> None:
    """Once the bad worker has noticed, each new call is assigned within a second, and checked 20 times at most."""

    async def law() -> None:
        async with with_bad_host(how, from_the_start=from_the_start) as (works, bad, _):
            await until_broken(works, bad)
            calls = await calls_for(works, 60)
            await asyncio.sleep(2)
            assert max(works.assigned_s(call) or 99.0 for call in calls) <= 1
            await asyncio.sleep(60)
            assert all(0 < len(works.checks_s(call)) <= 20 for call in calls)

    virtually(law())


@pytest.mark.parametrize("how", ["refused", "hanging"])
def test_calls_are_assigned_by_the_worker_that_can_open_connections(how: str) -> None:
    """If a host opens none, and reads go on over kept ones, its worker is named, and works on when it can again."""

    async def law() -> None:
        async with working(institutions=2) as works:
            connecting = Between(works.stage.transport)
            bad = works.join(Between(works.stage.transport), BAD, connecting=connecting)
            await calls_for(works, 15)
            afflict(how, connecting)
            await calls_in_turn(works, bad)
            calls = await calls_for(works, 60)
            [incident] = await incidents(works)
            assert incident.title == "Worker box-2:7 cannot reach the service; others can"
            await asyncio.sleep(2)
            assert max(works.assigned_s(call) or 99.0 for call in calls) <= 1
            assert await open_breakers(works.rig.redis) == []
            afflict("", connecting)
            await asyncio.sleep(8)
            assert await incidents(works) == []
            assert not bad.tools.gate.way.is_doubted

    virtually(law())


def test_work_that_hangs_is_released_when_the_worker_notices() -> None:
    """What the bad worker holds comes late by the time in which it notices, not by the end of its requests as well."""

    async def law() -> None:
        async with with_bad_host("hanging", from_the_start=False) as (works, bad, _):
            calls = await until_broken(works, bad)
            await asyncio.sleep(1)
            assert all(works.assigned_s(call) for call in calls)

    virtually(law())


def test_pushed_call_is_searched_while_a_look_at_its_queue_hangs() -> None:
    """A look may take 20 s before it has failed. Until then a push would say where its call is, and nobody would look."""

    class Hanging(httpx.AsyncBaseTransport):
        def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
            self.inner = inner

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/queue") and "searchString" not in request.url.params:
                await asyncio.sleep(19)
            return await self.inner.handle_async_request(request)

    async def law() -> None:
        async with working() as works:
            await asyncio.sleep(10)
            works.between.inner = Hanging(works.between.inner)
            await asyncio.sleep(5)
            call = await works.call()
            await asyncio.sleep(12)
            assert (works.assigned_s(call) or 99.0) <= 10

    virtually(law())


def test_requests_that_arrive_without_an_answer_are_no_second_effect() -> None:
    """If only the answers are lost on the bad host, every call is assigned, and enrolled once, with 20 checks at most."""

    async def law() -> None:
        async with with_bad_host("losing", from_the_start=False, book=DEMO) as (works, bad, _):
            calls = []
            for n in range(40):
                works.stage.world.add_member(KEY, f"p-{n + 50}", [f"55502{n:05}"])
                script = Happening(Kind.MFA_VALIDATED, 15), Happening(Kind.END, 40)
                calls.append(works.stage.call(*script, phone_number=f"55502{n:05}"))
                await works.rig.push(calls[-1])
                bad.shift.wakeups.wake()
                await asyncio.sleep(1)
            assert bad.tools.gate.way.is_broken
            await asyncio.sleep(90)
            did = [works.rig.ledger(call) for call in calls]
            assert all(one["assign"] for one in did)
            assert [one.get("enroll") for one in did] == [1] * len(did)
            assert max(one["check"] for one in did) <= 20

    virtually(law())


@pytest.mark.parametrize("how", ["refused", "hanging", *STAND_INS])
def test_bad_host_is_the_only_incident(how: str) -> None:
    """The worker is named, and neither the service nor an institution is blamed. It ends when its way is repaired."""

    async def law() -> None:
        async with with_bad_host(how) as (works, bad, way):
            await until_broken(works, bad)
            for _ in range(30):
                [incident] = await incidents(works)
                assert incident.kind is IncidentKind.WORKER_CUT_OFF
                assert incident.title == "Worker box-2:7 cannot reach the service; others can"
                assert await open_breakers(works.rig.redis) == []
                await calls_for(works, 1)
            afflict("", way)
            await asyncio.sleep(8)
            assert await incidents(works) == []
            assert not bad.tools.gate.way.is_doubted

    virtually(law())


@pytest.mark.parametrize("how", ["refused", "hanging"])
def test_service_that_is_away_for_all_lets_no_worker_doubt(how: str) -> None:
    """If nobody is answered, the account's breaker opens as ever, and nobody takes the blame. Later all work on."""

    async def law() -> None:
        async with working(institutions=2) as works:
            second = Between(works.stage.transport)
            other = works.join(second, BAD)
            await calls_for(works, 15)
            afflict(how, works.between, second)
            doubts = 0
            for _ in range(30):
                await calls_for(works, 1)
                doubts += any(rig.tools.gate.way.is_doubted for rig in (works.rig, other))
            assert await service_away(works.rig.redis) is not None
            assert doubts == 0
            afflict("", works.between, second)
            await asyncio.sleep(15)
            calls = await calls_for(works, 10)
            await asyncio.sleep(2)
            assert max(works.assigned_s(call) or 99.0 for call in calls) <= 1

    virtually(law())


@pytest.mark.parametrize("how", STAND_INS)
def test_stand_in_that_answers_all_is_named(how: str) -> None:
    """If something else answers every worker, the incident says so, with status and content type, never its words."""

    async def law() -> None:
        async with working(institutions=2) as works:
            second = Between(works.stage.transport)
            other = works.join(second, BAD)
            await calls_for(works, 15)
            afflict(how, works.between, second)
            doubts = 0
            for _ in range(30):
                await calls_for(works, 1)
                doubts += any(rig.tools.gate.way.is_doubted for rig in (works.rig, other))
            assert doubts == 0
            [incident] = await incidents(works)
            assert incident.kind is IncidentKind.SERVICE_AWAY
            assert (incident.title == "Something between us and the service answers") is (how != "bad-gateway")
            status, media_type, body = STAND_INS[how]
            assert f"status {status}, {media_type.partition(';')[0] or 'no content type'}" in incident.last_error
            assert body.decode() not in f"{incident} " or not body
            afflict("", works.between, second)
            await asyncio.sleep(15)
            assert await incidents(works) == []

    virtually(law())


def test_last_worker_goes_on_when_the_others_are_gone() -> None:
    """A worker that is alone again tries everything, whatever it believed of the others: the breakers are its only guide."""

    async def law() -> None:
        async with with_bad_host("refused") as (works, bad, _):
            await until_broken(works, bad)
            afflict("refused", works.between)
            await asyncio.sleep(40)
            assert not bad.tools.gate.way.is_doubted
            assert await service_away(works.rig.redis) is not None

    virtually(law())


def test_institution_that_hangs_makes_no_worker_doubt_for_long() -> None:
    """If the service hangs for one institution, workers whose requests were all of it find out by their own probe."""

    async def law() -> None:
        async with working(institutions=2) as works:
            second = Between(works.stage.transport)
            other = works.join(second, BAD)
            await calls_for(works, 15)
            works.between.slow[OTHER] = second.slow[OTHER] = 3600.0
            for _ in range(60):
                await calls_for(works, 1)
                assert not any(rig.tools.gate.way.is_broken for rig in (works.rig, other))
            assert {one.institution_key for one in await open_breakers(works.rig.redis)} == {OTHER}

    virtually(law())


@pytest.mark.parametrize("how", ["hangs_at", "drops_at"])
def test_queue_that_answers_nobody_makes_no_worker_stand_aside(how: str) -> None:
    """Workers that have only listings to make find out by a read that they are sound, and none is named."""

    async def law() -> None:
        async with working(institutions=2) as works:
            second = Between(works.stage.transport)
            other = works.join(second, BAD)
            for n in range(3):
                await works.call((KEY, OTHER)[n % 2], lasts_s=300)
            await asyncio.sleep(15)
            for between in (works.between, second):
                setattr(between, how, "/queue")
            for _ in range(120):
                await asyncio.sleep(0.5)
                assert not any(rig.tools.gate.way.is_broken for rig in (works.rig, other))
            kinds = {incident.kind for incident in await incidents(works)}
            assert IncidentKind.INSTITUTION_FAILS in kinds
            assert IncidentKind.WORKER_CUT_OFF not in kinds

    virtually(law())


def test_slow_queue_beside_details_that_hang_makes_no_worker_stand_aside() -> None:
    """A probe whose listing takes 3 s is answered: nobody takes it for failed because the next one is due before."""

    async def law() -> None:
        async with working(institutions=2) as works:
            second = Between(works.stage.transport)
            other = works.join(second, BAD)
            for n in range(5):
                await works.call((KEY, OTHER)[n % 2], lasts_s=300)
            await asyncio.sleep(15)
            doubts = 0
            for between in (works.between, second):
                between.hangs_at, between.slow = "/details", {KEY: 3.0, OTHER: 3.0}
            for _ in range(480):
                await asyncio.sleep(0.25)
                doubts += any(rig.tools.gate.way.is_doubted for rig in (works.rig, other))
                assert not any(rig.tools.gate.way.is_broken for rig in (works.rig, other))
            assert doubts

    virtually(law())
