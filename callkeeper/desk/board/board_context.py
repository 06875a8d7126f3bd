"""What the board shows beside the calls: what needs a person, pauses, the last push, the last hour."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.metrics.signals import SignalReader, Signals
from callkeeper.calls.metrics.snapshot import FigureReader, Minute
from callkeeper.calls.pause import Pauses, parse_pauses
from callkeeper.calls.record import Call
from callkeeper.calls.store.breakers import account_of
from callkeeper.calls.store.in_bytes import PipelineInBytes, in_bytes
from callkeeper.calls.store.last_listing import Standing, parse_standings
from callkeeper.calls.store.push_intake import DOCTOR, EventEntry
from callkeeper.calls.store.queries import Lookup, attention_of
from callkeeper.calls.store.request_budget import BudgetUse, budget_use
from callkeeper.calls.store.rules_in_force import RulesInForce
from callkeeper.calls.stored_value import readable

DUE_READ: Final = 500
"""How many of the members that are due first are read, to find which institutions are late."""

BUDGETS_SHOWN: Final = 3
FIRST_EVENTS: Final = 500
"""How many events are read at first, to find the last push and the last sample."""

EVENTS_AT_ONCE: Final = 2000

_EVENT = msgspec.json.Decoder(EventEntry)


@dataclass(frozen=True, slots=True)
class Pushes:
    """When the last push came, and each institution's last sample."""

    last_at: datetime | None = None
    samples: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def last_sample(self) -> tuple[str, datetime] | None:
        return max(self.samples.items(), key=lambda pair: pair[1], default=None)

    def sample_of(self, only: str | None) -> tuple[str, datetime] | None:
        """Return the newest sample, or that of one institution."""
        if only is None:
            return self.last_sample
        return (only, self.samples[only]) if only in self.samples else None


@dataclass(frozen=True, slots=True)
class BoardContext:
    """What the board shows beside the calls at one moment, by Redis's clock.

    ``attention``: member to reason. ``records``: the calls among these. ``signals``: what incidents are judged by.
    ``hour``: the minutes of the last hour, oldest first; the same object until it is read again. ``late_s``: how long
    each institution's first due call or listing has waited, in seconds, of those that wait the longest.
    """

    now: datetime
    attention: Mapping[str, str]
    records: Mapping[str, Call]
    pauses: Pauses
    standings: Mapping[str, Standing]
    signals: Signals
    hour: Sequence[Minute]
    pushes: Pushes
    late_s: Mapping[str, float] = field(default_factory=dict)
    rules: RulesInForce | None = None
    budget: Sequence[BudgetUse] = ()

    @property
    def service_away(self) -> bool:
        """Tell whether requests to the whole service are stopped."""
        return account_of(self.signals.breakers) is not None

    @property
    def workers(self) -> int:
        """Count the worker processes that are alive."""
        return sum(process.kind == "worker" for process in self.signals.processes)


