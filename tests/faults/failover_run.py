"""Failover under load: the Redis master is lost several times while calls come at a steady rate; then an audit.

``python -m tests.faults.failover_run --seconds 30 --rate 20 --failovers 2`` exits with 1 if any promise was broken. The
first master is killed, the second is replaced while it runs, the third is frozen, the fourth is replaced as planned, and
so on in turn. Events, statements and effects wait for a replica before they are answered or sent, so none may be lost. The
booking of a check may be lost, because checks do not wait; a lost booking is counted as a used check.
``--least-replicas 0`` leaves out ``min-replicas-to-write``, which docs/operations.md recommends.
"""

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

from callkeeper.calls.trail import Entry
from tests.faults import audit
from tests.faults.chaos import read_evidence
from tests.faults.deployment import Deployment, deployment, now
from tests.faults.sentinel import Watched, watched_redis

FOUND_AFTER_S = 25.0
REPLICATED_WITHIN = timedelta(seconds=1.5)


FORGETTABLE = re.compile(r"\d+ checks arrived, \d+ were booked")
"""A fault that is excused if the checks were booked just before a master was lost."""


@dataclass(frozen=True, slots=True)
class Loss:
    """When a master was lost, and when the next one took writes."""

    at: datetime
    over_at: datetime

    def may_forget(self, at: datetime) -> bool:
        """Tell whether a write at this instant may be missing on the next master."""
        return self.at - REPLICATED_WITHIN <= at <= self.over_at + REPLICATED_WITHIN


def lose_masters(watched: Watched, seconds: float, failovers: int) -> list[Loss]:
    """In turn, kill the master, replace it, freeze it, and replace it as planned; at even intervals, if all others follow.

    A killed or frozen server comes back as a replica after 2 s. Otherwise only two servers would be left, and after one
    more loss ``min-replicas-to-write 1`` would make the last one refuse writes.
    """
    losses = []
    unplanned = ((watched.kill_master, watched.bring_back), (watched.freeze_master, watched.thaw))
    every_s, began_s = seconds / (failovers + 1), time.monotonic()
    for n in range(failovers):
        time.sleep(max(0.0, began_s + (n + 1) * every_s - time.monotonic()))
        watched.wait_until_all_follow()
        at = now()
        if n % 2 == 0:
            lose, bring_back = unplanned[n // 2 % 2]
            port = lose()
            watched.wait_for_another(port)
            losses.append(Loss(at, now()))
            time.sleep(2.0)
            bring_back(port)
        else:
            replace = (watched.fail_over, watched.switch_over)[n // 2 % 2]
            replace()
            losses.append(Loss(at, now()))
    time.sleep(max(0.0, began_s + seconds - time.monotonic()))
    return losses


def unverified(trails: Mapping[str, tuple[Entry, ...]], losses: Iterable[Loss]) -> Iterator[str]:
    """Yield every effect of a known call that was sent after a loss before the call's details were read again.

    Calls that had only been pushed before the loss are left out, because nothing can have been sent for them.
    """
    for (voice_id, trail), loss in product(trails.items(), losses):
        known = [line for line in trail if line.what != "pushed"]
        if not known or known[0].at > loss.at:
            continue
        later = [line for line in trail if line.at > loss.at]
        verified_at = next((line.at for line in later if line.what == "verifying"), None)
        for line in later:
            if line.what == "sent" and line.at > loss.over_at and (verified_at is None or line.at < verified_at):
                yield f"{voice_id}: {line.kind} sent after the loss of the master, and not verified first"


def held_against(faults: Iterable[str], evidence: audit.Evidence, losses: Sequence[Loss]) -> tuple[list[str], int]:
    """Return the faults that count, and the number of faults that are excused by the loss of a master."""
    told, forgotten = [], 0
    for fault in faults:
        voice_id, _, what = fault.partition(": ")
        arrivals = (evidence.accounts.get(voice_id) or {}).get("arrivals") or ()
        arrived_at = [datetime.fromisoformat(arrival["at"]) for arrival in arrivals]
        is_lost = FORGETTABLE.fullmatch(what) and any(loss.may_forget(at) for loss in losses for at in arrived_at)
        forgotten += bool(is_lost)
        told += [] if is_lost else [fault]
    return told, forgotten


def report(running: Deployment, evidence: audit.Evidence, losses: Sequence[Loss]) -> Iterator[str]:
    """Yield lines of a report: what happened and how long things took."""
    reasons = Counter(str(record.life.reason) for record in evidence.records.values())
    yield f"calls: {len(evidence.accounts)} at the service, {len(evidence.records)} known: {dict(reasons)}"
    yield f"calls that could not be begun: {dict(running.failed) or 'none'}"
    lost_events = len(evidence.accepted - evidence.logged)
    yield f"events answered with 202: {len(evidence.accepted)}; lost with a master: {lost_events}"
    for loss, n in zip(losses, range(1, len(losses) + 1), strict=True):
        lost = sum(loss.may_forget(at) for event, at in running.accepted().items() if event not in evidence.logged)
        if lost:
            yield f"  {lost} of them with loss number {n}"
    yield f"listed -> assigned            {audit.spread(audit.found_in_s(evidence))}"
    yield f"green -> the check showing it {audit.spread(audit.noticed_in_s(evidence))}"
    yield f"master lost -> the next one   {[round((loss.over_at - loss.at).total_seconds(), 2) for loss in losses]} s"
    waits = audit.next_after([loss.over_at for loss in losses], audit.all_arrivals(evidence))
    yield f"then -> the next request      {[round(wait, 2) for wait in waits]} s"


def main(arguments: list[str]) -> int:
    """Run, audit, report; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=20.0, help="Calls a second.")
    parser.add_argument("--failovers", type=int, default=2, help="How many masters are lost.")
    parser.add_argument("--least-replicas", type=int, default=1, help="min-replicas-to-write of every server.")
    parser.add_argument("--webs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--data", type=Path, default=None, help="Folder for logs and data; default: a temporary one.")
    given = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as temporary,
        watched_redis(
            (given.data or Path(temporary)) / "redis", replicas=2, least_replicas=given.least_replicas
        ) as watched,
        deployment(given.data or Path(temporary), watched.url, webs=given.webs, workers=given.workers) as running,
    ):
        with running.calls(given.rate):
            losses = lose_masters(watched, given.seconds, given.failovers)
        in_time = running.settle()
        evidence = read_evidence(running, running.fleet, FOUND_AFTER_S)
        trails = running.trails()
        broken, forgotten = held_against([*audit.faults(evidence), *unverified(trails, losses)], evidence, losses)
        verified = sum(any(line.what == "verifying" for line in trail) for trail in trails.values())
        for line in report(running, evidence, losses):
            print(line)  # noqa: T201  (a command)
        print(f"writes that no replica confirmed in time: {running.unreplicated()}")  # noqa: T201
        print(f"calls whose bookings of checks were lost with a master: {forgotten}")  # noqa: T201
        print(f"calls whose details were read again before anything else: {verified}")  # noqa: T201
    for line in broken[:50]:
        print(f"BROKEN  {line}")  # noqa: T201
    is_clean = in_time and not broken
    print(f"{given.rate:g} calls/s, {given.seconds:g} s: {'clean' if is_clean else 'NOT CLEAN'}")  # noqa: T201
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
