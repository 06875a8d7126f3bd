"""The archive on a real PostgreSQL: several writers, a failing server, restores, PgBouncer, TLS and roles."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, delete, func, select, update

from callkeeper.app.redis_location import tls_options
from callkeeper.archive.database import Database
from callkeeper.archive.errors import ArchiveAway, ValueRefused
from callkeeper.archive.keeping import Keeper
from callkeeper.archive.lines import RULES, rules_content
from callkeeper.archive.migrating import migrate
from callkeeper.archive.reading import ArchiveReader
from callkeeper.archive.tables import lines, metadata, people
from callkeeper.archive.verifying import Evidence, verify
from callkeeper.archive.writing import Head, Writer
from callkeeper.calls.call_query import CallQuery
from callkeeper.calls.item_names import CallId
from tests.archive_manipulations import (
    AFTER_RETENTION,
    MANIPULATIONS,
    YEAR_MS,
    Manipulation,
    filled,
    retired,
    verified,
)
from tests.harness.archivist import INSTITUTION, content
from tests.ports import free_port
from tests.postgresql import PostgreSql, postgresql
from tests.waiting import until

ROLES = Path(__file__).parents[2] / "deploy" / "postgresql" / "roles.sql"
LEASE_S = 8.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgreSql]:
    """Run one cluster for all tests of this file."""
    with postgresql() as server:
        yield server


@pytest.fixture
def server(cluster: PostgreSql) -> PostgreSql:
    """Return the cluster with an empty archive in it."""
    cluster.sql("DROP DATABASE IF EXISTS archive WITH (FORCE)", database="postgres")
    cluster.sql("CREATE DATABASE archive", database="postgres")
    database = at(cluster.url)
    migrate(database)
    database.close()
    return cluster


_OPEN: list[Database] = []


def at(url: str, options: dict[str, str] | None = None) -> Database:
    """Return the archive at a URL; it is closed when the test ends."""
    _OPEN.append(Database(url, options))
    return _OPEN[-1]


class Within(Database):
    """A database as one open transaction sees it."""

    def __init__(self, connection: Connection) -> None:
        self.is_sqlite = False
        self._connection = connection

    def reading(self, *, within_s: float = 0) -> AbstractContextManager[Connection]:
        """Return the open transaction."""
        return nullcontext(self._connection)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close what a test has opened."""
    yield
    while _OPEN:
        _OPEN.pop().close()


def intact(server: PostgreSql, calls: int) -> None:
    """Assert that the archive has this many calls, each once, and that no line was changed."""
    database = at(server.url)
    with database.reading() as connection:
        found = list(connection.execute(select(lines.c.voice_id)).scalars())
    assert (len(found), len(set(found))) == (calls, calls)
    assert verify(database).faults == []
    database.close()


def test_database_without_tables_says_what_makes_them(cluster: PostgreSql) -> None:
    """PostgreSQL's own words, an SQLSTATE, lead nobody to the release step that was left out."""
    cluster.sql("DROP DATABASE IF EXISTS archive WITH (FORCE)", database="postgres")
    cluster.sql("CREATE DATABASE archive", database="postgres")
    database = at(cluster.url)
    with pytest.raises(ArchiveAway, match="callkeeper archive migrate"):
        Keeper(database, "").institutions()
    database.close()


def test_migrations_make_the_tables_of_the_code(server: PostgreSql) -> None:
    """The migrations create exactly the tables of the code; a second run changes nothing."""
    database = at(server.url)
    migrate(database)
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": "archive_version"})
        assert compare_metadata(context, metadata) == []
    database.close()


