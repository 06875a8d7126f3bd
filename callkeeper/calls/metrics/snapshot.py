"""Reads the figures: totals and the minutes of the last hour over all processes, and the present state.

``FigureReader`` reads what processes have counted. ``read_present`` reads how many calls there are, how late the latest
is, how much work waits, and whether the service is available.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from callkeeper.calls.claimed_item import instant
from callkeeper.calls.effect_resolution import without_service_words
from callkeeper.calls.metrics.catalogue import Figure
from callkeeper.calls.metrics.counting import SUM, parse_field, quantile, unscaled
from callkeeper.calls.metrics.process_activity import Doing
from callkeeper.calls.metrics.redis_writer import host_of
from callkeeper.calls.store.breakers import ACCOUNT, account_of, breakers_of, opened
from callkeeper.calls.store.in_bytes import RedisInBytes, in_bytes
from callkeeper.calls.store.keys import FAILURE_TTL_S, KEYS, Keys
from callkeeper.calls.stored_value import readable

Labels = tuple[str, ...]


@dataclass(slots=True)
class Spread:
    """A histogram: how many values fell into each bucket (the last one is above the highest bound), and their sum."""

    bounds: tuple[float, ...]
    counts: list[int]
    total: float = 0.0

    @classmethod
    def empty(cls, figure: Figure) -> "Spread":
        return cls(figure.bounds, [0] * (len(figure.bounds) + 1))

    @property
    def n(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.total / self.n if self.n else None

    def quantile(self, q: float) -> float | None:
        return quantile(self.bounds, self.counts, q)

    def add(self, other: "Spread") -> None:
        """Add another histogram of the same figure."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


@dataclass(slots=True)
class Snapshot:
    """All figures at one moment, or of one minute."""

    counts: dict[str, dict[Labels, int]] = field(default_factory=dict)
    spreads: dict[str, dict[Labels, Spread]] = field(default_factory=dict)

    @classmethod
    def parse(cls, stored: Mapping[bytes, bytes]) -> "Snapshot":
        """Read what Redis holds. Fields of other versions are left out."""
        snapshot = cls()
        for name, value in stored.items():
            known = parse_field(name.decode())
            if known is not None:
                snapshot._take(*known, int(value))
        return snapshot

    def count(self, figure: Figure, **labels: str) -> int:
        """Return a count, summed over the labels that are not given."""
        return sum(n for own, n in self.counts.get(figure.name, {}).items() if _matches(figure, own, labels))

    def by(self, figure: Figure, label: str, **labels: str) -> Counter[str]:
        """Return a count for each value of one label, summed over the labels that are not given."""
        at, sums = figure.labels.index(label), Counter[str]()
        for own, n in self.counts.get(figure.name, {}).items():
            if _matches(figure, own, labels):
                sums[own[at]] += n
        return sums

    def spread(self, figure: Figure, **labels: str) -> Spread:
        """Return a histogram, summed over the labels that are not given."""
        whole = Spread.empty(figure)
        for own, spread in self.spreads.get(figure.name, {}).items():
            if _matches(figure, own, labels):
                whole.add(spread)
        return whole

    def rows(self, figure: Figure) -> Iterator[tuple[Labels, int]]:
        yield from sorted(self.counts.get(figure.name, {}).items())

    def spread_rows(self, figure: Figure) -> Iterator[tuple[Labels, Spread]]:
        yield from sorted(self.spreads.get(figure.name, {}).items())

    def _take(self, figure: Figure, labels: Labels, part: str | None, value: int) -> None:
        if part is None:
            self.counts.setdefault(figure.name, {})[labels] = value
            return
        spreads = self.spreads.setdefault(figure.name, {})
        spread = spreads.setdefault(labels, Spread.empty(figure))
        if part == SUM:
            spread.total = unscaled(value)
        elif part.isdigit() and int(part) < len(spread.counts):
            spread.counts[int(part)] = value


def _matches(figure: Figure, own: Labels, labels: Mapping[str, str]) -> bool:
    return all(own[figure.labels.index(name)] == value for name, value in labels.items())


