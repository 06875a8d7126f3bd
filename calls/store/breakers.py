"""Circuit breakers for the service, shared by all workers: one for the account and one for each institution.

An institution's breaker opens after failures in a row, counted over all workers, or when the service asks for a pause
(429). The account's opens when logins fail, or when three institutions, or all, fail together. While a breaker is open,
nothing it covers is claimed, booked or sent. A probe tests it every few seconds, and the first success closes it
(``workers.service_health``). ``BreakerBox`` is one worker's view of the breakers. The webhook has a breaker of its own:
the account's, under the outbox's keys.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote

from redis.asyncio import Redis

from calls.claimed_item import instant
from calls.store.keys import KEYS, REMEMBERED_S, Keys, institution_member, institution_part
from calls.store.scripts import Scripts

ACCOUNT: Final = ""
"""Used for the service account in place of an institution's key."""


class Heard(StrEnum):
    """What a request says about the service."""

    ANSWER = "answer"
    FAILURE = "failure"
    PAUSE = "pause"
    """The service asks for a pause of a given length."""
    LOGIN = "login"
    """A login failed. This affects everybody once there is no token."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker of the account (``institution_key`` empty) or an institution. ``since`` is None while closed."""

    institution_key: str
    failures: int
    since: datetime | None
    tried_at: datetime
    why: Heard

    @property
    def is_open(self) -> bool:
        """Tell whether requests are stopped."""
        return self.since is not None

    @property
    def words(self) -> str:
        """Describe in one line why it is open and when it is tested."""
        since = f"since {self.since:%H:%M:%S} UTC" if self.since else "not"
        match self.why:
            case Heard.PAUSE:
                return f"paused {since} because the service asked for it (429), until {self.tried_at:%H:%M:%S}"
            case Heard.LOGIN:
                return f"away {since} (there is no token and logins fail); a login is tried every 3 s"
            case _:
                return f"away {since} ({self.failures} requests failed in a row); tried every 3 s"


def breakers_of(stored: dict[bytes, bytes]) -> dict[str, Breaker]:
    """Read stored breakers by institution key. One that cannot be read counts as closed."""
    found = {
        institution_of_scope(scope): _breaker(institution_of_scope(scope), value) for scope, value in stored.items()
    }
    return {key: breaker for key, breaker in found.items() if breaker is not None}


async def open_breakers(redis: "Redis", keys: Keys = KEYS) -> list[Breaker]:
    """Return the open breakers, the account's first.

    Raises:
        redis.exceptions.RedisError: Redis is down.
    """
    client: Any = redis
    return opened(await client.hgetall(keys.breakers))


async def service_away(redis: "Redis", keys: Keys = KEYS) -> Breaker | None:
    """Return the account's breaker if it is open: no requests are sent to the service at all.

    Raises:
        redis.exceptions.RedisError: Redis is down.
    """
    return account_of(await open_breakers(redis, keys))


def opened(stored: dict[bytes, bytes]) -> list[Breaker]:
    """Return the open ones of the stored breakers, the account's first."""
    return [breaker for _, breaker in sorted(breakers_of(stored).items()) if breaker.is_open]


def account_of(breakers: Iterable[Breaker]) -> Breaker | None:
    """Return the account's breaker if it is among the open ones: then no requests are sent to the service at all."""
    return next((breaker for breaker in breakers if breaker.institution_key == ACCOUNT), None)


def _breaker(institution_key: str, value: bytes) -> Breaker | None:
    try:
        failures, since, tried, why = value.decode().split(" ")
        since_at = instant(int(since)) if since != "0" else None
        return Breaker(institution_key, int(failures), since_at, instant(int(tried)), Heard(why))
    except (ValueError, OverflowError):
        return None


def institution_of_scope(scope: bytes) -> str:
    """Return the institution's key for the scope of a stored breaker; `ACCOUNT` for the account's."""
    return unquote(scope.decode(errors="replace"))


FAILURES_THAT_OPEN: Final = 5
"""Requests in a row without a usable answer, over all workers, that open a breaker."""

INSTITUTIONS_THAT_OPEN: Final = 3
"""If this many institutions' breakers open within ``TOGETHER_MS``, the account's opens too."""

