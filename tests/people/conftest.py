"""A web application on a real Redis, with a person in each role."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from starlette.applications import Starlette
from structlog.typing import FilteringBoundLogger

from callkeeper.app.settings import WebSettings
from callkeeper.app.web_app import web_app
from callkeeper.calls.store.audit_log import Audited, AuditFilter, AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.authorization import SESSION
from callkeeper.desk.access.people import Account, Accounts, Sessions, id_at_provider
from callkeeper.desk.access.rights import Role
from tests.harness.desk import board_rig
from tests.kept_together import KeptTogether
from tests.longest_first import longest_first

__all__ = ["board_rig"]

LONGEST_FIRST = [
    "browser",
    "provider",
    "slow_answer_is_given_up",
    "every_role_on_every_route",
    "agent_token_expires_and_ends_its_stream",
]
"""Files and tests by how long they take."""

ISSUER = "http://127.0.0.1:1"
"""A provider that does not answer: people are logged in without it."""

METRICS_TOKEN = "canary-metrics-8c1f04d2e7-4c07a65e93d2"
PASSWORD = "canary-admin-0123456789-abcdefghij"
"""Of the emergency login."""

ADMIN = f"ops:{PASSWORD}"
ENVIRON = {
    "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-push-1f8b32d9-4c07a65e93d2",
    "CALLKEEPER_ADMIN": ADMIN,
    "CALLKEEPER_OIDC_ISSUER": ISSUER,
    "CALLKEEPER_OIDC_CLIENT_ID": "callkeeper",
    "CALLKEEPER_OIDC_CLIENT_SECRET": "canary-client-5d0b7f2c91-abcdefghij",
    "CALLKEEPER_OIDC_ROLES": "voice-admins=admin",
    "CALLKEEPER_PUBLIC_URL": "https://desk",
    "CALLKEEPER_METRICS_TOKEN": METRICS_TOKEN,
}
HTML = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    longest_first(items, LONGEST_FIRST)


@pytest.hookimpl(optionalhook=True)  # without xdist there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> KeptTogether:
    """Start the servers of a file once."""
    return KeptTogether(config, log, {"browser", "provider"})


def web_settings(redis_url: str, **more: str) -> WebSettings:
    """Load the settings of a web application."""
    return WebSettings.load({"REDIS_URL": redis_url, **ENVIRON, **more})


@dataclass
class Site:
    """A web application and its people."""

    app: Starlette
    redis: Any
    accounts: Accounts
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    async def add(self, name: str, role: Role, *institutions: str, operator: str | None = None) -> None:
        """Add a person of the identity provider."""
        account = Account(
            id=person_id(name),
            operator=name if operator is None else operator,
            role=role,
            institutions=frozenset(institutions) or None,
            changed_at=datetime.now(UTC),
        )
        await self.accounts.keep(account)

    def browser(self, address: str = "203.0.113.7") -> httpx.AsyncClient:
        """Return a browser without a session."""
        transport = httpx.ASGITransport(self.app, client=(address, 1))
        self.clients.append(httpx.AsyncClient(transport=transport, base_url="https://desk", headers=HTML))
        return self.clients[-1]

    async def log_in(self, name: str, address: str = "203.0.113.7") -> httpx.AsyncClient:
        """Return a browser with the session of a person who was added."""
        account = await self.accounts.find(person_id(name))
        assert account is not None
        browser = self.browser(address)
        browser.cookies.set(SESSION, await Sessions(self.accounts).begin(account))
        return browser

    async def log_in_as_admin(self) -> httpx.AsyncClient:
        """Return a browser in which the emergency login was used."""
        browser = self.browser()
        answer = await browser.post("/login", data={"name": "ops", "password": PASSWORD})
        assert answer.status_code == 303, answer.text
        return browser

    async def of_provider(self, subject: str) -> Account | None:
        """Return the account of a person who logged in through the identity provider."""
        return await self.accounts.find(id_at_provider(subject, self.accounts.issuer or ""))

    async def audited(self) -> list[Audited]:
        """Return the audit log, oldest entry first."""
        return (await AuditLog(self.redis, keys=Keys()).read(AuditFilter(), most=1000))[::-1]


def person_id(name: str) -> str:
    """Return the id of a person who was added."""
    return id_at_provider(name, ISSUER)


@pytest.fixture
async def site(redis: Redis, redis_url: str, log: FilteringBoundLogger) -> AsyncIterator[Site]:
    """Return a web application as production builds it, with a person in each role."""
    app = web_app(web_settings(redis_url), log)
    site = Site(app, redis, Accounts(redis, keys=Keys(), issuer=ISSUER))
    for role in Role:
        await site.add(f"some-{role}", role)
    async with app.router.lifespan_context(app):
        yield site
        for client in site.clients:
            await client.aclose()
