"""Which rule book is in force, and since when: written by every worker that starts, read by the board.

While workers with different rules run side by side (a deployment), it names the rules of the one that started last.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from redis import Redis

from calls.store.keys import Keys


class RulesInForce(msgspec.Struct, frozen=True):
    """A rule book's digest and name, and the instant at which a worker first began with it, by Redis's clock."""

    digest: str
    name: str
    since: datetime


def put_in_force(redis: "Redis", keys: Keys, digest: str, name: str) -> RulesInForce:
    """Note the rules that a worker starts with. The same rules once more are in force since the first time.

    Raises:
        redis.exceptions.RedisError: It may or may not be written.
    """
    client: Any = redis  # its stubs cannot know that answers are bytes here
    known = parse_rules_in_force(client.get(keys.rules))
    if known is not None and known.digest == digest:
        return known
    seconds, microseconds = client.time()
    since = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
    now = RulesInForce(digest, name, since)
    client.set(keys.rules, msgspec.json.encode(now))
    return now


def parse_rules_in_force(stored: bytes | None) -> RulesInForce | None:
    """Read what a worker noted; None if none has, or a later release did it in another way."""
    try:
        return msgspec.json.decode(stored, type=RulesInForce) if stored else None
    except msgspec.MsgspecError:
        return None
