"""Finished data is kept as long as the settings say, so months of calls need no more space than days."""

import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted, Resolved
from callkeeper.calls.record import Call, Seen
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys, Retention
from callkeeper.calls.store.push_intake import Intake
from callkeeper.service.push_event import PushEvent
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.sandbox_fixtures import Asgi
from workers.runtime import Tidying

DAY_S = 86400
DAYS = 6
PASSING = 3
"""Days from one lot of calls to the next."""

BRIEF = Happening(Kind.END, 8)


async def age(redis: Redis, seconds: float) -> None:
    """Let every key with an expiry be so much older."""
    async for key in redis.scan_iter(count=1000):
        left_ms = await redis.pttl(key)
        if 0 <= left_ms <= seconds * 1000:
            await redis.delete(key)
        elif left_ms > 0:
            await redis.pexpire(key, int(left_ms - seconds * 1000))


async def sizes(redis: Redis) -> dict[str, int]:
    """Return how many entries everything has together, by the kind of key: the part of its name before any id."""
    found: dict[str, int] = {}
    async for key in redis.scan_iter(count=1000):
        kind = await redis.type(key)
        size = {
            b"hash": redis.hlen,
            b"zset": redis.zcard,
            b"list": redis.llen,
            b"set": redis.scard,
            b"stream": redis.xlen,
        }
        name = ":".join(key.decode().split(":")[:3])
        found[name] = found.get(name, 0) + (await size[kind](key) if kind in size else 1)
    return found


@pytest.fixture
def kept(sandbox_asgi: Asgi, redis: Redis) -> Rig:
    """Return a rig whose settled calls are kept for six days."""
    rig = Rig(sandbox_asgi, redis, retention=Retention(calls_s=DAYS * DAY_S))
    rig.step_s = 2.0
    return rig


async def live_some_days(rig: Rig, *, calls: int = 2) -> None:
    """Let some calls live and end, one of them hinted only, and then some days pass."""
    for _ in range(calls):
        call = rig.stage.call(BRIEF)
        await rig.push(call)
    await rig.push(call, voice_id=f"never-listed-{rig.clock.now:%j}", alternate_voice_id=None)
    await rig.run(20)
    await rig.push(call, "CallEnd")
    await rig.run(5)
    await rig.counted()
    await Tidying([rig.store], rig.clock.monotonic).tidy()
    rig.stage.advance(PASSING * DAY_S - 25)
    await age(rig.redis, PASSING * DAY_S - 25)


