"""The board as an application: its pages, its stream, its forms. `desk.access.authorization` is in front of it."""

import asyncio
import mimetypes
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final, cast
from urllib.parse import quote

from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from structlog.typing import FilteringBoundLogger

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.effect_resolution import needs_of
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.snapshot import FigureReader
from callkeeper.calls.record_storage import NewerRecord
from callkeeper.calls.store.audit_log import AuditLog
from callkeeper.calls.store.pausing import Pausing
from callkeeper.calls.store.queries import Known, Queries
from callkeeper.desk.access.rights import Person, Role
from callkeeper.desk.access.visitor import may_see, note_of, place_of, visitor_of
from callkeeper.desk.board.alarms import IncidentReader
from callkeeper.desk.board.audit_page import AuditPage
from callkeeper.desk.board.board_context import BoardContextReader, HourReader
from callkeeper.desk.board.call_page import CallRenderer, call_page
from callkeeper.desk.board.calls_page import CallsPage
from callkeeper.desk.board.find_page import FindPage
from callkeeper.desk.board.form_handlers import SPEAKER, FormRefused, fields_of, read_form, request_action, speaker_of
from callkeeper.desk.board.frame_source import FrameSource
from callkeeper.desk.board.incidents_page import IncidentsPage
from callkeeper.desk.board.live_updates import Streams
from callkeeper.desk.board.outcomes_page import OutcomesPage
from callkeeper.desk.board.pausing_page import PausingPage
from callkeeper.desk.board.plots_page import PlotsPage
from callkeeper.desk.board.renderer import STATIC, Renderers, groups_in, sifted
from callkeeper.desk.board.rows import address_of
from callkeeper.desk.board.rules_page import RulesPage
from callkeeper.desk.board.runbook import runbook
from callkeeper.desk.bodies import BODIES
from callkeeper.desk.call_list import CallList
from callkeeper.desk.desk import Desk
from callkeeper.desk.quotas import AGAIN_S, STREAMS_PER_PERSON, OpenStreams, QuotaUsed
from callkeeper.service.endpoints import is_institution_key, is_voice_id

BASE: Final = "/board"
"""Where the board is served."""

_WORDS: Final = {404: "There is no such page.", 405: "This address does not accept that method."}
_NO_CALL: Final = "No call of this institution has this id."
_TRY: Final = (
    "If it has just begun, open this page again in a moment. Search for it above by the caller's last digits or "
    "name, by its time, or by the first letters of its id. It may be too old: settled calls are kept for some days, and "
    "then only in an archive, if there is one."
)
_FORM: Final = (
    "It belongs to a form of a call's page. Open the call's own address, which is this one without its last part."
)
LONGEST_FILTER: Final = 128
_FOR_EVER: Final = {"Cache-Control": "private, max-age=31536000, immutable"}


