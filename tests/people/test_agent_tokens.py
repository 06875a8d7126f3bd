"""Tokens that a back end mints for one agent's page, tried as the agent who wants more, and as a thief."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup
from callkeeper.desk.access.desk_tokens import DeskTokens
from callkeeper.desk.agent_pages import Minting
from callkeeper.desk.problems import Problem
from callkeeper.desk.stream import STREAMS_PER_AGENT
from tests.people.conftest import Site
from tests.people.test_commands_and_tokens import callkeeper, desk, issue
from tests.records import with_stored
from tests.unit.calls.specimens import call
from tests.waiting import until_async

AGENT = {"operator": "agent-7", "institutions": ["cu-1"]}
PHONE = "+12025550147"
VERIFIED = {"operator": "agent-7", "person_id": "p-1", "validation_type": "OneTimePasswordAuth"}
ASKED = {"institution": "cu-1", "phone": PHONE}


async def keep(site: Site, institution_key: str, voice_id: str, **changes: Any) -> None:
    """Keep a live call."""
    record = with_stored(call(), institution_key=institution_key, voice_id=voice_id, phone_number=PHONE, **changes)
    member = CallId(institution_key, voice_id).member
    await site.redis.hset(Keys().item(member), "rec", encode_call(record))
    await site.redis.zadd(Keys().live, {member: 1})
    await site.redis.hset(Keys().standings, institution_key, json.dumps({"key": institution_key}))


async def mint(backend: httpx.AsyncClient, **changes: Any) -> httpx.Response:
    """Ask for an agent's token."""
    return await backend.post("/desk/agent-tokens", json=AGENT | changes)


async def are_open(site: Site, streams: int) -> bool:
    """Tell whether the web process says that so many streams are open; it does once a second."""
    [web] = (await SignalReader(site.redis, Keys()).read()).processes
    return web.doing is not None and web.doing.streams == streams


@pytest.fixture
async def backend(site: Site, redis_url: str) -> httpx.AsyncClient:
    """Return a back end with a desk token, at a desk that knows two institutions with a call each."""
    await keep(site, "cu-1", "v-1")
    await keep(site, "cu-2", "v-2")
    return desk(site, await issue(redis_url, "desktop", "--role", "supervisor"))


@pytest.fixture
async def page(site: Site, backend: httpx.AsyncClient) -> httpx.AsyncClient:
    """Return an agent's page with the token that the back end minted for it."""
    minted = await mint(backend)
    assert minted.status_code == 201, minted.text
    told = minted.json()
    assert (told["operator"], told["institutions"], told["expires_in_s"]) == ("agent-7", ["cu-1"], 900)
    return desk(site, told["token"])


async def test_agent_reads_one_caller_and_speaks_as_themselves(page: httpx.AsyncClient) -> None:
    """The page lists the calls of a number or an id, makes a statement, and reads what became of it."""
    for asked in (ASKED, {"id": "v-1"}):
        assert [each["voice_id"] for each in (await page.get("/desk/calls", params=asked)).json()["calls"]] == ["v-1"]
    said = await page.post("/desk/calls/cu-1/v-1/verified", json=VERIFIED)
    assert said.status_code == 202
    watched = await page.get(said.json()["watch"])
    assert (watched.status_code, watched.json()["operator"]) == (202, "agent-7")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/desk/calls", None, 403),
        ("GET", "/desk/calls?institution=cu-1", None, 403),
        ("GET", "/desk/calls?phone=", None, 403),
        ("GET", f"/desk/calls?phase=settled&phone={PHONE}", None, 403),
        ("GET", f"/desk/calls?phase=all&phone={PHONE}", None, 403),
        ("GET", "/desk/calls?phone=x", None, 400),
        ("GET", "/desk/stream?phone=x", None, 400),
        ("GET", "/desk/calls?q=0147&id=v-1", None, 403),
        ("GET", "/desk/calls?institution=cu-2&id=v-2", None, 400),
        ("GET", "/desk/stream", None, 403),
        ("GET", "/desk/stream?institution=cu-1", None, 403),
        ("GET", "/desk/calls/cu-1/v-1", None, 403),
        ("GET", "/desk/calls/cu-2/v-2", None, 403),
        ("POST", "/desk/calls/cu-2/v-2/verified", VERIFIED, 404),
        ("POST", "/desk/calls/cu-1/v-1/verified", VERIFIED | {"operator": "agent-8"}, 403),
        ("POST", "/desk/calls/cu-1/v-1/resolve", {"operator": "agent-7", "applied": True}, 403),
        ("POST", "/desk/tickets", None, 403),
        ("POST", "/desk/agent-tokens", AGENT, 403),
        ("GET", "/board", None, 401),
        ("GET", "/board/find", None, 401),
        ("GET", "/metrics", None, 401),
        ("GET", "/rq/", None, 401),
    ],
)
async def test_agent_gets_no_more_than_their_call(
    page: httpx.AsyncClient, method: str, path: str, body: object, status: int
) -> None:
    """No list, no story, no other institution or operator, no resolution, no further token, and no page of ours."""
    answer = await page.request(method, path, json=body, headers={"Accept": "application/json"})
    assert answer.status_code == status, answer.text
    assert "v-2" not in answer.text


