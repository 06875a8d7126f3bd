"""What we know of an institution: whether anything may be done for it, and how far the listing of its queue is.

Of the service's institution record five fields are kept (key, name, status, hasVoiceAuth, isTestMode); its secrets never
leave the parser.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

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


class Watch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
_WATCH = msgspec.json.Decoder(Watch)
_STANDING = msgspec.json.Decoder(Standing)


def encode_watch(watch: Watch) -> bytes:
    """Write a listing's progress as stored."""
    return _ENCODER.encode(watch)


def parse_watch(stored: bytes) -> Watch:
    """Read a listing's progress."""
    return _WATCH.decode(stored)


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
