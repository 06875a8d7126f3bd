"""One login per lapse, no storm of logins, and who hears of what."""

import asyncio
from contextlib import suppress
from typing import Any

import httpx
import pytest
import structlog

from callkeeper.service import (
    AccessRefused,
    AnswerUnreadable,
    ForeignAnswer,
    Login,
    LoginRefused,
    LoginTurn,
    MemoryTokenStore,
    NotSent,
    PhoneCall,
    Secret,
    ServiceRefused,
    ServiceUnavailable,
    Shut,
    SsoToken,
    TokenFault,
    TokenLapsed,
)
from callkeeper.service.client import Reseller
from callkeeper.service.config import LoginPolicy
from callkeeper.service.endpoints import scope_of
from callkeeper.service.login_session import Session
from callkeeper.service.tokens import ALIVE_S, FIRST_WAIT_S, PROBE_EVERY_S
from tests.transports import AnnouncingTransport
from tests.unit.service.service import Clock, Service, reseller_on, success


@pytest.fixture
def clock() -> Clock:
    """Return a clock that stands."""
    return Clock()


@pytest.fixture
def service() -> Service:
    """Return a service that answers every call with its details."""
    return Service(reply=lambda _: success(phoneCall={"voiceId": "v-1"}))


@pytest.fixture
def tokens(clock: Clock) -> MemoryTokenStore:
    """Return an empty store on the test's clock."""
    return MemoryTokenStore(clock)


@pytest.fixture
def reseller(service: Service, tokens: MemoryTokenStore, clock: Clock) -> Reseller:
    """Return a client of the service."""
    return reseller_on(service, tokens, clock)


class CountingStore(MemoryTokenStore):
    """Counts how often a login is asked for, and how often the token is read; takes its time for that."""

    claims = 0
    loads = 0

    async def load(self) -> SsoToken | None:
        """Count, and answer as ever, a moment later."""
        self.loads += 1
        await asyncio.sleep(0)
        return await super().load()

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float, account: str = "") -> LoginTurn:
        """Count, and answer as ever."""
        self.claims += 1
        return await super().claim_login(nonce, instead_of=instead_of, lease_s=lease_s, account=account)


async def read(reseller: Reseller) -> PhoneCall:
    """Read details."""
    return await reseller.details("cu-1", "v-1", check=False, requested_by="bot")


async def check(reseller: Reseller) -> PhoneCall:
    """Check."""
    return await reseller.details("cu-1", "v-1", check=True, requested_by="bot")


async def test_requests_that_find_the_cache_over_read_the_store_once(service: Service, clock: Clock) -> None:
    """Three hundred requests in the moment the cached token gets old: one reads the store, or its connections run out."""
    tokens = CountingStore(clock)
    reseller = reseller_on(service, tokens, clock)
    await read(reseller)
    before = tokens.loads
    clock.now += 16
    await asyncio.gather(*(read(reseller) for _ in range(300)))
    assert tokens.loads == before + 1
    assert service.logins == 1


async def test_fifty_requests_on_a_lapsed_token_make_one_login(
    service: Service, tokens: MemoryTokenStore, clock: Clock
) -> None:
    """D1: fifty requests over five clients find the token lapsed: one login, each repeated once."""
    clients = [reseller_on(service, tokens, clock) for _ in range(5)]
    await asyncio.gather(*(read(client) for client in clients))
    assert service.logins == 1
    service.tokens.clear()
    service.valid = "another"
    clock.now += 60
    await asyncio.gather(*(read(client) for client in clients for _ in range(10)))
    assert service.logins == 2
    assert service.tokens.count("sso-2") == 50
    assert service.tokens.count("sso-1") <= 50


async def test_fifty_first_requests_make_one_login(service: Service, tokens: MemoryTokenStore, clock: Clock) -> None:
    """Nobody has a token: one login serves all."""
    clients = [reseller_on(service, tokens, clock) for _ in range(5)]
    await asyncio.gather(*(read(client) for client in clients for _ in range(10)))
    assert service.logins == 1
    assert len(service.requests) == 50


