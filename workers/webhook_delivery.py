"""Sends outcomes out, beside the calls of a shift: at least once, in order for each call, never holding a call up.

What is to be sent stands in the trails; here is kept how far each was sent, under keys like those of calls (claim, lease,
nonce, due time), so that two workers never send for one call. A breaker of its own, shared by all workers, leaves a receiver
alone that is away. What a receiver did not take for a day waits for a person, and for the call's next outcome.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from redis.exceptions import RedisError

from calls.lease import ClaimedItem, LeaseLost, Placement
from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures
from calls.outcomes import CallOutcome, outcomes
from calls.store.breakers import ACCOUNT, Heard
from calls.store.keys import CallId, parse_member
from calls.store.queries import Known, Lookup
from calls.store.store import Store
from calls.store.tasks import end
from workers.claim import follow_member, follow_trace
from workers.webhook_client import Answer, WebhookClient

LOOK_EVERY_S: Final = 0.1
IN_FLIGHT: Final = 16
GRACE_S: Final = 1.0
"""How long deliveries may go on when the shift is over; then they are cancelled, and sent again."""

RETRY_S: Final = (5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Between the attempts for one call; the last one repeats."""

GIVE_UP: Final = timedelta(days=1)
FORGET: Final = b"-"


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many of a call's outcomes were sent, and how the next one fares."""

    sent: int = 0
    attempts: int = 0
    retry_at: datetime | None = None


@dataclass(slots=True)
class Deliveries:
    """Claims what is to be sent while a shift lasts. ``store`` is one over the outbox's keys."""

    store: Store
    lookup: Lookup
    client: WebhookClient
    log: Any
    sleep: Callable[[float], Any] = asyncio.sleep
    figures: Figures = field(default_factory=Figures)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def is_busy(self) -> bool:
        """Tell whether something is being sent."""
        return bool(self._tasks)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send what falls due until the block ends; nothing outlives it."""
        claiming = asyncio.ensure_future(self._claim_on())
        try:
            yield
        finally:
            await end({claiming})
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=GRACE_S)
            await end(self._tasks)

    async def claim(self) -> int:
        """Begin to send for what is due now; return for how many calls."""
        room = IN_FLIGHT - len(self._tasks)
        is_probe = bool(self.store.breakers.opened and await self.store.breakers.take_probes())
        claimed = await self.store.claim(1 if is_probe else room, is_probe=is_probe) if room > 0 else []
        for item in claimed:
            task = asyncio.ensure_future(self._advance(item))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return len(claimed)

    async def settle(self) -> None:
        """Wait for what is being sent."""
        await asyncio.gather(*self._tasks)

    async def _claim_on(self) -> None:
        while True:
            with suppress(RedisError):
                await self.claim()
            await self.sleep(LOOK_EVERY_S)

    async def _advance(self, item: ClaimedItem) -> None:
        with suppress(LeaseLost, RedisError):
            owner = parse_member(item.member)
            known = await self.lookup.known(*owner) if isinstance(owner, CallId) else None
            if known is None or known.call_id != owner:
                await self.store.save(item, FORGET, Placement(None))
                return
            await self._send(item, known)

    async def _send(self, item: ClaimedItem, known: Known) -> None:
        """Send a call's next outcomes one after the other; the first that is not taken holds up those behind it."""
        follow_member(*known.call_id)
        follow_trace(known.call.trace)
        cursor = self._cursor(item, known.call_id.institution_key)
        if any(line.what == "unreadable" for line in known.trail):
            self.store.unreadable("trail", known.call_id.institution_key)
        if cursor.retry_at is not None and item.now < cursor.retry_at:
            await self._let_go(item, cursor, (cursor.retry_at - item.now).total_seconds())
            return
        for outcome in outcomes(known.trail)[cursor.sent :]:
            answer = await self.client.post(known.call_id, known.call, outcome)
            await self._report(answer)
            if answer is not Answer.TAKEN:
                await self._put_off(item, known.call_id, cursor, outcome)
                return
            self.figures.count(figure.OUTCOMES, "delivered")
            self.log.info("outcome_delivered", **_names(known.call_id), type=outcome.type)
            cursor = Cursor(outcome.n + 1)
            await self.store.keep(item, msgspec.json.encode(cursor))
        listed = "settled" if known.call.is_settled else ""
        await self.store.save(item, msgspec.json.encode(cursor), Placement(None, listed=listed))

    def _cursor(self, item: ClaimedItem, institution_key: str) -> Cursor:
        """Return how far the sending is; if that cannot be read, everything is sent again, under the same ids."""
        try:
            return msgspec.json.decode(item.record, type=Cursor) if item.record else Cursor()
        except msgspec.MsgspecError:
            self.store.unreadable("cursor", institution_key)
            return Cursor()

    async def _put_off(self, item: ClaimedItem, call_id: CallId, cursor: Cursor, outcome: CallOutcome) -> None:
        """Try again later; after a day only with the call's next outcome."""
        wait_s = RETRY_S[min(cursor.attempts, len(RETRY_S) - 1)]
        cursor = replace(cursor, attempts=cursor.attempts + 1, retry_at=item.now + timedelta(seconds=wait_s))
        if item.now - outcome.at <= GIVE_UP:
            self.figures.count(figure.OUTCOMES, "put_off")
            self.log.warning("outcome_put_off", **_names(call_id), type=outcome.type, attempts=cursor.attempts)
            await self._let_go(item, cursor, wait_s)
            return
        self.figures.count(figure.OUTCOMES, "parked")
        self.log.error("outcome_parked", **_names(call_id), type=outcome.type, attempts=cursor.attempts)
        cursor = replace(cursor, retry_at=None)
        await self._let_go(
            item, cursor, None, attention=f"outcome {outcome.type} not delivered for a day", listed="given up"
        )

    async def _let_go(
        self, item: ClaimedItem, cursor: Cursor, wait_s: float | None, *, attention: str = "", listed: str = ""
    ) -> None:
        due_in_ms = None if wait_s is None else int(wait_s * 1000) + 1
        await self.store.save(
            item, msgspec.json.encode(cursor), Placement(due_in_ms, attention=attention, listed=listed)
        )

    async def _report(self, answer: Answer) -> None:
        """Tell the breaker: a receiver that answers is not away, whatever it answers."""
        is_away = answer is Answer.AWAY
        if is_away or self.store.breakers.has_failed(ACCOUNT):
            await self.store.breakers.report(Heard.FAILURE if is_away else Heard.ANSWER)


def _names(call_id: CallId) -> dict[str, str]:
    return {"institution": call_id.institution_key, "voice_id": call_id.voice_id}
