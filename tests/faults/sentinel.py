"""A Redis master, its replicas and a sentinel on this machine, with users and passwords, for failover tests."""

import signal
import subprocess
from collections.abc import Callable, Iterator
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

MASTER = "calls-master"
USER, PASSWORD = "app", "redis-word-4711"
TENANT = "tenant"
"""A user with the rights that deploy/redis/users.acl.example gives to a worker, for the prefix bank-a."""

_USERS = (Path(__file__).parents[2] / "deploy" / "redis" / "users.acl.example").read_text(encoding="utf-8")
TENANT_RIGHTS = _USERS.partition(">PASSWORD-OF-WORKER ")[2].strip().replace("~ck:", "~bank-a:")
SENTINEL_PASSWORD = "sentinel-word-4711"
_START_DEADLINE_S = 30.0
PAUSED_MS = 20_000
"""How long writes are paused before a master is replaced. Its demotion takes up to ten seconds."""

_SERVER = """\
bind 127.0.0.1
port {port}
dir {folder}
logfile {folder}/redis.log
appendonly yes
save ""
repl-diskless-sync yes
repl-diskless-sync-delay 0
min-replicas-to-write {least_replicas}
user default off
user {user} on >{password} ~* &* +@all
user {tenant} on >{password} resetchannels {tenant_rights}
masteruser {user}
masterauth {password}
"""

_SENTINEL = """\
bind 127.0.0.1
port {port}
dir {folder}
logfile {folder}/sentinel.log
requirepass {sentinel_password}
sentinel monitor {master} 127.0.0.1 {master_port} 1
sentinel auth-user {master} {user}
sentinel auth-pass {master} {password}
sentinel down-after-milliseconds {master} 2000
sentinel failover-timeout {master} 4000
"""


