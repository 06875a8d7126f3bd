"""Real processes: an embedded Redis, the sandbox, web and workers, on free ports.

`stack` runs those of ``callkeeper run``, with methods that read and control them. Tests that need other processes or
other servers start each with `start_sandbox`, `start_web` and `start_worker`.
"""

import datetime as dt
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from uuid import uuid4

import httpx

from callkeeper.app.connections import blocking_redis
from callkeeper.app.redis_location import parse_location
from callkeeper.app.settings import WebSettings, WorkerSettings
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.record_storage import parse_call
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.calls.trail import Entry, parse_trail
from callkeeper_sandbox.demo.demonstration import (
    Demo,
    demonstration,
    sandbox_url,
    service_environment,
    url_listened_on,
    worker_started,
)
from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from callkeeper_sandbox.service import population
from tests.harness.fork_server import ForkingFleet
from tests.waiting import until

KEY = "cu-1"

Environ = Mapping[str, str]
NOTHING: Final[Environ] = MappingProxyType({})

PUSH_KEY: Final = "a-key-that-only-tests-know-0123456789"

PATIENCE_S: Final = 90.0
"""How long a test waits for an expected event. It is long enough for a busy machine."""


def start_sandbox(fleet: Fleet, *options: str, scenario: str = "none") -> str:
    """Start a sandbox, with no calls of its own unless there is a scenario; return its URL once it listens."""
    sandbox = fleet.start("sandbox", "sandbox", "--scenario", scenario, *options, environ={})
    return sandbox.wait_for(sandbox_url, PATIENCE_S)


def start_web(
    fleet: Fleet, redis_url: str, *, name: str = "web", port: int = 0, environ: Environ = NOTHING
) -> ManagedProcess:
    """Start a web process that takes pushes with `PUSH_KEY`, unless the settings say otherwise."""
    own = {**_common(redis_url), "CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {PUSH_KEY}", **environ}
    return fleet.start(name, "web", "--host", "127.0.0.1", "--port", str(port), environ=own)


def start_worker(
    fleet: Fleet,
    redis_url: str,
    service_url: str,
    *,
    name: str = "worker",
    command: str = "worker",
    module: str = "callkeeper",
    environ: Environ = NOTHING,
) -> ManagedProcess:
    """Start a worker of a sandbox. ``module`` and ``command`` are run instead of ``callkeeper worker``."""
    own = {**_common(redis_url), **service_environment(service_url), **environ}
    return fleet.start(name, command, environ=own, module=(module,))


def checking_at(folder: Path, *times_s: float) -> dict[str, str]:
    """Return the setting of a worker with the demonstration's rules and other check times, in seconds after the assign."""
    shipped = (files("callkeeper.calls") / "rulebooks" / "demo.toml").read_text()
    path = folder / f"rules-{len(times_s)}-{times_s[-1]}.toml"
    written = path.with_suffix(f".{uuid4().hex}")  # another worker may be reading the file
    written.write_text(re.sub(r"(?m)^at = .*$", f"at = {list(times_s)}", shipped))
    written.replace(path)
    return {"CALLKEEPER_RULES": str(path)}


def web_url(web: ManagedProcess) -> str:
    """Return the URL of a web process once it listens."""
    return web.wait_for(url_listened_on, PATIENCE_S)


def wait_for_work(member: ManagedProcess) -> None:
    """Wait until a web process listens, or a worker works."""
    member.wait_for(lambda line: url_listened_on(line) or worker_started(line), PATIENCE_S)


def freeze(member: ManagedProcess) -> None:
    """Freeze a process, and wait until it has stopped."""
    os.kill(member.process.pid, signal.SIGSTOP)
    until(lambda: is_frozen(member), 5, f"{member.name} to stand still")


def thaw(member: ManagedProcess) -> None:
    """Let a frozen process continue, if it exists."""
    if member.is_running:
        os.kill(member.process.pid, signal.SIGCONT)


@contextmanager
def frozen(*members: ManagedProcess) -> Iterator[None]:
    """Freeze processes until the block ends."""
    for member in members:
        freeze(member)
    try:
        yield
    finally:
        for member in members:
            thaw(member)


