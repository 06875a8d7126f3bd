"""One command erases a person everywhere: then no table, no key of Redis, no log and no export holds their data."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis.asyncio import Redis
from sqlalchemy import select

from archive.database import Database
from archive.tables import metadata
from archive.verifying import verify
from callkeeper.cli import main
from calls.notes import Distrusted, Verified
from sandbox.state import Call, Happening, Kind
from tests.archivist import Archivist, sqlite_archive
from tests.rig import KEY
from tests.sandbox_fixtures import Asgi

NUMBER, OTHER = "5550177123", "5550177999"
REMARK, REASON = "her first school was Elmwood", "sounded like her nephew"
CANARIES = (NUMBER, "7123", "Zebedee", "Quillfeather", REMARK, REASON)

EXPORTS = (
    ("archive", "export"),
    ("archive", "changes"),
    ("calls", "list", "--json"),
    ("outcomes", "log"),
    ("audit", "--json"),
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return an empty archive."""
    with sqlite_archive(tmp_path) as database:
        yield database


@pytest.fixture
async def rig(sandbox_asgi: Asgi, redis_url: str, database: Database) -> AsyncIterator[Archivist]:
    """Return a rig with an archive, and a member whose data is looked for."""
    async with Redis.from_url(redis_url) as redis:
        sandbox_asgi.begin_now()
        sandbox_asgi.world.add_member(KEY, "p-7", [NUMBER], first_name="Zebedee", last_name="Quillfeather")
        sandbox_asgi.world.add_member(KEY, "p-8", [OTHER])
        yield Archivist(sandbox_asgi, redis, database)


async def run(redis_url: str, *arguments: str, archive: str = "") -> Result:
    """Run a command beside the loop of the test."""
    environ = {"REDIS_URL": redis_url, "CALLKEEPER_ARCHIVE_URL": archive}
    result = await asyncio.to_thread(CliRunner(env=environ).invoke, main, list(arguments))
    assert result.exit_code == 0, result.output
    return result


async def lived(rig: Archivist) -> tuple[Call, Call]:
    """Return two calls of the member, one verified and one distrusted with words, settled and archived."""
    calls = []
    for said in (
        Verified(
            operator="ann",
            said_at=rig.clock.now,
            wish="a" * 32,
            person_id="p-7",
            validation_type="Other",
            remark=REMARK,
        ),
        Distrusted(operator="ann", said_at=rig.clock.now, wish="b" * 32, reason=REASON),
    ):
        call = rig.stage.call(Happening(Kind.END, 40), phone_number=NUMBER)
        await rig.push(call)
        await rig.run(5)
        await rig.note(call, said)
        await rig.run(35)
        await rig.push(call, "CallEnd")
        await rig.run(60)
        calls.append(call)
    await rig.archive()
    return calls[0], calls[1]


async def everything(redis: Any, database: Database | None) -> str:
    """Return all that is stored, as one text."""
    parts: list[str] = []
    async for key in redis.scan_iter():
        match await redis.type(key):
            case b"string":
                value = await redis.get(key)
            case b"hash":
                value = await redis.hgetall(key)
            case b"list":
                value = await redis.lrange(key, 0, -1)
            case b"zset":
                value = await redis.zrange(key, 0, -1)
            case b"stream":
                value = await redis.xrange(key)
            case _:
                value = await redis.smembers(key)
        parts.append(f"{key!r} {value!r}")
    if database is not None:
        with database.reading() as connection:
            for table in metadata.sorted_tables:
                parts += [str(tuple(row)) for row in connection.execute(select(table))]
    return "\n".join(parts)


async def test_nothing_of_a_person_is_left_anywhere(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Number, last digits, names, notes and reasons are gone from Redis and the archive; ids and decisions stay."""
    calls = await lived(rig)
    before = await everything(rig.redis, database)
    assert all(canary in before for canary in CANARIES)
    erase = ("archive", "erase", "--institution", KEY, "--person", "p-7", "--operator", "dpo", "--reason", "request 12")
    archive = f"sqlite:///{tmp_path}/archive.db"
    told = await run(redis_url, *erase, archive=archive)
    assert "Redis: 2 calls are erased" in told.output
    after = await everything(rig.redis, database)
    assert [canary for canary in CANARIES if canary in after] == []
    written = {"the log": str(rig.log.entries), "the command's answer": told.output}
    for asked in EXPORTS:
        written[" ".join(asked)] = (await run(redis_url, *asked, archive=archive)).output
    await run(redis_url, "calls", "export", "--output", str(tmp_path / "calls.jsonl"), archive=archive)
    written["calls export"] = (tmp_path / "calls.jsonl").read_text()
    for call in calls:
        written["the story"] = (await run(redis_url, "calls", "explain", call.voice_id, archive=archive)).output
    for where in ("archive export", "calls export"):
        assert call.voice_id in written[where], "calls stay, without the person"
    assert [(where, canary) for where, text in written.items() for canary in CANARIES if canary in text] == []
    assert [(await rig.record(call)).reason for call in calls] == ["unenrolled", "rejected"]
    assert verify(database).faults == []
    shown = await run(redis_url, "archive", "changes", archive=archive)
    assert "erased" in shown.output
    assert "by dpo" in shown.output


async def test_person_is_erased_without_an_archive(rig: Archivist, redis_url: str) -> None:
    """By number too. A call that is live is counted and left; other people's calls keep their data."""
    await lived(rig)
    rig.stage.call(Happening(Kind.END, 500), phone_number=OTHER)
    other = rig.stage.call(Happening(Kind.END, 500), phone_number=NUMBER)
    await rig.run(5)
    erase = ("calls", "erase", "--institution", KEY, "--phone", f"+1 {NUMBER}", "--operator", "dpo")
    told = await run(redis_url, *erase)
    assert "2 calls are erased" in told.output
    assert "1 calls are live" in told.output
    assert (await rig.record(other)).phone_number == NUMBER
    assert OTHER in await everything(rig.redis, None)
    await rig.run(600)
    await run(redis_url, *erase)
    stored = await everything(rig.redis, None)
    assert NUMBER not in stored


async def test_export_of_calls_is_audited(rig: Archivist, redis_url: str, tmp_path: Path) -> None:
    """As an export of the archive is."""
    await lived(rig)
    await run(redis_url, "calls", "export", "--output", str(tmp_path / "calls.jsonl"))
    told = await run(redis_url, "audit", "--json")
    assert "exported" in {json.loads(line)["entry"]["event"] for line in told.output.splitlines()}
