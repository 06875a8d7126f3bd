"""Notes which installations work with an account of the service, and for which institutions: no two for the same.

Two installations share a Redis under two prefixes (a misspelled ``CALLKEEPER_REDIS_PREFIX`` makes two of one). Neither
sees the other's calls: each makes its own 20 checks a call, and both enroll and reject.

Workers of one installation find here whether others of it act for an institution that their own settings exclude.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from typing import Final, cast

import msgspec
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.stored_value import readable

FRESH_S: Final = 20
"""For how many seconds an installation counts as working after it last said so. Each worker says so once a second."""

ENDS_WITHIN_S: Final = 3
"""For how many seconds it counts as working after one of its workers has ended. The others say so again meanwhile."""


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

    def acts_for(self, institution_key: str) -> bool:
        """Return whether it acts for an institution, if the account manages it."""
        return self.institutions is None or institution_key in self.institutions


class AccountUse:
    """The use of one account by this installation. ``account`` is a digest that does not lead to the credentials."""

    def __init__(
        self,
        keys: Keys,
        account: str,
        institutions: Collection[str] | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._key = keys.account_use(account)
        self._monotonic = monotonic
        self._beside: dict[_Installation, float] = {}
        """What workers of this installation act for, and since when each is missing, by our clock: infinite if it is not."""
        self.shared_with: tuple[str, ...] = ()
        """The prefixes of others that must not work at the same time, as `note` found. Any thread may ask."""
        self._own = _Installation(keys.setting, None if institutions is None else tuple(sorted(institutions)))

    def note(self, redis: Redis) -> list[str]:
        """Note that this installation works, and return the prefixes of others that must not work at the same time.

        Raises:
            redis.exceptions.RedisError: It may or may not have been noted.
        """
        now_s, _ = redis.time()
        with redis.pipeline() as pipe:  # a transaction: of two that start at once, the second finds the first
            pipe.zremrangebyscore(self._key, "-inf", now_s - FRESH_S)
            pipe.zremrangebyscore(self._key, now_s + FRESH_S, "+inf")  # the clock was set back
            pipe.zrange(self._key, 0, -1)
            pipe.zadd(self._key, {msgspec.json.encode(self._own): now_s})
            pipe.expire(self._key, FRESH_S)
            noted = list(_parsed(pipe.execute()[2]))
        self._take_beside({each for each in noted if each.prefix == self._own.prefix})
        others = self._others(noted)
        self.shared_with = tuple(others)
        return others

    def _take_beside(self, found: Collection[_Installation]) -> None:
        """Keep for a while what is missing now: its workers may just be starting anew, or Redis was away."""
        now_s = self._monotonic()
        missing = {each: min(since_s, now_s) for each, since_s in self._beside.items() if each not in found}
        kept = {each: since_s for each, since_s in missing.items() if now_s - since_s <= FRESH_S}
        self._beside = kept | dict.fromkeys(found, inf)

    def is_acted_for_beside(self, institution_key: str) -> bool:
        """Return whether workers of this installation act for an institution, as `note` found. Any thread may ask."""
        return any(each.acts_for(institution_key) for each in self._beside)

    def end(self, redis: Redis) -> None:
        """Let what was noted expire soon. Other workers of this installation note it again before.

        Raises:
            redis.exceptions.RedisError: It may or may not have been done; it expires anyway.
        """
        now_s, _ = redis.time()
        redis.zadd(self._key, {msgspec.json.encode(self._own): now_s - FRESH_S + ENDS_WITHIN_S}, xx=True)

    def others_now(self, redis: Redis) -> list[str]:
        """Do what `others` does, for a thread."""
        now_s, _ = redis.time()
        return self._others(
            _parsed(cast("list[bytes]", redis.zrangebyscore(self._key, now_s - FRESH_S, now_s + FRESH_S)))
        )

    async def others(self, redis: AsyncRedis) -> list[str]:
        """Return what `note` does, and note nothing.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        client = in_bytes(redis)
        now_s, _ = await client.time()
        return self._others(_parsed(await client.zrangebyscore(self._key, now_s - FRESH_S, now_s + FRESH_S)))

    def _others(self, noted: Iterable[_Installation]) -> list[str]:
        return sorted({each.prefix for each in noted if not each.works_beside(self._own)})


def _parsed(noted: Iterable[bytes]) -> Iterator[_Installation]:
    return (each for each in (readable(stored, _Installation) for stored in noted) if each is not None)
