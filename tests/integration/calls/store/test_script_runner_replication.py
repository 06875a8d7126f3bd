"""What must not be lost with a Redis master is answered only once a replica has it."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.notes import Distrusted, InboxFull, Resolved
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.store import script_runner
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.push_intake import Intake
from callkeeper.calls.store.script_runner import Unconfirmed
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.demo.embedded_redis import EmbeddedRedis, embedded_redis
from tests.waiting import until_async

CALL = CallId("cu-1", "v-1")
PUSH = PushEvent(type="CallStart", institution_key=CALL.institution_key, voice_id=CALL.voice_id)
UNREPLICATED = "writes_unreplicated"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedRedis, EmbeddedRedis]]:
    """Run two servers that do not know each other yet."""
    folder: Path = tmp_path_factory.mktemp("servers")
    with embedded_redis(folder / "master") as master, embedded_redis(folder / "replica") as replica:
        with BlockingRedis.from_url(replica.url) as redis:
            redis.config_set(
                "appendonly", "no"
            )  # each copy begins a new file, and a server that writes it does not stop
        with BlockingRedis.from_url(master.url) as redis:
            redis.config_set("repl-diskless-sync-delay", "0")  # Valkey would wait 5 s for further replicas
        yield master, replica


class Site:
    """A master, and who writes to it."""

    def __init__(self, redis: Any) -> None:
        self.redis = redis
        self.figures = Figures()
        self.store = Store(redis, figures=self.figures)
        self.intake = Intake(redis, figures=self.figures, within_s=60.0)

    async def waits(self) -> int:
        """Return how often the master was asked to wait for a replica since it began to count."""
        stats = await self.redis.info("commandstats")
        return int(stats.get("cmdstat_wait", {"calls": 0})["calls"])

    @property
    def counted(self) -> int:
        """Return how many writes were counted as not replicated."""
        return self.figures.batch().increments.get(UNREPLICATED, 0)

    async def push(self) -> None:
        """Record an event."""
        await self.intake.record(PUSH, event_id="1" * 32)

    async def state(self) -> None:
        """Take a person's statement."""
        said = Distrusted(operator="ann", said_at=datetime.now(UTC))
        assert (await self.store.note(CALL, said))[0]

    async def send(self) -> None:
        """Book an effect: what is written before its first byte."""
        with suppress(Unconfirmed):
            await self.store.note(CALL, Distrusted(operator="ann", said_at=datetime.now(UTC)))
        [held] = [found for found in await self.store.claim(10) if found.member == CALL.member]
        self.figures.batch()
        await self.store.keep(held, b"{}", unless_paused=PauseScope.EFFECTS, replicated=True)

    async def resolve(self) -> None:
        """Take a person's resolution."""
        said = Resolved(operator="ann", said_at=datetime.now(UTC), applied=True)
        assert (await self.store.note(CALL, said))[0]

    async def pause(self) -> None:
        """Pause everything."""
        pausing, at = Pausing(self.redis, figures=self.figures), datetime.now(UTC)
        await pausing.pause(None, Pause(scope=PauseScope.ALL, operator="ann", because="a drill", at=at))


WRITES: dict[str, Callable[[Site], Awaitable[None]]] = {
    "push": Site.push,
    "statement": Site.state,
    "resolution": Site.resolve,
    "pause": Site.pause,
    "effect": Site.send,
}


@pytest.fixture
async def site(servers: tuple[EmbeddedRedis, EmbeddedRedis]) -> AsyncIterator[Site]:
    """Write to an empty master without replicas."""
    async with Redis.from_url(servers[0].url) as master, Redis.from_url(servers[1].url) as replica:
        await replica.replicaof("NO", "ONE")
        await replicas_of(master, [])
        await master.flushall()
        await master.config_resetstat()
        yield Site(master)


