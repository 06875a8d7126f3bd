"""Delivery of settled calls to the archive: at least once, in order, and before they expire in Redis."""

from collections.abc import Callable
from datetime import timedelta
from itertools import cycle
from typing import Any

import msgspec
import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from sqlalchemy import Connection, delete, func, select, update

from callkeeper.archive.chain_heads import parse_heads
from callkeeper.archive.database import WITHIN_S, Database
from callkeeper.archive.errors import ArchiveAway, ValueRefused
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.tables import chains, lines
from callkeeper.archive.verifying import Evidence, verify
from callkeeper.archive.writing import Writer
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted
from callkeeper.calls.store.archive_queue import ArchiveQueue, waiting_calls
from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent, AuditFilter, AuditLog
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Queries
from callkeeper_sandbox.service.state import Happening, Kind
from tests.archive_manipulations import rechain
from tests.harness.archivist import Archivist, content
from tests.sandbox_fixtures import KEY, Asgi
from workers.archive_delivery import AT_ONCE, ENOUGH_S, HEADS_AGAIN_S, HEADS_EVERY_S, NOTED_AT_ONCE, ArchiveDeliveries

GREEN, END = Happening(Kind.GREEN, 5), Happening(Kind.END, 30)


class Faulty(Writer):
    """A writer whose database fails as the test says."""

    fails: Callable[[Any], Exception | None] = staticmethod(lambda _calls: None)
    after_commit = False

    def write(self, institution_key: str, calls: Any) -> int:
        """Write, or fail before or after the commit."""
        error = self.fails(calls)
        if error is not None and not self.after_commit:
            raise error
        written = super().write(institution_key, calls)
        if error is not None:
            raise error
        return written


@pytest.fixture
def archivist(sandbox_asgi: Asgi, redis: Redis, database: Database) -> Archivist:
    """Return a rig with an archive whose database can fail."""
    rig = Archivist(sandbox_asgi, redis, database)
    rig.archiving.writer = Faulty(database, now_ms=rig.now_ms)
    return rig


async def ttl(redis: Redis, call_id: CallId) -> tuple[int, int]:
    """Return after how many seconds a call's record and trail expire; -1: never."""
    keys = Keys()
    return await redis.ttl(keys.item(call_id.member)), await redis.ttl(keys.trail(call_id.member))


def versions(database: Database) -> dict[str, int]:
    """Return how many versions of each call the archive has."""
    with database.reading() as connection:
        asked = select(lines.c.voice_id, func.count()).group_by(lines.c.voice_id)
        return {row[0]: int(row[1]) for row in connection.execute(asked)}


async def test_settled_call_is_archived_and_then_expires(archivist: Archivist, database: Database) -> None:
    """A call is archived when it is settled, not before, and expires in Redis only afterwards."""
    call = await archivist.begin_call(GREEN, END, run_s=20, is_pushed=False)
    assert versions(database) == {}
    await archivist.run(60)
    assert versions(database) == {call.voice_id: 1}
    assert verify(database).faults == []
    assert min(await ttl(archivist.redis, archivist.call_id(call))) > 0
    assert (await waiting_calls(archivist.redis, Keys())).calls == 0
    assert await archivist.redis.keys("ck:2:archive:item:*") == []


async def test_ends_of_chains_are_logged_where_the_database_is_not(archivist: Archivist) -> None:
    """One worker writes the new end of each chain into the application log and the audit log, once."""
    await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    await archivist.archiving._before_claim()
    await archivist.archiving.settle()
    await archivist.archiving._before_claim()
    await archivist.archiving.settle()
    head = archivist.archiving.writer.heads()[KEY]
    logged = [line for line in archivist.log.entries if line["event"] == "archive_head"]
    assert [(line["institution"], line["n"], line["hash"]) for line in logged] == [(KEY, head.n, head.hash)]
    await archivist.archiving._log_heads()
    assert len([line for line in archivist.log.entries if line["event"] == "archive_head"]) == 1, "it is not new"
    audited = await AuditLog(archivist.redis, keys=Keys()).read(AuditFilter(event=AuditEvent.ARCHIVE_HEAD), most=9)
    assert [each.entry.detail for each in audited] == [f"{head.n} {head.hash}"]


