"""The audit log says what was read: which list, with which filters, how many results, and how often."""

import getpass

import httpx
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.settings import WebSettings
from callkeeper.web_app import web_app
from calls.store.audit_log import AuditEntry, AuditEvent, AuditFilter, AuditLog
from calls.store.keys import Keys
from tests.people.conftest import ENVIRON, Site
from tests.people.test_commands_and_tokens import callkeeper

SOUGHT = ("Canary Zandra", "5550199999", "canary-id-1")
TOKENS = "desktop:canary-desk-5d0b7f2c91a4, branch:canary-desk-9e0b7f2c91a4@cu-1"


async def read_much(redis_url: str, log: FilteringBoundLogger) -> None:
    """Read lists, pages and a stream with a token, and end the web process, which writes what was repeated."""
    app = web_app(WebSettings.load({"REDIS_URL": redis_url, **ENVIRON, "CALLKEEPER_DESK_TOKENS": TOKENS}), log)
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": "Bearer canary-desk-5d0b7f2c91a4"}
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
            branch = {"Authorization": "Bearer canary-desk-9e0b7f2c91a4"}
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
    assert [(entry.who, entry.count) for entry in denied] == [("token:branch", 0), ("token:branch", 49)]


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


async def test_command_is_audited_with_the_system_s_user(site: Site, redis_url: str) -> None:
    """Whatever --operator says, the entry also has who ran the command, and on which machine."""
    await callkeeper(redis_url, "pause", "--operator", "somebody-else", "--because", "drill")
    [entry] = [entry for entry in await entries(site.redis) if entry.event is AuditEvent.PAUSED]
    assert entry.operator == "somebody-else"
    assert entry.origin.startswith(f"{getpass.getuser()}@")
    assert entry.origin in (await callkeeper(redis_url, "audit")).output
