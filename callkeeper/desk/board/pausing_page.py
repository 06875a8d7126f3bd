"""The page of pauses: what is paused, by whom, the history, and the forms that pause and resume."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper.calls.pause import EVERYWHERE, Pause, PauseScope, why_not_resumed
from callkeeper.calls.store.pausing import Pausing, past_pauses
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.access.rights import Person, Role
from callkeeper.desk.access.visitor import note_of, visitor_of
from callkeeper.desk.board.audience import pauses_for
from callkeeper.desk.board.form_handlers import FormRefused, form_route, operator_of
from callkeeper.desk.board.renderer import Renderers

HISTORY_SHOWN: Final = 50
"""How many pauses of the history the page shows."""


class PausingPage:
    """Answers one request each."""

    def __init__(self, pauses: Pausing, queries: Queries, renderers: Renderers, *, now: Callable[[], datetime]) -> None:
        self._now = now
        self._pauses = pauses
        self._queries = queries
        self._renderers = renderers
        self._base = renderers.base

    def routes(self) -> list[Route]:
        base, fields = self._base, ("institution", "because")
        pause_refused, resume_refused = (partial(self.show, what=what) for what in ("pause", "resume"))
        return [
            Route(f"{base}/pausing", self.show),
            form_route(f"{base}/pause", self._pause, pause_refused, "scope", *fields),
            form_route(f"{base}/resume", self._resume, resume_refused, "newest", *fields),
        ]

    async def show(
        self,
        request: Request,
        problem: FormRefused | None = None,
        typed: Mapping[str, str] | None = None,
        *,
        what: str = "",
    ) -> Response:
        """Show what is paused, with the forms that change it. ``typed``: the fields of the form ``what`` if it was refused.

        The link beside a pause preselects its institution in the form to resume.
        """
        fields = {"pause": {}, "resume": {"institution": request.query_params.get("resume", "")}, what: typed or {}}
        person, known = visitor_of(request).person, await self._queries.institutions()
        if person.institutions is not None:
            known = known.visible(person.may_see)
        pauses = pauses_for(await self._pauses.pauses(), person.institutions)
        history = [
            past
            for past in past_pauses(await self._pauses.history())
            if past.begun.institution == EVERYWHERE or person.may_see(past.begun.institution)
        ]
        piece = self._renderers.of(person).piece("pauses", pauses, known)
        return self._renderers.page(
            request,
            "pausing.html",
            problem=problem,
            page_address=f"{self._base}/pausing",
            pauses=pauses.by_institution,
            pauses_piece=Markup(piece),  # noqa: S704  (our own template wrote it)
            known=known,
            history=history[:HISTORY_SHOWN],
            may_change=person.may(Role.SUPERVISOR),
            may_all=person.institutions is None,
            typed={form: defaultdict(str, values) for form, values in fields.items()},
        )

    async def _pause(self, request: Request, form: Mapping[str, str]) -> str:
        """Pause what the form names; return the address of the board.

        Raises:
            FormRefused: A field is wrong, there is no such institution, or more is paused there already.
        """
        person = visitor_of(request).person
        operator, because = operator_of(person), _because(form)
        if form.get("scope") not in set(PauseScope):
            raise FormRefused(400, "Choose what is to be paused.")
        place, scope = _institution(form, person), PauseScope(form["scope"])
        known = (await self._queries.institutions()).visible(person.may_see)
        _note_denial(request, place)
        if place is not None and (problem := known.problem(place)):
            raise FormRefused(400, f"Nothing was paused: {problem}")
        note_of(request).complete(institution=place or EVERYWHERE, detail=scope)
        more = (await self._pauses.pauses()).more_than(place, scope)
        if more is not None:
            raise FormRefused(
                409, f"Nothing was changed: everything automatic is paused there already ({more.reason})."
            )
        await self._pauses.pause(place, Pause(scope=scope, operator=operator, because=because, at=self._now()))
        return self._base

    async def _resume(self, request: Request, form: Mapping[str, str]) -> str:
        """Lift the pause that the form names; return the address of the board.

        Raises:
            FormRefused: A field is wrong, there is no such pause, or it is newer than the form.
        """
        person = visitor_of(request).person
        operator, because, place = operator_of(person), _because(form), _institution(form, person)
        pauses = pauses_for(await self._pauses.pauses(), person.institutions)
        known = (await self._queries.institutions()).visible(person.may_see)
        _note_denial(request, place)
        problem = why_not_resumed(place, pauses, known) or _unseen(form, pauses.by_institution[place or EVERYWHERE])
        if problem is not None:
            raise FormRefused(409, f"Nothing was resumed: {problem}")
        note_of(request).complete(institution=place or EVERYWHERE)
        await self._pauses.resume(place, operator=operator, because=because, at=self._now())
        return self._base


def _unseen(form: Mapping[str, str], pause: Pause) -> str | None:
    """Return why a form does not lift a pause: it is newer than all that the form's page showed. None if it is not."""
    try:
        newest_ms = int(form.get("newest", ""))
    except ValueError:
        return None  # whoever writes forms can write any time
    if int(pause.at.timestamp() * 1000) > newest_ms:
        return f"since this page was opened, something else was paused there: {pause.words}"
    return None


def _note_denial(request: Request, place: str | None) -> None:
    """Record that a form names an institution which its sender may not see; the answer does not tell that it exists."""
    if place is not None and not visitor_of(request).person.may_see(place):
        note_of(request).deny(place)


def _institution(form: Mapping[str, str], person: Person) -> str | None:
    """Return the institution that a form names; None for all. A blank field never means all."""
    if "institution" not in form:
        raise FormRefused(400, "Choose an institution, or all institutions.")
    if form["institution"] != EVERYWHERE:
        return form["institution"]
    if person.institutions is not None:
        raise FormRefused(403, "You may not do this for all institutions: choose one.")
    return None


def _because(form: Mapping[str, str]) -> str:
    because = " ".join(form.get("because", "").split())[:200]
    if not because:
        raise FormRefused(400, "Say why. The trails will show it.")
    return because
