"""The breakers before the service: one for the account, one for each institution, shared by all workers."""

from itertools import pairwise
from math import inf
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from starlette.applications import Starlette

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.item_names import CallId, institution_member
from callkeeper.calls.notes import Pushed
from callkeeper.calls.store.breakers import (
    ACCOUNT,
    CHECK_TURN_EVERY_MS,
    FAILURES_THAT_OPEN,
    PROBE_EVERY_MS,
    PROBES_AT_ONCE,
    THREE,
    TOGETHER_MS,
    WHOLE,
    EndpointKind,
    RequestResult,
    Scope,
    breakers_of,
    open_breakers,
    retry_service,
    service_away,
)
from callkeeper.calls.store.claims import MOST_OF_ONE, Store
from callkeeper.calls.store.inbox import SEARCH_EVERY_MS
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from receiver.health import health_routes
from tests.harness.virtual_time import KEY, Rig
from tests.integration.calls.hand import Hand

END = Happening(Kind.END, 400)
ALL = frozenset({"cu-1", "cu-2", "cu-3", "cu-4"})


@pytest.fixture
def away() -> Fault:
    """Return a service that answers everything with 500."""
    return Fault(target="*", action=Action.ANSWER, status=500)


@pytest.fixture
async def store(redis: Redis, hand: Hand) -> Store:
    """Return a store that acts for four institutions, with a token."""
    store = Store(redis, now_ms=hand, monotonic=lambda: hand.ms / 1000)
    store.breakers.acted_for = ALL
    await redis.hset(store.keys.token, "expires", hand() + 10**9)
    return store


async def fail(
    store: Store,
    key: str,
    times: int = FAILURES_THAT_OPEN,
    *,
    kind: EndpointKind = EndpointKind.CALLS,
    answered_s_ago: float = inf,
) -> list[Scope]:
    """Report failures of an institution; return whose breakers that opened."""
    opened = []
    for _ in range(times):
        report = store.breakers.report(RequestResult.FAILURE, key, kind, answered_s_ago=answered_s_ago)
        opened += (await report)[0]
    return opened


def calls(*keys: str) -> list[Scope]:
    """Return the scopes of the calls of institutions."""
    return [Scope(EndpointKind.CALLS, key) for key in keys]


def queues(*keys: str) -> list[Scope]:
    """Return the scopes of the queues of institutions."""
    return [Scope(EndpointKind.QUEUE, key) for key in keys]


async def due(store: Store, *calls: CallId) -> None:
    """Make calls due now."""
    for call in calls:
        await store.note(call, Pushed(has_ended=False, event_id="ev", received_at=await store.now()))


def names(held: list[Any]) -> set[str]:
    """Return the members that were claimed."""
    return {each.member for each in held}


async def test_five_failures_of_an_institution_open_its_breaker_only(store: Store, redis: Redis) -> None:
    """Its calls are claimed by nobody, those of others by everybody; an answer brings them back with their due times."""
    one, other = CallId("cu-1", "v-1"), CallId("cu-2", "v-2")
    assert await fail(store, "cu-1", FAILURES_THAT_OPEN - 1) == []
    assert await fail(store, "cu-1", 1) == calls("cu-1")
    assert await service_away(redis) is None
    second = Store(redis, now_ms=store._now_ms)
    await due(store, one, other)
    assert names(await second.claim(10)) == {other.member}
    assert second.breakers.over("cu-1") is not None
    assert second.breakers.over("cu-2") is None
    await second.breakers.report(RequestResult.ANSWER, "cu-1")
    assert names(await store.claim(10)) == {one.member}
    assert await redis.exists(store.keys.breakers, store.keys.parked("cu-1")) == 0


@pytest.mark.parametrize("key", ["cu-1", "queue"])
async def test_queue_that_fails_stops_listings_only(store: Store, redis: Redis, hand: Hand, key: str) -> None:
    """An institution's queue is not listed while it fails, and its calls are handled; the first answer ends that."""
    await store.enlist([key, "cu-2"])
    await redis.zadd(store.keys.live, {"c:cu-1:v": 1})
    assert await fail(store, key, kind=EndpointKind.QUEUE) == queues(key)
    await due(store, CallId(key, "v-1"))
    assert names(await store.claim(10)) == {CallId(key, "v-1").member, institution_member("cu-2")}
    hand.ms += 60_000
    assert institution_member(key) not in names(await store.claim(10))
    assert await store.breakers.take_probes() == queues(key)
    assert await store.breakers.report(RequestResult.ANSWER, key, EndpointKind.QUEUE) == ([], queues(key))
    assert institution_member(key) in names(await store.claim(10))


