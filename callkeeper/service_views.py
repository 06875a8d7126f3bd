"""How the service's records look in a terminal: as tables, or as JSON in the Spec's own names.

Secrets show as a mask unless they are asked for.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from callkeeper.terminal import shown
from reseller import InstitutionSummary, QueueEntry, Secret
from reseller.record import Record
from reseller.secret import MASK


def plain(record: object, *, show_secrets: bool) -> Any:
    """Return a record as JSON values under the Spec's names, secrets masked or revealed."""

    def secret(value: object) -> str:
        if not isinstance(value, Secret):
            raise NotImplementedError(type(value).__name__)
        return value.reveal() if show_secrets else MASK

    return msgspec.to_builtins(record, enc_hook=secret)


def as_json(record: object, *, show_secrets: bool) -> bytes:
    """Return a record as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(plain(record, show_secrets=show_secrets)), indent=2)


def queue_table(entries: Sequence[QueueEntry]) -> Table:
    """Return a page of the queue, a call a line."""
    table = Table("voice id", "phone number", "started", "claimed by", "person", "candidates", box=None)
    for entry in entries:
        candidates = ", ".join(f"{person.name or '?'} ({person.person_id or '?'})" for person in entry.persons)
        started = entry.started_at.isoformat(sep=" ", timespec="seconds")
        cells = (entry.voice_id, entry.phone_number, started, entry.core_username, entry.person_id, candidates)
        table.add_row(*(cell(text) for text in cells))
    return table


def institutions_table(summaries: Iterable[InstitutionSummary]) -> Table:
    """Return the institutions, one a line."""
    table = Table("key", "name", "status", "voice auth", "test mode", box=None)
    for each in summaries:
        cells = (each.key, each.name, each.status, each.has_voice_auth, each.is_test_mode)
        table.add_row(*(cell(text) for text in cells))
    return table


def record_table(record: Record, *, show_secrets: bool) -> Table:
    """Return one record, a field a line; empty fields are left out, inner ones have dotted names."""
    table = Table(box=None, show_header=False)
    for name, value in _leaves("", plain(record, show_secrets=show_secrets)):
        table.add_row(shown(name, "bold"), cell(value))
    return table


def cell(value: object) -> Text:
    """Return a value as a cell of a table."""
    return shown({None: "", True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else value)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _leaves(f"{name}[{number}]", inner)
    elif value not in (None, ""):
        yield name, value
