"""One login with fewer institution keys drops no institution."""

from collections.abc import Collection

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.store.breakers import Breaker, open_breakers
from callkeeper.calls.store.last_listing import Listings
from callkeeper.calls.store.sso_token import Barred, barred_scopes
from callkeeper.service.config import LoginPolicy
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import Asgi
from tests.workers_built import institution_settings
from workers.managed_institutions import Institutions

END = Happening(Kind.END, 9000)
OTHER = "cu-2"
OFTEN = LoginPolicy(min_interval_s=0.0)


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a rig with a second institution, whose account may log in as often as it likes."""
    sandbox_asgi.world.add_institution(OTHER, "Second")
    sandbox_asgi.world.add_member(OTHER, "p-1", ["5550100001"])
    return Rig(sandbox_asgi, redis, login=OFTEN)


def own(rig: Rig, owned: bool, key: str = KEY) -> None:
    """Let the service say that the account may manage an institution, or not."""
    rig.stage.world.state.institutions[key].owned = owned


def restricted(rig: Rig, only: frozenset[str], *, beside: Collection[str] = ()) -> Rig:
    """Return a worker that acts for these institutions only. Other workers act for those ``beside`` it."""
    worker = Rig(rig.stage, rig.redis, login=OFTEN)
    worker.institutions = worker.shift.institutions = worker.probing.institutions = Institutions(
        worker.service,
        worker.listings,
        worker.store,
        worker.tools.gate,
        institution_settings(only=only, beside=beside.__contains__),
        monotonic=rig.clock.monotonic,
        log=worker.tools.log,
        counting=worker.tools.counting,
    )
    return worker


async def log_in_anew(rig: Rig) -> None:
    """Log in and take over what the login says, as workers do every hour."""
    rig.stage.advance(3700)
    stored = (await rig.listings.standings()).values()  # the list was read all the time
    await rig.listings.save_standings([replace(one, told_at=rig.clock.now) for one in stored])
    await rig.institutions.refresh()


async def assigned_after_s(rig: Rig, call: Call) -> float:
    """Return after how many seconds a call was assigned; 100 if it was not."""
    for waited in range(100):
        if rig.ledger(call).get("assign"):
            return waited
        await rig.run(1)
    return 100


def events(rig: Rig, name: str) -> list[str]:
    """Return about which institutions an event was logged."""
    return [entry["institution"] for entry in rig.log.entries if entry["event"] == name]


async def test_institution_missing_from_one_login_is_kept(rig: Rig) -> None:
    """Its calls are found within ten seconds as ever; log and counter name it once."""
    await rig.run(10)
    own(rig, False)
    await log_in_anew(rig)
    own(rig, True)
    call = rig.stage.call(END)
    assert await assigned_after_s(rig, call) <= 10
    await rig.run(300)
    assert events(rig, "institution_missing") == [KEY]
    assert (await rig.counted()).count(figure.INSTITUTIONS_MISSING) == 1
    assert list(await Listings(rig.redis).missing()) == [KEY]


async def test_institution_missing_from_the_login_of_a_new_worker_is_kept(rig: Rig) -> None:
    """A new worker uses the institutions that earlier logins listed."""
    await rig.run(10)
    own(rig, False)
    rig.stage.advance(3700)
    await rig.redis.delete("ck:2:institutions")
    other = Rig(rig.stage, rig.redis, login=OFTEN)
    await other.institutions.refresh()
    own(rig, True)
    call = rig.stage.call(END)
    assert await assigned_after_s(other, call) <= 80, (
        "its standing, which could not be read, is asked for once a minute"
    )


async def test_missing_institution_affects_no_other(rig: Rig) -> None:
    """If a missing institution cannot be read any more, others are not affected."""
    await rig.run(10)
    own(rig, False)
    await rig.redis.delete("ck:2:institutions")
    await log_in_anew(rig)
    call = rig.stage.call(END, key=OTHER)
    assert await assigned_after_s(rig, call) <= 10


async def test_institution_that_comes_back_is_no_longer_missing(rig: Rig) -> None:
    """The next login that lists it forgets that it was missing."""
    await rig.run(10)
    own(rig, False)
    await log_in_anew(rig)
    own(rig, True)
    await log_in_anew(rig)
    assert await Listings(rig.redis).missing() == {}


async def test_institution_is_dropped_when_the_service_confirms_it(rig: Rig) -> None:
    """Two logins a minute apart do not list it and its queue is refused: then nothing is sent for it any more."""
    await rig.run(10)
    own(rig, False)
    await log_in_anew(rig)
    await rig.run(180)
    assert events(rig, "institution_dropped") == [KEY]
    assert rig.institutions.keys == {OTHER}
    before = [a for a in rig.stage.sandbox.ledger.other_arrivals() if a.institution_key == KEY]
    await rig.run(300)
    assert [a for a in rig.stage.sandbox.ledger.other_arrivals() if a.institution_key == KEY] == before
    own(rig, True)
    rig.stage.advance(70)
    call = rig.stage.call(END)
    await rig.push(call)
    assert await assigned_after_s(rig, call) <= 10, "a push for it asks for the keys anew"


async def test_dropped_institution_is_not_told_of_any_more(rig: Rig) -> None:
    """Nothing is sent for it, so nobody would find that its refusal is over: it would be an incident for good."""
    await rig.run(10)
    await rig.begin_call(run_s=5)
    own(rig, False)
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=401, institution_key=KEY))
    await log_in_anew(rig)
    await rig.run(40)
    assert {bar.institution_key for bar in await barred_scopes(rig.redis)} == {KEY}
    await rig.run(140)
    assert events(rig, "institution_dropped") == [KEY]
    assert await barred_scopes(rig.redis) == []


@pytest.mark.parametrize("status", [401, 500])
async def test_excluded_institution_is_not_told_of_any_more(rig: Rig, status: int) -> None:
    """Taken out of the settings while the service refused it or failed for it, it is tried no more, nor called stopped."""
    await rig.run(10)
    await rig.begin_call(run_s=5)
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=status, institution_key=KEY))
    await rig.run(60)
    assert {one.institution_key for one in await stopped(rig)} == {KEY}
    await restricted(rig, frozenset({OTHER})).run(60)
    assert await stopped(rig) == []


async def stopped(rig: Rig) -> list[Barred | Breaker]:
    """Return what is refused with 401, and which breakers are open."""
    return [*await barred_scopes(rig.redis), *await open_breakers(rig.redis)]


async def test_refused_queue_alone_drops_nobody(rig: Rig) -> None:
    """An institution that the login lists is kept, whatever its queue answers."""
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.REFUSED, institution_key=KEY))
    await rig.run(300)
    assert rig.institutions.keys == {KEY, OTHER}
    assert events(rig, "institution_dropped") == []


async def test_excluded_institution_is_never_asked_for(rig: Rig) -> None:
    """What the operator has excluded stays so, listed or missing."""
    await rig.run(10)
    rig.stage.call(END, key=OTHER)
    worker = restricted(rig, frozenset({KEY}))
    own(rig, False, OTHER)
    rig.stage.advance(3700)
    number = rig.stage.sandbox.ledger.entries.number
    await worker.run(120)
    own(rig, True, OTHER)
    await worker.run(120)
    later = [a for a in rig.stage.sandbox.ledger.other_arrivals() if a.number > number]
    assert OTHER not in {arrival.institution_key for arrival in later}
    assert later


async def test_call_that_our_settings_exclude_is_left_to_others(rig: Rig) -> None:
    """What a worker of other settings claims first is due again within a second, as it was, for the others."""
    await rig.run(10)
    worker = restricted(rig, frozenset({KEY}), beside=[OTHER])
    await worker.institutions.refresh()
    call = rig.stage.call(END, key=OTHER)
    await rig.push(call)
    member = CallId(OTHER, call.voice_id).member
    before = await rig.redis.hget(rig.store.keys.item(member), "rec")
    for _ in range(3):
        await worker.tick()
        due_s = (await rig.redis.zscore(rig.store.keys.due, member) - rig.now_ms()) / 1000
        assert 0 < due_s <= 1
        rig.stage.advance(1.5)
    assert await rig.redis.hget(rig.store.keys.item(member), "rec") == before
    await rig.run(1)
    assert rig.ledger(call)["assign"] == 1


async def test_shift_claims_no_call_that_is_left_to_others(rig: Rig) -> None:
    """It has nothing else to do, so it would come first each time, and nobody would ever do anything for the call."""
    await rig.run(10)
    worker = restricted(rig, frozenset({KEY}), beside=[OTHER])
    await worker.institutions.refresh()
    call = rig.stage.call(Happening(Kind.END, 300), key=OTHER)
    await rig.push(call)
    rig.stage.advance(1)
    member = CallId(OTHER, call.voice_id).member
    assert member not in {item.member for item in await worker.shift._claim(100, shift_starts=False)}
    assert member in {item.member for item in await rig.shift._claim(100, shift_starts=False)}


async def test_call_that_is_left_to_others_still_needs_a_person(rig: Rig) -> None:
    """It stays listed until somebody who acts for it has looked, also if those who do are cut off meanwhile."""
    await rig.run(10)
    worker = restricted(rig, frozenset({KEY}), beside=[OTHER])
    await worker.institutions.refresh()
    call = rig.stage.call(Happening(Kind.END, 20), key=OTHER)
    await rig.push(call)
    await rig.run(120)
    member, keys = CallId(OTHER, call.voice_id).member, rig.store.keys
    await rig.redis.hset(keys.attention, member, "enroll refused")
    await rig.redis.persist(keys.item(member))
    await rig.redis.zadd(keys.due, {member: rig.now_ms()})
    await worker.tick()
    assert await rig.redis.hget(keys.item(member), "settled") == b"1"
    assert await rig.redis.zscore(keys.due, member) > rig.now_ms()
    assert await rig.redis.hget(keys.attention, member) == b"enroll refused"
    assert await rig.redis.ttl(keys.item(member)) == -1


async def test_institution_that_our_settings_exclude_is_not_forgotten(rig: Rig) -> None:
    """Its next listing stays due, within a second, and what stopped requests for it stays known."""
    await rig.run(10)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.UNAUTHORIZED, institution_key=OTHER))
    await rig.run(30)
    refused = await stopped(rig)
    worker = restricted(rig, frozenset({KEY}), beside=[OTHER])
    await worker.institutions.refresh()
    await rig.redis.zadd(rig.store.keys.due, {institution_member(OTHER): rig.now_ms()})
    await worker.tick()
    due_s = (await rig.redis.zscore(rig.store.keys.due, institution_member(OTHER)) - rig.now_ms()) / 1000
    assert 0 < due_s <= 1
    assert await stopped(rig) == refused != []
    assert events(worker, "institution_foreign") == []


@pytest.mark.parametrize("is_listed", [True, False], ids=["nobody acts for it", "the service lists it no more"])
async def test_call_of_a_foreign_institution_waits_a_minute(rig: Rig, is_listed: bool) -> None:
    """If all workers exclude it, or the account does not manage it, nothing will come of looking again at once."""
    await rig.run(10)
    call = rig.stage.call(Happening(Kind.END, 9000), key=OTHER)
    await rig.push(call)
    await rig.run(5)
    worker = restricted(rig, frozenset({KEY}), beside=[] if is_listed else [OTHER])
    await worker.institutions.refresh()
    if not is_listed:
        await rig.listings.disown(OTHER)
        own(rig, False, OTHER)
        await log_in_anew(rig)
        await worker.institutions.refresh(max_age_s=0)
    member = CallId(OTHER, call.voice_id).member
    await rig.redis.zadd(rig.store.keys.due, {member: rig.now_ms()})
    await worker.tick()
    due_s = (await rig.redis.zscore(rig.store.keys.due, member) - rig.now_ms()) / 1000
    assert 50 < due_s <= 60


@pytest.mark.parametrize("how", ["", "list-items", "list-bare", "list-beside-arrays"])
async def test_institution_that_only_the_list_names_is_acted_for(rig: Rig, how: str) -> None:
    """A login that leaves it out proves nothing: the list says that it is the reseller's, whatever wraps it."""
    rig.stage.sandbox.choose(["keys-missing", *filter(None, [how])])
    call = rig.stage.call(END, key=OTHER)
    assert await assigned_after_s(rig, call) <= 10
    assert events(rig, "institution_missing") == [OTHER]