async def test_queues_that_fail_everywhere_stop_no_calls(store: Store, redis: Redis) -> None:
    """Queues of three institutions fail together: nothing is listed, one probe tests them, and calls are handled (c13).

    When a request about a call fails too, it is the service that fails.
    """
    await redis.zadd(store.keys.live, {"c:cu-1:v": 1})
    await store.enlist(sorted(ALL))
    for key in ("cu-1", "cu-2"):
        assert await fail(store, key, kind=EndpointKind.QUEUE) == queues(key)
    assert await fail(store, "cu-3", kind=EndpointKind.QUEUE) == queues("cu-3", ACCOUNT)
    await due(store, CallId("cu-1", "v-1"))
    assert names(await store.claim(10)) == {CallId("cu-1", "v-1").member}
    assert await store.breakers.take_probes() == queues(ACCOUNT)
    assert await fail(store, "cu-1", 1) == [WHOLE]
    assert (await store.breakers.report(RequestResult.ANSWER, "cu-1"))[1] == [WHOLE]
    assert (await store.breakers.report(RequestResult.ANSWER, "cu-4", EndpointKind.QUEUE))[1] == queues(ACCOUNT)
    assert names(await store.claim(10)) == {institution_member("cu-4")}
    assert set(await store.breakers.take_probes()) == set(queues("cu-1", "cu-2", "cu-3")), "they are tried at once"
    assert await fail(store, "cu-1", 1, kind=EndpointKind.QUEUE) == [], "others have answered"


async def test_calls_that_fail_everywhere_stop_no_listings(store: Store, hand: Hand) -> None:
    """While queues answer, requests about calls are stopped for the institutions for which they fail, and no others."""
    await store.enlist(["cu-4"])
    for key in ("cu-1", "cu-2", "cu-3"):
        assert await fail(store, key) == calls(key)
    await due(store, CallId("cu-4", "v-4"), CallId("cu-1", "v-1"))
    assert names(await store.claim(10)) == {CallId("cu-4", "v-4").member, institution_member("cu-4")}


async def test_answer_begins_the_count_anew(store: Store) -> None:
    """An answer resets the count of failures in a row."""
    for _ in range(4):
        assert await fail(store, "cu-1", FAILURES_THAT_OPEN - 1) == []
        await store.breakers.report(RequestResult.ANSWER, "cu-1")


async def test_service_that_fails_opens_the_account(store: Store, redis: Redis) -> None:
    """If queues and calls of three institutions fail, nothing is claimed and one probe tests; an answer ends that."""
    await redis.zadd(store.keys.live, {"c:cu-1:v": 1})
    assert await fail(store, "cu-1", 1, kind=EndpointKind.QUEUE) == []
    assert await fail(store, "cu-1") == calls("cu-1")
    assert await fail(store, "cu-2") == calls("cu-2")
    await due(store, CallId("cu-4", "v-4"))
    assert len(await store.claim(1)) == 1
    assert await fail(store, "cu-3") == [*calls("cu-3"), WHOLE]
    await due(store, CallId("cu-4", "v-5"))
    assert await store.claim(10) == []
    assert await store.breakers.take_probes() == [WHOLE]
    assert (await store.breakers.report(RequestResult.ANSWER, "cu-4"))[1] == [WHOLE]
    assert len(await store.claim(10)) == 1
    assert set(await store.breakers.take_probes()) == set(calls("cu-1", "cu-2", "cu-3")), "they are tried at once"


async def test_queues_that_fail_open_the_account_while_there_are_no_calls(store: Store) -> None:
    """Without a call only listings show that the service is away. An answer about a pushed call ends that."""
    for key in ("cu-1", "cu-2"):
        await fail(store, key, kind=EndpointKind.QUEUE)
    assert await fail(store, "cu-3", kind=EndpointKind.QUEUE) == [*queues("cu-3", ACCOUNT), WHOLE]
    assert (await store.breakers.report(RequestResult.ANSWER, "cu-1"))[1] == [WHOLE]
    assert await fail(store, "cu-3", kind=EndpointKind.QUEUE) == [], "it stays closed until another kind fails"


