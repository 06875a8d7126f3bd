"""The gate in front of every page for people: it identifies the sender, checks their role, and writes the audit entry.

A person has a session (a cookie), the login of ``CALLKEEPER_ADMIN`` (HTTP Basic), or, for ``/metrics``, its token.

Every credential is compared, so nobody's guesses lock others out. It has 32 characters or more, so guessing does not
find it, and the limit of wrong ones (`calls.store.attempt_limiter`) bounds only answers and log lines.

A browser sends credentials with any request, even if a foreign page has started it. So a request that changes something
must come from our own pages.
"""

import hmac
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from redis.exceptions import RedisError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from callkeeper.calls.store.attempt_limiter import AttemptLimiter, network_of
from callkeeper.calls.store.audit_log import AuditEvent
from callkeeper.calls.store.writable import hindrance
from callkeeper.desk.access.emergency import EmergencyLogin, is_on_loopback
from callkeeper.desk.access.people import SHARED, Sessions
from callkeeper.desk.access.required_roles import rule_of
from callkeeper.desk.access.rights import Person, Role
from callkeeper.desk.access.visitor import AuditNote, Auditor, Visitor, origin_of, with_note, with_visitor
from callkeeper.desk.browser_headers import PAGE, SafeHeaders
from callkeeper.desk.signed_tokens import Signer, form_tokens
from callkeeper.service.secret import Secret

