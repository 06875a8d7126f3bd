"""Which rules are in force, and since when. Every starting worker writes it, the board reads it.

While workers with different rules run side by side during a deployment, it names the rules of the last one started.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from redis import Redis

from calls.store.keys import Keys


class RulesInForce(msgspec.Struct, frozen=True):
    """The digest and name of the rules, and when a worker first started with them, by Redis's clock."""

    digest: str
    name: str
    since: datetime


def put_in_force(redis: "Redis", keys: Keys, digest: str, name: str) -> RulesInForce:
    """Record the rules that a worker starts with. If they are the same as before, the earlier time stays.

    Raises:
        redis.exceptions.RedisError: It may or may not have been written.
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
    """Read the stored rules; None if there are none, or if a later release wrote another format."""
    try:
        return msgspec.json.decode(stored, type=RulesInForce) if stored else None
    except msgspec.MsgspecError:
        return None
