"""Tries what the breakers leave alone: every few seconds a login where there is no token, else a listing of one entry.

Each probe is a task of its own, so that none waits behind one that hangs. What becomes of it is observed like any other
request (`workers.service`), and the first success closes the breaker.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError

from calls.store.breakers import ACCOUNT
from calls.store.tasks import end
from reseller import ResellerError
from workers.following import follow_member, follow_trace
from workers.institutions import Institutions
from workers.tools import Tools

LOOK_EVERY_S: Final = 0.25


@dataclass(slots=True)
class Probing:
    """Runs beside a shift. ``told`` is called when a probe may have closed a breaker."""

    tools: Tools
    institutions: Institutions
    told: Callable[[], None] = lambda: None
    sleep: Callable[[float], Any] = asyncio.sleep
    _turn: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Try what is to be tried until the block ends; nothing outlives it."""
        looking = asyncio.ensure_future(self._look_on())
        try:
            yield
        finally:
            await end({looking, *self._tasks})

    async def look(self) -> set[asyncio.Task[None]]:
        """Begin to try whatever is to be tried now; return the probes that are under way."""
        if self.tools.store.breakers.opened:
            with suppress(RedisError):
                for key in await self.tools.store.breakers.take_probes():
                    probe = asyncio.ensure_future(self._try(key))
                    self._tasks.add(probe)
                    probe.add_done_callback(self._tasks.discard)
        return set(self._tasks)

    async def _look_on(self) -> None:
        while True:
            await self.look()
            await self.sleep(LOOK_EVERY_S)

    async def _try(self, institution_key: str) -> None:
        follow_trace()
        with suppress(ResellerError, RedisError):
            if institution_key == ACCOUNT:
                await self._try_account()
            else:
                await self._list_one(institution_key)
        self.told()

    async def _try_account(self) -> None:
        """Log in where there is no token; ask for an institution that is not known to fail, by turns."""
        if not self.institutions.are_known:
            await self.institutions.refresh()
            return
        tried = {breaker.institution_key for breaker in self.tools.store.breakers.opened}
        keys = sorted(self.institutions.keys - tried) or sorted(self.institutions.keys)
        self._turn += 1
        if keys:
            await self._list_one(keys[self._turn % len(keys)])
        else:
            await self.tools.service.institution_keys()

    async def _list_one(self, institution_key: str) -> None:
        follow_member(institution_key)
        requested_by = self.tools.requested_by(institution_key)
        await self.tools.service.queue(institution_key, continue_from=0, page_size=1, requested_by=requested_by)
