"""docs/data.md and SECURITY.md against the code: nothing is kept, and no control stands, that they do not name."""

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from callkeeper.calls.effect_ledger import Effect
from callkeeper.calls.notes import Note
from callkeeper.calls.record import CallStatement, Candidate, Identity, Marks, Reading
from callkeeper.calls.record_storage import StoredCall
from callkeeper.calls.trail import Entry

ROOT = Path(__file__).parents[2]
STORED: tuple[type[Any], ...] = (
    *(StoredCall, Candidate, Effect, Identity, Marks, Reading, CallStatement, Entry),
    *get_args(Note),
)


@pytest.mark.parametrize("record", STORED, ids=lambda record: record.__name__)
def test_every_field_that_is_stored_is_in_the_document(record: type[Any]) -> None:
    """Who asks what is kept of people reads a page that is complete."""
    named = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "data.md").read_text()))
    assert {field.name for field in msgspec.structs.fields(record)} - named == set()


def test_every_test_that_the_security_page_names_exists() -> None:
    """A control whose test is gone is one that nobody may rely on."""
    named = set(re.findall(r"`((?:tests|receiver|workers|callkeeper)/[\w./]+)`", _security()))
    assert len(named) > 5
    assert {name for name in named if not (ROOT / name).exists()} == set()


def _security() -> str:
    return (ROOT / "SECURITY.md").read_text()
