"""People log in at a real provider in a real browser, and the board shows each of them what their role allows.

With ``TEST_SHOTS=folder`` screenshots are saved there.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from callkeeper.desk.access.authorization import SESSION
from tests.harness.browser import Pages, Profiles, Stage, action_form, line, running_browser, web_restarted
from tests.harness.processes import Stack, end, stack
from tests.people.providers import provider, settings
from tests.waiting import until

expect.set_options(timeout=20_000)


@dataclass
class Place:
    """A running stack whose people log in at a provider."""

    stage: Stage
    people: Pages
    voice_id: str

    def person(self, login: str, path: str = "/board") -> Page:
        """Open a page as this person, who logs in at the provider first."""
        page = self.people.page()
        page.goto(f"{self.stage.web_url}{path}")
        page.get_by_role("link", name="Log in with").click()
        page.locator("input[name=login]").fill(login)
        page.locator("input[name=password]").fill("any")
        page.get_by_role("button").first.click()
        page.wait_for_url(f"{self.stage.web_url}{path}")
        return page

    def command(self, *arguments: str) -> str:
        """Run a callkeeper command; return its output."""
        environ = {"PATH": os.environ["PATH"], "REDIS_URL": self.stage.stack.redis_url}
        command = [sys.executable, "-m", "callkeeper", *arguments]
        return subprocess.run(command, env=environ, text=True, capture_output=True, check=True).stdout  # noqa: S603


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run a stack, and restart its web process with an identity provider."""
    with stack(tmp_path_factory.mktemp("people"), workers=1) as running, provider(running.demo.web_url) as login:
        own = settings(login, running.demo.web_url)
        with web_restarted(running, environ={"CALLKEEPER_ADMIN": None, **own}):
            pass
        yield running


@pytest.fixture(scope="module")
def profiles() -> Iterator[Profiles]:
    """Run the browser."""
    with running_browser() as browser:
        yield Profiles(browser)


@pytest.fixture(scope="module")
def voice_id(running: Stack) -> str:
    """Start a call, and wait until its caller is assigned."""
    call = running.call(end(600))
    until(lambda: (record := running.record(call)) and record.seen.person_id, 30, "the caller to be assigned")
    return str(call["voice_id"])


@pytest.fixture
def place(profiles: Profiles, running: Stack, voice_id: str) -> Iterator[Place]:
    """Return a stack with a live call whose caller is assigned."""
    stage, people = Stage(profiles, running), Pages(profiles)
    yield Place(stage, people, voice_id)
    people.close()
    stage.close()


def shoot(page: Page, name: str) -> None:
    """Save a screenshot if ``TEST_SHOTS`` is set."""
    if folder := os.environ.get("TEST_SHOTS"):
        page.locator("#link.live, body[data-stream='']").first.wait_for()
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_agent_logs_in_and_acts_under_their_own_name(place: Place) -> None:
    """After the login the wanted page opens, forms have no operator field, and scripts cannot read the cookie."""
    page = place.person("alan", f"/board/calls/cu-1/{place.voice_id}")
    expect(page.locator(".who")).to_contain_text("agent-7")
    expect(page.locator("#link.live")).to_be_attached()
    shoot(page, "call-as-agent")
    form = action_form(page, "verified")
    assert page.locator("input[name=operator]").count() == 0
    form.locator("select[name=validation_type]").select_option("OneTimePasswordAuth")
    form.get_by_role("button").click()
    expect(page.locator("#action")).to_contain_text("Done. By agent-7.")
    [cookie] = [cookie for cookie in page.context.cookies() if cookie.get("name") == SESSION]
    assert (cookie.get("httpOnly"), cookie.get("secure"), cookie.get("sameSite")) == (True, True, "Lax")
    assert page.evaluate("document.cookie") == ""
    page.goto(f"{place.stage.web_url}/board/pausing")
    expect(page.get_by_text("A supervisor can pause and resume.")).to_be_visible()
    shoot(page, "pausing-as-agent")


