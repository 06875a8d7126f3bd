"""Reads the signals by which the board, the doctor, the metrics and the alerts judge the installation, all at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from callkeeper.calls.acknowledgement import Acknowledgement, parse_acknowledgements
from callkeeper.calls.claimed_item import instant
from callkeeper.calls.metrics.catalogue import Figure
from callkeeper.calls.metrics.counting import field_name, parse_field
from callkeeper.calls.metrics.redis_writer import ALIVE_S, Kind, host, host_of
from callkeeper.calls.metrics.snapshot import FigureReader, Minute, Process
from callkeeper.calls.store.breakers import Breaker, opened
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import Errors, parse_errors
from callkeeper.calls.store.last_listing import Standing, parse_standings
from callkeeper.calls.store.pausing import RESTORED
from callkeeper.calls.store.sso_token import Barred, barred_of
from callkeeper.calls.store.writable import WriteRefusal, refusal_of
from callkeeper.calls.survey import Survey

RECENT: Final = 10
"""For how many minutes counts can raise an alarm."""

UNSTARTED_KEPT_S: Final = 600
"""How long a process that did not start is remembered, in seconds. Platforms retry within five minutes."""

COUNTED_FROM_S: Final = 1.0
"""If the first due member waits longer than this, those that wait are counted, in seconds."""

BEGAN: Final = "began"
"""Beside the figures: when a web process or a worker began to report while no other of its kind did."""

_PROBE_EVERY: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A process that did not start because its settings or rules have errors."""

    kind: str
    host: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Vanished:
    """A process that stopped reporting without shutting down, and when it reported last."""

    name: str
    kind: str
    at: datetime

    @property
    def host(self) -> str:
        """Return the machine or container that it ran in."""
        return host_of(self.name)


@dataclass(frozen=True, slots=True)
class Lately:
    """What happened since something went well, as `Figure.good` says, and the last words about it."""

    rows: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, stored: Mapping[bytes, bytes]) -> "Lately":
        rows, words = {}, {}
        for name, value in stored.items():
            text = name.decode(errors="replace")
            if text.endswith("="):
                words[text.removesuffix("=")] = value.decode(errors="replace")
            else:
                rows[text] = int(value)
        return cls(rows, words)

    def in_a_row(self, figure: Figure, *labels: str) -> int:
        """Return how often something was counted since the last good one."""
        return self.rows.get(field_name(figure.name, labels), 0)

    def last_name(self, figure: Figure, *labels: str) -> str:
        """Return the last words about something; empty if there are none."""
        return self.words.get(field_name(figure.name, labels), "")


@dataclass(frozen=True, slots=True)
class LastCounted:
    """When each thing was last counted, by Redis's clock. It is forgotten an hour after the last process has stopped."""

    at_ms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, stored: Mapping[bytes, bytes]) -> "LastCounted":
        """Read what is stored."""
        return cls({name.decode(): float(ms) for name, ms in stored.items()})

    def at(self, figure: Figure, *labels: str) -> datetime | None:
        """Return when a count last grew; None if that is not known."""
        return self._at(field_name(figure.name, labels))

    @property
    def began_at(self) -> datetime | None:
        """Return when a web process or a worker reported after a time without any of its kind; None if not known."""
        return self._at(BEGAN)

    def _at(self, name: str) -> datetime | None:
        ms = self.at_ms.get(name)
        return None if ms is None else instant(ms)

    def rows(self, figure: Figure) -> list[tuple[tuple[str, ...], str | None, datetime]]:
        """Return labels, bucket and time for all fields of a figure."""
        found = []
        for name, ms in self.at_ms.items():
            known = parse_field(name)
            if known is not None and known[0] is figure:
                found.append((known[1], known[2], instant(ms)))
        return found


