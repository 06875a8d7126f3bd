"""Sends outcomes to the webhook while a shift runs: at least once, in order for each call, without delaying calls.

Outcomes are derived from the trails. The outbox (``workers.outbox``) holds how far each call's outcomes were sent. A
circuit breaker that all workers share stops posts while the receiver is down. An outcome that was refused for a day
waits for a person, or for the call's next outcome.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from time import monotonic
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from redis.exceptions import RedisError

from callkeeper.calls.claimed_item import ClaimedItem, ListName, Placement, WriteRefused
from callkeeper.calls.effect_resolution import attention
from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.outcome_messages import TEST, TestMessage, message_id, message_of
from callkeeper.calls.outcomes_of_trails import CallOutcome, outcomes
from callkeeper.calls.record_storage import NewerRecord
from callkeeper.calls.store.breakers import ACCOUNT, RequestResult
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.delivery_log import NUDGE, REPLAY, SEND_TEST, Attempt, Cursor, DeliveryLog, test_id
from callkeeper.calls.store.last_errors import ANSWERED, ErrorArea
from callkeeper.calls.store.queries import Known, Lookup
from callkeeper.calls.stored_value import readable
from callkeeper.calls.traceback_filter import innermost_place
from callkeeper.service.tracing import SpanKind, span
from workers.claimed_call import FORGET, follow_member, follow_trace
from workers.outbox import Outbox
from workers.retry_schedule import OUTCOMES, STEPS
from workers.signed_webhooks import Answer, Posted, WebhookClient

IN_FLIGHT: Final = 16

ANNOUNCE_EVERY_S: Final = 30.0
MOST_REQUESTED: Final = 20
"""Replays of one call, or test messages, that are posted in one claim. More are dropped."""


@dataclass(slots=True)
class Deliveries(Outbox):
    """Claims and sends what is due while a shift runs. ``store`` works on the outbox's keys."""

    store: Store
    lookup: Lookup
    client: WebhookClient
    attempts: DeliveryLog
    log: Any
    figures: Figures = field(default_factory=Figures)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _announced_at_s: float = -inf

    def _room(self) -> int:
        return IN_FLIGHT - len(self._tasks)

    def _begin(self, claimed: Sequence[ClaimedItem]) -> None:
        for item in claimed:
            self._start(self._advance(item))

    async def close(self) -> None:
        await self.client.aclose()

    async def _before_claim(self) -> None:
        """Announce every half minute that outcomes are posted, and to which host."""
        if monotonic() - self._announced_at_s > ANNOUNCE_EVERY_S:
            await self.attempts.announce(self.client.place)
            self._announced_at_s = monotonic()

    async def _advance(self, item: ClaimedItem) -> None:
        with suppress(WriteRefused, RedisError):
            try:
                await self._deliver(item)
            except (WriteRefused, RedisError):
                raise
            except Exception as error:  # noqa: BLE001  (a fault in one call must not be silent, nor stop the others)
                await self._failed(item, error)

    async def _failed(self, item: ClaimedItem, error: Exception) -> None:
        """Try again later. After five failures in a row, only with the call's next outcome or when a person asks."""
        failures, where = item.failures + 1, innermost_place(error)
        placement = STEPS.placement(failures, f"outcomes not sent: {type(error).__name__} at {where}")
        is_parked = placement.due_in_ms is None
        self.log.error("outcomes_failed", error=type(error).__name__, where=where, failures=failures, parked=is_parked)
        if is_parked:
            self.figures.count(figure.OUTCOMES, "parked")
            placement = Placement(None, attention=placement.attention, listed="given up")
        await self.store.save(item, None, placement, failures=failures)

    async def _deliver(self, item: ClaimedItem) -> None:
        owner = parse_member(item.member)
        if owner == TEST:
            await self._send_tests(item)
            return
        if isinstance(owner, CallId):
            follow_member(*owner)
        cursor = self._cursor(item, owner.institution_key) if isinstance(owner, CallId) else Cursor()
        is_asked = bool(_requested(item, NUDGE) or _requested(item, REPLAY))
        wait_s = (cursor.retry_at - item.now).total_seconds() if cursor.retry_at is not None else 0.0
        if 0 < wait_s <= OUTCOMES.waits_s[-1] and not is_asked:  # a longer wait was set before the clock went back
            await self._let_go(item, cursor, wait_s)
            return  # before anything is read: thousands may wait for hours
        try:
            known = await self.lookup.known(*owner) if isinstance(owner, CallId) else None
        except NewerRecord:
            await self.store.leave(item)
            return
        if known is None or known.call_id != owner:
            await self.store.save(item, FORGET, Placement(None))
            return
        await self._send(item, known, cursor)

    async def _send_tests(self, item: ClaimedItem) -> None:
        """Post each test message that somebody asked for, once."""
        for name in _requested(item, SEND_TEST):
            message = TestMessage(timestamp=item.now)
            posted = await self.client.post(test_id(name), message)
            await self._write_down(Attempt(id=test_id(name), type=message.type, at=item.now), posted)
            await self.store.keep(item)
        await self.store.save(item, FORGET, Placement(None))

    async def _replay(self, item: ClaimedItem, known: Known, known_outcomes: list[CallOutcome]) -> None:
        """Post again what somebody asked for, once each. The results are in the delivery log."""
        for n in _requested(item, REPLAY):
            for outcome in [one for one in known_outcomes if n == str(one.n)]:
                posted = await self._post(item, known, outcome, is_replay=True)
                self.figures.count(figure.OUTCOMES, "replayed" if posted.answer is Answer.TAKEN else "not_replayed")
                await self.store.keep(item)

    async def _send(self, item: ClaimedItem, known: Known, cursor: Cursor) -> None:
        """Send a call's next outcomes in order. The first that is not accepted holds up those behind it."""
        follow_trace(known.call.trace)
        institution_key, voice_id = known.call_id
        is_first = known.call.trace is None
        with span(
            "deliver outcomes", SpanKind.CONSUMER, is_first=is_first, institution=institution_key, voice_id=voice_id
        ):
            await self._send_next(item, known, cursor)

    async def _send_next(self, item: ClaimedItem, known: Known, cursor: Cursor) -> None:
        if any(line.what == "unreadable" for line in known.trail):
            self.store.unreadable("trail", known.call_id.institution_key)
        known_outcomes = outcomes(known.trail)
        await self._replay(item, known, [outcome for outcome in known_outcomes if outcome.n < cursor.sent])
        for outcome in [one for one in known_outcomes if one.n >= cursor.sent]:
            posted = await self._post(item, known, outcome, attempt=cursor.attempts + 1)
            if posted.answer is not Answer.TAKEN:
                await self._put_off(item, cursor, outcome)
                return
            self.figures.count(figure.OUTCOMES, "delivered")
            self.log.info("outcome_delivered", type=outcome.type)
            cursor = Cursor(outcome.n + 1)
            await self.store.keep(item, msgspec.json.encode(cursor))
        # The record of a call that needs a person does not expire. A cursor that did would send everything again.
        listed: ListName = "settled" if known.call.is_settled and not attention(known.call) else ""
        await self.store.save(item, msgspec.json.encode(cursor), Placement(None, listed=listed))

    async def _post(
        self, item: ClaimedItem, known: Known, outcome: CallOutcome, *, attempt: int = 1, is_replay: bool = False
    ) -> Posted:
        """Post one outcome, report it to the breaker, and log the attempt."""
        at = await self.store.now()
        name, message = message_id(known.call_id, outcome), message_of(known.call, outcome)
        posted = await self.client.post(name, message)
        wait_s = None if is_replay or posted.answer is Answer.TAKEN else OUTCOMES.wait_s(attempt, item.now - outcome.at)
        line = Attempt(
            id=name,
            type=message.type,
            at=at,
            n=attempt,
            is_replay=is_replay,
            next_at=None if wait_s is None else item.now + timedelta(seconds=wait_s),
        )
        await self._write_down(line, posted)
        return posted

    async def _write_down(self, line: Attempt, posted: Posted) -> None:
        await self._report(posted)
        result = {"status": posted.status, "error": posted.error, "took_ms": posted.took_ms}
        line = replace(line, answer=posted.said, **result)
        with suppress(RedisError):  # a missing log line must not stop delivery
            await self.attempts.write(line)

    def _cursor(self, item: ClaimedItem, institution_key: str) -> Cursor:
        """Return how far the sending is. If that cannot be read, send everything again under the same ids."""
        cursor = readable(item.record, Cursor)
        if item.record and cursor is None:
            self.store.unreadable("cursor", institution_key)
        return cursor or Cursor()

    async def _put_off(self, item: ClaimedItem, cursor: Cursor, outcome: CallOutcome) -> None:
        """Try again later. After a day, only with the call's next outcome or when a person asks for it."""
        wait_s = OUTCOMES.wait_s(cursor.attempts + 1, item.now - outcome.at)
        cursor = replace(cursor, attempts=cursor.attempts + 1, failed_at=item.now, retry_at=None)
        if wait_s is not None:
            self.figures.count(figure.OUTCOMES, "put_off")
            self.log.warning("outcome_put_off", type=outcome.type, attempts=cursor.attempts)
            cursor = replace(cursor, retry_at=item.now + timedelta(seconds=wait_s))
            await self._let_go(item, cursor, wait_s)
            return
        self.figures.count(figure.OUTCOMES, "parked")
        self.log.error("outcome_parked", type=outcome.type, attempts=cursor.attempts)
        await self._let_go(
            item, cursor, None, attention=f"outcome {outcome.type} not delivered for a day", listed="given up"
        )

    async def _let_go(
        self, item: ClaimedItem, cursor: Cursor, wait_s: float | None, *, attention: str = "", listed: ListName = ""
    ) -> None:
        due_in_ms = None if wait_s is None else int(wait_s * 1000) + 1
        await self.store.save(
            item, msgspec.json.encode(cursor), Placement(due_in_ms, attention=attention, listed=listed)
        )

    async def _report(self, posted: Posted) -> None:
        """Report to the breaker. A receiver that answers is up, even if it refuses the message."""
        is_away = posted.answer is Answer.AWAY
        if posted.answer is not Answer.TAKEN:
            words = posted.error or f"{ANSWERED} {posted.status}"
            await self.store.errors.note(ErrorArea.OUTCOMES, ACCOUNT, words)
        if is_away and posted.retry_after_s > 0:
            await self.store.breakers.report(RequestResult.PAUSE, pause_s=posted.retry_after_s)
        elif is_away or self.store.breakers.has_failed(ACCOUNT):
            await self.store.breakers.report(RequestResult.FAILURE if is_away else RequestResult.ANSWER)


def _requested(item: ClaimedItem, kind: str) -> list[str]:
    """Return what people have requested of one kind, sorted by name."""
    names = (note.decode(errors="replace") for note in item.notes)
    return sorted(name.removeprefix(kind) for name in names if name.startswith(kind))[:MOST_REQUESTED]
