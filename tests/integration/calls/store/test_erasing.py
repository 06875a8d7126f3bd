"""One command erases a person everywhere: then no table, no key of Redis, no log and no export holds their data."""

import asyncio
import json
import os
import platform
import pwd
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from redis.asyncio import Redis
from sqlalchemy import select

from callkeeper.app.cli import main
from callkeeper.archive.database import Database
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import content_of
from callkeeper.archive.statements import erased_of
from callkeeper.archive.tables import metadata
from callkeeper.archive.verifying import verify
from callkeeper.archive.writing import Writer
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted, Listed, Verified
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call as Record
from callkeeper.calls.record import CallStatement, Identity
from callkeeper.calls.record_storage import encode_call, parse_call
from callkeeper.calls.rules.file import parse_rules
from callkeeper.calls.store.earlier_calls import EarlierCalls, hashed_number, number_key
from callkeeper.calls.store.erasing import Eraser, Holds, Whose
from callkeeper.calls.store.inbox import Inbox
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.push_intake import EventEntry
from callkeeper.calls.trail import Entry, encode_entry, parse_trail
from callkeeper.service.secret import Secret
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.archivist import START, Archivist, settled
from tests.harness.virtual_time import KEY, Rig
from tests.records import with_stored
from tests.sandbox_fixtures import Asgi

NUMBER, OTHER = "5550177123", "5550177999"
REMARK, REASON = "her first school was Elmwood", "sounded like her nephew"
CANARIES = (NUMBER, "7123", "Zebedee", "Quillfeather", REMARK, REASON)

WHY = ("--operator", "dpo", "--reason", "request 12")
EXPORTS = (
    ("calls", "export", "--archive"),
    ("calls", "list", "--json"),
    ("outcomes", "log"),
    ("audit", "--json"),
)


@pytest.fixture
async def rig(sandbox_asgi: Asgi, redis_url: str, database: Database) -> AsyncIterator[Archivist]:
    """Return a rig with an archive, and a member whose data is looked for."""
    async with Redis.from_url(redis_url) as redis:
        sandbox_asgi.begin_now()
        sandbox_asgi.world.add_member(KEY, "p-7", [NUMBER], first_name="Zebedee", last_name="Quillfeather")
        sandbox_asgi.world.add_member(KEY, "p-8", [OTHER])
        yield Archivist(sandbox_asgi, redis, database)


async def run(redis_url: str, *arguments: str, archive: str = "", token: str = "") -> Result:
    """Run a command beside the loop of the test."""
    environ = {"REDIS_URL": redis_url, "CALLKEEPER_ARCHIVE_URL": archive, "CALLKEEPER_ACCESS_TOKEN": token}
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
        call = await rig.begin_call(Happening(Kind.END, 40), phone_number=NUMBER, run_s=5)
        await rig.note(call, said)
        await rig.run(35)
        await rig.push(call, "CallEnd")
        await rig.run(60)
        calls.append(call)
    await rig.archive()
    return calls[0], calls[1]


@pytest.mark.parametrize("stands", [None, "p-18"])
async def test_notes_about_a_member_are_erased_in_calls_that_are_not_theirs(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path, stands: str | None
) -> None:
    """A couple shares a telephone: what was noted about the one goes, what was noted about the caller stays."""
    kept, archive = "hesitated at each answer", f"sqlite:///{tmp_path}/archive.db"
    for person_id in ("p-17", "p-18"):
        rig.stage.world.add_member(KEY, person_id, ["5550177555"], first_name=f"Name{person_id}")
    call = rig.stage.call(Happening(Kind.END, 40), phone_number="5550177555")
    await rig.push(call)
    await rig.run(5)
    call.person_id = stands
    said: dict[str, Any] = {"operator": "ann", "said_at": rig.clock.now}
    await rig.note(call, Distrusted(reason=kept, wish="a" * 32, **said))
    await rig.note(call, Verified(person_id="p-17", validation_type="Other", remark=REMARK, wish="b" * 32, **said))
    await rig.run(35)
    await rig.push(call, "CallEnd")
    await rig.run(700)
    record = await rig.record(call)
    assert (record.is_settled, record.seen.person_id) == (True, stands)
    await rig.archive()
    words = (REMARK, "Namep-17", kept, "Namep-18")
    assert found_in(await everything(rig.redis, database), *words) == [*words]
    place = ("--institution", KEY, "--person", "p-17", *WHY)
    await run(redis_url, "calls", "erase", *place, archive=archive)
    assert found_in(await everything(rig.redis, None), *words) == [kept, "Namep-18"]
    assert found_in(archived(database), *words) == [kept, "Namep-18"]
    later = [*await rig.trail(call), Entry(at=rig.clock.now, what="said", kind="resolved", operator="ann")]
    Writer(database).write(KEY, [content_of(record, later)])
    assert found_in(archived(database), *words) == [kept, "Namep-18"], "a later version lacks them too"
    assert verify(database).faults == []


