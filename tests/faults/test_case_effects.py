"""Effects and budget: what others did meanwhile is noticed, and used checks stay used."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.notes import CheckWish, Distrusted, Verified
from callkeeper.calls.record import Reason
from callkeeper.calls.rules import load_rules
from callkeeper.calls.schedule.plan import Schedule
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 400)
SAID_AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
VERIFIED = Verified(person_id="p-1", validation_type="OneTimePasswordAuth", operator="ann", said_at=SAID_AT)


class Meanwhile(httpx.AsyncBaseTransport):
    """Does something once, directly before the next read of stored details."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.happens: Callable[[], Awaitable[None]] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if request.url.params.get("checkVoiceAuthentication") == "false" and self.happens is not None:
            happens, self.happens = self.happens, None
            await happens()
        return await self._inner.handle_async_request(request)


@pytest.fixture
def meanwhile(sandbox_asgi: Asgi) -> Meanwhile:
    """Return the transport between worker and service."""
    return Meanwhile(sandbox_asgi.transport)


@pytest.fixture
async def rig(sandbox_asgi: Asgi, redis: Redis, meanwhile: Meanwhile) -> Rig:
    """Return a rig in virtual time."""
    return Rig(sandbox_asgi, redis, transport=meanwhile)


async def _green(rig: Rig, call: Call) -> None:
    rig.stage.happen(call, Kind.GREEN)
    await rig.stage.details(call.voice_id, check=True)


async def test_green_between_decision_and_enroll_stops_it(rig: Rig, meanwhile: Meanwhile) -> None:
    """If the confirming read before an enroll shows a green voice, the enroll is withdrawn (E2)."""
    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    meanwhile.happens = lambda: _green(rig, call)
    assert await rig.note(call, VERIFIED)
    await rig.run(20)
    whats = await rig.whats(call)
    assert "intended enroll" in whats
    assert "withdrawn enroll" in whats
    assert Operation.ENROLL not in rig.ledger(call)


@pytest.mark.parametrize("kind", [Kind.REJECTED, Kind.ENROLLED, Kind.OPT_OUT])
async def test_enroll_sees_what_others_did_meanwhile(rig: Rig, meanwhile: Meanwhile, kind: Kind) -> None:
    """An enroll is withdrawn if after its decision somebody rejected or enrolled, or the caller opted out (E3, E7)."""

    async def elsewhere() -> None:
        rig.stage.happen(call, kind)

    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    meanwhile.happens = elsewhere
    assert await rig.note(call, VERIFIED)
    await rig.run(20)
    assert "withdrawn enroll" in await rig.whats(call)
    assert Operation.ENROLL not in rig.ledger(call)


async def test_reject_sees_that_somebody_else_rejected_meanwhile(rig: Rig, meanwhile: Meanwhile) -> None:
    """A reject is not sent if the read before it shows that the call was rejected already (E3)."""

    async def elsewhere() -> None:
        rig.stage.happen(call, Kind.REJECTED)

    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    meanwhile.happens = elsewhere
    assert await rig.note(call, Distrusted(operator="ann", said_at=SAID_AT))
    await rig.run(20)
    assert "withdrawn reject" in await rig.whats(call)
    assert Operation.REJECT_VOICE not in rig.ledger(call)


@pytest.mark.parametrize("is_overwritten", [True, False])
async def test_reject_whose_answer_was_lost_is_never_called_absent(rig: Rig, is_overwritten: bool) -> None:
    """Whether a later activity may hide it or not, a person must resolve it (E1)."""
    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    rig.stage.happen(call, Kind.VIEWED)
    rig.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.RESET, applied=is_overwritten, times=1))
    assert await rig.note(call, Distrusted(operator="ann", said_at=SAID_AT))
    await rig.run(0.2)
    if is_overwritten:
        rig.stage.happen(call, Kind.VIEWED)
    await rig.run(70)
    assert rig.ledger(call)[Operation.REJECT_VOICE] == 1
    assert (await rig.record(call)).ledger.reject.state is EffectState.UNRESOLVED


async def test_enroll_that_somebody_may_have_undone_is_never_called_absent(rig: Rig) -> None:
    """If an enroll's answer was lost and a reject elsewhere removed its traces, a person must resolve it (E1, E3)."""
    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="enroll", action=Action.RESET, applied=True, times=1))
    assert await rig.note(call, VERIFIED)
    await rig.run(0.2)
    rig.stage.happen(call, Kind.REJECTED)
    await rig.run(70)
    assert rig.ledger(call)[Operation.ENROLL] == 1
    assert (await rig.record(call)).ledger.enroll.state is EffectState.UNRESOLVED


async def test_twentieth_check_without_an_answer_is_the_last(sandbox_asgi: Asgi, redis: Redis) -> None:
    """If the answer of check 20 is lost, it stays booked, and no 21st is made, even if the desk asks for it (E4)."""
    schedule = Schedule(tuple(float(n) for n in range(1, 21)), reserve=0)
    rig = Rig(sandbox_asgi, redis, load_rules(None).with_schedule(schedule))
    call = await rig.begin_call(END, run_s=20.5, is_pushed=False)
    seen = rig.ledger(call)[Operation.CHECK]
    rig.stage.sandbox.faults.add(Fault(target="check", action=Action.RESET, applied=True, skip=19 - seen))
    await rig.run(30)
    assert await rig.note(call, CheckWish(operator="ann", said_at=SAID_AT))
    await rig.run(30)
    assert (await rig.record(call)).plan.checks_used == 20
    assert rig.stage.sandbox.ledger.tally(call.voice_id).arrived[Operation.CHECK] == 20


async def test_statement_between_decision_and_enroll_counts(rig: Rig, meanwhile: Meanwhile) -> None:
    """Distrust that is stated during the confirming read stops the enroll and leads to a reject (E3)."""

    async def distrusts() -> None:
        assert await rig.note(call, Distrusted(operator="bob", said_at=SAID_AT))

    call = await rig.begin_call(END, run_s=2, is_pushed=False)
    meanwhile.happens = distrusts
    assert await rig.note(call, VERIFIED)
    await rig.run(20)
    assert Operation.ENROLL not in rig.ledger(call)
    assert rig.ledger(call)[Operation.REJECT_VOICE] == 1
    record = await rig.record(call)
    assert record.ledger.reject.state is EffectState.APPLIED
    rig.stage.happen(call, Kind.END)
    await rig.run(20)
    assert (await rig.record(call)).life.reason is Reason.REJECTED
