"""The pages of plots, rules, processes and messages with a keyboard, on phones and walls, in both colours, on paper."""

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import put_in_force
from tests.harness.browser import SIZES, Stage, assert_fits, serious
from tests.harness.processes import Stack, end
from tests.waiting import until

expect.set_options(timeout=20_000)


@pytest.fixture(scope="module")
def pages(running: Stack) -> list[str]:
    """Return the addresses of the pages, with something on each of them."""
    running.call({"kind": "green", "after_s": 1}, end(2))
    redis: Any = running.redis
    log = Keys().outbox.deliveries
    until(lambda: redis.zcard(log) or None, 60, "an outcome that was posted")
    until(lambda: redis.exists(Keys().hours_since) or None, 60, "a call that was counted")
    was, other = redis.get(Keys().rules), load_rules("watch-only")
    put_in_force(redis, Keys(), other.digest, "watch-only", other.text)
    redis.set(Keys().rules, was)
    return [
        "/plots?institution=cu-1&span=week",
        "/rules",
        "/outcomes",
    ]


def test_axe_finds_nothing_serious_in_either_colours(stage: Stage, pages: list[str]) -> None:
    """Axe finds no serious violation on the pages, and enough contrast also on a dark screen."""
    page = stage.page()
    for path in pages:
        page.emulate_media(color_scheme="light")
        stage.turn(page, path)
        for fold in page.locator("details.card:not([open]) > summary").all():
            fold.click()
        assert serious(page) == [], path
        page.emulate_media(color_scheme="dark")
        found: dict[str, Any] = Axe().run(page, options={"runOnly": ["color-contrast"]}).response
        assert [node["html"][:160] for each in found["violations"] for node in each["nodes"]] == [], path


@SIZES
def test_pages_fit_from_phone_to_wall(stage: Stage, pages: list[str], width: int, height: int) -> None:
    """No page is wider than the window; wide tables scroll within their own region."""
    page = stage.page(viewport={"width": width, "height": height})
    for path in pages:
        stage.turn(page, path)
        assert_fits(page)


def test_header_is_one_line_on_a_laptop(stage: Stage) -> None:
    """At 1280 pixels the field for searching gives way, so that the header of no page wraps, with a button to log out."""
    page = stage.page(viewport={"width": 1280, "height": 800})
    log_out = "who => { who.innerHTML = '<span>a.longer.name@bank.example</span><button>Log out</button>' }"
    for path in ("/incidents", "/rules"):
        stage.turn(page, path)
        page.locator(".who").evaluate(log_out)
        assert page.locator("header.top").evaluate("header => header.offsetHeight") < 60, path


def test_value_of_a_bar_is_read_with_the_pointer_and_without(stage: Stage, pages: list[str]) -> None:
    """Pointing at a bar shows when and how many; the same is in its title, and in the table that Enter unfolds."""
    page = stage.board(pages[0])
    started = page.locator(".plot").first
    newest = started.locator(".bin").last
    newest.locator(".hit").hover(force=True)  # a tall bar lies over it
    value = newest.locator(".read")
    expect(value).to_be_visible()
    words = value.text_content() or ""
    assert re.fullmatch(r"\w{3} \d+ \w{3} \d{4} \d\d:\d\d to \d\d:\d\d: \d+ so far", words)
    assert newest.locator("title").text_content() == words
    assert words.split(": ")[1].split()[0] == reads_in_table(page)
    assert "in this period" in (started.locator("svg[role=img]").get_attribute("aria-label") or "")


def reads_in_table(page: Page) -> str:
    """Unfold the table with the keyboard, and return the number of started calls of its newest line."""
    page.locator(".numbers summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".numbers table")).to_be_visible()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "group"
    return page.locator(".numbers tbody tr").first.locator("td").nth(1).inner_text()


def test_plots_need_no_script(stage: Stage, pages: list[str]) -> None:
    """Without JavaScript the plots, their values and the choice of an institution and a period are all there."""
    page = stage.board("/plots", java_script_enabled=False)
    expect(page.locator(".plot .bar").first).to_be_attached()
    page.get_by_role("link", name="Month").click()
    page.locator("select[name=institution]").select_option("cu-1")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Harbour Example Credit Union")
    expect(page.get_by_role("link", name="Month")).to_have_attribute("aria-current", "true")


def test_rules_of_the_board_are_a_key_away(stage: Stage, pages: list[str]) -> None:
    """The digest on the board leads to the page, also with the keyboard."""
    page = stage.board()
    page.locator("#status .rules a").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".rule-table")).to_be_visible()


def test_pages_are_readable_on_paper(stage: Stage, pages: list[str]) -> None:
    """Printed, the pages have no menu, and plots keep their bars."""
    page = stage.page(viewport={"width": 1000, "height": 1300})
    for path in pages:
        page.emulate_media(media="screen")
        stage.turn(page, path)
        page.emulate_media(media="print")
        expect(page.locator("header.top")).not_to_be_visible()
        expect(page.locator("h1")).to_be_visible()
        if path == pages[0]:
            expect(page.locator(".plot .bar").first).to_be_visible()


def test_running_processes_tell_what_they_do(stage: Stage, pages: list[str]) -> None:
    """The real worker tells of its shift, the web process of its streams; both use the rules in force."""
    board = stage.board()
    page = stage.board("/incidents")
    rows = page.locator(".process-table tbody tr")

    def page_tells_of_a_stream() -> int:
        page.reload()
        return rows.filter(has_text="web").filter(has_text=re.compile(r"[1-9]\d* open streams?")).count()

    expect(rows.filter(has_text="worker")).to_contain_text(re.compile(r"shift of \d+ s, .* in flight|waits for a job"))
    until(page_tells_of_a_stream, 20, "the web process to have told of its stream")
    expect(page.locator(".process-table")).not_to_contain_text("not in force")
    board.close()