async def test_waiting_for_one_login_spares_the_store(service: Service, clock: Clock) -> None:
    """The requests of one process ask the store once between them, however many wait."""
    tokens = CountingStore(clock)
    reseller = reseller_on(service, tokens, clock)
    await asyncio.gather(*(read(reseller) for _ in range(50)))
    assert tokens.claims == 1
    service.valid = "lapsed"
    clock.now += 60
    await asyncio.gather(*(read(reseller) for _ in range(50)))
    assert tokens.claims == 2
    assert service.logins == 2


async def test_refused_older_token_is_only_read_again(service: Service, tokens: MemoryTokenStore, clock: Clock) -> None:
    """A 401 on a token that somebody has already replaced costs no login."""
    one, other = reseller_on(service, tokens, clock), reseller_on(service, tokens, clock)
    await asyncio.gather(read(one), read(other))
    clock.now += 14
    service.valid = "lapsed"
    await read(one)
    assert service.logins == 2
    await read(other)
    assert service.logins == 2


async def test_check_is_not_repeated_and_renew_logs_in(reseller: Reseller, service: Service, clock: Clock) -> None:
    """A 401 on a check is the caller's: renew, then the next check goes through."""
    await read(reseller)
    clock.now += 60
    service.valid = "lapsed"
    service.requests.clear()
    with pytest.raises(TokenLapsed):
        await check(reseller)
    assert (len(service.requests), service.logins) == (1, 1)
    await reseller.renew()
    assert service.logins == 2
    assert (await check(reseller)).voice_id == "v-1"


async def test_token_never_accepted_is_a_fault_and_no_storm(reseller: Reseller, service: Service, clock: Clock) -> None:
    """Every token is refused: one login, then `TokenFault` without a login until the pause is over; pauses grow."""
    service.valid = None
    for _ in range(20):
        with pytest.raises(TokenFault):
            await read(reseller)
    assert service.logins == 1
    clock.now += 11
    with pytest.raises(TokenFault):
        await read(reseller)
    for _ in range(20):
        with pytest.raises(AccessRefused):
            await read(reseller)
    assert service.logins == 2
    clock.now += 11
    with pytest.raises(TokenFault):
        await read(reseller)
    assert service.logins == 2


async def test_token_fault_heals_when_the_service_does(reseller: Reseller, service: Service, clock: Clock) -> None:
    """After the pause one login is tried; when its token is accepted all is well again."""
    service.valid = None
    with pytest.raises(TokenFault):
        await read(reseller)
    service.valid = "sso"
    clock.now += 11
    assert (await read(reseller)).voice_id == "v-1"
    assert service.logins == 2