async def test_institution_that_only_the_list_names_and_whose_queue_is_refused_is_dropped(rig: Rig) -> None:
    """The account may not manage every institution of the reseller: after a minute it is left alone, others go on."""
    rig.stage.sandbox.choose(["keys-missing"])
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.REFUSED, institution_key=OTHER))
    await rig.run(180)
    assert events(rig, "institution_dropped") == [OTHER]
    assert rig.institutions.keys == {KEY}


async def test_worker_that_asks_nobody_acts_for_the_institutions_that_are_stored(rig: Rig) -> None:
    """Its counters and its breakers know them, too: another worker has asked."""
    await rig.run(5)
    other = Rig(rig.stage, rig.redis, login=OFTEN)
    await other.institutions.refresh()
    assert other.institutions.keys == other.tools.counting.ours == other.store.breakers.acted_for == {KEY, OTHER}


async def test_institution_that_only_the_list_names_is_not_dropped_for_one_refused_look(rig: Rig) -> None:
    """One odd answer would leave its calls alone for an hour."""
    rig.stage.sandbox.choose(["keys-missing"])
    await rig.run(180)
    rig.stage.sandbox.faults.add(Fault(target="queue", action=Action.REFUSED, institution_key=OTHER, times=8))
    await rig.run(30)
    assert events(rig, "institution_dropped") == []
    call = rig.stage.call(END, key=OTHER)
    assert await assigned_after_s(rig, call) <= 10


async def test_institution_that_the_settings_name_is_asked_for_by_its_key(rig: Rig) -> None:
    """Neither login nor list name it: who runs callkeeper can, and the service answers for it."""
    rig.stage.sandbox.choose(["keys-missing", "list-failing"])
    worker = restricted(rig, frozenset({KEY, OTHER, "cu-3"}))
    call = rig.stage.call(END, key=OTHER)
    assert await assigned_after_s(worker, call) <= 10
    assert worker.institutions.keys == {KEY, OTHER}
