"""The calls in Redis: who may move one (claim, lease, nonce), what is written when, and when it is due again.

``claim`` gives a lease and a nonce; ``keep`` and ``save`` succeed only with that nonce. What others have to say meanwhile
goes to the inbox. Every script is idempotent, because the Redis client repeats one whose answer was lost. Times are
Redis's; ``now_ms`` replaces them in tests.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import inf

from redis.asyncio import Redis

from calls.lease import LEASE, ClaimedItem, Epoch, Lease, LeaseLost, Placement, instant, parse_claimed, pauses_of
from calls.metrics.counting import Figures
from calls.pause import Pauses, PauseScope
from calls.redis_restart import Jumps
from calls.store.breakers import BreakerBox
from calls.store.inbox import Inbox
from calls.store.keys import KEPT_S, REMEMBERED_S, CallId, Keys, institution_member, names_of
from calls.store.listings import LookBackAllowance
from calls.trail import Entry, encode_entry

FARTHEST_MS = 120_000
"""A due time farther away than this was written before the clock went back."""

LONGEST_WAIT_MS = 60_000
"""However late the next step is, a live member is looked at this often."""

MOST_OF_ONE = 64
"""Calls of one institution that a worker moves at a time, where there are several: slow answers for one hold up no other."""

_MERGE_REFUSED = {0: "lease", 3: "notes"}
_DUE_AT_ONCE = 2
"""How ``save`` answers where notes wait that nobody has read."""

_PAUSE_ASKED = {None: "", PauseScope.EFFECTS: "any", PauseScope.ALL: "all"}


class Store(Inbox):
    """Everything that moves calls and institutions on goes through here."""

    def __init__(
        self,
        redis: "Redis",
        *,
        keys: Keys | None = None,
        now_ms: Callable[[], int] | None = None,
        kept_s: int = KEPT_S,
        lease: Lease = LEASE,
        outbox: Keys | None = None,
        due_in: Callable[[float], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
        figures: Figures | None = None,
        unreadable: Callable[[str, str], None] = lambda _what, _about: None,
    ) -> None:
        """Open the store.

        Args:
            redis: Answers in bytes.
            keys: Where calls are kept.
            now_ms: Replaces Redis's clock.
            kept_s: For how long a settled call can be read.
            lease: How long a claim holds. Whoever claims here and sends requests must keep to its deadline.
            outbox: Where the sending of outcomes is kept; every new line of a trail makes its call due there.
            due_in: Told, with every claim and every save, in how many seconds something is due that nobody holds.
            monotonic: This process's own clock, in seconds: it goes on where a new Redis has another time.
            figures: Counts statements and effects that no replica of Redis confirmed.
            unreadable: Told what kind of stored value cannot be read, and of which institution.
        """
        super().__init__(redis, keys=keys, now_ms=now_ms, kept_s=kept_s, figures=figures)
        self._outbox = outbox.prefix if outbox else ""
        self.lease = lease
        self.pauses = Pauses()
        self.jobs_waiting = 0
        self.next_due_s = 0.0
        """In how many seconds, by the last claim, the next member is due; infinite if none is."""
        self._due_in = due_in
        self.monotonic = monotonic
        self.unreadable = unreadable
        self._claimer = secrets.token_hex(8)
        self._claims = 0
        self.breakers = BreakerBox(self._scripts, self.keys, self._now, self._claimer)
        self._changed_at_s: float | None = None
        self.jumps = Jumps()
        self._seen: tuple[str, int, float] | None = None  # epoch, its time in ms, our time just before
        self.look_backs = LookBackAllowance(redis, self.keys)

    async def claim(
        self,
        limit: int,
        *,
        shift_starts: bool = False,
        is_probe: bool = False,
        holds: Mapping[str, int] | None = None,
    ) -> list[ClaimedItem]:
        """Take up to ``limit`` due members, each with a lease and a nonce of its own; see what is paused, and what waits.

        Half of them have been due for longest, the others fell due last.

        Args:
            limit: How many.
            shift_starts: Whoever makes something due from now on may ask for a job again.
            is_probe: Claim although the account's breaker is open, to try whether it is over.
            holds: How many calls of each institution are in flight here, where that is limited (`MOST_OF_ONE`).
        """
        asked_at_s = self.monotonic()
        self._claims += 1
        seen_epoch, seen_ms, seen_at_s = self._seen or ("", 0, asked_at_s)
        answer = await self._scripts.call(
            "claim",
            [
                self.keys.due,
                self.keys.wake,
                self.keys.breakers,
                self.keys.pause,
                self.keys.epoch,
                self.keys.queue,
                self.keys.claimer(self._claimer),
                self.keys.token,
            ],
            [
                self._now(),
                self.keys.prefix,
                limit,
                self.lease.ms,
                self._claimer,
                FARTHEST_MS,
                "1" if shift_starts else "",
                "1" if is_probe else "",
                self._claims,
                REMEMBERED_S,
                seen_epoch,
                seen_ms + int((asked_at_s - seen_at_s) * 1000),
                "" if holds is None else MOST_OF_ONE,
                *(part for key, n in (holds or {}).items() for part in (institution_member(key)[2:], n)),
            ],
        )
        now, epoch_id = instant(int(answer[0])), answer[1].decode()
        if seen_epoch not in ("", epoch_id):
            self._changed_at_s = asked_at_s
        self._seen = (epoch_id, int(answer[0]), asked_at_s)
        self.jumps.see(now, asked_at_s, self.monotonic())
        since = instant(int(answer[2]))
        if self._changed_at_s is not None:
            # Redis's clock may jump ahead: effects wait for as long as they should by our clock too.
            since = max(since, now - timedelta(seconds=asked_at_s - self._changed_at_s))
        lost = None if answer[7] < 0 else timedelta(milliseconds=answer[7])
        epoch = Epoch(epoch_id, since, lost, was_seen_to_begin=self._changed_at_s is not None)
        self.breakers.see(answer[3])
        self.pauses = pauses_of(answer[4])
        for key in self.pauses.unreadable:
            self.unreadable("pause", key)
        self.next_due_s = answer[5] / 1000 if answer[5] >= 0 else inf
        if answer[5] >= 0:
            self._due_in(self.next_due_s)
        self.jobs_waiting = answer[6]
        items = []
        for row in answer[8:]:
            try:
                items.append(parse_claimed(row, epoch, now, self.pauses))
            except UnicodeDecodeError:
                await self._remove(row[0])
        return items

    async def _remove(self, member: bytes) -> None:
        """Remove a member whose name nobody can have written here: it is no text."""
        self.unreadable("member", "")
        item = self.keys.item("").encode() + member
        await self._redis.pipeline().zrem(self.keys.due, member).delete(item).execute()

    async def keep(
        self,
        item: ClaimedItem,
        record: bytes | None = None,
        *,
        entries: Sequence[Entry] = (),
        book_check: int | None = None,
        only_if_no_notes: bool = False,
        unless_paused: PauseScope | None = None,
        replicated: bool = False,
    ) -> None:
        """Write while holding, and renew the lease.

        Args:
            item: The claim.
            record: The record to write; None leaves it. Notes that were folded go with it.
            entries: Lines for the trail.
            book_check: The number of the check that is booked, 1 to 20.
            only_if_no_notes: Refuse while there are notes that nobody has folded.
            unless_paused: Refuse under a pause of at least this scope.
            replicated: Wait until a replica has it, where Redis has one.

        Raises:
            LeaseLost: The claim is gone, an unread note waits, another number of checks was booked, or there is a pause.
        """
        item.writes += 1
        folded = _pairs(item.notes) if record is not None else []
        answer = await self._scripts.call(
            "keep",
            [*self._item_keys(item.member), self.keys.changes, self.keys.pause],
            [
                self._now(),
                item.member,
                item.nonce,
                item.writes,
                self.lease.ms,
                record or "",
                "" if book_check is None else item.checks,
                "" if book_check is None else book_check,
                "1" if only_if_no_notes else "",
                _PAUSE_ASKED[unless_paused],
                names_of(item.member)[0],
                self._outbox,
                len(folded) // 2,
                *folded,
                *map(encode_entry, entries),
            ],
            replicated=replicated,
        )
        if answer[0] != 1:
            raise LeaseLost(item.member, answer[1].decode())
        if record is not None:
            item.notes = {}
        if book_check is not None:
            item.checks = book_check

    async def save(
        self,
        item: ClaimedItem,
        record: bytes | None,
        placement: Placement,
        *,
        entries: Sequence[Entry] = (),
        checks: int = 0,
        failures: int = 0,
    ) -> None:
        """Write and let go. ``record`` None leaves what is stored, ``b"-"`` forgets the member.

        Raises:
            LeaseLost: The claim is gone; nothing was written.
        """
        folded = _pairs(item.notes) if record is not None else []
        institution, voice_id = names_of(item.member)
        due = placement.due_in_ms
        answer = await self._scripts.call(
            "save",
            [
                *self._item_keys(item.member),
                self.keys.live,
                self.keys.settled,
                self.keys.attention,
                self.keys.opened(institution),
                self.keys.changes,
            ],
            [
                self._now(),
                item.member,
                item.nonce,
                record or "",
                "" if due is None else max(0, min(due, LONGEST_WAIT_MS)),
                checks,
                failures,
                placement.listed,
                self._kept_s,
                placement.attention,
                voice_id,
                self._outbox,
                len(folded) // 2,
                *folded,
                *map(encode_entry, entries),
            ],
        )
        if answer == 0:
            raise LeaseLost(item.member, "lease")
        if answer == _DUE_AT_ONCE:
            self._due_in(0.0)
        elif due is not None:
            self._due_in(due / 1000)

    async def tidy(self) -> int:
        """Take off the list of what needs a person whatever has expired; return how much that was."""
        return int(await self._scripts.call("tidy", [self.keys.attention], [self._now(), self.keys.prefix]))

    async def merge(self, item: ClaimedItem, call_id: CallId, other: CallId, note: bytes, *, checks: int) -> bool:
        """Make a held record a tombstone that forwards to another, which is told what this one knew.

        Args:
            item: The claim.
            call_id: The record that ends.
            other: The record that goes on.
            note: What the first one knew, encoded.
            checks: How many checks it counts; they are added to the other's.

        Returns:
            Whether that was done. Not where the other was merged into this one: two ids that name each other end in one.

        Raises:
            LeaseLost: The claim is gone, or the queue has just listed the record that would end; nothing was written.
        """
        keys, member = self.keys, call_id.member
        answer = await self._scripts.call(
            "merge",
            [
                keys.item(member),
                keys.inbox(member),
                keys.due,
                keys.trail(member),
                keys.live,
                keys.opened(call_id.institution_key),
                keys.alias(call_id.institution_key, call_id.voice_id),
            ],
            [
                self._now(),
                keys.prefix,
                member,
                item.nonce,
                other.member,
                call_id.voice_id,
                checks,
                note,
                self._kept_s,
            ],
        )
        if answer in _MERGE_REFUSED:
            raise LeaseLost(item.member, _MERGE_REFUSED[answer])
        return bool(answer == 1)

    async def enlist(self, institution_keys: Sequence[str]) -> None:
        """Make every institution due that is not in the due set, and count them as those that are acted for."""
        self.breakers.acted_for = frozenset(institution_keys)
        await super().enlist(institution_keys)

    def _item_keys(self, member: str) -> list[str]:
        return [self.keys.item(member), self.keys.inbox(member), self.keys.due, self.keys.trail(member)]


def _pairs(notes: dict[bytes, bytes]) -> list[bytes]:
    return [part for pair in notes.items() for part in pair]
