"""What is true at this moment: how many calls there are, how late the latest is, who works, whether the service is away."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from calls.store.breakers import ACCOUNT, account_of, breakers_of, opened
from calls.store.job_queue import FAILURE_TTL_S
from calls.store.keys import Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """Redis's own view of the state of things, at one moment."""

    hinted: int
    """Calls that were pushed and that the service has not confirmed."""
    live: int
    """Calls that are not settled, ended ones included."""
    settled: int
    """Settled calls that can still be read."""
    overdue: int
    """Calls and institutions that are due now."""
    late_s: float
    """How late the one is that has waited longest."""
    attention: Counter[str]
    """What needs a person, by reason."""
    is_service_away: bool
    institutions_away: int
    """Institutions that are left alone by themselves: they fail, or the service asked for a pause."""
    service_failures: int
    """Requests in a row without a usable answer, of the institution or the account that has most."""
    login_failures: int
    """Logins in a row without a proven token."""
    jobs_waiting: int
    jobs_failed: int
    """By a bug, or because they are not ours; those of killed workers and of outages do not count."""
    workers: int
    """As RQ counts them."""
    outcomes_waiting: int
    redis_memory: int
    redis_memory_limit: int
    """0: none is set."""


async def read_present(redis: "Redis", *, keys: Keys | None = None, now_ms: int | None = None) -> Present:
    """Read the state of things; one round trip for nearly all of it."""
    keys, client = Keys() if keys is None else keys, _any(redis)
    pipe = client.pipeline(transaction=False)
    pipe.time().zcard(keys.live).zcard(keys.settled).zrange(keys.due, 0, 0, withscores=True)
    pipe.zdiff([keys.due, keys.live]).hvals(keys.attention).hvals(keys.outbox.attention)
    pipe.hgetall(keys.breakers).hmget(keys.login_gate, ["failures"])
    pipe.llen(keys.queue).scard(keys.workers).zcard(keys.outbox.due)
    (
        time,
        live,
        settled,
        first,
        unconfirmed,
        attention,
        unsent,
        stored,
        login,
        waiting,
        workers,
        outcomes,
    ) = await pipe.execute()
    memory = await _memory(client)
    now = now_ms if now_ms is not None else time[0] * 1000 + time[1] // 1000
    # A failed job is stored with the instant when it expires. A killed worker's and an outage's expire within the hour: what
    # is kept longer failed by a bug, or is not ours.
    bugs_from_s = now / 1000 + FAILURE_TTL_S
    overdue, failed = (
        await client.pipeline(transaction=False)
        .zcount(keys.due, "-inf", now)
        .zcount(keys.failed_jobs, bugs_from_s, "+inf")
        .execute()
    )
    return Present(
        hinted=sum(member.startswith(b"c:") for member in unconfirmed),
        live=live,
        settled=settled,
        overdue=overdue,
        late_s=max(0.0, (now - first[0][1]) / 1000) if first else 0.0,
        attention=Counter(why.decode() for why in (*attention, *unsent)),
        is_service_away=account_of(opened(stored)) is not None,
        institutions_away=sum(breaker.institution_key != ACCOUNT for breaker in opened(stored)),
        service_failures=max((breaker.failures for breaker in breakers_of(stored).values()), default=0),
        login_failures=int(login[0] or 0),
        jobs_waiting=waiting,
        jobs_failed=failed,
        workers=workers,
        outcomes_waiting=outcomes,
        redis_memory=int(memory.get("used_memory", 0)),
        redis_memory_limit=int(memory.get("maxmemory", 0)),
    )


async def _memory(client: Any) -> dict[str, Any]:
    """Ask for the memory; a Redis that does not tell everybody leaves it unknown."""
    try:
        answer: dict[str, Any] = await client.info("memory")
    except ResponseError:
        return {}
    return answer


def _any(redis: "Redis") -> Any:
    """Return the client without its types: its stubs cannot know that answers are bytes here."""
    return redis
