"""The inbox: notes to a call or an institution, which the holder of its lease folds into the record.

Leaving a note makes the member due. When a person's voice is rejected, the person's other calls get a note (Spec:
States, row reject-voice: "all prior manual authentications of that member are un-enrolled").
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial

from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId, institution_member, institution_part
from callkeeper.calls.member_evidence import enrolled_member, rejected_member
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.notes import MOST_WAITING, InboxFull, MemberRejected, Note, Statement, encode_note
from callkeeper.calls.record import Call
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import KEPT_S, KEYS, REMEMBERED_S, Keys
from callkeeper.calls.store.script_runner import Scripts, Unconfirmed

MOST_NOTED = 100
"""How many of a member's calls get that note, the last enrolled first. It limits what forged statements cost."""

JUST_REJECTED_S = 120
"""How long a person's reject is remembered, for an enroll that is recorded after it but was sent before it."""

LeaveNote = Callable[[CallId, MemberRejected], Awaitable[object]]


@dataclass(eq=False)
class Members:
    """Which calls of a person were enrolled or rejected, or in which the caller was established as the person, in Redis.

    ``kept_s``: how long a settled call can be read.
    """

    redis: RedisInBytes
    keys: Keys
    kept_s: int
    leave_note: LeaveNote
    """Leaves a note on a call, even on a settled one."""

    async def follow(self, call_id: CallId, call: Call, now: datetime) -> Call:
        """Store an enroll until it is taken back, or tell the person's other calls of a reject; return the updated record.

        Each writes its own key before it reads the other's, so of an enroll and a reject that are stored at the same
        time, one finds the other. The record is saved after this, so a crash in between makes it run again, which
        changes nothing.
        """
        key, ledger = call_id.institution_key, call.ledger
        enrolled, rejected = enrolled_member(call), rejected_member(call)
        if enrolled is not None and ledger.enrolled_for is None:
            await self.announce(call_id, enrolled, now)
            if await self.redis.exists(self.keys.rejected(key, enrolled)):
                await self.leave_note(call_id, MemberRejected(rejected_at=now))
            ledger = replace(ledger, enrolled_for=enrolled)
        if call.seen.unenrolled and ledger.enrolled_for is not None:
            await self.redis.zrem(self.keys.enrolled(key, ledger.enrolled_for), call_id.voice_id)
            ledger = replace(ledger, enrolled_for=None)
        if rejected is not None and ledger.rejected_for is None:
            await self.redis.set(self.keys.rejected(key, rejected), call_id.voice_id, ex=JUST_REJECTED_S)
            for voice_id in await self.redis.zrevrange(self.keys.enrolled(key, rejected), 0, MOST_NOTED - 1):
                other = CallId(key, voice_id.decode())
                if other != call_id:
                    await self.leave_note(other, MemberRejected(rejected_at=now))
            ledger = replace(ledger, rejected_for=rejected)
        return call if ledger is call.ledger else replace(call, ledger=ledger)

    async def announce(self, call_id: CallId, person_id: str, now: datetime) -> None:
        """Store an enroll that is about to be sent, or that is in force: a reject would take it back."""
        await self._store(self.keys.enrolled(call_id.institution_key, person_id), call_id, now)

    async def establish(self, call_id: CallId, person_id: str, now: datetime) -> None:
        """Store that the caller is established as a person, for calls beside this one: each writes before it reads."""
        await self._store(self.keys.established(call_id.institution_key, person_id), call_id, now)

    async def _store(self, place: str, call_id: CallId, now: datetime) -> None:
        """Store a call of a person for as long as settled calls can be read."""
        await self.redis.zadd(place, {call_id.voice_id: now.timestamp()})
        await self.redis.zremrangebyscore(place, "-inf", now.timestamp() - self.kept_s)
        await self.redis.expire(place, self.kept_s)

    async def enrolled_since(self, institution_key: str, person_id: str, since: datetime) -> list[str]:
        """Return the calls in which an enroll of a person was announced, or became known, after an instant.

        One that was announced may have failed: its record says that.
        """
        return await self._stored_since(self.keys.enrolled(institution_key, person_id), since)

    async def established_since(self, institution_key: str, person_id: str, since: datetime) -> list[str]:
        """Return the calls whose caller was established as a person after an instant."""
        return await self._stored_since(self.keys.established(institution_key, person_id), since)

    async def _stored_since(self, place: str, since: datetime) -> list[str]:
        return [one.decode() for one in await self.redis.zrangebyscore(place, f"({since.timestamp()}", "+inf")]


SEARCH_EVERY_MS = 4000
"""How often live calls that are in no schedule are searched for, by all workers together, in milliseconds."""

_FULL = 2


def _stamp() -> bytes:
    """Return a unique content for a request, so that one that comes during a claim is not taken for an earlier one."""
    return f'"{secrets.token_hex(4)}"'.encode()


