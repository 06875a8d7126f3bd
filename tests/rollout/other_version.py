"""A process of another version: ``python -m tests.rollout.other_version newer|older worker``.

It is our own code that stores what another version would: a newer one writes fields that ours does not know, in calls,
effects, notes, events, listings and the trail, and every fourth call under a higher schema number until it is settled; an
older one neither reads nor writes fields that came late.
"""

import json
import sys
from collections.abc import Callable
from typing import Any
from zlib import crc32

import calls.notes
import calls.record
import calls.store.handover
import calls.store.idempotent_intake
import calls.store.last_listing
import calls.trail
from callkeeper.cli import main

LATE_FIELDS = {
    *("trace", "effects_held_until", "updated_before", "updated_at", "last_word"),
    *("answered_check_at", "remark", "requested_by", "history", "signs"),
}
"""Fields that an older version does not have; all of them optional, as every field that comes later must be."""

INVENTED = {"invented_later": {"since": "2027-01-01", "numbers": [1, 2, 3]}}

MAPS = {"policies", "signs"}
"""Fields that are maps from names to numbers where they are objects: no version adds a field to those."""

Change = Callable[[Any], Any]


def newer(stored: Any) -> Any:
    """Add a field to every object, inner ones included."""
    if isinstance(stored, dict):
        fields = {
            name: value if name in MAPS and isinstance(value, dict) else newer(value) for name, value in stored.items()
        }
        return {**fields, **INVENTED}
    return [newer(each) for each in stored] if isinstance(stored, list) else stored


def newer_call(call: Any) -> Any:
    """Add fields to a call. The earlier releases must leave some calls alone while they are handled."""
    is_other = crc32(call["voice_id"].encode()) % 4 == 0 and call.get("phase") != "settled"
    return {**newer(call), "schema": calls.record.SCHEMA if is_other else 1}


def older(stored: Any) -> Any:
    """Take the late fields out of every object."""
    if isinstance(stored, dict):
        return {name: older(value) for name, value in stored.items() if name not in LATE_FIELDS}
    return [older(each) for each in stored] if isinstance(stored, list) else stored


class Writer:
    """Encodes as ours does, then as the other version would."""

    def __init__(self, own: Any, change: Change) -> None:
        self._own = own
        self._change = change

    def encode(self, value: object) -> bytes:
        """Return a value as the other version stores it."""
        return json.dumps(self._change(json.loads(self._own.encode(value)))).encode()


class Reader:
    """Decodes what the other version would see of what is stored."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def decode(self, stored: bytes) -> Any:
        """Return a value as the other version reads it."""
        return self._own.decode(json.dumps(older(json.loads(stored))).encode())


def become(version: str) -> None:
    """Make this process one of another version."""
    change = {"newer": newer, "older": older}[version]
    record: Any = calls.record
    record._ENCODER = Writer(record._ENCODER, newer_call if version == "newer" else change)
    for module in (calls.notes, calls.store.last_listing, calls.trail, calls.store.idempotent_intake):
        codecs: Any = module
        codecs._ENCODER = Writer(codecs._ENCODER, change)
    if version == "older":
        record._DECODER = Reader(record._DECODER)
        return
    record._KNOWN |= INVENTED.keys()
    notes: Any = calls.notes
    handover: Any = calls.store.handover
    record.SCHEMA = notes.SCHEMA = handover.SCHEMA = record.SCHEMA + 1


if __name__ == "__main__":
    become(sys.argv.pop(1))
    main(prog_name="callkeeper")