class Board:
    """Answers one request each."""

    def __init__(
        self,
        redis: Redis,
        desk: Desk,
        *,
        log: FilteringBoundLogger,
        now: Callable[[], datetime],
        country: str = "US",
        streams_per_person: int = STREAMS_PER_PERSON,
    ) -> None:
        keys = desk.lookup.keys
        self._book = desk.book
        self._desk = desk
        self._now = now
        self.renderers = Renderers(BASE, desk.book, now=now)
        self._queries = Queries(redis, keys=keys)
        context = BoardContextReader(redis, desk.lookup, HourReader(FigureReader(redis, keys=keys)))
        self.frames = FrameSource(desk.feed, self._queries, context, desk.book, log)
        listed = CallList(desk.lookup, desk.archive, desk.book)
        plots = PlotsPage(redis, self._queries, desk.book, self.renderers, desk.searches, now=now, archive=desk.archive)
        self._routes_of_pages = [
            *FindPage(listed, self.renderers, country, desk.searches).routes(),
            *CallsPage(listed, self.renderers, desk.book, desk.searches, now).routes(),
            *PausingPage(Pausing(redis, keys=keys), self._queries, self.renderers, now=now).routes(),
            *IncidentsPage(redis, keys, self.renderers).routes(),
            *OutcomesPage(redis, self._queries, self.renderers, now=now).routes(),
            *AuditPage(AuditLog(redis, keys=keys), desk.archive, self.renderers).routes(),
            *plots.routes(),
            *RulesPage(redis, keys, desk.book, self.renderers, now=now, archive=desk.archive).routes(),
        ]
        self._incidents = IncidentReader(redis, keys)
        self._open = OpenStreams(streams_per_person)
        self._streams = Streams(self.frames, desk, self.renderers, self._incidents, now=now)

    def app(self) -> Starlette:
        """Build the application; its routes are whole paths, beginning with `BASE`."""
        call = f"{BASE}/calls/{{institution}}/{{voice_id:path}}"
        routes = [
            Route(BASE, self.home),
            # By path only: an absolute address would repeat the Host header.
            Route(f"{BASE}/", RedirectResponse(BASE, 308), methods=["GET"]),
            Route(f"{BASE}/stream", self.stream),
            Route(f"{BASE}/institutions/{{institution}}", self.institution),
            Route(f"{BASE}/institutions/{{institution}}/reconcile", self.reconcile, methods=["POST"]),
            Route(f"{BASE}/operations", self.operations),
            *self._routes_of_pages,
            Route(f"{BASE}/static/{{name}}", self.file),
            *(Route(f"{call}/{action}", self._speaker(action), methods=["POST"]) for action in BODIES),
            Route(call, self.call),
        ]
        handlers = {
            HTTPException: self._on_http,
            NewerRecord: self._on_newer,
            ArchiveAway: self._on_archive_away,
            RedisError: self._on_redis_away,
            OSError: self._on_redis_away,
        }
        app = Starlette(routes=routes, exception_handlers=handlers)
        app.router.redirect_slashes = False
        return app

    async def home(self, request: Request) -> Response:
        return await self._board_page(request, None)

    async def institution(self, request: Request) -> Response:
        return await self._board_page(request, _institution(request))

    async def reconcile(self, request: Request) -> Response:
        """Enqueue the job that lists an institution's queue, and redirect to the institution's page."""
        key = _institution(request)
        try:
            await read_form(request)
        except FormRefused as problem:
            return PlainTextResponse(str(problem), problem.status)
        if (await self._queries.institutions()).problem(key):
            raise HTTPException(404)
        await asyncio.to_thread(self._desk.waker.reconcile, key)
        return RedirectResponse(f"{BASE}/institutions/{quote(key, safe='')}", 303)

    async def _board_page(self, request: Request, only: str | None) -> Response:
        visitor, frame = visitor_of(request), await self.frames.frame()
        view = self.renderers.of(visitor.person).view(frame, only, visitor.person.institutions)
        group = next((group for group in frame.groups if group.key == only), None)
        if only is not None and group is None:
            raise HTTPException(404)
        text = request.query_params.get("filter", "").strip()[:LONGEST_FILTER] if only is None else ""
        view = sifted(view, frame, text) if text else view
        groups = groups_in(view, frame)
        shown = sum(len(waiting) + len(decided) for _, _, waiting, decided in groups)
        shown += len(view.order.get("first-rows", ()))
        place = only or place_of(visitor.person.institutions)
        note_of(request).listed({}, shown, detail="board", institution=place)
        may_reconcile = only is not None and visitor.person.may(Role.SUPERVISOR)
        return self.renderers.page(
            request,
            "board.html",
            view=view,
            groups=groups,
            only=group,
            filter=text,
            reconcile=f"{BASE}/institutions/{quote(only or '', safe='')}/reconcile" if may_reconcile else "",
        )

    async def call(self, request: Request) -> Response:
        action_id = request.query_params.get("action", "")
        action_id = action_id if action_id.isalnum() and len(action_id) < 64 else ""
        opened = request.query_params.get("do", "")
        return await self._call_page(
            request, _place(request), action_id, typed={"action": opened} if opened in BODIES else None
        )

    async def _call_page(
        self,
        request: Request,
        place: CallId,
        action_id: str = "",
        *,
        problem: FormRefused | None = None,
        typed: Mapping[str, str] | None = None,
    ) -> Response:
        known = await self._known(place)
        name = await self._desk.lookup.name(place.institution_key)
        visitor = visitor_of(request)
        alarms = await self._incidents.of(place.institution_key, visitor.person.institutions)
        page = call_page(known, self._book, action_id or None, self._now(), institution=name, alarms=alarms)
        view = CallRenderer(self.renderers.of(visitor.person)).view(page, self._now(), visitor, typed)
        return self.renderers.page(
            request,
            "call.html",
            problem=problem,
            page_address=f"{BASE}/{address_of(place)}?do={(typed or {}).get('action', '')}",
            page=page,
            html=view.html,
            action_id=action_id,
        )

    async def operations(self, request: Request) -> Response:
        """Show what to do in each incident."""
        return self.renderers.page(request, "runbook.html", sections=runbook())

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.renderers.of(None).static:
            return PlainTextResponse("There is no such page.\n", 404)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response((STATIC / name).read_bytes(), headers=_FOR_EVER, media_type=kind)

    @property
    def open_streams(self) -> int:
        """Return how many pages are updated now."""
        return self._open.count

    def _speaker(self, action: str) -> Callable[[Request], object]:
        async def speak(request: Request) -> Response:
            """Request an action on a call, and show the call's page with the result."""
            place, form = _place(request), {}
            try:
                named = SPEAKER if visitor_of(request).is_emergency else ()
                form = await read_form(request, *fields_of(action), *named)
                if action == "resolve" and "effect" not in form:
                    await self._refuse_unseen(place, form.get("seen", ""))
                person = speaker_of(request, form)
                note = note_of(request)
                action_id, call_id = await request_action(self._desk.actions, person, place, action, form, note)
            except FormRefused as problem:
                form.pop("applied", None)  # the form that is shown now may be about something else
                page = await self._call_page(
                    request, place, problem=problem, typed={**form, "despite": problem.despite, "action": action}
                )
                note_of(request).is_found = True  # the page shows the call, although the form was refused
                return page
            return RedirectResponse(f"{BASE}/{address_of(call_id)}?action={action_id}", 303)

        return speak

    async def _refuse_unseen(self, place: CallId, seen: str) -> None:
        """Refuse "I have seen it" from a page that did not show all that this would close."""
        if needs_of((await self._known(place)).call) not in {"", seen}:
            raise FormRefused(
                409, "Nothing was done: what needs a person here is not what this page showed. It is shown now."
            )

    async def stream(self, request: Request) -> Response:
        """Stream what is new on the board, on the page of an institution, or on the page of a call."""
        key, voice_id = request.query_params.get("institution"), request.query_params.get("call")
        visitor = visitor_of(request)
        if key is not None and not (may_see(request, key) and is_institution_key(key)):
            raise HTTPException(404)
        if voice_id is None:
            is_known = key is not None and key in (await self._queries.institutions()).names
            where, call_id = key if key and is_known else place_of(visitor.person.institutions), None
            events = self._streams.of_board(key, visitor.person)
        elif key is None or not is_voice_id(voice_id):
            raise HTTPException(404)
        else:
            call_id = await self._desk.lookup.resolve(key, voice_id)
            where = key if call_id is not None else place_of(visitor.person.institutions)
            events = self._streams.of_call(CallId(key, voice_id), request.query_params.get("action"), visitor)
        note_of(request).complete(detail="stream", institution=where, voice_id=call_id.voice_id if call_id else "")
        try:
            admitted = self._desk.access.while_admitted(events, visitor.is_still_here)
            return self._open.response(visitor.person.id, admitted)
        except QuotaUsed as used:
            return PlainTextResponse(f"{used}\n", 429, {"Retry-After": str(AGAIN_S)})

    async def _known(self, place: CallId) -> Known:
        known = await self._desk.known(place)
        if known is None:
            raise HTTPException(404)
        return known

    async def _on_http(self, request: Request, error: Exception) -> Response:
        http = cast("HTTPException", error)
        status, headers, hint = http.status_code, http.headers, ""
        words = _WORDS.get(status, "This request cannot be handled.")
        if status == 404 and "voice_id" in request.path_params:
            words, hint = _NO_CALL, _TRY
            if request.path_params["voice_id"].rpartition("/")[2] in BODIES:
                status, headers, words, hint = 405, {"Allow": "POST"}, _WORDS[405], _FORM
        institution = request.path_params.get("institution")
        if institution is not None:
            words = f"{words}{await self._meant(visitor_of(request).person, institution)}"
        return self.renderers.page(request, "nothing.html", status, headers=headers, words=words, hint=hint)

    async def _on_newer(self, request: Request, error: Exception) -> Response:
        """Show that this release cannot read the call's record."""
        words = f"The record of this call cannot be read: {error}."
        return self.renderers.page(request, "nothing.html", 503, words=words)

    async def _on_archive_away(self, request: Request, _error: Exception) -> Response:
        """Show that nobody can tell whether there is such a call."""
        words = "Redis does not know this, and the archive of what is older does not answer. Try again later."
        return self.renderers.page(request, "nothing.html", 503, words=words)

    async def _on_redis_away(self, request: Request, error: Exception) -> Response:
        """Show a page without data, which reloads by itself."""
        answer = self.renderers.away(error)
        if request.method == "GET":
            answer.headers["Refresh"] = "5"
        return answer

    async def _meant(self, person: Person, institution: str) -> str:
        """Return a hint at the institution that an address most likely means. It never repeats the address."""
        with suppress(RedisError, OSError):
            known = (await self._queries.institutions()).visible(person.may_see)
            near = known.nearest(institution) if institution not in known.names else None
            return f" Did you mean {known.called(near)}?" if near is not None else ""
        return ""


def _institution(request: Request) -> str:
    """Return the institution of an address, if the visitor may see it."""
    key: str = request.path_params["institution"]
    if not (may_see(request, key) and is_institution_key(key)):
        raise HTTPException(404)
    return key


def _place(request: Request) -> CallId:
    place = CallId(_institution(request), request.path_params["voice_id"])
    if not is_voice_id(place.voice_id):
        raise HTTPException(404)
    return place
