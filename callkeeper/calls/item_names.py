"""The names of what falls due: calls and institutions.

``c:<institution>:<voice id>`` is a call, ``i:<institution>`` an institution. The institution part is percent-encoded, so
the first two colons always separate. Such a name is a member of the due set, and of other sets and hashes in Redis.
"""

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote


class CallId(NamedTuple):
    """Identifies a call: the institution's key and the voice id (real or alternate) of its record."""

    institution_key: str
    voice_id: str

    @property
    def member(self) -> str:
        """Return the call's name in the due set."""
        return f"c:{institution_part(self.institution_key)}:{self.voice_id}"


def institution_member(institution_key: str) -> str:
    """Return an institution's name in the due set."""
    return f"i:{institution_part(institution_key)}"


@lru_cache(maxsize=4096)
def institution_part(institution_key: str) -> str:
    """Return an institution's key as names of keys and members hold it: percent-encoded, empty for none.

    Cached, because there are few keys and each is used millions of times.
    """
    return quote(institution_key, safe="")


@lru_cache(maxsize=4096)
def parse_member(member: str) -> CallId | str:
    """Return the call, or the institution's key, that a member of the due set names.

    Cached, because claims and views of the same members ask again and again.

    Raises:
        ValueError: It is neither, so we did not write it.
    """
    kind, _, rest = member.partition(":")
    institution, colon, voice_id = rest.partition(":")
    if kind == "c" and colon:
        return CallId(unquote(institution), voice_id)
    if kind == "i" and institution and not colon:
        return unquote(institution)
    raise ValueError(f"not the name of a call or an institution: {member!r}")


def owner_of(member: str) -> CallId | str | None:
    """Return what a member of the due set names; None if we did not write it."""
    try:
        return parse_member(member)
    except ValueError:
        return None
