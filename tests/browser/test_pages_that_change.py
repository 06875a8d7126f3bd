"""What a live update does to a person who types, moves with the keyboard or listens to a screen reader."""

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from callkeeper.calls.item_names import CallId
from callkeeper.calls.store.keys import Keys
from tests.harness.browser import Stage, action_form, line
from tests.harness.processes import PATIENCE_S, end
from tests.waiting import until

expect.set_options(timeout=20_000)

CONNECT_AGAIN = "() => { rest(); again(); }"
"""What the page does when a person comes back to its tab: the stream begins with every piece."""


def assigned(stage: Stage, *script: dict[str, object], **more: Any) -> dict[str, Any]:
    """Start a call, and return it once its caller is assigned."""
    call = stage.stack.call(*script, end(600), **more)
    until(lambda: (record := stage.stack.record(call)) and record.seen.person_id, PATIENCE_S, "the assign")
    return call


def page_of(stage: Stage, call: dict[str, Any], **more: Any) -> Page:
    """Open a call's page."""
    return stage.board(f"/calls/{call['institution_key']}/{call['voice_id']}", **more)


def connect_again(page: Page) -> None:
    """Let the page connect again, and wait until it shows what the stream begins with."""
    page.evaluate(CONNECT_AGAIN)
    page.locator("#link.live").wait_for()


def writes(page: Page, selector: str) -> None:
    """Note from now on what a live region says, each time that it is written."""
    page.evaluate(
        """(selector) => {
          window.written = [];
          const region = document.querySelector(selector);
          const note = () => window.written.push(region.textContent.trim());
          new MutationObserver(note).observe(region, { childList: true, characterData: true, subtree: true });
        }""",
        selector,
    )


def test_focus_and_place_survive_a_new_connection(stage: Stage) -> None:
    """Whoever has tabbed to a line is still there when the stream begins anew, and the page does not jump to it."""
    call = assigned(stage)
    board = stage.board(viewport={"width": 1280, "height": 300})
    link = line(board, call["voice_id"]).locator("a.to")
    link.focus()
    connect_again(board)
    expect(link).to_be_focused()
    board.evaluate("scrollTo(0, 0)")
    expect(link).not_to_be_in_viewport()
    connect_again(board)
    expect(link).to_be_focused()
    assert board.evaluate("scrollY") == 0


def test_focus_stays_in_its_line_when_the_link_goes(stage: Stage) -> None:
    """A keyboard that was on "choose" is on the line's own link when somebody else has chosen the caller."""
    board, sandbox = stage.board(), stage.sandbox()
    voice_id = stage.start(sandbox, "shared", after_s=60)
    call = line(board, voice_id)
    call.get_by_role("link", name="choose: 2 candidates").focus()
    other = stage.board(f"/calls/cu-1/{voice_id}")
    form = action_form(other, "assign")
    form.locator("select[name=person_id]").select_option(index=1)
    form.get_by_role("button").click()
    expect(call).to_contain_text("Watching")
    expect(call.locator("a.to")).to_be_focused()


def test_fold_that_was_closed_stays_closed(stage: Stage) -> None:
    """The page of an institution begins with its decided calls unfolded; whoever folds them does it once."""
    page = stage.board("/institutions/cu-1")
    assigned(stage, {"kind": "green", "after_s": 1})
    fold = page.locator("details.decided")
    fold.locator("summary").click()
    expect(fold).not_to_have_attribute("open", "")
    connect_again(page)
    expect(fold).not_to_have_attribute("open", "")


def test_forms_are_those_of_now_once_the_keyboard_has_left_them(stage: Stage) -> None:
    """An update that came while the focus was among the forms is shown when it leaves them."""
    call = assigned(stage)
    page = page_of(stage, call)
    action_form(page, "check")
    page.locator("#do-check-head").focus()
    stage.stack.happen(call, "green")
    expect(page.locator("#call-head")).to_contain_text("Authenticated")
    expect(page.locator("#do-verified")).to_have_count(1)
    expect(page.locator("#do-check-head")).to_be_focused()
    page.locator("#call-head a").first.focus()
    expect(page.locator("#do-verified")).to_have_count(0)


def test_screen_reader_hears_what_came_of_an_action(stage: Stage) -> None:
    """The result is written into the region that was there, because a new region is not read out."""
    call = assigned(stage)
    page = page_of(stage, call)
    action_form(page, "opted-out").get_by_role("button").click()
    page.wait_for_url("**?action=*")
    page.evaluate("document.getElementById('action').isSame = true")
    expect(page.locator("#action")).to_contain_text("Done.")
    connect_again(page)
    assert page.evaluate("document.getElementById('action').isSame"), "the region is another one"


