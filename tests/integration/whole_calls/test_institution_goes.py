"""What becomes of effects in doubt whose institution the reseller may not act for any more."""

import pytest

from callkeeper.calls.action_status import ActionState, statuses_of
from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.notes import Distrusted, Verified
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.courier import Courier
from tests.harness.virtual_time import KEY

END = Happening(Kind.END, 900)


async def doubted(courier: Courier, kind: EffectKind) -> Call:
    """Return a call whose enroll or reject was carried out, and whose answer was lost."""
    courier.stage.world.add_institution("cu-2")
    target = "enroll" if kind is EffectKind.ENROLL else "reject_voice"
    courier.stage.sandbox.faults.add(Fault(target=target, action=Action.RESET, applied=True))
    call = courier.stage.call(END)
    await courier.run(8)
    at = courier.clock.now
    if kind is EffectKind.ENROLL:
        how = "OneTimePasswordAuth"
        verified = Verified(operator="ann", said_at=at, wish="w", person_id="p-1", validation_type=how)
        await courier.note(call, verified)
    else:
        await courier.note(call, Distrusted(operator="ann", said_at=at, wish="w", reason="odd"))
    while (await courier.record(call)).effect(kind).state is not EffectState.UNKNOWN:
        await courier.run(0.25)
    return call


async def go(courier: Courier) -> None:
    """Hand the institution over: the next login does not list it."""
    courier.stage.world.state.institutions[KEY].owned = False
    await courier.redis.delete(Keys().token)
    courier.stage.advance(90)
    await courier.run(300)
    assert courier.institutions.keys == {"cu-2"}


@pytest.mark.parametrize("kind", [EffectKind.ENROLL, EffectKind.REJECT])
async def test_doubt_about_a_call_that_may_not_be_read_any_more_is_shown_to_a_person(
    courier: Courier, kind: EffectKind
) -> None:
    """Nothing will prove what became of the request. After ten minutes the institution's software is told so, too."""
    call = await doubted(courier, kind)
    await go(courier)
    assert not await courier.queries.attention()
    await courier.leap(6)
    assert list((await courier.queries.attention()).values()) == [f"{kind} unresolved"]
    assert courier.receiver.told(call.voice_id) == ["call.unresolved"]
    courier.stage.advance(25 * 3600)
    await courier.leap(2)
    record = await courier.record(call)
    assert (record.life.reason, record.effect(kind).attempts) == ("unresolved", 1)


async def test_doubt_is_cleared_if_the_institution_comes_back_soon(courier: Courier) -> None:
    """Then the call is read as before."""
    call = await doubted(courier, EffectKind.ENROLL)
    await go(courier)
    courier.stage.world.state.institutions[KEY].owned = True
    await courier.push(courier.stage.call(END))
    await courier.run(61)
    assert (await courier.record(call)).ledger.enroll.state is EffectState.CONFIRMED
    assert not await courier.queries.attention()


@pytest.mark.parametrize("kind", [EffectKind.ENROLL, EffectKind.REJECT])
async def test_word_whose_request_is_in_doubt_is_not_called_held(courier: Courier, kind: EffectKind) -> None:
    """The agent must not read that nothing was sent: the service has carried it out."""
    call = await doubted(courier, kind)
    await go(courier)
    shown = statuses_of(await courier.record(call), await courier.trail(call))["w"]
    assert (shown.state, shown.may_change) == (ActionState.PENDING, True)
    await courier.leap(6)
    shown = statuses_of(await courier.record(call), await courier.trail(call))["w"]
    assert shown.state is ActionState.UNRESOLVED
