"""People over HTTP on a real Redis: sessions, roles on every route, institutions, the audit log, the emergency login."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from flask import Flask
from redis import Redis as BlockingRedis
from rq_dashboard.web import blueprint
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route
from structlog.typing import FilteringBoundLogger

from callkeeper.app.web_app import web_app
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import parse_note
from callkeeper.calls.record import Call
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.attempt_limiter import ALLOWED, EVERY_S
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access import access_changes
from callkeeper.desk.access.authorization import SESSION, forms_of
from callkeeper.desk.access.people import IDLE, Sessions
from callkeeper.desk.access.required_roles import RULES, rule_of
from callkeeper.desk.access.rights import Role
from callkeeper.desk.access.visitor import Visitor
from callkeeper.desk.board.login_page import is_ours
from tests.people.conftest import HTML, METRICS_TOKEN, PASSWORD, Site, person_id, web_settings


def form_token(page: str) -> str:
    """Return the form token of a page."""
    return str(re.findall(r'name="form_token" value="([^"]+)"', page)[0])


# Logging in and out


async def test_person_logs_in_and_out(site: Site) -> None:
    """Without a session a page redirects to the login and back; logging out ends the session at the server."""
    browser = site.browser()
    asked = await browser.get("/board/pausing?resume=cu-1")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Fboard%2Fpausing%3Fresume%3Dcu-1")
    page = (await browser.get(asked.headers["location"])).text
    assert 'value="/board/pausing?resume=cu-1"' in page
    wanted = {"name": "ops", "password": PASSWORD, "next": "/board/pausing?resume=cu-1"}
    answer = await browser.post("/login", data=wanted)
    assert (answer.status_code, answer.headers["location"]) == (303, "/board/pausing?resume=cu-1")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in (f"{SESSION}=", "Secure", "HttpOnly", "SameSite=Lax", "Path=/"))
    board = (await browser.get("/board")).text
    assert "ops" in board
    value = browser.cookies[SESSION]
    assert (await browser.post("/logout", data={"form_token": "x"})).status_code == 403
    assert (await browser.post("/logout", data={"form_token": form_token(board)})).status_code == 200
    kept = site.browser()
    assert (await kept.get("/board", headers={"Cookie": f"{SESSION}={value}"})).status_code == 303
    told = [("emergency_login", True), ("login", True), ("viewed", False), ("denied", True), ("logout", False)]
    assert [(one.entry.event, bool(one.entry.origin)) for one in await site.audited()] == told, "with an address"


async def test_session_is_new_at_every_login(site: Site) -> None:
    """A login opens a new session, and one that an attacker planted in the browser is invalid afterwards."""
    attacker = await site.log_in("some-viewer")
    planted = attacker.cookies[SESSION]
    victim = site.browser()
    for cookie in (planted, "planted-by-somebody"):
        answer = await victim.post(
            "/login", data={"name": "ops", "password": PASSWORD}, headers={"Cookie": f"{SESSION}={cookie}"}
        )
        assert answer.status_code == 303
        assert f"{SESSION}={cookie}" not in answer.headers["set-cookie"]
        assert (await site.browser().get("/board", headers={"Cookie": f"{SESSION}={cookie}"})).status_code == 303


@pytest.mark.parametrize("change", ["removed", "role"])
async def test_session_ends_if_its_account_changes(change: str, site: Site) -> None:
    """Removing a person, or changing their role, ends every session of theirs at once."""
    browser = await site.log_in("some-admin")
    assert (await browser.get("/board/audit")).status_code == 200
    if change == "removed":
        await site.accounts.remove(person_id("some-admin"))
    else:
        await site.add("some-admin", Role.VIEWER)
    assert (await browser.get("/board/audit")).status_code == 303


async def test_session_lasts_while_it_is_used(site: Site) -> None:
    """Each request renews a session for half an hour, and twelve hours end it."""
    browser = await site.log_in("some-agent")
    [key] = [key async for key in site.redis.scan_iter(match="ck:2:session:*")]
    await site.redis.pexpire(key, 5000)
    assert (await browser.get("/board")).status_code == 200
    assert await site.redis.pttl(key) > (IDLE - timedelta(seconds=60)).total_seconds() * 1000
    stored = (await site.redis.get(key)).decode()
    began = datetime.now(UTC) - timedelta(hours=12, seconds=1)
    await site.redis.set(key, re.sub(r'"began_at":"[^"]+"', f'"began_at":"{began.isoformat()}"', stored), ex=60)
    assert (await browser.get("/board")).status_code == 303


async def test_open_stream_renews_the_session_and_ends_with_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall display that only follows the stream stays logged in. It ends when its account is removed, though silent."""
    account = await site.accounts.find(person_id("some-viewer"))
    assert account is not None
    sessions = Sessions(site.accounts)
    cookie = await sessions.begin(account)
    visitor = Visitor(account.person, forms_of(cookie), cookie, sessions)
    [key] = [key async for key in site.redis.scan_iter(match="ck:2:session:*")]
    await site.redis.pexpire(key, 5000)
    is_closed = asyncio.Event()

    async def events() -> AsyncGenerator[bytes]:
        try:
            yield b"event"
            await asyncio.Event().wait()
        finally:
            is_closed.set()

    monkeypatch.setattr(access_changes, "RENEWED_EVERY_S", 0.0)
    changes = access_changes.AccessChanges(site.redis, keys=site.accounts.keys)
    followed = changes.while_admitted(events(), visitor.is_still_here)
    assert await anext(followed) == b"event"
    assert await site.redis.pttl(key) > (IDLE - timedelta(seconds=60)).total_seconds() * 1000
    monkeypatch.setattr(access_changes, "RENEWED_EVERY_S", 3600.0)
    await site.accounts.remove(person_id("some-viewer"))
    assert [event async for event in followed] == []
    await asyncio.wait_for(is_closed.wait(), 5)


