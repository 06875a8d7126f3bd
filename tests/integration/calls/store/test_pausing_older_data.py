"""Redis comes back with older data: workers and web processes that saw later data make it an incident.

A crash loads the last dump, or somebody restores a backup. What was removed since is valid again.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.notes import Pushed
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.pausing import RESTORED, PauseMemory, PauseWatch, Pausing
from tests.faults.world import Dump, dump, restore
from tests.integration.calls.hand import Hand

CALL = CallId("cu-1", "v-1")
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAUSE = Pause(scope=PauseScope.ALL, operator="ops", because="storm", at=AT)
HOUR_S = 3600
OLDER = "It is an older one, or was restarted without its last writes."


class Site:
    """A Redis whose data can be replaced by an older state of it, and the workers that use it."""

    def __init__(self, redis: Redis, hand: Hand) -> None:
        self.redis, self.hand = redis, hand
        self.pausing = Pausing(redis)
        self.watch = PauseWatch(redis, keys=Keys())
        """What looks at the pauses in a web process."""
        self._runs = 0

    def worker(self) -> Store:
        """Start a worker."""
        return Store(self.redis, now_ms=self.hand, monotonic=lambda: self.hand.ms / 1000)

    async def work(self, *workers: Store, seconds: int = HOUR_S) -> None:
        """Let workers claim every ten seconds."""
        for _ in range(seconds // 10):
            self.hand.ms += 10_000
            for worker in workers:
                await worker.claim(1)

    async def data(self) -> Dump:
        """Return all data, as a dump has it."""
        return await dump(self.redis, Keys())

    async def load(self, data: Dump, *, is_new_run: bool = True) -> None:
        """Load data, as a server that starts does; or import it while the server runs."""
        await self.redis.flushall()
        await restore(self.redis, data)
        if is_new_run:
            # The server stays the same here, so the data says that another one wrote it.
            self._runs += 1
            await self.redis.hset(Keys().epoch, "id", f"run {self._runs}")

    async def restart(self) -> None:
        """Restart the server; nothing is lost."""
        await self.load(await self.data())

    async def told(self) -> list[str]:
        """Return the advice of the incident, if there is one."""
        now = datetime.fromtimestamp(self.hand.ms / 1000, UTC)
        found = incidents_of(await SignalReader(self.redis, Keys()).read(now=now))
        return [incident.advice for incident in found if incident.kind is IncidentKind.REDIS_REPLACED]


@pytest.fixture
def site(redis: Redis, hand: Hand) -> Site:
    """Return a Redis with no data."""
    return Site(redis, hand)


async def test_data_of_an_hour_ago_is_an_incident_for_an_hour(site: Site) -> None:
    """It names what is valid again. Effects wait as for any new Redis."""
    worker = site.worker()
    await site.work(worker)
    backup = await site.data()
    await site.work(worker)
    assert await site.told() == []
    await site.load(backup)
    await worker.claim(1)
    [advice] = await site.told()
    assert advice.startswith(OLDER)
    assert "revoke again what was revoked since" in advice
    assert await site.redis.hget(Keys().epoch, "since") == str(site.hand.ms).encode(), "effects wait from now on"
    await site.work(worker, seconds=HOUR_S)
    assert len(await site.told()) == 1
    await site.work(worker, seconds=60)
    assert await site.told() == []


@pytest.mark.parametrize("ends", ["resumed", "paused anew"])
async def test_pause_that_was_lifted_since_is_named_until_a_person_decides(site: Site, ends: str) -> None:
    """The older data pauses again, so nothing is handled until somebody resumes. A pause that was in force is not named."""
    worker = site.worker()
    await site.pausing.pause(None, PAUSE)
    await site.pausing.pause("cu-1", PAUSE)
    await site.work(worker)
    backup = await site.data()
    await site.pausing.resume(None, operator="ops", because="over", at=AT)
    await site.work(worker)
    await site.load(backup)
    await site.work(worker)
    await site.work(worker)
    [advice] = await site.told()
    assert "In force now, and not before Redis was replaced: the pause of all institutions." in advice
    if ends == "resumed":
        await site.pausing.resume(None, operator="ops", because="over", at=AT)
    else:
        await site.pausing.pause(None, replace(PAUSE, because="the backup is looked at"))
    assert await site.told() == []


@pytest.mark.parametrize(("further_ms", "is_told"), [(0, False), (1, True)])
async def test_data_that_lacks_more_than_a_minute_is_older(site: Site, further_ms: int, is_told: bool) -> None:
    """An ordinary failover loses seconds."""
    worker = site.worker()
    await site.work(worker, seconds=10)
    backup = await site.data()
    await site.work(worker, seconds=60)
    site.hand.ms += further_ms
    await worker.claim(1)
    await site.load(backup)
    await worker.claim(1)
    assert bool(await site.told()) is is_told


async def test_pause_that_was_made_since_is_restored(site: Site) -> None:
    """As for a Redis that lost everything; both are told."""
    worker = site.worker()
    await site.pausing.pause("cu-1", PAUSE)
    await site.work(worker)
    backup = await site.data()
    await site.pausing.resume("cu-1", operator="ops", because="over", at=AT)
    await site.pausing.pause(None, PAUSE)
    await site.work(worker)
    await site.load(backup)
    await worker.claim(1)
    [advice] = await site.told()
    assert "Restored: the pause of all institutions. In force now, and not before Redis was replaced: " in advice
    assert "the pause of cu-1." in advice


async def test_first_claim_by_a_new_process_hides_nothing(site: Site) -> None:
    """It cannot tell that the data is older; a worker that saw later data can, minutes after it."""
    worker = site.worker()
    await site.work(worker)
    backup = await site.data()
    await site.work(worker)
    await site.load(backup)
    await site.work(site.worker(), seconds=300)
    assert await site.told() == []
    await worker.claim(1)
    assert len(await site.told()) == 1


async def test_two_workers_and_a_repeated_claim_tell_it_once(site: Site) -> None:
    """A claim whose answer was lost is repeated. Neither it nor another worker begins the incident anew."""
    worker, other = site.worker(), site.worker()
    await site.work(worker, other)
    await site.pausing.pause(None, PAUSE)
    backup = await site.data()
    await site.pausing.resume(None, operator="ops", because="over", at=AT)
    await site.work(worker, other)
    await site.load(backup)
    knew, seen = PauseMemory(), worker._epochs._last
    knew.born, knew.claimed_ms = worker._memory.born, worker._memory.claimed_ms
    await worker.claim(1)
    told = await site.redis.hgetall(Keys().pauses_restored)
    site.hand.ms += 1000
    await site.pausing.pause("cu-1", PAUSE)
    worker._memory, worker._epochs._last, worker._claims = knew, seen, worker._claims - 1
    await worker.claim(1)
    await other.claim(1)
    assert told
    assert await site.redis.hgetall(Keys().pauses_restored) == told


async def test_dump_that_is_loaded_twice_is_an_incident_each_time(site: Site) -> None:
    """Redis crashes again before it has saved anything: after seconds, or after most of an hour."""
    worker = site.worker()
    await site.work(worker)
    dump = await site.data()
    await site.work(worker)
    for seconds in (30, 50 * 60):
        await site.load(dump)
        assert await site.told() == []
        await site.work(worker, seconds=seconds)
        assert len(await site.told()) == 1, seconds
    await site.load(dump)
    await worker.claim(1)
    assert len(await site.told()) == 1


async def test_loss_is_told_although_it_began_after_another_restart(site: Site) -> None:
    """The backup was made before Redis was restarted in order, so it knows nothing of the later run."""
    worker = site.worker()
    await site.work(worker)
    backup = await site.data()
    await site.restart()
    await site.work(worker)
    assert await site.told() == []
    await site.load(backup)
    await worker.claim(1)
    assert len(await site.told()) == 1


async def test_backup_of_an_earlier_release_is_older(site: Site) -> None:
    """It does not say how long workers had claimed."""
    worker = site.worker()
    await worker.claim(1)
    await site.redis.hdel(Keys().epoch, "claimed_ms")
    backup = await site.data()
    await site.work(worker)
    await site.load(backup)
    await worker.claim(1)
    assert len(await site.told()) == 1


async def test_data_that_is_imported_while_the_server_runs_is_older(site: Site) -> None:
    """Nothing else shows that it changed: neither the server's run nor the data's name.

    Effects wait, pauses return, and a call misses what was written since.
    """
    worker, other = site.worker(), site.worker()
    await site.work(worker, other)
    await worker.note(CALL, Pushed(has_ended=False, event_id="ev", received_at=AT))
    (held,) = await worker.claim(1)
    await worker.save(held, b"{}", Placement(0))
    backup = await site.data()
    await site.pausing.pause(None, PAUSE)
    await site.work(worker, other)
    await site.watch.poll()
    await site.load(backup, is_new_run=False)
    await site.watch.poll()
    (held,) = await worker.claim(1)
    assert held.lost is not None
    await other.claim(1)
    assert await site.redis.hget(Keys().epoch, "since") == str(site.hand.ms).encode()
    [advice] = await site.told()
    assert advice.startswith(OLDER)
    assert "Restored: the pause of all institutions." in advice


@pytest.mark.parametrize("restarts", [0, 1], ids=["in the same run", "in an earlier run"])
async def test_web_process_tells_it_if_all_workers_are_new(site: Site, restarts: int) -> None:
    """Its looks at the restored Redis before a worker claims do not make it forget the pause that it saw."""
    late = PauseWatch(site.redis, keys=Keys())
    await site.work(site.worker())
    backup = await site.data()
    await site.pausing.pause("cu-1", PAUSE)
    for _ in range(restarts):
        await site.restart()
    await site.work(site.worker())
    await site.watch.poll()
    await late.poll()
    await site.load(backup)
    await site.watch.poll()
    assert await site.told() == []
    await site.work(site.worker(), seconds=10)
    await site.watch.poll()
    await site.pausing.pause("cu-2", PAUSE)
    await late.poll()
    [advice] = await site.told()
    assert advice.startswith(OLDER)
    assert "Restored: the pause of cu-1." in advice
    pauses = await site.pausing.pauses()
    assert pauses.by_institution["cu-1"].because == f"{RESTORED}storm"
    assert "In force now" not in advice, "a person paused cu-2 after it was told"


@pytest.mark.parametrize("who", ["worker", "web"])
async def test_emptied_redis_is_told_although_a_new_process_claimed_first(site: Site, who: str) -> None:
    """Redis that began empty has no older data: everything is gone, and a pause in it is a new one."""
    worker = site.worker()
    await site.work(worker)
    await site.watch.poll()
    await site.redis.flushall()
    await site.worker().claim(1)
    await site.pausing.pause("cu-1", PAUSE)
    assert await site.told() == []
    await (worker.claim(1) if who == "worker" else site.watch.poll())
    [advice] = await site.told()
    assert advice.startswith("Everything in it is gone")
    assert "In force now" not in advice


async def fail_over(site: Site, worker: Store) -> None:
    """Lose ten seconds of writes, the most that a replica may be behind."""
    replica = await site.data()
    await site.work(worker, seconds=10)
    await site.load(replica)


async def restart_and_fail_over(site: Site, worker: Store) -> None:
    """Restart, and seconds later lose the whole run. A web process looks before a worker claims."""
    replica = await site.data()
    await site.restart()
    await site.work(worker, seconds=10)
    await site.watch.poll()
    await site.load(replica)
    await site.watch.poll()


async def restart_after_an_hour(site: Site, _worker: Store) -> None:
    """Restart without a loss, after Redis was down for an hour."""
    site.hand.ms += HOUR_S * 1000
    await site.restart()


async def freeze(site: Site, _worker: Store) -> None:
    """Let the worker be frozen for an hour in which another one works."""
    await site.work(site.worker())


async def freeze_and_restart(site: Site, _worker: Store) -> None:
    """Let the worker be frozen for an hour in which another one works and Redis is restarted."""
    await site.work(site.worker())
    await site.restart()


async def set_back(site: Site, _worker: Store) -> None:
    """Set Redis's clock back by an hour."""
    site.hand.ms -= HOUR_S * 1000


