"""What a listing leaves out is logged and counted."""

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.metrics import catalogue as figure
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
