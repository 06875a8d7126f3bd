"""Compares both sides of a demonstration: our records in Redis, and what the sandbox counted."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Self

import httpx
from redis import Redis

from callkeeper.calls.quantity import quantity
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.record_storage import readable_call
from callkeeper.calls.store.keys import Keys

SETTLES_WITHIN_S: Final = 30.0
"""Seconds after its end by which a call must be settled: one read finds the end, one more follows."""

FOUND_WITHIN_S: Final = 10.0
"""Seconds after which a call in the queue must be found, also if its push was lost."""


class Fate(StrEnum):
    """What happened to a call that the sandbox made: exactly one of these."""

    LIVE = "live"
    SETTLED = "settled"
    SETTLING = "settling"  # has ended; callkeeper has time left to settle it
    OVERDUE = "overdue"  # has ended, and should be settled by now
    IGNORED = "ignored"  # from a number on an ignore list: the service never lists it
    TOO_SHORT = "too_short"  # ended before it had to be found, and we did not find it
    EARLIER = "earlier"  # ended before this run and left no record


def fate(account: Mapping[str, Any], phase: Phase | None, *, since: datetime, now: datetime) -> Fate:
    """Return what happened to a call. Before this run began (``since``), no call could be found or settled."""
    if account["is_ignored"]:
        return Fate.IGNORED
    if account["ended_at"] is None:
        return Fate.LIVE
    if phase is Phase.SETTLED:
        return Fate.SETTLED
    ended_at = datetime.fromisoformat(account["ended_at"])
    if phase is None and ended_at < since:
        return Fate.EARLIER
    if (now - max(ended_at, since)).total_seconds() <= SETTLES_WITHIN_S:
        return Fate.SETTLING
    listed_at = max(datetime.fromisoformat(account["listed_at"]), since)
    if phase is None and (ended_at - listed_at).total_seconds() < FOUND_WITHIN_S:
        return Fate.TOO_SHORT
    return Fate.OVERDUE


class _Counted:
    """What both sides of a demonstration show of the sandbox's summary."""

    service: dict[str, Any]

    @property
    def requests(self) -> dict[str, int]:
        """Return the requests past authentication that the stand-in counted, by operation."""
        counts: dict[str, int] = self.service["requests"]["authenticated"]
        return counts

    def faults(self) -> list[str]:
        """Name every promise that is broken; no entry is expected."""
        return [f"{quantity(count, 'call')} {what}" for what, count in self._broken().items() if count]

    def _broken(self) -> dict[str, int]:
        """Return how many calls broke each promise that the sandbox can judge alone."""
        return {
            "with more than 20 checks": self.service["checks_over_budget"],
            "enrolled twice": self.service["enrolled_twice"],
            "rejected twice": self.service["rejected_twice"],
        }


@dataclass(frozen=True)
class Picture(_Counted):
    """A snapshot of a running demonstration: our calls by outcome, and the sandbox's summary."""

    live: int
    reasons: Counter[str]
    attention: int
    checks_used: int
    service: dict[str, Any]


@dataclass(frozen=True)
class Audit(_Counted):
    """All calls of the sandbox at one moment, each with one fate, compared with our records."""

    fates: Counter[Fate]
    reasons: Counter[str]
    """Why the settled calls are settled; adds up to ``fates[Fate.SETTLED]``."""
    service: dict[str, Any]

    def _broken(self) -> dict[str, int]:
        overdue = {f"not settled {SETTLES_WITHIN_S:.0f} s after the end": self.fates[Fate.OVERDUE]}
        return {**super()._broken(), **overdue}


class Comparison:
    """Reads both sides of a demonstration: our Redis, and the sandbox's control interface."""

    def __init__(self, redis_url: str, service_url: str) -> None:
        self._redis = Redis.from_url(redis_url)
        self._http = httpx.Client(base_url=service_url, trust_env=False, timeout=5)
        self._keys = Keys()
        self._since = datetime.now(UTC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._redis.close()

    def snapshot(self) -> Picture:
        calls = list(self._calls())
        return Picture(
            live=int(self._redis.zcard(self._keys.live)),
            reasons=Counter(call.life.reason or "?" for call in calls if call.life.phase is Phase.SETTLED),
            attention=int(self._redis.hlen(self._keys.attention)),
            checks_used=sum(call.plan.checks_used for call in calls),
            service=self._http.get("/control/summary").json(),
        )

    def audit(self) -> Audit:
        """Compare every call that the sandbox made with our record of it."""
        records = {id_: call for call in self._calls() for id_ in (call.voice_id, call.names.alternate_id) if id_}
        ledger = self._http.get("/control/ledger").json()
        fates, reasons, now = Counter[Fate](), Counter[str](), datetime.now(UTC)
        for voice_id, account in ledger["calls"].items():
            call = records.get(voice_id) or records.get(account["alternate_id"])
            became = fate(account, call.life.phase if call else None, since=self._since, now=now)
            fates[became] += 1
            if call is not None and became is Fate.SETTLED:
                reasons[call.life.reason or "?"] += 1
        return Audit(fates, reasons, ledger["summary"])

    def _calls(self) -> Iterator[Call]:
        live: Any = self._redis.zrange(self._keys.live, 0, -1)
        settled: Any = self._redis.zrange(self._keys.settled, 0, -1)
        pipe = self._redis.pipeline(transaction=False)
        for member in (*live, *settled):
            pipe.hget(self._keys.item(member.decode()), "rec")
        read = (readable_call(stored) for stored in pipe.execute() if stored is not None)
        yield from (call for call in read if call is not None)
