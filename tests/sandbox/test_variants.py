"""Variants: the other answers that the service's document allows, chosen by name."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from callkeeper.app.cli import main
from callkeeper_sandbox.service import storage
from callkeeper_sandbox.service.questions import QUESTIONS
from callkeeper_sandbox.service.state import Happening, Kind, PushSettings
from callkeeper_sandbox.service.variants import VARIANTS, VariantError, choose
from tests.sandbox.test_events import Listener
from tests.sandbox_fixtures import CREDENTIALS, KEY, LOGIN, PHONE, Asgi

GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OTHER = "cu-2"


@asynccontextmanager
async def stage_of(*names: str) -> AsyncIterator[tuple[Asgi, Listener]]:
    """Make a stand-in with two institutions that register a receiver, and let it answer by variants."""
    listener = Listener()
    stage = Asgi(listener)
    stage.world.add_institution(OTHER)
    for child in stage.world.state.institutions.values():
        child.push = PushSettings("http://us/push")
    stage.sandbox.choose(names)
    async with stage.client, stage.sandbox.client:
        yield stage, listener


class Differs(Exception):
    """An answer is not the usual one."""


class Transcript:
    """Everything that a stand-in answers to one fixed sequence of requests, with ids and tokens made alike.

    ``usual`` is what is answered without variants: the first other answer raises ``Differs``.
    """

    def __init__(self, stage: Asgi, usual: list[str] | None) -> None:
        self.stage = stage
        self.lines: list[str] = []
        self._usual = usual
        self._ids: dict[str, str] = {}

    def write(self, line: str) -> None:
        """Write down a line; compare it."""
        n = len(self.lines)
        if self._usual is not None and [line] != self._usual[n : n + 1]:
            raise Differs
        self.lines.append(line)

    async def ask(self, method: str, path: str, headers: dict[str, str], body: Any = None, **query: Any) -> Any:
        """Send a request, and write down its answer and how long it took."""
        began_s = self.stage.clock.monotonic()
        answer = await self.stage.client.request(
            method, f"/external{path}", headers=headers, json=body, params=query or None
        )
        took_s = self.stage.clock.monotonic() - began_s
        self.write(f"{answer.status_code} {took_s} {GUID.sub(self._numbered, answer.text)}")
        return answer.json() if answer.content else {}

    def _numbered(self, found: re.Match[str]) -> str:
        """Return a name for an id, by the order in which ids come up."""
        return self._ids.setdefault(found[0], f"guid-{len(self._ids)}")

    async def log_in(self, **changes: str) -> str:
        """Log in, and return the token; what a refused login returns is of no use."""
        headers = {"accessToken": CREDENTIALS.access_token}
        answer = await self.ask("POST", "/token/request", headers, {**LOGIN, **changes})
        return str(answer.get("token"))


async def transcript(*names: str, usual: list[str] | None = None) -> list[str]:
    """Ask a stand-in about everything that a variant can change.

    Raises:
        Differs: An answer or a push is not the usual one.
    """
    async with stage_of(*names) as (stage, listener):
        said = Transcript(stage, usual)
        first, token = await said.log_in(), await said.log_in()
        said.write(f"same token: {first == token}")
        await said.log_in(password="wrong")
        calls = [stage.call(Happening(Kind.GREEN, 3), Happening(Kind.END, 40), phone_number=PHONE) for _ in range(12)]
        stage.call(phone_number="5559999999")
        stage.call(phone_number="5550000001")
        calls.append(stage.call(key=OTHER))
        stage.advance(1)
        ours, others = ({"SsoToken": token, "InstitutionKey": key, "RequestedBy": "bot"} for key in (KEY, OTHER))
        await said.ask("GET", "/institutions", {"SsoToken": first})
        for path in (f"/institutions/{OTHER}", "/institutions/nowhere"):
            await said.ask("GET", path, ours)
        await said.ask("POST", "/institutions", ours, {"name": "New One"})
        await said.ask("POST", "/institutions", ours, {"key": KEY, "name": "Taken"})
        await said.ask("PUT", f"/institutions/{OTHER}", ours, {"name": None, "core": "CoreTypeB"})
        await said.ask("GET", f"/institutions/{OTHER}", ours)
        await said.ask("POST", f"/institutions/{OTHER}/login", ours)
        await _pages(said, ours)
        await _live(said, ours, others, [call.voice_id for call in calls])
        for _ in range(120):
            await said.ask("GET", "/calls/queue", ours, continueFrom=0, pageSize=1)
        await stage.sandbox.deliver()
        for push in sorted(GUID.sub("guid", request.content.decode()) for request in listener.requests):
            said.write(push)
        return said.lines


async def _pages(said: Transcript, headers: dict[str, str]) -> None:
    for begin, size in ((0, 500), (0, 50), (0, 10), (1, 3), (2, 3), (3, 3), (12, 10), (500, 500)):
        await said.ask("GET", "/calls/queue", headers, continueFrom=begin, pageSize=size)
    for start in ("2026-11-21T12:00:00Z", "2026-11-21T12:00:30Z"):
        await said.ask("GET", "/calls/queue", headers, continueFrom=0, pageSize=5, startDate=start)


async def _live(said: Transcript, ours: dict[str, str], others: dict[str, str], voice_ids: list[str]) -> None:
    one, two, three, *_, elsewhere = (
        re.sub(r"[^\w-]", lambda found: f"%{ord(found[0]):02X}", id_) for id_ in voice_ids
    )
    check = {"checkVoiceAuthentication": "true"}
    await said.ask("GET", f"/calls/{three}/details", ours, checkVoiceAuthentication="false")
    await said.ask(
        "POST", "/calls/assign", {**ours, "Content-Type": "text/plain"}, {"voiceId": voice_ids[0], "personId": "p-1"}
    )
    for voice_id in voice_ids[:2]:
        await said.ask("POST", "/calls/assign", ours, {"voiceId": voice_id, "personId": "p-1"})
    await said.ask("GET", "/calls/queue", ours, continueFrom=0, pageSize=10)
    await said.ask("GET", f"/calls/{one}/details", ours, checkVoiceAuthentication="false")
    await said.ask("GET", f"/calls/{elsewhere}/details", others, **check)
    await said.ask("GET", "/calls/nobody/details", ours, **check)
    said.stage.advance(3)
    for later_s in (0, 4, 4):
        said.stage.advance(later_s)
        await said.ask("GET", f"/calls/{one}/details", ours, **check)
    await said.ask("POST", f"/calls/{one}/enroll", ours, {"personId": "p-1", "validationType": "Other"})
    await said.ask("GET", f"/calls/{one}/details", ours, checkVoiceAuthentication="false")
    await said.ask("POST", "/calls/assign", ours, {"voiceId": voice_ids[2], "personId": "p-1"})
    await said.ask("POST", "/calls/assign", ours, {"voiceId": voice_ids[2], "personId": "p-2"})
    await said.ask("POST", f"/calls/{two}/reject-voice", ours)
    for voice_id in (one, three):
        await said.ask("GET", f"/calls/{voice_id}/details", ours, checkVoiceAuthentication="false")
    await said.ask("GET", f"/calls/{one}/details", ours, **check)
    said.stage.advance(60)
    for path in (f"/calls/{one}/details", f"/calls/{two}/details"):
        await said.ask("GET", path, ours, **check)
    await said.ask("POST", f"/calls/{two}/reject-voice", ours)
    await said.ask("POST", "/calls/assign", ours, {"voiceId": voice_ids[1], "personId": "p-1"})
    await said.ask("GET", "/calls/queue", ours, continueFrom=0, pageSize=10)
    said.stage.advance(90)


async def differs(name: str, usual: list[str]) -> bool:
    """Tell whether a variant changes an answer or a push. The requests end with the first difference."""
    try:
        return await transcript(name, usual=usual) != usual
    except Differs:
        return True


@pytest.fixture(scope="module")
def usual() -> list[str]:
    """Return what is answered without variants."""
    return asyncio.run(transcript())


async def test_usual_answers_are_repeatable() -> None:
    """Without variants the same requests get the same answers: what differs under a variant is the variant's doing."""
    assert await transcript() == await transcript()


