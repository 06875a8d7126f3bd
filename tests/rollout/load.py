"""Starts calls at a steady rate until a block ends, and then collects the evidence for the audit."""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx

from callkeeper.calls.record_storage import NewerRecord
from callkeeper_sandbox.service import population
from tests.faults import audit
from tests.faults.chaos import everything_is_settled, read_evidence
from tests.harness.processes import Stack
from tests.waiting import until

CALLS_A_SECOND = 10 if os.environ.get("TEST_NIGHT") else 4
"""How often calls begin: at night more often."""

PHASE = 4 * CALLS_A_SECOND
"""The number of calls between two steps. A call lasts longer than a step, so every step has calls under way."""

SETTLED_WITHIN_S = 90.0
"""How long after the last call all calls are settled: their length, last reads, and a reserve for a busy machine."""

_END = {"kind": "end", "after_s": 6.0}
SCRIPTS: tuple[list[dict[str, object]], ...] = (
    [{"kind": "green", "after_s": 2.0}, _END],
    [{"kind": "mfa_validated", "after_s": 1.0}, _END],
    [{"kind": "mismatch", "after_s": 1.0}, {"kind": "high_risk_device", "after_s": 1.2}, _END],
    [_END],
)
"""Scripts of calls that end as authenticated, enrolled, rejected, and undecided."""


class Load:
    """Starts calls at a steady rate, from members who are the only candidates."""

    def __init__(self, service_url: str) -> None:
        self._url = f"{service_url}/control/calls"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.started = 0

    def _run(self) -> None:
        began_s = time.monotonic()
        with httpx.Client(trust_env=False, timeout=30) as http:
            while not self._stop.wait(max(0.0, began_s + self.started / CALLS_A_SECOND - time.monotonic())):
                http.post(self._url, json=self._call(self.started)).raise_for_status()
                self.started += 1

    def _call(self, n: int) -> dict[str, Any]:
        """Return call number n. All calls of a member have the same script.

        Otherwise one call could reject a member whom another call enrolled, and that is followed up for a long time.
        """
        keys, kinds = list(population.INSTITUTIONS), len(SCRIPTS)
        key, kind, turn = keys[n % len(keys)], n % kinds, n // (len(keys) * kinds)
        members = (population.MEMBERS - population.SHARED) // kinds
        phone = population.phone(key, population.SHARED + kind + kinds * (turn % members))
        return {"institution_key": key, "phone_number": phone, "script": SCRIPTS[kind]}

    @contextmanager
    def running(self) -> Iterator["Load"]:
        """Start calls until the block ends."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()


def pushes(running: Stack) -> Counter[int | str]:
    """Count the push attempts by status, or by kind of failure."""
    return Counter(attempt["status"] or attempt["error"] for attempt in running.control("GET", "/push"))


def evidence_of(running: Stack) -> audit.Evidence:
    """Wait until every call that was started is settled; return the evidence."""
    until(lambda: _is_quiet(running), SETTLED_WITHIN_S, "every call to be settled", every_s=0.5)
    return read_evidence(running, running.demo.fleet)


def _is_quiet(running: Stack) -> bool:
    with suppress(NewerRecord):
        return not running.control("GET", "/calls") and everything_is_settled(running)
    return False
