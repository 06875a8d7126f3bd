"""A rig whose settled calls are archived, and settled calls for tests without a rig."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from callkeeper.app.logs import flush_log
from callkeeper.archive.database import Database
from callkeeper.archive.lines import Content, content_of
from callkeeper.archive.migrating import migrate
from callkeeper.archive.writing import Writer
from callkeeper.calls.record import (
    Call,
    CallStatement,
    CallStatements,
    Candidate,
    Identity,
    Life,
    Names,
    Phase,
    Reason,
    Seen,
)
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.trail import Entry
from tests.harness.virtual_time import Rig
from tests.records import with_stored
from tests.sandbox_fixtures import Asgi
from workers.archive_delivery import ArchiveDeliveries

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
INSTITUTION = "cu-1"


@cache
def _empty_archive() -> bytes:
    """Return the file of an archive with all migrations, which take longer than most tests."""
    with TemporaryDirectory() as folder:
        with Database(f"sqlite:///{folder}/archive.db") as database:
            migrate(database)
        return Path(folder, "archive.db").read_bytes()


def sqlite_archive(folder: Path) -> Database:
    """Return the archive in a folder: a new one unless there is one."""
    file = folder / "archive.db"
    if not file.exists():
        file.write_bytes(_empty_archive())
    return Database(f"sqlite:///{file}")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Return an empty archive."""
    with sqlite_archive(tmp_path) as database:
        yield database


def settled(n: int = 1, *, lines: int = 2, **changes: Any) -> tuple[Call, tuple[Entry, ...]]:
    """Return a settled call with every kind of personal data that a call can have, and its trail."""
    at = START + timedelta(seconds=n)
    call = Call(
        institution_key=INSTITUTION,
        voice_id=f"v-{n}",
        names=Names(alternate_id=f"alt-{n}", phone_number=f"+1202555{n:04}"),
        life=Life(phase=Phase.SETTLED, reason=Reason.ENROLLED, started_at=at, settled_at=at + timedelta(seconds=60)),
        seen=Seen(
            person_id=f"p-{n}",
            candidates=(
                Candidate(person_id=f"p-{n}", name=f"Marion Vale{n}"),
                Candidate(person_id="p-other", name="Ned Roe"),
            ),
        ),
        statements=CallStatements(
            identity=Identity(
                person_id=f"p-{n}",
                validation_type="OneTimePasswordAuth",
                by_desk=True,
                established_at=at,
                remark="her dog",
            ),
            distrusted=CallStatement(operator="agent-7", said_at=at, reason="sounds odd"),
        ),
    )
    said = Entry(at=at, what="said", kind="distrusted", operator="agent-7", because="sounds odd")
    decided = Entry(at=at, what="decided", rule="distrusted", rules="d1gest", kind="reject", asked="reject")
    trail = (said, decided, *(Entry(at=at, what="settled", n=k) for k in range(lines - 2)))
    return with_stored(call, **changes), trail


def content(n: int = 1, **changes: Any) -> Content:
    """Return such a call as it is archived."""
    return content_of(*settled(n, **changes))


class Archivist(Rig):
    """A rig with an archive; ``archive()`` writes what is due."""

    def __init__(self, stage: Asgi, redis: Any, database: Database) -> None:
        super().__init__(stage, redis, archive=Keys().archive)
        self.database = database
        queue = ArchiveQueue(redis, Keys(), now_ms=self.now_ms)
        self.archiving = ArchiveDeliveries(
            queue, Writer(database), self.tools.log, flush_log, figures=self.figures, monotonic=self.clock.monotonic
        )

    async def archive(self) -> int:
        """Write calls that are due, and calls that were never written."""
        while await self.archiving.store.sweep():
            pass
        claimed = await self.archiving.claim()
        await self.archiving.settle()
        return claimed

    async def tick(self) -> int:
        """Move calls on, and archive what is due."""
        return await super().tick() + await self.archive()
