"""Logins at a certified OpenID provider over real redirects, and attacks on them."""

import base64
import hmac
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from joserfc.jws import JWSRegistry
from msgspec.structs import replace
from redis.asyncio import Redis
from structlog.typing import FilteringBoundLogger

from callkeeper.app.web_app import web_app
from callkeeper.calls.store.keys import Keys
from callkeeper.desk.access.authorization import SESSION
from callkeeper.desk.access.people import Accounts, SessionRecord, Sessions
from callkeeper.desk.access.rights import Role
from tests.people.conftest import HTML, Site, web_settings
from tests.people.providers import CLIENT, CLIENT_SECRET, Box, ProviderProcess, box, provider, settings

PUBLIC = "https://desk.example"


@pytest.fixture(scope="module")
def boxed() -> Iterator[tuple[Box, ProviderProcess]]:
    """Run a provider with a proxy in front of it."""
    with box() as front, provider(PUBLIC, issuer=front.url) as running:
        front.target = f"http://127.0.0.1:{running.port}"
        yield front, running


@pytest.fixture
def front(boxed: tuple[Box, ProviderProcess]) -> Iterator[Box]:
    """Return the proxy, which changes nothing yet."""
    boxed[0].spoil, boxed[0].keys = None, []
    yield boxed[0]
    boxed[0].spoil, boxed[0].keys = None, []


@pytest.fixture
async def site(
    redis: Redis, redis_url: str, log: FilteringBoundLogger, front: Box, boxed: tuple[Box, ProviderProcess]
) -> AsyncIterator[Site]:
    """Return a web application that uses the provider."""
    app = web_app(web_settings(redis_url, **settings(boxed[1], PUBLIC)), log)
    site = Site(app, redis, Accounts(redis, keys=Keys(), issuer=boxed[1].issuer))
    async with app.router.lifespan_context(app):
        yield site
        for client in site.clients:
            await client.aclose()


async def go_to_provider(browser: httpx.AsyncClient, wanted: str = "") -> str:
    """Begin a login; return the address at the provider."""
    answer = await browser.get("/login/provider", params={"next": wanted} if wanted else {})
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def log_in_there(address: str, login: str) -> str:
    """Log in at the provider; return the address that it leads back to."""
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
        while not address.startswith(PUBLIC):
            answer = await client.get(address)
            if answer.status_code == 200:
                fields = {"prompt": "login", "login": login, "password": "any"}
                action = re.findall(r'action="([^"]+)"', answer.text)[0]
                answer = await client.post(action, data=fields)
            assert answer.status_code in {302, 303}, answer.text
            address = str(answer.url.join(answer.headers["location"]))
    return address


async def come_back(browser: httpx.AsyncClient, address: str) -> httpx.Response:
    """Follow the provider's redirect."""
    return await browser.get(address.removeprefix(PUBLIC))


async def log_in(site: Site, login: str, wanted: str = "") -> tuple[httpx.AsyncClient, httpx.Response]:
    """Log in; return the browser and the answer to the last redirect."""
    browser = site.browser()
    return browser, await come_back(browser, await log_in_there(await go_to_provider(browser, wanted), login))


@pytest.mark.parametrize(
    ("login", "role", "operator", "institutions"),
    [
        ("vera", Role.VIEWER, "", None),
        ("alan", Role.AGENT, "agent-7", None),
        ("susan", Role.SUPERVISOR, "lead-1", frozenset({"cu-1"})),
        ("adam", Role.ADMIN, "admin-1", None),
    ],
)
async def test_people_have_the_role_of_their_group(
    login: str, role: Role, operator: str, institutions: frozenset[str] | None, site: Site
) -> None:
    """Role and limits come from the groups, the core username from its claim; then the wanted page opens."""
    browser, answer = await log_in(site, login, "/board/operations")
    assert (answer.status_code, answer.headers["location"]) == (303, "/board/operations")
    account = await site.of_provider(login)
    assert account is not None
    assert (account.role, account.operator, account.institutions) == (role, operator, institutions)
    assert (await browser.get("/board")).status_code == 200
    seen = [] if role is Role.VIEWER else ["viewed"]
    assert [entry.entry.event for entry in await site.audited()] == ["login", *seen]


