"""Two ids that the service mixes up: however it names them, one record stays, and comes to an end."""

import json

import httpx
import pytest
from redis.asyncio import Redis

from calls.keys import CallId
from calls.notes import Listed
from calls.record import Candidate, Phase
from sandbox.state import Happening, Kind
from tests.rig import KEY, Rig
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 30)


class Renamed(httpx.AsyncBaseTransport):
    """A service that calls the calls in its details by other ids."""

    def __init__(self, inner: httpx.AsyncBaseTransport, names: dict[str, str]) -> None:
        self._inner = inner
        self.names = names

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on, and rename the answer."""
        response = await self._inner.handle_async_request(request)
        await response.aread()
        body = response.json()
        record = body.get("phoneCall") if isinstance(body, dict) else None
        asked = request.url.path.split("/")[-2]
        if not record or asked not in self.names:
            return httpx.Response(response.status_code, content=response.content, headers=response.headers)
        record["voiceId"] = body["voiceId"] = self.names[asked]
        return httpx.Response(200, content=json.dumps(body), headers={"Content-Type": "application/json"})


async def records(rig: Rig) -> list[str]:
    """Return the ids under which there is a record."""
    prefix = rig.store.keys.item(CallId(KEY, "").member)
    keys = [key.decode() async for key in rig.redis.scan_iter(match=prefix + "*")]
    return [key.removeprefix(prefix) for key in keys if await rig.redis.hexists(key, "rec")]


CIRCLES = {"each other": ("v-1", "v-2"), "three in a circle": ("v-1", "v-2", "v-3")}


@pytest.mark.parametrize("ids", CIRCLES.values(), ids=CIRCLES)
async def test_ids_that_name_each_other_end_in_one_record(
    sandbox_asgi: Asgi, redis: Redis, ids: tuple[str, ...]
) -> None:
    """Whatever is asked for is called by the next id: one record stays, is never enrolled, and settles (B11)."""
    names = dict(zip(ids, (*ids[1:], ids[0]), strict=True))
    rig = Rig(sandbox_asgi, redis, transport=Renamed(sandbox_asgi.transport, names))
    calls = [rig.stage.call(Happening(Kind.MFA_VALIDATED, 5), END, voice_id=voice_id) for voice_id in ids]
    await rig.run(20)
    assert len(await records(rig)) == 1
    listed = Listed(listed_at=rig.clock.now, started_at=calls[0].started_at, candidates=(Candidate(person_id="p-1"),))
    for voice_id in ids:
        await rig.store.note(CallId(KEY, voice_id), listed)
    await rig.run(60)
    (left,) = await records(rig)
    record = await rig.find(left)
    assert record is not None
    assert record.phase is Phase.SETTLED
    assert record.checks_used >= sum(rig.ledger(call).get("check", 0) for call in calls)
    assert not [call for call in calls if {"enroll", "reject_voice"} & set(rig.ledger(call))]
    trail = await rig.queries.trail(CallId(KEY, left))
    assert [entry.what for entry in trail].count("settled") == 1
    assert not rig.shift.failures
