"""A person's word whose only request was lost: it is not sent again, so a person is told, and can close it."""

import httpx
import pytest
from redis.asyncio import Redis

from callkeeper.calls.action_status import ActionState, statuses_of
from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.effect_resolution import NO_CLEAR_ANSWER, NOT_CARRIED_OUT, REFUSED_BY_SERVICE
from callkeeper.calls.notes import Distrusted, Resolved, Withdrawn
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.story import story_of
from callkeeper.calls.trail import recorded
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import DEMO, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.integration.whole_calls.test_rejected_meanwhile import Wire
from tests.sandbox_fixtures import Asgi


class Loses(httpx.AsyncBaseTransport):
    """Loses requests of one operation on their way."""

    def __init__(self, inner: httpx.AsyncBaseTransport, operation: str) -> None:
        self.inner, self.operation = inner, operation

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        if request.url.path.endswith(self.operation):
            raise httpx.ReadError("connection reset", request=request)
        return await self.inner.handle_async_request(request)


@pytest.mark.parametrize("operation", ["reject-voice", "enroll"])
async def test_word_that_was_not_carried_out_stands_among_what_needs_a_person(
    sandbox_asgi: Asgi, redis: Redis, operation: str
) -> None:
    """As a refusal does. It can be closed, and said once more."""
    rig = Rig(sandbox_asgi, redis, transport=Loses(sandbox_asgi.transport, operation))
    call = rig.stage.call(Happening(Kind.END, 200))
    await rig.push(call)
    await rig.run(20)
    distrust = Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1")
    await rig.note(call, verified(rig) if operation == "enroll" else distrust)
    await rig.run(300)
    ledger = (await rig.record(call)).ledger
    assert EffectState.ABSENT in {ledger.enroll.state, ledger.reject.state}
    assert call.feedback == []
    kind = operation.removesuffix("-voice")
    assert list((await rig.queries.attention()).values()) == [f"{kind} {NOT_CARRIED_OUT}"]
    [told] = [one for one in outcomes(await rig.trail(call)) if one.type == "not_carried_out"]
    asked_by = "ann" if kind == "enroll" else "bob"
    assert (told.cause.effect, told.cause.operator, told.cause.reason) == (kind, asked_by, NO_CLEAR_ANSWER)
    closed = Resolved(operator="lead", said_at=rig.clock.now, applied=False, wish="c1")
    await rig.note(call, closed, even_settled=True)
    await rig.run(10)
    assert await rig.queries.attention() == {}


@pytest.mark.parametrize("operation", ["reject-voice", "enroll"])
async def test_word_that_was_taken_back_needs_nobody(sandbox_asgi: Asgi, redis: Redis, operation: str) -> None:
    """Its request is lost, and nobody wants the effect any more."""
    rig = Rig(sandbox_asgi, redis, transport=Loses(sandbox_asgi.transport, operation))
    call = await rig.begin_call(Happening(Kind.END, 200), run_s=20)
    distrust = Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1")
    await rig.note(call, verified(rig) if operation == "enroll" else distrust)
    await rig.run(5)
    what = "verified" if operation == "enroll" else "distrusted"
    await rig.note(call, Withdrawn(what=what, operator="bob", said_at=rig.clock.now, wish="w1"))
    await rig.run(300)
    assert await rig.queries.attention() == {}


@pytest.mark.parametrize(
    ("action", "why"), [(None, NOT_CARRIED_OUT), (Action.REFUSED, REFUSED_BY_SERVICE)], ids=["lost", "refused"]
)
async def test_reject_of_a_rule_that_failed_needs_a_person_although_one_asked_again_and_took_that_back(
    sandbox_asgi: Asgi, redis: Redis, action: Action | None, why: str
) -> None:
    """The rule still wants it, and nothing of the second intention was sent. Whoever has seen the failure closes it once."""
    stage = sandbox_asgi
    wire = Wire(stage.transport if action else Loses(stage.transport, "reject-voice"))
    rig = Rig(stage, redis, DEMO, transport=wire)
    if action is not None:
        stage.sandbox.faults.add(Fault(target="reject_voice", action=action))
    script = Happening(Kind.MISMATCH, 5), Happening(Kind.HIGH_RISK, 6), Happening(Kind.END, 900)
    call = await rig.begin_call(*script, run_s=150)
    [listed] = (await rig.queries.attention()).values()
    assert listed.startswith(f"reject {why}")
    sent = (await rig.record(call)).ledger.reject

    async def take_back(wish: str) -> None:
        """Distrust the caller, and withdraw that while the read before the reject fails."""

        async def away(request: httpx.Request) -> httpx.Response | None:
            is_intended = (await rig.record(call)).ledger.reject.state is EffectState.INTENDED
            return httpx.Response(503) if is_intended and request.url.path.endswith("/details") else None

        wire.look = away
        await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish=wish))
        await rig.run(10)
        assert (await rig.record(call)).ledger.reject.state is EffectState.INTENDED
        await rig.note(call, Withdrawn(what="distrusted", operator="bob", said_at=rig.clock.now))
        wire.look = None
        await rig.run(30)
        record, trail = await rig.record(call), await rig.trail(call)
        assert record.ledger.reject.attempts == sent.attempts
        assert statuses_of(record, trail)[wish].state is ActionState.SUPERSEDED

    await take_back("d1")
    assert list((await rig.queries.attention()).values()) == [listed]
    await rig.note(call, Resolved(operator="lead", said_at=rig.clock.now, applied=False, wish="c1"))
    await take_back("d2")
    assert await rig.queries.attention() == {}


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("operation", ["reject-voice", "enroll"])
async def test_problem_response_proves_nothing_about_an_effect(
    sandbox_asgi: Asgi, redis: Redis, operation: str, is_applied: bool
) -> None:
    """The document describes none here: without ``success`` it refuses nothing. Reads tell, and nothing is sent again.

    The story says what came back.
    """
    stage, sent = sandbox_asgi, []

    async def problem(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith(operation):
            return None
        sent.append(request)
        if is_applied:
            await stage.transport.handle_async_request(request)
        body = {"title": "Bad Request", "detail": "validationType is not valid"}
        return httpx.Response(400, json=body, headers={"content-type": "application/problem+json"})

    rig = Rig(stage, redis, transport=Wire(stage.transport, problem))
    call = await rig.begin_call(Happening(Kind.END, 200), run_s=20)
    distrust = Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1")
    await rig.note(call, verified(rig) if operation == "enroll" else distrust)
    await rig.run(300)
    record, kind = await rig.record(call), EffectKind(operation.removesuffix("-voice"))
    state = EffectState.CONFIRMED if is_applied else EffectState.ABSENT
    assert (record.effect(kind).state, len(sent)) == (state, 1)
    assert list((await rig.queries.attention()).values()) == ([] if is_applied else [f"{kind} {NOT_CARRIED_OUT}"])
    told = [str(line.text) for line in story_of(recorded(record, await rig.trail(call)), {}).lines]
    came = "unknown: no clear answer came (status 400: "
    assert any(text.startswith(f"{kind} answered: {came}") for text in told), told