async def test_account_belongs_to_its_issuer(site: Site, boxed: tuple[Box, ProviderProcess]) -> None:
    """The issuer is part of a person's id, so that after a change of provider the former accounts are invalid."""
    await log_in(site, "alan")
    account = await site.of_provider("alan")
    assert account is not None
    assert account.id == f"oidc:alan@{boxed[1].issuer.removeprefix('http://')}"
    assert await Accounts(site.redis, keys=Keys(), issuer="https://other.example").find(account.id) is None
    assert await Accounts(site.redis, keys=Keys()).find(account.id) is None


@pytest.mark.parametrize(("login", "said"), [("nora", "have no role here"), ("nina", "has no core username")])
async def test_people_without_role_or_operator_stay_outside(login: str, said: str, site: Site) -> None:
    """Without a known group, or without a core username that the role needs, there is no session but a reason."""
    browser, answer = await log_in(site, login)
    assert (answer.status_code, said in answer.text) == (403, True)
    assert SESSION not in browser.cookies
    assert [entry.entry.event for entry in await site.audited()] == ["login_failed"]


async def test_person_whose_role_is_gone_loses_their_other_sessions(site: Site) -> None:
    """When the provider says that somebody has no role any more, sessions from before end at once."""
    await log_in(site, "alan")
    alan = await site.of_provider("alan")
    assert alan is not None
    nora = await site.accounts.keep(replace(alan, id=alan.id.replace("alan", "nora"), operator="nora"))
    before = site.browser()
    before.cookies[SESSION] = await Sessions(site.accounts).begin(nora)
    assert (await before.get("/board")).status_code == 200
    _, answer = await log_in(site, "nora")
    assert (answer.status_code, (await before.get("/board")).status_code) == (403, 303)
    assert await site.accounts.find(nora.id) is None


async def test_viewer_of_the_provider_stays_twelve_hours(site: Site) -> None:
    """The provider has no way to end a session here, so not even a viewer's lasts longer than a working day."""
    browser, _ = await log_in(site, "vera")
    [key] = [key async for key in site.redis.scan_iter(match="ck:2:session:*")]
    record = msgspec.json.decode(await site.redis.get(key), type=SessionRecord)
    assert (await browser.get("/board")).status_code == 200
    began = datetime.now(UTC) - timedelta(hours=12, seconds=1)
    await site.redis.set(key, msgspec.json.encode(replace(record, began_at=began)), ex=60)
    assert (await browser.get("/board")).status_code == 303


async def test_request_to_the_provider_is_bound_to_this_login(site: Site) -> None:
    """Each login uses the authorization code flow, PKCE with S256, and a new state, nonce and challenge."""
    asked = [parse_qs(urlsplit(await go_to_provider(site.browser())).query) for _ in range(2)]
    for query in asked:
        assert (query["response_type"], query["code_challenge_method"]) == (["code"], ["S256"])
        assert query["redirect_uri"] == [f"{PUBLIC}/login/callback"]
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name]


async def test_changed_account_ends_older_sessions(site: Site) -> None:
    """Another login of the same person leaves a session valid; a change of the account ends it."""
    before, _ = await log_in(site, "alan")
    account = await site.of_provider("alan")
    assert account is not None
    assert (await before.get("/board")).status_code == 200
    await log_in(site, "alan")
    assert (await before.get("/board")).status_code == 200
    await site.accounts.keep(account)
    assert (await before.get("/board")).status_code == 303


# Attacks


async def test_code_works_once(site: Site) -> None:
    """A callback works once, and its code is refused in another login."""
    browser = site.browser()
    back = await log_in_there(await go_to_provider(browser), "adam")
    assert (await come_back(browser, back)).status_code == 303
    assert (await come_back(browser, back)).status_code == 403
    other = site.browser()
    state = parse_qs(urlsplit(await go_to_provider(other)).query)["state"][0]
    replayed = re.sub(r"state=[^&]+", f"state={state}", back)
    answer = await come_back(other, replayed)
    assert (answer.status_code, SESSION in other.cookies) == (403, False)


