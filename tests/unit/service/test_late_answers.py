"""Answers that come later than the deadline of an effect: who waits for them, and what a worker does meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from callkeeper.calls.claimed_item import RefusedBy, WriteRefused
from callkeeper.service import MemoryTokenStore, OutcomeUnknown, ServiceUnavailable
from callkeeper.service.client import Reseller
from callkeeper.service.endpoints import DETAILS
from callkeeper.service.exchange import MOST_OVERDUE
from tests.unit.service.service import Clock, Service, reseller_on, success

DEADLINE_S = 0.2


class Late(Service):
    """Answers a call's requests after ``late_s``, and a login at once."""

    late_s = 1.5 * DEADLINE_S

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        if request.url.path != "/external/token/request":
            await asyncio.sleep(self.late_s)
        return await super().__call__(request)


class Lease:
    """Counts how often it is renewed; ``is_lost``: it is not ours any more."""

    def __init__(self, *, is_lost: bool = False) -> None:
        self.renewed, self.is_lost = 0, is_lost

    async def renew(self) -> None:
        """Renew it.

        Raises:
            WriteRefused: It is lost.
        """
        if self.is_lost:
            raise WriteRefused("c:cu-1:v-1", RefusedBy.LEASE)
        self.renewed += 1


@pytest.fixture
def service() -> Late:
    """Return a service that is late."""
    return Late(reply=lambda _: success(phoneCall={"voiceId": "v-1"}))


@pytest.fixture
async def reseller(service: Late) -> Reseller:
    """Return a client with a token and a short deadline."""
    reseller = reseller_on(service, MemoryTokenStore(Clock()), Clock(), deadline_s=DEADLINE_S)
    await reseller.renew()
    return reseller


def reading(
    reseller: Reseller, keep: Callable[[], Awaitable[None]] | None, *, key: str = "cu-1", check: bool = False
) -> Awaitable[Any]:
    """Read the details of a call."""
    return reseller.details(key, "v-1", check=check, requested_by="bot", keep=keep)


async def test_late_answer_counts_while_the_lease_is_kept(reseller: Reseller) -> None:
    """A service that takes longer than an effect may is slow, and not away."""
    lease = Lease()
    assert (await reading(reseller, lease.renew)).voice_id == "v-1"
    assert lease.renewed >= 2
    assert reseller.is_late(DETAILS, "cu-1")
    assert not reseller.is_late(DETAILS, "cu-2")


async def test_late_answer_to_an_effect_or_a_request_without_a_lease_does_not_count(reseller: Reseller) -> None:
    """A second worker might claim the call meanwhile."""
    with pytest.raises(ServiceUnavailable):
        await reading(reseller, None)
    with pytest.raises(OutcomeUnknown):
        await reseller.reject_voice("cu-1", "v-1", requested_by="bot")


async def test_request_is_given_up_when_its_lease_is_lost(reseller: Reseller, service: Late) -> None:
    """Another worker asks now."""
    service.late_s = 60.0
    with pytest.raises(WriteRefused):
        await reading(reseller, Lease(is_lost=True).renew)


async def test_one_request_of_a_scope_may_be_late_until_an_answer_was(reseller: Reseller) -> None:
    """Otherwise the requests of a service that is away would hold all calls that a worker can have in flight."""
    answers = await asyncio.gather(
        *(reading(reseller, Lease().renew) for _ in range(5)),
        reading(reseller, Lease().renew, check=True),
        reading(reseller, Lease().renew, key="cu-2"),
        return_exceptions=True,
    )
    assert [isinstance(one, ServiceUnavailable) for one in answers] == [False, True, True, True, True, False, False]
    answers = await asyncio.gather(*(reading(reseller, Lease().renew) for _ in range(5)), return_exceptions=True)
    assert not [one for one in answers if isinstance(one, BaseException)], "it is known to be slow"


async def test_few_requests_may_be_late_at_once(reseller: Reseller, service: Late) -> None:
    """However many institutions there are, most places of a worker are free while all of them hang."""
    service.late_s = 60.0
    tasks = [asyncio.ensure_future(reading(reseller, Lease().renew, key=f"cu-{n}")) for n in range(4 * MOST_OVERDUE)]
    await asyncio.sleep(4 * DEADLINE_S)
    assert sum(not task.done() for task in tasks) == MOST_OVERDUE
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
