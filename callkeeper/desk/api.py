"""The desk's API: how the agent's software reads calls and makes statements about them."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import Final, cast
from urllib.parse import quote, unquote

import msgspec
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from structlog.typing import FilteringBoundLogger

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.call_query import FILTERS, FilterWrong
from callkeeper.calls.item_names import CallId
from callkeeper.calls.phone_number import digits_of
from callkeeper.calls.record_storage import NewerRecord
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.store.attempt_limiter import AttemptLimiter, network_of
from callkeeper.calls.store.queries import Lookup
from callkeeper.desk.access.desk_tokens import DeskToken, DeskTokens
from callkeeper.desk.access.required_roles import rule_of
from callkeeper.desk.access.visitor import AuditNote, Auditor, note_of, origin_of, place_of, with_note
from callkeeper.desk.agent_pages import AskedByAgents, Minting, refuse_unknown, script
from callkeeper.desk.archived_calls import ArchivedCalls, known_or_archived
from callkeeper.desk.bodies import BODIES, LONGEST_NAME, meant, read_body, refuse_fields
from callkeeper.desk.call_list import PHASES, CallList, DeskListing
from callkeeper.desk.openapi import document
from callkeeper.desk.problems import Problem, forbidden, invalid, not_found, too_many, unauthorized, unavailable
from callkeeper.desk.quotas import SEARCHES_PER_PERSON, SEARCHES_PER_TOKEN, QuotaUsed, SearchTurns
from callkeeper.desk.statements import Actions
from callkeeper.desk.stream import Stream, Tickets
from callkeeper.desk.views import Action, PageView, action_view, call_view, story_view
from callkeeper.service.endpoints import is_institution_key, is_voice_id


class QuotedConvertor(Convertor[str]):
    """A parameter that is decoded after the address was chosen."""

    regex = ".+"

    def convert(self, value: str) -> str:
        """Decode a path parameter."""
        return unquote(value)

    def to_string(self, value: str) -> str:
        """Quote a value as one part of a path."""
        return quote(value, safe="")


register_url_convertor("quoted", QuotedConvertor())


class AuditedAnswers:
    """Writes the audit entry of a token's request before its answer is sent."""

    def __init__(self, app: ASGIApp, auditor: Auditor) -> None:
        self._app = app
        self._auditor = auditor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with an audit entry that its handler can complete."""
        if scope["type"] == "http":
            note = AuditNote(None, "", "", origin=origin_of(HTTPConnection(scope)))
            scope, send = with_note(scope, note), self._auditor.listening(send, note)
        await self._app(scope, receive, send)


class RawPath:
    """Hands an application the path as it was sent.

    A voice id may hold a quoted slash. If the path were decoded first, ``/calls/cu-1/x%2Factions%2Fy`` would lead to another
    endpoint.
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


