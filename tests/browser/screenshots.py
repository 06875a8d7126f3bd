"""``make screenshots``: takes the documentation's screenshots of a running demonstration with simulated callers.

It invents metrics for the hour before the demonstration, so that the small charts show data.
"""

import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect, sync_playwright
from redis import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.writing import Author, FigureWriter
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.demonstration import demonstration
from tests.acceptance.stack import Stack
from tests.browser.stage import Stage, action_form, launch, line

FOLDER: Final = Path(__file__).parents[2] / "docs" / "screenshots"
FLOWS_FOR_S: Final = 50
OUTAGE_S: Final = 60
"""Longer than an idle shift, so that a shift ends during the outage and its job is shown as failed."""
OUTAGE: Final = ("queue", "read", "check", "assign", "enroll", "reject_voice")
WALL: Final = {"width": 1600, "height": 1000}
PHONE: Final[dict[str, Any]] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}


def main() -> None:
    """Run a demonstration for a while and take the screenshots."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        demonstration(Path(folder), workers=2, seed=7) as demo,
        sync_playwright() as playwright,
    ):
        invent_an_hour(demo.redis_url)
        stage = Stage(launch(playwright), Stack(demo, Path(folder)))
        try:
            take(stage)
        finally:
            stage.close()
            stage.browser.close()
            stage.stack.close()


def take(stage: Stage) -> None:
    """Take every screenshot, with one call that needs a person."""
    sandbox = stage.sandbox(viewport=WALL)
    began = time.monotonic()
    voice_id = distrust(stage, sandbox)
    verified = stage.start(sandbox, "passcode", after_s=14, ends_s=300, key="bank-1")
    board = stage.board(viewport=WALL)
    expect(board.locator("#alarms")).to_contain_text("Reject unresolved", timeout=60_000)
    board.wait_for_timeout(max(0.0, FLOWS_FOR_S - (time.monotonic() - began)) * 1000)
    sandbox.get_by_role("button", name="Send sample CallStart").first.click()
    expect(board.locator("#status")).to_contain_text("sample received")
    shoot(board, "board-light")
    shoot(stage.board(viewport=WALL, color_scheme="dark"), "board-dark")
    shoot(stage.board(**PHONE), "board-phone")
    shoot(stage.board(f"/calls/bank-1/{verified}", viewport=WALL), "call")
    shoot(stage.board(f"/calls/cu-1/{voice_id}", viewport=WALL, color_scheme="dark"), "call-dark")
    sandbox.goto(stage.stack.service_url)
    expect(sandbox.locator("#lamp")).to_contain_text("Live")
    mask = "fields => fields.forEach(field => { field.value = 'X-Push-Key: ' + '•'.repeat(24) })"
    sandbox.locator("input[name=headers]").evaluate_all(mask)
    shoot(sandbox, "sandbox")
    shoot(jobs(stage, "finished"), "jobs")
    for target in OUTAGE:
        stage.stack.fault(target, "answer", status=503)
    board.goto(f"{stage.web_url}/board")
    board.wait_for_timeout(OUTAGE_S * 1000)
    shoot(jobs(stage, "failed"), "jobs-outage")


def jobs(stage: Stage, registry: str) -> Page:
    """Open RQ's dashboard on the page of one registry of our queue."""
    page = stage.context(viewport={"width": 1600, "height": 700}).new_page()
    page.goto(f"{stage.web_url}/rq/0/view/jobs/calls/{registry}/8/dsc/1")
    page.locator("#jobs tbody tr").first.wait_for()
    return page


def distrust(stage: Stage, sandbox: Page) -> str:
    """Make a reject end with an unknown outcome, and return the call's voice id."""
    voice_id = stage.start(sandbox, "nothing", ends_s=300)
    board = stage.board()
    line(board, voice_id).locator("a").click()
    happening = {"kind": "viewed"}
    stage.stack.fault("reject_voice", "reset", applied=True, voice_id=voice_id, happening=happening)
    form = action_form(board, "distrusted")
    form.locator("input[name=reason]").fill("a second voice in the background")
    form.locator("input[name=confirmed]").check()
    form.get_by_role("button").click()
    expect(board.locator("#call-head")).to_contain_text("In doubt", timeout=20_000)
    stage.stack.control("POST", f"/calls/{voice_id}/now", {"kind": "viewed"})
    return voice_id


def shoot(page: Page, name: str) -> None:
    """Take a screenshot of the top of a page."""
    page.wait_for_timeout(800)
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    print(f"{path.relative_to(FOLDER.parents[1])}  {path.stat().st_size / 1000:.0f} kB")  # noqa: T201  (a command)


def invent_an_hour(redis_url: str) -> None:
    """Write invented metrics for the last hour."""
    draw, now_ms = random.Random(7), int(time.time() * 1000)  # noqa: S311  (a picture)
    with Redis.from_url(redis_url) as redis:
        before = 20
        for minutes_ago in range(59, 0, -1):
            calls = int(16 + 8 * draw.random() + 6 * (minutes_ago % 30 < 12))
            figures = invented_minute(draw, calls)
            figures.count(figure.CALLS_SETTLED, "cu-1", "authenticated", n=before + 20 * (minutes_ago == 1))
            before = calls
            author = Author(f"past-{minutes_ago}", "web")  # one author's second first batch would be a repetition
            FigureWriter(figures, author, now_ms=partial(int, now_ms - minutes_ago * 60_000)).write(redis)
        for key in (Keys().running, Keys().processes):  # these authors are no processes that could be missed
            redis.zremrangebyscore(key, "-inf", now_ms - 30_000)


def invented_minute(draw: random.Random, calls: int) -> Figures:
    """Return plausible metrics for a minute with this many calls."""
    figures = Figures()
    for _ in range(calls):
        is_lost = draw.random() < 0.05
        figures.count(figure.CALLS_FOUND, "cu-1", "queue" if is_lost else "push")
        figures.count(figure.PUSHES, "CallStart", n=0 if is_lost else 1)
        figures.observe(figure.PUSH_LAG, draw.lognormvariate(-2, 0.4))
        figures.observe(figure.DETECTION_LAG, draw.lognormvariate(0.8, 0.4))
        figures.observe(figure.CHECKS_SPENT, draw.randrange(2, 14))
        figures.count(figure.DECISIONS, *draw.choices(_DECISIONS, (20, 6, 2, 1))[0])
        for _ in range(7):
            figures.count(figure.CHECKS, "answered")
            figures.count(figure.SERVICE_REQUESTS, "check", "answered")
            figures.observe(figure.SERVICE_SECONDS, draw.lognormvariate(-4.2, 0.5), "check")
    return figures


_DECISIONS: Final = (
    ("otherwise", "live", "hold"),
    ("verified", "live", "enroll"),
    ("verified", "live", "hold"),
    ("another voice on a risky device", "live", "reject"),
)


if __name__ == "__main__":
    main()