@pytest.mark.parametrize(
    ("fill", "manipulations"), [(filled, MANIPULATIONS), (retired, AFTER_RETENTION)], ids=["filled", "retired"]
)
def test_each_manipulation_by_the_owner_is_named(
    server: PostgreSql, fill: Callable[[Database], list[bytes]], manipulations: Mapping[str, Manipulation]
) -> None:
    """As on SQLite: whatever the owner changes before the last logged head is a fault, with the right words."""
    database = at(server.url)
    log = fill(database)
    assert verified(database, log, YEAR_MS)[0].faults == []
    unnamed = []
    with database.writing(within_s=600) as connection:
        for name, manipulation in manipulations.items():
            before = connection.begin_nested()
            manipulation.change(connection)
            faults = [str(fault) for fault in verified(Within(connection), log, YEAR_MS)[0].faults]
            unnamed += [] if any(manipulation.named in fault for fault in faults) else [(name, faults[:3])]
            before.rollback()
    assert unnamed == []


def test_writers_take_turns_at_a_chain(server: PostgreSql) -> None:
    """Four writers that write overlapping calls of one institution at once make one chain, with each call once."""

    def write(first: int) -> None:
        writer = Writer(at(server.url))
        for start in range(first, first + 60, 10):
            writer.write(INSTITUTION, [content(n % 150) for n in range(start, start + 10)])
        writer.close()

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 30, 60, 90)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    intact(server, 150)


def test_killed_server_leaves_nothing_missing_and_nothing_twice(server: PostgreSql) -> None:
    """If the server is killed several times and the writer repeats failed writes, every call is stored once."""
    writer = Writer(at(server.url))
    batches = [[content(n) for n in range(start, start + 5)] for start in range(0, 300, 5)]
    killer: threading.Thread = threading.Thread(target=server.kill)
    failed = 0
    for n, batch in enumerate(batches):
        if n == 10:
            killer.start()
        while True:
            try:
                writer.write(INSTITUTION, batch)
                break
            except ArchiveAway:
                failed += 1
                killer.join()
                if server.process is None:
                    server.start()
                    if failed < 4:
                        killer = threading.Timer(0.2, server.kill)
                        killer.start()
    killer.join()
    if server.process is None:
        server.start()
    assert failed
    intact(server, 300)


def test_frozen_server_delays_a_write_by_less_than_a_lease(server: PostgreSql) -> None:
    """A write to a frozen server fails within a lease; when the server continues, nothing is stored twice."""
    writer = Writer(at(server.url))
    writer.write(INSTITUTION, [content(1)])
    server.signal(signal.SIGSTOP)
    try:
        for _ in range(2):  # on the open connection, and on a new one
            began_s = time.monotonic()
            with pytest.raises(ArchiveAway):
                writer.write(INSTITUTION, [content(2)])
            assert time.monotonic() - began_s < LEASE_S
    finally:
        server.signal(signal.SIGCONT)

    def write() -> bool:
        writer.write(INSTITUTION, [content(1), content(2)])
        return True

    until(write, 30, "the server to take writes again", every_s=0.2, excused=(ArchiveAway,))
    intact(server, 2)


def test_server_that_cannot_grow_refuses_and_recovers(server: PostgreSql) -> None:
    """If no file may grow, a write fails as a whole; the next attempt succeeds."""
    assert server.process is not None
    writer = Writer(at(server.url))
    writer.write(INSTITUTION, [content(1)])
    backends = "backend_type = 'client backend' AND application_name <> 'psql'"  # psql's own is about to end
    for pid in server.sql(f"SELECT pid FROM pg_stat_activity WHERE {backends}").split():  # noqa: S608  (our own text)
        server.run("/usr/bin/prlimit", "--pid", pid, "--fsize=8192")
    with pytest.raises(ArchiveAway):
        writer.write(INSTITUTION, [content(n) for n in range(2, 200)])
    writer.write(INSTITUTION, [content(n) for n in range(2, 200)])
    intact(server, 199)


