"""A deployment under load: several web processes and workers on one Redis, and calls at a steady rate.

The institutions push to the web processes in turn. The calls end in every way a call can end.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx

from callkeeper.calls.item_names import parse_member
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.snapshot import Snapshot
from callkeeper.calls.trail import Entry, parse_trail
from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from callkeeper_sandbox.service import population
from tests.faults import audit
from tests.faults.site import CHECK_AT
from tests.harness.processes import (
    PUSH_KEY,
    Sides,
    checking_at,
    start_sandbox,
    start_web,
    start_worker,
    wait_for_work,
    web_url,
)
from tests.waiting import until

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

MEMBERS = 400
"""How many members of each institution call in turn. The same thing happens in each call of one.

They are so many that none calls twice at once, up to 60 calls a second. Otherwise a person would have to decide about ever
more calls, which are kept for that: of a member who is rejected and then verified, or verified in two calls at once.
"""


class Deployment(Sides):
    """Everything that runs, and the calls so far."""

    def __init__(self, fleet: Fleet, redis_url: str, service_url: str) -> None:
        super().__init__(redis_url, service_url)
        self.http.timeout = PATIENCE_S
        self.fleet = fleet
        self.webs: list[ManagedProcess] = []
        self.workers: list[ManagedProcess] = []
        self.failed: Counter[str] = Counter()
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

    def trails(self) -> dict[str, tuple[Entry, ...]]:
        """Return our trails by voice id."""
        keys = [key.decode() for key in self.redis.scan_iter(match=f"{self.keys.trail('c:')}*", count=1000)]
        pipe = self.redis.pipeline(transaction=False)
        for key in keys:
            pipe.lrange(key, 0, -1)
        members = [parse_member(key.removeprefix(self.keys.trail(""))) for key in keys]
        return {
            member.voice_id: parse_trail(trail)
            for member, trail in zip(members, pipe.execute(), strict=True)
            if not isinstance(member, str)
        }

    def settle(self, within_s: float = PATIENCE_S) -> bool:
        """Wait until every record is settled; return False if that takes too long."""
        with suppress(AssertionError):
            return until(self._is_settled, within_s, "every call to be settled", every_s=0.5)
        return False

    def _is_settled(self) -> bool:
        return all(record.is_settled for record in self.records().values())

    def unreplicated(self) -> int:
        """Return how many writes no replica confirmed, as our processes counted them."""
        return Snapshot.parse(self.redis.hgetall(self.keys.figures)).count(figure.WRITES_UNREPLICATED)

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
                    http.post(f"{self.service_url}/control/calls", json=_call(n)).raise_for_status()
                except httpx.HTTPError as error:
                    self.failed[type(error).__name__] += 1


def _call(n: int) -> dict[str, object]:
    """Return call number n. Institutions take turns, and the calling member is the only candidate."""
    key = list(population.INSTITUTIONS)[n % len(population.INSTITUTIONS)]
    member = n // len(population.INSTITUTIONS) % MEMBERS
    script = [*STORIES[member % len(STORIES)], {"kind": "end", "after_s": LENGTH_S}]
    return {
        "institution_key": key,
        "phone_number": population.phone(key, population.MEMBERS + member),
        "script": script,
    }


@contextmanager
def deployment(data: Path, redis_url: str, *, webs: int, workers: int, **settings: str) -> Iterator[Deployment]:
    """Run a deployment until the block ends. ``settings`` are added to the environment of each process."""
    with Fleet(data / "logs") as fleet:
        running = Deployment(fleet, redis_url, start_sandbox(fleet))
        _add_members(running)
        _open_webs(running, webs, settings)
        own = {**checking_at(data, *CHECK_AT), **settings}
        running.workers += [
            start_worker(fleet, redis_url, running.service_url, name=f"worker-{n}", environ=own) for n in range(workers)
        ]
        for worker in running.workers:
            wait_for_work(worker)
        try:
            yield running
        finally:
            running.close()


def _add_members(running: Deployment) -> None:
    for key in population.INSTITUTIONS:
        for number in range(population.MEMBERS, population.MEMBERS + MEMBERS):
            member = {
                "institution_key": key,
                "person_id": f"{key}-m{number}",
                "phones": [population.phone(key, number)],
            }
            running.control("POST", "/members", member)


def _open_webs(running: Deployment, webs: int, settings: dict[str, str]) -> None:
    """Start the web processes, and have every institution push to one of them."""
    running.webs += [
        start_web(running.fleet, running.redis_url, name=f"web-{n}", port=0, environ=settings) for n in range(webs)
    ]
    urls = [web_url(web) for web in running.webs]
    for key, url in zip(population.INSTITUTIONS, itertools.cycle(urls), strict=False):
        push = {"url": f"{url}/push", "headers": f"X-Push-Key: {PUSH_KEY}"}
        running.control("PUT", f"/institutions/{key}/push", push)


def now() -> datetime:
    """Return the present."""
    return datetime.now(UTC)
