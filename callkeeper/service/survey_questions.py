"""Asks the service what can contradict an assumption and is free to ask: reads and logins, never a check or an effect.

The questions are asked with a token of their own, one after the other, and at most `MOST` requests are sent. What
contradicts an assumption is reported like what traffic shows (`See`). ``PLAN`` says beforehand what may be sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import msgspec

from callkeeper.service.aiohttp_transport import http_request, receive
from callkeeper.service.answer_parsing import as_utc
from callkeeper.service.answer_tap import See, contradictions_in
from callkeeper.service.config import ServiceConfig
from callkeeper.service.endpoints import (
    DETAILS,
    INSTITUTIONS,
    QUEUE,
    TOKEN,
    Endpoint,
    Request,
    ServiceResponse,
    header_value,
)
from callkeeper.service.errors import ResellerError, ServiceUnavailable
from callkeeper.service.network_failure import network_failure
from callkeeper.service.tracing import HEADER, new_trace

MOST: Final = 20
"""How many requests are sent at most."""

KEYS: Final = 3
"""How many institutions are asked about at most."""

LIVE: Final = 4
"""How many live calls are needed to see whether a short page is the last."""


class Planned(NamedTuple):
    """A request that may be sent, how often at most, and what it shows."""

    request: str
    most: int
    shows: str


PLAN: Final = (
    Planned("POST /external/token/request", 1, "a login of its own: the institutions' keys"),
    Planned("GET /external/institutions", 1, "how the list is wrapped"),
    Planned(
        "GET /external/calls/queue?continueFrom=0&pageSize=50", KEYS, "the form of entries; live calls to ask about"
    ),
    Planned("GET /external/calls/queue?continueFrom=0, 2&pageSize=2", 2, "whether a short page is the last"),
    Planned("GET /external/calls/queue?startDate=...", 4, "which starts the bound compares"),
    Planned("GET /external/calls/{unknown id}/details?checkVoiceAuthentication=false", 1, "how a refusal looks"),
    Planned("GET /external/calls/{voiceId}/details?checkVoiceAuthentication=false", 1, "the record of a live call"),
    Planned("GET /external/calls/{ended id}/details?checkVoiceAuthentication=false", 1, "a call that has ended"),
    Planned("GET /external/calls/queue with another header", 1, "whether unknown headers are ignored"),
    Planned("POST /external/token/request", 1, "a second login"),
    Planned("GET /external/calls/queue", 2, "whether the first token is still good"),
)
"""What is sent, in this order. A request is left out if there is nothing to ask about."""


class Ended(NamedTuple):
    """A call that has ended, and its institution."""

    institution_key: str
    voice_id: str


@dataclass(slots=True)
class Asking:
    """Asks the questions once."""

    config: ServiceConfig
    see: See
    """Called with each answer."""
    _: KW_ONLY
    operators: Callable[[str], str]
    """Returns the core username to ask under, by the institution's key."""
    transport: httpx.AsyncBaseTransport
    permit: Callable[[str], Awaitable[None]]
    """Awaited before each request about an institution: its key."""
    now: Callable[[], datetime]
    only: frozenset[str] | None = None
    """The institutions that may be asked about; None: all."""
    ended: Ended | None = None
    sent: list[str] = field(default_factory=list)
    """The requests that were sent, without ids."""
    _token: str | None = None
    _keys: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Ask everything.

        Raises:
            ServiceUnavailable: The service cannot be reached, or gives no token.
        """
        first = self._token = await self._login()
        keys = (await self._institutions())[:KEYS]
        if not keys:
            return
        for key in keys:
            entries = await self._entries(key)
            if len(entries) >= LIVE:
                break
        if len(entries) >= LIVE:
            await self._pages(key)
        await self._bounds(key, entries)
        await self._records(key, entries)
        await self._headers(key)
        await self._second_login(key, first)

    async def _login(self) -> str:
        config = self.config
        access = header_value(TOKEN.name, "accessToken", config.access_token.reveal())
        body = msgspec.json.encode({"email": config.email.reveal(), "password": config.password.reveal()})
        answer = await self._send(Request(TOKEN, TOKEN.at(), {"accessToken": access}, content=body), "login")
        found = _object(answer)
        self._look(TOKEN, "", answer)
        keys, token = found.get("institutionKeys"), found.get("token")
        self._keys = frozenset(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else frozenset()
        if not isinstance(token, str) or not token:
            raise ServiceUnavailable(TOKEN.name, f"no token, status {answer.status_code}", answer.status_code)
        return token

    async def _institutions(self) -> Sequence[str]:
        """Ask for the list; return the keys to ask about, sorted."""
        answer = await self._send(Request(INSTITUTIONS, INSTITUTIONS.path), "the list of institutions")
        self._look(INSTITUTIONS, "", answer)
        return [key for key in sorted(self._keys) if self.only is None or key in self.only]

    async def _entries(self, key: str) -> Sequence[Mapping[str, Any]]:
        answer = await self._queue(key, "live calls", continueFrom=0, pageSize=50)
        self._look(QUEUE, key, answer)
        found = _object(answer).get("phoneCalls")
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []

    async def _pages(self, key: str) -> None:
        """Ask for two pages of two calls: a page that has fewer is taken for the last one."""
        first, second = [
            _ids(await self._queue(key, f"two calls from {begin} on", continueFrom=begin, pageSize=2))
            for begin in (0, 2)
        ]
        if first and second and len(first) < 2 and set(second) - set(first):
            self.see("queue-page-short", "page-short", key, f"a page of {len(first)} for pageSize 2")

    async def _bounds(self, key: str, entries: Sequence[Mapping[str, Any]]) -> None:
        """Ask from just before a start on, from the start, from a second later, and from more than a minute later."""
        starts = [(str(entry.get("voiceId")), at) for entry in entries if (at := _instant(entry.get("startDateTime")))]
        fit = [(voice_id, at) for voice_id, at in starts if at.second < 58 and at.year > 1]
        if not fit:
            return
        voice_id, at = fit[-1]
        shown = []
        for later_s in (-1, 0, 1, 90):
            since = (at + timedelta(seconds=later_s)).astimezone(UTC).isoformat().replace("+00:00", "Z")
            answer = await self._queue(key, "calls from a start on", continueFrom=0, pageSize=50, startDate=since)
            shown.append(voice_id in (_ids(answer) or ()))
        if not shown[0]:  # whether the bound itself counts, and whether it is read by the minute, makes no difference
            self.see("queue-start-bounds", "bounds-misread", key, "startDate 1 s before a start leaves it out")

    async def _records(self, key: str, entries: Sequence[Mapping[str, Any]]) -> None:
        """Read details of an unknown id, of a live call in both spellings, and of one that has ended."""
        unknown = await self._details(key, str(uuid4()), "an unknown id")
        self._look(DETAILS, key, unknown)
        body = _object(unknown)
        words = f"{body.get('code')} {body.get('error')} {body.get('errors')}".lower().replace(" ", "")
        is_named = unknown.status_code == 404 or "notfound" in words
        is_recordless = _is_read(unknown) and not (body.get("voiceId") or body.get("phoneCall"))
        if not (is_named or is_recordless) and (_is_read(unknown) or _is_refused(unknown)):
            self.see("not-found-words", "not-found-otherwise", key, f"status {unknown.status_code}")
        if entries:
            self._look(DETAILS, key, await self._details(key, str(entries[0].get("voiceId")), "a live call"))
        if self.ended is not None and (self.only is None or self.ended.institution_key in self.only):
            answer = await self._details(self.ended.institution_key, self.ended.voice_id, "a call that has ended")
            if _is_refused(answer):
                self.see("ended-found", "ended-not-found", self.ended.institution_key, "by its id")

    async def _headers(self, key: str) -> None:
        traceparent = f"00-{new_trace()}-0000000000000001-01"
        traced = await self._one(key, "a queue with traceparent", {HEADER: traceparent})
        if _is_refused(traced):
            self.see("unknown-headers", "headers-refused", key, f"status {traced.status_code}")

    async def _second_login(self, key: str, first: str) -> None:
        second = await self._login()
        if second == first:
            return
        self._token = first
        answer = await self._one(key, "a queue with the first token")
        if answer.status_code == 401:  # once may be an accident
            answer = await self._one(key, "a queue with the first token, again")
        if answer.status_code == 401:
            self.see("login-keeps-earlier", "login-ends-earlier", "", "401 with the first token")

    async def _queue(
        self, key: str, what: str, headers: Mapping[str, str] | None = None, **query: int | str
    ) -> ServiceResponse:
        request = Request(QUEUE, QUEUE.path, self._on_behalf(key) | dict(headers or {}), urlencode(query))
        return await self._send(request, what, key)

    async def _one(self, key: str, what: str, headers: Mapping[str, str] | None = None) -> ServiceResponse:
        return await self._queue(key, what, headers, continueFrom=0, pageSize=1)

    async def _details(self, key: str, voice_id: str, what: str) -> ServiceResponse:
        path, query = DETAILS.at(voice_id), "checkVoiceAuthentication=false"
        return await self._send(Request(DETAILS, path, self._on_behalf(key), query), what, key)

    def _on_behalf(self, key: str) -> dict[str, str]:
        operator = self.operators(key)
        return {
            "InstitutionKey": header_value(QUEUE.name, "InstitutionKey", key),
            "RequestedBy": header_value(QUEUE.name, "RequestedBy", operator),
        }

    async def _send(self, request: Request, what: str, key: str = "") -> ServiceResponse:
        """Send one request.

        Raises:
            ServiceUnavailable: No answer came, or too many requests would be sent.
        """
        if len(self.sent) >= MOST:
            raise ServiceUnavailable(request.endpoint.name, f"{MOST} requests were sent")
        await self.permit(key)
        self.sent.append(f"{request.endpoint.name}: {what}")
        token = {"SsoToken": self._token} if self._token and request.endpoint is not TOKEN else {}
        sent, failure = http_request(request, self.config.base_url, token, None), ""
        try:
            async with asyncio.timeout(self.config.deadline_s):
                response = await self.transport.handle_async_request(sent)
                return await receive(response, self.config.max_body_bytes)
        except ResellerError:
            raise
        except Exception as error:  # noqa: BLE001  (whatever it was, its request holds the token)
            failure = network_failure(error)
        raise ServiceUnavailable(request.endpoint.name, f"no whole answer: {failure}")

    def _look(self, endpoint: Endpoint, key: str, answer: ServiceResponse) -> None:
        if answer.status_code == 200:
            for shown in contradictions_in(endpoint, answer, _json(answer)):
                self.see(shown.assumption, shown.answer, key, shown.shape)


def _json(answer: ServiceResponse) -> object:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found: object = msgspec.json.decode(answer.content)
        return found
    return None


def _object(answer: ServiceResponse) -> Mapping[str, Any]:
    found = _json(answer)
    return found if isinstance(found, dict) else {}


def _is_read(answer: ServiceResponse) -> bool:
    return answer.status_code == 200 and _object(answer).get("success") is True


def _is_refused(answer: ServiceResponse) -> bool:
    """Tell whether the service understood and refused. A 401 may be the token's, a 429 a limit's."""
    is_4xx = 400 <= answer.status_code < 500 and answer.status_code not in (401, 429)
    return is_4xx or (answer.status_code == 200 and _object(answer).get("success") is False)


def _ids(answer: ServiceResponse) -> list[str] | None:
    """Return the ids on a page; None if the page was not answered."""
    entries = _object(answer).get("phoneCalls")
    if answer.status_code != 200 or not isinstance(entries, list):
        return None
    return [str(entry.get("voiceId")) for entry in entries if isinstance(entry, dict)]


def _instant(value: object) -> datetime | None:
    """Return an instant with a zone; None for any other value. Without a zone it could not be compared."""
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return as_utc(at) if at is not None and at.tzinfo is not None else None
