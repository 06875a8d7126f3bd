"""Pauses: a person stops what is automatic, for one institution or for all, until a person resumes it.

Kept in one Redis hash, field by institution (``*`` for all), so that they outlive restarts; read with every claim, and once
more by the script that books an effect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

EVERYWHERE = "*"
"""The field of a pause that holds for every institution."""


class PauseScope(StrEnum):
    """How much is paused."""

    EFFECTS = "effects"  # enrolls and rejects
    ALL = "all"  # assigns and automatic checks as well; reads go on

    @property
    def words(self) -> str:
        """Say what is paused, in the same words everywhere."""
        return "everything automatic" if self is PauseScope.ALL else "enrolls and rejects"


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause: how much, by whom, why, since when."""

    scope: PauseScope
    operator: str
    because: str
    at: datetime

    @property
    def words(self) -> str:
        """Say it in a line, for a trail."""
        return f"{self.scope.words}, {self.reason}"

    @property
    def reason(self) -> str:
        """Say who paused, and why."""
        return f"by {self.operator}: {self.because}"


@dataclass(frozen=True, slots=True)
class Pauses:
    """All pauses there are, by institution."""

    by_institution: Mapping[str, Pause] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Whose pause cannot be read. Somebody wanted something stopped there: enrolls and rejects are."""

    def over(self, institution_key: str) -> Pause | None:
        """Return the pause that an institution's calls are under: of two, the one that stops more."""
        own, general = self.by_institution.get(institution_key), self.by_institution.get(EVERYWHERE)
        if own is not None and (general is None or own.scope is PauseScope.ALL):
            return own
        return general

    def more_than(self, institution_key: str | None, scope: PauseScope) -> Pause | None:
        """Return the pause of one institution, or of all (None), that one of this scope would weaken by replacing it."""
        found = self.by_institution.get(EVERYWHERE if institution_key is None else institution_key)
        return found if found is not None and scope is PauseScope.EFFECTS and found.scope is PauseScope.ALL else None


def encode_pause(pause: Pause) -> bytes:
    """Write a pause as stored."""
    return msgspec.json.encode(pause)


def parse_pauses(stored: tuple[tuple[str, bytes], ...]) -> Pauses:
    """Read the stored pauses; the same ones give the same object."""
    return _parse(stored)


@lru_cache(maxsize=8)
def _parse(stored: tuple[tuple[str, bytes], ...]) -> Pauses:
    pauses = {key: _pause(value) for key, value in stored}
    return Pauses(pauses, tuple(key for key, pause in pauses.items() if pause is _UNREADABLE))


def _pause(stored: bytes) -> Pause:
    try:
        return msgspec.json.decode(stored, type=Pause)
    except msgspec.MsgspecError:
        return _UNREADABLE


# ``keep.lua`` refuses enrolls and rejects under any stored value; this is the same.
_UNREADABLE = Pause(
    scope=PauseScope.EFFECTS,
    operator="unknown",
    because="the stored pause cannot be read",
    at=datetime.fromtimestamp(0, UTC),
)
