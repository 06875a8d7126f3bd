"""Compares the archive with Redis after a chaos run, and finds entries that are missing, doubled or changed."""

import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import select

from callkeeper.archive.database import Database
from callkeeper.archive.lines import AUDIT, CALL, trail_of
from callkeeper.archive.tables import lines
from callkeeper.archive.verifying import verify
from callkeeper.calls.item_names import parse_member
from callkeeper.calls.store.keys import Keys
from tests.postgresql import PostgreSql


def is_archived(redis: Any) -> bool:
    """Tell whether everything has been archived. A call that has a note is archived again once that is read."""
    newest = [entry_id for entry_id, _ in redis.xrevrange(Keys().audit, count=1)]
    is_noted = any(redis.scan_iter(match=Keys().inbox("c:*"), count=1000))
    return not (is_noted or redis.zcard(Keys().archive.due)) and newest in ([], [redis.get(Keys().audit_archived)])


def archive_faults(redis: Any, server: PostgreSql) -> Iterator[str]:
    """Yield one text for each settled call or audit entry that is missing, doubled or different in the archive."""
    keys, database = Keys(), Database(server.url)
    yield from (f"archive: {fault}" for fault in verify(database).faults)
    with database.reading() as connection:
        asked = select(lines.c.institution_key, lines.c.voice_id, lines.c.version, lines.c.body).order_by(lines.c.n)
        stored = list(connection.execute(asked.where(lines.c.kind == CALL)))
        entries = set(connection.execute(select(lines.c.voice_id).where(lines.c.kind == AUDIT)).scalars())
    database.close()
    newest = {(row.institution_key, row.voice_id): trail_of(row.body) for row in stored}
    trails = Counter((row.institution_key, row.voice_id, msgspec.json.encode(trail_of(row.body))) for row in stored)
    yield from (f"archive: {call[1]} is there {count} times" for call, count in trails.items() if count > 1)
    for entry_id, _ in redis.xrange(keys.audit):
        if entry_id.decode() not in entries:
            yield f"archive: entry {entry_id.decode()} of the audit log is missing"
    for member in redis.zrange(keys.settled, 0, -1):
        if not redis.hexists(keys.item(member.decode()), "settled"):
            continue
        owner = parse_member(member.decode())
        told = redis.lrange(keys.trail(member.decode()), 0, -1)
        kept = newest.get(tuple(owner))  # type: ignore[arg-type]
        if kept is None:
            yield f"archive: {owner} is missing"
        elif len(kept) != len(told):
            yield f"archive: {owner} has {len(kept)} lines of its trail, Redis has {len(told)}"


def take_down(server: PostgreSql, *, is_frozen: bool) -> None:
    """Kill or freeze the server."""
    if is_frozen:
        server.signal(signal.SIGSTOP)
    else:
        server.kill()


def bring_back(server: PostgreSql) -> None:
    """Thaw the server, or start it again if it was killed."""
    if server.process is None:
        server.start()
    else:
        server.signal(signal.SIGCONT)
