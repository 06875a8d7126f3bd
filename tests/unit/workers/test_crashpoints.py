"""The crash points: off unless switched on, and exact when they are."""

import asyncio

import pytest

from workers.crashpoints import POINTS, VARIABLE, CrashPoint, Crashpoints, Plan


def test_crashpoints_are_off_without_the_variable() -> None:
    """Nothing happens at any point unless the environment asks for it."""
    crash = Crashpoints.from_environ({})
    for point in POINTS:
        crash.pass_by(point)
    assert not crash.passed


def test_crashpoints_strike_at_the_nth_passing_only() -> None:
    """Earlier and later passings go by, and so do other points."""
    crash = Crashpoints.from_environ({VARIABLE: "check.after-booked:raise:2"})
    crash.pass_by("check.after-booked")
    crash.pass_by("check.before-booked")
    with pytest.raises(CrashPoint, match=r"check\.after-booked"):
        crash.pass_by("check.after-booked")
    crash.pass_by("check.after-booked")


def test_crashpoints_read_several_plans() -> None:
    """Plans stand beside each other, separated by commas."""
    crash = Crashpoints.from_environ({VARIABLE: "call.claimed:kill, enroll.after-sent:stop=2.5:3"})
    assert crash.plans == {"call.claimed": Plan("kill"), "enroll.after-sent": Plan("stop=2.5", 3)}


@pytest.mark.parametrize("text", ["enroll.after-sent:explode", "enroll.sometime:kill", "enroll.after-sent", "a:kill:x"])
def test_crashpoints_refuse_a_plan_that_could_never_strike(text: str) -> None:
    """A misspelt plan would be a test that tests nothing."""
    with pytest.raises(ValueError, match=r".+"):
        Crashpoints.from_environ({VARIABLE: text})


async def test_crashpoints_leave_out_mid_request_when_the_answer_comes_early() -> None:
    """A request that is over is not in its middle."""
    crash = Crashpoints.from_environ({VARIABLE: "read.mid-request:raise"})
    with crash.during("read.mid-request"):
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not crash.passed
