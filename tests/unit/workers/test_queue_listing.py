"""A page of a queue whose answer is late."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from callkeeper.service import LoginPolicy, MemoryTokenStore, Secret, ServiceConfig, ServiceUnavailable
from callkeeper.service.client import Reseller
from tests.transports import AnnouncingTransport
from tests.unit.service.service import Clock, Service, success
from workers.queue_listing import PageRequests

DEADLINE_S = 0.2


class Hanging(Service):
    """A service whose queue answers after ``late_s``."""

    late_s = 60.0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        if request.url.path.endswith("/queue"):
            await asyncio.sleep(self.late_s)
        return await super().__call__(request)


def pages_of(service: Hanging, anew: Hanging, *, is_held: bool = False) -> PageRequests:
    """Return the requests of one look: ``anew`` answers those over new connections. ``is_held``: no permit is given."""
    config = ServiceConfig(
        base_url="https://service.test",
        access_token=Secret("access-1"),
        email=Secret("bot@example.test"),
        password=Secret("pass-1"),
        deadline_s=DEADLINE_S,
        patience_s=5 * DEADLINE_S,
        login=LoginPolicy(poll_s=0.001),
    )
    reseller = Reseller(
        config,
        MemoryTokenStore(Clock()),
        reads_transport=AnnouncingTransport(httpx.MockTransport(service)),
        effects_transport=AnnouncingTransport(httpx.MockTransport(anew)),
        clock=Clock(),
    )

    async def ask(*_: object) -> Any:
        return SimpleNamespace(wait_s=1.0) if is_held else None

    async def keep(_: object) -> None:
        pass

    tools: Any = SimpleNamespace(
        service=reseller,
        store=SimpleNamespace(keep=keep),
        gate=SimpleNamespace(ask=ask),
        monotonic=Clock(),
        requested_by=lambda _: "bot",
        sleep=asyncio.sleep,
    )
    item: Any = SimpleNamespace(member="i:cu-1", now=None)
    return PageRequests(tools, item, "cu-1", None, 1000.0)


def empty() -> Hanging:
    """Return a service with an empty queue."""
    return Hanging(reply=lambda _: success(phoneCalls=[]), valid="sso-1")


async def test_page_that_hangs_is_requested_beside_over_a_new_connection() -> None:
    """A connection that hangs hides a new call for six seconds, as before answers might be late."""
    service, anew = empty(), empty()
    anew.late_s = 0.0
    async with asyncio.timeout(3 * DEADLINE_S):
        assert not await pages_of(service, anew).send(0, 50)
    assert (len(service.requests), len(anew.requests)) == (0, 1)


async def test_late_page_counts_and_is_not_requested_beside_the_next_time() -> None:
    """A queue that takes longer than an effect may is listed, and gets no second request once it is known to be slow."""
    service, anew = empty(), empty()
    service.late_s = 1.5 * DEADLINE_S
    pages = pages_of(service, anew, is_held=True)
    known: Any = pages.tools.service
    assert not await pages.send(0, 50)
    pages.has_permit, pages.tools = True, pages_of(service, anew).tools
    pages.tools.service = known  # type: ignore[misc]  # a stand-in, which is not frozen
    assert not await pages.send(0, 50)
    assert (len(service.requests), len(anew.requests)) == (2, 0)


async def test_look_fails_when_no_page_comes_in_time() -> None:
    """Then the queue counts as unanswered."""
    with pytest.raises(ServiceUnavailable):
        await pages_of(empty(), empty()).send(0, 50)
