"""``/desk/stream``: calls that change, as server-sent events; and the tickets with which browsers connect.

An event holds the whole call as it is now, so a client that missed some is up to date after the next. ``id`` is the
position in the stream. A client that sends it as ``Last-Event-ID`` gets everything that changed since, from any web
process. If too much changed meanwhile, the event ``reset`` asks the client to list the calls again.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from hashlib import sha256
from typing import Final

import msgspec
from redis.asyncio import Redis
from starlette.requests import Request
from starlette.responses import Response

from callkeeper.calls.item_names import CallId
from callkeeper.calls.phone_number import same_number
from callkeeper.calls.policies import Policies
from callkeeper.calls.store.change_stream import START, Changes, is_position, order
from callkeeper.calls.store.in_bytes import in_bytes
from callkeeper.calls.store.keys import KEYS, Keys
from callkeeper.desk.access.access_changes import AccessChanges
from callkeeper.desk.access.desk_tokens import DeskToken, DeskTokens
from callkeeper.desk.feed import CallChange, Feed, Listener
from callkeeper.desk.problems import invalid, too_many
from callkeeper.desk.quotas import OpenStreams, QuotaUsed
from callkeeper.desk.signed_tokens import FROM_THE_FUTURE_S, Signer, key_for
from callkeeper.desk.views import GoneView, TicketView, call_view
from callkeeper.service.endpoints import canonical_id

HEARTBEAT_S: Final = 15.0
"""Seconds without an event after which a comment is sent, to keep the connection alive."""

STREAMS_PER_TOKEN: Final = 1024
"""How many streams one token may have open in a process, unless it has fewer connections."""

STREAMS_PER_AGENT: Final = 8
"""How many streams an agent may have open in a process with tokens that were minted for their pages."""

TICKET_S: Final = 30
"""How long a ticket waits to be used, once."""


class Tickets:
    """Tickets for one connection each: a browser's EventSource sends no header, and a token in an address would be logged.

    A ticket is signed with a key of its token. Redis holds the tickets that were not used yet, by their SHA-256: reading
    Redis does not give a usable one.
    """

    def __init__(self, redis: Redis, tokens: DeskTokens, *, keys: Keys = KEYS) -> None:
        self._redis = in_bytes(redis)
        self._tokens = tokens
        self._keys = keys

    async def issue(self, token: DeskToken) -> TicketView:
        """Return a new ticket for the holder of a token."""
        ticket = _signer(token).issue()
        await self._redis.set(self._key(ticket), token.name, ex=TICKET_S)
        return TicketView(ticket, TICKET_S)

    async def redeem(self, ticket: str) -> DeskToken | None:
        """Return the token of a ticket, and invalidate the ticket."""
        name = await self._redis.getdel(self._key(ticket))
        owner = await self._tokens.by_name(name.decode()) if name is not None else None
        return owner if owner is not None and _signer(owner).is_valid(ticket) else None

    def _key(self, ticket: str) -> str:
        return self._keys.ticket(sha256(ticket.encode("utf-8", "replace")).hexdigest())


def _signer(token: DeskToken) -> Signer:
    """Return the signer of a token's tickets. The token is random, so its key needs no slow derivation."""
    key = key_for("stream tickets", token.secret.reveal().encode())
    return Signer(key, valid_s=TICKET_S + FROM_THE_FUTURE_S)


class _Wanted:
    """Which changes one reader asks for, of those that the token may see."""

    def __init__(self, token: DeskToken, query: Mapping[str, str], country: str) -> None:
        self.token = token
        self._institution = query.get("institution")
        self._phone = query.get("phone")
        self._ids = {query["id"], canonical_id(query["id"])} if "id" in query else None
        self._country = country
        self._told: set[CallId] = set()

    def includes(self, change: CallChange) -> bool:
        """Tell whether the reader is told. That a call is gone is told if it is asked for by id, or was told before."""
        key, call = change.call_id.institution_key, change.call
        if not self.token.may_see(key) or self._institution not in {None, key}:
            return False
        if call is None:
            is_named = self._phone is None and (self._ids is None or change.call_id.voice_id in self._ids)
            return is_named or change.call_id in self._told
        is_meant = self._ids is None or bool(self._ids & {call.voice_id, call.names.alternate_id})
        is_meant = is_meant and (
            self._phone is None or same_number(call.names.phone_number or "", self._phone, self._country)
        )
        if is_meant and (self._phone or self._ids):
            self._told.add(change.call_id)
        return is_meant


class Stream:
    """Streams changes to each client at its own pace."""

    def __init__(
        self,
        feed: Feed,
        changes: Changes,
        policies: Policies,
        tokens: DeskTokens,
        access: AccessChanges,
        *,
        per_token: int = STREAMS_PER_TOKEN,
        country: str = "US",
    ) -> None:
        self._feed = feed
        self._changes = changes
        self._policies = policies
        self._tokens = tokens
        self._access = access
        self._country = country
        self._open = OpenStreams(per_token)
        self._open_of_agents = OpenStreams(STREAMS_PER_AGENT)

    @property
    def count(self) -> int:
        """Return how many are open."""
        return self._open.count + self._open_of_agents.count

    async def respond(self, request: Request, token: DeskToken) -> Response:
        """Begin the stream of what a token may see.

        Raises:
            Problem: The place to resume from cannot be, or the token has too many streams.
        """
        after = request.headers.get("last-event-id") or request.query_params.get("last_event_id")
        if after is not None and not is_position(after):
            raise invalid("Last-Event-ID", "must be the id of an event")
        wanted = _Wanted(token, request.query_params, self._country)
        events = self._access.while_admitted(
            self._events(wanted, after), partial(self._tokens.is_good, token), until=token.expires_at
        )
        streams = self._open if token.agent is None else self._open_of_agents
        try:
            return streams.response(token.holder, events)
        except QuotaUsed:
            raise too_many("too_many_streams") from None

    async def _events(self, wanted: "_Wanted", after: str | None) -> AsyncGenerator[bytes]:
        with self._feed.listen() as listener:
            yield b"retry: 1000\n\n"
            async with aclosing(self._changes_since(after, listener)) as changes:
                async for change in changes:
                    if isinstance(change, bytes):
                        yield change
                    elif wanted.includes(change):
                        yield self._event(change, wanted.token)

    async def _changes_since(self, after: str | None, listener: Listener) -> AsyncGenerator[CallChange | bytes]:
        """Yield the missed changes, then new ones, each once."""
        seen = after or START
        if after is not None and not await self._changes.holds_all_since(after):
            seen = await self._changes.last()
            yield b"event: reset\nid: %b\ndata: {}\n\n" % seen.encode()
        last = START if after is None else await self._changes.last()
        while order(seen) < order(last) and (entries := await self._changes.between(seen, last)):
            for change in await self._feed.read(entries):
                yield change
            seen = entries[-1][0]
        while not listener.is_over:
            change_now = await listener.next(HEARTBEAT_S)
            if change_now is None:
                yield b": heartbeat\n\n"
            elif order(change_now.id) > order(seen):
                yield change_now

    def _event(self, change: CallChange, token: DeskToken) -> bytes:
        call_id, call = change.call_id, change.call
        gone = GoneView(call_id.institution_key, call_id.voice_id)
        view = gone if call is None else call_view(call, self._policies, sees_people=token.sees_people)
        name = b"gone" if call is None else b"call"
        return b"event: %b\nid: %b\ndata: %b\n\n" % (name, change.id.encode(), msgspec.json.encode(view))
