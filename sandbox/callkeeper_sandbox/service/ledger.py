"""The ledger: the requests that the service received, in order, with their results. Audits read it.

There are three counts per operation, and per call: *arrived* (the request was received), *authenticated* (its token was
valid) and *applied* (the service carried it out). A reset or an error after applying does not change the counts.
"""

import datetime as dt
from collections import deque

import msgspec

from callkeeper_sandbox.service.access import Operation

_KEPT = 10_000


class Arrival(msgspec.Struct):
    """One request that was received.

    Attributes:
        monotonic_s: Monotonic clock of the stand-in's process, in seconds.
        voice_id: The call's id as the request gave it.
        status: The HTTP status that was sent, None when none was.
        success: The `success` of the operation's answer; None if the operation did not run.
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
        """Add the result of a finished request. Its arrival was counted before."""
        name = arrival.operation
        if arrival.authenticated:
            self.authenticated[name] = self.authenticated.get(name, 0) + 1
        if arrival.applied:
            self.applied[name] = self.applied.get(name, 0) + 1


class Entries(msgspec.Struct):
    """The stored arrivals: all that name a call, and the latest others."""

    totals: Tally = msgspec.field(default_factory=Tally)
    by_call: dict[str, Tally] = {}
    of_calls: dict[str, list[Arrival]] = {}
    others: list[Arrival] = []
    surplus_headers: dict[str, int] = {}
    number: int = 0


class Ledger:
    """Counts arrivals by real voice id, if the service knows the call, else by the given id."""

    def __init__(self, entries: Entries | None = None) -> None:
        self.entries = entries if entries is not None else Entries()
        self._others = deque(self.entries.others, maxlen=_KEPT)

    def arrive(self, arrival: Arrival, filed_under: str | None) -> None:
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
        """Record the result of an arrival: once, before its answer is sent."""
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
        """Return all requests about one call, in order of arrival."""
        return self.entries.of_calls.get(voice_id, [])

    def other_arrivals(self) -> list[Arrival]:
        """Return the latest arrivals that named no call: logins, listings, institutions."""
        return list(self._others)

    def snapshot(self) -> Entries:
        self.entries.others = list(self._others)
        return self.entries

    def _tally(self, voice_id: str) -> Tally:
        return self.entries.by_call.setdefault(voice_id, Tally())
