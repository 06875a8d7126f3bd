"""The archive over HTTP and in exports, for each role."""

import asyncio
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from sqlalchemy import update
from structlog.typing import FilteringBoundLogger

from callkeeper.app.cli import main
from callkeeper.archive.database import Database
from callkeeper.archive.lines import AUDIT_LOG, RULES, audit_content, rules_content
from callkeeper.archive.reading import ArchiveReader
from callkeeper.archive.tables import lines
from callkeeper.archive.writing import Writer
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.audit_log import Audited, AuditEntry, AuditEvent, AuditFilter, AuditLog
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.job_queue import Waker
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.rights import Role
from callkeeper.desk.access.visitor import Auditor
from callkeeper.desk.archived_calls import ArchivedCalls
from callkeeper.desk.board.board import Board
from callkeeper.desk.desk import Desk
from callkeeper.desk.signed_tokens import Signer, form_tokens, key_of_login
from callkeeper.service import Secret
from tests.harness.archivist import INSTITUTION, START, content, sqlite_archive
from tests.harness.desk_tokens import give_token
from tests.signed_in import ANN, SignedIn

TOKENS = {role: f"ckt_canary-{role}-0123456789abcd" for role in (Role.VIEWER, Role.AGENT)}
ELSEWHERE = "ckt_canary-cu-2-0123456789ab-4c07a65e93d2"
PERSONAL = ("2025550007", "Marion", "Vale7")


