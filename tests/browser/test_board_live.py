"""What the board shows after a person starts calls on the sandbox's page, with real processes."""

from playwright.sync_api import Page, expect

from callkeeper.calls.store.keys import Keys
from tests.harness.browser import OPERATOR, Stage, action_form, line, web_restarted
from tests.waiting import until

expect.set_options(timeout=20_000)


def fill_pause(page: Page, stage: Stage, key: str) -> None:
    """Pause an institution's effects with the form."""
    form = page.locator("form[action$='/pause']")
    for _ in range(20):  # until a worker has read which institutions there are
        page.goto(f"{stage.web_url}/board/pausing")
        if form.locator(f"option[value='{key}']").count():
            break
        page.wait_for_timeout(500)
    form.locator("select[name=institution]").select_option(key)
    form.locator("input[name=because]").fill("a drill")
    form.get_by_role("button", name="Pause").click()


def test_call_appears_and_turns_green(stage: Stage) -> None:
    """A call that is started on the sandbox's page appears on an open board and turns green without a reload."""
    board, sandbox = stage.board(), stage.sandbox()
    board.evaluate("window.opened = true")
    voice_id = stage.start(sandbox, "nothing")
    call = line(board, voice_id)
    expect(call).to_contain_text("Watching")
    expect(call).to_contain_text("check in")
    stage.stack.happen({"voice_id": voice_id}, "green")
    expect(call).to_contain_text("Authenticated")
    assert board.evaluate("window.opened"), "the page was reloaded"
    expect(call).not_to_be_visible()  # decided calls are folded


def test_call_that_nobody_pushed_appears(stage: Stage) -> None:
    """A call whose pushes are lost appears on the board."""
    board, sandbox = stage.board(), stage.sandbox()
    expect(line(board, stage.start(sandbox, "unpushed"))).to_be_visible()
    expect(sandbox.locator("#attempts")).to_contain_text("lost on purpose")


def test_call_that_waits_for_a_choice_leads_to_its_form(stage: Stage) -> None:
    """With several candidates only a person can go on: one click on the line opens the form that chooses."""
    board, sandbox = stage.board(), stage.sandbox()
    call = line(board, stage.start(sandbox, "shared"))
    call.get_by_role("link", name="choose: 2 candidates").click()
    expect(board.locator("#do-assign[open]").get_by_role("button", name="Assign")).to_be_visible()


def test_incident_is_acknowledged_and_the_service_tried_again_on_a_page(stage: Stage) -> None:
    """The card leads to the page with the forms; afterwards it says who knows, and is no longer counted."""
    board = stage.board()
    stage.stack.fault("*", "answer", status=503)
    try:
        card = board.locator(".alarm", has_text="The service is away")
        expect(card).to_contain_text("Last error: status 503")
        card.get_by_role("link", name="The service is away").click()
        board.locator("#service_away").get_by_role("button", name="Acknowledge", exact=True).click()
        expect(board.locator("#service_away")).to_contain_text(f"Acknowledged by {OPERATOR} until")
        board.get_by_role("button", name="Try again now").click()
        expect(board.get_by_role("status").filter(has_text="Workers try everything again now")).to_be_focused()
        board.goto(f"{stage.web_url}/board")
        expect(card).to_contain_text(f"Acknowledged by {OPERATOR} until")
        expect(card).to_have_class("alarm bad known")
    finally:
        stage.stack.lift_faults()
    expect(card).not_to_be_visible()
    until(lambda: not stage.stack.redis.exists(Keys().acknowledged), 40, "the acknowledgement to end with the incident")


AFTER_END_MS = 30_000
"""The rules of the demo wait for the end of the call and the final analysis."""


def test_call_is_enrolled_after_a_passcode(stage: Stage) -> None:
    """A caller who gives a passcode is enrolled after the call, and the call's page shows how it was decided."""
    board, sandbox = stage.board(), stage.sandbox()
    voice_id = stage.start(sandbox, "passcode", key="cu-2", ends_s=6)  # where no other test leaves a suspicion
    line(board, voice_id).locator("a").click()
    expect(board.locator("#call-head")).to_contain_text("Enrolled", timeout=AFTER_END_MS)
    expect(board.locator("#story")).to_contain_text("enroll sent")
    expect(board.locator("#story")).to_contain_text("How each rule decided")
    expect(board.locator("#call-facts")).to_contain_text("assigned")


def test_verified_by_an_administrator_is_enrolled(stage: Stage) -> None:
    """If an administrator verifies the caller on the call's page, the page shows the enroll without a reload."""
    sandbox = stage.sandbox()
    board = stage.board()
    call = line(board, stage.start(sandbox, "nothing"))
    expect(call).to_contain_text("Watching")  # until the caller is known, the form has a field for the person's id
    call.locator("a").click()
    form = action_form(board, "verified")
    form.locator("select[name=validation_type]").select_option("OneTimePasswordAuth")
    form.get_by_role("button").click()
    expect(board.locator("#action")).to_contain_text(f"Done. By {OPERATOR}.")
    expect(board.locator("#call-head")).to_contain_text("Enrolled")


def test_two_candidates_are_assigned_by_a_person(stage: Stage) -> None:
    """A call with two candidates waits for a person; once assigned on its page, it is checked."""
    sandbox, board = stage.sandbox(), stage.board()
    call = line(board, stage.start(sandbox, "shared", after_s=60))
    expect(call).to_contain_text("Unassigned")
    expect(call).to_contain_text("2 candidates")
    call.locator("a.to").click()
    form = action_form(board, "assign")
    expect(form.locator("select[name=person_id]")).to_have_value("")
    form.locator("select[name=person_id]").select_option(index=1)
    form.get_by_role("button").click()
    expect(board.locator("#call-head")).to_contain_text("Watching")