def test_backup_is_restored_and_filled_up(server: PostgreSql, tmp_path: Path) -> None:
    """A restored dump is complete, and later calls can be written again, as docs/archive.md says."""
    writer = Writer(at(server.url))
    writer.write(INSTITUTION, [content(n) for n in range(40)])
    dump = str(server.folder / "backup.dump")
    server.run("pg_dump", "-Fc", "-f", dump, server.url)
    writer.write(INSTITUTION, [content(n) for n in range(40, 60)])
    head = writer.heads()[INSTITUTION]
    evidence = Evidence(logged={(INSTITUTION, head.n): head.hash})
    writer.close()
    server.sql("DROP DATABASE archive WITH (FORCE)", "CREATE DATABASE archive", database="postgres")
    server.run("pg_restore", "-d", server.url, dump)
    intact(server, 40)
    assert [fault.n for fault in verify(at(server.url), evidence=evidence).faults] == [60], "the restore is seen"
    Writer(at(server.url)).write(INSTITUTION, [content(n) for n in range(60)])
    intact(server, 60)


def test_roles_may_do_what_they_have_to_and_no_more(server: PostgreSql) -> None:
    """Workers may insert, the web process may read, neither may change or delete; the owner may erase."""
    server.sql("DROP ROLE IF EXISTS callkeeper_worker", "DROP ROLE IF EXISTS callkeeper_web", database="postgres")
    server.sql(ROLES.read_text(encoding="utf-8"))
    worker, web = (at(server.url_of(f"callkeeper_{role}")) for role in ("worker", "web"))
    assert Writer(worker).write(INSTITUTION, [content(1)]) == 1
    assert (
        len(ArchiveReader(web).find(CallQuery(institution_key=INSTITUTION), matches=lambda _: True, most=5).calls) == 1
    )
    assert ArchiveReader(web).call(*CallId(INSTITUTION, "v-1")) is not None
    assert verify(web).faults == []
    forbidden = (delete(lines), update(lines).values(body="x"), delete(people))
    for database in (worker, web):
        for statement in forbidden:
            with pytest.raises(ArchiveAway, match="42501"), database.writing() as connection:
                connection.execute(statement)
    with pytest.raises(ArchiveAway, match="42501"):
        Writer(web).write(INSTITUTION, [content(2)])
    assert Keeper(at(server.url), "dpo").erase(INSTITUTION, person_id="p-1", reason="asked").values == 6
    assert Writer(worker).write(INSTITUTION, [content(1, lines=4)]) == 1
    worker.close()
    web.close()
    server.sql("DROP OWNED BY callkeeper_worker", "DROP OWNED BY callkeeper_web")


def test_commands_leave_wrong_lines_and_take_right_ones(server: PostgreSql) -> None:
    """An erasure locks the lines that it tests; retention reads them with a cursor and goes on in parts."""
    database = at(server.url)
    Writer(database, now_ms=lambda: 1).write(INSTITUTION, [content(n) for n in range(1, 8)])
    with database.writing() as connection:
        connection.execute(update(lines).where(lines.c.n == 6).values(body=lines.c.body + " "))
    keeper = Keeper(database, "dpo", at_once=2)
    assert keeper.erase(INSTITUTION, person_id="p-6", reason="asked").wrong == {"v-6"}
    assert len(keeper.erase(INSTITUTION, person_id="p-3", reason="asked").calls) == 1
    assert keeper.retire(INSTITUTION, 2) == 5
    assert [fault.n for fault in keeper.faults] == [6, 6]
    writer = Writer(database, most_walked=2)
    head = writer.heads()[INSTITUTION]
    with database.reading() as connection:
        first = Head(*connection.execute(select(lines.c.n, lines.c.hash).order_by(lines.c.n).limit(1)).one())
    on_the_way = writer.led_to(INSTITUTION, first, head)
    assert on_the_way is not None
    assert (first.n, on_the_way.n, head.n) == (6, 8, 11)