async def test_head_whose_line_may_be_lost_is_logged_again(archivist: Archivist) -> None:
    """A worker that is killed before its line is written has noted nothing: the next one says the same."""

    def killed() -> None:
        raise SystemExit

    archivist.archiving.writer.write(KEY, [content(1)])
    archivist.archiving.flush_log = killed
    with pytest.raises(SystemExit):
        await archivist.archiving._log_heads()
    archivist.archiving.flush_log = lambda: None
    await archivist.archiving._log_heads()
    first, second = (line for line in archivist.log.entries if line["event"] == "archive_head")
    assert {**first, "read_ms": 0} == {**second, "read_ms": 0}


async def test_heads_of_many_institutions_wait_for_the_log_once(archivist: Archivist) -> None:
    """A wait takes a second if nobody reads the log, and nothing is archived meanwhile."""
    keys, flushed = [f"cu-{n}" for n in range(NOTED_AT_ONCE + 1)], list[int]()

    def flush() -> None:
        flushed.append(len([line for line in archivist.log.entries if line["event"] == "archive_head"]))

    for key in keys:
        archivist.archiving.writer.write(key, [content(1)])
    archivist.archiving.flush_log = flush
    await archivist.archiving._log_heads()
    assert flushed == [NOTED_AT_ONCE, NOTED_AT_ONCE + 1]
    assert sorted(await archivist.archiving.store.noted_heads()) == sorted(keys)


async def test_no_head_is_signed_of_a_chain_that_was_rewritten(archivist: Archivist, database: Database) -> None:
    """The owner changes a line whose head was logged; the next head would vouch for it."""
    await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    await archivist.archiving._log_heads()
    with database.writing() as connection:
        connection.execute(update(lines).values(hash="f" * 64))
    await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    await archivist.archiving._log_heads()
    told = [line["event"] for line in archivist.log.entries if line["event"].startswith("archive_")]
    assert told == ["archive_head", "archive_rewritten"]
    await archivist.archiving.store.refill()
    await archivist.archiving._log_heads()
    assert archivist.log.entries[-1]["event"] == "archive_head", "after a restore the heads are logged anew"


def _fork_behind_a_decoy(connection: Connection) -> None:
    """Rewrite the chain, but for one row that keeps the number and the hash of the logged head."""
    logged = connection.execute(select(lines.c.hash).where(lines.c.n == 2)).scalar_one()
    connection.execute(update(lines).where(lines.c.n == 1).values(at_ms=1))
    rechain(connection, KEY)
    connection.execute(update(lines).where(lines.c.n == 2).values(hash=logged))


def _forge_the_head(connection: Connection) -> None:
    connection.execute(update(chains).where(chains.c.institution_key == KEY).values(head_n=10**6, head_hash="f" * 64))


def _move_the_head_back(connection: Connection) -> None:
    first = connection.execute(select(lines.c.hash).where(lines.c.n == 1)).scalar_one()
    connection.execute(update(chains).where(chains.c.institution_key == KEY).values(head_n=1, head_hash=first))


@pytest.mark.parametrize("forge", [_fork_behind_a_decoy, _forge_the_head, _move_the_head_back])
async def test_no_head_is_signed_to_which_no_lines_lead(
    archivist: Archivist, database: Database, forge: Callable[[Connection], None]
) -> None:
    """One row that looks like the logged head, or a head without a line, is no chain."""
    archivist.archiving.writer.write(KEY, [content(1), content(2)])
    await archivist.archiving._log_heads()
    archivist.archiving.writer.write(KEY, [content(3)])
    with database.writing() as connection:
        forge(connection)
    await archivist.archiving._log_heads()
    told = [line for line in archivist.log.entries if line["event"].startswith("archive_")]
    assert [(line["event"], line["n"]) for line in told] == [("archive_head", 2), ("archive_rewritten", 2)]


@pytest.mark.parametrize("forge", [_forge_the_head, lambda c: c.execute(update(lines).values(at_ms=1))])
async def test_first_head_is_signed_only_if_its_line_is_right(
    archivist: Archivist, database: Database, forge: Callable[[Connection], None]
) -> None:
    """There is no logged head to walk from, so that the line of the head is all that can be tested."""
    archivist.archiving.writer.write(KEY, [content(1), content(2)])
    with database.writing() as connection:
        forge(connection)
    await archivist.archiving._log_heads()
    assert [line["event"] for line in archivist.log.entries if "archive" in line["event"]] == ["archive_rewritten"]


