"""The page: settings, attempts, samples, live calls, for people."""

import httpx

from sandbox.push import Attempt
from sandbox.state import Kind
from tests.sandbox_fixtures import KEY, Asgi


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
