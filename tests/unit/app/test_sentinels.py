"""Which server is the master, as the sentinels name it."""

from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.app.redis_location import parse_location
from callkeeper.app.sentinels import async_master

OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6379)


class Sentinel:
    """A sentinel that names a master, or does not answer."""

    def __init__(
        self,
        address: tuple[str, int] | None = OLD,
        *,
        epoch: int = 1,
        flags: str = "master",
        watched: str = "calls-master",
    ) -> None:
        self._address, self._epoch, self._flags, self._watched = address, epoch, flags, watched

    async def sentinel_masters(self) -> dict[str, dict[str, Any]]:
        """Return some fields of ``SENTINEL MASTERS``."""
        if self._address is None:
            raise RedisConnectionError
        ip, port = self._address
        named = {"ip": ip, "port": port, "config-epoch": self._epoch, "flags": self._flags}
        return {self._watched: named}


LEADER = Sentinel(OLD, epoch=2, flags="master,failover_in_progress")
"""It leads the second replacement, and goes on to name the old master until all replicas follow the new one."""


@pytest.mark.parametrize(
    ("sentinels", "asked_about", "is_replaced"),
    [
        ([Sentinel(), Sentinel()], OLD, False),
        ([Sentinel(), Sentinel(NEW, epoch=2)], OLD, True),
        ([Sentinel(OLD, epoch=3), Sentinel(NEW, epoch=2)], OLD, False),
        ([Sentinel(), Sentinel(flags="master,failover_in_progress")], OLD, True),
        ([LEADER, Sentinel(NEW, epoch=2)], OLD, True),
        ([LEADER, Sentinel(NEW, epoch=2)], NEW, False),
        ([LEADER, Sentinel(None)], NEW, True),
        ([Sentinel(("redis-1", 6379)), Sentinel()], OLD, False),
        ([Sentinel(None), Sentinel(NEW)], OLD, True),
        ([Sentinel(NEW, watched="others"), Sentinel()], OLD, False),
        ([Sentinel(None), Sentinel(None)], OLD, False),
    ],
    ids=[
        *("named", "replaced", "one cut off", "being replaced", "replicas move, old", "replicas move, new"),
        *("only the leader answers", "two names for one server", "one away", "one of others", "all away"),
    ],
)
async def test_sentinels_of_the_latest_replacement_decide(
    sentinels: list[Sentinel], asked_about: tuple[str, int], is_replaced: bool
) -> None:
    """A sentinel that is cut off does not make writes to the master fail, nor confirm those to an older one."""
    known = parse_location("redis+sentinel://10.0.0.8:26379,10.0.0.9:26379/calls-master/0").sentinels
    assert known is not None
    async with async_master(known, to_sentinels={}, to_master={}) as redis:
        asked: Any = redis
        asked.connection_pool.sentinel_manager.sentinels = sentinels
        assert await asked.is_replaced(asked_about) is is_replaced
        asked.connection_pool.sentinel_manager.sentinels = []
