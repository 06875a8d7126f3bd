"""The connection to the archive's database: PostgreSQL 13 or newer through psycopg 3, or an SQLite file.

Every transaction has a deadline by our own clock, because a frozen server or a broken network does not answer a
cancellation either. At the deadline the socket is shut down, and the caller gets `ArchiveAway`. There is no session
state and there are no prepared statements, so PgBouncer in transaction mode works.
"""

import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import Any, Final, Self

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from callkeeper.archive.errors import ArchiveAway, ValueRefused
from callkeeper.service.network_failure import NetworkFailure, network_failure

CONNECT_S: Final = 3
WITHIN_S: Final = 4.0
"""Seconds that one transaction of web or worker may take: less than a lease."""

_SERVERS_DEADLINES: Final = ("statement_timeout", "idle_in_transaction_session_timeout")

_CALL_ERRORS: Final = (DataError, IntegrityError)
"""Errors caused by the value that is written. Others affect all writes."""


class Database:
    """Opens transactions over one connection. Use it in one thread at a time, and close it, for example by ``with``."""

    def __init__(self, url: str, options: dict[str, str] | None = None) -> None:
        """Prepare without connecting; ``options`` are libpq's, beside the URL."""
        place = make_url(url)
        self.is_sqlite = place.get_backend_name() == "sqlite"
        self.file = Path(place.database or "") if self.is_sqlite else None
        self._engine = _postgresql(place, options or {}) if self.file is None else _sqlite(place, self.file)

    def writing(self, *, within_s: float = WITHIN_S) -> AbstractContextManager[Connection]:
        """Open a transaction that is committed at the end of the block.

        Raises:
            ArchiveAway: The database failed; whether the transaction was committed may be unknown.
            ValueRefused: The database refuses a value.
        """
        return self._transaction(within_s, "IMMEDIATE")

    def reading(self, *, within_s: float = WITHIN_S) -> AbstractContextManager[Connection]:
        """Open a read-only transaction with one consistent snapshot.

        Raises:
            ArchiveAway: The database failed.
        """
        return self._transaction(within_s, "DEFERRED")

    def is_there(self) -> bool:
        """Tell whether a file exists, if there has to be one: SQLite would make it, also at a mistyped path."""
        return self.file is None or self.file.exists()

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self, within_s: float, mode: str) -> Iterator[Connection]:
        if not self.is_there():
            raise ArchiveAway(NO_TABLES)
        try:
            with self._engine.connect() as connection, _deadline(connection, within_s, self.is_sqlite):
                if self.is_sqlite:
                    connection.execute(text(f"BEGIN {mode}"))
                else:
                    if mode == "DEFERRED":
                        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
                    # After we give up, the server must end the statement and release the lock of the chain.
                    ms = int(within_s * 1000)
                    limits = (func.set_config(name, str(ms), True) for name in _SERVERS_DEADLINES)
                    connection.execute(select(*limits))
                yield connection
                connection.commit()
        except SQLAlchemyError as error:
            raise _our_error(error) from None


_SAID: Final = {
    "failed to resolve host": NetworkFailure.NAME,
    "Connection refused": NetworkFailure.REFUSED,
    "No such file": NetworkFailure.NO_FILE,
    "No route to host": NetworkFailure.NO_ROUTE,
    "Network is unreachable": NetworkFailure.NO_ROUTE,
    "timeout expired": NetworkFailure.TIMED_OUT,
    "closed the connection": NetworkFailure.CLOSED,
    "does not support SSL": NetworkFailure.NO_TLS,
    "certificate verify failed": "the certificate does not verify",
    "does not match host name": "the certificate is for another host",
    "authentication failed": "user or password refused",
    "no password supplied": "user or password refused",
    "does not exist": "no such user or database",
    "pg_hba.conf": "this connection is not allowed by pg_hba.conf",
}
"""What libpq says of a connection that failed. There is no SQLSTATE then, and its text names host and user."""


_UNDEFINED_TABLE: Final = "42P01"
"""What PostgreSQL says of a table that does not exist."""

NO_TABLES: Final = "it has no tables yet (callkeeper archive migrate makes them)"


def _our_error(error: SQLAlchemyError) -> Exception:
    """Return our error. It names only the kind, because the message may quote the value."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
    state = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    if state == _UNDEFINED_TABLE or "no such table" in str(cause):
        return ArchiveAway(NO_TABLES)
    if isinstance(error, OperationalError) and state is None:
        said = next((words for text, words in _SAID.items() if text in str(cause)), None)
        return ArchiveAway(said or network_failure(cause))
    words = f"{type(cause).__name__} ({state})" if state else type(cause).__name__
    return ValueRefused(words) if isinstance(error, _CALL_ERRORS) else ArchiveAway(words)


def _postgresql(place: URL, options: dict[str, str]) -> Engine:
    engine = create_engine(
        place.set(drivername="postgresql+psycopg"),
        pool_size=1,
        max_overflow=4,
        pool_timeout=CONNECT_S,
        pool_recycle=300,
        pool_pre_ping=False,  # a ping would hang on a frozen server; a broken connection costs one failed attempt
        hide_parameters=True,
        connect_args={
            "prepare_threshold": None,
            "connect_timeout": CONNECT_S,
            "application_name": "callkeeper",
            "keepalives_idle": "30",
            **options,
        },
    )

    @event.listens_for(engine, "handle_error")
    def forget(context: Any) -> None:
        """Discard a connection after any error of the server, because it may be broken."""
        if context.is_disconnect is False and not isinstance(context.sqlalchemy_exception, _CALL_ERRORS):
            context.is_disconnect = True

    return engine


def _sqlite(place: URL, file: Path) -> Engine:
    engine = create_engine(place, hide_parameters=True, connect_args={"timeout": 5.0, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        """Disable implicit transactions, and let readers and a writer work at the same time."""
        connection.isolation_level = None
        connection.execute("PRAGMA journal_mode=WAL")
        with suppress(OSError):
            file.chmod(0o600)  # it holds phone numbers

    return engine


@contextmanager
def _deadline(connection: Connection, within_s: float, is_sqlite: bool) -> Iterator[None]:
    """Cut the connection off if the block takes longer."""
    raw: Any = connection.connection.driver_connection
    timer = Timer(within_s, raw.interrupt if is_sqlite else _cut, [] if is_sqlite else [raw])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _cut(raw: Any) -> None:
    """Shut a connection's socket down, so that everything that waits for it fails at once."""
    with suppress(Exception), socket.socket(fileno=os.dup(raw.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
