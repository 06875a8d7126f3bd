"""Notes which installations work with an account of the service, so that no two do so for the same institutions.

Two installations share a Redis under two prefixes (a misspelled ``CALLKEEPER_REDIS_PREFIX`` makes two of one). Neither
sees the other's calls: each makes its own 20 checks a call, and both enroll and reject.
"""

from collections.abc import Collection
from typing import Any, Final

import msgspec
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.stored_value import readable

FRESH_S: Final = 20
"""For how many seconds an installation counts as working after it last said so. Each worker says so once a second."""


class _Installation(msgspec.Struct, frozen=True, array_like=True):
    """The prefix of an installation, and the institutions that it acts for; None: all of the account."""

    prefix: str
    institutions: tuple[str, ...] | None = None

    def works_beside(self, other: "_Installation") -> bool:
        """Return whether both may work at once: they are one installation, or have no institution in common."""
        if self.prefix == other.prefix:
            return True
        ours, theirs = self.institutions, other.institutions
        return ours is not None and theirs is not None and set(ours).isdisjoint(theirs)


class AccountUse:
    """The use of one account by this installation. ``account`` is a digest that does not lead to the credentials."""

    def __init__(self, keys: Keys, account: str, institutions: Collection[str] | None) -> None:
        self._key = keys.account_use(account)
        self._own = _Installation(keys.prefix, None if institutions is None else tuple(sorted(institutions)))

    def note(self, redis: "Redis") -> list[str]:
        """Note that this installation works, and return the prefixes of others that must not work at the same time.

        Raises:
            redis.exceptions.RedisError: It may or may not have been noted.
        """
        client: Any = redis
        now_s, _ = client.time()
        with client.pipeline() as pipe:  # a transaction: of two that start at once, the second finds the first
            pipe.zremrangebyscore(self._key, "-inf", now_s - FRESH_S)
            pipe.zrange(self._key, 0, -1)
            pipe.zadd(self._key, {msgspec.json.encode(self._own): now_s})
            pipe.expire(self._key, FRESH_S)
            return self._others(pipe.execute()[1])

    def end(self, redis: "Redis") -> None:
        """Take back what was noted. Other workers of this installation note it again.

        Raises:
            redis.exceptions.RedisError: It may or may not have been taken back; it expires.
        """
        redis.zrem(self._key, msgspec.json.encode(self._own))

    async def others(self, redis: "AsyncRedis") -> list[str]:
        """Return what `note` does, and note nothing.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        client: Any = redis
        now_s, _ = await client.time()
        return self._others(await client.zrangebyscore(self._key, now_s - FRESH_S, "+inf"))

    def _others(self, noted: Collection[bytes]) -> list[str]:
        found = (readable(each, _Installation) for each in noted)
        return sorted({each.prefix for each in found if each is not None and not each.works_beside(self._own)})