LATEST_MS = 10**14 - 1
"""The longest time of 14 digits."""


@pytest.mark.parametrize(
    ("stored", "is_open"),
    [
        (f"5 {LATEST_MS} {LATEST_MS} failure", True),
        (f"5 {LATEST_MS + 1} 1 failure", False),
        (f"5 1 {LATEST_MS + 1} failure", False),
        ("5 1 failure", False),
        ("5 -1 1 failure", False),
    ],
)
async def test_breaker_that_cannot_be_read_is_closed(store: Store, redis: Redis, stored: str, is_open: bool) -> None:
    """It holds up no call. An error in a claim would stop every worker."""
    call = CallId("cu-1", "v-1")
    await redis.hset(store.keys.breakers, "cu-1", stored)
    await due(store, call)
    assert names(await store.claim(10)) == (set() if is_open else {call.member})


async def test_breakers_are_forgotten_in_an_hour(store: Store, redis: Redis) -> None:
    """Those of institutions that nobody acts for any more would stay for ever."""
    await fail(store, "cu-1")
    await store.breakers.report(RequestResult.FAILURE, "cu-1", EndpointKind.CHECK, member="c:cu-1:v-1")
    kept = [store.keys.breakers, store.keys.endpoints, "ck:2:unchecked:cu-1"]
    assert [0 < await redis.ttl(key) <= 3600 for key in kept] == [True] * 3


async def test_institutions_that_fail_one_after_another_do_not_fail_together(store: Store, hand: Hand) -> None:
    """If the first and the third of three queues fail a while apart, no other listings stop, unless all queues fail."""
    for key in ("cu-1", "cu-2", "cu-3"):
        assert await fail(store, key, kind=EndpointKind.QUEUE) == queues(key)
        hand.ms += TOGETHER_MS // 2
    assert await fail(store, "cu-4", kind=EndpointKind.QUEUE) == [*queues("cu-4", ACCOUNT), WHOLE]


async def test_queues_that_fail_between_answers_do_not_fail_together(store: Store, hand: Hand) -> None:
    """A queue that is answered after the first of three breakers opened disproves that all fail, until all do."""
    kind = EndpointKind.QUEUE
    for key in ("cu-1", "cu-2"):
        assert await fail(store, key, kind=kind) == queues(key)
    hand.ms += 2000
    assert await fail(store, "cu-3", kind=kind, answered_s_ago=1.0) == queues("cu-3")
    assert await fail(store, "cu-4", kind=kind, answered_s_ago=1.0) == [*queues("cu-4", ACCOUNT), WHOLE]


@pytest.mark.parametrize(
    ("later_ms", "answered_s_ago", "are_all"),
    [
        pytest.param(2000, 1.0, False, id="before the answer"),
        pytest.param(2000, 2.0, True, id="at the answer"),
        pytest.param(4 * TOGETHER_MS, 1.0, True, id="long before, and again"),
    ],
)
async def test_queue_that_began_to_fail_before_an_answer_does_not_show_that_all_fail(
    store: Store, hand: Hand, later_ms: int, answered_s_ago: float, *, are_all: bool
) -> None:
    """Of queues that fail at random, several may open their breakers at once: their first failures count."""
    kind = EndpointKind.QUEUE
    await fail(store, "cu-3", FAILURES_THAT_OPEN - 1, kind=kind)
    hand.ms += later_ms
    for key in ("cu-1", "cu-2"):
        assert await fail(store, key, kind=kind, answered_s_ago=answered_s_ago) == queues(key)
    opened = await fail(store, "cu-3", 1, kind=kind, answered_s_ago=answered_s_ago)
    assert opened == [*queues("cu-3"), *([*queues(ACCOUNT), WHOLE] if are_all else [])]


async def test_queues_that_fail_since_the_last_answer_fail_together(store: Store, hand: Hand) -> None:
    """Answers from before an outage do not delay that it is noticed."""
    kind = EndpointKind.QUEUE
    for key, answered_s_ago in (("cu-1", 0.001), ("cu-2", 1.001)):
        assert await fail(store, key, kind=kind, answered_s_ago=answered_s_ago) == queues(key)
        hand.ms += 1000
    opened = await fail(store, "cu-3", kind=kind, answered_s_ago=2.001)
    assert opened == [*queues("cu-3", ACCOUNT), WHOLE]


