"""The audit log says what was read: which list, with which filters, how many results, and how often."""

import asyncio
import os
import pwd
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.app.cli import main
from callkeeper.app.web_app import web_app
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call, Names
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store import audit_log
from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent, AuditFilter, AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access import visitor
from callkeeper.desk.access.authorization import SESSION
from callkeeper.desk.access.rights import Role
from callkeeper.desk.board.audit_page import SHOWN
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from tests.harness.archivist import sqlite_archive
from tests.harness.desk_tokens import give_token
from tests.people.conftest import ADMIN, HTML, PASSWORD, Site, person_id, web_settings
from tests.people.test_commands_and_tokens import callkeeper, desk, issue
from tests.people.test_sessions_and_roles import form_token
from tests.waiting import until

SOUGHT = ("Canary Zandra", "5550199999", "canary-id-1")
DESKTOP = "ckt_canary-desk-5d0b7f2c91a4-4c07a65e93d2"
BRANCH = "ckt_canary-desk-9e0b7f2c91a4-4c07a65e93d2"


async def read_much(redis_url: str, log: FilteringBoundLogger) -> None:
    """Read lists, pages and a stream with a token, and end the web process, which writes what was repeated."""
    with BlockingRedis.from_url(redis_url) as blocking:
        give_token(blocking, "desktop", DESKTOP)
        give_token(blocking, "branch", BRANCH, "cu-1")
    app = web_app(web_settings(redis_url), log)
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": f"Bearer {DESKTOP}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="https://desk", headers=headers) as desktop,
    ):
        for filters in ({}, {"q": SOUGHT[0]}, {"phone": SOUGHT[1]}, {"id": SOUGHT[2], "phase": "settled"}):
            for _ in range(22):
                assert (await desktop.get("/desk/calls", params=filters)).status_code == 200
        await desktop.get("/desk/calls", params={"q": SOUGHT[0].upper()})
        for number in range(50):
            await desktop.get(f"/desk/calls/cu-1/unknown-{number}", headers={"Authorization": "Bearer " + "x" * 24})
            branch = {"Authorization": f"Bearer {BRANCH}"}
            assert (await desktop.get(f"/desk/calls/cu-2/x{number}", headers=branch)).status_code == 404


async def entries(redis: Redis) -> list[AuditEntry]:
    """Return all entries, oldest first."""
    return [found.entry for found in (await AuditLog(redis, keys=Keys()).read(AuditFilter(), most=1000))[::-1]]


async def test_every_list_is_audited_with_its_filters(redis: Redis, redis_url: str, log: FilteringBoundLogger) -> None:
    """Each kind of list is one entry when it is first read, and one that says how often it was read after that.

    What was searched for is a keyed hash: equal searches have the same one, and the words are nowhere.
    """
    await read_much(redis_url, log)
    viewed = [entry for entry in await entries(redis) if entry.event is AuditEvent.VIEWED]
    assert {(entry.who, entry.institution, entry.detail, entry.results) for entry in viewed} == {
        ("token:desktop", "*", "list", 0)
    }
    kinds = [" ".join(part.partition(":")[0] for part in entry.asked.split()) for entry in viewed if not entry.count]
    assert kinds == ["", "q", "phone", "phase=settled id"]
    assert {entry.asked: entry.count for entry in viewed if entry.count}.keys() == {entry.asked for entry in viewed}
    assert [entry.count for entry in viewed if entry.count] == [21, 22, 21, 21], (
        "the same words in capitals are the same"
    )
    everything = "".join(map(repr, await redis.xrange(Keys().audit) or [])).lower()
    assert [text for text in SOUGHT if text.lower() in everything] == []


async def test_denials_become_one_entry_with_their_number(
    redis: Redis, redis_url: str, log: FilteringBoundLogger
) -> None:
    """Whoever asks fifty times for another institution's calls fills two entries, not fifty."""
    await read_much(redis_url, log)
    denied = [entry for entry in await entries(redis) if entry.event is AuditEvent.DENIED]
    assert {entry.who: entry.count for entry in denied if entry.status == 404} == {"token:branch": 49}
    assert [entry.count for entry in denied if entry.status == 404] == [0, 49]
    unknown = [entry for entry in denied if not entry.who]
    assert {(entry.detail, entry.status) for entry in unknown} == {
        ("wrong credentials", 401),
        ("wrong credentials", 429),
    }
    assert sum(entry.count or 1 for entry in unknown) == 50


