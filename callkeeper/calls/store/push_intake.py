"""Records push events. The receiver answers 202 only after this has succeeded.

A push is only a hint. One script writes it to the event log, leaves a note on the call and asks for a look at the
institution's queue; a push alone causes nothing else. Events that arrive at the same moment share one script: either
all of them are recorded, or none is confirmed.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.notes import Pushed, encode_note
from callkeeper.calls.phone_number import digits_of
from callkeeper.calls.settlement import CONFIRM_LOOKS_S
from callkeeper.calls.store.keys import KEYS, Keys, Retention
from callkeeper.calls.store.script_runner import Batching, Scripts
from callkeeper.service.endpoints import canonical_id, spelling_of
from callkeeper.service.push_event import PushEvent

CALL_START = "CallStart"
CALL_END = "CallEnd"

DOCTOR = "doctor"
"""The institution key of the doctor's own samples. They prove that our header works, not that the service sends it."""

WITHIN_S = 1.2
"""How long an attempt to record an event may take, in seconds. The sender waits for it."""

MOST_TOGETHER = 64
"""Events in one script. Redis does nothing else in that time, some two milliseconds."""

AT_ONCE = 3
"""Scripts in flight at once: while Redis runs one, the requests and answers of the others are on their way."""

_ENCODER = msgspec.json.Encoder()


class EventEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the event log. Phone numbers are reduced to their last four digits."""

    id: str
    type: str
    institution_key: str
    voice_id: str | None = None
    alternate_id: str | None = None
    phone_last4: str | None = None
    is_test: bool = False


class PushArguments(NamedTuple):
    """What the script takes for each event, in its order and named as there; ``push.lua`` says what they are."""

    event: bytes
    member: str
    also: str
    alias: str
    alias_of: str
    led: str
    inst: str
    id: str
    note: bytes
    sample: str
    is_sample: str


class Intake:
    """Writes push events to Redis. Concurrent ones share a script."""

    def __init__(
        self,
        redis: Redis,
        *,
        keys: Keys = KEYS,
        retention: Retention | None = None,
        now_ms: Callable[[], int] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        within_s: float = WITHIN_S,
        figures: Figures | None = None,
    ) -> None:
        """Set up. ``within_s`` is how long Redis may take to confirm an event; ``clock`` is this process's own."""
        self._redis = redis
        self._within_s = within_s
        self._keys = keys
        self._scripts = Scripts(redis, figures, keys=self._keys, now_ms=now_ms)
        self._retention = Retention() if retention is None else retention
        self._clock = clock
        self._events = Batching(self._record, most=MOST_TOGETHER, at_once=AT_ONCE)

    async def record(self, event: PushEvent, *, event_id: str) -> bool:
        """Record an event; return whether the caller must enqueue a job. When this returns, Redis has confirmed it.

        Samples (``IsTest``) and unknown types are logged and affect no call.

        Raises:
            redis.exceptions.RedisError, TimeoutError: Not confirmed; the event may or may not have been recorded.

        Spec: Events.
        """
        return await self._events.ask((event, event_id), within_s=self._within_s)

    async def _record(self, events: Sequence[tuple[PushEvent, str]]) -> list[bool]:
        """Record events with one script. Only the first answer asks for a job, for all of them."""
        at = self._clock()
        answer = await self._scripts.call(
            "push",
            events_kept=self._retention.events,
            events_kept_s=self._retention.calls_s,
            unknown_wait_ms=int(CONFIRM_LOOKS_S[0] * 1000),
            rest=[part for event, event_id in events for part in self._arguments(event, event_id, at)],
            replicated=True,
        )
        return [answer[0] == 1, *[False] * (len(events) - 1)]

    def _arguments(self, event: PushEvent, event_id: str, at: datetime) -> PushArguments:
        institution = event.institution_key
        spelled = event.voice_id or event.alternate_voice_id or ""
        voice_id, alternate_id = canonical_id(spelled), canonical_id(event.alternate_voice_id or spelled)
        touches = event.type in {CALL_START, CALL_END} and event.is_test is not True
        alternate = alternate_id if alternate_id != voice_id else None
        note = Pushed(
            has_ended=event.type == CALL_END,
            event_id=event_id,
            received_at=at,
            alternate_id=alternate,
            phone_number=event.phone_number or None,
            spelled=spelling_of(spelled),
        )
        member = CallId(institution, voice_id).member
        return PushArguments(
            event=_ENCODER.encode(_entry(event, event_id)),
            member=member,
            also=CallId(institution, alternate_id).member if alternate else member,
            alias=self._keys.alias(institution, alternate_id),
            alias_of=voice_id if alternate else "",
            led="" if event.voice_id else "1",
            inst=institution_member(institution),
            id=note.note_id,
            note=encode_note(note) if touches else b"",
            sample=self._keys.sample(institution),
            is_sample="1" if event.is_test else "",
        )

    async def clear_wake(self) -> None:
        """Release the right to enqueue a job, after enqueueing has failed."""
        await self._redis.delete(self._keys.wake)


def _entry(event: PushEvent, event_id: str) -> EventEntry:
    return EventEntry(
        id=event_id,
        type=event.type[:40],
        institution_key=event.institution_key,
        voice_id=event.voice_id,
        alternate_id=event.alternate_voice_id,
        phone_last4=digits_of(event.phone_number or "")[-4:] or None,
        is_test=event.is_test is True,
    )
