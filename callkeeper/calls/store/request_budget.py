"""The request budget: how many requests per second all workers may send together, and their priorities.

Every request to the service takes a permit here first. The limit is the configured rate (``CALLKEEPER_SERVICE_RPS``) or
a rate learned from 429 answers, whichever is lower. Without a configured rate it is also learned from 503 answers
(`AnswerCount`). Without any, permits are free and Redis is not asked. A limit applies to the
account, or to a single institution if only that one gets 429 or 503.

Any window of Redis's clock holds a limited number of permits. With a rate R of up to 18 per second, a window holds R
(rounded up) and lasts a second or more; with a higher rate, it holds up to 18 and is shorter. An effect takes the
permits of its confirming read and its own together, and may use the second up to a lease later. While requests wait,
each class gets at least its share (``permits.lua``); the rest goes to the waiting class with the highest
priority.

The learned rate falls by 15 % at a 429, at most once a second, and grows by 3 % in each second in which requests wait. The
first 429 begins it at the rate of answers; until the next one it grows by half each second.

503 is a weaker sign. After the first one requests are counted for four seconds. Then the rate falls by 15 % a second, to
60 % of what was sent before at the least, so that only reads are postponed, and grows by 6 %. Thirty seconds after the last
sign the limit is forgotten; at once when a breaker opens, because an outage says nothing of the load.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import exp
from typing import Final
from urllib.parse import unquote

from redis.asyncio import Redis

from callkeeper.calls.item_names import institution_part
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.script_runner import Scripts

MARGIN: Final = 0.95
"""The share of a configured rate that is used; the rest is for requests that leave later than they get their permit."""

POLL_EVERY_S: Final = 1.0
"""Seconds between two checks whether others have learned a rate, and at least between two reports of 503."""

GOLDEN: Final = 0.618034
"""Fractional parts of its multiples are spread evenly, so that waiting requests do not come back at the same time."""


class Permit(IntEnum):
    """What a request is for. The lowest number has the highest priority."""

    EFFECT = 1
    CHECK = 2
    LISTING = 3
    READ = 4


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """How much of a budget is used, in requests per second, and what is postponed.

    Attributes:
        institution_key: Empty for the account.
        used_per_s: Requests that got a permit lately.
        limit_per_s: The rate that was set or learned.
        waiting: How many requests of each class wait.
        longest_s: In how many seconds the last of them is expected to ask again.
    """

    institution_key: str
    used_per_s: float
    limit_per_s: float
    waiting: dict[Permit, int]
    longest_s: dict[Permit, float]

    @property
    def words(self) -> str:
        waiting = [
            f"{n} {kind.name.lower()}s (up to {self.longest_s[kind]:.0f} s)" for kind, n in self.waiting.items() if n
        ]
        use = f"using {self.used_per_s:.0f} of {self.limit_per_s:.0f} requests/s"
        return f"{use}; waiting: {', '.join(waiting)}" if waiting else f"{use}; nothing waits"


FADE_S: Final = 2.0
FADE_EVERY_S: Final = 0.1
"""Time constant of all counts (``MEMORY`` of the script), and how often those of a process fade, in seconds."""

OVERLOADS: Final = 3
OVERLOADED_SHARE: Final = 0.03
"""503 says something of the load if it was the answer to this many recent requests, and to this share of them."""


class AnswerCount:
    """Counts the answers to one process. ``monotonic`` is the process's own clock, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._answers = self._overloads = self._faded_at_s = 0.0

    @property
    def per_s(self) -> float:
        """Return how many requests per second were answered lately."""
        self._fade()
        return self._answers / FADE_S

    def add(self) -> None:
        self._fade()
        self._answers += 1.0

    def add_503(self) -> bool:
        """Count a 503. Return whether so many requests get one that it says something of the load."""
        self._fade()
        self._overloads += 1.0
        return self._overloads >= OVERLOADS and self._overloads > OVERLOADED_SHARE * self._answers

    def _fade(self) -> None:
        passed_s = self._monotonic() - self._faded_at_s
        if passed_s < FADE_EVERY_S:
            return
        fade = exp(-passed_s / FADE_S)
        self._answers *= fade
        self._overloads *= fade
        self._faded_at_s += passed_s


