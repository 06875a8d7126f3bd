"""The owner of the archive's database changes it while a genuine command runs: the command vouches for nothing of that."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, delete, insert, select, update

from callkeeper.app.cli import main
from callkeeper.archive.database import Database
from callkeeper.archive.errors import HoldsUnknown
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import StoredLine
from callkeeper.archive.tables import chains, columns_of, holds, lines, people, record_of, terms
from callkeeper.archive.verifying import verify
from callkeeper.archive.writing import Writer
from callkeeper.service.secret import Secret
from tests.archive_manipulations import (
    HOUR_MS,
    KEY,
    OURS,
    T0,
    THEIRS,
    YEAR_MS,
    Archivists,
    Manipulation,
    filled,
    forge_body,
    verified,
)
from tests.harness.archivist import content, sqlite_archive


@pytest.fixture
def archive(database: Database) -> Archivists:
    """Return an archive with ten calls in lines 1 to 10, all of them below a logged head."""
    archive = Archivists(database, T0 - 3 * HOUR_MS)
    archive.audit(event="login")
    archive.at_ms = T0 - 2 * HOUR_MS
    archive.write(OURS, *(content(n) for n in range(1, 11)))
    archive.log_heads()
    archive.at_ms = T0 - HOUR_MS
    return archive


def named(archive: Archivists) -> list[str]:
    """Let an hour pass, log the heads, and return what the verification names."""
    archive.at_ms = T0 + HOUR_MS
    archive.audit(event="login")
    archive.log_heads()
    found, heads = verified(archive.database, archive.log, YEAR_MS)
    return [*map(str, found.faults), *heads.faults]


def values_of(database: Database, n: int) -> int:
    """Return how many personal values a line has."""
    with database.reading() as connection:
        here = (people.c.institution_key == OURS) & (people.c.n == n) & people.c.value.is_not(None)
        return len(connection.execute(select(people.c.path).where(here)).all())


def _note_of_another(call: dict[str, Any]) -> None:
    call["identity"] |= {"person_id": "p-3", "remark": "x"}


FORGED: dict[str, tuple[int, Callable[[dict[str, Any]], None], str]] = {
    "a note is planted in the person's call": (3, lambda call: call["identity"].update(remark="x"), ""),
    "a note about the person is planted in another call": (7, _note_of_another, "p-3"),
    "another call becomes the person's": (7, lambda call: call.update(person_id="p-3"), "p-3"),
}


@pytest.mark.parametrize("which", FORGED)
def test_erasure_leaves_a_call_whose_body_was_forged(archive: Archivists, which: str) -> None:
    """It would sign the forged body, or delete what nobody asked to erase. The call stays whole, and stays named."""
    n, change, person = FORGED[which]
    before = values_of(archive.database, n)
    with archive.database.writing() as connection:
        forge_body(connection, n, change, person)
    keeper = archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-3", reason="asked for"))
    assert [str(fault) for fault in keeper.faults] == [f"{OURS} line {n}: changed: its body does not match the hash"]
    assert values_of(archive.database, n) == before > 0
    assert any(f"line {n}: changed: its body does not match the hash" in fault for fault in named(archive))


def test_erasure_takes_the_other_calls_of_the_person(archive: Archivists) -> None:
    """One forged call keeps no other from being erased, and is erased once it is right again."""
    archive.write(OURS, content(20, person_id="p-3"))
    with archive.database.writing() as connection:
        body = forge_body(connection, 3, lambda call: call["identity"].update(remark="x"))
    first, second = (
        archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-3", reason="asked for"))
        for _ in range(2)
    )
    assert (values_of(archive.database, 3) > 0, values_of(archive.database, 11)) == (True, 0)
    assert len(first.faults) == len(second.faults) == 1
    with archive.database.writing() as connection:
        connection.execute(update(lines).where(lines.c.n == 3, lines.c.institution_key == OURS).values(body=body))
    archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-3", reason="asked for"))
    assert values_of(archive.database, 3) == 0
    assert named(archive) == []


def test_erasure_leaves_a_call_whose_body_is_no_json(archive: Archivists) -> None:
    """It is named as any other wrong line, and the person's other calls are erased."""
    archive.write(OURS, content(20, person_id="p-3"))
    with archive.database.writing() as connection:
        connection.execute(update(lines).where(lines.c.n == 3, lines.c.institution_key == OURS).values(body="{"))
    keeper = archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-3", reason="asked for"))
    assert [fault.n for fault in keeper.faults] == [3]
    assert (values_of(archive.database, 3) > 0, values_of(archive.database, 11)) == (True, 0)
    assert keeper.spellings_left(OURS, "p-3") == set()


