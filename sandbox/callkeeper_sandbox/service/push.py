"""Push events: one POST each, with the institution's headers. Every attempt is recorded.

Spec: Events.
"""

import asyncio
import datetime as dt
import heapq
import json
from collections import defaultdict, deque
from typing import Any

import httpx
import msgspec

from callkeeper_sandbox.service.faults import PUSH, Action, Fault, Faults, Matter
from callkeeper_sandbox.service.forms import written
from callkeeper_sandbox.service.state import Call, PushSettings
from callkeeper_sandbox.service.world import CallEvent, World

EVENT_TYPES = ("CallStart", "CallEnd")
"""Spec: Events, table of types."""

_BODY_SHOWN = 500
_KEPT = 5_000
_AT_ONCE = 20


class Push(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True):
    """The payload of a push event.

    A null identifier is left out, as by `alternate_only`.

    Spec: Events, payload. `EndDateTime` replaces `StartDateTime` for CallEnd; `IsTest` is null for real events.
    """

    type: str
    alternate_voice_id: str
    phone_number: str
    destination_phone_number: str
    institution_key: str
    voice_id: str | None = None
    start_date_time: dt.datetime | None = None
    end_date_time: dt.datetime | None = None

    def payload(self, *, is_test: bool | None) -> dict[str, Any]:
        """Return the JSON object that is sent."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return {**built, "IsTest": is_test}


class Attempt(msgspec.Struct):
    """One delivery, or one push that a fault lost.

    Attributes:
        error: The kind of failure when there was no answer.
        lost: A fault prevented it: nothing was sent.
    """

    at: dt.datetime
    institution_key: str
    type: str
    voice_id: str
    is_test: bool
    url: str
    status: int | None = None
    body: str = ""
    error: str | None = None
    lost: bool = False


class PushTotals(msgspec.Struct):
    """Counts of pushes by result."""

    sent: int = 0
    accepted: int = 0
    lost: int = 0


class Mail(msgspec.Struct, frozen=True, order=True):
    """A payload with the time at which it is sent."""

    due_at: dt.datetime
    number: int
    institution_key: str
    voice_id: str
    payload: Any


def parse_headers(text: str) -> list[tuple[str, str]]:
    """Read `Header: value; Header2: value2`.

    Assumed: a value ends at the next semicolon, pieces without a colon are ignored.

    Spec: Events.
    """
    pairs = (piece.split(":", 1) for piece in text.split(";") if ":" in piece)
    return [(name.strip(), value.strip()) for name, value in pairs]


def event_payload(call: Call, event_type: str, at: dt.datetime) -> Push:
    """Build the payload of a call's event."""
    is_start = event_type == "CallStart"
    return Push(
        type=event_type,
        alternate_voice_id=call.alternate_id,
        phone_number=call.phone_number,
        destination_phone_number=call.destination,
        institution_key=call.institution_key,
        voice_id=call.voice_id,
        start_date_time=at if is_start else None,
        end_date_time=None if is_start else at,
    )