@pytest.mark.parametrize("change", ["removed", "role", "logout", "redis emptied"])
async def test_every_change_of_access_is_noticed_by_open_streams(change: str, site: Site) -> None:
    """A removal, another role, a logout and an emptied Redis are looked at without waiting for the next renewal."""
    changes = access_changes.AccessChanges(site.redis, keys=site.accounts.keys)
    account = await site.accounts.find(person_id("some-agent"))
    assert account is not None
    cookie = await Sessions(site.accounts).begin(account)
    before = await changes.count()
    match change:
        case "removed":
            await site.accounts.remove(person_id("some-agent"))
        case "role":
            await site.add("some-agent", Role.VIEWER)
        case "logout":
            await Sessions(site.accounts).end(cookie)
        case _:
            await site.redis.flushall()
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s:
        if await changes.count() != before:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the change was not noticed")


async def test_redis_holds_neither_cookies_nor_passwords(site: Site, redis_url: str) -> None:
    """Redis has no cookie and no password in plain text."""
    browser = await site.log_in_as_admin()
    with BlockingRedis.from_url(redis_url) as redis:
        stored = b"".join(redis.dump(key) or b"" for key in redis.scan_iter())
        keys = b"".join(redis.scan_iter())
    for secret in (browser.cookies[SESSION], PASSWORD):
        assert secret.encode() not in stored + keys


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/board",
        "//evil.example",
        "/\\evil.example",
        "/board//evil.example",
        "/board\\evil.example",
        "/boardx",
        "/board@evil.example",
        "javascript:alert(1)",
        "/login",
        "/push",
        "/board/\r\nSet-Cookie: a=b",
        "/board\t/x",
        " /board",
        "/rq//evil",
        "",
    ],
)
async def test_login_redirects_to_our_own_pages_only(address: str, site: Site) -> None:
    """After a login a foreign or odd ``next`` address leads to the board."""
    assert not is_ours(address)
    browser = site.browser()
    answer = await browser.post("/login", data={"name": "ops", "password": PASSWORD, "next": address})
    assert (answer.status_code, answer.headers["location"]) == (303, "/board")


# Wrong guesses


