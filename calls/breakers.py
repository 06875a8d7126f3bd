"""The breakers before the service, shared by all workers: one for the account, one for each institution.

Failures in a row, of all workers together, open an institution's breaker, and so does a service that asks for a pause
(429). The account's opens when logins fail, or when three institutions, or all of them, fail together. While a breaker is
open nothing is claimed, booked or sent for what it covers; a probe tries it every few seconds, and the first success closes
it (``workers.probing``). ``calls.breaker_box`` is how workers report. The sending of outcomes has a breaker of its own, the
account's under other keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from redis.asyncio import Redis

from calls.keys import Keys

ACCOUNT: Final = ""
"""Stands for the service account where an institution's key is named."""


class Heard(StrEnum):
    """What a request tells of the service."""

    ANSWER = "answer"
    FAILURE = "failure"
    PAUSE = "pause"
    """It asks to be left alone, and says for how long."""
    LOGIN = "login"
    """A login failed: that concerns everybody as soon as there is no token."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The failures of the account (``institution_key`` empty) or of an institution; ``since`` is None while it is closed."""

    institution_key: str
    failures: int
    since: datetime | None
    tried_at: datetime
    why: Heard

    @property
    def is_open(self) -> bool:
        """Tell whether what it covers is left alone."""
        return self.since is not None

    @property
    def words(self) -> str:
        """Say in a line why it is open and when it is tried."""
        since = f"since {self.since:%H:%M:%S} UTC" if self.since else "not"
        match self.why:
            case Heard.PAUSE:
                return f"left alone {since} because the service asked for it (429), until {self.tried_at:%H:%M:%S}"
            case Heard.LOGIN:
                return f"away {since} (there is no token and logins fail); a login is tried every 3 s"
            case _:
                return f"away {since} ({self.failures} requests failed in a row); tried every 3 s"


def breakers_of(stored: dict[bytes, bytes]) -> dict[str, Breaker]:
    """Read breakers as they are stored, by institution key; one that cannot be read counts as closed."""
    found = {
        institution_of_scope(scope): _breaker(institution_of_scope(scope), value) for scope, value in stored.items()
    }
    return {key: breaker for key, breaker in found.items() if breaker is not None}


async def open_breakers(redis: "Redis", keys: Keys | None = None) -> list[Breaker]:
    """Return the open breakers, the account's first.

    Raises:
        redis.exceptions.RedisError: Redis is away.
    """
    client: Any = redis
    return opened(await client.hgetall((Keys() if keys is None else keys).breakers))


async def service_away(redis: "Redis", keys: Keys | None = None) -> Breaker | None:
    """Return the account's breaker if it is open: the whole service is left alone.

    Raises:
        redis.exceptions.RedisError: Redis is away.
    """
    return account_of(await open_breakers(redis, keys))


def opened(stored: dict[bytes, bytes]) -> list[Breaker]:
    """Return the open breakers of what is stored, the account's first."""
    return [breaker for _, breaker in sorted(breakers_of(stored).items()) if breaker.is_open]


def account_of(breakers: Iterable[Breaker]) -> Breaker | None:
    """Return the account's breaker among open ones: with it the whole service is left alone."""
    return next((breaker for breaker in breakers if breaker.institution_key == ACCOUNT), None)


def _breaker(institution_key: str, value: bytes) -> Breaker | None:
    try:
        failures, since, tried, why = value.decode().split(" ")
        since_at = _instant(since) if since != "0" else None
        return Breaker(institution_key, int(failures), since_at, _instant(tried), Heard(why))
    except (ValueError, OverflowError):
        return None


def institution_of_scope(scope: bytes) -> str:
    """Return the institution's key that a breaker is stored under, `ACCOUNT` for the account's."""
    return unquote(scope.decode(errors="replace"))


def _instant(ms: str) -> datetime:
    return datetime.fromtimestamp(int(ms) / 1000, UTC)
