"""The sender of a request and its audit entry; both are in the request's scope."""

import asyncio
import hmac
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from math import inf
from typing import Any, Final

from msgspec.structs import replace
from redis.exceptions import RedisError, ResponseError
from starlette.requests import HTTPConnection
from starlette.types import Message, Scope, Send

from callkeeper.calls.pause import EVERYWHERE
from callkeeper.calls.store.audit_log import AuditEntry, AuditEvent, AuditLog
from callkeeper.calls.store.cancelling import end
from callkeeper.calls.store.writable import REFUSALS, hindrance, refusal_in
from callkeeper.desk.access.people import Sessions
from callkeeper.desk.access.required_roles import RouteRule, rule_of
from callkeeper.desk.access.rights import Person
from callkeeper.desk.signed_tokens import Signer

_VISITOR: Final = "callkeeper.visitor"
_NOTE: Final = "callkeeper.audit"

AGAIN_S: Final = 600.0
"""Seconds after which another look at the same thing gets an entry of its own."""

_CLOSED_LISTS: Final = frozenset({"phase", "state", "outcome"})
"""Filters whose values are words of ours. They are written as they are."""

_WRITTEN_EVERY_S: Final = 20.0
_MOST_REPEATED: Final = 4096

_MOST_STRANGERS: Final = 200
"""How many addresses of strangers are written at a time. Refusals from further ones are entered without an address."""

_LONGEST_DETAIL: Final = 400
_BOARD: Final = rule_of("GET", "/board")[0].name
"""The page that says what is wrong. A person who has looked at it may look again while Redis takes no writes."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request to a page.

    Attributes:
        forms: Signs the tokens of their forms.
        cookie: Their session's.
        is_emergency: It is the shared login, used from elsewhere: whoever says something about a call says who they are.
    """

    person: Person
    forms: Signer
    cookie: str = ""
    sessions: Sessions | None = None
    is_emergency: bool = False

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
    """Return the visitor of a request or its scope, whom `callkeeper.desk.access.authorization` has identified."""
    visitor: Visitor = request[_VISITOR]
    return visitor


def with_visitor(scope: Scope, visitor: Visitor) -> Scope:
    """Return a request's scope with its visitor."""
    return {**scope, _VISITOR: visitor}


@dataclass(slots=True)
class AuditNote:
    """The audit entry of a request, written when it is answered; its handler may add to it."""

    event: AuditEvent | None
    who: str
    operator: str
    parts: dict[str, str] = field(default_factory=dict)
    page: str = ""
    """The kind of page that was asked for."""
    filters: Mapping[str, str] = field(default_factory=dict)
    """What a list or search was filtered by, as it was typed. It is written as hashes."""
    results: int | None = None
    """How many results it had."""
    is_found: bool = False
    """What the address names exists, and is shown, even if the answer is a refusal."""
    denied_of: str = ""
    """The institution that a refused request named. The entry has it if there is one of this key."""
    origin: str = ""
    """The address that the request came from. Entries of refusals and failed logins have it."""

    def complete(self, event: AuditEvent | None = None, **parts: str) -> None:
        """Complete the entry: another event, an institution, a call, a detail."""
        self.event = event or self.event
        self.parts.update(parts)

    def add(self, words: str) -> None:
        """Add to the detail of the entry."""
        self.parts["detail"] = "; ".join(filter(None, (self.parts.get("detail"), words)))

    def listed(self, filters: Mapping[str, str], results: int, **parts: str) -> None:
        """Record the filters of a list or search, and how many results were shown."""
        self.filters, self.results = filters, results
        self.parts.update(parts)

    def deny(self, of: str = "", **parts: str) -> None:
        """Record a refusal, by default with the kind of page only: somebody may have typed anything into the address.

        Args:
            of: The institution that the request names. It is written if there is one of this key.
            parts: What is known to be nothing that was only typed.
        """
        self.event, self.filters, self.results, self.denied_of = AuditEvent.DENIED, {}, None, of
        self.parts = {"detail": self.page, **parts}


def place_of(institutions: frozenset[str] | None) -> str:
    """Return what the audit log has in place of an institution if somebody asks about all that they may see."""
    return EVERYWHERE if institutions is None else ",".join(sorted(institutions))


def note_of(request: Mapping[str, Any]) -> AuditNote:
    """Return the audit entry of a request."""
    note: AuditNote = request.get(_NOTE) or AuditNote(None, "", "")
    return note


def with_note(scope: Scope, note: AuditNote) -> Scope:
    """Return a request's scope with its audit entry."""
    return {**scope, _NOTE: note}


def may_see(request: Mapping[str, Any], institution_key: str) -> bool:
    """Tell whether the visitor may see an institution that a request names; if not, the audit entry says so."""
    is_theirs = visitor_of(request).person.may_see(institution_key)
    if not is_theirs:
        note_of(request).deny(institution_key)
    return is_theirs


def origin_of(request: HTTPConnection) -> str:
    """Return the address that a request came from, as our outermost router saw it; empty if there is none."""
    return request.client.host if request.client is not None else ""


_WITH_ORIGIN: Final = frozenset({AuditEvent.DENIED, AuditEvent.LOGIN_FAILED})
"""Events whose entries have the address that the request came from."""

_REPEATED: Final = frozenset({AuditEvent.VIEWED, AuditEvent.SEARCHED, AuditEvent.DENIED, AuditEvent.LOGIN_FAILED})
"""What may happen very often. Equal ones within ``AGAIN_S`` become one further entry with their number."""


@dataclass(slots=True)
class _Repeats:
    """What followed an entry until its time was over: equal requests, and their results."""

    until_s: float
    is_counted: bool
    count: int = 0
    results: int = 0


