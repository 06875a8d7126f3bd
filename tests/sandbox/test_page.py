"""The page: settings, attempts, samples, live calls, for people."""

import re

import httpx
import pytest

from callkeeper_sandbox.service.push import Attempt
from callkeeper_sandbox.service.state import Kind
from callkeeper_sandbox.service.stories import DEEDS, STORIES, begin
from tests.sandbox_fixtures import KEY, PHONE, Asgi


async def test_page_shows_institutions_attempts_and_live_calls(sandbox_asgi: Asgi) -> None:
    """The page names each institution, each attempt with status and body, and each live call.

    Spec: Events, rule 2.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.happen(call, Kind.CLAIMED, "teller-7")
    attempt = Attempt(sandbox_asgi.clock(), KEY, "CallStart", "v", is_test=False, url="", status=503, body="try later")
    sandbox_asgi.sandbox.pusher.attempts.append(attempt)
    html = (await sandbox_asgi.client.get("/")).text
    shown = (KEY, "503", "try later", call.voice_id, "teller-7", "GrabbedCall")
    assert [text for text in shown if text not in html] == []


async def test_page_shows_no_personal_data(sandbox_asgi: Asgi) -> None:
    """Candidates' data is not on the page."""
    sandbox_asgi.call()
    html = (await sandbox_asgi.client.get("/")).text
    assert "fake-" not in html
    assert "000-00" not in html


async def test_page_escapes_what_receivers_answer(sandbox_asgi: Asgi) -> None:
    """A receiver's answer is shown as text; nothing from outside is loaded or run."""
    attempt = Attempt(sandbox_asgi.clock(), KEY, "CallStart", "v", is_test=False, url="", status=200, body="<script>x")
    sandbox_asgi.sandbox.pusher.attempts.append(attempt)
    answer = await sandbox_asgi.client.get("/")
    assert "<script>" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_form_saves_push_settings(sandbox_asgi: Asgi) -> None:
    """Address and headers entered on the page are those of the institution's next push.

    Spec: Events.
    """
    form = {"url": "http://us/push", "headers": "X-Key: one; X-Other: two"}
    answer = await sandbox_asgi.client.post(f"/settings/{KEY}", data=form)
    settings = sandbox_asgi.world.state.institutions[KEY].push
    assert (answer.status_code, settings.url, settings.headers) == (303, form["url"], form["headers"])


async def test_form_sends_a_sample() -> None:
    """The button sends one sample event, marked as a test.

    Spec: Events, rule 2.
    """
    came: list[bytes] = []

    def receive(request: httpx.Request) -> httpx.Response:
        came.append(request.content)
        return httpx.Response(202)

    stage = Asgi(httpx.MockTransport(receive))
    async with stage.client, stage.sandbox.client:
        await stage.client.post(f"/settings/{KEY}", data={"url": "http://us/push"})
        await stage.client.post(f"/samples/{KEY}", data={"type": "CallEnd"})
    assert len(came) == 1
    assert b'"IsTest": true' in came[0]


async def test_form_for_nobody_is_not_found(sandbox_asgi: Asgi) -> None:
    """An unknown institution or event type is a 404."""
    for path, form in (("/settings/x", {}), ("/samples/x", {"type": "CallEnd"}), (f"/samples/{KEY}", {"type": "?"})):
        assert (await sandbox_asgi.client.post(path, data=form)).status_code == 404


async def test_page_watches_on_request(sandbox_asgi: Asgi) -> None:
    """Only the watching page reloads itself, so that nobody loses what they type."""
    plain, watching = (await sandbox_asgi.client.get("/")).text, (await sandbox_asgi.client.get("/?watch")).text
    assert ('http-equiv="refresh"' in plain, 'http-equiv="refresh"' in watching) == (False, True)


@pytest.mark.parametrize("story", STORIES)
async def test_panel_starts_a_call_of_every_story(story: str, sandbox_asgi: Asgi) -> None:
    """Each button of the panel starts one call that ends by itself, and what was chosen stays chosen."""
    form = {"institution": KEY, "story": story, "after": "20", "ends": "60"}
    answer = await sandbox_asgi.client.post("/calls", data=form)
    [call] = sandbox_asgi.world.live[KEY].values()
    assert (answer.status_code, call.voice_id in answer.headers["location"]) == (303, True)
    page = (await sandbox_asgi.client.get(answer.headers["location"])).text
    assert f"<code>{call.voice_id}</code>" in page
    sandbox_asgi.advance(61)
    assert call.ended_at is not None