def test_call_is_held_by_a_pause_and_goes_on_after_it(stage: Stage) -> None:
    """A pause holds the enroll after a call, and the board says why; after the pause it is done."""
    board, sandbox = stage.board(), stage.sandbox()
    fill_pause(board, stage, "cu-2")
    expect(board.locator("#pauses")).to_contain_text("a drill")
    voice_id = stage.start(sandbox, "questions", key="cu-2", ends_s=6)
    call = line(board, voice_id)
    expect(call).to_contain_text("Held", timeout=AFTER_END_MS)
    expect(call).to_contain_text("paused")
    board.locator("#pauses").get_by_role("link").first.click()
    form = board.locator("form[action$='/resume']")
    form.locator("input[name=because]").fill("over")
    form.get_by_role("button", name="Resume").click()
    expect(board.locator("#pauses")).not_to_contain_text("a drill")
    page = stage.board(f"/calls/cu-2/{voice_id}")
    expect(page.locator("#call-head")).to_contain_text("Enrolled", timeout=AFTER_END_MS)


def test_pause_of_an_institution_that_is_gone_is_refused_in_the_page(stage: Stage) -> None:
    """Pausing an unknown institution is refused with a suggestion, and the form keeps what was typed."""
    page = stage.board("/pausing")
    form = page.locator("form[action$='/pause']")
    where = form.locator("select[name=institution]")
    where.evaluate("field => field.add(new Option('CU-1', 'CU-1'))")
    form.locator("input[value=all]").check()
    where.select_option("CU-1")
    form.locator("input[name=because]").fill("core migration")
    form.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("alert")).to_contain_text("did you mean cu-1 (Harbour Example Credit Union)?")
    expect(page.get_by_role("alert")).to_be_focused()  # so that a screen reader begins there
    expect(form.locator("input[name=because]")).to_have_value("core migration")
    expect(form.locator("input[value=all]")).to_be_checked()
    expect(where).to_have_value("")
    expect(page.locator("#pauses .pause")).to_have_count(0)


def test_page_of_a_refused_form_can_be_reloaded(stage: Stage) -> None:
    """It keeps what was typed, and has its own address: a reload sends nothing again, and opens the same form."""
    page, sandbox = stage.board(), stage.sandbox()
    voice_id = stage.start(sandbox, "nothing")
    expect(line(page, voice_id)).to_contain_text("Watching")  # the page of a call before its push says 404
    line(page, voice_id).locator("a").click()
    form = action_form(page, "verified")
    form.locator("select[name=person_id]").select_option("?")
    form.locator("input[name=notes]").fill("call back")
    form.locator("select[name=validation_type]").select_option(index=1)
    form.get_by_role("button").click()
    expect(page.get_by_role("alert")).to_contain_text("Type the person id of the other person.")
    page.locator("#link.live").wait_for()  # the stream begins with every piece, and must not replace this one
    expect(form.locator("input[name=notes]")).to_have_value("call back")
    assert page.url == f"{stage.web_url}/board/calls/cu-1/{voice_id}?do=verified"
    again = page.reload()
    assert again is not None
    assert (again.request.method, again.status) == ("GET", 200)
    expect(page.locator("#do-verified[open]")).to_be_visible()


def test_unresolved_effect_is_shown_on_top_and_resolved_by_a_person(stage: Stage) -> None:
    """An unresolved reject is shown on top of the board until a person resolves it on the call's page."""
    board, sandbox = stage.board(), stage.sandbox()
    voice_id = stage.start(sandbox, "nothing", key="bank-1")
    call = line(board, voice_id)
    expect(call).to_contain_text("Watching")
    stage.stack.fault("reject_voice", "reset", applied=True, voice_id=voice_id)
    stage.stack.fault("details", voice_id=voice_id, happening={"kind": "viewed"})  # hides what the reject left
    call.locator("a").click()
    form = action_form(board, "distrusted")
    form.locator("input[name=reason]").fill("a second voice")
    form.locator("input[name=confirmed]").check()
    form.get_by_role("button").click()
    expect(board.locator("#call-head")).to_contain_text("In doubt")
    board.goto(f"{stage.web_url}/board")
    alarm = board.locator("#alarms").get_by_role("link", name="Reject unresolved")
    expect(alarm).to_be_visible(timeout=100_000)  # reads go on for a minute
    alarm.click()
    board.locator("form[action$='/resolve'] input[value=true]").check()
    board.locator("form[action$='/resolve']").get_by_role("button").click()
    expect(board.locator("#action")).to_contain_text("Done.")
    expect(board.locator("#call-head")).to_contain_text("Rejected")
    assert stage.stack.account({"voice_id": voice_id})["tally"]["arrived"]["reject_voice"] == 1


def test_board_goes_on_after_a_restart_of_web(stage: Stage) -> None:
    """An open board says when its web process is down, reconnects by itself and shows what happened meanwhile."""
    board, sandbox = stage.board(), stage.sandbox()
    with web_restarted(stage.stack):
        expect(board.locator("#link")).to_contain_text("Connection lost")
        voice_id = stage.start(sandbox, "green", after_s=1)
    expect(board.locator("#link")).to_contain_text("Live")
    expect(line(board, voice_id)).to_contain_text("Authenticated")


def test_sandbox_page_follows_what_is_asked_of_it(stage: Stage) -> None:
    """The sandbox's page shows who assigned a call without a reload, and can end the call."""
    sandbox = stage.sandbox()
    voice_id = stage.start(sandbox, "nothing")
    row = sandbox.locator("#calls tr").filter(has_text=voice_id)
    expect(row).to_contain_text("callkeeper")
    row.get_by_role("button", name="hang up").click()
    expect(sandbox.locator("#calls tr").filter(has_text=voice_id)).to_have_count(0)
