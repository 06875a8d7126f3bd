"""The request budget in virtual time: the real scripts, on a hash and sorted sets in memory.

``Load`` gives work of four classes to a number of processes. Each asks for permits as a worker does, waits as told, sends,
and reports 429 and 503. Only the scripts and `AnswerCount` are real.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lupa import luajit21

from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.request_budget import AnswerCount
from callkeeper.calls.store.script import Script as LuaScript

CLASSES = (1, 2, 3, 4)
"""Effects, checks, listings, reads."""

Service = Callable[[float], tuple[int, float]]
"""Returns the status of the answer to a request sent at an instant, and how many seconds it takes."""

DEADLINE_S = 6.0

REQUESTS = {1: 2, 2: 1, 3: 1, 4: 1}
"""How many requests each class sends for one permission: an effect is two, and the second follows the first's answer."""


class Script:
    """Runs the scripts of the budget without Redis, on the commands of request_budget_model.lua.

    LuaJIT speaks the Lua 5.1 of Redis and takes half the time.
    """

    def __init__(self) -> None:
        lua = luajit21.LuaRuntime(unpack_returned_tuples=True)
        self.stored = lua.execute(Path(__file__).with_suffix(".lua").read_text(encoding="utf-8"))
        """The hash of budgets by scope."""
        lua.execute("KEYS = {'budget'}")
        self._scripts = {name: LuaScript(Keys(), name) for name in ("permits", "lower_rate", "forget_load")}
        self._run = {
            name: lua.eval(f"function(...) ARGV = {{...}}\n{script.source}\nend")
            for name, script in self._scripts.items()
        }

    def __call__(self, name: str, now_ms: float, *rest: Any, **given: Any) -> Any:
        """Run one; numbers become text, as in Redis."""
        _, args = self._scripts[name].arguments(now_ms, given, rest)
        return self._run[name](*[_text(arg) for arg in args])

    @property
    def rate(self) -> float:
        """Return the rate that was set or learned for the account; 0 if there is none."""
        return self.rates.get("", 0.0)

    @property
    def rates(self) -> dict[str, float]:
        """Return the rates that were set or learned by scope; 0 where requests are only counted."""
        return {scope: float(stored.split()[0]) for scope, stored in self.stored.items()}


def _text(value: Any) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def shedding(capacity: int) -> Service:
    """Return a service that answers this many requests in any second, and 503 to the others."""
    admitted = deque[float]()

    def answer(now: float) -> tuple[int, float]:
        while admitted and admitted[0] <= now - 1:
            admitted.popleft()
        if len(admitted) >= capacity:
            return 503, 0.02
        admitted.append(now)
        return 200, 0.05

    return answer


