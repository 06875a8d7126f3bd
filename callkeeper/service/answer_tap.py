"""A tap beside the client: it samples answers, and tells which contradict what is assumed where the document is silent.

Nothing is decided on it. Of each endpoint and institution one answer in half a minute is looked at, and of a few calls all
details and refusals. What is reported is made of our own words, types and lengths, and never holds a value of a person.
`callkeeper.calls.assumptions` has the list.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from callkeeper.service.answer_meaning import institution_list
from callkeeper.service.answer_parsing import as_utc
from callkeeper.service.endpoints import (
    ASSIGN,
    DETAILS,
    EFFECTS,
    INSTITUTIONS,
    QUEUE,
    TOKEN,
    Endpoint,
    Request,
    ServiceResponse,
    canonical_id,
    is_institution_key,
    is_same_id,
    is_voice_id,
)
from callkeeper.service.errors import AnswerUnreadable, ResellerError

LOOK_EVERY_S: Final = 30.0
"""How often an answer of one endpoint about one institution is looked at, in seconds."""

CALLS: Final = 50
"""How many calls are sampled at a time."""

_FORGOTTEN_S: Final = 900.0
_LARGEST: Final = 1_000_000
_MOST_PLACES: Final = 4096

Fields = Mapping[str, Any]


class Shown(NamedTuple):
    """One answer that contradicts an assumption. ``shape``: a sample of its form, without a value of a person."""

    assumption: str
    answer: str
    shape: str = ""


See = Callable[[str, str, str, str], None]
"""Called with each answer that was seen: assumption, answer, the institution's key (empty: of none), shape."""


def unseen(_assumption: str, _answer: str, _institution_key: str, _shape: str) -> None:
    """See nothing."""


def utc_now() -> datetime:
    """Return the present, in UTC."""
    return datetime.now(UTC)


_APART: Final = timedelta(seconds=2)
_SOON: Final = timedelta(seconds=30)
_QUARTER: Final = timedelta(minutes=15)
_NEAR: Final = timedelta(seconds=50)
_ALTERNATE: Final = re.compile(rb'"correlationAltId"\s*:\s*"([^"]{1,256})"', re.IGNORECASE)


@dataclass(slots=True)
class CallSample:
    """What the answers about one call have shown. ``turned_away``: the status of the last effect that was not taken."""

    since_s: float
    alternate_ids: frozenset[str] = frozenset()
    turned_away: dict[str, int] = field(default_factory=dict)
    shown: set[Shown] = field(default_factory=set)
    _last: tuple[datetime, str | None, str] | None = None

    def take(self, asked: str, content: bytes, body: Fields, now: datetime) -> None:
        """Look at details of the call that was asked for."""
        nested = body.get("phoneCall")
        record = nested if isinstance(nested, dict) else body
        named, updated, status = (record.get(name) for name in ("voiceId", "updatedDateUtc", "status"))
        self.alternate_ids = frozenset(found.decode("utf-8", "replace") for found in _ALTERNATE.findall(content))
        others = (named, *self.alternate_ids)
        if isinstance(named, str) and not any(is_same_id(asked, one) for one in others if isinstance(one, str)):
            self.shown.add(Shown("answer-names-call", "another-call", "details name another id"))
        if not isinstance(updated, str):
            return
        before, self._last = self._last, (now, status if isinstance(status, str) else None, updated)
        if before is None:
            return
        took = now - before[0]
        if updated == before[2]:
            if status != before[1] and took >= _APART:  # two activities in one second have the same instant
                self.shown.add(Shown("activity-moves-updated", "updated-stays", "another status, the same instant"))
        elif took <= _SOON and (ahead := _ahead(updated, now - took / 2)) is not None:
            direction = "east" if ahead > timedelta() else "west"
            shape = f"{ahead.total_seconds():+.0f} s from our clock, without a zone"
            self.shown.add(Shown("dates-without-zone", f"dates-local-{direction}", shape))


