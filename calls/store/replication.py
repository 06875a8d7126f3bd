"""Waits until the replicas of Redis have a write, so that losing the master does not lose it.

Redis answers a write before its replicas have it. What must not be lost (a push or a statement before its 202, an
effect's ``sent`` before its first byte) is therefore followed by ``WAIT``, in the same pipeline: ``WAIT`` knows only the
writes of its own connection. A server without replicas is not asked to wait.

``WAIT 1`` is enough where the master dies: the sentinels promote the replica that has most. It is not enough where a
living master is replaced: one replica is promoted, and for a second the others go on confirming what the old master
writes (*measured*). So all are waited for, and the server says in the same pipeline which it has. If one is missing, the
sentinels say whether the master is being replaced; then nothing was confirmed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures

WITHIN_MS: Final = 100
"""How long a write waits for replicas. If none confirms it in time, the write stands, and that is counted."""

LOOK_EVERY_S: Final = 1.0
"""How long it is believed which replicas the server has, if nothing is written meanwhile."""

_LAG_S: Final = 2
"""A replica that has said nothing for longer than this is not waited for; one that is well reports every second."""


class Standing(NamedTuple):
    """What one sentinel says of the master: its run id (empty while it does not know), and whether it is being replaced."""

    run_id: str
    is_failing_over: bool


class _Server(NamedTuple):
    """Which server it is, and the addresses of its replicas that keep up, or of all if none does."""

    run_id: str = ""
    replicas: frozenset[str] = frozenset()


@runtime_checkable
class Watched(Protocol):
    """A client of a server that sentinels watch."""

    async def standings(self) -> list[Standing]:
        """Ask all sentinels; those that do not answer are left out."""


class Replication:
    """Asks the replicas of one server for confirmation, and counts how often none gave it."""

    def __init__(self, figures: Figures, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._figures = figures
        self._monotonic = monotonic
        self._server = _Server()
        self._looked_at_s = -LOOK_EVERY_S

    async def replicas(self, redis: Any) -> int:
        """Return how many replicas have to confirm a write.

        Raises:
            redis.exceptions.RedisError: Redis is away, or the server is being replaced.
        """
        if self._monotonic() - self._looked_at_s >= LOOK_EVERY_S:
            async with redis.pipeline(transaction=False) as pipe:
                _ask_who(pipe)
                try:
                    told = await pipe.execute()
                except ResponseError:  # a server that does not tell
                    told = [{}, {}]
            await self._see(redis, _server(*told), is_whole=False)
        return len(self._server.replicas)

    def wait(self, pipe: Any, replicas: int) -> int:
        """Let a pipeline wait for replicas; return how many answers that adds, for ``judge``."""
        pipe.execute_command("WAIT", replicas, WITHIN_MS)
        _ask_who(pipe)
        return 3

    async def judge(self, redis: Any, answers: Sequence[Any]) -> None:
        """Look into a wait that not all replicas confirmed, and count one that none did: 0, or an error in its place.

        Raises:
            redis.exceptions.ConnectionError: The server is being replaced: what was written may be lost with it.
        """
        confirmed, *told = answers
        confirmed = confirmed if isinstance(confirmed, int) else 0
        server = _server(*told) if all(isinstance(one, dict) for one in told) else _Server()
        is_whole = confirmed >= len(server.replicas) and self._server.replicas <= server.replicas
        await self._see(redis, server, is_whole=is_whole and server.run_id == self._server.run_id)
        if not confirmed:
            self._figures.count(figure.WRITES_UNREPLICATED)

    async def _see(self, redis: Any, server: _Server, *, is_whole: bool) -> None:
        """Remember a server; not whole is one of which a replica may be about to take over.

        A server that was restarted has a run id that the sentinels learn later: against one that is new to us speaks only a
        failover under way.
        """
        if not is_whole and isinstance(redis, Watched):
            may_have_lost_one = server.run_id == self._server.run_id and not self._server.replicas <= server.replicas
            for told in await redis.standings():
                is_leaving = told.is_failing_over and told.run_id == server.run_id
                if is_leaving or (may_have_lost_one and told.run_id != server.run_id and not told.is_failing_over):
                    await redis.connection_pool.disconnect(inuse_connections=False)  # type: ignore[attr-defined]
                    raise RedisConnectionError("the master is being replaced")
        self._server, self._looked_at_s = server, self._monotonic()


def _ask_who(pipe: Any) -> None:
    pipe.info("server")
    pipe.info("replication")


def _server(about: Mapping[str, Any], replication: Mapping[str, Any]) -> _Server:
    """Read what the server says of itself. A replica that hangs is not waited for, unless there is no other."""
    told = [replication.get(f"slave{n}", {}) for n in range(int(replication.get("connected_slaves", 0)))]
    online = [replica for replica in told if replica.get("state") == "online"]
    well = [replica for replica in online if replica["lag"] <= _LAG_S] or online[:1]
    return _Server(str(about.get("run_id", "")), frozenset(f"{replica['ip']}:{replica['port']}" for replica in well))
