"""The pages with keyboards, screen readers, phones, large screens and printers."""

import os
import re
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from callkeeper.calls.store.keys import Keys
from tests.harness.browser import SIZES, Stage, action_form, assert_fits, line, serious, violations
from tests.harness.processes import PATIENCE_S, Stack, end
from tests.waiting import until

expect.set_options(timeout=20_000)

PATHS = (
    "/pausing",
    "/outcomes",
    "/institutions/cu-1",
    "/find",
    "/operations",
    "/incidents",
    "/calls",
    "/audit",
)
SEEN_WITH_MORE_ON_THEM = ("/plots", "/rules")
"""For every change, ``test_figures_rules_processes.py`` looks at these, with every fold open and in both colours."""


@pytest.fixture(scope="module")
def watched(running: Stack) -> str:
    """Start a call in which nothing happens; return its voice id once its caller is assigned."""
    call = running.call(end(600))
    until(lambda: (record := running.record(call)) and record.seen.person_id, PATIENCE_S, "the caller to be assigned")
    return str(call["voice_id"])


@pytest.fixture(scope="module")
def mismatching(running: Stack) -> str:
    """Start a call whose voice does not match; return its voice id once its caller is assigned."""
    call = running.call({"kind": "mismatch", "after_s": 1}, end(600))
    until(lambda: (record := running.record(call)) and record.seen.person_id, PATIENCE_S, "the caller to be assigned")
    return str(call["voice_id"])


def test_axe_finds_nothing_serious(stage: Stage) -> None:
    """Axe finds no serious violation on any page, with calls in many states; on pages that stand still none at all."""
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
    for path in (*PATHS, *(SEEN_WITH_MORE_ON_THEM if os.environ.get("TEST_NIGHT") else ())):
        board.goto(f"{stage.web_url}/board{path}")
        assert serious(board) == []
        assert violations(board, {"resultTypes": ["violations"]}, every=True) == []
    board.set_viewport_size({"width": 390, "height": 844})
    board.goto(f"{stage.web_url}/board/operations")
    assert serious(board) == []


def test_keyboard_focus_survives_updates(stage: Stage) -> None:
    """The first Tab reaches the skip link, and a line keeps the focus when it is updated."""
    sandbox, board = stage.sandbox(), stage.board()
    board.keyboard.press("Tab")
    assert board.evaluate("document.activeElement.className") == "skip"
    voice_id = stage.start(sandbox, "nothing")
    call = line(board, voice_id)
    expect(call).to_contain_text("Watching")
    call.locator("a").focus()
    stage.stack.happen({"voice_id": voice_id}, "green")
    expect(call).to_contain_text("Authenticated")
    expect(call.locator("a")).to_be_focused()
    board.keyboard.press("Enter")
    expect(board.locator("#story")).to_be_visible()


def test_form_that_is_being_filled_in_is_left_alone(stage: Stage) -> None:
    """An update of the call does not remove text that is being typed into a form."""
    sandbox, board = stage.sandbox(), stage.board()
    voice_id = stage.start(sandbox, "nothing")
    line(board, voice_id).locator("a").click()
    reason = action_form(board, "distrusted").locator("input[name=reason]")
    reason.fill("half a sent")
    stage.stack.happen({"voice_id": voice_id}, "green")
    expect(board.locator("#call-head")).to_contain_text("Authenticated")
    expect(reason).to_have_value("half a sent")


@SIZES
def test_board_fits_from_phone_to_wall(stage: Stage, mismatching: str, width: int, height: int) -> None:
    """No element is wider than the window, and no text is cut off, from 320 to 3840 pixels."""
    board = stage.board(viewport={"width": width, "height": height})
    expect(line(board, mismatching)).to_be_visible()
    assert_fits(board)
    line(board, mismatching).locator("a").click()
    expect(board.locator("#story li").first).to_be_visible()
    assert_fits(board)
    stage.turn(board, "/operations")
    assert_fits(board)


@pytest.mark.parametrize(("width", "height"), [(390, 844), (640, 400)], ids=["phone", "laptop-at-200-percent"])
def test_header_covers_nothing_of_a_small_window(stage: Stage, watched: str, width: int, height: int) -> None:
    """It would take a third of it. If the connection is lost it is in sight all the same."""
    page = stage.board(f"/calls/cu-1/{watched}", viewport={"width": width, "height": height})
    page.mouse.wheel(0, 10_000)
    expect(page.locator("header.top")).not_to_be_in_viewport()
    page.evaluate("rest()")  # not only the lamp, which the next update would switch on again
    expect(page.locator("#link")).to_be_in_viewport()


