"""What we know of institutions: whether anything may be done for one, how far the listing of its queue is, and which exist.

Of the service's institution record five fields are kept (key, name, status, hasVoiceAuth, isTestMode); its secrets
never leave the parser. ``ask_standings`` asks the service for them, the same way for workers and for the doctor: the
list is used where it can be read, and every key that it does not answer for is asked for by itself, so that one key
that fails concerns its institution only.

Everything that takes an institution's key from a person (commands, the board, the desk API, settings) checks it with
``KnownInstitutions``, which names the nearest one to a key that was mistyped.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Final

import msgspec

from reseller import Institution, InstitutionSummary, Reseller, ResellerError, ServiceUnavailable

FOREIGN = "not_ours"
"""Obstacle: the service account may not act for the institution. Nothing is ever sent with its key."""

UNKNOWN = "standing_unknown"
"""Obstacle: the service has not told (yet) whether the institution is active."""


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the service says of an institution that we may manage. Spec: Institution."""

    key: str
    name: str | None = None
    status: str | None = None
    has_voice_auth: bool = False
    is_test_mode: bool = False

    @property
    def obstacle(self) -> str | None:
        """Return why nothing may be done for its calls, None if everything may."""
        if self.status != "Active":
            return "not_active"
        if not self.has_voice_auth:
            return "no_voice_auth"
        return "test_mode" if self.is_test_mode else None


class Paging(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was learnt of the pages of an institution's queue, which the Spec does not describe.

    ``size`` is how many entries can be asked for, None while no size was refused. ``largest`` is the most entries that a
    page ever had. ``counts_pages`` says whether `continueFrom` counts pages instead of entries; None while that is not
    known.
    """

    size: int | None = None
    largest: int = 0
    counts_pages: bool | None = None


class ListingProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the listing of an institution's queue is. Stored as the record of its member in the due set.

    ``cursor`` is the `continueFrom` that a full listing has reached; None while none is under way. ``newest_at`` is the
    latest start of a call that was listed, by the service's clock.
    """

    institution_key: str
    version: int = 1
    newest_at: datetime | None = None
    full_at: datetime | None = None
    cursor: int | None = None
    failures: int = 0
    paging: Paging = Paging()


_ENCODER = msgspec.json.Encoder()
_PROGRESS = msgspec.json.Decoder(ListingProgress)
_STANDING = msgspec.json.Decoder(Standing)


def encode_progress(progress: ListingProgress) -> bytes:
    """Write a listing's progress as stored."""
    return _ENCODER.encode(progress)


def parse_progress(stored: bytes) -> ListingProgress:
    """Read a listing's progress."""
    return _PROGRESS.decode(stored)


def encode_standing(standing: Standing) -> bytes:
    """Write a standing as stored."""
    return _ENCODER.encode(standing)


def parse_standing(stored: bytes) -> Standing | None:
    """Read a standing; None if it is not one of ours."""
    try:
        return _STANDING.decode(stored)
    except msgspec.MsgspecError:
        return None


def parse_standings(stored: Mapping[bytes, bytes]) -> dict[str, Standing]:
    """Read all standings by institution; those that cannot be read are left out."""
    found = ((key.decode(errors="replace"), parse_standing(value)) for key, value in stored.items())
    return {key: standing for key, standing in found if standing is not None}


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

FAILURES_THAT_TELL = 3
"""Keys in a row without any answer after which the rest is not asked for: the service is away."""


@dataclass(slots=True)
class Standings:
    """What the service said: the standing of each institution, and why some of it could not be read."""

    known: dict[str, Standing] = field(default_factory=dict)
    unreadable: dict[str, ResellerError] = field(default_factory=dict)
    list_error: ResellerError | None = None


async def ask_standings(service: Reseller, keys: Iterable[str]) -> Standings:
    """Ask for the standing of institutions, and of all others that the list happens to name.

    Spec: Endpoints 8 and 10. Assumed: the wrapper of the list is not shown; see `reseller.conversation`.
    """
    asked = Standings()
    try:
        asked.known = {summary.key: standing_of(summary) for summary in await service.institutions() if summary.key}
    except ResellerError as error:
        asked.list_error = error
    silent = 0
    for key in sorted(set(keys) - asked.known.keys()):
        try:
            asked.known[key] = standing_of(await service.institution(key), key)
            silent = 0
        except ResellerError as error:
            asked.unreadable[key] = error
            silent = silent + 1 if isinstance(error, ServiceUnavailable) else 0
            if silent == FAILURES_THAT_TELL and not asked.known:
                break
    return asked


def standing_of(summary: InstitutionSummary | Institution, key: str | None = None) -> Standing:
    """Return what we keep of an institution; ``key`` is the one that it was asked for by."""
    return Standing(
        key=key or summary.key or "",
        name=summary.name,
        status=summary.status,
        has_voice_auth=summary.has_voice_auth,
        is_test_mode=summary.is_test_mode,
    )
