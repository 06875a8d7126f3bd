"""Finds out whether Redis accepts writes, and if not, why. Only an actual write tells for sure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.service.network_failure import network_failure

_KEPT_S: Final = 60


class WriteRefusal(StrEnum):
    """Why Redis refuses writes."""

    FULL = "full"
    DISK = "disk"
    REPLICA = "replica"
    REPLICAS = "replicas"
    RIGHTS = "rights"
    BUSY = "busy"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RefusalWords:
    """Describes a refusal: what is wrong, and what to do."""

    what: str
    advice: str


REFUSALS: Final = {
    WriteRefusal.FULL: RefusalWords("it is full", "Give it more memory, or keep settled calls for fewer days."),
    WriteRefusal.DISK: RefusalWords(
        "it cannot write to its disk (MISCONF)",
        "Its last snapshot or append-only file could not be written: make room on its disk, or read its log. It accepts "
        "writes again after the next one that succeeds.",
    ),
    WriteRefusal.REPLICA: RefusalWords("it is a replica", "REDIS_URL must lead to the master."),
    WriteRefusal.REPLICAS: RefusalWords("too few replicas follow it", "Look at the replicas and their connection."),
    WriteRefusal.RIGHTS: RefusalWords(
        "our user may not run a command", "Give the user of REDIS_URL the rights in deploy/redis/users.acl.example."
    ),
    WriteRefusal.BUSY: RefusalWords(
        "a script of somebody else keeps it busy (BUSY)", "Wait until it ends, or end it: redis-cli SCRIPT KILL."
    ),
    WriteRefusal.OTHER: RefusalWords("its log says why", "Look at the log of Redis."),
}


async def refusal_of(redis: Redis, keys: Keys) -> WriteRefusal | None:
    """Write a test key, and run a script, as every push does. Return why one was refused; None if none was."""
    try:
        await in_bytes(redis).set(keys.writable, 1, ex=_KEPT_S)
        await redis.register_script("return 1")()
    except ResponseError as error:
        return refusal_in(error)
    except RedisConnectionError as error:
        if "takes no writes" not in str(error):  # written by callkeeper.app.connections for a demoted master's refusal
            raise
        return WriteRefusal.REPLICA
    return None


def redis_words(error: RedisError) -> str:
    """Return in a few words why Redis refused a command, or did not answer."""
    if isinstance(error, AuthenticationError):
        return "it refuses the login"
    return REFUSALS[refusal_in(error)].what if isinstance(error, ResponseError) else network_failure(error)


def hindrance(error: Exception) -> str:
    """Return why nothing can be done with Redis: it refuses writes, and why, or it does not answer."""
    if isinstance(error, ResponseError):
        return f"Redis refuses writes: {REFUSALS[refusal_in(error)].what}"
    return "Redis does not answer"


def refusal_in(error: RedisError) -> WriteRefusal:
    """Return why Redis refused a write. Redis 6.2 puts the reason of a command in a script behind other words."""
    if isinstance(error, OutOfMemoryError):
        return WriteRefusal.FULL
    if isinstance(error, ReadOnlyError):
        return WriteRefusal.REPLICA
    if isinstance(error, NoPermissionError):
        return WriteRefusal.RIGHTS
    words = str(error)
    for word, refusal in (
        ("OOM", WriteRefusal.FULL),
        ("MISCONF", WriteRefusal.DISK),
        ("NOREPLICAS", WriteRefusal.REPLICAS),
        ("READONLY", WriteRefusal.REPLICA),
        ("BUSY ", WriteRefusal.BUSY),
    ):
        if word in words:
            return refusal
    return WriteRefusal.OTHER