async def test_long_way_to_a_head_is_logged_in_parts(archivist: Archivist, database: Database) -> None:
    """After a long outage there are many lines. Each part ends at a logged head, and only the last one is dated."""
    writer = archivist.archiving.writer
    writer.write(KEY, [content(1)])
    await archivist.archiving._log_heads()
    writer.write(KEY, [content(n) for n in range(2, 7)])
    archivist.archiving.writer = Writer(database, most_walked=2)
    await archivist.archiving._log_heads()
    told = [line for line in archivist.log.entries if line["event"] == "archive_head"]
    assert [(line["n"], line.get("before_n"), "at_ms" in line) for line in told] == [
        (1, None, True),
        (3, 1, False),
        (5, 3, False),
        (6, 5, True),
    ]
    log = parse_heads([msgspec.json.encode(line) for line in told])
    evidence = Evidence(logged=log.hashes, logged_at=log.times)
    assert (log.faults, verify(database, institution_key=KEY, evidence=evidence).faults) == ([], [])


async def test_no_head_is_signed_of_a_chain_that_begins_after_the_last_logged_one(
    archivist: Archivist, database: Database
) -> None:
    """The owner deletes the line of the logged head and everything before it: nothing shows what the chain was."""
    archivist.stage.call(GREEN, END)
    await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    await archivist.archiving._log_heads()
    await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    with database.writing() as connection:
        third = connection.execute(select(lines.c.hash).where(lines.c.n == 3)).scalar_one()
        connection.execute(delete(lines))
        connection.execute(update(chains).values(base_n=3, base_hash=third))
    await archivist.archiving._log_heads()
    told = [line["event"] for line in archivist.log.entries if line["event"].startswith("archive_")]
    assert told == ["archive_head", "archive_rewritten"]


async def test_head_stays_signed_when_retention_removes_everything_up_to_it(
    archivist: Archivist, database: Database
) -> None:
    """A chain that was idle for years loses all its lines to retention, and begins with the line about that."""
    await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    await archivist.archiving._log_heads()
    assert Keeper(database, "cron").retire(KEY, 2**62) == 1
    await archivist.archiving._log_heads()
    told = [line["event"] for line in archivist.log.entries if line["event"].startswith("archive_")]
    assert told == ["archive_head", "archive_head"]


@pytest.mark.parametrize(("is_away", "in_s"), [(True, HEADS_AGAIN_S), (False, HEADS_EVERY_S)])
async def test_heads_that_could_not_be_read_are_logged_seconds_later(
    archivist: Archivist, is_away: bool, in_s: int
) -> None:
    """A database that was away for a moment leaves lines unproved for seconds, not for ten minutes."""
    await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    if is_away:
        archivist.archiving.writer = Writer(Database("postgresql://nobody@127.0.0.1:1/none"))
    await archivist.archiving._before_claim()
    await archivist.archiving.settle()
    assert in_s - 2 <= await archivist.redis.ttl("ck:2:archive:turn:heads") <= in_s
    assert HEADS_EVERY_S < 10 * 60


