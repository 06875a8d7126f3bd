"""The page of the survey: what traffic says of each assumption about the service. It changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import Keys
from callkeeper.calls.survey import VERDICTS, Sight, Survey, SurveyRow, rows_of
from callkeeper.desk.access.rights import Person
from callkeeper.desk.access.visitor import visitor_of
from callkeeper.desk.board.renderer import Renderers


@dataclass(frozen=True, slots=True)
class SurveyPage:
    """Serves the page."""

    redis: Redis
    keys: Keys
    renderers: Renderers

    def routes(self) -> list[Route]:
        return [Route(f"{self.renderers.base}/survey", self.show)]

    async def show(self, request: Request) -> Response:
        """Show the table, contradicted assumptions first."""
        rows = rows_of(Survey.parse(await in_bytes(self.redis).hgetall(self.keys.survey)))
        return self.renderers.page(
            request,
            "survey.html",
            groups=[(verdict, [row for row in rows if row.verdict is verdict]) for verdict in VERDICTS],
            seen=_Seen(visitor_of(request).person),
        )


@dataclass(frozen=True, slots=True)
class _Seen:
    """Words for what was seen, with the institutions that the visitor may see."""

    person: Person

    def words(self, sight: Sight) -> str:
        shape = f": {sight.shape}" if sight.shape else ""
        return f"{sight.times}{sight.where(self.person.may_see)}{shape}"

    def lines(self, row: SurveyRow) -> Sequence[str]:
        """Return what was seen otherwise, the contradictions first."""
        others = sorted(row.others, key=lambda pair: pair[0].holds)
        return [f"{answer.words} ({answer.name}), {self.words(sight)}" for answer, sight in others]

    def last(self, row: SurveyRow) -> Sight | None:
        """Return what was seen last of an assumption."""
        sights = [sight for _, sight in row.others] + ([row.usual] if row.usual is not None else [])
        return max(sights, key=lambda sight: sight.last, default=None)