async def test_person_s_searches_and_pages_are_audited(site: Site) -> None:
    """The board, its stream, and a search are told apart; a search says what kind of thing was looked for."""
    browser = await site.log_in("some-agent")
    await browser.get("/board")
    await browser.post("/board/find", data={"q": f"{SOUGHT[0]} 5550199999"})
    told = [entry for entry in await entries(site.redis) if entry.event in {AuditEvent.VIEWED, AuditEvent.SEARCHED}]
    assert [(entry.event, entry.institution, entry.detail, entry.results) for entry in told] == [
        ("viewed", "*", "board", 0),
        ("searched", "*", "", 0),
    ]
    assert [part.partition(":")[0] for part in told[1].asked.split()] == ["words", "number"]


async def test_page_of_the_audit_log_says_that_there_is_more_only_if_it_is_full(site: Site) -> None:
    """It then names the option: without it, the command prints fewer entries than the page."""
    browser, more = await site.log_in("some-admin"), "callkeeper audit --limit 1000"
    assert more not in (await browser.get("/board/audit")).text
    for _ in range(SHOWN):
        await AuditLog(site.redis, keys=Keys()).write(AuditEntry(event=AuditEvent.LOGIN, who="ann"))
    assert more in (await browser.get("/board/audit")).text


async def test_command_is_audited_with_the_system_s_user(
    site: Site, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever --operator and the environment say, the entry has who ran the command, and on which machine."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-innocent")
    await callkeeper(redis_url, "pause", "--operator", "somebody-else", "--reason", "drill")
    [entry] = [entry for entry in await entries(site.redis) if entry.event is AuditEvent.PAUSED]
    assert entry.operator == "somebody-else"
    assert entry.origin.startswith(f"{pwd.getpwuid(os.getuid()).pw_name}@")
    assert entry.origin in (await callkeeper(redis_url, "audit")).output


BASIC = ("ops", PASSWORD)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


async def last_entry(site: Site) -> tuple[str, str, str, str, int]:
    """Return who did what, where and to which call, and the answer's status, of the newest entry."""
    entry = (await site.audited())[-1].entry
    assert "canary" not in repr(entry).lower()
    return entry.event, entry.who, entry.institution, entry.voice_id, entry.status


async def test_every_denial_is_audited(site: Site, redis_url: str) -> None:
    """Of a person, of a token, and of strangers; by role, by institution, by form; none with a word of the request."""
    await site.add("limited", Role.ADMIN, "cu-2")
    await site.redis.hset(Keys().standings, "cu-2", b'{"key":"cu-2"}')
    limited, agent, stranger = await site.log_in("limited"), await site.log_in("some-agent"), site.browser()
    supervisor = await site.log_in("some-supervisor")
    token = form_token((await limited.get("/board/pausing")).text)
    say = {"form_token": token, "because": "canary"}
    gone = await issue(redis_url, "gone")
    await callkeeper(redis_url, "tokens", "revoke", "gone")
    wall = desk(site, await issue(redis_url, "wall", "--role", "viewer"))
    ivr = desk(site, await issue(redis_url, "ivr", "-i", "cu-2"))
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    for asked, who, status in (
        (limited.get("/board/stream", params={"institution": "cu-canary"}), person_id("limited"), 404),
        (
            limited.post("/board/pause", data={**say, "institution": "cu-canary", "scope": "all"}),
            person_id("limited"),
            400,
        ),
        (limited.post("/board/pause", data={**say, "institution": "*", "scope": "all"}), person_id("limited"), 403),
        (limited.post("/board/resume", data={**say, "institution": "cu-canary"}), person_id("limited"), 409),
        (limited.post("/board/outcomes/test"), person_id("limited"), 403),
        (limited.get("/metrics"), person_id("limited"), 403),
        (limited.post("/board/institutions/cu-2/reconcile", data={"form_token": "canary"}), person_id("limited"), 403),
        (agent.post("/board/pause", headers={"Sec-Fetch-Site": "cross-site"}, data={}), person_id("some-agent"), 403),
        (agent.get("/board/audit"), person_id("some-agent"), 403),
        (agent.get("/board/canary"), person_id("some-agent"), 403),
        (limited.delete("/board"), person_id("limited"), 403),
        (supervisor.put("/rq/"), person_id("some-supervisor"), 403),
        (stranger.get("/board", headers=foreign), "", 403),
        (stranger.post("/login", headers={"Sec-Fetch-Site": "cross-site"}), "", 403),
        (limited.post("/logout", data={"form_token": "canary"}), "", 403),
        (desk(site, gone).get("/desk/calls"), "", 401),
        (desk(site, "canary").get("/desk/stream"), "", 401),
        (site.browser().get("/desk/stream", params={"ticket": "canary"}), "", 401),
        (wall.get("/desk/calls", params={"phone": "canary"}), "token:wall", 403),
        (ivr.get("/desk/calls", params={"institution": "cu-canary"}), "token:ivr", 400),
    ):
        before = len(await site.audited())
        answer = await asked
        assert answer.status_code == status, (who, answer.text)
        found = await last_entry(site)
        assert (found[0], found[1], found[4]) == ("denied", who, status), found
        assert len(await site.audited()) == before + 1 or who == "", "the same of strangers is counted"