@dataclass(frozen=True, slots=True)
class Replaced:
    """Redis lost its data (``is_empty``), or part of it, while processes ran that remember its pauses.

    ``restored`` are the places whose pause was written back, ``standing`` those of them that nobody has resumed since.
    ``again`` are those whose pause is in force, and was not when a process looked last: the older data has it.
    """

    at: datetime
    is_empty: bool
    restored: Sequence[str] = ()
    standing: Sequence[str] = ()
    again: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """All signals at one moment, by Redis's clock.

    ``refusal``: why Redis refuses writes. ``late_s``: how long the first due member has waited. ``breakers`` are the
    open ones, ``receiver`` that of the webhook, which accepts nothing since ``untaken_since``, ``archive`` that of the
    archive's database. ``minutes`` are the last ten, oldest first. ``emergency_login_at``: the last use, within a day,
    of the environment's login although people log in by name. ``replaced``: the last time Redis lost data. ``due``: how
    many calls and institutions are due, counted only once the first has waited for a second. ``open_calls``: how many
    live calls institutions have that are not Active. ``errors``: the last errors of requests. ``acknowledged``:
    the incidents that people have acknowledged. ``survey``: what traffic says of our assumptions about the service.
    """

    now: datetime
    refusal: WriteRefusal | None = None
    processes: Sequence[Process] = ()
    unstarted: Sequence[Unstarted] = ()
    late_s: float = 0.0
    breakers: Sequence[Breaker] = ()
    receiver: Breaker | None = None
    untaken_since: datetime | None = None
    archive: Breaker | None = None
    barred: Sequence[Barred] = ()
    standings: Sequence[Standing] = ()
    last: LastCounted = field(default_factory=LastCounted)
    minutes: Sequence[Minute] = ()
    emergency_login_at: datetime | None = None
    replaced: Replaced | None = None
    due: int = 0
    vanished: Sequence[Vanished] = ()
    lately: Lately = field(default_factory=Lately)
    open_calls: Mapping[str, int] = field(default_factory=dict)
    errors: Errors = field(default_factory=dict)
    acknowledged: Sequence[Acknowledgement] = ()
    survey: Survey = field(default_factory=Survey)


