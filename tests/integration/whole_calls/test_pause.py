"""Pauses: nothing is sent while one lasts, nothing is lost after it, and everybody can read of it."""

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import CheckWish, Distrusted, Verified
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.store.pausing import Pausing
from callkeeper_sandbox.service.access import Operation
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import DEMO, KEY, Rig
from tests.integration.whole_calls.conftest import MakeRig
from tests.sandbox_fixtures import Asgi


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a rig with quick checks."""
    return Rig(sandbox_asgi, redis, DEMO)


async def pause(rig: Rig, scope: PauseScope = PauseScope.EFFECTS, institution: str | None = None) -> datetime:
    """Pause, and return when that was."""
    asked = Pause(scope=scope, operator="jane", because="drill", at=rig.clock.now)
    await Pausing(rig.redis).pause(institution, asked)
    return rig.clock.now


async def resume(rig: Rig, institution: str | None = None) -> None:
    """Resume."""
    assert await Pausing(rig.redis).resume(institution, operator="jane", because="done", at=rig.clock.now)


async def verify(rig: Rig, call: Call, *despite: str) -> None:
    """Let the desk say that the caller was verified."""
    word = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now, despite=despite)
    assert await rig.note(call, word)


@pytest.mark.parametrize(("sign", "fact"), [(Kind.MISMATCH, "voice_mismatch"), (Kind.HIGH_RISK, "high_risk_device")])
@pytest.mark.parametrize("says_again", [False, True])
async def test_sign_that_comes_during_a_pause_asks_for_the_word_again(
    rig: Rig, sign: Kind, fact: str, says_again: bool
) -> None:
    """Ann verified the caller before another voice or a risky device was seen: her word does not overrule that."""
    await pause(rig)
    call = await rig.begin_call(Happening(sign, 40), Happening(Kind.END, 900), run_s=20)
    await verify(rig, call)
    await rig.run(60)
    assert "asked by rule 'verified, but evidence against it'" in (await rig.queries.attention()).values()
    if says_again:
        await verify(rig, call, fact)
    await rig.run(10)
    await resume(rig)
    await rig.run(60)
    assert call.feedback == (["SUCCESSFUL"] if says_again else [])
    assert bool(await rig.queries.attention()) is not says_again


async def test_mismatch_after_the_words_enroll_asks_a_person(rig: Rig) -> None:
    """The voice was enrolled on a person's word, and the final analysis takes it for another one: a person decides."""
    call = await rig.begin_call(Happening(Kind.MISMATCH, 79.5), Happening(Kind.END, 80), run_s=20)
    await verify(rig, call)
    await rig.run(120)
    assert call.feedback == ["SUCCESSFUL"]
    assert "asked by rule 'verified, but evidence against it'" in (await rig.queries.attention()).values()


def arrived(rig: Rig, *operations: Operation, since: datetime) -> int:
    """Return how many requests the stand-in received since an instant."""
    calls = rig.stage.sandbox.ledger.entries.of_calls.values()
    return sum(a.operation in operations and a.at > since for of_call in calls for a in of_call)


async def test_pause_in_a_busy_scenario_sends_nothing_and_loses_nothing(busy: MakeRig) -> None:
    """From the moment of the pause no effect is sent; after it every call that still may be is enrolled or rejected."""
    rig = busy(DEMO)
    await rig.run(40)
    assert arrived(rig, Operation.ENROLL, Operation.REJECT_VOICE, since=rig.clock.now - timedelta(seconds=40)) > 0
    paused_at = await pause(rig)
    await rig.run(20)
    assert arrived(rig, Operation.ENROLL, Operation.REJECT_VOICE, since=paused_at) == 0
    assert arrived(rig, Operation.CHECK, Operation.ASSIGN, since=paused_at) > 0
    held = [call async for call in rig.queries.live() if await _was_held(rig, call.institution_key, call.voice_id)]
    assert held
    await resume(rig)
    await rig.run(15)
    for before in held:
        call = await rig.queries.load(CallId(before.institution_key, before.voice_id))
        assert call is not None
        trail = await rig.queries.trail(CallId(call.institution_key, call.voice_id))
        done = {call.ledger.enroll.state, call.ledger.reject.state} & {EffectState.APPLIED, EffectState.TAKEN_BACK}
        lawful = any({"final_analysis_awaited"} & {*entry.forbidden} for entry in trail)
        assert done or lawful, before.voice_id


