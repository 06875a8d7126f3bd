"""Writes what a process has counted to Redis once a second, with one idempotent script.

The writing thread has its own connection, so figures are reported even if a shift is stuck or the event loop is busy.
"""

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from secrets import token_hex
from typing import Final, Literal

import msgspec
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError

from callkeeper.calls.item_names import institution_part
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import MOST_PLACES, Batch, Figures
from callkeeper.calls.metrics.cpu_share import CpuShare
from callkeeper.calls.metrics.hourly import DAY_BYTES, EVERYWHERE, HOURS_KEPT_S, SLOTS
from callkeeper.calls.metrics.process_activity import Doing, encode_doing
from callkeeper.calls.store.keys import KEYS, REMEMBERED_S, Keys
from callkeeper.calls.store.script import Arg, Script

MINUTES_KEPT_S: Final = 3900
"""The last hour and the current minute, in seconds."""

TOTALS_KEPT_S: Final = 30 * 86400
"""How long totals are kept after the last write, in seconds."""

HITS_KEPT_S: Final = 35 * 86400
"""How long the hits of rules are kept by the day, in seconds."""

ALIVE_S: Final = 10
"""After this many seconds without a report a process counts as gone."""

VANISHED_S: Final = 600
"""For how many seconds a process is remembered that stopped reporting without shutting down in order."""

Kind = Literal["web", "worker"]

KEYED_BY: Final[Mapping[Kind, str]] = {"worker": "CALLKEEPER_ACCESS_TOKEN", "web": "CALLKEEPER_PUSH_HEADERS"}
"""By kind, the variable with whose value all digests of settings are made. Only if it is the same can these be compared."""

COMMAND: Final = "command"
"""The kind of a command that counts. It is not among the processes, because its first write is also its last."""


@dataclass(frozen=True, slots=True)
class Author:
    """The counting process: a unique name, and its kind.

    ``version`` is the version of callkeeper, ``rules`` the digest of its rules. ``settings`` are digests of those settings
    that must be equal in all processes of a kind, by variable; empty where one is not set.
    """

    name: str
    kind: Kind | Literal["command"]
    version: str = ""
    rules: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def here(
        cls, kind: Kind | Literal["command"], *, rules: str = "", settings: Mapping[str, str] | None = None
    ) -> "Author":
        name = f"{host()}-{os.getpid()}-{token_hex(2)}"
        return cls(name, kind, metadata.version("callkeeper"), rules, {} if settings is None else settings)


def host() -> str:
    """Return the name of this machine or container."""
    return socket.gethostname().partition(".")[0]


def host_of(name: str) -> str:
    """Return the machine or container of a process, by its name."""
    return name.rsplit("-", 2)[0]


SHORT_S: Final = 1.0
"""The clocks are compared by exchanges shorter than this. Where Redis froze, a command was sent long before it ran."""

CPU_OVER_S: Final = 30.0
"""Over how long the reported share of a core is averaged, in seconds. A burst of starts is no reason to add workers."""


