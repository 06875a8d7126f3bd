"""The audit log in the archive: copied once, chained, trimmed in Redis only afterwards, and read from both."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from redis.asyncio import Redis
from sqlalchemy import delete, update

from callkeeper.app.logs import flush_log, quiet_log
from callkeeper.archive.database import Database
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import AUDIT, AUDIT_LOG
from callkeeper.archive.reading import ArchiveReader
from callkeeper.archive.tables import lines
from callkeeper.archive.verifying import verify
from callkeeper.archive.writing import Writer
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.audit_log import KEPT, AuditEntry, AuditEvent, AuditFilter, AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.archived_calls import ArchivedCalls, audited_or_archived
from workers.archive_delivery import AT_ONCE, ArchiveDeliveries

EVERYTHING = AuditFilter()


def entry(n: int) -> AuditEntry:
    """Return an entry of its number."""
    return AuditEntry(event=AuditEvent.VIEWED, who=f"who-{n % 3}", institution=f"cu-{n % 2}", detail=str(n))


def test_repetitions_are_counted_in_words() -> None:
    """An entry that stands for further ones says for how many."""
    words = [AuditEntry(event=AuditEvent.VIEWED, detail="board", count=count).words for count in range(3)]
    assert words == ["board", "board; once more", "board; 2 times more"]


async def filled(redis: Redis, numbers: range) -> AuditLog:
    """Write entries into Redis."""
    log = AuditLog(redis, keys=Keys())
    for n in numbers:
        await log.write(entry(n))
    return log


async def copy(redis: Redis, database: Database) -> None:
    """Let a worker copy what is new."""
    await ArchiveDeliveries(ArchiveQueue(redis, Keys()), Writer(database), quiet_log(), flush_log)._copy_audit()


async def told(
    redis: Redis, database: Database, wanted: AuditFilter = EVERYTHING, *, most: int = 1000
) -> list[AuditEntry]:
    """Return what a reader sees, newest first."""
    archive = ArchivedCalls(ArchiveReader(database))
    found, answered = await audited_or_archived(AuditLog(redis, keys=Keys()), archive, wanted, most=most)
    assert answered
    return [each.entry for each in found]


async def test_audit_log_goes_on_in_the_archive_where_redis_ends(redis: Redis, database: Database) -> None:
    """Every entry is returned once, newest first, from Redis or the archive, with the same filters and limits."""
    await filled(redis, range(AT_ONCE + 5))
    await copy(redis, database)
    await redis.xtrim(Keys().audit, maxlen=4, approximate=False)
    await filled(redis, range(AT_ONCE + 5, AT_ONCE + 8))
    everything = [entry(n) for n in reversed(range(AT_ONCE + 8))]
    assert await told(redis, database) == everything
    assert await told(redis, database, most=10) == everything[:10]
    wanted = AuditFilter(who="who-1", institutions=frozenset({"cu-1"}))
    assert await told(redis, database, wanted) == [e for e in everything if (e.who, e.institution) == ("who-1", "cu-1")]
    assert await told(redis, database, AuditFilter(since=datetime.now(UTC) + timedelta(days=1))) == []


async def test_entry_is_archived_once(redis: Redis, database: Database) -> None:
    """Copying again, after a copy whose result is unknown, changes nothing."""
    await filled(redis, range(10))
    await copy(redis, database)
    await ArchiveQueue(redis, Keys()).refill()
    await filled(redis, range(10, 12))
    await copy(redis, database)
    await redis.delete(Keys().audit)
    assert await told(redis, database) == [entry(n) for n in reversed(range(12))]
    assert (verify(database).lines, verify(database).faults) == (12, [])


async def test_verify_finds_a_changed_and_a_removed_entry(redis: Redis, database: Database) -> None:
    """The audit log has its own chain, which verify checks."""
    await filled(redis, range(5))
    await copy(redis, database)
    with database.writing() as connection:
        connection.execute(update(lines).where(lines.c.n == 2).values(body='{"forged": true}'))
        connection.execute(delete(lines).where(lines.c.n == 4))
    assert {fault.n for fault in verify(database).faults} == {2, 4}


async def test_redis_keeps_what_was_not_archived(redis: Redis, database: Database) -> None:
    """With an archive, old entries are trimmed only after they were archived."""
    keys = Keys()
    old_ms = int((datetime.now(UTC) - KEPT - timedelta(days=9)).timestamp() * 1000)
    for n in range(300):  # a stream is trimmed by whole blocks
        await redis.xadd(keys.audit, {"event": "viewed", "detail": str(n)}, id=f"{old_ms + n}-0")
    await redis.set(keys.audit_archived, f"{old_ms + 10}-0")
    await filled(redis, range(1))
    assert len(await AuditLog(redis, keys=keys).unarchived(most=1000)) == 290
    await copy(redis, database)
    await filled(redis, range(1))
    assert await redis.xlen(keys.audit) < 290
    assert len(await told(redis, database)) == 291


async def test_database_that_is_away_loses_no_entry(redis: Redis, database: Database, tmp_path: Path) -> None:
    """The copy is repeated, and nothing is marked as archived before it succeeds."""
    log = await filled(redis, range(3))
    with Database(f"sqlite:///{tmp_path}/without-tables.db") as empty:
        await copy(redis, empty)
    assert len(await log.unarchived(most=9)) == 3
    await copy(redis, database)
    assert await log.unarchived(most=9) == []


async def test_retention_removes_old_entries(redis: Redis, database: Database) -> None:
    """As for an institution: the beginning of the chain is removed, and the rest can be verified."""
    await filled(redis, range(6))
    await copy(redis, database)
    assert Keeper(database, "cron", now_ms=1).retire(AUDIT_LOG, 2**62) == 6
    with database.reading() as connection:
        assert connection.execute(lines.select().where(lines.c.kind == AUDIT)).all() == []
    assert verify(database).faults == []


async def test_entries_that_retention_emptied_are_left_out(redis: Redis, database: Database) -> None:
    """An entry under a hold is kept and shown; those after it keep their place in the chain, without a body."""
    log = await filled(redis, range(6))
    held = (await log.unarchived(most=2))[1]
    await copy(redis, database)
    Keeper(database, "legal").hold(AUDIT_LOG, "call", held.id, "a lawsuit")
    assert Keeper(database, "cron").retire(AUDIT_LOG, 2**62) == 5
    await redis.delete(Keys().audit)
    assert await told(redis, database) == [entry(1)]
    assert verify(database).faults == []
