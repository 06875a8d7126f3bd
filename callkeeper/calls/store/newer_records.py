"""If a newer release wrote a member's record or notes, leaves that member to a worker of that release.

They are not changed. A worker of this release that claims one releases it at once. It is due again after half a second, and
later each time, up to five seconds. A worker with a higher schema number claims it with its next claim, before others.
If no newer worker has saved it within a minute, it needs a person.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import ClaimedItem
from callkeeper.calls.record import NEWER, SCHEMA
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import Scripts

SHORTEST_MS: Final = 500
LONGEST_MS: Final = 5000
PATIENCE_MS: Final = 60_000


class Handover:
    """Releases claims for newer workers."""

    def __init__(self, scripts: Scripts, keys: Keys, unreadable: Callable[[str, str], None]) -> None:
        self.scripts = scripts
        self._keys = keys
        self._unreadable = unreadable
        self.schema = SCHEMA

    async def leave(self, item: ClaimedItem) -> None:
        """Release a claim and leave what is stored as it is. If another worker holds the member, do nothing."""
        self._unreadable("newer", item.institution_key)
        with suppress(RedisError):  # then the end of the lease makes it due
            await self.scripts.call(
                "leave",
                member=item.member,
                nonce=item.nonce,
                shortest_ms=SHORTEST_MS,
                longest_ms=LONGEST_MS,
                patience_ms=PATIENCE_MS,
                reason=NEWER,
                schema=self.schema,
            )
