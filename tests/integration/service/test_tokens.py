"""The laws of a token store, on all there are: in memory, in Lua on a stand-in, in Lua on a real Redis."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from callkeeper.calls.store.sso_token import RedisTokenStore
from callkeeper.service import (
    Login,
    LoginGranted,
    LoginPending,
    LoginShut,
    MemoryTokenStore,
    Refusal,
    Secret,
    Shut,
    SsoToken,
    TokenStore,
)
from callkeeper.service.endpoints import scope_of
from callkeeper.service.tokens import ALIVE_S, FIRST_WAIT_S, OVERTAKE_S, PROBE_EVERY_S, SUSPICION_S

LOGIN = Login(Secret("canary-token"), frozenset({"cu-1", "cu-2"}))


QUEUE, DETAILS = scope_of("queue", "cu-1"), scope_of("details", "cu-1")


class Clock:
    """Seconds that pass when a test says so."""

    now = 1_800_000_000.0

    def __call__(self) -> float:
        """Return the present."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands."""
    return Clock()


@pytest.fixture(params=["memory", "redis", "redis, decoding"])
async def store(request: pytest.FixtureRequest, clock: Clock) -> AsyncIterator[TokenStore]:
    """Return an empty store of each kind."""
    if request.param == "memory":
        yield MemoryTokenStore(clock)
    else:
        url = request.getfixturevalue("redis_url")
        async with Redis.from_url(url, decode_responses="decoding" in request.param) as redis:
            yield RedisTokenStore(redis, clock=clock)


async def issue(store: TokenStore, nonce: str = "n-1", *, instead_of: str | None = None, prove: bool = True) -> None:
    """Go through a whole login."""
    assert isinstance(await store.claim_login(nonce, instead_of=instead_of, lease_s=8), LoginGranted)
    assert await store.save_login(nonce, LOGIN, pause_s=10) is not None
    if prove:
        await store.slide(nonce, min_interval_s=5)


async def test_empty_store_grants_a_login(store: TokenStore) -> None:
    """No token: the first who asks gets the turn, the others wait."""
    assert await store.load() is None
    assert await store.claim_login("n-1", instead_of=None, lease_s=8) == LoginGranted(1)
    assert await store.claim_login("n-2", instead_of=None, lease_s=8) == LoginPending()


async def test_saved_token_is_everybody_s(store: TokenStore, clock: Clock) -> None:
    """The token is loaded as it was saved, and given to whoever asks for a login."""
    await issue(store, prove=False)
    clock.now += 3
    expected = SsoToken("n-1", LOGIN.value, LOGIN.institution_keys, age_s=3.0)
    assert await store.load() == expected
    assert await store.claim_login("n-2", instead_of=None, lease_s=8) == expected
    assert await store.claim_login("n-2", instead_of="older", lease_s=8) == expected


async def test_unproven_token_keeps_the_gate_shut(store: TokenStore, clock: Clock) -> None:
    """Nobody may log in instead of a token that was never accepted before the pause is over."""
    await issue(store, prove=False)
    assert await store.refuse("n-1", QUEUE) == Refusal(is_current=True, is_proven=False)
    assert await store.claim_login("n-2", instead_of="n-1", lease_s=8) == LoginShut(Shut.FAULT, 10.0)
    clock.now += 10
    assert await store.claim_login("n-2", instead_of="n-1", lease_s=8) == LoginGranted(2)


async def test_proven_token_opens_the_gate_after_the_interval(store: TokenStore, clock: Clock) -> None:
    """An accepted token forgets failures and shortens the pause to the interval since its login."""
    await issue(store, prove=False)
    clock.now += 2
    await store.slide("n-1", min_interval_s=5)
    loaded = await store.load()
    assert loaded is not None
    assert loaded.is_proven
    assert await store.claim_login("n-2", instead_of="n-1", lease_s=8) == LoginShut(Shut.INTERVAL, 3.0)
    clock.now += 3
    assert await store.claim_login("n-2", instead_of="n-1", lease_s=8) == LoginGranted(1)


async def test_refused_token_stays_in_use_for_others(store: TokenStore, clock: Clock) -> None:
    """One 401 leads whoever got it to a login, and takes the token from nobody else."""
    await issue(store)
    clock.now += 60
    assert await store.refuse("n-1", QUEUE) == Refusal(is_current=True, is_proven=True)
    assert isinstance(await store.claim_login("n-2", instead_of=None, lease_s=8), SsoToken)
    assert await store.claim_login("n-2", instead_of="n-1", lease_s=8) == LoginGranted(1)


