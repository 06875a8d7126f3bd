"""The watchers' login under guessing."""

import time
from base64 import b64encode

import httpx
import pytest
from fakeredis import FakeAsyncRedis
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.attempt_limiter import ALLOWED, LoginLimiter
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.authorization import KNOWN_S, RENEWED_S, Gate, cookie_of
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.desk.access.desk_tokens import DeskToken, DeskTokens
from callkeeper.desk.signed_tokens import Signer
from callkeeper.service import Secret
from tests.signed_in import gate_of

LOGIN = AdminLogin("ops", Secret("the-right-password"))


def basic(password: str) -> dict[str, str]:
    """Return the header of a login."""
    return {"Authorization": "Basic " + b64encode(f"ops:{password}".encode()).decode()}


RIGHT, WRONG = basic("the-right-password"), basic("a-wrong-password")


@pytest.fixture
def gate(log: FilteringBoundLogger, login_limiter: LoginLimiter) -> Gate:
    """Return a page behind the login."""
    return gate_of(PlainTextResponse("the page"), LOGIN, log, limiter=login_limiter)


def browser(gate: Gate, address: str = "203.0.113.7") -> httpx.AsyncClient:
    """Return a browser at an address."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate, client=(address, 1)), base_url="https://desk")


async def guess(client: httpx.AsyncClient, times: int = ALLOWED) -> list[int]:
    """Try wrong passwords; return what was answered."""
    return [(await client.get("/", headers=WRONG)).status_code for _ in range(times)]


async def test_login_at_one_page_counts_for_all(
    gate: Gate, log: FilteringBoundLogger, login_limiter: LoginLimiter
) -> None:
    """Ten wrong passwords at one page leave none for another page of the same login."""
    other = gate_of(PlainTextResponse("other"), LOGIN, log, limiter=login_limiter)
    await guess(browser(gate))
    assert (await browser(other).get("/", headers=WRONG)).status_code == 429


async def test_login_is_not_looked_at_after_too_many_wrong_ones(gate: Gate, logged: LogCapture) -> None:
    """After ten wrong passwords even the right one is 429: a guesser learns nothing. The log holds ten lines, and one."""
    client = browser(gate)
    assert await guess(client, ALLOWED + 5) == [401] * ALLOWED + [429] * 5
    answer = await client.get("/", headers=RIGHT)
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0
    assert [entry["event"] for entry in logged.entries] == ["admin_refused"] * ALLOWED + ["attempts_limited"]


async def test_login_of_others_stays_open(gate: Gate) -> None:
    """Wrong passwords from one address cost another one nothing."""
    await guess(browser(gate), ALLOWED)
    assert (await browser(gate, "203.0.113.8").get("/", headers=RIGHT)).status_code == 200


async def test_login_of_a_known_browser_stays_open(gate: Gate) -> None:
    """A browser that was in once is counted by itself: a stranger behind the same router cannot lock it out."""
    known = browser(gate)
    assert (await known.get("/", headers=RIGHT)).status_code == 200
    await guess(browser(gate), ALLOWED)
    assert (await known.get("/", headers=RIGHT)).status_code == 200
    assert (await browser(gate).get("/", headers=RIGHT)).status_code == 429


async def test_mark_of_a_known_browser_opens_nothing(gate: Gate) -> None:
    """The mark is no login, can be read by no script, goes to no other site, and bears no more guesses than an address."""
    known = browser(gate)
    cookie = (await known.get("/", headers=RIGHT)).headers["set-cookie"]
    assert all(word in cookie for word in ("__Host-", "Secure", "HttpOnly", "SameSite=Strict", "Path=/"))
    assert (await known.get("/")).status_code == 401
    assert await guess(known, ALLOWED + 1) == [401] * ALLOWED + [429]


async def test_login_of_a_known_browser_is_renewed(gate: Gate, login_limiter: LoginLimiter) -> None:
    """A browser gets no new cookie with every answer; one whose cookie is an hour old gets a new one."""
    known = browser(gate)
    await known.get("/", headers=RIGHT)
    assert "set-cookie" not in (await known.get("/", headers=RIGHT)).headers
    issued_at = int(time.time()) - RENEWED_S - 1
    older = Signer(LOGIN.key_for("known browsers"), valid_s=KNOWN_S, now=lambda: issued_at).issue()
    answer = await browser(gate).get("/", headers={**RIGHT, "Cookie": f"__Host-callkeeper-known={older}"})
    assert "set-cookie" in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "dest", "status"),
    [
        ("navigate", "document", 200),
        ("navigate", "iframe", 403),
        ("no-cors", "image", 403),
        ("no-cors", "empty", 403),
        ("cors", "empty", 403),
        ("websocket", "empty", 403),
    ],
)
async def test_pages_of_other_sites_may_link_and_nothing_else(
    site: str, mode: str, dest: str, status: int, gate: Gate
) -> None:
    """Another site may lead a watcher to a page; it can embed nothing and ask for nothing in the background."""
    asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    assert (await browser(gate).get("/", headers=RIGHT | asked)).status_code == status


async def test_login_counts_guesses_only(gate: Gate, logged: LogCapture) -> None:
    """A browser that has not asked yet guesses nothing: it is never limited, and does not fill the log either."""
    client = browser(gate)
    assert {(await client.get("/")).status_code for _ in range(ALLOWED + 20)} == {401}
    assert (await client.get("/", headers=RIGHT)).status_code == 200
    assert len(logged.entries) == ALLOWED


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("other=1; wanted=a=b", "a=b"),
        ("wanted=first; wanted=second", "first"),
        (r'wanted="\"', r'"\"'),
        ("unwanted=1", ""),
        ("wanted", ""),
    ],
)
def test_cookie_is_read_as_it_was_sent(header: str, value: str) -> None:
    """A cookie's text is not decoded, because a decoder may take very long for a long one with many backslashes."""
    request = Request({"type": "http", "headers": [(b"cookie", header.encode())]})
    assert cookie_of(request, "wanted") == value


DESKTOP = DeskToken(name="desktop", secret=Secret("token-0123456789"))
IVR = DeskToken(name="ivr", secret=Secret("other-0123456789"), institutions=frozenset({"cu-2"}))


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (b"Bearer token-0123456789", "desktop"),
        (b"bearer  other-0123456789 ", "ivr"),
        (b"Bearer token-012345678", None),
        (b"Bearer token-01234567890", None),
        (b"Basic token-0123456789", None),
        (b"token-0123456789", None),
        (b"Bearer", None),
        (b"", None),
        (b"Bearer \xff\xfe", None),
        (b"Bearer " + b"t" * 100_000, None),
    ],
)
async def test_token_is_recognised_by_its_whole_value(
    authorization: bytes, name: str | None, fake_redis: FakeAsyncRedis
) -> None:
    """Nothing but the scheme and the exact value lets anybody in; bytes that are no text are a stranger's, not an error."""
    token = await DeskTokens([DESKTOP, IVR], fake_redis, keys=Keys()).recognise(authorization)
    assert (token.name if token else None) == name


def test_token_sees_its_institutions_only() -> None:
    """A limited token sees what it names; the others see everything."""
    assert (DESKTOP.may_see("cu-1"), IVR.may_see("cu-1"), IVR.may_see("cu-2")) == (True, False, True)