class BoardContextReader:
    """Reads the board context; remembers which events of the log it has seen."""

    def __init__(self, redis: Redis, lookup: Lookup, hour: "HourReader") -> None:
        self._hour = hour
        self._redis = redis
        self._lookup = lookup
        self._keys = lookup.keys
        self._signals = SignalReader(redis, lookup.keys)
        self._seen_ms: float | None = None
        self._pushes = Pushes()

    async def read(self) -> BoardContext:
        keys = self._keys
        pipe = in_bytes(self._redis).pipeline(transaction=False)
        for key in keys.attentions:
            pipe.hgetall(key)
        pipe.time().hgetall(keys.pause)
        pipe.get(keys.rules).hgetall(keys.standings)
        pipe.zrange(keys.due, 0, DUE_READ - 1, withscores=True)
        self._ask_events(pipe)
        *stored, time, pauses, rules, standings, due, events = await pipe.execute()
        now_ms = time[0] * 1000 + time[1] / 1000
        hour = await self._hour.minutes(instant(now_ms))
        self._note(events, now_ms)
        attention = attention_of(stored)
        records = await self._lookup.calls([member for member in attention if _is_call(member)])
        return BoardContext(
            now=instant(now_ms),
            attention=attention,
            records=records,
            pauses=parse_pauses(pauses.items()),
            standings=parse_standings(standings),
            signals=await self._signals.read(minutes=hour),
            hour=hour,
            pushes=self._pushes,
            late_s=_late_s(due, now_ms),
            rules=readable(rules, RulesInForce),
            budget=(await budget_use(self._redis, keys))[:BUDGETS_SHOWN],
        )

    def _ask_events(self, pipe: PipelineInBytes) -> None:
        if self._seen_ms is None:
            pipe.zrevrange(self._keys.events, 0, FIRST_EVENTS - 1, withscores=True)
        else:
            since = f"({self._seen_ms:.0f}"
            pipe.zrangebyscore(self._keys.events, since, "+inf", start=0, num=EVENTS_AT_ONCE, withscores=True)

    def _note(self, events: Sequence[tuple[bytes, float]], now_ms: float) -> None:
        """Remember the newest push, and each institution's newest sample.

        If Redis's clock was set back, start again: what came before seems to lie in the future.
        """
        if self._seen_ms is not None and self._seen_ms > now_ms:
            self._seen_ms, self._pushes = None, Pushes()
            return
        events = [(stored, score) for stored, score in events if score <= now_ms]
        samples, last_at = dict(self._pushes.samples), self._pushes.last_at
        for stored, score in sorted(events, key=lambda event: event[1]):
            event, at = _EVENT.decode(stored), instant(score)
            if event.is_test and event.institution_key != DOCTOR:
                samples[event.institution_key] = at
            elif not event.is_test:
                last_at = at
            self._seen_ms = score
        self._pushes = Pushes(last_at, samples)
        if self._seen_ms is None:
            self._seen_ms = 0.0


def _late_s(due: Sequence[tuple[bytes, float]], now_ms: float) -> dict[str, float]:
    """Return for each institution how long its first due member has waited. ``due``: those that are due first."""
    late: dict[str, float] = {}
    for member, due_ms in due:
        if due_ms >= now_ms:
            break
        with suppress(ValueError):
            owner = parse_member(member.decode())
            late.setdefault(owner if isinstance(owner, str) else owner.institution_key, (now_ms - due_ms) / 1000)
    return late


def _is_call(member: str) -> bool:
    try:
        return isinstance(parse_member(member), CallId)
    except ValueError:
        return False


MINUTES: Final = 60
OPEN_MINUTES: Final = 3
"""How many of the newest minutes processes may still add to."""

READ_EVERY: Final = timedelta(seconds=3)


class HourReader:
    """Caches the minutes that are over."""

    def __init__(self, reader: FigureReader) -> None:
        self._reader = reader
        self._minutes: dict[datetime, Minute] = {}
        self._hour: Sequence[Minute] = ()
        self._read_at: datetime | None = None

    async def minutes(self, now: datetime) -> Sequence[Minute]:
        """Return the last hour's minutes, oldest first, at most three seconds old."""
        if not self._was_read_within(READ_EVERY, now):
            await self._read(now)
        return self._hour

    async def _read(self, now: datetime) -> None:
        is_recent = self._was_read_within(timedelta(minutes=OPEN_MINUTES - 1), now)
        read = await self._reader.minutes(now, OPEN_MINUTES if is_recent else MINUTES)
        oldest = read[-1].at - timedelta(minutes=MINUTES - 1)
        kept = {at: minute for at, minute in self._minutes.items() if oldest <= at <= read[-1].at}
        self._minutes = {**kept, **{minute.at: minute for minute in read}}
        self._hour = [self._minutes[at] for at in sorted(self._minutes)]
        self._read_at = now

    def _was_read_within(self, age: timedelta, now: datetime) -> bool:
        """Tell whether the last reading is no older than this, nor from before Redis's clock was set back."""
        return self._read_at is not None and timedelta() <= now - self._read_at < age
