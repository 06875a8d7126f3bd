"""Limits how often an address may fail to authenticate: ten failures, then one every six seconds.

It counts in this process, so that a request can be refused without Redis. The push endpoint, the desk and the logins use
it. They always check the credential, so the limit bounds only answers and log lines.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Final

ALLOWED: Final = 10
"""Failures in a row that are each answered and logged as failures."""

EVERY_S: Final = 6.0
"""After this many seconds one failure is forgotten."""

REMEMBERED: Final = 4096
"""How many addresses are remembered, at some 200 bytes each."""

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
