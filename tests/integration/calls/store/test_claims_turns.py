"""Institutions take turns when more is due than a claim takes, however much is due for one of them."""

from collections import Counter

import pytest
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import ClaimedItem, Placement
from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.store.claims import MOST_OF_ONE, Store
from tests.integration.calls.hand import Hand

BACKLOG = 9000
LONG_AGO_MS = 60_000


async def due(store: Store, redis: Redis, hand: Hand, institution: str, count: int, *, ago_ms: int) -> list[str]:
    """Make calls due in the due set only. Return their members, the oldest first."""
    members = [CallId(institution, f"v-{n:05}").member for n in range(count)]
    pipe = redis.pipeline(transaction=False)
    for n, member in enumerate(members):
        pipe.hset(store.keys.item(member), "rec", "{}")
        pipe.zadd(store.keys.due, {member: hand.ms - ago_ms + n})
    await pipe.execute()
    return members


def per_institution(items: list[ClaimedItem]) -> Counter[str]:
    """Count what was claimed of each institution."""
    return Counter(item.member.split(":")[1] for item in items)


async def test_backlog_of_one_institution_hides_no_other(store: Store, redis: Redis, hand: Hand) -> None:
    """Calls of another institution in the middle of 9,000 due ones are all in the next claim."""
    await due(store, redis, hand, "cu-slow", BACKLOG, ago_ms=LONG_AGO_MS)
    await due(store, redis, hand, "cu-ok", 20, ago_ms=LONG_AGO_MS - BACKLOG // 2)
    claimed = await store.claim(128, holds={"cu-slow": MOST_OF_ONE})
    assert per_institution(claimed) == {"cu-ok": 20}
    await due(store, redis, hand, "cu-new", 1, ago_ms=0)
    assert per_institution(await store.claim(128, holds={"cu-slow": MOST_OF_ONE})) == {"cu-new": 1}


async def test_institutions_get_equal_shares(store: Store, redis: Redis, hand: Hand) -> None:
    """What is due longest does not matter between institutions: each gets as many, and in the next claim the others."""
    for n in range(7):
        await due(store, redis, hand, f"cu-{n}", 40, ago_ms=LONG_AGO_MS // (n + 1))
    await due(store, redis, hand, "cu-few", 2, ago_ms=100)
    assert per_institution(await store.claim(30)) == {"cu-few": 2} | {f"cu-{n}": 4 for n in range(7)}
    ones = [per_institution(await store.claim(1)) for _ in range(14)]
    assert sum(ones, Counter()) == {f"cu-{n}": 2 for n in range(7)}
    assert sum(ones[:7], Counter()) == {f"cu-{n}": 1 for n in range(7)}


async def test_institutions_hold_no_more_than_is_still_free(store: Store, redis: Redis, hand: Hand) -> None:
    """Two that could fill every place leave a third of them to others, and one more when a place gets free."""
    for key in ("cu-1", "cu-2"):
        await due(store, redis, hand, key, 100, ago_ms=LONG_AGO_MS)
    holds = {"cu-1": 20, "cu-2": 20}
    assert per_institution(await store.claim(60, holds={}, free=60)) == holds
    assert await store.claim(20, holds=holds, free=20) == []
    assert len(await store.claim(21, holds=holds, free=21)) == 1


async def test_each_institution_gets_its_oldest_and_its_newest(store: Store, redis: Redis, hand: Hand) -> None:
    """Half of a claim waited longest, half fell due last: of each institution."""
    one = await due(store, redis, hand, "cu-1", 100, ago_ms=LONG_AGO_MS)
    two = await due(store, redis, hand, "cu-2", 100, ago_ms=1000)
    claimed = {item.member for item in await store.claim(20)}
    assert claimed == {*one[:5], *one[-5:], *two[:5], *two[-5:]}


@pytest.mark.parametrize(
    ("held", "taken", "copied"),
    [(0, 1, [b"300", b"250", b"298", b"250"]), (MOST_OF_ONE, 0, [b"300", b"250", b"300", b"250"])],
)
async def test_backlog_that_was_copied_is_copied_again_only_in_parts(
    store: Store, redis: Redis, hand: Hand, held: int, taken: int, copied: list[bytes]
) -> None:
    """Copying all of it in each claim would hold up Redis while much is due. It begins again when it is at the end."""
    await due(store, redis, hand, "cu-1", 300, ago_ms=LONG_AGO_MS)
    found = []
    for _ in copied:
        assert len(await store.claim(1, holds={"cu-1": held})) == taken
        found.append(await redis.hget(store.keys.due.replace(":due", ":turns:copied"), "next"))
    assert found == copied


async def test_new_call_does_not_wait_until_a_long_backlog_is_copied(store: Store, redis: Redis, hand: Hand) -> None:
    """A claim copies a part of what is due: the longest due, and what fell due last."""
    await due(store, redis, hand, "cu-slow", 12_500, ago_ms=LONG_AGO_MS)
    await due(store, redis, hand, "cu-new", 1, ago_ms=0)
    assert per_institution(await store.claim(128, holds={"cu-slow": MOST_OF_ONE})) == {"cu-new": 1}
    assert await redis.hget(store.keys.due.replace(":due", ":turns:copied"), "next") == b"10000"


async def test_thousands_that_fall_due_together_hide_no_other(store: Store, redis: Redis, hand: Hand) -> None:
    """All had been copied before. More than one part is copied in the next claim, and goes on where that ended."""
    await due(store, redis, hand, "cu-slow", 200, ago_ms=LONG_AGO_MS)
    holds = {"cu-slow": MOST_OF_ONE}
    assert await store.claim(128, holds=holds) == []
    hand.ms += LONG_AGO_MS
    await due(store, redis, hand, "cu-slow", 12_500, ago_ms=LONG_AGO_MS - 1)
    await due(store, redis, hand, "cu-ok", 5, ago_ms=LONG_AGO_MS - 11_000)
    assert per_institution(await store.claim(128, holds=holds)) == {"cu-ok": 5}


async def test_claim_that_takes_nothing_copies_nothing(store: Store, redis: Redis, hand: Hand) -> None:
    """Workers claim all the time while the service is away."""
    await due(store, redis, hand, "cu-1", 10, ago_ms=LONG_AGO_MS)
    await store.claim(0)
    assert await redis.keys("ck:2:turn*") == []


async def test_copies_expire_and_institutions_without_due_calls_are_forgotten(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """Each claim goes through the institutions that are not, and a copy that nobody reads would stay for ever."""
    await due(store, redis, hand, "cu-1", 20, ago_ms=LONG_AGO_MS)
    await due(store, redis, hand, "cu-few", 1, ago_ms=LONG_AGO_MS)
    await store.claim(10)
    assert await redis.zrange(store.keys.due.replace(":due", ":turns"), 0, -1) == [b"cu-1"]
    copies = await redis.keys("ck:2:turn*")
    assert len(copies) == 3
    assert [key for key in copies if await redis.ttl(key) <= 0] == []


async def test_new_call_does_not_wait_for_the_backlog_if_claims_are_small(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """A worker holds nearly as many calls of an institution as it may: every second claim of one call takes the newest.

    So it is after a restart of Redis, when every live call is due at once.
    """
    old = await due(store, redis, hand, "cu-1", 1000, ago_ms=LONG_AGO_MS)
    holds = {"cu-1": MOST_OF_ONE - 1}
    claimed = [await store.claim(128, holds=holds) for _ in range(4)]
    assert [[item.member for item in items] for items in claimed] == [[old[n]] for n in (0, -1, 1, -2)]


async def test_every_due_call_is_claimed_once(store: Store, redis: Redis, hand: Hand) -> None:
    """Two workers take turns until nothing is due: each member was claimed once, and then again when it is due again."""
    members = {m for n in range(3) for m in await due(store, redis, hand, f"cu-{n}", 150, ago_ms=LONG_AGO_MS)}
    other = Store(redis, now_ms=hand)
    claimed: list[ClaimedItem] = []
    for n in range(30):
        hand.ms += 10
        claimed += await (store, other)[n % 2].claim(20)
    assert len(claimed) == len(members)
    assert {item.member for item in claimed} == members
    for item in claimed:
        await store.save(item, b"{}", Placement(500))
    hand.ms += 500
    again = [item.member for _ in range(30) for item in await store.claim(20)]
    assert sorted(again) == sorted(members)


async def test_member_that_an_older_release_makes_due_is_claimed(store: Store, redis: Redis, hand: Hand) -> None:
    """It writes to the due set only: what it makes due now is found at once, what it dates back after a few claims."""
    await due(store, redis, hand, "cu-slow", 500, ago_ms=LONG_AGO_MS)
    holds = {"cu-slow": MOST_OF_ONE}
    assert await store.claim(128, holds=holds) == []
    assert await store.claim(128, holds=holds) == []
    await due(store, redis, hand, "cu-back", 5, ago_ms=LONG_AGO_MS - 250)
    await due(store, redis, hand, "cu-now", 1, ago_ms=0)
    claimed = [await store.claim(128, holds=holds) for _ in range(4)]
    assert per_institution([item for items in claimed for item in items]) == {"cu-now": 1, "cu-back": 5}


async def test_what_an_older_release_has_claimed_is_not_claimed_again(store: Store, redis: Redis, hand: Hand) -> None:
    """The due set alone says what is due: what another worker took or removed since is left alone."""
    members = await due(store, redis, hand, "cu-1", 100, ago_ms=LONG_AGO_MS)
    claimed = await store.claim(10)
    rest = [member for member in members if member not in {item.member for item in claimed}]
    await redis.zadd(store.keys.due, dict.fromkeys(rest[:40], hand.ms + 8000))
    await redis.zrem(store.keys.due, *rest[40:50])
    assert {item.member for item in await store.claim(39)} | {item.member for item in await store.claim(39)} == set(
        rest[50:]
    )
    hand.ms += 8000
    again = {item.member for _ in range(5) for item in await store.claim(39)}
    assert again == {*rest[:40], *rest[50:], *(item.member for item in claimed)}


async def test_copy_of_a_call_that_is_not_due_any_more_uses_up_no_turn(store: Store, redis: Redis, hand: Hand) -> None:
    """Its institution gets as many calls as others in the same claim."""
    stale = await due(store, redis, hand, "cu-1", 40, ago_ms=LONG_AGO_MS)
    await due(store, redis, hand, "cu-2", 40, ago_ms=LONG_AGO_MS)
    await store.claim(2)
    await redis.zrem(store.keys.due, *stale[:10], *stale[-10:])
    assert per_institution(await store.claim(10)) == {"cu-1": 5, "cu-2": 5}


async def test_looks_get_the_room_that_calls_leave(store: Store, redis: Redis, hand: Hand) -> None:
    """More than half of a claim if few calls are due."""
    await due(store, redis, hand, "cu-1", 2, ago_ms=LONG_AGO_MS)
    await store.enlist([f"cu-{n}" for n in range(30)])
    claimed = [item.member for item in await store.claim(20)]
    assert len([member for member in claimed if member.startswith("c:")]) == 2
    assert len(claimed) == 20


async def test_looks_come_first_and_leave_room_for_calls(store: Store, redis: Redis, hand: Hand) -> None:
    """Institutions that are due for a look fill half of a claim at most."""
    await due(store, redis, hand, "cu-1", 100, ago_ms=LONG_AGO_MS)
    await store.enlist([f"cu-{n}" for n in range(30)])
    claimed = [item.member for item in await store.claim(20)]
    looks = {institution_member(f"cu-{n}") for n in range(30)}
    assert len(looks.intersection(claimed)) == 10


async def test_turns_go_on_when_the_clock_goes_back(store: Store, redis: Redis, hand: Hand) -> None:
    """Redis's clock is set back by ten minutes while much is due: the next claims find the rest."""
    await due(store, redis, hand, "cu-slow", 500, ago_ms=LONG_AGO_MS)
    assert await store.claim(128, holds={"cu-slow": MOST_OF_ONE}) == []
    hand.ms -= 600_000
    await due(store, redis, hand, "cu-ok", 5, ago_ms=5)
    claimed = [await store.claim(128, holds={"cu-slow": MOST_OF_ONE}) for _ in range(10)]
    assert per_institution([item for items in claimed for item in items]) == {"cu-ok": 5}
