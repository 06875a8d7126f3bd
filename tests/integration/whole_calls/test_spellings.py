"""Push, queue, details and assign spell one GUID differently: it is one call, with one record and one budget."""

from dataclasses import replace as changed
from typing import Literal

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted, Pushed
from callkeeper.calls.record import CHECK_LIMIT, Reason
from callkeeper.calls.store.queries import Lookup
from callkeeper.service.endpoints import canonical_id, spelling_of
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import Asgi

Place = Literal["push", "queue", "details", "assign"]
PLACES: tuple[Place, ...] = ("push", "queue", "details", "assign")
CAPITALS = [*((place,) for place in PLACES), PLACES, PLACES[:2], PLACES[1:3], PLACES[2:]]
FOR_EVERY_CHANGE = (("queue",), ("details",), PLACES)
"""The two that name every call against each other, and all of them."""
GUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.mark.parametrize(
    "text",
    [
        GUID,
        GUID.upper(),
        f"{{{GUID}}}",
        f"{{{GUID.upper()}}}",
        GUID.replace("-", ""),
        "6F9619ff-8b86-D011-b42d-00C04fc964ff",
    ],
)
def test_guid_has_one_canonical_spelling(text: str) -> None:
    """Case, braces and hyphens say nothing."""
    assert canonical_id(text) == GUID
    assert spelling_of(text) == (None if text == GUID else text)


@pytest.mark.parametrize("text", ["V-1", "ABC", "{V-1}", GUID[:-1].upper(), GUID.replace("-", ":").upper(), "{", ""])
def test_other_ids_stay_as_they_are(text: str) -> None:
    """Of an id that is no GUID, the case counts."""
    assert canonical_id(text) == text


async def push(rig: Rig, call: SandboxCall, kind: str = "CallStart") -> None:
    """Push an event as the stand-in spells it."""
    world = rig.stage.world
    alternate = world.spelled(call.alternate_id, "push")
    await rig.push(call, kind, voice_id=world.spelled(call.voice_id, "push"), alternate_voice_id=alternate)


async def records(rig: Rig) -> list[bytes]:
    """Return the members of all calls that have a record."""
    items = [key async for key in rig.redis.scan_iter(match=f"{rig.store.keys.prefix}:item:c:*")]
    return [key for key in items if await rig.redis.hexists(key, "rec")]


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(places, id="+".join(places), marks=() if places in FOR_EVERY_CHANGE else pytest.mark.night)
        for places in CAPITALS
    ],
)
async def test_call_has_one_record_however_its_id_is_spelled(rig: Rig, places: tuple[Place, ...]) -> None:
    """One record, at most 20 checks, one assign, one reject; a word under either spelling reaches it."""
    rig.stage.world.options = changed(rig.stage.world.options, capital_ids=frozenset(places))
    green = rig.stage.call(Happening(Kind.GREEN, 8), Happening(Kind.END, 40))
    rig.stage.world.add_member(KEY, "p-9", ["5550100999"])
    other = rig.stage.call(Happening(Kind.END, 400), phone_number="5550100999")
    for call in (green, other):
        await push(rig, call)
    await rig.run(20)
    capitals = CallId(KEY, other.voice_id.upper())
    assert await Lookup(rig.redis, keys=rig.store.keys).resolve(*capitals) == rig.call_id(other)
    await rig.store.note(rig.call_id(other), Distrusted(operator="ann", said_at=rig.clock.now, wish="d" * 32))
    await rig.run(410)
    for call in (green, other):
        await push(rig, call, "CallEnd")
    await rig.run(60)
    assert len(await records(rig)) == 2
    assert (await rig.record(green)).life.reason is Reason.AUTHENTICATED
    assert [rig.ledger(call)["assign"] for call in (green, other)] == [1, 1]
    assert rig.ledger(other)["reject_voice"] == 1
    assert max(rig.ledger(call)["check"] for call in (green, other)) <= CHECK_LIMIT


async def test_requests_use_the_services_last_spelling(rig: Rig) -> None:
    """A service that knows capitals only is asked in capitals, and the desk still finds the call by small letters."""
    rig.stage.sandbox.choose(["ids-capital"])
    call = rig.stage.call(Happening(Kind.GREEN, 8), Happening(Kind.END, 40))
    assert call.voice_id == call.voice_id.upper()
    await rig.run(80)
    record = await rig.record(call)
    assert (record.voice_id, record.names.spelled, record.life.reason) == (
        call.voice_id.lower(),
        call.voice_id,
        Reason.AUTHENTICATED,
    )
    assert rig.ledger(call)["check"] == record.plan.checks_used


class AnyCase(httpx.AsyncBaseTransport):
    """A service to which institution keys in other capitals are the same."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Spell a key as the service does."""
        if "institutionkey" in request.headers:
            request.headers["institutionkey"] = request.headers["institutionkey"].lower()
        if "/external/institutions/" in request.url.path:
            request.url = request.url.copy_with(path=request.url.path.lower())
        return await self._inner.handle_async_request(request)


async def test_institution_that_the_login_spells_otherwise_is_one(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Its list says cu-1, and the login CU-1. Two records of a call would get 20 checks each, and two enrolls."""
    rig = Rig(sandbox_asgi, redis, transport=AnyCase(sandbox_asgi.transport))
    upper = changed(sandbox_asgi.world.options, token_keys=lambda keys: [key.upper() for key in keys])
    sandbox_asgi.world.options = upper
    call = sandbox_asgi.call(Happening(Kind.MFA_VALIDATED, 30), Happening(Kind.END, 300))
    await rig.run(20)
    assert rig.institutions.keys == {KEY}
    await rig.run(400)
    assert rig.ledger(call)["check"] <= 20
    assert rig.ledger(call)["enroll"] == 1
    told = [line for line in rig.log.entries if line["event"] == "institution_spelled_twice"]
    assert [(line["institution"], line["left_out"]) for line in told] == [(KEY, KEY.upper())]


@pytest.mark.parametrize("known_s", [1.0, 30.0])
async def test_word_and_push_under_the_other_spelling_of_an_institution_are_about_its_call(
    sandbox_asgi: Asgi, redis: Redis, known_s: float
) -> None:
    """An agent says under CU-1 that she distrusts a caller of cu-1, who then proves a passcode."""
    rig = Rig(sandbox_asgi, redis, transport=AnyCase(sandbox_asgi.transport))
    upper = changed(sandbox_asgi.world.options, token_keys=lambda keys: [key.upper() for key in keys])
    sandbox_asgi.world.options = upper
    await rig.run(20)
    call = sandbox_asgi.call(Happening(Kind.MFA_VALIDATED, 60), Happening(Kind.END, 100))
    await rig.run(known_s)
    other = CallId(KEY.upper(), call.voice_id)
    await rig.store.note(other, Pushed(has_ended=False, event_id="e" * 32, received_at=rig.clock.now))
    await rig.store.note(other, Distrusted(operator="ann", said_at=rig.clock.now, wish="d" * 32))
    await rig.run(200)
    assert rig.ledger(call).get("reject_voice") == 1
    assert "enroll" not in rig.ledger(call)
    assert len(await records(rig)) == 1
    record = await rig.queries.load(other)
    assert record is not None
    assert (record.institution_key, record.life.reason) == (KEY, Reason.REJECTED)
