"""Pauses: a person stops automatic work for one institution or for all, until a person resumes it.

They are stored in one Redis hash, by institution (``*`` for all), so they outlive restarts. They are read with every
claim, and checked again by the script that books an effect or a check.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

from callkeeper.calls.institutions import KnownInstitutions, shown
from callkeeper.calls.stored_value import readable

EVERYWHERE = "*"
"""The field of a pause of all institutions."""


class PauseScope(StrEnum):
    """How much is paused."""

    EFFECTS = "effects"  # enrolls and rejects
    ALL = "all"  # assigns and automatic checks as well; reads go on

    @property
    def words(self) -> str:
        """Describe what is paused, in the same words everywhere."""
        return "everything automatic" if self is PauseScope.ALL else "enrolls and rejects"


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """One pause: scope, operator, reason and start."""

    scope: PauseScope
    operator: str
    because: str
    at: datetime

    @property
    def words(self) -> str:
        """Describe the pause in one line, for a trail."""
        return f"{self.scope.words}, {self.reason}"

    @property
    def reason(self) -> str:
        return f"by {self.operator}: {self.because}"


@dataclass(frozen=True, slots=True)
class Pauses:
    """All pauses, by institution."""

    by_institution: Mapping[str, Pause] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Institutions whose pause cannot be read. Enrolls and rejects are stopped there, to be safe."""

    def over(self, institution_key: str) -> Pause | None:
        """Return the pause that applies to an institution's calls. Of two, the one that stops more."""
        own, general = self.by_institution.get(institution_key), self.by_institution.get(EVERYWHERE)
        if own is not None and (general is None or own.scope is PauseScope.ALL):
            return own
        return general

    def more_than(self, institution_key: str | None, scope: PauseScope) -> Pause | None:
        """Return the existing pause that a pause of this scope would replace by a weaker one; None if there is none."""
        found = self.by_institution.get(EVERYWHERE if institution_key is None else institution_key)
        return found if found is not None and scope is PauseScope.EFFECTS and found.scope is PauseScope.ALL else None


def parse_pauses(stored: Iterable[tuple[bytes, bytes]]) -> Pauses:
    """Decode the stored pauses: places and values. The same input returns the same object."""
    return _parsed(tuple(stored))


@lru_cache(maxsize=8)
def _parsed(stored: tuple[tuple[bytes, bytes], ...]) -> Pauses:
    pauses = {key.decode(errors="replace"): readable(value, Pause) or _UNREADABLE for key, value in stored}
    return Pauses(pauses, tuple(key for key, pause in pauses.items() if pause is _UNREADABLE))


# ``keep.lua`` refuses enrolls and rejects under any stored value, also an unreadable one. This matches it.
_UNREADABLE = Pause(
    scope=PauseScope.EFFECTS,
    operator="unknown",
    because="the stored pause cannot be read",
    at=datetime.fromtimestamp(0, UTC),
)


def why_not_resumed(institution_key: str | None, pauses: Pauses, known: KnownInstitutions) -> str | None:
    """Return why the pause of an institution, or of all (None), cannot be lifted, with a suggestion; None if it can.

    Any pause can be lifted, also of an unknown institution.
    """
    where = EVERYWHERE if institution_key is None else institution_key
    if where in pauses.by_institution:
        return None
    paused = sorted(pauses.by_institution.keys() - {EVERYWHERE})
    is_mistyped = institution_key is not None and institution_key not in known.names
    near = KnownInstitutions({key: known.names.get(key) for key in paused}) if is_mistyped else None
    meant = near.nearest(where) if near is not None else None
    missing = f"there is no pause of {'all institutions' if institution_key is None else shown(where)}"
    if meant is not None:
        return f"{missing}; did you mean {known.called(meant)}?"
    what = [*(["all institutions"] if EVERYWHERE in pauses.by_institution else []), *paused]
    return f"{missing}; paused now: {', '.join(what)}" if what else f"{missing}: nothing is paused"
