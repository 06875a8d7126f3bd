"""Who may use the desk: software that knows a token, and people who know the login (HTTP Basic, nothing across sites).

Every token has a name, which the trail shows for each action it asked for.

Wrong passwords are limited by address (`calls.store.attempt_limiter`). Beyond the limit the right one is refused too,
or guessing could go on. A browser that has logged in gets a cookie and is counted by itself, so a stranger behind the
same router cannot lock it out. The cookie gives no access.

A browser sends Basic credentials with any request, also one that a foreign page has started; so a request that changes
something must come from our own pages.
"""

import hmac
from base64 import b64decode
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from calls.store.attempt_limiter import AttemptLimiter, Failure, LoginLimiter, network_of
from desk.browser_headers import PAGE, SafeHeaders
from desk.signing import Signer, key_for, key_of_login
from reseller.secret import Secret

MAX_CREDENTIALS: Final = 512
"""Bytes of an Authorization header that are compared; no token is as long."""


class DeskToken(msgspec.Struct, frozen=True):
    """One token: its name, its value, and the institutions it is good for (None: all)."""

    name: str
    secret: Secret
    institutions: frozenset[str] | None = None

    def may_see(self, institution_key: str) -> bool:
        """Tell whether calls of an institution exist for whoever holds this token."""
        return self.institutions is None or institution_key in self.institutions


class DeskTokens:
    """Recognises tokens, as bytes and in a time that tells nothing about their values."""

    def __init__(self, tokens: Sequence[DeskToken]) -> None:
        self._tokens = [(token, token.secret.reveal().encode()) for token in tokens]

    def recognise(self, authorization: bytes) -> DeskToken | None:
        """Return the token of an Authorization header (``Bearer ...``), None if it is nobody's."""
        scheme, _, offered = authorization[:MAX_CREDENTIALS].partition(b" ")
        offered = offered.strip()
        matches = [token for token, value in self._tokens if hmac.compare_digest(offered, value)]
        return matches[0] if matches and scheme.lower() == b"bearer" else None


KNOWN_S: Final = 12 * 3600
"""How long a browser that has logged in is known; nothing is kept here."""

RENEWED_S: Final = 3600
"""How old its cookie may be before a new one is sent: a browser that is in use stays known."""

_COOKIE: Final = "__Host-callkeeper-known"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class AdminLogin(msgspec.Struct, frozen=True):
    """The one pair of credentials for people who watch."""

    user: str
    password: Secret

    def key_for(self, purpose: str) -> bytes:
        """Derive a key that changes with the password."""
        return key_for(purpose, key_of_login(self.user, self.password))


class AdminOnly:
    """Let an application's pages be reached only with the login, and be changed only from themselves."""

    def __init__(self, app: ASGIApp, login: AdminLogin, log: FilteringBoundLogger, *, limiter: LoginLimiter) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            login: The admin login.
            log: Where refusals are said.
            limiter: Shared by everything that this login opens: guesses at one page count for all.
        """
        self._app = SafeHeaders(app, PAGE)
        self._expected = f"{login.user}:{login.password.reveal()}".encode()
        self._known = Signer(login.key_for("known browsers"), valid_s=KNOWN_S)
        self._log = log
        self._limiter = limiter
        self._without_login = AttemptLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 429, or pass the request on."""
        headers = Headers(scope=scope)
        cookie = _cookie(headers)
        age_s = self._known.age_s(cookie)
        who = network_of(scope.get("client")) if age_s is None else f"known {_short(cookie)}"
        refusal = await self._refusal(scope, headers, who)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            is_fresh = age_s is not None and age_s < RENEWED_S
            await self._app(scope, receive, send if is_fresh else _with_cookie(send, self._known.issue()))

    async def _refusal(self, scope: Scope, headers: Headers, who: str) -> Response | None:
        """Return the answer to a request that is not passed on."""
        if is_embedded(headers):
            return PlainTextResponse("Only from our own pages.\n", 403)
        if "authorization" not in headers:
            self._say_refused(self._without_login.fail(who))
            return _login_required()
        if not self._is_authentic(headers):
            failure = await self._limiter.fail(who)
            self._say_refused(failure)
            if failure is Failure.LAST:
                self._log.warning("attempts_limited", where="admin", address=who.rpartition(" ")[2])
            return _too_many(await self._limiter.wait_s(who)) if failure is Failure.OVER else _login_required()
        if wait_s := await self._limiter.wait_s(who):
            return _too_many(wait_s)
        if scope["method"] not in _SAFE_METHODS and not is_same_site(headers):
            self._log.warning("admin_refused", reason="cross_site")
            return PlainTextResponse("Only from our own pages.\n", 403)
        return None

    def _say_refused(self, failure: Failure) -> None:
        """Log a refusal as long as the limit is not reached."""
        if failure is not Failure.OVER:
            self._log.warning("admin_refused", reason="credentials")

    def _is_authentic(self, headers: Headers) -> bool:
        scheme, _, encoded = headers.get("authorization", "").partition(" ")
        try:
            offered = b64decode(encoded.strip(), validate=True)
        except ValueError:
            offered = b""
        return hmac.compare_digest(offered, self._expected) and scheme.lower() == "basic"


def is_same_site(headers: Headers) -> bool:
    """Tell whether a request that changes something was started by one of our own pages, or by no page at all.

    Browsers say so in ``Sec-Fetch-Site``, older ones in ``Origin``; software that is no browser sends neither.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def is_embedded(headers: Headers) -> bool:
    """Tell whether another site's page asked for something other than to be replaced by a page of ours.

    A link to the board is harmless. An image, a frame or a script's request could hold our streams open or measure answers.
    """
    if headers.get("sec-fetch-site", "none") in {"same-origin", "none"}:
        return False
    asked = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return asked not in {("navigate", "document"), (None, None)}


def _login_required() -> Response:
    return PlainTextResponse(
        "Login required.\n", 401, {"WWW-Authenticate": 'Basic realm="callkeeper", charset="UTF-8"'}
    )


def _too_many(wait_s: int) -> Response:
    return PlainTextResponse("Too many wrong logins.\n", 429, {"Retry-After": str(max(1, wait_s))})


def _cookie(headers: Headers) -> str | None:
    """Return the cookie of a known browser, if it sends one."""
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == _COOKIE), None)


def _short(cookie: str | None) -> str:
    """Return a name for a known browser that is no cookie."""
    return sha256((cookie or "").encode("utf-8", "replace")).hexdigest()[:16]


def _with_cookie(send: Send, value: str) -> Send:
    """Return a ``send`` that gives the browser a cookie."""
    cookie = f"{_COOKIE}={value}; Path=/; Max-Age={KNOWN_S}; Secure; HttpOnly; SameSite=Strict".encode("ascii")

    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"set-cookie", cookie)]
        await send(message)

    return send_with_cookie
