"""Migrates the tables to this release, in the release step or when a demonstration starts."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from callkeeper.archive.database import Database

MIGRATE_S = 3600.0
FOLDER = Path(__file__).parent / "migrations"


def migrate(database: Database) -> str:
    """Apply the missing migrations in one transaction; return the new version of the tables.

    Raises:
        callkeeper.archive.errors.ArchiveAway: The database failed or refused; nothing was changed.
    """
    with database.writing(within_s=MIGRATE_S) as connection:
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return newest()


def newest() -> str:
    """Return the version that this release needs."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def version_of(database: Database) -> str | None:
    """Return the version of a database's tables; None if there are none."""
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "archive_version"})
        return context.get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    return config
