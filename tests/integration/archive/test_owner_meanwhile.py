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
from callkeeper.archive.tables import holds, lines, people, terms
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
    return lambda *words: CliRunner(env=variables).invoke(main, ["archive", *words])


ERASE = ("erase", "--institution", OURS, "--person", "p-3", "--operator", "dpo", "--reason", "request 12")


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
