"""The form that all wire records share.

Inside there are no nulls for lists and no naive instants: a null list is read as ``()``, an instant is an aware
UTC datetime. Both are settled here, once, when a record is made.
"""

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, ClassVar, TypeVar, get_type_hints

import msgspec
from msgspec.structs import force_setattr

T = TypeVar("T")

if TYPE_CHECKING:
    Listed = tuple[T, ...]
else:

    class Listed:
        """A list that may be null on the wire and is a tuple inside: ``Listed[X]`` is ``tuple[X, ...]``."""

        def __class_getitem__(cls, item: type) -> object:
            return tuple[item, ...] | None


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A record of the Spec: frozen, camelCase on the wire, unknown fields ignored.

    ``vital`` names the fields that are never guessed: of the wrong type, they make the record unreadable.

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

    Assumed: an instant without zone is UTC; the Spec does not say.

    Raises:
        ValueError: The instant lies outside the calendar once its offset is taken off.
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
