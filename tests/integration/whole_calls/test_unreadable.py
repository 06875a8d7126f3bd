"""A stored value that cannot be read concerns itself alone: it is logged, counted, and replaced or left out."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from redis.exceptions import RedisError

from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.courier import Courier
from tests.harness.virtual_time import KEY, Rig

END = Happening(Kind.END, 300)
KEYS = Keys()
GARBAGE = b'{"\xff'


def noticed(rig: Rig) -> Counter[str]:
    """Return how often each kind of value was logged as unreadable."""
    return Counter(entry["what"] for entry in rig.log.entries if entry["event"] == "stored_unreadable")


async def seconds_to_assign(rig: Rig) -> float | None:
    """Return after how many seconds a new call is assigned that is pushed now; None if it takes more than 20."""
    call, began = rig.stage.call(END), rig.clock.now
    await rig.push(call)
    while (rig.clock.now - began).total_seconds() < 20:
        try:
            await rig.run(1)
        except (RedisError, msgspec.MsgspecError, ValueError, TypeError):
            rig.stage.advance(1)
        if rig.ledger(call).get("assign"):
            return (rig.clock.now - began).total_seconds()
    return None


SHARED = {
    "a pause of another institution": (KEYS.pause, "cu-2", b'{"scope":"rejects"}'),
    "a pause of all": (KEYS.pause, "*", GARBAGE),
    "the standing of another institution": (KEYS.standings, "cu-9", b'{"key":"cu-9","status":["Active"]}'),
    "the standing of this institution": (KEYS.standings, KEY, GARBAGE),
    "since when an institution is missing": (KEYS.owned, KEY, b"later"),
    "since when Redis is known": (KEYS.epoch, "since", b"later"),
    "when a shift claimed last": (KEYS.epoch, "seen", b"later"),
    "the service's breaker": (KEYS.breakers, "", GARBAGE),
    "the breaker of this institution": (KEYS.breakers, KEY, b"5 now later failure"),
    "the breaker of a number that nobody can count to": (KEYS.breakers, KEY, b"5 " + b"9" * 30 + b" 1 failure"),
    "the breaker of no institution": (KEYS.breakers, GARBAGE, GARBAGE),
    "when a queue was looked at": (KEYS.looked, KEY, GARBAGE),
    "the token's expiry": (KEYS.token, "expires", b"later"),
    "the token's institutions": (KEYS.token, "institutions", GARBAGE),
    "the login's pause": (KEYS.login_gate, "shut", b"later"),
    "the login's lease": (KEYS.login_gate, "lease", b"later"),
    "an access that was refused": (KEYS.refused, f"queue {KEY}", b"later"),
    "the listing of the queue": (KEYS.item(f"i:{KEY}"), "rec", b'{"institution_key":"cu-1","cursor":"later"}'),
    "the listing's failures": (KEYS.item(f"i:{KEY}"), "failures", b"many"),
    "the listing's checks": (KEYS.item(f"i:{KEY}"), "checks", b"many"),
}


AT_NIGHT = {
    "since when an institution is missing",
    "when a shift claimed last",
    "the breaker of no institution",
    "the token's institutions",
    "the login's lease",
    "the listing's failures",
    "the listing's checks",
}
"""Values beside which there is a like one that is tried for every change."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.night) if name in AT_NIGHT else name for name in SHARED]
)
async def test_unreadable_shared_value_stops_no_call(rig: Rig, name: str) -> None:
    """Whichever value of Redis is unreadable, a call that begins then is assigned, also by a worker that begins then."""
    await rig.run(20)
    key, field, value = SHARED[name]
    await rig.redis.hset(key, field, value)
    assert await seconds_to_assign(rig) is not None
    assert await seconds_to_assign(Rig(rig.stage, rig.redis)) is not None


async def test_unreadable_wake_marker_stops_no_push(rig: Rig) -> None:
    """The marker that a job was enqueued is replaced."""
    await rig.run(20)
    await rig.redis.set(KEYS.wake, "later")
    assert await seconds_to_assign(rig) is not None