async def test_one_institution_s_401_does_not_stop_the_others(
    reseller: Reseller, service: Service, clock: Clock
) -> None:
    """A token refused for one institution and accepted for the others goes on for those, without a storm of logins."""
    refused = httpx.Response(401)
    good = success(phoneCall={"voiceId": "v-1"})
    service.reply = lambda request: refused if request.headers["InstitutionKey"] == "cu-bad" else good
    for _ in range(10):
        assert (await read(reseller)).voice_id == "v-1"
        clock.now += 6
        with pytest.raises((TokenFault, AccessRefused)):
            await reseller.details("cu-bad", "v-1", check=False, requested_by="bot")
        assert (await read(reseller)).voice_id == "v-1"
    assert service.logins == 2


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 500, 503])
async def test_refused_login_backs_off(reseller: Reseller, service: Service, clock: Clock, status: int) -> None:
    """D2: refused credentials are tried once, then left alone for a growing while, and said so each time."""
    service.login_reply = lambda: httpx.Response(status, json={"success": False, "error": "bad password pass-1"})
    for _ in range(10):
        with pytest.raises(LoginRefused) as caught:
            await read(reseller)
        assert "pass-1" not in repr(caught.value)
    assert service.logins == 1
    clock.now += 31
    with pytest.raises(LoginRefused):
        await read(reseller)
    assert service.logins == 2
    clock.now += 31
    with pytest.raises(LoginRefused, match="possible in 29 s"):
        await read(reseller)
    assert service.logins == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"status_code": 400}, id="400 without a body"),
        pytest.param({"status_code": 403, "html": "<p>Forbidden</p>"}, id="403 as a page"),
        pytest.param({"status_code": 422, "json": {"title": "Invalid"}}, id="422 as a problem"),
        pytest.param({"status_code": 200, "json": {"error": "Invalid credentials."}}, id="200 without success"),
    ],
)
async def test_answered_login_that_is_no_success_counts_as_refused(
    reseller: Reseller, service: Service, clock: Clock, answer: dict[str, Any]
) -> None:
    """A login that is answered without a token may have been counted against the account: it is tried after 30 s."""
    service.login_reply = lambda: httpx.Response(**answer)
    for _ in range(10):
        with pytest.raises(LoginRefused):
            await read(reseller)
        clock.now += 2.9
    assert service.logins == 1
    clock.now += 2
    with pytest.raises(LoginRefused):
        await read(reseller)
    assert service.logins == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"status_code": 502}, id="502"),
        pytest.param({"status_code": 500, "html": "<p>Sorry</p>"}, id="500 as a page"),
        pytest.param({"status_code": 500, "json": {"title": "Internal error"}}, id="500 as a problem"),
        pytest.param({"status_code": 429, "json": {"success": False}}, id="429"),
        pytest.param({"status_code": 407, "json": {"error": "log in"}}, id="407 of a proxy"),
        pytest.param({"status_code": 404, "html": "<p>no such site</p>"}, id="404 of a gateway"),
        pytest.param({"status_code": 200, "html": "<p>Back soon</p>"}, id="a page about maintenance"),
        pytest.param({"status_code": 200, "json": {"success": True, "token": "t\ufffd"}}, id="a token not in ASCII"),
        pytest.param({"status_code": 200, "json": {"success": True, "token": "t\n"}}, id="a token of two lines"),
    ],
)
async def test_login_without_an_answer_backs_off_shortly(
    reseller: Reseller, service: Service, clock: Clock, answer: dict[str, Any]
) -> None:
    """D5: where nothing says that the credentials were refused, the login is tried again a second later."""
    service.login_reply = lambda: httpx.Response(**answer)
    for _ in range(5):
        with pytest.raises((ServiceUnavailable, AnswerUnreadable)):
            await read(reseller)
    assert service.logins == 1
    service.login_reply = None
    clock.now += 1.1
    assert (await read(reseller)).voice_id == "v-1"


async def test_busy_login_is_left_alone_as_long_as_it_asks(reseller: Reseller, service: Service, clock: Clock) -> None:
    """D5: `Retry-After` on the login holds for every process."""
    service.login_reply = lambda: httpx.Response(429, headers={"Retry-After": "40"})
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            await read(reseller)
        clock.now += 38
    assert service.logins == 1


async def test_lapse_right_after_a_login_waits_for_the_interval(
    service: Service, tokens: MemoryTokenStore, clock: Clock
) -> None:
    """Two good logins are never closer than the interval; within the deadline that is a wait, then unavailable."""
    reseller = reseller_on(service, tokens, clock, deadline_s=0.05)
    await read(reseller)
    service.valid = "lapsed"
    with pytest.raises(ServiceUnavailable):
        await read(reseller)
    assert service.logins == 1
    clock.now += 5
    await read(reseller)
    assert service.logins == 2


