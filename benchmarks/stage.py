"""The environment of a measurement: an embedded Redis, the fast stand-in and a log folder. All end with the block."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from redis import Redis

from benchmarks.load import PUSH_KEY
from benchmarks.process import Meter, process, python
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.demonstration import url_listened_on, worker_started
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.demo.fleet import ManagedProcess

PATIENCE_S = 60.0


class BenchmarkFailed(Exception):
    """The measured process did not do its work; the message says where to look."""


@dataclass(slots=True)
class Stage:
    """The environment that all ways are measured in."""

    data: Path
    redis_url: str
    redis_pid: int
    service_url: str
    service: ManagedProcess
    redis: Any
    http: httpx.Client
    started: int = 0

    @property
    def worker_environ(self) -> dict[str, str]:
        """Return the settings of a worker of ours."""
        return {
            "REDIS_URL": self.redis_url,
            "CALLKEEPER_SERVICE_URL": self.service_url,
            "CALLKEEPER_ACCESS_TOKEN": "bench-access-token",
            "CALLKEEPER_EMAIL": "bench@bank.example",
            "CALLKEEPER_PASSWORD": "bench-password",
            "CALLKEEPER_REQUESTED_BY": "bench",
        }

    @property
    def peer_environ(self) -> dict[str, str]:
        """Return the environment variables of a peer."""
        return {"BENCH_REDIS_URL": self.redis_url, "BENCH_SERVICE_URL": self.service_url}

    def log(self, name: str) -> Path:
        """Return a new log file."""
        self.started += 1
        return self.data / f"{self.started:03}-{name}.log"

    @contextmanager
    def worker(self, **environ: str) -> Iterator[ManagedProcess]:
        """Run a worker of ours until the block ends."""
        with python(
            "callkeeper", "worker", log=self.log("worker"), environ={**self.worker_environ, **environ}
        ) as member:
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
    def peer(self, interpreter: Path, module: str, *arguments: str) -> Iterator[ManagedProcess]:
        """Run a peer until the block ends."""
        command: list[str | Path] = [interpreter, "-m", f"benchmarks.peers.{module}", *arguments]
        with process(command, self.log(module), environ=self.peer_environ) as member:
            yield member

    def run(self, interpreter: Path, module: str, *arguments: str) -> None:
        """Run a peer's command and wait for its end.

        Raises:
            BenchmarkFailed: The command failed.
        """
        with self.peer(interpreter, module, *arguments) as member:
            if member.process.wait(PATIENCE_S) != 0:
                raise BenchmarkFailed(f"{module} {' '.join(arguments)} failed:\n{member.tail()}")

    def asked(self) -> dict[str, Any]:
        """Return the stand-in's counts of requests so far."""
        found: dict[str, Any] = self.http.get(f"{self.service_url}/bench").json()
        return found

    def begin_calls(self, count: int, *, assigned: bool = False) -> list[str]:
        """Begin calls at the stand-in, and return their ids."""
        query = f"count={count}{'&assigned=yes' if assigned else ''}"
        ids: list[str] = self.http.post(f"{self.service_url}/bench/calls?{query}").json()
        return ids

    def start_calls(self, url: str, count: int, rate: float) -> None:
        """Start calls at the stand-in, so many a second, and push them to an address."""
        self.http.post(f"{self.service_url}/bench/start", params={"url": url, "count": count, "rate": rate})

    def meter(self, **members: ManagedProcess) -> Meter:
        """Start to measure processes together with Redis and the stand-in."""
        pids = {name: member.process.pid for name, member in members.items()}
        return Meter(**pids, redis=self.redis_pid, service=self.service.process.pid)

    def clear(self) -> None:
        """End all calls, and empty Redis. Mark Redis as known for a minute: workers delay effects on a new one."""
        self.http.post(f"{self.service_url}/bench/calls?count=0&anew=yes").raise_for_status()
        self.redis.flushall()
        told = self.redis.info()
        known = {"id": f"{told['run_id']}/{told['master_replid']}", "since": int((time.time() - 60) * 1000)}
        self.redis.hset(Keys().epoch, mapping=known)


@contextmanager
def stage(*, latency_ms: float = 50.0, limit: int = 0, redis_server: Path | None = None) -> Iterator[Stage]:
    """Run the environment until the block ends; the service answers this many requests per second (0: any number)."""
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="bench-")))
        redis = stack.enter_context(embedded_redis(data / "redis", redis_server))
        service = stack.enter_context(
            python(
                "benchmarks.service", "--latency-ms", str(latency_ms), "--limit", str(limit), log=data / "service.log"
            )
        )
        url = service.wait_for(_listening)
        client = stack.enter_context(Redis.from_url(redis.url))
        http = stack.enter_context(httpx.Client(trust_env=False, timeout=30))
        found = Stage(data, redis.url, redis.pid, url, service, client, http)
        found.clear()
        yield found


def _listening(line: str) -> str | None:
    _, found, url = line.partition("listening on ")
    return url.strip() if found else None


def wait_until(done: Callable[[], bool], what: str, *members: ManagedProcess, every_s: float = 0.01) -> None:
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
        time.sleep(every_s)
