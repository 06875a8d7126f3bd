"""The keys of an older release are copied, left behind and deleted, on a real Redis.

The older layout of these tests is today's without its number. tests/rollout/test_migration.py has that of a release.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import sleep
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.item_names import CallId
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import Call, Mark, Seen
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.earlier_calls import EarlierCalls
from callkeeper.calls.store.job_queue import ADVANCE, calls_queue
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.migrating import LEFT_OUT, Migration, NotMigrated
from tests.integration.calls.store.test_claims import HINT, RECORD, A, B, claim

OLD, NEW = "ck:", "ck:2:"


@pytest.fixture
async def old(redis: Redis, blocking_redis: BlockingRedis) -> Any:
    """Return a Redis in which an older release has one live call, one that is parked, and one key of each type."""
    store = Store(redis)
    await store.note(A, HINT)
    item = await claim(store)
    await store.save(item, RECORD, Placement(0, listed="live"))
    await store.note(B, HINT)
    return relayed(blocking_redis)


def relayed(redis: Any) -> Any:
    """Store what is there under the older names, with a further key of each type, one of which expires."""
    for name in redis.keys(f"{NEW}*"):
        redis.rename(name, name.replace(NEW.encode(), OLD.encode(), 1))
    redis.set(f"{OLD}alias:cu-1:alt", "v-1", ex=3600)
    redis.sadd(f"{OLD}disowned", "cu-9")
    redis.hset(f"{OLD}pause", "cu-2", "{}")
    redis.hset(f"{OLD}breakers", "cu-1", "{}")
    redis.zadd(f"{OLD}parked:cu-1", {"c:cu-1:v-7": 5})
    redis.zadd(f"{OLD}outbox:due", {"c:cu-1:v-8": 6})
    redis.hset(f"{OLD}token", "value", "secret")
    return redis


def stored(redis: Any, prefix: str, *, but: str = "\0") -> dict[str, tuple[bytes, bool]]:
    """Return what is stored under a prefix, and whether it expires."""
    names = [name.decode() for name in redis.scan_iter(f"{prefix}*")]
    return {
        name.removeprefix(prefix): (redis.dump(name), redis.pttl(name) > 0)
        for name in names
        if not name.startswith(but) and name != f"{NEW}migration"
    }


def claimed(redis: Any, url: str) -> Callable[[], Any]:
    """Return what claims the live call again, and returns its lost writes."""

    async def look() -> Any:
        async with Redis.from_url(url) as client:
            store = Store(client)
            redis.zadd(Keys().due, {A.member: 0})
            items = await store.claim(9)
            return next(item.lost for item in items if item.member == A.member)

    return look


def test_everything_but_what_is_made_anew_is_copied(old: Any) -> None:
    """With its value and until it expires; parked calls are due; the old keys stay; the token is shared."""
    before = stored(old, OLD)
    old.expire(f"{OLD}institutions", 3600)
    migration = Migration(old, Keys())
    assert migration.is_needed()
    counts = migration.count()
    assert migration.copy() == counts.copied.total()
    assert {"breakers", "parked"} <= counts.left_out.keys() <= LEFT_OUT
    after = stored(old, NEW)
    due = dict(old.zrange(f"{NEW}due", 0, -1, withscores=True))
    assert due[b"c:cu-1:v-7"] == 5
    same = {
        name: value for name, value in before.items() if name in after and not name.startswith(("due", "item", "epoch"))
    }
    assert {name: after[name] for name in same} == same
    assert before.keys() - after.keys() == {name for name in before if name.startswith((*LEFT_OUT, "token"))}
    assert stored(old, OLD, but=NEW).keys() == before.keys()
    migration.require()
    assert not migration.is_needed()


async def test_opt_out_outlives_the_record_that_the_older_release_kept_it_in(
    redis: Redis, blocking_redis: BlockingRedis
) -> None:
    """It stands where nothing expires, and holds in later calls of the member. No other call leaves one."""
    store = Store(redis)
    for call, person_id, opted_out in ((A, "p 1", True), (B, "p-2", False)):
        seen = Seen(person_id=person_id, opted_out=opted_out)
        await store.note(call, HINT)
        record = Call(institution_key=call.institution_key, voice_id=call.voice_id, seen=seen)
        await store.save(await claim(store), encode_call(record), Placement(None, listed="settled"))
    old = relayed(blocking_redis)
    Migration(old, Keys()).copy()
    assert old.keys(f"{NEW}earlier:*") == [f"{NEW}earlier:cu-1:c:p%201".encode()]
    assert old.ttl(f"{NEW}earlier:cu-1:c:p%201") == -1
    earlier = EarlierCalls(redis, Keys(), number_key=None)
    later = Call(institution_key="cu-1", voice_id="v-9", seen=Seen(person_id="p 1"))
    found = await earlier.look_up(
        CallId("cu-1", "v-9"), later, policies=Policies(), days=0, now=datetime.now(UTC) + timedelta(days=2000)
    )
    assert found.seen.earlier_marks is not None
    assert found.seen.earlier_marks.kinds == (Mark.OPTED_OUT,)


@pytest.mark.parametrize(
    ("change", "kept_of"),
    [
        ({}, {"p-2"}),
        ({"opted_in_last": True}, set()),
        ({"answered_for": "p-1", "assigned_person_id": "p-3"}, {"p-1", "p-2", "p-3"}),
        ({"answered_for": "p-2", "unusable_answers": 1, "kept_marks": {"person_id": "p-1"}}, {"p-1", "p-2"}),
        ({"answered_for": "p-1", "person_id": None}, {"p-1"}),
    ],
)
def test_opt_out_is_as_old_as_its_record_and_kept_of_each_member_it_may_be_of(
    old: Any, change: dict[str, Any], kept_of: set[str]
) -> None:
    """If the member was changed, nobody knows whose it is. One that was taken back is kept of nobody."""
    saved_at = datetime(2026, 3, 1, tzinfo=UTC)
    call = {"institution_key": "cu-1", "voice_id": "v-1", "person_id": "p-2", "saved_at": saved_at.isoformat()}
    old.hset(f"{OLD}item:{A.member}", "rec", json.dumps({**call, "opted_out_seen": True, **change}))
    Migration(old, Keys()).copy()
    kept = {name.decode(): old.zscore(name, "opted_out:v-1") for name in old.keys(f"{NEW}earlier:*")}
    assert kept == {f"{NEW}earlier:cu-1:c:{member}": saved_at.timestamp() for member in kept_of}


@pytest.mark.parametrize(
    "record", [b"{", b"[]", b"null", b"\xff", b'{"history": 3}', b'{"institution_key": "cu-1", "voice_id": "\xff"}']
)
def test_record_that_cannot_be_read_is_copied_as_it_is(old: Any, record: bytes) -> None:
    """It does not keep all others from being copied."""
    old.hset(f"{OLD}item:{A.member}", "rec", record)
    Migration(old, Keys()).copy()
    assert old.hget(f"{NEW}item:{A.member}", "rec") == record


@pytest.mark.parametrize(
    ("answered_for", "before", "unusable", "is_changed"),
    [
        (None, 1, 1, None),
        ("p-2", 0, 0, False),
        ("p-2", 1, 1, True),
        ("", 0, 3, False),
        ("", 1, 3, True),
        ("p-1", 0, 3, True),
    ],
)
def test_checks_that_were_answered_for_another_member_count_for_nobody(
    old: Any, answered_for: str | None, before: int, unusable: int, is_changed: bool | None
) -> None:
    """The older release compared members for that, each time.

    The last check before the copy tells, and those that were unusable before it: another member may have been the reason.
    """
    record = {"person_id": "p-2", "unusable_answers": before, "history": {"answered": 3}, "answered_for": answered_for}
    old.hset(f"{OLD}item:{A.member}", "rec", json.dumps(record))
    Migration(old, Keys()).copy()
    copied = json.loads(old.hget(f"{NEW}item:{A.member}", "rec"))
    assert (copied["unusable_answers"], copied.get("member_changed")) == (unusable, is_changed)


async def test_who_goes_on_with_either_half_knows_what_the_other_may_have_done(old: Any, redis_url: str) -> None:
    """Nothing is lost for this release; for the older one, everything since its last claim may be."""
    seen = int(old.hget(f"{OLD}epoch", "seen") or 0)
    migration = Migration(old, Keys())
    migration.copy()
    migration.require()
    assert await claimed(old, redis_url)() is None
    for name in old.keys(f"{NEW}*"):  # the older release starts again: its keys get the names that `Store` knows
        old.unlink(name)
    for name in old.keys(f"{OLD}*"):
        old.rename(name, name.replace(OLD.encode(), NEW.encode(), 1))
    lost = await claimed(old, redis_url)()
    assert round(lost.after.timestamp() * 1000) == seen


class _Killed(BlockingRedis):
    """A connection that breaks after some commands."""

    left = 0

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self._count()
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def pipeline(self, transaction: Any = True, shard_hint: Any = None) -> Any:
        self._count()
        return super().pipeline(transaction, shard_hint)

    def _count(self) -> None:
        if not self.left:
            raise RedisConnectionError("killed")
        self.left -= 1


def test_copy_that_was_killed_anywhere_is_repeated(old: Any, redis_url: str) -> None:
    """Until it is complete nobody may work with it. Then it is what an undisturbed one makes; nothing is marked twice."""
    Migration(old, Keys()).copy()
    undisturbed, left = stored(old, NEW), stored(old, OLD, but=NEW)
    kills = 0
    with _Killed.from_url(redis_url) as killed:
        while True:
            killed.left = kills
            try:
                Migration(killed, Keys()).copy()
                break
            except RedisConnectionError:
                kills += 1
            if old.hget(f"{NEW}migration", "done") is None:
                with pytest.raises(NotMigrated, match="interrupted: run it again"):
                    Migration(old, Keys()).require()
            Migration(old, Keys()).copy()
            assert stored(old, NEW) == undisturbed
            assert stored(old, OLD, but=NEW) == left
    assert kills >= 15


def test_living_process_prevents_the_copy(old: Any) -> None:
    """Of whatever release; it is named."""
    for prefix in (OLD, NEW):
        seconds, _ = old.time()
        old.zadd(f"{prefix}processes", {"host-1": seconds * 1000 + 500})
        old.hset(f"{prefix}process:host-1", mapping={"kind": "worker", "version": "0.4.0"})
        with pytest.raises(NotMigrated, match="stop these processes") as refused:
            Migration(old, Keys()).copy()
        assert "worker host-1 (0.4.0)" in refused.value.args
        old.delete(f"{prefix}processes")


def test_what_was_not_copied_is_refused_and_an_empty_redis_is_not(blocking_redis: BlockingRedis) -> None:
    """A fresh installation needs no copy. Old keys that appear later are those of a release that works there, too."""
    redis: Any = blocking_redis
    redis.hset(f"{OLD}people", "ann", "{}")
    with pytest.raises(NotMigrated, match="run: callkeeper migrate"):
        Migration(redis, Keys()).require()
    redis.flushall()
    Migration(redis, Keys()).require()
    assert not Migration(redis, Keys()).is_needed()
    redis.hset(f"{OLD}epoch", "id", "a/b")
    with pytest.raises(NotMigrated, match="--discard"):
        Migration(redis, Keys()).require()


def _worker(redis: Any) -> None:
    redis.hset(f"{OLD}epoch", "id", "a/b")


def _push(redis: Any) -> None:
    redis.zadd(f"{OLD}events", {"{}": _ms(redis)})


def _statement(redis: Any) -> None:
    redis.xadd(f"{OLD}audit", {"event": "statement"}, id=f"{_ms(redis)}-0")


def _ms(redis: Any) -> int:
    """Return the next ms by Redis's clock, once it has come."""
    sleep(0.002)
    seconds, micros = redis.time()
    return int(seconds * 1000 + micros // 1000)


@pytest.fixture(params=[_worker, _push, _statement])
def both(old: Any, request: pytest.FixtureRequest) -> Any:
    """Return a Redis with which this release has worked, and the older one again since."""
    Migration(old, Keys()).copy()
    Migration(old, Keys()).require()
    old.set(f"{NEW}ours", "1")
    request.param(old)
    return old


def test_work_of_both_releases_is_somebodys_choice(both: Any) -> None:
    """Neither copying nor deleting drops what one of them did, unless somebody says so."""
    migration = Migration(both, Keys())
    for act in (migration.require, migration.is_needed, migration.finish):
        with pytest.raises(NotMigrated, match="--discard"):
            act()
    assert migration.is_needed(discard=True)
    migration.copy()
    assert not both.exists(f"{NEW}ours")
    migration.require()


async def test_discarded_work_counts_as_lost(old: Any, redis_url: str) -> None:
    """Of this release, if its copies are made anew; of the older one, if its keys are deleted."""
    migration = Migration(old, Keys())
    migration.copy()
    migration.require()
    migration.copy()  # with --discard
    migration.require()
    assert await claimed(old, redis_url)() is not None
    assert await claimed(old, redis_url)() is not None  # until it is saved
    _worker(old)
    old.hdel(f"{NEW}item:{A.member}", "verify")
    migration.finish(discard=True)
    migration.require()
    assert await claimed(old, redis_url)() is not None


def test_old_keys_and_jobs_are_deleted_when_all_is_done(old: Any) -> None:
    """Again and again, and never before they were copied."""
    migration, waiting = Migration(old, Keys()), calls_queue(old, "calls")
    waiting.enqueue(ADVANCE)
    for discard in (False, True):
        with pytest.raises(NotMigrated, match="run: callkeeper migrate"):
            migration.finish(discard=discard)
    migration.copy()
    copied = stored(old, NEW)
    assert migration.finish() > 0
    assert migration.finish() == 0
    assert stored(old, NEW) == copied
    assert [name for name in old.keys("*") if not name.startswith(NEW.encode())] == [b"ck:token"]
    migration.require()
