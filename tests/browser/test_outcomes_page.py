"""The outcomes page in a real browser: test deliveries, failed ones and replays."""

import os

from playwright.sync_api import expect

from tests.harness.browser import Stage, serious
from tests.harness.courier import Receiver

expect.set_options(timeout=20_000)


def test_person_sends_a_test_and_replays_what_failed(stage: Stage, receiver: Receiver) -> None:
    """The page shows the answer to a test delivery and failed deliveries, also on a phone; they can be replayed later."""
    page = stage.board("/outcomes")
    for _ in range(40):
        if page.get_by_role("button", name="Send a test").count():
            break  # the first shift has registered the receiver
        page.wait_for_timeout(500)
        page.reload()
    page.get_by_role("button", name="Send a test").click()
    expect(
        page.get_by_role("status").filter(has_text="Posted.")
    ).to_be_focused()  # so that a screen reader begins there
    expect(page.locator("tr[aria-current=true]")).to_contain_text("accepted: 204")
    receiver.status = lambda: 503
    try:
        voice_id = stage.start(stage.sandbox(), "green", after_s=1)
        line = page.locator("tr").filter(has=page.locator(f"a[href$='{voice_id}']")).first
        for _ in range(40):
            page.goto(f"{stage.web_url}/board/outcomes?failed=1")
            if line.count():
                break
            page.wait_for_timeout(500)
        expect(line).to_contain_text("not accepted: 503")
        assert serious(page) == []
        page.set_viewport_size({"width": 390, "height": 844})
        result = line.get_by_text("not accepted: 503").bounding_box()
        assert result is not None
        assert result["x"] + result["width"] <= 390, "on a phone, what became of it would be out of sight"
        if place := os.environ.get("TEST_PICTURES"):
            page.screenshot(path=f"{place}/outcomes-phone.png")
        page.set_viewport_size({"width": 1280, "height": 720})
        if place := os.environ.get("TEST_PICTURES"):
            page.screenshot(path=f"{place}/outcomes.png", full_page=True)
    finally:
        receiver.status = lambda: 204
    page.get_by_role("button", name="Replay", exact=True).first.click()
    expect(page.get_by_role("status").filter(has_text="tried now")).to_be_visible()
    for _ in range(40):
        page.goto(f"{stage.web_url}/board/outcomes")
        if "accepted: 204" in line.inner_text():
            break  # not only posted: the page offers to replay what its log has
        page.wait_for_timeout(500)
    assert receiver.told(voice_id) == ["call.authenticated"]
    line.get_by_role("button").click()
    expect(page.locator("tr[aria-current=true]").first).to_contain_text("replay")
    assert receiver.told(voice_id) == ["call.authenticated"] * 2


def test_page_of_outcomes_fits_a_phone(stage: Stage) -> None:
    """At 320 pixels the page is no wider than the window."""
    page = stage.board("/outcomes", viewport={"width": 320, "height": 640})
    sides = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(sides) <= 0
