"""Decodes an answer into a record: at once if everything fits, else field by field.

Records have no nulls for lists and no naive instants: a null list becomes ``()``, an instant an aware UTC datetime.
Both are converted once, when a ``Record`` is made.

The fast way is msgspec's own. If it fails, the slow way reads what can be read:

- a field that is missing, or null where it should not be, gets its default;
- a field of the wrong type also gets its default, unless the record declares it vital, because then it must not be
  guessed;
- text that is wrongly encoded is read as far as it can be;
- nothing disappears from a list: an unreadable item stays as a blank record, or as its JSON text. A candidate that
  cannot be read must still count as a candidate, a policy as a policy.
"""

import json
from datetime import UTC, datetime
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import FieldInfo, fields, force_setattr

from callkeeper.service.secret import Secret

T = TypeVar("T")

if TYPE_CHECKING:
    Listed = tuple[T, ...]
else:

    class Listed:
        """A list that may be null in JSON and is a tuple here: ``Listed[X]`` is ``tuple[X, ...]``."""

        def __class_getitem__(cls, item: type) -> object:
            return tuple[item, ...] | None


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A record of the Spec: frozen, camelCase in JSON, unknown fields ignored.

    Assumed (`fields-may-change`): an unknown field means nothing, a missing one null.

    ``vital`` names the fields that must not be guessed: if one has the wrong type, the record is unreadable.

    Spec: Resources and their fields.
    """

    vital: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for name in _instants(type(self)):
            value = getattr(self, name)
            if value is not None and value.tzinfo is not UTC:
                force_setattr(self, name, as_utc(value))
        for name in _lists(type(self)):
            if getattr(self, name) is None:
                force_setattr(self, name, ())


def as_utc(value: datetime) -> datetime:
    """Return the same instant in UTC.

    Assumed (`dates-without-zone`): an instant without zone is UTC; the Spec does not say.

    Raises:
        ValueError: The instant is outside the calendar once its offset is subtracted.
    """
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("an instant outside the calendar") from None


@cache
def _instants(kind: type[Record]) -> tuple[str, ...]:
    return tuple(name for name, hint in _hints(kind) if hint in (datetime, datetime | None))


@cache
def _lists(kind: type[Record]) -> tuple[str, ...]:
    return tuple(name for name, hint in _hints(kind) if "tuple[" in str(hint))


def _hints(kind: type[Record]) -> list[tuple[str, object]]:
    hints = get_type_hints(kind)
    return [(name, hints[name]) for name in kind.__struct_fields__]


R = TypeVar("R", bound=Record)

_LENIENT = json.JSONDecoder(strict=False)
_BROKEN = (msgspec.MsgspecError, ValueError, RecursionError)


class Unreadable(ValueError):
    """The bytes are not such a record. The message names records and fields, never values."""


class Reader(Generic[R]):
    """Decodes one kind of record from JSON. Created once, used for every answer."""

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
        return self.of(parse(body))

    def of(self, value: object) -> R:
        """Return the record in a value that is parsed already. Raises as `read`."""
        return _record(self._kind, value)


def parse(body: bytes) -> object:
    """Return the JSON value in ``body`` as plain Python values.

    One wrongly encoded name must not hide an institution's queue. So a byte order mark and control characters are
    accepted, and what is not UTF-8, or half of a surrogate pair, becomes a replacement character.

    Raises:
        Unreadable: Not JSON, or nested too deeply.
    """
    try:
        value = _LENIENT.decode(body.decode("utf-8-sig", "replace"))
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return json.loads(whole.decode("utf-8", "replace"))
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
    return _text(raw) if kind is str else _record(kind, {})


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
