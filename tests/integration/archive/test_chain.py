"""The hash chain of an institution: verify names every line that was changed."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, delete, func, select, text, update

from callkeeper.app.cli import main
from callkeeper.archive.chain_heads import parse_heads, signed_head
from callkeeper.archive.database import Database
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import GENESIS, content_of, joined
from callkeeper.archive.tables import chains, lines, people
from callkeeper.archive.verifying import Evidence, verify
from callkeeper.archive.writing import Writer
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.service.secret import Secret
from tests.harness.archivist import INSTITUTION, START, content, settled, sqlite_archive

HOUR_MS = 3_600_000


@pytest.fixture
def filled(database: Database) -> Database:
    """Return an archive with ten calls."""
    Writer(database).write(INSTITUTION, [content(n) for n in range(1, 11)])
    return database


def faults(database: Database, **how: object) -> list[str]:
    """Return what verify finds."""
    return [str(fault) for fault in verify(database, **how).faults]  # type: ignore[arg-type]


def test_call_comes_back_as_it_was(database: Database) -> None:
    """A call is rebuilt completely, although its stored body has no personal values."""
    Writer(database).write(INSTITUTION, [content()])
    with database.reading() as connection:
        body = connection.execute(select(lines.c.body)).scalar_one()
        values = {p: v for p, v in connection.execute(select(people.c.path, people.c.value)) if v is not None}
    assert joined(body, values) == settled()
    for personal in ("2025550001", "Marion", "Ned", "dog", "odd"):
        assert personal not in body
        assert any(personal in value for value in values.values())


def test_writing_again_changes_nothing(database: Database) -> None:
    """The same or an older state of a trail is no new version; a longer trail is one."""
    writer = Writer(database)
    assert [writer.write(INSTITUTION, [content(1, lines=n)]) for n in (3, 3, 4, 3, 2, 4)] == [1, 0, 1, 0, 0, 0]
    assert writer.heads()[INSTITUTION].n == 2
    assert faults(database) == []


def test_trail_that_went_another_way_is_a_version_of_its_own(database: Database) -> None:
    """After a restore of Redis, a trail may differ from some line on: both versions are kept."""
    writer = Writer(database)
    writer.write(INSTITUTION, [content(1, lines=4)])
    call, trail = settled(1, lines=3)
    assert writer.write(INSTITUTION, [content_of(call, (*trail[:1], trail[2]))]) == 1
    assert faults(database) == []


def test_characters_that_databases_refuse_are_written(database: Database) -> None:
    """NUL is removed from search terms, and kept in the body."""
    call, trail = settled(1, person_id="p\0x", phone_number="+1\0202")
    assert Writer(database).write(INSTITUTION, [content_of(call, trail)]) == 1
    assert faults(database) == []


CHANGES: dict[str, Any] = {
    "body": update(lines).where(lines.c.n == 5).values(body=func.replace(lines.c.body, "enrolled", "rejected")),
    "column": update(lines).where(lines.c.n == 5).values(voice_id="v-other"),
    "time": update(lines).where(lines.c.n == 5).values(at_ms=lines.c.at_ms + 1),
    "removed": delete(lines).where(lines.c.n == 5),
    "last": delete(lines).where(lines.c.n == 10),
    "number": update(people).where(people.c.n == 5, people.c.path == "call/phone_number").values(value="+1999"),
    "value removed": delete(people).where(people.c.n == 5, people.c.path == "call/phone_number"),
    "term": text("UPDATE archive_terms SET value = 'rejected' WHERE n = 5 AND kind = 'outcome'"),
    "first": delete(lines).where(lines.c.n == 1),
    "emptied": update(lines).where(lines.c.n == 5).values(body=None),
}
NAMED = {"last": 10, "first": 1}


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_found_and_named(filled: Database, change: str) -> None:
    """Every line that was changed or removed is named."""
    assert faults(filled) == []
    with filled.writing() as connection:
        assert connection.execute(CHANGES[change]).rowcount
    found = faults(filled)
    assert found
    assert f"line {NAMED.get(change, 5)}:" in found[0]


def test_swapped_lines_are_found(filled: Database) -> None:
    """Both of two swapped lines are named."""
    with filled.writing() as connection:
        for old, new in ((4, 99), (5, 4), (99, 5)):
            connection.execute(update(lines).where(lines.c.n == old).values(n=new))
    assert {4, 5} <= {fault.n for fault in verify(filled).faults}


def test_inserted_line_is_found(filled: Database) -> None:
    """A line after the head is named, even if its hash is right."""
    with filled.writing() as connection:
        row = dict(connection.execute(select(lines).where(lines.c.n == 10)).one()._mapping)
        connection.execute(lines.insert(), {**row, "n": 11, "version": 9})
    assert any(fault.n == 11 for fault in verify(filled).faults)


def test_history_that_was_written_anew_differs_from_what_was_logged(filled: Database, tmp_path: Path) -> None:
    """A rewritten chain differs from the logged head, and a forged log has no valid signature."""
    key = Secret("a-key-that-only-tests-know")
    head = Writer(filled).heads()[INSTITUTION]
    line = msgspec.json.encode({"event": "archive_head", "level": "info", **signed_head(INSTITUTION, head, key)})
    log = parse_heads([b"no json", line], [key])
    logged = Evidence(logged=log.hashes)
    assert (faults(filled, evidence=logged), log.unsigned) == ([], 0)
    (tmp_path / "other").mkdir()
    with sqlite_archive(tmp_path / "other") as forged:
        Writer(forged).write(INSTITUTION, [content(n) for n in range(1, 11)])
        assert faults(forged) == []
        assert faults(forged, evidence=logged) == [f"{INSTITUTION} line 10: its hash differs from the logged one"]
    assert parse_heads([line], [Secret("another-key-that-tests-know")]).unsigned == 1


def test_erased_person_is_gone_and_the_chain_stays(filled: Database) -> None:
    """An erasure deletes the person's numbers, names, remarks and salts. The decisions stay readable."""
    erased = Keeper(filled, "dpo").erase(INSTITUTION, person_id="p-3", reason="asked for it")
    assert (len(erased.calls), erased.values, erased.held) == (1, 6, frozenset())
    Writer(filled).write(INSTITUTION, [content(3, lines=5)])
    with filled.reading() as connection:
        assert connection.execute(select(func.count()).where(people.c.person_id == "p-3")).scalar_one() == 0
        body = connection.execute(
            select(lines.c.body).where(lines.c.voice_id == "v-3", lines.c.version == 2)
        ).scalar_one()
    call, trail = joined(body, {})
    assert (call.life.reason, call.names.phone_number, trail[1].rule) == ("enrolled", None, "distrusted")
    found = verify(filled)
    assert (found.faults, found.erased) == ([], 12)