class Pusher:
    """Delivers the world's events.

    `pump` plans deliveries, `deliver` sends those that are due. Each event is sent once, unless a fault doubles it.
    Failed deliveries are not repeated.
    """

    def __init__(self, world: World, faults: Faults, client: httpx.AsyncClient) -> None:
        self._world = world
        self._faults = faults
        self._client = client
        self._mail: list[Mail] = []
        self._held: dict[str, list[Push]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self.attempts: deque[Attempt] = deque(maxlen=_KEPT)
        self.totals = PushTotals()

    def pump(self) -> None:
        """Plan the delivery of all new events."""
        while self._world.outbox:
            self._plan(self._world.outbox.popleft())

    def _plan(self, event: CallEvent) -> None:
        call = self._world.state.calls[event.voice_id]
        if not self._world.state.institutions[call.institution_key].push.url:
            return
        ids = frozenset({call.voice_id, call.alternate_id})
        fault = self._faults.take(Matter(PUSH, call.institution_key, ids, event.type))
        for mail in self._mails(call, event, fault):
            heapq.heappush(self._mail, mail)

    def _mails(self, call: Call, event: CallEvent, fault: Fault | None) -> list[Mail]:
        latency = dt.timedelta(seconds=fault.latency_s if fault else 0)
        full = event_payload(call, event.type, event.at)
        full = msgspec.structs.replace(
            full,
            voice_id=self._world.spelled(call.voice_id, "push"),
            alternate_voice_id=self._world.spelled(call.alternate_id, "push"),
        )
        bare = msgspec.structs.replace(full, voice_id=None)

        def mail(push: Push) -> Mail:
            payload = push.payload(is_test=None)
            due_at = self._world.clock() + latency
            number = self._world.number()
            return Mail(due_at, number, call.institution_key, call.voice_id, payload)

        action = fault.action if fault else Action.PASS
        match action:
            case Action.LOST:
                self._note_lost(call, event)
                return []
            case Action.DOUBLED:
                return [mail(full), mail(full)]
            case Action.ALTERNATE_ONLY:
                return [mail(bare)]
            case Action.ALTERNATE_FIRST:
                return [mail(bare), mail(full)]
            case Action.REORDERED:
                self._held.setdefault(call.voice_id, []).append(full)
                return []
            case _:
                return [mail(push) for push in (full, *self._held.pop(call.voice_id, []))]

    def _note_lost(self, call: Call, event: CallEvent) -> None:
        self.totals.lost += 1
        self.attempts.append(
            Attempt(event.at, call.institution_key, event.type, call.voice_id, is_test=False, url="", lost=True)
        )

    def has_due(self) -> bool:
        return bool(self._mail) and self._mail[0].due_at <= self._world.clock()

    async def deliver(self) -> int:
        """Send all due pushes, in order within each call, calls in parallel; return how many."""
        now = self._world.clock()
        due: dict[str, list[Mail]] = defaultdict(list)
        while self._mail and self._mail[0].due_at <= now:
            mail = heapq.heappop(self._mail)
            due[mail.voice_id].append(mail)
        await asyncio.gather(*map(self._send_in_turn, due.values()))
        return sum(map(len, due.values()))

    async def _send_in_turn(self, mails: list[Mail]) -> None:
        async with self._slots:
            for mail in mails:
                await self.send(mail.institution_key, mail.payload)

    async def send_sample(self, institution_key: str, event_type: str) -> Attempt:
        """Send a sample event of an invented call, with IsTest true.

        Spec: Events, rule 2.
        """
        now = self._world.clock()
        sample = Push(
            type=event_type,
            alternate_voice_id="00000000-0000-4000-8000-00000000000a",
            phone_number="5550100000",
            destination_phone_number="5550000000",
            institution_key=institution_key,
            voice_id="00000000-0000-4000-8000-000000000001",
            start_date_time=now if event_type == "CallStart" else None,
            end_date_time=None if event_type == "CallStart" else now,
        )
        return await self.send(institution_key, sample.payload(is_test=True))

    async def send(self, institution_key: str, payload: object) -> Attempt:
        """POST a payload once and record the attempt.

        Spec: Events, rules 1 and 2.
        """
        settings = self._world.state.institutions[institution_key].push
        attempt = _attempt(self._world.clock(), institution_key, payload, settings.url)
        self.attempts.append(attempt)
        self.totals.sent += 1
        try:
            await self._post(attempt, settings, payload)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            attempt.error = type(error).__name__
        if attempt.status is not None and 200 <= attempt.status < 300:
            self.totals.accepted += 1
        return attempt

    async def _post(self, attempt: Attempt, settings: PushSettings, payload: object) -> None:
        headers = [("content-type", "application/json"), *parse_headers(settings.headers)]
        body = written(json.dumps(payload, default=msgspec.to_builtins).encode(), self._world.options)
        response = await self._client.post(settings.url, content=body, headers=headers)
        attempt.status = response.status_code
        attempt.body = response.text[:_BODY_SHOWN]


def _attempt(at: dt.datetime, institution_key: str, payload: object, url: str) -> Attempt:
    seen: dict[str, object] = payload if isinstance(payload, dict) else {}
    event_type, voice_id = str(seen.get("Type", "")), str(seen.get("VoiceId", ""))
    return Attempt(at, institution_key, event_type, voice_id, seen.get("IsTest") is True, url)