class DeskApi:
    """The endpoints; each answers one request of one token."""

    def __init__(
        self,
        tokens: DeskTokens,
        lookup: Lookup,
        actions: Actions,
        stream: Stream,
        tickets: Tickets,
        book: RuleBook,
        log: FilteringBoundLogger,
        auditor: Auditor,
        turns: SearchTurns,
        *,
        now: Callable[[], datetime],
        country: str = "US",
        archive: ArchivedCalls | None = None,
    ) -> None:
        self._archive = archive
        self._turns = turns
        self._listing = DeskListing(CallList(lookup, archive, book), country, now)
        self._tokens = tokens
        self._minting = Minting(tokens, lookup)
        self._asked_by_agents = AskedByAgents()
        self._limiter = AttemptLimiter()
        self._lookup = lookup
        self._actions = actions
        self._stream = stream
        self._tickets = tickets
        self._policies = book.policies
        self._log = log
        self._auditor = auditor

    def app(self, origins: tuple[str, ...]) -> ASGIApp:
        """Build the application, to be mounted at ``/desk``."""
        call = "/calls/{institution}/{voice_id:quoted}"
        routes = [
            Route("/openapi.json", self.describe),
            Route("/callkeeper-call.js", script),
            Route("/calls", self.list_calls),
            Route("/stream", self.stream),
            Route("/tickets", self.ticket, methods=["POST"]),
            Route("/agent-tokens", self.agent_token, methods=["POST"]),
            Route(f"{call}/actions/{{action_id}}", self.show_action),
            *(Route(f"{call}/{action}", self._speaker(action), methods=["POST"]) for action in BODIES),
            Route(call, self.show_call),
        ]
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
            expose_headers=["Location", "Retry-After"],
        )
        app = Starlette(
            routes=routes,
            middleware=[Middleware(AuditedAnswers, auditor=self._auditor), cors],
            exception_handlers=_HANDLERS,
        )
        app.router.redirect_slashes = False
        return RawPath(app)

    async def describe(self, request: Request) -> Response:
        """Return the OpenAPI document. It needs no token."""
        _query(request)
        return Response(document(), media_type="application/json")

    async def list_calls(self, request: Request) -> Response:
        """List calls, live ones unless another phase is asked for."""
        token = await self._token(request)
        query = _query(request, "phase", "phone", "limit", "after", "q", "id", *FILTERS)
        self._asked_by_agents.refuse_others(request, token, query)
        phase = query.get("phase")
        if phase is not None and phase not in PHASES:
            raise invalid("phase", f"must be one of {', '.join(PHASES)}")
        _check_phone(token, query)
        if "operator" in query and not token.sees_people:
            raise forbidden("operator: a viewer does not see who acted")
        await self._check_institution(request, token, query.get("institution"))
        limit = int(_number(query.get("limit"), "limit", 1, MAX_PAGE, DEFAULT_PAGE))
        is_search = bool({"q", "phone", "id", *FILTERS} - {"institution"} & query.keys())
        most = SEARCHES_PER_TOKEN if token.agent is None else SEARCHES_PER_PERSON
        turn = self._turns.turn(f"token:{token.holder}", most=most) if is_search else nullcontext()
        try:
            async with turn:
                page = await self._listing.page(token, query, phase, limit)
        except QuotaUsed:
            raise too_many("too_many_searches") from None
        except FilterWrong as wrong:
            raise invalid(wrong.name, str(wrong)) from None
        except ValueError:
            raise invalid("after", "must be the next of the page before") from None
        if page.is_archive_away:
            raise unavailable()
        where = await self._named(token, query.get("institution"))
        names = ("phase", "q", "phone", "id", *FILTERS)
        filters = {name: query[name] for name in names if name in query and not (where and name == "institution")}
        where = where or place_of(token.institutions)
        note_of(request).listed(filters, len(page.calls), detail="list", institution=where)
        views = (call_view(call, self._policies, sees_people=token.sees_people) for call in page.calls)
        return _json(PageView(tuple(views), page.next))

    async def show_call(self, request: Request) -> Response:
        token, place = await self._place(request)
        _query(request)
        known = await known_or_archived(self._lookup, self._archive, place)
        if known is None:
            raise _only_said(request) or not_found()
        return _json(story_view(known.call, known.trail, self._policies, sees_people=token.sees_people))

    def _speaker(self, action: str) -> Callable[[Request], object]:
        async def speak(request: Request) -> Response:
            """Request an action on a call."""
            token, place = await self._place(request)
            wait_s = _number(_query(request, "wait").get("wait"), "wait", 0, MAX_WAIT_S, 0)
            key = _idempotency_key(request)
            body = await read_body(request, BODIES[action])
            if token.operators is not None and body.operator not in token.operators:
                where = await self._named(token, place.institution_key)
                note_of(request).deny(institution=where, detail=f"{action} as another operator")
                raise forbidden("operator: this token may not speak for them")
            note_of(request).operator = body.operator
            action_id, call_id = await self._actions.request(token, place, action, body, key, note_of(request))
            return await self._answer(call_id, action_id, wait_s)

        return speak

    async def show_action(self, request: Request) -> Response:
        _, place = await self._place(request)
        wait_s = _number(_query(request, "wait").get("wait"), "wait", 0, MAX_WAIT_S, 0)
        return await self._answer(place, request.path_params["action_id"], wait_s)

    async def stream(self, request: Request) -> Response:
        """Stream the calls that change, to a token or to a ticket."""
        ticket = request.query_params.get("ticket")
        if ticket is None:
            token = await self._token(request)
        elif (owner := await self._tickets.redeem(ticket)) is None:
            raise self._turned_away(request, "ticket")
        else:
            token = self._admitted(request, owner)
        query = _query(request, "ticket", "institution", "phone", "id", "last_event_id")
        self._asked_by_agents.refuse_others(request, token, query)
        _check_phone(token, query)
        institution = query.get("institution")
        await self._check_institution(request, token, institution)
        where = await self._named(token, institution) or place_of(token.institutions)
        note_of(request).complete(detail="stream", institution=where)
        note_of(request).filters = {name: query[name] for name in ("phone", "id") if name in query}
        return await self._stream.respond(request, token)

    async def ticket(self, request: Request) -> Response:
        token = await self._token(request)
        _query(request)
        await refuse_fields(request)
        return _json(await self._tickets.issue(token), 201)

    async def agent_token(self, request: Request) -> Response:
        token = await self._token(request)
        _query(request)
        return _json(await self._minting.mint(request, token), 201)

    async def _answer(self, call_id: CallId, action_id: str, wait_s: float) -> Response:
        action, answer = await self._actions.result(call_id, action_id, within_s=wait_s)
        place = "/".join(quote(part, safe="") for part in call_id)
        watch = f"/desk/calls/{place}/actions/{action_id}"
        view = action_view(action_id, cast("Action", action), answer, watch)
        return _json(view, 202 if answer.may_change else 200, {"Location": watch})

    async def _token(self, request: Request) -> DeskToken:
        offered = [value for name, value in request.scope["headers"] if name == b"authorization"]
        token = await self._tokens.recognise(offered[0]) if len(offered) == 1 else None
        if token is None:
            raise self._turned_away(request, "credentials")
        return self._admitted(request, token)

    def _admitted(self, request: Request, token: DeskToken) -> DeskToken:
        """Return the token if its role suffices, and begin the request's audit entry."""
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        rule, parts = rule_of(request.method, f"/desk{path}")
        note = note_of(request)
        note.who, note.operator, note.page = f"token:{token.name}", token.agent or "", rule.name
        note.complete(rule.event, **{name: unquote(part) for name, part in parts.items()})
        if rule.role is not None and not token.may(rule.role):
            raise forbidden(f"it needs the role {rule.role}")
        if token.agent is not None and not rule.for_agents:
            raise forbidden("a token that was minted for an agent's page may not do that")
        return token

    async def _named(self, token: DeskToken, institution: str | None) -> str:
        """Return an institution that a request names, as the audit log has it: nothing that is only typed."""
        is_known = institution is not None and token.may_see(institution) and await self._lookup.is_listed(institution)
        return (institution or "") if is_known else ""

    async def _check_institution(self, request: Request, token: DeskToken, institution: str | None) -> None:
        if institution is None:
            return
        if not token.may_see(institution):
            note_of(request).deny(institution)
        await refuse_unknown(self._lookup, token, institution, "institution", "is none of this token's")

    def _turned_away(self, request: Request, reason: str) -> Problem:
        """Return the answer to a wrong or missing token. A valid token is recognised before this, and is never limited."""
        who = network_of(request.scope.get("client"))
        note_of(request).deny(detail=f"wrong {reason}")
        if wait_s := self._limiter.count(who):
            return too_many("too_often", wait_s)
        self._log.warning("desk_refused", reason=reason)
        if self._limiter.wait_s(who):
            self._log.warning("attempts_limited", where="desk", address=who)
        return unauthorized()

    async def _place(self, request: Request) -> tuple[DeskToken, CallId]:
        """Return the request's token and call. A call of another institution counts as not existing."""
        token = await self._token(request)
        place = CallId(unquote(request.path_params["institution"]), request.path_params["voice_id"])
        is_legal = is_institution_key(place.institution_key) and is_voice_id(place.voice_id)
        if not token.may_see(place.institution_key):
            note_of(request).deny(place.institution_key)
        if not (is_legal and token.may_see(place.institution_key)):
            raise not_found()
        return token, place


