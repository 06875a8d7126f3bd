"""A service that says of people whatever it can, in good answers and in broken ones: none of it is found anywhere of ours.

Law of the project: no social security number, licence, date of birth, support password, secret of a core or a VPN, token or
credential in Redis (the token's own key aside), logs, desk answers or outcomes; no phone number in logs or outcomes.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.app.logs import describe_exception, keep_allowed_keys, render_json, stamp
from callkeeper.app.telemetry import OtelTracer
from callkeeper.calls.store.keys import Keys
from callkeeper.service.tracing import traced_by
from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.courier import SECRET, deliver, deliveries_of
from tests.harness.desk import TOKENS, DeskRig
from tests.harness.virtual_time import KEY
from tests.outcome_schemas import keeps_to_its_schema
from tests.sandbox_fixtures import Asgi

PLANTED = {
    "fullSsn": "078-05-1120",
    "last4Ssn": "canary-1120",
    "dateOfBirth": "1907-05-13",
    "supportPassword": "canary-blue-heron",
    "driverLicense": {"number": "D078-CANARY-0511", "issuer": "canary-state", "expirationDate": "1999-12-31"},
    "notes": "canary-notes-mothers-maiden-name",
    "verificationQuestions": ["canary-question-first-pet"],
    "comment": "canary-analyst-comment",
    "unheardOf": {"deep": ["canary-field-nobody-knows"]},
}
CONFIGS = {
    "coreConfig": {"edgeAccessKey": "canary-edge-key", "coreTypeBAdminPassword": "canary-core-b"},
    "vpnConfig": {"authenticationValue": "canary-pre-shared-key", "gatewayIp": "198.51.100.77"},
}
SAID = "member 078-05-1120 (1907-05-13, canary-blue-heron) says canary-words"
CREDENTIALS = Credentials()


def words_of(value: object) -> set[str]:
    """Return every text in a structure."""
    match value:
        case dict():
            return set().union(*(words_of(inner) for inner in value.values()))
        case list():
            return set().union(*(words_of(inner) for inner in value))
        case _:
            return {str(value)}


OURS = {CREDENTIALS.password, CREDENTIALS.access_token, SECRET, *TOKENS.values()}
CANARIES = words_of(PLANTED) | words_of(CONFIGS) | {"canary-words", "canary-bug"} | OURS


def planted(value: Any) -> Any:
    """Return an answer with everything that could be said of people and secrets, in every object of it."""
    match value:
        case dict():
            said = {name: {**(value.get(name) or {}), **more} for name, more in CONFIGS.items()}
            return {name: planted(inner) for name, inner in value.items()} | PLANTED | said
        case list():
            return [planted(inner) for inner in value]
        case _:
            return value


def well(answer: Any) -> httpx.Response:
    """Answer as the stand-in does, and more."""
    return httpx.Response(200, json=answer)


def refused(_answer: Any) -> httpx.Response:
    """Refuse in words."""
    return httpx.Response(
        200, json={"success": False, "error": SAID, "errors": [SAID], "messages": [SAID], "code": SAID}
    )


def in_html(_answer: Any) -> httpx.Response:
    """Break, and show what was worked on."""
    return httpx.Response(500, html=f"<html>{SAID}</html>", headers={"x-debug": "canary-words"})


def cut_off(answer: Any) -> httpx.Response:
    """Stop in the middle."""
    body = json.dumps(answer)
    return httpx.Response(200, content=body[: len(body) * 2 // 3])


def of_wrong_types(answer: Any) -> httpx.Response:
    """Say the right things in the wrong places."""
    record = {"voiceId": {"ssn": SAID}, "status": [SAID], "callEnded": SAID, "metaData": {"vendorPolicies": SAID}}
    entry = {"voiceId": [SAID], "persons": SAID, "startDateTime": SAID}
    return httpx.Response(200, json={**answer, "phoneCall": record, "phoneCalls": [entry], **record})


def lost(_answer: Any) -> httpx.Response:
    """Be lost on the way."""
    raise httpx.ReadError(SAID)


def a_bug(_answer: Any) -> httpx.Response:
    """Show how a bug of ours would say it."""
    raise RuntimeError(f"canary-bug {SAID}")


BROKEN: tuple[Callable[[Any], httpx.Response], ...] = (refused, in_html, cut_off, of_wrong_types, lost, a_bug)


class Telling(httpx.AsyncBaseTransport):
    """The stand-in, in front of it somebody who tells: every other answer of a kind well, those between in all ways."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner
        self.told: Counter[str] = Counter()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Let the stand-in do what is asked, and tell it in some way."""
        response = await self.inner.handle_async_request(request)
        answer = json.loads(await response.aread())
        is_list = (
            request.url.path == "/external/institutions"
        )  # whose wrapper is not shown: there the list is told by being one
        answer = {name: planted(inner) for name, inner in answer.items()} if is_list else planted(answer)
        kind = request.url.path.rpartition("/")[2]
        self.told[kind] += 1
        turn, is_well = divmod(self.told[kind], 2)
        is_about_a_call = request.url.path.startswith("/external/calls")
        way = well if is_well or not is_about_a_call else BROKEN[turn % len(BROKEN)]
        return way(answer)


class TellingRig(DeskRig):
    """A desk, a worker and a receiver of outcomes, with a service that tells."""

    def __init__(self, stage: Asgi, redis: Redis, jobs: BlockingRedis) -> None:
        self.telling = Telling(stage.transport)
        stage.transport = self.telling  # type: ignore[assignment]
        super().__init__(stage, redis, jobs, outbox=Keys().outbox)
        self.outcomes: list[str] = []
        self.deliveries = deliveries_of(self, self._take)

    def _take(self, request: httpx.Request) -> httpx.Response:
        keeps_to_its_schema(request.content)
        self.outcomes.append(request.content.decode() + str(request.headers))
        return httpx.Response(204)

    async def tick(self) -> int:
        """Move calls on, and send due outcomes."""
        return await super().tick() + await deliver(self.deliveries)


async def no_longer(_key: bytes) -> None:
    """Return nothing, for a key that expires while all are read."""


async def everything_in(redis: Any) -> str:
    """Return every key and value but the token's own."""
    read: dict[bytes, Callable[[bytes], Any]] = {
        b"string": redis.get,
        b"hash": redis.hgetall,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"set": redis.smembers,
        b"zset": lambda key: redis.zrange(key, 0, -1),
        b"stream": redis.xrange,
        b"none": no_longer,
    }
    keys = [key async for key in redis.scan_iter() if key != b"ck:token"]
    return repr([(key, await read[await redis.type(key)](key)) for key in keys])