def _unwritten(error: Exception) -> str:
    """Return what is sent instead of a page whose audit entry cannot be written: why, and what to do."""
    advice = ""
    if isinstance(error, ResponseError):
        advice = f"{REFUSALS[refusal_in(error)].advice} `callkeeper doctor` tells more.\n"
    return f"{hindrance(error)}.\nThis cannot be written into the audit log, so it is not shown.\n{advice}"


class Auditor:
    """Writes audit entries before the answers are sent. If an entry cannot be written, the answer is not sent."""

    def __init__(self, log: AuditLog, *, key: bytes = b"") -> None:
        """``key``: of the hashes of what people search for; the same in every process, and not in Redis."""
        self.log = log
        self._key = key
        self._repeats: OrderedDict[AuditEntry, _Repeats] = OrderedDict()

    def note(self, person: Person, rule: RouteRule, parts: dict[str, str], origin: str) -> AuditNote:
        """Begin an entry. Viewers see no personal data, so there is no entry when they look."""
        is_unrecorded = rule.event is AuditEvent.VIEWED and not person.sees_people
        event = None if is_unrecorded else rule.event
        return AuditNote(event, person.id, person.operator, parts, rule.name, origin=origin)

    def _asked(self, filters: Mapping[str, str]) -> str:
        """Return how filters are written down: typed texts as keyed hashes."""
        return " ".join(
            f"{name}={text}" if name in _CLOSED_LISTS else f"{name}:{self._hash(text)}"
            for name, text in filters.items()
        )

    def _hash(self, typed: str) -> str:
        return hmac.digest(self._key, typed.strip().casefold().encode("utf-8", "replace"), sha256).hex()[:12]

    def listening(self, send: Send, note: AuditNote) -> Send:
        """Return a ``send`` that writes the entry when the answer begins. While Redis is unreachable it answers 503."""
        is_refused = False

        async def send_audited(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start":
                try:
                    await self.write(note, message["status"])
                except (RedisError, OSError) as error:
                    is_refused = True
                    await send({"type": "http.response.start", "status": 503, "headers": [(b"retry-after", b"5")]})
                    await send({"type": "http.response.body", "body": _unwritten(error).encode()})
            if not is_refused:
                await send(message)

        return send_audited

    async def write(self, note: AuditNote, status: int) -> None:
        """Write an entry, or count it if it repeats one of the last minutes. Each 403 is a refusal, whoever gave it.

        Raises:
            redis.exceptions.RedisError: Redis is away or takes no writes.
        """
        if status == HTTPStatus.FORBIDDEN and note.page and note.event is not AuditEvent.DENIED:
            place = note.parts if note.is_found else {}
            named = {name: place[name] for name in ("institution", "voice_id") if name in place}
            note.deny(note.parts.get("institution", ""), **named)
        if note.denied_of and "institution" not in note.parts and await self.log.is_listed(note.denied_of):
            note.parts["institution"] = note.denied_of
        if note.event is None or (note.event is AuditEvent.VIEWED and status >= 400):
            return
        # If a request fails before its call was found, the names in its address are only what somebody typed.
        is_found = status < 400 or status == 409 or note.event is AuditEvent.DENIED or note.results is not None
        is_found |= note.is_found
        parts = {name: part[:_LONGEST_DETAIL] for name, part in note.parts.items()} if is_found else {}
        entry = AuditEntry(event=note.event, who=note.who, operator=note.operator, status=status)
        entry = replace(entry, asked=self._asked(note.filters), origin=self._origin(note), **parts)
        if note.event in _REPEATED:
            await self.write_repeats(until_s=time.monotonic())
            if (known := self._repeats.get(entry)) is not None:
                if note.event is not AuditEvent.DENIED and note.page != _BOARD:
                    await self.log.check()  # a page is shown only while an entry about it could be written
                known.count += 1
                known.results += note.results or 0
                return
        await self.log.write(replace(entry, results=note.results))
        if note.event in _REPEATED:
            self._repeats.setdefault(entry, _Repeats(time.monotonic() + AGAIN_S, is_counted=note.results is not None))
            while len(self._repeats) > _MOST_REPEATED:
                await self._end(next(iter(self._repeats)))

    def _origin(self, note: AuditNote) -> str:
        """Return the address for an entry of a failed login or a refusal.

        Strangers may use any number of addresses, so of theirs only ``_MOST_STRANGERS`` are written at a time.
        """
        if note.event not in _WITH_ORIGIN:
            return ""
        strangers = {entry.origin for entry in self._repeats if entry.origin and not entry.who}
        return note.origin if note.who or note.origin in strangers or len(strangers) < _MOST_STRANGERS else ""

    async def write_repeats(self, *, until_s: float = inf) -> None:
        """Write the numbers of what was repeated, for entries whose time was over at an instant of the own clock.

        Raises:
            redis.exceptions.RedisError: Redis is away or takes no writes.
        """
        while self._repeats and next(iter(self._repeats.values())).until_s <= until_s:
            await self._end(next(iter(self._repeats)))

    async def _end(self, entry: AuditEntry) -> None:
        repeats = self._repeats.pop(entry)
        if repeats.count:
            try:
                results = repeats.results if repeats.is_counted else None
                await self.log.write(replace(entry, count=repeats.count, results=results))
            except (RedisError, OSError):
                self._repeats[entry] = repeats
                self._repeats.move_to_end(entry, last=False)
                raise

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Write the numbers when their time is over, and at the end of the block."""
        writing = asyncio.create_task(self._write_on())
        try:
            yield
        finally:
            await end({writing})
            with suppress(RedisError, OSError):
                await self.write_repeats()

    async def _write_on(self) -> None:
        while True:
            await asyncio.sleep(_WRITTEN_EVERY_S)
            with suppress(RedisError, OSError):
                await self.write_repeats(until_s=time.monotonic())
