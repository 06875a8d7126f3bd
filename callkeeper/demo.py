"""Everything on one machine, for ``callkeeper run``: Redis, the stand-in, web and workers, and what they are doing.

Nothing here is for production: the credentials protect the stand-in only.
"""

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx
import msgspec
from redis import Redis

from callkeeper.embedded import embedded_redis
from callkeeper.fleet import Fleet, Member
from calls.keys import Keys
from calls.record import Phase, parse_call

SETTLES_WITHIN_S = 30.0
"""A call that ended so long ago has to be settled: its end is found by a read at the latest, then a last read is made."""


FOUND_WITHIN_S = 10.0
"""A call that the queue showed for so long has to be found, also if its push was lost."""


class Secrets(msgspec.Struct, frozen=True):
    """What the parts of a demonstration know each other by; kept with its data."""

    push_key: str
    admin_password: str

    @classmethod
    def keep(cls, path: Path) -> "Secrets":
        """Return the secrets of a data folder, made when it is new."""
        if not path.exists():
            path.touch(mode=0o600)
            path.write_bytes(msgspec.json.encode(cls(secrets.token_urlsafe(24), secrets.token_urlsafe(12))))
        return msgspec.json.decode(path.read_bytes(), type=cls)

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
    fleet: Fleet
    members: tuple[Member, ...]
    environ: Mapping[str, str]
    """The settings of web and workers together: what commands need to look at this installation."""

    def ended(self) -> list[str]:
        """Return the names of processes that have ended by themselves."""
        return [member.name for member in self.members if not member.is_running]


@contextmanager
def demonstration(
    data: Path,
    *,
    workers: int,
    seed: int,
    scenario: str = "default",
    web_environ: Mapping[str, str] | None = None,
    worker_environ: Mapping[str, str] | None = None,
) -> Iterator[Demo]:
    """Start everything; end everything when the block ends, workers first.

    Args:
        data: Where everything keeps its data; what is there is gone on with.
        workers: How many.
        seed: Of the scenario.
        scenario: Of the stand-in.
        web_environ: Further settings of the web process.
        worker_environ: Further settings of the workers.

    Raises:
        callkeeper.fleet.FleetFailed: A part did not start.
        callkeeper.embedded.EmbeddedRedisFailed: No Redis server could be started.
    """
    data.mkdir(parents=True, exist_ok=True)
    known = Secrets.keep(data / "secrets.json")
    admin = f"demo:{known.admin_password}"
    with embedded_redis(data / "redis") as redis, Fleet(data / "logs") as fleet:
        common = {"REDIS_URL": redis.url, "CALLKEEPER_LOG_FORMAT": "json"}
        web_settings = {
            **common,
            "CALLKEEPER_PUSH_HEADERS": known.push_headers,
            "CALLKEEPER_ADMIN": admin,
            "CALLKEEPER_RULES": "demo",
            **(web_environ or {}),
        }
        web = fleet.start("web", *("web", "--host", "127.0.0.1", "--port", "0"), environ=web_settings)
        web_url = web.wait_for(_web_url)
        sandbox = fleet.start(
            "sandbox",
            "sandbox",
            *("--seed", str(seed), "--scenario", scenario),
            *("--push-url", f"{web_url}/push"),
            *("--state-file", str(data / "sandbox.json")),
            environ={"SANDBOX_PUSH_HEADERS": known.push_headers},  # the list of processes shows arguments
        )
        service_url = sandbox.wait_for(sandbox_url)
        environ = {**common, **service_environment(service_url), **(worker_environ or {})}
        crew = [fleet.start(f"worker-{n}", "worker", environ=environ) for n in range(1, workers + 1)]
        for member in crew:
            member.wait_for(_worker_started)
        everything = {**web_settings, **environ, "CALLKEEPER_PUBLIC_URL": web_url}
        yield Demo(redis.url, service_url, web_url, admin, fleet, (web, sandbox, *crew), everything)


