"""``callkeeper tokens`` and ``audit``, and the rights of an issued token at the desk."""

import asyncio
import csv
import json

import httpx
from click.testing import CliRunner, Result

from callkeeper.app.cli import main
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.desk_tokens import DeskTokens
from callkeeper.desk.access.rights import Role
from tests.people.conftest import Site, person_id


async def callkeeper(redis_url: str, *arguments: str, typed: str | None = None) -> Result:
    """Run a callkeeper command in another thread than the test's event loop."""
    runner = CliRunner(env={"REDIS_URL": redis_url})
    return await asyncio.to_thread(runner.invoke, main, list(arguments), input=typed)


async def issue(redis_url: str, *arguments: str) -> str:
    """Issue a token; return its value."""
    told = await callkeeper(redis_url, "tokens", "issue", *arguments)
    assert told.exit_code == 0, told.output
    return told.output.strip()


def desk(site: Site, token: str) -> httpx.AsyncClient:
    """Return a client that sends a token."""
    client = site.browser()
    client.headers["Authorization"] = f"Bearer {token}"
    return client


# Tokens


async def test_token_works_until_it_is_revoked(site: Site, redis_url: str) -> None:
    """An issued token opens the desk until it is revoked. Redis has only its hash, and when it was last used."""
    value = await issue(redis_url, "desktop")
    software = desk(site, value)
    assert (await software.get("/desk/calls")).status_code == 200
    stored = b"".join([await site.redis.dump(key) async for key in site.redis.scan_iter()])
    assert value.encode() not in stored
    listed = (await callkeeper(redis_url, "tokens", "list")).output
    assert "desktop" in listed
    assert value not in listed
    [(_, used_at)] = await DeskTokens(site.redis, keys=Keys()).known()
    assert used_at is not None
    assert (await callkeeper(redis_url, "tokens", "issue", "desktop")).exit_code == 1
    assert (await callkeeper(redis_url, "tokens", "revoke", "desktop")).exit_code == 0
    assert (await software.get("/desk/calls")).status_code == 401
    assert (await callkeeper(redis_url, "tokens", "revoke", "desktop")).exit_code == 1


async def test_token_that_has_expired_opens_nothing(site: Site, redis_url: str) -> None:
    """An expired token is refused."""
    software = desk(site, await issue(redis_url, "short", "--expires", "1m"))
    assert (await software.get("/desk/calls")).status_code == 200
    [digest] = await site.redis.hkeys(Keys().issued_tokens)
    stored = json.loads(await site.redis.hget(Keys().issued_tokens, digest))
    await site.redis.hset(Keys().issued_tokens, digest, json.dumps({**stored, "expires_at": "2026-01-01T00:00:00Z"}))
    assert (await software.get("/desk/calls")).status_code == 401


async def test_token_has_the_rights_of_its_role(site: Site, redis_url: str) -> None:
    """A viewer's token only reads and may not search by number; an agent's acts, but only for its operators."""
    viewer = desk(site, await issue(redis_url, "wall", "--role", "viewer"))
    agent = desk(site, await issue(redis_url, "ivr", "--operator", "agent-7", "--operator", "agent-8"))
    call, body = "/desk/calls/cu-1/voice-1", {"operator": "agent-7"}
    await site.redis.hset(Keys().standings, "cu-1", b'{"key":"cu-1"}')
    assert (await viewer.get("/desk/calls")).status_code == 200
    assert (await viewer.get("/desk/calls", params={"phone": "5550100001"})).status_code == 403
    assert (await viewer.post(f"{call}/check", json=body)).status_code == 403
    assert (await agent.post(f"{call}/check", json=body)).status_code == 404
    refused = await agent.post(f"{call}/check", json={"operator": "somebody-else"})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    typed = await agent.post("/desk/calls/Vale-2025550147/v-1/check", json={"operator": "somebody-else"})
    assert typed.status_code == 403
    assert (await agent.post(f"{call}/resolve", json={**body, "applied": True})).status_code == 403
    denied = [entry.entry for entry in await site.audited() if entry.entry.event == "denied"]
    assert {entry.who for entry in denied} == {"token:wall", "token:ivr"}
    others = [entry.institution for entry in denied if entry.detail == "check as another operator"]
    assert others == ["cu-1", ""], "an institution that somebody typed is in no entry"


async def test_ticket_ends_with_its_token(site: Site, redis_url: str) -> None:
    """A ticket is refused if it was changed, or if its token was revoked."""
    software, nobody = desk(site, await issue(redis_url, "desktop")), site.browser()
    ticket = (await software.post("/desk/tickets")).json()["ticket"]
    assert (await nobody.get("/desk/stream", params={"ticket": ticket[:-1] + "x"})).status_code == 401
    await callkeeper(redis_url, "tokens", "revoke", "desktop")
    assert (await nobody.get("/desk/stream", params={"ticket": ticket})).status_code == 401


async def test_what_an_address_does_not_take_is_refused(site: Site, redis_url: str) -> None:
    """A ticket takes no field, and the description no parameter; a field that says nothing would be believed to work."""
    software = desk(site, await issue(redis_url, "desktop"))
    refused = await software.post("/desk/tickets", json={"institution": "cu-1"})
    assert (refused.status_code, refused.json()["detail"].partition(":")[0]) == (400, "institution")
    assert (await software.post("/desk/tickets", json={})).status_code == 201
    assert (await software.post("/desk/tickets")).status_code == 201
    refused = await site.browser().get("/desk/openapi.json", params={"foo": "1"})
    assert (refused.status_code, refused.json()["detail"].partition(":")[0]) == (400, "foo")


async def test_repeated_look_is_audited_once(site: Site, redis_url: str) -> None:
    """Further looks at the same data soon after the first get no audit entry; somebody else's look does."""
    for name in ("one", "two"):
        software = desk(site, await issue(redis_url, name))
        for _ in range(3):
            assert (await software.get("/desk/calls")).status_code == 200
    viewed = [entry.entry.who for entry in await site.audited() if entry.entry.event == "viewed"]
    assert viewed == ["token:one", "token:two"]


async def test_audit_is_filtered_and_exported(site: Site, redis_url: str) -> None:
    """The audit log can be filtered by person and time and exported as CSV; each export is audited."""
    await site.add("limited", Role.ADMIN, "cu-1")
    await site.log_in_as_admin()
    browser = await site.log_in("some-admin")
    await browser.get("/board/institutions/cu-1")
    await issue(redis_url, "desktop")
    assert "shared:ops" in (await callkeeper(redis_url, "audit", "--who", "shared:ops", "--since", "1h")).output
    assert "shared:ops" not in (await callkeeper(redis_url, "audit", "--who", "command")).output
    rows = list(csv.DictReader((await callkeeper(redis_url, "audit", "--csv")).output.splitlines()))
    assert [row["event"] for row in rows] == ["token_changed", "login", "emergency_login"]
    exported = await browser.get("/board/audit.csv", params={"event": "login"})
    assert [row["who"] for row in csv.DictReader(exported.text.splitlines())] == ["shared:ops"]
    told = [entry.entry for entry in await site.audited() if entry.entry.event == "exported"]
    assert [entry.who for entry in told] == ["command", person_id("some-admin")]
    limited = await (await site.log_in("limited")).get("/board/audit")
    assert "shared:ops" not in limited.text


async def test_no_token_is_named_like_the_board(redis_url: str) -> None:
    """Trails name the board as the token of its own statements, so no token gets that name."""
    told = await callkeeper(redis_url, "tokens", "issue", "board")
    assert (told.exit_code, "not board" in told.output) == (2, True)
