"""Migrates the tables to this release, in the release step or when a demonstration starts."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from callkeeper.archive.database import Database
from callkeeper.archive.errors import ArchiveAway

MIGRATE_S = 3600.0
FOLDER = Path(__file__).parent / "migrations"


def migrate(database: Database) -> str:
    """Apply the missing migrations in one transaction; return the new version of the tables.

    Raises:
        ArchiveAway: The database failed or refused; nothing was changed.
    """
    if database.file is not None:
        _make(database.file)
    with database.writing(within_s=MIGRATE_S) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return newest()


def _make(file: Path) -> None:
    """Make an empty file for SQLite if there is none."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError as error:
        raise ArchiveAway(f"{file} cannot be made: {error.strerror}") from error


def newest() -> str:
    """Return the version that this release needs."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def version_of(database: Database) -> str | None:
    """Return the version of a database's tables; None if there are none."""
    if not database.is_there():
        return None
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "archive_version"})
        return context.get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config
