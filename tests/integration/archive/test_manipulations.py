"""The verification names every change that the owner of the archive's database can make before the last logged head."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from sqlalchemy import Connection, Table, delete, select, update

from callkeeper.archive.about_the_archive import Commands
from callkeeper.archive.chain_heads import parse_heads, signed_head
from callkeeper.archive.database import Database
from callkeeper.archive.errors import ArchiveAway, ValueRefused
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import ERASED, HELD, RELEASED, RETIRED
from callkeeper.archive.tables import holds, lines
from callkeeper.archive.verifying import Evidence, Tail, verify
from callkeeper.archive.writing import Head, Writer
from callkeeper.service.secret import Secret
from tests.archive_manipulations import (
    AFTER_RETENTION,
    HOUR_MS,
    KEY,
    MANIPULATIONS,
    OURS,
    T0,
    TABLES,
    THEIRS,
    YEAR_MS,
    Archivists,
    Manipulation,
    appended,
    change_body,
    filled,
    rechain,
    retired,
    verified,
)
from tests.harness.archivist import content, sqlite_archive


@pytest.mark.parametrize("fill", [filled, retired])
def test_untouched_archive_has_no_fault(database: Database, fill: Callable[[Database], list[bytes]]) -> None:
    """What workers and commands do is no fault, and all of it is proved."""
    found, heads = verified(database, fill(database), YEAR_MS)
    assert (found.faults, heads.faults, heads.unsigned) == ([], [], 0)
    assert (found.tails[OURS].lines, found.tails[THEIRS].lines) == (0, 0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[bytes]]]:
    """Return the files of both archives, and the logs of their heads, by the name of what fills them."""
    found = {}
    for fill in (filled, retired):
        folder = tmp_path_factory.mktemp(fill.__name__)
        with sqlite_archive(folder) as database:
            found[fill.__name__] = (folder / "archive.db", fill(database))
    return found


@pytest.mark.parametrize(
    ("fill", "name", "manipulation"),
    [
        *(pytest.param("filled", name, each, id=name) for name, each in MANIPULATIONS.items()),
        *(pytest.param("retired", name, each, id=f"{name} (retired)") for name, each in AFTER_RETENTION.items()),
    ],
)
def test_manipulation_is_named(
    tmp_path: Path, kept: dict[str, tuple[Path, list[bytes]]], fill: str, name: str, manipulation: Manipulation
) -> None:
    """Each is a fault with the right words, whatever hashes the owner computes anew."""
    file, log = kept[fill]
    shutil.copy(file, tmp_path / "archive.db")
    with Database(f"sqlite:///{tmp_path}/archive.db") as database:
        with database.writing() as connection:
            manipulation.change(connection)
        faults = [str(fault) for fault in verified(database, log, YEAR_MS)[0].faults]
        assert any(manipulation.named in fault for fault in faults), faults


class Plan(NamedTuple):
    """One value of a row that is changed, or a row that is deleted (no column); ``again``: with every hash anew."""

    fill: str
    table: Table
    where: tuple[Any, ...]
    column: str | None
    value: object
    again: bool

    def __str__(self) -> str:
        what = "deleted" if self.column is None else f"{self.column} := {self.value!r:.20}"
        return f"{self.fill} {self.table.name} {what}{', rechained' if self.again else ''}"

    def carry_out(self, connection: Connection) -> None:
        """Change the value, or delete the row."""
        change = delete(self.table) if self.column is None else update(self.table).values({self.column: self.value})
        connection.execute(change.where(*self.where))
        for key in (OURS, THEIRS) if self.again else ():
            with suppress(Exception):  # what cannot be a line has no hash
                rechain(connection, key)


def _others(value: object) -> list[object]:
    """Return what may stand in place of a value: another one of its kind, none, and what is no text and no number."""
    match value:
        case None:
            return ["x", b"\xff"]
        case int():
            return [value + 1, None, "yesterday", b"\xff"]
        case _:
            text = str(value)
            return [text[:-1] + ("1" if text[-1:] == "0" else "0"), None, b"\xff"]


def _plans(database: Database, fill: str) -> Iterator[Plan]:
    with database.reading() as connection:
        for table in TABLES:
            for row in connection.execute(select(table)).all():
                where = tuple(column == row._mapping[column.name] for column in table.primary_key.columns)
                for again in (False, True) if table is lines else (False,):
                    yield Plan(fill, table, where, None, None, again)
                    for column in table.columns:
                        for value in _others(row._mapping[column.name]):
                            yield Plan(fill, table, where, column.name, value, again)


@pytest.mark.parametrize("most", [40, pytest.param(2000, marks=[pytest.mark.night, pytest.mark.timeout(3600)])])
def test_any_other_value_and_any_row_that_is_missing_is_named(
    tmp_path: Path, kept: dict[str, tuple[Path, list[bytes]]], most: int
) -> None:
    """Change any value of any row of any table, or delete the row, also with every hash computed anew."""
    plans = []
    for fill, (file, _) in kept.items():
        with Database(f"sqlite:///{file}") as database:
            plans += list(_plans(database, fill))
    assert len(plans) > 4000
    unnamed, tried = [], 0
    for plan in random.Random(1).sample(plans, len(plans)):  # noqa: S311  (an order)
        file, log = kept[plan.fill]
        shutil.copy(file, tmp_path / "archive.db")
        with Database(f"sqlite:///{tmp_path}/archive.db") as database:
            try:
                with database.writing() as connection:
                    plan.carry_out(connection)
            except (ArchiveAway, ValueRefused):
                continue  # the database refuses it
            tried += 1
            found, heads = verified(database, log, YEAR_MS)
            if not found.faults and not heads.faults:
                unnamed.append(str(plan))
        if tried == most:
            break
    assert unnamed == []


_STEPS: dict[str, tuple[str, Callable[[Keeper], object]]] = {
    "hold": ("hold", lambda keeper: keeper.hold(OURS, "person", "p-3", "a case")),
    "erase": ("erase", lambda keeper: keeper.erase(OURS, person_id="p-4", reason="asked for")),
    "erase a name": ("erase", lambda keeper: keeper.erase(OURS, person_id="p-other", reason="asked for")),
    "retire": ("retire", lambda keeper: keeper.retire(OURS, T0 - YEAR_MS)),
    "hold a call": ("hold", lambda keeper: keeper.hold(OURS, "call", "v-6", "a case")),
    "release": ("release", lambda keeper: keeper.hold(OURS, "person", "p-3", "it is over", release=True)),
}


def _carry_out(database: Database, order: Sequence[str]) -> list[str]:
    """Carry out commands while calls are archived, and at last retention. Return the faults."""
    archive = Archivists(database, T0 - 3 * YEAR_MS)
    archive.audit(event="login")
    archive.at_ms += HOUR_MS
    archive.write(OURS, *(content(n) for n in range(1, 6)))
    archive.log_heads()
    archive.at_ms = T0
    archive.write(OURS, content(4, lines=4), content(6), content(7))
    for step in order:
        archive.command(OURS, *_STEPS[step])
        archive.write(OURS, content(4, lines=5), content(20 + len(archive.log)))
        archive.log_heads()
    archive.command(OURS, *_STEPS["retire"])
    archive.write(OURS, content(4, lines=6))
    archive.at_ms += HOUR_MS
    archive.audit(event="login")
    archive.log_heads()
    found, heads = verified(database, archive.log, YEAR_MS)
    Keeper(database, "cron", now_ms=archive.at_ms).retire(OURS, T0 + 1)
    return [*map(str, found.faults), *heads.faults, *map(str, verify(database).faults)]


def _orders() -> Iterator[object]:
    """Yield every order of three steps with a retirement; for every change those in which each stands on both sides."""
    others = [step for step in _STEPS if step != "retire"]
    around = {(before, "retire", after) for before, after in zip(others, [*others[1:], others[0]], strict=True)}
    for order in permutations(_STEPS, 3):
        if "retire" in order:
            yield pytest.param(order, id=", ".join(order), marks=() if order in around else pytest.mark.night)


@pytest.mark.parametrize("order", list(_orders()))
def test_commands_in_every_order_are_no_fault(database: Database, order: Sequence[str]) -> None:
    """Erasures, holds, releases and retirements explain what they did, and so does a last retirement of everything."""
    assert _carry_out(database, order) == []


def test_changed_line_about_the_archive_is_not_deleted_by_retention(database: Database) -> None:
    """Retention would remove the proof: the chain begins at the line that somebody changed, and it stays named."""
    log = retired(database)
    with database.writing() as connection:
        connection.execute(update(lines).where(lines.c.n == 4, lines.c.kind == HELD).values(body="{}"))
        connection.execute(delete(holds).where(holds.c.institution_key == THEIRS))
    Keeper(database, "cron", now_ms=T0 + HOUR_MS).retire(THEIRS, T0 + 1)
    assert any("cannot be read" in fault.what for fault in verified(database, log)[0].faults)


def test_retirement_of_an_earlier_release_is_no_fault(database: Database) -> None:
    """Release 0.2.0 deleted lines about holds and erasures without repeating them; the next retirement does."""
    log = retired(database)
    with database.writing() as connection:
        for key in (OURS, THEIRS):
            here = (lines.c.institution_key == key) & (lines.c.kind == "retired")
            told = msgspec.json.decode(connection.execute(select(lines.c.body).where(here)).scalar_one())
            bare = {name: told[name] for name in ("base_n", "base_hash", "until_n", "before_ms")}
            connection.execute(update(lines).where(here).values(body=msgspec.json.encode(bare).decode()))
            rechain(connection, key, told["base_n"] + 1)
    assert verify(database).faults == []
    Keeper(database, "cron", now_ms=T0 + HOUR_MS).retire(OURS, T0 + 1)
    assert verify(database).faults == []
    with database.writing() as connection:
        connection.execute(delete(holds))
    assert "a legal hold of a person was removed" in str(verify(database, institution_key=OURS).faults[0])
    assert log


def test_bodies_that_an_erasure_changed_cannot_be_checked_without_the_key(database: Database) -> None:
    """The verification says how many there are. With another key it names them."""
    filled(database)
    assert (verify(database).faults, verify(database).unchecked) == ([], 1)
    other = Evidence(keys=[Secret("another-key-of-nobody")])
    assert ["the key did not sign that" in fault.what for fault in verify(database, evidence=other).faults] == [True]


def test_key_that_signed_before_a_rotation_still_proves(database: Database) -> None:
    """Of heads and of erased notes: the new key alone proves neither, both keys prove all."""
    log, new = filled(database), Secret("the-key-after-the-rotation")
    assert parse_heads(log, [new]).hashes == {}
    assert parse_heads(log, [new, KEY]).hashes == parse_heads(log, [KEY]).hashes != {}
    assert verify(database, evidence=Evidence(keys=[new, KEY])).faults == []


def test_retirement_is_a_fault_where_everything_is_kept(database: Database) -> None:
    """Without CALLKEEPER_ARCHIVE_KEEP no line is removed."""
    log = filled(database)
    with database.writing() as connection:
        MANIPULATIONS["a forged retirement says that young lines were old"].change(connection)
    assert any("keeps them for ever" in fault.what for fault in verified(database, log)[0].faults)


def test_head_that_is_signed_again_overrides_nothing(database: Database) -> None:
    """The newest line was changed, and a worker signed the new head: two hashes of one line are a fault."""
    log = filled(database)
    with database.writing() as connection:
        change_body(connection, 10)
        rechain(connection, OURS, 10)
    head = Writer(database).heads()[OURS]
    log.append(msgspec.json.encode({"event": "archive_head", **signed_head(OURS, head, KEY)}))
    found, heads = verified(database, log, YEAR_MS)
    assert heads.faults == [f"{OURS} line {head.n}: the log has two different hashes"]
    assert found.faults


def test_log_that_lacks_a_head_says_so() -> None:
    """Each head names the one before it. A log may begin anywhere."""
    heads = [Head(n, str(n) * 64) for n in range(1, 5)]
    told = [signed_head(OURS, head, KEY, before) for before, head in zip([None, *heads], heads, strict=False)]
    log = [msgspec.json.encode({"event": "archive_head", **each}) for each in told]
    whole, later = parse_heads(log, [KEY]), parse_heads(log[2:], [KEY])
    assert (whole.faults, later.faults) == ([], [])
    assert (whole.continued, later.continued) == (set(), {OURS}), "it says where the log begins later"
    assert parse_heads([log[0], *log[2:]], [KEY]).faults == [
        f"{OURS} line 3: the log lacks the head before it, of line 2"
    ]


@pytest.mark.parametrize(
    "wrapped",
    [
        "{}",
        '{{app="callkeeper", pod="w-1"}} {}',
        "worker[1]{{pid=7}}: {}",
        '{{"stream": "stderr"}} 2026-11-26 {}',
        "{} (worker 1) }}",
        "2026-11-26T04:00:00Z stderr F {}\n",
        "docker",
    ],
)
def test_head_is_found_whatever_stands_around_it(wrapped: str) -> None:
    """Labels in braces, words before and after it, and Docker's own JSON around the line."""
    line = msgspec.json.encode({"event": "archive_head", **signed_head(OURS, Head(2, "b" * 64), KEY)}).decode()
    docker = msgspec.json.encode({"log": f"{line}\n", "stream": "stderr"}).decode()
    log = parse_heads([(docker if wrapped == "docker" else wrapped.format(line)).encode()], [KEY])
    assert (log.hashes, log.unsigned, log.unreadable) == ({(OURS, 2): "b" * 64}, 0, 0)


