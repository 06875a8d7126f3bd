"""In which order a worker asks about institutions, and when it asks for none."""

import httpx
import pytest
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.request_budget import Permit
from callkeeper.service.memory import MemoryTokenStore
from tests.unit.service.service import Clock, Service, reseller_on, success
from workers.counting import Counting
from workers.standing_requests import PORTION_S, StandingRequests
from workers.standings import LIST

KEYS = ["cu-1", "cu-2", "cu-3"]


class Permits:
    """Hands out permits, unless a test keeps them back, and keeps what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Permit, str]] = []
        self.wait_s = 0.0

    async def __call__(self, kind: Permit, _: str, key: str) -> float:
        """Return how long to wait."""
        self.asked.append((kind, key))
        return self.wait_s


@pytest.fixture
def permits() -> Permits:
    """Return permits that are free."""
    return Permits()


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def service() -> Service:
    """Return a service that answers each key with an active institution."""
    return Service(
        lambda request: success(institution={"key": request.url.path.rpartition("/")[2], "status": "Active"})
    )


@pytest.fixture
def requests(service: Service, clock: Clock, permits: Permits, log: FilteringBoundLogger) -> StandingRequests:
    """Return requests to that service."""
    reseller = reseller_on(service, MemoryTokenStore(clock), clock)
    return StandingRequests(reseller, permits, clock, log, Counting())


def failing(*keys: str, status: int = 500, **headers: str) -> Service:
    """Return a service that fails for some keys."""

    def reply(request: httpx.Request) -> httpx.Response:
        key = request.url.path.rpartition("/")[2]
        return httpx.Response(status, headers=headers) if key in keys else success(institution={"key": key})

    return Service(reply)


async def test_unknown_institutions_are_asked_for_first(requests: StandingRequests, permits: Permits) -> None:
    """A call of an institution of which nothing is known waits for the answer, so its permit is one of an effect."""
    asked = await requests.ask(KEYS, told=["cu-1", "cu-2"])
    assert asked.known.keys() == set(KEYS)
    assert permits.asked == [(Permit.EFFECT, "cu-3"), (Permit.LISTING, "cu-1"), (Permit.LISTING, "cu-2")]


async def test_what_has_failed_is_asked_for_last(
    requests: StandingRequests, permits: Permits, service: Service
) -> None:
    """One failing institution does not delay the others. An answer ends that."""
    answering, service.reply = service.reply, failing("cu-1").reply
    await requests.ask(KEYS, told=[])
    assert (requests.is_silent(["cu-1"]), requests.is_silent(["cu-2"])) == (True, False)
    permits.asked.clear()
    service.reply = answering
    await requests.ask(KEYS, told=[])
    assert [key for _, key in permits.asked] == ["cu-2", "cu-3", "cu-1"]
    assert not requests.is_silent(["cu-1"])


async def test_failing_institution_is_logged_once_in_a_row(
    requests: StandingRequests, service: Service, logged: LogCapture
) -> None:
    """And again when it fails in another way."""
    for status in (500, 500, 404):
        service.reply = failing("cu-1", status=status).reply
        await requests.ask(KEYS, told=[])
    named = [entry["institution"] for entry in logged.entries if entry["event"] == "institution_unreadable"]
    assert named == ["cu-1", "cu-1"]


async def test_what_gets_no_permit_is_left_and_comes_first_the_next_time(
    requests: StandingRequests, permits: Permits
) -> None:
    """What was learned so far is used before."""
    permits.wait_s = 1.0
    assert not (await requests.ask(["cu-2"], told=[])).known
    assert requests.left == ("cu-2",)
    permits.wait_s, permits.asked = 0.0, []
    await requests.ask(KEYS, told=[])
    assert permits.asked[0] == (Permit.EFFECT, "cu-2")
    assert not requests.left


async def test_a_portion_ends_after_a_while(requests: StandingRequests, service: Service, clock: Clock) -> None:
    """A worker that starts waits for the first answers, and not for those of hundreds of institutions."""
    answer = service.reply

    def slowly(request: httpx.Request) -> httpx.Response:
        clock.now += PORTION_S + 1
        return answer(request)

    service.reply = slowly
    asked = await requests.ask([f"cu-{n}" for n in range(5)], told=[])
    assert (len(asked.known), len(requests.left)) == (3, 2)


async def test_nothing_is_asked_before_the_time_that_a_429_names(
    requests: StandingRequests, service: Service, clock: Clock
) -> None:
    """Not for an effect either. Afterwards everything goes on."""
    answering, service.reply = service.reply, failing("cu-1", status=429, **{"Retry-After": "30"}).reply
    _, error = await requests.ask_one("cu-1")
    assert (error is not None, requests.is_paused, requests.is_silent(["cu-1"])) == (True, True, False)
    service.reply = answering
    sent = len(service.requests)
    assert (await requests.ask_one("cu-1"))[0].known == {}
    assert len(service.requests) == sent
    clock.now += 31
    assert (await requests.ask_one("cu-1"))[0].known.keys() == {"cu-1"}


async def test_list_that_fails_is_logged_once_in_a_row(
    requests: StandingRequests, service: Service, logged: LogCapture
) -> None:
    """An answer ends the row."""
    failing_list = failing("institutions").reply
    for reply in (failing_list, failing_list, lambda _: success(institutions=[]), failing_list):
        service.reply = reply
        await requests.ask([LIST], told=[])
    assert [entry["event"] for entry in logged.entries].count("institutions_unlisted") == 2