def _ahead(text: str, now: datetime) -> timedelta | None:
    """Return by which zone an instant without one is ahead of now; None if it is none, or none can explain it."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is not None or at.year == 1:
        return None
    ahead = as_utc(at) - now
    zone = round(ahead / _QUARTER) * _QUARTER
    return ahead if 2 * _QUARTER <= abs(zone) <= timedelta(hours=14) and abs(ahead - zone) < _NEAR else None


class AnswerTap:
    """Looks at the answers of one client. ``clock`` is monotonic, in seconds; ``now`` the present."""

    def __init__(self, see: See, *, clock: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._see = see
        self._clock = clock
        self._now = now
        self._looked_s: dict[tuple[str, str], float] = {}
        self._calls: dict[tuple[str, str], CallSample] = {}

    def look(self, request: Request, answer: ServiceResponse) -> None:
        """Look at an answer if it is its turn. It never fails: whatever the service sends is the service's matter."""
        endpoint, key = request.endpoint, request.institution_key
        asked = _voice_id(request)
        sample = self._sample(endpoint, key, asked)
        if sample is not None and endpoint in EFFECTS:
            sample.turned_away.pop(endpoint.name, None)
            if answer.status_code in (401, 429):
                sample.turned_away[endpoint.name] = answer.status_code
        is_due = self._is_due(endpoint, key)
        if answer.status_code != 200 or not (is_due or (sample and endpoint is DETAILS)):
            return
        if len(answer.content) > _LARGEST:
            return
        try:
            body = msgspec.json.decode(answer.content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        if is_due:
            for shown in contradictions_in(endpoint, answer, body):
                self._see(shown.assumption, shown.answer, key, shown.shape)
        if sample is not None and endpoint is DETAILS and isinstance(body, dict) and body.get("success") is not False:
            sample.take(asked, answer.content, body, self._now())

    def end(self, institution_key: str, voice_id: str) -> CallSample | None:
        """Return what was seen of a call that is over, and forget it; None if it was not sampled here."""
        return self._calls.pop((institution_key, canonical_id(voice_id)), None)

    def _is_due(self, endpoint: Endpoint, key: str) -> bool:
        place, now_s = (endpoint.name, key), self._clock()
        if now_s - self._looked_s.get(place, -LOOK_EVERY_S) < LOOK_EVERY_S:
            return False
        if len(self._looked_s) >= _MOST_PLACES:
            self._looked_s.clear()
        self._looked_s[place] = now_s
        return True

    def _sample(self, endpoint: Endpoint, key: str, voice_id: str) -> CallSample | None:
        if not voice_id:
            return None
        place, now_s = (key, canonical_id(voice_id)), self._clock()
        sample = self._calls.get(place)
        if sample is None and endpoint is DETAILS:
            oldest = next(iter(self._calls), None)
            if len(self._calls) >= CALLS and oldest and now_s - self._calls[oldest].since_s > _FORGOTTEN_S:
                del self._calls[oldest]  # another worker has seen its end
            if len(self._calls) < CALLS:
                sample = self._calls[place] = CallSample(now_s)
        return sample


def _voice_id(request: Request) -> str:
    """Return the voice id that a request is about; empty if there is none."""
    if request.endpoint is ASSIGN:
        fields = msgspec.json.decode(request.content or b"{}", type=dict[str, str])
        return fields.get("voiceId", "")
    is_named = request.endpoint is DETAILS or request.endpoint in EFFECTS
    return unquote(request.path.split("/")[3]) if is_named else ""


def contradictions_in(endpoint: Endpoint, answer: ServiceResponse, body: object) -> Iterator[Shown]:
    """Yield what the form of one successful answer contradicts."""
    if endpoint is INSTITUTIONS:
        try:
            institution_list(answer)
        except AnswerUnreadable:
            yield Shown("institution-list-form", "list-unreadable", "no list of institutions")
        except ResellerError:
            return
    if not isinstance(body, dict) or body.get("success") is False:
        return
    if endpoint is QUEUE:
        yield from _queue(body)
    elif endpoint is DETAILS:
        nested = body.get("phoneCall")
        if isinstance(nested, dict) and "voiceId" in body and body["voiceId"] != nested.get("voiceId"):
            yield Shown("details-two-records", "records-differ", "phoneCall beside another record")
    elif endpoint is TOKEN:
        keys = body.get("institutionKeys")
        odd = sum(not (isinstance(key, str) and is_institution_key(key)) for key in keys or ())
        if odd:
            yield Shown("institution-key-alphabet", "odd-key", f"{odd} keys that cannot be used")


def _queue(body: Fields) -> Iterator[Shown]:
    entries = body.get("phoneCalls")
    if "phoneCalls" not in body:
        yield Shown("queue-has-calls", "no-phone-calls", f"{len(body)} fields")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            yield Shown("queue-entry-usable", "entry-unreadable", "no object")
            continue
        voice_id, start = entry.get("voiceId"), entry.get("startDateTime")
        if not (isinstance(voice_id, str) and voice_id):
            yield Shown("queue-entry-usable", "entry-without-id", "no voiceId")
        elif not is_voice_id(voice_id):
            yield Shown("voice-id-alphabet", "odd-id", f"voiceId a text of {len(voice_id)}")
        if isinstance(start, str) and start.startswith("0001-"):
            yield Shown("clocks-two-days", "starts-in-year-1", "a placeholder")