def test_person_who_was_only_a_candidate_loses_the_name(filled: Database) -> None:
    """In other people's calls only the person's own values are deleted."""
    erased = Keeper(filled, "dpo").erase(INSTITUTION, person_id="p-other", reason="asked for it")
    assert (len(erased.calls), erased.values) == (10, 10)
    assert faults(filled) == []


def test_number_is_erased_however_it_is_written(filled: Database) -> None:
    """All personal values of the calls from a number are deleted."""
    erased = Keeper(filled, "dpo").erase(INSTITUTION, phone="202-555-0004", reason="asked")
    assert (len(erased.calls), erased.values) == (1, 6)
    assert faults(filled) == []


def test_retention_removes_the_beginning_and_the_rest_can_be_verified(database: Database) -> None:
    """Old lines and their values are removed, the base is recorded, and a second run changes nothing."""
    clock = [int(START.timestamp() * 1000)]
    writer = Writer(database, now_ms=lambda: clock[0])
    for n in range(1, 7):
        writer.write(INSTITUTION, [content(n)])
        clock[0] += HOUR_MS
    before_ms = int(START.timestamp() * 1000) + 4 * HOUR_MS
    keeper = Keeper(database, "cron")
    assert keeper.retire(INSTITUTION, before_ms) == 4
    assert keeper.retire(INSTITUTION, before_ms) == 0
    found = verify(database)
    assert (found.faults, found.lines, found.heads[INSTITUTION].n) == ([], 3, 7)
    with database.reading() as connection:
        assert set(connection.execute(select(people.c.n)).scalars()) == {5, 6}
    with database.writing() as connection:
        connection.execute(delete(lines).where(lines.c.n == 5))
        connection.execute(update(chains).values(base_n=5, base_hash=GENESIS))
    assert faults(database), "nobody else may remove the beginning"