async def test_success_slides_the_token_s_life(reseller: Reseller, service: Service, clock: Clock) -> None:
    """Each success moves the expiry: a token in use lives on past its 30 minutes; an idle one does not."""
    for _ in range(10):
        await read(reseller)
        clock.now += 1700
    assert service.logins == 1
    clock.now += 1801
    await read(reseller)
    assert service.logins == 2


async def test_answer_of_something_else_says_nothing_of_the_token(
    reseller: Reseller, service: Service, clock: Clock
) -> None:
    """A portal's page with 200 is no successful use: the token's life goes on as if nothing had been asked."""
    await read(reseller)
    service.reply = lambda _: httpx.Response(200, html="<p>Log in to this network</p>")
    clock.now += 1700
    with pytest.raises(ServiceUnavailable) as caught:
        await read(reseller)
    assert caught.value.foreign == ForeignAnswer(200, "text/html")
    service.reply = lambda _: success(phoneCall={"voiceId": "v-1"})
    clock.now += 200
    await read(reseller)
    assert service.logins == 2


async def test_renew_replaces_an_old_login_only(reseller: Reseller, service: Service, clock: Clock) -> None:
    """Hourly, the institution keys are asked for anew; before that renew does nothing."""
    for _ in range(3):
        await read(reseller)
        await reseller.renew()
        clock.now += 1190
    assert service.logins == 1
    assert "cu-login-1" in await reseller.institution_keys()
    clock.now += 100
    await reseller.renew()
    assert service.logins == 2
    assert "cu-login-2" in await reseller.institution_keys()


async def test_unknown_institution_logs_in_once_a_minute(reseller: Reseller, service: Service, clock: Clock) -> None:
    """B13: a push for an unknown key asks for the keys anew, at most once a minute."""
    await read(reseller)
    clock.now += 61
    for _ in range(10):
        await reseller.renew(max_age_s=60)
    await read(reseller)
    assert service.logins == 2


async def test_refused_renewal_keeps_the_token_that_works(reseller: Reseller, service: Service, clock: Clock) -> None:
    """Credentials that stop working do not take away a token that still does."""
    await read(reseller)
    clock.now += 1700
    await read(reseller)
    clock.now += 1700
    await read(reseller)
    clock.now += 300
    service.login_reply = lambda: httpx.Response(401)
    with pytest.raises(LoginRefused):
        await reseller.renew()
    assert (await read(reseller)).voice_id == "v-1"


async def test_effect_without_a_login_is_not_sent(reseller: Reseller, service: Service) -> None:
    """No token, no byte: the login's failure is the cause."""
    service.login_reply = lambda: httpx.Response(401)
    with pytest.raises(NotSent) as caught:
        await reseller.reject_voice("cu-1", "v-1", requested_by="bot")
    assert isinstance(caught.value.__cause__, LoginRefused)
    assert service.requests == []


async def test_cancelled_login_gives_its_turn_back(service: Service, tokens: MemoryTokenStore, clock: Clock) -> None:
    """A request cancelled in the middle of its login holds up nobody beyond the pause."""
    stuck, entered = asyncio.Event(), asyncio.Event()

    async def hang(request: httpx.Request) -> httpx.Response:
        entered.set()
        await stuck.wait()
        raise AssertionError

    config_of = reseller_on(service, tokens, clock)
    hanging = Reseller(
        config_of._exchange._config,
        tokens,
        reads_transport=AnnouncingTransport(httpx.MockTransport(hang)),
        effects_transport=AnnouncingTransport(httpx.MockTransport(hang)),
        clock=clock,
    )
    task = asyncio.create_task(read(hanging))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    clock.now += 1.1
    assert (await read(config_of)).voice_id == "v-1"


