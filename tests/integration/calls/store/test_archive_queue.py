"""What becomes of a call and of its place in the outbox when it was archived, on a real Redis."""

from redis.asyncio import Redis

from callkeeper.calls.claimed_item import LEASE, Placement
from callkeeper.calls.store.archive_queue import ArchiveQueue
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.keys import Keys
from tests.integration.calls.hand import Hand
from tests.integration.calls.store.test_claims import HINT, LINE, RECORD, A, claim, dump

KEYS = Keys()
CALL, TRAIL = KEYS.item(A.member), KEYS.trail(A.member)
KEPT_S = 60


async def settled(redis: Redis, hand: Hand, *, attention: str = "") -> ArchiveQueue:
    """Settle a call, and return the queue that it waits in."""
    store = Store(redis, archive=KEYS.archive, now_ms=hand)
    await store.note(A, HINT)
    await store.save(await claim(store), RECORD, Placement(None, listed="settled", attention=attention), entries=[LINE])
    assert [await redis.ttl(CALL), await redis.ttl(TRAIL)] == [-1, -1]
    return ArchiveQueue(redis, KEYS, kept_s=KEPT_S, now_ms=hand)


async def test_archived_call_expires_from_now_on(redis: Redis, hand: Hand) -> None:
    """Nothing of it is left in the outbox. A repetition changes nothing."""
    queue = await settled(redis, hand)
    item = await claim(queue)
    await redis.hset(queue.keys.attention, A.member, "it could not be written")
    await queue.archived(item)
    assert await redis.hmget(CALL, ["archived", "over"]) == [b"1", str(hand.ms).encode()]
    assert [0 < await redis.ttl(key) <= KEPT_S for key in (CALL, TRAIL)] == [True, True]
    after = await dump(redis)
    assert {queue.keys.due, queue.keys.attention, queue.keys.item(A.member)}.isdisjoint(map(bytes.decode, after))
    await queue.archived(item)
    assert await dump(redis) == after


async def test_archived_call_that_needs_a_person_does_not_expire(redis: Redis, hand: Hand) -> None:
    """It is archived, and stays."""
    queue = await settled(redis, hand, attention="look")
    await queue.archived(await claim(queue))
    assert await redis.hget(CALL, "archived") == b"1"
    assert [await redis.ttl(CALL), await redis.ttl(TRAIL)] == [-1, -1]


async def test_call_that_was_saved_meanwhile_is_archived_again(redis: Redis, hand: Hand) -> None:
    """At once, and it does not expire before."""
    queue = await settled(redis, hand)
    item = await claim(queue)
    await redis.hset(queue.keys.inbox(A.member), "saved", "by another claim")
    await queue.archived(item)
    assert [await redis.ttl(CALL), await redis.hget(CALL, "archived")] == [-1, None]
    assert (await claim(queue)).notes == {b"saved": b"by another claim"}


async def test_former_holder_archives_nothing(redis: Redis, hand: Hand) -> None:
    """Its lease has ended, or Redis was replaced: the call is archived by whoever holds it."""
    queue = await settled(redis, hand)
    late = await claim(queue)
    hand.ms += LEASE.ms
    item = await claim(queue)
    before = await dump(redis)
    await queue.archived(late)
    assert await dump(redis) == before
    await redis.hset(queue.keys.item(A.member), "epoch", "of an earlier run")
    before = await dump(redis)
    await queue.archived(item)
    assert await dump(redis) == before
