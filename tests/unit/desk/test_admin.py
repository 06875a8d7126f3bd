"""The watchers' login under guessing."""

from base64 import b64encode

import httpx
import pytest
from starlette.responses import PlainTextResponse
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from calls.strangers import HEARD, Strangers
from desk.admin import AdminOnly, Login
from reseller.secret import Secret

LOGIN = Login("ops", Secret("the-right-password"))


def basic(password: str) -> dict[str, str]:
    """Return the header of a login."""
    return {"Authorization": "Basic " + b64encode(f"ops:{password}".encode()).decode()}


RIGHT, WRONG = basic("the-right-password"), basic("a-wrong-password")


@pytest.fixture
def gate(log: FilteringBoundLogger) -> AdminOnly:
    """Return a page behind the login."""
    return AdminOnly(PlainTextResponse("the page"), LOGIN, log, strangers=Strangers(now=lambda: 1000.0))


def browser(gate: AdminOnly, address: str = "203.0.113.7") -> httpx.AsyncClient:
    """Return a browser at an address."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate, client=(address, 1)), base_url="https://desk")


async def guess(client: httpx.AsyncClient, times: int = HEARD) -> list[int]:
    """Try wrong passwords; return what was answered."""
    return [(await client.get("/", headers=WRONG)).status_code for _ in range(times)]


async def test_login_is_not_looked_at_after_too_many_wrong_ones(gate: AdminOnly, logged: LogCapture) -> None:
    """After ten wrong passwords even the right one is 429: a guesser learns nothing. The log holds ten lines, and one."""
    client = browser(gate)
    assert await guess(client, HEARD + 5) == [401] * HEARD + [429] * 5
    answer = await client.get("/", headers=RIGHT)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert [entry["event"] for entry in logged.entries] == ["admin_refused"] * HEARD + ["strangers_ignored"]


async def test_login_of_others_stays_open(gate: AdminOnly) -> None:
    """Wrong passwords from one address cost another one nothing."""
    await guess(browser(gate), HEARD)
    assert (await browser(gate, "203.0.113.8").get("/", headers=RIGHT)).status_code == 200


async def test_login_of_a_known_browser_stays_open(gate: AdminOnly) -> None:
    """A browser that was in once is counted by itself: a stranger behind the same router cannot lock it out."""
    known = browser(gate)
    assert (await known.get("/", headers=RIGHT)).status_code == 200
    await guess(browser(gate), HEARD)
    assert (await known.get("/", headers=RIGHT)).status_code == 200
    assert (await browser(gate).get("/", headers=RIGHT)).status_code == 429


async def test_mark_of_a_known_browser_opens_nothing(gate: AdminOnly) -> None:
    """The mark is no login, can be read by no script, goes to no other site, and bears no more guesses than an address."""
    known = browser(gate)
    cookie = (await known.get("/", headers=RIGHT)).headers["set-cookie"]
    assert all(word in cookie for word in ("__Host-", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"))
    assert (await known.get("/")).status_code == 401
    assert await guess(known, HEARD + 1) == [401] * HEARD + [429]


async def test_login_counts_guesses_only(gate: AdminOnly, logged: LogCapture) -> None:
    """A browser that has not asked yet guesses nothing: it is never barred, and does not fill the log either."""
    client = browser(gate)
    assert {(await client.get("/")).status_code for _ in range(HEARD + 20)} == {401}
    assert (await client.get("/", headers=RIGHT)).status_code == 200
    assert len(logged.entries) == HEARD + 1