SESSION: Final = "__Host-callkeeper-session"
"""The cookie of a session. Lax, not Strict: a link in an alert leads to the board without another login."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PROMETHEUS: Final = Person(id="token:metrics", operator="", role=Role.VIEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """The ways in, and who watches them. All pages share them, so guesses at one page count for all.

    Attributes:
        shared: The login of ``CALLKEEPER_ADMIN``; None if it is not set.
        metrics_token: Opens ``/metrics``; None if it is not set.
        has_login_page: People log in at an identity provider. Otherwise the browser asks for the shared login.
        limiter: Counts wrong logins.
        away: Makes the page that is shown while Redis is away or refuses. It holds no data, so anybody may see it.
        denied: Makes the page that says to a visitor, in words, why an address is not for them.
    """

    sessions: Sessions
    shared: EmergencyLogin | None = None
    metrics_token: Secret | None = None
    has_login_page: bool = False
    auditor: Auditor
    log: FilteringBoundLogger
    away: Callable[[Exception], Response] | None = None
    denied: Callable[[Visitor, str], Response] | None = None
    limiter: AttemptLimiter = field(default_factory=AttemptLimiter)

    def count_wrong(self, request: Request) -> int:
        """Count and log a wrong login; return the seconds to wait if its address has sent too many."""
        who = network_of(request.client)
        if wait_s := self.limiter.count(who):
            return wait_s
        self.log.warning("admin_refused", reason="credentials")
        if self.limiter.wait_s(who):
            self.log.warning("attempts_limited", where="login", address=who)
        return 0


class Gate:
    """Give access to an application by role, and allow changes only from its own pages.

    The application finds the visitor in its scope (`callkeeper.desk.access.visitor`).
    """

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app = app
        self._doors = doors
        self._without_login = AttemptLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 303, 401, 403, 429 or 503, or pass the request on."""
        guarded = SafeHeaders(self._guard, PAGE)
        await guarded(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        rule, parts = rule_of(request.method, scope["path"])
        answer: ASGIApp
        if not scope["path"].isprintable():  # a route may end before a line break where its rule does not
            answer = PlainTextResponse("Not found.\n", 404)
        elif rule.role is None:
            answer = self._app
        elif isinstance(found := await self._recognise(request), Response):
            answer = found
            note = AuditNote(None, "", "", page=rule.name, origin=origin_of(request))
            send = self._doors.auditor.listening(send, note)
        else:
            note = self._doors.auditor.note(found.person, rule, parts, origin_of(request))
            send = self._doors.auditor.listening(send, note)
            if request.method not in _SAFE_METHODS and not is_same_site(request.headers):
                self._doors.log.warning("admin_refused", reason="cross_site")
                answer = PlainTextResponse("Only from our own pages.\n", 403)
            elif rule.admits(found.person):
                answer, scope = self._app, with_note(with_visitor(scope, found), note)
            else:
                answer = self._denied(request, found)
        await answer(scope, receive, send)

    async def _recognise(self, request: Request) -> Visitor | Response:
        """Return whose request it is, or the answer to a request that is not passed on."""
        if is_embedded(request.headers):
            return PlainTextResponse("Only from our own pages.\n", 403)
        authorization = request.headers.get("authorization", "")
        if self._is_prometheus(request, authorization):
            return Visitor(_PROMETHEUS, Signer(b"", valid_s=0))
        cookie = cookie_of(request, SESSION)
        if cookie and not authorization:
            try:
                person = await self._doors.sessions.renew(cookie)
            except (RedisError, OSError) as error:
                return self._away(error)
            if person is not None:
                is_emergency = person.id.startswith(SHARED) and not is_on_loopback(request)
                return Visitor(person, forms_of(cookie), cookie, self._doors.sessions, is_emergency=is_emergency)
        return await self._by_password(request, authorization)

    def _is_prometheus(self, request: Request, authorization: str) -> bool:
        token = self._doors.metrics_token
        if token is None or request.scope["path"] != "/metrics":
            return False
        return hmac.compare_digest(authorization.encode("latin-1"), f"Bearer {token.reveal()}".encode())

    async def _by_password(self, request: Request, authorization: str) -> Visitor | Response:
        if not authorization:
            if not self._without_login.count(network_of(request.client)):
                self._doors.log.info("admin_refused", reason="no_login")  # as a browser asks before it knows of one
            return self._login_required(request)
        shared = self._doors.shared
        if shared is None or not shared.login.is_sent(authorization):
            if wait_s := self._doors.count_wrong(request):
                return _too_many(wait_s)
            failed = AuditNote(
                AuditEvent.LOGIN_FAILED, "", "", {"detail": "HTTP header"}, is_found=True, origin=origin_of(request)
            )
            with suppress(RedisError, OSError):  # the answer holds no data
                await self._doors.auditor.write(failed, 401)
            return self._login_required(request)
        try:
            await shared.note_use(request)
        except (RedisError, OSError) as error:
            return self._away(error)
        return Visitor(shared.account.person, shared.login.forms, is_emergency=not is_on_loopback(request))

    def _away(self, error: Exception) -> Response:
        return self._doors.away(error) if self._doors.away else PlainTextResponse(f"{hindrance(error)}.\n", 503)

    def _login_required(self, request: Request) -> Response:
        if not self._doors.has_login_page:
            scheme = 'Basic realm="callkeeper", charset="UTF-8"' if self._doors.shared else 'Bearer realm="callkeeper"'
            return PlainTextResponse("Login required.\n", 401, {"WWW-Authenticate": scheme})
        if _asks_for_page(request):
            query = request.scope["query_string"]
            raw_path = (request.scope.get("raw_path") or quote(request.scope["path"]).encode()).partition(b"?")[0]
            wanted = (raw_path + b"?" + query if query else raw_path).decode("latin-1")
            return RedirectResponse(f"/login?next={quote(wanted, safe='')}", 303)
        return PlainTextResponse("Login required: /login\n", 401, {"WWW-Authenticate": 'Form realm="callkeeper"'})

    def _denied(self, request: Request, visitor: Visitor) -> Response:
        limits = "" if visitor.person.institutions is None else " limited to institutions"
        words = f"Your role, {visitor.person.role}{limits}, does not include this."
        if self._doors.denied and _asks_for_page(request):
            return self._doors.denied(visitor, words)
        return PlainTextResponse(f"{words}\n", 403)


def _asks_for_page(request: Request) -> bool:
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def forms_of(cookie: str) -> Signer:
    """Return the signer of the form tokens of a session."""
    return form_tokens(cookie.encode("utf-8", "replace"))


def set_cookie(name: str, value: str, max_age_s: int) -> str:
    """Return the header that sets a cookie for this host alone, which no script can read."""
    return f"{name}={value}; Path=/; Max-Age={max_age_s}; Secure; HttpOnly; SameSite=Lax"


def cookie_of(request: Request, name: str) -> str:
    """Return a cookie, or an empty text if the browser does not send it."""
    # Not request.cookies: before Python 3.11.10 and 3.12.6 its parser takes quadratic time (CVE-2024-7592).
    pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").split(";"))
    return next((value for found, _, value in pairs if found == name), "")


def is_same_site(headers: Headers) -> bool:
    """Tell whether a request that changes something was started by one of our own pages, or by no page at all.

    Browsers tell this in ``Sec-Fetch-Site``, older ones in ``Origin``. Other software sends neither.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")


def is_foreign(headers: Headers) -> bool:
    """Tell whether another site's page started this request, by a link or otherwise."""
    return headers.get("sec-fetch-site", "none") not in {"same-origin", "none"}


def is_embedded(headers: Headers) -> bool:
    """Tell whether another site's page started this request, other than by a link to one of our pages.

    A link to the board is harmless. An image, a frame or a script's request could hold our streams open or measure
    answers.
    """
    if not is_foreign(headers):
        return False
    asked = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return asked not in {("navigate", "document"), (None, None)}


def _too_many(wait_s: int) -> Response:
    return PlainTextResponse("Too many wrong logins.\n", 429, {"Retry-After": str(wait_s)})