async def test_call_that_fails_between_answers_of_others_does_not_stop_the_service(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """While no queue answers, a failed request about a call stops all, unless one was answered since."""
    await redis.zadd(store.keys.live, {"c:cu-1:v": 1})
    for key in ("cu-1", "cu-2", "cu-3"):
        await fail(store, key, kind=EndpointKind.QUEUE)
    hand.ms += 1000
    assert await fail(store, "cu-1", 1, answered_s_ago=0.5) == []
    assert await fail(store, "cu-1", 1, answered_s_ago=1.0) == [WHOLE]


@pytest.mark.parametrize("is_answered", [False, True])
async def test_calls_of_one_institution_that_fail_after_the_queues_stop_the_service_unless_others_are_answered(
    store: Store, redis: Redis, hand: Hand, *, is_answered: bool
) -> None:
    """A service may lose its queues first, and then all, while there are calls of one institution only."""
    await redis.zadd(store.keys.live, {"c:cu-1:v": 1})
    for key in ("cu-1", "cu-2", "cu-3"):
        await fail(store, key, kind=EndpointKind.QUEUE)
    hand.ms += 20_000
    assert await fail(store, "cu-1", FAILURES_THAT_OPEN - 1, answered_s_ago=0.5) == []
    hand.ms += 1000
    opened = await fail(store, "cu-1", 1, answered_s_ago=0.5 if is_answered else 1.5)
    assert opened == [*calls("cu-1"), *([] if is_answered else [WHOLE])]


async def test_pause_that_the_service_asks_for_holds_for_the_institution(store: Store, hand: Hand) -> None:
    """429 with Retry-After: nothing is tried before its end, however many others ask for pauses; others go on."""
    for key in ("cu-1", "cu-2", "cu-3"):
        assert await store.breakers.report(RequestResult.PAUSE, key, pause_s=20) == (calls(key), [])
    await due(store, CallId("cu-1", "v-1"), CallId("cu-4", "v-4"))
    assert names(await store.claim(10)) == {CallId("cu-4", "v-4").member}
    hand.ms += 19_999
    assert await store.breakers.take_probes() == []
    hand.ms += 1
    assert set(await store.breakers.take_probes()) == set(calls("cu-1", "cu-2", "cu-3"))


async def test_pause_of_an_institution_outlasts_an_outage(store: Store, hand: Hand) -> None:
    """When the service is back, institutions that failed are tried at once, but not one that asked for a pause."""
    await store.breakers.report(RequestResult.PAUSE, "cu-1", pause_s=20)
    await fail(store, "cu-2")
    await store.breakers.report(RequestResult.PAUSE, pause_s=5)
    assert (await store.breakers.report(RequestResult.ANSWER, "cu-3"))[1] == [WHOLE]
    assert await store.breakers.take_probes() == calls("cu-2")
    hand.ms += 20_000
    assert set(await store.breakers.take_probes()) == set(calls("cu-1", "cu-2"))


async def test_pause_for_a_request_of_no_institution_holds_for_all(store: Store, hand: Hand) -> None:
    """A 429 for the login or the list of institutions stops all requests of the account."""
    await store.breakers.report(RequestResult.PAUSE, pause_s=5)
    await due(store, CallId("cu-1", "v-1"))
    assert await store.claim(10) == []
    assert await store.breakers.take_probes() == []
    hand.ms += 5000
    assert await store.breakers.take_probes() == [WHOLE]


async def test_failed_login_opens_the_account_where_there_is_no_token(store: Store, redis: Redis) -> None:
    """With a token that others use it says nothing; without one a failed request of any institution says the same."""
    assert await store.breakers.report(RequestResult.LOGIN) == ([], [])
    await redis.delete(store.keys.token)
    assert await store.breakers.report(RequestResult.LOGIN) == ([WHOLE], [])
    await redis.delete(store.keys.breakers)
    assert await store.breakers.report(RequestResult.FAILURE, "cu-1") == ([WHOLE], [])
    assert await store.breakers.report(RequestResult.ANSWER, "cu-1") == ([], [WHOLE])


async def test_probes_are_three_seconds_apart_for_all_workers_together(store: Store, redis: Redis, hand: Hand) -> None:
    """One worker takes each probe. If it dies, the next probe comes three seconds later."""
    await fail(store, "cu-1")
    workers = [Store(redis, now_ms=hand) for _ in range(5)]
    taken = []
    for _ in range(60):
        hand.ms += 250
        taken += [(hand.ms, key) for worker in workers for key in await worker.breakers.take_probes()]
    apart = [later - earlier for (earlier, _), (later, _) in pairwise(taken)]
    assert apart == [PROBE_EVERY_MS] * 4


async def test_hundreds_of_failing_institutions_are_tried_by_turns(store: Store, hand: Hand) -> None:
    """The more institutions fail, the less often each is tried: ten listings a second at most."""
    keys = [f"cu-{n}" for n in range(200)]
    store.breakers.acted_for = frozenset({*keys, "cu-other"})
    for key in keys:
        await fail(store, key)
    await store.breakers.report(RequestResult.ANSWER, "cu-other")
    tried: list[Scope] = []
    for _ in range(4 * 60):
        hand.ms += 250
        tried += await store.breakers.take_probes()
    assert {tried.count(scope) for scope in calls(*keys)} <= {2, 3, 4}


async def test_checks_that_bring_no_result_are_made_by_turns(store: Store, hand: Hand) -> None:
    """Without a limit while they bring results; then one call every eight seconds, whatever Redis's clock does."""
    every_s = CHECK_TURN_EVERY_MS / 1000
    assert [await store.breakers.turn_wait_s("cu-1") for _ in range(2)] == [0.0, 0.0]
    for n in range(THREE):
        for _ in range(FAILURES_THAT_OPEN):
            await store.breakers.report(RequestResult.FAILURE, "cu-1", EndpointKind.CHECK, member=f"c:cu-1:v-{n}")
    hand.ms += CHECK_TURN_EVERY_MS
    assert [await store.breakers.turn_wait_s("cu-1") for _ in range(2)] == [0.0, every_s]
    hand.ms += CHECK_TURN_EVERY_MS - 1
    assert await store.breakers.turn_wait_s("cu-1") == 0.001
    hand.ms += 1
    assert await store.breakers.turn_wait_s("cu-1") == 0.0
    hand.ms -= 3_600_000
    assert await store.breakers.turn_wait_s("cu-1") == every_s
    hand.ms += CHECK_TURN_EVERY_MS
    assert await store.breakers.turn_wait_s("cu-1") == 0.0


async def test_few_probes_are_taken_at_once(store: Store, hand: Hand) -> None:
    """Those that have waited the longest. The others are taken with the next look."""
    keys = [f"cu-{n}" for n in range(2 * PROBES_AT_ONCE)]
    store.breakers.acted_for = frozenset({*keys, "cu-other"})
    for key in keys:
        await fail(store, key)
        hand.ms += 1
    await store.breakers.report(RequestResult.ANSWER, "cu-other")
    hand.ms += 10 * PROBE_EVERY_MS
    first, second, third = [await store.breakers.take_probes() for _ in range(3)]
    assert [first, second, third] == [calls(*keys[:PROBES_AT_ONCE]), calls(*keys[PROBES_AT_ONCE:]), []]


async def test_call_in_hand_keeps_its_lease_when_the_breaker_closes(store: Store, hand: Hand) -> None:
    """A holder that renewed its lease while its institution was left alone is not overtaken by a second mover."""
    call = CallId("cu-1", "v-1")
    await due(store, call)
    [held] = await store.claim(10)
    await fail(store, "cu-1")
    hand.ms += store.lease.ms + 1
    assert await store.claim(10) == []
    await store.keep(held, b"{}")
    await store.breakers.report(RequestResult.ANSWER, "cu-1")
    assert await store.claim(10) == []
    await store.save(held, b"{}", Placement(0))
    hand.ms += 1
    assert names(await store.claim(10)) == {call.member}


async def test_parked_calls_return_when_the_breaker_is_forgotten(store: Store, redis: Redis, hand: Hand) -> None:
    """All workers stop for an hour, and the breakers expire: a worker's next regular look makes the calls due (c4)."""
    call = CallId("cu-1", "v-1")
    await due(store, call)
    await fail(store, "cu-1")
    assert await store.claim(10) == []
    await store.enlist(["cu-1"])
    assert call.member not in names(await store.claim(10)), "an open breaker keeps what is parked"
    await redis.delete(store.keys.breakers)
    hand.ms += 3_660_000
    await store.enlist(["cu-1"])
    assert call.member in names(await store.claim(10))


async def test_parked_members_of_a_dead_worker_return(store: Store, redis: Redis, hand: Hand) -> None:
    """Members that a killed worker held are parked with its nonce; call and institution are found all the same (c4c)."""
    call, member = CallId("cu-1", "v-1"), institution_member("cu-1")
    await store.enlist(["cu-1"])
    await due(store, call)
    assert names(await store.claim(10)) == {call.member, member}
    await fail(store, "cu-1")
    hand.ms += store.lease.ms + 1
    await store.claim(10)
    await redis.delete(store.keys.breakers)
    hand.ms += 3_660_000
    await store.enlist(["cu-1"])
    assert names(await store.claim(10)) == {call.member, member}


async def test_statement_about_a_parked_call_of_a_dead_worker_makes_it_due(
    store: Store, redis: Redis, hand: Hand
) -> None:
    """A nonce says that a member is held only as long as the member is due at the end of its lease (c4b)."""
    call = CallId("cu-1", "v-1")
    await due(store, call)
    assert len(await store.claim(10)) == 1
    await fail(store, "cu-1")
    hand.ms += store.lease.ms + 1
    assert await store.claim(10) == []
    await redis.delete(store.keys.breakers)
    await due(store, call)
    assert names(await store.claim(10)) == {call.member}


async def test_live_call_in_no_schedule_is_found(store: Store, redis: Redis, hand: Hand) -> None:
    """A live call that is neither due nor parked is made due by the regular look, one that waits for a person is not."""
    calls = [CallId("cu-1", "v-1"), CallId("cu-1", "v-2")]
    await due(store, *calls)
    for held in await store.claim(10):
        waits = held.member == calls[0].member
        placement = Placement(None if waits else 1000, listed="live", attention="parked" if waits else "")
        await store.save(held, b"{}", placement)
    await redis.zrem(store.keys.due, calls[1].member)
    hand.ms += 10_000
    await store.enlist([])
    assert names(await store.claim(10)) == {calls[1].member}


@pytest.mark.parametrize(
    ("passed_ms", "is_found"), [(0, False), (SEARCH_EVERY_MS - 1, False), (SEARCH_EVERY_MS, True), (-3_600_000, True)]
)
async def test_calls_in_no_schedule_are_searched_every_few_seconds(
    store: Store, redis: Redis, hand: Hand, passed_ms: int, is_found: bool
) -> None:
    """Not with every look, because there may be many. After Redis's clock was set back they are searched at once."""
    call = CallId("cu-1", "v-1")
    await due(store, call)
    for held in await store.claim(10):
        await store.save(held, b"{}", Placement(1000, listed="live"))
    await store.enlist([])
    await redis.zrem(store.keys.due, call.member)
    hand.ms += passed_ms
    await store.enlist([])
    assert (await redis.zscore(store.keys.due, call.member) is not None) == is_found


async def test_institution_in_the_schedule_is_not_listed_in_full_again(store: Store, redis: Redis) -> None:
    """The regular look asks for a full listing only of one that is missing."""
    for has_note in (True, False):
        await store.enlist(["cu-1"])
        assert bool(await redis.exists(store.keys.inbox(institution_member("cu-1")))) == has_note
        for held in await store.claim(10):
            await store.save(held, b"{}", Placement(1000))


async def test_institution_whose_queue_fails_is_looked_at_later(store: Store, redis: Redis, hand: Hand) -> None:
    """Not with every claim, and it stays in the schedule."""
    await store.enlist(["cu-1"])
    await fail(store, "cu-1", kind=EndpointKind.QUEUE)
    assert await store.claim(10) == []
    due_ms = await redis.zscore(store.keys.due, institution_member("cu-1"))
    assert due_ms is not None
    assert due_ms > hand.ms


async def test_parked_call_is_in_a_schedule(store: Store, redis: Redis, hand: Hand) -> None:
    """The regular look does not make a live call due as long as the breaker is open."""
    call = CallId("cu-1", "v-1")
    await due(store, call)
    for held in await store.claim(10):
        await store.save(held, b"{}", Placement(1000, listed="live"))
    await fail(store, "cu-1")
    hand.ms += SEARCH_EVERY_MS
    await store.claim(10)
    await store.enlist(["cu-1"])
    assert await redis.zrange("ck:2:parked:cu-1", 0, -1) == [call.member.encode()]
    assert await redis.zscore(store.keys.due, call.member) is None


@pytest.mark.parametrize(
    ("heard", "within_ms"), [(RequestResult.FAILURE, PROBE_EVERY_MS), (RequestResult.PAUSE, 60_000)]
)
@pytest.mark.parametrize("back_ms", [600_000, 660_000])
async def test_clock_that_goes_back_delays_no_probe(
    store: Store, redis: Redis, hand: Hand, heard: RequestResult, within_ms: int, back_ms: int
) -> None:
    """To the beginning of the outage, or before it: a probe comes after the longest wait of its kind at most (c1)."""
    for _ in range(FAILURES_THAT_OPEN):
        await store.breakers.report(heard, "cu-1", pause_s=60)
    hand.ms += 600_000
    assert await store.breakers.take_probes() == calls("cu-1")
    hand.ms -= back_ms
    assert await store.breakers.take_probes() == []  # workers look several times a second
    hand.ms += within_ms
    assert await store.breakers.take_probes() == calls("cu-1")
    for breaker in await open_breakers(redis):
        assert breaker.since is not None
        assert breaker.since <= await store.now()


async def test_half_of_a_claim_fell_due_last(store: Store, hand: Hand) -> None:
    """A claim takes the members that waited longest and those that fell due last."""
    calls = [CallId("cu-1", f"v-{n}") for n in range(100)]
    for call in calls:
        hand.ms += 10
        await due(store, call)
    claimed = [held.member for held in await store.claim(10)]
    assert set(claimed) == {call.member for call in [*calls[:5], *calls[-5:]]}
    assert len(await store.claim(200)) == 90


async def test_queue_is_read_first_when_the_service_is_back(store: Store, hand: Hand) -> None:
    """After an outage, institutions are listed before all other due work."""
    await store.enlist(["cu-1", "cu-2"])
    first = await store.claim(10)
    for held in first:
        await store.save(held, b"{}", Placement(30_000))
    await due(store, *(CallId("cu-1", f"v-{n}") for n in range(50)))
    await store.breakers.report(RequestResult.PAUSE, pause_s=1)
    hand.ms += 2000
    await store.breakers.report(RequestResult.ANSWER, "cu-1")
    assert {institution_member("cu-1"), institution_member("cu-2")} <= names(await store.claim(4))


async def test_calls_of_one_institution_leave_room_for_another(store: Store) -> None:
    """A worker holds so many calls of one institution at most; the others are still found among hundreds of its calls."""
    many = [CallId("cu-1", f"v-{n}") for n in range(300)]
    await due(store, *many[:150], CallId("cu-2", "v-x"), *many[150:])
    claimed = names(await store.claim(128, holds={"cu-1": 10}))
    assert CallId("cu-2", "v-x").member in claimed
    assert len(claimed) == MOST_OF_ONE - 10 + 1


async def test_report_repeated_by_the_client_counts_once(store: Store, redis: Redis) -> None:
    """A report whose answer was lost and that Redis runs twice leaves the same state as once (C14)."""
    keys = store.keys
    for _ in range(4):
        store.breakers._reports = 6
        await store.breakers.report(RequestResult.FAILURE, "cu-1")
    client: Any = redis
    assert [breaker.failures for breaker in breakers_of(await client.hgetall(keys.breakers)).values()] == [1]


async def test_retry_lets_everything_be_tried_at_once(store: Store, redis: Redis, hand: Hand) -> None:
    """`callkeeper service retry`: breakers and refused logins; idle workers are woken."""
    await store.breakers.report(RequestResult.PAUSE, "cu-1", pause_s=60)
    await redis.hset(store.keys.login_gate, mapping={"refused:abc": 10**14, "shut": 10**14, "failures": 3})
    assert await store.breakers.take_probes() == []
    assert [breaker.institution_key for breaker in await retry_service(redis, now_ms=hand.ms)] == ["cu-1"]
    assert await store.breakers.take_probes() == calls("cu-1")
    assert await redis.hgetall(store.keys.login_gate) == {b"failures": b"3"}
    assert await redis.llen(store.keys.wakeup) == 1


async def test_nothing_is_booked_while_the_service_is_away(rig: Rig, away: Fault) -> None:
    """While the breaker is open no check is booked, and only single listings are sent (D5)."""
    calls = [rig.stage.call(END) for _ in range(10)]
    await rig.run(5)
    rig.stage.sandbox.faults.add(away)
    await rig.run(20)
    booked = sum([(await rig.record(call)).plan.checks_used for call in calls])
    arrived = rig.stage.sandbox.ledger.entries.number
    await rig.run(60)
    assert sum([(await rig.record(call)).plan.checks_used for call in calls]) == booked
    assert rig.stage.sandbox.ledger.entries.number - arrived <= 2 * (60 / 3 + 1)
    assert "service_away" in {entry["event"] for entry in rig.log.entries}


async def test_first_success_closes_the_breakers_and_work_goes_on(rig: Rig, away: Fault) -> None:
    """When the service is back, a probe finds out within seconds, and everything goes on."""
    call = await rig.begin_call(Happening(Kind.GREEN, 30), END, run_s=5, is_pushed=False)
    rig.stage.sandbox.faults.add(away)
    await rig.run(30)
    rig.stage.sandbox.faults.clear()
    await rig.run(5)
    assert {"service_back", "institution_back"} <= {entry["event"] for entry in rig.log.entries}
    assert await open_breakers(rig.redis) == []
    await rig.run(10)
    record = await rig.record(call)
    assert record.seen.reading is not None
    assert record.seen.reading.status == "FullAuthentication"


async def test_failures_of_single_calls_open_nothing(rig: Rig) -> None:
    """Failures of one call do not open its institution's breaker, because answers about others reset the count."""
    broken = rig.stage.call(END)
    for _ in range(5):
        rig.stage.call(END)
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=500, voice_id=broken.voice_id))
    await rig.run(60)
    assert not {"service_away", "institution_away"} & {entry["event"] for entry in rig.log.entries}


