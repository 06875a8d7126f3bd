"""The page of the audit log: logins, views, statements and changes, with filters and an export as CSV."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from callkeeper.calls.store.audit_log import AuditEvent, AuditFilter, AuditLog, csv_of
from callkeeper.desk.access.visitor import note_of, visitor_of
from callkeeper.desk.archived_calls import ArchivedCalls, audited_or_archived
from callkeeper.desk.board.renderer import Renderers

SHOWN: Final = 200
EXPORTED: Final = 100_000
FILTERS: Final = ("event", "who", "institution", "call", "since")


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Answers one request each."""

    log: AuditLog
    archive: ArchivedCalls | None
    renderers: Renderers

    def routes(self) -> list[Route]:
        address = f"{self.renderers.base}/audit"
        return [Route(address, self.show), Route(f"{address}.csv", self.export)]

    async def show(self, request: Request) -> Response:
        found, answered = await audited_or_archived(self.log, self.archive, _wanted(request), most=SHOWN)
        return self.renderers.page(
            request,
            "audit.html",
            found=found,
            most=SHOWN,
            is_archive_missing=not answered,
            events=list(AuditEvent),
            typed=dict.fromkeys(FILTERS, "") | _typed(request),
            query=request.url.query,
        )

    async def export(self, request: Request) -> Response:
        """Return the entries that match the filter as CSV."""
        found, answered = await audited_or_archived(self.log, self.archive, _wanted(request), most=EXPORTED)
        if not answered:
            return PlainTextResponse("The archive does not answer: try again, or it would be incomplete.\n", 503)
        note_of(request).listed(_typed(request), len(found), detail="audit log")
        headers = {"Content-Disposition": 'attachment; filename="audit.csv"'}
        return Response(csv_of(found), headers=headers, media_type="text/csv")


def _typed(request: Request) -> dict[str, str]:
    return {name: text for name in FILTERS if (text := request.query_params.get(name, "").strip())}


def _wanted(request: Request) -> AuditFilter:
    """Return the filter; unknown values filter nothing."""
    typed = _typed(request)
    since, event = None, None
    with suppress(ValueError):
        since = datetime.fromisoformat(typed.get("since", "")).replace(tzinfo=UTC)
    with suppress(ValueError):
        event = AuditEvent(typed.get("event", ""))
    return AuditFilter(
        event=event,
        who=typed.get("who"),
        institution=typed.get("institution"),
        voice_id=typed.get("call"),
        since=since,
        institutions=visitor_of(request).person.institutions,
    )
