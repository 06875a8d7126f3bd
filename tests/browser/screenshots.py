"""``make screenshots``: takes the documentation's screenshots of a running demonstration with simulated callers.

It invents metrics for the hour and the week before the demonstration, so that charts and plots show data.
"""

import random
import subprocess
import tempfile
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect, sync_playwright
from redis import Redis

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.hourly import Slot, slot_of_delay
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter, host
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import put_in_force
from callkeeper_sandbox.demo.demonstration import demonstration
from tests.harness.browser import Profiles, Stage, action_form, launch, line
from tests.harness.courier import receiving
from tests.harness.processes import Stack

FOLDER: Final = Path(__file__).parents[2] / "docs" / "screenshots"
FLOWS_FOR_S: Final = 50
OUTAGE_S: Final = 60
"""Longer than an idle shift, so that a shift ends during the outage and its job is shown as failed."""
OUTAGE: Final = ("queue", "read", "check", "assign", "enroll", "reject_voice")
WALL: Final = {"width": 1600, "height": 1000}
PAGE: Final = {"width": 1600, "height": 900}
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
        receiving() as outcomes,
        demonstration(Path(folder), workers=2, seed=7, worker_environ=outcomes.worker_environ) as demo,
        sync_playwright() as playwright,
    ):
        invent_a_week(demo.redis_url)
        invent_an_hour(demo.redis_url)
        stage = Stage(Profiles(launch(playwright)), Stack(demo, Path(folder)))
        try:
            take(stage)
        finally:
            stage.close()
            stage.profiles.browser.close()
            stage.stack.close()


def take(stage: Stage) -> None:
    """Take every screenshot, with one call that needs a person."""
    sandbox = stage.sandbox(viewport=WALL)
    began = time.monotonic()
    distrust(stage, sandbox)
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
    sandbox.goto(stage.stack.service_url)
    expect(sandbox.locator("#lamp")).to_contain_text("Live")
    mask = "fields => fields.forEach(field => { field.value = 'X-Push-Key: ' + '•'.repeat(24) })"
    sandbox.locator("input[name=headers]").evaluate_all(mask)
    shoot(sandbox, "sandbox")
    shoot(jobs(stage, "finished"), "jobs")
    take_pages(stage)
    for target in OUTAGE:
        stage.stack.fault(target, "answer", status=503)
    board.goto(f"{stage.web_url}/board")
    board.wait_for_timeout(OUTAGE_S * 1000)
    shoot(jobs(stage, "failed"), "jobs-outage")


def take_pages(stage: Stage) -> None:
    """Take the pages that the board links to, as they are read beside a document."""
    for name, path in {
        "calls": "/calls?state=settled",
        "plots": "/plots?span=week",
        "rules": "/rules",
    }.items():
        page = stage.board(path, viewport=PAGE)
        for taken, shown in SHOWN.items():
            page.evaluate(RENAME, [taken, shown])
        shoot(page, name)


def jobs(stage: Stage, registry: str) -> Page:
    """Open RQ's dashboard on the page of one registry of our queue."""
    page = stage.page(viewport={"width": 1600, "height": 700})
    page.goto(f"{stage.web_url}/rq/0/view/jobs/calls/{registry}/8/dsc/1")
    page.locator("#jobs tr[data-role=job]").first.wait_for()  # before, there is a row that says "Loading..."
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
    path = FOLDER / f"{name}.png"
    width, height = page.evaluate(USED)
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": width, "height": height})
    subprocess.run(["pngquant", "--force", "--strip", "--speed=1", "--output", path, path], check=True)  # noqa: S603, S607
    print(f"{path.relative_to(FOLDER.parents[1])}  {path.stat().st_size / 1000:.0f} kB")  # noqa: T201  (a command)


def invent_a_week(redis_url: str) -> None:
    """Write invented sums and hits of rules for the last week, and that other rules were in force before."""
    draw, now_ms, figures = random.Random(7), int(time.time() * 1000), Figures()  # noqa: S311  (a picture)
    moment = [0]
    writer = FigureWriter(figures, Author("past", "web"), now_ms=lambda: moment[0])
    with Redis.from_url(redis_url) as redis:
        was: Any = redis.get(Keys().rules)
        before = load_rules("watch-only")
        put_in_force(
            redis, Keys(), before.digest, "watch-only", before.text, host=host(), release=version("callkeeper")
        )
        redis.set(Keys().rules, was)
        redis.set(Keys().hours_since, now_ms - 7 * 86_400_000)
        for hours_ago in range(24 * 7, 0, -1):
            moment[0] = now_ms - hours_ago * 3_600_000
            hour = time.gmtime(moment[0] / 1000)
            is_open = 8 <= hour.tm_hour < 19 and hour.tm_wday < 6
            for key, share in INSTITUTIONS.items():
                for _ in range(int(share * (draw.uniform(25, 45) if is_open else draw.uniform(0, 3)))):
                    figures.sum_up(key, Slot.STARTED)
                    figures.sum_up(key, draw.choices(*_RESULTS)[0])
                    figures.sum_up(key, slot_of_delay(draw.lognormvariate(0.8, 0.6)))
                    figures.count(figure.DECISIONS, *draw.choices(*_HITS)[0])
            writer.write(redis)
        for kept in (Keys().running, Keys().processes):
            redis.zremrangebyscore(kept, "-inf", now_ms - 30_000)


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


INSTITUTIONS: Final = {"cu-1": 1.0, "cu-2": 0.6, "bank-1": 1.4}
SHOWN: Final = {
    host(): "callkeeper-1",
    version("callkeeper"): version("callkeeper").removesuffix(".dev0"),
    "http://127.0.0.1": "https://core.example",
}
"""What pictures show instead of the machine and the commit with which they were taken."""
USED: Final = """() => {
  const end = (document.querySelector("main") ?? document.body).getBoundingClientRect().bottom;
  return [innerWidth, Math.min(innerHeight, Math.ceil(end))];
}"""
"""Width and height of the top of a page, without the empty rest of a short one."""
RENAME: Final = """([from, to]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); ) text.data = text.data.replaceAll(from, to).replace(/(\\.example):\\d+/g, "$1");
}"""
_RESULTS: Final = ((Slot.AUTHENTICATED, Slot.ENROLLED, Slot.UNDECIDED, Slot.REJECTED, Slot.RED), (70, 8, 18, 1, 3))
_HITS: Final = (
    (
        ("authenticated", "live", "hold"),
        ("verified", "live", "enroll"),
        ("verified, but another voice", "live", "ask"),
        ("another voice on a risky device", "live", "reject"),
        ("otherwise", "live", "hold"),
    ),
    (60, 12, 2, 1, 25),
)
_DECISIONS: Final = (
    ("otherwise", "live", "hold"),
    ("verified", "live", "enroll"),
    ("verified", "live", "hold"),
    ("another voice on a risky device", "live", "reject"),
)


if __name__ == "__main__":
    main()