async def set_back_and_restart(site: Site, _worker: Store) -> None:
    """Set Redis's clock back by an hour and restart it while the worker is frozen."""
    site.hand.ms -= HOUR_S * 1000
    await site.work(site.worker(), seconds=60)
    await site.restart()


async def jump_ahead_and_fail_over(site: Site, worker: Store) -> None:
    """Let Redis's clock jump ahead by an hour three times, and lose the only claims that saw it."""
    replica = await site.data()
    for _ in range(3):
        site.hand.ms += HOUR_S * 1000
        await worker.claim(1)
    await site.load(replica)


@pytest.mark.parametrize(
    "happens",
    [
        fail_over,
        restart_and_fail_over,
        restart_after_an_hour,
        freeze,
        freeze_and_restart,
        set_back,
        set_back_and_restart,
        jump_ahead_and_fail_over,
    ],
)
async def test_what_loses_little_or_nothing_is_no_incident(
    site: Site, happens: Callable[[Site, Store], Awaitable[None]]
) -> None:
    """Neither for the worker that saw it, nor for a web process."""
    worker = site.worker()
    await site.work(worker)
    await site.watch.poll()
    await happens(site, worker)
    await worker.claim(1)
    await site.watch.poll()
    await site.work(worker, seconds=60)
    assert await site.told() == []
    assert await site.redis.exists(Keys().pauses_restored) == 0