HALF = b'{"event": "archive_head", "institution": "\\ud800", "n": 1, "hash": "a"}'


@pytest.mark.parametrize(
    "line", [b'{"event": "archive_head", "institution": "cu', b"archive_head", b"archive_head \xff {", HALF]
)
def test_head_that_cannot_be_read_is_counted(line: bytes) -> None:
    """Otherwise a log that was cut would prove less, and nobody would see it."""
    assert parse_heads([line, b"{}", b'{"event": "other", "of": "archive_head"}'], [KEY]).unreadable == 1


@pytest.mark.parametrize("field", ["n", "hash", "before_n", "before_hash", "at_ms", "institution"])
def test_signature_covers_all_that_a_head_says(field: str) -> None:
    """Nothing of a signed head can be changed, and the link cannot be left out."""
    told = signed_head(OURS, Head(2, "b" * 64), KEY, Head(1, "a" * 64), T0)
    forged = {**told, field: 7 if isinstance(told[field], int) else "c" * 64}
    bare = {name: value for name, value in told.items() if not name.startswith("before")}
    lines = [msgspec.json.encode({"event": "archive_head", **each}) for each in (forged, bare)]
    assert parse_heads(lines, [KEY]).unsigned == 2
    assert parse_heads(lines[:1], [Secret("another-key-of-nobody")]).unsigned == 1


