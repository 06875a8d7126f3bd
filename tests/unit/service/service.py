"""A service that lives in a transport: it hands out tokens, refuses lapsed ones, and keeps what it was sent."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from callkeeper.service import LoginPolicy, Secret, ServiceConfig, TokenStore
from callkeeper.service.client import Reseller
from callkeeper.service.endpoints import ServiceResponse
from callkeeper.service.exchange import Observe, unobserved
from tests.transports import AnnouncingTransport

Reply = Callable[[httpx.Request], httpx.Response]


def responded(status: int, content: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> ServiceResponse:
    """Return what the client makes of a response."""
    return ServiceResponse(status, httpx.Headers(headers), content)


def success(**body: object) -> httpx.Response:
    """Return an answer that succeeded."""
    return httpx.Response(200, json={"success": True, **body})


@dataclass
class Service:
    """Answers what carries a valid token; ``valid`` None means that every token is refused."""

    reply: Reply = lambda _: success()
    valid: str | None = "none yet"
    login_reply: Callable[[], httpx.Response] | None = None
    requests: list[httpx.Request] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    logins: int = 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer one request, after a turn of the loop."""
        if request.url.path == "/external/token/request":
            await asyncio.sleep(0)
            return self._login()
        self.requests.append(request)
        token = request.headers["SsoToken"]
        self.tokens.append(token)
        await asyncio.sleep(0)
        return self.reply(request) if token == self.valid else httpx.Response(401)

    def _login(self) -> httpx.Response:
        self.logins += 1
        if self.login_reply is not None:
            return self.login_reply()
        token = f"sso-{self.logins}"
        if self.valid is not None:
            self.valid = token
        return success(token=token, institutionKeys=["cu-1", f"cu-login-{self.logins}"])

    @property
    def sent(self) -> dict[str, object]:
        """The JSON body of the last request."""
        body = json.loads(self.requests[-1].content)
        assert isinstance(body, dict)
        return body


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the present."""
        return self.now


def reseller_on(
    service: Service,
    tokens: TokenStore,
    clock: Clock,
    *,
    deadline_s: float = 6.0,
    login: LoginPolicy | None = None,
    observe: Observe = unobserved,
) -> Reseller:
    """Make a client of a service in this process."""
    config = ServiceConfig(
        base_url="https://service.test",
        access_token=Secret("access-1"),
        email=Secret("bot@example.test"),
        password=Secret("pass-1"),
        deadline_s=deadline_s,
        login=LoginPolicy(poll_s=0.001) if login is None else login,
    )
    transport = AnnouncingTransport(httpx.MockTransport(service))
    return Reseller(
        config, tokens, reads_transport=transport, effects_transport=transport, clock=clock, observe=observe
    )
