"""After a 401 or a 429 on an effect, the call is read before anything is sent again."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import REFUSED_BY_SERVICE, TURNED_AWAY, may_begin
from callkeeper.calls.notes import Distrusted, Note, Resolved, Verified
from callkeeper.calls.record import with_effect
from callkeeper.calls.redis_restart import fold_epoch
from callkeeper.service.config import LoginPolicy
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Rig
from tests.unit.calls.specimens import NOW, seconds
from tests.unit.calls.specimens import call as live_call

END = Happening(Kind.END, 310)
OFTEN = LoginPolicy(min_interval_s=0.0)
ONCE = [EffectKind.ENROLL, EffectKind.REJECT]
REFUSALS: dict[str, dict[str, Any]] = {
    "401": {"action": Action.UNAUTHORIZED},
    "429": {"action": Action.ANSWER, "status": 429},
}
ENROLL_401_REJECT_429 = [
    pytest.param(kind, status, marks=() if (kind is EffectKind.ENROLL) is (status == "401") else pytest.mark.night)
    for kind in ONCE
    for status in REFUSALS
]
"""For every change each effect once, and each status once."""

OPERATIONS = {EffectKind.ASSIGN: "assign", EffectKind.ENROLL: "enroll", EffectKind.REJECT: "reject_voice"}


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """Return a rig whose account may log in as often as it likes: nothing but the ledger bounds the requests."""
    return Rig(rig.stage, rig.redis, login=OFTEN)


async def ask_for(rig: Rig, call: Call, kind: EffectKind) -> None:
    """Let a person say what leads to an enroll or a reject."""
    at = rig.clock.now
    note: Note = (
        Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=at)
        if kind is EffectKind.ENROLL
        else Distrusted(operator="ann", said_at=at)
    )
    assert await rig.note(call, note)


def refuse(rig: Rig, kind: EffectKind, status: str = "401", **more: Any) -> None:
    """Answer requests of a kind with 401 or 429."""
    rig.stage.sandbox.faults.add(Fault(target=OPERATIONS[kind], **REFUSALS[status], **more))


def requests(rig: Rig, call: Call, kind: EffectKind) -> list[float]:
    """Return when requests of a kind arrived, in seconds after the call's start."""
    arrivals = rig.stage.sandbox.ledger.arrivals(call.voice_id)
    return [(a.at - call.started_at).total_seconds() for a in arrivals if a.operation == OPERATIONS[kind]]


def logins(rig: Rig) -> int:
    """Return how often the account logged in."""
    return sum(entry["event"] == "login_made" for entry in rig.log.entries)


@pytest.mark.parametrize(("kind", "status"), ENROLL_401_REJECT_429)
async def test_effect_that_is_always_turned_away_is_sent_twice_at_most(rig: Rig, kind: EffectKind, status: str) -> None:
    """After two requests answered 401 or 429 a person is told that it failed, and there are no further logins."""
    refuse(rig, kind, status)
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await ask_for(rig, call, kind)
    await rig.run(320)
    record = await rig.record(call)
    assert len(requests(rig, call, kind)) == 2
    assert record.effect(kind).state is EffectState.REFUSED
    assert list((await rig.queries.attention()).values()) == [f"{kind} {REFUSED_BY_SERVICE}: {TURNED_AWAY}"]
    assert logins(rig) <= 3


@pytest.mark.parametrize(("kind", "status"), ENROLL_401_REJECT_429)
async def test_effect_that_was_turned_away_is_sent_once_more(rig: Rig, kind: EffectKind, status: str) -> None:
    """Stored details have to show nothing of it for 20 s; then it is sent once more."""
    refuse(rig, kind, status, times=1)
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await ask_for(rig, call, kind)
    await rig.run(60)
    first, second = requests(rig, call, kind)
    assert 20 <= second - first <= 25
    reads = [a for a in rig.stage.sandbox.ledger.arrivals(call.voice_id) if a.operation == "read"]
    assert any(second - 2 <= (a.at - call.started_at).total_seconds() <= second for a in reads)
    assert (await rig.record(call)).effect(kind).state is EffectState.APPLIED


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("kind", list(EffectKind))
async def test_effect_applied_although_it_was_turned_away_is_found_by_reading(
    rig: Rig, kind: EffectKind, status: str
) -> None:
    """A service that acts and answers 401 or 429 all the same gets no second request."""
    refuse(rig, kind, status, times=1, applied=True)
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    if kind is not EffectKind.ASSIGN:
        await ask_for(rig, call, kind)
    await rig.run(60)
    assert len(requests(rig, call, kind)) == 1
    assert (await rig.record(call)).effect(kind).state is EffectState.CONFIRMED


