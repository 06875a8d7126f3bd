"""The tables of the archive. Instants are milliseconds since 1970, UTC: the same number in every database.

``lines`` is append-only. Search data (``terms`` and the columns after ``hash``) is derived from the bodies.
``callkeeper/archive/migrations`` creates these tables; a test compares the two.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    FromClause,
    Index,
    MetaData,
    Row,
    String,
    Table,
    Text,
    and_,
    exists,
)

T = TypeVar("T")
Stored = TypeVar("Stored", bound=msgspec.Struct)
"""The fields of a table that are read, named as its columns."""

metadata = MetaData()

_SORTED: Final = String().with_variant(String(collation="C"), "postgresql")
"""Compared byte by byte, so that an index finds prefixes."""

chains = Table(
    "archive_chains",
    metadata,
    Column("institution_key", _SORTED, primary_key=True),
    # Retention removed the earlier lines; ``base_hash`` is the hash of the last line that it removed.
    Column("base_n", BigInteger, nullable=False),
    Column("base_hash", String, nullable=False),
    Column("head_n", BigInteger, nullable=False),
    Column("head_hash", String, nullable=False),
)

lines = Table(
    "archive_lines",
    metadata,
    Column("institution_key", _SORTED, primary_key=True),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("voice_id", _SORTED),
    Column("version", BigInteger),
    Column("body", Text),  # NULL: retention emptied it
    Column("body_hash", String, nullable=False),
    Column("commitments", Text, nullable=False),
    Column("previous", String, nullable=False),
    Column("hash", String, nullable=False),
    Column("alternate_id", _SORTED),
    Column("began_ms", BigInteger),
    Column("settled_ms", BigInteger),
    Index("archive_lines_call", "institution_key", "voice_id", "version", unique=True),
    Index("archive_lines_id", "voice_id", "began_ms", "institution_key", "n"),
    Index("archive_lines_alternate", "alternate_id", "began_ms", "institution_key", "n"),
    Index("archive_lines_began", "began_ms", "institution_key", "n"),
    Index("archive_lines_institution", "institution_key", "began_ms", "n"),
)


_MOST_PARAMETERS: Final = 500


def in_parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield values in their order, as many at once as one statement names."""
    for start in range(0, len(values), _MOST_PARAMETERS):
        yield values[start : start + _MOST_PARAMETERS]


def columns_of(table: Table, kind: type[msgspec.Struct]) -> list[Column[Any]]:
    """Return the columns of a table that a record is read from."""
    return [table.c[name] for name in kind.__struct_fields__]


def record_of(row: Row[Any], kind: type[Stored]) -> Stored:
    """Return a row as a record.

    Raises:
        msgspec.ValidationError: It holds values of other types than its table, which SQLite allows.
    """
    return msgspec.convert(dict(zip(kind.__struct_fields__, row, strict=True)), kind)


def is_whole() -> ColumnElement[bool]:
    """Return the condition that a line is a call's and has its body."""
    return (lines.c.kind == "call") & lines.c.body.is_not(None)


def is_same_line(one: FromClause, other: FromClause) -> ColumnElement[bool]:
    """Return the condition that rows of two tables belong to one line."""
    return and_(one.c.institution_key == other.c.institution_key, one.c.n == other.c.n)


def has_later_version() -> ColumnElement[bool]:
    """Return the condition that there is a later version of a line's call."""
    later = lines.alias("later")
    return exists().where(
        later.c.institution_key == lines.c.institution_key,
        later.c.voice_id == lines.c.voice_id,
        later.c.version > lines.c.version,
    )


people = Table(
    "archive_people",
    metadata,
    Column("institution_key", _SORTED, primary_key=True),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("path", String, primary_key=True),
    Column("person_id", _SORTED),
    Column("value", Text),  # NULL: this row is only a search term of another one
    Column("salt", String),
    Column("term", _SORTED),
    Column("began_ms", BigInteger),
    Index("archive_people_term", "term", "began_ms", "institution_key", "n"),
)

terms = Table(
    "archive_terms",
    metadata,
    Column("institution_key", _SORTED, primary_key=True),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, primary_key=True),
    Column("value", _SORTED, primary_key=True),
    Column("began_ms", BigInteger),
    Index("archive_terms_value", "kind", "value", "began_ms", "institution_key", "n"),
)

erased = Table(
    "archive_erased",
    metadata,
    Column("institution_key", _SORTED, primary_key=True),
    Column("voice_id", _SORTED, primary_key=True),
    Column("person_id", _SORTED, primary_key=True),  # empty: all personal values of the call
)

holds = Table(
    "archive_holds",
    metadata,
    Column("institution_key", _SORTED, primary_key=True),
    Column("kind", String, primary_key=True),  # call, person, or institution
    Column("value", _SORTED, primary_key=True),
)
