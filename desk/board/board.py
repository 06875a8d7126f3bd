"""The board as an application: its pages, its stream, its forms. It stands behind the admin login (``desk.access``)."""

import asyncio
import mimetypes
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from markupsafe import Markup
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from structlog.typing import FilteringBoundLogger

from calls.finding import parse_query
from calls.metrics.snapshot import FigureReader
from calls.record import Call
from calls.store.keys import CallId
from calls.store.pauses import Pausing, past_pauses
from calls.store.queries import Known, Queries
from desk.board.board_context import BoardContextReader, HourReader
from desk.board.call_page import CallRenderer, call_page, path_of
from desk.board.form_handlers import FormHandlers, FormRefused
from desk.board.frame_source import FrameSource
from desk.board.renderer import STATIC, Renderer, groups_in
from desk.board.rows import row_of
from desk.board.runbook import runbook
from desk.board.states import STATE_STYLES, state_of
from desk.board.streams import Streams, stream
from desk.desk import Desk
from desk.finding import FoundCalls, find_calls
from desk.signing import FORM_FIELD, FormTokens
from reseller.endpoints import is_institution_key, is_voice_id

OPERATOR: Final = "__Host-callkeeper-operator"
"""The cookie that fills in the core username of whoever said something last in this browser."""

HISTORY_SHOWN: Final = 50
"""Pauses of the history that the page shows."""

_ACTIONS: Final = ("assign", "verified", "distrusted", "check", "resolve")
_WORDS: Final = {404: "There is nothing by this name.", 405: "This address does not take that."}
_FOR_EVER: Final = {"Cache-Control": "private, max-age=31536000, immutable"}


