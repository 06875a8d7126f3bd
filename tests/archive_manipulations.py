"""What the owner of the archive's database can do to it, for tests on each database.

The owner can change every table and recompute every hash, but has neither the key that signs the heads nor the log. After
each of ``MANIPULATIONS`` the verification must name a fault.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from archive.database import Database
from archive.heads import HeadsLog, parse_heads, signed_head
from archive.keeping import Keeper
from archive.lines import AUDIT_LOG, ERASED, RELEASED, RETIRED, ChainLine, audit_content, sha256
from archive.tables import chains, erased, holds, lines, people, terms
from archive.verifying import Evidence, Verification, verify
from archive.writing import Head, Writer
from reseller.secret import Secret
from tests.archivist import content

KEY: Final = Secret("a-key-that-the-owner-does-not-know")
T0: Final = 1_800_000_000_000
HOUR_MS: Final = 3_600_000
YEAR_MS: Final = 365 * 24 * HOUR_MS
OURS: Final = "cu-1"
TABLES: Final = (lines, chains, people, terms, erased, holds)


def filled(database: Database) -> list[bytes]:
    """Fill an archive as workers and commands do. Return the log of its heads."""
    log: list[bytes] = []
    logged: dict[str, Head] = {}
    writer = Writer(database, now_ms=lambda: T0)

    def log_heads() -> None:
        for key, head in writer.heads().items():
            if head != logged.get(key):
                told = signed_head(key, head, KEY, logged.get(key))
                log.append(msgspec.json.encode({"event": "archive_head", **told}))
                logged[key] = head

    writer.write(OURS, [content(n) for n in range(1, 6)])
    log_heads()
    writer.write(OURS, [content(n) for n in range(6, 11)])
    writer.write("cu-2", [content(n, institution_key="cu-2") for n in range(1, 4)])
    keeper = Keeper(database, "legal", now_ms=T0)
    keeper.hold(OURS, "person", "p-1", "a case")
    keeper.erase(OURS, person_id="p-2", reason="asked for")
    commands = ((T0 - HOUR_MS, "login", ""), (T0, "hold", OURS), (T0, "erase", OURS), (T0 + HOUR_MS, "login", ""))
    writer.write(AUDIT_LOG, [_audited(n, *command) for n, command in enumerate(commands)])
    log_heads()
    return log


def _audited(n: int, at_ms: int, detail: str, institution: str) -> Any:
    entry = {"event": "archive_changed", "detail": detail, "institution": institution}
    entry_id = f"{at_ms}-{n}"
    return audit_content(entry_id, msgspec.json.encode({"id": entry_id, "entry": entry}).decode())


def verified(database: Database, log: list[bytes], keep_ms: int | None = None) -> tuple[Verification, HeadsLog]:
    """Verify an archive as the command does."""
    heads = parse_heads(log, KEY)
    evidence = Evidence(
        logged=heads.hashes, logged_at=heads.times, keep_ms=lambda _: keep_ms, key=KEY, now_ms=T0 + HOUR_MS
    )
    return verify(database, evidence=evidence), heads


def rechain(connection: Connection, key: str = OURS, begin: int = 1) -> None:
    """Compute every hash from a line on anew, and the head."""
    previous = connection.execute(
        select(lines.c.hash).where(lines.c.institution_key == key, lines.c.n == begin - 1)
    ).scalar()
    chain = lines.c.institution_key == key
    n = begin - 1
    for row in connection.execute(select(lines).where(chain, lines.c.n >= begin).order_by(lines.c.n)).all():
        told = {name: getattr(row, name) for name in ChainLine.__struct_fields__} | {"previous": previous or "0" * 64}
        if row.body is not None:
            told["body_hash"] = sha256(row.body.encode())
        previous, n = ChainLine(**told).hash, row.n
        changed = {"previous": told["previous"], "body_hash": told["body_hash"], "hash": previous}
        connection.execute(update(lines).where(chain, lines.c.n == n).values(changed))
    connection.execute(update(chains).where(chains.c.institution_key == key).values(head_n=n, head_hash=previous))


def appended(connection: Connection, kind: str, told: dict[str, Any]) -> None:
    """Append a line about the archive, with right hashes."""
    body = msgspec.json.encode({**told, "operator": "cron"}, order="sorted").decode()
    end = connection.execute(select(chains.c.head_n, chains.c.head_hash).where(chains.c.institution_key == OURS)).one()
    line = ChainLine(
        institution_key=OURS,
        n=end.head_n + 1,
        kind=kind,
        at_ms=T0,
        voice_id=None,
        version=None,
        body_hash=sha256(body.encode()),
        commitments="{}",
        previous=end.head_hash,
    )
    connection.execute(insert(lines).values(**msgspec.structs.asdict(line), body=body, hash=line.hash))
    head = {"head_n": line.n, "head_hash": line.hash}
    connection.execute(update(chains).where(chains.c.institution_key == OURS).values(head))


def _rule(body: str) -> str:
    return body.replace("OneTimePasswordAuth", "KnowledgeBasedAuth")


def change_body(connection: Connection, n: int = 3, key: str = OURS) -> None:
    """Change what a line says."""
    here = (lines.c.institution_key == key) & (lines.c.n == n)
    body = connection.execute(select(lines.c.body).where(here)).scalar_one()
    connection.execute(update(lines).where(here).values(body=_rule(body)))


def _set(table: Any, n: int, **values: Any) -> Callable[[Connection], None]:
    def change(connection: Connection) -> None:
        changed = update(table).where(table.c.institution_key == OURS, table.c.n == n).values(**values)
        assert connection.execute(changed).rowcount

    return change


def _then_rechain(change: Callable[[Connection], Any], begin: int = 1, key: str = OURS) -> Callable[[Connection], None]:
    def both(connection: Connection) -> None:
        change(connection)
        rechain(connection, key, begin)

    return both


def _drop(*keys: str, tables: Any = TABLES) -> Callable[[Connection], None]:
    def change(connection: Connection) -> None:
        for table in tables:
            connection.execute(delete(table).where(table.c.institution_key.in_(keys)))

    return change


def _delete_line(n: int) -> Callable[[Connection], None]:
    def change(connection: Connection) -> None:
        for table in (lines, people, terms):
            connection.execute(delete(table).where(table.c.institution_key == OURS, table.c.n == n))

    return change


def _close_gap(connection: Connection) -> None:
    """Remove line 4 and renumber those after it."""
    _delete_line(4)(connection)
    for n in range(5, 13):
        for table in (lines, people, terms):
            here = (table.c.institution_key == OURS) & (table.c.n == n)
            connection.execute(update(table).where(here).values(n=n - 1))
    rechain(connection)


def _forge_retirement(before_ms: int) -> Callable[[Connection], None]:
    def change(connection: Connection) -> None:
        here = (lines.c.institution_key == OURS) & (lines.c.n == 4)
        base_hash = connection.execute(select(lines.c.hash).where(here)).scalar_one()
        for n in range(1, 5):
            _delete_line(n)(connection)
        base = {"base_n": 4, "base_hash": base_hash}
        connection.execute(update(chains).where(chains.c.institution_key == OURS).values(base))
        appended(connection, RETIRED, {**base, "until_n": 4, "before_ms": before_ms})

    return change


def _move_base(connection: Connection) -> None:
    here = (lines.c.institution_key == OURS) & (lines.c.n == 2)
    base_hash = connection.execute(select(lines.c.hash).where(here)).scalar_one()
    _delete_line(1)(connection)
    _delete_line(2)(connection)
    connection.execute(update(chains).where(chains.c.institution_key == OURS).values(base_n=2, base_hash=base_hash))


def _erase_in_secret(connection: Connection) -> None:
    connection.execute(insert(erased).values(institution_key=OURS, voice_id="v-7", person_id=""))
    connection.execute(delete(people).where(people.c.institution_key == OURS, people.c.n == 7))


def _erase_with_a_line(connection: Connection) -> None:
    _erase_in_secret(connection)
    appended(connection, ERASED, {"lines": [7], "reason": "asked for"})


def _release_with_a_line(connection: Connection) -> None:
    connection.execute(delete(holds))
    appended(connection, RELEASED, {"kind": "person", "value": "p-1", "reason": "over"})


def _swap(connection: Connection) -> None:
    for old, new in ((4, 99), (5, 4), (99, 5)):
        here = (lines.c.institution_key == OURS) & (lines.c.n == old)
        connection.execute(update(lines).where(here).values(n=new))
    rechain(connection)


def _shorten(connection: Connection) -> None:
    _delete_line(12)(connection)
    _delete_line(11)(connection)
    connection.execute(delete(holds))
    connection.execute(delete(erased))
    rechain(connection)


def _rename(connection: Connection) -> None:
    for table in TABLES:
        connection.execute(update(table).where(table.c.institution_key == "cu-2").values(institution_key="cu-3"))
    rechain(connection, "cu-3")


def _change_audit(connection: Connection) -> None:
    connection.execute(
        update(lines).where(lines.c.institution_key == AUDIT_LOG, lines.c.n == 2).values(body='{"id":"1-0","entry":{}}')
    )
    rechain(connection, AUDIT_LOG)


def _shorten_audit(connection: Connection) -> None:
    connection.execute(delete(lines).where(lines.c.institution_key == AUDIT_LOG, lines.c.n > 1))
    rechain(connection, AUDIT_LOG)


MANIPULATIONS: Final[Mapping[str, Callable[[Connection], Any]]] = {
    "a line says something else": change_body,
    "the same, with new hashes": _then_rechain(change_body),
    "the newest call says something else, with new hashes": _then_rechain(lambda c: change_body(c, 10), 10),
    "a line is removed": _delete_line(4),
    "a line is removed, with new hashes": _then_rechain(_delete_line(4)),
    "a line is removed, the others are renumbered, with new hashes": _close_gap,
    "the newest line is removed": _delete_line(12),
    "the newest lines are removed, with a new head": _shorten,
    "two lines are swapped, with new hashes": _swap,
    "an institution is removed": _drop("cu-2"),
    "the audit log is removed": _drop(AUDIT_LOG),
    "the audit log is cut": _shorten_audit,
    "an entry of the audit log is changed, with new hashes": _change_audit,
    "everything is removed": _drop(OURS, "cu-2", AUDIT_LOG),
    "the list of chains is emptied": _drop(OURS, "cu-2", AUDIT_LOG, tables=(chains,)),
    "an institution gets another key, with new hashes": _rename,
    "a retirement of young lines is forged": _forge_retirement(T0 - HOUR_MS),
    "a retirement of old lines is forged, of which the audit log knows nothing": _forge_retirement(T0 - 2 * YEAR_MS),
    "the beginning is removed without a retirement": _move_base,
    "a body is emptied": _set(lines, 5, body=None),
    "a body is emptied, with new hashes": _then_rechain(_set(lines, 5, body=None)),
    "a personal value is changed": _set(people, 5, value="+1999"),
    "personal values are removed": lambda c: c.execute(delete(people).where(people.c.n == 5)),
    "values are erased without a line": _erase_in_secret,
    "values are erased with a forged line": _erase_with_a_line,
    "an erasure is taken back": lambda c: c.execute(delete(erased)),
    "a legal hold is removed": lambda c: c.execute(delete(holds)),
    "a legal hold is removed with a forged line": _release_with_a_line,
    "a legal hold is invented": lambda c: c.execute(
        insert(holds).values(institution_key=OURS, kind="call", value="v-3")
    ),
    "a search term is changed": lambda c: c.execute(
        update(terms).where(terms.c.n == 5, terms.c.kind == "outcome").values(value="rejected")
    ),
    "the time of a call is changed": _set(lines, 5, began_ms=1),
    "the time of a line is changed, with new hashes": _then_rechain(_set(lines, 5, at_ms=T0 - YEAR_MS)),
    "a line becomes another call's, with new hashes": _then_rechain(_set(lines, 5, voice_id="v-99")),
    "a line becomes one of another kind, with new hashes": _then_rechain(_set(lines, 5, kind="audit")),
    "the head is moved back": lambda c: c.execute(
        update(chains).where(chains.c.institution_key == OURS).values(head_n=9, head_hash="0" * 64)
    ),
}
