"""Each alert is sent once, whatever the number of processes, their restarts and Redis outages."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.app.alert_sender import AlertSender
from callkeeper.app.alert_watch import POLL_EVERY_S, AlertWatch
from callkeeper.app.parsing import alert_addresses
from callkeeper.calls.alerts import AlertMessage
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.store.alert_state import LEADS_MS, AlertState
from callkeeper.calls.store.keys import Keys

SELDOM_S = 15.0
"""The time between looks while only failing targets are tried again, which happens every 30 s at most."""

URLS = "json://127.0.0.1:1/canary-path, page=json://127.0.0.1:2/"


class Notebook(AlertSender):
    """Records the messages instead of sending them; it can be told to fail for some targets or all."""

    def __init__(self, told: list[tuple[str, str, str]], clock: Callable[[], datetime]) -> None:
        super().__init__(alert_addresses(URLS))
        self.told = told
        self.tried: list[datetime] = []
        self.is_broken = False
        self.broken: set[str] = set()
        self._clock = clock

    async def send(self, message: AlertMessage) -> str:
        """Record a message, unless it counts as not accepted."""
        self.tried.append(self._clock())
        if self.is_broken or message.target in self.broken:
            return "status 404"
        self.told.append((message.target, message.key, "over" if message.is_over else "now"))
        return ""


class Site:
    """Watching processes, and the messages of all of them."""

    def __init__(self, redis: Redis, log: FilteringBoundLogger) -> None:
        self.redis = redis
        self.log = log
        self.now = datetime(2026, 11, 22, 12, tzinfo=UTC)
        self.told: list[tuple[str, str, str]] = []
        self.count = 0
        self._worker, self._web = (FigureWriter(Figures(), Author.here(kind)) for kind in ("worker", "web"))
        self._reporting = [self._web]

    def process(self) -> "Process":
        """Start another process."""
        self.count += 1
        return Process(self, f"process-{self.count}")

    async def look(
        self, *processes: "Process", seconds: float, every_s: float = POLL_EVERY_S
    ) -> list[tuple[str, str, str]]:
        """Let time pass; return the messages that were sent meanwhile. One of the processes is a web process.

        Reports expire by Redis's clock, which goes on while a busy machine takes long for this.
        """
        before, end = len(self.told), self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now += timedelta(seconds=every_s)
            with suppress(RedisError):
                for writer in self._reporting:
                    await writer.write_async(self.redis)
            for process in processes:
                await process.watch.poll(process.state, process.reader)
        return self.told[before:]

    async def start_worker(self) -> None:
        """Report as a worker from now on."""
        self._reporting = [self._web, self._worker]

    async def end_worker(self) -> None:
        """End the worker."""
        self._reporting = [self._web]
        await self._worker.write_async(self.redis, is_last=True)


class Process:
    """One watching process."""

    def __init__(self, site: Site, name: str) -> None:
        self.sender = Notebook(site.told, lambda: site.now)
        self.watch = AlertWatch(
            lambda: site.redis, self.sender, site.log, keys=Keys(), place="https://ck.example", clock=lambda: site.now
        )
        self.state = AlertState(site.redis, Keys(), name)
        self.reader = SignalReader(site.redis, Keys())


@pytest.fixture
def site(redis: Redis, log: FilteringBoundLogger) -> Site:
    """Return an installation without a worker."""
    return Site(redis, log)


NOW = [("1", "no_worker", "now"), ("2", "no_worker", "now")]
OVER = [("1", "no_worker", "over"), ("2", "no_worker", "over")]


async def test_one_of_several_processes_sends(site: Site) -> None:
    """Of three processes one sends: every target gets one message, and one at the end."""
    processes = [site.process() for _ in range(3)]
    assert await site.look(*processes, seconds=120) == NOW
    await site.start_worker()
    assert await site.look(*processes, seconds=120) == OVER
    assert await site.redis.hlen(Keys().alerts) == 0


async def test_process_that_ends_is_followed_by_another(site: Site) -> None:
    """After a restart or kill of the leader, another process sends the end, and nothing twice."""
    first, second = site.process(), site.process()
    assert await site.look(first, second, seconds=60) == NOW
    await site.redis.delete(Keys().alert_leader)  # as if it had expired
    assert await site.look(second, seconds=60) == []
    await site.start_worker()
    assert await site.look(second, seconds=60) == OVER
    await site.end_worker()
    assert await second.state.lead(lets_go=True) is False
    assert await site.look(site.process(), seconds=60) == NOW


async def test_next_leader_knows_what_was_told_also_if_redis_was_emptied(site: Site) -> None:
    """The leader stores it again, so the next one sends nothing twice, and sends the end."""
    first, second = site.process(), site.process()
    assert await site.look(first, seconds=60) == NOW
    await site.redis.flushall()
    assert await site.look(first, seconds=9) == []
    await site.redis.delete(Keys().alert_leader)
    assert await site.look(second, seconds=60) == []
    await site.start_worker()
    assert await site.look(second, seconds=60) == OVER


async def test_leader_that_ended_does_not_lead_longer_when_the_clock_goes_back(site: Site) -> None:
    """Redis's clock is set back by an hour, so the leader's key would live an hour longer: it lives the usual time."""
    first, second = site.process(), site.process()
    await site.look(first, seconds=3)
    await site.redis.pexpire(Keys().alert_leader, 3_600_000)
    assert await second.state.lead() is False
    assert 0 < await site.redis.pttl(Keys().alert_leader) <= LEADS_MS


async def test_failing_target_is_tried_less_and_less_often(site: Site) -> None:
    """A failing target is tried with growing waits, delays no other, and gets its message when it is back."""
    process = site.process()
    process.sender.is_broken = True
    assert await site.look(process, seconds=1200, every_s=SELDOM_S) == []
    assert 4 <= len(set(process.sender.tried)) <= 8
    assert {name: why for name, (_, why) in (await process.state.failing_targets()).items()} == {
        "1": "status 404",
        "2": "status 404",
    }
    process.sender.is_broken = False
    assert await site.look(process, seconds=700, every_s=SELDOM_S) == NOW
    assert await process.state.failing_targets() == {}


async def test_process_that_reaches_no_target_lets_another_send(site: Site) -> None:
    """A leader that cannot reach any target lets another process send."""
    first, second = site.process(), site.process()
    first.sender.is_broken = True
    assert await site.look(first, second, seconds=60) == NOW
    await site.start_worker()
    assert await site.look(first, second, seconds=120) == OVER


async def test_target_that_is_broken_does_not_delay_the_others(site: Site) -> None:
    """If one address fails for hours, the same process sends everything to the other at once."""
    process = site.process()
    process.sender.broken = {"1"}
    assert await site.look(process, seconds=24) == NOW[1:]
    await site.look(process, seconds=3600, every_s=SELDOM_S)
    await site.start_worker()
    assert await site.look(process, seconds=24) == OVER[1:]
    await site.end_worker()
    assert await site.look(process, seconds=30) == NOW[1:]


async def test_last_leader_alerts_while_redis_is_down(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Redis, the last leader alerts about that once, and about its end."""
    await site.start_worker()
    first, second = site.process(), site.process()
    await site.look(first, second, seconds=9)

    with monkeypatch.context() as gone:
        _cut_off(gone, site, first, second)
        told = await site.look(first, second, seconds=90)
    assert told == [("1", "redis_away", "now"), ("2", "redis_away", "now")]
    await site.start_worker()
    after = await site.look(first, second, seconds=90)
    assert [each for each in after if each[1] == "redis_away"] == [
        ("1", "redis_away", "over"),
        ("2", "redis_away", "over"),
    ]


