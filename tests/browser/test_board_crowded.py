"""The board and the list of calls with 300 institutions and 2,000 live calls."""

import re
import time
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect
from redis import Redis

from callkeeper.calls.effect_resolution import REFUSED_BY_SERVICE
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.board.renderer import ALARMS_ON_PHONE, ALARMS_SHOWN
from tests.browser.crowd import coming_and_going, crowded
from tests.browser.test_board_measured import changing
from tests.harness.browser import SIZES, Profiles, Stage, assert_fits, serious
from tests.harness.processes import Stack, stack

expect.set_options(timeout=20_000)

FIRST_HTML = 200_000
BYTES_A_SECOND = 20_000
WINDOW_S = 8.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run the web process without workers, which would ask the sandbox about calls that it does not know."""
    with stack(tmp_path_factory.mktemp("crowd"), workers=0) as running:
        yield running


@pytest.fixture(scope="module")
def crowd(site: Stack) -> Iterator[list[Call]]:
    """Keep 300 institutions with 2,000 live and 500 settled calls in Redis."""
    with crowded(site.redis_url, settled=500) as calls:
        yield calls


@pytest.fixture
def stage(profiles: Profiles, site: Stack) -> Iterator[Stage]:
    """Return a stage for that web process. The test fails if a page logged an error."""
    stage = Stage(profiles, site)
    yield stage
    stage.close()
    assert stage.heard.complaints == [], "a page violated its security policy, or its script failed"


def client(stage: Stage) -> httpx.Client:
    """Return a client with the demonstration's login."""
    user, _, password = stage.stack.demo.admin.partition(":")
    return httpx.Client(base_url=stage.web_url, auth=(user, password), timeout=30)


def test_first_page_is_small_and_short(stage: Stage, crowd: list[Call]) -> None:
    """The first HTML is below 200 KB, the page below four screens; all institutions are on it, most of them folded."""
    with client(stage) as http:
        page = http.get("/board").text
    assert len(page.encode()) < FIRST_HTML
    board = stage.board()
    expect(board.locator("#live-head")).to_contain_text("2000 live")
    assert board.evaluate("document.documentElement.scrollHeight") < 4 * 900
    expect(board.locator("#institutions-head")).to_contain_text(re.compile(r"30\d institutions"))
    assert board.locator("#institutions tbody tr, #quiet-rows li").count() >= 300
    assert_fits(board)


