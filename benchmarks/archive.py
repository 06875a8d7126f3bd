"""Does a search of the archive take less than 200 ms with a million calls, and how fast are writes and reads?

The calls are generated: five years, twenty institutions, 200,000 members.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import psycopg
from sqlalchemy import Index, inspect, update

from benchmarks.answer import Answer, Cell, Table
from benchmarks.effort import Effort
from benchmarks.spread import quantile
from callkeeper.archive.database import Database
from callkeeper.archive.lines import Content, content_of
from callkeeper.archive.migrating import migrate
from callkeeper.archive.reading import ArchiveReader
from callkeeper.archive.tables import chains, lines, metadata, people, terms
from callkeeper.archive.writing import ChainEnd, Writer
from callkeeper.calls.call_query import CallQuery, parse_query
from callkeeper.calls.record import Call, Candidate, Life, Names, Phase, Plan, Reason, Seen
from callkeeper.calls.rules import load_rules
from callkeeper.calls.rules.report import report
from callkeeper.calls.trail import Entry, Tried
from tests.postgresql import binaries, postgresql

CALLS: Final = 1_000_000
INSTITUTIONS: Final = 20
MEMBERS: Final = 200_000
BEGAN: Final = datetime(2021, 1, 1, tzinfo=UTC)
YEARS_S: Final = 5 * 365 * 86400
WITHIN_MS: Final = 200.0
PER_S: Final = 500.0
BATCH: Final = 200
LOADED: Final = 1000
HOUR_S: Final = 3600.0
ASKED: Final = 21
"""How often each search is run."""

URL: Final = "BENCH_ARCHIVE_URL"
"""Environment variable with the URL of an archive that is already filled."""

QUESTIONS: Final = {
    "last four digits": "7310",
    "a whole number": "+1 202 010 7310",
    "a name": "family7310",
    "two names": "first310 family7310",
    "a common name": "first310",
    "a member's id": "person:m-7310",
    "a voice id": "v-73100",
    "the beginning of an id": "v-7310",
    "an instant": "2023-06-15 10:40",
    "an outcome": "outcome:enrolled",
    "an outcome and digits": "outcome:enrolled 7310",
    "a rule": 'rule:"rule 7"',
    "an operator": "operator:agent-73",
    "a digest of rules": "digest:d3",
    "a rule and an operator": 'rule:"rule 7" operator:agent-73',
    "a time of day": "10:40",
    "a state": "rejected",
    "a state and a time of day": "rejected 10:40",
    "a rule and an outcome": 'rule:"rule 7" outcome:enrolled',
    "a rule and a digest": 'rule:"rule 7" digest:d3',
    "two rules that never meet": 'rule:"rule 7" rule:"rule 3"',
    "a name that all have": "family",
    "a name that all have, and a rule": 'family rule:"rule 7"',
    "the newest": "",
    "nothing that fits": "family9999999",
}


def answer(effort: Effort) -> Answer:
    """Fill an archive, or use the one that the environment names, and search it."""
    filled = os.environ.get(URL)
    if filled is not None:
        return _measured(filled, effort, None)
    with server() as url:
        migrate(Database(url))
        rate = write_rate(url, 400 if effort.is_smoke else 20_000)
        fill(url, 2000 if effort.is_smoke else CALLS)
        return _measured(url, effort, rate)


@contextmanager
def server() -> Iterator[str]:
    """Run PostgreSQL if it is installed; otherwise use an SQLite file."""
    if binaries():
        with postgresql() as server:
            yield server.url
    else:
        with TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'archive.db'}"


def write_rate(url: str, calls: int) -> float:
    """Write calls as a worker does, and return how many it writes per second."""
    writer = Writer(Database(url))
    began_s = time.monotonic()
    for start in range(0, calls, BATCH):
        writer.write("cu-new", [simulated(n) for n in range(start, start + BATCH)])
    writer.close()
    return calls / (time.monotonic() - began_s)


def fill(url: str, calls: int) -> None:
    """Fill an archive with the rows that a worker would write, but load them before the indexes exist.

    Two processes load different institutions. On SQLite there is only one, because it allows one writer at a time.
    """
    database = Database(url)
    migrate(database)
    with database.writing(within_s=HOUR_S) as connection:
        for index in _secondary():
            index.drop(connection)
    count = 1 if database.is_sqlite else 2
    halves = [range(first, INSTITUTIONS, count) for first in range(count)]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_fill_some, args=(url, calls, half)) for half in halves]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError("the archive could not be filled")
    with database.writing(within_s=HOUR_S) as connection:
        for index in _secondary():
            index.create(connection)
    database.close()
    if not database.is_sqlite:  # as autovacuum does after so many inserts
        with psycopg.connect(url, autocommit=True) as vacuum:
            vacuum.execute("VACUUM ANALYZE")


def _secondary() -> list[Index]:
    return [index for table in metadata.tables.values() for index in table.indexes]


def _fill_some(url: str, calls: int, institutions: range) -> None:
    database = Database(url)
    for start in range(0, calls, LOADED * INSTITUTIONS):
        for number in institutions:
            batch = range(start + number, min(start + LOADED * INSTITUTIONS, calls), INSTITUTIONS)
            with database.writing(within_s=HOUR_S) as connection:
                chain = ChainEnd.lock(connection, f"cu-{number}")
                for n in batch:
                    chain.add(simulated(n), 1, 0, set())
                if database.is_sqlite:
                    chain.write()
                else:
                    _copy(chain)
    database.close()


def _copy(chain: ChainEnd) -> None:
    """Write a chain's new rows with COPY, which is faster than a worker's INSERT."""
    cursor: Any = chain.connection.connection.cursor()
    for table, rows in ((lines, chain.lines), (people, chain.people), (terms, chain.terms)):
        names = table.columns.keys()
        with cursor.copy(f"COPY {table.name} ({', '.join(names)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row([row[name] for name in names])
    ours = update(chains).where(chains.c.institution_key == chain.institution_key)
    chain.connection.execute(ours.values(head_n=chain.head.n, head_hash=chain.head.hash))


def simulated(n: int) -> Content:
    """Return the call with this number as it is archived."""
    return content_of(*simulated_call(n))


def simulated_call(n: int) -> tuple[Call, list[Entry]]:
    """Return the call with this number: settled, with a trail of nine or ten lines, 2 kB in all."""
    chance = Random(n)  # noqa: S311  (no secret)
    member = chance.randrange(MEMBERS)
    at = BEGAN + timedelta(seconds=chance.randrange(YEARS_S))
    reason = chance.choice((Reason.ENROLLED, Reason.AUTHENTICATED, Reason.UNDECIDED, Reason.REJECTED))
    rule = f"rule {chance.randrange(12)}"
    digest = f"d{chance.randrange(40)}"
    name = f"First{member % 1000} Family{member % 20_000}"
    call = Call(
        institution_key=f"cu-{n % INSTITUTIONS}",
        voice_id=f"v-{n}",
        life=Life(phase=Phase.SETTLED, reason=reason, started_at=at, settled_at=at + timedelta(seconds=90)),
        names=Names(phone_number=f"+1202{member % 10_000_000:07}"),
        seen=Seen(person_id=f"m-{member}", candidates=(Candidate(person_id=f"m-{member}", name=name),)),
        plan=Plan(checks_used=6),
    )
    tried = tuple(
        Tried(rule=f"rule {k}", then="enroll", stage="live", result="failed", fact="green", wanted=True, was=False)
        for k in range(6)
    )
    facts: dict[str, str | bool | int | None] = {
        "checks_used": 3,
        "assigned": True,
        "candidates": 1,
        "identity": "none",
    }
    came_s = 12 * chance.lognormvariate(0, 0.5)  # when the service had a result, if the call lasted that long
    trail = [
        Entry(at=at, what="pushed", event_id=f"ev-{n}"),
        Entry(at=at, what="listed", person_id=call.seen.person_id),
    ]
    trail += [
        Entry(
            at=at + timedelta(seconds=5 * k),
            what="checked",
            n=k,
            took_ms=120,
            status="InProgress",
            policies=("Green Voice",) if 5 * k >= came_s else (),
        )
        for k in range(1, 5)
    ]
    trail += [
        Entry(at=at, what="decided", kind="hold", asked="enroll", rule=rule, rules=digest, facts=facts, tried=tried),
        Entry(at=at, what="decided", kind="enroll", asked="enroll", rule=rule, rules=digest, facts=facts, tried=tried),
    ]
    if n % 10 == 0:
        trail.append(Entry(at=at, what="said", kind="verified", operator=f"agent-{chance.randrange(500)}"))
    trail.append(Entry(at=call.life.settled_at or at, what="settled", because=reason, n=6, rules=digest))
    return call, trail


def _measured(url: str, effort: Effort, rate: float | None) -> Answer:
    database = Database(url)
    reader = ArchiveReader(database)
    count = reader.count()
    rows: list[tuple[Cell, ...]] = []
    broken = []
    for words, typed in QUESTIONS.items():
        query = parse_query(typed, country="US", zone=UTC)
        narrow = replace(query, institution_key="cu-7", since=BEGAN + timedelta(days=4 * 365))
        ways = (partial(_ask, reader, query), partial(_ask, reader, narrow), partial(_ask, reader, query, ["cu-3"]))
        took = [quantile((_took_ms(way) for _ in range(ASKED if not effort.is_smoke else 2)), 0.95) for way in ways]
        rows.append((words, typed, len(ways[0]()), *took))
        if max(took) > WITHIN_MS and not effort.is_smoke:
            broken.append(f"{words}: {max(took):.0f} ms, more than {WITHIN_MS:g}")
    read = min(count, 50_000 if not effort.is_smoke else 100)
    read_s = _took_ms(partial(_report, reader, read)) / 1000
    figures = [("calls", count), ("`rules report` reads, calls a second", round(read / read_s))]
    if rate is not None:
        figures.append(("written by one worker, calls a second", round(rate)))
        if rate < PER_S and not effort.is_smoke:
            broken.append(f"{rate:.0f} calls a second are written, {PER_S:g} are promised")
    tables = (
        Table("The archive", ("what", "figure"), tuple(figures)),
        Table(
            f"Questions, ms at the 95th percentile (promised: {WITHIN_MS:g})",
            ("question", "typed", "found", "everywhere", "one institution, one year", "a viewer of one institution"),
            tuple(rows),
        ),
        Table("The indexes", ("table", "index", "columns"), tuple(_indexes(database))),
    )
    reader.close()
    return Answer((__doc__ or "").splitlines()[0], tables, tuple(broken))


def _ask(reader: ArchiveReader, query: CallQuery, institutions: Sequence[str] | None = None) -> tuple[Call, ...]:
    matches: Callable[[Call], bool] = lambda call: query.matches(call, state=str(call.life.reason))  # noqa: E731
    return reader.find(query, matches=matches, most=100, institutions=institutions).calls


def _report(reader: ArchiveReader, calls: int) -> None:
    stream = (call for call, _ in zip(reader.stream(), range(calls), strict=False))
    report(stream, load_rules(None).policies)


def _took_ms(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1000


def _indexes(database: Database) -> Iterator[tuple[str, str, str]]:
    with database.reading() as connection:
        found = inspect(connection)
        for table in sorted(found.get_table_names()):
            if table.startswith("archive_") and (key := found.get_pk_constraint(table)["constrained_columns"]):
                yield table, "primary key", ", ".join(key)
                for index in found.get_indexes(table):
                    yield table, str(index["name"]), ", ".join(str(name) for name in index["column_names"])