async def _was_held(rig: Rig, institution_key: str, voice_id: str) -> bool:
    trail = await rig.queries.trail(CallId(institution_key, voice_id))
    return any(entry.forbidden == ("paused",) for entry in trail)


async def test_pause_of_all_stops_assigns_and_automatic_checks(busy: MakeRig) -> None:
    """Under --all only listings and reads go on; afterwards the calls that are still live are assigned."""
    rig = busy(DEMO)
    await rig.run(20)
    paused_at = await pause(rig, PauseScope.ALL)
    await rig.run(20)
    deeds = (Operation.ASSIGN, Operation.CHECK, Operation.ENROLL, Operation.REJECT_VOICE)
    assert arrived(rig, *deeds, since=paused_at) == 0
    assert arrived(rig, Operation.READ, since=paused_at) > 0
    resumed_at = rig.clock.now
    await resume(rig)
    await rig.run(10)
    assert arrived(rig, Operation.ASSIGN, since=resumed_at) > 0


async def test_pause_of_one_institution_leaves_the_others(busy: MakeRig) -> None:
    """A pause of one institution holds its calls only."""
    rig = busy(DEMO)
    paused_at = await pause(rig, institution="bank-1")
    await rig.run(150)
    calls = rig.stage.sandbox.ledger.entries.of_calls.values()
    effects = {Operation.ENROLL, Operation.REJECT_VOICE}
    keys = {a.institution_key for of_call in calls for a in of_call if a.operation in effects and a.at > paused_at}
    assert keys == {"cu-1", "cu-2"}


async def test_pause_is_in_the_trail_of_what_it_held(rig: Rig) -> None:
    """A held call says that it is paused, by whom and why; after the resumption it is decided again."""
    call = rig.stage.call(Happening(Kind.END, 120))
    await rig.push(call)
    await pause(rig)
    await rig.run(10)
    await verify(rig, call)
    await rig.run(20)
    held = [entry for entry in await rig.trail(call) if entry.forbidden == ("paused",)]
    assert [(entry.kind, entry.asked, entry.pause) for entry in held] == [
        ("hold", "enroll", "enrolls and rejects, by jane: drill")
    ]
    await resume(rig)
    await rig.run(10)
    whats = await rig.whats(call)
    assert whats.index("intended enroll") > whats.index("decided hold")
    assert rig.ledger(call)[Operation.ENROLL] == 1


@pytest.mark.parametrize("by_desk", [False, True], ids=["automatic", "asked for by a person"])
async def test_pause_of_all_between_claim_and_booking_makes_no_automatic_check(rig: Rig, by_desk: bool) -> None:
    """The write that books a check asks once more. A check that a person asks for is made all the same."""
    call = await rig.begin_call(Happening(Kind.END, 120), run_s=5, is_pushed=False)
    if by_desk:
        await rig.note(call, CheckWish(operator="ann", said_at=rig.clock.now))
    else:
        due = (await rig.record(call)).plan.next_check_at
        assert due is not None
        rig.stage.advance((due - rig.clock.now).total_seconds() + 0.01)
    before = rig.ledger(call).get(Operation.CHECK, 0)
    held = await rig.store.claim(100)
    assert rig.call_id(call) in [item.owner for item in held]
    await pause(rig, PauseScope.ALL)
    await asyncio.gather(*(rig.shift.handle(item) for item in held))
    await rig.run(1)
    made = rig.ledger(call).get(Operation.CHECK, 0)
    assert (made - before, (await rig.record(call)).plan.checks_used - before) == ((1, 1) if by_desk else (0, 0))
    await resume(rig)
    await rig.run(5)
    assert rig.ledger(call)[Operation.CHECK] > made


