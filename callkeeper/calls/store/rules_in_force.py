"""Which rules are in force, which were before, and their texts. Every starting worker writes it, the board reads it.

While workers with different rules run side by side during a deployment, it names the rules of the last one started.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError

from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.stored_value import readable

KEPT = 10_000
"""How many changes of the rules are kept. The oldest are dropped first; texts are kept for ever."""


class RulesInForce(msgspec.Struct, frozen=True, omit_defaults=True):
    """The digest and name of the rules, and when a worker first started with them, by Redis's clock.

    ``host`` and ``release``: the machine or container of that worker, and its version.
    """

    digest: str
    name: str
    since: datetime
    host: str = ""
    release: str = ""


def put_in_force(
    redis: Redis, keys: Keys, digest: str, name: str, text: bytes = b"", *, host: str = "", release: str = ""
) -> RulesInForce:
    """Record the rules that a worker starts with, and their text. If they are the same as before, the time stays.

    Raises:
        redis.exceptions.RedisError: It may or may not have been written.
    """
    client: Any = redis  # its stubs want a transaction that returns nothing
    client.hsetnx(keys.rules_texts, digest, text)

    def put(pipe: Any) -> RulesInForce:
        known = readable(pipe.get(keys.rules), RulesInForce)
        seconds, microseconds = pipe.time()
        pipe.multi()
        if known is not None and known.digest == digest:
            return known
        since = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
        now = RulesInForce(digest, name, since, host, release)
        stored = msgspec.json.encode(now)
        pipe.set(keys.rules, stored).lpush(keys.rules_history, stored).ltrim(keys.rules_history, 0, KEPT - 1)
        return now

    # Several workers start at once: one that wrote meanwhile is read, and the line is written once.
    found: RulesInForce = client.transaction(put, keys.rules, value_from_callable=True)
    return found


class OwnRules:
    """Records with which rules a worker runs: once Redis accepts it, and again if it has lost that."""

    def __init__(
        self, redis: Redis, keys: Keys, digest: str, name: str, text: bytes, *, host: str, release: str
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._digest = digest
        self._put = partial(put_in_force, redis, keys, digest, name, text, host=host, release=release)
        self._were_put = False

    def put_in_force(self) -> None:
        """Record them, unless that was done. If Redis refuses it, the next call tries again."""
        with suppress(RedisError):  # the board then shows the previous worker's rules; trails name the right ones
            if not self._were_put or not self._redis.hexists(self._keys.rules_texts, self._digest):
                self._put()
                self._were_put = True


async def read_rules_history(redis: AsyncRedis, keys: Keys, *, most: int = KEPT) -> list[RulesInForce]:
    """Return the newest changes of the rules, newest first. Each was in force until the one before it in the list."""
    stored = await in_bytes(redis).lrange(keys.rules_history, 0, most - 1)
    return [each for value in stored if (each := readable(value, RulesInForce)) is not None]


async def read_rules_texts(redis: AsyncRedis, keys: Keys, digests: Sequence[str]) -> dict[str, bytes]:
    """Return the texts of rules by their digests. Those that are not kept are left out."""
    stored = await in_bytes(redis).hmget(keys.rules_texts, digests) if digests else []
    return {digest: text for digest, text in zip(digests, stored, strict=True) if text}


def in_force_between(history: Sequence[RulesInForce], begin: datetime, until: datetime) -> list[RulesInForce]:
    """Return the rules that were in force at any time from ``begin`` up to before ``until``, newest first."""
    ends = [None, *(each.since for each in history)]
    return [
        each for each, end in zip(history, ends, strict=False) if each.since < until and (end is None or end > begin)
    ]
