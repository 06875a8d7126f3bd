"""The sandbox's control interface, attacked by a page of another site in a real browser."""

import httpx
import pytest
from playwright.sync_api import Browser

from tests.audit.foreign_page import foreign_page
from tests.sandbox_fixtures import ServedSandbox

FAULT = '{"target":"enroll","action":"reset"}'
ATTACKS = {
    "form of text": """<form method=post enctype=text/plain action="URL/control/faults">
        <input name='{"target":"enroll","headers":{"x":"' value='"}}'></form><script>document.forms[0].submit()</script>""",
    "simple request": f"""<script>
        fetch('URL/control/faults', {{method: 'POST', mode: 'no-cors', body: '{FAULT}'}})</script>""",
    "form without a body": """<form method=post action="URL/control/faults"></form>
        <script>document.forms[0].submit()</script>""",
}
"""Requests to the sandbox at URL that a browser lets any page send."""


@pytest.mark.parametrize("attack", ATTACKS)
def test_pages_of_other_sites_cannot_script_faults(
    attack: str, browser: Browser, sandbox_server: ServedSandbox
) -> None:
    """A form or simple request of another site's page is refused and adds no fault to the sandbox."""
    context = browser.new_context()
    with foreign_page(ATTACKS[attack].replace("URL", sandbox_server.url)) as elsewhere:
        page = context.new_page()
        with page.expect_response(lambda response: "/control/" in response.url) as answered:
            page.goto(elsewhere)
        page.wait_for_load_state()  # a browser that is closed while it loads a page may never answer
    assert answered.value.status in {403, 415}
    context.close()
    assert sandbox_server.control("GET", "/faults") == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_control_takes_json_only(kind: str | None, sandbox_server: ServedSandbox) -> None:
    """A body without a JSON content type gets 415."""
    headers = {"Content-Type": kind} if kind else {}
    answer = httpx.post(f"{sandbox_server.url}/control/faults", content=FAULT, headers=headers, trust_env=False)
    assert answer.status_code == 415
    assert sandbox_server.control("GET", "/faults") == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/control/tokens/lapse", "/calls"])
def test_requests_from_other_sites_are_refused(path: str, site: str, sandbox_server: ServedSandbox) -> None:
    """A request that another site started, as its headers say, gets 403."""
    headers = {"Sec-Fetch-Site": site}
    assert httpx.post(sandbox_server.url + path, headers=headers, trust_env=False).status_code == 403
