"""Plays a scenario on the whole product in virtual time, and writes down what comes of each call.

Requests are seen where they reach the service. What is known of a call is read whenever time has passed.
"""

import os
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import Any, Final

import httpx
import msgspec
from redis.asyncio import ConnectionPool, Redis

from callkeeper_sandbox.service.answers import RefusedError
from callkeeper_sandbox.service.faults import Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.corpus import core
from tests.corpus.scenario import CallOutcome, Moment, Op, Played, Request, Scenario, digest
from tests.covering import calmed
from tests.faults.failover import OneServer
from tests.faults.seams import Failure, PlannedFailure, Seam
from tests.faults.world import World
from tests.harness.redis_in_step import InStep, emptied, virtually

SILENT: Final = {"institution", "member", "variants", "happen", "fault", "mix", "fail", "copy", "clock", "calm"}
"""Inputs after which nothing of ours has changed until time passes."""

_INSTANT: Final = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


Play = Callable[[Iterable[Scenario]], Iterator[tuple[Scenario, Played]]]
"""Plays scenarios, and yields each with what came of it, in order."""

_rules: dict[str, str] = {}


@contextmanager
def playing(rules: dict[str, str], jobs: int) -> Iterator[Play]:
    """Yield what plays scenarios in several processes, each with a Redis of its own."""
    with ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_begin, initargs=(rules,)) as pool:
        try:
            yield lambda scenarios: pool.map(_played, scenarios)
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(rules: dict[str, str]) -> None:
    os.nice(10)
    _rules.update(rules)


def _played(scenario: Scenario) -> tuple[Scenario, Played]:
    played = play(scenario, _rules[scenario.rules])
    return scenario, msgspec.json.decode(msgspec.json.encode(played), type=Played)  # as one that was kept


def play(scenario: Scenario, rules: str) -> Played:
    """Play a scenario in virtual time."""
    return virtually(_play(scenario, rules))


async def _play(scenario: Scenario, rules: str) -> Played:
    servers = _Server()
    await servers.fail_over()
    world = core.open_world(servers, rules, scenario.variants)
    playing = Playing(world, scenario, rules)
    try:
        await playing.run()
    finally:
        await world.close()
    return await playing.outcome()


class _Server(OneServer):
    """A server whose client counts neither its connections nor its time: a third of all that a scenario costs."""

    def __init__(self) -> None:
        self._client = Redis.from_pool(ConnectionPool.from_url(emptied(), connection_class=InStep))