async def follow(servers: tuple[EmbeddedRedis, EmbeddedRedis], site: Site) -> None:
    """Attach the replica and wait until it follows."""
    async with Redis.from_url(servers[1].url) as replica:
        await replica.replicaof("127.0.0.1", servers[0].url.rsplit(":", 1)[1].split("/")[0])
    await replicas_of(site.redis, ["online"])
    async with Redis.from_url(servers[0].url) as asking:
        await asking.set("follows", "")
        # Valkey lists a replica as online before it has loaded its copy, and until then it confirms nothing.
        await until_async(lambda: asking.wait(1, 100))
        await asking.config_resetstat()


async def replicas_of(master: Any, states: list[str]) -> None:
    """Wait until the master's replicas are in these states."""

    async def are_so() -> bool:
        told = await master.info("replication")
        return [told[f"slave{n}"]["state"] for n in range(told["connected_slaves"])] == states

    await until_async(are_so)


@contextmanager
def frozen(server: EmbeddedRedis) -> Iterator[None]:
    """Let a server stand still until the block ends."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_waits_for_the_replica(
    servers: tuple[EmbeddedRedis, EmbeddedRedis],
    site: Site,
    write: Callable[[Site], Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A push, a statement and an effect's `sent` are confirmed by the replica, also by one that has just joined."""
    monkeypatch.setattr(script_runner, "POLL_EVERY_S", 0)
    await site.push()
    await site.state()
    assert await site.waits() == 0
    await follow(servers, site)
    await write(site)
    when_it_joined = await site.waits()
    await site.push()
    assert await site.waits() > when_it_joined >= 1
    assert site.counted == 0


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_that_no_replica_confirms_stands_and_is_counted(
    servers: tuple[EmbeddedRedis, EmbeddedRedis], site: Site, write: Callable[[Site], Awaitable[None]]
) -> None:
    """A hanging replica delays a write only briefly: it is answered, kept and counted. A person's word is told apart."""
    await follow(servers, site)
    is_word = write in {Site.state, Site.resolve}
    with frozen(servers[1]):
        with pytest.raises(Unconfirmed) if is_word else nullcontext():
            await write(site)
        assert site.counted >= 1
        keys = site.store.keys
        assert await site.redis.exists(keys.inbox(CALL.member), keys.item(CALL.member), keys.pause)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_server_without_replicas_is_not_asked_to_wait(
    site: Site, write: Callable[[Site], Awaitable[None]]
) -> None:
    """Nobody waits for a confirmation that cannot come."""
    await write(site)
    assert await site.waits() == 0
    assert site.counted == 0


async def test_a_claim_does_not_wait_for_the_replica(servers: tuple[EmbeddedRedis, EmbeddedRedis], site: Site) -> None:
    """Claims and check bookings may be lost with a master, and count as used afterwards."""
    await follow(servers, site)
    await site.store.claim(10)
    assert await site.waits() == 0


async def test_statement_that_the_master_has_not_written_is_never_unconfirmed(
    servers: tuple[EmbeddedRedis, EmbeddedRedis], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the replicas say: a script that is not loaded is loaded, and a refusal or an error is the answer."""
    await follow(servers, site)
    await site.state()
    inbox = site.store.keys.inbox(CALL.member)
    with frozen(servers[1]):
        await site.push()  # which the replica lacks
        before = await site.redis.hlen(inbox)
        await site.redis.script_flush()
        with pytest.raises(Unconfirmed):
            await site.resolve()
        assert await site.redis.hlen(inbox) == before + 1
        await site.redis.config_set("maxmemory", "1")
        try:
            with pytest.raises(OutOfMemoryError):
                await site.state()
        finally:
            await site.redis.config_set("maxmemory", "0")
        monkeypatch.setattr("callkeeper.calls.store.inbox.MOST_WAITING", 0)
        with pytest.raises(InboxFull):
            await site.store.note(CALL, Distrusted(operator="bob", said_at=datetime.now(UTC)))
        assert await site.redis.hlen(inbox) == before + 1
