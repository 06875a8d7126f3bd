"""``callkeeper archive`` at the command line: a mistyped institution."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from archive.keeping import Keeper
from callkeeper.cli import main
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
    database = sqlite_archive(tmp_path)
    keeper = Keeper(database, "legal")
    assert keeper.hold("cu-1", "person", "m-9", "case 1")
    settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db", "REDIS_URL": redis_url}
    result = CliRunner(env=settings).invoke(main, ["archive", *arguments, "--institution", "cu1"])
    assert result.exit_code == 2, result.output
    assert "did you mean cu-1?" in result.output
    assert keeper.institutions() == ["cu-1"]


def test_known_institution_is_accepted(tmp_path: Path, redis_url: str) -> None:
    """A hold and an erasure at an institution with a chain are carried out."""
    database = sqlite_archive(tmp_path)
    assert Keeper(database, "legal").hold("cu-1", "person", "m-9", "case 1")
    settings = {"CALLKEEPER_ARCHIVE_URL": f"sqlite:///{tmp_path}/archive.db", "REDIS_URL": redis_url}
    for command in ("hold", "erase"):
        arguments = ["archive", command, "--institution", "cu-1", "--person", "m-1", *WHO_AND_WHY]
        assert CliRunner(env=settings).invoke(main, arguments).exit_code == 0