async def test_words_said_under_the_alternate_id_are_erased(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The record under that id was merged before it knew a member. It belongs to the call that it was merged into."""
    call = rig.stage.call(Happening(Kind.END, 60), phone_number=NUMBER)
    await rig.push(call)
    await rig.run(5)
    said: dict[str, Any] = {"operator": "ann", "said_at": rig.clock.now}
    alternate = CallId(KEY, call.alternate_id)
    verified = Verified(person_id="p-7", validation_type="Other", remark=REMARK, wish="a" * 32, **said)
    await rig.store.note(alternate, verified, even_settled=True)
    await rig.store.note(alternate, Distrusted(reason=REASON, wish="b" * 32, **said), even_settled=True)
    await rig.run(200)
    await rig.archive()
    erase = ("calls", "erase", "--institution", KEY, "--person", "p-7", *WHY)
    await run(redis_url, *erase, archive=f"sqlite:///{tmp_path}/archive.db")
    left = [line[:90] for line in (await everything(rig.redis, database)).splitlines() if found_in(line, *CANARIES)]
    assert left == []


@pytest.mark.parametrize("held", ["person", "call"])
async def test_merged_record_of_a_held_call_is_not_changed(
    rig: Archivist, redis_url: str, tmp_path: Path, held: str
) -> None:
    """A hold of the call, or of its member, is one of the record under its other id, too."""
    call = rig.stage.call(Happening(Kind.END, 60), phone_number=NUMBER)
    await rig.push(call, voice_id=None)  # the alternate id comes first
    await rig.run(0.5)
    alternate = CallId(KEY, call.alternate_id)
    said = Distrusted(operator="ann", said_at=rig.clock.now, reason=REASON, wish="b" * 32)
    await rig.store.note(alternate, said, even_settled=True)
    await rig.push(call)  # then both
    await rig.run(200)
    await rig.archive()

    async def merged() -> str:
        item, trail = Keys().item(alternate.member), Keys().trail(alternate.member)
        return str((await rig.redis.hget(item, "was"), await rig.redis.lrange(trail, 0, -1)))

    before = await merged()
    assert found_in(before, NUMBER, REASON) == [NUMBER, REASON]
    archive = f"sqlite:///{tmp_path}/archive.db"
    place = ("--institution", KEY, "--operator", "dpo", "--reason", "case 1")
    value = "p-7" if held == "person" else call.voice_id
    await run(redis_url, "archive", "hold", f"--{held}", value, *place, archive=archive)
    await run(redis_url, "calls", "erase", "--phone", f"+1 {NUMBER}", *place, archive=archive)
    assert await merged() == before


async def test_hold_of_a_member_covers_calls_in_which_somebody_named_them(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The number is unknown, and the agent named the member: no candidate, and nobody was assigned."""
    archive = f"sqlite:///{tmp_path}/archive.db"
    call = rig.stage.call(Happening(Kind.END, 40), phone_number="5550177666")
    await rig.push(call)
    await rig.run(5)
    said = Verified(operator="ann", said_at=rig.clock.now, person_id="p-7", validation_type="Other", remark=REMARK)
    await rig.note(call, said)
    await rig.run(35)
    await rig.push(call, "CallEnd")
    await rig.run(700)
    await rig.archive()
    place = ("--institution", KEY, "--person", "p-7", "--operator", "dpo", "--reason")
    await run(redis_url, "archive", "hold", *place, "case 1", archive=archive)
    await run(redis_url, "calls", "erase", *place, "request 1", archive=archive)
    assert found_in(await everything(rig.redis, None), REMARK) == [REMARK]
    assert found_in(archived(database), REMARK) == [REMARK]
    await run(redis_url, "archive", "hold", *place, "case 1 is over", "--release", archive=archive)
    await run(redis_url, "calls", "erase", *place, "request 1", archive=archive)
    assert found_in(await everything(rig.redis, database), REMARK) == []
    assert verify(database).faults == []


async def test_hold_of_a_member_covers_calls_that_were_theirs_for_a_while(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A fraudster gave the name of a victim, whom the bank protects by a hold, and then another one."""
    archive = f"sqlite:///{tmp_path}/archive.db"
    call = await rig.begin_call(Happening(Kind.END, 60), phone_number="5550177666", persons=[], run_s=5)
    for person_id in ("p-7", "p-8"):
        rig.stage.happen(call, Kind.CLAIMED, "zed", person_id)
        await rig.run(10)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason=REASON, wish="b" * 32))
    await rig.run(300)
    await rig.archive()
    record = await rig.record(call)
    assert (record.seen.person_id, record.seen.candidates) == ("p-8", ())
    place = ("--institution", KEY, "--operator", "dpo", "--reason", "case 1")
    told = await run(redis_url, "archive", "hold", "--person", "p-7", *place, archive=archive)
    assert "held: 1 archived calls" in told.output
    for whose in (("--person", "p-8"), ("--phone", "+1 5550177666")):
        await run(redis_url, "calls", "erase", *whose, *place, archive=archive)
    words = ("5550177666", REASON)
    assert found_in(await everything(rig.redis, None), *words) == [*words]
    assert found_in(archived(database), *words) == [*words]


async def test_reason_of_a_distrust_is_about_the_member_who_stood_on_the_call(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The agent meant her, and somebody else is the call's member by the end: what was said of him later stays."""
    archive, later = f"sqlite:///{tmp_path}/archive.db", "sounds older than he is"
    call = await rig.begin_call(Happening(Kind.END, 90), phone_number="5550177666", persons=[], run_s=5)
    for person_id, reason in (("p-7", REASON), ("p-8", later)):
        rig.stage.happen(call, Kind.CLAIMED, "zed", person_id)
        await rig.run(6)
        await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason=reason))
        await rig.run(6)
    await rig.run(300)
    await rig.archive()
    record = await rig.record(call)
    assert (record.is_settled, record.seen.person_id) == (True, "p-8")
    place = ("--institution", KEY, "--person", "p-7", *WHY)
    await run(redis_url, "calls", "erase", *place, archive=archive)
    assert found_in(await everything(rig.redis, None), REASON, later) == [later]
    assert found_in(archived(database), REASON, later) == [later]
    entry = Entry(at=rig.clock.now, what="said", kind="distrusted", operator="ann", because=REASON, member="p-7")
    Writer(database).write(KEY, [content_of(record, [*await rig.trail(call), entry])])
    assert found_in(archived(database), REASON, later) == [later], "a later version lacks it too"
    assert verify(database).faults == []


@pytest.mark.parametrize("member", [None, "p-7"])
async def test_reason_in_a_trail_that_does_not_say_who_stood_stays(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path, member: str | None
) -> None:
    """Releases up to 0.4.0 wrote no member. What a stored line says decides what is erased, and what `verify` misses."""
    said = CallStatement(operator="ann", said_at=START, reason=REASON, member="p-7")
    call, (line, *rest) = settled(1, person_id="p-8", distrusted=said)
    trail = (replace(line, because="of the line", member=member), *rest, Entry(at=START, what="read", person_id="p-7"))
    await put(redis, call, trail)
    Writer(database).write(KEY, [content_of(call, trail)])
    erase = ("calls", "erase", "--institution", KEY, "--person", "p-7", *WHY)
    told = await run(redis_url, *erase, archive=f"sqlite:///{tmp_path}/archive.db")
    assert "1 call is erased" in told.output
    left = [] if member else ["of the line"]
    for text in (await everything(redis, None), archived(database)):
        assert found_in(text, REASON, "of the line", "her dog") == [*left, "her dog"]
    assert verify(database).faults == []


async def tried(redis_url: str, *whose: str, archive: str) -> tuple[int, str]:
    """Erase in the archive and in Redis, or without an archive in Redis; return the exit code and what was said last."""
    command = ("calls", "erase", "--reason", "request 12")
    environ = {"REDIS_URL": redis_url, "CALLKEEPER_ARCHIVE_URL": archive}
    arguments = [*command, "--institution", KEY, "--operator", "dpo", *whose]
    told = await asyncio.to_thread(CliRunner(env=environ).invoke, main, arguments)
    return told.exit_code, told.output.splitlines()[-1]


def spelled(others: str) -> str:
    """Return the error about other spellings of an id."""
    return f"Error: calls name the id as {others}, which was not erased: erase that too, if it is the same member"


ERASED_WHERE = pytest.mark.parametrize("with_archive", [True, False], ids=["archive", "redis"])


@ERASED_WHERE
async def test_erasure_under_an_id_in_other_capitals_is_no_success(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path, *, with_archive: bool
) -> None:
    """Two ids may be two members, so nothing is erased; the command names the id that calls have, and fails."""
    archive = f"sqlite:///{tmp_path}/archive.db" if with_archive else ""
    call, trail = settled(1)
    await put(redis, call, trail)
    if with_archive:
        Writer(database).write(KEY, [content_of(call, trail)])
    before = await everything(redis, database)
    assert await tried(redis_url, "--person", "P-1", archive=archive) == (1, spelled("p-1"))
    after = await everything(redis, database)
    assert [line for line in before.splitlines() if line not in after] == []
    with database.reading() as connection:
        assert erased_of(connection, KEY) == set()
    for person_id in ("p-1", "P-1"):
        code, told = await tried(redis_url, "--person", person_id, archive=archive)
        assert (code, "Error" in told) == (0, False), told
    assert found_in(await everything(redis, database), "12025550001", "Marion", "her dog", "sounds odd") == []
    assert verify(database).faults == []