async def test_code_of_somebody_else_logs_nobody_in(site: Site) -> None:
    """A link with an attacker's code and state does not log a victim in as the attacker."""
    attacker, victim = site.browser(), site.browser()
    back = await log_in_there(await go_to_provider(attacker), "vera")
    assert (await come_back(victim, back)).status_code == 403
    await go_to_provider(victim)
    assert (await come_back(victim, back)).status_code == 403
    assert SESSION not in victim.cookies


@pytest.mark.parametrize(
    "change", ["state=x", "state=", "iss=https%3A%2F%2Fevil.example", "error=access_denied", "two states"]
)
async def test_changed_callback_is_refused(change: str, site: Site) -> None:
    """A callback with another state or issuer, two states or an error opens no session."""
    browser = site.browser()
    back = await log_in_there(await go_to_provider(browser), "alan")
    if change == "two states":
        back += "&state=x"
    elif change.startswith("error"):
        back = re.sub(r"code=[^&]+", change, back)
    else:
        back = re.sub(rf"{change.partition('=')[0]}=[^&]*", change, back)
    answer = await come_back(browser, back)
    assert (answer.status_code, SESSION in browser.cookies) == (403, False)


async def test_strangers_fill_neither_redis_nor_the_audit_log(site: Site) -> None:
    """One address can begin only a few hundred logins at a time, and not all of its failed callbacks are audited."""
    stranger = site.browser()
    begun = 0
    while (answer := await stranger.get("/login/provider")).status_code == 303 and begun < 2000:
        begun += 1
    assert (answer.status_code, 300 <= begun < 2000) == (429, True)
    assert (await site.browser("203.0.113.8").get("/login/provider")).status_code == 303
    for _ in range(50):
        assert (await stranger.get("/login/callback?state=x&code=y")).status_code == 403
    assert 10 <= len(await site.audited()) < 50


async def test_callback_with_too_many_fields_is_refused(site: Site) -> None:
    """A callback with too many fields gets 403, not 500."""
    assert (await site.browser().get(f"/login/callback?{'a=1&' * 40}")).status_code == 403


