"""The identity provider: OpenID Connect, authorization code flow with PKCE, `state` and `nonce`.

The provider identifies a person by a signed token, which is fetched from the provider itself. It is accepted only if
issuer, audience, nonce, time and signature (by one of the provider's public keys) are all correct.

joserfc and httpx are imported when first needed: they take half a second and 10 MiB, and few processes log people in.
"""

import asyncio
import hmac
import re
import secrets
import ssl
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from redis.asyncio import Redis
from starlette.datastructures import QueryParams

from callkeeper.calls.store.breakers import ACCOUNT
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.last_errors import ErrorArea, ErrorNotes
from callkeeper.desk.access.configured_logins import OidcConfig
from callkeeper.desk.access.people import id_at_provider
from callkeeper.desk.access.rights import Person, Role, operator_in
from callkeeper.service.network_failure import network_failure

if TYPE_CHECKING:
    import httpx

LOGIN_S: Final = 600
"""How long a login at the provider may take."""

WITHIN_S: Final = 5.0
"""How long the provider may take to answer a request, until the last byte."""

LONGEST_ANSWER: Final = 1024 * 1024
"""Bytes of an answer of the provider. Metadata, keys and tokens have some 10,000."""

_FRESH_S: Final = 300.0
_AWAY_S: Final = 5.0
"""How long the provider's metadata, or a failure to read it, is cached."""

