"""Before an enroll or reject the institution's standing is at most two minutes old, or effects are held and shown."""

import datetime as dt
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader
from callkeeper.calls.notes import Distrusted, Verified
from callkeeper.calls.store.last_listing import Listings, Standing
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.institutions import InstitutionStatus
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import PHONE, Asgi

END = Happening(Kind.END, 1800)
VERIFIED = Happening(Kind.MFA_VALIDATED, 5, "op")
FRESH_S, BELIEVED_S, LIST_EVERY_S = 120, 900, 90


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a rig."""
    return Rig(sandbox_asgi, redis)


def change(rig: Rig, **fields: Any) -> None:
    """Let the service say something else of the institution."""
    child = rig.stage.world.state.institutions[KEY]
    child.record = msgspec.structs.replace(child.record, **fields)


def fail(rig: Rig, *targets: str, status: int = 500) -> None:
    """Let the service fail for institutions."""
    for target in targets or ("institutions", "institution"):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.ANSWER, status=status))


def arrived(rig: Rig, target: str) -> int:
    """Return how many requests of a kind the service got."""
    return rig.stage.sandbox.ledger.entries.totals.arrived.get(target, 0)


async def verify(rig: Rig, call: Call, person_id: str = "p-1") -> None:
    """Let a person say who the caller is: an enroll follows."""
    await rig.note(
        call, Verified(person_id=person_id, validation_type="Other", operator="ann", said_at=rig.stage.clock.now)
    )


async def begun(rig: Rig, *, key: str = KEY, **more: Any) -> Call:
    """Start a call, and let it be assigned."""
    call = await rig.begin_call(END, key=key, run_s=5, is_pushed=False, **more)
    assert call.aliases
    return call


async def silent_for(rig: Rig, seconds: float) -> None:
    """Let the service say for so long nothing more of an institution that it has called Active."""
    await rig.run(5)
    fail(rig)
    await rig.run(seconds)


async def incidents(rig: Rig) -> list[tuple[str, str]]:
    """Return the kinds of the incidents that concern standings, with their institutions."""
    signals = await SignalReader(rig.redis, rig.store.keys).read(now=rig.clock.now)
    found = [(incident.kind.value, incident.institution_key) for incident in incidents_of(signals)]
    return [one for one in found if one[0] == "institution_fails"]


@pytest.mark.parametrize(
    ("before", "after", "acts"),
    [
        ({"status": InstitutionStatus.REVIEW}, {"status": InstitutionStatus.ACTIVE}, True),
        ({"is_test_mode": True}, {"is_test_mode": False}, True),
        ({"status": InstitutionStatus.ACTIVE}, {"status": InstitutionStatus.DISABLED}, False),
    ],
    ids=["made Active", "out of test mode", "Disabled"],
)
async def test_change_of_the_standing_counts_within_two_minutes(
    rig: Rig, before: dict[str, Any], after: dict[str, Any], acts: bool
) -> None:
    """The list is read often enough that nobody has to restart anything."""
    change(rig, **before)
    await rig.run(6)
    change(rig, **after)
    await rig.run(FRESH_S)
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    assert bool(call.aliases) is acts


@pytest.mark.parametrize("variant", ["list-refused", "list-failing"])
async def test_institution_that_is_made_active_counts_within_two_minutes_without_a_list(rig: Rig, variant: str) -> None:
    """While nothing may be done for its calls it is asked for by key, as often as the list; then no more."""
    rig.stage.sandbox.choose([variant])
    change(rig, status=InstitutionStatus.REVIEW)
    await rig.run(6)
    change(rig, status=InstitutionStatus.ACTIVE)
    await rig.run(FRESH_S)
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    assert call.aliases
    asked = arrived(rig, "institution")
    await rig.run(3 * LIST_EVERY_S)
    assert arrived(rig, "institution") == asked


async def test_list_is_read_once_in_90_s_by_all_workers(rig: Rig) -> None:
    """Several workers share one reading. Nothing is asked by key while the list is answered."""
    others = [Rig(rig.stage, rig.redis) for _ in range(3)]
    for one in (rig, *others):
        await one.institutions.refresh()
    begun_with = arrived(rig, "institutions")
    for _ in range(10 * LIST_EVERY_S):
        rig.stage.advance(1)
        for one in (rig, *others):
            await one.institutions.refresh()
    assert 9 <= arrived(rig, "institutions") - begun_with <= 10
    assert arrived(rig, "institution") == 0


async def test_disabled_institution_is_seen_before_the_enroll_although_the_list_fails(rig: Rig) -> None:
    """It is asked for by key, because what was listed is more than two minutes old: nothing is sent."""
    call = await begun(rig)
    fail(rig, "institutions")
    await rig.run(FRESH_S + LIST_EVERY_S)
    change(rig, status=InstitutionStatus.DISABLED)
    await verify(rig, call)
    await rig.run(30)
    assert "enroll" not in rig.ledger(call)
    assert arrived(rig, "institution") == 1
    assert (await rig.record(call)).last_claim.standing == "not_active"


async def test_active_institution_is_asked_for_once_for_many_enrolls(rig: Rig) -> None:
    """Enrolls of four members at once cost one request by key, and each is sent."""
    numbers = {f"p-{n}": f"55501000{n:02}" for n in range(11, 15)}
    for person_id, number in numbers.items():
        rig.stage.world.add_member(KEY, person_id, [number])
    calls = {person_id: await begun(rig, phone_number=number) for person_id, number in numbers.items()}
    fail(rig, "institutions")
    await rig.run(FRESH_S + LIST_EVERY_S)
    for person_id, call in calls.items():
        await verify(rig, call, person_id)
    await rig.run(5)
    assert [rig.ledger(call).get("enroll") for call in calls.values()] == [1] * 4
    assert arrived(rig, "institution") == 1


async def test_list_is_read_before_an_enroll_if_the_key_is_refused(rig: Rig) -> None:
    """The list alone failed for a while; then the request by key is refused: the list decides."""
    call = await begun(rig)
    fail(rig, "institutions")
    await rig.run(FRESH_S + LIST_EVERY_S)
    rig.stage.sandbox.faults.clear()
    rig.stage.sandbox.faults.add(Fault(target="institution", action=Action.REFUSED))
    change(rig, status=InstitutionStatus.DISABLED)
    await verify(rig, call)
    await rig.run(15)
    assert "enroll" not in rig.ledger(call)
    assert (await rig.record(call)).last_claim.standing == "not_active"


async def test_last_active_counts_for_fifteen_minutes(rig: Rig) -> None:
    """If nobody answers, an enroll is sent as long as the institution was Active a quarter of an hour ago."""
    await silent_for(rig, BELIEVED_S - 2 * LIST_EVERY_S)
    call = await begun(rig)
    await verify(rig, call)
    await rig.run(5)
    assert rig.ledger(call)["enroll"] == 1
    assert await incidents(rig) == []


@pytest.mark.parametrize("effect", ["enroll", pytest.param("reject_voice", marks=pytest.mark.night)])
async def test_effects_are_held_and_shown_after_fifteen_minutes(rig: Rig, effect: str) -> None:
    """The trail and an incident say so; checks and reads go on. Soon after an answer the effect is sent, once."""
    await silent_for(rig, BELIEVED_S + LIST_EVERY_S)
    call = await begun(rig)
    reads = rig.ledger(call)["read"]
    if effect == "enroll":
        await verify(rig, call)
    else:
        await rig.note(call, Distrusted(operator="ann", said_at=rig.stage.clock.now))
    asked = arrived(rig, "institution")
    await rig.run(60)
    assert effect not in rig.ledger(call)
    assert rig.ledger(call)["read"] > reads
    forbidden = [entry.forbidden for entry in await rig.trail(call)]
    assert forbidden.count(("standing_unconfirmed",)) == 1
    assert await incidents(rig) == [("institution_fails", KEY)]
    assert arrived(rig, "institution") - asked <= 8
    rig.stage.sandbox.faults.clear()
    await rig.run(15)
    assert rig.ledger(call)[effect] == 1
    assert await incidents(rig) == []


async def test_effect_is_held_after_the_end_too(rig: Rig) -> None:
    """A reject takes effect after the end: the call is not closed while only the unknown standing is in its way."""
    await silent_for(rig, BELIEVED_S + 100)
    call = await rig.begin_call(Happening(Kind.END, 100), run_s=50, is_pushed=False)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.stage.clock.now))
    await rig.run(120)
    rig.stage.sandbox.faults.clear()
    await rig.run(30)
    assert rig.ledger(call)["reject_voice"] == 1


async def test_institution_whose_pushes_are_lost_is_found_within_two_minutes(rig: Rig) -> None:
    """A new institution is on the list only: its call is assigned all the same."""
    await rig.run(10)
    rig.stage.world.add_institution("cu-8", "New")
    rig.stage.world.add_member("cu-8", "p-1", [PHONE])
    call = await rig.begin_call(END, key="cu-8", run_s=FRESH_S, is_pushed=False)
    assert call.aliases


async def test_call_of_an_institution_that_another_worker_found_is_handled(rig: Rig) -> None:
    """A worker that has not heard of it reads Redis again before it drops the call as foreign."""
    other = Rig(rig.stage, rig.redis)
    await rig.run(100)
    await other.institutions.refresh()
    rig.stage.world.add_institution("cu-8", "New")
    rig.stage.world.add_member("cu-8", "p-1", [PHONE])
    call = rig.stage.call(END, key="cu-8")
    await rig.listings.save_standings(
        [Standing(key="cu-8", status="Active", has_voice_auth=True, told_at=rig.clock.now)]
    )
    rig.stage.advance(5)
    await rig.push(call)
    rig.stage.advance(5)
    [held] = [held for held in await other.store.claim(100) if held.member.startswith("c:")]
    await other.shift.handle(held)
    assert (await rig.record(call)).last_claim.standing is None


async def test_clock_that_goes_back_makes_the_standing_old(rig: Rig) -> None:
    """A standing from the future is asked for again, and so is the list."""
    now = rig.clock.now
    ahead = Standing(key=KEY, status="Active", has_voice_auth=True, told_at=now + dt.timedelta(minutes=10))
    assert not ahead.is_younger(dt.timedelta(minutes=15), now)
    listings = Listings(rig.redis)
    period = dt.timedelta(seconds=LIST_EVERY_S)
    assert await listings.may_ask("", now, period)
    assert not await listings.may_ask("", now, period)
    assert await listings.may_ask("", now - dt.timedelta(minutes=10), period)
