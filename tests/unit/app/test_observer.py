"""The audit of ``callkeeper run``: every call has one fate, and the closing lines agree with it."""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.record import Phase
from callkeeper_sandbox.commands.run import summary_lines
from callkeeper_sandbox.demo.comparison import Audit, Fate, fate

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return an instant, in seconds from the beginning of the run."""
    return SINCE + timedelta(seconds=seconds)


def account(listed_s: float, ended_s: float | None, *, is_ignored: bool = False) -> dict[str, Any]:
    """Return the stand-in's account of a call, times in seconds from the beginning of the run."""
    ended_at = None if ended_s is None else at(ended_s).isoformat()
    return {"is_ignored": is_ignored, "listed_at": at(listed_s).isoformat(), "ended_at": ended_at}


@pytest.mark.parametrize(
    ("call", "phase", "now_s", "expected"),
    [
        pytest.param(account(0, None), Phase.LIVE, 40, Fate.LIVE, id="live"),
        pytest.param(account(0, None), None, 40, Fate.LIVE, id="live, not found yet"),
        pytest.param(account(0, 20), Phase.SETTLED, 21, Fate.SETTLED, id="settled"),
        pytest.param(account(0, 20), Phase.LIVE, 25, Fate.SETTLING, id="ended a moment ago"),
        pytest.param(account(0, 20), Phase.ENDED, 51, Fate.OVERDUE, id="not settled in time"),
        pytest.param(account(0, 20), None, 51, Fate.OVERDUE, id="never found"),
        pytest.param(account(0, 9), None, 51, Fate.TOO_SHORT, id="too short to be found"),
        pytest.param(account(0, 9), Phase.LIVE, 51, Fate.OVERDUE, id="short, but found"),
        pytest.param(account(0, 20, is_ignored=True), Phase.HINTED, 99, Fate.IGNORED, id="ignored number"),
        pytest.param(account(0, None, is_ignored=True), None, 99, Fate.IGNORED, id="ignored number, live"),
        pytest.param(account(-60, -30), Phase.LIVE, 5, Fate.SETTLING, id="ended while nothing ran, run is young"),
        pytest.param(account(-60, -30), Phase.LIVE, 31, Fate.OVERDUE, id="ended while nothing ran, run is old"),
        pytest.param(account(-60, -30), None, 31, Fate.EARLIER, id="ended before, no record"),
        pytest.param(account(-60, 5), None, 60, Fate.TOO_SHORT, id="listed before, ended soon"),
    ],
)
def test_every_call_has_the_fate_that_both_sides_show(
    call: dict[str, Any], phase: Phase | None, now_s: float, expected: Fate
) -> None:
    """A call is overdue only if callkeeper ran long enough to find and settle it."""
    assert fate(call, phase, since=SINCE, now=at(now_s)) is expected


def audit(fates: Counter[Fate], **service: int) -> Audit:
    """Return an audit; every settled call was authenticated."""
    counted = {"most_checks_arrived": 0, "checks_over_budget": 0, "enrolled_twice": 0, "rejected_twice": 0, **service}
    reasons = Counter({"authenticated": fates[Fate.SETTLED]}) if fates[Fate.SETTLED] else Counter[str]()
    return Audit(fates, reasons, {**counted, "requests": {"authenticated": {}}})


@given(st.dictionaries(st.sampled_from(Fate), st.integers(0, 50)))
def test_closing_lines_add_up(fates: dict[Fate, int]) -> None:
    """The numbers of the first line add up to its total, and the settled ones are those of the third line."""
    lines = summary_lines(audit(Counter(fates)))
    total, parts = re.fullmatch(r"The sandbox made (\d+) calls: (.*)\.", lines[0]).groups()  # type: ignore[union-attr]
    counts = [int(number) for number in re.findall(r"(?:^|, )(\d+) ", parts)]
    assert sum(counts) == int(total) == sum(fates.values())
    assert f"{fates.get(Fate.SETTLED, 0)} settled" in parts
    assert sum(map(int, re.findall(r"\d+", lines[2]))) == fates.get(Fate.SETTLED, 0)


def test_closing_lines_name_calls_that_are_never_listed() -> None:
    """Calls from ignored numbers and calls that still have time are named where the calls are counted."""
    lines = summary_lines(audit(Counter({Fate.LIVE: 7, Fate.SETTLED: 2, Fate.SETTLING: 1, Fate.IGNORED: 3})))
    assert lines[0] == (
        "The sandbox made 13 calls: 7 live, 2 settled, 1 ended and still being settled (within 30 s),"
        " 3 from ignored numbers, which the service never lists."
    )
    assert lines[-1].startswith("Audit passed: no ended call waits longer than 30 s to be settled,")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (audit(Counter({Fate.OVERDUE: 2})), "2 calls not settled 30 s after the end"),
        (audit(Counter(), enrolled_twice=1), "1 call enrolled twice"),
        (audit(Counter(), rejected_twice=1), "1 call rejected twice"),
        (audit(Counter(), checks_over_budget=3), "3 calls with more than 20 checks"),
    ],
    ids=["overdue", "enrolled", "rejected", "checks"],
)
def test_closing_lines_say_which_promise_is_broken(broken: Audit, said: str) -> None:
    """A broken promise is named, and then no promise is called kept."""
    assert summary_lines(broken)[-1] == f"Audit failed: {said}."
