"""A chaos run: calls come in while processes are killed and frozen and the service misbehaves; then an audit.

``python -m tests.faults.chaos --minutes 1 --seed 1`` exits with 1 if any promise was broken. The same seed
brings the same calls and the same disruptions; what they interrupt depends on the timing of the machine.
"""

import argparse
import heapq
import itertools
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from archive.database import Database
from archive.migrating import migrate
from callkeeper.fleet import Fleet, ManagedProcess
from calls.claimed_item import LEASE
from calls.effect_resolution import recheck
from calls.record import Call, parse_call
from calls.steps import Wait
from calls.store.keys import Keys
from sandbox.access import Credentials
from sandbox.population import INSTITUTIONS
from tests.acceptance.stack import Sides, until
from tests.covering import calmed
from tests.faults import archive_audit, audit
from tests.faults.ports import HeldPort
from tests.faults.redis_server import RedisServer, redis_server
from tests.faults.site import PUSH_KEY, freeze, thaw
from tests.postgresql import PostgreSql, postgresql

GAP_S = 0.4
"""Mean seconds between two calls."""

DISRUPT_EVERY_S = (1.0, 4.0)
AWAY_S = (0.2, 3.0)
"""For how long a killed process or server stays down."""

FROZEN_S = (1.0, LEASE.seconds + 3.0)
"""For how long a worker is frozen: sometimes for longer than its lease."""

FOUND_AFTER_S = 25.0
"""A call whose push was lost is found within 10 s. Added: a lease (8 s), a pause of the service, a Redis outage."""

ASKED_PAUSE_S = 60.0
"""The longest pause after ``Retry-After``. No call is found during it."""

LIST_WITHOUT_THE_LAST = frozenset({"list-paged", "list-refused", "list-failing"})
"""With one of these and ``keys-missing`` the service does not name its last institution; an operator would set it."""

CALM_S = 15.0
SETTLES_WITHIN_S = 60.0

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