def test_text_that_postgresql_refuses_concerns_one_call(server: PostgreSql) -> None:
    """NUL in an id is replaced. A value that cannot be stored raises `ValueRefused`, not `ArchiveAway`."""
    database = at(server.url)
    assert Writer(database).write(INSTITUTION, [content(1, person_id="p\0x", phone_number="+1\0202")]) == 1
    with pytest.raises(ValueRefused), database.writing() as connection:
        connection.execute(lines.insert(), {"institution_key": "a\0b", "n": 1})
    assert verify(database).faults == []
    database.close()


def test_digest_that_postgresql_refuses_is_one_that_is_not_there(server: PostgreSql) -> None:
    """Anybody who is logged in can type one into the board's address."""
    database = at(server.url)
    Writer(database).write(RULES, [rules_content("a1", b"# text")])
    reader = ArchiveReader(database)
    assert [reader.rules_text(digest) for digest in ("a1", "a1\0")] == [b"# text", None]
    database.close()


def test_pgbouncer_in_transaction_mode_works(server: PostgreSql, tmp_path: Path) -> None:
    """The archive works if several clients share one server connection, so it relies on no session state."""
    port = free_port()
    folder = server.folder / "pgbouncer"
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": 1,
        "unix_socket_dir": "",
        "logfile": folder / "log",
        "user": "postgres" if os.getuid() == 0 else "",
    }
    folder.mkdir()
    os.chmod(folder, 0o777)  # noqa: PTH101, S103  (a test's own folder, for a user of its own)
    place = f"[databases]\narchive = host=127.0.0.1 port={server.port} user=callkeeper dbname=archive\n[pgbouncer]\n"
    (folder / "ini").write_text(place + "".join(f"{k} = {v}\n" for k, v in settings.items() if v != ""))
    bouncer = subprocess.Popen(["/usr/sbin/pgbouncer", "-q", str(folder / "ini")])  # noqa: S603
    try:
        url = server.url_of("callkeeper", port=port)
        until(lambda: [Writer(at(url)).heads()], 20, "the pooler to answer", every_s=0.1, excused=(ArchiveAway,))
        writers = [Writer(at(url)) for _ in range(3)]
        for n in range(30):
            writers[n % 3].write(INSTITUTION, [content(n), content(n + 1)])
        found = ArchiveReader(at(url)).find(CallQuery(words=("marion",)), matches=lambda _: True, most=5)
        assert len(found.calls) == 5
        with writers[0]._database.reading() as connection:
            assert connection.execute(select(func.count()).select_from(lines)).scalar_one() == 31
    finally:
        bouncer.terminate()
        bouncer.wait()
    intact(server, 31)


def test_certificate_of_the_server_is_verified(server: PostgreSql) -> None:
    """Connections need a certificate of a trusted authority for this host, unless verification is switched off."""
    key, certificate = server.folder / "data" / "server.key", server.folder / "data" / "server.crt"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=archive.example"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    if os.getuid() == 0:
        subprocess.run(["chown", "postgres", str(key), str(certificate)], check=True)  # noqa: S603, S607
    server.sql("ALTER SYSTEM SET ssl = on", database="postgres")
    server.sql("SELECT pg_reload_conf()", database="postgres")
    strict = f"{server.url}?sslmode=verify-full"
    right = tls_options(strict, certificate)
    elsewhere = tls_options("postgresql://x@db.example/a", None)
    unverified = f"{server.url}?sslmode=require"
    assert (right, elsewhere["sslmode"]) == ({"sslrootcert": str(certificate)}, "verify-full")
    until(lambda: [Writer(at(strict, right)).heads()], 20, "the server to use its certificate", excused=(ArchiveAway,))
    assert Writer(at(strict, right)).heads() == {}
    with pytest.raises(ArchiveAway):
        Writer(at(server.url, elsewhere)).heads()
    with pytest.raises(ArchiveAway):
        Writer(at(strict.replace("127.0.0.1", "localhost"), right)).heads()
    assert Writer(at(unverified, tls_options(unverified, certificate))).heads() == {}
