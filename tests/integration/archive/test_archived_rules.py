"""The texts of rules in the archive: chained as calls are, and found by the digest that a call's trail names."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from sqlalchemy import update

from callkeeper.app.cli import main
from callkeeper.app.logs import flush_log, quiet_log
from callkeeper.archive.database import Database
from callkeeper.archive.lines import RULES, sha256
from callkeeper.archive.tables import lines
from callkeeper.archive.verifying import verify
from callkeeper.archive.writing import Writer
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import put_in_force
from tests.harness.archivist import sqlite_archive
from workers.archive_delivery import ArchiveDeliveries

DEFAULT, DEMO = load_rules("default"), load_rules("demo")


@pytest.fixture
def in_force(blocking_redis: BlockingRedis) -> None:
    """Start workers with two rule books, one after the other."""
    for book in (DEFAULT, DEMO):
        put_in_force(blocking_redis, Keys(), book.digest, book.name, book.text)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Database]:
    """Return a second archive, as one that was restored from before."""
    (tmp_path / "other").mkdir()
    with sqlite_archive(tmp_path / "other") as database:
        yield database


async def copy(redis: Redis, database: Database) -> None:
    """Let a worker copy what is new."""
    await ArchiveDeliveries(ArchiveQueue(redis, Keys()), Writer(database), quiet_log(), flush_log)._copy_audit()


async def run(redis_url: str, folder: Path, *command: str, **environ: str) -> Result:
    """Run a command beside the archive of a folder."""
    environ |= {"REDIS_URL": redis_url, "CALLKEEPER_ARCHIVE_URL": f"sqlite:///{folder}/archive.db"}
    return await asyncio.to_thread(CliRunner(env=environ).invoke, main, command)


async def shown(redis_url: str, folder: Path, digest: str) -> Result:
    """Return what the command says of a digest."""
    return await run(redis_url, folder, "rules", "history", digest)


@pytest.mark.usefixtures("in_force")
async def test_rules_are_found_years_later_without_redis(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Redis forgets them if it is replaced; what decided then must be readable as it was."""
    for _ in range(2):
        await copy(redis, database)
    found = verify(database)
    assert (found.lines, found.faults) == (2, [])
    await redis.flushall()
    for book in (DEFAULT, DEMO):
        assert (await shown(redis_url, tmp_path, book.digest)).output.encode() == book.text
    unknown = await shown(redis_url, tmp_path, "0123456789ab")
    assert (unknown.exit_code, "'0123456789ab' in Redis nor in the archive" in unknown.output) == (1, True)


@pytest.mark.usefixtures("in_force")
async def test_text_that_somebody_changed_is_not_shown_as_what_decided(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The database's owner could otherwise say that other rules enrolled a voice. The verification names the line."""
    await copy(redis, database)
    changed = f'{{"digest":"{DEMO.digest}","text":"forged"}}'
    with database.writing() as connection:
        here = (lines.c.institution_key == RULES) & (lines.c.voice_id == DEMO.digest)
        connection.execute(update(lines).where(here).values(body=changed))
    assert (await shown(redis_url, tmp_path, DEMO.digest)).output.encode() == DEMO.text, "Redis is believed"
    await redis.flushall()
    refused = await shown(redis_url, tmp_path, DEMO.digest)
    assert (refused.exit_code, "archive verify" in refused.output, "forged" in refused.output) == (1, True, False)
    assert [fault.institution_key for fault in verify(database).faults] == [RULES]


@pytest.mark.parametrize("body", ["[]", "{", '{"digest":"x"}', '{"text":1}'])
@pytest.mark.usefixtures("in_force")
async def test_text_in_another_form_is_refused_like_any_that_was_changed(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path, body: str
) -> None:
    """Who changes a line can give it a hash that fits."""
    await copy(redis, database)
    with database.writing() as connection:
        here = (lines.c.institution_key == RULES) & (lines.c.voice_id == DEMO.digest)
        connection.execute(update(lines).where(here).values(body=body, body_hash=sha256(body.encode())))
    await redis.flushall()
    refused = await shown(redis_url, tmp_path, DEMO.digest)
    assert (refused.exit_code, "archive verify" in refused.output) == (1, True)


@pytest.mark.usefixtures("in_force")
async def test_restored_archive_gets_the_rules_again(redis: Redis, database: Database, other: Database) -> None:
    """``archive fill`` writes what Redis holds and the restored archive lacks."""
    await copy(redis, database)
    await copy(redis, other)
    assert verify(other).lines == 0
    await ArchiveQueue(redis, Keys()).refill()
    await copy(redis, other)
    assert verify(other).lines == 2


@pytest.mark.usefixtures("in_force")
async def test_rules_are_not_retired(redis: Redis, redis_url: str, database: Database, tmp_path: Path) -> None:
    """A call of today may have been decided by rules that are older than what is kept."""
    await ArchiveDeliveries(
        ArchiveQueue(redis, Keys()), Writer(database, now_ms=lambda: 1), quiet_log(), flush_log
    )._copy_audit()
    command = ("archive", "retire", "--operator", "cron")
    done = await run(redis_url, tmp_path, *command, CALLKEEPER_ARCHIVE_KEEP="30d")
    assert (done.exit_code, RULES in done.output) == (0, False)
    await redis.flushall()
    assert (await shown(redis_url, tmp_path, DEFAULT.digest)).output.encode() == DEFAULT.text