@ERASED_WHERE
async def test_note_under_an_id_in_other_capitals_is_named_until_that_is_erased(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path, *, with_archive: bool
) -> None:
    """The agent typed the id in capitals, in a call that is another member's. After both erasures nothing is named."""
    archive = f"sqlite:///{tmp_path}/archive.db" if with_archive else ""
    said = Identity(person_id="P-OTHER", validation_type="Other", by_desk=True, established_at=START, remark=REMARK)
    call, trail = settled(1, identity=said)
    await put(redis, call, trail)
    if with_archive:
        Writer(database).write(KEY, [content_of(call, trail)])
    assert await tried(redis_url, "--person", "p-other", archive=archive) == (1, spelled("P-OTHER"))
    assert found_in(await everything(redis, database), "Ned Roe", REMARK) == [REMARK]
    assert await tried(redis_url, "--person", "P-Other", archive=archive) == (1, spelled("P-OTHER"))
    assert (await tried(redis_url, "--person", "P-OTHER", archive=archive))[0] == 0
    assert found_in(await everything(redis, database), "Ned Roe", REMARK) == []
    for person_id in ("p-other", "P-Other"):
        assert (await tried(redis_url, "--person", person_id, archive=archive))[0] == 0, "both are erased"
    assert verify(database).faults == []


async def test_words_that_came_after_an_erasure_are_named_under_another_spelling(redis: Redis, redis_url: str) -> None:
    """The call was erased under the id that it has, and somebody spoke about the member since."""
    call, trail = settled(1)
    member = await put(redis, call, trail)
    assert (await tried(redis_url, "--person", "p-1", archive=""))[0] == 0
    line = Entry(at=START, what="said", kind="distrusted", operator="ann", because=REASON, member="p-1")
    await cast("Any", redis).rpush(Keys().trail(member), encode_entry(line))
    assert await tried(redis_url, "--person", "P-1", archive="") == (1, spelled("p-1"))


@pytest.mark.parametrize("held", [True, False], ids=["held", "live"])
async def test_other_spelling_is_named_in_calls_that_no_erasure_changes_now(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path, *, held: bool
) -> None:
    """A call under a hold, or in use, is not counted under an id that it does not have: it is named all the same."""
    archive = f"sqlite:///{tmp_path}/archive.db"
    member = await put(redis, *settled(1))
    if held:
        Keeper(database, "legal").hold(KEY, "person", "P-1", "case 1")
    else:
        await cast("Any", redis).hset(Keys().item(member), "nonce", "w:1")
    assert await tried(redis_url, "--person", "P-1", archive=archive) == (1, spelled("p-1"))


def found_in(text: str, *canaries: str) -> list[str]:
    """Return the canaries in a text. Digits count only where they stand alone: times and ids hold any four by chance."""
    return [
        one for one in canaries if re.search(rf"(?<![\w.-]){one}(?![\w-])" if len(one) == 4 else re.escape(one), text)
    ]


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
    return "\n".join([*parts, archived(database) if database is not None else ""])


def archived(database: Database) -> str:
    """Return all that the archive holds, as one text."""
    with database.reading() as connection:
        tables = [connection.execute(select(table)).all() for table in metadata.sorted_tables]
    return "\n".join(str(tuple(row)) for rows in tables for row in rows)


async def test_nothing_of_a_person_is_left_anywhere(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Number, last digits, names, notes and reasons are gone from Redis and the archive; ids and decisions stay."""
    calls = await lived(rig)
    before = await everything(rig.redis, database)
    assert found_in(before, *CANARIES) == list(CANARIES)
    erase = ("calls", "erase", "--institution", KEY, "--person", "p-7", *WHY)
    archive = f"sqlite:///{tmp_path}/archive.db"
    told = await run(redis_url, *erase, archive=archive)
    assert "Redis: 2 calls are erased" in told.output
    after = await everything(rig.redis, database)
    assert found_in(after, *CANARIES) == []
    written = {"the log": str(rig.log.entries), "the command's answer": told.output}
    for asked in EXPORTS:
        written[" ".join(asked)] = (await run(redis_url, *asked, archive=archive)).output
    await run(redis_url, "calls", "export", "--output", str(tmp_path / "calls.jsonl"), archive=archive)
    written["calls export"] = (tmp_path / "calls.jsonl").read_text()
    for call in calls:
        written["the story"] = (await run(redis_url, "calls", "explain", call.voice_id, archive=archive)).output
    for where in ("calls export --archive", "calls export"):
        assert call.voice_id in written[where], "calls stay, without the person"
    assert [(where, found_in(text, *CANARIES)) for where, text in written.items() if found_in(text, *CANARIES)] == []
    assert [(await rig.record(call)).life.reason for call in calls] == ["unenrolled", "rejected"]
    assert verify(database).faults == []
    shown = await run(redis_url, "audit", "--event", "archive_changed", archive=archive)
    assert "erase" in shown.output
    assert "dpo" in shown.output


async def test_person_is_erased_without_an_archive(rig: Archivist, redis_url: str) -> None:
    """By number too. A call that is live is counted and left; other people's calls keep their data."""
    await lived(rig)
    rig.stage.call(Happening(Kind.END, 60), phone_number=OTHER)
    other = await rig.begin_call(Happening(Kind.END, 60), phone_number=NUMBER, run_s=5, is_pushed=False)
    erase = ("calls", "erase", "--institution", KEY, "--phone", f"+1 {NUMBER}", *WHY)
    told = await run(redis_url, *erase)
    assert "2 calls are erased" in told.output
    assert "1 call is live" in told.output
    assert (await rig.record(other)).names.phone_number == NUMBER
    assert OTHER in await everything(rig.redis, None)
    await rig.run(160)
    await run(redis_url, *erase)
    stored = await everything(rig.redis, None)
    assert NUMBER not in stored


async def test_export_of_calls_is_audited(rig: Archivist, redis_url: str, tmp_path: Path) -> None:
    """As an export of the archive is."""
    await lived(rig)
    await run(redis_url, "calls", "export", "--output", str(tmp_path / "calls.jsonl"))
    told = await run(redis_url, "audit", "--json")
    assert "exported" in {json.loads(line)["entry"]["event"] for line in told.output.splitlines()}


GUID = "1B9D6BCD-BBFD-4B2D-9B5D-AB8DFBBD4BED"


async def put(redis: Any, call: Record, trail: tuple[Entry, ...]) -> str:
    """Store a settled call that is not archived, with the events, marks and keys that it leaves; return its member."""
    keys, member = Keys(), CallId(call.institution_key, call.voice_id).member
    await redis.hset(keys.item(member), mapping={"rec": encode_call(call), "settled": "1"})
    await redis.rpush(keys.trail(member), *map(encode_entry, trail))
    await redis.zadd(keys.settled, {member: 1})
    ending = (call.names.phone_number or "")[-4:]
    event = EventEntry(
        f"e-{call.voice_id}", "CallStart", call.institution_key, call.names.alternate_id, phone_last4=ending
    )
    await redis.zadd(keys.events, {msgspec.json.encode(event): 1})
    for whose in (f"p:{quote(call.seen.person_id or '', safe='')}", f"n:{call.names.phone_number}"):
        await redis.zadd(keys.earlier(call.institution_key, whose), {f"fraud:{call.voice_id}": 1})
    await redis.zadd(keys.enrolled(call.institution_key, call.seen.person_id or ""), {call.voice_id: 1})
    return member


HELD: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "id": ({}, ("--call", "v-1")),
    "alternate": ({}, ("--call", "alt-1")),
    "guid": ({"voice_id": GUID.lower()}, ("--call", f"{{{GUID}}}")),
    "alternate guid": ({"alternate_id": GUID.lower()}, ("--call", GUID)),
    "beyond ascii": ({"person_id": "mémb-Ö"}, ("--person", "mémb-Ö")),
    "folded": ({"person_id": "STRASSE"}, ("--person", "straße")),
    "id beyond ascii": ({"alternate_id": "ключ"}, ("--call", "ключ")),
    "candidate": ({}, ("--person", "p-other")),
    "all": ({}, ()),
}
"""What a call is changed to, and how a hold names it."""


