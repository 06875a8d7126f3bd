"""Laws of what counts as spent after Redis lost writes: never fewer checks than can have been made, and never more."""

import sys
from collections.abc import Sequence
from dataclasses import replace as replace_book
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from callkeeper.calls.claimed_item import Epoch, LostWrites
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.record import CHECK_LIMIT, Call, CallStatements, Life, Phase, Plan, Reason
from callkeeper.calls.redis_restart import (
    Window,
    charge_earlier_record,
    charge_lost_writes,
    charge_unknown_age,
    fold_epoch,
    most_automatic,
    set_back,
    spent_checks,
)
from callkeeper.calls.rules import load_rules
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import (
    MOST_AHEAD,
    Schedule,
    automatic_checks,
    automatic_left,
    begin_watch,
    check_answered,
    check_booked,
    check_failed,
    reserve_left,
)
from callkeeper.calls.statement_folding import with_identity
from callkeeper.calls.story import story_of
from callkeeper.calls.trail import recorded
from tests.records import with_stored
from tests.unit.calls.specimens import NOW, call, verified

START = datetime(2026, 11, 21, 12, tzinfo=UTC)
BOOK = load_rules(None)
SHIPPED = BOOK.schedule


def at(seconds: float) -> datetime:
    """Return an instant of the call."""
    return START + timedelta(seconds=seconds)


def book_of(schedule: Schedule, unassigned: int = 0) -> RuleBook:
    """Return the shipped rules with another schedule."""
    return replace_book(BOOK.with_schedule(schedule), checks_unassigned=unassigned)


def nobody(voice_id: str = "v-1") -> Call:
    """Return a call that was just seen and has no person."""
    return Call(
        institution_key="cu-1", voice_id=voice_id, saved_at=START, life=Life(phase=Phase.LIVE, first_seen_at=START)
    )