@pytest.mark.parametrize("name", VARIANTS)
async def test_variant_answers_otherwise(name: str, usual: list[str]) -> None:
    """Every variant changes an answer or a push."""
    assert await differs(name, usual)


async def answer_of(path: str, *names: str, **query: Any) -> httpx.Response:
    """Return the answer to one reading request under variants."""
    async with stage_of(*names) as (stage, _):
        headers = await stage.login()
        return await stage.client.get(f"/external{path}", headers=headers, params=query)


@pytest.mark.parametrize(
    ("name", "wrapper"),
    [
        ("list-items", lambda answer: answer["items"]),
        ("list-bare", lambda answer: answer),
        ("list-beside-arrays", lambda answer: answer["institutions"]),
    ],
)
async def test_list_of_institutions_has_other_wrappers(name: str, wrapper: Any) -> None:
    """The same institutions come in another wrapper."""
    answer = await answer_of("/institutions", name)
    assert [record["key"] for record in wrapper(answer.json())] == [KEY, OTHER]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("dates-offset", "2026-11-21T17:30:00+05:30"),
        ("dates-without-zone", "2026-11-21T12:00:00"),
        ("dates-local-west", "2026-11-21T07:00:00"),
        ("dates-local-east", "2026-11-21T13:00:00"),
        ("starts-in-year-1", "0001-01-01T00:00:00Z"),
        ("starts-in-future", "2026-11-21T12:10:00Z"),
        ("clock-3-min-behind", "2026-11-21T11:57:00Z"),
        ("clock-5-h-ahead", "2026-11-21T17:00:00Z"),
    ],
)
async def test_start_of_a_call_is_written_in_other_ways(name: str, written: str) -> None:
    """A call that starts at noon is listed with the start that the variant's service would write."""
    async with stage_of(name) as (stage, _):
        stage.call()
        assert (await stage.queue())[0]["startDateTime"] == written


