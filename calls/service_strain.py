"""What answers tell of the service's load: has it become slow for everything, or does it answer 503 to some requests?

Adaptive concurrency limits (Netflix's gradient and Vegas limits, Envoy's filter) compare the latency of the moment with
a long-term minimum, and leave room for noise. So does this module, for one process. An answer is slow if it takes much
longer than the fastest one of its kind and institution in the last minutes. The service is slow if nothing else was
heard for two seconds: answers to ten requests, of at least two kinds. So one slow kind or institution says nothing, nor
does a service that was always slow. After some minutes of slowness the minimum is the new latency.
"""

from math import exp, inf
from typing import Final

FADE_S: Final = 2.0
"""Time constant of the counts, in seconds."""

FADE_EVERY_S: Final = 0.1
"""How often the counts fade, in seconds."""

SLOWER: Final = 2.0
"""An answer is slow if it takes this many times the minimum, ..."""

NOISE_S: Final = 0.5
"""... and this many seconds more. A busy process measures its own delay too."""

SLOW_ANSWERS: Final = 10
SLOW_KINDS: Final = 2
SLOW_FOR_S: Final = 2.0
"""The service is slow after this many slow answers in a row, of this many kinds, over this many seconds."""

STALLED_S: Final = 0.5
"""A process that looks at its clock this many seconds late is slow itself. It looks every quarter of a second."""

PERIOD_S: Final = 120.0
"""The minimum is that of this period and the one before, in seconds."""

OVERLOADS: Final = 3
OVERLOADED_SHARE: Final = 0.03
"""503 says something of the load if it was the answer to this many recent requests, and to this share of them."""


class ServiceStrain:
    """What one process was answered lately. All instants are those of its own clock, in seconds."""

    def __init__(self) -> None:
        """Start without an answer."""
        self._least: dict[tuple[str, str], float] = {}
        self._least_before: dict[tuple[str, str], float] = {}
        self._period_began_s = 0.0
        self._slow = 0
        self._slow_since_s = 0.0
        self._slow_kinds: set[str] = set()
        self._looked_at_s = 0.0
        self._answers = self._overloads = self._faded_at_s = 0.0

    def answers_per_s(self, now_s: float) -> float:
        """Return how many requests per second were answered lately."""
        self._fade(now_s)
        return self._answers / FADE_S

    def answered(self, kind: str, institution_key: str, seconds: float, now_s: float) -> bool:
        """Count an answer. Return whether the service is slow.

        Args:
            kind: Requests of one kind take about as long as each other.
            institution_key: For which institution it was.
            seconds: How long the answer took.
            now_s: The present instant.
        """
        self._fade(now_s)
        self._answers += 1.0
        pair = (kind, institution_key)
        least = self._least.get(pair, inf)
        if seconds <= NOISE_S and least <= seconds:
            self._slow = 0
            return False
        self._least[pair] = min(least, seconds)
        least = min(least, self._least_before.get(pair, inf))
        if least < inf and seconds > SLOWER * least + NOISE_S:
            return self._is_slow(kind, now_s)
        if least < inf or seconds <= NOISE_S:
            self._slow = 0
        return False

    def overloaded(self, now_s: float) -> bool:
        """Count a 503. Return whether so many requests get one that it says something of the load."""
        self._fade(now_s)
        self._overloads += 1.0
        return self._overloads >= OVERLOADS and self._overloads > OVERLOADED_SHARE * self._answers

    def look(self, now_s: float) -> None:
        """Note that this process runs. If it did not for a while, answers seem slow that are not.

        Called several times a second.
        """
        if now_s - self._looked_at_s > STALLED_S:
            self._slow = 0
        self._looked_at_s = now_s
        if now_s - self._period_began_s > PERIOD_S:
            self._least_before, self._least, self._period_began_s = self._least, {}, now_s

    def _is_slow(self, kind: str, now_s: float) -> bool:
        if not self._slow:
            self._slow_since_s = now_s
            self._slow_kinds.clear()
        self._slow += 1
        self._slow_kinds.add(kind)
        return (
            self._slow >= SLOW_ANSWERS
            and len(self._slow_kinds) >= SLOW_KINDS
            and now_s - self._slow_since_s >= SLOW_FOR_S
        )

    def _fade(self, now_s: float) -> None:
        if now_s - self._faded_at_s < FADE_EVERY_S:
            return
        fade = exp((self._faded_at_s - now_s) / FADE_S)
        self._answers *= fade
        self._overloads *= fade
        self._faded_at_s = now_s