def test_updates_stay_below_their_bound(stage: Stage, crowd: list[Call]) -> None:
    """While 40 calls begin, 40 end and 100 change each second, a page is sent less than 20 KB a second."""
    redis_url, sent, is_first, began = stage.stack.redis_url, 0, True, 0.0
    churn = coming_and_going(redis_url, crowd[:1000])
    with changing(redis_url, crowd[1000:]), churn, client(stage) as http, http.stream("GET", "/board/stream") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {") and is_first:
                is_first, began = False, time.monotonic()
            elif line.startswith("data: {"):
                assert sent / BYTES_A_SECOND < time.monotonic() - began + 0.5, "an event came before its time"
                sent += len(line)
            if began and time.monotonic() > began + WINDOW_S:
                break
    assert sent, "nothing was updated"


def test_keyboard_reaches_the_first_call_before_any_remedy(stage: Stage, crowd: list[Call]) -> None:
    """The skip link leads to the calls. Without it no link to the runbook comes before the first call."""
    board = stage.board()
    board.keyboard.press("Tab")
    board.keyboard.press("Enter")
    board.keyboard.press("Tab")
    assert "/board/calls/" in focused(board)
    board.reload()
    seen = []
    for _ in range(40):
        board.keyboard.press("Tab")
        seen.append(focused(board))
        if re.search(r"/board/calls/", seen[-1]):
            break
    assert re.search(r"/board/calls/", seen[-1]), seen
    assert not [address for address in seen if "/operations#" in address]


def focused(page: Page) -> str:
    """Return the address of the focused link; empty if it is none."""
    return str(page.evaluate("document.activeElement.getAttribute('href') || ''"))


def test_axe_finds_nothing_in_the_crowd(stage: Stage, crowd: list[Call]) -> None:
    """Axe finds no serious violation on the board with all folds open, and on the list of calls."""
    board = stage.board()
    for fold in ("others", "quiet"):
        board.locator(f"#{fold}-head").click()
    assert serious(board) == []
    for path in ("/calls", "/calls?state=needs-person", "/calls?rule=nobody"):
        board.goto(f"{stage.web_url}/board{path}")
        assert serious(board) == []


@pytest.fixture
def refused(site: Stack, crowd: list[Call]) -> Iterator[None]:
    """Let the service have refused thirty rejects, for ten reasons."""
    members = [CallId(call.institution_key, call.voice_id).member for call in crowd[:30]]
    with Redis.from_url(site.redis_url) as redis:
        for n, member in enumerate(members):
            redis.hset(Keys().attention, member, f"reject {REFUSED_BY_SERVICE}: reason {n % 10}")
        yield
        redis.hdel(Keys().attention, *members)


@pytest.mark.parametrize(("width", "height", "cards"), [(1440, 900, ALARMS_SHOWN), (390, 844, ALARMS_ON_PHONE)])
def test_cards_do_not_push_the_calls_away(stage: Stage, refused: None, width: int, height: int, cards: int) -> None:
    """With thirty calls that need a person, the first live calls are on a desktop's screen, and few cards on a phone."""
    board = stage.board(viewport={"width": width, "height": height})
    expect(board.locator("#alarms-rest")).to_contain_text("more: all calls that need a person")
    assert board.locator(".alarm:visible").count() == cards
    first = board.locator(".row").first.bounding_box()
    assert first is not None
    assert first["y"] + first["height"] < height or width < 640
    assert serious(board) == []


def test_filter_shows_one_institution_with_and_without_the_script(stage: Stage, crowd: list[Call]) -> None:
    """Typing a part of a name or key shows only such lines, also after a reload; without JavaScript Enter does."""
    board = stage.board()
    expect(board.get_by_role("link", name="Example Credit Union 215")).not_to_be_visible()
    board.locator("#sift").fill("crowd-215")
    expect(board.get_by_role("link", name="Example Credit Union 215")).to_be_visible()
    expect(board.get_by_role("link", name="Example Credit Union 214")).not_to_be_visible()
    board.evaluate("() => { rest(); again(); }")
    board.locator("#link.live").wait_for()  # every line has come anew
    expect(board.get_by_role("link", name="Example Credit Union 214")).not_to_be_visible()
    board.reload()
    expect(board.locator("#sift")).to_have_value("crowd-215")
    expect(board.get_by_role("link", name="Example Credit Union 215")).to_be_visible()
    board.locator("#link.live").wait_for()
    expect(board.get_by_role("link", name="Example Credit Union 214")).not_to_be_visible()
    board.locator("#sift").fill("")
    expect(board.get_by_role("link", name="Example Credit Union 001")).to_be_visible()
    assert board.url == f"{stage.web_url}/board"
    still = stage.board(java_script_enabled=False)
    still.locator("#sift").fill("CROWD-215")
    still.locator("#sift").press("Enter")
    expect(still.get_by_role("link", name="Example Credit Union 215")).to_be_visible()
    expect(still.get_by_role("link", name="Example Credit Union 214")).to_have_count(0)


def test_list_leads_to_calls_by_state_rule_and_institution(stage: Stage, crowd: list[Call]) -> None:
    """From the board to the red calls, to their next page; by rule and institution to settled ones; the address is kept."""
    board = stage.board()
    board.locator("#live-head a[href$='state=red']").click()
    rows = board.locator("table.calls tbody tr")
    expect(rows.first).to_contain_text("Red policy")
    assert rows.count() == board.get_by_text("Red policy", exact=True).count() - 1, "the form names it once more"
    board.goto(f"{stage.web_url}/board/calls?state=settled&rule=verified&institution=crowd-062")
    expect(rows.first).to_contain_text("verified")
    expect(rows.first).to_contain_text("Example Credit Union 062")
    board.locator("select[name=outcome]").select_option("rejected")
    board.get_by_role("button", name="Show").click()
    expect(board.locator(".empty")).to_contain_text("There is no such call")
    assert "outcome=rejected" in board.url
    board.goto(f"{stage.web_url}/board/calls")
    first = rows.first.locator("a").get_attribute("href")
    board.get_by_role("link", name="Next page").click()
    expect(rows.first).to_be_visible()
    assert rows.first.locator("a").get_attribute("href") != first


@SIZES
def test_crowd_fits_from_phone_to_wall(stage: Stage, crowd: list[Call], width: int, height: int) -> None:
    """No element is wider than the window, on the board and on the list."""
    page = stage.page(viewport={"width": width, "height": height})
    for path in ("", "/calls"):
        stage.turn(page, path)
        assert_fits(page)


def test_board_and_list_can_be_printed(stage: Stage, crowd: list[Call]) -> None:
    """A printed page has every line, also those in folds, and no forms; it fits the paper's width."""
    board = stage.board(viewport={"width": 800, "height": 1100})
    board.emulate_media(media="print")
    expect(board.get_by_role("link", name="Example Credit Union 215")).to_be_visible()
    expect(board.locator(".sift")).not_to_be_visible()
    board.goto(f"{stage.web_url}/board/calls")
    expect(board.locator("table.calls tbody tr").first).to_be_visible()
    expect(board.locator("form.narrow")).not_to_be_visible()
    assert_fits(board)
