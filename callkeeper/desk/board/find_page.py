"""The page that finds calls. The query is sent in the body of a POST, so that it is in no address."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from callkeeper.calls.call_query import CallQuery, parse_query
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.desk.access.visitor import note_of, place_of, visitor_of
from callkeeper.desk.board.form_handlers import FormRefused, read_form
from callkeeper.desk.board.renderer import Renderers
from callkeeper.desk.board.rows import address_of, assignee_of, row_of
from callkeeper.desk.board.states import STATE_STYLES, state_of
from callkeeper.desk.call_list import CallList, FoundCalls
from callkeeper.desk.quotas import QuotaUsed, SearchTurns
from callkeeper.service.endpoints import is_voice_id


@dataclass(frozen=True, slots=True)
class FindPage:
    """Answers one request each."""

    listed: CallList
    renderers: Renderers
    country: str
    turns: SearchTurns

    def routes(self) -> list[Route]:
        return [Route(f"{self.renderers.base}/find", self.show, methods=["GET", "POST"])]

    async def show(self, request: Request) -> Response:
        """Show the calls that match a query. A whole id redirects to its call."""
        form: dict[str, str] = {}
        if request.method == "POST":
            try:
                form = await read_form(request, "q", "zone", changes=False)
            except FormRefused as problem:
                return PlainTextResponse(str(problem), problem.status)
        typed, person = form.get("q", ""), visitor_of(request).person
        query = parse_query(typed, country=self.country, zone=_zone(form.get("zone", "")))
        if query.is_empty:
            return self._page(request, typed, "Type what you know of the call." if form else "", 200)
        any_id = typed if is_voice_id(typed) else ""
        try:
            async with self.turns.turn(person.id):
                found = await self.listed.find(person, query, any_id=any_id)
        except QuotaUsed as used:
            return self._page(request, typed, str(used), 429)
        filters = {name: text for name, text in _filters(query) if text}
        note_of(request).listed(filters, len(found.calls), institution=place_of(person.institutions))
        exact = [call for call in found.calls if any_id and any_id in {call.voice_id, call.names.alternate_id}]
        if len(exact) == 1:
            only = CallId(exact[0].institution_key, exact[0].voice_id)
            return RedirectResponse(f"{self.renderers.base}/{address_of(only)}", 303)
        ranked = sorted(found.calls, key=lambda call: (call.is_settled, -self._rank(call)))
        rows = [
            (
                row_of(call, self.listed.book),
                call,
                found.known.names.get(call.institution_key) or call.institution_key,
                assignee_of(call) if person.sees_people else "",
            )
            for call in ranked
        ]
        words = "No call is known that matches all of it."
        return self._page(request, typed, words, 200 if rows else 404, rows, found)

    def _page(
        self,
        request: Request,
        typed: str,
        words: str,
        status: int,
        rows: Sequence[Any] = (),
        found: FoundCalls | None = None,
    ) -> Response:
        return self.renderers.page(
            request,
            "found.html",
            status,
            query=typed,
            rows=rows,
            words=words,
            is_cut=found is not None and found.is_cut,
            is_partial=found is not None and found.is_partial,
            is_archive_missing=found is not None and found.is_archive_missing,
        )

    def _rank(self, call: Call) -> int:
        return STATE_STYLES[state_of(call, self.listed.book).name].rank


def _filters(query: CallQuery) -> Iterator[tuple[str, str]]:
    """Yield the kinds of what is looked for, and the texts, for the audit log."""
    yield "words", " ".join(query.words)
    yield "number", " ".join(query.numbers)
    yield from query.terms
    yield "time", str(query.around or query.at or "")


def _zone(minutes: str) -> timezone:
    """Return the zone of the browser, which says how many minutes it is ahead of UTC."""
    try:
        return timezone(timedelta(minutes=int(minutes or "0")))
    except (ValueError, OverflowError):
        return UTC
