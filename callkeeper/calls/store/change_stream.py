"""The stream of changes: which calls got a new trail entry, in order. Only the last ones are kept (`CHANGES_KEPT`).

An entry only names a call. A reader then reads the call in its current state, so it loses nothing if it reads an entry
late, twice or together with others.
"""

import re
from collections.abc import Sequence
from typing import Final

from redis.asyncio import Redis

from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import CHANGES_KEPT, KEYS, Keys

START: Final = "0-0"

MOST: Final = 500
"""How many entries are read at once."""

_ID = re.compile(r"\d{1,16}-\d{1,16}")


def is_position(text: str) -> bool:
    """Tell whether a text has the form of an entry's id."""
    return _ID.fullmatch(text) is not None and text.isascii()


def order(position: str) -> tuple[int, int]:
    """Return a key for comparing ids."""
    ms, _, n = position.partition("-")
    return int(ms), int(n)


class Changes:
    """Reads the stream."""

    def __init__(self, redis: Redis, *, keys: Keys = KEYS) -> None:
        self._redis = in_bytes(redis)
        self._key = keys.changes

    async def last(self) -> str:
        """Return the id of the newest entry."""
        newest = await self._redis.xrevrange(self._key, count=1)
        return newest[0][0].decode() if newest else START

    async def wait(self, after: str, *, for_ms: int) -> list[tuple[str, str]]:
        """Return the ids and members after an id, as soon as there are any; none after ``for_ms``.

        The connection's read timeout must be longer than that.
        """
        answer = await self._redis.xread({self._key: after}, count=MOST, block=for_ms)
        return _entries(answer[0][1]) if answer else []

    async def between(self, after: str, last: str) -> list[tuple[str, str]]:
        """Return the ids and members after one id, up to and including another."""
        return _entries(await self._redis.xrange(self._key, f"({after}", last, count=MOST))

    async def holds_all_since(self, position: str) -> bool:
        """Tell whether the stream is complete after an id. It is not if the id is too old, or if Redis lost entries."""
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.xrange(self._key, count=1).xrevrange(self._key, count=1).xlen(self._key)
            oldest, newest, length = await pipe.execute()
        if not newest:
            return position == START
        is_trimmed = length >= CHANGES_KEPT and order(oldest[0][0].decode()) > order(position)
        return not is_trimmed and order(position) <= order(newest[0][0].decode())


def _entries(rows: Sequence[tuple[bytes, dict[bytes, bytes]]]) -> list[tuple[str, str]]:
    return [(entry_id.decode(), fields[b"member"].decode()) for entry_id, fields in rows]