class SignalReader:
    """Reads the signals. However often it is called, it tests a write to Redis only every two seconds."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._figures = FigureReader(redis, keys=keys)
        self._refusal: WriteRefusal | None = None
        self._probed_at: datetime | None = None

    async def read(self, *, minutes: Sequence[Minute] | None = None, now: datetime | None = None) -> Signals:
        """Return the signals.

        ``minutes`` are the last ones, if already known; ``now`` replaces Redis's clock.
        """
        time, unstarted, first, breakers, endpoints, outbox, archive, refused, *others = await self._asked()
        counted, texts, stored_standings, restored, pauses, *others = others
        lately, running, acknowledged, seen, *errors = others
        standings = list(parse_standings(stored_standings).values())
        emergency, untaken = texts
        now_ms = now.timestamp() * 1000 if now else time[0] * 1000 + time[1] / 1000
        present = instant(now_ms)
        if minutes is None:
            minutes = await self._figures.minutes(present, RECENT)
        late_s = max(0.0, (now_ms - first[0][1]) / 1000) if first else 0.0
        due, open_calls = await self._waiting(now_ms if late_s > COUNTED_FROM_S else None, standings)
        return Signals(
            now=present,
            refusal=await self._probe(present),
            processes=await self._figures.processes(),
            unstarted=[_unstarted(name.decode(), value) for name, value in sorted(unstarted.items())],
            late_s=late_s,
            breakers=opened(breakers, endpoints),
            receiver=next(iter(opened(outbox)), None),
            untaken_since=instant(int(untaken)) if untaken is not None and untaken.isdigit() else None,
            archive=next(iter(opened(archive)), None),
            barred=barred_of(refused),
            standings=standings,
            last=LastCounted.parse(counted),
            minutes=minutes[-RECENT:],
            emergency_login_at=datetime.fromisoformat(emergency.decode()) if emergency is not None else None,
            replaced=_replaced(restored, pauses),
            due=due,
            vanished=[_vanished(name.decode(), at) for name, at in running if now_ms - at > ALIVE_S * 1000],
            lately=Lately.parse(lately),
            open_calls=open_calls,
            errors=parse_errors(errors, present),
            acknowledged=parse_acknowledgements(acknowledged, present),
            survey=Survey.parse(seen),
        )

    async def _asked(self) -> list[Any]:
        """Read what is stored, in one round trip."""
        keys = self._keys
        pipe = in_bytes(self._redis).pipeline(transaction=False)
        pipe.time().hgetall(keys.unstarted).zrange(keys.due, 0, 0, withscores=True)
        pipe.hgetall(keys.breakers).hgetall(keys.endpoints).hgetall(keys.outbox.breakers).hgetall(
            keys.archive.breakers
        ).hgetall(keys.refused).hgetall(keys.counted)
        pipe.mget(keys.emergency_login, keys.outbox.untaken)
        pipe.hgetall(keys.standings).hgetall(keys.pauses_restored).hgetall(keys.pause)
        pipe.hgetall(keys.lately).zrange(keys.running, 0, -1, withscores=True).hgetall(keys.acknowledged)
        pipe.hgetall(keys.survey)
        for one in (keys, keys.outbox, keys.archive):
            pipe.hgetall(one.errors)
        stored: list[Any] = await pipe.execute()
        return stored

    async def _waiting(self, due_at_ms: float | None, standings: Sequence[Standing]) -> tuple[int, dict[str, int]]:
        """Count what is due by a time, and the open calls of institutions for which nothing is done: rarely anything."""
        idle = [one.key for one in standings if one.obstacle is not None]
        if due_at_ms is None and not idle:
            return 0, {}
        pipe = in_bytes(self._redis).pipeline(transaction=False)
        pipe.zcount(self._keys.due, "-inf", due_at_ms if due_at_ms is not None else "-inf")
        for key in idle:
            pipe.hlen(self._keys.opened(key))
        due, *counts = await pipe.execute()
        return due, {key: count for key, count in zip(idle, counts, strict=True) if count}

    async def _probe(self, now: datetime) -> WriteRefusal | None:
        if self._probed_at is None or not timedelta() <= now - self._probed_at < _PROBE_EVERY:
            self._refusal, self._probed_at = await refusal_of(self._redis, self._keys), now
        return self._refusal


def _replaced(stored: Mapping[bytes, bytes], pauses: Mapping[bytes, bytes]) -> Replaced | None:
    if b"at" not in stored:
        return None
    places = sorted(name.removeprefix(b"place:") for name in stored if name.startswith(b"place:"))
    standing = [place.decode(errors="replace") for place in places if RESTORED.encode() in pauses.get(place, b"")]
    restored = [place.decode(errors="replace") for place in places]
    found = sorted(pauses.items())
    again = [place.decode(errors="replace") for place, pause in found if stored.get(b"again:" + place) == pause]
    return Replaced(instant(float(stored[b"at"])), stored.get(b"is_empty") == b"1", restored, standing, again)


def note_unstarted(redis: BlockingRedis, keys: Keys, kind: Kind) -> None:
    """Record for the board that a process on this machine did not start. ``FigureWriter.note_started`` removes it."""
    seconds, micros = redis.time()
    redis.hset(keys.unstarted, f"{kind}:{host()}", seconds * 1000 + micros // 1000)
    redis.expire(keys.unstarted, UNSTARTED_KEPT_S)


def _vanished(name: str, at_ms: float) -> Vanished:
    kind, _, process = name.partition(" ")
    return Vanished(process, kind, instant(at_ms))


def _unstarted(name: str, at_ms: bytes) -> Unstarted:
    kind, _, machine = name.partition(":")
    return Unstarted(kind, machine, instant(float(at_ms)))