class Playing:
    """A scenario at a world."""

    def __init__(self, world: World, scenario: Scenario, rules: str) -> None:
        self.world, self.scenario = world, scenario
        self.begun_at = world.clock.now
        self.calls: list[Call] = []
        self.requests: dict[str, list[Request]] = defaultdict(list)
        self.moments: dict[str, list[Moment]] = defaultdict(list)
        self.known: dict[str, dict[str, Any]] = defaultdict(dict)
        self.told: dict[str, dict[str, Any]] = {}
        self.met: dict[str, list[Any]] = defaultdict(lambda: [digest(rules), scenario.variants])
        self.broken: list[str] = []
        self.disturbed: set[str] = set()
        self._judged = world.judge.answer
        world.judge.answer = self._answered  # type: ignore[method-assign]  # the judge sees it, too

    @property
    def now_s(self) -> float:
        """Return the seconds since the scenario began."""
        return round((self.world.clock.now - self.begun_at).total_seconds(), 3)

    async def run(self) -> None:
        """Do one input after the other. An error ends the scenario, and belongs to what came of it."""
        await self.world.settle_in()
        try:
            for op in self.scenario.ops:
                await self._do(op)
                if op[0] not in SILENT:
                    await self._look([call for call in self.calls if self._is_watched(call)])
            await self._look(self.calls)
        except Exception as broken:  # noqa: BLE001  (whatever it is, another core may not have it)
            self.broken.append(f"{type(broken).__name__}: {broken}".splitlines()[0])
        for call in self.calls:
            self.told[call.voice_id] = await core.told(self.world, call)
        self.broken += sorted({str(broken).splitlines()[0] for broken in self.world.judge.broken})

    async def outcome(self) -> Played:
        """Return what came of it."""
        name = self.scenario.name
        calls = [
            CallOutcome(
                name=f"{name}/{n}",
                experience=digest(self.met[call.voice_id]),
                requests=self.requests[call.voice_id],
                moments=self.moments[call.voice_id],
                told=self.told[call.voice_id],
            )
            for n, call in enumerate(self.calls)
        ]
        return Played(name, calls, self.broken)

    async def _do(self, op: Op) -> None:
        do: Callable[..., Awaitable[None]] = getattr(self, f"_{op[0]}")
        await do(*op[1:])
        if op[0] not in {"call", "run"}:
            about = self.calls if op[0] not in OF_A_CALL else [self.calls[op[1]]]
            self.disturbed |= {call.voice_id for call in about}
            for call in about:
                self._meet(call, [op[0], *op[2 if op[0] in OF_A_CALL else 1 :]])

    def _meet(self, call: Call, what: list[Any]) -> None:
        """Note something that a call met, in seconds since its start and without its ids."""
        at_s = round((self.world.clock.now - call.started_at).total_seconds(), 3)
        self.met[call.voice_id].append([at_s, *what])

    def _is_watched(self, call: Call) -> bool:
        """Tell whether something of a call may have changed. What is settled is left alone, unless something happens."""
        is_settled = str(self.known[call.voice_id].get("told.phase")).startswith("settled")
        is_disturbed = call.voice_id in self.disturbed
        self.disturbed.discard(call.voice_id)
        return is_disturbed or not is_settled

    async def _look(self, calls: Sequence[Call]) -> None:
        for call in calls:
            now, before = await core.now_known(self.world, call), self.known[call.voice_id]
            now = {name: True if _is_growing(name) and value else value for name, value in now.items()}
            names = sorted(before.keys() | now.keys())
            changed = {name: now.get(name) for name in names if now.get(name) != before.get(name)}
            if changed:
                self.moments[call.voice_id].append(Moment(self.now_s, changed))
                self.known[call.voice_id] = now

    def _answered(self, request: httpx.Request, response: httpx.Response) -> None:
        self._judged(request, response)
        named = self.world.judge._named(request)
        call = None if named is None else self.world.stage.world.any_call(named[1])
        if named is None or call is None:
            return
        body = request.content.decode() if request.method == "POST" else ""
        by_alternate_id = " by its alternate id" if named[1] == call.alternate_id else ""
        what = " ".join(filter(None, [str(named[0]) + by_alternate_id, request.headers.get("RequestedBy"), body]))
        self.requests[call.voice_id].append(Request(self.now_s, what, response.status_code))
        self._meet(call, [str(named[0]), response.status_code, _without_ids(call, response.text)])

    # Inputs: what happens at the service

    async def _call(self, key: str, number: str, options: dict[str, Any], script: list[list[Any]]) -> None:
        call = self.world.stage.call(*(_happening(*one) for one in script), phone_number=number, key=key, **options)
        self.calls.append(call)
        self.world.calls.append(call)
        self.met[call.voice_id] += [key, options.get("listed_after_s"), options.get("persons"), script]

    async def _happen(self, n: int, kind: str, text: str | None, person: str | None) -> None:
        with suppress(RefusedError):  # an operator elsewhere may be refused, too
            self.world.stage.happen(self.calls[n], Kind(kind), text, person)

    async def _fault(self, fault: dict[str, Any]) -> None:
        self.world.stage.sandbox.faults.add(msgspec.convert(fault, Fault))

    async def _calm(self) -> None:
        """Lift every fault, so that what is still to be done can be done."""
        for worker in self.world.workers:
            worker.state.planned = None
        await self.world.wake_frozen()
        self.world.mixed_up.mix.clear()
        self.world.stage.sandbox.faults.clear()
        self.world.stage.sandbox.choose(calmed(self.scenario.variants))

    async def _variants(self, names: list[str]) -> None:
        self.world.stage.sandbox.choose(names)

    async def _member(self, key: str, person_id: str, phones: list[str]) -> None:
        self.world.stage.world.add_member(key, person_id, phones)

    async def _institution(self, key: str, options: dict[str, Any]) -> None:
        self.world.stage.world.add_institution(key, **options)

    async def _mix(self, n: int, other: int, is_by_alternate_id: bool, times: int) -> None:
        call = self.calls[n]
        self.world.mix_up(call.alternate_id if is_by_alternate_id else call.voice_id, self.calls[other], times)

    # Inputs: pushes, people

    async def _push(self, n: int, kind: str, has_voice: bool, has_alternate: bool) -> None:
        await self.world.push(self.calls[n], kind, voice=has_voice, alternate=has_alternate)

    async def _foreign(self, kind: str, key: str, voice_id: str, is_test: bool) -> None:
        if is_test:
            self.world.judge.samples.add(voice_id)
        await core.push_elsewhere(self.world, kind, key, voice_id, is_test=is_test)

    async def _say(self, n: int, word: str, fields: dict[str, Any], is_by_alternate_id: bool = False) -> None:
        await core.say(self.world, self.calls[n], word, fields, by_alternate_id=is_by_alternate_id)

    async def _again(self, n: int, nth: int) -> None:
        await self.world.hear_again(self.calls[n], nth)

    async def _pause(self, scope: str) -> None:
        await core.pause(self.world, scope)

    # Inputs: workers, Redis, time

    async def _fail(self, n: int, failure: str, seam: str, crossings: int) -> None:
        self.world.plan_failure(n, PlannedFailure(Failure(failure), Seam(seam), crossings))

    async def _thaw(self, n: int) -> None:
        await self.world.thaw(n)

    async def _copy(self) -> None:
        await self.world.copy()

    async def _roll_back(self) -> None:
        await self.world.roll_back()

    async def _empty(self) -> None:
        await self.world.empty()

    async def _clock(self, back_s: float) -> None:
        self.world.set_clock_back(back_s)

    async def _run(self, seconds: float) -> None:
        await self.world.run(seconds)


OF_A_CALL: Final = frozenset({"happen", "mix", "push", "say", "again"})
"""Inputs whose first argument is a call."""


def _happening(kind: str, after_s: float, text: str | None = None, person: str | None = None) -> Happening:
    return Happening(Kind(kind), after_s, text, person)


def _is_growing(name: str) -> bool:
    """Tell whether a fact counts seconds. It is kept as having begun: otherwise it would be new at every look."""
    return name.startswith("fact.") and name.endswith("_s")


def _without_ids(call: Call, text: str) -> str:
    """Return a text without the ids of a call and without instants: what remains is what two calls may have in common."""
    for id_, name in ((call.voice_id, "<voice>"), (call.alternate_id, "<alternate>")):
        text = text.replace(id_, name)
    return re.sub(r'"(callId|number)":\d+', "", _INSTANT.sub("<instant>", text))