@dataclass
class Load:
    """Work for processes that share one budget, and its results.

    Args:
        set_rate: Requests per second that were set; 0: learned.
        limit: Requests that the service answers within any second; 0: all.
        arrivals: Work per second of each class.
        processes: How many processes share the work. Each reports its own answers.
        jitter_s: How much later, at most, a request is sent after its permit, and a permit is asked for again.
        latency_s: How long an answer takes, up to twice that.
        busy: The share of requests that are refused for other reasons than the limit.
        service: Answers requests instead of the limit.
    """

    set_rate: float
    limit: int
    arrivals: Sequence[float]
    processes: int = 1
    jitter_s: float = 0.03
    seed: int = 1
    latency_s: float = 0.025
    busy: float = 0.0
    service: Service | None = None
    sent_at: list[float] = field(default_factory=list)
    refused_at: list[float] = field(default_factory=list)
    waits: list[tuple[float, int, float]] = field(default_factory=list)
    """When something was sent, its class, how long it had waited."""
    asks: Counter[str] = field(default_factory=Counter)
    now_s: float = 0.0
    rates: list[tuple[float, float]] = field(default_factory=list)
    """The rate every quarter of a second; 0: none."""

    def run(self, seconds: float) -> "Load":
        """Let time pass."""
        chance = random.Random(self.seed)  # noqa: S311
        script, admitted = Script(), deque[float]()
        is_limited = self.set_rate > 0
        answered = deque[float]()
        events: list[tuple[float, int, Callable[[float], None]]] = []
        counts = [AnswerCount(lambda: self.now_s) for _ in range(self.processes)]
        number = 0

        def at(when: float, what: Callable[[float], None]) -> None:
            nonlocal number
            number += 1
            heapq.heappush(events, (when, number, what))

        def turned_away(now: float, sign: str, answered_per_s: float) -> None:
            told = {"sign": sign, "scope": "", "set_rate": self.set_rate, "answered_per_s": answered_per_s}
            script("lower_rate", 1000 * now, acted_for=1, **told)

        def ask(c: int, name: str, since: float) -> Callable[[float], None]:
            def run(now: float) -> None:
                wait_ms = 0
                if is_limited:
                    asked = {"permit_class": c, "requests": REQUESTS[c], "member": name, "random": chance.random()}
                    wait_ms = script("permits", 1000 * now, "", self.set_rate, **asked)
                    self.asks["refused" if wait_ms else "granted"] += 1
                if wait_ms:
                    at(now + wait_ms / 1000 + chance.random() * self.jitter_s, run)
                else:
                    at(now + chance.random() * self.jitter_s, send(c, name, since, follows=REQUESTS[c] > 1))

            return run

        def send(c: int, name: str, since: float, *, follows: bool = False) -> Callable[[float], None]:
            def run(now: float) -> None:
                nonlocal is_limited
                while admitted and admitted[0] <= now - 1:
                    admitted.popleft()
                self.sent_at.append(now)
                if self.service is not None:
                    status, seconds = self.service(now)
                    at(now + min(seconds, DEADLINE_S), hear(c, name, since, status, seconds, follows=follows))
                elif (self.limit and len(admitted) >= self.limit) or chance.random() < self.busy:
                    self.refused_at.append(now)
                    while answered and answered[0] <= now - 1:
                        answered.popleft()
                    turned_away(now, "busy", len(answered) / self.processes)
                    is_limited = True
                    at(now + 1, ask(c, name, since))
                else:
                    admitted.append(now)
                    answered.append(now)
                    if follows:
                        at(now + self.latency_s * (1 + chance.random()), send(c, name, since))
                    else:
                        self.waits.append((now, c, now - since))

            return run

        def hear(
            c: int, name: str, since: float, status: int, seconds: float, *, follows: bool
        ) -> Callable[[float], None]:
            def run(now: float) -> None:
                nonlocal is_limited
                count, is_late = chance.choice(counts), seconds > DEADLINE_S
                if status == 503 and count.add_503():
                    turned_away(now, "strained", 0)
                    is_limited = True
                elif status != 503 and not is_late:
                    count.add()
                if is_late or status == 503:
                    self.refused_at.append(now)
                    at(now + 1, ask(c, name, since))
                elif follows:
                    at(now, send(c, name, since))
                else:
                    self.waits.append((now, c, now - since))

            return run

        def look(now: float) -> None:
            nonlocal is_limited
            is_limited = self.set_rate > 0 or any(True for _ in script.stored)
            self.rates.append((now, script.rate))
            at(now + 0.25, look)

        def arrive(c: int, mean: float) -> Callable[[float], None]:
            def run(now: float) -> None:
                at(now, ask(c, f"m{number}", now))
                at(now + chance.expovariate(mean), run)

            return run

        for c, mean in zip(CLASSES, self.arrivals, strict=True):
            if mean:
                at(1000 + chance.random(), arrive(c, mean))
        at(1000.0, look)
        while events and events[0][0] < 1000 + seconds:
            self.now_s, _, what = heapq.heappop(events)
            what(self.now_s)
        return self

    def most_in(self, window_s: float) -> int:
        """Return the highest number of requests in any window of this many seconds."""
        window, most = deque[float](), 0
        for at_s in self.sent_at:
            window.append(at_s)
            while window[0] <= at_s - window_s:
                window.popleft()
            most = max(most, len(window))
        return most

    def summary(self, after_s: float) -> dict[str, Any]:
        """Return what was sent and refused after this many seconds, and how long each class waited."""
        begin = 1000 + after_s
        sent = sum(at >= begin for at in self.sent_at)
        refused = sum(at >= begin for at in self.refused_at)
        duration = self.sent_at[-1] - begin
        waits = {c: sorted(w for at, k, w in self.waits if k == c and at >= begin) for c in CLASSES}
        return {
            "answered_per_s": (sent - refused) / duration,
            "refused_share": refused / max(1, sent),
            "served": {c: len(found) / duration for c, found in waits.items()},
            "p50": {c: found[len(found) // 2] for c, found in waits.items() if found},
            "p99": {c: found[int(len(found) * 0.99)] for c, found in waits.items() if found},
            "asks": dict(self.asks),
        }
