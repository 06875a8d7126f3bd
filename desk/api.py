"""The desk's API: what the agent's software can ask of calls and say to them."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, cast
from urllib.parse import quote, unquote

import msgspec
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from calls.action_status import ActionState, Told
from calls.facts import Policies
from calls.finding import same_number
from calls.record import Call, Phase
from calls.store.attempt_limiter import AttemptLimiter, Failure, network_of
from calls.store.keys import CallId
from calls.store.queries import Lookup
from desk.access import DeskToken, DeskTokens
from desk.actions import Actions
from desk.bodies import BODIES, read_body
from desk.openapi import document
from desk.problems import Problem, invalid, not_found, too_often, unauthorized, unavailable
from desk.stream import Stream, Tickets
from desk.views import PageView, action_view, call_view, story_view
from reseller.endpoints import is_institution_key, is_voice_id


class QuotedConvertor(Convertor[str]):
    """A parameter that is decoded after the address was chosen."""

    regex = ".+"

    def convert(self, value: str) -> str:
        """Decode what stands in the path."""
        return unquote(value)

    def to_string(self, value: str) -> str:
        """Quote a value as one part of a path."""
        return quote(value, safe="")


register_url_convertor("quoted", QuotedConvertor())


class RawPath:
    """Hands an application the path as it was sent.

    A voice id may hold a slash, quoted. Decoded first, ``/calls/cu-1/x%2Factions%2Fy`` would be another address than the
    one that was asked for.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)


MAX_WAIT_S: Final = 10.0
MAX_PAGE: Final = 500
DEFAULT_PAGE: Final = 100
_SHOWN: Final = (Phase.LIVE, Phase.ENDED, Phase.SETTLED)

Action = Literal["assign", "verified", "distrusted", "check", "resolve"]


class DeskApi:
    """The endpoints; each answers one request of one token."""

    def __init__(
        self,
        tokens: DeskTokens,
        lookup: Lookup,
        actions: Actions,
        stream: Stream,
        tickets: Tickets,
        policies: Policies,
        log: FilteringBoundLogger,
        *,
        country: str = "US",
    ) -> None:
        self._country = country
        self._tokens = tokens
        self._limiter = AttemptLimiter()
        self._lookup = lookup
        self._actions = actions
        self._stream = stream
        self._tickets = tickets
        self._policies = policies
        self._log = log

    def app(self, origins: tuple[str, ...]) -> ASGIApp:
        """Build the application, to be mounted at ``/desk``.

        Args:
            origins: Of web pages that may use the desk from a browser.
        """
        call = "/calls/{institution}/{voice_id:quoted}"
        routes = [
            Route("/openapi.json", self.describe),
            Route("/calls", self.list_calls),
            Route("/stream", self.stream),
            Route("/tickets", self.ticket, methods=["POST"]),
            Route(f"{call}/actions/{{action_id}}", self.show_action),
            *(Route(f"{call}/{action}", self._speaker(action), methods=["POST"]) for action in BODIES),
            Route(call, self.show_call),
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["Location"],
        )
        app = Starlette(routes=routes, middleware=[cors], exception_handlers=_HANDLERS)
        app.router.redirect_slashes = False
        return RawPath(app)

    async def describe(self, _request: Request) -> Response:
        """Return the OpenAPI document; it is no secret."""
        return Response(document(), media_type="application/json")

    async def list_calls(self, request: Request) -> Response:
        """List calls, live ones unless another phase is asked for."""
        token = self._token(request)
        query = request.query_params
        phase = _one_of(query.get("phase"), "phase", _SHOWN)
        matches = _filter(token, query, phase, self._country)
        await self._check_institution(token, query.get("institution"))
        limit = _number(query.get("limit"), "limit", 1, MAX_PAGE, DEFAULT_PAGE)
        settled = phase is Phase.SETTLED
        try:
            page = await self._lookup.page(settled=settled, after=query.get("after"), limit=int(limit), matches=matches)
        except ValueError:
            raise invalid("after", "must be the next of the page before") from None
        return _json(PageView(tuple(call_view(call, self._policies) for call in page.calls), page.next))

    async def show_call(self, request: Request) -> Response:
        """Return one call and its story."""
        place = self._place(request)
        known = await self._lookup.known(*place)
        if known is None:
            raise not_found()
        return _json(story_view(known.call, known.trail, self._policies))

    def _speaker(self, action: str) -> Callable[[Request], object]:
        async def speak(request: Request) -> Response:
            """Say something to a call."""
            token, place = self._token(request), self._place(request)
            wait_s = _number(request.query_params.get("wait"), "wait", 0, MAX_WAIT_S, 0)
            key = _idempotency_key(request)
            body = await read_body(request, BODIES[action])
            action_id, call_id = await self._actions.request(token, place, action, body, key)
            return await self._answer(call_id, action_id, wait_s)

        return speak

    async def show_action(self, request: Request) -> Response:
        """Return what became of an action."""
        place = self._place(request)
        wait_s = _number(request.query_params.get("wait"), "wait", 0, MAX_WAIT_S, 0)
        return await self._answer(place, request.path_params["action_id"], wait_s)

    async def stream(self, request: Request) -> Response:
        """Stream the calls that change, to a token or to whoever brings a ticket."""
        ticket = request.query_params.get("ticket")
        token = await self._tickets.redeem(ticket) if ticket else self._token(request)
        if token is None:
            raise self._turned_away(request, "ticket")
        institution = request.query_params.get("institution")
        if institution is not None and token.may_see(institution):
            await self._check_institution(token, institution)
        return await self._stream.respond(request, token)

    async def ticket(self, request: Request) -> Response:
        """Issue a ticket for the stream."""
        return _json(await self._tickets.issue(self._token(request)), 201)

    async def _answer(self, call_id: CallId, action_id: str, wait_s: float) -> Response:
        action, answer = await self._actions.result(call_id, action_id, within_s=wait_s)
        watch = f"/desk/calls/{_quoted(call_id)}/actions/{action_id}"
        return _action_response(action_id, cast("Action", action), answer, watch)

    def _token(self, request: Request) -> DeskToken:
        offered = [value for name, value in request.scope["headers"] if name == b"authorization"]
        token = self._tokens.recognise(offered[0]) if len(offered) == 1 else None
        if token is None:
            raise self._turned_away(request, "credentials")
        return token

    async def _check_institution(self, token: DeskToken, institution: str | None) -> None:
        """Refuse a filter by an institution that does not exist, once the list of institutions is stored.

        An institution that is not this token's is refused in the same words, so that the answer does not reveal it.
        """
        if institution is None or (token.may_see(institution) and await self._lookup.is_listed(institution)):
            return
        known = (await self._lookup.institutions()).visible(token.may_see)
        if known.is_list_stored and institution not in known.names:
            near = known.nearest(institution)
            raise invalid("institution", "is none of this token's" + (f"; did you mean {near}?" if near else ""))

    def _turned_away(self, request: Request, reason: str) -> Problem:
        """Return the answer to a wrong or missing token. The right one is recognised first and is never limited."""
        who = network_of(request.scope.get("client"))
        failure = self._limiter.fail(who)
        if failure is Failure.OVER:
            return too_often(self._limiter.wait_s(who))
        self._log.warning("desk_refused", reason=reason)
        if failure is Failure.LAST:
            self._log.warning("attempts_limited", where="desk", address=who)
        return unauthorized()

    def _place(self, request: Request) -> CallId:
        """Return which call a request is about; another institution's does not exist."""
        token = self._token(request)
        place = CallId(unquote(request.path_params["institution"]), request.path_params["voice_id"])
        is_legal = is_institution_key(place.institution_key) and is_voice_id(place.voice_id)
        if not (is_legal and token.may_see(place.institution_key)):
            raise not_found()
        return place


