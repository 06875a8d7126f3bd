"""The token in Redis: what is particular to it. The laws of every store are in tests/integration/service/test_tokens.py."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.sso_token import RedisTokenStore, barred_scopes
from callkeeper.service import (
    LoginGranted,
    LoginPending,
    LoginShut,
    Refusal,
    Shut,
)
from callkeeper.service.tokens import FIRST_WAIT_S, PROBE_EVERY_S, SUSPICION_S
from tests.integration.service.test_tokens import QUEUE, Clock, bar, clock, issue

__all__ = ["clock"]


@pytest.fixture
async def redis_store(redis_url: str, clock: Clock) -> AsyncIterator[RedisTokenStore]:
    """Return a store in Redis, whose clock may be set back; a process's own clock cannot."""
    async with Redis.from_url(redis_url) as redis:
        yield RedisTokenStore(redis, clock=clock)


@pytest.mark.parametrize("back_s", [30, 3600])
@pytest.mark.parametrize("reason", [Shut.OUTAGE, Shut.FAULT, Shut.REFUSED])
async def test_pause_after_a_login_lasts_no_longer_when_the_clock_goes_back(
    redis_store: RedisTokenStore, clock: Clock, back_s: float, reason: Shut
) -> None:
    """Redis's clock is set back: the gate opens after the pause that was meant, counted from the next look."""
    await redis_store.claim_login("n-1", instead_of=None, lease_s=8)
    await redis_store.fail_login("n-1", reason, pause_s=3)
    clock.now -= back_s
    turn = await redis_store.claim_login("n-2", instead_of=None, lease_s=8)
    assert turn == LoginShut(reason, 3.0)
    clock.now += 3
    assert await redis_store.claim_login("n-2", instead_of=None, lease_s=8) == LoginGranted(2)


@pytest.mark.parametrize("back_s", [30, 3600])
async def test_lease_of_a_login_lasts_no_longer_when_the_clock_goes_back(
    redis_store: RedisTokenStore, clock: Clock, back_s: float
) -> None:
    """A process dies while it logs in and the clock is set back: another one logs in a lease later."""
    await redis_store.claim_login("n-1", instead_of=None, lease_s=8)
    clock.now -= back_s
    assert await redis_store.claim_login("n-2", instead_of=None, lease_s=8) == LoginPending()
    clock.now += 8
    assert await redis_store.claim_login("n-2", instead_of=None, lease_s=8) == LoginGranted(2)


@pytest.mark.parametrize("back_s", [30, 3600])
async def test_barred_scope_is_tried_as_often_when_the_clock_goes_back(
    redis_store: RedisTokenStore, clock: Clock, back_s: float
) -> None:
    """Redis's clock is set back: a barred scope is tried within the longest wait, then as often as before."""
    await issue(redis_store)
    await bar(redis_store, clock)
    clock.now += 60
    assert await redis_store.probe(QUEUE) == 0.0
    clock.now -= back_s
    loaded = await redis_store.load()
    assert loaded is not None
    assert loaded.barred == {QUEUE: PROBE_EVERY_S}
    assert await redis_store.probe(QUEUE) == PROBE_EVERY_S
    clock.now += PROBE_EVERY_S
    assert await redis_store.probe(QUEUE) == 0.0
    await redis_store.slide("n-2", min_interval_s=5)
    assert (await redis_store.refuse("n-2", QUEUE)).barred_s is not None
    for _ in range(3):
        clock.now += PROBE_EVERY_S
        assert await redis_store.probe(QUEUE) == 0.0


async def test_token_lives_no_longer_when_the_clock_goes_back(redis_store: RedisTokenStore, clock: Clock) -> None:
    """Redis's clock is set back by hours: the token lives 30 minutes more, and its age counts from then on."""
    await issue(redis_store)
    clock.now -= 7200
    loaded = await redis_store.load()
    assert loaded is not None
    assert loaded.age_s == 0
    clock.now += 1799
    loaded = await redis_store.load()
    assert loaded is not None
    assert loaded.age_s == 1799
    clock.now += 1
    assert await redis_store.load() is None


@pytest.mark.parametrize("field", ["generation", "value", "institutions", "issued", "expires"])
async def test_token_that_cannot_be_read_is_none(redis_store: RedisTokenStore, redis: Redis, field: str) -> None:
    """Somebody logs in anew."""
    await issue(redis_store)
    await redis.hdel("ck:token", field)
    assert await redis_store.load() is None


async def test_try_of_a_barred_scope_that_redis_gets_twice_is_one_try(
    redis_store: RedisTokenStore, clock: Clock
) -> None:
    """However late the repetition comes, it leads to no further request."""
    await issue(redis_store)
    await bar(redis_store, clock)
    clock.now += PROBE_EVERY_S
    assert await redis_store.probe(QUEUE) == 0.0
    clock.now += PROBE_EVERY_S
    redis_store._calls -= 1
    assert await redis_store.probe(QUEUE) == FIRST_WAIT_S
    assert await redis_store.probe(QUEUE) == 0.0


async def test_refusal_that_redis_gets_twice_is_one_refusal(
    redis_store: RedisTokenStore, redis: Redis, clock: Clock
) -> None:
    """However late the repetition comes. It is told what holds by then, and that it is no news."""
    await issue(redis_store)
    for _ in range(2):
        assert await redis_store.refuse("n-1", QUEUE) == Refusal(is_current=True, is_proven=True)
        assert await barred_scopes(redis) == [], "refused once is not barred"
        redis_store._calls -= 1
    assert (await bar(redis_store, clock)).is_news
    waits = []
    for passed_s in (0.0, 0.25, FIRST_WAIT_S):
        clock.now += passed_s
        redis_store._calls -= 1
        repeated = await redis_store.refuse("n-2", QUEUE)
        assert not repeated.is_news
        waits.append(repeated.barred_s)
    assert waits == [FIRST_WAIT_S, FIRST_WAIT_S - 0.25, 0.0]
    assert [barred.operation for barred in await barred_scopes(redis)] == ["queue"]


async def test_old_refusal_bars_nothing_when_the_clock_goes_back(redis_store: RedisTokenStore, clock: Clock) -> None:
    """Two lapses far apart bar nothing, also if the clock was set back in between."""
    await issue(redis_store)
    await redis_store.refuse("n-1", QUEUE)
    clock.now -= 7200
    await redis_store.load()
    assert await redis_store.claim_login("n-2", instead_of="n-1", lease_s=8) == LoginShut(Shut.INTERVAL, 5.0)
    clock.now += SUSPICION_S
    await issue(redis_store, "n-2", instead_of="n-1")
    assert (await redis_store.refuse("n-2", QUEUE)).barred_s is None


async def test_redis_keeps_the_token_in_one_key_with_a_ttl(redis_url: str) -> None:
    """The token's value stands under its own key only, which goes by itself; Redis's own clock is used."""
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        store = RedisTokenStore(redis, Keys("px"))
        await issue(store)
        numbered, *stored = sorted(map(str, await redis.keys("*")))
        assert numbered.startswith("px:2:claimer:")
        assert stored == ["px:token", "px:token:gate"]
        assert 0 < await redis.ttl(numbered) <= 86_400
        assert 1_799_000 < await redis.pttl("px:token") <= 1_800_000
        assert 86_300_000 < await redis.pttl("px:token:gate") <= 86_400_000
        assert "canary-token" not in str(await redis.hgetall("px:token:gate"))
        loaded = await store.load()
        assert loaded is not None
        assert 0 <= loaded.age_s < 60
