"""Records push events: what the receiver must have written down before it answers 202.

A push is a hint. Recording one writes the event log, leaves a note on the call and asks for a look at the institution's
queue, all in one script; nothing else ever follows from a push alone. Events that come in the same moment share a script:
they are recorded together or none of them is confirmed.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
from redis.asyncio import Redis

from calls.closing import CONFIRM_LOOKS_S
from calls.metrics.counting import Figures
from calls.notes import Pushed, encode_note
from calls.store.keys import CallId, Keys, Retention, institution_member
from calls.store.scripts import Arg, Batching, Scripts
from reseller.push_event import PushEvent

CALL_START = "CallStart"
CALL_END = "CallEnd"
WITHIN_S = 1.2
"""How long an attempt to record an event may take: the sender is waiting."""

MOST_TOGETHER = 64
"""Events in one script: Redis does nothing else meanwhile, some two milliseconds."""

ABREAST = 3
"""Scripts on their way at once: while Redis records the events of one, those of others are read and answered."""

_ENCODER = msgspec.json.Encoder()


class Receipt(msgspec.Struct, frozen=True):
    """What recording an event asks of the caller: whether to enqueue an ``advance`` job."""

    wake: bool


class EventEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the event log. Phone numbers appear as their last four digits only."""

    id: str
    type: str
    institution_key: str
    voice_id: str | None = None
    alternate_id: str | None = None
    phone_last4: str | None = None
    is_test: bool = False


class Intake:
    """Writes push events to Redis, concurrent ones in one script."""

    def __init__(
        self,
        redis: "Redis",
        *,
        keys: Keys | None = None,
        retention: Retention | None = None,
        now_ms: Callable[[], int] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        within_s: float = WITHIN_S,
        figures: Figures | None = None,
    ) -> None:
        """Prepare to record.

        Args:
            redis: Where.
            keys: Under which names.
            retention: How much of the event log stays.
            now_ms: Replaces Redis's clock.
            clock: This process's own.
            within_s: How long Redis may take to confirm an event.
            figures: Counts events that no replica confirmed.
        """
        self._redis = redis
        self._within_s = within_s
        self._keys = Keys() if keys is None else keys
        self._scripts = Scripts(redis, figures)
        self._retention = Retention() if retention is None else retention
        self._now_ms = now_ms
        self._clock = clock
        self._events = Batching(self._record, most=MOST_TOGETHER, abreast=ABREAST)

    async def record(self, event: PushEvent, *, event_id: str) -> Receipt:
        """Write an event down; when this returns, Redis has confirmed it.

        Samples (``IsTest``) and unknown types are logged and touch no call.

        Raises:
            redis.exceptions.RedisError, TimeoutError: Nothing is confirmed; the event may or may not have been recorded.

        Spec: Events.
        """
        return await self._events.ask((event, event_id), within_s=self._within_s)

    async def _record(self, events: Sequence[tuple[PushEvent, str]]) -> list[Receipt]:
        """Write events down in one script; the first is told to wake somebody for all of them."""
        keys, retention = self._keys, self._retention
        now_ms = self._now_ms() if self._now_ms else None
        at = self._clock()
        args: list[Arg] = [now_ms if now_ms is not None else "", keys.prefix, retention.events, retention.calls_s]
        args.append(int(CONFIRM_LOOKS_S[0] * 1000))
        for event, event_id in events:
            args += self._told(event, event_id, at)
        named = [keys.due, keys.events, keys.wakeup, keys.wake, keys.queue]
        answer = await self._scripts.call("push", named, args, replicated=True)
        return [Receipt(wake=answer[0] == 1), *[Receipt(wake=False)] * (len(events) - 1)]

    def _told(self, event: PushEvent, event_id: str, at: datetime) -> Sequence[Arg]:
        """Return what the script is told of one event."""
        institution = event.institution_key
        voice_id = event.voice_id or event.alternate_voice_id or ""
        touches = event.type in {CALL_START, CALL_END} and event.is_test is not True
        alternate = event.alternate_voice_id if event.alternate_voice_id != voice_id else None
        note = Pushed(
            has_ended=event.type == CALL_END,
            event_id=event_id,
            received_at=at,
            alternate_id=alternate,
            phone_number=event.phone_number or None,
        )
        return (
            _ENCODER.encode(_entry(event, event_id)),
            CallId(institution, voice_id).member if touches else "",
            self._keys.alias(institution, event.alternate_voice_id or voice_id),
            voice_id if alternate else "",
            "" if event.voice_id else "1",
            institution_member(institution),
            note.note_id,
            encode_note(note),
            self._keys.sample(institution),
            "1" if event.is_test else "",
        )

    async def clear_wake(self) -> None:
        """Give the right to enqueue back, after enqueueing failed."""
        await self._redis.delete(self._keys.wake)


def _entry(event: PushEvent, event_id: str) -> EventEntry:
    return EventEntry(
        id=event_id,
        type=event.type[:40],
        institution_key=event.institution_key,
        voice_id=event.voice_id,
        alternate_id=event.alternate_voice_id,
        phone_last4=(event.phone_number or "")[-4:] or None,
        is_test=event.is_test is True,
    )
