"""What anybody may tell a call or an institution: notes in its inbox, which its mover folds.

Whoever leaves a note makes its member due. A reject of a person's voice is told to the person's other calls (Spec:
States, row reject-voice: "all prior manual authentications of that member are un-enrolled").
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis

from calls.evidence import is_enrolled, is_rejected
from calls.lease import instant
from calls.metrics.counting import Figures
from calls.notes import MOST_WAITING, InboxFull, MemberRejected, Note, Statement, encode_note
from calls.record import Call
from calls.store.keys import KEPT_S, REMEMBERED_S, CallId, Keys, institution_member
from calls.store.scripts import Scripts

MOST_TOLD = 100
"""Calls of one member that are told of a reject, those enrolled last first: forged statements must not buy many reads."""

Tell = Callable[[CallId, MemberRejected], Awaitable[object]]


class Members:
    """Which calls of a person were enrolled, in Redis."""

    def __init__(self, redis: Any, keys: Keys, *, kept_s: int, tell: Tell) -> None:
        """Prepare.

        Args:
            redis: Answers in bytes.
            keys: Where calls are kept.
            kept_s: For how long a settled call can be read.
            tell: Leaves a note on a call, also on a settled one.
        """
        self._redis = redis
        self._keys = keys
        self._kept_s = kept_s
        self._tell = tell

    async def follow(self, call_id: CallId, call: Call, now: datetime) -> Call:
        """Note an enroll down, or tell the person's other calls of a reject; return the record that says so.

        It is written after this was done: what a crash interrupts is done again, which changes nothing more.
        """
        person_id = call.person_id
        if person_id is None:
            return call
        place = self._keys.enrolled(call_id.institution_key, person_id)
        if is_enrolled(call) and call.enrolled_for != person_id:
            await self._redis.zadd(place, {call_id.voice_id: now.timestamp()})
            await self._redis.expire(place, self._kept_s)
            call = replace(call, enrolled_for=person_id)
        if is_rejected(call) and call.rejected_for != person_id:
            for voice_id in await self._redis.zrevrange(place, 0, MOST_TOLD - 1):
                other = CallId(call_id.institution_key, voice_id.decode())
                if other != call_id:
                    await self._tell(other, MemberRejected(rejected_at=now))
            call = replace(call, rejected_for=person_id)
        return call


_FULL = 2


class Ask(StrEnum):
    """How much of an institution's queue somebody wants looked at."""

    LOOK = "look"  # what started in the last seconds: a push came in
    WIDE = "wide"  # what started in the last minutes: a hint was not listed yet
    FULL = "full"  # everything


