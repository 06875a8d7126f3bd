"""Why the archive's database cannot be used, in words for people."""

from pathlib import Path

import pytest

from callkeeper.archive.database import Database
from callkeeper.archive.errors import ArchiveAway


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://canary:canary-word@127.0.0.1:1/calls", "connection refused"),
        ("postgresql://canary:canary-word@no-such-host.invalid/calls", "name not found"),
        ("sqlite:///{folder}", "OperationalError (SQLITE_CANTOPEN)"),
    ],
)
def test_database_that_cannot_be_used_is_named_by_cause(tmp_path: Path, url: str, words: str) -> None:
    """The cause is named, without host, user and password."""
    with Database(url.format(folder=tmp_path)) as database, pytest.raises(ArchiveAway) as caught, database.reading():
        pass
    assert str(caught.value) == words