_CLOCKS_S: Final = 60
"""How far the provider's clock may be from ours."""

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Accepted signatures: with public keys only. A secret that both sides know does not prove who signed."""

_ABOUT_US: Final = ("invalid_client", "unauthorized_client")
"""Errors of the token endpoint that stop every login, not only one."""

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_SUBJECT: Final = re.compile(r"[!-~]{1,255}")
_ADDRESSES: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class ProviderAway(Exception):
    """The provider cannot be reached, or its metadata is incomplete; the message is for the login page."""


class ProviderRefused(Exception):
    """The login is refused. ``why`` is a fixed word for the log; the message is for the login page.

    ``person_id`` is who it was, if the provider has proved that and they have no role any more.
    """

    def __init__(
        self, why: str, words: str = "The login did not succeed. Please begin again.", *, person_id: str | None = None
    ) -> None:
        super().__init__(words)
        self.why = why
        self.person_id = person_id


class _Begun(msgspec.Struct, frozen=True):
    """What Redis holds of a login in progress."""

    nonce: str
    verifier: str
    wanted: str


class Provider:
    """Sends people to the provider, and reads its answer."""

    def __init__(self, config: OidcConfig, redis: Redis, *, keys: Keys) -> None:
        self._config = config
        self._redis = in_bytes(redis)
        self._keys = keys
        self._errors = ErrorNotes(redis, keys)
        self._metadata: tuple[float, dict[str, Any] | str] = (0.0, "")
        self._asking: asyncio.Task[dict[str, Any] | str] | None = None
        self._tls = ssl.create_default_context()
        if config.ca is not None:
            self._tls.load_verify_locations(config.ca)

    @property
    def host(self) -> str:
        return urlsplit(self._config.issuer).netloc

    async def about(self) -> dict[str, Any]:
        """Return the provider's metadata, which is cached.

        Raises:
            ProviderAway: It does not answer, or its metadata is wrong.
        """
        until, known = self._metadata
        if time.monotonic() >= until:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._read_metadata())
            known = await asyncio.shield(self._asking)  # anybody may ask, and many at once
        if isinstance(known, str):
            raise ProviderAway(known)
        return known

    async def _read_metadata(self) -> dict[str, Any] | str:
        """Read the metadata, or return why nobody can log in, and cache that."""
        known: dict[str, Any] | str
        try:
            known = await self._ask("GET", f"{self._config.issuer.rstrip('/')}/.well-known/openid-configuration")
            if known.get("issuer") != self._config.issuer or not all(_is_safe(known.get(name)) for name in _ADDRESSES):
                await self._note("not the metadata of this issuer")
                known = f"{self.host} describes itself as another identity provider. Check CALLKEEPER_OIDC_ISSUER."
            else:
                await self._errors.clear(ErrorArea.PROVIDER, ACCOUNT)
        except (ProviderAway, ProviderRefused):
            known = f"The identity provider {self.host} does not answer, so nobody can log in there now."
        self._metadata = time.monotonic() + (_AWAY_S if isinstance(known, str) else _FRESH_S), known
        return known

    async def begin(self, wanted: str) -> tuple[str, str]:
        """Return the address at the provider, and the state that the browser must bring back.

        Besides the usual scopes, those are asked for that have the name of a claim we read, if the provider has them.

        Raises:
            ProviderAway: It does not answer.
        """
        about, config = await self.about(), self._config
        claims = sorted({claim.partition(".")[0] for claim in (config.role_claim, config.operator_claim)})
        offered = about.get("scopes_supported")
        scopes = ["openid", "profile", *(claim for claim in claims if isinstance(offered, list) and claim in offered)]
        state, begun = secrets.token_urlsafe(32), _Begun(secrets.token_urlsafe(32), secrets.token_urlsafe(48), wanted)
        await self._redis.set(self._key(state), msgspec.json.encode(begun), ex=LOGIN_S)
        challenge = urlsafe_b64encode(sha256(begun.verifier.encode()).digest()).rstrip(b"=").decode()
        fields = {
            "response_type": "code",
            "client_id": config.client_id,
            "redirect_uri": config.redirect_uri,
            "scope": " ".join(scopes),
            "state": state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        there = urlsplit(about["authorization_endpoint"])
        query = "&".join(filter(None, (there.query, urlencode(fields))))
        return there._replace(query=query, fragment="").geturl(), state

    async def finish(self, query: QueryParams, state: str) -> tuple[Person, str]:
        """Return who has logged in, and where they wanted to go.

        Raises:
            ProviderAway: The provider does not answer.
            ProviderRefused: Something about the answer is wrong, or the person may not log in.
        """
        parts = {name: query[name] for name in ("state", "iss", "code") if len(query.getlist(name)) == 1}
        if not state or not hmac.compare_digest(parts.get("state", "").encode(), state.encode("utf-8", "replace")):
            raise ProviderRefused("state")
        stored = await self._redis.getdel(self._key(state))
        if stored is None:
            raise ProviderRefused("state")
        if parts.get("iss", self._config.issuer) != self._config.issuer:
            raise ProviderRefused("issuer")
        if not parts.get("code"):
            raise ProviderRefused("declined", "The identity provider did not let you in.")
        begun = msgspec.json.decode(stored, type=_Begun)
        return self._person(await self._claims(parts["code"], begun)), begun.wanted

    async def _claims(self, code: str, begun: _Begun) -> Mapping[str, Any]:
        """Exchange a code for the token, and return its claims."""
        from joserfc import jwt  # noqa: PLC0415  (see the top)
        from joserfc.errors import JoseError  # noqa: PLC0415
        from joserfc.jwk import KeySet  # noqa: PLC0415
        from joserfc.jws import JWSRegistry  # noqa: PLC0415
        from joserfc.jwt import ClaimsOption, JWTClaimsRegistry  # noqa: PLC0415

        about, config = await self.about(), self._config
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": config.redirect_uri,
            "code_verifier": begun.verifier,
        }
        login = quote(config.client_id, safe=""), quote(config.client_secret.reveal(), safe="")
        tokens = await self._ask("POST", about["token_endpoint"], data=fields, auth=login)
        found = await self._ask("GET", about["jwks_uri"])
        await self._errors.clear(ErrorArea.PROVIDER, ACCOUNT)
        try:
            public = [key for key in found["keys"] if key["kty"] in {"RSA", "EC"}]
            registry = JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)
            keys = KeySet.import_key_set({"keys": public})
            claims = jwt.decode(tokens["id_token"], keys, registry=registry).claims
            needed = ClaimsOption(essential=True)
            issuer = ClaimsOption(essential=True, value=config.issuer)
            audience = ClaimsOption(essential=True, value=config.client_id)
            checks = JWTClaimsRegistry(leeway=_CLOCKS_S, sub=needed, exp=needed, iat=needed, iss=issuer, aud=audience)
            checks.validate(claims)
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise ProviderRefused(f"token {type(error).__name__}") from None
        if claims.get("nonce") != begun.nonce:
            raise ProviderRefused("token nonce")
        # OpenID Connect Core 1.0, 3.1.3.7: a token for several audiences says to which of them it was issued.
        is_ours_alone = claims["aud"] in (config.client_id, [config.client_id])
        if claims.get("azp", config.client_id if is_ours_alone else "") != config.client_id:
            raise ProviderRefused("token azp")
        return claims

    def _person(self, claims: Mapping[str, Any]) -> Person:
        subject = claims["sub"]
        if not (isinstance(subject, str) and _SUBJECT.fullmatch(subject)):
            raise ProviderRefused("subject")
        person_id = id_at_provider(subject, self._config.issuer)
        values = _values(claims, self._config.role_claim)
        given = [grant for grant in self._config.grants if grant.value in values]
        if not given:
            words = "You are known, but have no role here. Ask the administrator of callkeeper."
            raise ProviderRefused("no role", words, person_id=person_id)
        role = max((grant.role for grant in given), key=list(Role).index)
        limits = [grant.institutions for grant in given if grant.role is role]
        institutions = None if None in limits else frozenset[str]().union(*(limit or () for limit in limits))
        operator = operator_in(next(iter(_values(claims, self._config.operator_claim)), ""))
        if not operator and role is not Role.VIEWER:
            words = f"Your account has no core username (claim {self._config.operator_claim}), which a {role} needs."
            raise ProviderRefused("no operator", words, person_id=person_id)
        return Person(id=person_id, operator=operator, role=role, institutions=institutions)

    async def _ask(self, method: str, address: str, **more: Any) -> dict[str, Any]:
        """Return the provider's answer, a JSON object. What is wrong with it is noted for the doctor."""
        import httpx  # noqa: PLC0415  (see the top)

        # Without a content coding, the bytes that arrive are all that there will be.
        more = {**more, "headers": {"Accept-Encoding": "identity"}, "follow_redirects": False}
        try:
            async with (
                asyncio.timeout(WITHIN_S),
                httpx.AsyncClient(verify=self._tls, trust_env=False, proxy=self._proxy()) as client,
                client.stream(method, address, timeout=WITHIN_S, **more) as answer,
            ):
                body = b""
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > LONGEST_ANSWER:
                        await self._note("an answer of over 1 MiB")
                        raise ProviderAway(f"The identity provider {self.host} does not answer as it should.")
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            await self._note(f"no whole answer: {network_failure(error)}")
            raise ProviderAway(f"The identity provider {self.host} does not answer. Try again in a moment.") from None
        if answer.status_code != 200 and not (method == "POST" and _is_about_the_code(answer.status_code, body)):
            await self._note(f"status {answer.status_code}")
        if answer.status_code >= 500:
            raise ProviderAway(f"The identity provider {self.host} fails. Try again in a moment.")
        if answer.status_code != 200:
            raise ProviderRefused(f"answer {answer.status_code}")
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except _UNREADABLE:
            await self._note("no JSON object")
            raise ProviderAway(f"The identity provider {self.host} does not answer as it should.") from None

    def _proxy(self) -> "httpx.Proxy | None":
        import httpx  # noqa: PLC0415  (see the top)

        proxy = self._config.proxy
        return None if proxy is None else httpx.Proxy(proxy.address, headers=proxy.headers)

    async def _note(self, words: str) -> None:
        await self._errors.note(ErrorArea.PROVIDER, ACCOUNT, f"{self.host}: {words}")

    def _key(self, state: str) -> str:
        return self._keys.login(sha256(state.encode("utf-8", "replace")).hexdigest())


def _values(claims: Mapping[str, Any], path: str) -> Sequence[str]:
    """Return the texts of a claim; a dot in its name leads into an object."""
    found: Any = claims
    for name in (path,) if path in claims else path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    texts = found if isinstance(found, list) else [found]
    return [text for text in texts if isinstance(text, str)]


def _is_about_the_code(status: int, body: bytes) -> bool:
    """Tell whether the token endpoint refuses only this login. A stranger can invent a code.

    RFC 6749, 5.2: a wrong secret or right of ours has an error of its own.
    """
    if status != 400:
        return False
    try:
        return msgspec.json.decode(body, type=dict[str, Any]).get("error") not in _ABOUT_US
    except _UNREADABLE:
        return True


def _is_safe(address: object) -> bool:
    """Tell whether credentials may be sent to an address: https, or this machine."""
    parts = urlsplit(address) if isinstance(address, str) else urlsplit("")
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
