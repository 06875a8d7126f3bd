"""Repair the instants of a record after Redis's clock was set back."""

from datetime import datetime, timedelta
from typing import Any

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


def set_back(call: Call, saved_at: datetime, now: datetime) -> Call:
    """Shift a record's instants by as much as the clock went back since it was saved; usually not at all."""
    if saved_at <= now + TOLERANCE:
        return call
    by = saved_at - now
    effects = {kind: _shift(getattr(call, kind), _EFFECT_INSTANTS, by) for kind in ("assign", "enroll", "reject")}
    stale = by + NEVER_FRESH
    reading = call.reading and _shift(call.reading, ("read_at",), stale)
    call = _shift(replace(call, reading=reading, **effects), ("listed_at",), stale)
    shifted: Call = _shift(call, _INSTANTS, by)
    return shifted


def _shift(record: Any, names: tuple[str, ...], by: timedelta) -> Any:
    instants: dict[str, datetime] = {name: at - by for name in names if (at := getattr(record, name)) is not None}
    return replace(record, **instants) if instants else record
