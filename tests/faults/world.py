"""callkeeper, the service and Redis in virtual time, with injected failures.

There are two workers, each with its own seams, and one web process with its desk, which never fails. There is one
sandbox, and one Redis that can be rolled back. The sandbox and Redis have a clock each.
"""

import asyncio
import copy
import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec.structs import replace
from redis.exceptions import RedisError

from callkeeper.calls.action_status import ActionState, line_of, status_of
from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.institutions import FOREIGN, UNKNOWN
from callkeeper.calls.item_names import CallId, parse_member
from callkeeper.calls.notes import Distrusted, Resolved, Statement
from callkeeper.calls.record import Call, Phase
from callkeeper.calls.record_storage import parse_call
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.claims import FARTHEST_MS
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.queries import Lookup, follow_tombstones
from callkeeper.calls.trail import Entry
from callkeeper.service.config import LoginPolicy
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Kind
from tests.covering import calmed
from tests.faults.judge import Judge, Kept, Memory, Said
from tests.faults.seams import Line, PlannedFailure, Wire, WorkerState
from tests.harness.virtual_time import SHIPPED, Rig
from tests.mixed_up import MixedUp
from tests.sandbox_fixtures import KEY, Asgi

TEST_MODE = "cu-test"
FOREIGN_KEY = "cu-foreign"
NOWHERE = "cu-nowhere"
ONE, TWO, NOBODY = "5550100001", "5550100002", "5550100003"
"""Phone numbers of one member, of two, and of none."""

LONGEST_STEP_S = 2.0
SOONEST_S = 0.05
HOLD_S = LEASE.seconds
"""How long effects wait after Redis was replaced."""

QUIET_LOOPS = 40
"""After this many event loop turns without a crossing, all tasks of a frozen worker have stopped."""

Dump = dict[bytes, bytes]

FOR_SETTLED = (Resolved, Distrusted)
"""CallStatements that are accepted about a settled call."""


class Servers(Protocol):
    """The Redis servers. A failover makes another one current."""

    def current(self) -> Any:
        """Return a client of the current server."""

    async def aclose(self) -> None:
        """Close every client."""

    async def fail_over(self) -> None:
        """Replace the current server by an empty one with another run id."""


async def dump(redis: Any, keys: Keys) -> Dump:
    """Return all keys in the encoding of Redis's DUMP, without times to live and without the wake-up marker."""
    found = [key async for key in redis.scan_iter(match=f"{keys.prefix}:*", count=1000)]
    return {key: await redis.dump(key) for key in found if key != keys.wake.encode()}


async def restore(redis: Any, copied: Dump) -> None:
    """Restore a copy into an empty server."""
    for key, value in copied.items():
        await redis.restore(key, 0, value)


@dataclass(slots=True)
class Worker:
    """A worker process: its rig, its planned failure, and its current turn."""

    rig: Rig
    state: WorkerState
    turn: asyncio.Task[int] | None = None
    moves: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are under way."""
        every = [*self.moves, *([self.turn] if self.turn else [])]
        return [task for task in every if not task.done()]

    async def take_turn(self, limit: int) -> int:
        """Claim and move up to ``limit`` calls; return how many there were."""
        await self.rig.institutions.refresh()
        await asyncio.gather(*await self.rig.probing.start_due())
        claimed = await self.rig.store.claim(limit)
        self.moves = {asyncio.ensure_future(self.rig.shift.handle(held)) for held in claimed}
        if self.moves:
            await asyncio.wait(self.moves)
        return len(claimed)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The data of Redis and the judge's memories at one moment."""

    copied: Dump
    memories: dict[str, Memory]