def _holds() -> Iterator[object]:
    """Yield each way of naming a call, in Redis and archived: for every change, by turns in one of the two."""
    for n, (name, (changes, held)) in enumerate(HELD.items()):
        for is_archived, where in ((False, "in redis"), (True, "archived")):
            marks = () if is_archived is (n % 2 == 0) else pytest.mark.night
            yield pytest.param(is_archived, changes, held, id=f"{where}-{name}", marks=marks)


@pytest.mark.parametrize(("is_archived", "changes", "held"), list(_holds()))
async def test_call_under_a_hold_is_not_changed(
    is_archived: bool,
    changes: dict[str, Any],
    held: tuple[str, ...],
    redis: Redis,
    redis_url: str,
    database: Database,
    tmp_path: Path,
) -> None:
    """However the hold names it, and whether it is archived before the hold, after it, or not at all; until the release."""
    call, trail = settled(1, **changes)
    await put(redis, call, trail)
    archive = f"sqlite:///{tmp_path}/archive.db"
    place = ("--institution", KEY, "--operator", "dpo", "--reason", "case 1")
    await run(redis_url, "archive", "hold", *held, *place, archive=archive)
    if is_archived:
        Writer(database).write(KEY, [content_of(call, trail)])
        Keeper(database, "cron").retire(KEY, 2**53)
    before = await everything(redis, database)
    for whose in (("--person", call.seen.person_id or ""), ("--phone", call.names.phone_number or "")):
        told = await run(redis_url, "calls", "erase", *whose, *place, archive=archive)
        assert "Redis: 0 calls are erased; 1 call is under a hold" in told.output
    after = await everything(redis, database)
    assert sorted(line for line in before.splitlines() if line not in after and "audit" not in line) == []
    assert verify(database).faults == []
    await run(redis_url, "archive", "hold", *held, "--release", *place, archive=archive)
    told = await run(redis_url, "calls", "erase", "--person", call.seen.person_id or "", *place, archive=archive)
    assert "Redis: 1 call is erased; 0 calls are under a hold" in told.output
    assert found_in(await everything(redis, None), "Marion", "12025550001", "0001", "sounds odd") == []


