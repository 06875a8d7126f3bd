"""Desk tokens whose values tests know."""

from datetime import UTC, datetime
from hashlib import sha256

import msgspec
from redis import Redis

from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.desk.access.desk_tokens import IssuedToken
from callkeeper.desk.access.rights import Role


def give_token(
    redis: Redis, name: str, value: str, *institutions: str, role: Role = Role.SUPERVISOR, keys: Keys = KEYS
) -> None:
    """Store a token as ``callkeeper tokens issue`` does. The value begins with ``ckt_``."""
    assert value.startswith("ckt_")
    issued = IssuedToken(
        name=name, role=role, institutions=frozenset(institutions) or None, issued_at=datetime.now(UTC)
    )
    redis.hset(keys.issued_tokens, sha256(value.encode()).hexdigest(), msgspec.json.encode(issued))
