"""Limits how often an address may fail to identify itself: ten failures, then one every six seconds.

`AttemptLimiter` counts in this process. The push endpoint and the desk use it: they must not need Redis to refuse a request,
and they always look at the credential, so their limit bounds answers and log lines only.

`LoginLimiter` also counts in Redis, because people choose passwords: ten guesses are ten guesses, whatever the number of
web processes and restarts. While Redis is away each process goes by its own count.
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
"""Failures in a row that are each answered and logged as such."""

EVERY_S: Final = 6.0
"""After how long one failure is forgotten."""

REMEMBERED: Final = 4096
"""Addresses that are remembered; some 200 bytes each."""

REDIS_WITHIN_S: Final = 0.5
"""How long Redis may take to answer before the process goes by its own count."""

_NETWORK_BITS: Final = 64
"""Of an IPv6 address: whoever has one address has all of its network."""

_REDIS_AWAY: Final = (RedisError, OSError, TimeoutError)


class Failure(Enum):
    """What a failure means for the answer and the log."""

    COUNTED = "counted"
    LAST = "last"  # the limit is reached: the next failures are OVER until some time has passed
    OVER = "over"


class AttemptLimiter:
    """Counts failures by name in this process, in leaky buckets.

    When there are too many names, the one that failed longest ago is forgotten.
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
            every_s: After how long a bucket loses one.
            remembered: Names at most.
            now: Seconds on a clock that never goes back.
        """
        self._allowed = allowed
        self._every_s = every_s
        self._remembered = remembered
        self._now = now
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def is_limited(self, who: str) -> bool:
        """Tell whether a name has reached the limit."""
        return self._filled(who) > self._allowed - 1

    def fail(self, who: str) -> Failure:
        """Count a failure and return what it means."""
        filled = self._filled(who)
        if filled > self._allowed - 1:
            return Failure.OVER
        self._empty_at[who] = self._now() + (filled + 1) * self._every_s
        self._empty_at.move_to_end(who)
        if len(self._empty_at) > self._remembered:
            self._empty_at.popitem(last=False)
        return Failure.LAST if filled + 1 > self._allowed - 1 else Failure.COUNTED

    def wait_s(self, who: str) -> int:
        """Return after how many whole seconds a name may fail again."""
        return max(1, int((self._filled(who) - self._allowed + 1) * self._every_s) + 1)

    def __len__(self) -> int:
        return len(self._empty_at)

    def _filled(self, who: str) -> float:
        return max(0.0, self._empty_at.get(who, 0.0) - self._now()) / self._every_s


class LoginLimiter:
    """Counts failed logins by name, in Redis for all web processes and in this process for the time Redis is away."""

    def __init__(
        self,
        redis: "Redis",
        *,
        key: bytes,
        keys: Keys,
        local: AttemptLimiter,
        remembered: int = REMEMBERED,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Prepare to count.

        Args:
            redis: Where to count for all processes.
            key: Hides the names in Redis: an address is personal data.
            keys: Names of our keys.
            local: Counts in this process.
            remembered: Names that Redis remembers at most; those with the fewest failures are forgotten first.
            now_ms: Replaces Redis's clock.
        """
        self._scripts = Scripts(redis)
        self._key = key
        self._where = [keys.logins]
        self._local = local
        self._remembered = remembered
        self._now_ms = now_ms

    async def wait_s(self, who: str) -> int:
        """Return after how many whole seconds a login by this name is looked at; 0: now."""
        if self._local.is_limited(who):
            return self._local.wait_s(who)
        try:
            is_over, left_ms = await self._ask(who, count=False)
        except _REDIS_AWAY:
            return 0
        return _wait_s(left_ms) if is_over else 0

    async def fail(self, who: str) -> Failure:
        """Count a failure and return what it means.

        It is counted here before Redis is asked: guesses that arrive together cannot all be looked at first.
        """
        here = self._local.fail(who)
        if here is Failure.OVER:
            return here
        try:
            is_over, left_ms = await self._ask(who, count=True)
        except _REDIS_AWAY:
            return here
        if is_over:
            return Failure.OVER
        return Failure.LAST if left_ms > (ALLOWED - 1) * EVERY_S * 1000 else here

    async def _ask(self, who: str, *, count: bool) -> tuple[bool, int]:
        name = hmac.digest(self._key, who.encode(), sha256).hex()[:32]
        now_ms = self._now_ms() if self._now_ms else ""
        args = [now_ms, name, ALLOWED, int(EVERY_S * 1000), self._remembered, int(count)]
        is_over, left_ms = await self._scripts.call("limit", self._where, args, within_s=REDIS_WITHIN_S)
        return bool(is_over), int(left_ms)


def _wait_s(left_ms: int) -> int:
    return max(1, int(left_ms / 1000 - (ALLOWED - 1) * EVERY_S) + 1)


def network_of(client: object) -> str:
    """Return the name under which an ASGI scope's ``client`` is counted: its address, or its network if that is IPv6."""
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