async def test_exports_hold_nothing_that_people_typed(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Not the reason of a statement or a pause, in which anybody may be named."""
    call, (said, decided) = settled(1)
    trail = (said, replace(decided, pause="by ann: Mrs. Quillfeather rang"))
    await put(redis, call, trail)
    Writer(database).write(KEY, [content_of(call, trail)])
    for options in ((), ("--archive",)):
        file = tmp_path / f"{len(options)}.jsonl"
        await run(
            redis_url, "calls", "export", *options, "--output", str(file), archive=f"sqlite:///{tmp_path}/archive.db"
        )
        exported = file.read_text()
        assert '"what":"said","kind":"distrusted","operator":"agent-7"' in exported.replace(" ", "")
        assert '"pause":"byann"' in exported.replace(" ", "")
        assert [
            text for text in ("sounds odd", "Quillfeather", "her dog", "Marion", "2025550001") if text in exported
        ] == []


async def test_holds_erasures_and_exports_are_listed(redis_url: str, database: Database, tmp_path: Path) -> None:
    """When, by whom, where, and why; an export and a command have the system's user and the host beside."""
    Writer(database).write(KEY, [content_of(*settled(1))])
    archive, place = f"sqlite:///{tmp_path}/archive.db", ("--institution", KEY, "--operator", "dpo", "--reason")
    await run(redis_url, "archive", "hold", "--call", "alt-1", *place, "case 1", archive=archive)
    await run(redis_url, "archive", "hold", "--call", "alt-1", "--release", *place, "case 1 is over", archive=archive)
    await run(redis_url, "calls", "erase", "--person", "p-1", *place, "request 7", archive=archive)
    export = ("calls", "export", "--archive", "--institution", KEY, "--output", str(tmp_path / "a"))
    await run(redis_url, *export, archive=archive)
    await run(redis_url, "calls", "export", "--output", str(tmp_path / "b"))
    changes = (await run(redis_url, "audit", "--event", "archive_changed", "--json")).output.splitlines()
    done = [json.loads(line)["entry"] for line in reversed(changes)]
    assert [(entry["institution"], entry["operator"], entry["detail"]) for entry in done] == [
        (KEY, "dpo", "hold: case 1"),
        (KEY, "dpo", "release: case 1 is over"),
        (KEY, "dpo", "erase: request 7"),
    ]
    exports = (await run(redis_url, "audit", "--event", "exported", "--json")).output.splitlines()
    entries = [json.loads(line)["entry"] for line in exports]
    entries = [entry for entry in entries if entry["detail"] != "audit log"]
    assert {(entry["detail"], entry.get("institution"), entry.get("results")) for entry in entries} == {
        ("archive", KEY, None),
        ("archive, done", KEY, 1),
        ("calls", None, None),
        ("calls, done", None, 0),
    }
    assert {entry["origin"] for entry in entries} == {f"{pwd.getpwuid(os.getuid()).pw_name}@{platform.node()}"}


async def test_hold_says_how_many_archived_calls_it_covers(redis_url: str, database: Database, tmp_path: Path) -> None:
    """So a mistyped id is noticed, although a hold may come before its call."""
    Writer(database).write(KEY, [content_of(*settled(n)) for n in (1, 2)])
    place = ("--institution", KEY, "--operator", "dpo", "--reason", "case 1")
    archive = f"sqlite:///{tmp_path}/archive.db"
    for said, covered in ((("--person", "p-other"), 2), (("--call", "alt-2"), 1), (("--call", "alt-9"), 0)):
        told = await run(redis_url, "archive", "hold", *said, *place, archive=archive)
        assert told.stdout == f"held: {covered} archived calls, and those that are archived later\n"
        assert ("if it is mistyped" in told.stderr) is (covered == 0)


async def test_whatever_calls_left_goes_and_other_people_s_stays(redis: Redis, redis_url: str) -> None:
    """Merged records, calls past their days, marks under the number, and pushes of calls that are gone: by number."""
    call, trail = settled(1)
    others_own = {"person_id": "p-2", "candidates": (), "identity": None, "distrusted": None, "alternate_id": "a-2"}
    other = with_stored(settled(2, phone_number="+12025559990001")[0], **others_own)
    member, others = await put(redis, call, trail), await put(redis, other, trail[1:])
    keys, gone = Keys(), CallId(KEY, "v-old").member
    await redis.zrem(keys.settled, member)
    await redis.hset(keys.item(gone), mapping={"moved": member, "was": encode_call(replace(call, voice_id="v-old"))})
    lost = EventEntry("e-lost", "CallStart", KEY, "v-lost", phone_last4="0001")
    await redis.zadd(keys.events, {msgspec.json.encode(lost): 1})
    number = EarlierCalls(redis, keys, number_key=number_key(Secret("token")))
    unenrolled = replace(call, seen=replace(call.seen, unenrolled=True))
    await number.keep(CallId(KEY, "v-expired"), unenrolled, policies=Policies(), days=30, now=START)
    erase = ("calls", "erase", "--institution", KEY, "--phone", "202 555 0001", *WHY)
    told = await run(redis_url, *erase, token="token")
    marks = "3 marks of rejects, fraud and suspicion deleted"
    assert told.output == f"Redis: 1 call is erased; 0 calls are under a hold; {marks}\n"
    stored = await everything(redis, None)
    assert [text for text in ("12025550001", "v-lost", "Vale1", "her dog", "sounds odd") if text in stored] == []
    places = {key.decode() async for key in redis.scan_iter("ck:2:earlier:*")}
    assert places == {keys.earlier(KEY, "p:p-2"), keys.earlier(KEY, "n:+12025559990001"), keys.earlier(KEY, "p:p-1")}
    assert await redis.zrange(keys.earlier(KEY, "p:p-2"), 0, -1) == [b"fraud:v-2"]
    left = {b"unenrolled:v-expired", b"suspected:v-expired"}  # a person distrusted the caller
    assert set(await redis.zrange(keys.earlier(KEY, "p:p-1"), 0, -1)) == left
    assert await redis.hget(keys.item(others), "rec") == encode_call(other)
    assert len(await redis.zrange(keys.events, 0, -1)) == 1


@pytest.mark.parametrize("ended_as", [b"1", b"lost"])
@pytest.mark.parametrize("kind", ["CallStart", "CallEnd"])
async def test_late_push_brings_no_number_back(rig: Archivist, redis_url: str, ended_as: bytes, kind: str) -> None:
    """A push that was under way during the erasure is recorded without the number, also under the call's other id.

    One about a call that was given up as lost is a hint for workers, as before.
    """
    (call, _), keys = await lived(rig), Keys()
    member = CallId(KEY, call.voice_id).member
    await rig.redis.hset(keys.item(member), "settled", ended_as)
    await run(redis_url, "calls", "erase", "--institution", KEY, "--person", "p-7", *WHY)
    events = await rig.redis.zcard(keys.events)
    await rig.push(call, kind)
    await rig.push(call, kind, voice_id=None)
    assert await rig.redis.zcard(keys.events) == events + 2
    assert await rig.redis.hlen(keys.inbox(member)) == (ended_as == b"lost")
    assert found_in(await everything(rig.redis, None), *CANARIES) == []
    await rig.push(rig.stage.call(phone_number=NUMBER))
    assert NUMBER in await everything(rig.redis, None), "another call of the member is theirs anew"


async def test_call_that_a_worker_has_is_counted_and_left(redis: Redis, redis_url: str) -> None:
    """Its worker would write the data back. The same for a note that waits, because it may hold a number."""
    member = await put(redis, *settled(1))
    erase = ("calls", "erase", "--institution", KEY, "--person", "p-1", *WHY)
    for key, name in ((Keys().item(member), "nonce"), (Keys().inbox(member), "note")):
        await redis.hset(key, name, "x")
        assert (
            "Redis: 0 calls are erased; 0 calls are under a hold; 1 call is live"
            in (await run(redis_url, *erase)).output
        )
        await redis.hdel(key, name)
    await redis.hset(Keys().item(CallId(KEY, "v-9").member), "rec", b"{")
    assert "1 call cannot be read by this release" in (await run(redis_url, *erase)).output


async def test_redis_alone_is_not_erased_where_there_is_an_archive(redis: Redis, redis_url: str) -> None:
    """Also by a process that does not know the archive's address: it does not know the legal holds either.

    An archive that workers no longer use does not count.
    """
    await put(redis, *settled(1))
    seconds, _ = await redis.time()
    await redis.set(Keys().audit_archived, f"{seconds}000-1")
    environ = {"REDIS_URL": redis_url}
    arguments = ["calls", "erase", "--institution", KEY, "--person", "p-1", *WHY]
    told = await asyncio.to_thread(CliRunner(env=environ).invoke, main, arguments)
    assert told.exit_code == 2
    assert "set CALLKEEPER_ARCHIVE_URL" in told.output
    assert "Marion" in await everything(redis, None)
    await redis.set(Keys().audit_archived, f"{seconds - 8 * 86400}000-1")
    assert "1 call is erased" in (await run(redis_url, *arguments)).output


async def test_marks_of_a_member_go_whoever_s_calls_left_them(redis: Redis, redis_url: str) -> None:
    """A call that was this member's once is another's now; of a number that others call from too, only their own go."""
    await put(redis, *settled(1))
    other, trail = settled(2, person_id="p-2", phone_number="+12025550001", candidates=(), identity=None)
    await put(redis, other, trail)
    keys = Keys()
    places = (keys.earlier(KEY, "p:p-1"), keys.enrolled(KEY, "p-1"), keys.established(KEY, "p-1"))
    for key in places:
        await redis.zadd(key, {"rejected:v-2" if "earlier" in key else "v-2": 1})
    await run(redis_url, "calls", "erase", "--institution", KEY, "--person", "p-1", *WHY)
    assert await redis.exists(*places) == 0
    assert await redis.zrange(keys.earlier(KEY, "n:+12025550001"), 0, -1) == [b"fraud:v-2"]
    assert (await redis.hget(keys.item(CallId(KEY, "v-2").member), "rec")) == encode_call(other)


async def test_call_that_is_being_archived_is_counted_and_left(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker has read the values already, and writes them after the erasure."""
    archive = f"sqlite:///{tmp_path}/archive.db"
    call = await rig.begin_call(Happening(Kind.END, 40), phone_number=NUMBER, run_s=5)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason=REASON, wish="b" * 32))
    monkeypatch.setattr(rig, "archive", _away)
    await rig.run(200)
    [item] = await rig.archiving.store.claim(1)
    [stored] = await rig.archiving.store.stored([item])
    assert stored is not None
    erase = ("calls", "erase", "--institution", KEY, "--person", "p-7", "--operator", "dpo", "--reason", "request 1")
    told = await run(redis_url, *erase, archive=archive)
    assert "Redis: 0 calls are erased; 0 calls are under a hold; 1 call is live" in told.output
    rig.archiving.writer.write(KEY, [content_of(parse_call(stored[0]), parse_trail(stored[1]))])
    await rig.archiving.store.archived(item)
    told = await run(redis_url, *erase, archive=archive)
    assert "archive: 4 values of 1 call are erased" in told.output
    assert "Redis: 1 call is erased" in told.output
    assert found_in(await everything(rig.redis, database), *CANARIES) == []
    assert verify(database).faults == []


async def test_call_that_is_archived_between_archive_and_redis_is_erased_too(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not in the archive when that was erased, and is in nobody's hands when Redis is."""
    call = await rig.begin_call(Happening(Kind.END, 40), phone_number=NUMBER, run_s=5)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason=REASON, wish="b" * 32))
    monkeypatch.setattr(rig, "archive", _away)
    await rig.run(200)
    record, trail, erase = await rig.record(call), await rig.trail(call), Eraser.erase

    async def overtaken(eraser: Eraser, whose: Whose, **more: Any) -> Any:
        rig.archiving.writer.write(KEY, [content_of(record, trail)])
        return await erase(eraser, whose, **more)

    monkeypatch.setattr(Eraser, "erase", overtaken)
    asked = ("--institution", KEY, "--person", "p-7", "--operator", "dpo", "--reason", "request 1")
    told = await run(redis_url, "calls", "erase", *asked, archive=f"sqlite:///{tmp_path}/archive.db")
    assert [line.partition(";")[0] for line in told.output.splitlines()] == [
        "archive: 0 values of 0 calls are erased",
        "Redis: 1 call is erased",
        "archive: 4 values of 1 call are erased",
    ]
    assert found_in(await everything(rig.redis, database), *CANARIES) == []
    assert verify(database).faults == []


