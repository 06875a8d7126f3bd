"""The pages for keyboards, screen readers, phones and walls; by axe, and by using them so."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from tests.browser.stage import Scheme, Stage, line

expect.set_options(timeout=20_000)


def serious(page: Page) -> list[str]:
    """Return what axe finds that is serious or worse, with where."""
    found: dict[str, Any] = Axe().run(page).response
    return [
        f"{violation['id']}: {node['html'][:160]}"
        for violation in found["violations"]
        if violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(stage: Stage, scheme: Scheme) -> None:
    """Contrast, names, roles, landmarks, order: on every page, in both schemes, with calls in many states on them."""
    sandbox = stage.sandbox(color_scheme=scheme)
    for story in ("green", "red", "shared", "passcode", "mismatch"):
        stage.start(sandbox, story, after_s=1)
    waiting = stage.start(sandbox, "nothing")
    assert serious(sandbox) == []
    board = stage.board(color_scheme=scheme)
    expect(board.locator("#groups")).to_contain_text("Red policy")
    expect(line(board, waiting)).to_contain_text("Watching")
    assert serious(board) == []
    line(board, waiting).locator("a").click()
    expect(board.locator("#forms form").first).to_be_visible()
    assert serious(board) == []
    for path in ("/pausing", "/institutions/cu-1", "/find"):
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
    assert call.locator("a").evaluate("link => link === document.activeElement")
    board.keyboard.press("Enter")
    expect(board.locator("#story")).to_be_visible()


def test_form_that_is_being_filled_in_is_left_alone(stage: Stage) -> None:
    """What happens to the call while somebody types does not take the typed words away."""
    sandbox, board = stage.sandbox(), stage.board()
    voice_id = stage.start(sandbox, "passcode", after_s=6)
    line(board, voice_id).locator("a").click()
    reason = board.locator("input[name=reason]")
    reason.fill("half a sent")
    expect(board.locator("#call-head")).to_contain_text("Enrolled")
    expect(reason).to_have_value("half a sent")


@pytest.mark.parametrize(("width", "height"), [(320, 640), (390, 844), (1440, 900), (3840, 2160)])
def test_board_fits_from_phone_to_wall(stage: Stage, width: int, height: int) -> None:
    """Nothing sticks out sideways at any width."""
    sandbox = stage.sandbox()
    voice_id = stage.start(sandbox, "mismatch", after_s=1)
    board = stage.board(viewport={"width": width, "height": height})
    expect(line(board, voice_id)).to_be_visible()
    sides = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert board.evaluate(sides) <= 0
    line(board, voice_id).locator("a").click()
    expect(board.locator("#story li").first).to_be_visible()
    assert board.evaluate(sides) <= 0


def test_board_is_whole_without_its_script(stage: Stage) -> None:
    """The server writes the page: without the script everything is there, it only stands still."""
    voice_id = stage.start(stage.sandbox(), "nothing")
    live = stage.board()
    expect(line(live, voice_id)).to_contain_text("Watching")
    still = stage.board(java_script_enabled=False)
    expect(line(still, voice_id)).to_contain_text("Watching")
    expect(still.locator("#status")).to_contain_text("alive")
