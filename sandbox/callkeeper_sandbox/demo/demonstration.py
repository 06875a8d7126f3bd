"""Everything on one machine, for ``callkeeper run``: Redis, the stand-in for the service, web and workers.

Nothing here is for production: the credentials protect the stand-in only.
"""

import asyncio
import json
import secrets
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.app.credentials import MIN_SECRET
from callkeeper.app.terminal import say
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.migrating import Migration
from callkeeper.desk.access.desk_tokens import DeskTokens, IssuedToken
from callkeeper.desk.access.rights import Role
from callkeeper_sandbox.demo.embedded_redis import embedded_redis, free_port
from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from callkeeper_sandbox.demo.given_settings import GivenSettings


def _token() -> str:
    return secrets.token_urlsafe(24)


class Secrets(msgspec.Struct, frozen=True):
    """The credentials of a demonstration; stored with its data."""

    push_key: str = msgspec.field(default_factory=_token)
    admin_password: str = msgspec.field(default_factory=_token)
    outcome_key: str = msgspec.field(default_factory=lambda: f"whsec_{b64encode(secrets.token_bytes(24)).decode()}")

    @classmethod
    def keep(cls, path: Path) -> "Secrets":
        """Return the secrets of a data folder; make and store those that it lacks, or that are too short by now."""
        stored = msgspec.json.decode(path.read_bytes() if path.exists() else b"{}", type=dict[str, str])
        known = msgspec.convert({name: value for name, value in stored.items() if len(value) >= MIN_SECRET}, cls)
        path.touch(mode=0o600)
        path.write_bytes(msgspec.json.encode(known))
        return known

    @property
    def push_headers(self) -> str:
        """Return the header line, as typed in the dashboard."""
        return f"X-Push-Key: {self.push_key}"


@dataclass(frozen=True, slots=True)
class Demo:
    """A running demonstration: where its parts are."""

    redis_url: str
    service_url: str
    web_url: str
    admin: str
    desk_token: str
    fleet: Fleet
    redis: ManagedProcess
    members: tuple[ManagedProcess, ...]
    environ: Mapping[str, str]
    """The settings of web and workers together, for commands that inspect this installation."""
    environ_file: Path
    """A file with the same settings as ``NAME=value``, quoted for a shell. It exists while the demonstration runs."""

    def revive(self) -> list[str]:
        """Start what has ended again, as a platform would; return the names. The stand-in knows what it did: it is not."""
        return [member.name for member in (self.redis, *self.members) if member.revive()]

    def ended(self) -> list[str]:
        """Return the names of processes that do not run."""
        return [member.name for member in (self.redis, *self.members) if not member.is_running]


