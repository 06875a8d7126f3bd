"""Laws of a call's own pace and of what follows a check without an answer."""

from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.plan import PACE, RETRY, Schedule, schedule_faults

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SHIPPED = load_rules(None).schedule


def at(seconds: float) -> datetime:
    """Return an instant of the watch."""
    return START + timedelta(seconds=seconds)


def after(instant: datetime) -> float:
    """Return an instant as seconds after the beginning of the watch."""
    return (instant - START).total_seconds()


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw a schedule: a first check, then gaps that never shrink."""
    first = draw(st.floats(0, 600))
    gaps = sorted(draw(st.lists(st.floats(0.5, 120), max_size=17)))
    return Schedule(tuple(accumulate(gaps, initial=first)))


@given(schedules(), st.text())
def test_paced_schedule_is_a_backoff_schedule_of_as_many_checks(schedule: Schedule, voice_id: str) -> None:
    """A call's own pace changes neither the number of checks nor the law of gaps."""
    paced = schedule.paced(voice_id)
    assert schedule_faults(paced.at_s, paced.reserve) == []
    assert (len(paced.at_s), paced.reserve) == (len(schedule.at_s), schedule.reserve)


@given(schedules(), st.text())
def test_paced_slot_stays_in_its_own_half_of_the_gaps_beside_it(schedule: Schedule, voice_id: str) -> None:
    """No slot comes near its neighbour's place, and none moves by more than the pace allows."""
    paced = schedule.paced(voice_id).at_s
    assert all(abs(mine - planned) <= PACE * planned + 1e-6 for mine, planned in zip(paced, schedule.at_s, strict=True))
    middles = [(a + b) / 2 for a, b in pairwise(schedule.at_s)]
    assert all(
        a <= middle + 1e-6 and b >= middle - 1e-6 for (a, b), middle in zip(pairwise(paced), middles, strict=True)
    )


def test_pace_is_the_same_whenever_it_is_asked_for() -> None:
    """The same call has the same slots in every process: decisions are repeatable."""
    assert SHIPPED.paced("v-1") == SHIPPED.paced("v-1")


def test_paces_spread_evenly_over_the_calls() -> None:
    """Calls that begin together do not poll together: their tenth checks fill the whole width of the pace."""
    tenth = sorted(SHIPPED.paced(f"call-{n}").at_s[9] for n in range(1000))
    middle, width = SHIPPED.at_s[9], 2 * PACE * SHIPPED.at_s[9]
    assert tenth[0] < middle - 0.49 * width < middle + 0.49 * width < tenth[-1]
    assert max(b - a for a, b in pairwise(tenth)) < width / 50


@given(schedules(), st.floats(0, 900), st.floats(0, 900), st.integers(1, 30), st.integers(0, 20))
def test_plan_after_failures_keeps_the_floor(
    schedule: Schedule, now_s: float, silent_s: float, failures: int, left: int
) -> None:
    """A failed check is never followed by another within a second, unless that is the next slot anyway."""
    planned = schedule.plan(START, at(now_s), left=left, answered_at=at(max(0, now_s - silent_s)), failures=failures)
    assert planned >= min(at(now_s) + RETRY, schedule.next_slot(START, at(now_s)))


@given(schedules(), st.floats(0, 900), st.integers(0, 20))
def test_plan_without_failures_is_the_next_slot_while_the_budget_lasts(
    schedule: Schedule, now_s: float, spare: int
) -> None:
    """As long as every slot to come has its check, slots are kept to the letter, and missed ones are skipped."""
    left = len(schedule.at_s) - schedule.slots_passed(START, at(now_s)) + spare
    assert schedule.plan(START, at(now_s), left=left, answered_at=at(now_s)) == schedule.next_slot(START, at(now_s))


@pytest.mark.parametrize("failed", range(17))
def test_plan_after_a_failure_is_earlier_than_the_next_slot(failed: int) -> None:
    """One check without an answer brings the next one forward, at every place of the schedule."""
    lost = at(SHIPPED.at_s[failed])
    answered_at = at(SHIPPED.at_s[failed - 1]) if failed else None
    planned = SHIPPED.plan(START, lost, left=17 - failed, answered_at=answered_at, failures=1)
    assert lost + RETRY <= planned < at(SHIPPED.at_s[failed + 1])


@given(schedules(), st.integers(1, 17), st.floats(0, 2000))
def test_plan_spreads_what_is_left_to_the_last_slot(schedule: Schedule, left: int, now_s: float) -> None:
    """With too few checks for the slots, each is later than the one before, and the last lies within the schedule."""
    times = [now_s]
    for n in range(left, 0, -1):
        times.append(after(schedule.plan(START, at(times[-1]), left=n, answered_at=at(times[-1]))))
    assert all(b > a - 1e-6 for a, b in pairwise(times))
    if now_s < schedule.at_s[-1] and left < len(schedule.at_s) - schedule.slots_passed(START, at(now_s)):
        assert times[-1] <= schedule.at_s[-1] + 1e-3


def test_first_slot_may_be_the_beginning_itself() -> None:
    """A schedule that begins at 0 begins with a check at once."""
    assert Schedule((0.0, 5.0)).first_slot(START) == START
