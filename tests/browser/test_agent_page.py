"""The web component on the example's page, at real processes: what an agent sees, says and is told."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.harness.browser import Pages, Profiles, violations
from tests.harness.processes import PATIENCE_S, Stack, end, frozen
from tests.waiting import until

expect.set_options(timeout=20_000)

EXAMPLE = Path(__file__).parents[2] / "docs/examples/agent_page.py"
SHARED = {"access-control-allow-origin": "*"}
"""What an answer needs that a test gives in place of the desk."""


class Desktop(Pages):
    """The example's back end, and pages of it in a browser."""

    def __init__(self, profiles: Profiles, stack: Stack, origin: str) -> None:
        super().__init__(profiles)
        self.stack = stack
        self.origin = origin

    def open(self, call: dict[str, Any] | None = None, *, phone: str = "", **more: Any) -> Page:
        """Open the page for a call or a number."""
        page = self.page(**more)
        which = f"phone={phone}" if call is None else f"call={call['voice_id']}"
        page.goto(f"{self.origin}/?institution=cu-1&{which}")
        return page

    def said(self, call: dict[str, Any]) -> list[tuple[str, str, str]]:
        """Return what people said of a call: what, who, and by which token."""
        lines = self.stack.trail(call)
        return [(line.kind or "", line.operator or "", line.token or "") for line in lines if line.what == "said"]


