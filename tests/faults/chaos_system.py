"""The processes of a chaos run, the load, and the disruptions: web, two workers, Redis, archive and the sandbox."""

import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from callkeeper.archive.database import Database
from callkeeper.archive.migrating import migrate
from callkeeper.calls.claimed_item import LEASE
from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from callkeeper_sandbox.service.variants import choose
from tests.faults import archive_audit
from tests.faults.redis_server import RedisServer, redis_server
from tests.harness.processes import PUSH_KEY, Sides, freeze, start_sandbox, start_web, start_worker, thaw
from tests.ports import HeldPort
from tests.postgresql import PostgreSql, postgresql

GAP_S = 0.4
"""Mean seconds between two calls, if the service does not limit requests."""

REQUESTS_PER_CALL = 20
"""Expected requests per call: assign, enroll or reject, checks, reads, and a share of listings."""

DISRUPT_EVERY_S = (1.0, 4.0)
MISSING_WITHIN_S = 120.0
"""How long it goes on at most until there was one of each kind."""

WEIGHTS = {"worker killed": 2.0, "service troubled": 6.0, "archive killed": 1.5, "archive frozen": 1.5}
"""How often a kind of disruption is drawn, compared with the others."""

AWAY_S = (0.2, 3.0)
"""How long a killed process or server stays down."""

FROZEN_S = (1.0, LEASE.seconds + 3.0)
"""How long a worker stays frozen. This is sometimes longer than its lease."""

TROUBLES: tuple[dict[str, Any], ...] = (
    {"target": "details", "action": "answer", "status": 503, "share": 0.3},
    {"target": "*", "action": "answer", "status": 503, "headers": {"Retry-After": "1"}, "share": 0.1},
    {"target": "*", "action": "pass", "latency_s": 1.5, "share": 0.3},
    {"target": "assign", "action": "reset", "applied": True, "share": 0.5},
    {"target": "assign", "action": "reset", "applied": False, "share": 0.5},
    {"target": "enroll", "action": "reset", "applied": True, "share": 0.5},
    {"target": "enroll", "action": "drop", "applied": False, "share": 0.5},
    {"target": "reject_voice", "action": "reset", "applied": True, "share": 0.5},
    {"target": "reject_voice", "action": "drop", "applied": False, "share": 0.5},
    {"target": "check", "action": "hang", "share": 0.2},
    {"target": "check", "action": "reset", "applied": True, "share": 0.3},
    {"target": "details", "action": "truncated", "share": 0.2},
    {"target": "details", "action": "html", "share": 0.2},
    {"target": "queue", "action": "cut", "share": 0.5},
    {"target": "push", "action": "lost", "share": 0.5},
    {"target": "push", "action": "doubled", "share": 0.5},
    {"target": "push", "action": "reordered", "share": 0.3},
    {"target": "push", "action": "alternate_first", "share": 0.5},
    {"target": "listing", "action": "pass", "latency_s": 3.0, "share": 0.3},
)
"""Ways in which the service misbehaves for some seconds."""


@dataclass(frozen=True, slots=True)
class Load:
    """How often calls come in, and the workers' limit of requests per second, if any."""

    gap_s: float
    service_rps: int | None

    @property
    def environ(self) -> dict[str, str]:
        """Return the settings of a worker that follow from the load."""
        return {"CALLKEEPER_SERVICE_RPS": str(self.service_rps)} if self.service_rps else {}


def fitting_load(variants: Sequence[str]) -> Load:
    """Return a load that the service can carry under these variants."""
    limit = choose(variants).options.requests_per_s
    return Load(max(GAP_S, REQUESTS_PER_CALL / limit), limit) if limit else Load(GAP_S, None)


