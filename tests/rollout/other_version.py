"""A process of a newer version: ``python -m tests.rollout.other_version worker``.

It runs our own code, changed so that it stores data as a newer version would. It adds unknown fields to calls, effects,
notes, events, listings and the trail. It writes every fourth call with a higher schema number until the call is settled.
"""

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any
from zlib import crc32

from callkeeper.app.cli import main
from callkeeper.calls import notes, record_storage, trail
from callkeeper.calls.store import claims, last_listing, push_intake

INVENTED = {"invented_later": {"since": "2027-01-01", "numbers": [1, 2, 3]}}

MAPS = {"policies", "signs", "calls", "earlier_calls"}
"""Fields whose objects are maps, to which no version adds a field."""

Change = Callable[[Any], Any]


def newer(stored: Any) -> Any:
    """Add a field to every object, including inner ones."""
    if isinstance(stored, dict):
        fields = {
            name: value if name in MAPS and isinstance(value, dict) else newer(value) for name, value in stored.items()
        }
        return {**fields, **INVENTED}
    return [newer(each) for each in stored] if isinstance(stored, list) else stored


def newer_call(call: Any) -> Any:
    """Add fields to a call. Every fourth gets a higher schema number, so that earlier releases leave it alone."""
    is_other = crc32(call["voice_id"].encode()) % 4 == 0 and call.get("phase") != "settled"
    return {**newer(call), "schema": record_storage.SCHEMA if is_other else 1}


class Writer:
    """Encodes with our encoder, then changes the result into the other version's format."""

    def __init__(self, own: Any, change: Change) -> None:
        self._own = own
        self._change = change

    def encode(self, value: object) -> bytes:
        """Return a value as the other version stores it."""
        return json.dumps(self._change(json.loads(self._own.encode(value)))).encode()


def become_newer() -> None:
    """Make this process store and read data as a newer version does."""
    _patch(record_storage, _ENCODER=Writer(record_storage._ENCODER, newer_call))
    for module in (notes, last_listing, trail, push_intake):
        _patch(module, _ENCODER=Writer(vars(module)["_ENCODER"], newer))
    _patch(record_storage, _KNOWN=record_storage._KNOWN | INVENTED.keys())
    schema = record_storage.SCHEMA + 1
    for module in (record_storage, notes, claims):
        _patch(module, SCHEMA=schema)


def _patch(module: ModuleType, **values: object) -> None:
    for name, value in values.items():
        setattr(module, name, value)


if __name__ == "__main__":
    become_newer()
    main(prog_name="callkeeper")