TOGETHER_MS: Final = 15_000

FIRST_PROBE_MS: Final = 1000
PROBE_EVERY_MS: Final = 3000
"""How often an open breaker is tested, in milliseconds."""

PROBES_AT_ONCE: Final = 16


class BreakerBox:
    """One process's view of the breakers, and its reports to the others."""

    def __init__(
        self, scripts: Scripts, keys: Keys, now: Callable[[], int | str], reporter: str, *, longest_pause_s: float
    ) -> None:
        """Start with all breakers closed.

        Args:
            scripts: Runs our scripts.
            keys: The names of our keys.
            now: Replaces Redis's clock.
            reporter: Names this process.
            longest_pause_s: The longest pause that may be asked for, in seconds.
        """
        self.scripts = scripts
        self._keys = keys
        self._now = now
        self._reporter = reporter
        self._longest_pause_ms = round(longest_pause_s * 1000)
        self._reports = 0
        self._known: dict[str, Breaker] = {}
        self.acted_for: frozenset[str] = frozenset()
        """The institutions that we act for, to know when all of them fail."""

    def see(self, stored: Sequence[bytes]) -> None:
        """Store what Redis returned: fields and values in turn."""
        self._known = breakers_of(dict(zip(stored[::2], stored[1::2], strict=True)))

    @property
    def opened(self) -> list[Breaker]:
        """Return the open breakers, the account's first."""
        return [breaker for _, breaker in sorted(self._known.items()) if breaker.is_open]

    def over(self, institution_key: str) -> Breaker | None:
        """Return the open breaker that covers an institution; None if requests may be sent."""
        known = (self._known.get(ACCOUNT), self._known.get(institution_key))
        return next((breaker for breaker in known if breaker is not None and breaker.is_open), None)

    def has_failed(self, institution_key: str) -> bool:
        """Tell whether failures are stored that an answer for this institution would clear."""
        return institution_key in self._known or ACCOUNT in self._known

    async def report(
        self, heard: Heard, institution_key: str = ACCOUNT, *, pause_s: float = 0.0
    ) -> tuple[list[str], list[str]]:
        """Report the result of a request to all workers. Return whose breakers opened and whose closed.

        Args:
            heard: The result.
            institution_key: The institution it was for; the account if none.
            pause_s: How long the service asked for no requests, in seconds.
        """
        self._reports += 1
        keys = self._keys
        stored, opened, closed = await self.scripts.call(
            "report",
            [keys.breakers, keys.claimer(self._reporter), keys.due, keys.token],
            [
                *(
                    self._now(),
                    self._reports,
                    keys.prefix,
                    heard,
                    institution_part(institution_key),
                    int(pause_s * 1000),
                ),
                *(FAILURES_THAT_OPEN, INSTITUTIONS_THAT_OPEN, TOGETHER_MS, FIRST_PROBE_MS, REMEMBERED_S),
                *map(institution_member, sorted(self.acted_for)),
            ],
        )
        self.see(stored)
        return [institution_of_scope(scope) for scope in opened], [institution_of_scope(scope) for scope in closed]

    async def take_probes(self) -> list[str]:
        """Take the probes that are due now; return whose breakers they test.

        If Redis repeats the script, the repetition takes none. Those breakers are tested three seconds later.
        """
        keys = self._keys
        taken = await self.scripts.call(
            "probe", [keys.breakers, keys.token], [self._now(), PROBE_EVERY_MS, PROBES_AT_ONCE, self._longest_pause_ms]
        )
        return [institution_of_scope(scope) for scope in taken]


async def retry_service(redis: "Redis", keys: Keys = KEYS, *, now_ms: int | None = None) -> list[Breaker]:
    """Test everything behind an open breaker at once, also a refused login; return the open breakers.

    ``now_ms`` replaces Redis's clock.

    Raises:
        redis.exceptions.RedisError: Redis is down or refuses writes.
    """
    stored = await Scripts(redis, keys=keys).call(
        "retry", [keys.breakers, keys.login_gate, keys.wakeup], ["" if now_ms is None else now_ms]
    )
    return opened(dict(zip(stored[::2], stored[1::2], strict=True)))
