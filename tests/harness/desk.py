"""Rigs with a desk, and with the board too: what is said over HTTP and on pages, and what the stand-in saw of it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.rules import RuleBook
from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent, AuditFilter, AuditLog
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.visitor import Auditor
from callkeeper.desk.board.board import Board
from callkeeper.desk.board.frame_source import FrameSource
from callkeeper.desk.desk import Desk
from callkeeper.desk.signed_tokens import FORM_FIELD, form_tokens, key_of_login
from callkeeper.service import Secret
from callkeeper_sandbox.service.state import Call
from tests.harness.desk_tokens import give_token
from tests.harness.virtual_time import KEY, SHIPPED, Rig
from tests.mixed_up import MixedUp
from tests.sandbox_fixtures import Asgi
from tests.signed_in import SignedIn

TOKENS = {
    "desktop": "ckt_canary-desktop-0123456789-4c07a65e93d2",
    "ivr": "ckt_canary-ivr-0123456789abcd-4c07a65e93d2",
}
"""The tokens of the desk by their names; that of the IVR sees cu-2 only."""

OPERATOR = "agent-7"


class DeskRig(Rig):
    """A rig with a desk in front of it."""

    def __init__(
        self, stage: Asgi, redis: Any, jobs: Any, book: RuleBook = SHIPPED, *, outbox: Keys | None = None
    ) -> None:
        self.mixed_up = MixedUp(stage.transport)
        super().__init__(stage, redis, book, outbox=outbox, transport=self.mixed_up)
        self.auditor = Auditor(AuditLog(redis, keys=self.store.keys))
        self.desk = Desk(
            redis,
            redis,
            origins=("https://agents.example",),
            book=self.book,
            waker=Waker(jobs),
            log=self.tools.log,
            now=self.clock,
            store=self.store,
            auditor=self.auditor,
        )
        give_token(jobs, "desktop", TOKENS["desktop"])
        give_token(jobs, "ivr", TOKENS["ivr"], "cu-2")
        self.http = self.client("desktop")

    def client(self, name: str | None) -> httpx.AsyncClient:
        """Return a client with a token, by its name."""
        headers = {"Authorization": f"Bearer {TOKENS[name]}"} if name else {}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.desk.app, root_path="/desk"), base_url="http://desk", headers=headers
        )

    async def say(self, call: Call, action: str, *, key: str | None = None, **body: Any) -> httpx.Response:
        """Say something to a call as an operator."""
        headers = {"Idempotency-Key": key} if key else {}
        address = f"/calls/{call.institution_key}/{call.voice_id}/{action}"
        return await self.http.post(address, json={"operator": OPERATOR, **body}, headers=headers)

    async def audited(self) -> list[AuditEntry]:
        """Return what the audit log has of words about calls, the oldest first."""
        found = await self.auditor.log.read(AuditFilter(event=AuditEvent.SAID), most=100)
        return [audited.entry for audited in reversed(found)]

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


class BoardRig(DeskRig):
    """A rig with a board in front of it."""

    def __init__(
        self, stage: Asgi, redis: Redis, jobs: BlockingRedis, log: FilteringBoundLogger, *, outbox: Keys | None = None
    ) -> None:
        super().__init__(stage, redis, jobs, outbox=outbox)
        self.tokens = form_tokens(key_of_login("ops", Secret("canary-admin-0123456-4c07a65e93d2")), now=self._seconds)
        self.board = Board(redis, self.desk, log=log, now=self.clock)
        self.visitor = SignedIn(self.board.app(), self.tokens, auditor=self.auditor)
        self.browser = httpx.AsyncClient(transport=httpx.ASGITransport(self.visitor), base_url="https://desk")

    def _seconds(self) -> float:
        return self.clock.now.timestamp()

    async def page(self, path: str = "", status: int = 200) -> str:
        """Return a page."""
        answer = await self.browser.get(f"/board{path}")
        assert answer.status_code == status, answer.text
        return answer.text

    async def fill(self, path: str, **fields: str) -> httpx.Response:
        """Send a form as a page of ours does."""
        confirmed = {"confirmed": "yes"} if path.endswith("/distrusted") else {}
        return await self.browser.post(f"/board{path}", data={FORM_FIELD: self.tokens.issue(), **confirmed, **fields})

    @property
    def frames(self) -> FrameSource:
        """Return what the board shows."""
        return self.board.frames


def of(call: Call) -> str:
    """Return the address of a call's page, below the board's."""
    return f"/calls/{call.institution_key}/{call.voice_id}"


@pytest.fixture
async def desk(sandbox_asgi: Asgi, redis: Redis, blocking_redis: BlockingRedis) -> AsyncIterator[DeskRig]:
    """Return a desk over the shipped rules."""
    rig = DeskRig(sandbox_asgi, redis, blocking_redis)
    async with rig.http:
        yield rig


@pytest.fixture
async def board_rig(
    sandbox_asgi: Asgi, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> AsyncIterator[BoardRig]:
    """Return a board over the shipped rules."""
    rig = BoardRig(sandbox_asgi, redis, blocking_redis, log)
    async with rig.http, rig.browser:
        yield rig
