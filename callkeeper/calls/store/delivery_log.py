"""The delivery log: the last attempts to post outcomes, and the requests to post one again.

Bodies are not stored; a message is built again from the call's trail. Only workers have the
receiver's address and secret. Other processes leave a note for them.
"""

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId, owner_of
from callkeeper.calls.outcome_messages import TEST, TEST_TYPE
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.inbox import Inbox
from callkeeper.calls.store.keys import KEPT_S, Keys
from callkeeper.calls.stored_value import readable

KEPT_ATTEMPTS: Final = 1000
"""How many attempts are kept, of all calls together: a megabyte at most."""

WANTED_S: Final = 120
"""If no shift that posts outcomes has run for this many seconds, outcomes count as not configured."""

UNTAKEN_KEPT_S: Final = 7200
"""How long it is remembered that the receiver accepts nothing, in seconds. A refused outcome is posted every hour."""

REPLAY: Final = "replay:"
SEND_TEST: Final = "test:"
NUDGE: Final = "nudge"
"""Post what is undelivered now, even if the next attempt is due later."""


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many of a call's outcomes were delivered, and the state of the next one."""

    sent: int = 0
    attempts: int = 0
    retry_at: datetime | None = None
    failed_at: datetime | None = None
    """When the last attempt failed; None before, and once it was delivered."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One post: which message, when, and the result. ``next_at`` is when it is automatically tried again.

    ``status`` is the answer's HTTP status. Without an answer ``error`` says why. ``n`` counts the message's attempts.
    ``answer`` is the beginning of the answer's text.
    """

    id: str
    type: str
    at: datetime
    n: int = 1
    status: int | None = None
    error: str | None = None
    took_ms: int = 0
    next_at: datetime | None = None
    is_replay: bool = False
    answer: str = ""

    @property
    def was_taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def result(self) -> str:
        """Return the result in a word or two."""
        return self.error or str(self.status)

    @property
    def call_id(self) -> CallId | None:
        """Return the call that the message is about; None for a test."""
        place = place_of(self.id)
        return place[0] if place else None


def place_of(message_id: str) -> tuple[CallId, int] | None:
    """Return a message's call and its number among the call's outcomes; None if the id is not an outcome's."""
    member, _, rest = message_id.rpartition(".")
    member, _, n = member.rpartition(".")
    try:
        owner = owner_of(member)
    except ValueError:
        return None
    is_one = isinstance(owner, CallId) and owner != TEST and rest.isalpha() and n.isascii() and n.isdecimal()
    return (owner, int(n)) if is_one and isinstance(owner, CallId) and len(n) < 6 else None


class DeliveryLog:
    """Reads and writes the log. ``keys`` are the outbox's."""

    def __init__(self, redis: Redis, keys: Keys, *, kept_s: int = KEPT_S) -> None:
        self._redis = in_bytes(redis)
        self._keys = keys
        self._kept_s = kept_s

    async def write(self, attempt: Attempt) -> None:
        """Add an attempt, and note since when none was accepted. Repeating it changes nothing."""
        key, at_ms = self._keys.deliveries, attempt.at.timestamp() * 1000
        pipe = self._redis.pipeline(transaction=False)
        pipe.zadd(key, {msgspec.json.encode(attempt): at_ms})
        pipe.zremrangebyrank(key, 0, -KEPT_ATTEMPTS - 1).zremrangebyscore(key, "-inf", at_ms - self._kept_s * 1000)
        pipe.expire(key, self._kept_s)
        if attempt.was_taken:
            pipe.delete(self._keys.untaken)
        else:
            pipe.set(self._keys.untaken, int(at_ms), nx=True).expire(self._keys.untaken, UNTAKEN_KEPT_S)
        await pipe.execute()

    async def read(self, limit: int = KEPT_ATTEMPTS, *, message_id: str | None = None) -> list[Attempt]:
        """Return the last attempts, newest first, of all messages or of one."""
        found = []
        for stored in await self._redis.zrevrange(self._keys.deliveries, 0, -1):
            attempt = readable(stored, Attempt)
            if attempt is not None and message_id in {None, attempt.id}:
                found.append(attempt)
            if len(found) == limit:
                break
        return found

    async def announce(self, place: str) -> None:
        """Record that outcomes are posted, and to which host and port."""
        await self._redis.set(self._keys.receiver, place, ex=WANTED_S)

    async def receiver(self) -> str | None:
        """Return the scheme, host and port that outcomes are posted to; None if no worker posts any."""
        place = await self._redis.get(self._keys.receiver)
        return place.decode() if place else None


class Replays:
    """Asks the workers to post outcomes again, or now. ``keys`` are the outbox's."""

    def __init__(self, redis: Redis, keys: Keys, *, now_ms: Callable[[], int] | None = None) -> None:
        self._redis = in_bytes(redis)
        self._keys = keys
        self._inbox = Inbox(redis, keys=keys, now_ms=now_ms)

    async def one(self, call_id: CallId, n: int) -> None:
        """Post one outcome of a call again, whether or not it was delivered."""
        await self._inbox.ask(call_id, f"{REPLAY}{n}")

    async def call(self, call_id: CallId) -> None:
        """Post a call's undelivered outcomes now."""
        await self._inbox.ask(call_id, NUDGE)

    async def failed_since(self, instant: datetime) -> int:
        """Post now what is undelivered of all calls whose last attempt failed since an instant; return their number."""
        calls = await self._undelivered(instant)
        for call_id in calls:
            await self.call(call_id)
        return len(calls)

    async def test(self) -> str:
        """Post a test message; return its id."""
        name = secrets.token_hex(6)
        await self._inbox.ask(TEST, f"{SEND_TEST}{name}")
        return test_id(name)

    async def _undelivered(self, since: datetime) -> list[CallId]:
        waiting = await self._redis.zrange(self._keys.due, 0, -1)
        members = {*waiting, *await self._redis.hkeys(self._keys.attention)}
        named = [owner_of(member.decode(errors="replace")) for member in sorted(members)]
        owners = [owner for owner in named if isinstance(owner, CallId) and owner != TEST]
        found = []
        for start in range(0, len(owners), 500):
            some = owners[start : start + 500]
            pipe = self._redis.pipeline(transaction=False)
            for owner in some:
                pipe.hget(self._keys.item(owner.member), "rec")
            for owner, record in zip(some, await pipe.execute(), strict=True):
                if _failed_since(record, since):
                    found.append(owner)
        return found


def test_id(name: str) -> str:
    """Return the id of a test message."""
    return f"{TEST_TYPE}.{name}"


def _failed_since(record: bytes | None, since: datetime) -> bool:
    cursor = readable(record, Cursor) if record else Cursor()
    if cursor is None:
        return True  # unknown, so try it
    return cursor.failed_at is not None and cursor.failed_at >= since


def latest_of_each(attempts: Sequence[Attempt]) -> dict[str, Attempt]:
    """Return the newest attempt for each message. ``attempts`` are newest first."""
    found: dict[str, Attempt] = {}
    for attempt in attempts:
        found.setdefault(attempt.id, attempt)
    return found


SPANS: Final = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
"""The periods for which failed deliveries can be replayed on the board."""