def test_screen_reader_hears_the_state_of_a_call(stage: Stage) -> None:
    """Whoever has a call's page open is told when the voice is authenticated, once."""
    call = assigned(stage)
    page = page_of(stage, call)
    expect(page.locator("#said")).to_have_text("Watching")
    writes(page, "#said")
    stage.stack.happen(call, "green")
    expect(page.locator("#said")).to_have_text("Authenticated")
    connect_again(page)
    assert page.evaluate("window.written") == ["Authenticated"]


def test_screen_reader_hears_of_the_same_alarm_again(stage: Stage) -> None:
    """An alarm that ended and came back is told like the first time."""
    # Calls of other tests leave no alarm at this institution, which would be told first.
    board, redis, alarm = stage.board("/institutions/cu-2"), stage.stack.redis, "Reject unresolved"
    # The mark is on no live call: a worker would end it with the call's next step.
    member = CallId("cu-2", "00000000-0000-4000-8000-000000000000").member
    said = board.locator("#said")
    writes(board, "#said")
    for _ in range(2):
        redis.hset(Keys().attention, member, "reject unresolved")
        try:
            expect(said).to_contain_text(alarm)
        finally:
            redis.hdel(Keys().attention, member)
        expect(said).not_to_contain_text(alarm)
    assert len([words for words in board.evaluate("window.written") if alarm in words]) == 2


def test_screen_reader_hears_once_that_the_connection_is_lost(stage: Stage) -> None:
    """Every failed attempt to connect again is silent."""
    page = stage.board()
    page.route("**/board/stream*", lambda route: route.abort())
    page.evaluate("follow()")
    expect(page.locator("#link")).to_contain_text("Connection lost")
    writes(page, "#link .words")
    with page.expect_event("requestfailed"):
        page.evaluate("follow()")
    page.unroute("**/board/stream*")
    expect(page.locator("#link")).to_contain_text("Live")
    assert page.evaluate("window.written") == ["Live"]


def test_page_of_a_call_that_is_gone_says_so_and_asks_no_more(stage: Stage) -> None:
    """Its record has expired or was lost: to connect again each second would bring nothing."""
    redis, keys = stage.stack.redis, Keys()
    call, gone = assigned(stage), CallId("cu-1", "00000000-0000-4000-8000-000000000001")
    # A copy of the record, which no worker knows.
    redis.copy(keys.item(CallId(call["institution_key"], call["voice_id"]).member), keys.item(gone.member))
    page = stage.board(f"/calls/{gone.institution_key}/{gone.voice_id}")
    redis.delete(keys.item(gone.member))
    expect(page.locator("#link")).to_contain_text("is gone")
    assert page.evaluate("stream.readyState === EventSource.CLOSED")


CLICK_TWICE = """button => {
  button.click();
  setTimeout(() => { button.click(); console.info("clicked twice"); }, 200);
}"""

CLICK_UPDATED = """button => {
  button.click();
  document.activeElement.blur();
  const markup = document.getElementById("forms").outerHTML.replaceAll("data-sent", "data-old");
  show({ now: Date.now(), html: { forms: markup }, order: {}, said: "" });
  setTimeout(() => { document.querySelector("#do-check button").click(); console.info("clicked twice"); }, 200);
}"""
"""An update comes between the clicks, and the button has no focus: Safari gives it none."""


@pytest.mark.parametrize("clicks", [CLICK_TWICE, CLICK_UPDATED], ids=["twice", "with an update between"])
def test_second_click_checks_nothing_while_the_first_is_under_way(stage: Stage, clicks: str) -> None:
    """A check is one of a few that are reserved for people: a hasty click on the button uses no second one."""
    call = assigned(stage)
    page = page_of(stage, call)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/check", hold)
    with page.expect_console_message(lambda message: message.text == "clicked twice"):
        action_form(page, "check").get_by_role("button").evaluate(clicks)
    held[0].continue_()
    expect(page.locator("#action")).to_contain_text("Done.")
    assert len(held) == 1


def test_resume_lifts_only_the_pause_that_was_shown(stage: Stage) -> None:
    """Somebody has paused more since the page was opened: its form does not lift that."""
    page, other = stage.board("/pausing"), stage.page()

    def pause(scope: str, because: str) -> None:
        other.goto(f"{stage.web_url}/board/pausing")
        form = other.locator("form[action$='/pause']")
        form.locator(f"input[value={scope}]").check()
        form.locator("select[name=institution]").select_option("bank-1")
        form.locator("input[name=because]").fill(because)
        form.get_by_role("button", name="Pause").click()
        other.wait_for_url("**/board")

    pause("effects", "a drill")
    try:
        page.reload()
        pause("all", "a fraud wave")
        form = page.locator("form[action$='/resume']")
        form.locator("select[name=institution]").select_option("bank-1")
        form.locator("input[name=because]").fill("the drill is over")
        form.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("alert")).to_contain_text("a fraud wave")
        expect(page.locator("#pauses")).to_contain_text("a fraud wave")
        expect(form.locator("input[name=because]")).to_have_value("the drill is over")
    finally:
        stage.stack.redis.delete(Keys().pause)