class World:
    """All parts of the system, and the control of time."""

    def __init__(self, servers: Servers, book: RuleBook = SHIPPED, variants: Sequence[str] = ()) -> None:
        self.servers = servers
        self.variants = variants
        self.book = book
        self.stage = Asgi()
        self.clock = self.stage.clock
        self.behind_s = 0.0
        self.set_back_s = 0.0
        self._rounds = 0
        self._events = itertools.count(1)
        self.keys = Keys()
        self.calls: list[SandboxCall] = []
        self.snapshot: Snapshot | None = None
        self.mixed_up = MixedUp(self.stage.transport)
        self._statements = 0
        self._people()
        self.stage.sandbox.choose(variants)
        self.web = self._new_worker(WorkerState()).rig
        self.judge = Judge(self.stage, self.load)
        self.workers = [self._new_worker(WorkerState()), self._new_worker(WorkerState())]

    def _people(self) -> None:
        world = self.stage.world
        world.add_institution(TEST_MODE, is_test_mode=True)
        world.add_institution(FOREIGN_KEY, owned=False)
        for key in (KEY, TEST_MODE):
            world.add_member(key, "p-2", [TWO])
            world.add_member(key, "p-3", [TWO])
        world.add_member(TEST_MODE, "p-1", [ONE])

    def _new_worker(self, state: WorkerState) -> Worker:
        line = Line(self.servers.current, state, self.now_ms)
        witness = self.judge if hasattr(self, "judge") else Judge(self.stage, self.load)
        wire = Wire(self.mixed_up, state, witness)
        login = LoginPolicy(min_interval_s=0.0)
        rig = Rig(self.stage, line, self.book, transport=wire, now_ms=self.now_ms, login=login, hold_s=HOLD_S)
        return Worker(rig, state)

    def set_clock_back(self, seconds: float) -> None:
        """Set Redis's clock back, or ahead if negative."""
        self.behind_s += seconds
        self.set_back_s += max(0.0, seconds)
        self.judge.jumped_since_s += max(0.0, -seconds)

    def now_ms(self) -> int:
        """Return the time of Redis's clock in milliseconds."""
        return int((self.clock.now.timestamp() - self.behind_s) * 1000)

    @property
    def lookup(self) -> Lookup:
        """Return the desk's lookup of calls."""
        return Lookup(self.servers.current(), keys=self.keys)

    async def load(self, voice_id: str) -> tuple[Call | None, tuple[Entry, ...]]:
        """Return our record and trail of a call, by either of its ids."""
        call = self.stage.world.any_call(voice_id)
        assert call is not None
        call_id = CallId(call.institution_key, call.voice_id)
        return await self.web.queries.load(call_id), await self.web.queries.trail(call_id)

    # Input from outside

    def id_of(self, call: SandboxCall) -> CallId:
        """Return the id of a call's record."""
        return CallId(call.institution_key, call.voice_id)

    async def push(self, call: SandboxCall, kind: str, *, voice: bool, alternate: bool) -> None:
        """Deliver a push about a call."""
        await self.deliver(
            PushEvent(
                type=kind,
                institution_key=call.institution_key,
                voice_id=call.voice_id if voice else None,
                alternate_voice_id=call.alternate_id if alternate else None,
                phone_number=call.phone_number,
            )
        )

    async def deliver(self, event: PushEvent) -> None:
        """Record a push as the receiver does."""
        await self.web.intake.record(event, event_id=f"ev-{next(self._events)}")

    async def hear(self, call: SandboxCall, statement: Statement, *, by_alternate_id: bool = False) -> None:
        """Accept a person's statement at the desk. By the alternate id, only if the desk finds a call under it."""
        place = self.id_of(call)
        if by_alternate_id:
            found = await self.lookup.resolve(call.institution_key, call.alternate_id)
            if found is None:
                return
            place = CallId(call.institution_key, call.alternate_id)
        else:
            found = place
        self._statements += 1
        statement = replace(statement, wish=f"{self._statements:032x}")
        self.judge.of(call).heard(statement)
        taken, _ = await self.web.store.note(found, statement, even_settled=isinstance(statement, FOR_SETTLED))
        if taken:
            self.judge.of(call).said.append(Said(place, statement))

    async def hear_again(self, call: SandboxCall, nth: int) -> None:
        """Accept a statement again, as when the desk's Redis client repeats a script whose answer was lost."""
        said = self.judge.of(call).said
        if said:
            place, statement = said[nth % len(said)]
            await self.web.store.note(place, statement, even_settled=isinstance(statement, FOR_SETTLED))

    def mix_up(self, asked: str, other: SandboxCall, times: int) -> None:
        """Have the service answer requests for an id with another call's record."""
        self.mixed_up.mix[asked] = (other.voice_id, times)

    # Workers and time

    async def settle_in(self) -> None:
        """Run until Redis no longer counts as new."""
        await self.run(HOLD_S + 1)

    async def run(self, seconds: float) -> None:
        """Let time pass while both workers do the work that becomes due."""
        end = self.clock.now + dt.timedelta(seconds=seconds)
        while True:
            await self._work_off()
            if self.clock.now >= end:
                return
            self.stage.advance(min((end - self.clock.now).total_seconds(), await self._until_next_s()))

    async def _work_off(self) -> None:
        for _ in range(60):
            self._rounds += 1
            first = self._rounds % 2
            moved = [await self._turn(first, 1), await self._turn(1 - first, 100)]
            if not any(moved):
                return
        raise AssertionError("something is due again and again without time passing")

    async def _turn(self, n: int, limit: int) -> int:
        worker = self.workers[n]
        if worker.state.is_frozen or not await self._is_due():
            return 0
        worker.turn = asyncio.ensure_future(worker.take_turn(limit))
        return await self._until_still(n)

    async def _is_due(self) -> bool:
        """Tell whether a claim would find anything, or has to repair due times after the clock was set back."""
        redis, now_ms = self.servers.current(), self.now_ms()
        far = await redis.zcount(self.keys.due, now_ms + FARTHEST_MS, "+inf")
        return bool(far or await redis.zcount(self.keys.due, "-inf", now_ms) or not await redis.exists(self.keys.due))

    async def _until_still(self, n: int) -> int:
        """Wait until a worker has finished its turn, is frozen, or is dead. A dead worker is replaced."""
        worker = self.workers[n]
        turn, state = worker.turn, worker.state
        assert turn is not None
        while not turn.done() and not state.is_frozen and not state.is_dead:
            await asyncio.wait({turn}, timeout=0.0005)
        if state.is_frozen:
            await self._until_quiet(worker)
        if state.is_dead:
            await self._replace_worker(n)
            return 1
        if not turn.done():
            return 1
        worker.turn = None
        assert not worker.rig.shift.failures, worker.rig.shift.failures
        try:
            return turn.result()
        except RedisError:
            return 1

    async def _until_quiet(self, worker: Worker) -> None:
        quiet, crossed = 0, -1
        while quiet < QUIET_LOOPS:
            is_quiet = worker.state.inside == 0 and worker.state.crossed == crossed
            quiet, crossed = (quiet + 1 if is_quiet else 0), worker.state.crossed
            await asyncio.sleep(0)

    async def _replace_worker(self, n: int) -> None:
        worker = self.workers[n]
        while tasks := worker.tasks:
            await end(tasks)
        self.workers[n] = self._new_worker(WorkerState())
        self.judge.is_worker_new = True

    async def _until_next_s(self) -> float:
        """Return the seconds until something is due, here or in the sandbox."""
        first: list[tuple[bytes, float]] = await self.servers.current().zrange(self.keys.due, 0, 0, withscores=True)
        in_s = [(first[0][1] - self.now_ms()) / 1000] if first else []
        happens_at = self.stage.world.next_due_at()
        if happens_at is not None:
            in_s.append((happens_at - self.clock.now).total_seconds())
        return max(SOONEST_S, min([LONGEST_STEP_S, *in_s]))

    def plan_failure(self, n: int, planned: PlannedFailure) -> None:
        """Plan a failure for a worker."""
        self.workers[n].state.planned = planned

    async def thaw(self, n: int) -> None:
        """Let a frozen worker continue and finish its turn."""
        worker = self.workers[n]
        if worker.state.is_frozen:
            worker.state.thaw()
            await self._until_still(n)

    async def wake_frozen(self) -> None:
        """Let all frozen workers continue."""
        for n in range(len(self.workers)):
            await self.thaw(n)

    # Redis

    async def copy(self) -> None:
        """Remember what Redis holds now."""
        self.snapshot = Snapshot(await dump(self.servers.current(), self.keys), copy.deepcopy(self.judge.memories))

    async def roll_back(self) -> None:
        """Lose what was written since the snapshot, as after a crash or when a lagging replica takes over."""
        if self.snapshot is None:
            return
        await self._fail_over(self.snapshot.copied)
        self.judge.memories = copy.deepcopy(self.snapshot.memories)

    async def empty(self) -> None:
        """Lose everything in Redis."""
        await self._fail_over({})

    async def _fail_over(self, copied: Dump) -> None:
        before = {call.voice_id: await self._kept(call) for call in self.calls}
        await self.servers.fail_over()
        await restore(self.servers.current(), copied)
        self.judge.rolled_back_at, self.judge.jumped_since_s, self.judge.is_worker_new = self.clock.now, 0.0, False
        for call in self.calls:
            self.judge.forgets(call.voice_id, before[call.voice_id], await self._kept(call))

    async def _kept(self, call: SandboxCall) -> Kept:
        redis, checks, records = self.servers.current(), 0, []
        for id_ in (call.voice_id, call.alternate_id):
            item = self.keys.item(CallId(call.institution_key, id_).member)
            booked, record = await redis.hmget(item, ["checks", "rec"])
            checks += int(booked or 0)
            records += [parse_call(record)] if record else []
        return Kept(tuple(records), checks)

    async def close(self) -> None:
        """End all tasks and close the connections."""
        for n, worker in enumerate(self.workers):
            worker.state.is_dead = True
            worker.state.thaw()
            await self._replace_worker(n)
        await self.servers.aclose()

    # Assertions

    async def check(self) -> None:
        """Assert what must be true after every step."""
        if self.judge.broken:
            raise self.judge.broken[0]
        await self._nothing_is_forgotten()
        for call in self.calls:
            self.judge.counts_hold(call, (await self._kept(call)).checks)
            await self._is_itself(call)

    async def _is_itself(self, call: SandboxCall) -> None:
        """Assert from tombstones and trail that no record was ever merged into that of another call."""
        ids = (call.voice_id, call.alternate_id)
        for id_ in ids:
            member = CallId(call.institution_key, id_).member
            owner = parse_member(await follow_tombstones(self.servers.current(), self.keys, member))
            assert isinstance(owner, CallId)
            assert owner.voice_id in ids, f"{id_} was merged into {owner.voice_id}, another call"
        merged = {line.voice_id for line in (await self.load(call.voice_id))[1] if line.what == "merged"}
        assert merged <= set(ids), f"{merged} was merged into {call.voice_id}, another call"

    async def _nothing_is_forgotten(self) -> None:
        """Assert that every member that has a note or is not settled is due soon, leased, or waits for its institution.

        And that none is set aside for a person after failures.
        """
        redis = self.servers.current()
        for member in await _members(redis, self.keys):
            moved, settled, record = await redis.hmget(self.keys.item(member), ["moved", "settled", "rec"])
            has_notes = await redis.exists(self.keys.inbox(member))
            if moved or (settled and not has_notes) or (record is None and not has_notes):
                continue
            owner = parse_member(member)
            waiting = self.keys.parked(owner.institution_key if isinstance(owner, CallId) else "")
            score = await redis.zscore(self.keys.due, member) or await redis.zscore(waiting, member)
            assert score is not None, f"{member} is forgotten"
            assert score <= self.now_ms() + FARTHEST_MS + self.set_back_s * 1000, f"{member} is due too late"
        assert not [why for why in (await self.web.queries.attention()).values() if why == "parked"]

    async def calm(self) -> None:
        """Lift all faults and end every call. Then assert that all calls settle and their ledgers are true."""
        for worker in self.workers:
            worker.state.planned = None
        await self.wake_frozen()
        self.stage.sandbox.faults.clear()
        self.stage.sandbox.choose(calmed(self.variants))
        self.mixed_up.mix.clear()
        await self.run(2)
        for call in self.calls:
            if call.ended_at is None:
                self.stage.happen(call, Kind.END)
        for _ in range(40):
            await self.run(10)
            await self.check()
            if not await self._unsettled():
                break
        assert not await self._unsettled(), f"not settled: {await self._unsettled()}"
        await self._is_true()

    async def _unsettled(self) -> list[str]:
        members = await _members(self.servers.current(), self.keys)
        return [member for member in members if not await self._is_at_rest(member)]

    async def _is_at_rest(self, member: str) -> bool:
        owner = parse_member(member)
        if not isinstance(owner, CallId):
            return True
        if await self.servers.current().hexists(self.keys.item(member), "moved"):
            return True
        call = await self.web.queries.load(owner)
        return call is not None and (call.life.phase is Phase.SETTLED or self._waits_for_standing(call))

    def _waits_for_standing(self, call: Call) -> bool:
        """Tell whether a call waits because its institution is lost to the account, or never says how it stands."""
        standing = call.last_claim.standing
        return standing == FOREIGN or (standing == UNKNOWN and "keys-refused" in self.variants)

    async def _is_true(self) -> None:
        for call in self.calls:
            record, trail = await self.load(call.voice_id)
            if record is None:
                assert not self.judge.of(call).said, "a statement was taken, and there is no record"
                continue
            if self._waits_for_standing(record):
                continue
            assert record.is_settled
            await self._statements_are_answered(call)
            self.judge.last_statements_count(record, await self._reached(call))
            self.judge.is_told_once(trail)
            self.judge.is_true(call, record, trail)

    async def _reached(self, call: SandboxCall) -> list[Statement]:
        """Return the statements that are in the call's record. CallStatements under an unconfirmed id are not in it."""
        said = self.judge.of(call).said
        return [statement for place, statement in said if await self.lookup.resolve(*place) == self.id_of(call)]

    async def _statements_are_answered(self, call: SandboxCall) -> None:
        """Assert that every accepted statement has an outcome and is found by the id under which it was made."""
        for place, statement in self.judge.of(call).said:
            known = await self.lookup.known(*place)
            line = line_of(known.trail, statement.wish or "") if known else None
            assert known is not None, f"no call under {place}"
            assert line is not None, f"a statement was lost: {statement}"
            assert status_of(known.call, known.trail, line).state is not ActionState.PENDING


async def _members(redis: Any, keys: Keys) -> set[str]:
    """Return every call and institution that has a record or a note."""
    return {
        key.decode()[len(of("")) :]
        for of in (keys.item, keys.inbox)
        async for key in redis.scan_iter(match=of("*"), count=1000)
    }
