"""A web application on a real Redis, with a user in each role."""

import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from argon2 import PasswordHasher
from redis.asyncio import Redis
from starlette.applications import Starlette
from structlog.typing import FilteringBoundLogger

from callkeeper.app.settings import WebSettings
from callkeeper.app.web_app import web_app
from callkeeper.calls.store.audit_log import Audited, AuditFilter, AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.people import Account, Accounts
from callkeeper.desk.access.rights import Role
from tests.harness.desk import board_rig
from tests.kept_together import KeptTogether
from tests.longest_first import longest_first

__all__ = ["board_rig"]

LONGEST_FIRST = [
    "browser",
    "provider",
    "users_are_added_changed_and_removed",
    "slow_answer_is_given_up",
    "every_role_on_every_route",
    "agent_token_expires_and_ends_its_stream",
]
"""Files and tests by how long they take."""

PASSWORD = "canary-Tulpe-Wagen-83"
CHEAP = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(PASSWORD)
"""A hash with low cost parameters, so that it is checked quickly."""

METRICS_TOKEN = "canary-metrics-8c1f04d2e7"
ADMIN = "ops:canary-admin-0123456"
ENVIRON = {
    "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-push-1f8b32d9",
    "CALLKEEPER_ADMIN": ADMIN,
    "CALLKEEPER_LOCAL_USERS": "yes",
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


@functools.cache
def web_settings(redis_url: str, **more: str) -> WebSettings:
    """Load the settings of a web application. How strong a secret is takes long to judge: each set is read once."""
    return WebSettings.load({"REDIS_URL": redis_url, **ENVIRON, **more})


@dataclass
class Site:
    """A web application and its users."""

    app: Starlette
    redis: Any
    accounts: Accounts
    clients: list[httpx.AsyncClient] = field(default_factory=list)

    async def add(self, name: str, role: Role, *institutions: str, operator: str | None = None) -> None:
        """Add a user with the password `PASSWORD`."""
        account = Account(
            id=name,
            operator=name if operator is None else operator,
            role=role,
            institutions=frozenset(institutions) or None,
            password=CHEAP,
            changed_at=datetime.now(UTC),
        )
        await self.accounts.keep(account)

    def browser(self, address: str = "203.0.113.7") -> httpx.AsyncClient:
        """Return a browser without a session."""
        transport = httpx.ASGITransport(self.app, client=(address, 1))
        self.clients.append(httpx.AsyncClient(transport=transport, base_url="https://desk", headers=HTML))
        return self.clients[-1]

    async def log_in(self, name: str, password: str = PASSWORD, **more: str) -> httpx.AsyncClient:
        """Return a browser in which this user has logged in."""
        browser = self.browser()
        answer = await browser.post("/login", data={"name": name, "password": password, **more})
        assert answer.status_code == 303, answer.text
        return browser

    async def of_provider(self, subject: str) -> Account | None:
        """Return the account of a person who logged in through the identity provider."""
        known = await self.accounts.known()
        found = [account.id for account in known if account.id.startswith(f"oidc:{subject}@")]
        return await self.accounts.find(found[0]) if found else None

    async def audited(self) -> list[Audited]:
        """Return the audit log, oldest entry first."""
        return (await AuditLog(self.redis, keys=Keys()).read(AuditFilter(), most=1000))[::-1]


@pytest.fixture
async def site(redis: Redis, redis_url: str, log: FilteringBoundLogger) -> AsyncIterator[Site]:
    """Return a web application as production builds it, with a user in each role."""
    app = web_app(web_settings(redis_url), log)
    site = Site(app, redis, Accounts(redis, keys=Keys()))
    for role in Role:
        await site.add(f"some-{role}", role)
    async with app.router.lifespan_context(app):
        yield site
        for client in site.clients:
            await client.aclose()
