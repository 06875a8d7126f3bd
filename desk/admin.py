"""The login in front of everything that people watch: HTTP Basic, and nothing across sites.

Failures are counted by address, and beyond some a minute a password is not even looked at: a person has chosen it. A browser
that was in once brings a mark that is counted by itself, so a stranger behind the same router cannot lock it out.

A browser sends Basic credentials along with any request, also one that a foreign page has started; so a request that
changes something must come from our own pages.
"""

import hmac
from base64 import b64decode
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from calls.strangers import Failure, Strangers, network_of
from desk.forms import FormTokens
from desk.pages import PAGE, SafeHeaders
from reseller.secret import Secret

KNOWN_S: Final = 30 * 24 * 3600
"""How long a browser that was in is remembered, by itself: nothing is kept here."""

_COOKIE: Final = "__Host-callkeeper-known"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Login(msgspec.Struct, frozen=True):
    """The one pair of credentials for people who watch."""

    user: str
    password: Secret


class AdminOnly:
    """Let an application's pages be reached only with the login, and be changed only from themselves."""

    def __init__(
        self, app: ASGIApp, login: Login, log: FilteringBoundLogger, *, strangers: Strangers | None = None
    ) -> None:
        """Stand in front of an application.

        Args:
            app: The application.
            login: Of the watchers.
            log: Where refusals are said.
            strangers: Shared by everything that this login opens, or a guess would be had anew at each of them.
        """
        self._app = SafeHeaders(app, PAGE)
        self._expected = f"{login.user}:{login.password.reveal()}".encode()
        self._marks = FormTokens(login.user, login.password, purpose="marks of known browsers", valid_s=KNOWN_S)
        self._log = log
        self._strangers = strangers or Strangers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 429, or pass the request on."""
        headers = Headers(scope=scope)
        is_known = self._marks.is_valid(_mark(headers))
        refusal = self._refusal(scope, headers, is_known=is_known)
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send if is_known else _with_cookie(send, self._marks.issue()))

    def _refusal(self, scope: Scope, headers: Headers, *, is_known: bool) -> Response | None:
        """Return the answer to a request that is not passed on."""
        who = f"known {_mark(headers)}" if is_known else network_of(scope.get("client"))
        if "authorization" not in headers:
            return self._turn_away(f"unnamed {who}")
        if self._strangers.is_barred(who):
            return PlainTextResponse("Too many wrong logins.\n", 429, {"Retry-After": str(self._strangers.wait_s(who))})
        if not self._is_authentic(headers):
            return self._turn_away(who)
        if scope["method"] not in _SAFE_METHODS and not is_same_site(headers):
            self._log.warning("admin_refused", reason="cross_site")
            return PlainTextResponse("Only from our own pages.\n", 403)
        return None

    def _turn_away(self, who: str) -> Response:
        """Ask for the login, and say so in the log as long as it is news."""
        failure = self._strangers.fail(who)
        if failure is not Failure.IGNORED:
            self._log.warning("admin_refused", reason="credentials")
        if failure is Failure.LAST_HEARD:
            self._log.warning("strangers_ignored", where="admin", address=who.rpartition(" ")[2])
        return PlainTextResponse(
            "Login required.\n", 401, {"WWW-Authenticate": 'Basic realm="callkeeper", charset="UTF-8"'}
        )

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


def _mark(headers: Headers) -> str | None:
    """Return the mark that a browser brings, if it brings one."""
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == _COOKIE), None)


def _with_cookie(send: Send, mark: str) -> Send:
    """Return a ``send`` that leaves a mark with the browser."""
    cookie = f"{_COOKIE}={mark}; Path=/; Max-Age={KNOWN_S}; Secure; HttpOnly; SameSite=Strict".encode("ascii")

    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"set-cookie", cookie)]
        await send(message)

    return send_with_cookie
