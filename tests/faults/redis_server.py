"""A Redis server that tests kill, freeze, roll back and restart, with the same port and append-only file."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from callkeeper_sandbox.demo.embedded_redis import find_server
from tests.ports import HeldPort
from tests.waiting import until

DATABASES = 64
_START_DEADLINE_S = 20.0


class RedisServer:
    """One server's data and port. Its process can be killed and started again."""

    def __init__(self, data: Path) -> None:
        self._data = data
        data.mkdir(parents=True, exist_ok=True)
        self._held = HeldPort()
        self.port = self._held.number
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, db: int = 0) -> str:
        """Return the address of one of the databases."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    def connect(self, db: int = 0) -> Any:
        """Connect to one of the databases."""
        return Redis.from_url(self.url(db))

    def start(self, **options: str) -> None:
        """Start the server and wait until it has loaded its data and answers.

        Raises:
            AssertionError: The server does not answer in time.
        """
        chosen = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self._data),
            "databases": str(DATABASES),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": str(self._data / "redis.log"),
            **options,
        }
        self._process = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            [find_server(), *(word for name, value in chosen.items() for word in (f"--{name}", value))],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_until_ready()

    def kill(self) -> None:
        """Kill the process without a clean shutdown."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Freeze the process; its connections stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the frozen process continue."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill the process if it runs, and release the port."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._held.release()

    @property
    def written(self) -> int:
        """Return the length of the append-only file in bytes."""
        return self._log_file.stat().st_size

    def cut(self, at: int) -> None:
        """Truncate the append-only file to a length, so that later writes are lost. The server must be stopped."""
        os.truncate(self._log_file, at)

    @property
    def _log_file(self) -> Path:
        """Return the append-only file. Redis 7 and later split it into parts and write to the last one."""
        parts = sorted(self._data.rglob("*.incr.aof"), key=lambda part: part.stat().st_mtime)
        return parts[-1] if parts else self._data / "appendonly.aof"

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _wait_until_ready(self) -> None:
        with Redis(port=self.port, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as redis:
            until(redis.ping, _START_DEADLINE_S, "the Redis server to answer", every_s=0.01, excused=(RedisError,))


@contextmanager
def redis_server(data: Path) -> Iterator[RedisServer]:
    """Run a server until the block ends. Tests may kill and restart it meanwhile."""
    server = RedisServer(data)
    try:
        server.start()
        yield server
    finally:
        server.stop()