class Inbox:
    """Leaves notes. Times are Redis's; ``now_ms`` replaces them in tests."""

    def __init__(
        self,
        redis: "Redis",
        *,
        keys: Keys | None = None,
        now_ms: Callable[[], int] | None = None,
        kept_s: int = KEPT_S,
        figures: Figures | None = None,
    ) -> None:
        """Open the inboxes.

        Args:
            redis: Answers in bytes.
            keys: Where calls are kept.
            now_ms: Replaces Redis's clock.
            kept_s: For how long a settled call can be read.
            figures: Counts statements and effects that no replica of Redis confirmed.
        """
        self._redis: Any = redis  # its stubs cannot know that answers are bytes here
        self._scripts = Scripts(redis, figures)
        self._now_ms = now_ms
        self._kept_s = kept_s
        self.keys = Keys() if keys is None else keys
        self.members = Members(redis, self.keys, kept_s=kept_s, tell=partial(self.note, even_settled=True))

    def _now(self) -> int | str:
        return self._now_ms() if self._now_ms else ""

    async def now(self) -> datetime:
        """Return Redis's time, aware UTC."""
        if self._now_ms:
            return instant(self._now_ms())
        seconds, micros = await self._redis.time()
        return datetime.fromtimestamp(seconds + micros / 1e6, UTC)

    async def note(
        self, call_id: CallId, note: Note, *, even_settled: bool = False, wake: bool = False
    ) -> tuple[bool, bool]:
        """Tell a call something. Returns whether the note was taken, and whether the caller has to enqueue a job.

        A statement gets its number here. One with the wish of a statement that was received before changes nothing.

        Raises:
            InboxFull: Too many notes wait for a statement to be taken; nothing was written.
        """
        return await self._note(
            call_id.member,
            note.note_id,
            encode_note(note),
            even_settled=even_settled,
            wake=wake,
            wish=(note.wish or "") if isinstance(note, Statement) else None,
        )

    async def nudge(self, call_id: CallId) -> None:
        """Make a member due now, without telling it anything: what was given up is tried again."""
        await self._note(call_id.member, "nudge", b"", even_settled=True, wake=False)

    async def ask_to_look(self, institution_key: str, ask: Ask, *, wake: bool = False) -> bool:
        """Make an institution's queue be looked at now. Returns whether the caller has to enqueue a job.

        The asking is unlike any other, so that one that comes during a look leads to another look.
        """
        member = institution_member(institution_key)
        stamp = f'"{secrets.token_hex(4)}"'.encode()
        return (await self._note(member, ask, stamp, even_settled=True, wake=wake))[1]

    async def ask_whether_listed(self, call_id: CallId) -> None:
        """Have an institution's queue listed in full, and the call told if it is in there, although it was told before."""
        opened = self.keys.opened(call_id.institution_key)
        if await self._redis.hexists(opened, call_id.voice_id):
            await self._redis.hset(opened, call_id.voice_id, "")
            await self.ask_to_look(call_id.institution_key, Ask.FULL)

    async def keep_alias(self, institution_key: str, alternate_id: str) -> None:
        """Let an alternate id lead to its call for as long as a settled call is kept, and no longer."""
        await self._redis.expire(self.keys.alias(institution_key, alternate_id), self._kept_s)

    async def alias(self, call_id: CallId) -> str | None:
        """Return the voice id that a push named together with this alternate id."""
        voice_id = await self._redis.get(self.keys.alias(*call_id))
        return None if voice_id is None else voice_id.decode()

    async def enlist(self, institution_keys: Sequence[str]) -> None:
        """Make every institution due that is not in the due set: new ones, and those a lost Redis forgot."""
        members = {institution_member(key): key for key in institution_keys}
        if not members:
            return
        scores: list[float | None] = await self._redis.zmscore(self.keys.due, list(members))
        missing = [key for key, score in zip(members.values(), scores, strict=True) if score is None]
        await asyncio.gather(*(self.ask_to_look(key, Ask.FULL) for key in missing))

    async def note_look(self, institution_key: str, at: datetime) -> None:
        """Write down that a complete look at an institution's queue began at an instant of Redis's clock."""
        await self._redis.hset(self.keys.looked, institution_key, at.isoformat())

    async def looked_at(self, institution_key: str) -> datetime | None:
        """Return when the last complete look at an institution's queue began; None if that is not known."""
        stored = await self._redis.hget(self.keys.looked, institution_key)
        try:
            return None if stored is None else datetime.fromisoformat(stored.decode())
        except ValueError:
            return None

    async def _note(
        self, member: str, note_id: str, note: bytes, *, even_settled: bool, wake: bool, wish: str | None = None
    ) -> tuple[bool, bool]:
        """Leave a note; ``wish`` is that of a statement, empty if it has none, and None for any other note."""
        keys = self.keys
        answer = await self._scripts.call(
            "note",
            [
                *(keys.due, keys.wakeup, keys.wake, keys.queue),
                *(keys.statements, keys.statement(wish or "")),
            ],
            [
                *(self._now(), keys.prefix, member, note_id, note),
                *("1" if even_settled else "", "1" if wake else ""),
                "" if wish is None else "wish" if wish else "statement",
                *(REMEMBERED_S, MOST_WAITING),
            ],
            replicated=wish is not None,
        )
        if answer[0] == _FULL:
            raise InboxFull(f"{MOST_WAITING} statements and events about this call wait already; try again later")
        return answer[0] == 1, answer[1] == 1