async def test_agent_cannot_find_calls_of_others_by_number(page: httpx.AsyncClient) -> None:
    """A number that calls two institutions shows the call at the token's own, and part of a number shows none."""
    for phone, found in ((PHONE, ["v-1"]), ("0147", [])):
        listed = await page.get("/desk/calls", params={"phone": phone})
        assert [each["voice_id"] for each in listed.json()["calls"]] == found


async def test_agent_asks_for_no_more_callers_than_they_can_talk_to(
    site: Site, backend: httpx.AsyncClient, page: httpx.AsyncClient
) -> None:
    """Whoever reads a page's token tries no numbers: sixty an hour for an agent. What was asked may be asked again."""
    again = desk(site, (await mint(backend)).json()["token"])
    asked = [await each.get("/desk/calls", params={"id": f"v-{n}"}) for n in range(30) for each in (page, again)]
    asked += [await page.get("/desk/calls", params={"id": f"w-{n}"}) for n in range(30)]
    assert {each.status_code for each in asked} == {200}
    refused = await again.get("/desk/stream", params={"id": "w-30"})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_callers")
    assert (await page.get("/desk/calls", params={"id": "v-1"})).status_code == 200
    other = desk(site, (await mint(backend, operator="agent-8")).json()["token"])
    assert (await other.get("/desk/calls", params={"id": "w-30"})).status_code == 200


async def test_agent_does_not_take_the_idempotency_keys_of_others(
    backend: httpx.AsyncClient, page: httpx.AsyncClient, site: Site
) -> None:
    """A key that one agent has used for something else is still free for the back end and for another agent."""
    other = desk(site, (await mint(backend, operator="agent-8")).json()["token"])
    for client, operator in ((page, "agent-7"), (backend, "agent-9"), (other, "agent-8")):
        said = await client.post(
            "/desk/calls/cu-1/v-1/check", json={"operator": operator}, headers={"Idempotency-Key": "verify-v-1"}
        )
        assert said.status_code == 202, said.text


@pytest.mark.parametrize(
    ("change", "status", "where"),
    [
        ({"institutions": []}, 400, "institutions"),
        ({"institutions": ["cu-9"]}, 400, "institutions"),
        ({"institutions": ["cu-1"] * 101}, 400, "institutions"),
        ({"operator": "two\nlines"}, 400, "operator"),
        ({"valid_s": 59}, 400, "valid_s"),
        ({"valid_s": 3601}, 400, "valid_s"),
        ({"valid_s": 1e9}, 400, "valid_s"),
        ({"role": "admin"}, 400, "role"),
    ],
)
async def test_minting_is_bounded(backend: httpx.AsyncClient, change: dict[str, Any], status: int, where: str) -> None:
    """One to a hundred known institutions, one operator, one minute to an hour, and no other field."""
    refused = await mint(backend, **change)
    assert (refused.status_code, where in refused.json()["detail"]) == (status, True), refused.text


async def test_nobody_mints_more_rights_than_they_have(site: Site, redis_url: str, backend: httpx.AsyncClient) -> None:
    """Neither for another institution or operator than the desk token's own, nor with a token that only reads."""
    assert (await mint(backend)).status_code == 201
    one = desk(site, await issue(redis_url, "one", "-i", "cu-2", "--operator", "agent-7"))
    assert (await mint(one, institutions=["cu-2"])).status_code == 201
    hidden, unknown = await mint(one), await mint(one, institutions=["cu-9"])
    assert (hidden.status_code, hidden.json()) == (unknown.status_code, unknown.json()), "an answer tells what exists"
    assert (await mint(one, institutions=["cu-2"], operator="agent-8")).status_code == 403
    assert (await mint(desk(site, await issue(redis_url, "wall", "--role", "viewer")))).status_code == 403


async def test_desk_token_does_not_mint_in_a_browser(backend: httpx.AsyncClient) -> None:
    """A page that mints its own token holds the shared one; the refusal says where it belongs."""
    refused = await backend.post("/desk/agent-tokens", json=AGENT, headers={"Origin": "https://agents.example"})
    assert (refused.status_code, "back end" in refused.json()["detail"]) == (403, True)


async def test_agent_token_ends_with_the_token_it_was_minted_with(
    site: Site, redis_url: str, page: httpx.AsyncClient
) -> None:
    """When the desk token is revoked, its agents' tokens and their open streams end; a new one of that name revives none."""
    following = asyncio.ensure_future(page.get("/desk/stream", params=ASKED))
    await until_async(lambda: are_open(site, 1))
    await callkeeper(redis_url, "tokens", "revoke", "desktop")
    assert (await asyncio.wait_for(following, 10)).status_code == 200
    assert (await page.get("/desk/calls", params=ASKED)).status_code == 401
    await issue(redis_url, "desktop", "--role", "supervisor")
    assert (await page.get("/desk/calls", params=ASKED)).status_code == 401