def test_state_of_a_call_that_may_be_old_is_struck_through(stage: Stage, watched: str) -> None:
    """Nobody trusts a caller by what was true before the connection was lost."""
    page = stage.board(f"/calls/cu-1/{watched}")
    state = page.locator("#call-head .state")
    expect(state).to_have_css("text-decoration-line", "none")
    page.evaluate("rest()")  # not only the lamp, which the next update would switch on again
    expect(state).to_have_css("text-decoration-line", "line-through")


def test_words_of_a_line_do_not_run_into_each_other(stage: Stage, mismatching: str) -> None:
    """The word of the longest state ends before the digits of the number begin."""
    page = stage.board("/institutions/cu-1", viewport={"width": 1280, "height": 800})
    shown = line(page, mismatching)
    expect(shown).to_contain_text("Voice mismatch")
    page.evaluate("rest()")  # an update would replace the word again
    shown.locator(".state").evaluate("word => { word.lastChild.data = 'Enroll taken back'; }")
    word, digits = (shown.locator(part).bounding_box() for part in (".to", ".phone"))
    assert word is not None
    assert digits is not None
    assert word["x"] + word["width"] <= digits["x"]


@pytest.mark.parametrize("path", ["/audit", "/plots", "/calls"])
def test_controls_of_a_filter_stand_in_one_line(stage: Stage, path: str) -> None:
    """Fields, lists, dates and the button are equally high, so that they and their labels are level."""
    page = stage.board(path, viewport={"width": 1440, "height": 900})
    controls = page.locator(":is(.filter, .plots-head) :is(input, select, button)").all()
    boxes = [control.bounding_box() for control in controls]
    assert len(boxes) > 1
    assert len({(box["y"], box["height"]) for box in boxes if box is not None}) == 1, boxes


def test_time_in_a_long_call_lies_over_no_mark(stage: Stage, watched: str) -> None:
    """On a phone the seconds of a call of many hours end before the mark of their line begins."""
    page = stage.board(f"/calls/cu-1/{watched}", viewport={"width": 390, "height": 844})
    at = page.locator("#story .at").first
    expect(at).to_be_visible()
    page.evaluate("rest()")  # an update would replace the time again
    at.evaluate("at => { at.textContent = '+86400.0 s'; }")
    assert at.evaluate("at => at.scrollWidth <= at.clientWidth")
    assert_fits(page)


def test_audit_log_with_the_hashes_of_an_archive_fits_a_desktop(stage: Stage, running: Stack) -> None:
    """The heads of an archive's chains, 64 characters without a blank, push no column out of sight."""
    head = {
        "event": "archive_head",
        "who": "worker",
        "institution": "harbour-credit-union",
        "detail": f"12 {'8d' * 32}",
    }
    seen = {
        "event": "viewed",
        "who": "agent.seven",
        "operator": "agent.seven",
        "voice_id": str(uuid4()),
        "status": "200",
    }
    for entry in (head, seen):
        running.redis.xadd(Keys().audit, entry)
    page = stage.board("/audit", viewport={"width": 1440, "height": 900})
    expect(page.get_by_text("8d8d8d")).to_be_visible()
    assert page.locator(".wide").evaluate("element => element.scrollWidth <= element.clientWidth")


def test_board_is_complete_without_its_script(stage: Stage, watched: str) -> None:
    """Without JavaScript the page shows the same lines and status; it is only not updated."""
    live = stage.board()
    expect(line(live, watched)).to_contain_text("Watching")
    still = stage.board(java_script_enabled=False)
    expect(line(still, watched)).to_contain_text("Watching")
    expect(still.locator("#status")).to_contain_text("alive")


def test_call_that_is_decided_is_folded_with_the_focus_on_it(stage: Stage) -> None:
    """If a focused line becomes decided, its group unfolds, keeps the focus and stays open at later updates."""
    sandbox, board = stage.sandbox(), stage.board()
    voice_id = stage.start(sandbox, "nothing", key="bank-1")
    call = line(board, voice_id)
    expect(call).to_contain_text("Watching")
    call.locator("a").focus()
    stage.stack.happen({"voice_id": voice_id}, "green")
    expect(board.locator(f".decided a[href$='{voice_id}']")).to_be_visible()
    expect(call.locator("a")).to_be_focused()
    other = line(board, stage.start(sandbox, "green", after_s=1, key="bank-1"))
    expect(other).to_contain_text("Authenticated")
    expect(call).to_be_visible()