async def test_guesses_lock_nobody_out(site: Site) -> None:
    """After ten wrong passwords further ones get 429; the right one, open sessions and scrapes are not affected."""
    inside = await site.log_in("some-agent")
    guesser = site.browser()
    wrong = {"name": "ops", "password": "wrong-guess"}
    began_s, looked_at = time.monotonic(), 0
    while (await guesser.post("/login", data=wrong)).status_code == 401:
        looked_at += 1
    assert ALLOWED <= looked_at <= ALLOWED + (time.monotonic() - began_s) / EVERY_S + 1
    assert (await guesser.get("/board", auth=("ops", "wrong"))).status_code == 429
    assert (await inside.get("/board")).status_code == 200
    scrape = {"Authorization": f"Bearer {METRICS_TOKEN}"}
    assert (await guesser.get("/metrics", headers=scrape)).status_code == 200
    assert (await guesser.get("/board", headers=scrape)).status_code == 429
    assert (await guesser.post("/login", data={**wrong, "password": PASSWORD})).status_code == 303


@pytest.mark.parametrize("more", ["role=admin", "name=ops", "form_token=x"])
async def test_login_has_no_other_fields(more: str, site: Site) -> None:
    """A login with a field that its form does not have, or with one twice, is refused although the password is right."""
    content = f"name=ops&password={PASSWORD}&{more}"
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for path in ("/login", "/logout"):
        answer = await site.browser().post(path, content=content, headers=form)
        assert (answer.status_code, "set-cookie" in answer.headers) == (400, False)


async def test_login_from_another_site_is_refused(site: Site) -> None:
    """A login that another site posts is refused."""
    answer = await site.browser().post(
        "/login", data={"name": "ops", "password": PASSWORD}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


async def test_form_token_of_another_session_is_worthless(site: Site) -> None:
    """A form token is accepted only in the session for which it was written."""
    theirs = form_token((await (await site.log_in("some-supervisor")).get("/board/pausing")).text)
    browser = await site.log_in("some-supervisor")
    fields = {"form_token": theirs, "scope": "all", "institution": "*", "because": "x"}
    assert (await browser.post("/board/pause", data=fields)).status_code == 403
    fields["form_token"] = form_token((await browser.get("/board/pausing")).text)
    assert (await browser.post("/board/pause", data=fields)).status_code == 303


# The emergency login


async def test_emergency_login_is_reported(site: Site) -> None:
    """The login of CALLKEEPER_ADMIN works, and the board and the audit log say that it was used."""
    calm = await (await site.log_in("some-viewer")).get("/board")
    assert "emergency" not in calm.text
    await site.log_in_as_admin()
    assert (await site.browser().get("/board", auth=("ops", PASSWORD))).status_code == 200
    assert "The emergency login was used" in (await (await site.log_in("some-viewer")).get("/board")).text
    events = [entry.entry for entry in await site.audited() if entry.entry.event is AuditEvent.EMERGENCY_LOGIN]
    assert [entry.who for entry in events] == ["shared:ops"]


SAID = {"person_id": "p-1", "validation_type": "Other", "notes": "asked her for the last payment"}


async def known_call(site: Site) -> CallId:
    """Store the record of a call."""
    call = CallId("cu-1", "v-1")
    await site.redis.hset(Keys().item(call.member), "rec", encode_call(Call(institution_key="cu-1", voice_id="v-1")))
    return call


async def test_word_under_the_emergency_login_names_who_says_it_and_why(site: Site) -> None:
    """Without both nothing is said. The statement has the name, and the audit log the name and the reason."""
    call, address = await known_call(site), "/board/calls/cu-1/v-1"
    cookie = await site.log_in_as_admin()
    header = site.browser()
    header.auth = ("ops", PASSWORD)
    for browser in (cookie, header):
        page = (await browser.get(address)).text
        assert 'name="said_by"' in page
        token = {"form_token": form_token(page)}
        for more in ({}, {"said_by": "lead-1"}, {"said_because": "x"}, {"said_by": "J\u00f6rg", "said_because": "x"}):
            refused = await browser.post(f"{address}/verified", data=token | SAID | more)
            assert (refused.status_code, "why you use the emergency login" in refused.text) == (400, True)
        assert await site.redis.hlen(Keys().inbox(call.member)) == 0
        named = {"said_by": "lead-1", "said_because": "no provider"}
        assert (await browser.post(f"{address}/verified", data=token | SAID | named)).status_code == 303
        notes = [parse_note(stored) for stored in await site.redis.hvals(Keys().inbox(call.member))]
        assert {getattr(note, "operator", "") for note in notes} == {"lead-1"}
        last = (await site.audited())[-1].entry
        assert (last.event, last.who, last.operator) == ("said", "shared:ops", "lead-1")
        assert last.detail == "verified; no provider"
        await site.redis.delete(Keys().inbox(call.member))


async def test_nobody_else_speaks_in_another_s_name(site: Site) -> None:
    """Who is logged in by name has no such field, so a form that has it is refused."""
    await known_call(site)
    browser = await site.log_in("some-agent")
    page = (await browser.get("/board/calls/cu-1/v-1")).text
    assert 'name="said_by"' not in page
    data = {"form_token": form_token(page), **SAID, "said_by": "lead-1", "said_because": "x"}
    refused = await browser.post("/board/calls/cu-1/v-1/verified", data=data)
    assert (refused.status_code, "no field said_b" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("client", "host", "more", "is_free"),
    [
        ("127.0.0.1", "127.0.0.1:8000", {}, True),
        ("::1", "localhost:8000", {}, True),
        ("127.0.0.1", "desk.example", {}, False),
        ("203.0.113.7", "localhost", {}, False),
        ("127.0.0.1", "localhost", {"X-Forwarded-For": "203.0.113.7"}, False),
    ],
)
async def test_demo_on_this_machine_is_free_of_that(
    client: str, host: str, more: dict[str, str], is_free: bool, site: Site
) -> None:
    """On loopback, and through no router, the login of CALLKEEPER_ADMIN alarms nobody and asks for no name."""
    await known_call(site)
    transport = httpx.ASGITransport(site.app, client=(client, 1))
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}", headers=HTML | more) as browser:
        page = (await browser.get("/board/calls/cu-1/v-1", auth=("ops", PASSWORD))).text
    event = AuditEvent.LOGIN if is_free else AuditEvent.EMERGENCY_LOGIN
    assert ('name="said_by"' in page, (await site.audited())[0].entry.event) == (not is_free, event)


