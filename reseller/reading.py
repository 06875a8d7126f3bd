"""Turn an answer's bytes into a record: at once if all of it fits, field by field if something does not.

The quick way is msgspec's own. When it refuses, the slow way reads what can be read:

- a field that is missing, or null where it should not be, gets its default;
- a field of the wrong type gets its default too, unless its record calls it vital: that is not guessed;
- nothing disappears from a list: an unreadable item stays as a blank record, or as its JSON text. A candidate
  that cannot be read must still count as a candidate, a policy as a policy.
"""

from datetime import datetime
from functools import cache
from types import NoneType
from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from reseller.record import Record, as_utc
from reseller.secret import Secret

R = TypeVar("R", bound=Record)

_BROKEN = (msgspec.MsgspecError, ValueError, RecursionError)


class Unreadable(ValueError):
    """The bytes do not make the record; the message names records and fields, never values."""


class Reader(Generic[R]):
    """Read one kind of record from JSON. Made once, used for every answer."""

    def __init__(self, kind: type[R]) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(kind, dec_hook=_secret)

    def read(self, body: bytes) -> R:
        """Return the record in ``body``.

        Raises:
            Unreadable: Not JSON, not an object, or a vital field is missing or of the wrong type.
        """
        try:
            return self._decoder.decode(body)
        except _BROKEN:
            pass
        return _record(self._kind, parse(body))


def parse(body: bytes) -> object:
    """Return the JSON value in ``body`` as plain Python values.

    Raises:
        Unreadable: Not JSON, or nested beyond reason.
    """
    try:
        return msgspec.json.decode(body)
    except _BROKEN:
        pass
    raise Unreadable("not JSON")


def _record(kind: type[R], raw: object) -> R:
    if not isinstance(raw, dict):
        raise Unreadable(f"{kind.__name__} is not an object")
    return kind(**{field.name: _field(kind, field, raw) for field in _plan(kind)})


def _field(kind: type[Record], field: FieldInfo, raw: dict[str, Any]) -> object:
    value = raw.get(field.encode_name)
    try:
        return _value(field.type, value)
    except Unreadable:
        pass
    if field.required or (value is not None and field.name in kind.vital):
        raise Unreadable(f"{kind.__name__}.{field.name}")
    return field.default


def _value(kind: Any, raw: object) -> object:
    if NoneType in get_args(kind):
        if raw is None:
            return None
        kind = next(option for option in get_args(kind) if option is not NoneType)
    if get_origin(kind) is tuple:
        return _items(get_args(kind)[0], raw)
    if kind is Secret:
        return _secret(kind, raw)
    if kind is datetime:
        return _instant(raw)
    if issubclass(kind, Record):
        return _record(kind, raw)
    return _scalar(kind, raw)


def _items(kind: Any, raw: object) -> tuple[object, ...]:
    if not isinstance(raw, list):
        raise Unreadable("not a list")
    return tuple(_item(kind, item) for item in raw)


def _item(kind: Any, raw: object) -> object:
    try:
        return _value(kind, raw)
    except Unreadable:
        pass
    return _text(raw) if kind is str else _blank(kind)


def _blank(kind: type[Record]) -> Record:
    return _record(kind, {})


def _instant(raw: object) -> datetime:
    try:
        return as_utc(msgspec.convert(raw, datetime))
    except _BROKEN:
        pass
    raise Unreadable("not an instant")


def _scalar(kind: Any, raw: object) -> object:
    try:
        return msgspec.convert(raw, kind)
    except _BROKEN:
        pass
    raise Unreadable(f"not a {kind.__name__}")


def _secret(kind: type, raw: object) -> object:
    if kind is not Secret:
        raise NotImplementedError(kind.__name__)
    return Secret(raw if isinstance(raw, str) else _text(raw))


def _text(raw: object) -> str:
    return msgspec.json.encode(raw).decode()


@cache
def _plan(kind: type[Record]) -> tuple[FieldInfo, ...]:
    return fields(kind)
