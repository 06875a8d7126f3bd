"""What ``callkeeper archive`` and the doctor say about a mistyped institution and a database that cannot be used."""

import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from redis.asyncio import Redis
from sqlalchemy import text

from callkeeper.app.cli import main
from callkeeper.app.doctor.archive_findings import archive_findings
from callkeeper.app.settings import ArchiveSettings
from callkeeper.archive.chain_heads import signed_head
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.writing import Head, Writer
from callkeeper.calls.store.keys import Keys
from callkeeper.service.secret import Secret
from tests.harness.archivist import content, sqlite_archive

WHO_AND_WHY = ("--operator", "dpo", "--reason", "request 1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("calls", "erase", "--person", "m-1", *WHO_AND_WHY),
        ("archive", "hold", "--person", "m-1", *WHO_AND_WHY),
        ("archive", "verify"),
        ("calls", "export", "--archive"),
    ],
    ids=lambda arguments: arguments[1],
)
def test_mistyped_institution_is_refused(arguments: tuple[str, ...], tmp_path: Path, redis_url: str) -> None:
    """It exits with 1, names the institution that was probably meant, and begins no chain for the mistyped one."""
    with sqlite_archive(tmp_path) as database:
        keeper = Keeper(database, "legal")
        assert keeper.hold("cu-1", "person", "m-9", "case 1")
        settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db", "REDIS_URL": redis_url}
        result = CliRunner(env=settings).invoke(main, [*arguments, "--institution", "cu1"])
        assert result.exit_code == 1, result.output
        assert "did you mean cu-1?" in result.output
        assert keeper.institutions() == ["cu-1"]


def test_known_institution_is_accepted(tmp_path: Path, redis_url: str) -> None:
    """A hold and an erasure at an institution with a chain are carried out."""
    with sqlite_archive(tmp_path) as database:
        assert Keeper(database, "legal").hold("cu-1", "person", "m-9", "case 1")
    settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db", "REDIS_URL": redis_url}
    for command in (("archive", "hold"), ("calls", "erase")):
        arguments = [*command, "--institution", "cu-1", "--person", "m-1", *WHO_AND_WHY]
        assert CliRunner(env=settings).invoke(main, arguments).exit_code == 0


@pytest.mark.parametrize("command", [("archive", "verify"), ("calls", "export", "--archive")])
def test_database_that_does_not_answer_is_named_with_the_remedy(command: tuple[str, ...]) -> None:
    """The error names the setting to look at, and which role is needed."""
    settings = {"CALLKEEPER_ARCHIVE_URL": "postgresql://callkeeper@127.0.0.1:1/archive", "REDIS_URL": ""}
    result = CliRunner(env=settings).invoke(main, command)
    assert result.exit_code == 1
    assert "check CALLKEEPER_ARCHIVE_URL and the server; only the owner of the tables may change them" in result.output


async def test_doctor_tells_an_empty_database_from_an_old_one(tmp_path: Path, redis: Redis) -> None:
    """Before the first migration the doctor says that there are no tables, and not that they have version None."""
    settings = ArchiveSettings.load({"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/empty.db", "REDIS_URL": ""})
    found = await archive_findings(redis, Keys(), settings, may_migrate=False)
    assert found[0].detail == "the database has no tables yet"


def test_verify_says_how_much_is_not_proved(tmp_path: Path) -> None:
    """How many lines no logged head proves, and how old the oldest of them is."""
    with sqlite_archive(tmp_path) as database:
        old_ms = time.time_ns() // 1_000_000 - 7 * 60_000
        Writer(database, now_ms=lambda: old_ms).write("cu-1", [content(1)])
        head = signed_head("cu-1", Writer(database).heads()["cu-1"], None)
        Writer(database, now_ms=lambda: old_ms).write("cu-1", [content(2), content(3)])
    (tmp_path / "log").write_bytes(msgspec.json.encode({"event": "archive_head", **head}))
    runner = CliRunner(env={"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db"})
    proved = runner.invoke(main, ["archive", "verify", "--heads", f"{tmp_path}/log"])
    assert (proved.exit_code, "2 lines are not proved by a logged head, the oldest is 7 min old." in proved.output) == (
        0,
        True,
    )
    assert "3 lines are not proved by a logged head" in runner.invoke(main, ["archive", "verify"]).output


def test_verify_says_that_the_log_begins_later(tmp_path: Path) -> None:
    """A log may have been rotated, or somebody took its beginning away: whoever reads it has to know which."""
    with sqlite_archive(tmp_path) as database:
        Writer(database, now_ms=lambda: 1).write("cu-1", [content(1), content(2)])
        head = signed_head("cu-1", Writer(database).heads()["cu-1"], None, Head(1, "a" * 64))
    (tmp_path / "worker.log").write_bytes(msgspec.json.encode({"event": "archive_head", **head}))
    settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db"}
    result = CliRunner(env=settings).invoke(main, ["archive", "verify", "--heads", str(tmp_path / "worker.log")])
    assert result.exit_code == 0, result.output
    assert "The log begins later than 1 chain: earlier heads are not in it." in result.output


