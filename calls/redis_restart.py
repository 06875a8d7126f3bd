"""What is done with a record after Redis was restarted or replaced, or its clock jumped. Pure: a record in, a record out.

Redis can lose its last writes when it restarts or fails over. What was sent meanwhile is not known. But the schedule
says how many automatic checks can have been made since a record was written, and the reserve how many people can have
asked for. That many count as spent: never fewer, or a 21st check might be sent; never more, or a failover would end all
watching.

Its clock jumps with an NTP step, or when the new server's clock differs. A process sees by its own clock that Redis's
went ahead, and by how much; records of before are shifted as well. That it was set back can be read off a record.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from calls.lease import Epoch, LostWrites
from calls.ledger import DONE
from calls.record import Call
from calls.rules.book import RuleBook
from calls.schedule.check_plan import (
    Schedule,
    automatic_left,
    begin_watch,
    check_answered,
    check_booked,
    check_failed,
    plan_anew,
    reserve_left,
)

TOLERANCE = timedelta(seconds=5)

NEVER_FRESH = timedelta(seconds=5)
"""Added to the age of what the service last said: how long ago that was, before the clock went back, nobody can tell."""

_INSTANTS = (
    "hinted_at",
    "first_seen_at",
    "watch_from",
    "next_check_at",
    "next_read_at",
    "end_hinted_at",
    "looked_back_at",
    "end_seen_at",
    "not_found_since",
    "last_check_at",
    "answered_check_at",
)
_EFFECT_INSTANTS = ("intended_at", "sent_at", "retry_at")


class Jump(NamedTuple):
    """Redis's clock went ahead: what it said last, and by how much."""

    at: datetime
    by: timedelta


class Jumps:
    """Finds where Redis's clock went ahead of a process's own."""

    def __init__(self) -> None:
        self._last: tuple[datetime, float] | None = None
        self._found: tuple[Jump, ...] = ()

    def see(self, now: datetime, asked_at_s: float, answered_at_s: float) -> None:
        """Compare the time that an answer of Redis tells with this process's own, in seconds."""
        if self._last is not None:
            last, last_s = self._last
            at_most = last + timedelta(seconds=answered_at_s - last_s)
            if now - at_most > TOLERANCE:
                self._found = (*self._found, Jump(last, now - at_most))
            elif last + timedelta(seconds=asked_at_s - last_s) - now > TOLERANCE:
                self._found = ()  # nobody can tell any more which records are of before
        self._last = now, answered_at_s

    def catch_up(self, call: Call) -> Call:
        """Shift the instants of a record that was saved before Redis's clock went ahead; usually not at all."""
        for jump in self._found:
            if call.saved_at is not None and call.saved_at <= jump.at + jump.by / 2:
                call = _shifted(call, -jump.by)
        return call


def set_back(call: Call, saved_at: datetime, now: datetime) -> Call:
    """Shift a record's instants by as much as the clock went back since it was saved; usually not at all."""
    if saved_at <= now + TOLERANCE:
        return call
    return _shifted(call, saved_at - now, stale=NEVER_FRESH)


def _shifted(call: Call, by: timedelta, *, stale: timedelta = timedelta()) -> Call:
    """Return a record whose instants are all earlier by so much, what the service said by a little more."""
    effects = {kind: _shift(getattr(call, kind), _EFFECT_INSTANTS, by) for kind in ("assign", "enroll", "reject")}
    reading = call.reading and _shift(call.reading, ("read_at",), by + stale)
    call = _shift(replace(call, reading=reading, **effects), ("listed_at",), by + stale)
    shifted: Call = _shift(call, (*_INSTANTS, "saved_at"), by)
    return shifted


def _shift(record: Any, names: tuple[str, ...], by: timedelta) -> Any:
    instants: dict[str, datetime] = {name: at - by for name in names if (at := getattr(record, name)) is not None}
    return replace(record, **instants) if instants else record


class Window(NamedTuple):
    """The time in which writes may have been lost: not before ``after``, and not later than ``until``."""

    after: datetime
    until: datetime


def charge_lost_writes(call: Call, book: RuleBook, lost: LostWrites) -> Call:
    """Count what may have been spent since the last write that is known of a call.

    The instants of the record and of the window are by the clock of the Redis that lost the writes.
    """
    return _charge(call, book, _window(call, lost))


def charge_earlier_record(call: Call, book: RuleBook, epoch: Epoch, now: datetime, *, age: timedelta) -> Call:
    """Count what a record that Redis lost whole may have spent on a call that has just been listed.

    Only a call that is older than this Redis, ``age`` being how old it is now, can have had one. It can have been watched
    for no longer than the call was old by then, nor for longer than the time in which writes were lost.
    """
    # A call that seems to be older than any that is waited for shows a clock or a zone that differs: it is not given up.
    watched = min(age - (now - epoch.since), timedelta(seconds=book.maximum_age_s / 2))
    if watched <= timedelta():
        return call
    watched = watched if epoch.lost is None else min(watched, epoch.lost)
    # The schedule goes on where the lost record was: begun anew it would spend more than this counts when it is lost again.
    call = _charge(replace(call, first_seen_at=now - watched), book, Window(now - watched, now))
    return call if call.person_id is None else begin_watch(call, book.schedule, now - watched, now)