@contextmanager
def demonstration(
    data: Path,
    *,
    workers: int,
    seed: int,
    scenario: str = "default",
    archive: bool = False,
    given: GivenSettings | None = None,
    web_environ: Mapping[str, str] | None = None,
    worker_environ: Mapping[str, str] | None = None,
    fleet: Fleet | None = None,
) -> Iterator[Demo]:
    """Start everything; end everything when the block ends, workers first.

    A second run continues with the data. ``given`` are settings of a person, which count before the demonstration's; the
    further ones of web and workers count before these. The fleet, by
    default one of its own, is stopped at the end.

    Raises:
        callkeeper_sandbox.demo.fleet.FleetFailed: A part did not start.
        callkeeper_sandbox.demo.embedded_redis.EmbeddedRedisFailed: No Redis server could be started.
    """
    data.mkdir(parents=True, exist_ok=True)
    started = Fleet(data / "logs") if fleet is None else fleet
    with embedded_redis(data / "redis", while_waiting=started.while_waiting) as redis, started as fleet:
        with BlockingRedis.from_url(redis.url) as client:
            older = Migration(client, Keys())
            if older.is_needed():
                say(f"{older.copy()} keys of an older release copied; it is left as it was.")
        is_own = "REDIS_URL" not in (worker_environ or {})
        with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
            desk_token = thread.submit(asyncio.run, _begun_in(redis.url, Keys())).result() if is_own else ""
        known = Secrets.keep(data / "secrets.json")
        admin = f"demo:{known.admin_password}"
        common = {"REDIS_URL": redis.url}
        if archive:
            own_file = f"sqlite:///{(data / 'archive.db').absolute()}"
            common["CALLKEEPER_ARCHIVE_URL"] = (given.archive_url if given else None) or own_file
            migration = fleet.start("archive", "archive", "migrate", environ=common)
        web_settings = {
            **common,
            "CALLKEEPER_PUSH_HEADERS": known.push_headers,
            "CALLKEEPER_ADMIN": admin,
            "CALLKEEPER_RULES": "demo",
            **(given.of_web() if given else {}),
            **(web_environ or {}),
        }
        port = str((given.port if given else 0) or free_port())  # the same after a restart
        web = fleet.start("web", "web", "--host", "127.0.0.1", "--port", port, environ=web_settings)
        web_url = web.wait_for(url_listened_on)
        sandbox = fleet.start(
            "sandbox",
            "sandbox",
            f"--seed={seed}",
            f"--scenario={scenario}",
            f"--push-url={web_url}/push",
            f"--state-file={data / 'sandbox.json'}",
            environ={"SANDBOX_PUSH_HEADERS": known.push_headers},  # the list of processes shows arguments
        )
        service_url = sandbox.wait_for(sandbox_url)
        sandbox.start = None
        if archive:
            migration.wait_for(lambda line: line if "at version" in line else None)
        of_workers = given.of_workers(known.outcome_key) if given else {}
        environ = {**common, **service_environment(service_url), **of_workers, **(worker_environ or {})}
        processes = [fleet.start(f"worker-{n}", "worker", environ=environ) for n in range(1, workers + 1)]
        for member in processes:
            member.wait_for(worker_started)
        everything = {"CALLKEEPER_PUBLIC_URL": web_url, **web_settings, **environ}
        members = (web, sandbox, *processes)
        with _environ_file(data / "demo.env", everything) as written:
            yield Demo(
                redis.url,
                service_url,
                web_url,
                admin,
                desk_token,
                fleet,
                redis.member,
                members,
                everything,
                written,
            )


async def _begun_in(redis_url: str, keys: Keys) -> str:
    """Issue the desk token of this run, and claim once, so that Redis records its epoch before the first call begins.

    For a call that is older than the first claim, workers assume an earlier Redis that was lost, and count checks that
    it may have made as spent.
    """
    async with Redis.from_url(redis_url) as redis:
        await Store(redis, keys=keys).claim(0)
        tokens = DeskTokens(redis, keys=keys)
        await tokens.revoke("demo")
        return await tokens.issue(IssuedToken(name="demo", role=Role.SUPERVISOR, issued_at=datetime.now(UTC)))


@contextmanager
def _environ_file(path: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Write settings to a file that only its owner can read, for the time of the block. A shell loads it with ``.``."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    lines = ["set -a", *(f"{name}={shlex.quote(value)}" for name, value in environ.items()), "set +a", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def service_environment(service_url: str) -> dict[str, str]:
    """Return the settings of a worker that uses a sandbox service."""
    from callkeeper_sandbox.service.access import Credentials  # noqa: PLC0415  (only a demonstration needs the sandbox)

    credentials = Credentials()
    return {
        "CALLKEEPER_SERVICE_URL": service_url,
        "CALLKEEPER_ACCESS_TOKEN": credentials.access_token,
        "CALLKEEPER_EMAIL": credentials.email,
        "CALLKEEPER_PASSWORD": credentials.password,
        "CALLKEEPER_REQUESTED_BY": "callkeeper",
        "CALLKEEPER_RULES": "demo",
    }


def url_listened_on(line: str) -> str | None:
    """Return the web process's address from the line in which it logs it."""
    return _event(line, "web_listening").get("url")


def worker_started(line: str) -> str | None:
    """Return the worker's name from the line in which it logs that it works."""
    return _event(line, "worker_started").get("worker")


def sandbox_url(line: str) -> str | None:
    """Return the sandbox's address from the line in which it logs it."""
    _, found, url = line.partition("sandbox listening on ")
    return url.strip() if found else None


def _event(line: str, name: str) -> dict[str, str]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and entry.get("event") == name else {}