async def test_troubled_institution_is_the_last() -> None:
    """Trouble of one institution leaves the others alone."""
    async with stage_of("401-one-institution") as (stage, _):
        query = {"continueFrom": "0", "pageSize": "1"}
        for key, status in ((KEY, 200), (OTHER, 401)):
            answer = await stage.client.get("/external/calls/queue", params=query, headers=await stage.login(key))
            assert answer.status_code == status


async def test_effect_may_be_carried_out_before_a_401() -> None:
    """Under ``401-after-acting`` some assigns are answered 401 and have been carried out nevertheless."""
    async with stage_of("401-after-acting") as (stage, _):
        headers = await stage.login()
        refused = []
        for _ in range(30):
            call = stage.call()
            body = {"voiceId": call.voice_id, "personId": "p-1"}
            answer = await stage.client.post("/external/calls/assign", json=body, headers=headers)
            refused += [call.person_id] if answer.status_code == 401 else []
        assert set(refused) == {"p-1"}


def test_unknown_variant_is_refused_with_the_nearest() -> None:
    """A misspelt name is refused on the command line, and the message names the nearest."""
    answer = CliRunner().invoke(main, ["sandbox", "--variant", "list-bear"])
    assert (answer.exit_code, answer.output) == (
        1,
        "Error: no variant is called 'list-bear'; the nearest is list-bare\n",
    )


def test_variant_that_is_near_to_none_is_refused_with_the_list() -> None:
    """A name that looks like none of them gets no guess."""
    answer = CliRunner().invoke(main, ["sandbox", "--variant", "nope"])
    assert (answer.exit_code, answer.output) == (
        1,
        "Error: no variant is called 'nope'; GET /control/variants lists them\n",
    )


async def test_variants_are_chosen_over_http(sandbox_asgi: Asgi) -> None:
    """``PUT /control/variants`` replaces the choice, ``GET`` shows it; an unknown name changes nothing."""
    put = await sandbox_asgi.client.put("/control/variants", json=["page-capped", "list-bare"])
    assert put.json() == ["page-capped", "list-bare"]
    refused = await sandbox_asgi.client.put("/control/variants", json=["page-kapped"])
    assert (refused.status_code, "page-capped" in refused.json()["error"]) == (400, True)
    shown = (await sandbox_asgi.client.get("/control/variants")).json()
    assert shown["chosen"] == ["page-capped", "list-bare"]
    assert [asked["heading"] for asked in shown["questions"]] == [asked.heading for asked in QUESTIONS]


def test_two_answers_to_one_question_are_refused() -> None:
    """A service answers a question in one way."""
    with pytest.raises(VariantError, match="list-bare and list-items answer the same question"):
        choose(["list-bare", "list-items"])


def test_choice_survives_a_restart(sandbox_asgi: Asgi, tmp_path: Path) -> None:
    """The state file keeps the variants."""
    sandbox_asgi.sandbox.choose(["page-capped"])
    storage.save(tmp_path / "state.json", storage.snapshot(sandbox_asgi.sandbox))
    read = storage.load(tmp_path / "state.json")
    assert read is not None
    assert storage.restore(read).world.options.page_size(500) == 10
