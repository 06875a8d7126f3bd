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
from enum import Enum
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from calls.store.keys import Keys
from calls.store.scripts import Scripts

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

_REDIS_AWAY: Final = (RedisError, OSError, TimeoutError)


class Failure(Enum):
    """What a failure means for the answer and the log."""

    COUNTED = "counted"
    LAST = "last"  # the limit is reached: the next failures are OVER until some time has passed
    OVER = "over"


class AttemptLimiter:
    """Counts failures by name in this process, in leaky buckets.

    If there are too many names, the one with the oldest failure is forgotten.
    """

    def __init__(
        self,
        *,
        allowed: int = ALLOWED,
        every_s: float = EVERY_S,
        remembered: int = REMEMBERED,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with no failures.

        Args:
            allowed: Failures that fill a bucket.
            every_s: Seconds after which a bucket loses one failure.
            remembered: Maximum number of names.
            now: A monotonic clock, in seconds.
        """
        self.allowed = allowed
        self._every_s = every_s
        self._remembered = remembered
        self._now = now
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def is_limited(self, who: str) -> bool:
        """Tell whether a name has reached the limit."""
        return self._filled(who) > self.allowed - 1

    def fail(self, who: str) -> Failure:
        """Count a failure and classify it."""
        filled = self._filled(who)
        if filled > self.allowed - 1:
            return Failure.OVER
        self._empty_at[who] = self._now() + (filled + 1) * self._every_s
        self._empty_at.move_to_end(who)
        if len(self._empty_at) > self._remembered:
            self._empty_at.popitem(last=False)
        return Failure.LAST if filled + 1 > self.allowed - 1 else Failure.COUNTED

    def admits(self, who: str) -> bool:
        """Count an action that is limited as failures are. Return whether the limit allows it."""
        return self.fail(who) is not Failure.OVER

    def wait_s(self, who: str) -> int:
        """Return after how many whole seconds a name may fail again."""
        return max(1, int((self._filled(who) - self.allowed + 1) * self._every_s) + 1)

    def __len__(self) -> int:
        return len(self._empty_at)

    def _filled(self, who: str) -> float:
        return max(0.0, self._empty_at.get(who, 0.0) - self._now()) / self._every_s


class LoginLimiter:
    """Counts failed logins by name: in Redis for all web processes, and in this process for when Redis is down."""

    def __init__(
        self,
        redis: "Redis",
        *,
        key: bytes,
        keys: Keys,
        remembered: int = REMEMBERED,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Set up.

        Args:
            redis: Where all processes count together.
            key: Key of the hash that hides the names in Redis, because an address is personal data.
            keys: The names of our keys.
            remembered: Maximum number of names in Redis. Those with the fewest failures are forgotten first.
            now_ms: Replaces Redis's clock and this process's.
        """
        self._scripts = Scripts(redis, keys=keys)
        self._key = key
        self._where = [keys.logins]
        self._remembered = remembered
        self._now_ms = now_ms
        now = time.monotonic if now_ms is None else lambda: now_ms() / 1000
        self._addresses = AttemptLimiter(now=now)
        self._names = AttemptLimiter(allowed=ALLOWED_FOR_NAME, now=now)

    async def wait_s(self, who: str, name: str = "") -> int:
        """Return after how many whole seconds a login from an address by a name is checked; 0: now."""
        return max([await self._wait_s(*bucket) for bucket in self._buckets(who, name)])

    async def fail(self, who: str, name: str = "") -> Failure:
        """Count a failure and classify it. Failures beyond an address's limit do not count for the name.

        The local count comes first, so that guesses that arrive together cannot all pass before Redis has counted them.
        """
        found = Failure.COUNTED
        for bucket in self._buckets(who, name):
            failure = await self._fail(*bucket)
            if failure is Failure.OVER:
                return failure
            found = failure if failure is Failure.LAST else found
        return found

    def _buckets(self, who: str, name: str) -> list[tuple[str, AttemptLimiter]]:
        by_name = [(f"name {name[:_NAME_COUNTED]}", self._names)] if name else []
        return [(who, self._addresses), *by_name]

    async def _wait_s(self, who: str, local: AttemptLimiter) -> int:
        if local.is_limited(who):
            return local.wait_s(who)
        try:
            is_over, left_ms = await self._ask(who, local.allowed, count=False)
        except _REDIS_AWAY:
            return 0
        return max(1, int(left_ms / 1000 - (local.allowed - 1) * EVERY_S) + 1) if is_over else 0

    async def _fail(self, who: str, local: AttemptLimiter) -> Failure:
        here = local.fail(who)
        if here is Failure.OVER:
            return here
        try:
            is_over, left_ms = await self._ask(who, local.allowed, count=True)
        except _REDIS_AWAY:
            return here
        if is_over:
            return Failure.OVER
        return Failure.LAST if left_ms > (local.allowed - 1) * EVERY_S * 1000 else here

    async def _ask(self, who: str, allowed: int, *, count: bool) -> tuple[bool, int]:
        name = hmac.digest(self._key, who.encode(), sha256).hex()[:32]
        now_ms = self._now_ms() if self._now_ms else ""
        args = [now_ms, name, allowed, int(EVERY_S * 1000), self._remembered, int(count)]
        is_over, left_ms = await self._scripts.call("limit", self._where, args, within_s=REDIS_WITHIN_S)
        return bool(is_over), int(left_ms)


def network_of(client: object) -> str:
    """Return the name under which an ASGI ``client`` is counted: its IPv4 address, or its IPv6 network."""
    try:
        address = ip_address(str(client[0]).partition("%")[0])  # type: ignore[index]  # None raises too
    except (ValueError, TypeError, IndexError):
        return "unknown"
    return _network(address)


def _network(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), _NETWORK_BITS), strict=False))
