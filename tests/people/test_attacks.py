"""Attacks over HTTP that once succeeded: guessed passwords, texts typed into addresses, disabled logins, formulas."""

import csv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx
import pytest
from structlog.typing import FilteringBoundLogger

from callkeeper.app.web_app import web_app
from callkeeper.calls.store.audit_log import Audited, AuditEntry, AuditEvent, csv_of
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import Pausing
from callkeeper.desk.access.rights import Role
from tests.people.conftest import HTML, PASSWORD, Site, person_id, web_settings
from tests.people.test_commands_and_tokens import desk, issue
from tests.people.test_sessions_and_roles import form_token

TYPED = "Mrs Canary 5550100001"


@asynccontextmanager
async def browser_of(redis_url: str, log: FilteringBoundLogger, **environ: str) -> AsyncIterator[httpx.AsyncClient]:
    """Return a browser for an application with further settings."""
    app = web_app(web_settings(redis_url, **environ), log)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="https://desk", headers=HTML) as browser,
    ):
        yield browser


async def test_shared_login_has_one_name(redis_url: str, log: FilteringBoundLogger) -> None:
    """A colon in the shared password does not make a second name, whose guesses would be counted separately."""
    async with browser_of(redis_url, log, CALLKEEPER_ADMIN=f"ops:canary:{PASSWORD}") as browser:
        for name, password, status in (("ops:canary", PASSWORD, 401), ("ops", f"canary:{PASSWORD}", 303)):
            assert (await browser.post("/login", data={"name": name, "password": password})).status_code == status


@pytest.mark.parametrize(
    "path", [f"/board/calls/cu-1/{TYPED}/check", f"/rq/{TYPED}", "/board/institutions/Canary/reconcile"]
)
async def test_audit_log_contains_no_text_of_a_refused_address(path: str, site: Site) -> None:
    """The entry of a refused request names the kind of page, and contains no part of its address."""
    browser = await site.log_in("some-viewer")
    assert (await browser.post(path)).status_code == 403
    last = (await site.audited())[-1].entry
    assert (last.event, last.who, last.status) == (AuditEvent.DENIED, person_id("some-viewer"), 403)
    assert "Canary" not in repr(last)
    assert last.detail


@pytest.mark.parametrize(
    "path", ["/board/pause", "/board/audit.csv", "/board/institutions/cu-1", "/board/calls/cu-1/v"]
)
async def test_line_break_in_an_address_reaches_no_page(path: str, site: Site) -> None:
    """An address with a line break at its end is not found, so it cannot be used to avoid the audit log."""
    browser = await site.log_in("some-admin")
    token = form_token((await browser.get("/board/pausing")).text)
    fields = {"form_token": token, "scope": "all", "institution": "*", "because": "x"}
    before = len(await site.audited())
    assert (await browser.get(f"{path}%0A")).status_code == 404
    assert (await browser.post(f"{path}%0A", data=fields)).status_code == 404
    assert len(await site.audited()) == before
    assert not (await Pausing(site.redis, keys=Keys()).pauses()).by_institution


async def test_access_to_another_institution_is_audited(site: Site, redis_url: str) -> None:
    """An institution outside one's limits does not exist; the audit log says who tried, and which one if there is one."""
    await site.add("limited", Role.SUPERVISOR, "cu-2")
    browser = await site.log_in("limited")
    software = desk(site, await issue(redis_url, "ivr", "-i", "cu-2", "--force"))
    wall = desk(site, await issue(redis_url, "wall", "-i", "cu-1", "--role", "viewer", "--force"))
    await site.redis.hset(Keys().standings, "cu-1", b'{"key":"cu-1"}')
    token = form_token((await browser.get("/board/pausing")).text)
    say = {"form_token": token, "because": "x", "scope": "all"}
    for key in ("cu-1", "cu-9"):
        for asked in (
            browser.get(f"/board/calls/{key}/v"),
            browser.get(f"/board/institutions/{key}"),
            browser.get("/board/plots", params={"institution": key}),
            browser.get("/board/stream", params={"institution": key}),
            browser.post("/board/pause", data={**say, "institution": key}),
            browser.post(f"/board/calls/{key}/v/check", data=say),
            software.get(f"/desk/calls/{key}/v"),
            software.post(f"/desk/calls/{key}/v/check", json={"operator": "x"}),
            software.get("/desk/calls", params={"institution": key}),
            software.get("/desk/stream", params={"institution": key}),
            wall.post(f"/desk/calls/{key}/v/check", json={"operator": "x"}),
        ):
            answer = await asked
            assert answer.status_code in {400, 403, 404}, answer.text
            last = (await site.audited())[-1].entry
            assert (last.event, last.voice_id) == (AuditEvent.DENIED, ""), answer.url
            assert last.institution == ("cu-1" if key == "cu-1" else ""), answer.url
            assert last.who in {person_id("limited"), "token:ivr", "token:wall"}


async def test_audit_log_contains_no_text_of_a_refused_desk_request(site: Site, redis_url: str) -> None:
    """The entry of a forbidden or invalid desk request does not contain the voice id of its address."""
    agent, viewer = (
        desk(site, await issue(redis_url, "ivr")),
        desk(site, await issue(redis_url, "wall", "--role", "viewer")),
    )
    for software in (agent, viewer):
        answer = await software.post(f"/desk/calls/cu-1/{TYPED}/check", json={"wrong": 1})
        assert answer.status_code in {400, 403}
        last = (await site.audited())[-1].entry
        assert last.who in {"token:ivr", "token:wall"}
        assert "Canary" not in repr(last)


async def test_viewers_token_may_not_read_actions(site: Site, redis_url: str) -> None:
    """A viewer's token may not read an action's state, because it names the operator."""
    viewer = desk(site, await issue(redis_url, "wall", "--role", "viewer"))
    assert (await viewer.get("/desk/calls/cu-1/voice-1/actions/0f")).status_code == 403


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\t=1", "\r=1", "\n=1", "\uff1d1", "a;=1+1", 'a",=1+1'])
def test_no_cell_of_an_export_is_a_formula(text: str) -> None:
    """No cell starts with a formula's sign, whichever delimiter a spreadsheet expects."""
    entry = AuditEntry(event=AuditEvent.SAID, who=text)
    written = csv_of([Audited(id="1-0", at=datetime.now(UTC), entry=entry)])
    for delimiter in ",;\t":
        cells = [cell for row in csv.reader(written.splitlines(keepends=True), delimiter=delimiter) for cell in row]
        assert [cell for cell in cells if cell.lstrip()[:1] in {"=", "+", "-", "@", "\uff1d"}] == [], delimiter


@pytest.mark.parametrize("since", ["1900-01-01", "0001-01-01", "9999-12-31"])
async def test_audit_of_any_date_is_shown(since: str, site: Site) -> None:
    """A very early or very late date in the audit filter is accepted."""
    browser = await site.log_in("some-admin")
    assert (await browser.get("/board/audit", params={"since": since})).status_code == 200