async def test_logins_are_logged_without_secrets(service: Service, tokens: MemoryTokenStore, clock: Clock) -> None:
    """Logins, their failures and faults are events with counts and reasons, never with credentials or tokens."""
    with structlog.testing.capture_logs() as captured:
        reseller = reseller_on(service, tokens, clock)
        service.valid = None
        with pytest.raises(TokenFault):
            await read(reseller)
        clock.now += 100
        service.login_reply = lambda: httpx.Response(401)
        with pytest.raises(LoginRefused):
            await read(reseller)
    assert {entry["event"] for entry in captured} == {"login_made", "token_fault", "login_failed"}
    assert not any(secret in str(captured) for secret in ("access-1", "pass-1", "sso-", "bot@"))


GOOD = success(phoneCall={"voiceId": "v-1"})


def refuse_one(service: Service, key: str = "cu-bad") -> None:
    """Let the service answer 401 to one institution, whatever the token."""
    service.reply = lambda request: httpx.Response(401) if request.headers["InstitutionKey"] == key else GOOD


async def read_of(reseller: Reseller, key: str) -> PhoneCall:
    """Read details of an institution's call."""
    return await reseller.details(key, "v-1", check=False, requested_by="bot")


async def test_one_institution_s_401_costs_one_login_for_all_workers(
    service: Service, tokens: MemoryTokenStore, clock: Clock
) -> None:
    """Five workers meet the 401 of one institution for ten minutes: one login, and few requests for it."""
    clients = [reseller_on(service, tokens, clock) for _ in range(5)]
    await asyncio.gather(*(read_of(client, "cu-1") for client in clients))
    refuse_one(service)
    clock.now += 60
    for _ in range(600):
        clock.now += 1
        for client in clients:
            with pytest.raises((AccessRefused, TokenFault)):
                await read_of(client, "cu-bad")
            assert (await read_of(client, "cu-1")).voice_id == "v-1"
    assert service.logins == 2
    bad = sum(request.headers["InstitutionKey"] == "cu-bad" for request in service.requests)
    assert bad <= 600 / PROBE_EVERY_S + 5 * 3


