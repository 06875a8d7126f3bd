"""Waits until a replica of Redis has a write, so that losing the master does not lose it.

Redis answers a write before its replicas have it. What must not be lost (a push or a statement before its 202, an
effect's ``sent`` before its first byte) is therefore followed by ``WAIT``, in the same pipeline: ``WAIT`` knows only the
writes of its own connection. A server without replicas is not asked to wait.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import ResponseError

from calls.figures import Figures
from calls.figures import catalogue as figure

WITHIN_MS: Final = 100
"""How long a write waits for a replica. If none confirms it in time, the write stands, and that is counted."""

LOOK_EVERY_S: Final = 1.0
"""How long it is believed whether the server has a replica."""


class Replication:
    """Asks the replicas of one server for confirmation, and counts how often none gave it."""

    def __init__(self, figures: Figures, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._figures = figures
        self._monotonic = monotonic
        self._has_replica = False
        self._looked_at_s = -LOOK_EVERY_S

    async def is_wanted(self, redis: Any) -> bool:
        """Tell whether the server has a replica that can confirm a write.

        Raises:
            redis.exceptions.RedisError: Redis is away.
        """
        now_s = self._monotonic()
        if now_s - self._looked_at_s >= LOOK_EVERY_S:
            try:
                found = await redis.info("replication")
            except ResponseError:  # a server that does not tell
                found = {}
            replicas = (found.get(f"slave{n}", {}) for n in range(int(found.get("connected_slaves", 0))))
            self._has_replica = any(replica.get("state") == "online" for replica in replicas)
            self._looked_at_s = now_s
        return self._has_replica

    def wait(self, pipe: Any) -> None:
        """Let a pipeline wait for a replica; the answer to this belongs to ``count``."""
        pipe.execute_command("WAIT", 1, WITHIN_MS)

    def count(self, answer: Any) -> None:
        """Count a wait that no replica confirmed: 0, or an error in its place."""
        if not isinstance(answer, int) or answer < 1:
            self._figures.count(figure.WRITES_UNREPLICATED)
