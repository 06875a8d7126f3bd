"""What a process is doing now; it reports this every second: counts and words without personal data."""

from typing import Final

import msgspec

MOST_WORDS: Final = 240
"""Most characters of ``did`` that are stored."""


class Doing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process does.

    ``shift_s`` is how long its shift has lasted; None: it has none, or is no worker. ``calls``, ``listings``, ``outcomes``
    and ``archived`` are what it has in flight. ``did`` is what the shift has done so far. ``streams``: open streams of a
    web process. ``answered_s_ago``: how long ago the service answered it, and ``connected_s_ago``: over a connection of
    that request's own; None: not yet. ``cut_off_s``: for how long it has known that it cannot reach the service although
    others can; None: it can, or nobody can. ``foreign_answer``: what it sees of an answer that something
    else gave in the service's place. ``shares_account_with``: the prefixes of other installations that use its account of
    the service.
    """

    shift_s: float | None = None
    calls: int = 0
    listings: int = 0
    outcomes: int = 0
    archived: int = 0
    did: str = ""
    streams: int = 0
    answered_s_ago: float | None = None
    connected_s_ago: float | None = None
    cut_off_s: float | None = None
    foreign_answer: str = ""
    shares_account_with: tuple[str, ...] = ()


def encode_doing(doing: Doing) -> bytes:
    """Return what is stored."""
    return msgspec.json.encode(msgspec.structs.replace(doing, did=doing.did[:MOST_WORDS]))
