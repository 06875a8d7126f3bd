"""A person's word whose only request got no answer: it is not sent again, so a person is told, and can close it."""

import httpx
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.action_status import ActionState, statuses_of
from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.effect_resolution import ENROLL_UNRESOLVED, REFUSED_BY_SERVICE
from callkeeper.calls.notes import Distrusted, Resolved, Withdrawn
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record_storage import encode_call
from callkeeper.calls.story import story_of
from callkeeper.calls.trail import recorded
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import DEMO, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.integration.whole_calls.test_rejected_meanwhile import Wire
from tests.records import facts_of_record, with_stored
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
async def test_word_that_may_not_have_been_carried_out_stands_among_what_needs_a_person(
    sandbox_asgi: Asgi, redis: Redis, operation: str
) -> None:
    """As a refusal does. A person can say that it was not applied, and then say it once more."""
    rig = Rig(sandbox_asgi, redis, transport=Loses(sandbox_asgi.transport, operation))
    call = rig.stage.call(Happening(Kind.END, 200))
    await rig.push(call)
    await rig.run(20)
    distrust = Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1")
    await rig.note(call, verified(rig) if operation == "enroll" else distrust)
    await rig.run(300)
    ledger = (await rig.record(call)).ledger
    assert EffectState.UNRESOLVED in {ledger.enroll.state, ledger.reject.state}
    assert call.feedback == []
    kind = operation.removesuffix("-voice")
    assert list((await rig.queries.attention()).values()) == [f"{kind} unresolved"]
    [told] = [one for one in outcomes(await rig.trail(call)) if one.type == "unresolved"]
    asked_by = "ann" if kind == "enroll" else "bob"
    assert (told.cause.effect, told.cause.operator) == (kind, asked_by)
    closed = Resolved(operator="lead", said_at=rig.clock.now, applied=False, wish="c1")
    await rig.note(call, closed, even_settled=True)
    await rig.run(10)
    assert await rig.queries.attention() == {}


@pytest.mark.parametrize("operation", ["reject-voice", "enroll"])
async def test_word_that_was_taken_back_may_have_been_carried_out(
    sandbox_asgi: Asgi, redis: Redis, operation: str
) -> None:
    """Nobody wants the effect any more, so it matters all the more whether it is in force."""
    rig = Rig(sandbox_asgi, redis, transport=Loses(sandbox_asgi.transport, operation))
    call = await rig.begin_call(Happening(Kind.END, 200), run_s=20)
    distrust = Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1")
    await rig.note(call, verified(rig) if operation == "enroll" else distrust)
    await rig.run(5)
    what = "verified" if operation == "enroll" else "distrusted"
    await rig.note(call, Withdrawn(what=what, operator="bob", said_at=rig.clock.now, wish="w1"))
    await rig.run(300)
    kind = operation.removesuffix("-voice")
    assert list((await rig.queries.attention()).values()) == [f"{kind} unresolved"]


async def test_unresolved_enroll_is_sent_again_for_a_person_who_knows_of_it(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The law holds every other word, and says why."""
    wire = Wire(Loses(sandbox_asgi.transport, "enroll"))
    rig = Rig(sandbox_asgi, redis, transport=wire)
    call = await rig.begin_call(Happening(Kind.END, 600), run_s=20)
    await rig.note(call, verified(rig))
    await rig.run(100)
    wire.inner = sandbox_asgi.transport
    await rig.note(call, replace(verified(rig), wish="again"))
    await rig.run(30)
    assert facts_of_record(await rig.record(call), rig.book.policies).enroll_unresolved
    assert call.feedback == []
    record = await rig.record(call)
    identity = record.statements.identity
    assert identity is not None
    despite = with_stored(record, identity=replace(identity, number=identity.number + 1, despite=(ENROLL_UNRESOLVED,)))
    await rig.redis.hset(rig.store.keys.item(rig.call_id(call).member), "rec", encode_call(despite))
    await rig.run(60)
    assert call.feedback == ["SUCCESSFUL"]
    assert (await rig.record(call)).ledger.enroll.attempts == 2


async def test_reject_of_a_rule_that_failed_needs_a_person_although_one_asked_again_and_took_that_back(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """The rule still wants it, and nothing of the second intention was sent. Whoever has seen the failure closes it once."""
    stage = sandbox_asgi
    wire = Wire(stage.transport)
    rig = Rig(stage, redis, DEMO, transport=wire)
    stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.REFUSED))
    script = Happening(Kind.MISMATCH, 5), Happening(Kind.HIGH_RISK, 6), Happening(Kind.END, 900)
    call = await rig.begin_call(*script, run_s=150)
    [listed] = (await rig.queries.attention()).values()
    assert listed.startswith(f"reject {REFUSED_BY_SERVICE}")
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
    state = EffectState.CONFIRMED if is_applied else EffectState.UNRESOLVED
    assert (record.effect(kind).state, len(sent)) == (state, 1)
    assert list((await rig.queries.attention()).values()) == ([] if is_applied else [f"{kind} unresolved"])
    told = [str(line.text) for line in story_of(recorded(record, await rig.trail(call)), {}).lines]
    came = "unknown: no clear answer came (status 400: "
    assert any(text.startswith(f"{kind} answered: {came}") for text in told), told
