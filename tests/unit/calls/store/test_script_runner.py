"""Scripts without an answer, and answers of a server that is being replaced."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest
from fakeredis import FakeAsyncRedis
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.store import script_runner
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import Replication, ScriptCall, Scripts


class Silent(Scripts):
    """Scripts whose answers come when they are let come."""

    def __init__(self, redis: FakeAsyncRedis) -> None:
        super().__init__(redis, keys=Keys())
        self.answered = asyncio.Event()

    async def _run(self, calls: Sequence[ScriptCall], *, replicated: bool = False, must: bool = False) -> list[Any]:
        await self.answered.wait()
        return [1 for _ in calls]


async def test_script_without_an_answer_in_time_is_given_up(fake_redis: FakeAsyncRedis) -> None:
    """A caller with a deadline gets a TimeoutError; others continue to wait, and later callers are served."""
    scripts = Silent(fake_redis)
    patient = asyncio.ensure_future(scripts.call("retry"))
    with pytest.raises(TimeoutError):
        await scripts.call("retry", within_s=0.001)
    assert not patient.done()
    scripts.answered.set()
    assert await patient == 1
    assert await scripts.call("retry", within_s=60) == 1


OLD, NEW, OTHER = ("10.0.0.1", 6379), ("10.0.0.2", 6379), ("10.0.0.3", 6379)


class Watched:
    """A client whose sentinels name a master, and whose connections may lead to another server."""

    def __init__(self) -> None:
        self.connection_pool = self
        self.master = OLD
        self.further: Any = None

    async def is_replaced(self, address: tuple[str, int]) -> bool:
        """Ask the sentinels."""
        return address != self.master

    async def get_connection(self) -> Any:
        """Return a connection; `Pipe` says where it leads to."""
        return SimpleNamespace(host="", port=0)

    async def disconnect(self, *, inuse_connections: bool) -> None:
        """Close the connections of the pool."""

    def pipeline(self, *, transaction: bool) -> Any:
        """Return a pipeline to the master, which may be another one by now."""
        self.master = self.further.server
        return self.further


class Pipe:
    """A pipeline that is executed by one server, which has these replicas. All of them confirm, or some."""

    connection: Any = None

    def __init__(
        self, server: tuple[str, int], *replicas: int, arrivals: int = 2, confirmed: int | None = None
    ) -> None:
        self.server, self._replicas = server, replicas
        self._confirmed = len(replicas) if confirmed is None else confirmed
        self._stats = {"sync_full": arrivals, "sync_partial_ok": 0}
        self._answers: list[Any] = ["written"]

    def execute_command(self, *_: Any) -> None:
        """Wait for the replicas."""
        self._answers.append(self._confirmed)

    def info(self, section: str) -> None:
        """Ask the server about itself."""
        known = {
            f"slave{n}": {"ip": "10.0.0.9", "port": port, "state": "online", "lag": 0}
            for n, port in enumerate(self._replicas)
        }
        replication = {"connected_slaves": len(known), **known}
        self._answers.append(self._stats if section == "stats" else replication)

    async def execute(self, *, raise_on_error: bool) -> list[Any]:
        """Return all answers."""
        self.connection.host, self.connection.port = self.server
        return self._answers

    def set(self, *_: Any) -> None:
        """Write something."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Release the connection."""


@pytest.fixture(autouse=True)
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a server without replicas at each write."""
    monkeypatch.setattr(script_runner, "POLL_EVERY_S", 0.0)


async def test_late_answer_of_a_replaced_server_confirms_nothing() -> None:
    """A write that the old master answers after another connection has found the new one may be lost with the old."""
    redis, replication = Watched(), Replication(Figures(), key="ck:2:replicated")
    assert await replication.execute(redis, Pipe(OLD)) == ["written"]
    redis.master = NEW
    assert await replication.execute(redis, Pipe(NEW)) == ["written"]
    with pytest.raises(RedisConnectionError):
        await replication.execute(redis, Pipe(OLD))


async def test_first_answer_of_a_replaced_server_confirms_nothing() -> None:
    """A server that two replacements in a row have left without replicas is not the master that it says it is."""
    redis, replication = Watched(), Replication(Figures(), key="ck:2:replicated")
    redis.master = NEW
    with pytest.raises(RedisConnectionError):
        await replication.execute(redis, Pipe(OLD))


@pytest.mark.parametrize(
    "pipe",
    [
        Pipe(OLD, 1),
        Pipe(OLD, 1, 2, arrivals=3),
        Pipe(OLD, 1, 2, confirmed=1),
        Pipe(OTHER, 1, 2),
    ],
    ids=["one left", "one came and left", "one is cut off", "another server"],
)
async def test_replica_that_may_have_taken_over_is_asked_about(pipe: Pipe) -> None:
    """The replica that is promoted does not confirm. The others still confirm the old master's writes."""
    redis, replication = Watched(), Replication(Figures(), key="ck:2:replicated")
    redis.further = Pipe(OLD, 1, 2)
    for _ in range(2):
        assert await replication.execute(redis, Pipe(OLD, 1, 2)) == ["written"]
    redis.master = NEW
    assert await replication.execute(redis, Pipe(OLD, 1, 2)) == ["written"]
    with pytest.raises(RedisConnectionError):
        await replication.execute(redis, pipe)


async def test_first_write_is_confirmed_by_its_own_server() -> None:
    """The wait for the replicas that the first answer names goes to another server if the first one has died since."""
    redis, replication = Watched(), Replication(Figures(), key="ck:2:replicated")
    redis.further = Pipe(NEW, 1)
    with pytest.raises(RedisConnectionError):
        await replication.execute(redis, Pipe(OLD, 1, 2))


async def test_master_that_was_restarted_confirms() -> None:
    """Its replicas are not back yet, and the sentinels name it as before."""
    redis, replication = Watched(), Replication(Figures(), key="ck:2:replicated")
    redis.further = Pipe(OLD, 1, 2)
    assert await replication.execute(redis, Pipe(OLD, 1, 2)) == ["written"]
    assert await replication.execute(redis, Pipe(OLD, arrivals=0)) == ["written"]
