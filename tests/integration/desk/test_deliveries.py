"""Outcomes on their way out: in order, at least once, never in a call's way."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from standardwebhooks import Webhook

from calls.store.keys import CallId, Keys
from calls.store.queries import Lookup, Queries
from calls.store.store import Store
from reseller import Secret
from sandbox.state import Happening, Kind
from tests.rig import Rig
from tests.sandbox_fixtures import Asgi
from workers.webhook_client import WebhookClient
from workers.webhook_delivery import Deliveries

SECRET = "whsec_Y2FuYXJ5LW91dGNvbWUta2V5LTAxMjM0NTY3ODk="
END = Happening(Kind.END, 60)


class Receiver:
    """Somebody who wants outcomes: takes them, or answers as told."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.seen = 0
        self.status: Callable[[], int] = lambda: 204

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a post; what is taken has a signature that the standard's own library accepts."""
        self.seen += 1
        status = self.status()
        if status == 0:
            raise httpx.ConnectError("nobody is there")
        if status < 300:
            Webhook(SECRET).verify(request.content, dict(request.headers))
            self.taken.append(json.loads(request.content))
            self.ids.append(request.headers["webhook-id"])
        return httpx.Response(status)


class Courier(Rig):
    """A rig whose outcomes somebody wants."""

    def __init__(self, stage: Asgi, redis: Any) -> None:
        super().__init__(stage, redis, outbox=Keys().outbox)
        self.receiver = Receiver()
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.receiver))
        sink = WebhookClient(
            "https://sink.example/", Webhook(Secret(SECRET).reveal()), client, lambda: datetime.now(UTC)
        )
        outbox = Store(redis, keys=Keys().outbox, now_ms=self.now_ms, unreadable=self.store.unreadable)
        self.deliveries = Deliveries(outbox, Lookup(redis), sink, self.tools.log)

    async def leap(self, minutes: int) -> None:
        """Let long times pass, a minute at once."""
        for _ in range(minutes):
            self.stage.advance(60)
            await self.run(0)

    async def tick(self) -> int:
        """Move calls on, and send what is due."""
        moved = await super().tick()
        sent = await self.deliveries.claim()
        await self.deliveries.settle()
        return moved + sent


@pytest.fixture
async def courier(sandbox_asgi: Asgi, redis: Redis) -> AsyncIterator[Courier]:
    """Return a rig with a receiver."""
    rig = Courier(sandbox_asgi, redis)
    yield rig
    await rig.deliveries.client.aclose()


async def test_outcomes_arrive_in_order_with_valid_signatures(courier: Courier) -> None:
    """A call that is authenticated and ends is told as that, in that order, once, without a caller's number or name."""
    call = courier.stage.call(Happening(Kind.GREEN, 5), END)
    await courier.run(80)
    assert [message["type"] for message in courier.receiver.taken] == ["call.authenticated", "call.settled"]
    assert {message["data"]["voice_id"] for message in courier.receiver.taken} == {call.voice_id}
    assert courier.receiver.taken[-1]["data"]["reason"] == "authenticated"
    text = json.dumps(courier.receiver.taken)
    assert call.phone_number not in text
    assert "Ada" not in text


async def test_sink_that_was_down_gets_everything_in_order(courier: Courier) -> None:
    """Through two hours of silence nothing is lost, nothing overtakes, and no call waits for it."""
    courier.receiver.status = lambda: 0
    calls = [courier.stage.call(Happening(Kind.MFA_VALIDATED, 5 + n, "elsewhere"), END) for n in range(3)]
    await courier.run(90)
    await courier.leap(120)
    assert [(await courier.record(call)).is_settled for call in calls] == [True] * 3
    assert courier.receiver.taken == []
    courier.receiver.status = lambda: 200
    await courier.leap(65)
    for call in calls:
        types = [m["type"] for m in courier.receiver.taken if m["data"]["voice_id"] == call.voice_id]
        assert types == ["call.enrolled", "call.settled"]
    assert len(set(courier.receiver.ids)) == len(courier.receiver.ids) == 6


async def test_sink_that_is_down_is_left_alone(courier: Courier) -> None:
    """A sink that does not answer is tried once in a while by all calls together, not by each of them."""
    courier.receiver.status = lambda: 503
    for n in range(20):
        courier.stage.call(Happening(Kind.GREEN, 5 + n / 10), END)
    await courier.run(20)
    seen = courier.receiver.seen
    await courier.run(30)
    assert courier.receiver.seen - seen <= 30 / 3 + 1


async def test_outcome_not_taken_for_a_day_is_parked_and_shown(courier: Courier) -> None:
    """After a day of refusals the call is on the list of what needs a person; asking again sends the rest, in order."""
    courier.receiver.status = lambda: 410
    call = courier.stage.call(Happening(Kind.GREEN, 5), END)
    await courier.run(70)
    for _ in range(40):
        courier.stage.advance(3600)
        await courier.run(0)
    attention = await Queries(courier.redis).attention()
    member = CallId(call.institution_key, call.voice_id).member
    assert attention == {member: "outcome authenticated not delivered for a day"}
    assert await courier.redis.ttl(Keys().outbox.item(member)) > 0, "a sink that is gone for good must not fill Redis"
    seen = courier.receiver.seen
    await courier.run(5)
    assert courier.receiver.seen == seen, "it waits for a person"
    courier.receiver.status = lambda: 200
    await courier.deliveries.store.nudge(CallId(call.institution_key, call.voice_id))
    await courier.run(1)
    assert [message["type"] for message in courier.receiver.taken] == ["call.authenticated", "call.settled"]
    assert await Queries(courier.redis).attention() == {}


async def test_two_workers_send_one_outcome_once(courier: Courier) -> None:
    """Who sends for a call holds it: two workers that look at the same time send each outcome once."""
    other = Deliveries(courier.deliveries.store, Lookup(courier.redis), courier.deliveries.client, courier.tools.log)
    courier.stage.call(Happening(Kind.GREEN, 5), END)
    for _ in range(320):
        await Rig.tick(courier)
        for deliveries in (courier.deliveries, other):
            await deliveries.claim()
        await courier.deliveries.settle()
        await other.settle()
        courier.stage.advance(0.25)
    assert len(courier.receiver.ids) == len(set(courier.receiver.ids)) == 2
