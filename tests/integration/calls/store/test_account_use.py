"""Two installations that share a Redis and an account of the service."""

from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.app.wiring import AccountInUse, _require_account
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.redis_writer import Author, FigureWriter, Reporter
from callkeeper.calls.store.account_use import ENDS_WITHIN_S, FRESH_S, AccountUse
from callkeeper.calls.store.keys import Keys

OURS, THEIRS = Keys("ck"), Keys("ck2")


@pytest.mark.parametrize(
    ("keys", "account", "institutions", "others"),
    [
        (THEIRS, "a", None, ["ck"]),
        (THEIRS, "a", ["cu-2", "cu-1"], ["ck"]),
        (THEIRS, "a", ["cu-2"], []),
        (OURS, "a", None, []),
        (OURS, "a", ["cu-1", "cu-3"], []),
        (THEIRS, "b", None, []),
    ],
    ids=["all", "one in common", "none in common", "ourselves", "ourselves, changed", "another account"],
)
async def test_account_is_used_by_one_installation_for_each_institution(
    keys: Keys,
    account: str,
    institutions: list[str] | None,
    others: list[str],
    redis: Redis,
    blocking_redis: BlockingRedis,
) -> None:
    """What a worker that starts and the doctor find, while workers of ours act for cu-1."""
    assert AccountUse(OURS, "a", ["cu-1"]).note(blocking_redis) == []
    use = AccountUse(keys, account, institutions)
    assert await use.others(redis) == others
    assert use.note(blocking_redis) == others


def test_of_two_that_note_the_use_the_second_finds_the_first(blocking_redis: BlockingRedis) -> None:
    """Until the first ends, or has not noted it for a while. What another release has written is no installation."""
    first, second = AccountUse(OURS, "a", None), AccountUse(THEIRS, "a", None)
    key = OURS.account_use("a")
    blocking_redis.zadd(key, {b"{}": blocking_redis.time()[0], b"[]": blocking_redis.time()[0]})
    assert (first.note(blocking_redis), second.note(blocking_redis)) == ([], ["ck"])
    blocking_redis.zrem(key, '["ck",null]')
    assert second.note(blocking_redis) == []
    assert 0 < blocking_redis.ttl(key) <= FRESH_S
    now_s, _ = blocking_redis.time()
    blocking_redis.zadd(key, {'["ck2",null]': now_s - FRESH_S - 1})
    assert first.note(blocking_redis) == []


def test_use_goes_on_when_one_of_several_workers_ends(blocking_redis: BlockingRedis) -> None:
    """The others say once a second that they work. Until then no worker of another installation may start."""
    first, second = AccountUse(OURS, "a", None), AccountUse(THEIRS, "a", None)
    first.note(blocking_redis)
    first.end(blocking_redis)
    assert second.others_now(blocking_redis) == ["ck"]
    client: Any = blocking_redis
    [(_, score)] = client.zrange(OURS.account_use("a"), 0, -1, withscores=True)
    now_s, _ = client.time()
    assert 1 <= score + FRESH_S - now_s <= ENDS_WITHIN_S
    first.end(blocking_redis)
    assert blocking_redis.zcard(OURS.account_use("a")) == 1


def test_worker_that_must_not_start_has_noted_nothing(blocking_redis: BlockingRedis) -> None:
    """Those that work would find it, and log that both work."""
    first, second = AccountUse(OURS, "a", None), AccountUse(THEIRS, "a", None)
    first.note(blocking_redis)
    with pytest.raises(AccountInUse):
        _require_account(second, THEIRS, blocking_redis)
    assert first.note(blocking_redis) == []


async def test_use_is_forgotten_also_if_the_clock_was_set_back(redis: Redis, blocking_redis: BlockingRedis) -> None:
    """After a failover to a server whose clock is an hour behind, an installation that ended would be there for an hour."""
    now_s, _ = blocking_redis.time()
    blocking_redis.zadd(OURS.account_use("a"), {'["ck2",null]': now_s + 3600})
    use = AccountUse(OURS, "a", None)
    assert await use.others(redis) == []
    assert use.note(blocking_redis) == []


def test_workers_know_what_others_of_their_installation_act_for(blocking_redis: BlockingRedis) -> None:
    """Also for a while after they are missing, so that one may start anew, or after Redis was away."""
    now_s = 0.0
    use = AccountUse(OURS, "a", ["cu-1"], monotonic=lambda: now_s)
    others = AccountUse(OURS, "a", ["cu-2"]), AccountUse(Keys("ck3"), "a", ["cu-3"])
    for other in others:
        other.note(blocking_redis)
    use.note(blocking_redis)
    assert [use.is_acted_for_beside(key) for key in ("cu-2", "cu-3", "cu-4")] == [True, False, False]
    blocking_redis.delete(OURS.account_use("a"))
    for at_s, is_known in ((100.0, True), (100.0 + FRESH_S, True), (101.0 + FRESH_S, False)):
        now_s = at_s
        use.note(blocking_redis)
        assert use.is_acted_for_beside("cu-2") is is_known
    AccountUse(OURS, "a", None).note(blocking_redis)
    use.note(blocking_redis)
    assert use.is_acted_for_beside("cu-4")


def test_reporter_writes_beside_the_figures(blocking_redis: BlockingRedis, redis_url: str) -> None:
    """A worker notes every second that it uses the account."""
    use = AccountUse(OURS, "a", None)
    with BlockingRedis.from_url(redis_url) as client:
        reporter = Reporter(client, FigureWriter(Figures(), Author.here("worker")), every_s=60, also=use.note)
        reporter.start()
        reporter.stop()
    assert AccountUse(THEIRS, "a", None).note(blocking_redis) == ["ck"]
