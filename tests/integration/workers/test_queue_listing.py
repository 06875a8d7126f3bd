"""What a listing leaves out is logged and counted, and what people are told of one that is not answered."""

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import Asgi


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"voiceId": "v 1\n"}, "odd_voice_id"),
        ({"voiceId": None}, "no_voice_id"),
        ({"voiceId": "v" * 257}, "odd_voice_id"),
        ({"voiceId": 7}, "unreadable"),
    ],
    ids=["line break", "no id", "too long", "unreadable"],
)
async def test_nothing_is_skipped_in_silence(
    sandbox_asgi: Asgi, redis: Redis, change: dict[str, object], reason: str
) -> None:
    """An unusable entry is logged with the reason and counted; other entries are used."""

    class Broken(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            answer = await sandbox_asgi.transport.handle_async_request(request)
            if not request.url.path.endswith("/queue"):
                return answer
            await answer.aread()
            if not (entries := answer.json()["phoneCalls"]):
                return answer
            return httpx.Response(200, json={"success": True, "phoneCalls": [entries[0] | change, *entries[1:]]})

    rig = Rig(sandbox_asgi, redis, transport=Broken())
    _, usable = (rig.stage.call(Happening(Kind.END, 900)) for _ in range(2))
    await rig.run(10)
    assert await rig.queries.load(rig.call_id(usable)) is not None
    skipped = [entry for entry in rig.log.entries if entry["event"] == "queue_entries_skipped"]
    assert {(entry["institution"], entry["reason"]) for entry in skipped} == {(KEY, reason)}
    counted = (await rig.counted()).count(figure.ENTRIES_SKIPPED)
    assert counted == sum(entry["entries"] for entry in skipped) > 0


async def test_listings_that_get_429_are_told_as_a_limit(rig: Rig) -> None:
    """A 429 without a time stops nothing. That the queue is not shown for it is told as the limit that it is."""
    await rig.run(5)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.ANSWER, status=429))
    for _ in range(20):
        await rig.run(1)
        await rig.report()
    signals = await SignalReader(rig.redis, rig.store.keys).read(now=rig.clock.now)
    [incident] = [one for one in incidents_of(signals) if one.institution_key == KEY]
    assert (incident.kind.value, incident.last_error) == ("rate_limited", "status 429")


async def test_pushed_call_is_searched_by_its_number_while_listings_fail(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Only the queue has the candidates. A queue that is too long to be listed can still be searched."""

    class Long(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/queue") and "searchString" not in request.url.params:
                return httpx.Response(504)
            return await sandbox_asgi.transport.handle_async_request(request)

    rig = Rig(sandbox_asgi, redis, transport=Long())
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=12)
    assert rig.ledger(call)["assign"] == 1


async def test_pushes_of_unknown_calls_search_nothing_while_listings_work(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A listing that began after the push says that the queue has no such call. They are read, because no worker ran."""
    read: list[str] = []
    searched: list[str] = []

    class Watched(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            read.extend(part for part in request.url.path.split("/") if part.startswith("unknown-"))
            if "searchString" in request.url.params:
                searched.append(request.url.params["searchString"])
            return await sandbox_asgi.transport.handle_async_request(request)

    rig = Rig(sandbox_asgi, redis, transport=Watched())
    call = rig.stage.call(Happening(Kind.END, 900))
    for n in range(200):
        await rig.push(call, voice_id=f"unknown-{n}", alternate_voice_id=None)
    rig.stage.advance(60.0)
    await rig.run(60)
    assert (rig.ledger(call)["assign"], len(set(read)), searched) == (1, 200, [])
