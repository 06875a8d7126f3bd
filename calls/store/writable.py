"""Whether Redis takes writes, and if not, why: found out by writing, because nothing else tells it for sure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from calls.store.keys import Keys

_KEPT_S: Final = 60


class Refusal(StrEnum):
    """Why Redis refuses writes."""

    FULL = "full"
    DISK = "disk"
    REPLICA = "replica"
    REPLICAS = "replicas"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RefusalWords:
    """A refusal in words: what is the matter, and what to do."""

    what: str
    advice: str


REFUSALS: Final = {
    Refusal.FULL: RefusalWords("it is full", "Give it more memory, or keep settled calls for fewer days."),
    Refusal.DISK: RefusalWords("it cannot write to its disk", "Make room on its disk."),
    Refusal.REPLICA: RefusalWords("it is a replica", "REDIS_URL must lead to the master."),
    Refusal.REPLICAS: RefusalWords("too few replicas follow it", "Look at the replicas and their connection."),
    Refusal.OTHER: RefusalWords("its log says why", "Look at the log of Redis."),
}


async def refusal_of(redis: "Redis", keys: Keys) -> Refusal | None:
    """Write a key that means nothing, and return why that was refused; None if it was not.

    Raises:
        redis.exceptions.RedisError: Redis is away.
    """
    client: Any = redis
    try:
        await client.set(keys.writable, 1, ex=_KEPT_S)
    except ResponseError as error:
        return _refusal(error)
    except RedisConnectionError as error:
        if "takes no writes" not in str(error):  # what callkeeper.connections makes of a demoted master's refusal
            raise
        return Refusal.REPLICA
    return None


def _refusal(error: ResponseError) -> Refusal:
    if isinstance(error, OutOfMemoryError):
        return Refusal.FULL
    if isinstance(error, ReadOnlyError):
        return Refusal.REPLICA
    words = str(error)
    for word, refusal in (("MISCONF", Refusal.DISK), ("NOREPLICAS", Refusal.REPLICAS), ("READONLY", Refusal.REPLICA)):
        if words.startswith(word):
            return refusal
    return Refusal.OTHER
