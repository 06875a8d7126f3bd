"""The watchers' login under guessing."""

from base64 import b64encode
from datetime import UTC, datetime

import httpx
import pytest
from fakeredis import FakeAsyncRedis
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.attempt_limiter import ALLOWED, AttemptLimiter
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.authorization import Gate, cookie_of
from callkeeper.desk.access.configured_logins import AdminLogin
from callkeeper.desk.access.desk_tokens import DeskTokens, IssuedToken
from callkeeper.desk.access.rights import Role
from callkeeper.service import Secret
from tests.signed_in import gate_of

LOGIN = AdminLogin("ops", Secret("the-right-password"))


def basic(password: str) -> dict[str, str]:
    """Return the header of a login."""
    return {"Authorization": "Basic " + b64encode(f"ops:{password}".encode()).decode()}


RIGHT, WRONG = basic("the-right-password"), basic("a-wrong-password")


@pytest.fixture
def limiter() -> AttemptLimiter:
    """Return what counts wrong logins."""
    return AttemptLimiter()


@pytest.fixture
def gate(log: FilteringBoundLogger, limiter: AttemptLimiter) -> Gate:
    """Return a page behind the login."""
    return gate_of(PlainTextResponse("the page"), LOGIN, log, limiter=limiter)


def browser(gate: Gate, address: str = "203.0.113.7") -> httpx.AsyncClient:
    """Return a browser at an address."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate, client=(address, 1)), base_url="https://desk")


async def guess(client: httpx.AsyncClient, times: int = ALLOWED) -> list[int]:
    """Try wrong passwords; return what was answered."""
    return [(await client.get("/", headers=WRONG)).status_code for _ in range(times)]


async def test_login_at_one_page_counts_for_all(gate: Gate, log: FilteringBoundLogger, limiter: AttemptLimiter) -> None:
    """Ten wrong passwords at one page leave none for another page of the same login."""
    other = gate_of(PlainTextResponse("other"), LOGIN, log, limiter=limiter)
    await guess(browser(gate))
    assert (await browser(other).get("/", headers=WRONG)).status_code == 429


async def test_right_login_is_let_in_after_any_number_of_wrong_ones(gate: Gate, logged: LogCapture) -> None:
    """Nobody's guesses lock the right password out. Beyond ten wrong ones are 429, and the log says so once."""
    client = browser(gate)
    assert await guess(client, ALLOWED + 5) == [401] * ALLOWED + [429] * 5
    refused = await client.get("/", headers=WRONG)
    assert int(refused.headers["retry-after"]) > 0
    assert (await client.get("/", headers=RIGHT)).status_code == 200
    assert [entry["event"] for entry in logged.entries] == ["admin_refused"] * ALLOWED + ["attempts_limited"]


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


DESKTOP = IssuedToken(name="desktop", role=Role.AGENT, issued_at=datetime(2026, 11, 21, tzinfo=UTC))
IVR = replace(DESKTOP, name="ivr", institutions=frozenset({"cu-2"}))


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (b"Bearer DESKTOP", "desktop"),
        (b"bearer  IVR ", "ivr"),
        (b"Bearer DESKTO", None),
        (b"Bearer DESKTOPx", None),
        (b"Basic DESKTOP", None),
        (b"DESKTOP", None),
        (b"Bearer", None),
        (b"", None),
        (b"Bearer \xff\xfe", None),
        (b"Bearer ckt_" + b"t" * 100_000, None),
    ],
)
async def test_token_is_recognised_by_its_whole_value(
    authorization: bytes, name: str | None, fake_redis: FakeAsyncRedis
) -> None:
    """Nothing but the scheme and the exact value lets anybody in; bytes that are no text are a stranger's, not an error."""
    tokens = DeskTokens(fake_redis, keys=Keys())
    values = {name: (await tokens.issue(token)).encode() for name, token in ((b"DESKTOP", DESKTOP), (b"IVR", IVR))}
    values[b"DESKTO"] = values[b"DESKTOP"][:-1]
    word = authorization.strip().rpartition(b" ")[2]
    offered = next((value for name, value in values.items() if name == word.removesuffix(b"x")), word)
    offered += b"x" if word.endswith(b"Px") else b""
    token = await tokens.recognise(authorization.replace(word, offered) if word else authorization)
    assert (token.name if token else None) == name


def test_token_sees_its_institutions_only() -> None:
    """A limited token sees what it names; the others see everything."""
    assert (DESKTOP.may_see("cu-1"), IVR.may_see("cu-1"), IVR.may_see("cu-2")) == (True, False, True)