async def bar(store: TokenStore, clock: Clock, scope: str = QUEUE, n: int = 2) -> Refusal:
    """Refuse a scope with the token, log in, and refuse it again."""
    await store.refuse(f"n-{n - 1}", scope)
    clock.now += 6
    await issue(store, f"n-{n}", instead_of=f"n-{n - 1}")
    return await store.refuse(f"n-{n}", scope)


async def test_scope_refused_with_two_tokens_is_barred(store: TokenStore, clock: Clock) -> None:
    """The token is good, this scope is not: everybody who loads the token learns of it."""
    await issue(store)
    expected = Refusal(is_current=True, is_proven=True, barred_s=FIRST_WAIT_S, is_news=True)
    assert await bar(store, clock) == expected
    clock.now += 0.5
    loaded = await store.load()
    assert loaded is not None
    assert loaded.barred == {QUEUE: FIRST_WAIT_S - 0.5}
    assert await store.refuse("n-2", QUEUE) == Refusal(is_current=True, is_proven=True, barred_s=FIRST_WAIT_S - 0.5)
    assert (await store.refuse("n-2", scope_of("queue", "cu-2"))).barred_s is None


async def test_institution_whose_queue_is_barred_costs_no_further_login(store: TokenStore, clock: Clock) -> None:
    """Its other operations are barred by their first 401; another institution's, and those of the account, are not."""
    await issue(store)
    await bar(store, clock)
    assert (await store.refuse("n-2", DETAILS)).is_news
    assert (await store.refuse("n-2", scope_of("details", "cu-2"))).barred_s is None
    assert (await store.refuse("n-2", scope_of("institutions", ""))).barred_s is None


async def test_operation_that_is_barred_bars_no_other(store: TokenStore, clock: Clock) -> None:
    """A right that is missing for enrolls says nothing of the queue: a minute later its 401 may be a lapse."""
    await issue(store)
    await bar(store, clock, scope_of("enroll", "cu-1"))
    clock.now += SUSPICION_S
    assert (await store.refuse("n-2", QUEUE)).barred_s is None


async def test_two_lapses_far_apart_bar_nothing(store: TokenStore, clock: Clock) -> None:
    """A scope that was refused long before the present token is not barred by its first 401."""
    await issue(store)
    await store.refuse("n-1", QUEUE)
    clock.now += SUSPICION_S
    await issue(store, "n-2", instead_of="n-1")
    assert (await store.refuse("n-2", QUEUE)).barred_s is None


async def test_scope_that_was_accepted_in_between_is_not_barred(store: TokenStore, clock: Clock) -> None:
    """Two lapses in a row with a success between them are two lapses."""
    await issue(store)
    await store.refuse("n-1", QUEUE)
    assert await store.clear(QUEUE) is False
    clock.now += 6
    await issue(store, "n-2", instead_of="n-1")
    assert (await store.refuse("n-2", QUEUE)).barred_s is None


async def test_one_request_at_a_time_tries_a_barred_scope(store: TokenStore, clock: Clock) -> None:
    """After the wait one may ask; the others wait on, however many there are. The waits grow, up to a bound."""
    await issue(store)
    assert await store.probe(QUEUE) is None
    await bar(store, clock)
    assert await store.probe(QUEUE) == FIRST_WAIT_S
    clock.now += FIRST_WAIT_S
    waits = []
    for _ in range(4):
        assert await store.probe(QUEUE) == 0.0
        waits.append(await store.probe(QUEUE))
        assert (await store.refuse("n-2", QUEUE)).barred_s == waits[-1]
        clock.now += waits[-1] or 0.0
    assert waits == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, PROBE_EVERY_S, PROBE_EVERY_S]


async def test_success_clears_the_bar_and_lets_the_others_of_the_institution_try(
    store: TokenStore, clock: Clock
) -> None:
    """When the service accepts one operation of an institution again, the others are tried at once."""
    await issue(store)
    await bar(store, clock)
    await bar(store, clock, DETAILS, n=3)
    await bar(store, clock, "queue cu-2", n=4)
    clock.now += FIRST_WAIT_S
    for scope in (QUEUE, DETAILS, "queue cu-2"):
        assert await store.probe(scope) == 0.0
    assert await store.clear(QUEUE) is True
    assert await store.probe(QUEUE) is None
    assert await store.probe(DETAILS) == 0.0
    assert await store.probe("queue cu-2") == FIRST_WAIT_S


