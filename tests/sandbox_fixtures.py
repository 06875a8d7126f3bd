"""The stand-in in three forms: its state alone, an application in this process, a server on real sockets."""

import asyncio
import datetime as dt
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import uvicorn

from callkeeper_sandbox.service.access import Credentials
from callkeeper_sandbox.service.effects import happen_now
from callkeeper_sandbox.service.server import address, bind, create_app, create_server, serve
from callkeeper_sandbox.service.service import Sandbox
from callkeeper_sandbox.service.state import Call, Happening, Kind
from callkeeper_sandbox.service.world import World

KEY = "cu-1"
PHONE = "5550100001"
START = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
CREDENTIALS = Credentials()
TLS = ssl.create_default_context()
"""All stages share one: reading the system's certificates takes longer than most tests."""

LOGIN = {"email": CREDENTIALS.email, "password": CREDENTIALS.password}


class HandClock:
    """A clock that tests move by hand, with a monotonic clock and a sleep that agree with it."""

    def __init__(self, now: dt.datetime = START) -> None:
        self.now = now

    def __call__(self) -> dt.datetime:
        """Return the present."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self.now += dt.timedelta(seconds=seconds)

    def monotonic(self) -> float:
        """Return the seconds since the start."""
        return (self.now - START).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Move the clock instead of waiting."""
        self.advance(seconds)
        await asyncio.sleep(0)


class Stage:
    """A stand-in in this process with one institution, one member and a hand-moved clock."""

    def __init__(self, push_transport: httpx.AsyncBaseTransport | None = None, clock: HandClock | None = None) -> None:
        self.clock = HandClock() if clock is None else clock
        self.world = World(self.clock)
        self.sandbox = Sandbox(
            self.world,
            client=httpx.AsyncClient(transport=push_transport or httpx.AsyncHTTPTransport(verify=TLS)),
            monotonic=self.clock.monotonic,
            sleep=self.clock.sleep,
        )
        self.world.add_institution(KEY, "First Example Credit Union")
        self.world.add_member(KEY, "p-1", [PHONE], first_name="Ada", last_name="Example")

    def call(self, *script: Happening, phone_number: str = PHONE, key: str = KEY, **more: Any) -> Call:
        """Start a call, now."""
        return self.sandbox.start_call(key, phone_number, script, **more)

    def other_member(self, n: int) -> str:
        """Add a member, ``p-`` and a number above 50, and return their phone number.

        Calls at the same time that are verified as one member ask a person; tests of other things need several members.
        """
        phone_number = f"55502{n:05}"
        self.world.add_member(KEY, f"p-{n + 50}", [phone_number])
        return phone_number

    def happen(self, call: Call, kind: Kind, text: str | None = None, person_id: str | None = None) -> None:
        """Let something happen to a call, now."""
        happen_now(self.world, call, Happening(kind, 0, text, person_id))

    def begin_now(self) -> None:
        """Set the clock to the real time, for tests whose commands read the same Redis by the real clock."""
        self.clock.now = dt.datetime.now(dt.UTC)

    def advance(self, seconds: float) -> None:
        """Move the clock; everything that is due happens."""
        self.clock.advance(seconds)
        self.sandbox.tick()


