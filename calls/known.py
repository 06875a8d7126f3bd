"""The institutions that callkeeper knows, and the nearest one to a key that was mistyped.

Everything that takes an institution's key from a person uses this check: commands, the board, the desk API, settings.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

_LISTED: Final = 8
"""Institutions that a message lists when none is near to what was typed."""

_ECHOED: Final = 64
"""Characters of what was typed that a message repeats."""


def nearest(typed: str, words: Iterable[str]) -> str | None:
    """Return the word that somebody most likely meant, whatever the case; None if none is near."""
    folded: dict[str, str] = {}
    for word in words:
        folded.setdefault(word.casefold(), word)
    close = get_close_matches(typed.strip().casefold(), folded, n=1)
    return folded[close[0]] if close else None


def shown(typed: str) -> str:
    """Return what was typed in quotes, as a message repeats it: cut, and everything escaped that only looks like ASCII."""
    return ascii(typed if len(typed) <= _ECHOED else typed[:_ECHOED] + "...")


@dataclass(frozen=True, slots=True)
class KnownInstitutions:
    """The institutions that exist as far as callkeeper knows: the stored list and those seen in calls.

    ``names``: key to display name, None where only calls tell of it. ``live``: key to its number of live calls.
    ``is_list_stored``: the service's list is in Redis; it is not on a fresh installation, nor an hour after the last worker.
    """

    names: Mapping[str, str | None]
    live: Mapping[str, int] = field(default_factory=dict)
    is_list_stored: bool = True

    def problem(self, typed: str) -> str | None:
        """Return what is wrong with a key that somebody typed, with the nearest one that exists; None if it exists."""
        if typed in self.names:
            return None
        if not typed.strip():
            return f"the institution's key is blank{self._instead(typed)}"
        said = shown(typed)
        if not self.names:
            return (
                f"callkeeper knows no institution yet, so it cannot tell whether there is one with the key {said}: "
                f"{_NO_LIST}"
            )
        why = "" if self.is_list_stored else f" ({_NO_LIST}; only those seen in calls are known)"
        return f"callkeeper knows no institution with the key {said}{why}{self._instead(typed)}"

    def is_known_in_other_letters(self, typed: str) -> bool:
        """Tell whether a key differs from a known one in upper and lower case only."""
        return typed not in self.names and typed.casefold() in {key.casefold() for key in self.names}

    def nearest(self, typed: str) -> str | None:
        """Return the key that somebody most likely meant, by key or by display name; None if none is near."""
        by_name = {name: key for key, name in self.names.items() if name}
        said = typed.strip().casefold()
        part_of = [key for name, key in by_name.items() if len(said) > 2 and said in name.casefold()]
        if len(part_of) == 1:
            return part_of[0]
        word = nearest(typed, [*self.names, *by_name])
        return by_name.get(word, word) if word is not None else None

    def visible(self, may_see: Callable[[str], bool]) -> "KnownInstitutions":
        """Return the institutions that a caller may see, so that a message never names another one as the nearest."""
        names = {key: name for key, name in self.names.items() if may_see(key)}
        return KnownInstitutions(names, is_list_stored=self.is_list_stored)

    def unknown(self, named: Mapping[str, Iterable[str]]) -> list[tuple[str, str, str | None]]:
        """Return the keys in settings that name no institution: the setting, the key, and the nearest that exists."""
        return [
            (setting, key, self.nearest(key))
            for setting, keys in sorted(named.items())
            for key in sorted(set(keys) - self.names.keys())
        ]

    def called(self, key: str) -> str:
        """Return a key with its display name, where that is known and another."""
        name = self.names.get(key)
        return f"{key} ({name})" if name and name != key else key

    def _instead(self, typed: str) -> str:
        """Say which institution was meant, or else which there are."""
        key = self.nearest(typed)
        if key is not None:
            return f"; did you mean {self.called(key)}?"
        keys = sorted(self.names)
        more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
        return f"; there are {', '.join(keys[:_LISTED])}{more}" if keys else ""


_NO_LIST: Final = (
    "the service's list of institutions is not in Redis, because no worker has read it within the last hour"
)