async def test_barred_scope_is_heard_when_nobody_else_has_the_token_accepted(store: TokenStore, clock: Clock) -> None:
    """A token that was not accepted for a while may have lapsed: then a barred scope's 401 leads to a login as well."""
    await issue(store)
    await bar(store, clock)
    clock.now += ALIVE_S - 1
    assert (await store.refuse("n-2", QUEUE)).barred_s is not None
    await store.slide("n-2", min_interval_s=5)
    clock.now += ALIVE_S - 1
    assert (await store.refuse("n-2", QUEUE)).barred_s is not None
    clock.now += 1
    assert await store.refuse("n-2", QUEUE) == Refusal(is_current=True, is_proven=True)


async def test_barred_scope_that_is_refused_again_waits_anew(store: TokenStore, clock: Clock) -> None:
    """Also one that nobody was allowed to try, in the moment in which its wait ends."""
    await issue(store)
    await bar(store, clock)
    clock.now += FIRST_WAIT_S
    assert (await store.refuse("n-2", QUEUE)).barred_s == FIRST_WAIT_S
    assert await store.probe(QUEUE) == FIRST_WAIT_S


async def test_suspicion_lasts_a_minute_from_the_first_refusal_of_the_last_token(
    store: TokenStore, clock: Clock
) -> None:
    """A repeated 401 does not prolong it, and that of a later token begins it anew."""
    await issue(store)
    await store.refuse("n-1", QUEUE)
    clock.now += SUSPICION_S - 5
    await store.refuse("n-1", QUEUE)
    clock.now += 5
    await issue(store, "n-2", instead_of="n-1")
    assert (await store.refuse("n-2", QUEUE)).barred_s is None
    clock.now += 6
    await issue(store, "n-3", instead_of="n-2")
    assert (await store.refuse("n-3", QUEUE)).barred_s == FIRST_WAIT_S


async def test_older_generation_changes_nothing(store: TokenStore, clock: Clock) -> None:
    """Neither a late refusal nor a late success of a replaced token touches the current one."""
    await issue(store)
    clock.now += 60
    await issue(store, "n-2", instead_of="n-1")
    before = await store.load()
    assert await store.refuse("n-1", QUEUE) == Refusal(is_current=False)
    await store.slide("n-1", min_interval_s=5)
    assert await store.load() == before


async def test_token_goes_with_its_time(store: TokenStore, clock: Clock) -> None:
    """30 minutes after the last success the token is gone, with its institution keys; a success moves that."""
    await issue(store)
    clock.now += 1799
    await store.slide("n-1", min_interval_s=5)
    clock.now += 1799
    assert await store.load() is not None
    clock.now += 1
    assert await store.load() is None
    await store.slide("n-1", min_interval_s=5)
    assert await store.load() is None


async def test_lease_that_ran_out_frees_the_turn(store: TokenStore, clock: Clock) -> None:
    """Whoever died in the middle of a login holds up the others no longer than the lease; late, it fails nobody's turn."""
    await store.claim_login("n-1", instead_of=None, lease_s=8)
    clock.now += 8
    assert await store.claim_login("n-2", instead_of=None, lease_s=8) == LoginGranted(2)
    await store.fail_login("n-1", Shut.REFUSED, pause_s=900)
    assert await store.claim_login("n-3", instead_of=None, lease_s=8) == LoginPending()


async def test_login_that_was_overtaken_saves_its_token_if_there_is_none(store: TokenStore, clock: Clock) -> None:
    """A slow login is as good as the one that was made beside it; where that one was first, it saves nothing."""
    await store.claim_login("n-1", instead_of=None, lease_s=8)
    clock.now += 8
    await store.claim_login("n-2", instead_of=None, lease_s=8)
    assert await store.save_login("n-1", LOGIN, pause_s=10) is not None
    assert await store.save_login("n-2", LOGIN, pause_s=10) is None
    loaded = await store.load()
    assert loaded is not None
    assert loaded.generation == "n-1"


async def test_login_after_a_failed_one_may_be_overtaken_soon(store: TokenStore, clock: Clock) -> None:
    """The service may let a login hang: another one is made beside it."""
    await store.claim_login("n-1", instead_of=None, lease_s=8)
    await store.fail_login("n-1", Shut.OUTAGE, pause_s=0)
    assert await store.claim_login("n-2", instead_of=None, lease_s=8) == LoginGranted(2)
    clock.now += OVERTAKE_S - 0.1
    assert await store.claim_login("n-3", instead_of=None, lease_s=8) == LoginPending()
    clock.now += 0.1
    assert await store.claim_login("n-3", instead_of=None, lease_s=8) == LoginGranted(3)