class Asgi(Stage):
    """A stage with an HTTP client that reaches it in this process."""

    def __init__(self, push_transport: httpx.AsyncBaseTransport | None = None, clock: HandClock | None = None) -> None:
        super().__init__(push_transport, clock)
        self.headers: dict[str, str] | None = None
        self.app = create_app(self.sandbox)
        self.transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=self.transport, base_url="http://sandbox")

    async def login(self, key: str = KEY, by: str = "bot") -> dict[str, str]:
        """Log in and return the headers of a service-account request."""
        answer = await self.client.post(
            "/external/token/request", json=LOGIN, headers={"accessToken": CREDENTIALS.access_token}
        )
        return {"SsoToken": answer.json()["token"], "InstitutionKey": key, "RequestedBy": by}

    async def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Send a request to `/external` as the service account, logged in once, and return its JSON."""
        if self.headers is None:
            self.headers = await self.login()
        answer = await self.client.request(
            method, f"/external{path}", json=body, params=_params(query), headers=self.headers
        )
        return answer.json()

    async def details(self, voice_id: str, *, check: bool = False) -> Any:
        """Read a call's details."""
        return await self.ask("GET", f"/calls/{voice_id}/details", checkVoiceAuthentication=check)

    async def queue(self, **query: object) -> list[Any]:
        """Return the entries of the first page of the queue."""
        answer = await self.ask("GET", "/calls/queue", **{"continueFrom": 0, "pageSize": 100, **query})
        entries: list[Any] = answer["phoneCalls"]
        return entries

    async def enroll(self, voice_id: str, person_id: str = "p-1", **more: object) -> Any:
        """Enroll a caller."""
        body = {"personId": person_id, "validationType": "KnowledgeBasedAuth", **more}
        return await self.ask("POST", f"/calls/{voice_id}/enroll", body)


class ServedSandbox:
    """A stand-in on a free port of this machine, in a thread, with real time.

    Attributes:
        url: Its base address.
        credentials: What logs in.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.credentials = CREDENTIALS
        self._http = httpx.Client(base_url=url, verify=TLS, trust_env=False, timeout=10)

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Send a control request (`path` is relative to /control) and return its JSON.

        Raises:
            httpx.HTTPStatusError: The request cannot be carried out.
        """
        response = self._http.request(method, f"/control{path}", json=body)
        response.raise_for_status()
        return response.json()

    def call(self, phone_number: str = PHONE, script: tuple[dict[str, object], ...] = (), **more: Any) -> Any:
        """Start a call and return its account."""
        body = {"institution_key": KEY, "phone_number": phone_number, "script": script, **more}
        return self.control("POST", "/calls", body)

    def fault(self, target: str, action: str = "pass", **more: Any) -> None:
        """Add a fault."""
        self.control("POST", "/faults", {"target": target, "action": action, **more})

    def tally(self, voice_id: str) -> Any:
        """Return a call's requests by operation: how many arrived, were authenticated, were applied."""
        return self.control("GET", f"/calls/{voice_id}")["tally"]

    def close(self) -> None:
        """Close the control client."""
        self._http.close()


def _params(query: dict[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}


@pytest.fixture
def sandbox_world() -> Stage:
    """Return a world in this process, with a hand-moved clock."""
    return Stage()


@pytest.fixture
async def sandbox_asgi() -> AsyncIterator[Asgi]:
    """Return the stand-in as an ASGI app, with a client that reaches it in this process."""
    stage = Asgi()
    async with stage.client, stage.sandbox.client:
        yield stage


@pytest.fixture
def begun_now(sandbox_asgi: Asgi) -> None:
    """Set the stand-in's clock to the real time, for commands and pages that read the same Redis by the real clock."""
    sandbox_asgi.begin_now()


@pytest.fixture
def sandbox_server() -> Iterator[ServedSandbox]:
    """Return the stand-in on real sockets: one institution, one member, no scenario."""
    with bind() as sock:
        sandbox = Sandbox(World())
        sandbox.world.add_institution(KEY, "First Example Credit Union")
        sandbox.world.add_member(KEY, "p-1", [PHONE], first_name="Ada", last_name="Example")
        server = create_server(sandbox)
        thread = threading.Thread(target=_serve, args=(server, sandbox, sock))
        thread.start()
        served = ServedSandbox(address(sock))
        try:
            yield served
        finally:
            served.close()
            server.should_exit = True
            thread.join()


def _serve(server: uvicorn.Server, sandbox: Sandbox, sock: Any) -> None:
    asyncio.run(serve(server, sandbox, sock))
