"""The bell: how a shift under way is told that something was made due, without a job and without asking again and again.

While a shift says with its claims that it attends, whoever leaves a note with a wake-up rings (``call_somebody`` in
``calls/lua/prelude.lua``), and one of the shifts that wait hears it. A ring that nobody hears costs a fifth of a second:
the pacemaker sees what is late.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from calls.keys import Keys

HEARS_FOR_S: Final = 1.0
"""How long one command waits for a ring: less than a connection waits for an answer."""

REST_S: Final = 0.01
"""After a ring nobody listens for so long: a burst of pushes is one ring, and one claim."""

RETRY_S: Final = 0.2
"""After a failure."""


class Bell:
    """Heard by one shift at a time of all that listen."""

    def __init__(self, redis: "Redis", *, keys: Keys | None = None) -> None:
        self._redis: Any = redis  # its stubs know no lists of keys
        self._keys = Keys() if keys is None else keys

    async def listen(self, on_ring: Callable[[], None]) -> None:
        """Call ``on_ring`` at every ring, until cancelled."""
        while True:
            try:
                if await self._redis.blpop([self._keys.bell], timeout=HEARS_FOR_S) is not None:
                    on_ring()
                    await asyncio.sleep(REST_S)
            except RedisError:
                await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Attend no more: whoever makes something due asks for a job. Another shift attends again with its next claim."""
        await self._redis.delete(self._keys.attended)