async def test_pause_between_intention_and_request_sends_nothing(rig: Rig) -> None:
    """The write that books an effect asks once more: a pause that came after the claim is obeyed."""
    call = await rig.begin_call(Happening(Kind.END, 120), run_s=5)
    await verify(rig, call)
    keep = rig.store.keep
    asked: list[datetime] = []

    async def keep_and_pause(*args: object, **options: object) -> None:
        """Pause in the moment before an effect is booked."""
        if options.get("unless_paused") is PauseScope.EFFECTS and not asked:
            asked.append(await pause(rig))
        await keep(*args, **options)  # type: ignore[arg-type]

    rig.store.keep = keep_and_pause  # type: ignore[method-assign]
    await rig.run(30)
    assert asked
    assert Operation.ENROLL not in rig.ledger(call)
    record = await rig.record(call)
    assert record.ledger.enroll.state is EffectState.NONE
    assert "withdrawn enroll" in await rig.whats(call)
    await resume(rig)
    await rig.run(10)
    assert rig.ledger(call)[Operation.ENROLL] == 1


async def test_pause_keeps_a_call_open_that_only_waits_to_be_rejected(rig: Rig) -> None:
    """A reject is allowed after the end: a call that a pause alone keeps from it is settled only when it was sent."""
    call = await rig.begin_call(Happening(Kind.END, 20), run_s=10)
    await pause(rig)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason="odd"))
    await rig.run(60)
    assert not (await rig.record(call)).is_settled
    await resume(rig)
    await rig.run(15)
    record = await rig.record(call)
    assert (record.life.reason, record.ledger.reject.state) == ("rejected", EffectState.APPLIED)
    assert rig.ledger(call)[Operation.REJECT_VOICE] == 1


async def test_pause_keeps_a_call_open_that_waits_to_be_enrolled_for_ten_minutes(rig: Rig) -> None:
    """An enroll is allowed after the end, so a pause does not lose it; ten minutes after the end it is over."""
    for paused_s, is_enrolled in ((120, True), (630, False)):
        call = await rig.begin_call(Happening(Kind.END, 20), run_s=10)
        await pause(rig)
        await verify(rig, call)
        await rig.run(paused_s)
        assert (await rig.record(call)).is_settled is not is_enrolled
        await resume(rig)
        await rig.run(15)
        assert rig.ledger(call).get(Operation.ENROLL, 0) == is_enrolled
        assert (await rig.record(call)).is_settled


async def test_pause_outlives_everything_but_resume(rig: Rig) -> None:
    """It has no end of its own; the last ones asked for are remembered with who and why."""
    await pause(rig, institution=KEY)
    pausing = Pausing(rig.redis)
    known = (await pausing.pauses()).by_institution
    assert set(known) == {KEY}
    assert await rig.redis.ttl(pausing.keys.pause) == -1
    await resume(rig, KEY)
    assert not (await pausing.pauses()).by_institution
    assert not await pausing.resume(KEY, operator="jane", because="again", at=rig.clock.now)
    assert [(change.scope, change.operator) for change in await pausing.history()] == [
        (None, "jane"),
        (None, "jane"),
        (PauseScope.EFFECTS, "jane"),
    ]


async def test_pause_of_an_institution_can_stop_more_than_the_general_one(rig: Rig) -> None:
    """Of two pauses over one institution the one that stops more counts."""
    everything = Pause(scope=PauseScope.ALL, operator="jane", because="b", at=rig.clock.now)
    effects = replace(everything, scope=PauseScope.EFFECTS)
    pausing = Pausing(rig.redis)
    for own, general, counts in ((effects, everything, PauseScope.ALL), (everything, effects, PauseScope.ALL)):
        await pausing.pause(KEY, own)
        await pausing.pause(None, general)
        found = (await pausing.pauses()).over(KEY)
        assert found is not None
        assert found.scope is counts
