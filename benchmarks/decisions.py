"""Who is enrolled automatically: how many impostors, how many members whose voice would have done, how many rightly?

Time is virtual, and every call runs through a whole callkeeper against the sandbox. Each caller is verified by the service
alone: an impostor has a stolen SIM and proves the passcode; a member with a voiceprint is authenticated when the provider
is ready; on a member's first call the provider finds nothing. The same calls are decided by different rules, and with other
times of the results and other lengths of the calls than the rules were chosen for.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp
from pathlib import Path
from random import Random
from statistics import NormalDist
from tempfile import TemporaryDirectory

from redis.asyncio import Redis

from benchmarks.answer import Answer, Table
from benchmarks.effort import Effort
from callkeeper.calls.rules import RuleBook, Stage, load_rules
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.pushed import PushedRig
from tests.harness.virtual_time import KEY

CALLS = 4000
PER_S = 5
"""Calls that start in a second."""

LONG_S = 130.0
"""The voice of a member who calls for so long should be waited for."""

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "rulebook" / "rules.toml"


class Caller(StrEnum):
    """Who calls."""

    IMPOSTOR = "impostor"
    MEMBER = "member"
    FIRST = "first call"


_WHO = (Caller.IMPOSTOR, Caller.MEMBER, Caller.FIRST, Caller.FIRST)
_SIGNS = ((Kind.MISMATCH,), (Kind.HIGH_RISK,), (Kind.RED,), (Kind.MISMATCH, Kind.HIGH_RISK))


@dataclass(frozen=True, slots=True)
class Tempo:
    """When things happen: the median and spread of the provider's results, and of the lengths of calls, in seconds.

    ``longest_s``: lengths are spread evenly from ``length_s`` to this; None: ``length_s`` is the median of a lognormal.
    ``hurry_s``: impostors hang up so long after they are verified, before the provider can find anything.
    """

    result_s: float
    sigma: float
    length_s: float
    longest_s: float | None = None
    length_sigma: float = 0.0
    hurry_s: float | None = None

    def scaled(self, results: float = 1.0, lengths: float = 1.0) -> "Tempo":
        """Return the tempo with slower or faster results, and longer or shorter calls."""
        longest_s = None if self.longest_s is None else self.longest_s * lengths
        return replace(self, result_s=self.result_s * results, length_s=self.length_s * lengths, longest_s=longest_s)

    def result(self, p: float) -> float:
        """Return the time by which a result has come with probability ``p``."""
        return self.result_s * exp(self.sigma * NormalDist().inv_cdf(p))

    def length(self, p: float) -> float:
        """Return the length that a call does not exceed with probability ``p``."""
        if self.longest_s is not None:
            return self.length_s + p * (self.longest_s - self.length_s)
        return max(10.0, self.length_s * exp(self.length_sigma * NormalDist().inv_cdf(p)))


SANDBOX = Tempo(12.0, 0.5, 20.0, longest_s=90.0)
"""The calls of ``make run``."""

PRIOR = Tempo(25.0, 0.7, 240.0, length_sigma=0.85)
"""The calls for which the shipped check times are the optimum (``callkeeper.calls.schedule.model``)."""

TEMPOS = {
    f"{name}{what}": tempo.scaled(*by)
    for name, tempo in (("sandbox", SANDBOX), ("prior", PRIOR))
    for what, by in (
        ("", (1.0, 1.0)),
        (", results / 2", (0.5, 1.0)),
        (", results x 2", (2.0, 1.0)),
        (", lengths / 2", (1.0, 0.5)),
        (", lengths x 2", (1.0, 2.0)),
    )
} | {
    "sandbox, impostors in a hurry": replace(SANDBOX, hurry_s=8.0),
    "prior, impostors in a hurry": replace(PRIOR, hurry_s=8.0),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """One call: who calls, when the caller is verified, when the provider is ready, and how long the call lasts."""

    caller: Caller
    verified_s: float
    result_s: float
    length_s: float
    signs: tuple[Kind, ...]

    @property
    def script(self) -> Iterator[Happening]:
        """Yield what happens."""
        if self.verified_s < self.length_s:
            yield Happening(Kind.MFA_VALIDATED, self.verified_s, "operator-2")
        if self.result_s < self.length_s:
            yield from (Happening(sign, self.result_s) for sign in self.signs)
        yield Happening(Kind.END, self.length_s)


def planned(tempo: Tempo, count: int) -> list[Planned]:
    """Draw calls."""
    draw = Random(7)  # noqa: S311
    calls = []
    for n in range(count):
        caller = _WHO[n % len(_WHO)]
        signs = {Caller.IMPOSTOR: _SIGNS[n // len(_WHO) % len(_SIGNS)], Caller.MEMBER: (Kind.GREEN,)}.get(caller, ())
        verified_s = 4.0 + 40.0 * draw.random()
        result_s, length_s = tempo.result(draw.random()), tempo.length(draw.random())
        if caller is Caller.IMPOSTOR and tempo.hurry_s is not None:
            length_s = min(length_s, verified_s + tempo.hurry_s)
        calls.append(Planned(caller, verified_s, result_s, length_s, signs))
    return calls


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part} of {self.whole}"


def shares(calls: list[Planned], enrolled: list[bool]) -> tuple[Share, ...]:
    """Return the shares of enrolled callers: impostors with and without a sign, members in long calls, first calls."""
    pairs = [(one, done) for one, done in zip(calls, enrolled, strict=True) if one.verified_s < one.length_s]

    def share(caller: Caller, *, has_result: bool | None = None, least_s: float = 0.0) -> Share:
        found = [
            done
            for one, done in pairs
            if one.caller is caller
            and one.length_s >= least_s
            and (has_result is None or (one.result_s < one.length_s) is has_result)
        ]
        return Share(sum(found), len(found))

    return (
        share(Caller.IMPOSTOR, has_result=True),
        share(Caller.IMPOSTOR, has_result=False),
        share(Caller.MEMBER, has_result=True),
        share(Caller.MEMBER, has_result=True, least_s=LONG_S),
        share(Caller.FIRST),
    )


COLUMNS = (
    *("rules", "calls", "impostors with a sign by the end", "impostors without any"),
    *(
        "members whose voice was authenticated in the call",
        f"of these, in calls of {LONG_S:g} s and more",
        "first calls",
    ),
)


def answer(effort: Effort) -> Answer:
    """Decide the calls by every rule book that is shipped or shown."""
    books = {"default": load_rules("default"), "watch-only": _live(load_rules("watch-only"))}
    books |= {"demo": load_rules("demo"), "example": load_rules(EXAMPLE)}
    count = 40 if effort.is_smoke else CALLS
    runs = [(name, tempo) for name in books for tempo in TEMPOS if name == "default" or tempo in {"sandbox", "prior"}]
    rows, broken = [], []
    for name, tempo in runs if not effort.is_smoke else runs[:1]:
        found = measured(books[name], planned(TEMPOS[tempo], count))
        rows.append((name, tempo, *map(str, found)))
        if found[0].part:
            broken.append(f"{name}, {tempo}: {found[0]} impostors with a sign are enrolled")
    note = "Enrolled automatically, of the callers whom the service verified within the call."
    table = Table("Who is enrolled automatically", COLUMNS, tuple(rows), note)
    return Answer("Who is enrolled automatically?", (table,), tuple(broken))


def _live(book: RuleBook) -> RuleBook:
    """Return rules in shadow as they would be live, with the automatic assign."""
    rules = tuple(replace(rule, stage=Stage.LIVE) for rule in book.rules)
    return replace(book, rules=rules, assign=replace(book.assign, automatic=True))


def measured(book: RuleBook, calls: list[Planned]) -> tuple[Share, ...]:
    """Return who of these callers is enrolled."""
    with TemporaryDirectory() as folder, embedded_redis(Path(folder)) as server:
        return shares(calls, asyncio.run(_enrolled(server.url, book, calls)))


async def _enrolled(url: str, book: RuleBook, calls: list[Planned]) -> list[bool]:
    async with Redis.from_url(url) as redis:
        rig = PushedRig(redis, book)
        stage = rig.stage
        begun: list[Call] = []
        last_s = max((n / PER_S + one.length_s for n, one in enumerate(calls)), default=0.0) + 60
        for second in range(int(last_s)):
            for one in calls[second * PER_S : (second + 1) * PER_S]:
                phone = f"5550{len(begun):06}"
                stage.world.add_member(KEY, f"p-{len(begun)}", [phone])
                begun.append(stage.call(*one.script, phone_number=phone))
            await rig.pass_time(1)
            if len(begun) == len(calls) and not stage.world.live[KEY]:
                break
        await rig.pass_time(40)
        return ["SUCCESSFUL" in call.feedback for call in begun]