async def ready(rig: Rig) -> tuple[int, dict[str, object]]:
    """Return what ``/readyz`` says."""
    redis: Any = AlwaysMaster(rig.redis)
    app = httpx.ASGITransport(Starlette(routes=health_routes(redis)))
    async with httpx.AsyncClient(transport=app, base_url="http://web") as client:
        answer = await client.get("/readyz")
    return answer.status_code, answer.json()


class AlwaysMaster:
    """A Redis in this process, which knows no ROLE."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    def __getattr__(self, name: str) -> Any:
        return getattr(self._redis, name)

    async def role(self) -> list[bytes]:
        """Say that it takes writes."""
        return [b"master"]


async def test_away_is_shown_by_readyz_until_the_first_success(rig: Rig, away: Fault) -> None:
    """While the service is away, ``/readyz`` says so and still answers 200, because events are recorded (D5)."""
    await rig.begin_call(END, run_s=5, is_pushed=False)
    assert await ready(rig) == (200, {"ready": True, "service": "there"})
    rig.stage.sandbox.faults.add(away)
    began_at = rig.clock.now
    await rig.run(20)
    assert await ready(rig) == (200, {"ready": True, "service": "away"})
    seen = await service_away(rig.redis)
    assert seen is not None
    assert seen.since is not None
    assert began_at <= seen.since
    assert seen.failures >= FAILURES_THAT_OPEN
    assert f"away since {seen.since:%H:%M:%S} UTC" in seen.words
    rig.stage.sandbox.faults.clear()
    await rig.run(5)
    assert await ready(rig) == (200, {"ready": True, "service": "there"})
    assert await service_away(rig.redis) is None


async def test_trouble_of_one_institution_is_not_the_services(rig: Rig) -> None:
    """Of two institutions one fails: ``/readyz`` says that the service is there, the metrics count one that is away."""
    rig.stage.world.add_institution("cu-2", "Second")
    rig.stage.call(END)
    await rig.begin_call(END, key="cu-2", run_s=5, is_pushed=False)
    rig.stage.sandbox.faults.add(Fault(target="*", action=Action.ANSWER, status=500, institution_key="cu-2"))
    await rig.run(20)
    assert {breaker.institution_key for breaker in await open_breakers(rig.redis)} == {"cu-2"}
    assert await ready(rig) == (200, {"ready": True, "service": "there"})
    assert KEY not in {entry.get("institution") for entry in rig.log.entries if entry["event"] == "institution_away"}
