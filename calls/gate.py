"""The gate before the service, shared by all workers: shut while the service is away, opened by the first success.

Failures in a row, of all workers together, shut it, and so does a service that asks for a pause. While it is shut nothing is
claimed and no check is booked; then one member at a time is tried.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from calls.keys import Keys

FAILURES_THAT_SHUT = 5
"""Requests in a row, of all workers, without a usable answer, until the service counts as away."""

PROBE_EVERY_MS = 1000
"""How often a service that is away is tried with one member."""


@dataclass(slots=True)
class Gate:
    """This process's view of the gate."""

    shut_until: datetime | None = None
    failures: int = 0

    def see(self, now: datetime, *, shut_ms: int, failures: int) -> None:
        """Take over what Redis says."""
        self.shut_until = now + timedelta(milliseconds=shut_ms) if shut_ms else None
        self.failures = failures

    @property
    def is_probing(self) -> bool:
        """Tell whether the service was away: one free read has to succeed before anything is booked or sent."""
        return self.failures >= FAILURES_THAT_SHUT

    def wait(self, now: datetime) -> datetime | None:
        """Return until when nothing may be sent; None if it may."""
        return self.shut_until if self.shut_until is not None and now < self.shut_until else None


@dataclass(frozen=True, slots=True)
class Away:
    """A service that is left alone: since when, after how many failures in a row, and until when at least."""

    since: datetime
    failures: int
    tried_again_at: datetime

    @property
    def words(self) -> str:
        """Say it in a line."""
        return (
            f"away since {self.since:%H:%M:%S} UTC ({self.failures} requests failed in a row, or it asked for a pause); "
            f"tried again at {self.tried_again_at:%H:%M:%S}, nothing is booked until then"
        )


async def service_away(redis: "Redis", keys: Keys | None = None) -> Away | None:
    """Return how long the service has been away, by what all workers found; None while it answers.

    Raises:
        redis.exceptions.RedisError: Redis is away.
    """
    client: Any = redis
    since, failures, until = await client.hmget(
        (Keys() if keys is None else keys).service, ["open", "failures", "until"]
    )
    if since is None:
        return None
    return Away(_instant(since), int(failures or 0), _instant(until))


def _instant(ms: bytes | str | None) -> datetime:
    return datetime.fromtimestamp(int(ms or 0) / 1000, UTC)