def test_viewer_sees_no_names_and_no_numbers(place: Place) -> None:
    """The pages, their streams and the search show a viewer no name and no phone number."""
    record = place.stage.stack.record({"institution_key": "cu-1", "voice_id": place.voice_id})
    assert record is not None
    assert record.names.phone_number is not None
    hidden = [
        *(person.name for person in record.seen.candidates),
        record.names.phone_number,
        record.names.phone_number[-4:],
    ]
    page = place.person("vera")
    seen: list[str] = []
    for path in ("/board", "/board/institutions/cu-1", f"/board/calls/cu-1/{place.voice_id}"):
        page.goto(f"{place.stage.web_url}{path}")
        expect(page.locator("#link.live")).to_be_attached()
        seen.append(page.content())
        if path == "/board":
            assert line(page, place.voice_id).count() == 1
            shoot(page, "board-as-viewer")
    shoot(page, "call-as-viewer")
    for query in (record.names.phone_number, record.names.phone_number[-4:], record.seen.candidates[0].name.split()[0]):
        page.locator("#find").fill(query)
        with page.expect_navigation():  # from the second search on, the address is the same
            page.keyboard.press("Enter")
        assert page.locator("#find").input_value() == query
        assert page.locator(".rows.found li").count() == 0
    page.locator("#find").fill("cu-1")
    page.keyboard.press("Enter")
    expect(page.locator(".rows.found li").first).to_be_visible()
    seen.append(page.locator("main").inner_html())
    shoot(page, "found-as-viewer")
    for text in hidden:
        assert [text in markup.replace(place.voice_id, "") for markup in seen] == [False] * len(seen), text
    assert page.locator("nav a").all_inner_texts() == [
        *("Board", "Calls", "Plots", "Rules"),
        "Runbook",
    ]
    agent = place.person("alan", "/board/institutions/cu-1")
    assert record.seen.candidates[0].name in agent.content()


def test_person_of_one_institution_sees_no_other(place: Place) -> None:
    """A person limited to one institution sees, finds and opens nothing of others."""
    other = place.stage.start(place.stage.sandbox(), "nothing", ends_s=600, key="bank-1")
    until(lambda: place.stage.stack.records().get(other), 30, "the call to be known")
    page = place.person("susan")
    expect(page.locator("#link.live")).to_be_attached()
    assert "cu-1" in page.content()
    for word in ("bank-1", other):
        assert word not in page.content()
    for path in ("/board/institutions/bank-1", f"/board/calls/bank-1/{other}"):
        answer = page.goto(f"{place.stage.web_url}{path}")
        assert answer is not None
        assert answer.status == 404
    page.locator("#find").fill(other)
    page.keyboard.press("Enter")
    expect(page.get_by_text("No call is known")).to_be_visible()
    page.goto(f"{place.stage.web_url}/board/pausing")
    assert page.locator("select[name=institution] option").all_inner_texts()[1:2] != ["all institutions"]
    assert "bank-1" not in page.content()


def test_admin_reads_what_was_done(place: Place) -> None:
    """The audit page names who looked at which call, and can be filtered and exported."""
    place.person("alan", f"/board/calls/cu-1/{place.voice_id}")
    page = place.person("adam", "/board/audit")
    expect(page.locator("tbody")).to_contain_text("agent-7")
    shoot(page, "audit")
    page.locator("select[name=event]").select_option("viewed")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody")).to_contain_text(place.voice_id)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as CSV").click()
    assert place.voice_id in Path(download.value.path()).read_text()


def test_session_that_ends_leads_an_open_page_to_the_login(place: Place) -> None:
    """An open page goes to the login page after its person was removed; logging out ends a session at once."""
    page = place.person("adam")
    expect(page.locator("#link.live")).to_be_attached()
    [adam] = {entry for entry in re.findall(r'"who":"([^"]+)"', place.command("audit", "--json")) if "adam@" in entry}
    assert "revoked" in place.command("tokens", "revoke", adam)
    page.wait_for_url("**/login?next=%2Fboard", timeout=40_000)
    alan = place.person("alan")
    alan.get_by_role("button", name="Log out").click()
    expect(alan.get_by_text("You are logged out.")).to_be_visible()
    alan.goto(f"{place.stage.web_url}/board")
    expect(alan.get_by_role("heading", name="Log in")).to_be_visible()


def test_session_that_ends_takes_nothing_that_was_typed(place: Place) -> None:
    """A page with a form that is being filled in stays, and says why it cannot be sent."""
    page = place.person("alan", f"/board/calls/cu-1/{place.voice_id}")
    reason = action_form(page, "distrusted").locator("input[name=reason]")
    reason.fill("half a sent")
    other = page.context.new_page()
    other.goto(f"{place.stage.web_url}/board")
    other.get_by_role("button", name="Log out").click()
    expect(page.locator("#link")).to_contain_text("You are logged out")
    expect(reason).to_have_value("half a sent")


def test_page_that_comes_back_shows_who_is_logged_in_now(place: Place) -> None:
    """A tab was in the background while somebody else logged in: it no longer shows the former person's name."""
    page = place.person("alan", f"/board/calls/cu-1/{place.voice_id}")
    page.locator("#link.live").wait_for()
    page.evaluate("rest()")
    page.context.clear_cookies()
    cookies: Any = place.person("susan").context.cookies()
    page.context.add_cookies(cookies)
    page.evaluate("again()")
    expect(page.locator(".who")).to_contain_text("lead-1")
