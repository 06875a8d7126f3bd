"""A deployment under load: several web processes and workers on one Redis, and calls at a steady rate.

The institutions push to the web processes in turn. The calls end in every way a call can end.
"""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from callkeeper.app.connections import blocking_redis
from callkeeper.app.redis_location import parse_location
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.snapshot import Snapshot
from callkeeper.calls.record import Call, parse_call
from callkeeper.calls.store.keys import Keys, parse_member
from callkeeper.calls.trail import Entry, parse_trail
from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from callkeeper_sandbox.service import population
from tests.faults import audit
from tests.faults.site import CHECK_AT
from tests.harness.processes import PUSH_KEY, start_sandbox, start_web, start_worker, wait_for_work, web_url

PATIENCE_S = 60.0

STORIES: tuple[tuple[dict[str, object], ...], ...] = (
    ({"kind": "green", "after_s": 5},),
    ({"kind": "mfa_validated", "after_s": 5},),
    ({"kind": "answered_questions", "after_s": 4},),
    ({"kind": "mismatch", "after_s": 3}, {"kind": "high_risk_device", "after_s": 3}),
    ({"kind": "red", "after_s": 4},),
    (),
)
"""What happens in the calls, in turn: recognised, verified by passcode or by questions, rejected, red, nothing."""

LENGTH_S = 18.0


@dataclass(slots=True)
class Deployment:
    """Everything that runs, and the calls so far."""

    fleet: Fleet
    redis_url: str
    service_url: str
    webs: list[ManagedProcess] = field(default_factory=list)
    workers: list[ManagedProcess] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    """Calls that could not be begun because the sandbox was busy, by type of error."""

    @property
    def members(self) -> list[ManagedProcess]:
        """Return the processes of callkeeper, without the sandbox."""
        return [*self.webs, *self.workers]

    @contextmanager
    def calls(self, rate: float) -> Iterator[None]:
        """Begin ``rate`` calls a second until the block ends."""
        is_over = threading.Event()
        thread = threading.Thread(target=self._begin_calls, args=(rate, is_over))
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def control(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the sandbox's control interface."""
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as http:
            return _control(http, self.service_url, method, path, body)

    def redis(self) -> Any:
        """Connect to the current Redis master."""
        return blocking_redis(parse_location(self.redis_url), timeout_s=20.0)

    def records(self) -> dict[str, Call]:
        """Return our records by voice id."""
        with self.redis() as redis:
            keys = list(redis.scan_iter(match=f"{Keys().item('c:')}*", count=1000))
            pipe = redis.pipeline(transaction=False)
            for key in keys:
                pipe.hget(key, "rec")
            stored = pipe.execute()
        return {call.voice_id: call for call in map(parse_call, filter(None, stored))}

    def trails(self) -> dict[str, tuple[Entry, ...]]:
        """Return our trails by voice id."""
        with self.redis() as redis:
            keys = [key.decode() for key in redis.scan_iter(match=f"{Keys().trail('c:')}*", count=1000)]
            pipe = redis.pipeline(transaction=False)
            for key in keys:
                pipe.lrange(key, 0, -1)
            stored = pipe.execute()
        members = [parse_member(key.removeprefix(Keys().trail(""))) for key in keys]
        return {
            member.voice_id: parse_trail(trail)
            for member, trail in zip(members, stored, strict=True)
            if not isinstance(member, str)
        }

    def settle(self, within_s: float = PATIENCE_S) -> bool:
        """Wait until every record is settled; return False if that takes too long."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            if all(record.is_settled for record in self.records().values()):
                return True
            time.sleep(0.5)
        return False

    def evidence(self, *, found_after_s: float) -> audit.Evidence:
        """Read the sandbox's counts and callkeeper's records."""
        ledger = self.control("GET", "/ledger?arrivals=true")
        with self.redis() as redis:
            stored = redis.zrange(Keys().events, 0, -1)
        return audit.Evidence(
            accounts=ledger["calls"],
            unknown=ledger["unknown"],
            records=self.records(),
            accepted=frozenset(self.accepted()),
            logged=frozenset(json.loads(event)["id"] for event in stored),
            bugs=tuple(self._bugs()),
            found_after_s=found_after_s,
        )

    def unreplicated(self) -> int:
        """Return how many writes no replica confirmed, as our processes counted them."""
        with self.redis() as redis:
            return Snapshot.parse(redis.hgetall(Keys().figures)).count(figure.WRITES_UNREPLICATED)

    def accepted(self) -> dict[str, datetime]:
        """Return the events that were answered with 202, and when they were sent."""
        attempts = self.control("GET", "/push")
        answered = [(audit.event_id_of(a["body"]), a["at"]) for a in attempts if a["status"] == 202]
        return {event_id: datetime.fromisoformat(at) for event_id, at in answered if event_id}

    def _begin_calls(self, rate: float, is_over: threading.Event) -> None:
        began_s = time.monotonic()
        with httpx.Client(trust_env=False, timeout=PATIENCE_S) as http:
            for n in itertools.count():
                if is_over.wait(max(0.0, began_s + n / rate - time.monotonic())):
                    return
                try:
                    _control(http, self.service_url, "POST", "/calls", _call(n))
                except httpx.HTTPError as error:
                    self.failed[type(error).__name__] += 1

    def _bugs(self) -> Iterator[str]:
        """Find unexpected exceptions in every log."""
        for member in self.members:
            for line in member.log.read_text(errors="replace").splitlines():
                if '"step_failed"' in line or '"shift_stuck"' in line or line.startswith("Traceback"):
                    yield f"{member.name}: {line[:200]}"


def _control(http: httpx.Client, service_url: str, method: str, path: str, body: object) -> Any:
    response = http.request(method, f"{service_url}/control{path}", json=body)
    response.raise_for_status()
    return response.json()


def _call(n: int) -> dict[str, object]:
    """Return call number n. Institutions take turns, and the calling member is the only candidate."""
    key = list(population.INSTITUTIONS)[n % len(population.INSTITUTIONS)]
    member = population.SHARED + n // len(population.INSTITUTIONS) % (population.MEMBERS - population.SHARED)
    script = [*STORIES[n // 2 % len(STORIES)], {"kind": "end", "after_s": LENGTH_S}]
    return {"institution_key": key, "phone_number": population.phone(key, member), "script": script}


@contextmanager
def deployment(data: Path, redis_url: str, *, webs: int, workers: int, **settings: str) -> Iterator[Deployment]:
    """Run a deployment until the block ends. ``settings`` are added to the environment of each process."""
    with Fleet(data / "logs") as fleet:
        running = Deployment(fleet, redis_url, start_sandbox(fleet))
        _open_webs(running, webs, settings)
        own = {"CALLKEEPER_CHECK_AT": CHECK_AT, **settings}
        running.workers += [
            start_worker(fleet, redis_url, running.service_url, name=f"worker-{n}", **own) for n in range(workers)
        ]
        for worker in running.workers:
            wait_for_work(worker)
        yield running


def _open_webs(running: Deployment, webs: int, settings: dict[str, str]) -> None:
    """Start the web processes, and have every institution push to one of them."""
    running.webs += [
        start_web(running.fleet, running.redis_url, name=f"web-{n}", port=0, **settings) for n in range(webs)
    ]
    urls = [web_url(web) for web in running.webs]
    for key, url in zip(population.INSTITUTIONS, itertools.cycle(urls), strict=False):
        push = {"url": f"{url}/push", "headers": f"X-Push-Key: {PUSH_KEY}"}
        running.control("PUT", f"/institutions/{key}/push", push)


def now() -> datetime:
    """Return the present."""
    return datetime.now(UTC)
