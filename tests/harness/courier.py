"""A rig that sends outcomes to a receiver, which verifies signatures and validates messages."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
from standardwebhooks import Webhook

from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.delivery_log import DeliveryLog, Replays
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup
from tests.harness.virtual_time import Rig
from tests.outcome_schemas import keeps_to_its_schema
from tests.sandbox_fixtures import Asgi
from workers.webhook_client import WebhookClient
from workers.webhook_delivery import Deliveries

SECRET = "whsec_Y2FuYXJ5LW91dGNvbWUta2V5LTAxMjM0NTY3ODk="


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    """Send a body as a connection does, so that it is read by whoever wants it."""
    yield body


class Receiver:
    """A receiver of outcomes. It takes them, or answers as told."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.seen = 0
        self.status: Callable[[], int] = lambda: 204
        self.headers: dict[str, str] = {}
        self.text: str | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request. Before a message is taken, the standard's own library verifies its signature."""
        self.seen += 1
        status = self.status()
        if status == 0:
            raise httpx.ConnectError("nobody is there")
        if status < 300:
            Webhook(SECRET).verify(request.content, dict(request.headers))
            self.taken.append(keeps_to_its_schema(request.content))
            self.ids.append(request.headers["webhook-id"])
        if self.text is None:
            return httpx.Response(status, headers=self.headers)
        headers = {"content-type": "text/plain; charset=utf-8", **self.headers}
        return httpx.Response(status, headers=headers, content=in_parts(self.text.encode()))


class Courier(Rig):
    """A rig that sends outcomes."""

    def __init__(self, stage: Asgi, redis: Any) -> None:
        super().__init__(stage, redis, outbox=Keys().outbox)
        self.receiver = Receiver()
        client = httpx.AsyncClient(transport=httpx.MockTransport(self.receiver))
        sink = WebhookClient("https://sink.example/", (Webhook(SECRET),), client, lambda: datetime.now(UTC))
        outbox = Store(redis, keys=Keys().outbox, now_ms=self.now_ms, unreadable=self.store.unreadable)
        self.attempts = DeliveryLog(redis, Keys().outbox)
        self.replays = Replays(redis, Keys().outbox, now_ms=self.now_ms)
        self.deliveries = Deliveries(outbox, Lookup(redis), sink, self.attempts, self.tools.log)

    async def leap(self, minutes: int) -> None:
        """Let minutes pass, one at a time."""
        for _ in range(minutes):
            self.stage.advance(60)
            await self.run(0)

    async def tick(self) -> int:
        """Move calls on, and send due outcomes."""
        moved = await super().tick()
        sent = await self.deliveries.claim()
        await self.deliveries.settle()
        return moved + sent