async def _away() -> int:
    return 0


class Overtaken:
    """A Redis in which something happens to a call just before a record is watched."""

    def __init__(self, redis: Redis, happens: Callable[[], Awaitable[object]]) -> None:
        self._redis = redis
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        """Be the real one otherwise."""
        return getattr(self._redis, name)

    def pipeline(self, **options: Any) -> Any:
        """Return a pipeline that is overtaken."""
        pipe: Any = self._redis.pipeline(**options)
        watch = pipe.watch

        async def overtaken(*names: str) -> None:
            await self._happens()
            await watch(*names)

        pipe.watch = overtaken
        return pipe


@pytest.mark.parametrize("how", ["claimed", "live again", "pushed", "being archived"])
async def test_call_that_comes_into_use_meanwhile_is_counted_as_live(redis: Redis, how: str) -> None:
    """A worker that has read the record would store the erased data again, so the call is left for the next time."""
    call, trail = settled(1)
    member, keys, client = await put(redis, call, trail), Keys(), cast("Any", redis)
    happens = {
        "claimed": lambda: client.hset(keys.item(member), "nonce", "w:1"),
        "live again": lambda: client.hdel(keys.item(member), "settled"),
        "pushed": lambda: client.rpush(keys.inbox(member), "a note"),
        "being archived": lambda: (
            client.pipeline(transaction=True)
            .hset(keys.archive.item(member), "nonce", "w:1")
            .zadd(keys.archive.due, {member: 2**52})
            .execute()
        ),
    }[how]
    eraser = Eraser(cast("Redis", Overtaken(redis, happens)), keys=keys)
    found = await eraser.erase(Whose(KEY, person_id="p-1"), holds=Holds())
    assert (found.erased, found.live) == (0, 1)
    assert await client.hget(keys.item(member), "rec") == encode_call(call)
    assert "v-1" in await everything(redis, None)


async def test_erasure_that_fails_halfway_is_in_the_audit_log(redis: Redis, redis_url: str) -> None:
    """Or somebody could erase a call and end the command before it is recorded."""
    await put(redis, *settled(1))
    await redis.delete(Keys().events)
    await redis.set(Keys().events, "no sorted set")
    erase = ["calls", "erase", "--institution", KEY, "--person", "p-1", *WHY]
    told = await asyncio.to_thread(CliRunner(env={"REDIS_URL": redis_url}).invoke, main, erase)
    assert told.exit_code == 1
    assert "Marion" not in await everything(redis, None)
    audit = (await run(redis_url, "audit", "--event", "archive_changed", "--json")).output.splitlines()
    assert [json.loads(line)["entry"]["operator"] for line in audit] == ["dpo"]


@pytest.mark.parametrize("whose", ["--phone", "--person"])
async def test_fraudster_who_is_erased_takes_no_mark_of_a_victim_along(
    rig: Archivist, redis_url: str, tmp_path: Path, whose: str
) -> None:
    """He was rejected as the victim, and has his own number and membership erased. The next call as the victim shows it."""
    number = "5550177666"
    rig.stage.world.add_member(KEY, "p-9", [number])
    call = await rig.begin_call(Happening(Kind.END, 60), phone_number=number, persons=[], run_s=5)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-7")
    await rig.run(10)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason=REASON, wish="b" * 32))
    await rig.run(10)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-9")
    await rig.run(300)
    await rig.archive()
    place = ("--institution", KEY, "--operator", "dpo", "--reason", "request 1")
    erased = ("--phone", number) if whose == "--phone" else ("--person", "p-9")
    await run(redis_url, "calls", "erase", *erased, *place, archive=f"sqlite:///{tmp_path}/archive.db")
    assert found_in(await everything(rig.redis, None), number, REASON) == []
    later = await rig.begin_call(Happening(Kind.END, 60), phone_number=NUMBER, run_s=5)
    marks = (await rig.record(later)).seen.earlier_marks
    assert marks is not None
    assert "rejected" in marks.kinds


async def test_mark_that_others_left_under_another_number_of_a_call_stays(redis: Redis, redis_url: str) -> None:
    """A call has left its mark under the number of its push and under that of the queue. Only the latter is erased."""
    await put(redis, *settled(1))
    place, keys = Keys().earlier(KEY, "n:another"), Keys()
    await redis.zadd(place, {"suspected:v-1": 1, "rejected:v-expired": 1})
    await run(redis_url, "calls", "erase", "--institution", KEY, "--phone", "202 555 0001", *WHY)
    assert await redis.zrange(place, 0, -1) == [b"rejected:v-expired"]
    assert await redis.exists(keys.earlier(KEY, "n:+12025550001")) == 0


REASON_OF_ANOTHER = "sounds like her son"