def charge_if_assigned(call: Call, schedule: Schedule) -> Call:
    """Count what a lost record can have spent only if it had a person: the service shows one that this record lacks."""
    spent = min(call.checks_if_assigned, automatic_left(call, schedule.automatic_limit))
    return replace(call, checks_used=call.checks_used + spent, checks_if_assigned=0)


def most_automatic(call: Call, book: RuleBook, window: Window | None, *, has_person: bool) -> int:
    """Return the most checks that can have been made in a window without anybody asking.

    Args:
        call: The record before the window.
        book: The rules in force.
        window: None where it is not known: then as many as are left.
        has_person: Whether the call had a person, or may have got one in the window.
    """
    schedule = book.schedule
    if window is None:
        return automatic_left(call, schedule.automatic_limit if has_person else book.checks_unassigned)
    if call.watch_from is not None:
        return _most_watched(call, schedule, window)
    unassigned = list(_unassigned(call, book, window))
    if not has_person:
        return len(unassigned)
    # Each check that is made first, without a person, puts the beginning of the watch off.
    return max(
        n + _most_watched(_assigned_at(call, schedule, at, spent=n), schedule, window)
        for n, at in enumerate([window.after, *unassigned])
    )


def most_by_people(call: Call, schedule: Schedule) -> int:
    """Return the most checks that people can have asked for: they may do so at any moment, so all that are left."""
    return reserve_left(call, schedule)


def _window(call: Call, lost: LostWrites) -> Window | None:
    """Return in which time writes about a call may have been lost; None where that is not known.

    Redis keeps its writes in their order. So nothing is missing from before a write that is still there: neither from before
    the record was saved, nor from before the last claim that is still known.
    """
    known = [at for at in (call.saved_at, lost.after) if at is not None]
    if not known or lost.until is None or lost.until < max(known):
        return None
    return Window(max(known), lost.until)


def _charge(call: Call, book: RuleBook, window: Window | None) -> Call:
    if _takes_no_checks(call):
        return call
    schedule, has_person = book.schedule, call.person_id is not None
    automatic = most_automatic(call, book, window, has_person=has_person)
    if_assigned = most_automatic(call, book, window, has_person=True) - automatic
    by_people = most_by_people(call, schedule)
    charged = replace(
        call,
        checks_used=call.checks_used + automatic + by_people,
        checks_by_desk=call.checks_by_desk + by_people,
        checks_if_assigned=call.checks_if_assigned + if_assigned,
    )
    return plan_anew(charged, schedule, window.until) if automatic and window is not None else charged


def _takes_no_checks(call: Call) -> bool:
    """Tell whether the service makes no check of the call any more, for good. Spec: Polling stop rule."""
    is_decided = call.authenticated_seen or call.full_authentication_seen or call.enrolled_seen or call.rejected_seen
    is_ours = call.enroll.state in DONE or call.reject.state in DONE
    return call.is_settled or call.end_seen_at is not None or is_decided or is_ours


def _unassigned(call: Call, book: RuleBook, window: Window) -> Iterator[datetime]:
    """Yield when checks can have been made while nobody was assigned, each as early as possible."""
    schedule, seen_at = book.schedule, min(call.first_seen_at or window.after, window.after)
    at = max(call.next_check_at or schedule.next_slot(seen_at, window.after), window.after)
    for _ in range(automatic_left(call, book.checks_unassigned)):
        if at > window.until:
            return
        yield at
        at = schedule.next_slot(seen_at, at)


def _assigned_at(call: Call, schedule: Schedule, at: datetime, *, spent: int) -> Call:
    return begin_watch(replace(call, checks_used=call.checks_used + spent), schedule, at, at)


def _most_watched(call: Call, schedule: Schedule, window: Window) -> int:
    """Return the most automatic checks of a watched call.

    After an answer the next check waits for the next slot; without one it is made sooner, though later each time. Which mix
    of both makes the most depends on the window. So all are tried: what follows an answered check depends only on how many
    were made and when this one was, so equal beginnings are tried once.
    """
    left = automatic_left(call, schedule.automatic_limit)
    beginnings: dict[int, dict[datetime | None, Call]] = {0: {None: call}}
    if call.last_check_at is not None and call.answered_check_at != call.last_check_at:
        # The last check that is known may have failed in the window.
        beginnings[0][window.after] = check_failed(call, schedule, window.after)
    for made in range(left):
        for beginning in beginnings.get(made, {}).values():
            for n, answered in enumerate(_failing(beginning, schedule, window, left - made), start=made + 1):
                beginnings.setdefault(n, {}).setdefault(answered.last_check_at, answered)
        if left in beginnings:
            return left
    return max(beginnings)


def _failing(call: Call, schedule: Schedule, window: Window, left: int) -> Iterator[Call]:
    """Let every check fail, each made as early as possible; yield what the record would be if that one were answered."""
    for _ in range(left):
        at = max(call.next_check_at or window.after, window.after)
        if at > window.until:
            return
        booked = check_booked(call, schedule, at)
        yield check_answered(booked)
        call = check_failed(booked, schedule, at)