async def test_another_site_logs_nobody_in(site: Site) -> None:
    """A link from another site shows the login page; only a person's click there begins a login at the provider."""
    for site_of_page in ("cross-site", "same-site"):
        navigation = {"Sec-Fetch-Site": site_of_page, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        answer = await site.browser().get("/login/provider?next=%2Fboard%2Foperations", headers=navigation)
        assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
        assert 'href="/login/provider?next=%2Fboard%2Foperations"' in answer.text


OURS = RSAKey.generate_key(2048, {"kid": "ours", "alg": "RS256"})


def resigned(**claims: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that signs a token with changed claims, by a key that the provider lists."""

    def spoil(tokens: dict[str, Any]) -> dict[str, Any]:
        known = _claims(tokens["id_token"])
        changed = {name: value for name, value in {**known, **claims}.items() if value is not None}
        return {**tokens, "id_token": jwt.encode({"alg": "RS256", "kid": "ours"}, changed, OURS)}

    return spoil


def _claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def _part(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unsigned(tokens: dict[str, Any]) -> dict[str, Any]:
    """Return a token with the algorithm ``none``."""
    head = _part(b'{"alg":"none"}')
    return {**tokens, "id_token": f"{head}.{tokens['id_token'].split('.')[1]}."}


def confused(key: bytes) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that signs a token by HMAC with a public or shared key."""

    def spoil(tokens: dict[str, Any]) -> dict[str, Any]:
        head = _part(b'{"alg":"HS256","kid":"ours"}')
        signed = f"{head}.{tokens['id_token'].split('.')[1]}"
        return {**tokens, "id_token": f"{signed}.{_part(hmac.digest(key, signed.encode(), 'sha256'))}"}

    return spoil


def foreign(tokens: dict[str, Any]) -> dict[str, Any]:
    """Return a token that is signed by a key that the provider does not have."""
    key = RSAKey.generate_key(2048, {"kid": "ours"})
    return {**tokens, "id_token": jwt.encode({"alg": "RS256", "kid": "ours"}, _claims(tokens["id_token"]), key)}


def brings_its_key(**header: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that signs a token by a key that only the token itself names."""

    def spoil(tokens: dict[str, Any]) -> dict[str, Any]:
        key = RSAKey.generate_key(2048)
        named = header or {"jwk": key.as_dict(private=False)}
        claims = _claims(tokens["id_token"])
        registry = JWSRegistry(strict_check_header=False)
        return {**tokens, "id_token": jwt.encode({"alg": "RS256", **named}, claims, key, registry=registry)}

    return spoil


def broken(tokens: dict[str, Any]) -> dict[str, Any]:
    """Return a token with another payload under the same signature."""
    head, _, signature = tokens["id_token"].split(".")
    other = jwt.encode({"alg": "RS256"}, {**_claims(tokens["id_token"]), "groups": ["voice-admins"]}, OURS).split(".")[
        1
    ]
    return {**tokens, "id_token": f"{head}.{other}.{signature}"}


SPOILT: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "nonce": resigned(nonce="another"),
    "no nonce": resigned(nonce=None),
    "audience": resigned(aud="another-client", azp=CLIENT),
    "no audience": resigned(aud=None),
    "two audiences": resigned(aud=[CLIENT, "another"], azp="another"),
    "two audiences, issued to neither": resigned(aud=[CLIENT, "another"], azp=None),
    "issuer": resigned(iss="https://evil.example"),
    "no issuer": resigned(iss=None),
    "expired": resigned(exp=1_000_000_000),
    "no expiry": resigned(exp=None),
    "from the future": resigned(iat=9_000_000_000, nbf=9_000_000_000),
    "no subject": resigned(sub=None),
    "odd subject": resigned(sub={"a": 1}),
    "unsigned": unsigned,
    "hmac by the public key": confused(OURS.as_pem(private=False)),
    "hmac by the client secret": confused(CLIENT_SECRET.encode()),
    "foreign key": foreign,
    "key in the token": brings_its_key(),
    "key at an address in the token": brings_its_key(jku="https://evil.example/jwks", x5u="https://evil.example/x5u"),
    "payload changed": broken,
    "no token": lambda tokens: {name: value for name, value in tokens.items() if name != "id_token"},
    "no text": lambda tokens: {**tokens, "id_token": 7},
}


@pytest.mark.parametrize("name", sorted(SPOILT))
async def test_token_that_is_wrong_in_one_thing_logs_nobody_in(name: str, site: Site, front: Box) -> None:
    """A token with any single error opens no session, and the failed login is audited."""
    front.keys = [OURS.as_dict(private=False)]
    front.spoil = SPOILT[name]
    browser, answer = await log_in(site, "alan")
    assert (answer.status_code, SESSION in browser.cookies) == (403, False), answer.text
    assert [entry.entry.event for entry in await site.audited()] == ["login_failed"]


async def test_resigned_token_without_an_error_logs_in(site: Site, front: Box) -> None:
    """The token of these attacks is accepted if nothing in it is wrong, so they fail because of what they change."""
    front.keys, front.spoil = [OURS.as_dict(private=False)], resigned()
    _, answer = await log_in(site, "alan")
    assert answer.status_code == 303


# The provider is down


async def test_provider_that_is_down_ends_no_session(
    site: Site, boxed: tuple[Box, ProviderProcess], redis_url: str, log: FilteringBoundLogger
) -> None:
    """If the provider is down, sessions stay valid and the login page says so; logins work again when it is back."""
    browser, _ = await log_in(site, "alan")
    waiting = site.browser()
    back = await log_in_there(await go_to_provider(waiting), "vera")
    boxed[1].stop()
    try:
        assert (await browser.get("/board")).status_code == 200
        answer = await come_back(waiting, back)
        assert (answer.status_code, "does not answer" in answer.text or "fails" in answer.text) == (503, True)
        app = web_app(web_settings(redis_url, **settings(boxed[1], PUBLIC)), log)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="https://desk", headers=HTML) as fresh,
        ):
            page = (await fresh.get("/login")).text
            assert "does not answer, so nobody can log in there now" in page
            assert 'name="password"' in page
            assert (await fresh.get("/login/provider")).status_code == 503
            boxed[1].start()
    finally:
        if boxed[1].process is None:
            boxed[1].start()
    _, answer = await log_in(site, "alan")
    assert answer.status_code == 303