def _only_said(request: Request) -> Problem | None:
    """Return the refusal of an action's address, which only takes POST; None if it is none.

    A voice id may end like one, so its address is read as that of a call first.
    """
    if request.scope["path"].rpartition("/")[2] not in BODIES:
        return None
    return Problem(405, "method_not_allowed", "an action is sent with POST", headers={"Allow": "POST"})


def _query(request: Request, *known: str) -> QueryParams:
    """Return the parameters of an address, each at most once.

    Raises:
        Problem: There are others than ``known``. A misspelt filter would otherwise show everything.
    """
    query = request.query_params
    if unknown := sorted(query.keys() - set(known)):
        raise invalid(unknown[0][:LONGEST_NAME], f"is no parameter of this address{meant(unknown[0], known)}")
    if len(query.multi_items()) != len(query):
        raise invalid("query", "no name may occur twice")
    return query


def _check_phone(token: DeskToken, query: QueryParams) -> None:
    """Refuse a number that the token may not ask for, or that has no digits: it would match every withheld number."""
    if "phone" in query and not token.sees_people:
        raise forbidden("phone: a viewer sees no numbers")
    if "phone" in query and not digits_of(query["phone"]):
        raise invalid("phone", "must have digits")


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


def _json(view: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    headers = {"Cache-Control": "no-store", **(headers or {})}
    return Response(msgspec.json.encode(view), status, headers, media_type="application/json")


async def _on_problem(_request: Request, problem: Exception) -> Response:
    return cast("Problem", problem).response()


async def _on_nothing(request: Request, error: Exception) -> Response:
    http = cast("HTTPException", error)
    if http.status_code == 405:
        is_action = request.method == "POST" and "/calls/" in request.url.path
        detail = f"the last part must be an action: {', '.join(BODIES)}" if is_action else None
        return Problem(405, "method_not_allowed", detail, headers=http.headers).response()
    return not_found().response()


async def _on_unavailable(_request: Request, _error: Exception) -> Response:
    return unavailable().response()


_HANDLERS = {
    Problem: _on_problem,
    HTTPException: _on_nothing,
    NewerRecord: _on_unavailable,
    RedisError: _on_unavailable,
    ArchiveAway: _on_unavailable,
    OSError: _on_unavailable,
}