def _filter(token: DeskToken, query: Mapping[str, str], phase: Phase | None, country: str) -> Callable[[Call], bool]:
    institution, phone, any_id = query.get("institution"), query.get("phone"), query.get("id")

    def matches(call: Call) -> bool:
        return (
            token.may_see(call.institution_key)
            and institution in {None, call.institution_key}
            and (phone is None or same_number(call.phone_number or "", phone, country))
            and any_id in {None, call.voice_id, call.alternate_id}
            and phase in {None, call.phase}
        )

    return matches


def _one_of(text: str | None, name: str, allowed: tuple[Phase, ...]) -> Phase | None:
    if text is not None and text not in allowed:
        raise invalid(name, f"must be one of {', '.join(allowed)}")
    return Phase(text) if text else None


def _number(text: str | None, name: str, least: float, most: float, default: float) -> float:
    if text is None:
        return default
    is_number = text.isascii() and text.replace(".", "", 1).isdigit() and len(text) < 10
    if not is_number or not least <= float(text) <= most or (least == 1 and not text.isdigit()):
        raise invalid(name, f"must be a number from {least:g} to {most:g}")
    return float(text)


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is not None and not (0 < len(key) <= 128 and key.isascii() and key.isprintable()):
        raise invalid("Idempotency-Key", "must be 1 to 128 visible ASCII characters")
    return key


def _quoted(call_id: CallId) -> str:
    return f"{quote(call_id.institution_key, safe='')}/{quote(call_id.voice_id, safe='')}"


def _action_response(action_id: str, action: Action, answer: Told, watch: str) -> Response:
    status = 202 if answer.state is ActionState.PENDING else 200
    return _json(action_view(action_id, action, answer, watch), status, {"Location": watch})


def _json(view: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    headers = {"Cache-Control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(view), status, headers, media_type="application/json")


async def _on_problem(_request: Request, problem: Exception) -> Response:
    return cast("Problem", problem).response()


async def _on_nothing(_request: Request, error: Exception) -> Response:
    http = cast("HTTPException", error)
    if http.status_code == 405:
        return Problem(405, "method_not_allowed", headers=http.headers).response()
    return not_found().response()


async def _on_redis_away(_request: Request, _error: Exception) -> Response:
    return unavailable().response()


_HANDLERS = {
    Problem: _on_problem,
    HTTPException: _on_nothing,
    RedisError: _on_redis_away,
    OSError: _on_redis_away,
    TimeoutError: _on_redis_away,
}
