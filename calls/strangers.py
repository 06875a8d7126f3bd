"""Who failed to show a right credential lately, by address: so many failures a minute are heard, the others are not.

Kept in the process: the front door must not depend on Redis to turn strangers away, and a stranger must not be able to make
us write. So a limit holds for each web process. What is kept is bounded: the address that was silent longest is forgotten.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

HEARD: Final = 10
"""Failures in a row that are each answered and logged as such."""

EVERY_S: Final = 6.0
"""How soon another one is."""

REMEMBERED: Final = 4096
"""Addresses; some 200 bytes each."""

_NETWORK_BITS: Final = 64
"""Of an IPv6 address: whoever has one has all of its network."""


class Failure(Enum):
    """What a failure is to those who answer and log it."""

    HEARD = "heard"
    LAST_HEARD = "last_heard"  # the next ones are not, until some time has passed
    IGNORED = "ignored"


class Strangers:
    """Counts failures by address, as buckets that empty with time."""

    def __init__(
        self,
        *,
        heard: int = HEARD,
        every_s: float = EVERY_S,
        remembered: int = REMEMBERED,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Know nobody.

        Args:
            heard: Failures that fill a bucket.
            every_s: How soon a bucket loses one.
            remembered: Addresses at most.
            now: Seconds on a clock that never goes back.
        """
        self._heard = heard
        self._every_s = every_s
        self._remembered = remembered
        self._now = now
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def is_barred(self, who: str) -> bool:
        """Tell whether somebody's bucket is full."""
        return self._filled(who) > self._heard - 1

    def fail(self, who: str) -> Failure:
        """Note a failure and return what it is."""
        filled = self._filled(who)
        if filled > self._heard - 1:
            return Failure.IGNORED
        self._empty_at[who] = self._now() + (filled + 1) * self._every_s
        self._empty_at.move_to_end(who)
        if len(self._empty_at) > self._remembered:
            self._empty_at.popitem(last=False)
        return Failure.LAST_HEARD if filled + 1 > self._heard - 1 else Failure.HEARD

    def wait_s(self, who: str) -> int:
        """Return after how many whole seconds somebody is heard again."""
        return max(1, int((self._filled(who) - self._heard + 1) * self._every_s) + 1)

    def __len__(self) -> int:
        return len(self._empty_at)

    def _filled(self, who: str) -> float:
        return max(0.0, self._empty_at.get(who, 0.0) - self._now()) / self._every_s


def network_of(client: object) -> str:
    """Return under which name an ASGI scope's ``client`` is counted: its address, of IPv6 its network."""
    try:
        address = ip_address(str(client[0]).partition("%")[0])  # type: ignore[index]  # None raises, and is nobody
    except (ValueError, TypeError, IndexError):
        return "unknown"
    return _network(address)


def _network(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), _NETWORK_BITS), strict=False))
