"""The page of incidents: who has acknowledged which, the forms that do and end that, a button, and the processes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper.calls.causes import IncidentKind
from callkeeper.calls.incident import Incident, merged, parts_of
from callkeeper.calls.incident_detection import incidents_of
from callkeeper.calls.metrics.signals import SignalReader, Signals
from callkeeper.calls.store.acknowledging import Acknowledging
from callkeeper.calls.store.breakers import retry_service
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.store.rules_in_force import RulesInForce
from callkeeper.calls.stored_value import readable
from callkeeper.desk.access.rights import Person, Role
from callkeeper.desk.access.visitor import note_of, visitor_of
from callkeeper.desk.board.form_handlers import FormRefused, form_route, operator_of
from callkeeper.desk.board.process_rows import SHOWN, rows_of
from callkeeper.desk.board.renderer import Renderers

LENGTHS: Final = {
    "30m": ("30 minutes", timedelta(minutes=30)),
    "1h": ("1 hour", timedelta(hours=1)),
    "2h": ("2 hours", timedelta(hours=2)),
    "8h": ("8 hours", timedelta(hours=8)),
    "1d": ("1 day", timedelta(days=1)),
}
"""For how long the form acknowledges."""


_NAMED: Final = ("kind", "institution", "known")
_LONGEST_PLACE: Final = 400
_CHANGED: Final = "Nothing was changed: this incident is over, or somebody else has changed it."


class IncidentsPage:
    """Serves the page of incidents and its forms."""

    def __init__(self, redis: Redis, keys: Keys, renderers: Renderers) -> None:
        self._redis = redis
        self._keys = keys
        self._signals = SignalReader(redis, keys)
        self._acknowledging = Acknowledging(redis, keys)
        self._renderers = renderers
        self._base = f"{renderers.base}/incidents"

    def routes(self) -> list[Route]:
        return [
            Route(self._base, self.show),
            form_route(f"{self._base}/acknowledge", self._acknowledge, self.show, *_NAMED, "lasts", "note"),
            form_route(f"{self._base}/end", self._end, self.show, *_NAMED),
            form_route(f"{self._base}/retry", self._retry, self.show),
        ]

    async def show(
        self, request: Request, problem: FormRefused | None = None, typed: Mapping[str, str] | None = None
    ) -> Response:
        """Show the incidents, with the forms that the visitor may send. ``typed``: the fields of one that was refused."""
        person = visitor_of(request).person
        signals = await self._signals.read()
        in_force = readable(await in_bytes(self._redis).get(self._keys.rules), RulesInForce)
        rows = rows_of(signals.processes, signals.now, in_force.digest if in_force is not None else "")
        return self._renderers.page(
            request,
            "incidents.html",
            processes=rows[:SHOWN] if person.institutions is None else [],
            left_out=max(0, len(rows) - SHOWN),
            problem=problem,
            page_address=self._base,
            incidents=_together(_seen_by(person, signals), person),
            may_change=person.may(Role.SUPERVISOR),
            is_of_all=person.institutions is None,
            lengths=LENGTHS,
            typed=typed or {},
            has_retried="retried" in request.query_params,
        )

    async def _acknowledge(self, request: Request, form: Mapping[str, str]) -> str:
        if form.get("lasts") not in LENGTHS:
            raise FormRefused(400, "Choose for how long.")
        note = " ".join(form.get("note", "").split())[:200]
        operator = operator_of(visitor_of(request).person)
        named = await self._named(request, form)
        keys, lasts = [incident.institution_key for incident in named], LENGTHS[form["lasts"]][1]
        await self._acknowledging.acknowledge(
            named[0].kind, *keys, operator=operator, lasts=lasts, note=note, parts=parts_of(named)
        )
        return self._base

    async def _end(self, request: Request, form: Mapping[str, str]) -> str:
        person = visitor_of(request).person
        operator_of(person)
        known = {one.acknowledged for one in await self._named(request, form)} - {None}
        if person.institutions is not None and any(one and not one.institution_key for one in known):
            raise FormRefused(403, "You may not do this for all institutions.")
        ended = [await self._acknowledging.end(IncidentKind(one.kind), one.institution_key) for one in known if one]
        if not any(ended):
            raise FormRefused(409, "Nothing was changed: nobody has acknowledged this incident.")
        return self._base

    async def _named(self, request: Request, form: Mapping[str, str]) -> list[Incident]:
        """Return the incidents of the card that a form is about: of one institution, of all, or of those that it names."""
        kind, key, person = form.get("kind", ""), form.get("institution", ""), visitor_of(request).person
        if kind not in set(IncidentKind):
            raise FormRefused(400, "Choose an incident.")
        if person.institutions is not None and not (key and person.may_see(key)):
            raise FormRefused(403, "You may not do this for all institutions.")
        found = [one for one in _seen_by(person, await self._signals.read()) if one.kind == kind]
        cards = [one for one in _together(found, person) if one.institution_key == key]
        cards = [one for one in cards if not one.institutions or one.known == form.get("known", "")]
        keys = {each for one in cards for each in one.institutions or (key,)}
        if not keys:
            raise FormRefused(409, _CHANGED)
        where = ",".join(sorted(keys))[:_LONGEST_PLACE]
        note_of(request).complete(institution=where, detail=f"{request.url.path.rpartition('/')[2]} {kind}")
        return [one for one in found if one.institution_key in keys]

    async def _retry(self, request: Request, _form: Mapping[str, str]) -> str:
        operator_of(visitor_of(request).person)
        await retry_service(self._redis, self._keys)
        return f"{self._base}?retried=1"


def _seen_by(person: Person, signals: Signals) -> list[Incident]:
    """Return the incidents that a person may see."""
    found = incidents_of(signals)
    shown = [each for each in found if not each.institution_key or person.may_see(each.institution_key)]
    if person.institutions is None:
        return shown
    return [replace(each, detail=each.limited_detail or each.detail) for each in shown]


def _together(found: Sequence[Incident], person: Person) -> list[Incident]:
    """Return the cards. For a person who sees all institutions, equal incidents of many are one card."""
    return merged(found) if person.institutions is None else list(found)