def rendered(entries: list[Any]) -> str:
    """Return log lines as they would be written."""
    lines = [stamp(None, "", {"level": "info", **entry}) for entry in entries]
    kept = [keep_allowed_keys(None, "", describe_exception(None, "", line)) for line in lines]
    return "\n".join(render_json(None, "", line) for line in kept)


async def desk_answers(rig: DeskRig) -> str:
    """Return whatever the desk shows of all calls."""
    told = []
    for phase in ("live", "ended", "settled"):
        page = await rig.http.get("/calls", params={"phase": phase})
        told.append(page.text)
        told += [(await rig.http.get(f"/calls/{KEY}/{call['voice_id']}")).text for call in page.json()["calls"]]
    return "\n".join(told)


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Trace everything that this process does, and return what would be sent to a collector."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with traced_by(OtelTracer(provider)):
        yield exporter


EFFECTS = {"assign", "reject-voice", "enroll"}


async def calls_with_effects(rig: TellingRig, turn: int = 0) -> tuple[list[SandboxCall], str]:
    """Let calls of four members be assigned, verified, distrusted and ended; return them, and what the desk showed."""
    scripts = [
        (Happening(Kind.GREEN, 5), Happening(Kind.END, 60)),
        (Happening(Kind.MFA_VALIDATED, 5), Happening(Kind.END, 60)),
        (Happening(Kind.RED, 5), Happening(Kind.END, 60)),
        (Happening(Kind.END, 60),),
    ]
    members = range(4 * turn, 4 * turn + 4)
    numbers = [rig.stage.other_member(n) for n in members]
    ids = [f"p-{n + 50}" for n in members]
    calls = [rig.stage.call(*script, phone_number=number) for script, number in zip(scripts, numbers, strict=True)]
    await rig.push(calls[0])
    await rig.run(8)
    said = [
        (await rig.say(calls[3], "assign", person_id=ids[3])).text,
        (await rig.say(calls[3], "distrusted", reason="a second voice")).text,
        (await rig.say(calls[2], "verified", person_id=ids[2], validation_type="OneTimePasswordAuth")).text,
        (await rig.say(calls[1], "check")).text,
        (await rig.say(calls[1], "verified", person_id=ids[1], validation_type="OneTimePasswordAuth")).text,
    ]
    live = await desk_answers(rig)
    await rig.run(90)
    return calls, "".join(said) + live


async def test_nothing_that_the_service_says_of_people_stays(
    sandbox_asgi: Asgi, redis: Redis, blocking_redis: BlockingRedis, exporter: InMemorySpanExporter
) -> None:
    """Promise 6: whatever the service says of people and in whichever broken way, nothing of it stays or goes anywhere."""
    rig = TellingRig(sandbox_asgi, redis, blocking_redis)
    calls, before = await calls_with_effects(rig)
    for turn in (1, 2, 3):
        if set(rig.telling.told) >= EFFECTS:
            break
        _, more = await calls_with_effects(rig, turn)  # broken answers have held an effect up until its call had ended
        before += more
    stored, shown = await everything_in(redis), before + await desk_answers(rig)
    logged, outcomes = rendered(rig.log.entries), "".join(rig.outcomes)
    await rig.deliveries.client.aclose()
    spans = encode_spans(exporter.get_finished_spans()).SerializeToString().decode("latin-1")
    places = {"Redis": stored, "the desk": shown, "the log": logged, "outcomes": outcomes, "spans": spans}

    told = rig.telling.told
    assert min(told["queue"], told["details"]) > 2 * len(BROKEN), "every way was taken"
    assert set(told) >= EFFECTS
    assert calls[0].voice_id in stored, "the search finds what is there"
    assert calls[0].voice_id in shown
    assert calls[0].voice_id in spans
    assert [(name, word) for name, text in places.items() for word in CANARIES if word in text] == []
    assert [
        name for name in ("the log", "outcomes", "spans") for call in calls if call.phone_number in places[name]
    ] == []


def test_canaries_are_what_the_service_may_say() -> None:
    """The words that are searched for are those that are planted: every one of them is in an answer."""
    answer = json.dumps(planted({"success": True})) + SAID
    assert [word for word in CANARIES - OURS - {"canary-bug"} if word not in answer] == []
