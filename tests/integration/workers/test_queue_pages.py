"""Pages of a queue: every call is found whatever the service's paging is."""

from collections.abc import Sequence

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 900)


class Listings(httpx.AsyncBaseTransport):
    """Passes everything on and remembers the pages that were asked for, and how each was answered."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.asked: list[tuple[int, int, bool]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        answer = await self._inner.handle_async_request(request)
        if request.url.path.endswith("/queue"):
            await answer.aread()
            params = request.url.params
            self.asked.append((int(params["continueFrom"]), int(params["pageSize"]), answer.json()["success"]))
        return answer


@pytest.fixture
def spy(sandbox_asgi: Asgi) -> Listings:
    """Return what stands between worker and stand-in."""
    return Listings(sandbox_asgi.transport)


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis, spy: Listings) -> Rig:
    """Return a rig whose listings are watched."""
    return Rig(sandbox_asgi, redis, transport=spy)


def start(rig: Rig, count: int, voice_id: str | None = None) -> list[Call]:
    """Start calls that nobody pushes."""
    return [rig.stage.call(END, voice_id=voice_id) for _ in range(count)]


async def found(rig: Rig, calls: Sequence[Call]) -> int:
    """Return how many calls are known."""
    records = [await rig.queries.load(rig.call_id(call)) for call in calls]
    return sum(record is not None for record in records)


SERVICES = (
    "",
    "page-capped",
    "page-refused",
    "paging-by-page",
    "page-capped past-end-refused",
    "page-refused past-end-repeated queue-newest-first",
    "page-capped paging-by-page",
    "page-refused paging-by-page past-end-refused queue-newest-first",
    "page-capped paging-by-page past-end-repeated",
    "page-refused paging-by-page-from-1",
    "page-capped paging-by-page-from-1 past-end-refused",
    "page-capped paging-by-page-from-1 past-end-repeated queue-newest-first",
    "page-capped paging-overlap past-end-repeated",
    "page-refused paging-overlap past-end-refused",
)
FOR_EVERY_CHANGE = (
    "",
    "page-refused past-end-repeated queue-newest-first",
    "page-refused paging-by-page past-end-refused queue-newest-first",
    "page-capped paging-by-page-from-1 past-end-repeated queue-newest-first",
    "page-capped paging-overlap past-end-repeated",
)
"""The usual one, and of each way of paging the one that is odd in most other ways."""


@pytest.mark.parametrize(
    "variants",
    [
        pytest.param(names, id=names or "usual", marks=() if names in FOR_EVERY_CHANGE else pytest.mark.night)
        for names in SERVICES
    ],
)
async def test_calls_are_found_whatever_a_page_is(rig: Rig, variants: str) -> None:
    """Calls that nobody pushed are found within ten seconds, at once and while others are live.

    Spec: Queue query.
    """
    rig.stage.sandbox.choose(variants.split())
    await rig.run(10)
    first = start(rig, 22)
    await rig.run(10)
    assert await found(rig, first) == 22
    rig.stage.advance(30)
    second = start(rig, 13)
    await rig.run(10)
    assert await found(rig, second) == 13
    assert [e for e in rig.log.entries if e["event"] == "listing_failed"] == []


async def test_refused_page_size_is_halved_and_remembered(rig: Rig, spy: Listings) -> None:
    """The size is halved until it is answered, once; no later listing is refused, and no other worker's."""
    rig.stage.sandbox.choose(["page-refused-100"])
    await rig.run(30)
    assert [size for _, size, success in spy.asked if not success] == [500, 250, 125, 500]
    again = Rig(rig.stage, rig.redis, transport=spy)
    await again.run(70)
    assert {size for _, size, success in spy.asked if success} == {62}
    assert len([success for *_, success in spy.asked if not success]) == 4


