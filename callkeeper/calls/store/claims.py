"""The calls in Redis: claims with lease and fencing nonce, fenced writes, and due times.

``claim`` returns a lease and a nonce; ``keep`` and ``save`` succeed only with that nonce. Others write to the inbox.
Every script is idempotent, because the Redis client repeats one whose answer was lost.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf

from msgspec.structs import replace
from redis.asyncio import Redis
from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import (
    LEASE,
    ClaimAnswer,
    ClaimedItem,
    Jump,
    Lease,
    Placement,
    RefusedBy,
    WriteRefused,
    instant,
    parse_claimed,
    share_lateness,
)
from callkeeper.calls.item_names import CallId, institution_part, owner_of, parse_member
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.snapshot import FigureReader
from callkeeper.calls.notes import Merged, encode_note
from callkeeper.calls.pause import Pauses, PauseScope, parse_pauses
from callkeeper.calls.record import Call
from callkeeper.calls.record_storage import NEWER, SCHEMA, encode_call, readable_call, without_caller, without_unknown
from callkeeper.calls.store.breakers import BreakerBox
from callkeeper.calls.store.earlier_calls import EarlierCalls
from callkeeper.calls.store.epoch_watch import EpochWatch
from callkeeper.calls.store.inbox import Inbox
from callkeeper.calls.store.keys import KEPT_S, KEYS, REMEMBERED_S, Keys
from callkeeper.calls.store.last_errors import ErrorNotes
from callkeeper.calls.store.last_listing import LookBackAllowance
from callkeeper.calls.store.pausing import PauseMemory
from callkeeper.calls.store.queries import follow_tombstones
from callkeeper.calls.store.request_budget import RequestBudget
from callkeeper.calls.trail import Entry, encode_entry
from callkeeper.service.config import MAX_RETRY_AFTER_S

FARTHEST_MS = 120_000
"""A due time farther ahead than this was written before the clock went back."""

LONGEST_WAIT_MS = 60_000
"""A live member is claimed this often even if its next step is later."""

MOST_OF_ONE = 64
"""Calls of one institution that a worker handles at a time, if there are several: slow ones must not delay others."""

TIDIED_AT_ONCE = 500
"""How many settled members one script looks at when tidying. Redis does nothing else in that time, some milliseconds."""

_MERGE_REFUSED = {0: RefusedBy.LEASE, 3: RefusedBy.NOTES}
_DUE_AT_ONCE = 2
"""The answer of ``save`` if unread notes wait."""

_PAUSE_ASKED = {None: "", PauseScope.EFFECTS: "any", PauseScope.ALL: "all"}

LEFT_SHORTEST_MS, LEFT_LONGEST_MS = 500, 5000
"""How long a member waits that a newer release wrote: half a second at first, then longer each time, in milliseconds."""

LEFT_PATIENCE_MS = 60_000
"""If no newer worker has saved such a member for so long, it needs a person."""

SOME = 20
"""How many calls the service is asked about to learn whether it answers again."""


class Store(Inbox):
    """Claims and writes for calls and institutions."""

    def __init__(
        self,
        redis: Redis,
        *,
        keys: Keys = KEYS,
        now_ms: Callable[[], int] | None = None,
        kept_s: int = KEPT_S,
        lease: Lease = LEASE,
        outbox: Keys | None = None,
        archive: Keys | None = None,
        due_in: Callable[[float], None] = lambda _: None,
        monotonic: Callable[[], float] = time.monotonic,
        figures: Figures | None = None,
        unreadable: Callable[[str, str], None] = lambda _what, _about: None,
        rps: float | None = None,
        limits: Mapping[str, float] | None = None,
        number_key: bytes | None = None,
        longest_pause_s: float = MAX_RETRY_AFTER_S,
    ) -> None:
        """Set up.

        Args:
            redis: Returns bytes.
            keys: Where calls are kept.
            now_ms: Replaces Redis's clock, in tests.
            kept_s: How long a settled call can be read, in seconds.
            lease: How long a claim lasts. Requests made under a claim must keep to its deadline.
            outbox: Where the delivery of outcomes is kept. A new trail entry makes its call due there.
            archive: Where calls wait to be archived. Saving a settled call makes it due there.
            due_in: Called after every claim and save with the seconds until something is due that nobody holds; infinite
                if nothing is.
            monotonic: This process's own clock, in seconds. It is not affected when a new Redis has another time.
            figures: Counts statements and effects that no replica of Redis confirmed.
            unreadable: Called with the kind of a stored value that cannot be read, and its institution.
            rps: Requests per second that all workers together may send; None: learned.
            limits: The same for single institutions.
            number_key: The key of the hash that hides phone numbers; None: calls are not found by number.
            longest_pause_s: The longest pause between requests that is kept to, in seconds.
        """
        super().__init__(redis, keys=keys, now_ms=now_ms, kept_s=kept_s, figures=figures)
        self._outbox = outbox.prefix if outbox else ""
        self._archive = archive.prefix if archive else ""
        self.lease = lease
        self.pauses = Pauses()
        self._memory = PauseMemory()
        self.jobs_waiting = 0
        self.next_due_s = 0.0
        """Seconds until the next member is due, as of the last claim; infinite if none is."""
        self._due_in = due_in
        self.monotonic = monotonic
        self.unreadable = unreadable
        self.schema = SCHEMA
        self._claimer, self._claims = secrets.token_hex(8), 0
        self.errors = ErrorNotes(redis, self.keys, now=self._scripts.now, monotonic=monotonic)
        self.breakers = BreakerBox(self._scripts, self.keys, self._claimer, longest_pause_s=longest_pause_s)
        self.budget = RequestBudget(
            self._scripts,
            redis,
            self.keys,
            monotonic=monotonic,
            rps=rps,
            limits={} if limits is None else limits,
            figures=figures,
        )
        self._epochs = EpochWatch()
        self.look_backs = LookBackAllowance(self._redis, self.keys)
        self.processes = FigureReader(redis, keys=self.keys).processes
        self.earlier_calls = EarlierCalls(redis, self.keys, number_key=number_key)

    @property
    def jumps(self) -> Sequence[Jump]:
        """Return how Redis's clock has jumped ahead: records that were saved before are shifted (`catch_up`)."""
        return self._epochs.jumps.found

    async def claim(
        self,
        limit: int,
        *,
        shift_starts: bool = False,
        is_probe: bool = False,
        holds: Mapping[str, int] | None = None,
        free: int | None = None,
    ) -> list[ClaimedItem]:
        """Claim up to ``limit`` due members: half of them those that are due longest, half those that fell due last.

        Pauses are read in the same round trip.

        ``shift_starts``: a new due time may ask for a job again. ``is_probe``: claim although the account's breaker is
        open, to test it. ``holds``: how many calls of each institution are in flight here, if that is limited: to
        `MOST_OF_ONE`, and to how many of the ``free`` places are left.
        """
        asked_at_s = self.monotonic()
        self._claims += 1
        last_epoch, last_epoch_ms = self._epochs.last(asked_at_s)
        stored = await self._scripts.call(
            "claim",
            claimer_key=self.keys.claimer(self._claimer),
            limit=limit,
            lease_ms=self.lease.ms,
            name=self._claimer,
            farthest_ms=FARTHEST_MS,
            shift_starts="1" if shift_starts else "",
            is_probe="1" if is_probe else "",
            claim_number=self._claims,
            number_kept_s=REMEMBERED_S,
            last_epoch=last_epoch,
            last_epoch_ms=last_epoch_ms,
            most_of_one="" if holds is None else MOST_OF_ONE,
            free="" if holds is None or free is None else free,
            schema=self.schema,
            last_born=self._memory.born,
            last_claimed_ms=self._memory.claimed_ms,
            remembered=self._memory.remembered,
            rest=[part for key, n in (holds or {}).items() for part in (institution_part(key), n)],
        )
        answer = ClaimAnswer.of(stored)
        now, knew_other_data = instant(answer.now), self._memory.knew_other_data(answer.born)
        epoch = self._epochs.epoch_of(answer, asked_at_s, self.monotonic(), knew_other_data=knew_other_data)
        self.breakers.remember(answer.breakers, answer.breakers_of_kinds)
        self.pauses = parse_pauses(zip(answer.pauses[::2], answer.pauses[1::2], strict=True))
        self._memory.remember(answer.born, self.pauses, answer.claimed)
        for key in self.pauses.unreadable:
            self.unreadable("pause", key)
        self.next_due_s = answer.next_due_in / 1000 if answer.next_due_in >= 0 else inf
        self._due_in(self.next_due_s)
        self.jobs_waiting = answer.jobs_waiting
        items = []
        for row in answer.rows:
            try:
                items.append(parse_claimed(row, owner_of(row[0].decode()), epoch, now, self.pauses, live=answer.live))
            except UnicodeDecodeError:
                await self._remove(row[0])
        share_lateness(items)
        return items

    async def some_calls(self, institution_key: str | None = None) -> list[CallId]:
        """Return some calls to ask the service about: live or waiting ones of an institution, or of any.

        They are others each time, because some may fail always.
        """
        keys, pipe = self.keys, self._redis.pipeline(transaction=False)
        if institution_key is None:
            stored = await pipe.zrandmember(keys.live, SOME).zrange(keys.due, 0, SOME).execute()
        else:
            pipe.hrandfield(keys.opened(institution_key), SOME).zrandmember(keys.parked(institution_key), SOME)
            listed, parked = await pipe.execute()
            voice_ids = [voice_id.decode(errors="replace") for voice_id in listed]
            stored = [[CallId(institution_key, voice_id).member.encode() for voice_id in voice_ids], parked]
        owners = (owner_of(member.decode(errors="replace")) for member in chain(*stored))
        return [owner for owner in owners if isinstance(owner, CallId)]

    async def _remove(self, member: bytes) -> None:
        """Remove a member whose name is not text, so we cannot have written it."""
        self.unreadable("member", "")
        await self._redis.pipeline().zrem(self.keys.due, member).delete(self.keys.item("").encode() + member).execute()

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
        """Write, keep the claim and renew the lease.

        Args:
            item: The claim.
            record: The record to write; None leaves it. The folded notes are removed with it.
            entries: Entries for the trail.
            book_check: The number of the check that is booked, 1 to 20.
            only_if_no_notes: Refuse while there are notes that are not folded.
            unless_paused: Refuse under a pause of at least this scope.
            replicated: Wait until a replica, if there is one, has the write.

        Raises:
            WriteRefused: The lease is gone, an unread note waits, other checks were booked, or there is a pause.
        """
        item.writes += 1
        folded = item.note_pairs if record is not None else []
        answer = await self._scripts.call(
            "keep",
            member=item.member,
            nonce=item.nonce,
            write=item.writes,
            lease_ms=self.lease.ms,
            record=record or "",
            checks_expected="" if book_check is None else item.checks,
            checks_then="" if book_check is None else book_check,
            refuse_notes="1" if only_if_no_notes else "",
            refuse_pause=_PAUSE_ASKED[unless_paused],
            institution=item.institution_key,
            outbox=self._outbox,
            note_count=len(folded) // 2,
            rest=[*folded, *map(encode_entry, entries)],
            replicated=replicated,
        )
        if answer[0] != 1:
            raise WriteRefused(item.member, RefusedBy(answer[1].decode()))
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
        """Write and release the claim. ``record`` None leaves what is stored, ``b"-"`` deletes the member.

        Raises:
            WriteRefused: The lease is gone; nothing was written.
        """
        folded = item.note_pairs if record is not None else []
        due = placement.due_in_ms
        answer = await self._scripts.call(
            "save",
            opened_key=self.keys.opened(item.institution_key),
            member=item.member,
            nonce=item.nonce,
            record=record or "",
            due_ms="" if due is None else max(0, min(due, LONGEST_WAIT_MS)),
            least_checks=checks,
            failures=failures,
            list=placement.listed,
            kept_s=self._kept_s,
            attention=placement.attention,
            voice_id=item.owner.voice_id if isinstance(item.owner, CallId) else "",
            outbox=self._outbox,
            entry=placement.entry,
            archive=self._archive,
            note_count=len(folded) // 2,
            rest=[*folded, *map(encode_entry, entries)],
        )
        if answer == 0:
            raise WriteRefused(item.member, RefusedBy.LEASE)
        if answer == _DUE_AT_ONCE:
            self._due_in(0.0)
        elif due is not None:
            self._due_in(due / 1000)

    async def leave(self, item: ClaimedItem) -> None:
        """Release a member that a newer release wrote, or left a note on, and leave what is stored as it is.

        A worker with a higher schema number claims it with its next claim, before others. If another worker holds it, do
        nothing.
        """
        self.unreadable("newer", item.institution_key)
        with suppress(RedisError):  # then the end of the lease makes it due
            await self._scripts.call(
                "leave",
                member=item.member,
                nonce=item.nonce,
                shortest_ms=LEFT_SHORTEST_MS,
                longest_ms=LEFT_LONGEST_MS,
                patience_ms=LEFT_PATIENCE_MS,
                reason=NEWER,
                schema=self.schema,
            )

    async def tidy(self) -> None:
        """Remove from the lists what has expired, and let records expire that were settled under a longer retention."""
        while int(await self._scripts.call("tidy", kept_s=self._kept_s, most=TIDIED_AT_ONCE)) == TIDIED_AT_ONCE:
            pass

    async def merge(self, item: ClaimedItem, call: Call, other: CallId) -> bool:
        """Turn a claimed record into a tombstone that points to another record, and leave its contents there as a note.

        Its checks are added to the other's. If the queue lists its id after all, it is a record again (``reopen``), and
        knows which of its checks the other counts.

        Returns:
            Whether it was merged. False if the other was merged into this one before: the chain must have one end.

        Raises:
            WriteRefused: The lease is gone, or the queue has just listed the record that would end; nothing was written.
        """
        keys, call_id = self.keys, CallId(call.institution_key, call.voice_id)
        # Restored from the tombstone, it is certainly a call of its own: it follows no assign to the other id again.
        ended = replace(
            call,
            plan=replace(call.plan, checks_moved=call.plan.checks_used),
            names=replace(call.names, assigned_id=None, is_confirmed=True),
        )
        answer = await self._scripts.call(
            "merge",
            opened_key=keys.opened(call_id.institution_key),
            alias_key=keys.alias(call_id.institution_key, call_id.voice_id),
            member=call_id.member,
            nonce=item.nonce,
            other_member=other.member,
            voice_id=call_id.voice_id,
            own_checks=call.plan.checks_used,
            note=encode_note(Merged(call=without_unknown(call))),
            kept_s=self._kept_s,
            checks_added=max(0, call.plan.checks_used - call.plan.checks_moved),
            record=encode_call(ended),
            erased_record=encode_call(without_caller(ended)),
        )
        if answer in _MERGE_REFUSED:
            raise WriteRefused(item.member, _MERGE_REFUSED[answer])
        return bool(answer == 1)

    async def end_of(self, call_id: CallId) -> CallId:
        """Return the call whose record a record was merged into; the call itself if it was not."""
        end = parse_member(await follow_tombstones(self._redis, self.keys, call_id.member))
        return end if isinstance(end, CallId) else call_id

    async def record(self, call_id: CallId) -> Call | None:
        """Return a record that was not merged into another; None if there is none that this release can read."""
        stored = await self._redis.hget(self.keys.item(call_id.member), "rec")
        return None if stored is None else readable_call(stored)
