"""What a settled call tells about when results come: an interval for its result, and how long it lived.

A check that shows no result says that there was none yet; the first that shows one, or the last read after the end, says
that it had come by then. In between nobody looked.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from calls.facts import Status
from calls.policies import MANUAL_GREEN, Colour, Policies
from calls.record import DONE, EffectKind, Reason
from calls.recording import Recorded
from calls.trail import Entry


@dataclass(frozen=True, slots=True)
class Observation:
    """One watched call, in seconds after its watch began.

    Attributes:
        after_s: The result had not come by then.
        by_s: The result had come by then; None if it was never seen.
        lived_s: How long the call lived.
        has_ended: Whether it ended then; False if it was only lost from sight.
    """

    after_s: float
    by_s: float | None
    lived_s: float
    has_ended: bool = True


def observe(call: Recorded, policies: Policies) -> Observation | None:
    """Read what a settled call tells; None if it was never watched, or is not settled.

    A call in which the service's final analysis shows no result had none: it counts as none until the end.
    Assumed: what the final analysis shows could have been seen in the moment before.
    """
    begin, end = _watched_from(call), _last(call.trail, "ended") or _last(call.trail, "settled")
    if begin is None or end is None or call.reason is None:
        return None
    has_ended = call.reason is not Reason.LOST
    lived_s = _since(begin, end)
    after_s, by_s = _interval(begin, call.trail, policies)
    if by_s is None and has_ended:
        after_s = max(after_s, lived_s)
    if by_s is not None:
        by_s = max(after_s, min(by_s, lived_s))
    return Observation(after_s, by_s, lived_s, has_ended)


def _watched_from(call: Recorded) -> datetime | None:
    """Return when the watch began: with the first line that names the call's person.

    A call that had one when it was first listed is watched from its start on.
    """
    for entry in call.trail:
        if entry.what == "listed" and entry.person_id is not None:
            return min(call.started_at or entry.at, entry.at)
        was_read = entry.what in {"read", "checked"} and entry.person_id is not None
        was_assigned = entry.kind == EffectKind.ASSIGN and entry.what in {"answered", "established"}
        if was_read or (was_assigned and entry.state in DONE):
            return entry.at
    return None


def _last(trail: Iterable[Entry], what: str) -> datetime | None:
    return max((entry.at for entry in trail if entry.what == what), default=None)


def _interval(begin: datetime, trail: Iterable[Entry], policies: Policies) -> tuple[float, float | None]:
    """Return when a check last showed no result (by the time it was sent), and when the result was first seen."""
    after_s = 0.0
    for entry in trail:
        if entry.what in {"checked", "read"} and shows_result(entry, policies):
            return after_s, _since(begin, entry.at)
        if entry.what == "checked":
            after_s = max(after_s, _since(begin, entry.at) - (entry.took_ms or 0) / 1000)
    return after_s, None


def shows_result(entry: Entry, policies: Policies) -> bool:
    """Tell whether an answer shows what the provider found: a green or red policy, or the voice authenticated."""
    colours = policies.colours(name for name in entry.policies if name != MANUAL_GREEN)
    by_voice = entry.status == Status.FULL_AUTHENTICATION and MANUAL_GREEN not in entry.policies
    return by_voice or not colours.isdisjoint({Colour.GREEN, Colour.RED})


def _since(begin: datetime, instant: datetime) -> float:
    return max(0.0, (instant - begin).total_seconds())