@dataclass(slots=True)
class ChaosSystem:
    """Everything that runs, and the disruptions."""

    redis: RedisServer
    fleet: Fleet
    draw: random.Random
    port: HeldPort
    sides: Sides
    archive: PostgreSql
    load: Load
    workers: list[ManagedProcess | None] = field(default_factory=lambda: [None, None])
    web: ManagedProcess | None = None
    is_redis_there: bool = True
    is_archive_there: bool = True
    disruptions: dict[str, list[datetime]] = field(default_factory=dict)
    _names: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def disrupt_for(self, seconds: float) -> None:
        """Disrupt something every few seconds, then wait until everything runs again.

        If by then a kind of disruption is missing, it goes on until there was one of each.
        """
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s or self._missing():
            assert time.monotonic() < end_s + MISSING_WITHIN_S, f"no disruption of these kinds: {self._missing()}"
            self._disrupt()
            self._pass_time(self.draw.uniform(*DISRUPT_EVERY_S))
        while self._later:
            self._pass_time(0.1)
        self.sides.lift_faults()

    def start_worker(self, n: int) -> None:
        """Start one of the two workers."""
        self.workers[n] = start_worker(
            self.fleet,
            self.redis.url(),
            self.sides.service_url,
            name=f"worker-{n}-{next(self._names)}",
            environ={"CALLKEEPER_ARCHIVE_URL": self.archive.url, **self.load.environ},
        )

    def start_web(self) -> None:
        """Start the web process that the service pushes to."""
        name = f"web-{next(self._names)}"
        self.web = start_web(self.fleet, self.redis.url(), name=name, port=self.port.number)

    def _disrupt(self) -> None:
        """Make one random disruption, of a kind that there was not yet if there is one.

        It has no effect if its target is already down; then its kind is tried again.
        """
        kinds = self._kinds()
        if missing := self._missing():
            kinds[self.draw.choice(missing)]()
            return
        [chosen] = self.draw.choices(list(kinds), weights=[WEIGHTS.get(name, 1.0) for name in kinds])
        kinds[chosen]()

    def _missing(self) -> list[str]:
        """Return the kinds of disruption that there was none of yet."""
        return [name for name in self._kinds() if name not in self.disruptions]

    def _kinds(self) -> dict[str, Callable[[], None]]:
        """Return every kind of disruption by the name under which it is noted."""
        return {
            "worker killed": self._kill_worker,
            "both workers killed": self._kill_both,
            "worker frozen": self._freeze_worker,
            "web killed": self._kill_web,
            "redis killed": self._kill_redis,
            "redis frozen": self._freeze_redis,
            "tokens lapsed": self._lapse_tokens,
            "service troubled": self._trouble,
            "archive killed": partial(self._disrupt_archive, is_frozen=False),
            "archive frozen": partial(self._disrupt_archive, is_frozen=True),
        }

    def _kill_worker(self) -> None:
        there = [n for n, worker in enumerate(self.workers) if worker is not None]
        if there:
            self._note("worker killed")
            self._take_worker(self.draw.choice(there))

    def _kill_both(self) -> None:
        if None not in self.workers:
            self._note("both workers killed")
            self._take_worker(0)
            self._take_worker(1)

    def _take_worker(self, n: int) -> None:
        worker, self.workers[n] = self.workers[n], None
        assert worker is not None
        worker.kill()
        self._after(self.draw.uniform(*AWAY_S), lambda: self.start_worker(n))

    def _freeze_worker(self) -> None:
        """Freeze one of the two workers, if both run."""
        if None in self.workers:
            return
        n = self.draw.randrange(2)
        worker, self.workers[n] = self.workers[n], None
        assert worker is not None
        if not worker.is_running:
            self.start_worker(n)
            return
        self._note("worker frozen")
        freeze(worker)

        def go_on() -> None:
            thaw(worker)
            self.workers[n] = worker

        self._after(self.draw.uniform(*FROZEN_S), go_on)

    def _kill_web(self) -> None:
        if self.web is None:
            return
        self._note("web killed")
        self.web.kill()
        self.web = None
        self._after(0.0, self.start_web)

    def _kill_redis(self) -> None:
        if not self.is_redis_there:
            return
        self._note("redis killed")
        self.redis.kill()
        self.is_redis_there = False

        def come_back() -> None:
            self.redis.start()
            self.is_redis_there = True

        self._after(self.draw.uniform(*AWAY_S), come_back)

    def _freeze_redis(self) -> None:
        if not self.is_redis_there:
            return
        self._note("redis frozen")
        self.redis.freeze()
        self.is_redis_there = False

        def go_on() -> None:
            self.redis.thaw()
            self.is_redis_there = True

        self._after(self.draw.uniform(0.3, 2.5), go_on)

    def _disrupt_archive(self, *, is_frozen: bool) -> None:
        if not self.is_archive_there:
            return
        self._note("archive frozen" if is_frozen else "archive killed")
        archive_audit.take_down(self.archive, is_frozen=is_frozen)
        self.is_archive_there = False

        def come_back() -> None:
            archive_audit.bring_back(self.archive)
            self.is_archive_there = True

        self._after(self.draw.uniform(*AWAY_S), come_back)

    def _lapse_tokens(self) -> None:
        self._note("tokens lapsed")
        self.sides.control("POST", "/tokens/lapse")

    def _trouble(self) -> None:
        self._note("service troubled")
        chosen = {**self.draw.choice(TROUBLES), "seed": self.draw.randrange(1000)}
        fault = self.sides.control("POST", "/faults", chosen)[0]
        self._after(self.draw.uniform(3, 8), lambda: self.sides.control("DELETE", f"/faults/{fault['id']}"))

    def _note(self, what: str) -> None:
        self.disruptions.setdefault(what, []).append(datetime.now(UTC))

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._names), what))

    def _pass_time(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            while self._later and self._later[0][0] <= time.monotonic():
                heapq.heappop(self._later)[2]()
            time.sleep(0.02)


@contextmanager
def chaos_system(data: Path, seed: int, variants: Sequence[str] = ()) -> Iterator[ChaosSystem]:
    """Run everything until the block ends. ``variants`` choose service behaviour that the Spec leaves open."""
    port, load = HeldPort(), fitting_load(variants)
    with postgresql() as archive, redis_server(data / "redis") as redis, Fleet(data / "logs") as fleet:
        database = Database(archive.url)
        migrate(database)
        database.close()
        service_url = start_sandbox(
            fleet,
            f"--seed={seed}",
            f"--gap={load.gap_s}",
            *(f"--variant={name}" for name in variants),
            f"--push-url=http://127.0.0.1:{port.number}/push",
            f"--push-headers=X-Push-Key: {PUSH_KEY}",
            scenario="default",
        )
        sides = Sides(redis.url(), service_url)
        draw = random.Random(seed)  # noqa: S311  (repeatable)
        running = ChaosSystem(redis, fleet, draw, port, sides, archive, load)
        running.start_web()
        running.start_worker(0)
        running.start_worker(1)
        try:
            yield running
        finally:
            sides.close()
            port.release()
