"""Opens the archive for reading, if there is one. Web and commands import SQLAlchemy only through this module."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, BinaryIO, Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from callkeeper.app.extras import require
from callkeeper.app.settings import ArchiveSettings
from callkeeper.app.terminal import Failed, Misused, terminal_console
from callkeeper.archive.errors import ArchiveAway, LineUnreadable
from callkeeper.calls.quantity import quantity
from callkeeper.calls.trail import Recorded, RecordingWrong, parse_recordings
from callkeeper.desk.archived_calls import ArchivedCalls

ARCHIVE_URL: Final = "CALLKEEPER_ARCHIVE_URL"
ARCHIVE_REMEDY: Final = f"check {ARCHIVE_URL} and the server; only the owner of the tables may change them"
NO_ARCHIVE: Final = f"there is no archive: {ARCHIVE_URL} is not set"


def is_archive_set() -> bool:
    """Tell whether the environment names an archive."""
    return bool(os.environ.get(ARCHIVE_URL, "").strip())


def archived_calls(settings: ArchiveSettings | None) -> ArchivedCalls | None:
    """Return the calls of the archive, or None without an archive. It does not connect yet."""
    if settings is None:
        return None
    require(ARCHIVE_URL, "archive")
    from callkeeper.archive.reading import ArchiveReader  # noqa: PLC0415  (SQLAlchemy is imported only with an archive)

    return ArchivedCalls(ArchiveReader(settings.open()))


@contextmanager
def archive_of_environment() -> Iterator[ArchivedCalls | None]:
    """Open the archive that the environment names, for a command; None if it names none.

    Raises:
        SettingsWrong: Its settings are wrong.
    """
    archive = archived_calls(ArchiveSettings.load(os.environ)) if is_archive_set() else None
    try:
        yield archive
    finally:
        if archive is not None:
            archive.close()


@contextmanager
def recorded_calls(
    exported: BinaryIO | None, since: timedelta | None = None, *, institution: str | None = None
) -> Iterator[Iterator[Recorded]]:
    """Read exported calls one after the other; without a file, those of the archive, and show the progress.

    Raises:
        Misused: There is no archive.
        Failed: Its database cannot be used, or a line of the file is not an exported call. Once the command has printed
            its result: lines of the archive were left out, because somebody has changed them.
    """
    if exported is not None:
        try:
            yield parse_recordings(exported)
        except RecordingWrong as error:
            raise Failed(f"{exported.name}: {error}") from None
        return
    since_ms = 0 if since is None else int((datetime.now(UTC) - since).timestamp() * 1000)
    unread: list[LineUnreadable] = []
    try:
        with archive_of_environment() as archive:
            if archive is None:
                raise Misused(NO_ARCHIVE)
            total = archive.reader.count(since_ms=since_ms, institution_key=institution)
            with progress("calls", total) as advance:
                yield archive.reader.stream(
                    since_ms=since_ms, institution_key=institution, progress=advance, unreadable=unread.append
                )
    except ArchiveAway as away:
        raise archive_failed(away) from None
    if unread:
        click.get_current_context().call_on_close(partial(_report_left_out, unread))


def _report_left_out(unread: Sequence[LineUnreadable]) -> None:
    """Let a command fail that has printed its result. If it fails for another reason, print this one too."""
    left_out = f"{quantity(len(unread), 'archived call')} left out"
    failed = Failed(f"{left_out}: {unread[0]}; `callkeeper archive verify` says what was changed")
    if sys.exception() is None:
        raise failed
    failed.show()


def archive_failed(error: Exception) -> Failed:
    """Return the failure of a command whose archive cannot be used."""
    return Failed(f"the archive's database cannot be used: {error}; {ARCHIVE_REMEDY}")


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], Any]]:
    """Show progress on standard error, if that is a terminal."""
    console = terminal_console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)