async def test_member_that_is_no_text_is_removed(rig: Rig) -> None:
    """A due member that is not UTF-8 is taken out of the due set; what is due beside it is moved on."""
    await rig.run(20)
    member: Any = b"c:cu-1:\xff\xfe"
    await rig.redis.zadd(KEYS.due, {member: 0})
    await rig.redis.hset(b"ck:2:item:" + member, "rec", "x")
    assert await seconds_to_assign(rig) is not None
    assert await rig.redis.zscore(KEYS.due, member) is None
    assert noticed(rig)["member"] == 1
    assert (await rig.counted()).count(figure.STORED_UNREADABLE) == 1


async def test_unreadable_pause_holds_effects_where_it_stands(rig: Rig) -> None:
    """Somebody wanted something stopped: enrolls and rejects of that institution are, no other one's, and it is logged."""
    await rig.redis.hset(KEYS.pause, "cu-2", GARBAGE)
    await rig.run(5)
    held = rig.store.pauses.over("cu-2")
    assert held is not None
    assert held.scope is PauseScope.EFFECTS
    assert rig.store.pauses.over(KEY) is None
    assert noticed(rig) == {"pause": 1}


async def test_unreadable_listing_record_is_replaced(rig: Rig) -> None:
    """The institution's queue is listed in full, and the record is one that can be read again."""
    await rig.run(20)
    item = KEYS.item(f"i:{KEY}")
    await rig.redis.hset(item, "rec", b"{")
    await rig.run(20)
    assert noticed(rig) == {"listing": 1}
    assert msgspec.json.decode(await rig.redis.hget(item, "rec"))["institution_key"] == KEY
    assert await rig.queries.attention() == {}


async def test_unreadable_standing_is_asked_for_again(rig: Rig) -> None:
    """A worker that begins asks the service, and stores what it answers."""
    await rig.run(20)
    await rig.redis.hset(KEYS.standings, KEY, GARBAGE)
    other = Rig(rig.stage, rig.redis)
    await other.run(5)
    assert set(await other.listings.standings()) == {KEY}
    assert noticed(other) == {"standing": 1}


async def test_unreadable_trail_line_holds_up_no_outcome(sandbox_asgi: Any, redis: Any) -> None:
    """The call's other outcomes are posted, the line is shown as unreadable, and it is logged once."""
    courier = Courier(sandbox_asgi, redis)
    call = await courier.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 60), run_s=4, is_pushed=False)
    await redis.rpush(KEYS.trail(courier.call_id(call).member), b'{"what":"a-later-kind-of-line"}')
    await courier.run(120)
    assert [message["type"] for message in courier.receiver.taken] == ["call.authenticated", "call.settled"]
    assert "unreadable" in await courier.whats(call)
    assert noticed(courier)["trail"] == 1
    await courier.deliveries.client.aclose()


async def test_unreadable_delivery_cursor_begins_anew(sandbox_asgi: Any, redis: Any) -> None:
    """Nobody knows what was sent: everything is sent again, under the same ids."""
    courier = Courier(sandbox_asgi, redis)
    call = await courier.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 60), run_s=20, is_pushed=False)
    await redis.hset(KEYS.outbox.item(courier.call_id(call).member), "rec", GARBAGE)
    await courier.run(120)
    types = [message["type"] for message in courier.receiver.taken]
    assert types == ["call.authenticated", "call.authenticated", "call.settled"]
    assert len(set(courier.receiver.ids)) == 2
    await courier.deliveries.client.aclose()


async def test_member_whose_name_is_no_text_hides_no_institution(rig: Rig) -> None:
    """Nobody of ours wrote it."""
    await rig.run(5)
    for place in (KEYS.live, KEYS.due):
        await rig.redis.zadd(place, {b"\xff\xfe": 1, b"i:\xff\xfe": 1})
    assert KEY in (await rig.queries.institutions()).names
