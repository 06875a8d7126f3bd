"""Failed logins, counted by all web processes in a real Redis."""

import asyncio

import pytest
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.attempt_limiter import ALLOWED, EVERY_S, LoginLimiter
from callkeeper.calls.store.keys import Keys

ADDRESS = "203.0.113.7"
LOG = structlog.get_logger()


class Clock:
    """A clock that is moved by hand, in milliseconds."""

    now_ms = 1_790_000_000_000

    def __call__(self) -> int:
        """Return the time."""
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    """Return the clock of Redis."""
    return Clock()


def process(redis: Redis, clock: Clock, *, remembered: int = 4096, log: FilteringBoundLogger = LOG) -> LoginLimiter:
    """Return the limiter of a web process that has just started."""
    return LoginLimiter(redis, log, key=bytes(32), keys=Keys(), remembered=remembered, now_ms=clock)


async def test_limit_holds_across_processes_and_restarts(redis: Redis, clock: Clock) -> None:
    """The limit of ten guesses holds also if each goes to a new process."""
    failures = [await process(redis, clock).count(ADDRESS) for _ in range(ALLOWED + 2)]
    assert [wait_s > 0 for wait_s in failures] == [False] * ALLOWED + [True] * 2
    assert await process(redis, clock).wait_s(ADDRESS) > 0
    assert await process(redis, clock).wait_s("203.0.113.8") == 0


async def test_failure_that_reaches_the_limit_is_logged(
    redis: Redis, clock: Clock, log: FilteringBoundLogger, logged: LogCapture
) -> None:
    """Once, by the process that counted it, although that had counted no other. By whichever name it is reached."""
    for _ in range(ALLOWED - 1):
        await process(redis, clock, log=log).count(ADDRESS, "ann")
    assert "attempts_limited" not in [line["event"] for line in logged.entries]
    await process(redis, clock, log=log).count(ADDRESS, "ann")
    assert [line["event"] for line in logged.entries].count("attempts_limited") == 1


async def test_limit_is_lifted_after_the_wait(redis: Redis, clock: Clock) -> None:
    """After the seconds that were told one more failure is allowed, in every process."""
    for _ in range(ALLOWED + 5):
        await process(redis, clock).count(ADDRESS)
    wait_s = await process(redis, clock).wait_s(ADDRESS)
    assert wait_s <= EVERY_S + 1
    clock.now_ms += wait_s * 1000
    assert await process(redis, clock).wait_s(ADDRESS) == 0
    assert await process(redis, clock).count(ADDRESS) == 0
    assert await process(redis, clock).count(ADDRESS) > 0


async def test_limit_bears_guesses_at_once(redis: Redis, clock: Clock) -> None:
    """Guesses that arrive together at several processes do not exceed the limit."""
    processes = [process(redis, clock) for _ in range(3)]
    failures = await asyncio.gather(*(each.count(ADDRESS) for each in processes for _ in range(20)))
    assert failures.count(0) == ALLOWED


@pytest.mark.parametrize("back_ms", [30_000, 3_600_000])
async def test_limit_lasts_no_longer_when_the_clock_goes_back(redis: Redis, clock: Clock, back_ms: int) -> None:
    """Redis's clock is set back: one guess is allowed after one full bucket's time at most, and ten are not."""
    for _ in range(ALLOWED):
        await process(redis, clock).count(ADDRESS)
    clock.now_ms -= back_ms
    wait_s = await process(redis, clock).wait_s(ADDRESS)
    assert wait_s <= EVERY_S
    clock.now_ms += wait_s * 1000
    assert await process(redis, clock).count(ADDRESS) == 0
    assert await process(redis, clock).count(ADDRESS) > 0


async def test_limit_is_bounded_in_redis(redis: Redis, clock: Clock) -> None:
    """Redis remembers no more names than it may; the fullest bucket stays, and all of it is forgotten in time."""
    for _ in range(ALLOWED):
        await process(redis, clock).count(ADDRESS)
    for n in range(30):
        await process(redis, clock, remembered=8).count(f"198.51.100.{n}")
    assert await redis.zcard(Keys().logins) == 8
    assert await process(redis, clock).wait_s(ADDRESS) > 0
    assert 0 < await redis.pttl(Keys().logins) <= ALLOWED * EVERY_S * 1000


async def test_limit_names_nobody_in_redis(redis: Redis, clock: Clock) -> None:
    """An address is personal data, so Redis holds only a keyed hash of it."""
    await process(redis, clock).count(ADDRESS)
    [name] = await redis.zrange(Keys().logins, 0, -1)
    assert ADDRESS.encode() not in name
    assert len(name) == 32


async def test_limit_is_local_while_redis_is_away(clock: Clock) -> None:
    """Without Redis a process counts by itself, and answers at once."""
    away = process(Redis(host="127.0.0.1", port=1, retry=Retry(NoBackoff(), 0)), clock)
    failures = [await away.count(ADDRESS) for _ in range(ALLOWED + 1)]
    assert [wait_s > 0 for wait_s in failures] == [False] * ALLOWED + [True]
    assert await away.wait_s(ADDRESS) > 0
    assert await away.wait_s("203.0.113.8") == 0


async def test_limit_reached_asks_redis_for_nothing(redis: Redis, clock: Clock) -> None:
    """Guesses over the limit cost Redis no work."""
    limiter = process(redis, clock)
    for _ in range(ALLOWED):
        await limiter.count(ADDRESS)
    before = (await redis.info("stats"))["total_commands_processed"]
    for _ in range(50):
        await limiter.count(ADDRESS)
        await limiter.wait_s(ADDRESS)
    assert (await redis.info("stats"))["total_commands_processed"] - before == 1  # this very question


async def test_failure_asks_redis_once(redis: Redis, clock: Clock) -> None:
    """A failure by a name, also the one that reaches the limit, takes one script: it counts address and name."""
    limiter = process(redis, clock)
    await limiter.count(ADDRESS, "ann")
    before = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"]
    failures = [await limiter.count(ADDRESS, "ann") for _ in range(ALLOWED - 1)]
    assert failures == [0] * (ALLOWED - 1)
    assert (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before == ALLOWED - 1
    assert await redis.zcard(Keys().logins) == 2
