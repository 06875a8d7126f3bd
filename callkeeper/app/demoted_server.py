"""Connections that leave a server which is no longer the primary, so that its address is resolved again.

Behind a name or an address that follows the primary, a demoted server keeps its connections open, and refuses writes for
ever. As soon as one connection of this process hears that, it and all others that are as old are closed before they are
used again.
"""

import time
from typing import Any, ClassVar, Final

from redis.exceptions import ReadOnlyError, ResponseError

_REFUSALS: Final = ("READONLY ", "NOREPLICAS ", "UNBLOCKED ")
"""A write to a replica; a write to a primary that has lost its replicas; a blocking command when the role changes."""


class _Leaving:
    """What is known of demotions in this process, and since when a connection is open."""

    heard_at: ClassVar[float] = -1.0
    opened_at = 0.0

    @property
    def is_left(self) -> bool:
        """Whether a demotion was heard of since the connection was opened."""
        return self.opened_at <= _Leaving.heard_at

    @staticmethod
    def hears(error: ResponseError) -> bool:
        """Return whether an error tells of a demotion; then remember it.

        redis-py takes the first word of most answers for the error's class; Redis 6 has it in the middle of a script's.
        """
        told = isinstance(error, ReadOnlyError) or any(refusal in str(error) for refusal in _REFUSALS)
        if told:
            _Leaving.heard_at = time.monotonic()
        return told


class AsyncLeaving(_Leaving):
    """Mixed into redis-py's connections for asyncio."""

    async def connect(self) -> None:
        """Connect. A connection to a server that was demoted is closed first."""
        redis: Any = super()
        if self.is_connected and self.is_left:  # type: ignore[attr-defined]
            await self.disconnect(nowait=True)  # type: ignore[attr-defined]
        was_open = self.is_connected  # type: ignore[attr-defined]
        await redis.connect()
        if not was_open:
            self.opened_at = time.monotonic()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Read an answer, which may tell of a demotion."""
        redis: Any = super()
        try:
            return await redis.read_response(*args, **options)
        except ResponseError as error:
            self.hears(error)
            raise


class BlockingLeaving(_Leaving):
    """The same for threads and RQ."""

    def connect(self) -> None:
        """Connect. A connection to a server that was demoted is closed first."""
        redis: Any = super()
        if self.is_connected and self.is_left:  # type: ignore[attr-defined]
            self.disconnect()  # type: ignore[attr-defined]
        was_open = self.is_connected  # type: ignore[attr-defined]
        redis.connect()
        if not was_open:
            self.opened_at = time.monotonic()

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Read an answer, which may tell of a demotion."""
        redis: Any = super()
        try:
            return redis.read_response(*args, **options)
        except ResponseError as error:
            self.hears(error)
            raise
