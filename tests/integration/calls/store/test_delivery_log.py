"""The delivery log, replays, tests, and who and why an outcome names."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from redis.asyncio import Redis
from standardwebhooks import Webhook, WebhookVerificationError

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.notes import Verified
from callkeeper.calls.outcome_messages import TestMessage
from callkeeper.calls.store.delivery_log import KEPT_ATTEMPTS, Attempt, DeliveryLog, place_of
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.courier import SECRET, Courier
from tests.outcome_schemas import keeps_to_its_schema
from workers.signed_webhooks import WebhookClient

END = Happening(Kind.END, 60)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


async def test_every_attempt_is_in_the_log(courier: Courier) -> None:
    """Time, status or error, duration, number and next attempt of each post are kept; nothing that it said."""
    answers = iter([503, 0, 204, 204])
    courier.receiver.status = lambda: next(answers)
    call = await courier.begin_call(Happening(Kind.GREEN, 5), END, run_s=120, is_pushed=False)
    attempts = list(reversed(await courier.attempts.read()))
    assert [(each.type, each.n, each.status, each.error) for each in attempts] == [
        ("call.authenticated", 1, 503, None),
        ("call.authenticated", 2, None, "connection refused"),
        ("call.authenticated", 3, 204, None),
        ("call.settled", 1, 204, None),
    ]
    assert [each.next_at is not None for each in attempts] == [True, True, False, False]
    first = attempts[0]
    assert first.next_at is not None
    assert first.next_at - first.at == timedelta(seconds=5)
    assert first.call_id == CallId(call.institution_key, call.voice_id)
    stored = b"".join(await courier.redis.zrange(Keys().outbox.deliveries, 0, -1)).decode()
    assert call.phone_number not in stored
    assert "person" not in stored


async def test_receiver_that_refuses_everything_is_an_incident_until_it_accepts_something(courier: Courier) -> None:
    """For a day of 401 each outcome is tried eagerly, then every hour; nothing is lost, and the board says so at once."""
    courier.receiver.status = lambda: 401
    signals = SignalReader(courier.redis, Keys())

    async def titles() -> list[str]:
        """Return what is told of the receiver."""
        found = incidents_of(await signals.read(now=courier.clock.now))
        return [incident.title for incident in found if incident.kind is IncidentKind.RECEIVER_AWAY]

    numbers = [courier.stage.other_member(n) for n in range(3)]
    happenings = Happening(Kind.GREEN, 5), Happening(Kind.END, 20)
    calls = [courier.stage.call(*happenings, phone_number=number) for number in numbers]
    await courier.run(150)
    assert await titles() == ["The webhook receiver accepts nothing"]
    posted = len(courier.receiver.ids)
    for _ in range(23):
        courier.stage.advance(3600)
        await courier.run(5)
    assert len(courier.receiver.ids) - posted <= 3 * 25, "one attempt an hour for each call"
    assert await courier.replays.failed_since(LONG_AGO) == 3
    courier.receiver.status = lambda: 204
    await courier.run(5)
    taken = [each.id for each in await courier.attempts.read() if each.was_taken]
    assert len({*taken}) == len(taken) == 2 * len(calls), "each call's outcomes, once each"
    assert await titles() == []


async def test_log_is_bounded(redis: Redis) -> None:
    """However much is posted, the last attempts are kept, and for as long as calls."""
    log = DeliveryLog(redis, Keys().outbox, kept_s=3600)
    began = datetime(2026, 11, 21, 12, tzinfo=UTC)
    for n in range(KEPT_ATTEMPTS + 5):
        await log.write(Attempt(id=f"c:cu-1:v.{n}.settled", type="call.settled", at=began + timedelta(seconds=n)))
    kept = await log.read()
    assert (len(kept), kept[0].id) == (KEPT_ATTEMPTS, f"c:cu-1:v.{KEPT_ATTEMPTS + 4}.settled")
    await log.write(kept[0])
    assert len(await log.read()) == KEPT_ATTEMPTS, "to write a line again changes nothing"
    await log.write(Attempt(id="later", type="call.settled", at=began + timedelta(hours=3)))
    assert [each.id for each in await log.read()] == ["later"]
    client: Redis = redis
    assert 0 < await client.ttl(Keys().outbox.deliveries) <= 3600


async def test_replay_of_one_outcome_posts_it_again_under_its_id(courier: Courier) -> None:
    """What was taken is posted once more, with the id by which the receiver knows it; what follows it is not."""
    call = await courier.begin_call(Happening(Kind.GREEN, 5), END, run_s=80, is_pushed=False)
    first = courier.receiver.ids[0]
    place = place_of(first)
    assert place == (CallId(call.institution_key, call.voice_id), 0)
    assert place is not None
    await courier.replays.one(*place)
    await courier.run(1)
    assert courier.receiver.ids[2:] == [first]
    assert courier.receiver.taken[2] == {**courier.receiver.taken[0], "data": courier.receiver.taken[2]["data"]}
    assert (await courier.attempts.read(1))[0].is_replay
    await courier.run(5)
    assert len(courier.receiver.ids) == 3


async def test_replay_that_fails_changes_nothing_else(courier: Courier) -> None:
    """A replay that the receiver does not take stands in the log and is not repeated; outcomes go on in order."""
    call = await courier.begin_call(Happening(Kind.GREEN, 5), END, run_s=30, is_pushed=False)
    courier.receiver.status = lambda: 400
    await courier.replays.one(CallId(call.institution_key, call.voice_id), 0)
    await courier.run(1)
    replayed = (await courier.attempts.read(1))[0]
    assert (replayed.is_replay, replayed.status, replayed.next_at) == (True, 400, None)
    courier.receiver.status = lambda: 204
    await courier.run(50)
    assert [message["type"] for message in courier.receiver.taken] == ["call.authenticated", "call.settled"]


async def test_replay_of_what_failed_waits_no_longer(courier: Courier) -> None:
    """Everything undelivered whose last attempt failed since an instant is tried now; what failed before it is not."""
    courier.receiver.status = lambda: 400
    numbers = [courier.stage.other_member(n) for n in range(3)]
    calls = [courier.stage.call(Happening(Kind.GREEN, 5 + n), END, phone_number=numbers[n]) for n in range(3)]
    await courier.run(80)
    await courier.leap(60)
    courier.receiver.status = lambda: 204
    assert await courier.replays.failed_since(courier.clock.now + timedelta(seconds=1)) == 0
    assert await courier.replays.failed_since(LONG_AGO) == len(calls)
    await courier.run(1)
    assert len(courier.receiver.taken) == 2 * len(calls)
    assert await courier.replays.failed_since(LONG_AGO) == 0


async def test_test_message_is_sent_once(courier: Courier) -> None:
    """A test reaches the receiver by the same way, signed, under an id of its own; what comes of it is in the log."""
    name = await courier.replays.test()
    await courier.run(1)
    assert courier.receiver.ids == [name]
    assert courier.receiver.taken[0]["type"] == "callkeeper.test"
    courier.receiver.status = lambda: 500
    second = await courier.replays.test()
    await courier.run(20)
    [tried] = await courier.attempts.read(message_id=second)
    assert (tried.status, tried.next_at, tried.call_id) == (500, None, None)


async def test_receiver_that_is_gone_is_left_alone(courier: Courier) -> None:
    """410 says that nothing is wanted: all calls together then try once in a while, and nothing is lost."""
    courier.receiver.status = lambda: 410
    for n in range(20):
        courier.stage.call(Happening(Kind.GREEN, 5 + n / 10), END, phone_number=courier.stage.other_member(n))
    await courier.run(20)
    seen = courier.receiver.seen
    await courier.run(30)
    assert courier.receiver.seen - seen <= 30 / 3 + 1
    courier.receiver.status = lambda: 200
    await courier.leap(10)
    assert len(set(courier.receiver.ids)) == len(courier.receiver.ids) == 40


async def test_receiver_says_when_to_come_again(courier: Courier) -> None:
    """After 429 with Retry-After nothing is posted by anybody until then."""
    courier.receiver.status, courier.receiver.headers = (lambda: 429), {"Retry-After": "40"}
    for n in range(5):
        number = courier.stage.other_member(n)
        courier.stage.call(Happening(Kind.GREEN, 5 + n), Happening(Kind.END, 100), phone_number=number)
    await courier.run(12)
    seen = courier.receiver.seen
    await courier.run(25)
    assert courier.receiver.seen == seen > 0
    courier.receiver.status = lambda: 204
    await courier.run(30)
    assert len(courier.receiver.taken) == 5


async def test_outcome_names_who_and_why(courier: Courier) -> None:
    """An enroll for a person's word names her, the effect, how she verified, the rule, and as whom it was recorded."""
    call = await courier.begin_call(Happening(Kind.END, 100), run_s=8, is_pushed=False)
    record = await courier.record(call)
    assert record.seen.person_id is not None
    await courier.note(
        call,
        Verified(
            person_id=record.seen.person_id,
            validation_type="OneTimePasswordAuth",
            operator="agent-7",
            said_at=courier.clock.now,
            wish="w-1",
        ),
    )
    await courier.run(150)
    told = {message["type"]: message["data"] for message in courier.receiver.taken}
    enrolled = told["call.enrolled"]
    assert enrolled["effect"] == "enroll"
    assert enrolled["operator"] == enrolled["requested_by"] == "agent-7"
    assert (enrolled["validation_type"], enrolled["rule"]) == ("OneTimePasswordAuth", "verified at the desk")
    settled = told["call.settled"]
    assert (settled["reason"], settled["effect"], settled["operator"]) == ("enrolled", "enroll", "agent-7")


