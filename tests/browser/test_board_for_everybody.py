"""The pages for keyboards, screen readers, phones and walls; by axe, and by using them so."""

import os
import re
import time
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from tests.browser.stage import Stage, action_form, line

expect.set_options(timeout=20_000)


def serious(page: Page) -> list[str]:
    """Return what axe finds that is serious or worse, with where; at night also the contrast of dark colours."""
    found = _violations(page, {"resultTypes": ["violations"]})
    if os.environ.get("TEST_NIGHT"):
        page.emulate_media(color_scheme="dark")
        found += _violations(page, {"runOnly": ["color-contrast"]})
        page.emulate_media(color_scheme="light")
    return found


def _violations(page: Page, options: dict[str, Any]) -> list[str]:
    found: dict[str, Any] = Axe().run(page, options=options).response
    return [
        f"{violation['id']}: {node['html'][:160]}"
        for violation in found["violations"]
        if violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


def test_axe_finds_nothing_serious(stage: Stage) -> None:
    """Contrast, names, roles, landmarks, order: on every page, with calls in many states on them."""
    sandbox = stage.sandbox()
    for story in ("green", "red", "shared", "passcode", "mismatch"):
        stage.start(sandbox, story, after_s=1)
    waiting = stage.start(sandbox, "nothing")
    assert serious(sandbox) == []
    board = stage.board()
    expect(board.locator("#groups")).to_contain_text("Red policy")
    expect(line(board, waiting)).to_contain_text("Watching")
    assert serious(board) == []
    line(board, waiting).locator("a").click()
    for action in ("distrusted", "verified"):
        expect(action_form(board, action)).to_be_visible()
        assert serious(board) == []
    for path in ("/pausing", "/outcomes", "/institutions/cu-1", "/find", "/operations"):
        board.goto(f"{stage.web_url}/board{path}")
        assert serious(board) == []


def test_keyboard_keeps_its_place_while_the_page_lives(stage: Stage) -> None:
    """The first stop is the skip link; a line that has the focus keeps it when it is written anew."""
    sandbox, board = stage.sandbox(), stage.board()
    board.keyboard.press("Tab")
    assert board.evaluate("document.activeElement.className") == "skip"
    call = line(board, stage.start(sandbox, "green", after_s=6))
    call.locator("a").focus()
    expect(call).to_contain_text("Authenticated")
    expect(call.locator("a")).to_be_focused()
    board.keyboard.press("Enter")
    expect(board.locator("#story")).to_be_visible()


def test_form_that_is_being_filled_in_is_left_alone(stage: Stage) -> None:
    """What happens to the call while somebody types does not take the typed words away."""
    sandbox, board = stage.sandbox(), stage.board()
    voice_id = stage.start(sandbox, "passcode", after_s=6)
    line(board, voice_id).locator("a").click()
    reason = action_form(board, "distrusted").locator("input[name=reason]")
    reason.fill("half a sent")
    expect(board.locator("#call-head")).to_contain_text("Enrolled")
    expect(reason).to_have_value("half a sent")


STICKS_OUT = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const wide = [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width);
  return wide.map(e => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 60)}`);
}"""
"""What makes a page wider than its window."""


def assert_fits(page: Page) -> None:
    """Nothing sticks out sideways once the page has been laid out."""
    until = time.monotonic() + 2
    while page.evaluate(STICKS_OUT) and time.monotonic() < until:
        page.wait_for_timeout(100)
    assert page.evaluate(STICKS_OUT) == []


@pytest.mark.parametrize(("width", "height"), [(320, 640), (390, 844), (1440, 900), (3840, 2160)])
def test_board_fits_from_phone_to_wall(stage: Stage, width: int, height: int) -> None:
    """Nothing sticks out sideways at any width."""
    sandbox = stage.sandbox()
    voice_id = stage.start(sandbox, "mismatch", after_s=1)
    board = stage.board(viewport={"width": width, "height": height})
    expect(line(board, voice_id)).to_be_visible()
    assert_fits(board)
    line(board, voice_id).locator("a").click()
    expect(board.locator("#story li").first).to_be_visible()
    assert_fits(board)


def test_board_is_whole_without_its_script(stage: Stage) -> None:
    """The server writes the page: without the script everything is there, it only stands still."""
    voice_id = stage.start(stage.sandbox(), "nothing")
    live = stage.board()
    expect(line(live, voice_id)).to_contain_text("Watching")
    still = stage.board(java_script_enabled=False)
    expect(line(still, voice_id)).to_contain_text("Watching")
    expect(still.locator("#status")).to_contain_text("alive")


def test_call_that_is_decided_is_folded_with_the_focus_on_it(stage: Stage) -> None:
    """A line that moves under the fold while it has the focus opens the fold; whoever opened one keeps it open."""
    sandbox, board = stage.sandbox(), stage.board()
    voice_id = stage.start(sandbox, "green", after_s=4, key="bank-1")
    call = line(board, voice_id)
    call.locator("a").focus()
    expect(board.locator(f".decided a[href$='{voice_id}']")).to_be_visible()
    expect(call.locator("a")).to_be_focused()
    other = line(board, stage.start(sandbox, "green", after_s=1, key="bank-1"))
    expect(other).to_contain_text("Authenticated")
    expect(call).to_be_visible()


def test_keyboard_reaches_an_action_and_its_fields(stage: Stage) -> None:
    """Actions are folds with a name each: Enter opens one, and Tab leads into it; only one is open."""
    board = stage.board(f"/calls/cu-1/{watched(stage)}")
    action_form(board, "check")
    board.locator("#do-distrusted-head").focus()
    board.keyboard.press("Enter")
    board.keyboard.press("Tab")
    assert board.evaluate("document.activeElement.name") == "reason"
    expect(board.locator("#do-check form")).not_to_be_visible()


def test_somebody_else_is_typed_where_somebody_else_is_chosen(stage: Stage) -> None:
    """The field for a person id stands there only for somebody who is no candidate."""
    form = action_form(stage.board(f"/calls/cu-1/{watched(stage)}"), "verified")
    expect(form.locator("input[name=other_person_id]")).not_to_be_visible()
    form.locator("select[name=person_id]").select_option("?")
    expect(form.locator("input[name=other_person_id]")).to_be_visible()


def test_call_tells_when_it_began_in_both_zones(stage: Stage) -> None:
    """Date and time of day in UTC, and beside it the viewer's own; the institution by its name, with a link."""
    voice_id = watched(stage)
    board = stage.board(f"/calls/cu-1/{voice_id}", timezone_id="America/Phoenix")
    began = board.locator("#call-head .began")
    expect(began).to_contain_text(re.compile(r"\d\d \w{3} \d{4} \d\d:\d\d:\d\d UTC \(.*\d\d:\d\d:\d\d GMT-7\)"))
    board.get_by_role("link", name="Harbour Example Credit Union").click()
    expect(line(board, voice_id)).to_be_visible()


def test_meter_moves_nothing_when_its_number_grows(stage: Stage) -> None:
    """From the ninth check to the tenth everything in the line stays where it is."""
    voice_id = watched(stage)
    for path in ("", "/institutions/cu-1"):
        row = line(stage.board(path), voice_id)
        places = row.evaluate("""row => ["9", "10"].map((used) => {
          row.querySelector(".number").firstChild.nodeValue = used;
          return [...row.querySelectorAll("*")].map((part) => part.getBoundingClientRect().x).join();
        })""")
        assert places[0] == places[1]


def test_pages_print_what_is_known_without_what_is_pressed(stage: Stage) -> None:
    """On paper there are no menus and no forms, every line is drawn, and nothing sticks out."""
    voice_id = watched(stage)
    page = stage.board(f"/calls/cu-1/{voice_id}", viewport={"width": 800, "height": 1100})
    page.emulate_media(media="print")
    expect(page.locator("#story li").first).to_be_visible()
    for pressed in ("header.top", "#forms"):
        expect(page.locator(pressed)).not_to_be_visible()
    board = stage.board(viewport={"width": 800, "height": 1100})
    board.emulate_media(media="print")
    expect(line(board, voice_id)).to_be_visible()
    expect(line(board, voice_id)).to_have_css("content-visibility", "visible")
    assert board.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def watched(stage: Stage) -> str:
    """Start a call in which nothing happens; return its voice id once the board knows it."""
    voice_id = stage.start(stage.sandbox(), "nothing")
    expect(line(stage.board(), voice_id)).to_contain_text("Watching")
    return voice_id
