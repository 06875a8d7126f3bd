"""Which one of several processes does something for all, in Redis. When it ends, another takes over."""

from redis.asyncio import Redis

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import Scripts


class Leadership:
    """One process's part in being the leader for one purpose."""

    def __init__(self, redis: Redis, keys: Keys, *, at: str, process: str, leads_ms: int) -> None:
        self._scripts = Scripts(redis, keys=keys)
        self._at = at
        self._process = process
        self._leads_ms = leads_ms

    async def lead(self, *, lets_go: bool = False) -> bool:
        """Become or stay the leader if nobody else leads; return whether this process leads. ``lets_go``: step down."""
        wanted = 0 if lets_go else 1
        leads = await self._scripts.call(
            "lead", leader_key=self._at, process=self._process, leads_ms=self._leads_ms, wanted=wanted
        )
        return bool(leads)