@dataclass(slots=True)
class ChaosSystem:
    """Everything that runs, and the disruptions."""

    redis: RedisServer
    fleet: Fleet
    draw: random.Random
    port: HeldPort
    sides: Sides
    archive: PostgreSql
    workers: list[ManagedProcess | None] = field(default_factory=lambda: [None, None])
    web: ManagedProcess | None = None
    is_redis_there: bool = True
    is_archive_there: bool = True
    disruptions: dict[str, list[datetime]] = field(default_factory=dict)
    _names: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _later: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def disrupt_for(self, seconds: float) -> None:
        """Disrupt something every few seconds, then wait until everything runs again."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._disrupt()
            self._pass_time(self.draw.uniform(*DISRUPT_EVERY_S))
        while self._later:
            self._pass_time(0.1)
        self.sides.lift_faults()

    def start_worker(self, n: int) -> None:
        """Start one of the two workers."""
        known = Credentials()
        environ = {
            "REDIS_URL": self.redis.url(),
            "CALLKEEPER_LOG_FORMAT": "json",
            "CALLKEEPER_SERVICE_URL": self.sides.service_url,
            "CALLKEEPER_ACCESS_TOKEN": known.access_token,
            "CALLKEEPER_EMAIL": known.email,
            "CALLKEEPER_PASSWORD": known.password,
            "CALLKEEPER_REQUESTED_BY": "callkeeper",
            "CALLKEEPER_RULES": "demo",
            "CALLKEEPER_ARCHIVE_URL": self.archive.url,
        }
        self.workers[n] = self.fleet.start(f"worker-{n}-{next(self._names)}", "worker", environ=environ)

    def start_web(self) -> None:
        """Start the web process that the service pushes to."""
        environ = {
            "REDIS_URL": self.redis.url(),
            "CALLKEEPER_LOG_FORMAT": "json",
            "CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {PUSH_KEY}",
        }
        arguments = ("web", "--host", "127.0.0.1", "--port", str(self.port.number))
        self.web = self.fleet.start(f"web-{next(self._names)}", *arguments, environ=environ)

    def _disrupt(self) -> None:
        """Make one disruption at random; it does nothing if its target is down already."""
        disrupt = self.draw.choice(
            [self._kill_worker, self._kill_worker, self._kill_both, self._freeze_worker]
            + [self._kill_web, self._kill_redis, self._freeze_redis, self._lapse_tokens]
            + [self._trouble] * 6
            + [self._disrupt_archive] * 3
        )
        disrupt()

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

    def _disrupt_archive(self) -> None:
        if not self.is_archive_there:
            return
        is_frozen = self.draw.random() < 0.5
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
    """Run everything until the block ends. ``variants`` say how the service behaves where the Spec is silent."""
    port = HeldPort()
    with postgresql() as archive, redis_server(data / "redis") as redis, Fleet(data / "logs") as fleet:
        database = Database(archive.url)
        migrate(database)
        database.close()
        sandbox = fleet.start(
            "sandbox",
            *("sandbox", "--seed", str(seed), "--gap", str(GAP_S)),
            *(f"--variant={name}" for name in variants),
            *("--push-url", f"http://127.0.0.1:{port.number}/push", "--push-headers", f"X-Push-Key: {PUSH_KEY}"),
            environ={},
        )
        sides = Sides(redis.url(), sandbox.wait_for(_address))
        running = ChaosSystem(redis, fleet, random.Random(seed), port, sides, archive)  # noqa: S311  (repeatable)
        running.start_web()
        running.start_worker(0)
        running.start_worker(1)
        try:
            yield running
        finally:
            sides.close()
            port.release()


def lift_trouble(sides: Sides, variants: Sequence[str]) -> None:
    """Switch off the variants under which requests fail, so that calls can be settled."""
    sides.control("PUT", "/variants", calmed(variants))


def end_all_calls(sides: Sides) -> None:
    """Stop new calls, and end the live ones."""
    sides.control("PUT", "/scenario", {"is_paused": True})
    for call in sides.control("GET", "/calls"):
        sides.control("POST", f"/calls/{quote(call['voice_id'], safe='')}/now", {"kind": "end"})


def everything_is_settled(sides: Sides) -> bool:
    """Tell whether every record is settled, hints included, and every reject of a member was followed up."""
    return all(record.is_settled and _is_followed_up(record) for record in _records(sides).values())


def _is_followed_up(record: Call) -> bool:
    """Tell whether an enrolled call was read again after a later reject of its member, if it had to be."""
    if record.recheck_from is None:
        return True
    first = recheck(replace(record, reading=None), record.recheck_from)
    return not isinstance(first, Wait) or (record.reading is not None and record.reading.read_at >= first.until)


def read_evidence(
    sides: Sides, fleet: Fleet, found_after_s: float = FOUND_AFTER_S, unnamed: Iterable[str] = ()
) -> audit.Evidence:
    """Read the sandbox's counts and callkeeper's records."""
    ledger = sides.control("GET", "/ledger?arrivals=true")
    attempts = sides.control("GET", "/push")
    accepted = {audit.event_id_of(a["body"]) for a in attempts if a["status"] is not None and 200 <= a["status"] < 300}
    stored = sides.redis.zrange(Keys().events, 0, -1)
    return audit.Evidence(
        accounts=ledger["calls"],
        unknown=ledger["unknown"],
        records=_records(sides),
        accepted=frozenset(event_id for event_id in accepted if event_id),
        logged=frozenset(json.loads(event)["id"] for event in stored),
        bugs=tuple(_bugs(fleet)),
        found_after_s=found_after_s,
        unnamed=frozenset(unnamed),
    )


def unnamed_institutions(variants: Sequence[str]) -> list[str]:
    """Return the institutions that the service names nowhere."""
    is_last_unnamed = "keys-missing" in variants and LIST_WITHOUT_THE_LAST.intersection(variants)
    return list(INSTITUTIONS)[-1:] if is_last_unnamed else []


def _records(sides: Sides) -> dict[str, Call]:
    keys = list(sides.redis.scan_iter(match=f"{Keys().item('c:')}*", count=1000))
    stored = [sides.redis.hget(key, "rec") for key in keys]
    return {call.voice_id: call for call in map(parse_call, filter(None, stored))}


def _bugs(fleet: Fleet) -> Iterator[str]:
    """Find unexpected exceptions in every log."""
    for member in fleet.members:
        for line in member.log.read_text(errors="replace").splitlines():
            if '"step_failed"' in line or '"shift_stuck"' in line or line.startswith("Traceback"):
                yield f"{member.name}: {line[:200]}"


def _address(line: str) -> str | None:
    _, found, url = line.partition("sandbox listening on ")
    return url.strip() if found else None


def report(running: ChaosSystem, evidence: audit.Evidence) -> Iterator[str]:
    """Yield lines of a report: what happened and how long things took."""
    reasons = Counter(str(record.reason) for record in evidence.records.values())
    yield f"calls: {len(evidence.accounts)} at the service, {len(evidence.records)} known: {dict(reasons)}"
    yield f"events accepted: {len(evidence.accepted)}, all in the log: {evidence.accepted <= evidence.logged}"
    yield f"disruptions: { {what: len(at) for what, at in sorted(running.disruptions.items())} }"
    yield f"listed -> assigned            {audit.spread(audit.found_in_s(evidence))}"
    yield f"green -> the check showing it {audit.spread(audit.noticed_in_s(evidence))}"
    arrivals = audit.all_arrivals(evidence)
    for what in ("worker killed", "both workers killed", "redis killed"):
        waits = audit.next_after(running.disruptions.get(what, ()), arrivals)
        yield f"{what + ' -> the next request':29} {audit.spread(waits)}"
    accepted = [
        datetime.fromisoformat(attempt["at"])
        for attempt in running.sides.control("GET", "/push")
        if attempt["status"] == 202
    ]
    waits = audit.next_after(running.disruptions.get("web killed", ()), accepted)
    yield f"{'web killed -> the next event':29} {audit.spread(waits)}"


def main(arguments: list[str]) -> int:
    """Run, audit, report; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--variant", action="append", default=[], help="Of the sandbox; may be repeated.")
    parser.add_argument("--data", type=Path, default=None, help="Folder for logs and data; default: a temporary one.")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as temporary,
        chaos_system(given.data or Path(temporary), given.seed, given.variant) as running,
    ):
        running.disrupt_for(given.minutes * 60)
        lift_trouble(running.sides, given.variant)
        time.sleep(CALM_S)
        end_all_calls(running.sides)
        in_time = True
        try:
            until(
                lambda: everything_is_settled(running.sides), SETTLES_WITHIN_S, "every call to be settled", every_s=0.5
            )
        except AssertionError:
            in_time = False
        is_asked_to_pause = "busy-one-retry-after" in given.variant
        found_after_s = FOUND_AFTER_S + (ASKED_PAUSE_S if is_asked_to_pause else 0.0)
        evidence = read_evidence(running.sides, running.fleet, found_after_s, unnamed_institutions(given.variant))
        with suppress(AssertionError):
            until(lambda: archive_audit.is_archived(running.sides.redis), SETTLES_WITHIN_S, "the archive", every_s=0.5)
        broken = [*audit.faults(evidence), *archive_audit.archive_faults(running.sides.redis, running.archive)]
        for line in report(running, evidence):
            print(line)  # noqa: T201  (a command)
    for line in broken:
        print(f"BROKEN  {line}")  # noqa: T201
    is_clean = in_time and not broken
    under = f", under {', '.join(given.variant)}" if given.variant else ""
    print(f"seed {given.seed}, {given.minutes:g} min{under}: {'clean' if is_clean else 'NOT CLEAN'}")  # noqa: T201
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