async def test_agent_token_expires_and_ends_its_stream(site: Site, backend: httpx.AsyncClient) -> None:
    """After its time it opens nothing, also if Redis still holds it, and a stream that it opened ends."""
    tokens = DeskTokens(site.redis, keys=Keys())
    owner = await tokens.by_name("desktop")
    assert owner is not None
    thief = desk(site, await tokens.mint(owner, "agent-7", frozenset({"cu-1"}), valid_s=2))
    followed = await asyncio.wait_for(thief.get("/desk/stream", params=ASKED), 10)
    assert followed.status_code == 200
    kept = await tokens.mint(owner, "agent-7", frozenset({"cu-1"}), valid_s=1)
    [key] = [key async for key in site.redis.scan_iter("ck:2:agent-token:*") if await site.redis.ttl(key) == 1]
    await site.redis.persist(key)
    await asyncio.sleep(1.1)
    for client in (thief, desk(site, kept)):
        assert (await client.get("/desk/calls", params=ASKED)).status_code == 401


async def test_redis_holds_no_agent_token_that_can_be_used(site: Site, page: httpx.AsyncClient) -> None:
    """Redis has the token's hash; neither that nor an invented token opens anything."""
    value = page.headers["Authorization"].partition(" ")[2]
    stored = b"".join([key + await site.redis.dump(key) async for key in site.redis.scan_iter()])
    assert value.encode() not in stored
    [key] = [key.decode() async for key in site.redis.scan_iter("ck:2:agent-token:*")]
    for offered in (key, key.rpartition(":")[2], "cka_" + key.rpartition(":")[2], "cka_", "cka_" + "x" * 400):
        assert (await desk(site, offered).get("/desk/calls", params=ASKED)).status_code == 401


async def test_agent_has_quotas_of_their_own(site: Site, backend: httpx.AsyncClient, page: httpx.AsyncClient) -> None:
    """Eight streams for an agent, also with several tokens; other agents and the back end are not held up by them."""
    again = desk(site, (await mint(backend)).json()["token"])
    clients = [page, again] * (STREAMS_PER_AGENT // 2)
    open_ones = [asyncio.ensure_future(each.get("/desk/stream", params=ASKED)) for each in clients]
    await until_async(lambda: are_open(site, STREAMS_PER_AGENT))
    refused = await page.get("/desk/stream", params=ASKED)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
    other = desk(site, (await mint(backend, operator="agent-8")).json()["token"])
    following = asyncio.ensure_future(other.get("/desk/stream", params=ASKED))
    await until_async(lambda: are_open(site, STREAMS_PER_AGENT + 1))
    for each in (*open_ones, following):
        each.cancel()


async def test_minting_has_a_quota(site: Site, backend: httpx.AsyncClient) -> None:
    """A back end that mints without end is told to wait, before it fills Redis."""
    tokens = DeskTokens(site.redis, keys=Keys())
    owner = await tokens.by_name("desktop")
    assert owner is not None
    minting = Minting(tokens, Lookup(site.redis), at_once=0)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}

    async def body() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(AGENT).encode(), "more_body": False}

    with pytest.raises(Problem) as refused:
        await minting.mint(Request(scope, body), owner)
    assert (refused.value.view.status, refused.value.view.code) == (429, "too_many_tokens")
    assert int(refused.value.headers["Retry-After"]) > 0
    assert [key async for key in site.redis.scan_iter("ck:2:agent-token:*")] == []


async def test_agent_is_audited_by_name(site: Site, page: httpx.AsyncClient) -> None:
    """The log has who minted for whom, what the agent read under which hash, and what they said; never the token."""
    await page.get("/desk/calls", params=ASKED)
    await page.post("/desk/calls/cu-1/v-1/check", json={"operator": "agent-7"})
    await page.get("/desk/calls")
    found = [audited.entry for audited in await site.audited() if audited.entry.who == "token:desktop"]
    assert [(entry.event, entry.operator, entry.institution) for entry in found] == [
        ("token_changed", "agent-7", "cu-1"),
        ("viewed", "agent-7", "cu-1"),
        ("said", "agent-7", "cu-1"),
        ("denied", "agent-7", ""),
    ]
    assert (found[0].detail, found[1].asked[:6], PHONE in str(found)) == ("minted for an agent", "phone:", False)


async def test_component_is_served_to_pages_of_any_origin(site: Site) -> None:
    """The script needs no token, may be loaded by other origins, and is not sent again while it is unchanged."""
    browser = site.browser()
    answer = await browser.get("/desk/callkeeper-call.js", headers={"Origin": "https://agents.example"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
    known = {"If-None-Match": answer.headers["etag"]}
    assert (await browser.get("/desk/callkeeper-call.js", headers=known)).status_code == 304
