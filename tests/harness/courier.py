"""A rig that sends outcomes to a receiver, which verifies signatures and validates messages."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from standardwebhooks import Webhook

from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.delivery_log import DeliveryLog, Replays
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup
from tests.harness.virtual_time import Rig
from tests.http_servers import serving
from tests.outcome_schemas import keeps_to_its_schema
from tests.sandbox_fixtures import Asgi
from workers.signed_webhooks import WebhookClient
from workers.webhook_delivery import Deliveries

SECRET = "whsec_Y2FuYXJ5LW91dGNvbWUta2V5LTAxMjM0NTY3ODk="


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    """Send a body as a connection does, so that it is read by whoever wants it."""
    yield body


class Receiver:
    """A receiver of outcomes. It takes them, or answers as told."""

    def __init__(self) -> None:
        self.url = ""
        self.taken: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.traces: list[tuple[str, str]] = []
        self.seen = 0
        self.status: Callable[[], int] = lambda: 204
        self.headers: dict[str, str] = {}
        self.text: str | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request. Before a message is taken, the standard's own library verifies its signature."""
        self.seen += 1
        status = self.status()
        if status == 0:
            raise httpx.ConnectError("nobody is there") from ConnectionRefusedError()
        if status < 300:
            Webhook(SECRET).verify(request.content, dict(request.headers))
            self.taken.append(keeps_to_its_schema(request.content))
            self.ids.append(request.headers["webhook-id"])
            self.traces.append((request.headers["webhook-id"], request.headers.get("traceparent", "")))
        if self.text is None:
            return httpx.Response(status, headers=self.headers)
        headers = {"content-type": "text/plain; charset=utf-8", **self.headers}
        return httpx.Response(status, headers=headers, content=in_parts(self.text.encode()))

    @property
    def worker_environ(self) -> dict[str, str]:
        """Return the settings of a worker that sends outcomes to its address."""
        return {"CALLKEEPER_OUTCOME_URL": self.url, "CALLKEEPER_OUTCOME_SECRET": SECRET}

    def told(self, voice_id: str) -> list[str]:
        """Return the types of the outcomes of a call, in order."""
        return [message["type"] for message in self.taken if message["data"].get("voice_id") == voice_id]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver with an address, for real workers, until the block ends."""
    receiver = Receiver()
    with serving(receiver) as port:
        receiver.url = f"http://127.0.0.1:{port}/outcomes"
        yield receiver


def deliveries_of(
    rig: Rig, receiver: Callable[[httpx.Request], httpx.Response], url: str = "https://sink.example/"
) -> Deliveries:
    """Return what sends the outcomes of a rig that has an outbox, as a worker does."""
    client = httpx.AsyncClient(transport=httpx.MockTransport(receiver))
    sink = WebhookClient(url, (Webhook(SECRET),), client, lambda: datetime.now(UTC))
    outbox = Store(rig.redis, keys=Keys().outbox, now_ms=rig.now_ms, unreadable=rig.store.unreadable)
    return Deliveries(outbox, Lookup(rig.redis), sink, DeliveryLog(rig.redis, Keys().outbox), rig.tools.log)


async def deliver(deliveries: Deliveries) -> int:
    """Send due outcomes; return how many were due."""
    claimed = await deliveries.claim()
    await deliveries.settle()
    return claimed


class Courier(Rig):
    """A rig that sends outcomes."""

    def __init__(self, stage: Asgi, redis: Any) -> None:
        super().__init__(stage, redis, outbox=Keys().outbox)
        self.receiver = Receiver()
        self.deliveries = deliveries_of(self, self.receiver)
        self.attempts = self.deliveries.attempts
        self.replays = Replays(redis, Keys().outbox, now_ms=self.now_ms)

    async def leap(self, minutes: int) -> None:
        """Let minutes pass, one at a time."""
        for _ in range(minutes):
            self.stage.advance(60)
            await self.run(0)

    async def tick(self) -> int:
        """Move calls on, and send due outcomes."""
        return await super().tick() + await deliver(self.deliveries)


@pytest.fixture
async def courier(sandbox_asgi: Asgi, redis: Redis) -> AsyncIterator[Courier]:
    """Return a rig with a receiver of outcomes."""
    rig = Courier(sandbox_asgi, redis)
    yield rig
    await rig.deliveries.client.aclose()
