"""Acknowledgements: a person knows of an incident, and no messages about it are sent until a time.

An acknowledgement names the incident's kind, and its institution or all of them. It ends at its time, with the incident,
or when somebody ends it. If a further fault joins the incident, people are told of that.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from callkeeper.calls.stored_value import readable

LONGEST: Final = timedelta(days=7)
SHORTEST: Final = timedelta(minutes=1)


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who knows of which incident, and until when nobody is told of it. Without an institution it is about all.

    ``parts``: the faults that the incident was made of then.
    """

    kind: str
    operator: str
    at: datetime
    until: datetime
    institution_key: str = ""
    note: str = ""
    parts: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """Return the name that it is stored under: one acknowledgement for each incident."""
        return f"{self.kind} {self.institution_key}"

    @property
    def words(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"acknowledged by {self.operator} until {self.until:%Y-%m-%d %H:%M} UTC{note}"

    def is_about(self, kind: str, institution_key: str) -> bool:
        return self.kind == kind and self.institution_key in {"", institution_key}

    def covers(self, kind: str, institution_key: str, parts: Collection[str] = ()) -> bool:
        """Tell whether nobody is told of an incident. Whoever knew of some of its faults does not know of another."""
        return self.is_about(kind, institution_key) and {*parts} <= {*self.parts}


def parse_acknowledgements(stored: Mapping[bytes, bytes], now: datetime) -> list[Acknowledgement]:
    """Return the acknowledgements that have not ended; those of another version's format are left out."""
    found = (readable(value, Acknowledgement) for value in stored.values())
    return sorted((one for one in found if one is not None and now < one.until), key=lambda one: one.field)


def acknowledgement_of(
    kind: str, institution_key: str, known: Iterable[Acknowledgement], parts: Collection[str] = ()
) -> Acknowledgement | None:
    """Return the acknowledgement of an incident that lasts longest; None if nobody has acknowledged it."""
    covering = (one for one in known if one.covers(kind, institution_key, parts))
    return max(covering, key=lambda one: one.until, default=None)
