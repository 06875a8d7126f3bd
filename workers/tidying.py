"""Takes what has expired off the list of what needs a person, now and then."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from redis.exceptions import RedisError

from calls.store.store import Store

EVERY_S = 3600.0


@dataclass(slots=True)
class Tidying:
    """Tidies each store once an hour; the worker that finds it already done does no harm."""

    stores: Sequence[Store]
    monotonic: Callable[[], float]
    _done_at_s: float | None = None

    async def tidy(self) -> None:
        """Tidy if it is time."""
        now_s = self.monotonic()
        if self._done_at_s is not None and now_s - self._done_at_s < EVERY_S:
            return
        self._done_at_s = now_s
        with suppress(RedisError):
            for store in self.stores:
                await store.tidy()
