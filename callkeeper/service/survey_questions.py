"""Asks the service what its document leaves open and what is free to ask: reads and logins, never a check or an effect.

The questions are asked with a token of their own, one after the other, and at most `MOST` requests are sent. Answers are
reported like those that traffic shows (`See`). ``PLAN`` says beforehand what may be sent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import msgspec

from callkeeper.service.aiohttp_transport import ServiceResponse, http_request, receive
from callkeeper.service.answer_parsing import as_utc
from callkeeper.service.answer_shapes import shapes_of
from callkeeper.service.config import ServiceConfig
from callkeeper.service.endpoints import (
    DETAILS,
    INSTITUTION,
    INSTITUTIONS,
    QUEUE,
    TOKEN,
    Endpoint,
    Request,
    canonical_id,
    header_value,
)
from callkeeper.service.errors import ResellerError, ServiceUnavailable
from callkeeper.service.network_failure import network_failure
from callkeeper.service.open_questions import AHEAD, USUAL, See
from callkeeper.service.tracing import HEADER, new_trace

MOST: Final = 30
"""How many requests are sent at most."""

KEYS: Final = 3
"""How many institutions are asked about at most."""

LIVE: Final = 4
"""How many live calls are needed to see how a queue is paged."""


class Planned(NamedTuple):
    """A request that may be sent, how often at most, and what it shows."""

    request: str
    most: int
    shows: str


PLAN: Final = (
    Planned("POST /external/token/request", 1, "a login of its own: expiresOn, the institutions' keys"),
    Planned("GET /external/institutions", 1, "how the list is wrapped, and what an institution looks like"),
    Planned("GET /external/institutions/{key}", KEYS, "whether each can be read by its key"),
    Planned(
        "GET /external/calls/queue?continueFrom=0&pageSize=50", KEYS, "the form of entries; live calls to ask about"
    ),
    Planned("GET /external/calls/queue?continueFrom=0&pageSize=1000, 100, 10", 3, "how large a page may be"),
    Planned("GET /external/calls/queue?continueFrom=100000&pageSize=10", 1, "a page past the end"),
    Planned("GET /external/calls/queue?continueFrom=1, 2&pageSize=2", 2, "what continueFrom counts"),
    Planned("GET /external/calls/queue?startDate=...", 4, "whether the bound is inclusive, and how exact"),
    Planned("GET /external/calls/{unknown id}/details?checkVoiceAuthentication=false", 1, "how a refusal looks"),
    Planned("GET /external/calls/{voiceId}/details?checkVoiceAuthentication=false", 1, "the record of a live call"),
    Planned("GET /external/calls/{VOICEID}/details?checkVoiceAuthentication=false", 1, "the same in other letters"),
    Planned("GET /external/calls/{ended id}/details?checkVoiceAuthentication=false", 1, "a call that has ended"),
    Planned("GET /external/calls/queue with another header", 1, "whether unknown headers are ignored"),
    Planned("GET /external/calls/queue with a content type", 2, "whether a content type without a body matters"),
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
        await self._sizes(key, len(entries))
        await self._paging(key, [str(entry.get("voiceId")) for entry in entries])
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
        self._clock(answer)
        keys, token = found.get("institutionKeys"), found.get("token")
        self._keys = frozenset(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else frozenset()
        if not isinstance(token, str) or not token:
            raise ServiceUnavailable(TOKEN.name, f"no token, status {answer.status_code}", answer.status_code)
        return token

    def _clock(self, answer: ServiceResponse) -> None:
        """Compare the service's Date header, whose seconds are whole, with Redis's clock."""
        try:
            ahead = parsedate_to_datetime(answer.headers.get("date") or "") + timedelta(seconds=0.5) - self.now()
        except (ValueError, TypeError, OverflowError):
            return
        nearest = min([timedelta(), *AHEAD], key=lambda known: abs(ahead - known))
        answered = AHEAD.get(nearest, USUAL) if abs(ahead - nearest) < timedelta(seconds=50) else "clock-differs"
        self.see("service-clock", answered, "", f"Date is {ahead.total_seconds():+.0f} s from Redis's clock")

    async def _institutions(self) -> Sequence[str]:
        """Ask for the list, and for some by their keys; return the keys to ask about, sorted."""
        answer = await self._send(Request(INSTITUTIONS, INSTITUTIONS.path), "the list of institutions")
        self._look(INSTITUTIONS, "", answer)
        if answer.status_code >= 500 or _is_refused(answer):
            name = "list-failing" if answer.status_code >= 500 else "list-refused"
            self.see("institution-list-form", name, "", f"status {answer.status_code}")
        listed = _keys_in(_json(answer))
        ours = [key for key in sorted(self._keys | listed) if self.only is None or key in self.only]
        for key in ours if len(ours) <= KEYS else [*ours[: KEYS - 1], ours[-1]]:
            one = await self._send(Request(INSTITUTION, INSTITUTION.at(key), about=key), "an institution by its key")
            is_read, is_refused = _is_read(one), _is_refused(one)
            if key in listed and is_refused:
                self.see("institution-by-key", "keys-refused", key, f"status {one.status_code}")
            elif key in listed and is_read:
                self.see("institution-by-key", USUAL, key, "read by its key")
            elif listed and (is_read or is_refused):
                name = "list-paged" if is_read else "keys-unknown"
                self.see("institution-by-key", name, key, "not in the list")
            if is_refused and key not in listed:
                ours = [each for each in ours if each != key]
        return ours

    async def _entries(self, key: str) -> Sequence[Mapping[str, Any]]:
        answer = await self._queue(key, "live calls", continueFrom=0, pageSize=50)
        self._look(QUEUE, key, answer)
        found = _object(answer).get("phoneCalls")
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []

    async def _sizes(self, key: str, live: int) -> None:
        """Ask for large pages until one is answered."""
        for size in (1000, 100, 10):
            answer = await self._queue(key, f"a page of {size}", continueFrom=0, pageSize=size)
            if not _is_refused(answer):
                break
        ids = _ids(answer)
        if ids is None:
            return
        name = {1000: USUAL, 100: "page-refused-100", 10: "page-refused"}[size]
        if name != USUAL or len(ids) >= live:
            self.see("queue-page-size", name, key, f"pageSize {size} is answered")

    async def _paging(self, key: str, whole: Sequence[str]) -> None:
        beyond = await self._queue(key, "a page past the end", continueFrom=100_000, pageSize=10)
        ids = _ids(beyond)
        if ids is not None and (whole or not ids):
            self.see("queue-past-end", "past-end-repeated" if ids else USUAL, key, f"{len(ids)} entries")
        elif _is_refused(beyond):
            self.see("queue-past-end", "past-end-refused", key, f"status {beyond.status_code}")
        if len(whole) < LIVE:
            return
        one, two = [
            _ids(await self._queue(key, f"two calls from {begin} on", continueFrom=begin, pageSize=2))
            for begin in (1, 2)
        ]
        name = None
        if one == whole[1:3]:
            name = USUAL
        elif one == whole[2:4]:
            name = "paging-by-page"
        elif one == whole[:2]:
            name = {tuple(whole[2:4]): "paging-by-page-from-1", tuple(whole[:2]): "paging-overlap"}.get(
                tuple(two or ())
            )
        if name is not None:
            self.see("queue-paging", name, key, "continueFrom 1 and 2, pages of 2")

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
        names: dict[tuple[bool, ...], str] = {
            (True, True, False, False): USUAL,
            (True, False, False, False): "bounds-exclusive",
            (True, True, True, False): "bounds-by-minute",
        }
        name = names.get(tuple(shown))
        if name is not None:
            self.see("queue-start-bounds", name, key, "startDate at a start, 1 s before, 1 s and 90 s after")

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
            await self._live(key, _free_first(entries)[0])
        if self.ended is not None and (self.only is None or self.ended.institution_key in self.only):
            answer = await self._details(self.ended.institution_key, self.ended.voice_id, "a call that has ended")
            if _is_read(answer) or _is_refused(answer):
                name = USUAL if _is_read(answer) else "ended-not-found"
                self.see("ended-found", name, self.ended.institution_key, "by its id")

    async def _live(self, key: str, entry: Mapping[str, Any]) -> None:
        voice_id = str(entry.get("voiceId"))
        answer = await self._details(key, voice_id, "a live call")
        self._look(DETAILS, key, answer)
        body = _object(answer)
        record = body.get("phoneCall") if isinstance(body.get("phoneCall"), dict) else body
        persons = entry.get("persons")
        if (
            isinstance(persons, list)
            and len(persons) == 1
            and not entry.get("coreUsername")
            and isinstance(record, dict)
        ):
            is_shown = bool(record.get("personId")), bool(entry.get("personId"))
            if not record.get("coreUsername"):
                name = {(True, True): "person-prefilled", (False, True): "person-prefilled-in-queue"}.get(
                    is_shown, USUAL
                )
                self.see("person-without-username", name, key, "one candidate, coreUsername null")
        other = voice_id.upper() if voice_id != voice_id.upper() else canonical_id(voice_id)
        if other != voice_id and canonical_id(other) == canonical_id(voice_id):
            again = await self._details(key, other, "the same in other letters")
            if _is_read(again) or _is_refused(again):
                name = USUAL if _is_read(again) else "spelling-matters"
                self.see("voice-id-spelling", name, key, "details in other letters")

    async def _headers(self, key: str) -> None:
        traceparent = f"00-{new_trace()}-0000000000000001-01"
        traced = await self._one(key, "a queue with traceparent", {HEADER: traceparent})
        if _is_read(traced) or _is_refused(traced):
            name = USUAL if _is_read(traced) else "headers-refused"
            self.see("unknown-headers", name, key, f"status {traced.status_code}")
        as_json = await self._one(key, "a queue with a content type", {"content-type": "application/json"})
        as_text = await self._one(key, "a queue with another type", {"content-type": "text/plain"})
        name = "content-type-exact" if as_json.status_code == 415 else "content-type-enforced"
        if as_json.status_code != 415 != as_text.status_code:
            if not (_is_read(as_json) and _is_read(as_text)):
                return
            name = USUAL
        self.see("content-type", name, key, f"status {as_json.status_code} and {as_text.status_code}")

    async def _second_login(self, key: str, first: str) -> None:
        second = await self._login()
        if second == first:
            self.see("login-keeps-earlier", "login-keeps-token", "", "the same token")
            return
        self._token = first
        answer = await self._one(key, "a queue with the first token")
        if answer.status_code == 401:  # once may be an accident
            answer = await self._one(key, "a queue with the first token, again")
        if answer.status_code == 401:
            self.see("login-keeps-earlier", "login-ends-earlier", "", "401 with the first token")
        elif _is_read(answer):
            self.see("login-keeps-earlier", USUAL, "", "answered with the first token")

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
        for seen in shapes_of(endpoint, answer.status_code, _json(answer), self.now()):
            self.see(seen.assumption, seen.answer, key, seen.shape)


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


def _free_first(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return entries with one candidate and without a core username first: they show whether a person is filled in."""

    def is_claimed(entry: Mapping[str, Any]) -> bool:
        persons = entry.get("persons")
        return bool(entry.get("coreUsername")) or not isinstance(persons, list) or len(persons) != 1

    return sorted(entries, key=is_claimed)


def _keys_in(body: object, depth: int = 2) -> frozenset[str]:
    """Return the keys of institutions in any list, which is known by the status of its entries."""
    match body:
        case list():
            entries = [entry for entry in body if isinstance(entry, dict) and "status" in entry]
            return frozenset(str(entry["key"]) for entry in entries if entry.get("key"))
        case dict() if depth:
            return frozenset().union(*(_keys_in(value, depth - 1) for value in body.values()))
        case _:
            return frozenset()
