"""PostgreSQL in a temporary folder, on a free port. Its processes are ended by their ids.

The programs are Debian's, or those in the folders that ``TEST_POSTGRESQL`` names (``make postgresql-versions``).
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.waiting import until

DATABASE = "archive"
CHOSEN = "TEST_POSTGRESQL"


def binaries() -> list[Path]:
    """Return the folders with PostgreSQL's programs: the chosen ones, then Debian's, the newest version first."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]), reverse=True)
    return [Path(folder) for folder in os.environ.get(CHOSEN, "").split(":") if folder] + debian


@dataclass(slots=True)
class PostgreSql:
    """A cluster that can be killed, frozen and started again."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return the URL of its database, for the role that owns it."""
        return self.url_of("callkeeper")

    def url_of(self, role: str, *, port: int | None = None, database: str = DATABASE) -> str:
        """Return the URL of a database for a role."""
        return f"postgresql://{role}@127.0.0.1:{port or self.port}/{database}"

    def run(self, program: str, *arguments: str, **how: str) -> str:
        """Run one of PostgreSQL's programs as the server's user; return what it prints."""
        command = [*_as_server(), str(_binary(program)), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.folder, **how)  # type: ignore[call-overload]  # noqa: S603
        return str(done.stdout)

    def sql(self, *statements: str, role: str = "callkeeper", database: str = DATABASE) -> str:
        """Run statements; return what they print."""
        options = [part for statement in statements for part in ("-c", statement)]
        place = ["-h", "127.0.0.1", "-p", str(self.port), "-U", role, "-d", database]
        return self.run("psql", "-qAt", "-v", "ON_ERROR_STOP=1", *place, *options)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "on"}
        settings = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        log = (self.folder / "log").open("ab")
        command = [*_as_server(), str(_binary("postgres")), "-D", str(self.folder / "data"), *settings]
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)  # noqa: S603
        log.close()
        until(
            lambda: self.sql("SELECT 1", database="postgres"),
            30,
            f"PostgreSQL to start: see {self.folder / 'log'}",
            excused=(subprocess.CalledProcessError,),
        )

    def signal(self, number: int) -> None:
        """Send a signal to all of the server's processes."""
        assert self.process is not None
        os.killpg(self.process.pid, number)
        for child in _children(self.process.pid):  # its backends are leaders of groups of their own
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(child, number)

    def kill(self) -> None:
        """End the server as a power failure would."""
        assert self.process is not None
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self) -> None:
        """End the server, whatever state it is in."""
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.kill()


@contextmanager
def postgresql() -> Iterator[PostgreSql]:
    """Run a new cluster until the block ends.

    Raises:
        RuntimeError: PostgreSQL is not installed.
    """
    if not binaries():
        raise RuntimeError("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="callkeeper-postgresql-"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    server = PostgreSql(folder, free_port())
    try:
        server.run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "callkeeper", "-E", "UTF8", "--no-sync")
        server.start()
        server.sql(f"CREATE DATABASE {DATABASE}", database="postgres")
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _as_server() -> list[str]:
    """Return options that run a command as another user than root, because the server refuses root."""
    if os.getuid() != 0:
        return []
    pwd.getpwnam("postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


def _binary(name: str) -> Path:
    """Return a program from the first folder that has it: some hold only the server."""
    return next(folder / name for folder in binaries() if (folder / name).exists())


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
