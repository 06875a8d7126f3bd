"""The breakers before the service, shared by all workers: one for the account, one for each institution.

Failures in a row, of all workers together, open an institution's breaker, and so does a service that asks for a pause
(429). The account's opens when logins fail, or when three institutions, or all of them, fail together. While a breaker
is open nothing is claimed, booked or sent for what it covers; a probe tries it every few seconds, and the first success
closes it (``workers.service_health``). A ``BreakerBox`` is a worker's view of the breakers and how it reports to the others.
The sending of outcomes has a breaker of its own, the account's under other keys.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from redis.asyncio import Redis

from calls.store.keys import Keys, institution_member
from calls.store.scripts import Scripts

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


FAILURES_THAT_OPEN: Final = 5
"""Requests in a row, of all workers, without a usable answer, until a breaker opens."""

INSTITUTIONS_THAT_OPEN: Final = 3
"""So many breakers of institutions that open within ``TOGETHER_MS`` open the account's."""

TOGETHER_MS: Final = 15_000

FIRST_PROBE_MS: Final = 1000
PROBE_EVERY_MS: Final = 3000
"""How often what is away is tried."""

PROBES_AT_ONCE: Final = 16
REMEMBERED_S: Final = 86400


class BreakerBox:
    """This process's view of the breakers, and its reports to all others."""

    def __init__(self, scripts: Scripts, keys: Keys, now: Callable[[], int | str], reporter: str) -> None:
        """Start with all of them closed. ``reporter`` names this process, ``now`` replaces Redis's clock."""
        self.scripts = scripts
        self._keys = keys
        self._now = now
        self._reporter = reporter
        self._reports = 0
        self._known: dict[str, Breaker] = {}
        self.acted_for: frozenset[str] = frozenset()
        """The institutions that are acted for: what "all of them" means."""

    def see(self, stored: Sequence[bytes]) -> None:
        """Take over what Redis says: fields and values in turn."""
        self._known = breakers_of(dict(zip(stored[::2], stored[1::2], strict=True)))

    @property
    def opened(self) -> list[Breaker]:
        """Return the open ones, the account's first."""
        return [breaker for _, breaker in sorted(self._known.items()) if breaker.is_open]

    def over(self, institution_key: str) -> Breaker | None:
        """Return the open breaker that covers an institution; None if it may be asked."""
        known = (self._known.get(ACCOUNT), self._known.get(institution_key))
        return next((breaker for breaker in known if breaker is not None and breaker.is_open), None)

    def has_failed(self, institution_key: str) -> bool:
        """Tell whether an answer for an institution is news."""
        return institution_key in self._known or ACCOUNT in self._known

    async def report(
        self, heard: Heard, institution_key: str = ACCOUNT, *, pause_s: float = 0.0
    ) -> tuple[list[str], list[str]]:
        """Tell all workers what a request told; return whose breakers that opened, and whose it closed.

        Args:
            heard: What it told.
            institution_key: The institution that was asked for; the account where there was none.
            pause_s: For how long the service asked to be left alone.
        """
        self._reports += 1
        keys = self._keys
        stored, opened, closed = await self.scripts.call(
            "report",
            [keys.breakers, keys.claimer(self._reporter), keys.due, keys.token],
            [
                *(self._now(), self._reports, keys.prefix, heard, _scope(institution_key), int(pause_s * 1000)),
                *(FAILURES_THAT_OPEN, INSTITUTIONS_THAT_OPEN, TOGETHER_MS, FIRST_PROBE_MS, REMEMBERED_S),
                *map(institution_member, sorted(self.acted_for)),
            ],
        )
        self.see(stored)
        return [institution_of_scope(scope) for scope in opened], [institution_of_scope(scope) for scope in closed]

    async def take_probes(self) -> list[str]:
        """Take the turn to try whatever may be tried now; return whose breakers those are.

        A repetition takes no turn: what it would have named is tried three seconds later.
        """
        keys = self._keys
        taken = await self.scripts.call(
            "probe", [keys.breakers, keys.token], [self._now(), PROBE_EVERY_MS, PROBES_AT_ONCE]
        )
        return [institution_of_scope(scope) for scope in taken]


async def retry_service(redis: "Redis", keys: Keys | None = None, *, now_ms: int | None = None) -> list[Breaker]:
    """Have everything that is left alone tried at once, a refused login too; return what that is.

    ``now_ms`` replaces Redis's clock.

    Raises:
        redis.exceptions.RedisError: Redis is away or refuses to write.
    """
    keys = Keys() if keys is None else keys
    stored = await Scripts(redis).call(
        "retry", [keys.breakers, keys.login_gate, keys.wakeup], ["" if now_ms is None else now_ms]
    )
    return opened(dict(zip(stored[::2], stored[1::2], strict=True)))


def _scope(institution_key: str) -> str:
    """Return an institution's name as members of the due set spell it."""
    return institution_member(institution_key).removeprefix("i:") if institution_key else ACCOUNT
