"""The list of calls: filters, pages, permanent links, CSV. The address is the query, so it can be sent and kept.

No filter is about a member: digits and names are searched with the form on top of every page, which is in no address.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callkeeper.calls.call_query import FILTERS, NEEDS_PERSON, OPEN, SETTLED, CallQuery, FilterWrong, filtered
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.institutions import KnownInstitutions
from callkeeper.calls.record import Call, Reason
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.spreadsheet import SpreadsheetWriter
from callkeeper.calls.store.queries import SCAN_LIMIT
from callkeeper.desk.access.rights import Person, Role
from callkeeper.desk.access.visitor import note_of, place_of, visitor_of
from callkeeper.desk.board.renderer import Renderers
from callkeeper.desk.board.rows import CallRow, assignee_of, row_of
from callkeeper.desk.board.states import STATE_STYLES, state_named
from callkeeper.desk.call_list import CSV_COLUMNS, WHOLE, CallList, ListedPage, csv_row
from callkeeper.desk.quotas import QuotaUsed, SearchTurns

SHOWN: Final = 50
"""Calls on a page."""

EXPORTED: Final = 5000
"""Calls in a CSV file."""

EXPORT_SEARCHED: Final = 50_000
"""Records that are read for a CSV file, at most."""

TABS: Final = {"": "All", OPEN: "Live", NEEDS_PERSON: "Needs a person", SETTLED: "Settled"}
_ACTED: Final = (EffectKind.REJECT, EffectKind.ENROLL, EffectKind.ASSIGN)


@dataclass(frozen=True, slots=True)
class ListedCall:
    """One line of the list."""

    row: CallRow
    institution: str
    assignee: str
    policies: str
    status: str
    rule: str
    """The rule that asked for what was done last, or that asks a person."""
    over_at: datetime | None

    def lasted_s(self, now: datetime) -> int | None:
        """Return for how many seconds a call lasted, or has lasted if it is live; None if its start is unknown."""
        if self.row.since is None:
            return None
        return max(0, int(((self.over_at or now) - self.row.since).total_seconds()))


@dataclass(frozen=True, slots=True)
class CallsPage:
    """Answers one request each."""

    calls: CallList
    renderers: Renderers
    book: RuleBook
    turns: SearchTurns
    now: Callable[[], datetime]

    def routes(self) -> list[Route]:
        address = f"{self.renderers.base}/calls"
        return [Route(address, self.show), Route(f"{address}.csv", self.export)]

    async def show(self, request: Request) -> Response:
        """Show a page of the calls that match the filters of the address."""
        person, given = visitor_of(request).person, _given(request)
        known = (await self.calls.lookup.institutions()).visible(person.may_see)
        try:
            query = self._query(given, person, known)
            page = await self._read(request, query, request.query_params.get("after"), SHOWN)
        except FilterWrong as wrong:
            return self._page(request, known, given, problem=f"{_LABELS[wrong.name]} {wrong}.", status=400)
        except ValueError:
            return self._page(request, known, given, problem="This page of the list does not exist.", status=400)
        except QuotaUsed as used:
            return self._page(request, known, given, problem=str(used), status=429)
        note_of(request).listed(
            {name: text for name, text in given.items() if name != "institution"},
            len(page.calls),
            detail="list",
            institution=given.get("institution") or place_of(person.institutions),
        )
        return self._page(request, known, given, page)

    async def export(self, request: Request) -> Response:
        """Return the calls that match the filters as CSV, as many as `EXPORTED`."""
        person, given = visitor_of(request).person, _given(request)
        known = (await self.calls.lookup.institutions()).visible(person.may_see)
        found: list[Call] = []
        after: str | None = None
        searched = 0
        try:
            query = self._query(given, person, known)
            while len(found) < EXPORTED and searched < EXPORT_SEARCHED:
                page = await self._read(request, query, after, EXPORTED - len(found))
                found += page.calls
                searched += page.searched
                after = page.next
                if page.is_archive_away:
                    return PlainTextResponse(
                        "The archive does not answer: try again, or it would be incomplete.\n", 503
                    )
                if after is None:
                    break
        except FilterWrong as wrong:
            return PlainTextResponse(f"{_LABELS[wrong.name]} {wrong}.\n", 400)
        except QuotaUsed as used:
            return PlainTextResponse(f"{used}\n", 429)
        where = given.pop("institution", "") or place_of(person.institutions)
        note_of(request).listed(given, len(found), detail="calls", institution=where)
        name = "calls.csv" if after is None else f"calls-first-{len(found)}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(_csv(found, self.book), headers=headers, media_type="text/csv")

    def _query(self, given: Mapping[str, str], person: Person, known: KnownInstitutions) -> CallQuery:
        """Return what is looked for.

        Raises:
            FilterWrong: A filter has a value that it cannot have, or is not for this person.
        """
        if "operator" in given and not person.sees_people:
            raise FilterWrong("operator", "is not for your role")
        if "institution" in given and (problem := known.problem(given["institution"])):
            raise FilterWrong("institution", f"is wrong: {problem}")
        return filtered(CallQuery(), given, state_named=state_named, now=self.now())

    async def _read(self, request: Request, query: CallQuery, after: str | None, limit: int) -> ListedPage:
        person = visitor_of(request).person
        turn = nullcontext() if query.is_empty else self.turns.turn(person.id)
        async with turn:
            return await self.calls.page(person, query, WHOLE, after, limit)

    def _page(
        self,
        request: Request,
        known: KnownInstitutions,
        given: Mapping[str, str],
        page: ListedPage | None = None,
        *,
        problem: str = "",
        status: int = 200,
    ) -> Response:
        return self.renderers.page(
            request,
            "calls.html",
            status,
            problem=problem,
            page=page,
            listed=[self._line(call, known) for call in page.calls] if page else [],
            typed=dict.fromkeys(FILTERS, "") | dict(given),
            is_filtered=bool(given),
            is_first="after" not in request.query_params,
            tabs=[(name, word, _address(given, state=name)) for name, word in TABS.items()],
            here=_address(given),
            next=_address(given, after=page.next) if page and page.next else "",
            known=known,
            styles=STATE_STYLES,
            reasons=list(Reason),
            rules=[rule.name for rule in self.book.rules],
            policies=_policies(self.book),
            may_export=visitor_of(request).person.may(Role.AGENT),
            most=EXPORTED,
            page_size=SHOWN,
            scan_limit=SCAN_LIMIT,
            has_archive=self.calls.archive is not None,
        )

    def _line(self, call: Call, known: KnownInstitutions) -> ListedCall:
        reading = call.seen.reading
        rules = (call.effect(kind).rule for kind in _ACTED)
        question = call.statements.asked
        asked = question.rule if question is not None else None
        return ListedCall(
            row=row_of(call, self.book),
            institution=known.names.get(call.institution_key) or call.institution_key,
            assignee=assignee_of(call),
            policies=", ".join(reading.policies) if reading is not None else "",
            status=(reading.status or "") if reading is not None else "",
            rule=asked or next((rule for rule in rules if rule), ""),
            over_at=call.life.ended_at or call.life.settled_at,
        )


_LABELS: Final = {
    "state": "The state",
    "institution": "The institution",
    "outcome": "The outcome",
    "rule": "The rule",
    "policy": "The policy",
    "operator": "The operator",
    "since": "“Began since”",
    "until": "“and before”",
}


def _given(request: Request) -> dict[str, str]:
    given = {name: text for name in FILTERS if (text := request.query_params.get(name, "").strip()[:256])}
    with suppress(FilterWrong):
        given |= {"state": state_named(given["state"])} if "state" in given else {}
    return given


def _address(given: Mapping[str, str], **changes: str) -> str:
    """Return the query part of an address with the same filters, apart from changes; empty values are left out."""
    pairs = {name: text for name, text in {**given, **changes}.items() if text}
    return f"?{urlencode(pairs)}" if pairs else ""


def _policies(book: RuleBook) -> list[str]:
    """Return the policies that the rules name in full, which the form suggests."""
    named: Sequence[str] = (*book.policies.green, *book.policies.red, *book.policies.neutral)
    return [name for name in named if not set("*?[") & set(name)]


def _csv(calls: Sequence[Call], book: RuleBook) -> str:
    file = StringIO()
    writer = SpreadsheetWriter(file)
    writer.row(CSV_COLUMNS)
    for call in calls:
        writer.row(csv_row(call, book))
    return file.getvalue()
