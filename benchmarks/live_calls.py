"""Live calls in virtual time: a whole callkeeper against the stand-in, and how long each result stayed unknown to it.

The stand-in records when each result came to exist (its truth); our trail records when we knew it. Requests take no
time here, so this measures the schedule as the real store, decisions and moves execute it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from redis.asyncio import Redis

from callkeeper.calls.rules import RuleBook, load_rules
from callkeeper.calls.schedule.estimate import shows_result
from callkeeper.calls.schedule.plan import Schedule
from callkeeper.calls.trail import Recorded
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import PHONE, Asgi

BEGIN_WITHIN_S = 30.0
"""Calls begin one after the other within this time, so that nearly all of them are live at once."""

QUIET_READS_S = 60.0
"""Stored details are rarely read here, because they do not show results and there are many calls."""

LOOKS_EVERY_S = 0.1
"""How often to look for due calls. A worker looks every 20 ms in a shift, and within 200 ms outside one."""

AFTER_LAST_S = 30.0
"""Time for the last call to be settled."""


Plan = tuple[float, float]
"""When a call's result comes (infinite: never) and when the call ends, in seconds after its begin."""


@dataclass(frozen=True, slots=True)
class Watched:
    """The outcome of a run.

    Attributes:
        calls: How many there were.
        lags_s: For each call that got a result while it was live, how long we did not know the result: until our trail
            shows it, or the call's end.
        planned_lag_s: The mean lag of the same calls if every check were made exactly at its slot.
        unknown: How many results were still unknown at the end.
        checks, most_checks: Checks that arrived at the stand-in: the total, and the most for one call.
        recordings: The calls with their trails.
    """

    calls: int
    lags_s: tuple[float, ...]
    planned_lag_s: float
    unknown: int
    checks: int
    most_checks: int
    recordings: tuple[Recorded, ...]

    @property
    def mean_lag_s(self) -> float:
        """Return the mean lag in seconds."""
        return fmean(self.lags_s)


def watch(plans: Sequence[Plan], schedule: Schedule) -> Watched:
    """Run calls through a callkeeper on a Redis of its own; see ``watch_calls``."""

    async def run(url: str) -> Watched:
        async with Redis.from_url(url) as redis:
            return await watch_calls(redis, plans, schedule)

    with TemporaryDirectory() as folder, embedded_redis(Path(folder)) as server:
        return asyncio.run(run(server.url))


async def watch_calls(redis: Redis, plans: Sequence[Plan], schedule: Schedule) -> Watched:
    """Run calls through a callkeeper on an empty Redis, in virtual time."""
    stage = Asgi()
    async with stage.client, stage.sandbox.client:
        rig = Rig(stage, redis, _quiet_rules(schedule))
        calls = await _live(rig, plans)
        return await _account(rig, calls, plans)


def _quiet_rules(schedule: Schedule) -> RuleBook:
    book = load_rules(None).with_schedule(schedule)
    return replace(book, reads_undecided_s=QUIET_READS_S, reads_decided_s=QUIET_READS_S)


async def _live(rig: Rig, plans: Sequence[Plan]) -> list[Call]:
    """Begin and end the calls. The clock jumps from each moment at which something happens to the next."""
    begin = rig.clock.now
    calls: list[Call] = []
    begins = [begin + timedelta(seconds=BEGIN_WITHIN_S * n / len(plans)) for n in range(len(plans))]
    lives_s = [lived_s for _, lived_s in plans]
    ends = sorted((begins[n] + timedelta(seconds=lived_s), n) for n, lived_s in enumerate(lives_s))
    over = ends[-1][0] + timedelta(seconds=AFTER_LAST_S)
    ended = 0
    while rig.clock.now < over:
        while len(calls) < len(plans) and begins[len(calls)] <= rig.clock.now:
            calls.append(_start(rig, f"v-{len(calls)}", *plans[len(calls)]))
            await rig.push(calls[-1])
        while ended < len(ends) and ends[ended][0] <= rig.clock.now:
            await rig.push(calls[ends[ended][1]], "CallEnd")
            ended += 1
        while await rig.tick():
            pass
        moments = [*begins[len(calls) : len(calls) + 1], *(at for at, _ in ends[ended : ended + 1]), over]
        await _advance(rig, min(moments))
    return calls


def _start(rig: Rig, voice_id: str, result_s: float, lived_s: float) -> Call:
    """Start a call whose id is the same in every run, and so is the pace that depends on the id."""
    script = [Happening(Kind.END, lived_s)]
    if result_s < lived_s:
        script.append(Happening(Kind.GREEN, result_s))
    return rig.stage.call(*script, phone_number=PHONE, voice_id=voice_id)


async def _advance(rig: Rig, until: datetime) -> None:
    """Move the clock to the next moment at which callkeeper or the stand-in has work, at most to the given one."""
    due: list[tuple[bytes, float]] = await rig.redis.zrange(rig.store.keys.due, 0, 0, withscores=True)
    ours_s = due[0][1] / 1000 if due else inf
    theirs = rig.stage.world.next_due_at()
    now_s = rig.clock.now.timestamp()
    next_s = min(ours_s, theirs.timestamp() if theirs else inf, until.timestamp())
    rig.stage.advance(max(LOOKS_EVERY_S, next_s - now_s))


async def _account(rig: Rig, calls: Sequence[Call], plans: Sequence[Plan]) -> Watched:
    """Compare the stand-in's truth with our trails."""
    policies = rig.book.policies
    lags, unknown, known_at = [], 0, {}
    recordings = [recorded async for recorded in rig.queries.recordings()]
    for recorded in recordings:
        shown = (
            line.at for line in recorded.trail if line.what in {"checked", "read"} and shows_result(line, policies)
        )
        known_at[recorded.voice_id] = min(shown, default=None)
    for call in calls:
        true_at = next((truth.at for truth in call.truth if truth.kind is Kind.GREEN), None)
        if true_at is None or call.ended_at is None:
            continue
        knew_at = known_at[call.voice_id]
        unknown += knew_at is None or knew_at >= call.ended_at
        lags.append((min(knew_at or call.ended_at, call.ended_at) - true_at).total_seconds())
    checks = [rig.stage.sandbox.ledger.tally(call.voice_id).arrived.get("check", 0) for call in calls]
    schedule = rig.book.schedule
    planned = [
        lag_as_planned(schedule.paced(call.voice_id), *plan)
        for call, plan in zip(calls, plans, strict=True)
        if plan[0] < plan[1]
    ]
    return Watched(len(calls), tuple(lags), fmean(planned), unknown, sum(checks), max(checks), tuple(recordings))


def lag_as_planned(schedule: Schedule, result_s: float, lived_s: float) -> float:
    """Return how long a call's result stays unknown if every check is made exactly at its slot."""
    return next((t for t in schedule.at_s if result_s <= t < lived_s), lived_s) - result_s
