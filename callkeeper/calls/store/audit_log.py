"""The audit log: who logged in, looked at personal data, made a statement or changed something. An append-only stream.

An entry holds ids and fixed words: no names, no numbers, no typed text. What somebody searched for is kept as a keyed
hash, so that equal searches can be told and none can be read. Statements about a call are in its trail.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from io import StringIO
from typing import Final

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.quantity import quantity
from callkeeper.calls.spreadsheet import SpreadsheetWriter
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys

KEPT: Final = timedelta(days=400)
"""How long entries are kept. Older ones are trimmed when new ones are written.

With an archive they are trimmed only after they were archived, unless no worker has archived any for as long.
"""

_AT_ONCE: Final = 500
_CHECK_KEPT_S: Final = 60


class AuditEvent(StrEnum):
    """What is logged."""

    LOGIN = "login"
    LOGIN_FAILED = "login_failed"
    EMERGENCY_LOGIN = "emergency_login"
    LOGOUT = "logout"
    DENIED = "denied"
    VIEWED = "viewed"
    SEARCHED = "searched"
    SAID = "said"
    PAUSED = "paused"
    RESUMED = "resumed"
    RESOLVED = "resolved"
    REDELIVERED = "redelivered"
    LISTED_QUEUE = "listed_queue"
    ACKNOWLEDGED = "acknowledged"
    RETRIED = "retried"
    JOB_CHANGED = "job_changed"  # by commands of releases up to 0.4
    USER_CHANGED = "user_changed"
    TOKEN_CHANGED = "token_changed"  # noqa: S105  (the name of an event)
    EXPORTED = "exported"
    ARCHIVE_HEAD = "archive_head"
    ARCHIVE_CHANGED = "archive_changed"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry.

    ``who``: ``ann``, ``oidc:...``, ``token:desktop``, ``shared:ops``, ``command``; empty if unknown. ``operator``: the
    core username that was acted under. ``detail``: which action, page, account or job. ``status``: the HTTP status of
    the answer; 0 if there was no request.

    ``asked``: the filters of a list or search, such as ``phase=settled q:0f3a6d1c``; after ``:`` is a hash. For a command
    on the archive: the number of the chain's line about it, ``line=13``. ``results``: how many there were; None if that
    is not counted. ``count``: how many equal requests followed an earlier entry, which this one stands for. ``origin``:
    the system's user and the host of a command; the address that a login, a failed one or a refused request came from.
    """

    event: AuditEvent
    who: str = ""
    operator: str = ""
    institution: str = ""
    voice_id: str = ""
    detail: str = ""
    status: int = 0
    asked: str = ""
    results: int | None = None
    count: int = 0
    origin: str = ""

    @property
    def words(self) -> str:
        """Describe in words what was done, without who and where."""
        results = None if self.results is None else quantity(self.results, "result")
        repeated = {0: "", 1: "once more"}.get(self.count, f"{self.count} times more")
        return "; ".join(part for part in (self.detail, self.asked, results, repeated, self.origin) if part)


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with its id in the stream and its time."""

    id: str
    at: datetime
    entry: AuditEntry

    @property
    def place(self) -> tuple[int, ...]:
        return tuple(map(int, self.id.split("-")))


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are wanted. ``institutions`` are what a reader may see; None: all, and entries of none."""

    event: AuditEvent | None = None
    who: str | None = None
    institution: str | None = None
    voice_id: str | None = None
    since: datetime | None = None
    institutions: frozenset[str] | None = None

    @property
    def since_ms(self) -> int:
        """Return the beginning in ms since the epoch, before which nothing is logged."""
        return 0 if self.since is None else max(0, int(self.since.timestamp() * 1000))

    def matches(self, audited: Audited) -> bool:
        entry = audited.entry
        return (
            self.event in {None, entry.event}
            and self.who in {None, entry.who, entry.operator}
            and self.institution in {None, entry.institution}
            and self.voice_id in {None, entry.voice_id}
            and (self.institutions is None or entry.institution in self.institutions)
        )


