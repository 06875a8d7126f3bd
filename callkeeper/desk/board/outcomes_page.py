"""The page of outcomes: the delivery log, posting again, posting a test."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper.calls.quantity import quantity
from callkeeper.calls.store.delivery_log import SPANS, Attempt, DeliveryLog, Replays, latest_of_each, place_of
from callkeeper.calls.store.queries import Queries
from callkeeper.desk.access.rights import Person, Role
from callkeeper.desk.access.visitor import may_see, note_of, visitor_of
from callkeeper.desk.board.form_handlers import FormRefused, form_route
from callkeeper.desk.board.renderer import Renderers
from callkeeper.desk.board.rows import address_of

SHOWN: Final = 200
"""How many attempts the page shows."""

ANSWERED_S: Final = 4.0
"""How long a form waits for a worker to post, so that the next page shows the result."""

_POLL_EVERY_S: Final = 0.2
NOBODY_POSTS: Final = (
    "No worker posts outcomes. Set CALLKEEPER_OUTCOME_URL and CALLKEEPER_OUTCOME_SECRET for the workers."
)


@dataclass(frozen=True, slots=True)
class _Row:
    attempt: Attempt
    institution: str
    address: str
    """The call's page, below the board; empty for a test."""
    may_replay: bool
    """It is the newest attempt for its message, and no test."""


class OutcomesPage:
    """Answers one request each."""

    def __init__(self, redis: Redis, queries: Queries, renderers: Renderers, *, now: Callable[[], datetime]) -> None:
        outbox = queries.keys.outbox
        self._queries = queries
        self._renderers = renderers
        self._now = now
        self._log = DeliveryLog(redis, outbox)
        self._replays = Replays(redis, outbox)
        self._address = f"{renderers.base}/outcomes"

    def routes(self) -> list[Route]:
        return [
            Route(self._address, self.show),
            form_route(f"{self._address}/test", self._test, self.show),
            form_route(f"{self._address}/replay", self._replay, self.show, "id"),
            form_route(f"{self._address}/replay-failed", self._replay_failed, self.show, "since"),
        ]

    async def _refuse_if_nobody_posts(self) -> None:
        if await self._log.receiver() is None:
            raise FormRefused(409, NOBODY_POSTS)

    async def _test(self, _request: Request, _form: dict[str, str]) -> str:
        await self._refuse_if_nobody_posts()
        name = await self._replays.test()
        return await self._answered(name, None)

    async def _replay(self, request: Request, form: dict[str, str]) -> str:
        await self._refuse_if_nobody_posts()
        name = form.get("id", "")
        place = place_of(name)
        if place is None or not may_see(request, place[0].institution_key) or not await self._queries.load(place[0]):
            raise FormRefused(404, "This message is not known any more: its call is no longer kept.")
        note_of(request).complete(institution=place[0].institution_key, voice_id=place[0].voice_id)
        before = await self._log.read(1, message_id=name)
        await self._replays.one(*place)
        return await self._answered(name, before[0] if before else None)

    async def _replay_failed(self, _request: Request, form: dict[str, str]) -> str:
        """Try everything undelivered that failed since a time."""
        await self._refuse_if_nobody_posts()
        span = SPANS.get(form.get("since", ""))
        if span is None:
            raise FormRefused(400, "Choose since when.")
        return f"{self._address}?of={await self._replays.failed_since(self._now() - span)}"

    async def _answered(self, name: str, before: Attempt | None) -> str:
        """Wait a little for a worker to post. Return the address at which the page marks the attempt."""
        for _ in range(int(ANSWERED_S / _POLL_EVERY_S)):
            newest = await self._log.read(1, message_id=name)
            if newest and newest[0] != before:
                return f"{self._address}?of=posted&id={quote(name, safe='')}"
            await asyncio.sleep(_POLL_EVERY_S)
        return f"{self._address}?of=waiting"

    async def show(self, request: Request, problem: FormRefused | None = None, _form: object = None) -> Response:
        """Show the last attempts, or only those that failed."""
        failed = request.query_params.get("failed") == "1"
        person = visitor_of(request).person
        attempts = [attempt for attempt in await self._log.read() if _is_for(attempt, person)]
        shown = [attempt for attempt in attempts if not (failed and attempt.was_taken)][:SHOWN]
        return self._renderers.page(
            request,
            "outcomes.html",
            problem=problem,
            page_address=self._address,
            rows=await self._rows(shown, attempts),
            receiver=await self._log.receiver(),
            may_change=person.may(Role.SUPERVISOR),
            may_all=person.may(Role.SUPERVISOR) and person.institutions is None,
            nobody=NOBODY_POSTS,
            is_failed_only=failed,
            marked=request.query_params.get("id", ""),
            spans=SPANS,
            notice=_notice(request.query_params.get("of", "")),
        )

    async def _rows(self, shown: Sequence[Attempt], attempts: Sequence[Attempt]) -> list[_Row]:
        latest, known = latest_of_each(attempts), await self._queries.institutions()
        rows = []
        for attempt in shown:
            call_id = attempt.call_id
            name = known.names.get(call_id.institution_key) or call_id.institution_key if call_id else ""
            may_replay = call_id is not None and latest[attempt.id] is attempt
            rows.append(_Row(attempt, name, address_of(call_id) if call_id else "", may_replay))
        return rows


def _is_for(attempt: Attempt, person: Person) -> bool:
    """Tell whether a person may see an attempt. One about no call is for people who see all institutions."""
    call_id = attempt.call_id
    return person.institutions is None if call_id is None else person.may_see(call_id.institution_key)


def _notice(what: str) -> str:
    """Describe the result of the previous form."""
    if what.isascii() and what.isdecimal() and len(what) < 7:
        return f"The undelivered messages of {quantity(int(what), 'call')} are tried now."
    return {
        "posted": "Posted. The attempt is marked below.",
        "waiting": "Not posted yet: a worker posts it as soon as the receiver is tried again.",
    }.get(what, "")