async def test_heads_are_logged_while_a_backlog_is_written(
    archivist: Archivist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two full batches the periodic work is done too: a backlog can last for hours."""
    looked: list[str] = []

    async def before_claim() -> None:
        looked.append("turn")

    async def claim() -> int:
        looked.append("claim")
        return AT_ONCE if len(looked) < 6 else 0

    monkeypatch.setattr(ArchiveDeliveries, "_before_claim", lambda _: before_claim())
    monkeypatch.setattr(ArchiveDeliveries, "claim", lambda _: claim())
    await archivist.archiving._claim_once()
    assert looked == ["turn", "claim"] * 3


async def test_call_that_changes_later_is_archived_again(archivist: Archivist, database: Database) -> None:
    """A statement about a settled call makes a second version in the archive."""
    call = await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    place = archivist.call_id(call)
    await archivist.store.note(place, Distrusted(operator="ann", said_at=archivist.clock.now), even_settled=True)
    await archivist.run(60)
    assert versions(database) == {call.voice_id: 2}
    assert verify(database).faults == []


async def test_nothing_is_lost_while_the_database_is_away(archivist: Archivist, database: Database) -> None:
    """While the database is down, calls are settled, wait and do not expire; afterwards all are archived."""
    tried = []

    def fails(calls: Any) -> Exception:
        tried.append(calls)
        return ArchiveAway("OperationalError")

    archivist.archiving.writer.fails = fails  # type: ignore[attr-defined]
    calls = [archivist.stage.call(GREEN, END, phone_number=archivist.stage.other_member(n)) for n in range(6)]
    await archivist.run(200)
    assert [(await archivist.record(call)).is_settled for call in calls] == [True] * 6
    for call in calls:
        assert await ttl(archivist.redis, archivist.call_id(call)) == (-1, -1)
    waiting = await waiting_calls(archivist.redis, Keys())
    assert waiting.calls == 6
    assert archivist.archiving.store.breakers.opened
    before = len(tried)
    await archivist.run(60)
    assert len(tried) - before <= 60 / 3 + 1, "while the database is down, there is at most one attempt in 3 s"
    archivist.archiving.writer.fails = lambda _calls: None  # type: ignore[attr-defined]
    await archivist.run(20)
    assert versions(database) == {call.voice_id: 1 for call in calls}
    assert min(await ttl(archivist.redis, archivist.call_id(calls[0]))) > 0


async def test_outage_of_the_database_is_logged_when_it_begins_and_ends(archivist: Archivist) -> None:
    """However often writes are tried: one line for each reason, and one when they work, which says what still waits."""
    refusals = cycle([ArchiveAway("OperationalError (08006)"), ArchiveAway("OperationalError (53100)")])
    archivist.archiving.writer.fails = lambda _calls: next(refusals)  # type: ignore[attr-defined]
    for _ in range(6):
        archivist.stage.call(GREEN, END)
    await archivist.run(300)
    archivist.archiving.writer.fails = lambda _calls: None  # type: ignore[attr-defined]
    await archivist.run(60)
    logged = [line for line in archivist.log.entries if line["event"] in {"archive_away", "archive_back"}]
    assert [(line["event"], line.get("error"), line.get("calls")) for line in logged] == [
        ("archive_away", "OperationalError (08006)", None),
        ("archive_away", "OperationalError (53100)", None),
        ("archive_back", None, 5),
    ]


async def test_audit_log_that_is_refused_is_logged_once(archivist: Archivist) -> None:
    """An entry that the database refuses is tried every ten seconds: the log says so once, and that it is a fault."""
    archivist.archiving.writer.fails = lambda _calls: ValueRefused("DataError (22021)")  # type: ignore[attr-defined]
    await archivist.archiving.store.audit_log.write(AuditEntry(event=AuditEvent.VIEWED, who="ann"))
    for _ in range(3):
        await archivist.archiving._copy_audit()
    logged = [line for line in archivist.log.entries if line["event"].startswith("archive_")]
    assert [(line["event"], line["where"]) for line in logged] == [("archive_refused", "audit log")]


async def test_commit_whose_answer_was_lost_is_not_written_twice(archivist: Archivist, database: Database) -> None:
    """If a worker does not know whether its transaction was committed, it writes again; nothing is stored twice."""
    writer: Any = archivist.archiving.writer
    writer.after_commit, left = True, [3]

    def fails(_calls: Any) -> Exception | None:
        left[0] -= 1
        return ArchiveAway("OperationalError") if left[0] >= 0 else None

    writer.fails = fails
    calls = [archivist.stage.call(GREEN, END, phone_number=archivist.stage.other_member(n)) for n in range(3)]
    await archivist.run(120)
    assert versions(database) == {call.voice_id: 1 for call in calls}
    assert verify(database).faults == []


async def test_call_that_cannot_be_written_holds_up_no_other(archivist: Archivist, database: Database) -> None:
    """A call that the database refuses is shown to people and stays in Redis; the others are written."""
    calls = [archivist.stage.call(GREEN, END, phone_number=archivist.stage.other_member(n)) for n in range(5)]
    bad = calls[2].voice_id

    def fails(contents: Any) -> Exception | None:
        return ValueRefused("DataError (22021)") if any(each.voice_id == bad for each in contents) else None

    archivist.archiving.writer.fails = fails  # type: ignore[attr-defined]
    await archivist.run(200)
    assert set(versions(database)) == {call.voice_id for call in calls} - {bad}
    attention = await Queries(archivist.redis).attention()
    assert list(attention) == [CallId(KEY, bad).member]
    assert attention[CallId(KEY, bad).member].startswith("not archived: ValueRefused")
    assert await ttl(archivist.redis, CallId(KEY, bad)) == (-1, -1)
    archivist.archiving.writer.fails = lambda _calls: None  # type: ignore[attr-defined]
    assert await ArchiveQueue(archivist.redis, Keys(), now_ms=archivist.now_ms).refill() == 5
    await archivist.run(5)
    assert set(versions(database).values()) == {1}
    assert len(versions(database)) == 5
    assert await Queries(archivist.redis).attention() == {}


@pytest.mark.parametrize("bad", [1, 4, 7])
@pytest.mark.parametrize("refused_after_s", [WITHIN_S, ENOUGH_S - 0.1])
async def test_no_call_is_written_after_its_lease(
    archivist: Archivist, database: Database, blocking_redis: BlockingRedis, bad: int, refused_after_s: float
) -> None:
    """An erasure may have deleted its values since. The faulty call is found all the same, however slow the database is."""
    archivist.archiving.writer.fails = lambda _calls: ArchiveAway("OperationalError")  # type: ignore[attr-defined]
    calls = [archivist.stage.call(GREEN, END, phone_number=archivist.stage.other_member(n)) for n in range(8)]
    await archivist.run(80)
    spare_ms = []

    def fails(contents: Any) -> Exception | None:
        for each in contents:
            until_ms: Any = blocking_redis.zscore(Keys().archive.due, CallId(KEY, each.voice_id).member)
            spare_ms.append(until_ms - archivist.now_ms())
        is_faulty = any(each.voice_id == calls[bad].voice_id for each in contents)
        archivist.clock.now += timedelta(seconds=refused_after_s if is_faulty else WITHIN_S)
        return ValueRefused("DataError (22021)") if is_faulty else None

    archivist.archiving.writer.fails = fails  # type: ignore[attr-defined]
    await archivist.run(400)
    assert set(versions(database)) == {call.voice_id for call in calls} - {calls[bad].voice_id}
    assert list(await Queries(archivist.redis).attention()) == [CallId(KEY, calls[bad].voice_id).member]
    assert min(spare_ms) >= WITHIN_S * 1000, "a write that begins now ends before the lease does"


async def test_calls_settled_before_there_was_an_archive_are_archived(archivist: Archivist, database: Database) -> None:
    """Calls that were settled without an archive, or by a worker of an earlier release, are archived later."""
    archivist.store._archive = ""
    calls = [archivist.stage.call(GREEN, END, phone_number=archivist.stage.other_member(n)) for n in range(3)]
    await archivist.run(80)
    assert versions(database) == {}
    await archivist.redis.delete("ck:2:archive:turn:sweep")
    await archivist.run(5)
    assert versions(database) == {call.voice_id: 1 for call in calls}


async def test_restored_redis_adds_and_removes_nothing(archivist: Archivist, database: Database) -> None:
    """After Redis was restored the archive is unchanged; a later change of the call makes another version."""
    call = await archivist.begin_call(GREEN, END, run_s=80, is_pushed=False)
    keys, member = Keys(), archivist.call_id(call).member
    await archivist.redis.rpop(keys.trail(member))
    await archivist.redis.hdel(keys.item(member), "archived")
    await archivist.redis.delete("ck:2:archive:turn:sweep")
    await archivist.run(5)
    assert versions(database) == {call.voice_id: 1}
    await archivist.store.note(
        archivist.call_id(call), Distrusted(operator="ann", said_at=archivist.clock.now), even_settled=True
    )
    await archivist.run(30)
    assert versions(database) == {call.voice_id: 2}
    assert verify(database).faults == []