def watched(schedule: Schedule, voice_id: str = "v-1") -> Call:
    """Return a call whose watch begins now."""
    return begin_watch(with_stored(nobody(voice_id), person_id="p-1"), schedule, START, START)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw a schedule, sometimes a dense one, sometimes with fewer slots than checks."""
    first = draw(st.floats(0, 20))
    gaps = sorted(draw(st.lists(st.floats(0.4, 12), max_size=17)))
    return Schedule(tuple(accumulate(gaps, initial=first)))


def automatic_check(call: Call, schedule: Schedule, now: datetime, is_answered: bool) -> Call:
    """Make an automatic check as a mover does."""
    booked = check_booked(call, schedule, now)
    return check_answered(booked) if is_answered else check_failed(booked, schedule, now)


def check_of_a_person(call: Call, schedule: Schedule, now: datetime, is_answered: bool) -> Call:
    """Make a check that a person asked for as a mover does."""
    booked = check_booked(call, schedule, now, by_desk=True)
    if is_answered:
        return check_answered(booked, by_desk=True)
    return check_failed(booked, schedule, now, by_desk=True)


Turn = tuple[float, bool, bool]
"""By how many seconds a worker is late, whether the check is answered, whether a person asks for one first."""
TURNS = st.lists(st.tuples(st.sampled_from([0.0, 0.0, 0.3, 2.0]), st.booleans(), st.booleans()), max_size=24)


def live(call: Call, schedule: Schedule, now: datetime, until: datetime, turns: Sequence[Turn]) -> Call:
    """Let workers move a watched call until an instant: what they make is up to the turns."""
    for late_s, is_answered, is_asked in turns:
        due = max(now, call.plan.next_check_at or now)
        if is_asked and reserve_left(call, schedule):
            asked_at = min(now + (due - now) / 2, until)
            call = check_of_a_person(call, schedule, asked_at, is_answered)
            due = max(asked_at, call.plan.next_check_at or asked_at)
        now = due + timedelta(seconds=late_s)
        if now > until or not automatic_left(call, schedule.automatic_limit):
            break
        call = automatic_check(call, schedule, now, is_answered)
    return call


@given(schedules(), st.text(max_size=3), TURNS, st.floats(0, 90), TURNS, st.floats(0, 40))
def test_charge_is_never_less_than_what_was_made(
    schedule: Schedule, voice_id: str, before: list[Turn], known_s: float, after: list[Turn], lost_s: float
) -> None:
    """Whatever workers, people and the service did in the time that Redis forgot, as much counts as spent."""
    known = replace(live(watched(schedule, voice_id), schedule, START, at(known_s), before), saved_at=at(known_s))
    really = live(known, schedule, at(known_s), at(known_s + lost_s), after)
    charged = charge_lost_writes(known, book_of(schedule), LostWrites(None, at(known_s + lost_s)))
    assert automatic_checks(really) <= automatic_checks(charged) <= schedule.automatic_limit
    assert really.plan.checks_by_desk <= charged.plan.checks_by_desk == schedule.reserve
    assert charged.plan.checks_used <= CHECK_LIMIT


def test_charge_takes_the_same_steps_however_long_redis_was_away() -> None:
    """A search for the exact number took seconds for calls that failed checks, while their leases ran out."""
    turns = [(0.0, n % 3 > 0, False) for n in range(6)]
    known = replace(live(watched(SHIPPED), SHIPPED, START, at(20), turns), saved_at=at(20))
    steps: list[int] = []
    for lost_s in (1, 10, 90, 3600):
        steps.append(0)
        sys.setprofile(lambda _, event, __: steps.append(steps.pop() + (event == "call")))
        try:
            charge_lost_writes(known, BOOK, LostWrites(None, at(20 + lost_s)))
        finally:
            sys.setprofile(None)
    assert max(steps) < 60, steps


@pytest.mark.parametrize("lost_s", [2, 8, 30])
def test_charge_of_a_call_that_got_all_answers_is_its_slots_and_two(lost_s: int) -> None:
    """Only as many checks may be ahead of the slots, so a failover leaves such a call most of its checks."""
    paced = SHIPPED.paced("v-1")
    for second in range(240):
        known = live(watched(SHIPPED), SHIPPED, START, at(second), [(0.0, True, False)] * 18)
        counted = most_automatic(known, BOOK, Window(at(second), at(second + lost_s)))
        assert counted <= paced.slots_between(START, at(second), at(second + lost_s)) + MOST_AHEAD


@given(schedules(), st.integers(0, 18), st.floats(0, 60), st.floats(0, 60), st.floats(0, 60), TURNS)
def test_charge_counts_checks_before_the_call_had_a_person(
    schedule: Schedule, limit: int, known_s: float, free_s: float, assigned_s: float, turns: list[Turn]
) -> None:
    """Checks that were made while nobody was assigned, and those of the watch that began meanwhile, count as spent."""
    book, known = book_of(schedule, limit), replace(nobody(), saved_at=at(known_s))
    call, now, until = known, at(known_s), at(known_s + free_s + assigned_s)
    slot = schedule.next_slot(START, now)
    while slot <= at(known_s + free_s) and automatic_left(call, limit):
        call, now = check_booked(call, schedule, slot), slot
        slot = schedule.next_slot(START, slot)
    begins = max(now, at(known_s + free_s))
    really = live(begin_watch(call, schedule, begins, begins), schedule, begins, until, turns)
    charged = charge_lost_writes(known, book, LostWrites(None, until))
    assert automatic_checks(really) <= automatic_checks(charged) <= schedule.automatic_limit


def test_call_without_a_person_is_charged_as_if_it_had_had_one() -> None:
    """The lost writes may have assigned it and checked it, and somebody may have taken the person off it since."""
    charged = charge_lost_writes(nobody(), BOOK, LostWrites(None, at(60)))
    assert (automatic_checks(charged) >= 11, charged.plan.checks_by_desk) == (True, 2)


def test_check_whose_answer_is_not_known_may_have_failed() -> None:
    """It is repeated sooner than the next one is due, so one more may have been made in the time that Redis forgot."""
    booked = check_booked(watched(SHIPPED), SHIPPED, at(8))
    window = Window(at(8), check_failed(booked, SHIPPED, at(8)).plan.next_check_at or at(8))
    counts = [most_automatic(each, BOOK, window) for each in (booked, check_answered(booked))]
    assert counts[0] >= 1 > counts[1]


def test_charge_never_passes_the_limit_for_a_call_that_got_its_person_late() -> None:
    """What was spent while nobody was assigned is not there for the watch."""
    spent = most_automatic(nobody(), book_of(SHIPPED, 5), Window(START, at(600)))
    assert spent == SHIPPED.automatic_limit


def test_failover_that_loses_two_seconds_leaves_a_call_its_automatic_checks() -> None:
    """Two seconds cost two automatic checks at the most: one of a slot, and one more if the first had no answer."""
    for second in range(240):
        known = live(watched(SHIPPED), SHIPPED, START, at(second), [(0.0, True, False)] * 18)
        lost = LostWrites(None, at(second + 2))
        charged = charge_lost_writes(replace(known, saved_at=at(second)), BOOK, lost)
        assert automatic_checks(charged) <= automatic_checks(known) + 2, second
        if second < 7:
            assert automatic_checks(charged) == 0, second
        assert (
            automatic_checks(charged) == automatic_checks(known)
            or charged.plan.next_check_at is None
            or charged.plan.next_check_at > at(second + 2)
        ), f"what may have been checked at {second} s is not checked at once again"


def test_charge_begins_with_the_last_write_that_is_known() -> None:
    """Writes keep their order: neither before the record was saved nor before the last known claim is anything missing."""
    known = live(watched(SHIPPED), SHIPPED, START, at(20), [(0.0, True, False)] * 18)
    old = replace(known, saved_at=at(10))
    assert automatic_checks(charge_lost_writes(old, BOOK, LostWrites(None, at(36)))) > automatic_checks(known) + 2
    for saved_at, after in ((at(35.9), None), (at(35.9), at(10)), (at(10), at(35.9))):
        charged = charge_lost_writes(replace(known, saved_at=saved_at), BOOK, LostWrites(after, at(36)))
        assert automatic_checks(charged) <= automatic_checks(known) + 1


UNKNOWN = {
    "never saved": (None, LostWrites(None, at(36))),
    "clocks contradict each other": (at(40), LostWrites(at(39), at(36))),
    "no end": (at(35), LostWrites(at(35), None)),
}


@pytest.mark.parametrize(("saved_at", "lost"), UNKNOWN.values(), ids=UNKNOWN)
def test_charge_is_everything_where_the_time_is_not_known(saved_at: datetime | None, lost: LostWrites) -> None:
    """Where nobody can tell how much time is missing, all checks may have been made."""
    charged = charge_lost_writes(replace(watched(SHIPPED), saved_at=saved_at), BOOK, lost)
    assert charged.plan.checks_used == CHECK_LIMIT


@pytest.mark.parametrize("seen", ["authenticated_seen", "enrolled_seen", "rejected_seen"])
def test_charge_is_nothing_for_a_call_that_takes_no_checks(seen: str) -> None:
    """The service had stopped asking before: nothing can have been spent."""
    call = with_stored(watched(SHIPPED), **{seen: True})
    assert charge_lost_writes(call, BOOK, LostWrites(None, at(60))) == call


def test_charge_covers_a_lost_call_that_may_have_been_reopened() -> None:
    """The writes that Redis lost may have reopened it: checks of that time count. For any other settled call, none do."""
    ended = with_stored(watched(SHIPPED), saved_at=START, phase=Phase.SETTLED, end_seen_at=START)
    lost = replace(ended, life=replace(ended.life, reason=Reason.LOST, ended_at=None))
    assert charge_lost_writes(lost, BOOK, LostWrites(None, at(60))).plan.checks_used > lost.plan.checks_used
    assert charge_lost_writes(ended, BOOK, LostWrites(None, at(60))) == ended


LISTED = with_stored(
    nobody(), saved_at=None, first_seen_at=at(60), started_at=START, person_id="p-1", core_username="bot"
)
EARLIER = {
    "an empty Redis": (None, 10, 14),
    "a replica that was 20 s behind": (timedelta(seconds=20), 2, 5),
}


@pytest.mark.parametrize(("lost", "least", "most"), EARLIER.values(), ids=EARLIER)
def test_charge_of_a_listed_call_is_what_a_lost_record_can_have_spent(
    lost: timedelta | None, least: int, most: int
) -> None:
    """A call that is older than this Redis may have been watched since it began, or since writes were lost (C4)."""
    charged = charge_earlier_record(LISTED, BOOK, Epoch("new", at(60), lost), at(60), age=timedelta(seconds=60))
    assert least <= automatic_checks(charged) <= most
    assert charged.plan.checks_by_desk == SHIPPED.reserve
    assert charged.plan.next_check_at is not None
    assert charged.plan.next_check_at > at(60)


def test_call_that_seems_older_than_any_call_is_not_given_up() -> None:
    """A clock or a zone differs: it counts as seen for half of the longest life."""
    charged = charge_earlier_record(LISTED, BOOK, Epoch("new", at(60)), at(60), age=timedelta(hours=9))
    assert charged.life.first_seen_at == at(60 - BOOK.maximum_age_s / 2)


def test_call_that_began_after_redis_was_known_is_charged_nothing() -> None:
    """A call whose push was lost, or that somebody else assigned first, has all its checks."""
    assert charge_earlier_record(LISTED, BOOK, Epoch("known", at(-1)), at(60), age=timedelta(seconds=60)) == LISTED


def test_call_of_unknown_age_is_charged_everything_once_a_process_tells_of_an_earlier_redis() -> None:
    """A new worker may find it before a process that knew the lost data has spoken; a first Redis has lost nothing."""
    first = Epoch("new", at(58))
    found = charge_earlier_record(LISTED, BOOK, first, at(60), age=None)
    assert (found.plan.checks_used, charge_unknown_age(found, BOOK, first)) == (0, found)
    replaced = first._replace(is_replaced=True)
    assert charge_unknown_age(found, BOOK, replaced).plan.checks_used == CHECK_LIMIT
    assert charge_earlier_record(LISTED, BOOK, replaced, at(60), age=None).plan.checks_used == CHECK_LIMIT


def test_call_of_unknown_age_is_charged_no_more_than_fits_into_the_lost_time() -> None:
    """If it is known how much Redis has lost, or if no call is as old as Redis, the age does not matter."""
    lost = Epoch("new", at(60), timedelta(seconds=20), is_replaced=True)
    charged = charge_earlier_record(LISTED, BOOK, lost, at(60), age=None)
    assert charged == charge_earlier_record(LISTED, BOOK, lost, at(60), age=timedelta(seconds=60))
    late = at(61 + BOOK.maximum_age_s)
    assert charge_earlier_record(LISTED, BOOK, Epoch("new", at(60), is_replaced=True), late, age=None) == LISTED


def test_intention_of_another_epoch_counts_as_sent() -> None:
    """A worker may have sent it, just now, and may still wait for the answer, so it is in doubt (C15)."""
    known = with_stored(
        call(epoch="old"), enroll=Effect(state=EffectState.INTENDED, person_id="p-1", intended_at=START)
    )
    folded, lines = fold_epoch(known, "new", must_verify=False, now=NOW)
    assert (folded.ledger.enroll.state, folded.ledger.enroll.sent_at) == (EffectState.UNKNOWN, NOW)
    assert [line.what for line in lines] == ["verifying"]


@pytest.mark.parametrize(
    ("epoch", "must_verify", "phase", "is_verified"),
    [
        ("new", False, Phase.LIVE, False),
        ("", False, Phase.LIVE, False),
        ("old", False, Phase.LIVE, True),
        ("new", True, Phase.LIVE, True),
        ("", True, Phase.LIVE, True),
        ("old", True, Phase.SETTLED, False),
    ],
    ids=["same", "first", "another", "same, lost writes", "first, lost writes", "settled"],
)
def test_call_is_verified_if_redis_is_another_or_has_lost_writes(
    epoch: str, must_verify: bool, phase: Phase, is_verified: bool
) -> None:
    """The first claim, and every claim under the same server, verify nothing. A settled call is over."""
    folded, lines = fold_epoch(call(epoch=epoch, phase=phase), "new", must_verify=must_verify, now=NOW)
    assert (folded.plan.needs_verifying, len(lines), folded.epoch) == (is_verified, int(is_verified), "new")


def test_every_instant_of_a_plan_goes_back_with_the_clock() -> None:
    """One that was left out would lie hours ahead, or be past, and what waits for it would never be looked at."""
    names = [field.name for field in fields(Plan) if field.type == datetime | None]
    late: dict[str, Any] = dict.fromkeys(names, at(7200))
    moved = set_back(replace(nobody(), plan=Plan(**late)), at(7200), at(0)).plan
    assert {name: getattr(moved, name) for name in names} == dict.fromkeys(names, at(0))


def test_what_the_service_established_moves_with_the_clock_while_a_person_s_word_counts() -> None:
    """It counts again if the word is taken back, and is then compared with the end."""
    shown = replace(verified(), by_desk=False, established_at=at(7200))
    known = with_identity(replace(nobody(), statements=CallStatements(identity=shown)), verified())
    moved = set_back(known, at(7200), at(0)).statements.shown_identity
    assert moved is not None
    assert moved.established_at == at(0)


def test_story_says_which_checks_count_as_used() -> None:
    """Otherwise a call's first check would be its third one, and nobody could tell why."""
    charged = charge_earlier_record(LISTED, BOOK, Epoch("new", at(60)), at(60), age=timedelta(seconds=60))
    [entry] = spent_checks(LISTED, charged, at(60))
    assert entry.n == charged.plan.checks_used > 0
    [line] = story_of(recorded(charged, (entry,))).lines
    assert f"{entry.n} checks may have been made before" in line.text
    assert spent_checks(charged, charged, at(60)) == []