@pytest.mark.parametrize(("phone", "left"), [("2025550009", {"2025550001"}), ("2025550001", set())])
async def test_hash_of_a_number_that_a_call_had_is_erased_with_the_number(
    redis: Redis, redis_url: str, phone: str, left: set[str]
) -> None:
    """By an earlier number only that goes, because the call is another caller's; by its own all do, as the marks do."""
    hashes = {one: hashed_number(one, number_key(Secret("token"))) or "" for one in ("2025550009", "2025550001")}
    asked = CallStatement(operator="ann", said_at=START, reason=REASON_OF_ANOTHER)
    call, trail = settled(1, marked_numbers=tuple(hashes.values()), check_wish=asked)
    member, keys = await put(redis, call, trail), Keys()
    for one in hashes.values():
        await redis.zadd(keys.earlier(KEY, f"n:{one}"), {"rejected:v-1": 1})
    erase = ("calls", "erase", "--institution", KEY, "--phone", phone, *WHY)
    assert "Redis: 1 call is erased" in (await run(redis_url, *erase, token="token")).output
    stored = await everything(redis, None)
    assert {number for number, one in hashes.items() if one in stored} == left
    record = parse_call(await cast("Any", redis).hget(keys.item(member), "rec"))
    assert record.ledger.marked_numbers == tuple([hashes[one] for one in left])
    assert (record.names.phone_number is None) is (not left)
    assert (REASON_OF_ANOTHER in stored) is bool(left), "what was said in another caller's call is not about this one"


def test_hash_of_a_number_is_not_archived() -> None:
    """No erasure could remove it from a body, and whoever has the access token could confirm a guess."""
    call, trail = settled(1, marked_numbers=("0123456789abcdef",))
    assert "0123456789abcdef" not in content_of(call, trail).body


async def test_mark_of_a_call_that_this_release_cannot_read_stays(redis: Redis, redis_url: str) -> None:
    """Its record says that the mark is there, so nothing would store it again."""
    keys = Keys()
    await redis.hset(keys.item(CallId(KEY, "v-9").member), mapping={"rec": b'{"schema":99}', "settled": "1"})
    await redis.zadd(keys.earlier(KEY, "p:p-1"), {"rejected:v-9": 1, "rejected:v-expired": 1})
    told = await run(redis_url, "calls", "erase", "--institution", KEY, "--person", "p-1", *WHY)
    assert "1 call cannot be read by this release" in told.output
    assert await redis.zrange(keys.earlier(KEY, "p:p-1"), 0, -1) == [b"rejected:v-9"]


async def test_mark_that_a_call_leaves_during_an_erasure_stays(redis: Redis) -> None:
    """The call began after the erasure had looked at all calls, so it is in use."""
    await put(redis, *settled(1))
    keys, client = Keys(), cast("Any", redis)
    left = {keys.earlier(KEY, "p:p-1"): "rejected:v-new", keys.enrolled(KEY, "p-1"): "v-new"}

    async def happens() -> None:
        for place, member in left.items():
            await client.zadd(place, {member: 1})

    await Eraser(cast("Redis", Overtaken(redis, happens)), keys=keys).erase(Whose(KEY, person_id="p-1"), holds=Holds())
    for place, member in left.items():
        assert await client.zrange(place, 0, -1) == [member.encode()]


NO_CALLS = '{"success": true, "phoneCalls": []}'
NOT_FOUND = '{"success": false, "error": "Phone call not found."}'


@pytest.mark.parametrize("later", ["word", "distrust", "listing", "push and listing", "other id", "unknown id"])
async def test_later_event_of_an_erased_call_brings_nothing_back(
    rig: Archivist, redis_url: str, database: Database, tmp_path: Path, later: str
) -> None:
    """The call goes on without the number and the names, which its queue, a push and its record show again.

    Of an id that nothing leads from to the call, the event log cannot know whose it is.
    """
    call = await rig.begin_call(Happening(Kind.END, 9000), phone_number=NUMBER, run_s=20)
    for target, body in (("details", NOT_FOUND), ("queue", NO_CALLS)):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=200, body=body))
    await rig.run(100)
    assert (await rig.record(call)).life.reason == "lost"
    await rig.archive()
    asked = ("--institution", KEY, "--person", "p-7", "--operator", "dpo", "--reason", "request 1")
    await run(redis_url, "calls", "erase", *asked, archive=f"sqlite:///{tmp_path}/archive.db")
    assert found_in(await everything(rig.redis, database), *CANARIES) == []
    rig.stage.sandbox.faults.clear()
    if later == "word":
        said = Verified(operator="ann", said_at=rig.clock.now, person_id="p-7", validation_type="Other")
        await rig.note(call, said, even_settled=True)
    if later == "distrust":
        await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason="again"), even_settled=True)
    if later == "push and listing":
        await rig.push(call)
    if later == "unknown id":
        await rig.redis.delete(Keys().alias(KEY, call.alternate_id))
    if later.endswith("id"):
        await rig.push(call, "CallEnd", voice_id=None)
    await rig.run(200)
    await rig.archive()
    words = (*CANARIES, hashed_number(NUMBER, number_key(rig.config.access_token)) or "")
    left = [line[:60] for line in (await everything(rig.redis, database)).splitlines() if found_in(line, *words)]
    assert [line.partition(" ")[0] for line in left] == ["b'ck:2:events'"] * (later == "unknown id")
    assert (await rig.record(call)).life.reason != "lost"


BARRED_NUMBER = f"""
[checks]
at = [10, 20, 40]
[[rule]]
name = "barred"
when = {{ number = {{ like = "{NUMBER[:6]}*" }} }}
then = "hold"
because = "The number is barred."
[[rule]]
name = "verified"
when = {{ verified = true }}
then = "enroll"
validation_type = "as_verified"
because = "Somebody verified the caller."
[[rule]]
name = "otherwise"
then = "hold"
because = "Nothing is known."
"""


