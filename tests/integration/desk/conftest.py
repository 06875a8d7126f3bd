"""A desk over a whole callkeeper in virtual time: what is said over HTTP, and what the stand-in saw of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.calls.rules import RuleBook
from callkeeper.calls.store.audit_log import AuditLog
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.desk_tokens import DeskToken
from callkeeper.desk.access.visitor import Auditor
from callkeeper.desk.desk import Desk
from callkeeper.service import Secret
from callkeeper_sandbox.service.state import Call
from tests.harness.courier import Courier
from tests.harness.virtual_time import KEY, SHIPPED, Rig
from tests.mixed_up import MixedUp
from tests.sandbox_fixtures import Asgi

TOKENS = (
    DeskToken(name="desktop", secret=Secret("canary-desktop-0123456789")),
    DeskToken(name="ivr", secret=Secret("canary-ivr-0123456789abcd"), institutions=frozenset({"cu-2"})),
)
OPERATOR = "agent-7"


class DeskRig(Rig):
    """A rig with a desk in front of it."""

    def __init__(
        self, stage: Asgi, redis: Any, jobs: Any, book: RuleBook = SHIPPED, *, outbox: Keys | None = None
    ) -> None:
        self.mixed_up = MixedUp(stage.transport)
        super().__init__(stage, redis, book, outbox=outbox, transport=self.mixed_up)
        self.desk = Desk(
            redis,
            redis,
            tokens=TOKENS,
            origins=("https://agents.example",),
            book=self.book,
            waker=Waker(jobs),
            log=self.tools.log,
            now=self.clock,
            store=self.store,
            auditor=Auditor(AuditLog(redis, keys=self.store.keys)),
        )
        self.http = self.client("desktop")

    def client(self, name: str | None) -> httpx.AsyncClient:
        """Return a client with a token, by its name."""
        secrets = {token.name: token.secret.reveal() for token in TOKENS}
        headers = {"Authorization": f"Bearer {secrets[name]}"} if name else {}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.desk.app, root_path="/desk"), base_url="http://desk", headers=headers
        )

    async def say(self, call: Call, action: str, *, key: str | None = None, **body: Any) -> httpx.Response:
        """Say something to a call as an operator."""
        headers = {"Idempotency-Key": key} if key else {}
        address = f"/calls/{call.institution_key}/{call.voice_id}/{action}"
        return await self.http.post(address, json={"operator": OPERATOR, **body}, headers=headers)

    async def outcome(self, said: httpx.Response) -> Any:
        """Return what became of an action, by the address that its answer named."""
        return (await self.look(said)).json()

    async def look(self, said: httpx.Response) -> httpx.Response:
        """Return the same as it is answered."""
        assert said.status_code in {200, 202}, said.text
        return await self.http.get(said.json()["watch"].removeprefix("/desk"))

    async def show(self, call: Call) -> Any:
        """Return a call as the desk shows it."""
        answer = await self.http.get(f"/calls/{KEY}/{call.voice_id}")
        return answer.json()["call"]


@pytest.fixture
async def desk(sandbox_asgi: Asgi, redis: Redis, blocking_redis: BlockingRedis) -> AsyncIterator[DeskRig]:
    """Return a desk over the shipped rules."""
    rig = DeskRig(sandbox_asgi, redis, blocking_redis)
    async with rig.http:
        yield rig


Verify = Callable[[Call], Awaitable[httpx.Response]]


@pytest.fixture
async def courier(sandbox_asgi: Asgi, redis: Redis) -> AsyncIterator[Courier]:
    """Return a rig with a receiver."""
    rig = Courier(sandbox_asgi, redis)
    yield rig
    await rig.deliveries.client.aclose()