@pytest.fixture(scope="module")
def origin(running: Stack, agent_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run the example; return its origin."""
    token = tmp_path_factory.mktemp("agent") / "token.txt"
    token.write_text(running.demo.desk_token)
    command = [sys.executable, str(EXAMPLE), running.demo.web_url, str(token), "agent-7", str(agent_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().rstrip("/")
        finally:
            process.terminate()


@pytest.fixture
def desktop(profiles: Profiles, running: Stack, origin: str) -> Iterator[Desktop]:
    """Return a desktop. The test fails if a page violated its policy, or asked another host than its own and the desk."""
    desktop = Desktop(profiles, running, origin)
    yield desktop
    desktop.close()
    running.lift_faults()
    own = {url.partition("://")[2] for url in (origin, running.demo.web_url)}
    assert desktop.heard.hosts - {""} <= own
    assert desktop.heard.complaints == []


def state(page: Page) -> Any:
    """Return the line with the call's state."""
    return page.locator("callkeeper-call .state")


def answer(page: Page) -> Any:
    """Return the line that says what became of a statement."""
    return page.locator("callkeeper-call .answer")


def press(page: Page, name: str) -> None:
    """Press a button of the component."""
    page.get_by_role("button", name=name, exact=True).click()


def test_agent_sees_the_voice_authenticated(desktop: Desktop) -> None:
    """The state changes by itself from waiting to authenticated, and the end of the call is told."""
    call = desktop.stack.call(end(120))
    page = desktop.open(call)
    expect(state(page)).to_have_text("Listening to the voice")
    desktop.stack.happen(call, "green")
    expect(state(page)).to_have_text("Authenticated")
    expect(page.get_by_role("button", name="Verified", exact=True)).not_to_be_visible()
    desktop.stack.happen(call, "end")
    expect(page.locator("callkeeper-call .notes")).to_contain_text("The call has ended")


def test_one_check_is_not_called_checks(desktop: Desktop) -> None:
    """It is the first thing that an agent reads about the caller."""
    page, script = desktop.open(desktop.stack.call(end(60))), f"{desktop.stack.demo.web_url}/desk/callkeeper-call.js"
    made = "[1, 2].map(used => WORDS.checks({ checks_used: used, checks_left: 18 }))"
    say = f"script => import(script).then(({{ WORDS }}) => {made})"
    assert page.evaluate(say, script) == ["1 check made, 18 left", "2 checks made, 18 left"]


def test_empty_lines_take_no_room(desktop: Desktop) -> None:
    """They have to be there for screen readers: the state, the caller and the buttons stand close together all the same."""
    page = desktop.open(desktop.stack.call(end(60)))
    expect(state(page)).to_have_text("Listening to the voice")
    parts = [
        page.locator(f"callkeeper-call .{name}").bounding_box() for name in ("section", "state", "detail", "actions")
    ]
    card, *lines = [box for box in parts if box is not None]
    gaps = [below["y"] - above["y"] - above["height"] for above, below in pairwise(lines)]
    assert gaps == pytest.approx([9.6, 9.6], abs=1)
    assert card["y"] + card["height"] - lines[-1]["y"] - lines[-1]["height"] == pytest.approx(13, abs=1)


def test_agent_verifies_a_caller(desktop: Desktop) -> None:
    """A verification enrolls once, in the agent's name, and the page says what became of it."""
    call = desktop.stack.call(end(90))
    page = desktop.open(call)
    expect(state(page)).to_have_text("Listening to the voice")
    press(page, "Verified")
    expect(page.locator("callkeeper-call form")).to_contain_text("The rules may then enroll this voice")
    page.get_by_label("How you verified").select_option("OneTimePasswordAuth")
    press(page, "Send")
    expect(answer(page)).to_have_text("Verified: Done.")
    expect(state(page)).to_have_text("Enrolled")
    assert desktop.said(call) == [("verified", "agent-7", "demo")]
    assert desktop.stack.arrived(call)["enroll"] == 1


def test_agent_distrusts_a_caller_whose_voice_does_not_match(desktop: Desktop) -> None:
    """A mismatch is shown before all that is good, and the agent's distrust rejects the voice."""
    call = desktop.stack.call({"kind": "mismatch", "after_s": 1}, end(90))
    page = desktop.open(call)
    expect(state(page)).to_have_text("The voice does not match")
    press(page, "Distrusted")
    page.get_by_label("Why").fill("sounds <b>like</b> another")
    page.keyboard.press("Enter")
    expect(state(page)).to_have_text("Rejected")
    expect(answer(page)).to_have_text("Distrusted: Done.")
    assert desktop.stack.arrived(call)["reject_voice"] == 1


def test_agent_opts_a_caller_out_and_checks(desktop: Desktop) -> None:
    """An opt-out is recorded, a check is made; a second check too many is refused in words."""
    call = desktop.stack.call(end(90))
    page = desktop.open(call)
    expect(state(page)).to_have_text("Listening to the voice")
    press(page, "Opted out")
    expect(page.locator("callkeeper-call .notes")).to_contain_text("does not want to be enrolled")
    for _ in range(2):
        press(page, "Check now")
        expect(answer(page)).to_have_text("Check now: Done.")
    press(page, "Check now")
    expect(answer(page)).to_have_text("Check now: Recorded, and held: the checks reserved for people are used up")


def test_rule_asks_the_agent(desktop: Desktop) -> None:
    """What a rule asks a person is on the page in the rule's words, until somebody has answered."""
    call = desktop.stack.call({"kind": "mismatch", "after_s": 1}, end(90))
    page = desktop.open(call)
    expect(state(page)).to_have_text("The voice does not match")
    desktop.stack.happen(call, "answered_questions", text="operator-2")
    asked = page.locator("callkeeper-call .ask")
    expect(asked).to_contain_text("A rule asks:")
    record = desktop.stack.record(call)
    assert record is not None
    assert record.statements.asked is not None
    expect(asked).to_contain_text(record.statements.asked.because)


def test_page_finds_the_call_by_the_number(desktop: Desktop) -> None:
    """A page for a number shows the call when it comes; of two at once it shows neither."""
    phone = desktop.stack.next_phone()
    page = desktop.open(phone=phone)
    expect(state(page)).to_have_text("No live call yet")
    desktop.stack.call(end(90), phone_number=phone)
    expect(state(page)).to_have_text("Listening to the voice")
    desktop.stack.call(end(90), phone_number=phone)
    expect(state(page)).to_contain_text("Several calls")
    expect(page.get_by_role("button", name="Verified", exact=True)).not_to_be_visible()


def test_page_says_why_it_shows_no_call(desktop: Desktop) -> None:
    """A call that is finished is no call that is still to come; an institution that is not the token's is named."""
    call = desktop.stack.call(end(2))
    desktop.stack.settled(call)
    page = desktop.open(call)
    expect(state(page)).to_have_text(
        "No call with this id is open at this institution: it is finished, or has not begun"
    )
    page.locator("callkeeper-call").evaluate("element => element.setAttribute('institution', 'cu-l')")
    expect(state(page)).to_have_text("The call cannot be shown")
    expect(answer(page)).to_contain_text("institution: is none of this token's; did you mean cu-")


def test_markup_sends_the_token_nowhere_else(desktop: Desktop) -> None:
    """Attributes that somebody slips into the page name neither another desk nor another site's back end."""
    page = desktop.open(desktop.stack.call(end(90)))
    element = page.locator("callkeeper-call")
    element.evaluate("element => { element.setAttribute('desk', 'http://127.0.0.1:9'); element.refresh(); }")
    expect(state(page)).to_have_text("Listening to the voice")
    element.evaluate("element => element.setAttribute('token-url', 'http://127.0.0.1:9/token')")
    expect(answer(page).or_(page.locator("callkeeper-call .trouble"))).to_contain_text(
        ["gets no token from its server"]
    )


def test_statement_for_one_call_is_never_made_about_another(desktop: Desktop) -> None:
    """When the page turns to another call, a form that is open is closed, and nothing of the first call stays."""
    first, second = desktop.stack.call(end(90)), desktop.stack.call(end(90))
    page = desktop.open(first)
    press(page, "Distrusted")
    page.get_by_label("Why").fill("a reason")
    page.locator("callkeeper-call").evaluate("(element, id) => element.setAttribute('call', id)", second["voice_id"])
    expect(page.get_by_label("Why")).not_to_be_visible()
    expect(state(page)).to_have_text("Listening to the voice")
    assert page.locator("callkeeper-call").evaluate("element => element.current.voice_id") == second["voice_id"]
    assert desktop.said(first) == desktop.said(second) == []


def test_what_is_typed_stays_until_it_is_accepted(desktop: Desktop) -> None:
    """Neither a page that sets its attributes again, nor a new connection, nor a refusal takes the agent's words."""
    call = desktop.stack.call(end(90))
    page, element = desktop.open(call), "document.querySelector('callkeeper-call')"
    expect(state(page)).to_have_text("Listening to the voice")
    press(page, "Distrusted")
    why = page.get_by_label("Why")
    why.fill("another voice")
    page.evaluate(f"{element}.setAttribute('call', {element}.getAttribute('call'))")
    with page.expect_response("**/desk/stream*"):
        page.evaluate(f"{element}.refresh()")
    expect(why).to_have_value("another voice")
    page.route("**/distrusted?*", lambda route: route.fulfill(status=403, json={"code": "forbidden"}, headers=SHARED))
    press(page, "Send")
    expect(answer(page)).to_have_text("Distrusted: This page may not do that.")
    expect(why).to_have_value("another voice")
    page.unroute("**/distrusted?*")
    press(page, "Send")
    expect(answer(page)).to_have_text("Distrusted: Done.")
    expect(why).not_to_be_visible()


def test_statement_is_sent_although_the_page_has_turned_to_the_next_call(desktop: Desktop) -> None:
    """The desk is away for a moment when the agent distrusts a caller, and the next call comes meanwhile."""
    first, second = desktop.stack.call(end(90)), desktop.stack.call(end(90))
    page = desktop.open(first)
    page.route("**/distrusted?*", lambda route: route.fulfill(status=503, json={"code": "unavailable"}, headers=SHARED))
    press(page, "Distrusted")
    page.get_by_label("Why").fill("another voice")
    with page.expect_response("**/distrusted?*"):
        press(page, "Send")
    page.locator("callkeeper-call").evaluate("(element, id) => element.setAttribute('call', id)", second["voice_id"])
    expect(state(page)).to_have_text("Listening to the voice")
    page.unroute("**/distrusted?*")
    until(lambda: desktop.said(first), PATIENCE_S, "the statement")
    assert desktop.said(second) == []
    expect(answer(page)).to_be_empty()


def test_agent_who_errs_says_at_once_who_it_is(desktop: Desktop) -> None:
    """A second statement is sent while the first one is still to be answered, and the answer is about the second."""
    call = desktop.stack.call(end(90))
    page = desktop.open(call)
    expect(state(page)).to_have_text("Listening to the voice")
    with frozen(desktop.stack.member("worker-1")):
        for reason in ("the wrong call", "another voice"):
            press(page, "Distrusted")
            page.get_by_label("Why").fill(reason)
            with page.expect_request("**/distrusted?*"):
                press(page, "Send")
        press(page, "Opted out")
        press(page, "Opted out")
    expect(state(page)).to_have_text("Rejected")
    expect(page.locator("callkeeper-call .notes")).to_contain_text("does not want to be enrolled")
    until(lambda: len(desktop.said(call)) == 3, PATIENCE_S, "the statements")
    said = [line.because for line in desktop.stack.trail(call) if line.what == "said"]
    assert said == ["the wrong call", "another voice", None]


def test_focus_is_on_the_state_when_a_form_is_not_needed_any_more(desktop: Desktop) -> None:
    """The voice is rejected while the agent types why: the form closes, and the keyboard is where that is said."""
    call = desktop.stack.call(end(90))
    page = desktop.open(call)
    expect(state(page)).to_have_text("Listening to the voice")
    press(page, "Distrusted")
    page.get_by_label("Why").fill("another voi")
    desktop.stack.happen(call, "rejected")
    expect(state(page)).to_have_text("Rejected")
    expect(page.get_by_label("Why")).not_to_be_visible()
    expect(state(page)).to_be_focused()


def test_refused_token_is_told_at_once(desktop: Desktop) -> None:
    """A page whose token is not accepted says so, asks for one new token only, and can be told to try again."""
    call = desktop.stack.call(end(90))
    asked = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        wrong = {"token": "cka_wrong", "operator": "agent-7", "institutions": ["cu-1"], "expires_in_s": 900}
        route.fulfill(json=wrong)

    page = desktop.page()
    page.route("**/callkeeper-token", refuse)
    page.goto(f"{desktop.origin}/?institution=cu-1&call={call['voice_id']}")
    expect(answer(page)).to_have_text("This page's token is not accepted.")
    assert len(asked) == 2
    page.unroute("**/callkeeper-token")
    press(page, "Try again")
    expect(state(page)).to_have_text("Listening to the voice")


@pytest.mark.parametrize("retry_after", ["Wed, 21 Oct 2026 07:28:00 GMT", "99999999"])
def test_odd_wish_to_wait_does_not_hurry_the_page(desktop: Desktop, retry_after: str) -> None:
    """What a router in front answers for a desk that is away may have any Retry-After: the page waits longer each time."""
    call, asked = desktop.stack.call(end(60)), []

    def away(route: Route) -> None:
        asked.append(route.request.url)
        allowed = {"access-control-allow-origin": "*", "access-control-expose-headers": "Retry-After"}
        route.fulfill(status=503, headers={"retry-after": retry_after, **allowed})

    page = desktop.page()
    page.route("**/desk/stream*", away)
    page.goto(f"{desktop.origin}/?institution=cu-1&call={call['voice_id']}")
    page.wait_for_timeout(4000)
    assert 1 <= len(asked) <= 4
    page.unroute("**/desk/stream*")


def test_page_says_that_it_is_old(desktop: Desktop) -> None:
    """Without a connection the page says that it may be old, and is up to date by itself when the desk is back."""
    call = desktop.stack.call(end(120))
    page = desktop.open(call)
    expect(state(page)).to_have_text("Listening to the voice")
    desktop.stack.happen(call, "green")
    page.route("**/desk/**", lambda route: route.abort())
    page.locator("callkeeper-call").evaluate("element => element.refresh()")
    expect(page.locator("callkeeper-call .old")).to_have_text("The desk cannot be reached.")
    page.unroute("**/desk/**")
    expect(state(page)).to_have_text("Authenticated")
    expect(page.locator("callkeeper-call .old")).to_have_text("")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(desktop: Desktop, scheme: Any) -> None:
    """Axe finds nothing at all, in light and in dark, with a form open and with an answer shown, at 320 pixels too."""
    call = desktop.stack.call({"kind": "mismatch", "after_s": 1}, end(90))
    page = desktop.open(call, color_scheme=scheme, viewport={"width": 320, "height": 800})
    expect(state(page)).to_have_text("The voice does not match")
    for action in ("Verified", "Distrusted"):
        press(page, action)
        assert violations(page, {"resultTypes": ["violations"]}, every=True) == []
    press(page, "Cancel")
    press(page, "Check now")
    expect(answer(page)).to_have_text("Check now: Done.")
    assert violations(page, {"resultTypes": ["violations"]}, every=True) == []
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_keyboard_alone_is_enough(desktop: Desktop) -> None:
    """Tab reaches the buttons, Enter opens a form with the focus in it, Escape closes it with the focus on its button."""
    page = desktop.open(desktop.stack.call(end(90)))
    expect(state(page)).to_have_text("Listening to the voice")
    focused = "document.querySelector('callkeeper-call').shadowRoot.activeElement"
    page.keyboard.press("Tab")
    assert page.evaluate(f"{focused}.textContent") == "Verified"
    page.keyboard.press("Enter")
    assert page.evaluate(f"{focused}.tagName") == "SELECT"
    page.keyboard.press("Escape")
    assert page.evaluate(f"{focused}.textContent") == "Verified"
    assert page.evaluate(f"{focused}.ariaExpanded") == "false"


def test_screen_reader_is_told_of_changes_once(desktop: Desktop) -> None:
    """What changes is in live regions, which are written only when they change; the region and its parts have names."""
    call = desktop.stack.call(end(120))
    page = desktop.open(call)
    expect(page.get_by_role("region", name="Voice of the caller")).to_be_visible()
    expect(state(page)).to_have_text("Listening to the voice")
    expect(page.get_by_role("group", name="What you know of the caller")).to_be_visible()
    page.evaluate("""() => {
      window.written = [];
      const state = document.querySelector("callkeeper-call").shadowRoot.querySelector("[role=status].state");
      const note = () => window.written.push(state.textContent);
      new MutationObserver(note).observe(state, { childList: true, characterData: true, subtree: true });
    }""")
    desktop.stack.happen(call, "green")
    expect(state(page)).to_have_text("Authenticated")
    desktop.stack.happen(call, "end")
    expect(page.get_by_role("status").filter(has_text="The call has ended.")).to_be_visible()
    assert page.evaluate("window.written") == ["Authenticated"]


def test_page_sets_colours_and_the_scheme(desktop: Desktop) -> None:
    """A page's variables replace the colours, and `theme` the system's scheme."""
    page = desktop.open(desktop.stack.call(end(90)), color_scheme="light")
    expect(state(page)).to_have_text("Listening to the voice")
    section = page.locator("callkeeper-call section")
    page.locator("callkeeper-call").evaluate("element => element.setAttribute('theme', 'dark')")
    expect(section).to_have_css("background-color", "rgb(22, 28, 36)")
    page.evaluate("document.documentElement.style.setProperty('--callkeeper-paper', 'rgb(1, 2, 3)')")
    expect(section).to_have_css("background-color", "rgb(1, 2, 3)")


def test_page_tells_its_own_script(desktop: Desktop) -> None:
    """The page hears of every change of the call, and can hand over tokens by a function."""
    call = desktop.stack.call(end(120))
    page = desktop.open(call)
    expect(state(page)).to_have_text("Listening to the voice")
    page.evaluate("""() => {
      const element = document.querySelector("callkeeper-call");
      window.heard = [];
      window.minted = 0;
      document.addEventListener("callkeeper-change", ({ detail }) => {
        if (detail) window.heard.push([detail.voice_id, detail.revision]);
      });
      element.removeAttribute("token-url");
      element.getToken = async () => {
        window.minted += 1;
        return (await fetch("/callkeeper-token", { method: "POST" })).json();
      };
      element.refresh();
    }""")
    desktop.stack.happen(call, "green")
    expect(state(page)).to_have_text("Authenticated")
    heard = page.evaluate("window.heard")
    assert page.evaluate("window.minted") == 1
    assert {voice_id for voice_id, _ in heard} == {call["voice_id"]}
    revisions = [revision for _, revision in heard]
    assert revisions == sorted(revisions)
