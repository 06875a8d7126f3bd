"""Repair the instants of a record after Redis's clock has jumped: an NTP step, or a server whose clock differs.

A process sees by its own clock that Redis's went ahead, and by how much; records of before are shifted as well. That it
was set back can be read off a record.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from calls.record import Call

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