async def test_others_use_the_token_while_one_institution_logs_in(
    service: Service, tokens: MemoryTokenStore, clock: Clock
) -> None:
    """A login that one institution's 401 leads to, and that hangs, holds up nobody else."""
    login = asyncio.Event()

    async def slow(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/external/token/request" and service.logins:
            await login.wait()
        return await service(request)

    transport = AnnouncingTransport(httpx.MockTransport(slow))
    config = reseller_on(service, tokens, clock)._exchange._config
    reseller = Reseller(config, tokens, reads_transport=transport, effects_transport=transport, clock=clock)
    await read_of(reseller, "cu-1")
    refuse_one(service)
    clock.now += 60
    task = asyncio.create_task(read_of(reseller, "cu-bad"))
    for _ in range(20):
        await asyncio.sleep(0)
    async with asyncio.timeout(1):
        assert (await read_of(reseller, "cu-1")).voice_id == "v-1"
        assert (await check(reseller)).voice_id == "v-1"
    login.set()
    with pytest.raises(TokenFault):
        await task


async def test_institution_is_asked_again_and_recovers_by_itself(
    reseller: Reseller, service: Service, clock: Clock
) -> None:
    """Within ten seconds of the service accepting the institution again it is read, without a login."""
    await read_of(reseller, "cu-1")
    refuse_one(service)
    clock.now += 60
    with structlog.testing.capture_logs():
        for _ in range(30):
            with pytest.raises((AccessRefused, TokenFault)):
                await read_of(reseller, "cu-bad")
            await read_of(reseller, "cu-1")
            clock.now += 1
    service.reply = lambda _: GOOD
    recovered_after_s = None
    for second in range(11):
        clock.now += 1
        with suppress(AccessRefused):
            await read_of(reseller, "cu-bad")
            recovered_after_s = recovered_after_s or second
        await read_of(reseller, "cu-1")
    assert recovered_after_s is not None
    assert service.logins == 2


async def test_refusal_of_what_was_asked_shows_that_the_institution_is_accepted(
    reseller: Reseller, service: Service, clock: Clock
) -> None:
    """A barred scope whose try is answered 400 is open again: a smaller page may be asked for at once."""
    await read_of(reseller, "cu-1")
    refuse_one(service)
    clock.now += 60
    with pytest.raises((AccessRefused, TokenFault)):
        await read_of(reseller, "cu-bad")
    service.reply = lambda _: httpx.Response(400, json={"success": False})
    clock.now += FIRST_WAIT_S
    with pytest.raises(ServiceRefused):
        await read_of(reseller, "cu-bad")
    service.reply = lambda _: GOOD
    assert (await read_of(reseller, "cu-bad")).voice_id == "v-1"


async def test_lapse_is_found_while_an_institution_is_barred(
    reseller: Reseller, service: Service, clock: Clock
) -> None:
    """The token lapses while one institution is refused: the others log in once, at their first 401."""
    await read_of(reseller, "cu-1")
    refuse_one(service)
    clock.now += 60
    for _ in range(2):
        with pytest.raises((AccessRefused, TokenFault)):
            await read_of(reseller, "cu-bad")
        await read_of(reseller, "cu-1")
    service.valid = "lapsed"
    clock.now += 60
    reads = [read_of(reseller, key) for key in ("cu-1", "cu-2", "cu-3", "cu-bad") for _ in range(10)]
    answers = await asyncio.gather(*reads, return_exceptions=True)
    assert all(isinstance(answer, PhoneCall) for answer in answers[:30])
    assert service.logins == 3


async def test_lapse_is_found_by_an_account_with_one_institution(
    reseller: Reseller, service: Service, clock: Clock
) -> None:
    """Token after token lapses, a minute and more apart or a few seconds: a single institution logs in each time."""
    for n, pause_s in enumerate((61, 3600, 20, 20, 20, 7, 7, 7), start=1):
        assert (await read(reseller)).voice_id == "v-1"
        assert service.logins == n
        service.valid = "lapsed"
        clock.now += pause_s


async def test_check_that_is_refused_alone_makes_one_login(reseller: Reseller, service: Service, clock: Clock) -> None:
    """Checks are answered 401 and reads are not: after one login that did not help nobody logs in for them."""
    await read(reseller)
    service.reply = lambda request: httpx.Response(401) if "=true" in str(request.url) else GOOD
    clock.now += 60
    with pytest.raises(TokenLapsed):
        await check(reseller)
    await reseller.renew()
    for _ in range(20):
        with pytest.raises(AccessRefused):
            await check(reseller)
        await reseller.renew()
        await read(reseller)
        clock.now += 10
    assert service.logins == 2


class Watched(MemoryTokenStore):
    """A store that keeps what a session asks of it."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.asked: list[tuple[str, Any]] = []

    async def claim_login(self, nonce: str, *, instead_of: str | None, lease_s: float, account: str = "") -> LoginTurn:
        """Keep how long the lease is."""
        self.asked.append(("lease", lease_s))
        return await super().claim_login(nonce, instead_of=instead_of, lease_s=lease_s, account=account)

    async def slide(self, generation: str, *, min_interval_s: float) -> None:
        """Keep that the token was accepted."""
        self.asked.append(("slide", min_interval_s))
        await super().slide(generation, min_interval_s=min_interval_s)

    async def clear(self, scope: str) -> bool:
        """Keep that the scope was accepted."""
        self.asked.append(("clear", scope))
        return await super().clear(scope)

    async def fail_login(self, nonce: str, reason: Shut, *, pause_s: float, account: str = "") -> None:
        """Keep how long no login may follow."""
        self.asked.append((reason, pause_s))
        await super().fail_login(nonce, reason, pause_s=pause_s, account=account)


def session_on(store: Watched, clock: Clock, *, fails_after_s: float | None = None) -> Session:
    """Return a session of its own. Its logins succeed at once, or get no answer."""

    async def log_in() -> Login:
        if fails_after_s is not None:
            clock.now += fails_after_s
            raise ServiceUnavailable("token", "timeout")
        return Login(Secret("sso"), frozenset({SCOPE_KEY}))

    log = structlog.wrap_logger(None, processors=[structlog.testing.LogCapture()])
    return Session(store, log_in, LoginPolicy(), deadline_s=6.0, account="a", clock=clock, log=log)


SCOPE_KEY = "cu-1"
SCOPE, OTHER = scope_of("queue", SCOPE_KEY), scope_of("details", SCOPE_KEY)


async def test_lease_of_a_login_outlasts_its_deadline_by_two_seconds(clock: Clock) -> None:
    """A process that is about to save its token is not overtaken."""
    store = Watched(clock)
    await session_on(store, clock).current()
    assert store.asked == [("lease", 8.0)]


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (200, [("clear", SCOPE), ("slide", 5.0)]),
        (299, [("clear", SCOPE), ("slide", 5.0)]),
        (300, [("clear", SCOPE)]),
        (428, [("clear", SCOPE)]),
        (429, []),
        (430, [("clear", SCOPE)]),
        (499, [("clear", SCOPE)]),
        (500, []),
    ],
)
async def test_answer_shows_whether_access_is_granted(
    clock: Clock, status: int, asked: list[tuple[str, object]]
) -> None:
    """A success proves the token too. A request that was turned away, or met a failure, shows neither."""
    store = Watched(clock)
    session = session_on(store, clock)
    token = await session.current()
    await session.refused(token, SCOPE)
    store.asked.clear()
    assert await session.record_answer(token, SCOPE, status, succeeded=status < 300) is None
    assert store.asked == asked


async def test_success_is_written_every_half_minute_and_every_second_while_a_scope_is_barred(clock: Clock) -> None:
    """Only a token that is known to work shows that a login would not help a barred scope."""
    store = Watched(clock)
    session = session_on(store, clock)
    token = await session.current()
    store.asked.clear()
    for after_s in (0.0, 29.9, 0.1):
        clock.now += after_s
        await session.record_answer(token, SCOPE, 200, succeeded=True)
    assert store.asked == [("slide", 5.0)] * 2
    session._barred[OTHER] = clock.now + 60
    store.asked.clear()
    for after_s in (0.5, 0.4, 0.1):
        clock.now += after_s
        await session.record_answer(token, SCOPE, 200, succeeded=True)
    assert store.asked == [("slide", 5.0)]


async def test_scope_that_is_accepted_or_barred_causes_no_further_login(clock: Clock) -> None:
    """Only what was refused last, and is not barred, uses another token."""
    store = Watched(clock)
    session = session_on(store, clock)
    first = await session.current()
    clock.now += 60
    await session.refused(first, SCOPE)
    await session.accepted(first, SCOPE, succeeded=True)
    assert (await session.token_for(SCOPE)).generation == first.generation
    await session.refused(first, SCOPE)
    second = await session.token_for(SCOPE)
    assert second.generation != first.generation
    assert (await session.refused(second, SCOPE)).barred_s is not None
    clock.now += ALIVE_S
    assert (await session.refused(second, SCOPE)).barred_s is None  # it may have lapsed
    await session.accepted(second, OTHER, succeeded=True)
    assert (await session.refused(second, SCOPE)).barred_s is not None
    clock.now += 60
    assert (await session.token_for(SCOPE)).generation == second.generation
    assert [what for what, _ in store.asked].count("lease") == 2


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.25, 0.75), (6.0, 0.0)])
async def test_time_of_a_login_without_an_answer_counts_as_its_pause(
    clock: Clock, took_s: float, pause_s: float
) -> None:
    """A pause is never over before it begins."""
    store = Watched(clock)
    with pytest.raises(ServiceUnavailable):
        await session_on(store, clock, fails_after_s=took_s).current()
    assert store.asked == [("lease", 8.0), (Shut.OUTAGE, pause_s)]


class TellsLapses(Service):
    """Answers what carries no valid token with 200 and ``success: false``, and so the call ``v-0`` always."""

    refuses_all = False

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        answer = await super().__call__(request)
        if (
            answer.status_code == 401
            or "v-0" in request.url.path
            or (self.refuses_all and "SsoToken" in request.headers)
        ):
            return httpx.Response(200, json={"success": False, "error": "Refused.", "code": "TokenExpired"})
        return answer


def page_or_call(request: httpx.Request) -> httpx.Response:
    """Answer with a call, and with an empty queue."""
    return success(phoneCall={"voiceId": "v-1"}, phoneCalls=[])


async def queue(reseller: Reseller) -> object:
    """List the queue."""
    return await reseller.queue("cu-1", continue_from=0, page_size=50)


async def test_lapse_told_with_success_false_makes_one_login_for_all_processes(clock: Clock) -> None:
    """Clients branch on ``success``, not on the status alone. Once queue and details are refused, the token has lapsed."""
    service, tokens = TellsLapses(reply=page_or_call), MemoryTokenStore(clock)
    workers = [reseller_on(service, tokens, clock) for _ in range(4)]
    for worker in workers:
        await read(worker)
    service.valid, clock.now = "another", clock.now + 100
    for worker in workers:
        with suppress(ServiceRefused):
            await read(worker)
        await queue(worker)
        assert (await read(worker)).voice_id == "v-1"
    assert service.logins == 2


async def test_effect_of_a_lapse_told_with_success_false_is_not_taken_for_refused(clock: Clock) -> None:
    """The service has judged the token, not the caller: it is read, and sent again, as after a 401."""
    service = TellsLapses(reply=page_or_call)
    reseller = reseller_on(service, MemoryTokenStore(clock), clock)
    await read(reseller)
    service.valid, clock.now = "another", clock.now + 100
    with pytest.raises(ServiceRefused):
        await queue(reseller)
    with pytest.raises(TokenLapsed):
        await reseller.reject_voice("cu-1", "v-1", requested_by="bot")


async def test_refusals_that_a_login_does_not_end_make_one_login(clock: Clock) -> None:
    """If all is refused for another reason, the new token has never worked, so nobody logs in again, and it is no fault."""
    service = TellsLapses(reply=page_or_call)
    reseller = reseller_on(service, MemoryTokenStore(clock), clock)
    await read(reseller)
    service.refuses_all = True
    for _ in range(20):
        clock.now += 30
        for request in (queue, read):
            with pytest.raises(ServiceRefused):
                await request(reseller)
    assert service.logins == 2


async def test_refusals_of_a_login_that_is_younger_than_a_minute_are_no_lapse(clock: Clock) -> None:
    """It has just worked, so the trouble is another one. A minute later it may have lapsed."""
    service = TellsLapses(reply=page_or_call)
    reseller = reseller_on(service, MemoryTokenStore(clock), clock)
    await read(reseller)
    service.refuses_all = True
    for wait_s, logins in ((30, 1), (40, 2)):
        clock.now += wait_s
        for request in (queue, read):
            with pytest.raises(ServiceRefused):
                await request(reseller)
        assert service.logins == logins


async def test_refusal_beside_a_success_is_no_lapse(clock: Clock) -> None:
    """While anything succeeds, or the queue is not refused, a refusal is about what was asked."""
    service = TellsLapses(reply=page_or_call)
    reseller = reseller_on(service, MemoryTokenStore(clock), clock)
    await read(reseller)
    clock.now += 100
    for _ in range(5):
        for is_check in (True, False):
            with pytest.raises(ServiceRefused):
                await reseller.details("cu-1", "v-0", check=is_check, requested_by="bot")
        await queue(reseller)
    assert service.logins == 1
