"""The ledger: what reached the service, in order, and what became of it. Audits compare it with what a client claims.

Three counts per operation, and per call: *arrived* (the request was received), *authenticated* (its token was good) and
*applied* (the service did what was asked). A reset or an error after applying leaves all three counted.
"""

import datetime as dt
from collections import deque

import msgspec

from sandbox.access import Operation

_KEPT = 10_000


class Arrival(msgspec.Struct):
    """One request that was received.

    Attributes:
        number: Its place among all arrivals.
        monotonic_s: Monotonic clock of the stand-in's process, in seconds.
        voice_id: The call's id as the request gave it.
        status: The HTTP status that was sent, None when none was.
        success: The `success` of the rule's own answer, None when the rule was not asked.
        fault: The scripted fault that it met, if any.
    """

    number: int
    operation: Operation
    at: dt.datetime
    monotonic_s: float
    institution_key: str
    requested_by: str
    voice_id: str | None = None
    authenticated: bool = False
    applied: bool = False
    success: bool | None = None
    status: int | None = None
    fault: str | None = None


class Tally(msgspec.Struct):
    """Counts by operation."""

    arrived: dict[str, int] = {}
    authenticated: dict[str, int] = {}
    applied: dict[str, int] = {}

    def count(self, arrival: Arrival) -> None:
        """Add a finished arrival's outcome; its arrival was counted when it came."""
        name = arrival.operation
        if arrival.authenticated:
            self.authenticated[name] = self.authenticated.get(name, 0) + 1
        if arrival.applied:
            self.applied[name] = self.applied.get(name, 0) + 1


class Entries(msgspec.Struct):
    """What the ledger remembers: everything that names a call, the latest of the rest."""

    totals: Tally = msgspec.field(default_factory=Tally)
    by_call: dict[str, Tally] = {}
    of_calls: dict[str, list[Arrival]] = {}
    others: list[Arrival] = []
    surplus_headers: dict[str, int] = {}
    number: int = 0


class Ledger:
    """Counts arrivals; the ids under which it files them are real voice ids wherever the service knows the call."""

    def __init__(self, entries: Entries | None = None) -> None:
        self.entries = entries if entries is not None else Entries()
        self._others = deque(self.entries.others, maxlen=_KEPT)

    def arrive(self, arrival: Arrival, filed_under: str | None) -> None:
        """Note that a request was received."""
        entries = self.entries
        entries.number += 1
        arrival.number = entries.number
        name = arrival.operation
        entries.totals.arrived[name] = entries.totals.arrived.get(name, 0) + 1
        if filed_under is None:
            self._others.append(arrival)
            return
        tally = self._tally(filed_under)
        tally.arrived[name] = tally.arrived.get(name, 0) + 1
        entries.of_calls.setdefault(filed_under, []).append(arrival)

    def settle(self, arrival: Arrival, filed_under: str | None) -> None:
        """Note how far an arrival came: once, before its answer is sent."""
        self.entries.totals.count(arrival)
        if filed_under is not None:
            self._tally(filed_under).count(arrival)

    def note_surplus(self, operation: Operation, names: list[str]) -> None:
        """Count authentication headers that do not belong to the operation's mode."""
        for name in names:
            key = f"{operation} {name}"
            self.entries.surplus_headers[key] = self.entries.surplus_headers.get(key, 0) + 1

    def tally(self, voice_id: str) -> Tally:
        """Return the counts of one call."""
        return self.entries.by_call.get(voice_id, Tally())

    def arrivals(self, voice_id: str) -> list[Arrival]:
        """Return everything that was asked about one call, in order of arrival."""
        return self.entries.of_calls.get(voice_id, [])

    def other_arrivals(self) -> list[Arrival]:
        """Return the latest arrivals that named no call: logins, listings, institutions."""
        return list(self._others)

    def snapshot(self) -> Entries:
        """Return everything, ready to be written."""
        self.entries.others = list(self._others)
        return self.entries

    def _tally(self, voice_id: str) -> Tally:
        return self.entries.by_call.setdefault(voice_id, Tally())
