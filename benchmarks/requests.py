"""How many requests does a live call need, and how soon does callkeeper notice events in other applications?

Time is virtual, so the figures depend on the schedule and not on the machine. Starts of calls are pushed, ends are not.
Half of the calls are recognised by their voice. In every third call the member answers questions; in some, the member
opts out or an operator rejects the voice. These events happen in another application, so only a read shows them.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import httpx
from redis.asyncio import Redis

from benchmarks.answer import Answer, Cell, Table
from benchmarks.effort import Effort
from benchmarks.goals import Goal, goals_table
from benchmarks.late_evidence import Share, losses
from benchmarks.spread import Spread, quantile
from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.model import PRIOR_CALL, PRIOR_RESULT
from callkeeper.service.enumerations import CallStatus
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import Asgi

LIVE = (1, 10, 40, 500)
"""Numbers of live calls, all of one institution."""

LASTS_S = 300.0
"""How long many calls are watched. Few calls are watched up to ten times as long, to see enough events."""

SETTLING_S = 60.0
"""The first minute is not counted, because calls begin in it."""

CALLS, SEEDS = 4000, (1, 2, 3, 4)
"""Calls that could be enrolled, by seed."""

OFTEN = {"reads_undecided_s": 5.0, "reads_decided_s": 15.0}
"""The fixed intervals at which details were read before callkeeper used the queue to see changes."""

SHOWN_BY = {
    Kind.ANSWERED_QUESTIONS: CallStatus.ANSWERED_QUESTIONS,
    Kind.OPT_OUT: CallStatus.VOICE_OPT_OUT,
    Kind.REJECTED: CallStatus.REJECT_CALLER_VOICE,
}
"""Events in other applications, and the status by which a read shows each."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one run.

    Attributes:
        per_s: Requests per second and live call, by kind.
        noticed_s: How long each event in another application was not noticed.
        ended_s: The same for ends.
    """

    per_s: Counter[str]
    noticed_s: list[float]
    ended_s: list[float]

    @property
    def others(self) -> float:
        """Return the requests per second and live call, without checks."""
        return sum(per_s for kind, per_s in self.per_s.items() if kind != "check")


class _Counted(httpx.AsyncBaseTransport):
    """The stand-in, with a count of requests by kind."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.asked: Counter[str] = Counter()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Count a request and pass it on."""
        self.asked[_kind(request)] += 1
        return await self._inner.handle_async_request(request)


def _kind(request: httpx.Request) -> str:
    if request.url.path.endswith("/queue"):
        return "listing"
    if request.method != "GET":
        return "effect"
    return "check" if b"checkvoiceauthentication=true" in request.url.query.lower() else "read"


def answer(effort: Effort) -> Answer:
    """Run calls under the shipped rules, and under rules that read as often as before."""
    sizes = (1, 40) if effort.is_smoke else LIVE
    lasts_s = {live: 20.0 if effort.is_smoke else LASTS_S * min(10, max(1, LIVE[2] / live)) for live in sizes}
    found = {(live, how): _run(live, how, lasts_s[live]) for live in sizes for how in ("as shipped", "every 5 s")}
    rows: list[tuple[Cell, ...]] = [
        (
            *(live, how),
            *(one.per_s[kind] for kind in ("check", "read", "listing", "effect")),
            *(one.others, quantile(one.noticed_s, 0.5), quantile(one.noticed_s, 0.95), quantile(one.ended_s, 1.0)),
        )
        for (live, how), one in found.items()
    ]
    table = Table(
        "Requests per second and live call, and seconds until something is noticed",
        (
            *("live calls", "stored details are read", "checks", "reads", "listings", "effects", "all but checks"),
            *("noticed p50 s", "p95 s", "end without push, worst s"),
        ),
        tuple(rows),
        "Noticed: questions answered, an opt-out, a reject by somebody else. Effects are assigns and enrolls.",
    )
    if effort.is_smoke:
        return Answer("What does a live call cost in requests?", (table,))
    many = [one for (live, how), one in found.items() if live >= 40 and how == "as shipped"]
    few = [one for (live, how), one in found.items() if live < 40 and how == "as shipped"]
    lost, more = _lost()
    goals = (
        Goal.at_most(
            "40 calls and more: requests but checks, per s and call", _worst(one.others for one in many), 0.06
        ),
        Goal.at_most(
            "few calls: noticed within, p95 s",
            _worst(quantile(one.noticed_s, 0.95) for one in few if one.noticed_s),
            10.0,
        ),
        Goal.at_most(
            "an end without a push noticed within, s", _worst(quantile(one.ended_s, 1.0) for one in found.values()), 6.0
        ),
        Goal.at_most("enrolls lost more than by reads every 5 s, %", Spread.of(more), 1.0),
    )
    return Answer(
        "What does a live call cost in requests, and how soon is something noticed?", (table, lost, goals_table(*goals))
    )