async def test_wrong_password_in_a_header_is_audited(site: Site) -> None:
    """As one in the form is, without what was typed."""
    await site.browser().get("/board", auth=("canary", "canary"))
    assert await last_entry(site) == ("login_failed", "", "", "", 401)


async def test_origin_of_logins_and_refusals_is_audited(site: Site) -> None:
    """Guesses, logins, the emergency login and refusals name the address; what is merely looked at does not."""
    wrong = {"name": "ops", "password": "canary"}
    for n in (1, 2):
        await site.browser(f"198.51.100.{n}").post("/login", data=wrong)
    await site.browser("198.51.100.8").post("/login", data={"name": "ops", "password": PASSWORD})
    agent = await site.log_in("some-agent", "198.51.100.3")
    await agent.get("/board/audit")
    await agent.get("/board/find")
    await site.browser("198.51.100.4").get("/board", auth=("ops", "canary"))
    for n in (5, 6, 5):
        await site.browser(f"2001:db8::{n}").get("/board", auth=("ops", ADMIN.partition(":")[2]))
    foreign = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
    await site.browser("198.51.100.7").get("/board", headers=foreign)
    assert [(audited.entry.event, audited.entry.origin) for audited in await site.audited()] == [
        ("login_failed", "198.51.100.1"),
        ("login_failed", "198.51.100.2"),
        ("emergency_login", "198.51.100.8"),
        ("login", "198.51.100.8"),
        ("denied", "198.51.100.3"),
        ("login_failed", "198.51.100.4"),
        ("emergency_login", "2001:db8::5"),
        ("viewed", ""),
        ("emergency_login", "2001:db8::6"),
        ("denied", "198.51.100.7"),
    ]


