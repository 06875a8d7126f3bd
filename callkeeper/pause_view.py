"""Says in words what is paused, what a pause holds, and which pauses there were."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from calls.known import KnownInstitutions
from calls.pause import EVERYWHERE, Pauses, PauseScope
from calls.pausing import PastPause


def place(key: str) -> str:
    """Name the place of a pause."""
    return "all institutions" if key == EVERYWHERE else key


@dataclass(frozen=True, slots=True)
class CurrentPause:
    """A pause in force as JSON shows it. ``problem`` says why it holds no call, if it holds none."""

    institution: str
    scope: PauseScope
    operator: str
    because: str
    at: datetime
    problem: str | None


@dataclass(frozen=True, slots=True)
class CurrentRow:
    """A line of JSON about what is paused now, told by its one name from those of the history."""

    now: CurrentPause


def current_pauses(pauses: Pauses, known: KnownInstitutions) -> list[CurrentRow]:
    """Return every pause in force."""
    return [
        CurrentRow(CurrentPause(key, pause.scope, pause.operator, pause.because, pause.at, _problem(key, known)))
        for key, pause in sorted(pauses.by_institution.items())
    ]


def pause_lines(pauses: Pauses, known: KnownInstitutions) -> list[tuple[str, str]]:
    """Return every pause in a line, each with the problem of its key ('' if there is none): such a pause holds no call."""
    return [
        (
            f"{place(key)}: {pause.words} (since {_when(pause.at)})",
            _problem(key, known) or "",
        )
        for key, pause in sorted(pauses.by_institution.items())
    ]


def held_lines(paused: Sequence[str | None], scope: PauseScope, known: KnownInstitutions) -> list[str]:
    """Say what is held from now on: each institution by name and key, with its number of live calls.

    Args:
        paused: The institutions that were paused; None is all of them.
        scope: How much was paused.
        known: The institutions and their live calls.
    """
    keys = sorted(known.names) if None in paused else sorted({key for key in paused if key is not None})
    whose = "all institutions" if None in paused else _counted(len(keys), "institution")
    live = sum(known.live.get(key, 0) for key in keys)
    lines = [f"Held from now on: {scope.words} of {whose}, {_counted(live, 'live call')}"]
    return [*lines, *(f"  {_held(key, known)}" for key in keys)]


def resumed_lines(resumed: Sequence[str | None], left: Pauses, known: KnownInstitutions) -> list[str]:
    """Say which pauses were lifted, and where the pause of all institutions (``left``) still holds the calls."""
    still = "; its calls are still held by the pause of all institutions" if EVERYWHERE in left.by_institution else ""
    return [f"resumed: {place(EVERYWHERE) if key is None else known.called(key) + still}" for key in resumed]


def history_lines(pauses: Sequence[PastPause]) -> list[str]:
    """Say every pause of the history, newest first: when, where, how much, by whom and why, and what ended it."""
    return [line for past in pauses for line in (_begun(past), f"    {_ended(past)}")]


def _problem(key: str, known: KnownInstitutions) -> str | None:
    return None if key == EVERYWHERE else known.problem(key)


def _held(key: str, known: KnownInstitutions) -> str:
    if key not in known.names:
        if known.is_list_stored:
            return f"{key}: holds no call now: {known.problem(key)}"
        return f"{key}: not known yet; its calls are held once there are any"
    return f"{known.called(key)}: {_counted(known.live.get(key, 0), 'live call')}"


def _begun(past: PastPause) -> str:
    change = past.begun
    scope = "" if change.scope is None else change.scope.words
    return f"{_when(change.at)}  {place(change.institution)}: {scope}, by {change.operator}: {change.because}"


def _ended(past: PastPause) -> str:
    end = past.ended
    if end is None:
        return "in force"
    how = "resumed" if end.scope is None else f"replaced by a pause of {end.scope.words}"
    return f"until {_when(end.at)}: {how}, by {end.operator}: {end.because}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