def _lost() -> tuple[Table, list[float]]:
    """Return how many enrolls are lost, and for each seed how many percent more than with reads every 5 s."""
    shipped = load_rules(None)
    books = [shipped, replace(shipped, **OFTEN)]  # type: ignore[arg-type]  # numbers
    found = [losses(books, live=LIVE[2], calls=CALLS // len(SEEDS), seed=seed) for seed in SEEDS]
    ours, often = ([share for one in found for share in one[n]] for n in (0, 1))
    more = [a - b for a, b in zip(ours, often, strict=True)]
    rows = (("as shipped", ours), ("every 5 s", often), ("more as shipped", more))
    table = Table(
        "Enrolls lost because the evidence was noticed after the end, %",
        ("stored details are read", "mean and 95 % interval"),
        tuple((name, str(Share.of(shares))) for name, shares in rows),
        f"{len(ours)} calls that the voice does not decide, {LIVE[2]} live; both ways see the same calls.",
    )
    by_seed = [Share.of([a - b for a, b in zip(*one, strict=True)]).percent for one in found]
    return table, by_seed


def _worst(figures: Iterator[float]) -> Spread:
    return Spread.of([max(figures)])


def _run(live: int, how: str, lasts_s: float) -> Found:
    async def run(url: str) -> Found:
        async with Redis.from_url(url) as redis:
            stage = Asgi()
            async with stage.client, stage.sandbox.client:
                return await _watch(stage, redis, live, OFTEN if how != "as shipped" else {}, lasts_s)

    with TemporaryDirectory() as folder, embedded_redis(Path(folder)) as server:
        return asyncio.run(run(server.url))


async def _watch(stage: Asgi, redis: Redis, live: int, changes: dict[str, float], lasts_s: float) -> Found:
    """Keep this many calls live for this long. Start another call for each that ends."""
    counted = _Counted(stage.transport)
    rig = Rig(stage, redis, replace(load_rules(None), **changes), transport=counted)  # type: ignore[arg-type]
    chance, calls, ends = Random(live), list[Call](), list[datetime]()  # noqa: S311
    begin = rig.clock.now
    over = begin + timedelta(seconds=SETTLING_S + lasts_s)
    seconds_lived, before, settled = 0.0, Counter[str](), False
    while rig.clock.now < over:
        if not settled and (rig.clock.now - begin).total_seconds() >= SETTLING_S:
            settled, before, seconds_lived = True, Counter(counted.asked), 0.0
        ends = [end for end in ends if end > rig.clock.now]
        wanted = live if (rig.clock.now - begin).total_seconds() > SETTLING_S / 2 else live // 2
        for _ in range(max(1, wanted) - len(ends)):
            # Calls that are live at a given moment are on average longer than all calls.
            script, lives_s = _story(chance)
            calls.append(stage.call(*script, phone_number=f"55509{len(calls):05}", voice_id=f"v-{len(calls)}"))
            stage.world.add_member(KEY, f"p-{len(calls)}", [calls[-1].phone_number])
            ends.append(rig.clock.now + timedelta(seconds=lives_s))
            await rig.push(calls[-1])
        seconds_lived += len(ends)
        await rig.run(1.0)
    asked = Counter(counted.asked)
    asked.subtract(before)
    per_s = Counter({kind: n / seconds_lived for kind, n in asked.items()})
    return await _account(rig, calls, per_s)


def _story(chance: Random) -> tuple[list[Happening], float]:
    """Draw the events of a call, and its length."""
    lives_s = max(10.0, PRIOR_CALL.quantile(chance.random()))
    script = [Happening(Kind.END, lives_s)]
    if chance.random() < 0.5:
        script.append(Happening(Kind.GREEN, PRIOR_RESULT.quantile(chance.random())))
    drawn = chance.random()
    kinds = ((0.33, Kind.ANSWERED_QUESTIONS), (0.41, Kind.OPT_OUT), (0.46, Kind.REJECTED))
    kind = next((kind for share, kind in kinds if drawn < share), None)
    if kind is not None:
        script.append(Happening(kind, 5 + chance.random() * lives_s))
    return [one for one in script if one.after_s <= lives_s], lives_s


async def _account(rig: Rig, calls: Sequence[Call], per_s: Counter[str]) -> Found:
    """Compare when events happened at the stand-in with when our trails show them."""
    noticed, ended = [], []
    for call in calls:
        if call.ended_at is None or call.ended_at > rig.clock.now - timedelta(seconds=15):
            continue
        record, trail = await rig.record(call), await rig.trail(call)
        if record.life.ended_at is not None:
            ended.append((record.life.ended_at - call.ended_at).total_seconds())
        for truth in call.truth:
            status = SHOWN_BY.get(truth.kind)
            if status is None:
                continue
            at = next((line.at for line in trail if line.status == status), None)
            if at is not None and at <= call.ended_at:
                noticed.append((at - truth.at).total_seconds())
    return Found(per_s, noticed, ended)
