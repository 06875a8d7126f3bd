"""Limits how often an address may fail to authenticate: ten failures, then one every six seconds.

For one name all addresses together may fail a hundred times, because an attacker can have any number of IPv6
addresses. One address alone cannot use up a name's limit.

`AttemptLimiter` counts in this process. The push endpoint and the desk use it, because they must be able to refuse a
request without Redis. They always check the credential, so their limit bounds only answers and log lines.

`LoginLimiter` also counts in Redis, because people choose passwords: the number of guesses must not grow with the
number of web processes or restarts. While Redis is down, each process uses its own count.
"""

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from ipaddress import IPv4Address, ip_address, ip_network
from math import ceil
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import Scripts

ALLOWED: Final = 10
"""Failures in a row that are each answered and logged as failures."""

ALLOWED_FOR_NAME: Final = 100
"""Failures in a row for one name, from all addresses together. NIST SP 800-63B allows no more for one account."""

EVERY_S: Final = 6.0
"""After this many seconds one failure is forgotten."""

REMEMBERED: Final = 4096
"""How many addresses are remembered, at some 200 bytes each."""

REDIS_WITHIN_S: Final = 0.5
"""How long Redis may take to answer, in seconds, before the process uses its own count."""

_NAME_COUNTED: Final = 64
"""How many characters of a typed name are used for counting."""

_NETWORK_BITS: Final = 64
"""IPv6 addresses are counted by this network, because a client can use all addresses in it."""


class AttemptLimiter:
    """Counts failures by name in this process, in leaky buckets.

    A bucket takes ``allowed`` failures, and loses one every ``every_s`` seconds. If there are too many names, the one with
    the oldest failure is forgotten.
    """

    def __init__(
        self,
        *,
        allowed: int = ALLOWED,
        every_s: float = EVERY_S,
        remembered: int = REMEMBERED,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowed = allowed
        self._every_s = every_s
        self._remembered = remembered
        self._now = now
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, who: str) -> int:
        """Return after how many whole seconds a name may fail again; 0: now."""
        over = self._filled(who) - (self.allowed - 1)
        return int(over * self._every_s) + 1 if over > 0 else 0

    def count(self, who: str) -> int:
        """Count a failure, or anything else of which only so many are allowed; return 0.

        If the limit was reached before, count nothing and return the seconds to wait.
        """
        if wait_s := self.wait_s(who):
            return wait_s
        self._empty_at[who] = self._now() + (self._filled(who) + 1) * self._every_s
        self._empty_at.move_to_end(who)
        if len(self._empty_at) > self._remembered:
            self._empty_at.popitem(last=False)
        return 0

    def __len__(self) -> int:
        return len(self._empty_at)

    def _filled(self, who: str) -> float:
        return max(0.0, self._empty_at.get(who, 0.0) - self._now()) / self._every_s


class LoginLimiter:
    """Counts failed logins by name: in Redis for all web processes, and in this process for when Redis is down."""

    def __init__(
        self,
        redis: Redis,
        log: FilteringBoundLogger,
        *,
        key: bytes,
        keys: Keys,
        remembered: int = REMEMBERED,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Set up.

        Args:
            redis: Where all processes count together.
            log: Where failures are logged.
            key: Key of the hash that hides the names in Redis, because an address is personal data.
            keys: The names of our keys.
            remembered: Maximum number of names in Redis. Those with the fewest failures are forgotten first.
            now_ms: Replaces Redis's clock and this process's.
        """
        self._scripts = Scripts(redis, keys=keys, now_ms=now_ms)
        self._log = log
        self._key = key
        self._remembered = remembered
        now = time.monotonic if now_ms is None else lambda: now_ms() / 1000
        self._addresses = AttemptLimiter(now=now)
        self._names = AttemptLimiter(allowed=ALLOWED_FOR_NAME, now=now)

    async def wait_s(self, who: str, name: str = "") -> int:
        """Return after how many whole seconds a login from an address by a name is checked; 0: now."""
        return (await self._ask(who, name))[0]

    async def count(self, who: str, name: str = "") -> int:
        """Count and log a failure. If the limit was reached before, do neither and return the seconds to wait.

        Failures beyond an address's limit do not count for the name.
        """
        wait_s, next_s = await self._ask(who, name, count=True)
        if wait_s:
            return wait_s
        self._log.warning("admin_refused", reason="credentials")
        if next_s:
            self._log.warning("attempts_limited", where="login", address=who)
        return 0

    async def _ask(self, who: str, name: str, *, count: bool = False) -> tuple[int, int]:
        """Return how many seconds this login has to wait, and the next one. ``count``: count a failure unless it waits.

        The local count comes first, so that guesses that arrive together cannot all pass before Redis has counted them.
        """
        buckets = [(who, self._addresses), *([(f"name {name[:_NAME_COUNTED]}", self._names)] if name else [])]
        names: list[str | int] = []
        for each, local in buckets:
            if wait_s := local.count(each) if count else local.wait_s(each):
                return wait_s, wait_s
            names += [hmac.digest(self._key, each.encode(), sha256).hex()[:32], local.allowed]
        try:
            wait_ms, next_ms = await self._scripts.call(
                "limit",
                every_ms=int(EVERY_S * 1000),
                remembered=self._remembered,
                counts=int(count),
                rest=names,
                within_s=REDIS_WITHIN_S,
            )
        except (RedisError, OSError, TimeoutError):
            wait_ms = next_ms = 0
        return ceil(wait_ms / 1000), max(ceil(next_ms / 1000), *(local.wait_s(each) for each, local in buckets))


def network_of(client: object) -> str:
    """Return the name under which an ASGI ``client`` is counted: its IPv4 address, or its IPv6 network."""
    try:
        address = ip_address(str(client[0]).partition("%")[0])  # type: ignore[index]  # None raises too
    except (ValueError, TypeError, IndexError):
        return "unknown"
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), _NETWORK_BITS), strict=False))