async def test_panel_turns_a_call_green_when_told_to(sandbox_asgi: Asgi) -> None:
    """The result exists at the provider after the seconds that were asked for, not before."""
    await sandbox_asgi.client.post("/calls", data={"institution": KEY, "story": "green", "after": "20", "ends": "60"})
    [call] = sandbox_asgi.world.live[KEY].values()
    sandbox_asgi.advance(19)
    assert call.provider.policies == []
    sandbox_asgi.advance(2)
    assert call.provider.policies == ["Green Voice Authentication"]


async def test_panel_knows_whose_number_a_story_needs(sandbox_asgi: Asgi) -> None:
    """Two candidates come from a number of two members, none from a number of nobody."""
    sandbox_asgi.world.add_member(KEY, "p-2", ["5550100002"])
    sandbox_asgi.world.add_member(KEY, "p-3", ["5550100002"])
    for story, candidates in (("green", 1), ("shared", 2), ("stranger", 0)):
        call = begin(sandbox_asgi.sandbox, KEY, story, after_s=1, ends_s=9)
        assert len(sandbox_asgi.world.candidates(call)) == candidates, story


async def test_panel_loses_the_pushes_of_a_call_that_nobody_pushes() -> None:
    """Neither of its pushes is sent; those of other calls are."""
    came: list[bytes] = []

    def receive(request: httpx.Request) -> httpx.Response:
        came.append(request.content)
        return httpx.Response(202)

    stage = Asgi(httpx.MockTransport(receive))
    async with stage.client, stage.sandbox.client:
        await stage.client.post(f"/settings/{KEY}", data={"url": "http://us/push"})
        lost = begin(stage.sandbox, KEY, "unpushed", after_s=1, ends_s=2)
        sent = begin(stage.sandbox, KEY, "nothing", after_s=1, ends_s=2)
        stage.advance(3)
        await stage.sandbox.deliver()
    assert [lost.voice_id.encode() in body for body in came] == [False, False]
    assert all(sent.voice_id.encode() in body for body in came)


async def test_panel_refuses_what_is_no_story(sandbox_asgi: Asgi) -> None:
    """An unknown institution or story is a 404, seconds that are none a 400."""
    form = {"institution": KEY, "story": "green", "after": "1", "ends": "9"}
    for change, status in (
        ({"institution": "x"}, 404),
        ({"story": "x"}, 404),
        ({"after": "nan"}, 400),
        ({"ends": "-1"}, 400),
    ):
        assert (await sandbox_asgi.client.post("/calls", data={**form, **change})).status_code == status


async def test_row_makes_things_happen_now(sandbox_asgi: Asgi) -> None:
    """The buttons of a live call's row do what they say; another kind or call is a 404."""
    call = sandbox_asgi.call()
    for kind in DEEDS:
        answer = await sandbox_asgi.client.post(f"/calls/{call.voice_id}/now", data={"kind": kind})
        assert answer.status_code == 303
    assert [truth.kind for truth in call.truth] == list(DEEDS)
    for path, kind in ((f"/calls/{call.voice_id}/now", "case"), ("/calls/x/now", "end")):
        assert (await sandbox_asgi.client.post(path, data={"kind": kind})).status_code == 404


async def test_row_assigns_the_matched_member(sandbox_asgi: Asgi) -> None:
    """The button "assign" is an operator elsewhere who assigns the member whose number it is."""
    call = sandbox_asgi.call(phone_number=PHONE)
    await sandbox_asgi.client.post(f"/calls/{call.voice_id}/now", data={"kind": "claimed"})
    assert (call.person_id, call.core_username) == ("p-1", "operator-2")


async def test_page_brings_nothing_inline(sandbox_asgi: Asgi) -> None:
    """Script and style are files of the page's own host; the policy allows no others."""
    sandbox_asgi.call()
    answer = await sandbox_asgi.client.get("/")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", answer.text)
    assert "unsafe" not in answer.headers["content-security-policy"]
    for path in re.findall(r"(?:href|src)=\"(/static/[^\"]+)", answer.text):
        assert (await sandbox_asgi.client.get(path)).status_code == 200
    assert (await sandbox_asgi.client.get("/static/page.html")).status_code == 404