class RequestBudget:
    """One worker's access to the shared budget."""

    def __init__(
        self,
        scripts: Scripts,
        redis: Redis,
        keys: Keys,
        *,
        monotonic: Callable[[], float],
        rps: float | None,
        limits: Mapping[str, float],
        figures: Figures | None,
    ) -> None:
        """Start without a learned rate.

        ``rps`` is the configured rate of all workers together, if any, ``limits`` those of single institutions in
        addition.
        """
        self._scripts = scripts
        self._redis = in_bytes(redis)
        self._key = keys.budget
        self._monotonic = monotonic
        self._set = 0.0 if rps is None else rps * MARGIN
        self._limits = {institution_part(key): per_s * MARGIN for key, per_s in limits.items()}
        self._figures = Figures() if figures is None else figures
        self._limited: frozenset[str] = frozenset()
        self._polled_at_s = -POLL_EVERY_S
        self._spread = 0.0
        self.answers = AnswerCount(monotonic)
        """What the first rate that is learned begins with, and whether 503 says something of the load."""
        self._strained_at_s = -POLL_EVERY_S

    async def wait_s(self, kind: Permit, member: str, institution_key: str, requests: int = 1) -> float:
        """Take permits for a member's next requests. Return 0.0 if they may be sent, else the seconds to wait.

        ``institution_key`` is empty for a request that is for none.
        """
        if not self._set and not self._limits and not self._limited:
            return 0.0
        self._spread = (self._spread + GOLDEN) % 1.0
        scope = institution_part(institution_key)
        limits: list[str | float] = ["", self._set]
        if scope and (scope in self._limited or scope in self._limits):
            limits += [scope, self._limits.get(scope, 0)]
        wait_ms = await self._scripts.call(
            "permits", permit_class=int(kind), requests=requests, member=member, random=self._spread, rest=limits
        )
        if wait_ms:
            self._figures.count(figure.REQUESTS_POSTPONED, kind.name.lower())
        return float(wait_ms) / 1000

    async def poll(self) -> None:
        """Check once a second whether there is a learned rate."""
        now_s = self._monotonic()
        if now_s - self._polled_at_s >= POLL_EVERY_S:
            self._polled_at_s = now_s
            self._remember(await self._redis.hkeys(self._key))

    async def turned_away(self, institution_key: str, acted_for: int, *, is_own: bool = False) -> None:
        """Lower the rate after a 429.

        If several of the ``acted_for`` institutions get 429, it is the account's rate that is lowered. ``is_own``: it is
        the institution's in any case.
        """
        await self._report("own" if is_own else "busy", institution_key, acted_for)

    async def strained(self, institution_key: str, acted_for: int) -> None:
        """Lower the rate because the service answers 503. Arguments as `turned_away`."""
        now_s = self._monotonic()
        if now_s - self._strained_at_s >= POLL_EVERY_S:
            self._strained_at_s = now_s
            await self._report("strained", institution_key, acted_for)

    async def calm(self, institution_key: str, acted_for: int) -> None:
        """Forget what 503 taught about an institution, or everything about the account."""
        if self._limited:
            scopes = [institution_part(institution_key)] if institution_key and acted_for > 1 else []
            self._remember(await self._scripts.call("forget_load", rest=scopes))

    async def _report(self, sign: str, institution_key: str, acted_for: int) -> None:
        scope = institution_part(institution_key) if acted_for > 1 else ""
        set_rate = self._limits.get(scope, 0.0) if scope else self._set
        self._remember(
            await self._scripts.call(
                "lower_rate",
                sign=sign,
                scope=scope,
                set_rate=set_rate,
                answered_per_s=self.answers.per_s,
                acted_for=acted_for,
            )
        )

    def _remember(self, scopes: list[bytes]) -> None:
        self._limited = frozenset(scope.decode() for scope in scopes)


async def budget_use(redis: Redis, keys: Keys) -> list[BudgetUse]:
    """Return how much of each budget is used, the account's first; empty if no rate was set or learned."""
    client = in_bytes(redis)
    found = []
    seconds, _ = await client.time()
    for scope, stored in sorted((await client.hgetall(keys.budget)).items()):
        limit, used, at_ms = (float(value) for value in stored.split()[:3])
        queues = [f"{keys.budget}:{scope.decode()}:{int(kind)}" for kind in Permit]
        waiting, longest_s = {}, {}
        for kind, queue in zip(Permit, queues, strict=True):
            waiting[kind] = await client.zcard(queue)
            last = await client.zrange(queue, -1, -1, withscores=True)
            longest_s[kind] = max(0.0, last[0][1] / 1000 - seconds) if last else 0.0
        used *= exp(min(0.0, at_ms / 1000 - seconds) / FADE_S)
        if limit:
            found.append(BudgetUse(unquote(scope.decode()), used, limit, waiting, longest_s))
    return found