@pytest.mark.parametrize("days", [15, pytest.param(60, marks=pytest.mark.night)])
async def test_months_of_calls_leave_no_more_than_days_of_them(kept: Rig, days: int) -> None:
    """After the days that are kept Redis holds as much as weeks later, at night two months: nothing is left behind."""
    for _ in range(DAYS // PASSING + 2):
        await live_some_days(kept)
    early = await sizes(kept.redis)
    for _ in range(days // PASSING):
        await live_some_days(kept)
    late = await sizes(kept.redis)
    assert early["ck:2:trail"] > 6
    # By its length, at a hundred thousand; by the names that there are; by 90 days and 35 days of their own.
    assert late["ck:2:hours"] <= 2 * 91
    assert late["ck:2:rules"] <= 40
    for bounded in ("ck:2:changes", "ck:2:figures", "ck:2:hours", "ck:2:rules"):
        early.pop(bounded)
        late.pop(bounded)
    assert late == early


async def test_settled_call_is_kept_for_the_days_of_the_settings(kept: Rig) -> None:
    """A settled call can be read on its last day, with its trail, and not on the next."""
    call = await kept.begin_call(BRIEF, run_s=20, is_pushed=False)
    await age(kept.redis, DAYS * DAY_S - 60)
    assert await kept.find(call.voice_id) is not None
    assert await kept.trail(call)
    await age(kept.redis, 120)
    assert await kept.find(call.voice_id) is None
    assert not await kept.trail(call)


async def test_lower_setting_frees_what_is_older(kept: Rig) -> None:
    """Calls settled under a longer setting go when they would have under the lower one, with their trails; others stay."""
    old = kept.stage.call(BRIEF)
    await kept.push(old)  # a listing may miss so short a call
    await kept.run(20)
    closed = await kept.begin_call(BRIEF, run_s=20)
    kept.stage.advance(3 * DAY_S)
    await age(kept.redis, 3 * DAY_S)
    seen = Resolved(applied=False, operator="ann", said_at=kept.clock.now)
    await kept.store.note(kept.call_id(closed), seen, even_settled=True)  # it is kept from when she has closed it
    young = await kept.begin_call(BRIEF, run_s=20)
    lower = Store(kept.redis, now_ms=kept.now_ms, kept_s=DAY_S)
    await Tidying([lower], kept.clock.monotonic).tidy()
    left_s = {call.voice_id: await kept.redis.ttl(Keys().item(kept.call_id(call).member)) for call in (old, closed)}
    assert left_s[old.voice_id] <= 1
    assert await kept.redis.ttl(Keys().trail(kept.call_id(old).member)) <= 1
    assert DAY_S - 60 < left_s[closed.voice_id] <= DAY_S
    assert await kept.redis.zrange(Keys().settled, 0, -1) == [kept.call_id(young).member.encode()]
    kept.stage.advance(DAY_S)
    await Tidying([lower], kept.clock.monotonic).tidy()
    assert await kept.redis.ttl(Keys().item(kept.call_id(young).member)) <= 1


async def test_lower_setting_also_holds_for_what_would_expire_soon(kept: Rig) -> None:
    """A call that has fewer days left than the lower setting keeps in all, but is older than that, goes at once."""
    call = await kept.begin_call(BRIEF, run_s=20)
    item, passed_s = Keys().item(kept.call_id(call).member), (DAYS - 1) * DAY_S - 60
    kept.stage.advance(passed_s)
    await age(kept.redis, passed_s)
    assert DAY_S < await kept.redis.ttl(item) <= 2 * DAY_S
    await Tidying([Store(kept.redis, now_ms=kept.now_ms, kept_s=2 * DAY_S)], kept.clock.monotonic).tidy()
    assert await kept.redis.ttl(item) <= 1


async def test_enrolls_are_kept_as_long_as_calls(kept: Rig) -> None:
    """Also those of a member whose voice is enrolled again and again."""
    enrolled = Keys().enrolled("cu-1", "p-1")
    await kept.redis.zadd(enrolled, {"long-ago": kept.clock.now.timestamp() - DAYS * DAY_S - 1})
    call = CallId("cu-1", "v-1")
    record = Call(institution_key="cu-1", voice_id="v-1", seen=Seen(person_id="p-1", enrolled=True))
    await kept.store.members.follow(call, record, kept.clock.now)
    assert await kept.redis.zrange(enrolled, 0, -1) == [b"v-1"]


async def test_lower_setting_frees_a_full_redis(kept: Rig) -> None:
    """A Redis that is full takes no jobs, so what is older is freed without any command that needs memory."""
    call = await kept.begin_call(BRIEF, run_s=20, is_pushed=False)
    kept.stage.advance(3 * DAY_S)
    await kept.redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(OutOfMemoryError):
            await kept.redis.set("test", "1")
        await Tidying([Store(kept.redis, now_ms=kept.now_ms, kept_s=DAY_S)], kept.clock.monotonic).tidy()
        assert await kept.redis.ttl(Keys().item(kept.call_id(call).member)) <= 1
    finally:
        await kept.redis.config_set("maxmemory", "0")


async def test_settled_call_is_found_by_its_alternate_id_as_long_as_it_is_kept(kept: Rig) -> None:
    """The alternate id leads to the call until it is gone, and is gone with it: neither sooner nor later."""
    call = await kept.begin_call(BRIEF, run_s=20)
    alias = Keys().alias(KEY, call.alternate_id)
    assert DAY_S < await kept.redis.ttl(alias) <= DAYS * DAY_S
    await age(kept.redis, DAYS * DAY_S + 60)
    assert not await kept.redis.exists(alias)


async def test_call_that_needs_a_person_is_kept_until_she_has_closed_it(kept: Rig) -> None:
    """A call with an unresolved effect does not expire until a person has resolved it."""
    seen = Happening(Kind.VIEWED)
    lost = Fault(target="reject_voice", action=Action.RESET, applied=False, times=1, happening=seen)
    kept.stage.sandbox.faults.add(lost)
    call = await kept.begin_call(Happening(Kind.END, 40), run_s=5, is_pushed=False)
    await kept.note(call, Distrusted(operator="ann", said_at=kept.clock.now))
    await kept.run(70)
    assert await kept.queries.attention()
    await age(kept.redis, 100 * DAY_S)
    assert (await kept.record(call)).ledger.reject.state == "unresolved"
    resolved = Resolved(applied=False, operator="ann", said_at=kept.clock.now)
    await kept.store.note(CallId(KEY, call.voice_id), resolved, even_settled=True)
    await kept.run(2)
    assert not await kept.queries.attention()
    member = CallId(KEY, call.voice_id).member
    for key in (Keys().item(member), Keys().trail(member)):
        assert 0 < await kept.redis.ttl(key) <= DAYS * DAY_S


async def test_settled_call_that_comes_to_need_a_person_is_kept(kept: Rig) -> None:
    """A doubt that turns up after a call was settled, by a merge for one, lifts its expiry."""
    call = await kept.begin_call(BRIEF, run_s=20, is_pushed=False)
    member = CallId(KEY, call.voice_id).member
    await kept.store.ask(CallId(KEY, call.voice_id), "nudge")
    [held] = [held for held in await kept.store.claim(10) if held.member == member]
    await kept.store.save(held, None, Placement(None, attention="reject unresolved"))
    assert await kept.redis.ttl(Keys().item(member)) == await kept.redis.ttl(Keys().trail(member)) == -1


async def test_what_has_expired_needs_nobody(kept: Rig) -> None:
    """Expired members are removed from the list of what needs a person; others stay."""
    call = await kept.begin_call(Happening(Kind.END, 40), run_s=5, is_pushed=False)
    member = CallId(KEY, call.voice_id).member
    await kept.redis.hset(Keys().attention, mapping={member: "parked", "c:cu-1:gone": "parked"})
    tidying = Tidying([kept.store], kept.clock.monotonic)
    await tidying.tidy()
    assert await kept.queries.attention() == {member: "parked"}
    await kept.redis.hset(Keys().attention, "c:cu-1:gone", "parked")
    await tidying.tidy()
    assert len(await kept.queries.attention()) == 2, "once an hour is enough"


async def test_events_are_kept_by_number_and_by_age(rig: Rig) -> None:
    """The event log holds so many lines at most, and none older than the settings say."""
    intake = Intake(rig.redis, within_s=60.0, now_ms=rig.now_ms, retention=Retention(calls_s=2 * DAY_S, events=5))
    event = PushEvent(type="CallStart", institution_key=KEY, voice_id="v")
    for n in range(8):
        await intake.record(event, event_id=f"{n:032x}")
    assert await rig.redis.zcard(Keys().events) == 5
    rig.stage.advance(3 * DAY_S)
    await intake.record(event, event_id="f" * 32)
    assert await rig.redis.zcard(Keys().events) == 1