@dataclass
class Site:
    """A desk and a board over an archive with ten calls; Redis holds none of them."""

    desk: Desk
    visitor: SignedIn
    forms: Signer

    async def ask(self, token: str, path: str, **query: str) -> httpx.Response:
        """Ask the desk."""
        headers = {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(self.desk.app, root_path="/desk")
        async with httpx.AsyncClient(transport=transport, base_url="http://desk", headers=headers) as client:
            return await client.get(path, params=query)

    async def board(self, path: str, role: Role, **form: str) -> httpx.Response:
        """Open a page of the board as somebody of a role; send a form if there is one."""
        self.visitor.person = replace(ANN, role=role)
        transport = httpx.ASGITransport(self.visitor)
        async with httpx.AsyncClient(transport=transport, base_url="https://desk") as browser:
            return await (browser.post(path, data=form) if form else browser.get(path))


def site_of(
    database: Database, redis: Any, jobs: Any, log: FilteringBoundLogger, reader: ArchiveReader | None = None
) -> Site:
    """Return a desk and a board over an archive."""
    for role, value in TOKENS.items():
        give_token(jobs, role.value, value, role=role)
    give_token(jobs, "cu-2", ELSEWHERE, "cu-2")
    desk = Desk(
        redis,
        redis,
        origins=(),
        book=load_rules(None),
        waker=Waker(jobs),
        log=log,
        now=lambda: START,
        store=Store(redis),
        auditor=Auditor(AuditLog(redis, keys=Keys())),
        archive=ArchivedCalls(ArchiveReader(database) if reader is None else reader),
    )
    forms = form_tokens(key_of_login("ops", Secret("canary-admin-0123456-4c07a65e93d2")), now=START.timestamp)
    return Site(desk, SignedIn(Board(redis, desk, log=log, now=lambda: START).app(), forms), forms)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Return an archive that tests only read."""
    with sqlite_archive(tmp_path_factory.mktemp("routes")) as database:
        writer = Writer(database)
        writer.write(INSTITUTION, [content(n) for n in range(1, 11)])
        writer.write(RULES, [rules_content("a11d0lder123", b"# who decided years ago")])
        yield database


@pytest.fixture
def site(database: Database, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger) -> Site:
    """Return a desk and a board over the archive."""
    return site_of(database, redis, blocking_redis, log)


@pytest.mark.parametrize(
    "body",
    ["{}", "garbage", '{"call":[],"trail":5}', '{"id":"x","at":"2026-01-01T00:00:00Z","entry":{"event":"login"}}'],
)
async def test_line_that_cannot_be_read_hides_no_other(
    body: str, tmp_path: Path, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> None:
    """Whoever can change one line of the archive keeps nobody from the others: lists leave it out, and its page is 503."""
    entry = Audited(id="1-0", at=START, entry=AuditEntry(event=AuditEvent.LOGIN, who="canary"))
    with sqlite_archive(tmp_path) as database:
        Writer(database).write(INSTITUTION, [content(n) for n in range(1, 11)])
        entries = [replace(entry, id=f"{n}-0") for n in (1, 2)]
        Writer(database).write(
            AUDIT_LOG, [audit_content(each.id, msgspec.json.encode(each).decode()) for each in entries]
        )
        with database.writing() as connection:
            connection.execute(
                update(lines).where(lines.c.institution_key == INSTITUTION, lines.c.n == 5).values(body=body)
            )
            connection.execute(
                update(lines).where(lines.c.institution_key == AUDIT_LOG, lines.c.n == 1).values(body=body)
            )
        site = site_of(database, redis, blocking_redis, log)
        listed = await site.ask(TOKENS[Role.AGENT], "/calls", phase="settled")
        assert len(listed.json()["calls"]) == 9
        assert (await site.ask(TOKENS[Role.AGENT], f"/calls/{INSTITUTION}/v-5")).status_code == 503
        assert (await site.board(f"/board/calls/{INSTITUTION}/v-5", Role.AGENT)).status_code == 503
        page = await site.board("/board/calls?state=settled", Role.AGENT)
        assert ("/v-4" in page.text, "/v-5" in page.text) == (True, False)
        audit = await site.board("/board/audit", Role.ADMIN)
        assert ("canary" in audit.text, "an entry in it cannot be read" in audit.text) == (True, True)
        assert (await site.board("/board/audit.csv", Role.ADMIN)).status_code == 503


async def test_audit_entry_is_shown_as_redis_has_it(
    tmp_path: Path, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> None:
    """Whoever can change the archive changes nothing of what the page and the export show of entries that Redis holds."""
    audit = AuditLog(redis, keys=Keys())
    await audit.write(AuditEntry(event=AuditEvent.LOGIN, who="culprit"))
    [entry] = await audit.read(AuditFilter(), most=1)
    with sqlite_archive(tmp_path) as database:
        forged = replace(entry, entry=AuditEntry(event=AuditEvent.LOGIN, who="innocent"))
        Writer(database).write(AUDIT_LOG, [audit_content(entry.id, msgspec.json.encode(forged).decode())])
        site = site_of(database, redis, blocking_redis, log)
        for path in ("/board/audit", "/board/audit.csv", "/board/audit.csv?who=culprit"):
            shown = (await site.board(path, Role.ADMIN)).text
            assert ("culprit" in shown, "innocent" in shown) == (True, False), path
        assert "innocent" not in (await site.board("/board/audit.csv?who=innocent", Role.ADMIN)).text


async def test_rules_that_redis_has_forgotten_are_shown_from_the_archive(site: Site) -> None:
    """An archived call names the digest of the rules that decided it."""
    assert "# who decided years ago" in (await site.board("/board/rules?digest=a11d0lder123", Role.ADMIN)).text
    assert (await site.board("/board/rules?digest=a11d0lder124", Role.ADMIN)).status_code == 404


async def test_desk_lists_archived_calls_as_a_role_may_see_them(site: Site) -> None:
    """An agent finds a call by its number and sees it; a viewer does neither; another institution's token sees nothing."""
    by_number = {"phase": "settled", "q": "outcome:enrolled 0007"}
    found = await site.ask(TOKENS[Role.AGENT], "/calls", **by_number)
    assert [call["voice_id"] for call in found.json()["calls"]] == ["v-7"]
    assert PERSONAL[0] in found.text
    assert (await site.ask(TOKENS[Role.VIEWER], "/calls", **by_number)).json()["calls"] == []
    by_person = {"phase": "settled", "q": "person:p-7"}
    seen = await site.ask(TOKENS[Role.VIEWER], "/calls", **by_person)
    assert [call["voice_id"] for call in seen.json()["calls"]] == ["v-7"]
    assert not [text for text in PERSONAL if text in seen.text]
    assert (await site.ask(ELSEWHERE, "/calls", **by_person)).json()["calls"] == []


async def test_year_is_plotted_from_the_archive(site: Site) -> None:
    """Weeks of archived calls, for every role, of all institutions or of one; without what the archive does not know."""
    page = (await site.board("/board/plots?span=year", Role.VIEWER)).text
    totals = dict(re.findall(r'<h2 id="plot-(\w+)">.*?<b>([^<]*)</b>', page, re.DOTALL))
    assert (totals["started"], totals["enrolled"], totals["rejected"]) == ("10", "10", "0")
    assert totals.keys().isdisjoint({"delay", "provider_errors"})
    assert "Week of Mon 16 Nov 2026: 10 so far" in page
    assert not [text for text in PERSONAL if text in page]
    before = (await site.board("/board/plots?span=year&back=1", Role.VIEWER)).text
    assert '<h2 id="plot-started">Started</h2>\n  <p class="value"><b>0</b>' in before
    elsewhere = (await site.board("/board/plots?span=year&institution=cu-2", Role.VIEWER)).text
    assert '<h2 id="plot-started">Started</h2>\n  <p class="value"><b>0</b>' in elsewhere


class Slow(ArchiveReader):
    """A reader that counts how many ask it for days at once."""

    asked = most = 0

    def by_day(self, *_: Any) -> Iterator[tuple[int, str, int]]:
        """Take a while."""
        self.asked += 1
        self.most = max(self.most, self.asked)
        time.sleep(0.1)
        self.asked -= 1
        return iter(())


class Frozen(ArchiveReader):
    """A reader whose database takes its time."""

    def call(self, *_: Any) -> None:
        """Find nothing, late."""
        time.sleep(0.5)


async def test_archive_that_is_slow_takes_no_thread_from_others(
    database: Database, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> None:
    """However many ask for calls that only the archive may know, pushes and logins get their threads at once."""
    site = site_of(database, redis, blocking_redis, log, Frozen(database))
    asked = [asyncio.create_task(site.ask(TOKENS[Role.VIEWER], f"/calls/{INSTITUTION}/x-{n}")) for n in range(60)]
    await asyncio.sleep(0.3)
    began_s = time.monotonic()
    await asyncio.to_thread(int)
    took_s = time.monotonic() - began_s
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert took_s < 0.4


async def test_years_are_plotted_one_after_the_other(
    database: Database, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> None:
    """A viewer who asks for many years at once holds one thread: pushes and logins need the others."""
    slow = Slow(database)
    site = site_of(database, redis, blocking_redis, log, slow)
    answers = await asyncio.gather(*(site.board("/board/plots?span=year", Role.VIEWER) for _ in range(12)))
    assert slow.most == 1
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [429] * 10


async def test_year_without_its_archive_says_so(
    tmp_path: Path, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> None:
    """If the database fails, the page says what to do, and shows no zeros."""
    database = sqlite_archive(tmp_path)
    database.close()
    (tmp_path / "archive.db").write_bytes(b"not a database any more")
    page = (await site_of(database, redis, blocking_redis, log).board("/board/plots?span=year", Role.VIEWER)).text
    database.close()
    assert "did not answer" in page
    assert 'class="card plot' not in page


@pytest.mark.parametrize(
    "place", ["99999999999999999999:1:cu-1", "1:99999999999999999999:cu-1", "1:x:cu-1", "1:1:a\0b", "1"]
)
async def test_desk_refuses_a_place_that_is_not_ours(place: str, site: Site) -> None:
    """An invalid position of the next page is refused before the database is queried."""
    answer = await site.ask(TOKENS[Role.AGENT], "/desk/calls", phase="settled", after=f"archive:{place}")
    assert (answer.status_code, "after" in answer.json()["detail"]) == (400, True)


async def test_desk_shows_an_archived_call_as_a_role_may_see_it(site: Site) -> None:
    """One call, by its id."""
    shown = await site.ask(TOKENS[Role.AGENT], f"/calls/{INSTITUTION}/v-7")
    assert PERSONAL[0] in shown.text
    hidden = await site.ask(TOKENS[Role.VIEWER], f"/calls/{INSTITUTION}/v-7")
    assert hidden.status_code == 200
    assert not [text for text in PERSONAL if text in hidden.text]
    assert (await site.ask(ELSEWHERE, f"/calls/{INSTITUTION}/v-7")).status_code in {403, 404}


async def test_board_finds_archived_calls_as_a_role_may_see_them(site: Site) -> None:
    """The same on the board's page."""
    assert "v-7" in (await site.board("/board/find", Role.AGENT, q="marion 0007")).text
    assert "v-7" not in (await site.board("/board/find", Role.VIEWER, q="marion 0007")).text
    seen = await site.board("/board/find", Role.VIEWER, q="person:p-7")
    assert "v-7" in seen.text
    assert not [text for text in PERSONAL if text in seen.text]


async def test_pages_say_that_the_archive_does_not_answer(
    tmp_path: Path, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> None:
    """Calls in Redis are shown. What only the archive has is an error, not an empty result."""
    with Database(f"sqlite:///{tmp_path}/without-tables.db") as empty:
        site = site_of(empty, redis, blocking_redis, log)
        assert (await site.ask(TOKENS[Role.AGENT], "/calls", phase="settled", q="person:p-7")).status_code == 503
        assert "The archive does not answer" in (await site.board("/board/find", Role.AGENT, q="0007")).text
        await AuditLog(redis, keys=Keys()).write(AuditEntry(event=AuditEvent.LOGIN, who="ann"))
        page = await site.board("/board/audit", Role.ADMIN)
        assert "The archive does not answer" in page.text
        assert ">ann<" in page.text
        assert '<option value="login_failed">login failed</option>' in page.text, "as the table calls it"
        assert (await site.board("/board/audit.csv", Role.ADMIN)).status_code == 503


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_export_holds_every_call_and_nothing_personal(
    database: Database, tmp_path: Path, form: str, redis_url: str
) -> None:
    """CSV with a header line, and JSON Lines."""
    target = tmp_path / f"calls.{form}"
    options = ["--csv"] if form == "csv" else []
    url = database._engine.url.render_as_string()
    environ = {"CALLKEEPER_ARCHIVE_URL": url, "REDIS_URL": redis_url}
    done = CliRunner().invoke(main, ["calls", "export", "--archive", "--output", str(target), *options], env=environ)
    assert done.exit_code == 0, done.output
    text = target.read_text(encoding="utf-8")
    assert not [word for word in ("1202555", "Marion", "Vale", "Ned", "sounds odd") if word in text]
    lines = text.splitlines()
    if form == "csv":
        assert lines.pop(0).startswith("institution_key,voice_id,")
        assert [line.split(",")[1] for line in lines] == [f"v-{n}" for n in range(1, 11)]
    else:
        assert [json.loads(line)["voice_id"] for line in lines] == [f"v-{n}" for n in range(1, 11)]


async def test_archived_call_is_not_said_to_be_missing_while_the_archive_is_away(
    tmp_path: Path, redis: Redis, blocking_redis: BlockingRedis, log: FilteringBoundLogger
) -> None:
    """The desk's software would take "not found" for an answer."""
    with sqlite_archive(tmp_path) as database:
        Writer(database).write(INSTITUTION, [content(7)])
        site = site_of(database, redis, blocking_redis, log)
        assert (await site.ask(TOKENS[Role.AGENT], f"/calls/{INSTITUTION}/v-7")).status_code == 200
        database.close()
        (tmp_path / "archive.db").write_bytes(b"not a database any more")
        shown = await site.ask(TOKENS[Role.AGENT], f"/calls/{INSTITUTION}/v-7")
        assert (shown.status_code, shown.json()["code"]) == (503, "unavailable")
        page = await site.board(f"/board/calls/{INSTITUTION}/v-7", Role.AGENT)
        assert (page.status_code, "the archive of what is older does not answer" in page.text) == (503, True)