class AuditLog:
    """Writes and reads the log."""

    def __init__(self, redis: Redis, *, keys: Keys) -> None:
        self._redis = in_bytes(redis)
        self._key = keys.audit
        self._archived_key = keys.audit_archived
        self._writable_key = keys.writable
        self._standings_key = keys.standings

    async def write(self, entry: AuditEntry) -> None:
        """Append an entry."""
        fields = {name: str(value) for name, value in msgspec.to_builtins(entry).items()}
        now, archived = await self._redis.pipeline(transaction=False).time().get(self._archived_key).execute()
        oldest_ms = int((now[0] - KEPT.total_seconds()) * 1000)  # the stream's clock: ours may be days ahead
        if archived is not None:
            oldest_ms = min(oldest_ms, int(archived.partition(b"-")[0]))
        await self._redis.xadd(self._key, fields, minid=oldest_ms, approximate=True)

    async def is_listed(self, institution_key: str) -> bool:
        """Tell whether the service has named an institution of this key.

        Raises:
            redis.exceptions.RedisError: Redis is down.
        """
        return bool(await self._redis.hexists(self._standings_key, institution_key))

    async def check(self) -> None:
        """Tell whether an entry could be written now."""
        await self._redis.set(self._writable_key, 1, ex=_CHECK_KEPT_S)

    async def read(self, wanted: AuditFilter, *, most: int) -> list[Audited]:
        """Return the newest wanted entries, newest first."""
        found: list[Audited] = []
        async for audited in self._all(wanted.since_ms):
            if wanted.matches(audited):
                found.append(audited)
                if len(found) >= most:
                    break
        return found

    async def begins_at(self) -> datetime | None:
        """Return when the oldest entry was written; None if there is none."""
        oldest = await self._redis.xrange(self._key, "-", "+", count=1)
        return _audited(oldest[0][0].decode(), oldest[0][1]).at if oldest else None

    async def held(self, ids: Sequence[str]) -> set[str]:
        """Return those of some ids that Redis still has an entry of."""
        found: set[str] = set()
        for begin in range(0, len(ids), _AT_ONCE):
            some = ids[begin : begin + _AT_ONCE]
            pipe = self._redis.pipeline(transaction=False)
            for each in some:
                pipe.xrange(self._key, each, each)
            found.update(each for each, stored in zip(some, await pipe.execute(), strict=True) if stored)
        return found

    async def unarchived(self, *, most: int) -> list[Audited]:
        """Return the oldest entries that were not archived."""
        archived = await self._redis.get(self._archived_key)
        begin = "-" if archived is None else f"({archived.decode()}"
        entries = await self._redis.xrange(self._key, begin, "+", count=most)
        return [_audited(stored_id.decode(), fields) for stored_id, fields in entries]

    async def archived(self, last: Audited) -> None:
        """Note that all entries up to this one are in the archive."""
        await self._redis.set(self._archived_key, last.id, ex=KEPT)

    async def _all(self, since_ms: int) -> AsyncIterator[Audited]:
        newest, oldest = "+", str(since_ms)
        while entries := await self._redis.xrevrange(self._key, newest, oldest, count=_AT_ONCE):
            for stored_id, fields in entries:
                yield _audited(stored_id.decode(), fields)
            newest = f"({entries[-1][0].decode()}"


def csv_of(found: Sequence[Audited]) -> str:
    """Return entries as CSV."""
    lines = StringIO()
    writer = SpreadsheetWriter(lines, line_end="\n")
    names = [field.name for field in msgspec.structs.fields(AuditEntry)]
    writer.row(["id", "at", *names])
    for audited in found:
        writer.row([audited.id, audited.at.isoformat(), *(getattr(audited.entry, name) for name in names)])
    return lines.getvalue()


def _audited(stored_id: str, fields: Mapping[bytes, bytes]) -> Audited:
    texts = {name.decode(): value.decode() for name, value in fields.items()}
    at = datetime.fromtimestamp(int(stored_id.partition("-")[0]) / 1000, UTC)
    return Audited(id=stored_id, at=at, entry=msgspec.convert(texts, AuditEntry, strict=False))
