"""The page of one outcome's message: its payload, and each attempt to post it with the receiver's answer."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from redis.asyncio import Redis
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callkeeper.archive.errors import ArchiveAway
from callkeeper.calls.item_names import CallId
from callkeeper.calls.outcome_messages import TEST_TYPE, TestMessage, message_id, message_of, payload_digest
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.store.delivery_log import Attempt, DeliveryLog, place_of
from callkeeper.calls.store.queries import Known, Queries
from callkeeper.desk.access.rights import Role
from callkeeper.desk.access.visitor import note_of, visitor_of
from callkeeper.desk.board.renderer import Renderers
from callkeeper.desk.board.rows import address_of

KnownCall = Callable[[CallId], Awaitable[Known | None]]


@dataclass(frozen=True, slots=True)
class Payload:
    """A message's body as text, and its digest. Empty if the call is not known any more."""

    text: str = ""
    digest: str = ""

    @classmethod
    def of(cls, body: bytes) -> "Payload":
        return cls(msgspec.json.format(body, indent=2).decode(), payload_digest(body))


def payload_of(known: Known | None, name: str, attempts: Sequence[Attempt]) -> Payload:
    """Build a message's body again: of an outcome from its call, of a test from when it was posted."""
    if name.startswith(f"{TEST_TYPE}."):
        at = max((attempt.at for attempt in attempts), default=None)
        return Payload.of(msgspec.json.encode(TestMessage(timestamp=at))) if at is not None else Payload()
    if known is not None:
        for outcome in outcomes(known.trail):
            if message_id(known.call_id, outcome) == name:
                return Payload.of(msgspec.json.encode(message_of(known.call, outcome)))
    return Payload()


class MessagePage:
    """Answers one request."""

    def __init__(self, redis: Redis, queries: Queries, known: KnownCall, renderers: Renderers) -> None:
        """Put the parts together; ``known`` returns a call with its trail, from Redis or the archive."""
        self._queries = queries
        self._known = known
        self._renderers = renderers
        self._log = DeliveryLog(redis, queries.keys.outbox)

    def routes(self) -> list[Route]:
        return [Route(f"{self._renderers.base}/outcomes/message", self.show)]

    async def show(self, request: Request) -> Response:
        """Show a message by its id."""
        name, person = request.query_params.get("id", ""), visitor_of(request).person
        place = place_of(name)
        call_id = place[0] if place is not None else None
        may_see = person.institutions is None if call_id is None else person.may_see(call_id.institution_key)
        if not may_see:
            note_of(request).deny(call_id.institution_key if call_id is not None else "")
            raise HTTPException(404)
        attempts = await self._log.read(message_id=name)
        try:
            known = await self._known(call_id) if call_id is not None else None
        except ArchiveAway:
            if not attempts:
                raise
            known = None  # the attempts are in Redis
        payload = payload_of(known, name, attempts)
        if not attempts and not payload.text:
            raise HTTPException(404)
        institution = ""
        if call_id is not None:
            note_of(request).complete(institution=call_id.institution_key, voice_id=call_id.voice_id)
            names = (await self._queries.institutions()).names
            institution = names.get(call_id.institution_key) or call_id.institution_key
        receiver = await self._log.receiver()
        return self._renderers.page(
            request,
            "message.html",
            name=name,
            kind=attempts[0].type if attempts else f"call.{name.rpartition('.')[2]}",
            institution=institution,
            address=address_of(call_id) if call_id is not None else "",
            attempts=attempts,
            payload=payload,
            receiver=receiver,
            may_replay=bool(known and receiver and person.may(Role.SUPERVISOR)),
        )
