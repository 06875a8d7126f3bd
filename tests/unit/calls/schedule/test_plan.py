"""Laws of a call's watch: what a check that is answered, or is not, does to the plan."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from callkeeper.calls.record import Call, Reading
from callkeeper.calls.schedule.plan import (
    READ_AFTER_CHECK,
    Schedule,
    automatic_checks,
    begin_watch,
    check_answered,
    check_booked,
    check_failed,
    must_read_first,
)

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCHEDULE = Schedule((10.0, 14.0, 18.0, 22.0, 30.0))


def at(seconds: float) -> datetime:
    """Return an instant of the watch."""
    return START + timedelta(seconds=seconds)


def watched(voice_id: str = "v-1") -> Call:
    """Return a call whose watch begins now."""
    return begin_watch(Call(institution_key="cu-1", voice_id=voice_id), SCHEDULE, START, START)


@pytest.fixture
def call() -> Call:
    """Return a call whose watch begins now."""
    return watched()


def test_watch_begins_once(call: Call) -> None:
    """A watch that has begun is not begun again: the slots stay where they are."""
    assert begin_watch(call, SCHEDULE, at(5), at(5)) == call


def test_watch_that_begins_at_zero_checks_at_once() -> None:
    """A schedule whose first slot is the beginning of the watch does not skip it."""
    call = begin_watch(Call(institution_key="cu-1", voice_id="v-1"), Schedule((0.0, 5.0)), START, START)
    assert call.plan.next_check_at == START


def test_answered_check_is_followed_by_the_next_slot(call: Call) -> None:
    """A check that was answered changes nothing of the plan made when it was booked."""
    booked = check_booked(call, SCHEDULE, at(10.4))
    assert booked.plan.next_check_at == SCHEDULE.paced("v-1").next_slot(START, at(10.4))
    answered = check_answered(booked)
    assert (answered.plan.next_check_at, answered.plan.answered_check_at) == (booked.plan.next_check_at, at(10.4))
    assert not must_read_first(answered)


def test_failed_check_brings_the_next_one_forward(call: Call) -> None:
    """A check without an answer is made up for before the next slot, and stored details are read in a second."""
    booked = check_booked(check_answered(check_booked(call, SCHEDULE, at(10.4))), SCHEDULE, at(14.4))
    failed = check_failed(booked, SCHEDULE, at(14.6))
    assert failed.plan.next_check_at is not None
    assert booked.plan.next_check_at is not None
    assert at(15.6) <= failed.plan.next_check_at < booked.plan.next_check_at
    assert failed.plan.next_read_at == at(14.6) or failed.plan.next_read_at == at(14.6) + READ_AFTER_CHECK
    assert failed.plan.checks_used == booked.plan.checks_used == 2


def test_answer_ends_a_row_of_failures(call: Call) -> None:
    """Failures are counted in a row: an answer begins the count anew."""
    failed = check_failed(check_booked(call, SCHEDULE, at(10)), SCHEDULE, at(10))
    assert failed.plan.checks_failed == 1
    assert check_answered(failed).plan.checks_failed == 0


def test_failed_check_asks_for_a_read_before_the_next(call: Call) -> None:
    """Until stored details were read after it, a check without an answer is not followed by another: reads are free."""
    failed = check_failed(check_booked(call, SCHEDULE, at(10)), SCHEDULE, at(11))
    assert must_read_first(failed)
    assert must_read_first(replace(failed, seen=replace(failed.seen, reading=Reading(read_at=at(9)))))
    assert not must_read_first(replace(failed, seen=replace(failed.seen, reading=Reading(read_at=at(12)))))


def test_failed_check_of_an_unwatched_call_plans_nothing() -> None:
    """A check that the desk asked for on a call without a person leaves no slots behind."""
    call = check_failed(check_booked(Call(institution_key="cu-1", voice_id="v-1"), SCHEDULE, at(1)), SCHEDULE, at(2))
    assert call.plan.next_check_at is None


def test_check_of_a_person_changes_nothing_of_the_plan(call: Call) -> None:
    """A person's check comes from the reserve: the automatic ones stay where they are, answered or not."""
    for after in (check_answered, lambda booked, **by: check_failed(booked, SCHEDULE, at(5), **by)):
        asked = after(check_booked(call, SCHEDULE, at(5), by_desk=True), by_desk=True)
        assert (asked.plan.checks_used, asked.plan.checks_by_desk, automatic_checks(asked)) == (1, 1, 0)
        assert (asked.plan.next_check_at, asked.plan.checks_failed) == (call.plan.next_check_at, 0)


def test_check_of_a_person_takes_the_place_of_one_that_is_due(call: Call) -> None:
    """Two checks at one moment find nothing more than one."""
    asked = check_booked(call, SCHEDULE, at(10.4), by_desk=True)
    assert asked.plan.next_check_at == SCHEDULE.paced("v-1").next_slot(START, at(10.4))
    assert automatic_checks(asked) == 0