def test_legal_hold_keeps_a_call_from_retention_and_erasure(filled: Database) -> None:
    """A call under a hold keeps everything. Old lines after it lose their body, and all can be verified."""
    keeper = Keeper(filled, "legal")
    assert keeper.hold(INSTITUTION, "person", "p-4", "a lawsuit")
    assert not keeper.hold(INSTITUTION, "person", "p-4", "a lawsuit")
    assert keeper.erase(INSTITUTION, person_id="p-4", reason="asked for it").held == {"v-4"}
    late_ms = 2**42
    assert keeper.retire(INSTITUTION, late_ms) == 9
    found = verify(filled)
    assert (found.faults, found.emptied) == ([], 6)
    assert keeper.hold(INSTITUTION, "person", "p-4", "it is over", release=True)
    assert keeper.retire(INSTITUTION, late_ms) == 1
    assert faults(filled) == []
    with filled.reading() as connection:
        assert connection.execute(select(func.count()).select_from(people)).scalar_one() == 0


def test_retire_keeps_what_the_setting_says(filled: Database, tmp_path: Path) -> None:
    """The command counts a year as 366 days, and obeys the length of a single institution."""
    filled.close()
    for keep, days in ((f"10y, {INSTITUTION}=2y", 732), ("400d", 400)):
        environ = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db", "CALLKEEPER_ARCHIVE_KEEP": keep}
        done = CliRunner().invoke(main, ["archive", "retire", "--operator", "cron", "--dry-run"], env=environ)
        assert done.output == f"{INSTITUTION}: keeps {days} days\n"


NOTE = "her dog is called Rex, card 4929"


def test_notes_that_an_earlier_release_left_in_a_body_are_erased(database: Database) -> None:
    """An enroll's remark was in the body under the hash: it is taken out, and the chain has the hash of the new body."""
    call, trail = settled(3)
    call = msgspec.structs.replace(
        call,
        ledger=msgspec.structs.replace(
            call.ledger, enroll=Effect(state=EffectState.APPLIED, person_id="p-3", remark=NOTE)
        ),
    )
    new = content_of(call, trail)
    assert NOTE not in new.body
    assert NOTE in {each.value for each in new.personal}
    whole = msgspec.json.decode(new.body)
    whole["call"]["enroll"]["remark"] = NOTE
    personal = tuple(each for each in new.personal if each.value != NOTE)
    old = dataclasses.replace(new, body=msgspec.json.encode(whole, order="sorted").decode(), personal=personal)
    Writer(database).write(INSTITUTION, [content(1), old])
    assert faults(database) == []
    Keeper(database, "dpo").erase(INSTITUTION, person_id="p-3", reason="request 12")
    assert faults(database) == []
    with database.reading() as connection:
        bodies = "".join(body for (body,) in connection.execute(select(lines.c.body)))
    assert NOTE not in bodies
    with database.writing() as connection:
        changed = bodies_of(connection)[2].replace("v-3", "v-4")
        connection.execute(update(lines).where(lines.c.n == 2).values(body=changed))
    assert any("does not match the hash" in fault for fault in faults(database))


def bodies_of(connection: Connection) -> dict[int, str]:
    """Return the bodies by line."""
    return dict(connection.execute(select(lines.c.n, lines.c.body)).tuples().all())