def _cut_off(gone: pytest.MonkeyPatch, site: Site, *processes: Process) -> None:
    """Make Redis unreachable."""

    async def away(*_: object, **__: object) -> None:
        raise RedisConnectionError("away")

    for name in ("evalsha", "execute_command"):
        gone.setattr(site.redis, name, away)
    for process in processes:
        gone.setattr(process.state, "lead", away)
        gone.setattr(process.reader, "read", away)


async def test_last_leader_alerts_while_redis_refuses_writes(site: Site) -> None:
    """While Redis refuses writes, the last leader continues, and sends nothing twice."""
    await site.start_worker()
    first, second = site.process(), site.process()
    await site.look(first, second, seconds=9)
    await site.redis.config_set("maxmemory", "1")
    try:
        told = await site.look(first, second, seconds=120)
    finally:
        await site.redis.config_set("maxmemory", "0")
    assert told == [("1", "redis_refuses", "now"), ("2", "redis_refuses", "now")]
    await site.start_worker()
    over = await site.look(first, second, seconds=120)
    assert over == [("1", "redis_refuses", "over"), ("2", "redis_refuses", "over")]


async def test_end_of_refused_writes_is_told_whoever_leads_then(site: Site) -> None:
    """Redis refuses writes until the lead expires, so another process leads afterwards: the end is told all the same."""
    await site.start_worker()
    first, second = site.process(), site.process()
    await site.look(first, second, seconds=9)
    await site.redis.config_set("maxmemory", "1")
    try:
        told = await site.look(first, second, seconds=60)
    finally:
        await site.redis.config_set("maxmemory", "0")
    await site.redis.delete(Keys().alert_leader)  # as if it had expired
    await site.start_worker()
    assert [*told, *await site.look(second, first, seconds=60)] == [
        (target, "redis_refuses", state) for state in ("now", "over") for target in ("1", "2")
    ]


async def test_leader_of_before_an_outage_deletes_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage of Redis another process leads: what was told before stays stored, and is not told again."""
    first, second = site.process(), site.process()
    assert await site.look(first, second, seconds=60) == NOW
    with monkeypatch.context() as gone:
        _cut_off(gone, site, first, second)
        await site.look(first, second, seconds=60)
    await site.redis.delete(Keys().alert_leader)  # as if it had expired
    after = await site.look(second, first, seconds=60)
    assert after == [("1", "redis_away", "over"), ("2", "redis_away", "over")]
    await site.redis.delete(Keys().alert_leader)
    assert await site.look(site.process(), seconds=60) == []


async def test_log_and_store_hold_no_address(site: Site, logged: LogCapture) -> None:
    """Alerts are logged by kind, number and scheme; neither log nor Redis contains an address."""
    await site.look(site.process(), seconds=60)
    entries = [entry for entry in logged.entries if entry["event"] == "alert_told"]
    assert [(entry["kind"], entry["target"]) for entry in entries] == [
        ("no_worker", "1 (json)"),
        ("no_worker", "2 (json)"),
    ]
    stored = str(await site.redis.hgetall(Keys().alerts))
    assert "no_worker" in stored
    assert "canary" not in stored + str(logged.entries)
    assert "127.0.0.1" not in stored + str(logged.entries)
