"""Finds out whether Redis accepts writes, and if not, why. Only an actual write tells for sure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from calls.store.keys import Keys

_KEPT_S: Final = 60


class WriteRefusal(StrEnum):
    """Why Redis refuses writes."""

    FULL = "full"
    DISK = "disk"
    REPLICA = "replica"
    REPLICAS = "replicas"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RefusalWords:
    """Describes a refusal: what is wrong, and what to do."""

    what: str
    advice: str


REFUSALS: Final = {
    WriteRefusal.FULL: RefusalWords("it is full", "Give it more memory, or keep settled calls for fewer days."),
    WriteRefusal.DISK: RefusalWords("it cannot write to its disk", "Make room on its disk."),
    WriteRefusal.REPLICA: RefusalWords("it is a replica", "REDIS_URL must lead to the master."),
    WriteRefusal.REPLICAS: RefusalWords("too few replicas follow it", "Look at the replicas and their connection."),
    WriteRefusal.OTHER: RefusalWords("its log says why", "Look at the log of Redis."),
}


async def refusal_of(redis: "Redis", keys: Keys) -> WriteRefusal | None:
    """Write a test key. Return why that was refused; None if it was not.

    Raises:
        redis.exceptions.RedisError: Redis is down.
    """
    client: Any = redis
    try:
        await client.set(keys.writable, 1, ex=_KEPT_S)
    except ResponseError as error:
        return _refusal(error)
    except RedisConnectionError as error:
        if "takes no writes" not in str(error):  # written by callkeeper.connections for a demoted master's refusal
            raise
        return WriteRefusal.REPLICA
    return None


def _refusal(error: ResponseError) -> WriteRefusal:
    if isinstance(error, OutOfMemoryError):
        return WriteRefusal.FULL
    if isinstance(error, ReadOnlyError):
        return WriteRefusal.REPLICA
    words = str(error)
    for word, refusal in (
        ("MISCONF", WriteRefusal.DISK),
        ("NOREPLICAS", WriteRefusal.REPLICAS),
        ("READONLY", WriteRefusal.REPLICA),
    ):
        if words.startswith(word):
            return refusal
    return WriteRefusal.OTHER