def is_frozen(member: ManagedProcess) -> bool:
    """Tell whether a process is frozen."""
    try:
        status = Path(f"/proc/{member.process.pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in {"T", "t"}


def _common(redis_url: str) -> dict[str, str]:
    return {"REDIS_URL": redis_url}


class Sides:
    """Access to both sides: the sandbox's control interface and our Redis."""

    poll_every_s = 0.05

    def __init__(self, redis_url: str, service_url: str, *, keys: Keys = KEYS) -> None:
        self.redis_url = redis_url
        self.service_url = service_url
        self.keys = keys
        self.redis: Any = blocking_redis(parse_location(redis_url), timeout_s=60.0)
        self.http = httpx.Client(trust_env=False, timeout=10)

    def close(self) -> None:
        """Close the connections."""
        self.redis.close()
        self.http.close()

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the sandbox's control interface."""
        response = self.http.request(method, f"{self.service_url}/control{path}", json=body)
        response.raise_for_status()
        return response.json()

    def account(self, call: dict[str, Any]) -> dict[str, Any]:
        """Return the sandbox's current account of a call, with every request about it."""
        account: dict[str, Any] = self.control("GET", f"/calls/{call['voice_id']}")
        return account

    def happen(self, call: dict[str, Any], kind: str, **more: object) -> None:
        """Add a happening to a call now."""
        self.control("POST", f"/calls/{call['voice_id']}/now", {"kind": kind, **more})

    def arrived(self, call: dict[str, Any]) -> dict[str, int]:
        """Return how many requests of each kind arrived for a call."""
        counts: dict[str, int] = self.account(call)["tally"]["arrived"]
        return counts

    def arrival(self, call: dict[str, Any], operation: str) -> dt.datetime | None:
        """Return when the first request of a kind arrived for a call."""
        arrivals = self.account(call)["arrivals"]
        return next((dt.datetime.fromisoformat(a["at"]) for a in arrivals if a["operation"] == operation), None)

    def record(self, call: dict[str, Any]) -> Call | None:
        """Return our record of a call."""
        member = CallId(call["institution_key"], call["voice_id"]).member
        stored = self.redis.hget(self.keys.item(member), "rec")
        return None if stored is None else parse_call(stored)

    def records(self) -> dict[str, Call]:
        """Return our records by voice id."""
        pipe = self.redis.pipeline(transaction=False)
        for key in self.redis.scan_iter(match=f"{self.keys.item('c:')}*", count=1000):
            pipe.hget(key, "rec")
        return {call.voice_id: call for call in map(parse_call, filter(None, pipe.execute()))}

    def trail(self, call: dict[str, Any]) -> tuple[Entry, ...]:
        """Return our trail of a call."""
        member = CallId(call["institution_key"], call["voice_id"]).member
        return parse_trail(self.redis.lrange(self.keys.trail(member), 0, -1))

    def settled(self, call: dict[str, Any], within_s: float = 40.0) -> Call:
        """Wait until a call is settled and return its record."""

        def look() -> Call | None:
            record = self.record(call)
            return record if record is not None and record.life.phase is Phase.SETTLED else None

        return until(look, within_s, f"{call['voice_id']} to be settled", every_s=self.poll_every_s)

    def push(self, payload: object, key: str = KEY) -> dict[str, Any]:
        """Let the sandbox push a payload once, unchanged; return its attempt."""
        attempt: dict[str, Any] = self.control("POST", "/push", {"institution_key": key, "payload": payload})
        return attempt

    def fault(self, target: str, action: str = "pass", **more: object) -> None:
        """Add a fault to the sandbox."""
        self.control("POST", "/faults", {"target": target, "action": action, **more})

    def lift_faults(self) -> None:
        """Lift all faults."""
        self.control("DELETE", "/faults")


class Stack(Sides):
    """A running demonstration that has only the calls that a test starts."""

    def __init__(self, demo: Demo, data: Path) -> None:
        super().__init__(demo.redis_url, demo.service_url)
        self.demo = demo
        self.data = data
        self._next_member = population.SHARED

    def member(self, name: str) -> ManagedProcess:
        """Return a process by name."""
        return next(member for member in self.demo.members if member.name == name)

    def start(
        self,
        command: str,
        name: str | None = None,
        *,
        port: int = 0,
        module: tuple[str, ...] = ("callkeeper",),
        waits: bool = True,
        environ: Mapping[str, str | None] = NOTHING,
    ) -> ManagedProcess:
        """Start another process of this installation, with the settings of the first ones.

        Args:
            command: ``web`` or ``worker``.
            name: Of the process and its log.
            port: Of a web process; 0 for a free one.
            module: What to run instead of callkeeper, with its first arguments.
            waits: Wait until it works.
            environ: Further or other settings; None for one that it does not get.
        """
        fleet, is_web = self.demo.fleet, command == "web"
        read = (WebSettings if is_web else WorkerSettings).variables()
        known = {setting: value for setting, value in self.demo.environ.items() if setting in read}
        own = {setting: value for setting, value in {**known, **environ}.items() if value is not None}
        options = ("--host", "127.0.0.1", "--port", str(port)) if is_web else ()
        name = name or f"{command}-{len(fleet.members)}"
        member = fleet.start(name, command, *options, environ=own, module=module)
        if waits:
            wait_for_work(member)
        return member

    def push_to(self, web_url: str, headers: str | None = None) -> None:
        """Have every institution push to a web process, with the installation's headers or others."""
        push = {"url": f"{web_url}/push", "headers": headers or self.demo.environ["CALLKEEPER_PUSH_HEADERS"]}
        for key in population.INSTITUTIONS:
            self.control("PUT", f"/institutions/{key}/push", push)

    def next_phone(self, key: str = KEY) -> str:
        """Return the phone number of the next call."""
        return population.phone(key, population.SHARED + self._next_member % (population.MEMBERS - population.SHARED))

    def call(self, *script: dict[str, object], key: str = KEY, **more: object) -> dict[str, Any]:
        """Start a call of a member who is the only candidate; return the sandbox's account of it."""
        phone = self.next_phone(key)
        self._next_member += 1
        body = {"institution_key": key, "phone_number": phone, "script": script, **more}
        account: dict[str, Any] = self.control("POST", "/calls", body)
        return account


def end(after_s: float) -> dict[str, object]:
    """Return the happening that ends a call."""
    return {"kind": "end", "after_s": after_s}


@contextmanager
def stack(
    data: Path,
    *,
    workers: int,
    seed: int = 1,
    worker_environ: Mapping[str, str] | None = None,
    web_environ: Mapping[str, str] | None = None,
    forked: bool = True,
) -> Iterator[Stack]:
    """Run a stack until the block ends.

    ``forked``: start processes with the fork server; False where what the system shows of a process is looked at.
    """
    with demonstration(
        data,
        workers=workers,
        seed=seed,
        scenario="none",
        worker_environ=dict(worker_environ or {}),
        web_environ=web_environ,
        fleet=(ForkingFleet if forked else Fleet)(data / "logs"),
    ) as demo:
        running = Stack(demo, data)
        try:
            yield running
        finally:
            running.close()
