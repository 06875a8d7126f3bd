"""The environment of a measurement: an embedded Redis, the fast stand-in and a log folder. All end with the block.

CPU time includes all threads of a process and the children it has waited for (``/proc/PID/stat``: Linux only). So it
includes the forks of a worker that forks for every job.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from redis import Redis

from benchmarks.load import PUSH_KEY
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.demonstration import url_listened_on, worker_started
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.demo.fleet import ManagedProcess

PATIENCE_S = 60.0
ROOT = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")


class BenchmarkFailed(Exception):
    """The measured process did not do its work; the message says where to look."""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process and its finished children have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


@contextmanager
def python(module: str, *arguments: str, log: Path, environ: Mapping[str, str]) -> Iterator[ManagedProcess]:
    """Run ``python -m MODULE`` until the block ends; write its output to ``log``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CALLKEEPER_")}
    path = {"PYTHONPATH": os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), str(ROOT))))}
    with log.open("wb") as sink:
        running = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**kept, "PYTHONUNBUFFERED": "1", **environ, **path},
            start_new_session=True,
        )
    member = ManagedProcess(log.stem, running, log)
    try:
        yield member
    finally:
        member.stop(5.0)


@dataclass(slots=True)
class Stage:
    """The environment that all ways are measured in."""

    data: Path
    redis_url: str
    redis_pid: int
    service_url: str
    redis: Any
    http: httpx.Client
    started: int = 0

    def log(self, name: str) -> Path:
        """Return a new log file."""
        self.started += 1
        return self.data / f"{self.started:03}-{name}.log"

    @contextmanager
    def worker(self, **environ: str) -> Iterator[ManagedProcess]:
        """Run a worker of ours until the block ends."""
        settings = {
            "REDIS_URL": self.redis_url,
            "CALLKEEPER_SERVICE_URL": self.service_url,
            "CALLKEEPER_ACCESS_TOKEN": "bench-access-token",
            "CALLKEEPER_EMAIL": "bench@bank.example",
            "CALLKEEPER_PASSWORD": "bench-password",
            "CALLKEEPER_REQUESTED_BY": "bench",
        }
        with python("callkeeper", "worker", log=self.log("worker"), environ={**settings, **environ}) as member:
            member.wait_for(worker_started)
            yield member

    @contextmanager
    def web(self) -> Iterator[tuple[ManagedProcess, str]]:
        """Run a web process of ours until the block ends; yield it and the address to push events to."""
        environ = {"REDIS_URL": self.redis_url, "CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {PUSH_KEY}"}
        arguments = ("web", "--host", "127.0.0.1", "--port", "0")
        with python("callkeeper", *arguments, log=self.log("web"), environ=environ) as member:
            yield member, member.wait_for(url_listened_on) + "/push"

    @contextmanager
    def peer(self, module: str, *arguments: str, packages: str = "") -> Iterator[ManagedProcess]:
        """Run a peer until the block ends. ``packages`` is a folder that is searched before our own packages."""
        environ = {"BENCH_REDIS_URL": self.redis_url, "BENCH_SERVICE_URL": self.service_url, "PYTHONPATH": packages}
        with python(f"benchmarks.peers.{module}", *arguments, log=self.log(module), environ=environ) as member:
            yield member

    def asked(self) -> dict[str, Any]:
        """Return the stand-in's counts of requests so far."""
        found: dict[str, Any] = self.http.get(f"{self.service_url}/bench").json()
        return found

    def begin_calls(self, count: int) -> list[str]:
        """Begin assigned calls at the stand-in, and return their ids."""
        ids: list[str] = self.http.post(f"{self.service_url}/bench/calls?count={count}").json()
        return ids

    def clear(self) -> None:
        """End all calls, and empty Redis. Mark Redis as known for a minute: workers delay effects on a new one."""
        self.http.post(f"{self.service_url}/bench/calls?count=0&anew=yes").raise_for_status()
        self.redis.flushall()
        told = self.redis.info()
        known = {"id": f"{told['run_id']}/{told['master_replid']}", "since": int((time.time() - 60) * 1000)}
        self.redis.hset(Keys().epoch, mapping=known)


@contextmanager
def stage(*, latency_ms: float = 50.0) -> Iterator[Stage]:
    """Run the environment until the block ends."""
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        redis = stack.enter_context(embedded_redis(data / "redis"))
        log = data / "service.log"
        service = stack.enter_context(python("benchmarks.service", str(latency_ms), log=log, environ={}))
        url = service.wait_for(_listening)
        client = stack.enter_context(Redis.from_url(redis.url))
        http = stack.enter_context(httpx.Client(trust_env=False, timeout=30))
        found = Stage(data, redis.url, redis.pid, url, client, http)
        found.clear()
        yield found


def _listening(line: str) -> str | None:
    _, found, url = line.partition("listening on ")
    return url.strip() if found else None


def wait_until(done: Callable[[], bool], what: str, *members: ManagedProcess) -> None:
    """Wait until a condition is true.

    Raises:
        BenchmarkFailed: The condition is not true in time, or a process that it needs has ended.
    """
    until_s = time.monotonic() + PATIENCE_S
    while not done():
        gone = [member for member in members if not member.is_running]
        if gone or time.monotonic() > until_s:
            told = "\n".join(member.tail() for member in gone or members)
            raise BenchmarkFailed(f"waited in vain for {what}\n{told}")
        time.sleep(0.01)