WRONG: dict[str, Manipulation] = {
    "its time": Manipulation(
        lambda c: c.execute(update(lines).where(lines.c.n == 3).values(at_ms=T0 - YEAR_MS)), "its hash does not match"
    ),
    "a value": Manipulation(
        lambda c: c.execute(update(people).where(people.c.n == 3, people.c.value.is_not(None)).values(value="x")),
        "does not match its commitment",
    ),
    "a search term": Manipulation(
        lambda c: c.execute(insert(terms).values(institution_key=OURS, n=3, kind="person", value="p-9", began_ms=1)),
        "its search data does not match its body",
    ),
    "its body is missing": Manipulation(
        lambda c: c.execute(update(lines).where(lines.c.n == 3, lines.c.institution_key == OURS).values(body=None)),
        "its body is missing",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_erasure_leaves_a_call_that_is_wrong_in_any_way(archive: Archivists, what: str) -> None:
    """Whatever the verification tests of a line, an erasure tests too."""
    with archive.database.writing() as connection:
        WRONG[what].change(connection)
    keeper = archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-3", reason="asked for"))
    assert [(fault.n, WRONG[what].named in fault.what) for fault in keeper.faults] == [(3, True)]
    assert keeper.written == []


def test_value_that_an_earlier_release_stored_again_is_erased_again(archive: Archivists) -> None:
    """A worker of an earlier release beside ours can bring an erased value back. That keeps no erasure from it."""
    with archive.database.reading() as connection:
        rows = [dict(row) for row in connection.execute(select(people).where(people.c.n == 3)).mappings()]
    erase = lambda keeper: keeper.erase(OURS, person_id="p-3", reason="asked for")  # noqa: E731
    archive.command(OURS, "erase", erase)
    with archive.database.writing() as connection:
        connection.execute(insert(people), rows)
    assert archive.command(OURS, "erase", erase).faults == []
    assert (values_of(archive.database, 3), named(archive)) == (0, [])


def test_body_that_a_former_key_signed_is_right(database: Database) -> None:
    """After a rotation an erasure needs the former key too, as the verification does, to know its own work."""
    filled(database)
    new = Secret("the-key-after-the-rotation")
    keepers = [Keeper(database, "dpo", new, now_ms=T0 + HOUR_MS, former_keys=former) for former in ((), (KEY,))]
    found = [keeper.erase(THEIRS, person_id="p-4", reason="again") for keeper in keepers]
    assert [(len(each.calls), len(each.wrong)) for each in found] == [(0, 1), (1, 0)]
    assert ["the key did not sign that" in fault.what for fault in keepers[0].faults] == [True]


def _empty_holds(connection: Connection) -> list[dict[str, Any]]:
    """Take the holds out of their table, and return them."""
    rows = [dict(row) for row in connection.execute(select(holds)).mappings()]
    connection.execute(delete(holds))
    return rows


HELD_BY = [("person", "p-3"), ("call", "v-3"), ("institution", "")]


@pytest.mark.parametrize(("kind", "value"), HELD_BY)
def test_hold_that_is_out_of_its_table_for_a_moment_keeps_a_call_from_erasure(
    archive: Archivists, kind: str, value: str
) -> None:
    """The chain has the hold as well. Only a release ends it, which finds it there too."""
    archive.command(OURS, "hold", lambda keeper: keeper.hold(OURS, kind, value, "a case"))
    with archive.database.writing() as connection:
        rows = _empty_holds(connection)
    keeper = Keeper(archive.database, "dpo", KEY, now_ms=archive.at_ms)
    assert keeper.erase(OURS, person_id="p-3", reason="asked for").held == {"v-3"}
    assert keeper.holds(OURS).cover(["v-3"], ["p-3"])
    with archive.database.writing() as connection:
        connection.execute(insert(holds), rows)
    assert named(archive) == []
    with archive.database.writing() as connection:
        _empty_holds(connection)
    assert keeper.hold(OURS, kind, value, "it is over", release=True)
    assert not keeper.holds(OURS).cover(["v-3"], ["p-3"])


def forge_hold(connection: Connection, n: int) -> None:
    """Let the line of a hold say something else, with the right hash of its body."""
    forge_body(connection, n, lambda told: told.update(value="p-nobody"), hashed=True)


def test_nothing_is_erased_while_nobody_knows_what_is_held(archive: Archivists) -> None:
    """A line about a hold was changed: it could have held any call."""
    archive.command(OURS, "hold", lambda keeper: keeper.hold(OURS, "person", "p-3", "a case"))
    with archive.database.writing() as connection:
        forge_hold(connection, 11)
        _empty_holds(connection)
    keeper = Keeper(archive.database, "dpo", KEY, now_ms=archive.at_ms)
    with pytest.raises(HoldsUnknown):
        keeper.erase(OURS, person_id="p-3", reason="asked for")
    assert [str(fault) for fault in keeper.faults] == [
        f"{OURS} line 11: changed: what it says about the archive cannot be read"
    ]
    assert values_of(archive.database, 3) > 0


@pytest.fixture
def typed(tmp_path: Path, redis_url: str) -> Callable[..., Any]:
    """Return what types a command in."""
    (tmp_path / "commands").mkdir()
    variables = {
        "REDIS_URL": redis_url,
        "CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/commands/archive.db",
        "CALLKEEPER_ARCHIVE_KEEP": "1y",
    }
    return lambda *words: CliRunner(env=variables).invoke(main, words)


ERASE = ("calls", "erase", "--institution", OURS, "--person", "p-3", "--operator", "dpo", "--reason", "request 12")


def test_command_names_what_it_did_not_erase_and_fails(tmp_path: Path, typed: Callable[..., Any]) -> None:
    """It erases the other calls, also in Redis, says which line of which institution was changed, and what to do."""
    with sqlite_archive(tmp_path / "commands") as database:
        Writer(database).write(OURS, [content(3), content(4), content(20, person_id="p-3")])
        with database.writing() as connection:
            forge_body(connection, 1, lambda call: call["identity"].update(remark="x"))
        result = typed(*ERASE)
    assert result.exit_code == 1
    assert "values of 1 call are erased" in result.output
    assert "Redis: 0 calls are erased" in result.output
    assert f"{OURS} line 1: changed: its body does not match the hash" in result.output
    assert "run callkeeper archive verify" in result.output
    assert result.output.count("line 1:") == 1, "the second look at the archive does not repeat it"


def test_command_erases_nothing_while_nobody_knows_what_is_held(tmp_path: Path, typed: Callable[..., Any]) -> None:
    """Redis keeps its calls too: no erasure can be taken back."""
    with sqlite_archive(tmp_path / "commands") as database:
        Writer(database).write(OURS, [content(3)])
        Keeper(database, "legal").hold(OURS, "person", "p-9", "a case")
        with database.writing() as connection:
            forge_hold(connection, 2)
        result = typed(*ERASE)
    assert result.exit_code == 1
    assert "nobody knows what is under a legal hold: nothing was erased" in result.output
    assert f"{OURS} line 2: changed: what it says about the archive cannot be read" in result.output
    assert "Redis" not in result.output


@pytest.fixture
def old(database: Database) -> Archivists:
    """Return an archive with old calls in lines 1 to 3, young ones in 4 to 7, all of them below logged heads."""
    archive = Archivists(database, T0 - 2 * YEAR_MS)
    archive.audit(event="login")
    archive.at_ms += HOUR_MS
    archive.write(OURS, *(content(n) for n in range(1, 4)))
    archive.log_heads()
    archive.at_ms = T0
    archive.write(OURS, *(content(n) for n in range(4, 8)))
    archive.log_heads()
    return archive


def retire(archive: Archivists) -> Keeper:
    """Let retention run as every day."""
    return archive.command(OURS, "retire", lambda keeper: keeper.retire(OURS, T0 - YEAR_MS))


def numbers(database: Database) -> list[int]:
    """Return which lines there are."""
    with database.reading() as connection:
        asked = select(lines.c.n).where(lines.c.institution_key == OURS).order_by(lines.c.n)
        return list(connection.execute(asked).scalars())


@pytest.mark.parametrize(("kind", "value"), HELD_BY)
def test_hold_that_is_out_of_its_table_for_a_moment_keeps_a_call_from_retention(
    old: Archivists, kind: str, value: str
) -> None:
    """The chain has the hold as well."""
    old.command(OURS, "hold", lambda keeper: keeper.hold(OURS, kind, value, "a case"))
    with old.database.writing() as connection:
        rows = _empty_holds(connection)
    retire(old)
    with old.database.writing() as connection:
        connection.execute(insert(holds), rows)
    assert values_of(old.database, 3) > 0
    assert named(old) == []


def _dated_back(last: int) -> Callable[[Connection], object]:
    young = (lines.c.institution_key == OURS) & lines.c.n.between(4, last)
    return lambda connection: connection.execute(update(lines).where(young).values(at_ms=T0 - 2 * YEAR_MS))


def _rechained(connection: Connection) -> None:
    """Date a young line back, with its right hash; the next line does not know that."""
    _dated_back(4)(connection)
    at = (lines.c.institution_key == OURS) & (lines.c.n == 4)
    row = connection.execute(select(*columns_of(lines, StoredLine)).where(at)).one()
    connection.execute(update(lines).where(at).values(hash=record_of(row, StoredLine).right_hash))


def _emptied(connection: Connection) -> None:
    """Take the body and the search data of a line away, so that no hold of a person covers it."""
    for table in (people, terms):
        connection.execute(delete(table).where(table.c.institution_key == OURS, table.c.n == 2))
    bare = {"body": None, "alternate_id": None, "began_ms": None, "settled_ms": None}
    connection.execute(update(lines).where(lines.c.institution_key == OURS, lines.c.n == 2).values(bare))


def _of_ours(statement: Any) -> Callable[[Connection], object]:
    return lambda connection: connection.execute(statement.where(statement.table.c.institution_key == OURS))


BEFORE_RETENTION: dict[str, tuple[Callable[[Connection], object], str, list[int]]] = {
    "young lines are dated back": (_dated_back(5), "line 4: changed: its hash does not match", [4, 5, 6, 7]),
    "all young lines are dated back": (_dated_back(7), "line 4: changed: its hash does not match", [4, 5, 6, 7]),
    "a young line is dated back, with its new hash": (_rechained, "line 5: does not follow", [5, 6, 7]),
    "an old line is dated on": (
        _of_ours(update(lines).where(lines.c.n == 2).values(at_ms=T0)),
        "line 2: changed: its hash does not match",
        [2, 3, 4, 5, 6, 7],
    ),
    "an old line is hidden": (_of_ours(delete(lines).where(lines.c.n == 2)), "line 2: missing", [3, 4, 5, 6, 7]),
    "an old line has no body": (_emptied, "line 2: its body is missing", [2, 3, 4, 5, 6, 7]),
    "an old body is forged": (
        lambda connection: forge_body(connection, 2, lambda call: call.update(person_id="p-9"), "p-9"),
        "line 2: changed: its body does not match the hash",
        [2, 3, 4, 5, 6, 7],
    ),
    "a search term of an old line is hidden": (
        _of_ours(delete(terms).where(terms.c.n == 2, terms.c.kind == "person")),
        "line 2: changed: its search data does not match its body",
        [2, 3, 4, 5, 6, 7],
    ),
    "the young lines are hidden": (
        _of_ours(delete(lines).where(lines.c.n > 3)),
        "line 4: missing: the chain ended at line 7",
        [],
    ),
    "the chain begins at another line": (
        _of_ours(update(chains).values(base_n=1, base_hash="f" * 64)),
        "line 2: earlier lines are missing, and retention did not record their removal",
        [1, 2, 3, 4, 5, 6, 7],
    ),
}


@pytest.mark.parametrize("what", BEFORE_RETENTION)
def test_retention_ends_before_the_first_wrong_line(old: Archivists, what: str) -> None:
    """It names the line, which stays, and removes only what lies before it."""
    change, words, left = BEFORE_RETENTION[what]
    with old.database.writing() as connection:
        change(connection)
    keeper = retire(old)
    assert [words in str(fault) for fault in keeper.faults] == [True], keeper.faults
    assert numbers(old.database) == [*left, *keeper.written]
    assert named(old) != []


def _say_more(told: dict[str, Any]) -> None:
    told["calls"] |= {"v-5": ""}


FORGED_STATEMENTS: dict[str, tuple[int, Callable[[dict[str, Any]], None]]] = {
    "a hold": (4, lambda told: told.update(value="p-nobody")),
    "an erasure": (5, _say_more),
}


@pytest.mark.parametrize("which", FORGED_STATEMENTS)
def test_retention_repeats_no_forged_hold_or_erasure(database: Database, which: str) -> None:
    """The line about the retirement would make it genuine. Nobody knows what is held: nothing is removed."""
    n, change = FORGED_STATEMENTS[which]
    archive = Archivists(database, T0 - 2 * YEAR_MS)
    archive.audit(event="login")
    archive.at_ms += HOUR_MS
    archive.write(OURS, *(content(n) for n in range(1, 4)))
    archive.command(OURS, "hold", lambda keeper: keeper.hold(OURS, "person", "p-50", "a case"))
    archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-2", reason="asked for"))
    archive.log_heads()
    with database.writing() as connection:
        forge_body(connection, n, change, hashed=True)
    keeper = retire(archive)
    assert [str(fault) for fault in keeper.faults] == [
        f"{OURS} line {n}: changed: what it says about the archive cannot be read"
    ]
    assert (numbers(database), keeper.written) == ([1, 2, 3, 4, 5], [])
    assert any(f"line {n}: changed: its hash does not match" in fault for fault in named(archive))


def test_retention_goes_on_in_parts(old: Archivists) -> None:
    """Parts of two lines remove what one part removes, also around a held call, and each begins where the last ended."""
    old.command(OURS, "hold", lambda keeper: keeper.hold(OURS, "call", "v-2", "a case"))
    keeper = Keeper(old.database, "cron", KEY, now_ms=T0 + HOUR_MS, at_once=2)
    assert keeper.retire(OURS, T0 + 1) == 6
    assert (keeper.faults, numbers(old.database)) == ([], [2, 3, 4, 5, 6, 7, 8, *keeper.written])
    old.command(OURS, "release", lambda keeper: keeper.hold(OURS, "call", "v-2", "it is over", release=True))
    keeper = Keeper(old.database, "cron", KEY, now_ms=T0 + 2 * HOUR_MS, at_once=2)
    assert keeper.retire(OURS, T0 + HOUR_MS + 1) == 1
    assert (keeper.faults, verify(old.database).faults, numbers(old.database)[0] > 8) == ([], [], True)


RETIRE = ("archive", "retire", "--operator", "cron")


def test_command_names_what_it_did_not_retire_and_fails(tmp_path: Path, typed: Callable[..., Any]) -> None:
    """It says which line of which institution was changed, and goes on at other institutions."""
    with sqlite_archive(tmp_path / "commands") as database:
        for key in (OURS, THEIRS):
            Writer(database, now_ms=lambda: T0 - 2 * YEAR_MS).write(key, [content(n) for n in (1, 2, 3)])
        with database.writing() as connection:
            forge_body(connection, 2, lambda call: call.update(person_id="p-9"))
        result = typed(*RETIRE)
    assert result.exit_code == 1
    assert f"{OURS}: 1 line older than 366 days removed" in result.output
    assert f"{THEIRS}: 3 lines older than 366 days removed" in result.output
    assert f"{OURS} line 2: changed: its body does not match the hash" in result.output
    assert "run callkeeper archive verify" in result.output