def service_environment(service_url: str) -> dict[str, str]:
    """Return what a worker needs to work for a stand-in."""
    from sandbox.access import Credentials  # noqa: PLC0415  (only a demonstration needs the stand-in)

    credentials = Credentials()
    return {
        "CALLKEEPER_SERVICE_URL": service_url,
        "CALLKEEPER_ACCESS_TOKEN": credentials.access_token,
        "CALLKEEPER_EMAIL": credentials.email,
        "CALLKEEPER_PASSWORD": credentials.password,
        "CALLKEEPER_REQUESTED_BY": "callkeeper",
        "CALLKEEPER_RULES": "demo",
    }


def _web_url(line: str) -> str | None:
    return _event(line, "web_listening").get("url")


def _worker_started(line: str) -> str | None:
    return _event(line, "worker_started").get("worker")


def sandbox_url(line: str) -> str | None:
    """Return where the stand-in listens, from the line of its output that says so."""
    _, found, url = line.partition("sandbox listening on ")
    return url.strip() if found else None


def _event(line: str, name: str) -> dict[str, str]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) and entry.get("event") == name else {}


@dataclass(frozen=True, slots=True)
class Picture:
    """What both sides know at one moment: our calls by state, the stand-in's own counts.

    ``late`` are calls that the stand-in ended long ago and we have not settled.
    """

    phases: Counter[str]
    reasons: Counter[str]
    attention: int
    checks_used: int
    service: dict[str, Any]
    late: int
    live: int

    @property
    def requests(self) -> dict[str, int]:
        """Return the requests past authentication that the stand-in counted, by operation."""
        counts: dict[str, int] = self.service["requests"]["authenticated"]
        return counts

    def faults(self) -> list[str]:
        """Say every promise that this picture shows broken; nothing is expected."""
        broken = {
            "calls with more than 20 checks": self.service["checks_over_budget"],
            "calls enrolled twice": self.service["enrolled_twice"],
            "calls rejected twice": self.service["rejected_twice"],
            "calls that ended long ago and are not settled": self.late,
        }
        return [f"{count} {what}" for what, count in broken.items() if count]


class Observer:
    """Looks at both sides of a demonstration: our Redis, and the stand-in's control interface."""

    def __init__(self, redis_url: str, service_url: str) -> None:
        self._redis = Redis.from_url(redis_url)
        self._http = httpx.Client(base_url=service_url, trust_env=False, timeout=5)
        self._keys = Keys()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._redis.close()

    def look(self, *, audit: bool = False) -> Picture:
        """Take a picture; with ``audit`` every call the queue showed for long enough is compared with our record."""
        phases, reasons, checks = Counter[str](), Counter[str](), 0
        settled: set[str] = set()
        members = self._members()
        for stored in self._records(members):
            call = parse_call(stored)
            checks += call.checks_used
            phases[call.phase] += 1
            if call.phase is Phase.SETTLED:
                settled.add(call.voice_id)
                reasons[call.reason or "?"] += 1
        service = self._http.get("/control/summary").json()
        late = self._late(settled) if audit else 0
        attention = int(self._redis.hlen(self._keys.attention))
        live = int(self._redis.zcard(self._keys.live))
        return Picture(phases, reasons, attention, checks, service, late, live)

    def _members(self) -> list[bytes]:
        live: Any = self._redis.zrange(self._keys.live, 0, -1)
        settled: Any = self._redis.zrange(self._keys.settled, 0, -1)
        return [*live, *settled]

    def _records(self, members: list[bytes]) -> Iterator[bytes]:
        pipe = self._redis.pipeline(transaction=False)
        for member in members:
            pipe.hget(self._keys.item(member.decode()), "rec")
        yield from (stored for stored in pipe.execute() if stored is not None)

    def _late(self, settled: set[str]) -> int:
        calls = self._http.get("/control/ledger").json()["calls"]
        now = datetime.now(UTC)
        return sum(voice_id not in settled and _has_to_be_settled(account, now) for voice_id, account in calls.items())


def _has_to_be_settled(account: dict[str, Any], now: datetime) -> bool:
    if account["ended_at"] is None or account["listed_s"] < FOUND_WITHIN_S:
        return False
    return (now - datetime.fromisoformat(account["ended_at"])).total_seconds() > SETTLES_WITHIN_S