# Roles


METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


def every_route(app: Starlette) -> Iterator[tuple[str, str]]:
    """Yield every method and path that the application serves, with sample values in the path."""
    yield from _routes(app.routes, "")
    yield from _dashboard_rules()


def _dashboard_rules() -> Iterator[tuple[str, str]]:
    flask = Flask("rq")
    flask.register_blueprint(blueprint)
    for rule in flask.url_map.iter_rules():
        path = re.sub(r"<[^>]+>", "1", rule.rule)
        for method in (rule.methods or set()) & set(METHODS):
            yield method, f"/rq{path}"


def _routes(routes: list[BaseRoute], prefix: str) -> Iterator[tuple[str, str]]:
    for route in routes:
        inner: Any = getattr(route, "app", None)
        while inner is not None and not hasattr(inner, "routes") and hasattr(inner, "_app"):
            inner = inner._app
        if isinstance(route, Mount) and route.path == "/rq":
            continue
        if hasattr(inner, "routes"):
            yield from _routes(inner.routes, prefix + (route.path if isinstance(route, Mount) else ""))
        elif isinstance(route, Route):
            path = prefix + re.sub(r"{[^}]+}", "x1", route.path)
            for method in (route.methods or {"GET"}) & set(METHODS):
                yield method, path


OPEN = {
    "/push",
    "/healthz",
    "/readyz",
    "/",
    "/rq",
    "/login",
    "/login/provider",
    "/login/callback",
    "/logout",
}
"""Paths without a role: they have their own credentials, or show nothing."""


def test_every_route_is_in_the_table(site_routes: list[tuple[str, str]]) -> None:
    """Every route is in the table of roles, except those in `OPEN`."""
    assert len(site_routes) > 50
    unnamed = {
        (method, path) for method, path in site_routes if path not in OPEN and rule_of(method, path)[0] not in RULES
    }
    assert unnamed == set()


@pytest.fixture
def site_routes(redis_url: str, log: FilteringBoundLogger) -> list[tuple[str, str]]:
    """Return every route of the application."""
    app = web_app(web_settings(redis_url), log)
    return sorted(set(every_route(app)))


