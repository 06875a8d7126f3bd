"""The calls that wait to be archived, in Redis: an outbox that holds only their names.

A sweep finds settled calls that were never archived: those from before there was an archive, and those of a restored
Redis.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

from redis.asyncio import Redis

from callkeeper.calls.claimed_item import ClaimedItem, WriteRefused, instant
from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent, AuditLog
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import KEPT_S, Keys
from callkeeper.calls.store.rules_in_force import read_rules_texts

SWEEP_EVERY_S: Final = 3600
SWEPT_AT_ONCE: Final = 500

Stored = tuple[bytes, list[bytes]]
"""A record and its trail entries."""


class Waiting(NamedTuple):
    """How many calls wait to be archived, and since when the first of them (roughly, while it is retried)."""

    calls: int
    since: datetime | None


async def waiting_calls(redis: Redis, keys: Keys) -> Waiting:
    """Return what waits to be archived."""
    due = keys.archive.due
    pipe = in_bytes(redis).pipeline(transaction=False)
    calls, first = await pipe.zcard(due).zrange(due, 0, 0, withscores=True).execute()
    return Waiting(int(calls), instant(int(first[0][1])) if first else None)


class ArchiveQueue(Store):
    """The outbox of the archive, and its view of the calls."""

    def __init__(
        self,
        redis: Redis,
        calls: Keys,
        *,
        kept_s: int = KEPT_S,
        now_ms: Callable[[], int] | None = None,
        unreadable: Callable[[str, str], None] = lambda _what, _about: None,
    ) -> None:
        """Set up. ``calls`` are the keys of the calls. ``now_ms`` replaces Redis's clock; ``unreadable`` as in `Store`."""
        super().__init__(redis, keys=calls.archive, kept_s=kept_s, now_ms=now_ms, unreadable=unreadable)
        self._call_keys = calls
        self._swept_to: int | None = None
        self._plain_redis = redis
        """The client without our types, for functions that add them themselves."""
        self.audit_log = AuditLog(redis, keys=self._call_keys)

    async def stored(self, items: Sequence[ClaimedItem]) -> list[Stored | None]:
        """Read records and trails of settled calls; None for one that is gone, merged or open again."""
        pipe = self._redis.pipeline(transaction=True)
        for item in items:
            pipe.hmget(self._call_keys.item(item.member), ["rec", "settled"])
            pipe.lrange(self._call_keys.trail(item.member), 0, -1)
        answers = await pipe.execute()
        return [
            (record, trail) if record is not None and settled is not None else None
            for (record, settled), trail in zip(answers[::2], answers[1::2], strict=True)
        ]

    async def waiting(self) -> Waiting:
        """Return what waits to be archived."""
        return await waiting_calls(self._plain_redis, self._call_keys)

    async def archived(self, item: ClaimedItem) -> None:
        """Remove a call from the queue. Its record expires from now on. If another worker holds it, do nothing."""
        calls = self._call_keys
        notes = item.note_pairs
        with suppress(WriteRefused):
            await self._scripts.call(
                "expire_archived",
                call_item_key=calls.item(item.member),
                call_trail_key=calls.trail(item.member),
                call_attention_key=calls.attention,
                member=item.member,
                nonce=item.nonce,
                kept_s=self._kept_s,
                note_count=len(notes) // 2,
                rest=notes,
            )

    async def takes_turn(self, what: str, every_s: int) -> bool:
        """Tell whether it is this process's turn for periodic work that only one process does."""
        return bool(await self._redis.set(self._turn(what), "1", nx=True, ex=every_s))

    async def next_turn(self, what: str, in_s: int) -> None:
        """Let the next turn of periodic work be after some seconds."""
        await self._redis.set(self._turn(what), "1", ex=in_s)

    def _turn(self, what: str) -> str:
        return f"{self.keys.prefix}:turn:{what}"

    async def sweep(self) -> int:
        """Queue some settled calls that were never archived; start over every hour. Return how many were queued."""
        if self._swept_to is None:
            if not await self.takes_turn("sweep", SWEEP_EVERY_S):
                return 0
            self._swept_to = 0
        members = await self._redis.zrange(self._call_keys.settled, self._swept_to, self._swept_to + SWEPT_AT_ONCE - 1)
        self._swept_to = self._swept_to + SWEPT_AT_ONCE if members else None
        pipe = self._redis.pipeline(transaction=False)
        for member in members:
            pipe.hmget(self._call_keys.item(member.decode()), ["rec", "archived"])
        known = await pipe.execute() if members else []
        missing = [m for m, (record, archived) in zip(members, known, strict=True) if record and not archived]
        now_ms = int((await self.now()).timestamp() * 1000)
        for member in missing:
            pipe.persist(self._call_keys.item(member.decode())).persist(self._call_keys.trail(member.decode()))
            pipe.hset(self.keys.inbox(member.decode()), "swept", "1").zadd(self.keys.due, {member: now_ms}, nx=True)
        if missing:
            await pipe.execute()
        return len(missing)

    async def noted_heads(self) -> dict[str, tuple[int, str]]:
        """Return the heads of chains that were noted last: the number of the line and its hash, by institution."""
        stored = await self._redis.hgetall(self._turn("noted-heads"))
        pairs = ((key.decode(), head.decode().partition(" ")) for key, head in stored.items())
        return {key: (int(n), digest) for key, (n, _, digest) in pairs}

    async def note_head(self, institution_key: str, n: int, head: str) -> None:
        """Write the head of a chain into the audit log, where the database's owner cannot change it."""
        await self._redis.hset(self._turn("noted-heads"), institution_key, f"{n} {head}")
        entry = AuditEntry(
            event=AuditEvent.ARCHIVE_HEAD, who="worker", institution=institution_key, detail=f"{n} {head}"
        )
        await self.audit_log.write(entry)

    async def unarchived_rules(self) -> dict[str, bytes]:
        """Return the texts of rules that were not noted as archived, by digest."""
        noted = await self._redis.smembers(self._turn("noted-rules"))
        stored = await self._redis.hkeys(self._call_keys.rules_texts)
        digests = [digest.decode() for digest in stored if digest not in noted]
        return await read_rules_texts(self._plain_redis, self._call_keys, digests)

    async def note_rules(self, digests: Collection[str]) -> None:
        """Note that the texts of rules are archived."""
        await self._redis.sadd(self._turn("noted-rules"), *digests)

    async def refill(self) -> int:
        """Queue all settled calls, the audit log and the rules again, after the archive was restored. Return how many calls.

        The heads of the archive's chains are logged anew, because the restored ones may lack lines.
        """
        await self._redis.delete(*map(self._turn, ("noted-heads", "heads", "noted-rules")))
        members = await self._redis.zrange(self._call_keys.settled, 0, -1)
        for start in range(0, len(members), SWEPT_AT_ONCE):
            pipe = self._redis.pipeline(transaction=False)
            for member in members[start : start + SWEPT_AT_ONCE]:
                pipe.hdel(self._call_keys.item(member.decode()), "archived")
            await pipe.execute()
        await self._redis.delete(self._turn("sweep"), self._call_keys.audit_archived)
        return len(members)
