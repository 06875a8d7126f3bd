"""The sender of a request and its audit entry; both are in the request's scope."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from redis.exceptions import RedisError
from starlette.types import Message, Scope, Send

from calls.store.attempt_limiter import AttemptLimiter
from calls.store.audit_log import AuditEntry, AuditEvent, AuditLog
from desk.access.people import Sessions
from desk.access.rights import Person
from desk.access.routes import RouteRule, rule_of
from desk.signing import Signer

_VISITOR: Final = "callkeeper.visitor"
_NOTE: Final = "callkeeper.audit"

AGAIN_S: Final = 600.0
"""Seconds after which another look at the same thing gets an entry of its own."""

LOOK_EVERY_S: Final = 15.0
"""Seconds between two checks whether an open stream may continue."""

_UNWRITTEN: Final = b"Redis does not answer: this cannot be written into the audit log, so it is not shown.\n"
_LONGEST_DETAIL: Final = 120


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request to a page. ``forms`` signs the tokens of their forms; ``cookie`` is their session's."""

    person: Person
    forms: Signer
    cookie: str = ""
    sessions: Sessions | None = None

    def goes_to(self, path: str) -> bool:
        """Tell whether they may see the page of an address."""
        return rule_of("GET", path)[0].admits(self.person)

    async def is_still_here(self) -> bool:
        """Tell whether the session is still open, and renew it. True if there is no session.

        Raises:
            redis.exceptions.RedisError: Redis is away.
        """
        return self.sessions is None or await self.sessions.renew(self.cookie) == self.person


def visitor_of(request: Mapping[str, Any]) -> Visitor:
    """Return the visitor of a request or its scope, whom `desk.access.gate` has identified."""
    visitor: Visitor = request[_VISITOR]
    return visitor


def with_visitor(scope: Scope, visitor: Visitor) -> Scope:
    """Return a request's scope with its visitor."""
    return {**scope, _VISITOR: visitor}


async def while_here(
    events: AsyncGenerator[bytes], is_here: Callable[[], Awaitable[bool]], *, every_s: float = LOOK_EVERY_S
) -> AsyncGenerator[bytes]:
    """Yield a stream's events until its reader loses the right to it. The session is renewed meanwhile."""
    look_at = time.monotonic() + every_s
    async with aclosing(events):
        async for event in events:
            if time.monotonic() >= look_at:
                with suppress(RedisError, OSError, TimeoutError):  # nobody can have been turned away meanwhile
                    if not await is_here():
                        return
                look_at = time.monotonic() + every_s
            yield event


@dataclass(slots=True)
class AuditNote:
    """The audit entry of a request, written when it is answered; its handler may add to it."""

    event: AuditEvent | None
    who: str
    operator: str
    parts: dict[str, str] = field(default_factory=dict)
    page: str = ""
    """The kind of page that was asked for."""

    def say(self, event: AuditEvent | None = None, **parts: str) -> None:
        """Complete the entry: another event, an institution, a call, a detail."""
        self.event = event or self.event
        self.parts.update(parts)

    def deny(self, **parts: str) -> None:
        """Record a refusal, by default with the kind of page only: somebody may have typed anything into the address."""
        self.event, self.parts = AuditEvent.DENIED, {"detail": self.page, **parts}


def note_of(request: Mapping[str, Any]) -> AuditNote:
    """Return the audit entry of a request."""
    note: AuditNote = request.get(_NOTE) or AuditNote(None, "", "")
    return note


def with_note(scope: Scope, note: AuditNote) -> Scope:
    """Return a request's scope with its audit entry."""
    return {**scope, _NOTE: note}


class Auditor:
    """Writes audit entries before the answers are sent. If an entry cannot be written, the answer is not sent."""

    def __init__(self, log: AuditLog) -> None:
        self.log = log
        self._looks = AttemptLimiter(allowed=1, every_s=AGAIN_S)

    def note(self, person: Person, rule: RouteRule, parts: dict[str, str]) -> AuditNote:
        """Begin an entry. Viewers see no personal data, so there is no entry when they look."""
        is_idle_look = rule.event is AuditEvent.VIEWED and not person.sees_people
        return AuditNote(None if is_idle_look else rule.event, person.id, person.operator, parts, rule.name)

    def listening(self, send: Send, note: AuditNote) -> Send:
        """Return a ``send`` that writes the entry when the answer begins. While Redis is unreachable it answers 503."""
        is_refused = False

        async def send_audited(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start":
                try:
                    await self.write(note, message["status"])
                except (RedisError, OSError, TimeoutError):
                    is_refused = True
                    await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"5")]})
                    await send({"type": "http.response.body", "body": _UNWRITTEN})
            if not is_refused:
                await send(message)

        return send_audited

    async def write(self, note: AuditNote, status: int) -> None:
        """Write an entry, unless it is one more look at the same thing.

        Raises:
            redis.exceptions.RedisError: Redis is away or takes no writes.
        """
        if note.event is None:
            return
        look = repr((note.who, sorted(note.parts.items())))
        if note.event is AuditEvent.VIEWED and (status >= 400 or self._looks.count(look)):
            return
        # If a request fails before its call was found, the names in its address are only what somebody typed.
        is_found = status < 400 or status == 409 or note.event is AuditEvent.DENIED
        parts = {name: part[:_LONGEST_DETAIL] for name, part in note.parts.items()} if is_found else {}
        await self.log.write(AuditEntry(event=note.event, who=note.who, operator=note.operator, status=status, **parts))