def test_verify_takes_the_keys_of_before_a_rotation(tmp_path: Path) -> None:
    """From a file, because arguments and settings are seen by more people."""
    with sqlite_archive(tmp_path) as database:
        Writer(database).write("cu-1", [content(1)])
        head = Writer(database).heads()["cu-1"]
    key, log = Secret("3JkP-vQ8s_w2LmXz9Tb7"), tmp_path / "log"
    signed = signed_head("cu-1", head, key, at_ms=time.time_ns() // 1_000_000)
    log.write_bytes(msgspec.json.encode({"event": "archive_head", **signed}))
    (tmp_path / "keys").write_text(f"\n{key.reveal()}\n")
    environ = {
        "CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db",
        "CALLKEEPER_ARCHIVE_KEY": "Zq7Rt2-Wm9Xc4_Vb6Nh1-4c07a65e93d2",
    }
    command = ["archive", "verify", "--heads", str(log)]
    alone = CliRunner(env=environ).invoke(main, command)
    assert (alone.exit_code, "1 logged head is not signed with the key" in alone.output) == (1, True), alone.output
    both = CliRunner(env=environ).invoke(main, [*command, "--former-keys", str(tmp_path / "keys")])
    assert (both.exit_code, "Nothing was changed" in both.output) == (0, True), both.output


def test_verify_of_an_empty_archive_claims_no_proof(tmp_path: Path) -> None:
    """Without a line nothing is proved; one line is not "lines"."""
    runner = CliRunner(env={"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db"})
    with sqlite_archive(tmp_path) as database:
        assert "There is no line to prove." in runner.invoke(main, ["archive", "verify"]).output
        Writer(database).write("cu-1", [content(1)])
    assert "1 line is not proved by a logged head" in runner.invoke(main, ["archive", "verify"]).output


def test_verify_names_lines_that_it_could_not_read_and_faults_that_it_does_not_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head that cannot be read could be the one that differs; and nobody takes the first faults for all."""
    monkeypatch.setattr("callkeeper.archive.verifying.MOST_FAULTS", 2)
    with sqlite_archive(tmp_path) as database:
        Writer(database).write("cu-1", [content(n) for n in range(1, 6)])
    log = tmp_path / "log"
    log.write_bytes(b'{"event": "archive_head", "institution": "cu\nnothing\n')
    runner = CliRunner(env={"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db"})
    result = runner.invoke(main, ["archive", "verify", "--heads", str(log)])
    assert (
        result.exit_code,
        "1 line of the log could not be read as JSON: it must be" in result.output,
    ) == (1, True)
    with sqlite_archive(tmp_path) as database, database.writing() as connection:
        connection.execute(text("UPDATE archive_lines SET body = 'x'"))
    result = runner.invoke(main, ["archive", "verify"])
    assert result.output.count("cu-1 line") == 2
    assert "and 8 more" in result.output


@pytest.mark.parametrize("value", ["x'ff'", "CAST(x'ff' AS TEXT)", "'x'"])
@pytest.mark.parametrize("column", ["institution_key", "n", "kind", "at_ms", "voice_id", "body", "commitments", "hash"])
def test_value_that_cannot_be_read_is_a_named_fault(tmp_path: Path, column: str, value: str) -> None:
    """The command ends with 1 and names it; it never ends in a traceback."""
    with sqlite_archive(tmp_path) as database:
        Writer(database).write("cu-1", [content(1), content(2)])
        with database.writing() as connection:
            connection.execute(text(f"UPDATE archive_lines SET {column} = {value} WHERE n = 2"))  # noqa: S608
    settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db"}
    result = CliRunner(env=settings).invoke(main, ["archive", "verify"])
    assert (result.exit_code, "line " in result.output) == (1, True), result.output
    assert isinstance(result.exception, SystemExit)


def test_commands_name_their_lines_in_the_audit_log(tmp_path: Path, redis_url: str) -> None:
    """Each line that a command writes is in the audit log, with its number, so that nobody can write another one.

    An erasure that finds nothing writes none, and says so.
    """
    with sqlite_archive(tmp_path) as database:
        Writer(database, now_ms=lambda: 1).write("cu-1", [content(n) for n in range(1, 4)])
    settings = {
        "CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db",
        "CALLKEEPER_ARCHIVE_KEEP": "1y",
        "REDIS_URL": redis_url,
    }
    runner = CliRunner(env=settings)
    person = ["--institution", "cu-1", "--person", "p-1", *WHO_AND_WHY]
    for command in (
        ["archive", "hold", *person],
        ["archive", "hold", *person, "--release"],
        ["calls", "erase", *person],
        ["archive", "retire", "--operator", "x"],
        ["calls", "erase", "--institution", "cu-1", "--person", "nobody", *WHO_AND_WHY],
    ):
        assert runner.invoke(main, command).exit_code == 0
    told = runner.invoke(main, ["audit", "--event", "archive_changed", "--json"]).output
    entries = [msgspec.json.decode(line)["entry"] for line in told.splitlines()]
    assert sorted((entry["detail"], entry["asked"]) for entry in entries) == [
        ("erase: request 1", "line=0"),
        ("erase: request 1", "line=6"),
        ("hold: request 1", "line=4"),
        ("release: request 1", "line=5"),
        ("retire: older than CALLKEEPER_ARCHIVE_KEEP", "line=7"),
    ]