class FigureWriter:
    """Writes batches over a blocking connection, or over one of asyncio."""

    def __init__(
        self,
        figures: Figures,
        author: Author,
        *,
        keys: Keys = KEYS,
        now_ms: Callable[[], int] | None = None,
        memory: Callable[[], int] | None = None,
        cpu_share: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.figures = figures
        self.author = author
        self._keys = keys
        self._now_ms = now_ms
        self.doing: Callable[[], Doing] = Doing
        self.lines_lost: Callable[[], int] = lambda: 0
        """Returns how many lines of its log this process has lost."""
        self._lines_counted = 0
        self._memory = memory or memory_of
        self._monotonic, self._began_at = monotonic, monotonic()
        self._clock = clock
        self._ahead_ms: int | None = None
        self._cpu_share = CpuShare(time.process_time, over_s=CPU_OVER_S) if cpu_share is None else cpu_share
        self._script = Script(keys, "add_figures", constants={"MOST_PLACES": MOST_PLACES})

    def write(self, redis: Redis, *, is_last: bool = False) -> None:
        """Write what was counted since the last time. ``is_last`` also says that this process ends on purpose.

        Raises:
            redis.exceptions.RedisError: It may or may not have been written; the next write repeats it.
        """
        batch, sent_at_s = self._batch(), self._monotonic()
        _, now_ms = redis.register_script(self._script.source)(*self._arguments(batch, is_last=is_last))
        self._compare_clocks(sent_at_s, now_ms)
        self.figures.written(batch)

    def note_started(self, redis: Redis) -> None:
        """Remove the record that a process of this kind did not start on this machine, because this one did.

        Raises:
            redis.exceptions.RedisError: It may or may not have been removed; try again.
        """
        redis.hdel(self._keys.unstarted, f"{self.author.kind}:{host()}")

    async def write_async(self, redis: AsyncRedis, *, is_last: bool = False) -> None:
        """Do what `write` does, from a coroutine."""
        batch, sent_at_s = self._batch(), self._monotonic()
        _, now_ms = await redis.register_script(self._script.source)(*self._arguments(batch, is_last=is_last))
        self._compare_clocks(sent_at_s, now_ms)
        self.figures.written(batch)

    def _compare_clocks(self, sent_at_s: float, now_ms: int) -> None:
        """Note how far our clock is ahead of Redis's, if the answer came so soon that it tells."""
        own_ms = self._own_ms()
        took_s = self._monotonic() - sent_at_s
        if took_s < SHORT_S:
            self._ahead_ms = own_ms - int(took_s * 500) - now_ms

    def _own_ms(self) -> int:
        return self._now_ms() if self._now_ms else int(self._clock() * 1000)

    def _batch(self) -> Batch:
        lost = self.lines_lost()
        if lost > self._lines_counted:
            self.figures.count(figure.LOG_LINES_LOST, n=lost - self._lines_counted)
            self._lines_counted = lost
        return self.figures.batch()

    def _arguments(self, batch: Batch, *, is_last: bool = False) -> tuple[list[str], list[Arg]]:
        keys, author = self._keys, self.author
        now_ms = self._now_ms() if self._now_ms else ""
        given: dict[str, Arg] = {
            "process_key": keys.process(author.name),
            "claimer_key": keys.claimer(author.name),
            "minute": keys.minute(""),
            "number": batch.number,
            "name": author.name,
            "kind": author.kind,
            "memory": self._memory(),
            "minute_kept_s": MINUTES_KEPT_S,
            "kept_s": TOTALS_KEPT_S,
            "alive_s": ALIVE_S,
            "number_kept_s": REMEMBERED_S,
            "version": author.version,
            "rules": author.rules,
            "ahead_ms": "" if self._ahead_ms is None else self._ahead_ms,
            "up_ms": int((self._monotonic() - self._began_at) * 1000),
            "cpu": f"{self._cpu_share():.3f}",
            "doing": encode_doing(self.doing()),
            "vanished_kept_s": VANISHED_S,
            "is_last": int(is_last),
            "hours": keys.hours("", EVERYWHERE).removesuffix(":"),
            "hours_kept_s": HOURS_KEPT_S,
            "day_bytes": DAY_BYTES,
            "slots": SLOTS,
            "hits": keys.rule_hits(""),
            "hits_kept_s": HITS_KEPT_S,
            "settings": msgspec.json.encode(author.settings) if author.settings else "",
        }
        return self._script.arguments(now_ms, given, [part for pair in _pairs(batch) for part in pair])


def _pairs(batch: Batch) -> Iterator[tuple[str, Arg]]:
    """Return a batch as the script reads it: the first letter of a name says what is counted."""
    yield from batch.increments.items()
    yield from ((("-" if n is None else "+") + row, n or 0) for row, n in batch.rows.items())
    yield from ((f"={name}", last) for name, last in batch.words.items())
    by_institution: dict[str, Counter[int]] = {EVERYWHERE: Counter()} if batch.sums else {}
    for (key, slot), n in batch.sums.items():
        for place in (key, EVERYWHERE):
            by_institution.setdefault(place, Counter())[slot] += n
    for key, slots in by_institution.items():
        yield f"#{institution_part(key)}", " ".join(f"{slot} {n}" for slot, n in slots.items())
    decided = f"{figure.DECISIONS.name}|"
    yield from ((f"~{name}", n) for name, n in batch.increments.items() if name.startswith(decided))
    yield from ((f"*{'|'.join(sighting)}", f"{n}|{shape}") for sighting, (n, shape) in batch.seen.items())


def memory_of(process: int | Literal["self"] = "self") -> int:
    """Return how much memory a process uses, in bytes; 0 if the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


EVERY_S: Final = 1.0


class Reporter:
    """Writes figures until it is stopped. What Redis did not accept is written the next time."""

    def __init__(
        self,
        redis: Redis,
        writer: FigureWriter,
        *,
        every_s: float = EVERY_S,
        also: Callable[[Redis], object] = lambda _: None,
    ) -> None:
        """``also``: what is written beside them, every time."""
        self._redis = redis
        self._writer = writer
        self._also = also
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="figures", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write once more, and end."""
        self._ended.set()
        self._thread.join(timeout=3)

    def _run(self) -> None:
        # The first write comes before the first wait: a process that answers already must not be missing from the doctor.
        is_over = is_noted = False
        while not is_over:
            is_over = self._ended.is_set()
            with suppress(RedisError, OSError):
                self._writer.write(self._redis, is_last=is_over)
                if not is_noted:
                    self._writer.note_started(self._redis)
                    is_noted = True
                self._also(self._redis)
            self._ended.wait(self._every_s)
