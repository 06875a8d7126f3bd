"""What ``callkeeper archive`` and the doctor say about a mistyped institution and a database that cannot be used."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from redis.asyncio import Redis

from archive.keeping import Keeper
from callkeeper.cli import main
from callkeeper.doctor.archive_findings import archive_findings
from callkeeper.settings import ArchiveSettings
from calls.store.keys import Keys
from tests.archivist import sqlite_archive

WHO_AND_WHY = ("--operator", "dpo", "--reason", "request 1")


@pytest.mark.parametrize(
    "arguments",
    [
        ("erase", "--person", "m-1", *WHO_AND_WHY),
        ("hold", "--person", "m-1", *WHO_AND_WHY),
        ("verify",),
        ("export",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_mistyped_institution_is_refused(arguments: tuple[str, ...], tmp_path: Path, redis_url: str) -> None:
    """It exits with 2, names the institution that was probably meant, and begins no chain for the mistyped one."""
    with sqlite_archive(tmp_path) as database:
        keeper = Keeper(database, "legal")
        assert keeper.hold("cu-1", "person", "m-9", "case 1")
        settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db", "REDIS_URL": redis_url}
        result = CliRunner(env=settings).invoke(main, ["archive", *arguments, "--institution", "cu1"])
        assert result.exit_code == 2, result.output
        assert "did you mean cu-1?" in result.output
        assert keeper.institutions() == ["cu-1"]


def test_known_institution_is_accepted(tmp_path: Path, redis_url: str) -> None:
    """A hold and an erasure at an institution with a chain are carried out."""
    with sqlite_archive(tmp_path) as database:
        assert Keeper(database, "legal").hold("cu-1", "person", "m-9", "case 1")
    settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db", "REDIS_URL": redis_url}
    for command in ("hold", "erase"):
        arguments = ["archive", command, "--institution", "cu-1", "--person", "m-1", *WHO_AND_WHY]
        assert CliRunner(env=settings).invoke(main, arguments).exit_code == 0


@pytest.mark.parametrize("command", ["verify", "export"])
def test_database_that_does_not_answer_is_named_with_the_remedy(command: str) -> None:
    """The error names the setting to look at, and which role is needed."""
    settings = {"CALLKEEPER_ARCHIVE_URL": "postgresql://callkeeper@127.0.0.1:1/archive", "REDIS_URL": ""}
    result = CliRunner(env=settings).invoke(main, ["archive", command])
    assert result.exit_code == 1
    assert "check CALLKEEPER_ARCHIVE_URL and the server; only the owner of the tables may change them" in result.output


async def test_doctor_tells_an_empty_database_from_an_old_one(tmp_path: Path, redis: "Redis") -> None:
    """Before the first migration the doctor says that there are no tables, and not that they have version None."""
    settings = ArchiveSettings.load({"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/empty.db", "REDIS_URL": ""})
    found = await archive_findings(redis, Keys(), settings, may_migrate=False)
    assert found[0].detail == "the database has no tables yet"
