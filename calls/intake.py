"""Records push events: what the receiver must have written down before it answers 202.

A push is a hint. Recording one writes the event log, leaves a note on the call and asks for a look at the institution's
queue, all in one script; nothing else ever follows from a push alone.
"""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from redis.asyncio import Redis

from calls.keys import CallId, Keys, institution_member
from calls.notes import Pushed, encode_note
from calls.retention import Retention
from calls.scripts import Scripts
from reseller.push import PushEvent

CALL_START = "CallStart"
CALL_END = "CallEnd"
WITHIN_S = 1.2
"""How long an attempt to record an event may take: the sender is waiting."""

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
    """Writes push events to Redis, concurrent ones in one round trip."""

    def __init__(
        self,
        redis: "Redis",
        *,
        keys: Keys | None = None,
        retention: Retention | None = None,
        now_ms: Callable[[], int] | None = None,
        within_s: float = WITHIN_S,
    ) -> None:
        """Prepare to record.

        Args:
            redis: Where.
            keys: Under which names.
            retention: How much of the event log stays.
            now_ms: Replaces Redis's clock.
            within_s: How long Redis may take to confirm an event.
        """
        self._redis = redis
        self._within_s = within_s
        self._keys = keys or Keys()
        self._scripts = Scripts(redis)
        self._retention = retention or Retention()
        self._now_ms = now_ms

    async def record(self, event: PushEvent, *, event_id: str) -> Receipt:
        """Write an event down; when this returns, Redis has confirmed it.

        Samples (``IsTest``) and unknown types are logged and touch no call.

        Raises:
            redis.exceptions.RedisError, TimeoutError: Nothing is confirmed; the event may or may not have been recorded.

        Spec: Events.
        """
        keys = self._keys
        voice_id = event.voice_id or event.alternate_voice_id or ""
        touches = event.type in {CALL_START, CALL_END} and event.is_test is not True
        alternate = event.alternate_voice_id if event.alternate_voice_id != voice_id else None
        note = Pushed(
            has_ended=event.type == CALL_END,
            event_id=event_id,
            received_at=datetime.fromtimestamp(self._now_ms() / 1000, UTC) if self._now_ms else datetime.now(UTC),
            alternate_id=alternate,
            phone_number=event.phone_number or None,
        )
        answer = await self._scripts.call(
            "push",
            [
                keys.due,
                keys.events,
                keys.wake,
                keys.queue,
                keys.workers,
                keys.alias(event.institution_key, event.alternate_voice_id or voice_id),
                keys.sample(event.institution_key),
                keys.bell,
                keys.attended,
            ],
            [
                self._now_ms() if self._now_ms else "",
                keys.prefix,
                _ENCODER.encode(_entry(event, event_id)),
                CallId(event.institution_key, voice_id).member if touches else "",
                voice_id if touches and alternate else "",
                "1" if touches and not event.voice_id else "",
                institution_member(event.institution_key),
                note.note_id,
                encode_note(note),
                "1" if event.is_test else "",
                self._retention.events,
                self._retention.calls_s,
            ],
            within_s=self._within_s,
        )
        return Receipt(wake=answer[0] == 1)

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
