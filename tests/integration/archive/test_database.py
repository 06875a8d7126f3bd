"""Why the archive's database cannot be used, in words for people."""

from pathlib import Path

import pytest

from callkeeper.archive.database import Database
from callkeeper.archive.errors import ArchiveAway
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.migrating import migrate, version_of


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


def test_only_a_migration_makes_the_file_of_sqlite(tmp_path: Path) -> None:
    """What only looks, such as the doctor, leaves no file or folder at a path that may be mistyped."""
    file = tmp_path / "folder" / "archive.db"
    with Database(f"sqlite:///{file}") as database:
        assert version_of(database) is None
        with pytest.raises(ArchiveAway, match="no tables yet"), database.writing():
            pass
        assert list(tmp_path.iterdir()) == []
        migrate(database)
        assert version_of(database) is not None
    assert file.stat().st_mode & 0o777 == 0o600


def test_database_without_tables_says_what_makes_them(tmp_path: Path) -> None:
    """A command for the archive does not answer with the words of the database's library."""
    file = tmp_path / "archive.db"
    file.touch()
    with Database(f"sqlite:///{file}") as database, pytest.raises(ArchiveAway, match="callkeeper archive migrate"):
        Keeper(database, "").institutions()
