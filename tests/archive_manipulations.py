"""What the owner of the archive's database can do to it beside changing and deleting single values, for each database.

The owner can change every table and recompute every hash, but has neither the key that signs the heads nor the log. After
each of these manipulations the verification must name a fault with the right words.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, Table, delete, insert, select, text, update

from callkeeper.archive.chain_heads import HeadsLog, parse_heads, signed_head
from callkeeper.archive.database import Database
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import (
    AUDIT_LOG,
    ERASED,
    HELD,
    RELEASED,
    RETIRED,
    ChainLine,
    Content,
    audit_content,
    content_of,
    sha256,
)
from callkeeper.archive.tables import chains, erased, holds, lines, people, terms
from callkeeper.archive.verifying import Evidence, Verification, verify
from callkeeper.archive.writing import Head, Writer
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.service.secret import Secret
from tests.harness.archivist import content, settled

KEY: Final = Secret("a-key-that-the-owner-does-not-know")
T0: Final = 1_760_000_000_000
HOUR_MS: Final = 3_600_000
YEAR_MS: Final = 365 * 24 * HOUR_MS
OURS: Final = "cu-1"
THEIRS: Final = "cu-2"
NOTE: Final = "her dog is called Rex, card 4929"
TABLES: Final = (lines, chains, people, terms, erased, holds)


class Archivists:
    """Writes an archive as workers and commands do, and keeps the log of its heads. ``at_ms`` is the present instant."""

    def __init__(self, database: Database, at_ms: int = T0) -> None:
        self.database = database
        self.at_ms = at_ms
        self.log: list[bytes] = []
        self._logged: dict[str, Head] = {}
        self._entries = 0

    def write(self, key: str, *contents: Content) -> None:
        """Write calls."""
        Writer(self.database, now_ms=lambda: self.at_ms).write(key, contents)

    def command(self, key: str, what: str, do: Callable[[Keeper], object]) -> Keeper:
        """Carry out a command, and record it in the audit log. Return what did it."""
        keeper = Keeper(self.database, "legal", KEY, now_ms=self.at_ms)
        do(keeper)
        for n in keeper.written:
            self.audit(event="archive_changed", detail=what, institution=key, asked=f"line={n}")
        return keeper

    def audit(self, **entry: str) -> None:
        """Write an entry of the audit log."""
        self._entries += 1
        entry_id = f"{self.at_ms}-{self._entries}"
        body = msgspec.json.encode({"id": entry_id, "entry": entry}).decode()
        self.write(AUDIT_LOG, audit_content(entry_id, body))

    def log_heads(self) -> None:
        """Log the heads that are new, also in the audit log."""
        for key, head in Writer(self.database).heads().items():
            if head != self._logged.get(key):
                told = signed_head(key, head, KEY, self._logged.get(key), self.at_ms)
                self.log.append(msgspec.json.encode({"event": "archive_head", **told}))
                self._logged[key] = head
                self.audit(event="archive_head", institution=key, detail=f"{head.n} {head.hash}")


def filled(database: Database) -> list[bytes]:
    """Fill an archive. Return the log of its heads.

    `OURS`: ten calls in lines 1 to 10, a hold in line 11, an erasure in line 12. `THEIRS`: three calls, one with a note that
    release 0.2.0 left in its body, the erasure of its caller in line 5, and of another person's name in line 6.
    """
    archive = Archivists(database, T0 - HOUR_MS)
    archive.audit(event="login")
    archive.at_ms = T0
    archive.write(OURS, *(content(n) for n in range(1, 6)))
    archive.log_heads()
    archive.write(OURS, *(content(n) for n in range(6, 11)))
    archive.write(THEIRS, *(content(n, institution_key=THEIRS) for n in range(1, 4)), with_note(4))
    archive.command(OURS, "hold", lambda keeper: keeper.hold(OURS, "person", "p-1", "a case"))
    archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-2", reason="asked for"))
    archive.command(THEIRS, "erase", lambda keeper: keeper.erase(THEIRS, person_id="p-4", reason="asked for"))
    archive.command(THEIRS, "erase", lambda keeper: keeper.erase(THEIRS, person_id="p-other", reason="asked for"))
    archive.at_ms += HOUR_MS
    archive.audit(event="login")
    archive.log_heads()
    return archive.log


def retired(database: Database) -> list[bytes]:
    """Fill an archive, and let retention remove what is older than a year. Return the log of its heads.

    `OURS`: the lines of a hold, calls 1 to 4 and an erasure of call 2 are deleted (1 to 6); a later version of call 2, young
    calls and the retirement follow (7 to 11). `THEIRS`: lines 1 and 2 are deleted, call 3 in line 3 is under a hold (line
    4), lines 5 and 6 are emptied, a young call and the retirement follow (7 and 8).
    """
    archive = Archivists(database, T0 - 2 * YEAR_MS)
    archive.audit(event="login")
    archive.at_ms += HOUR_MS
    archive.write(OURS)
    archive.command(OURS, "hold", lambda keeper: keeper.hold(OURS, "person", "p-50", "a case"))
    archive.write(OURS, *(content(n) for n in range(1, 5)))
    archive.command(OURS, "erase", lambda keeper: keeper.erase(OURS, person_id="p-2", reason="asked for"))
    archive.write(THEIRS, *(content(n, institution_key=THEIRS) for n in range(1, 4)))
    archive.command(THEIRS, "hold", lambda keeper: keeper.hold(THEIRS, "call", "v-3", "a case"))
    archive.write(THEIRS, *(content(n, institution_key=THEIRS) for n in (5, 6)))
    archive.log_heads()
    archive.at_ms = T0
    archive.write(OURS, content(2, lines=4), *(content(n) for n in (50, 51, 52)))
    archive.write(THEIRS, content(7, institution_key=THEIRS))
    archive.log_heads()
    for key in (OURS, THEIRS):
        archive.command(key, "retire", partial(Keeper.retire, institution_key=key, before_ms=T0 - YEAR_MS))
    archive.at_ms += HOUR_MS
    archive.audit(event="login")
    archive.log_heads()
    return archive.log


def with_note(n: int) -> Content:
    """Return a call as release 0.2.0 archived it, with a note in its body."""
    call, trail = settled(n, institution_key=THEIRS)
    call = msgspec.structs.replace(
        call,
        ledger=msgspec.structs.replace(
            call.ledger, enroll=Effect(state=EffectState.APPLIED, person_id=f"p-{n}", remark=NOTE)
        ),
    )
    new = content_of(call, trail)
    whole = msgspec.json.decode(new.body)
    whole["call"]["enroll"]["remark"] = NOTE
    personal = tuple(each for each in new.personal if each.value != NOTE)
    return dataclasses.replace(new, body=msgspec.json.encode(whole, order="sorted").decode(), personal=personal)


def verified(database: Database, log: list[bytes], keep_ms: int | None = None) -> tuple[Verification, HeadsLog]:
    """Verify an archive as the command does."""
    heads = parse_heads(log, [KEY])
    evidence = Evidence(
        logged=heads.hashes, logged_at=heads.times, keep_ms=lambda _: keep_ms, keys=[KEY], now_ms=T0 + HOUR_MS
    )
    return verify(database, evidence=evidence), heads


def rechain(connection: Connection, key: str = OURS, begin: int = 1) -> None:
    """Compute every hash from a line on anew, and the head."""
    before = select(lines.c.hash).where(lines.c.institution_key == key, lines.c.n == begin - 1)
    base = select(chains.c.base_hash).where(chains.c.institution_key == key, chains.c.base_n == begin - 1)
    previous = connection.execute(before).scalar() or connection.execute(base).scalar()
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


def appended(connection: Connection, kind: str, told: dict[str, Any], at_ms: int = T0, key: str = OURS) -> None:
    """Append a line about the archive, with right hashes."""
    body = msgspec.json.encode({**told, "operator": "cron"}, order="sorted").decode()
    end = connection.execute(select(chains.c.head_n, chains.c.head_hash).where(chains.c.institution_key == key)).one()
    line = ChainLine(
        institution_key=key,
        n=end.head_n + 1,
        kind=kind,
        at_ms=at_ms,
        voice_id=None,
        version=None,
        body_hash=sha256(body.encode()),
        commitments="{}",
        previous=end.head_hash,
    )
    connection.execute(insert(lines).values(**msgspec.structs.asdict(line), body=body, hash=line.hash))
    head = {"head_n": line.n, "head_hash": line.hash}
    connection.execute(update(chains).where(chains.c.institution_key == key).values(head))


Change = Callable[[Connection], Any]


class Manipulation(NamedTuple):
    """What the owner does, and words of the fault that names it."""

    change: Change
    named: str


def _rule(body: str) -> str:
    return body.replace("OneTimePasswordAuth", "KnowledgeBasedAuth")


def change_body(connection: Connection, n: int = 3, key: str = OURS) -> None:
    """Change what a line says."""
    here = (lines.c.institution_key == key) & (lines.c.n == n)
    body = connection.execute(select(lines.c.body).where(here)).scalar_one()
    connection.execute(update(lines).where(here).values(body=_rule(body)))


def forge_body(
    connection: Connection,
    n: int,
    change: Callable[[dict[str, Any]], object],
    person: str = "",
    *,
    hashed: bool = False,
) -> str:
    """Change what a call is, or what a line about the archive says; return the body before.

    ``person``: add the search term of a member. ``hashed``: with the hash of the new body.
    """
    here = (lines.c.institution_key == OURS) & (lines.c.n == n)
    before, began_ms = connection.execute(select(lines.c.body, lines.c.began_ms).where(here)).one()
    whole = msgspec.json.decode(before)
    change(whole.get("call", whole))
    if person:
        whole["terms"] = sorted({*map(tuple, whole["terms"]), ("person", person)})
        row = {"institution_key": OURS, "n": n, "kind": "person", "value": person, "began_ms": began_ms}
        connection.execute(insert(terms).values(row))
    body = msgspec.json.encode(whole, order="sorted").decode()
    connection.execute(
        update(lines).where(here).values({"body": body} | ({"body_hash": sha256(body.encode())} if hashed else {}))
    )
    return str(before)


def _set(table: Table, n: int, key: str = OURS, where: Any = None, **values: Any) -> Change:
    def change(connection: Connection) -> None:
        changed = update(table).where(table.c.institution_key == key, table.c.n == n).values(**values)
        assert connection.execute(changed if where is None else changed.where(where)).rowcount

    return change


def _put(table: Table, **values: Any) -> Change:
    return lambda connection: connection.execute(insert(table).values(**{"institution_key": OURS, **values}))


def _take(table: Table, *where: Any, key: str = OURS) -> Change:
    def change(connection: Connection) -> None:
        assert connection.execute(delete(table).where(table.c.institution_key == key, *where)).rowcount

    return change


def _all(*changes: Change) -> Change:
    def change(connection: Connection) -> None:
        for each in changes:
            each(connection)

    return change


def _then_rechain(change: Change, begin: int = 1, key: str = OURS) -> Change:
    return _all(change, lambda connection: rechain(connection, key, begin))


def _append(kind: str, told: dict[str, Any], at_ms: int = T0, key: str = OURS) -> Change:
    return lambda connection: appended(connection, kind, told, at_ms, key)


def _chain(**values: Any) -> Change:
    return lambda connection: connection.execute(update(chains).where(chains.c.institution_key == OURS).values(values))


def _drop(*keys: str, tables: Any = TABLES) -> Change:
    def change(connection: Connection) -> None:
        for table in tables:
            connection.execute(delete(table).where(table.c.institution_key.in_(keys)))

    return change


def _delete_lines(*numbers: int, key: str = OURS) -> Change:
    def change(connection: Connection) -> None:
        for table in (lines, people, terms):
            connection.execute(delete(table).where(table.c.institution_key == key, table.c.n.in_(numbers)))

    return change


def _renumber(old: int, new: int) -> Change:
    def change(connection: Connection) -> None:
        for table in (lines, people, terms):
            connection.execute(update(table).where(table.c.institution_key == OURS, table.c.n == old).values(n=new))

    return change


def _empty(n: int, key: str = OURS) -> Change:
    """Empty a line as retention does."""
    gone = (_take(people, people.c.n == n, key=key), _take(terms, terms.c.n == n, key=key))
    return _all(_set(lines, n, key, body=None, alternate_id=None, began_ms=None, settled_ms=None), *gone)


def _body(n: int, key: str = OURS, /, **told: Any) -> Change:
    """Change what a line about the archive says."""

    def change(connection: Connection) -> None:
        here = (lines.c.institution_key == key) & (lines.c.n == n)
        said = msgspec.json.decode(connection.execute(select(lines.c.body).where(here)).scalar_one())
        body = msgspec.json.encode({**said, **told}, order="sorted").decode()
        connection.execute(update(lines).where(here).values(body=body))

    return change


def _retire(base_n: int, before_ms: int, at_ms: int = T0, key: str = OURS, **told: Any) -> Change:
    """Delete lines, and append a line that says that retention did it."""

    def change(connection: Connection) -> None:
        here = (lines.c.institution_key == key) & (lines.c.n == base_n)
        base = {"base_n": base_n, "base_hash": connection.execute(select(lines.c.hash).where(here)).scalar_one()}
        for table in (lines, people, terms):
            connection.execute(delete(table).where(table.c.institution_key == key, table.c.n <= base_n))
        connection.execute(update(chains).where(chains.c.institution_key == key).values(base))
        whole = {**base, "until_n": base_n, "before_ms": before_ms, "emptied": [], "holds": [], "erased": {}}
        appended(connection, RETIRED, {**whole, **told}, at_ms, key)

    return change


def _move_base(connection: Connection) -> None:
    here = (lines.c.institution_key == OURS) & (lines.c.n == 2)
    base_hash = connection.execute(select(lines.c.hash).where(here)).scalar_one()
    _delete_lines(1, 2)(connection)
    connection.execute(update(chains).where(chains.c.institution_key == OURS).values(base_n=2, base_hash=base_hash))


def _rename(connection: Connection) -> None:
    for table in TABLES:
        connection.execute(update(table).where(table.c.institution_key == THEIRS).values(institution_key="cu-3"))
    rechain(connection, "cu-3")


def _invent_chain(connection: Connection) -> None:
    """Copy a chain to a new institution."""
    for table in (lines, chains, people, terms):
        rows = (
            connection.execute(select(table).where(table.c.institution_key == THEIRS, _first(table))).mappings().all()
        )
        connection.execute(insert(table), [{**row, "institution_key": "cu-9"} for row in rows])
    rechain(connection, "cu-9")


def _first(table: Table) -> Any:
    return table.c.n == 1 if "n" in table.c else table.c.institution_key == THEIRS


def _copied_signature(connection: Connection) -> None:
    """Change a body, and say that an erasure did it, with the signature of another one."""
    here = (lines.c.institution_key == THEIRS) & (lines.c.kind == ERASED)
    told = connection.execute(select(lines.c.body).where(here).order_by(lines.c.n).limit(1)).scalar_one()
    signature = msgspec.json.decode(told)["signatures"]["4"]
    change_body(connection)
    body = connection.execute(select(lines.c.body).where(lines.c.institution_key == OURS, lines.c.n == 3)).scalar_one()
    rewritten = {"rewritten": {"3": sha256(body.encode())}, "signatures": {"3": signature}}
    appended(connection, ERASED, {"lines": [3], "calls": {}, "reason": "asked for", **rewritten})


def _without_constraints(connection: Connection) -> None:
    """Drop the keys of the table of lines, and let every column be NULL."""
    if connection.dialect.name == "sqlite":
        connection.execute(text("CREATE TABLE loose AS SELECT * FROM archive_lines"))
        connection.execute(text("DROP TABLE archive_lines"))
        connection.execute(text("ALTER TABLE loose RENAME TO archive_lines"))
        return
    connection.execute(text("ALTER TABLE archive_lines DROP CONSTRAINT archive_lines_pkey"))
    connection.execute(text("DROP INDEX archive_lines_call"))
    for name in ("n", "kind", "at_ms", "body_hash", "commitments", "previous", "hash"):
        connection.execute(text(f"ALTER TABLE archive_lines ALTER COLUMN {name} DROP NOT NULL"))


def _twin(connection: Connection) -> None:
    """Give line 5 a second line of the same number, which says something else."""
    _without_constraints(connection)
    here = (lines.c.institution_key == OURS) & (lines.c.n == 5)
    row = dict(connection.execute(select(lines).where(here)).mappings().one())
    connection.execute(insert(lines).values({**row, "body": _rule(row["body"])}))


def _hide(connection: Connection) -> None:
    """Add a line without a number."""
    _without_constraints(connection)
    here = (lines.c.institution_key == OURS) & (lines.c.n == 5)
    row = dict(connection.execute(select(lines).where(here)).mappings().one())
    connection.execute(insert(lines).values({**row, "n": None, "version": 2, "body": _rule(row["body"])}))


_NAME: Final = people.c.path == "call/candidates/0/name"
_OUTCOME: Final = terms.c.kind == "outcome"
_LOGGED: Final = "its hash differs from the logged one"
_MISSING: Final = "is in the log, but its whole chain is missing"
_SEARCH: Final = "its search data does not match its body"
_FOUND_BY: Final = "belongs to another person or is found by other words"
_AUDITED: Final = "the audit log has no command `archive "
_UNREADABLE: Final = "it holds values that no worker writes"

MANIPULATIONS: Final[Mapping[str, Manipulation]] = {
    name: Manipulation(*each)
    for name, each in {
        "a line is removed, the others are renumbered, with new hashes": (
            _then_rechain(_all(_delete_lines(4), *(_renumber(n, n - 1) for n in range(5, 13)))),
            _LOGGED,
        ),
        "the newest lines are removed, with a new head": (
            _then_rechain(_all(_delete_lines(11, 12), _drop(OURS, tables=(holds, erased)))),
            "line 12: is in the log, but missing",
        ),
        "two lines are swapped, with new hashes": (
            _then_rechain(_all(_renumber(4, 99), _renumber(5, 4), _renumber(99, 5))),
            _LOGGED,
        ),
        "two lines have one number": (_twin, "line 5: is there twice"),
        "a line has no number": (_hide, _UNREADABLE),
        "a line lies before the beginning": (
            _put(lines, n=0, kind="held", at_ms=T0, body_hash="", commitments="{}", previous="", hash=""),
            "lies before the beginning of the chain",
        ),
        "a body is emptied, with new hashes": (_then_rechain(_empty(5)), "its body is missing"),
        "an institution is removed": (_drop(THEIRS), _MISSING),
        "everything is removed": (_drop(OURS, THEIRS, AUDIT_LOG), _MISSING),
        "the list of chains is emptied": (_drop(OURS, THEIRS, AUDIT_LOG, tables=(chains,)), "but no chain"),
        "an institution gets another key, with new hashes": (_rename, _MISSING),
        "a chain of a new institution is invented": (_invent_chain, "no head of this chain was ever logged"),
        "the head is huge": (_chain(head_n=2**62), f"the chain ended at line {2**62}"),
        "the beginning is removed without a retirement": (_move_base, "retention did not record their removal"),
        "the chain begins after every logged head": (
            _all(_append(HELD, {"kind": "call", "value": "x"}), _retire(13, T0 - 2 * YEAR_MS)),
            "the chain begins after every logged head",
        ),
        "a personal value is invented": (
            _put(people, n=5, path="call/x", value="x", salt="00"),
            "which was never written",
        ),
        "a search term is added": (_put(terms, n=5, kind="person", value="p-9"), _SEARCH),
        "an erasure is invented": (_put(erased, voice_id="v-3", person_id=""), "no line of the chain names"),
        "a body is changed as if an erasure took notes out": (
            _all(
                change_body,
                _append(
                    ERASED, {"lines": [3], "calls": {}, "rewritten": {"3": sha256(_rule(content(3).body).encode())}}
                ),
            ),
            "the key did not sign that",
        ),
        "the same, with the signature of another body": (_copied_signature, "the key did not sign that"),
        "a legal hold is invented": (_put(holds, kind="call", value="v-3"), "that no line of the chain began"),
        "a retirement of young lines is forged": (_retire(4, T0 - HOUR_MS), "younger than CALLKEEPER_ARCHIVE_KEEP"),
        "a forged retirement says that young lines were old": (
            _retire(8, T0 - 2 * YEAR_MS),
            "younger than it says, by the heads that were logged",
        ),
        "a young line is emptied as if retired": (
            _all(
                _empty(5),
                _append(RETIRED, {"base_n": 0, "base_hash": "0" * 64, "until_n": 9, "before_ms": T0 - 2 * YEAR_MS}),
            ),
            "line 5: its body is missing",
        ),
        "a forged line is dated back": (
            _append(RELEASED, {"kind": "person", "value": "p-1"}, T0 - 3 * YEAR_MS),
            "is dated back",
        ),
        "a forged line is dated in the future": (
            _append(HELD, {"kind": "call", "value": "x"}, T0 + YEAR_MS),
            "is dated in the future",
        ),
        "a body is JSON of great depth": (_then_rechain(_set(lines, 5, body="[" * 100_000)), "it cannot be read"),
        "a time is NULL": (_all(_without_constraints, _set(lines, 5, at_ms=None)), _UNREADABLE),
    }.items()
}
"""What the owner does to the archive of `filled`."""

AFTER_RETENTION: Final[Mapping[str, Manipulation]] = {
    name: Manipulation(*each)
    for name, each in {
        "values that were erased are stored again": (
            _put(people, n=7, path="call/phone_number", value="+12025550002", salt="00"),
            "was erased, and is there again",
        ),
        "the beginning is moved on": (
            lambda c: (
                c.execute(
                    update(chains).where(chains.c.institution_key == THEIRS).values(base_n=3, base_hash="f" * 64)
                ),
                _delete_lines(3, key=THEIRS)(c),
            ),
            "the chain begins at another line than retention recorded last",
        ),
        "a held line is emptied, and the retirement says so, with new hashes": (
            _then_rechain(_all(_empty(3, THEIRS), _body(8, THEIRS, emptied=[(3, 3), (5, 6)])), 3, THEIRS),
            "although it was under a legal hold",
        ),
        "an emptied body is there again": (
            _set(lines, 5, THEIRS, body=content(5, institution_key=THEIRS).body),
            "retention emptied it, and its body is there again",
        ),
        "the chain begins after every logged head": (
            _all(
                _append(HELD, {"kind": "call", "value": "x"}),
                _retire(12, T0 - YEAR_MS, holds=[("person", "p-50")], erased={}),
            ),
            "the chain begins after every logged head",
        ),
    }.items()
}
"""What the owner does to the archive of `retired`."""