class Board:
    """Answers one request each."""

    def __init__(
        self,
        redis: "Redis",
        desk: Desk,
        *,
        tokens: FormTokens,
        log: FilteringBoundLogger,
        now: Callable[[], datetime],
        country: str = "US",
        base: str = "/board",
    ) -> None:
        """Put the parts together.

        Args:
            redis: For answers; not closed here.
            desk: Whose feed is listened to, and by way of which calls are spoken to.
            tokens: Of the login; every form needs one.
            log: Where to log.
            now: Returns the present, aware UTC.
            country: Where phone numbers without a country's code belong.
            base: The path under which the board is served.
        """
        keys = desk.lookup.keys
        self._book = desk.book
        self._desk = desk
        self._tokens = tokens
        self._base = base
        self._country = country
        self._now = now
        self._pausing = Pausing(redis, keys=keys)
        self._renderer = Renderer(base, desk.book)
        self._queries = Queries(redis, keys=keys)
        self._forms = FormHandlers(desk.actions, self._pausing, self._queries, tokens, now=now)
        context = BoardContextReader(redis, desk.lookup, HourReader(FigureReader(redis, keys=keys)))
        self._call_renderer = CallRenderer(self._renderer, tokens)
        self.frames = FrameSource(desk.feed, self._queries, context, desk.book, log)
        self._streams = Streams(self.frames, desk, self._renderer, self._call_renderer, now=now)

    def app(self) -> Starlette:
        """Build the application; its routes are whole paths, beginning with the base."""
        base, call = self._base, f"{self._base}/calls/{{institution}}/{{voice_id:path}}"
        routes = [
            Route(base, self.home),
            Route(f"{base}/", self.to_home),
            Route(f"{base}/stream", self.stream),
            Route(f"{base}/institutions/{{institution}}", self.institution),
            Route(f"{base}/institutions/{{institution}}/reconcile", self.reconcile, methods=["POST"]),
            Route(f"{base}/pausing", self.pausing),
            Route(f"{base}/pause", self._changer("pause"), methods=["POST"]),
            Route(f"{base}/resume", self._changer("resume"), methods=["POST"]),
            Route(f"{base}/operations", self.operations),
            Route(f"{base}/find", self.find, methods=["GET", "POST"]),
            Route(f"{base}/static/{{name}}", self.file),
            *(Route(f"{call}/{action}", self._speaker(action), methods=["POST"]) for action in _ACTIONS),
            Route(call, self.call),
        ]
        away = dict.fromkeys((RedisError, OSError, TimeoutError), self._on_redis_away)
        app = Starlette(routes=routes, exception_handlers={HTTPException: self._on_http, **away})
        app.router.redirect_slashes = False
        return app

    # Pages

    async def home(self, _request: Request) -> Response:
        """Show the board."""
        return await self._board_page(None)

    async def to_home(self, _request: Request) -> Response:
        """Lead to the board by a path alone: a whole address would be the Host header's word."""
        return RedirectResponse(self._base, 308)

    async def institution(self, request: Request) -> Response:
        """Show the calls of one institution."""
        key = request.path_params["institution"]
        if not is_institution_key(key):
            raise HTTPException(404)
        return await self._board_page(key)

    async def reconcile(self, request: Request) -> Response:
        """Enqueue the job that lists an institution's queue, and redirect to the institution's page."""
        key = request.path_params["institution"]
        try:
            await self._forms.read(request)
        except FormRefused as problem:
            return PlainTextResponse(str(problem), problem.status)
        if not is_institution_key(key) or (await self._queries.institutions()).problem(key):
            raise HTTPException(404)
        await asyncio.to_thread(self._desk.waker.reconcile, key)
        return RedirectResponse(f"{self._base}/institutions/{quote(key, safe='')}", 303)

    async def _board_page(self, only: str | None) -> Response:
        frame = await self.frames.frame()
        view = self._renderer.view(frame, only)
        group = next((group for group in frame.groups if group.key == only), None)
        if only is not None and group is None:
            raise HTTPException(404)
        return self._page(
            "board.html",
            view=view,
            groups=groups_in(view, frame),
            only=group,
            reconcile=f"{self._base}/institutions/{quote(only, safe='')}/reconcile" if only else "",
            field=FORM_FIELD,
            token=self._tokens.issue() if only else "",
        )

    async def call(self, request: Request) -> Response:
        """Show one call."""
        action_id = request.query_params.get("action", "")
        return await self._call_page(
            request, _place(request), action_id if action_id.isalnum() and len(action_id) < 64 else ""
        )

    async def _call_page(
        self,
        request: Request,
        place: CallId,
        action_id: str = "",
        *,
        problem: FormRefused | None = None,
        said: Mapping[str, str] | None = None,
    ) -> Response:
        known = await self._known(place)
        page = call_page(known, self._book, action_id or None, self._now())
        view = self._call_renderer.view(page, self._now(), _operator(request), said)
        status = problem.status if problem else 200
        return self._page(
            *("call.html", status),
            page=page,
            html=view.html,
            action_id=action_id,
            problem=str(problem) if problem else "",
        )

    async def pausing(self, request: Request) -> Response:
        """Show what is paused, with the forms that change it."""
        return await self._pausing_page(request)

    async def _pausing_page(
        self,
        request: Request,
        problem: FormRefused | None = None,
        *,
        what: str = "",
        typed: Mapping[str, str] | None = None,
    ) -> Response:
        """Show the page; ``typed`` are the fields of the form ``what``, which could not be carried out.

        The address may name the pause that the form to resume begins with: as the links beside the pauses do.
        """
        fields = {"pause": {}, "resume": {"institution": request.query_params.get("resume", "")}, what: typed or {}}
        pauses, known = await self._pausing.pauses(), await self._queries.institutions()
        return self._page(
            *("pausing.html", problem.status if problem else 200),
            pauses=pauses.by_institution,
            pauses_piece=Markup(self._renderer.piece("pauses", pauses, known)),  # noqa: S704  (our own template wrote it)
            known=known,
            history=past_pauses(await self._pausing.history())[:HISTORY_SHOWN],
            field=FORM_FIELD,
            token=self._tokens.issue(),
            operator=_operator(request),
            problem=str(problem) if problem else "",
            typed={form: defaultdict(str, values) for form, values in fields.items()},
        )

    async def operations(self, _request: Request) -> Response:
        """Show what to do in each incident."""
        return self._page("runbook.html", text=runbook())

    async def find(self, request: Request) -> Response:
        """Show the calls that a query means; a whole id leads to its call. Numbers and names come in the body only."""
        form: dict[str, str] = {}
        if request.method == "POST":
            try:
                form = await self._forms.read(request, changes=False)
            except FormRefused as problem:
                return PlainTextResponse(str(problem), problem.status)
        typed = form.get("q", "")
        query = parse_query(typed, country=self._country, zone=_zone(form.get("zone", "")))
        if query.is_empty:
            return self._found_page(typed, "Type what you know of the call.", 200)
        any_id = typed if is_voice_id(typed) else ""
        found = await find_calls(self._queries, query, any_id=any_id, state=self._state_words)
        exact = [call for call in found.calls if any_id and any_id in {call.voice_id, call.alternate_id}]
        if len(exact) == 1:
            only = exact[0]
            return RedirectResponse(f"{self._base}/{path_of(CallId(only.institution_key, only.voice_id))}", 303)
        ranked = sorted(found.calls, key=lambda call: (call.is_settled, -self._rank(call)))
        rows = [
            (
                row_of(call, self._book),
                call,
                found.known.names.get(call.institution_key) or call.institution_key,
                who(call),
            )
            for call in ranked
        ]
        words = "No call is known that fits all of it."
        return self._found_page(typed, words, 200 if rows else 404, rows, found)

    def _found_page(
        self, typed: str, words: str, status: int, rows: Sequence[Any] = (), found: FoundCalls | None = None
    ) -> Response:
        cut, partial = (found.is_cut, found.is_partial) if found else (False, False)
        return self._page("found.html", status, query=typed, rows=rows, words=words, is_cut=cut, is_partial=partial)

    def _rank(self, call: Call) -> int:
        return STATE_STYLES[state_of(call, self._book).name].rank

    def _state_words(self, call: Call) -> str:
        """Return the words by which a call's state can be looked for."""
        name = state_of(call, self._book).name
        return f"{STATE_STYLES[name].word} {name} {call.reason or ''} {call.phase}"

    async def file(self, request: Request) -> Response:
        """Return a file of the pages."""
        name = request.path_params["name"]
        if name not in self._renderer.static:
            raise HTTPException(404)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response((STATIC / name).read_bytes(), headers=_FOR_EVER, media_type=kind)

    def _page(self, template: str, status: int = 200, **context: Any) -> Response:
        return HTMLResponse(self._renderer.page(template, now=self._now(), **context), status)

    # Changes

    def _speaker(self, action: str) -> Callable[[Request], object]:
        async def speak(request: Request) -> Response:
            """Say something to a call, and show its page with what became of it."""
            place, form = _place(request), {}
            try:
                form = await self._forms.read(request)
                action_id, call_id = await self._forms.request(place, action, form)
            except FormRefused as problem:
                return await self._call_page(request, place, problem=problem, said={**form, "action": action})
            answer = RedirectResponse(f"{self._base}/{path_of(call_id)}?action={action_id}", 303)
            return _remember(answer, form["operator"])

        return speak

    def _changer(self, what: str) -> Callable[[Request], object]:
        async def change(request: Request) -> Response:
            """Pause or resume, and show the board."""
            form: dict[str, str] = {}
            try:
                form = await self._forms.read(request)
                await (self._forms.pause(form) if what == "pause" else self._forms.resume(form))
            except FormRefused as problem:
                return await self._pausing_page(request, problem, what=what, typed=form)
            return _remember(RedirectResponse(self._base, 303), form["operator"])

        return change

    # The stream

    async def stream(self, request: Request) -> Response:
        """Stream what is new on the board, on the page of an institution, or on the page of a call."""
        key, voice_id = request.query_params.get("institution"), request.query_params.get("call")
        if voice_id is None:
            return stream(self._streams.of_board(key))
        if not (key and is_institution_key(key) and is_voice_id(voice_id)):
            raise HTTPException(404)
        action_id = request.query_params.get("action")
        return stream(self._streams.of_call(CallId(key, voice_id), action_id, _operator(request)))

    async def _known(self, place: CallId) -> Known:
        known = await self._desk.lookup.known(*place)
        if known is None:
            raise HTTPException(404)
        return known

    async def _on_http(self, request: Request, error: Exception) -> Response:
        http = cast("HTTPException", error)
        words = _WORDS.get(http.status_code, "That cannot be.")
        institution = request.path_params.get("institution")
        if institution is not None:
            words = f"{words}{await self._meant(institution)}"
        return HTMLResponse(
            self._renderer.page("nothing.html", now=self._now(), words=words), http.status_code, http.headers
        )

    async def _on_redis_away(self, request: Request, _error: Exception) -> Response:
        """Show a page all the same, which looks again by itself."""
        again = {"Refresh": "5"} if request.method == "GET" else {}
        page = self._renderer.page("away.html", now=self._now())
        return HTMLResponse(page, 503, {"Retry-After": "5", **again})

    async def _meant(self, institution: str) -> str:
        """Say which institution an address most likely means, if it names none that exists; never repeat the address."""
        with suppress(RedisError, OSError):
            known = await self._queries.institutions()
            near = known.nearest(institution) if institution not in known.names else None
            return f" Did you mean {known.called(near)}?" if near is not None else ""
        return ""


def _remember(answer: Response, operator: str) -> Response:
    """Have the browser fill in the operator's name the next time, for thirty days."""
    answer.set_cookie(OPERATOR, quote(operator, safe=""), 30 * 86400, secure=True, httponly=True, samesite="strict")
    return answer


def _place(request: Request) -> CallId:
    place = CallId(request.path_params["institution"], request.path_params["voice_id"])
    if not (is_institution_key(place.institution_key) and is_voice_id(place.voice_id)):
        raise HTTPException(404)
    return place


def _operator(request: Request) -> str:
    """Return who said something last in this browser."""
    return unquote(request.cookies.get(OPERATOR, ""))[:64]


def _zone(minutes: str) -> timezone:
    """Return the zone of the browser, which says how many minutes it is ahead of UTC."""
    try:
        return timezone(timedelta(minutes=int(minutes or "0")))
    except (ValueError, OverflowError):
        return UTC


def who(call: Call) -> str:
    """Return the name of the member a call is assigned to; empty while it is nobody."""
    return next((person.name for person in call.candidates if person.person_id == call.person_id), "")
