"""The model: random sequences of events over the real decide, fold, store, scripts and moves, in virtual time.

Hypothesis draws the sequences and shrinks failing ones. The promises are those of docs/guarantees.md. The judge checks
them at every request, after every step, and at the end, when all faults are lifted and every call has ended. An effect
may be sent once more for each time that a rollback of Redis lost it, but only after stored details were read that do
not show it. There are never more than 20 checks, however much Redis lost.

``TEST_MODEL=nightly`` draws more and longer sequences.
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from callkeeper.calls.notes import AssignWish, CheckWish, Distrusted, Resolved, Statement, Verified
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.answers import RefusedError
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Kind
from tests.covering import covering_sets
from tests.faults.failover import OneServer, TwoServers
from tests.faults.seams import Failure, PlannedFailure, Seam
from tests.faults.world import FOREIGN_KEY, NOBODY, NOWHERE, ONE, TEST_MODE, TWO, Servers, World
from tests.sandbox_fixtures import KEY

T = TypeVar("T")

IS_NIGHTLY = os.environ.get("TEST_MODEL") == "nightly"
MOST_CALLS = 3

SETS = [[name for name in names if "slow" not in name] for names in covering_sets()]
"""Sets with every pair of variants, except those with slow answers, which take no virtual time."""

MODEL = settings(
    max_examples=3000 if IS_NIGHTLY else 15,
    stateful_step_count=60 if IS_NIGHTLY else 30,
    derandomize=not IS_NIGHTLY,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

pytestmark = pytest.mark.timeout(7200 if IS_NIGHTLY else 900)

PERSONS = st.sampled_from(["p-1", "p-2"])
OPERATORS = st.sampled_from(["ann", "bob"])
BY_ALTERNATE = st.sampled_from([False, False, True])
TIMES = st.sampled_from([1, 3, 1000])
"""For how many answers the service mixes up two calls; 1000 stands for all."""

VALIDATIONS = st.sampled_from(["KnowledgeBasedAuth", "OneTimePasswordAuth", "Other"])
HAPPENINGS = st.sampled_from(
    [
        Kind.GREEN,
        Kind.RED,
        Kind.POLICY,
        Kind.MISMATCH,
        Kind.ANSWERED_QUESTIONS,
        Kind.MFA_VALIDATED,
        Kind.OPT_OUT,
        Kind.VIEWED,
        Kind.VIEWED,
        Kind.ENROLLED,
        Kind.REJECTED,
        Kind.REJECTED_BY_RULE,
        Kind.CLAIMED,
        Kind.CASE,
        Kind.CASE_ELSEWHERE,
        Kind.END,
    ]
)
TARGETS = st.sampled_from(
    [Operation.ASSIGN, Operation.ENROLL, Operation.REJECT_VOICE, Operation.CHECK, Operation.READ, Operation.QUEUE]
)
ACTIONS = st.sampled_from(
    [Action.RESET, Action.DROP, Action.ANSWER, Action.HTML, Action.CUT, Action.REFUSED, Action.UNAUTHORIZED]
)
SECONDS = st.sampled_from([0.1, 0.6, 1.0, 3.0, 9.0, 25.0, 70.0])


class Model(RuleBasedStateMachine):
    """The state machine. Every rule is one thing that may happen next."""

    calls: Bundle[SandboxCall] = Bundle("calls")
    variants: Sequence[str] = ()

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.serial = 0
        self.is_broken = False
        self.world = self.do(self._begin())

    def servers(self) -> Servers:
        """Return the Redis of one example."""
        return OneServer()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine. If it fails, the end of the example is not checked."""
        try:
            return self.loop.run_until_complete(work)
        except BaseException:
            self.is_broken = True
            raise

    async def _begin(self) -> World:
        servers = self.servers()
        await servers.fail_over()
        world = World(servers, variants=self.variants)
        await world.settle_in()
        return world

    def _number(self) -> int:
        self.serial += 1
        return self.serial

    # The world

    @initialize(target=calls, verified=st.booleans())
    def one_call(self, verified: bool) -> SandboxCall:
        """Begin with a call that is found, assigned and often verified, because most faults need one."""
        call = self._start(KEY, ONE, 0.0)
        self.do(self.world.push(call, "CallStart", voice=True, alternate=True))
        self.do(self.world.run(1))
        if verified:
            self._say(call, Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=self._now()))
        return call

    @rule(
        target=calls,
        key=st.sampled_from([KEY, KEY, KEY, TEST_MODE]),
        number=st.sampled_from([ONE, ONE, TWO, NOBODY]),
        listed_after_s=st.sampled_from([0.0, 0.0, 3.0, 12.0]),
    )
    def call_starts(self, key: str, number: str, listed_after_s: float) -> SandboxCall:
        """A member calls."""
        if len(self.world.calls) >= MOST_CALLS:
            return self.world.calls[-1]
        return self._start(key, number, listed_after_s)

    def _start(self, key: str, number: str, listed_after_s: float) -> SandboxCall:
        n = self._number()
        call = self.world.stage.call(
            phone_number=number, key=key, listed_after_s=listed_after_s, voice_id=f"v-{n}", alternate_id=f"alt-{n}"
        )
        self.world.calls.append(call)
        return call

    @rule(call=calls, kind=HAPPENINGS, person=st.sampled_from([None, "p-1", "p-2"]))
    def something_happens(self, call: SandboxCall, kind: Kind, person: str | None) -> None:
        """Something happens to a call at the service."""
        text = "DeterminedFraud" if kind in {Kind.CASE, Kind.CASE_ELSEWHERE} else None
        with suppress(RefusedError):  # an operator elsewhere may be refused, too
            self.world.stage.happen(call, kind, text, person)

    @rule(target_=TARGETS, action=ACTIONS, applied=st.booleans(), skip=st.integers(0, 1))
    def service_misbehaves(self, target_: Operation, action: Action, applied: bool, skip: int) -> None:
        """The service breaks the connection or gives a wrong answer, before or after it did what was asked."""
        fault = Fault(target=target_, action=action, applied=applied, times=1, skip=skip)
        self.world.stage.sandbox.faults.add(fault)

    # Pushes

    @rule(target_=st.sampled_from([Operation.ASSIGN, Operation.ENROLL, Operation.REJECT_VOICE]))
    def right_is_missing(self, target_: Operation) -> None:
        """The service answers every request of one kind with 401, until all faults are lifted."""
        self.world.stage.sandbox.faults.add(Fault(target=target_, action=Action.UNAUTHORIZED))

    @rule(
        call=calls,
        kind=st.sampled_from(["CallStart", "CallEnd"]),
        ids=st.sampled_from([(True, True), (True, False), (False, True)]),
        times=st.integers(1, 3),
    )
    def pushed(self, call: SandboxCall, kind: str, ids: tuple[bool, bool], times: int) -> None:
        """A push arrives one to three times, with either id or both."""
        voice, alternate = ids
        for _ in range(times):
            self.do(self.world.push(call, kind, voice=voice, alternate=alternate))

    @rule(kind=st.sampled_from(["CallStart", "CallEnd"]), call=calls)
    def foreign_push(self, kind: str, call: SandboxCall) -> None:
        """A sample push arrives, pushes for institutions that are not ours, and one for an unknown call."""
        sample = f"sample-{self._number()}"
        self.world.judge.samples.add(sample)
        self.do(self.world.deliver(PushEvent(type=kind, institution_key=KEY, voice_id=sample, is_test=True)))
        for key in (FOREIGN_KEY, NOWHERE):
            self.do(self.world.deliver(PushEvent(type=kind, institution_key=key, voice_id=call.voice_id)))
        self.do(self.world.deliver(PushEvent(type=kind, institution_key=KEY, voice_id=f"ghost-{self._number()}")))

    # People

    @rule(call=calls, operator=OPERATORS, person=PERSONS, validation=VALIDATIONS, by_alternate_id=BY_ALTERNATE)
    def verified(self, call: SandboxCall, operator: str, person: str, validation: str, by_alternate_id: bool) -> None:
        """An agent verified the caller."""
        note = Verified(person_id=person, validation_type=validation, operator=operator, said_at=self._now())
        self._say(call, note, by_alternate_id)

    @rule(call=calls, operator=OPERATORS, by_alternate_id=BY_ALTERNATE)
    def distrusted(self, call: SandboxCall, operator: str, by_alternate_id: bool) -> None:
        """An agent does not trust the caller."""
        self._say(call, Distrusted(operator=operator, said_at=self._now()), by_alternate_id)

    @rule(call=calls, operator=OPERATORS, person=PERSONS, by_alternate_id=BY_ALTERNATE)
    def told_who(self, call: SandboxCall, operator: str, person: str, by_alternate_id: bool) -> None:
        """An agent says who the caller is."""
        self._say(call, AssignWish(person_id=person, operator=operator, said_at=self._now()), by_alternate_id)

    @rule(call=calls, operator=OPERATORS)
    def look_now(self, call: SandboxCall, operator: str) -> None:
        """An agent asks for a check."""
        self._say(call, CheckWish(operator=operator, said_at=self._now()))

    @rule(call=calls, operator=OPERATORS, applied=st.booleans())
    def resolved(self, call: SandboxCall, operator: str, applied: bool) -> None:
        """A person resolves an unknown effect, rightly or wrongly. Nothing may be sent because of it."""
        self._say(call, Resolved(applied=applied, operator=operator, said_at=self._now()))

    @rule(call=calls, nth=st.integers(0, 3))
    def repeated(self, call: SandboxCall, nth: int) -> None:
        """A statement arrives once more."""
        self.do(self.world.hear_again(call, nth))

    @rule(call=calls, other=calls, by_alternate_id=BY_ALTERNATE, times=TIMES)
    def mixed_up(self, call: SandboxCall, other: SandboxCall, by_alternate_id: bool, times: int) -> None:
        """The service answers about one call with the record of another, for some answers or all."""
        if call is not other:
            self.world.mix_up(call.alternate_id if by_alternate_id else call.voice_id, other, times)
            self.do(self.world.run(9))

    @rule(target=calls, other=calls, listed_after_s=st.sampled_from([0.0, 20.0]), times=TIMES, operator=OPERATORS)
    def new_call_is_mixed_up(self, other: SandboxCall, listed_after_s: float, times: int, operator: str) -> SandboxCall:
        """A distrusted call begins that the service mixes up with another one from the start."""
        if len(self.world.calls) >= MOST_CALLS:
            return other
        call = self._start(KEY, ONE, listed_after_s)
        self.world.mix_up(call.voice_id, other, times)
        self.do(self.world.push(call, "CallStart", voice=True, alternate=False))
        self.distrusted(call, operator, by_alternate_id=False)
        self.do(self.world.run(15))
        return call

    def _say(self, call: SandboxCall, statement: Statement, by_alternate_id: bool = False) -> None:
        self.do(self.world.hear(call, statement, by_alternate_id=by_alternate_id))

    def _now(self) -> Any:
        return self.world.clock.now

    # Time, processes, Redis

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        """Time passes: workers work, leases end, calls become due."""
        self.do(self.world.run(seconds))

    @rule(
        n=st.integers(0, 1), failure=st.sampled_from(Failure), seam=st.sampled_from(Seam), crossings=st.integers(1, 9)
    )
    def worker_fails(self, n: int, failure: Failure, seam: Seam, crossings: int) -> None:
        """A worker will die, freeze or lose an answer at one of its next crossings."""
        if failure is Failure.TWICE:
            seam = Seam.REDIS
        self.world.plan_failure(n, PlannedFailure(failure, seam, crossings))

    @rule(n=st.integers(0, 1))
    def thawed(self, n: int) -> None:
        """A frozen worker continues."""
        self.do(self.world.thaw(n))

    @rule()
    def copied(self) -> None:
        """The state of Redis is copied for the next rollback."""
        self.do(self.world.copy())

    @rule()
    def rolled_back(self) -> None:
        """Redis loses what was written since the copy."""
        self.do(self.world.roll_back())

    @rule(seconds=st.sampled_from([10.0, 600.0, 3600.0]))
    def clock_set_back(self, seconds: float) -> None:
        """Redis's clock goes back."""
        self.world.set_clock_back(seconds)

    @rule(seconds=st.sampled_from([4.0, 12.0, 40.0]))
    def clock_jumps_ahead(self, seconds: float) -> None:
        """Redis's clock jumps ahead: leases end early."""
        self.world.set_clock_back(-seconds)

    # What holds

    @invariant()
    def promises_hold(self) -> None:
        """No call is forgotten, no limit is exceeded, and no request broke a promise."""
        self.do(self.world.check())

    def teardown(self) -> None:
        """Lift all faults: then every call settles, and our ledgers say what the service did."""
        try:
            if not self.is_broken:
                self.do(self.world.calm())
        finally:
            self.do(self.world.close())
            self.loop.close()


TestModel = Model.TestCase
TestModel.settings = MODEL


@pytest.mark.parametrize(
    "names", SETS if IS_NIGHTLY else SETS[:2], ids=lambda names: f"{names[0]} and {len(names) - 1}"
)
def test_model_under_variants(names: list[str]) -> None:
    """The promises hold under sets of variants of the service, for a few sequences each."""

    class UnderVariants(Model):
        variants = names

    run_state_machine_as_test(UnderVariants, settings=settings(MODEL, max_examples=20 if IS_NIGHTLY else 5))


def test_model_on_two_real_servers(tmp_path: Path) -> None:
    """The promises hold on two real servers that fail over to each other, without loaded scripts (C4, C14, C15)."""
    with embedded_redis(tmp_path / "one") as one, embedded_redis(tmp_path / "two") as two:

        class OnRealRedis(Model):
            def servers(self) -> Servers:
                return TwoServers((one.url, two.url))

        run_state_machine_as_test(OnRealRedis, settings=settings(MODEL, max_examples=300 if IS_NIGHTLY else 8))