async def test_erased_call_that_goes_on_is_decided_by_its_number(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The number is not stored, so each claim reads it before it decides, and decides as the one before."""
    sandbox_asgi.begin_now()
    sandbox_asgi.world.add_member(KEY, "p-7", [NUMBER])
    rig = Rig(sandbox_asgi, redis, parse_rules(BARRED_NUMBER.encode(), name="barred"))
    call = await rig.begin_call(Happening(Kind.END, 9000), phone_number=NUMBER, run_s=20)
    for target, body in (("details", NOT_FOUND), ("queue", NO_CALLS)):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=200, body=body))
    await rig.run(100)
    assert (await Eraser(redis, keys=Keys()).erase(Whose(KEY, person_id="p-7"), holds=Holds())).erased == 1
    rig.stage.sandbox.faults.clear()
    await rig.run(30)
    said = Verified(operator="ann", said_at=rig.clock.now, person_id="p-7", validation_type="Other")
    await rig.note(call, said, even_settled=True)
    await rig.run(200)
    lines = [json.loads(line) for line in await redis.lrange(Keys().trail(CallId(KEY, call.voice_id).member), 0, -1)]
    said_at = next(n for n, line in enumerate(lines) if line["what"] == "said")
    decided = [(line["kind"], line["rule"]) for line in lines[said_at:] if line["what"] == "decided"]
    assert decided == [("hold", "barred")]
    assert not (await rig.record(call)).is_settled
    assert NUMBER not in await everything(redis, None)


async def test_erased_name_in_another_member_s_call_does_not_come_back(rig: Archivist) -> None:
    """Two have one telephone, and both are erased in turn. The service forgets the call, and then lists it again."""
    for person_id in ("p-17", "p-18", "p-19"):
        rig.stage.world.add_member(KEY, person_id, ["5550177555"], first_name=f"Name{person_id}")
    call = await rig.begin_call(Happening(Kind.END, 9000), phone_number="5550177555", run_s=20)
    for target, body in (("details", NOT_FOUND), ("queue", NO_CALLS)):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=200, body=body))
    await rig.run(100)
    for person_id in ("p-17", "p-18"):
        await Eraser(rig.redis, keys=Keys()).erase(Whose(KEY, person_id=person_id), holds=Holds())
    rig.stage.sandbox.faults.clear()
    await rig.run(30)
    record = await rig.record(call)
    assert not record.is_settled
    assert [one.name.partition(" ")[0] for one in record.seen.candidates] == ["", "", "Namep-19"]
    assert record.names.phone_number == "5550177555"


async def test_erased_tombstone_that_the_queue_lists_stays_erased(redis: Redis) -> None:
    """It is a call of its own then, and its number and names are the same person's."""
    call, trail = settled(1)
    keys, member, gone = Keys(), await put(redis, call, trail), CallId(KEY, "v-old")
    client: Any = redis
    moved = {"moved": member, "was": encode_call(replace(call, voice_id="v-old")), "checks": "0", "epoch": "e"}
    await client.hset(keys.item(gone.member), mapping=moved)
    await Eraser(redis, keys=keys).erase(Whose(KEY, person_id="p-1"), holds=Holds())
    await Inbox(redis, keys=keys).note(gone, Listed(listed_at=START))
    assert await client.hmget(keys.item(gone.member), "moved", "erased") == [None, b"1"]
    assert await client.hexists(keys.item(gone.member), "rec")


async def test_erased_record_that_is_merged_leaves_the_call_erased(rig: Archivist, redis_url: str) -> None:
    """The service knew nothing under the alternate id, and after the erasure shows the call under its own."""
    call = rig.stage.call(Happening(Kind.END, 9000), phone_number=NUMBER)
    alternate = CallId(KEY, call.alternate_id)
    for target, body in (("details", NOT_FOUND), ("queue", NO_CALLS)):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=200, body=body))
    await rig.push(call, voice_id=None)
    said: dict[str, Any] = {"operator": "ann", "person_id": "p-7", "validation_type": "Other"}
    await rig.store.note(alternate, Verified(said_at=rig.clock.now, **said), even_settled=True)
    await rig.run(200)
    record = await rig.queries.load(alternate)
    assert (record and record.life.reason, record and record.names.phone_number) == ("unconfirmed", NUMBER)
    erase = ("calls", "erase", "--institution", KEY, "--phone", f"+1 {NUMBER}", *WHY)
    assert "Redis: 1 call is erased" in (await run(redis_url, *erase)).output
    rig.stage.sandbox.faults.clear()
    await rig.push(call)  # says that both ids are one call's
    await rig.store.note(alternate, Verified(said_at=rig.clock.now, **said), even_settled=True)
    await rig.run(60)
    assert not (await rig.record(call)).is_settled
    assert found_in(await everything(rig.redis, None), *CANARIES) == []


async def test_field_of_a_newer_release_is_erased(redis: Redis) -> None:
    """This release cannot know whether it is personal."""
    call, trail = settled(1)
    member, client = await put(redis, call, trail), cast("Any", redis)
    stored = encode_call(call)[:-1] + b',"caller_city":"Elmwood"}'
    await client.hset(Keys().item(member), "rec", stored)
    await Eraser(redis, keys=Keys()).erase(Whose(KEY, person_id="p-1"), holds=Holds())
    assert b"Elmwood" not in await client.hget(Keys().item(member), "rec")


@pytest.mark.parametrize("changes", [{"type": "CallTransferred"}, {"is_test": True}], ids=["unknown type", "sample"])
@pytest.mark.parametrize("ids", [{}, {"voice_id": None}], ids=["both ids", "other id"])
async def test_push_that_changes_no_call_brings_no_digits_back(
    rig: Archivist, redis_url: str, changes: dict[str, Any], ids: dict[str, Any]
) -> None:
    """A push of a type that nobody knows, and a sample from the dashboard, are only logged: without the last digits."""
    (call, _), keys = await lived(rig), Keys()
    await run(redis_url, "calls", "erase", "--institution", KEY, "--person", "p-7", *WHY)
    events = await rig.redis.zcard(keys.events)
    await rig.push(call, **changes, **ids)
    assert await rig.redis.zcard(keys.events) == events + 1
    assert found_in(await everything(rig.redis, None), *CANARIES) == []


@pytest.mark.parametrize("written", ["+1 (555) 017-71 23", "5550177123 "])
async def test_digits_of_a_push_are_found_however_the_number_was_written(rig: Archivist, written: str) -> None:
    """Of a call that nobody knows any more, only the last digits tell whose push it was."""
    await rig.push(rig.stage.call(phone_number=written), voice_id="v-gone")
    await rig.redis.delete(Keys().item(CallId(KEY, "v-gone").member), Keys().inbox(CallId(KEY, "v-gone").member))
    assert await rig.redis.zcard(Keys().events) == 1
    await Eraser(rig.redis, keys=Keys()).erase(Whose(KEY, phone=f"+1{NUMBER}"), holds=Holds())
    assert await rig.redis.zcard(Keys().events) == 0


async def test_push_with_an_earlier_number_of_a_call_is_erased(rig: Archivist, redis_url: str) -> None:
    """The queue has corrected the number since: the call is another caller's, and that push shows the erased digits."""
    call = rig.stage.call(Happening(Kind.END, 60), phone_number=OTHER)
    await rig.push(call, phone_number=NUMBER)
    await rig.push(call, "CallEnd")
    await rig.run(200)
    assert (await rig.record(call)).names.phone_number == OTHER
    await run(redis_url, "calls", "erase", "--institution", KEY, "--phone", f"+1 {NUMBER}", *WHY)
    logged = [json.loads(line)["phone_last4"] for line in await rig.redis.zrange(Keys().events, 0, -1)]
    assert logged == [OTHER[-4:]]


async def test_number_of_a_call_that_is_nobody_s_is_erased_by_the_number(redis: Redis) -> None:
    """Nobody was assigned, so the number may be another candidate's: an erasure by member deletes only their name."""
    member, client = await put(redis, *settled(1, person_id=None, identity=None)), cast("Any", redis)
    eraser, left = Eraser(redis, keys=Keys()), []
    for whose in (Whose(KEY, person_id="p-1"), Whose(KEY, phone="+12025550001")):
        assert (await eraser.erase(whose, holds=Holds())).erased == 1
        left.append(found_in(str(await client.hget(Keys().item(member), "rec")), "Marion", "12025550001", "Ned Roe"))
    assert left == [["12025550001", "Ned Roe"], []]
