"""The page of incidents: who has acknowledged which, the forms that do and end that, and the button that tries again."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from calls.incident import Incident, IncidentKind, Weight, merged
from calls.incidents import incidents_of
from calls.metrics.signals import SignalReader
from calls.store.acknowledging import Acknowledging
from calls.store.breakers import retry_service
from calls.store.keys import Keys
from desk.access.rights import Person, Role
from desk.access.visitor import note_of, visitor_of
from desk.board.form_handlers import FormHandlers, FormRefused, operator_of
from desk.board.renderer import Renderer
from desk.signing import FORM_FIELD

LENGTHS: Final = {
    "30m": ("30 minutes", timedelta(minutes=30)),
    "1h": ("1 hour", timedelta(hours=1)),
    "2h": ("2 hours", timedelta(hours=2)),
    "8h": ("8 hours", timedelta(hours=8)),
    "1d": ("1 day", timedelta(days=1)),
}
"""For how long the form acknowledges."""


_NAMED: Final = ("kind", "institution")


class IncidentsPage:
    """Answers one request each."""

    def __init__(
        self,
        redis: "Redis",
        keys: Keys,
        forms: FormHandlers,
        renderers: Mapping[bool, Renderer],
        *,
        now: Callable[[], datetime],
    ) -> None:
        """Put the parts together; ``renderers`` are by whether the visitor sees people's data."""
        self._redis = redis
        self._keys = keys
        self._signals = SignalReader(redis, keys)
        self._acknowledging = Acknowledging(redis, keys)
        self._forms = forms
        self._renderers = renderers
        self._now = now
        self._base = f"{renderers[False].base}/incidents"

    def routes(self) -> list[Route]:
        """Return the page and its forms."""
        return [
            Route(self._base, self.show),
            Route(
                f"{self._base}/acknowledge",
                self._changer(self._acknowledge, *_NAMED, "lasts", "note"),
                methods=["POST"],
            ),
            Route(f"{self._base}/end", self._changer(self._end, *_NAMED), methods=["POST"]),
            Route(f"{self._base}/retry", self._changer(self._retry), methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show the incidents, with the forms that the visitor may send."""
        return await self._page(request)

    async def _page(self, request: Request, problem: FormRefused | None = None) -> Response:
        visitor = visitor_of(request)
        person = visitor.person
        page = self._renderers[person.sees_people].page(
            "incidents.html",
            now=self._now(),
            visitor=visitor,
            incidents=await self._incidents(person),
            may_change=person.may(Role.SUPERVISOR),
            is_of_all=person.institutions is None,
            lengths=LENGTHS,
            field=FORM_FIELD,
            token=visitor.forms.issue(),
            problem=str(problem) if problem else "",
            has_retried="retried" in request.query_params,
        )
        return HTMLResponse(page, problem.status if problem else 200)

    async def _incidents(self, person: Person) -> list[Incident]:
        """Return what a person may see. Who sees all institutions sees equal incidents of many as one."""
        found = incidents_of(await self._signals.read())
        shown = [each for each in found if not each.institution_key or person.may_see(each.institution_key)]
        together = merged(shown) if person.institutions is None else shown
        return [incident for incident in together if incident.weight is not Weight.NOTE]

    def _changer(
        self, change: Callable[[Request, Mapping[str, str]], object], *fields: str
    ) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            """Carry out a form, and show the page."""
            try:
                form = await self._forms.read(request, *fields)
                asked = await change(request, form)  # type: ignore[misc]  # each is a method of this class
            except FormRefused as problem:
                return await self._page(request, problem)
            return RedirectResponse(f"{self._base}{asked or ''}", 303)

        return answer

    async def _acknowledge(self, request: Request, form: Mapping[str, str]) -> None:
        kind, key = self._named(request, form)
        if form.get("lasts") not in LENGTHS:
            raise FormRefused(400, "Choose for how long.")
        note = " ".join(form.get("note", "").split())[:200]
        person = visitor_of(request).person
        if not any(incident.kind is kind for incident in await self._incidents(person)):
            raise FormRefused(409, "Nothing was acknowledged: this incident is over.")
        lasts = LENGTHS[form["lasts"]][1]
        await self._acknowledging.acknowledge(kind, key, operator=operator_of(person), lasts=lasts, note=note)

    async def _end(self, request: Request, form: Mapping[str, str]) -> None:
        operator_of(visitor_of(request).person)
        if not await self._acknowledging.end(*self._named(request, form)):
            raise FormRefused(409, "Nothing was changed: nobody has acknowledged this incident.")

    def _named(self, request: Request, form: Mapping[str, str]) -> tuple[IncidentKind, str]:
        """Return kind and institution of the incident that a form names; without an institution it is about all."""
        kind, key, person = form.get("kind", ""), form.get("institution", ""), visitor_of(request).person
        if kind not in set(IncidentKind):
            raise FormRefused(400, "Choose an incident.")
        if person.institutions is not None and not (key and person.may_see(key)):
            raise FormRefused(403, "You may not do this for all institutions.")
        note_of(request).say(institution=key, detail=f"{request.url.path.rpartition('/')[2]} {kind}")
        return IncidentKind(kind), key

    async def _retry(self, request: Request, _form: Mapping[str, str]) -> str:
        operator_of(visitor_of(request).person)
        await retry_service(self._redis, self._keys)
        return "?retried=1"