async def test_problem_response_refuses_a_page(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A page that is too large, or past the end, may be refused as add-institution refuses: 400, without `success`.

    An institution whose queue did so was never listed, so nobody was assigned there.
    """

    class Problems(Listings):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            response = await super().handle_async_request(request)
            if not request.url.path.endswith("/queue") or response.json()["success"]:
                return response
            problem = {"title": "One or more validation errors occurred.", "errors": {"pageSize": ["Out of range."]}}
            return httpx.Response(400, json=problem, headers={"content-type": "application/problem+json"})

    rig = Rig(sandbox_asgi, redis, transport=Problems(sandbox_asgi.transport))
    rig.stage.sandbox.choose(["page-refused", "past-end-refused"])
    await rig.run(10)
    calls = start(rig, 22)
    await rig.run(10)
    assert await found(rig, calls) == 22


async def test_halving_goes_on_where_another_failure_stopped_it(sandbox_asgi: Asgi, redis: Redis) -> None:
    """If every third request is answered 429, small pages are reached all the same, and a call is found.

    A service that answers 5 requests per second and has pages of 10 entries was never listed again.
    """

    class Busy(Listings):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/queue") and len(self.asked) % 3 == 2:
                self.asked.append((0, 0, False))
                return httpx.Response(429)
            return await super().handle_async_request(request)

    sandbox_asgi.sandbox.choose(["page-refused"])
    busy = Busy(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, transport=busy)
    calls = start(rig, 1)
    await rig.run(30)
    assert await found(rig, calls) == 1
    assert {size for _, size, success in busy.asked if success} == {7}


async def test_institution_that_is_refused_keeps_its_page_size(rig: Rig, spy: Listings) -> None:
    """A refusal that has nothing to do with the size leaves it: afterwards whole pages are asked for again."""
    await rig.run(10)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.REFUSED, times=20))
    await rig.run(120)
    spy.asked.clear()
    await rig.run(20)
    assert {size for _, size, _ in spy.asked} == {500}


async def test_page_past_the_end_that_is_refused_is_the_end(rig: Rig, spy: Listings) -> None:
    """Such a listing has not failed: it is not put off, and a call that nobody pushed is found as soon as ever."""
    rig.stage.sandbox.choose(["past-end-refused"])
    start(rig, 1)
    await rig.run(120)
    assert [e for e in rig.log.entries if e["event"] == "listing_failed"] == []
    late = start(rig, 1)
    await rig.run(6)
    assert await found(rig, late) == 1


async def test_one_more_page_is_asked_for_only_where_there_may_be_one(rig: Rig, spy: Listings) -> None:
    """A look at a queue of a few calls is one request."""
    start(rig, 5)
    await rig.run(20)
    spy.asked.clear()
    await rig.run(30)
    assert len(spy.asked) <= 8
    assert {begin for begin, *_ in spy.asked} == {0}


@pytest.mark.parametrize(
    ("paging", "arriving"), [("paging-by-page", 1), ("paging-by-page", 2), ("paging-by-page-from-1", 1)]
)
async def test_call_that_comes_between_two_pages_teaches_nothing_about_them(
    sandbox_asgi: Asgi, redis: Redis, paging: str, arriving: int
) -> None:
    """A new call at the front moves a known one to the next page, as if `continueFrom` counted entries.

    A service that counts pages would then be asked for page 10, which is empty, and its second page never again.
    """

    class Moving(Listings):
        is_moving = False

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if self.is_moving and request.url.path.endswith("/queue") and request.url.params["continueFrom"] == "1":
                self.is_moving = False
                start(paged, arriving)
            return await super().handle_async_request(request)

    moving = Moving(sandbox_asgi.transport)
    paged = Rig(sandbox_asgi, redis, transport=moving)
    paged.stage.sandbox.choose(["page-refused", paging, "queue-newest-first"])
    start(paged, 22)
    await paged.run(20)
    moving.is_moving = True
    await paged.run(70)
    assert not moving.is_moving
    late = start(paged, 13)
    await paged.run(20)
    assert await found(paged, late) == 13


@pytest.mark.parametrize("variants", ["page-capped", "page-capped paging-by-page"])
async def test_calls_are_found_after_a_service_has_made_its_pages_smaller(rig: Rig, variants: str) -> None:
    """Its next release may. A page that is smaller than the largest ever seen then is not the last one.

    Otherwise only the first page was read for ever, except once a minute.
    """
    start(rig, 42)
    await rig.run(70)
    rig.stage.sandbox.choose(variants.split())
    await rig.run(130)
    late = start(rig, 23)
    await rig.run(10)
    assert await found(rig, late) == 23


async def test_larger_pages_are_asked_for_again_once_the_service_does_not_refuse_them(rig: Rig, spy: Listings) -> None:
    """It may have refused them for another reason, or its next release allows more. A short queue fits into any page.

    Otherwise a queue of hundreds of calls was read in pages of seven for ever.
    """
    rig.stage.sandbox.choose(["page-refused"])
    start(rig, 22)
    await rig.run(70)
    assert {size for _, size, success in spy.asked[-4:] if success} == {7}
    rig.stage.sandbox.choose([])
    await rig.run(240)
    spy.asked.clear()
    await rig.run(20)
    assert min(size for _, size, _ in spy.asked) >= 22, "one page has all"
