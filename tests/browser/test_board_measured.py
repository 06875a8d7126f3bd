"""The board with two thousand live calls, and with a sample push."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect
from redis import Redis

from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.keys import Keys
from tests.harness.browser import Stage
from tests.unit.calls.specimens import call, reading

expect.set_options(timeout=20_000)

CALLS = 2000
CHANGES_A_SECOND = 100
WINDOW_S = 4.0


def many() -> list[Call]:
    """Return calls that no worker moves, the newest last."""
    now = datetime.now(UTC)
    return [
        call(
            institution_key="crowd",
            voice_id=f"crowd-{n}",
            phone_number=f"55501{n:05}",
            started_at=now - timedelta(seconds=CALLS - n),
            next_check_at=now + timedelta(seconds=600),
            saved_at=now,
            checks_used=n % 20,
        )
        for n in range(CALLS)
    ]


def changed(record: Call) -> Call:
    """Return a call as after one more check. Not all begin again after as many, or the page would look as it did before."""
    most = 17 + int(record.voice_id.rpartition("-")[2]) % 4
    policies = ("Green Voice Authentication",) if record.plan.checks_used % 5 == 0 else ()
    return replace(
        record,
        plan=replace(record.plan, checks_used=(record.plan.checks_used + 1) % most),
        seen=replace(record.seen, reading=reading(policies=policies)),
    )


@contextmanager
def crowd(redis_url: str) -> Iterator[list[Call]]:
    """Keep `CALLS` live calls in Redis until the block ends."""
    keys, calls = Keys(), many()
    with Redis.from_url(redis_url) as redis:
        pipe, later_ms = redis.pipeline(transaction=False), int(time.time() * 1000) + 55_000
        for n, record in enumerate(calls):
            member = CallId(record.institution_key, record.voice_id).member
            pipe.hset(keys.item(member), "rec", encode_call(record))
            pipe.zadd(keys.live, {member: n})
            pipe.zadd(keys.due, {member: later_ms})  # workers take a live call that is in no schedule
        pipe.execute()
        try:
            yield calls
        finally:
            for record in calls:
                member = CallId(record.institution_key, record.voice_id).member
                pipe.delete(keys.item(member)).zrem(keys.live, member).zrem(keys.due, member)
            pipe.execute()


@contextmanager
def changing(redis_url: str, calls: list[Call]) -> Iterator[None]:
    """Change `CHANGES_A_SECOND` calls a second, half of them among the newest, until the block ends."""
    over = threading.Event()

    def change() -> None:
        keys, at = Keys(), 0
        with Redis.from_url(redis_url) as redis:
            while not over.wait(10 / CHANGES_A_SECOND):
                pipe = redis.pipeline(transaction=False)
                for _ in range(10):
                    at = (at + 1) % len(calls)
                    n = len(calls) - 1 - at % 40 if at % 2 else at
                    calls[n] = changed(calls[n])
                    member = CallId(calls[n].institution_key, calls[n].voice_id).member
                    pipe.hset(keys.item(member), "rec", encode_call(calls[n])).xadd(keys.changes, {"member": member})
                pipe.execute()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Clock:
    """Measures for how long a page's scripts run."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")

    def read(self) -> float:
        """Return the seconds of scripts since the page was opened."""
        metrics = {entry["name"]: entry["value"] for entry in self._session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["ScriptDuration"])


@pytest.mark.parametrize(
    "path",
    [pytest.param("", id="board", marks=pytest.mark.night), pytest.param("/institutions/crowd", id="all-of-them")],
)  # a page of all of them draws sixteen times as many lines as the board
def test_two_thousand_live_calls_stay_usable(stage: Stage, path: str) -> None:
    """With 2,000 live calls the board counts all, draws only some, and keeps the browser mostly idle."""
    with crowd(stage.stack.redis_url) as calls:
        board = stage.board(path)
        group = board.locator("section.group").filter(has_text="crowd")
        expect(group).to_contain_text(f"{CALLS} live")
        lines = group.locator(".row").count()
        with changing(stage.stack.redis_url, calls):
            numbers, clock = group.locator(".row .checks .number"), Clock(board)
            shown, before, began = numbers.all_inner_texts(), clock.read(), time.monotonic()
            board.wait_for_timeout(WINDOW_S * 1000)
            took_s = clock.read() - before
            window_s = time.monotonic() - began
            assert numbers.all_inner_texts() != shown
        board.locator("#find").fill("crowd-7")
        board.get_by_role("button", name="Find").click()
        expect(board.locator("#call-facts")).to_contain_text("crowd-7")
    assert lines <= (24 if not path else 400)
    assert took_s < window_s / 2, "the page's script is busy more than half of the time"


def test_sample_is_seen_at_once(stage: Stage) -> None:
    """The board shows a sample push of the service's dashboard, which proves that the push endpoint works."""
    board, sandbox = stage.board(), stage.sandbox()
    sandbox.get_by_role("button", name="Send sample CallStart").first.click()
    expect(board.locator("#status")).to_contain_text("sample received at")
    expect(sandbox.locator("#attempts")).to_contain_text("sample")
    expect(sandbox.locator("#attempts")).to_contain_text("202 accepted")