async def test_refused_credentials_wait_and_others_do_not(store: TokenStore) -> None:
    """The pause after a refusal is for the credentials that were refused, each for its own."""
    for n, account in enumerate(("old", "older"), 1):
        assert await store.claim_login(f"n-{n}", instead_of=None, lease_s=8, account=account) == LoginGranted(n)
        await store.fail_login(f"n-{n}", Shut.REFUSED, pause_s=30, account=account)
    for account in ("old", "older"):
        turn = await store.claim_login("n-3", instead_of=None, lease_s=8, account=account)
        assert turn == LoginShut(Shut.REFUSED, 30.0)
    assert await store.claim_login("n-3", instead_of=None, lease_s=8, account="new") == LoginGranted(3)


async def test_failed_login_shuts_the_gate_and_says_why(store: TokenStore, clock: Clock) -> None:
    """D2: everybody hears the reason until the pause is over; failures are counted."""
    await store.claim_login("n-1", instead_of=None, lease_s=8)
    await store.fail_login("n-1", Shut.REFUSED, pause_s=30)
    assert await store.claim_login("n-2", instead_of=None, lease_s=8) == LoginShut(Shut.REFUSED, 30.0)
    clock.now += 30
    assert await store.claim_login("n-2", instead_of=None, lease_s=8) == LoginGranted(2)


async def test_failed_login_leaves_the_token(store: TokenStore, clock: Clock) -> None:
    """A token that works outlives the failure to replace it."""
    await issue(store)
    clock.now += 3600 - 1801
    before = await store.load()
    await store.claim_login("n-2", instead_of="n-1", lease_s=8)
    await store.fail_login("n-2", Shut.REFUSED, pause_s=30)
    assert await store.load() == before


@pytest.mark.parametrize("reason", [Shut.REFUSED, Shut.OUTAGE])
@pytest.mark.parametrize("lapse", [False, True])
async def test_success_of_the_old_token_lifts_no_pause(
    store: TokenStore, clock: Clock, lapse: bool, reason: Shut
) -> None:
    """D2: while logins are left alone, requests that still succeed do not open the gate."""
    await issue(store)
    clock.now += 60
    await store.claim_login("n-2", instead_of="n-1", lease_s=8)
    await store.fail_login("n-2", reason, pause_s=30)
    if lapse:
        await store.refuse("n-1", QUEUE)
    await store.slide("n-1", min_interval_s=5)
    assert await store.claim_login("n-3", instead_of="n-1", lease_s=8) == LoginShut(reason, 30.0)


Operation = Callable[[TokenStore], Awaitable[object]]


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda s: s.claim_login("n-2", instead_of="n-1", lease_s=8), id="claim"),
        pytest.param(lambda s: s.refuse("n-1", QUEUE), id="refuse"),
        pytest.param(lambda s: s.slide("n-1", min_interval_s=5), id="slide"),
    ],
)
@pytest.mark.parametrize("prove", [True, False])
async def test_repeated_operation_is_the_same_as_once(
    store: TokenStore, clock: Clock, operation: Operation, prove: bool
) -> None:
    """C14: the Redis client repeats a script whose answer was lost: same answer, same state."""
    await issue(store, prove=prove)
    clock.now += 60
    first = await operation(store)
    state = await store.load()
    assert await operation(store) == first
    assert await store.load() == state


async def test_repeated_save_is_the_same_as_once(store: TokenStore) -> None:
    """C14: saving again gives the token that was saved, and shuts nothing anew."""
    await store.claim_login("n-1", instead_of=None, lease_s=8)
    first = await store.save_login("n-1", LOGIN, pause_s=10)
    await store.slide("n-1", min_interval_s=0)
    again = await store.save_login("n-1", LOGIN, pause_s=10)
    assert first is not None
    assert again == replace(first, is_proven=True)
    assert isinstance(await store.claim_login("n-2", instead_of="n-1", lease_s=8), LoginGranted)


async def test_repeated_failure_is_the_same_as_once(store: TokenStore, clock: Clock) -> None:
    """C14: a failure noted again does not shut the gate for longer."""
    await store.claim_login("n-1", instead_of=None, lease_s=8)
    await store.fail_login("n-1", Shut.OUTAGE, pause_s=10)
    clock.now += 4
    await store.fail_login("n-1", Shut.OUTAGE, pause_s=10)
    assert await store.claim_login("n-2", instead_of=None, lease_s=8) == LoginShut(Shut.OUTAGE, 6.0)
