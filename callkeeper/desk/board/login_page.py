"""The pages for login and logout: at the identity provider, and by ``CALLKEEPER_ADMIN`` in an emergency.

After a login the browser is redirected to the page that it first asked for, if that is one of ours.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from callkeeper.calls.store.attempt_limiter import AttemptLimiter, network_of
from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent
from callkeeper.calls.store.writable import hindrance
from callkeeper.desk.access.authorization import (
    SESSION,
    Doors,
    cookie_of,
    forms_of,
    is_foreign,
    is_same_site,
    set_cookie,
)
from callkeeper.desk.access.oidc import LOGIN_S, Provider, ProviderAway, ProviderRefused
from callkeeper.desk.access.people import Account, Accounts
from callkeeper.desk.access.visitor import AuditNote, origin_of
from callkeeper.desk.board.renderer import Renderer
from callkeeper.desk.bodies import RequestTooLarge, bounded
from callkeeper.desk.signed_tokens import FORM_FIELD

_STATE: Final = "__Host-callkeeper-login"
"""The cookie that ties a login at the provider to the browser that began it."""

_OURS: Final = re.compile(r"/(board|rq)(/(?!/)|\?|\Z)[!-~]*")
_LONGEST: Final = 2000
_BEGUN: Final = 300
"""How many logins one address may begin at the provider in a row: Redis keeps each for ten minutes."""

_BEGUN_EVERY_S: Final = 0.2
"""After this many seconds it may begin one more."""

_COOKIE_S: Final = 30 * 86400
"""How long a browser keeps the cookie; Redis decides how long the session lasts."""


def is_ours(address: str) -> bool:
    """Tell whether an address is a path to one of our pages: a login never redirects elsewhere."""
    path = address.partition("?")[0]
    return len(address) < _LONGEST and _OURS.fullmatch(address) is not None and "\\" not in path and "//" not in path


@dataclass(slots=True)
class LoginPages:
    """Answers one request each."""

    renderer: Renderer
    accounts: Accounts
    doors: Doors
    provider: Provider
    now: Callable[[], datetime]
    _begun: AttemptLimiter = field(default_factory=lambda: AttemptLimiter(allowed=_BEGUN, every_s=_BEGUN_EVERY_S))
    _refused: AttemptLimiter = field(default_factory=AttemptLimiter)

    def app(self) -> Starlette:
        """Build the application; its routes are whole paths."""
        routes = [
            Route("/login", self.show),
            Route("/login", self.log_in, methods=["POST"]),
            Route("/login/provider", self.to_provider),
            Route("/login/callback", self.from_provider),
            Route("/logout", self.log_out, methods=["POST"]),
        ]
        refusals = (HTTPException, ProviderAway, RedisError, OSError)
        app = Starlette(routes=routes, exception_handlers=dict.fromkeys(refusals, self._on_refused))
        app.router.redirect_slashes = False
        return app

    async def show(self, request: Request) -> Response:
        try:
            await self.provider.about()
        except ProviderAway as away:
            return self._page(request, f"{away} People who are logged in can go on.")
        return self._page(request)

    async def log_in(self, request: Request) -> Response:
        """Check the name and password of ``CALLKEEPER_ADMIN``."""
        if not is_same_site(request.headers):
            raise HTTPException(403, "Only from our own pages.")
        form, shared = await _fields(request, "name", "password", "next"), self.doors.shared
        request.state.wanted = form.get("next", "")
        if shared is None or not shared.login.is_typed(form.get("name", ""), form.get("password", "")):
            if wait_s := self.doors.count_wrong(request):
                raise _too_many(wait_s)
            await self._audit(AuditEntry(event=AuditEvent.LOGIN_FAILED, status=401, origin=origin_of(request)))
            raise HTTPException(401, "Wrong name or password.")
        await shared.note_use(request)
        return await self._begin(request, shared.account, request.state.wanted)

    async def to_provider(self, request: Request) -> Response:
        """Redirect the browser to the identity provider."""
        if is_foreign(request.headers):  # not by a link either: a person has to want the login
            raise HTTPException(403, "Another site led here. Do you want to log in?")
        if wait_s := self._begun.count(network_of(request.client)):
            raise _too_many(wait_s)
        wanted = request.query_params.get("next", "")
        there, state = await self.provider.begin(wanted if is_ours(wanted) else "")
        answer = RedirectResponse(there, 303)
        answer.headers.append("set-cookie", set_cookie(_STATE, state, LOGIN_S))
        return answer

    async def from_provider(self, request: Request) -> Response:
        """Store the identity provider's claims about a person."""
        answer: Response
        state = cookie_of(request, _STATE)
        try:
            person, wanted = await self.provider.finish(request.query_params, state)
        except ProviderRefused as refused:
            if refused.person_id is not None:  # they have lost the role that earlier sessions still have
                await self.accounts.remove(refused.person_id)
            if not self._refused.count(network_of(request.client)):
                self.doors.log.warning("admin_refused", reason="provider")
                origin = origin_of(request)
                await self._audit(
                    AuditEntry(event=AuditEvent.LOGIN_FAILED, detail=refused.why, status=403, origin=origin)
                )
            answer = self._page(request, str(refused), 403)
        else:
            answer = await self._begin(request, await self.accounts.keep_of_provider(person), wanted)
        answer.headers.append("set-cookie", set_cookie(_STATE, "", 0))
        return answer

    async def log_out(self, request: Request) -> Response:
        cookie = cookie_of(request, SESSION)
        form = await _fields(request, FORM_FIELD)
        if not (is_same_site(request.headers) and forms_of(cookie).is_valid(form.get(FORM_FIELD))):
            raise HTTPException(403, "This request did not come from one of our pages. You are still logged in.")
        person = await self.doors.sessions.renew(cookie)
        await self.doors.sessions.end(cookie)
        if person is not None:
            await self._audit(AuditEntry(event=AuditEvent.LOGOUT, who=person.id, operator=person.operator))
        answer = self._page(request, notice="You are logged out.")
        answer.headers.append("set-cookie", set_cookie(SESSION, "", 0))
        return answer

    async def _begin(self, request: Request, account: Account, wanted: str) -> Response:
        """Begin a session under a new cookie, and end one that the browser had."""
        before = cookie_of(request, SESSION)
        if before:
            await self.doors.sessions.end(before)
        cookie = await self.doors.sessions.begin(account)
        origin = origin_of(request)
        await self._audit(AuditEntry(event=AuditEvent.LOGIN, who=account.id, operator=account.operator, origin=origin))
        answer = RedirectResponse(wanted if is_ours(wanted) else "/board", 303)
        answer.headers.append("set-cookie", set_cookie(SESSION, cookie, _COOKIE_S))
        return answer

    async def _audit(self, entry: AuditEntry) -> None:
        await self.doors.auditor.log.write(entry)

    def _page(self, request: Request, problem: str = "", status: int = 200, *, notice: str = "") -> HTMLResponse:
        wanted = getattr(request.state, "wanted", request.query_params.get("next", ""))
        wanted = wanted if is_ours(wanted) else ""
        page = self.renderer.page(
            "login.html",
            now=self.now(),
            wanted=wanted,
            provider=self.provider.host,
            to_provider="/login/provider" + (f"?next={quote(wanted, safe='')}" if wanted else ""),
            has_emergency_login=self.doors.shared is not None,
            problem=problem,
            notice=notice,
        )
        return HTMLResponse(page, status)

    async def _on_refused(self, request: Request, refused: Exception) -> Response:
        if isinstance(refused, ProviderAway):
            refused = HTTPException(503, str(refused))
        elif not isinstance(refused, HTTPException):  # of Redis
            words = f"{hindrance(refused)}, so nobody can log in. Try again in some seconds."
            refused = HTTPException(503, words, {"Retry-After": "5"})
        if refused.status_code == HTTPStatus.FORBIDDEN:
            denied = {"detail": f"{request.method} {request.url.path}"}  # one of our routes: nothing that was typed
            with suppress(RedisError, OSError):  # the answer holds no data
                note = AuditNote(AuditEvent.DENIED, "", "", denied, origin=origin_of(request))
                await self.doors.auditor.write(note, HTTPStatus.FORBIDDEN)
        is_missing = refused.status_code in {404, 405}
        answer = self._page(request, "There is no such page." if is_missing else refused.detail, refused.status_code)
        answer.headers.update(refused.headers or {})
        return answer


def _too_many(wait_s: int) -> HTTPException:
    words = f"Too many attempts. Try again in {wait_s} seconds."
    return HTTPException(429, words, {"Retry-After": str(wait_s)})


async def _fields(request: Request, *known: str) -> Mapping[str, str]:
    """Return the fields of a form; none if it is too large or not a form.

    Raises:
        HTTPException: A field is not ``known``, or occurs twice.
    """
    try:
        pairs = parse_qsl((await bounded(request)).decode("utf-8", "replace"), max_num_fields=8)
    except (RequestTooLarge, ClientDisconnect, ValueError):
        return {}
    form = dict(pairs)
    if len(form) != len(pairs) or not form.keys() <= set(known):
        raise HTTPException(400, "This form has a field that is not known here, or one twice.")
    return form