class Watched:
    """A master, its replicas, and the sentinel that names the master."""

    def __init__(self, folder: Path, *, replicas: int, least_replicas: int) -> None:
        self._folder = folder
        self._least_replicas = least_replicas
        self._held = [HeldPort() for _ in range(2 + replicas)]
        self.sentinel_port, *self.ports = (port.number for port in self._held)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """Return a URL of the current master. It names two sentinels; the first one does not run."""
        return self.url_of(USER)

    def url_of(self, user: str) -> str:
        """Return the same URL for one of the users."""
        sentinels = f"127.0.0.1:1,127.0.0.1:{self.sentinel_port}"
        options = f"sentinel_password={SENTINEL_PASSWORD}"
        return f"redis+sentinel://{user}:{PASSWORD}@{sentinels}/{MASTER}/0?{options}"

    def start(self) -> None:
        """Start everything and wait until a failover would succeed."""
        for port in self.ports:
            self._start(port, _SERVER)
        _until(lambda: all(self._ask(port, "ping") for port in self.ports), "the servers to answer")
        first, *others = self.ports
        for port in others:
            self._ask(port, "replicaof", "127.0.0.1", first)
        _until(lambda: all(map(self._follows, others)), "the replicas to follow")
        _until(lambda: self._has_all(first, len(others)), "the replicas to get what is written")
        self._start(self.sentinel_port, _SENTINEL, "--sentinel")
        _until(lambda: self._master()["num-slaves"] == len(others), "the sentinel to know the replicas")

    @property
    def master_port(self) -> int:
        """Return the port of the master that the sentinel names."""
        return int(self._master()["port"])

    def fail_over(self) -> None:
        """Have a replica promoted, and wait until the sentinel names it as the master.

        The sentinel demotes the old master only after 8 s. Unless ``min-replicas-to-write`` is set, the old master
        takes writes from connected clients until then.
        """
        before = self.master_port
        _until(lambda: bool(self._sentinel("sentinel_failover", MASTER)), "the sentinel to find a replica good enough")
        self.wait_for_another(before)

    def switch_over(self) -> None:
        """Replace the master as docs/operations.md says: first pause its writes until its demotion must be over."""
        self._ask(self.master_port, "client_pause", PAUSED_MS, False)
        self.fail_over()

    def wait_until_all_follow(self) -> None:
        """Wait until every other server follows the master.

        A replaced master that was not yet demoted has old data, and the sentinel may choose it nevertheless.
        """
        _until(lambda: self._has_all(self.master_port, len(self.ports) - 1), "all servers to follow")

    def kill_master(self) -> int:
        """Kill the master and return its port. The sentinel detects the loss on its own."""
        port = self.master_port
        process = self._processes.pop(port)
        process.kill()
        process.wait()
        return port

    def freeze_master(self) -> int:
        """Freeze the master and return its port. It keeps its connections, and answers nothing."""
        port = self.master_port
        self._processes[port].send_signal(signal.SIGSTOP)
        return port

    def thaw(self, port: int) -> None:
        """Let a frozen master go on. It takes writes until the sentinel has demoted it."""
        self._processes[port].send_signal(signal.SIGCONT)
        _until(lambda: self._follows(port), "the server that was frozen to follow")

    def bring_back(self, port: int) -> None:
        """Start a killed server as a replica of the current master, and wait until it replicates."""
        self._start(port, _SERVER, "--replicaof", "127.0.0.1", str(self.master_port))
        _until(lambda: self._follows(port), "the server that came back to follow")

    def wait_for_another(self, before: int) -> None:
        """Wait until the sentinel names another master and that master accepts writes."""
        _until(lambda: self.master_port != before, "another master")
        _until(lambda: self._ask(self.master_port, "role")[0] == b"master", "a master that takes writes")

    def stop(self) -> None:
        """Kill all processes."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        for port in self._held:
            port.release()

    def _start(self, port: int, template: str, *more: str) -> None:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "redis.conf"
        config.write_text(
            template.format(
                port=port,
                folder=folder,
                user=USER,
                tenant=TENANT,
                tenant_rights=TENANT_RIGHTS,
                password=PASSWORD,
                sentinel_password=SENTINEL_PASSWORD,
                master=MASTER,
                master_port=self.ports[0],
                least_replicas=self._least_replicas,
            )
        )
        self._processes[port] = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            [find_server(), str(config), *more], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _follows(self, port: int) -> bool:
        return bool(self._ask(port, "info", "replication")["master_link_status"] == "up")

    def _has_all(self, port: int, replicas: int) -> bool:
        """Tell whether a write reaches this many replicas. A new replica gets no writes for up to a second."""
        with _client(port, username=USER, password=PASSWORD) as redis, redis.pipeline(transaction=False) as pipe:
            told = pipe.set("begun", 1).delete("begun").execute_command("WAIT", replicas, 100).execute()
            return bool(told[-1] == replicas)

    def _master(self) -> dict[str, Any]:
        masters: dict[str, dict[str, Any]] = self._sentinel("sentinel_masters")
        return masters[MASTER]

    def _sentinel(self, command: str, *arguments: str) -> Any:
        with _client(self.sentinel_port, password=SENTINEL_PASSWORD) as redis:
            return getattr(redis, command)(*arguments)

    def _ask(self, port: int, command: str, *arguments: object) -> Any:
        with _client(port, username=USER, password=PASSWORD) as redis:
            return getattr(redis, command)(*arguments)


def _client(port: int, *, password: str, username: str | None = None) -> Any:
    return Redis(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 0), username=username, password=password)


def _until(is_so: Callable[[], bool], what: str) -> None:
    until(is_so, _START_DEADLINE_S, what, every_s=0.02, excused=(RedisError, KeyError))


@contextmanager
def watched_redis(folder: Path, *, replicas: int = 1, least_replicas: int = 0) -> Iterator[Watched]:
    """Run a master, its replicas and a sentinel until the block ends.

    Args:
        folder: For their data.
        replicas: Number of replicas.
        least_replicas: With fewer replicas than this the master refuses writes (``min-replicas-to-write``).
    """
    watched = Watched(folder, replicas=replicas, least_replicas=least_replicas)
    try:
        watched.start()
        yield watched
    finally:
        watched.stop()