class Ask(StrEnum):
    """How much of an institution's queue should be listed."""

    LOOK = "look"  # calls that started in the last seconds: a push came in
    WIDE = "wide"  # calls that started in the last minutes: a hint was not listed yet
    FULL = "full"  # all calls


class Inbox:
    """Leaves notes. Times are Redis's; ``now_ms`` replaces them in tests."""

    def __init__(
        self,
        redis: Redis,
        *,
        keys: Keys = KEYS,
        now_ms: Callable[[], int] | None = None,
        kept_s: int = KEPT_S,
        figures: Figures | None = None,
    ) -> None:
        self._redis = in_bytes(redis)
        self.keys = keys
        self._scripts = Scripts(redis, figures, keys=self.keys, now_ms=now_ms)
        self._now_ms = now_ms
        self._kept_s = kept_s
        self.members = Members(self._redis, self.keys, kept_s=kept_s, leave_note=partial(self.note, even_settled=True))

    async def now(self) -> datetime:
        """Return Redis's time, aware UTC."""
        seconds, micros = (self._now_ms() / 1000, 0) if self._now_ms else await self._redis.time()
        return datetime.fromtimestamp(seconds + micros / 1e6, UTC)

    async def note(
        self, call_id: CallId, note: Note, *, even_settled: bool = False, wake: bool = False
    ) -> tuple[bool, bool]:
        """Leave a note on a call. Return whether it was accepted, and whether the caller must enqueue a job.

        A statement gets its number here. A statement of an action that was received before changes nothing.

        Raises:
            InboxFull: Too many notes wait to accept a statement; nothing was written.
            Unconfirmed: A statement was written, and no replica of Redis confirmed it.
        """
        return await self._note(
            call_id.member,
            note.note_id,
            encode_note(note),
            even_settled=even_settled,
            wake=wake,
            action_id=(note.wish or "") if isinstance(note, Statement) else None,
        )

    async def ask(self, call_id: CallId, what: str) -> None:
        """Make a call due now, with a request. Its content is unique, so a request during a claim is not lost."""
        await self._note(call_id.member, what, _stamp(), even_settled=True, wake=False)

    async def request_listing(self, institution_key: str, ask: Ask) -> None:
        """Make an institution's queue due for listing now.

        The note's content is unique, so a request during a look leads to another look.
        """
        await self._note(institution_member(institution_key), ask, _stamp(), even_settled=True, wake=False)

    async def ask_whether_listed(self, call_id: CallId) -> None:
        """Ask for a full listing of a queue, and for a note to the call if it is listed, even if it got one before."""
        opened = self.keys.opened(call_id.institution_key)
        if await self._redis.hexists(opened, call_id.voice_id):
            await self._redis.hset(opened, call_id.voice_id, "")
            await self.request_listing(call_id.institution_key, Ask.FULL)

    async def keep_alias(self, institution_key: str, alternate_id: str) -> None:
        """Keep the mapping from an alternate id to its call for as long as a settled call is kept."""
        await self._redis.expire(self.keys.alias(institution_key, alternate_id), self._kept_s)

    async def alias(self, call_id: CallId) -> str | None:
        """Return the voice id that a push gave together with this alternate id."""
        voice_id = await self._redis.get(self.keys.alias(*call_id))
        return None if voice_id is None else voice_id.decode()

    async def enlist(self, institution_keys: Sequence[str]) -> None:
        """Make due what is in no schedule: new institutions, what a lost Redis forgot, calls that were parked.

        Call it every few seconds: nothing else finds calls whose institution's breaker was forgotten.
        """
        await self._scripts.call(
            "enlist",
            note_id=Ask.FULL,
            note=_stamp(),
            search_every_ms=SEARCH_EVERY_MS,
            rest=list(map(institution_part, institution_keys)),
        )

    async def _note(
        self, member: str, note_id: str, note: bytes, *, even_settled: bool, wake: bool, action_id: str | None = None
    ) -> tuple[bool, bool]:
        """Leave a note. ``action_id`` is the action of a statement, empty if it has none; None for any other note."""
        try:
            answer = await self._scripts.call(
                "note",
                statement_key=self.keys.statement(action_id or ""),
                member=member,
                note_id=note_id,
                note=note,
                even_settled="1" if even_settled else "",
                wakes="1" if wake else "",
                statement_kind="" if action_id is None else "wish" if action_id else "statement",
                mark_kept_s=REMEMBERED_S,
                most=MOST_WAITING,
                confirmed=action_id is not None,
            )
        except Unconfirmed as error:
            [answer] = error.args
            if answer[0] == 1:
                raise
        if answer[0] == _FULL:
            raise InboxFull(f"{MOST_WAITING} statements and events about this call wait already; try again later")
        return answer[0] == 1, answer[1] == 1