async def test_strangers_with_any_number_of_addresses_do_not_fill_the_log(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first addresses get entries of their own; all others share one."""
    monkeypatch.setattr(visitor, "_MOST_STRANGERS", 3)
    for n in range(10):
        headers = {"Authorization": "Bearer " + "x" * 24}
        assert (await site.browser(f"198.51.100.{n}").get("/desk/calls", headers=headers)).status_code == 401
    found = [(audited.entry.event, audited.entry.origin) for audited in await site.audited()]
    assert found == [("denied", f"198.51.100.{n}") for n in range(3)] + [("denied", "")]


async def test_entries_hold_only_what_is_known(site: Site, redis_url: str) -> None:
    """An institution or a call that somebody typed is in no entry, unless there is one; the filter is a hash."""
    browser, ivr = await site.log_in("some-agent"), desk(site, await issue(redis_url, "ivr"))
    await site.browser().post("/login", data={"name": "Canary Zandra", "password": "canary"})
    assert await last_entry(site) == ("login_failed", "", "", "", 401)
    await ivr.get("/desk/calls", params={"institution": "Canary"})
    assert await last_entry(site) == ("viewed", "token:ivr", "*", "", 200)
    await ivr.post("/desk/calls/cu-1/canary/check", json={"operator": "agent-9"})
    assert (await last_entry(site))[1:] == ("token:ivr", "", "", 404)
    for query in ("institution=Canary", "institution=cu-1&call=Canary"):
        await read_begin(site, f"/board/stream?{query}", browser.cookies[SESSION])
        assert (await last_entry(site))[:4] == ("viewed", person_id("some-agent"), "*", "")


async def read_begin(site: Site, path: str, session: str) -> int:
    """Open a stream; return the status of its answer, and leave."""
    left, status = asyncio.Event(), 0
    address, _, query = path.partition("?")

    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, object]:
        if (request := next(requests, None)) is not None:
            return request
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)
        left.set()

    headers = [(b"cookie", f"{SESSION}={session}".encode()), (b"host", b"desk")]
    scope = {"type": "http", "method": "GET", "path": address, "raw_path": address.encode(), "headers": headers}
    scope |= {"query_string": query.encode(), "client": ("203.0.113.7", 1), "scheme": "https", "root_path": ""}
    await asyncio.wait_for(site.app(scope, receive, send), 10)
    return status


async def test_page_of_a_refused_form_is_audited_with_its_call(site: Site) -> None:
    """It shows the call, so the entry names it, although nothing was done; of a call that is unknown it does not."""
    member = CallId("cu-1", "v-1").member
    record = Call(institution_key="cu-1", voice_id="v-1", names=Names(phone_number="+12025550147"))
    await site.redis.hset(Keys().item(member), "rec", encode_call(record))
    browser = await site.log_in("some-agent")
    token = form_token((await browser.get("/board/calls/cu-1/v-1")).text)
    for data, event, status in (({"form_token": token}, "said", 400), ({"form_token": "x"}, "denied", 403)):
        answer = await browser.post("/board/calls/cu-1/v-1/distrusted", data=data)
        assert (answer.status_code, "0147" in answer.text) == (status, True)
        assert await last_entry(site) == (event, person_id("some-agent"), "cu-1", "v-1", status)
    assert (await browser.post("/board/calls/cu-1/canary/distrusted", data={"form_token": token})).status_code == 404
    assert await last_entry(site) == ("said", person_id("some-agent"), "", "", 404)


async def test_no_page_with_personal_data_is_sent_if_redis_takes_no_entry(site: Site, redis_url: str) -> None:
    """Neither when it is looked at first nor again; nor a list, a search, a stream, or an export.

    Only the board, which says what is wrong, is shown again to whoever has looked at it: that look has an entry.
    """
    browser, ivr = await site.log_in("some-admin"), desk(site, await issue(redis_url, "ivr"))
    session = browser.cookies[SESSION]
    await site.redis.config_set("maxmemory", "1")
    try:
        answer = await browser.get("/board")
    finally:
        await site.redis.config_set("maxmemory", "0")
    assert (answer.status_code, "Redis refuses writes: it is full" in answer.text) == (503, True)
    for _ in range(2):
        for client, method, path in (
            (browser, "GET", "/board"),
            (browser, "POST", "/board/find"),
            (ivr, "GET", "/desk/calls"),
            (browser, "GET", "/board/audit.csv"),
        ):
            form = {"q": "canary"} if method == "POST" else None
            assert (await client.request(method, path, data=form)).status_code in {200, 404}
            await site.redis.config_set("maxmemory", "1")
            try:
                answer = await client.request(method, path, data=form)
            finally:
                await site.redis.config_set("maxmemory", "0")
            assert answer.status_code == (200 if path == "/board" else 503)
            assert "it is full" in answer.text
        assert await read_begin(site, "/board/stream", session) == 200
        await site.redis.config_set("maxmemory", "1")
        try:
            assert await read_begin(site, "/board/stream", session) == 503
        finally:
            await site.redis.config_set("maxmemory", "0")


async def test_nobody_is_let_in_without_redis(log: FilteringBoundLogger, tmp_path: Path) -> None:
    """Not by HTTP Basic either, also if the login was recorded minutes ago; a page that is cached is not shown."""
    with embedded_redis(tmp_path) as server, BlockingRedis.from_url(server.url) as admin:
        app = web_app(web_settings(server.url), log)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="https://d") as ops,
        ):
            assert (await ops.get("/board", auth=BASIC)).status_code == 200
            admin.shutdown(nosave=True)
            for path in ("/board", "/board/find", "/board/operations", "/rq/", "/board/audit.csv"):
                answer = await ops.get(path, auth=BASIC)
                assert (answer.status_code, "Redis does not answer" in answer.text) == (503, True), path


async def test_entries_are_trimmed_by_the_clock_of_redis(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose clock is years ahead removes nothing; times are Redis's, in UTC."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2099, 1, 1, tzinfo=tz)

    log = AuditLog(redis, keys=Keys())
    await redis.config_set("stream-node-max-entries", 1)
    monkeypatch.setattr(audit_log, "datetime", Ahead)
    for _ in range(300):
        await log.write(AuditEntry(event=AuditEvent.LOGIN))
    monkeypatch.undo()
    await redis.config_set("stream-node-max-entries", 100)
    found = await log.read(AuditFilter(), most=1000)
    assert len(found) == 300
    seconds, _ = await redis.time()
    assert abs((found[0].at - datetime.fromtimestamp(seconds, UTC)).total_seconds()) < 60
    assert found[0].at.tzinfo is UTC


async def test_export_of_the_archive_needs_the_audit_log(redis: Redis, tmp_path: Path) -> None:
    """Without Redis nothing is exported: `callkeeper audit --event exported` lists every export."""
    sqlite_archive(tmp_path).close()
    environ = {"REDIS_URL": "redis://127.0.0.1:1/0", "CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db"}
    told = await asyncio.to_thread(CliRunner(env=environ).invoke, main, ["calls", "export", "--archive", "--csv"])
    assert told.exit_code == 1
    assert "does not answer" in told.output
    assert "voice_id" not in told.output


def stop_writes(admin: BlockingRedis) -> None:
    """Let Redis fail to save, after which it refuses writes (MISCONF)."""
    admin.config_set("save", "3600 1")
    shutil.rmtree(str(admin.config_get("dir")["dir"]))
    admin.bgsave()
    until(lambda: admin.info("persistence")["rdb_last_bgsave_status"] == "err", 10, "Redis to fail")


async def test_whoever_was_let_in_can_see_why_redis_refuses_writes(log: FilteringBoundLogger, tmp_path: Path) -> None:
    """A refusal is an answer: the login by HTTP Basic and a session go on if they were recorded.

    Others are told what is wrong, and not that Redis does not answer.
    """
    with embedded_redis(tmp_path) as server, BlockingRedis.from_url(server.url) as admin:
        app = web_app(web_settings(server.url), log)
        known, other = (httpx.ASGITransport(app, client=(f"203.0.113.{n}", 1)) for n in (1, 2))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=known, base_url="https://d") as ops,
            httpx.AsyncClient(transport=known, base_url="https://d", headers=HTML) as browser,
            httpx.AsyncClient(transport=other, base_url="https://d") as late,
        ):
            typed = dict(zip(("name", "password"), BASIC, strict=True))
            assert (await browser.post("/login", data=typed)).status_code == 303
            for client in (browser, ops):
                assert (await client.get("/board", auth=BASIC if client is ops else None)).status_code == 200
            stop_writes(admin)
            for path in ("/metrics", "/board"):
                assert (await ops.get(path, auth=BASIC)).status_code == 200, path
                answer = await late.get(path, auth=BASIC)
                assert (answer.status_code, "does not answer" in answer.text) == (503, False)
                assert "Redis refuses writes: it cannot write to its disk (MISCONF)" in answer.text
            assert (await browser.get("/board")).status_code == 200
            typed_again = await late.post("/login", data=typed, headers=HTML)
            assert (typed_again.status_code, "cannot write to its disk" in typed_again.text) == (503, True)
