"""Calls are handled even if the service gives a wrong start time or none."""

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

VARIANTS = (
    pytest.param("dates-offset", marks=pytest.mark.night),
    pytest.param("dates-without-zone", marks=pytest.mark.night),
    "dates-local-west",
    pytest.param("dates-local-east", marks=pytest.mark.night),
    "starts-in-year-1",
    "starts-in-future",
    pytest.param("clock-3-min-ahead", marks=pytest.mark.night),
    "clock-3-min-behind",
)
"""For every change: a start that seems too early by hours, by years and by minutes, and one that seems too late."""

STARTS = (
    pytest.param("9999-12-31T23:59:59Z", marks=pytest.mark.night),
    None,
    pytest.param("", marks=pytest.mark.night),
    "yesterday",
    pytest.param(7, marks=pytest.mark.night),
)
"""For every change: none, and one that cannot be read."""


class Starts(httpx.AsyncBaseTransport):
    """Says of every call in the queue that it started at one moment."""

    def __init__(self, inner: httpx.AsyncBaseTransport, start: object) -> None:
        self._inner = inner
        self._start = start

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        answer = await self._inner.handle_async_request(request)
        if not request.url.path.endswith("/queue"):
            return answer
        await answer.aread()
        entries = [{**entry, "startDateTime": self._start} for entry in answer.json()["phoneCalls"]]
        return httpx.Response(200, json={"success": True, "phoneCalls": entries})


async def watched(rig: Rig) -> None:
    """Let a call come that nobody pushes, and one that is pushed: both are found, assigned, checked and authenticated."""
    await rig.run(70)
    silent = await rig.begin_call(Happening(Kind.GREEN, 40), Happening(Kind.END, 200), run_s=10, is_pushed=False)
    assert silent.aliases, "a call that nobody pushed is assigned within ten seconds"
    pushed = await rig.begin_call(
        Happening(Kind.GREEN, 40), Happening(Kind.END, 200), phone_number="5550100777", persons=PERSONS, run_s=2
    )
    assert pushed.aliases, "a call that was pushed is assigned at once"
    await rig.run(60)
    for call in (silent, pushed):
        assert call.voice_validated
        assert (await rig.record(call)).plan.checks_used == call.checks_used <= 20


PERSONS = [{"personId": "p-7", "lastName": "Seven", "name": "Seven"}]


@pytest.mark.parametrize("variant", VARIANTS)
async def test_call_is_watched_whatever_its_start_says(sandbox_asgi: Asgi, redis: Redis, variant: str) -> None:
    """Found, assigned, checked, authenticated; no check is charged that was not made.

    Spec: Queue entry; Resources and their fields.
    """
    rig = Rig(sandbox_asgi, redis)
    rig.stage.sandbox.choose([variant])
    await watched(rig)


@pytest.mark.parametrize("start", STARTS, ids=str)
async def test_call_is_watched_though_its_start_cannot_be_read(sandbox_asgi: Asgi, redis: Redis, start: object) -> None:
    """A placeholder, null or nonsense as start hides neither the call nor later ones."""
    await watched(Rig(sandbox_asgi, redis, transport=Starts(sandbox_asgi.transport, start)))
