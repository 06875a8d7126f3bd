"""Checks the archive: its database, the version of its tables, and calls that wait for it."""

import asyncio

from redis.asyncio import Redis

from callkeeper.app.archive_reader import ARCHIVE_REMEDY
from callkeeper.app.doctor.finding import Finding, Topic, fault, ok, warning
from callkeeper.app.settings import ArchiveSettings
from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.archive_queue import waiting_calls
from callkeeper.calls.store.keys import Keys

MANY: int = 1000
_MIGRATE = "run callkeeper archive migrate as a role that owns the tables; the release step should do this"


async def archive_findings(
    redis: Redis, keys: Keys, settings: ArchiveSettings | None, *, may_migrate: bool
) -> list[Finding]:
    """Check the archive. Without an archive and waiting calls, return nothing.

    ``may_migrate``: migrate older tables first, as the release step does.
    """
    waiting = await waiting_calls(redis, keys)
    if settings is None and waiting.calls == 0:
        return []
    waits = quantity(waiting.calls, "call waits", "calls wait")
    if settings is None:
        remedy = "set CALLKEEPER_ARCHIVE_URL again; until they are archived these calls do not expire in Redis"
        return [warning(Topic.ARCHIVE, f"{waits} for an archive, and none is set", remedy)]
    found = [await asyncio.to_thread(_database, settings, may_migrate)]
    if not settings.is_verified:
        remedy = "name the authority in CALLKEEPER_CA, and remove sslmode=require from CALLKEEPER_ARCHIVE_URL"
        found.append(warning(Topic.ARCHIVE, "accepts any certificate of the database", remedy, about="tls"))
    if waiting.calls >= MANY:
        remedy = "they do not expire meanwhile; check the workers' database and role, and the log for archive_away"
        found.append(warning(Topic.ARCHIVE, f"{waits} to be archived", remedy, about="queue"))
    else:
        found.append(ok(Topic.ARCHIVE, f"{waits} to be archived", about="queue"))
    return found


def _database(settings: ArchiveSettings, may_migrate: bool) -> Finding:
    from callkeeper.archive.errors import ArchiveAway  # noqa: PLC0415  (SQLAlchemy is imported only with an archive)
    from callkeeper.archive.migrating import migrate, newest, version_of  # noqa: PLC0415

    try:
        with settings.open() as database:
            version = version_of(database)
            if may_migrate and (version is None or version < newest()):
                version = migrate(database)
    except ArchiveAway as away:
        return fault(Topic.ARCHIVE, f"the database cannot be used: {away}", ARCHIVE_REMEDY)
    if version is None:
        return fault(Topic.ARCHIVE, "the database has no tables yet", _MIGRATE)
    if version < newest():
        return fault(Topic.ARCHIVE, f"its tables are at version {version}, this release needs {newest()}", _MIGRATE)
    return ok(Topic.ARCHIVE, f"its tables are at version {version}")