def test_lines_after_the_last_logged_head_are_counted(database: Database) -> None:
    """What no head proves yet is told with its length."""
    log = filled(database)
    Writer(database, now_ms=lambda: T0 + 5).write(OURS, [content(11), content(12)])
    tail = verified(database, log, YEAR_MS)[0].tails[OURS]
    assert (tail.lines, tail.since_ms) == (2, T0 + 5)
    assert verify(database).tails[OURS] == Tail(14, T0), "without a log nothing is proved"


def test_heads_are_found_behind_what_a_platform_writes_before_a_line() -> None:
    """A log service puts the time and the process before each line."""
    line = msgspec.json.encode({"event": "archive_head", **signed_head(OURS, Head(1, "a" * 64), KEY)})
    assert parse_heads([b"2026-11-26T10:00:00+00:00 app[worker.1]: " + line, b"no json"], [KEY]).hashes == {
        (OURS, 1): "a" * 64
    }


FORGED: dict[str, tuple[str, dict[str, Any]]] = {
    "erase": (ERASED, {"lines": [3], "calls": {"v-3": ""}, "reason": "asked for"}),
    "hold": (HELD, {"kind": "person", "value": "p-3", "reason": "a case"}),
    "release": (RELEASED, {"kind": "person", "value": "p-1", "reason": "over"}),
    "retire": (
        RETIRED,
        {"base_n": 0, "base_hash": "0" * 64, "until_n": 2, "before_ms": T0 - 2 * YEAR_MS, "emptied": []},
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_line_about_the_archive_without_a_command_is_named(database: Database, what: str) -> None:
    """Promise 15: who takes values away and appends a line that permits it has to write into Redis's audit log, too."""
    filled(database)
    done = {(OURS, 11, "hold"), (OURS, 12, "erase"), (THEIRS, 5, "erase"), (THEIRS, 6, "erase")}
    evidence = Evidence(keys=[KEY], commands=Commands(done, T0 - 2 * HOUR_MS), now_ms=T0 + HOUR_MS)
    assert verify(database, evidence=evidence).faults == []
    kind, told = FORGED[what]
    with database.writing() as connection:
        appended(connection, kind, told)
    faults = [str(fault) for fault in verify(database, evidence=evidence).faults]
    assert f"{OURS} line 13: the audit log in Redis has no command `archive {what}` for it" in faults