@dataclass(frozen=True, slots=True)
class Minute:
    """The figures of one minute, and when it began (aware UTC)."""

    at: datetime
    figures: Snapshot


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has reported in the last seconds."""

    name: str
    kind: str
    memory: int
    """Bytes."""
    since: datetime
    """When it began to report."""
    version: str = ""
    """Version of callkeeper."""
    rules: str = ""
    """The digest of its rules."""
    ahead_s: float = 0.0
    """How far its clock is ahead of Redis's."""
    cpu: float | None = None
    """The share of a core that it uses."""
    reported_at: datetime | None = None
    doing: Doing | None = None
    """What it does now; None if another release reports it in another format."""
    has_replaced: bool = False
    """Whether it began after another one of its kind had vanished, and counts as started in its place."""
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Digests of the settings that must be equal in all processes of its kind, by variable, empty where one is not
    set."""

    @property
    def host(self) -> str:
        """Return the machine or container that it runs in."""
        return host_of(self.name)

    @property
    def place(self) -> str:
        """Return its machine or container, and its number there."""
        return ":".join(self.name.rsplit("-", 2)[:2])


class FigureReader:
    """Reads figures. It changes nothing."""

    def __init__(self, redis: Redis, *, keys: Keys = KEYS) -> None:
        self._redis = in_bytes(redis)
        self._keys = keys

    async def totals(self) -> Snapshot:
        """Return everything counted since the figures began."""
        return Snapshot.parse(await self._redis.hgetall(self._keys.figures))

    async def minutes(self, now: datetime, n: int = 60) -> list[Minute]:
        """Return the last ``n`` minutes, oldest first, including the current one. A minute without figures is empty."""
        last = int(now.timestamp() // 60)
        numbers = range(last - n + 1, last + 1)
        pipe = self._redis.pipeline(transaction=False)
        for number in numbers:
            pipe.hgetall(self._keys.minute(number))
        stored = await pipe.execute()
        return [
            Minute(instant(number * 60_000), Snapshot.parse(fields))
            for number, fields in zip(numbers, stored, strict=True)
        ]

    async def processes(self) -> list[Process]:
        """Return the processes that are alive, by kind and age."""
        names = [name.decode() for name in await self._redis.zrange(self._keys.processes, 0, -1)]
        pipe = self._redis.pipeline(transaction=False)
        for name in names:
            pipe.hmget(self._keys.process(name), _FIELDS)
        answers = zip(names, await pipe.execute(), strict=True)
        found = [_process(name, dict(zip(_FIELDS, fields, strict=True))) for name, fields in answers if fields[0]]
        return sorted(found, key=lambda process: (process.kind, process.since))


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The present state, as seen in Redis."""

    hinted: int
    """Calls that were pushed and that the service has not confirmed."""
    live: int
    """Calls that are not settled, ended ones included."""
    settled: int
    """Settled calls that can still be read."""
    overdue: int
    """Calls and institutions that are due now."""
    late_s: float
    """How late the one is that has waited longest."""
    attention: Counter[str]
    """What needs a person, by reason."""
    is_service_away: bool
    institutions_away: int
    """Institutions with an open breaker of their own: they fail, or the service asked for a pause."""
    service_failures: int
    """Requests in a row without a usable answer: the maximum over the account and the institutions."""
    login_failures: int
    """Logins in a row without a proven token."""
    jobs_waiting: int
    jobs_failed: int
    """Jobs that failed because of a bug, or are not ours. Those of killed workers and outages do not count."""
    outcomes_waiting: int
    archive_waiting: int
    redis_memory: int
    redis_memory_limit: int
    """0: no limit is set."""


async def read_present(redis: Redis, *, keys: Keys = KEYS, now_ms: int | None = None) -> Present:
    """Read the present state, nearly all of it in one round trip."""
    client = in_bytes(redis)
    pipe = client.pipeline(transaction=False)
    pipe.time().zcard(keys.live).zcard(keys.settled).zrange(keys.due, 0, 0, withscores=True)
    pipe.zdiff([keys.due, keys.live])
    for key in keys.attentions:
        pipe.hvals(key)
    pipe.hgetall(keys.breakers).hgetall(keys.endpoints).hmget(keys.login_gate, ["failures"])
    pipe.llen(keys.queue).zcard(keys.outbox.due).zcard(keys.archive.due)
    (
        time,
        live,
        settled,
        first,
        unconfirmed,
        attention,
        unsent,
        unarchived,
        scopes,
        endpoints,
        login,
        waiting,
        outcomes,
        to_archive,
    ) = await pipe.execute()
    memory = await _memory(client)
    now = now_ms if now_ms is not None else time[0] * 1000 + time[1] // 1000
    # A failed job is stored with the time when it expires. A killed worker's and an outage's expire within the hour.
    # One that is kept longer failed because of a bug, or is not ours.
    stopped = opened(scopes, endpoints)
    bugs_from_s = now / 1000 + FAILURE_TTL_S
    overdue, failed = (
        await client.pipeline(transaction=False)
        .zcount(keys.due, "-inf", now)
        .zcount(keys.failed_jobs, bugs_from_s, "+inf")
        .execute()
    )
    return Present(
        hinted=sum(member.startswith(b"c:") for member in unconfirmed),
        live=live,
        settled=settled,
        overdue=overdue,
        late_s=max(0.0, (now - first[0][1]) / 1000) if first else 0.0,
        attention=Counter(without_service_words(why.decode()) for why in (*attention, *unsent, *unarchived)),
        is_service_away=account_of(stopped) is not None,
        institutions_away=len({breaker.institution_key for breaker in stopped} - {ACCOUNT}),
        service_failures=max((breaker.failures for breaker in breakers_of(scopes, endpoints).values()), default=0),
        login_failures=int(login[0] or 0),
        jobs_waiting=waiting,
        jobs_failed=failed,
        outcomes_waiting=outcomes,
        archive_waiting=to_archive,
        redis_memory=int(memory.get("used_memory", 0)),
        redis_memory_limit=int(memory.get("maxmemory", 0)),
    )


async def _memory(client: RedisInBytes) -> dict[str, Any]:
    """Read the memory use; empty if Redis does not allow that."""
    try:
        answer: dict[str, Any] = await client.info("memory")
    except ResponseError:
        return {}
    return answer


_FIELDS: Final = ("kind", "memory", "since", "version", "rules", "ahead", "cpu", "at", "doing", "replaced", "settings")


def _process(name: str, stored: Mapping[str, bytes | None]) -> Process:
    def text(field: str) -> str:
        return (stored[field] or b"").decode()

    return Process(
        name,
        text("kind"),
        int(text("memory")),
        instant(int(text("since"))),
        text("version"),
        text("rules"),
        float(text("ahead") or 0) / 1000,
        float(text("cpu")) if stored["cpu"] is not None else None,
        instant(int(text("at"))) if stored["at"] is not None else None,
        readable(stored["doing"], Doing),
        has_replaced=stored["replaced"] is not None,
        settings=readable(stored["settings"], dict[str, str]) or {},
    )
