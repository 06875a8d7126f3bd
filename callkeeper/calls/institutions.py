"""The institutions that are known to exist, and the obstacles that keep us from acting for one.

Everything that takes an institution's key from a person (commands, the board, the desk API, settings) checks it with
``KnownInstitutions``, which suggests the nearest existing key.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

FOREIGN = "not_ours"
"""Obstacle: the service account may not act for the institution. No request is sent with its key."""

NOT_ACTIVE = "not_active"
"""Obstacle: the service names the institution as Disabled or in Review."""

NO_VOICE_AUTH = "no_voice_auth"
TEST_MODE = "test_mode"

OBSTACLES: Final = {
    NOT_ACTIVE: "it is not Active",
    NO_VOICE_AUTH: "it has no voice authentication",
    TEST_MODE: "it is in test mode",
}
"""What the service says of an institution for which nothing is done."""

REMEDIES: Final = {
    NOT_ACTIVE: "have the service operator make it Active (it may be Disabled, or in Review)",
    NO_VOICE_AUTH: "have the service operator switch its voice authentication on",
    TEST_MODE: "name it in CALLKEEPER_TEST_INSTITUTIONS if its calls are to be handled, as on a staging host",
}
"""What to do about each of these obstacles."""

UNKNOWN = "standing_unknown"
"""Obstacle: the service has not said yet whether the institution is active."""

_LISTED: Final = 8
"""How many institutions a message lists if none is similar to what was typed."""

_ECHOED: Final = 64
"""How many characters of the typed text a message repeats."""


def nearest(typed: str, words: Iterable[str]) -> str | None:
    """Return the word that was most likely meant, ignoring case; None if none is similar."""
    folded: dict[str, str] = {}
    for word in words:
        folded.setdefault(word.casefold(), word)
    close = get_close_matches(typed.strip().casefold(), folded, n=1)
    return folded[close[0]] if close else None


def is_account_of_another(key: str, person_id: str, keys: Iterable[str]) -> bool:
    """Tell whether the service would take a member for one of another institution, whose key is longer.

    It names an account ``{institutionKey}-{personId}``. So member 2-p-9 of cu-1 is member p-9 of cu-1-2. Spec: Rules per
    operation 1.
    """
    alias = f"{key}-{person_id}".casefold()
    return any(len(other) > len(key) and alias.startswith(f"{other}-".casefold()) for other in keys)


def shown(typed: str) -> str:
    """Return the typed text in quotes for a message: cut, and with all characters escaped that are not ASCII."""
    return ascii(typed if len(typed) <= _ECHOED else typed[:_ECHOED] + "...")


@dataclass(frozen=True, slots=True)
class KnownInstitutions:
    """The institutions that are known to exist: those in the stored list, and those seen in calls.

    ``names``: key to display name, None if only calls show it. ``live``: key to its number of live calls.
    ``is_list_stored``: the service's list is in Redis. It is not on a new installation, nor an hour after the last
    worker.
    """

    names: Mapping[str, str | None]
    live: Mapping[str, int] = field(default_factory=dict)
    is_list_stored: bool = True

    def problem(self, typed: str) -> str | None:
        """Return what is wrong with a typed key, with the nearest existing one; None if it exists."""
        if typed in self.names:
            return None
        if not typed.strip():
            return f"the institution's key is blank{self._instead(typed)}"
        key = shown(typed)
        if not self.names:
            return (
                f"callkeeper knows no institution yet, so it cannot tell whether there is one with the key {key}: "
                f"{_NO_LIST}"
            )
        why = "" if self.is_list_stored else f" ({_NO_LIST}; only those seen in calls are known)"
        return f"callkeeper knows no institution with the key {key}{why}{self._instead(typed)}"

    def is_known_in_other_letters(self, typed: str) -> bool:
        """Tell whether a key differs from a known one only in upper and lower case."""
        return typed not in self.names and typed.casefold() in {key.casefold() for key in self.names}

    def nearest(self, typed: str) -> str | None:
        """Return the key that was most likely meant, by key or display name; None if none is similar."""
        by_name = {name: key for key, name in self.names.items() if name}
        wanted = typed.strip().casefold()
        part_of = [key for name, key in by_name.items() if len(wanted) > 2 and wanted in name.casefold()]
        if len(part_of) == 1:
            return part_of[0]
        word = nearest(typed, [*self.names, *by_name])
        return by_name.get(word, word) if word is not None else None

    def visible(self, may_see: Callable[[str], bool]) -> "KnownInstitutions":
        """Return the institutions that a caller may see, so that a message never suggests another one."""
        names = {key: name for key, name in self.names.items() if may_see(key)}
        return KnownInstitutions(names, is_list_stored=self.is_list_stored)

    def unknown(self, named: Mapping[str, Iterable[str]]) -> list[tuple[str, str, str | None]]:
        """Return the keys in settings that are no institution: the setting, the key, and the nearest existing one."""
        return [
            (setting, key, self.nearest(key))
            for setting, keys in sorted(named.items())
            for key in sorted(set(keys) - self.names.keys())
        ]

    def called(self, key: str) -> str:
        """Return a key with its display name, if that is known and different."""
        name = self.names.get(key)
        return f"{key} ({name})" if name and name != key else key

    def _instead(self, typed: str) -> str:
        """Return the end of a message: which institution was probably meant, or which exist."""
        key = self.nearest(typed)
        if key is not None:
            return f"; did you mean {self.called(key)}?"
        keys = sorted(self.names)
        more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
        return f"; there are {', '.join(keys[:_LISTED])}{more}" if keys else ""


_NO_LIST: Final = (
    "the service's list of institutions is not in Redis, because no worker has read it within the last hour"
)