@pytest.mark.parametrize("kind", ONCE)
async def test_withdrawn_intention_does_not_reset_the_count(rig: Rig, kind: EffectKind) -> None:
    """However often an effect is withdrawn and intended again: two requests for the first word, one for each later one."""
    refuse(rig, kind)
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    words = 8
    for _ in range(words):
        await ask_for(rig, call, kind)
        await rig.run(12)
        if kind is EffectKind.ENROLL:
            now = rig.clock.now
            await rig.note(call, Verified(person_id="p-2", validation_type="Other", operator="ann", said_at=now))
        await rig.run(12)
        rig = Rig(rig.stage, rig.redis, login=OFTEN)
    assert len(requests(rig, call, kind)) <= words + 1


@pytest.mark.parametrize("state", [EffectState.NONE, EffectState.ABSENT])
def test_effect_that_was_sent_twice_does_not_begin_again(state: EffectState) -> None:
    """Whatever the ledger says otherwise, two requests that may have arrived are the most; and one, if it was lost."""
    for kind in (EffectKind.ENROLL, EffectKind.REJECT):

        def begins(kind: EffectKind = kind, **ledger: Any) -> bool:
            effect = Effect(state=state, **ledger)
            return may_begin(kind, effect, with_effect(live_call(), kind, effect))

        assert begins(attempts=3, unsent=2, unauthorized=1, retry_at=NOW)
        assert not begins(attempts=3, unsent=1, unauthorized=2, retry_at=NOW)
        assert not begins(attempts=1)
        assert begins(attempts=1, unsent=1) is (state is EffectState.NONE)


async def test_person_who_has_seen_a_failure_repeats_nothing(rig: Rig) -> None:
    """A person has seen that an effect was turned away each time: nothing is sent because of it."""
    refuse(rig, EffectKind.ENROLL)
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await ask_for(rig, call, EffectKind.ENROLL)
    await rig.run(100)
    now = rig.clock.now
    await rig.store.note(rig.call_id(call), Resolved(applied=False, operator="ann", said_at=now), even_settled=True)
    await rig.run(100)
    assert len(requests(rig, call, EffectKind.ENROLL)) == 2
    assert await rig.queries.attention() == {}


@pytest.mark.parametrize("status", REFUSALS)
async def test_assign_is_repeated_with_growing_waits(rig: Rig, status: str) -> None:
    """An assign that is turned away is tried again after 1, 3, 6 ... s, a minute at most, also while pushes come in."""
    refuse(rig, EffectKind.ASSIGN, status)
    call = rig.stage.call(END)
    for _ in range(100):
        await rig.push(call)
        await rig.run(3)
    at = requests(rig, call, EffectKind.ASSIGN)
    waits = [later - earlier for earlier, later in pairwise(at)]
    assert 6 <= len(at) <= 11
    assert 1 <= waits[0] < 2
    assert all(later >= 1.5 * earlier for earlier, later in pairwise(waits[:5]))
    assert max(waits) <= 66
    assert logins(rig) <= 3


@pytest.mark.parametrize("status", REFUSALS)
async def test_assign_goes_on_when_the_service_accepts_it(rig: Rig, status: str) -> None:
    """A few 401 or 429 do not use up the assigns of a call."""
    refuse(rig, EffectKind.ASSIGN, status, times=4)
    call = await rig.begin_call(END, run_s=90, is_pushed=False)
    assert (await rig.record(call)).ledger.assign.state is EffectState.APPLIED
    assert call.person_id == "p-1"


@pytest.mark.parametrize("state", [EffectState.SENT, EffectState.UNKNOWN, EffectState.ABSENT, EffectState.INTENDED])
@pytest.mark.parametrize("kind", ONCE)
def test_redis_that_may_have_lost_a_repetition_allows_no_other(kind: EffectKind, state: EffectState) -> None:
    """After a rollback, a 401 in the ledger allows no second request, because it may have been sent already."""
    effect = Effect(
        state=state,
        attempts=1,
        unauthorized=1,
        retry_at=NOW,
        person_id="p-1",
        intended_at=NOW - seconds(60),
        sent_at=NOW - seconds(60),
    )
    call, _ = fold_epoch(live_call(**{kind.value: effect}, epoch="one"), "two", must_verify=True, now=NOW)
    after = call.effect(kind)
    assert (after.state, after.sent_at, after.retry_at) == (EffectState.UNKNOWN, NOW, None)


@pytest.mark.parametrize("kind", ONCE)
def test_redis_that_may_have_lost_a_repetition_allows_none_after_a_withdrawal(kind: EffectKind) -> None:
    """It may have been intended and sent once more in the writes that are lost. Details show it if it was applied."""
    withdrawn = Effect(attempts=1, unauthorized=1, retry_at=NOW, sent_at=NOW - seconds(60))
    call = live_call(**{kind.value: withdrawn}, epoch="one")
    assert may_begin(kind, withdrawn, call)
    after, _ = fold_epoch(call, "two", must_verify=True, now=NOW)
    assert after.effect(kind) == replace(withdrawn, retry_at=None)
    assert not may_begin(kind, after.effect(kind), after)