OLD, NEW = SECRET, "whsec_bmV3LWNhbmFyeS1vdXRjb21lLWtleS0wMTIzNDU2Nzg5"


@pytest.mark.parametrize(
    ("secrets", "accepted"),
    [([OLD], {OLD}), ([NEW, OLD], {OLD, NEW}), ([NEW], {NEW})],
    ids=["before", "while exchanged", "after"],
)
async def test_secret_is_exchanged_with_overlap(secrets: list[str], accepted: set[str]) -> None:
    """While two secrets are set, a receiver verifies with the old one as with the new one."""
    posts: list[httpx.Request] = []

    def receive(request: httpx.Request) -> httpx.Response:
        posts.append(request)
        return httpx.Response(204)

    client = httpx.AsyncClient(transport=httpx.MockTransport(receive))
    sink = WebhookClient("https://sink.example/", tuple(map(Webhook, secrets)), client, lambda: datetime.now(UTC))
    await sink.post("callkeeper.test.1", TestMessage(timestamp=datetime.now(UTC)))
    await sink.aclose()
    [post] = posts
    keeps_to_its_schema(post.content)
    for secret in (OLD, NEW):
        if secret in accepted:
            Webhook(secret).verify(post.content, dict(post.headers))
        else:
            with pytest.raises(WebhookVerificationError):
                Webhook(secret).verify(post.content, dict(post.headers))
