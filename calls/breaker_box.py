"""A worker's breaker box: its view of the breakers before the service, and its reports to all other workers."""

from collections.abc import Callable, Sequence
from typing import Final

from redis.asyncio import Redis

from calls.breakers import ACCOUNT, Breaker, Heard, breakers_of, institution_of_scope, opened
from calls.keys import Keys, institution_member
from calls.scripts import Scripts

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