def test_keyboard_reaches_an_action_and_its_fields(stage: Stage, watched: str) -> None:
    """Enter unfolds an action, Tab moves into its fields, and only one action is unfolded at a time."""
    board = stage.board(f"/calls/cu-1/{watched}")
    action_form(board, "check")
    board.locator("#do-distrusted-head").focus()
    board.keyboard.press("Enter")
    board.keyboard.press("Tab")
    assert board.evaluate("document.activeElement.name") == "reason"
    expect(board.locator("#do-check form")).not_to_be_visible()


def test_person_id_is_asked_only_for_somebody_else(stage: Stage, watched: str) -> None:
    """The field for a person id appears only if "somebody else" is chosen instead of a candidate."""
    form = action_form(stage.board(f"/calls/cu-1/{watched}"), "verified")
    expect(form.locator("input[name=other_person_id]")).not_to_be_visible()
    form.locator("select[name=person_id]").select_option("?")
    expect(form.locator("input[name=other_person_id]")).to_be_visible()


def test_call_shows_its_start_in_two_time_zones(stage: Stage, watched: str) -> None:
    """A call's page shows its start in UTC and in the viewer's time zone, and links its institution by name."""
    board = stage.board(f"/calls/cu-1/{watched}", timezone_id="America/Phoenix")
    began = board.locator("#call-head .began")
    expect(began).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(.*\d\d:\d\d:\d\d GMT-7\)"))
    board.get_by_role("link", name="Harbour Example Credit Union").click()
    expect(line(board, watched)).to_be_visible()


def test_time_that_stands_still_is_not_called_an_age(stage: Stage, watched: str) -> None:
    """Without JavaScript nothing counts: a clock time is not "ago", nor an age, and overlaps nothing. Else it is one."""
    still, live = stage.board(java_script_enabled=False), stage.board()
    expect(still.locator("#status .push")).to_have_text(re.compile(r"Last push\s*at \d\d:\d\d:\d\d$"))
    expect(live.locator("#status .push")).to_have_text(re.compile(r"Last push\s*[\d:]+ ago$"))
    expect(line(still, watched).locator(".age")).to_have_text(re.compile(r"since \d\d:\d\d:\d\d$"))
    expect(line(live, watched).locator(".age")).to_have_text(re.compile(r"for [\d:]+$"))
    age = line(still, watched).locator(".age").bounding_box()
    words = line(still, watched).locator(".next").bounding_box()
    assert age is not None
    assert words is not None
    assert words["x"] + words["width"] < age["x"] or words["y"] >= age["y"] + age["height"]
    still.goto(f"{stage.web_url}/board/calls/cu-1/{watched}")
    expect(still.locator("#call-head .lasting")).not_to_be_visible()


def test_layout_does_not_move_when_checks_get_two_digits(stage: Stage, watched: str) -> None:
    """When the number of checks goes from 9 to 10, nothing in the line moves."""
    page = stage.page()
    for path in ("", "/institutions/cu-1"):
        stage.turn(page, path)
        row = line(page, watched)
        places = row.evaluate("""row => ["9", "10"].map((used) => {
          row.querySelector(".number").firstChild.nodeValue = used;
          return [...row.querySelectorAll("*")].map((part) => part.getBoundingClientRect().x).join();
        })""")
        assert places[0] == places[1]


def test_pages_can_be_printed(stage: Stage, watched: str) -> None:
    """Printed pages have no menus and no forms, contain every line, and fit the paper's width."""
    page = stage.board(f"/calls/cu-1/{watched}", viewport={"width": 800, "height": 1100})
    page.emulate_media(media="print")
    expect(page.locator("#story li").first).to_be_visible()
    for pressed in ("header.top", "#forms"):
        expect(page.locator(pressed)).not_to_be_visible()
    page.emulate_media(media="screen")
    stage.turn(page, "")
    page.emulate_media(media="print")
    expect(line(page, watched)).to_be_visible()
    expect(line(page, watched)).to_have_css("content-visibility", "visible")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
