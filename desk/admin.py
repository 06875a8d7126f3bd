"""The login in front of everything that people watch: HTTP Basic, and nothing across sites.

A browser sends Basic credentials along with any request, also one that a foreign page has started; so a request that
changes something must come from our own pages.
"""

import hmac
from base64 import b64decode
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from desk.pages import PAGE, SafeHeaders
from reseller.secret import Secret

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Login(msgspec.Struct, frozen=True):
    """The one pair of credentials for people who watch."""

    user: str
    password: Secret


class AdminOnly:
    """Let an application's pages be reached only with the login, and be changed only from themselves."""

    def __init__(self, app: ASGIApp, login: Login, log: FilteringBoundLogger) -> None:
        self._app = SafeHeaders(app, PAGE)
        self._expected = f"{login.user}:{login.password.reveal()}".encode()
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 or 403, or pass the request on."""
        headers = Headers(scope=scope)
        if not self._is_authentic(headers):
            self._log.warning("admin_refused", reason="credentials")
            challenge = {"WWW-Authenticate": 'Basic realm="callkeeper", charset="UTF-8"'}
            await PlainTextResponse("Login required.\n", 401, challenge)(scope, receive, send)
        elif scope["method"] not in _SAFE_METHODS and not is_same_site(headers):
            self._log.warning("admin_refused", reason="cross_site")
            await PlainTextResponse("Only from our own pages.\n", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

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
