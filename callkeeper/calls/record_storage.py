"""How the record of a call is stored: as JSON, the fields of all its parts side by side.

Two releases share one Redis during an upgrade, so every new field is optional and has a default: that is how a record of an
earlier release is read. A field of ``Call`` that this release does not know is kept when the record is saved; one inside an
inner value (a ledger, a reading) is lost. If an earlier release would break a promise by acting on a record (a new phase, a
new meaning, a new line of the trail that has an outcome), the new release raises ``schema`` in that record.
"""

from collections.abc import Collection
from inspect import isclass
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Final, get_type_hints

import msgspec
from msgspec.structs import astuple, fields, replace

from callkeeper.calls.record import Call, RecordPart

SCHEMA: Final = 2
"""The highest schema number that this release reads. 2: a trail with a refusal that stands, which has an outcome."""

NEWER: Final = "written by a newer release: roll forward, or start a worker of that release"
"""The attention reason of a call that no worker of a newer release has taken for a minute."""


class NewerRecord(Exception):
    """A newer release wrote this record or note, and an earlier one must not act on it."""

    def __init__(self) -> None:
        super().__init__(NEWER)


_PARTS: Final = {
    name: part for name, part in get_type_hints(Call).items() if isclass(part) and issubclass(part, RecordPart)
}
_OWN: Final = tuple(field for field in fields(Call) if field.name not in {*_PARTS, "unknown"})
StoredCall = msgspec.defstruct(
    "StoredCall",
    [
        (one.encode_name, one.type, one.default if one.default_factory is msgspec.NODEFAULT else {})
        for one in chain(_OWN, *map(fields, _PARTS.values()))
    ],
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
)
"""A record as it is stored: the fields of all parts side by side, so that parts can change and stored records do not."""

_own_values = attrgetter(*(field.name for field in _OWN))
_part_values = attrgetter(*_PARTS)
_ends = tuple(accumulate((len(part.__struct_fields__) for part in _PARTS.values()), initial=len(_OWN)))
_SLICES: Final = [(part, slice(*ends)) for part, ends in zip(_PARTS.values(), pairwise(_ends), strict=True)]
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(StoredCall)
_NAMES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN: Final = frozenset(StoredCall.__struct_fields__)


def encode_call(call: Call) -> bytes:
    """Encode a record for storage, with the fields that this release does not know."""
    encoded = _ENCODER.encode(StoredCall(*chain(_own_values(call), *map(astuple, _part_values(call)))))
    return encoded if not call.unknown else encoded[:-1] + b"," + msgspec.json.encode(dict(call.unknown))[1:]


def without_names(call: Call, members: Collection[str | None]) -> Call:
    """Return the record without the names of some members."""
    seen = call.seen
    candidates = tuple([replace(one, name="") if one.person_id in members else one for one in seen.candidates])
    return replace(call, seen=replace(seen, candidates=candidates))


def without_caller(call: Call) -> Call:
    """Return the record without the caller's number and the members' names: what the service shows of people."""
    call = without_names(call, {one.person_id for one in call.seen.candidates})
    return replace(call, names=replace(call.names, phone_number=None))


def without_unknown(call: Call) -> Call:
    """Return the record without the fields that this release does not know. They may be personal."""
    return replace(call, unknown=MappingProxyType({}))


def parse_call(stored: bytes, *, only_to_read: bool = False) -> Call:
    """Decode a stored record. ``only_to_read``: nobody acts on it, so a newer release may have written it.

    Raises:
        NewerRecord: This release must not act on the record.
        msgspec.MsgspecError: The stored record holds a value that no release writes.
    """
    try:
        stored_call, unknown = _DECODER.decode(stored), {}
    except msgspec.ValidationError:  # rare: an unknown field, or a value that no release writes
        found = _NAMES.decode(stored)
        if not only_to_read and "schema" in found and msgspec.json.decode(found["schema"], type=int) > SCHEMA:
            raise NewerRecord from None
        unknown = {name: found[name].copy() for name in found.keys() - _KNOWN}
        known = {name: found[name] for name in StoredCall.__struct_fields__ if name in found}
        stored_call = _DECODER.decode(msgspec.json.encode(known))
    values = astuple(stored_call)
    call = Call(*[*values[: len(_OWN)], *[part(*values[place]) for part, place in _SLICES], MappingProxyType(unknown)])
    if call.schema > SCHEMA and not only_to_read:
        raise NewerRecord
    return call


def readable_call(stored: bytes) -> Call | None:
    """Decode a stored record for a list; None if it cannot be read. What needs a person is in the attention list."""
    try:
        return parse_call(stored)
    except (NewerRecord, msgspec.MsgspecError, UnicodeDecodeError):
        return None