async def decided(browser: httpx.AsyncClient, method: str, path: str, accept: str = "*/*") -> httpx.Response:
    """Send a request and return its answer.

    If Redis has not answered within a second, as on a busy machine, the application answers 503: ask again.
    """
    while True:
        answer = await browser.request(method, path, headers={"Accept": accept})
        if answer.status_code != 503 or "Redis does not answer" not in answer.text:
            return answer


async def test_denied_page_leads_back_to_the_board(site: Site) -> None:
    """Whoever opens an address that is not for their role reads why, and finds the way back. Programs get plain text."""
    agent = await site.log_in("some-agent")
    page = await decided(agent, "GET", "/board/audit", accept="text/html")
    assert (page.status_code, "Your role, agent, does not include this." in page.text) == (403, True)
    assert 'href="/board">Back to the board' in page.text
    assert "<" not in (await decided(agent, "GET", "/board/audit")).text


async def test_every_role_on_every_route(site: Site) -> None:
    """Every role gets 403 on exactly the routes that the table denies; without a session there is a login or 401."""
    people = {role: await site.log_in(f"some-{role}") for role in Role}
    stranger = site.browser()
    asked = 0
    for path in sorted({path for _, path in every_route(site.app)} - OPEN):
        if path.startswith("/desk") or path.endswith("/stream"):
            continue
        for method in METHODS:
            needed = rule_of(method, path)[0].role
            for role, browser in people.items():
                answer = await decided(browser, method, path)
                is_denied = answer.status_code == 403 and ", does not include this." in answer.text
                assert is_denied is (needed is not None and not role.includes(needed)), (
                    role,
                    method,
                    path,
                    answer.status_code,
                )
                asked += 1
            status = (await decided(stranger, method, path)).status_code
            assert (status in {303, 401}) is (needed is not None), (method, path, status)
    assert asked > 500


EXPECTED = {
    Role.VIEWER: {
        "/board",
        "/board/calls",
        "/board/operations",
        "/board/plots",
        "/board/rules",
        "/metrics",
    },
    Role.AGENT: {"/board/pausing", "/board/outcomes"},
    Role.SUPERVISOR: {"/rq/"},
    Role.ADMIN: {"/board/audit"},
}


async def test_roles_open_what_they_are_for(site: Site) -> None:
    """Each role opens its own pages and those of lower roles, as listed here and not in the table."""
    opened: set[str] = set()
    for role in Role:
        browser = await site.log_in(f"some-{role}")
        opened |= EXPECTED[role]
        reached = {
            path for paths in EXPECTED.values() for path in paths if (await browser.get(path)).status_code == 200
        }
        assert reached == opened


async def test_jobs_are_for_supervisors_of_everything(site: Site) -> None:
    """People limited to some institutions cannot open pages about all: jobs, metrics, rules, processes."""
    await site.add("limited", Role.ADMIN, "cu-1")
    limited = await site.log_in("limited")
    assert (await limited.get("/rq/")).status_code == 403
    for path in ("/metrics", "/board/rules"):
        assert (await limited.get(path)).status_code == 403, path
    browser = await site.log_in("some-supervisor")
    assert (await browser.get("/rq/")).status_code == 200
    refused = await browser.post("/rq/requeue/calls")
    assert (refused.status_code, "This page changes nothing" in refused.text) == (403, True)
    last = (await site.audited())[-1].entry
    assert (last.event, last.who, last.detail, last.status) == (
        "denied",
        person_id("some-supervisor"),
        "GET/POST /rq/.*",
        403,
    )


async def test_board_without_redis_shows_a_page_without_data(log: FilteringBoundLogger) -> None:
    """If Redis is down, the board and the login answer 503 and say so, instead of asking for a login."""
    app = web_app(web_settings("redis://127.0.0.1:1/0"), log)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://desk", headers=HTML) as browser:
        answer = await browser.get("/board", headers={"Cookie": f"{SESSION}=whoever"})
        assert (answer.status_code, "Redis does not answer" in answer.text) == (503, True)
        typed = await browser.post("/login", data={"name": "ann", "password": "x"})
        assert (typed.status_code, "Redis does not answer" in typed.text) == (503, True)
