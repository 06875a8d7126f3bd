"""The page of pauses: what is paused, by whom, the history, and the forms that pause and resume."""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper.calls.pause import EVERYWHERE
from callkeeper.calls.store.pausing import Pausing, past_pauses
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.access.rights import Role
from callkeeper.desk.access.visitor import visitor_of
from callkeeper.desk.board.audience import pauses_for
from callkeeper.desk.board.form_handlers import FormHandlers, FormRefused
from callkeeper.desk.board.renderer import Renderers

HISTORY_SHOWN: Final = 50
"""How many pauses of the history the page shows."""


class PausingPage:
    """Answers one request each."""

    def __init__(self, pauses: Pausing, queries: Queries, forms: FormHandlers, renderers: Renderers) -> None:
        self._pauses = pauses
        self._queries = queries
        self._forms = forms
        self._renderers = renderers
        self._base = renderers.base

    def routes(self) -> list[Route]:
        return [
            Route(f"{self._base}/pausing", self.show),
            self._forms.route(
                f"{self._base}/pause", self._pause, partial(self.show, what="pause"), "scope", "institution", "because"
            ),
            self._forms.route(
                f"{self._base}/resume",
                self._resume,
                partial(self.show, what="resume"),
                "institution",
                "because",
                "newest",
            ),
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

    async def _pause(self, request: Request, form: dict[str, str]) -> str:
        await self._forms.pause(request, form)
        return self._base

    async def _resume(self, request: Request, form: dict[str, str]) -> str:
        await self._forms.resume(request, form)
        return self._base
