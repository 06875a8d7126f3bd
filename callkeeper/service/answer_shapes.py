"""Looks at the form of answers, to see how the service fills what its document leaves open. Nothing is decided on it.

One answer of an endpoint and institution in two seconds is looked at, and every refusal and list: so the cost is that of
a few answers, not of all. What is reported is made of our own words, types and lengths; names of fields that the Spec does
not have are counted and never repeated, because a service may use anything as a name.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from callkeeper.service.aiohttp_transport import ServiceResponse
from callkeeper.service.answer_meaning import BASE_LISTS
from callkeeper.service.answer_parsing import as_utc
from callkeeper.service.endpoints import (
    ADD_INSTITUTION,
    DETAILS,
    INSTITUTIONS,
    QUEUE,
    TOKEN,
    AuthMode,
    Endpoint,
    canonical_id,
    is_institution_key,
    is_voice_id,
)
from callkeeper.service.enumerations import VpnStatus
from callkeeper.service.open_questions import USUAL, ZONES, See, Shown
from callkeeper.service.phone_calls import PhoneCall, QueueEntry

LOOK_EVERY_S: Final = 2.0
"""How often a successful answer of one endpoint about one institution is looked at, in seconds."""

ENTRIES: Final = 20
"""How many entries of a list are looked at."""

_MOST_LOOKED: Final = 4096
_LARGEST: Final = 1_000_000
"""A body of more bytes is not looked at."""

Fields = Mapping[str, Any]


class AnswerLooks:
    """Looks at the answers of one client.

    ``zone`` is how the service writes instants: ``Z``, ``offset`` or ``none``; empty if no instant was seen.
    """

    def __init__(self, see: See, *, clock: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._see = see
        self._clock = clock
        self._now = now
        self._looked_s: dict[tuple[str, str], float] = {}
        self.zone = ""

    def look(self, endpoint: Endpoint, institution_key: str, answer: ServiceResponse) -> None:
        """Look at an answer if it is its turn. It never fails: whatever the service sends is the service's matter."""
        if (
            answer.status_code == 200
            and endpoint is not INSTITUTIONS
            and b'"success":false' not in answer.content[:400]
        ):
            place, now_s = (endpoint.name, institution_key), self._clock()
            if now_s - self._looked_s.get(place, -LOOK_EVERY_S) < LOOK_EVERY_S:
                return
            if len(self._looked_s) >= _MOST_LOOKED:
                self._looked_s.clear()
            self._looked_s[place] = now_s
        if len(answer.content) > _LARGEST:
            return
        try:
            body = _decoded(endpoint, answer.content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if answer.content.lstrip()[:1] == b"<":
                self._see("page-is-absence", "web-page", institution_key, f"status {answer.status_code}")
            return
        for seen in shapes_of(endpoint, answer.status_code, body, self._now()):
            self._see(seen.assumption, seen.answer, institution_key, seen.shape)
        self.zone = _zone_of(endpoint, body) or self.zone


_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def _decoded(endpoint: Endpoint, content: bytes) -> object:
    """Decode a body; of a queue, which may have hundreds of entries, only those that are looked at."""
    if endpoint is not QUEUE:
        return msgspec.json.decode(content)
    fields = _FIELDS.decode(content)
    if bytes(fields.get("phoneCalls", b""))[:1] == b"[":
        items = _ITEMS.decode(fields["phoneCalls"])[:ENTRIES]
        fields["phoneCalls"] = msgspec.Raw(msgspec.json.encode(items))
    return {name: msgspec.json.decode(value) for name, value in fields.items()}


def shapes_of(endpoint: Endpoint, status: int, body: object, now: datetime) -> Iterator[Shown]:
    """Yield what the form of an answer shows."""
    if endpoint is INSTITUTIONS and status == 200:
        yield from institutions_seen(body)
    if not isinstance(body, dict):
        return
    if body.get("success") is False:
        if endpoint.mode is AuthMode.SERVICE_ACCOUNT:
            yield from _refusal(endpoint, status, body)
        return
    if status != 200:
        return
    yield from _base(endpoint, body)
    if endpoint is QUEUE:
        yield from _queue(body)
    elif endpoint is DETAILS:
        yield from _details(body)
    elif endpoint is TOKEN:
        yield from _login(body, now)


def kind_of(value: object) -> str:
    """Describe a JSON value without its content."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return f"a text of {len(value)}"
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"


def _refusal(endpoint: Endpoint, status: int, body: Fields) -> Iterator[Shown]:
    error, errors, code = (body.get(name) for name in ("error", "errors", "code"))
    shape = f"status {status}: error {kind_of(error)}, errors {kind_of(errors)}, code {kind_of(code)}"
    words = re.sub(r"[\s_-]", "", f"{code} {error} {errors}").lower()
    if status == 404:
        yield Shown("refusal-status", "not-found-with-404", shape)
    elif status == 200:
        yield Shown("refusal-status", USUAL, shape)
    elif status == 400 and "notfound" in words:
        yield Shown("refusal-status", "refused-with-400", shape)
    if code:
        yield Shown("refusal-words", USUAL, shape)
    elif error:
        yield Shown("refusal-words", "refusal-in-error", shape)
    elif errors:
        yield Shown("refusal-words", "refusal-in-errors", shape)
    if endpoint is DETAILS and "notfound" in words:
        yield Shown("not-found-words", USUAL, shape)


def _base(endpoint: Endpoint, body: Fields) -> Iterator[Shown]:
    if endpoint is ADD_INSTITUTION or body.get("success") is not True:
        return
    shape = ", ".join(f"{name} {kind_of(body.get(name))}" for name in ("error", "errors", "messages", "code"))
    if body.get("messages"):
        yield Shown("base-response", "messages-everywhere", shape)
    else:
        is_empty = body.get("error") == "" or body.get("errors") == []
        yield Shown("base-response", "base-empty" if is_empty else USUAL, shape)


_ENTRY: Final = frozenset(QueueEntry.__struct_encode_fields__)
_RECORD: Final = frozenset(PhoneCall.__struct_encode_fields__)
_NULLABLE_ENTRY: Final = frozenset({"personId", "coreUsername", "persons"})
_NULLABLE_RECORD: Final = frozenset({"personId", "notes", "coreUsername", "callDuration", "researchCase"})


def _fields(found: Fields, known: frozenset[str], nullable: frozenset[str], kind: str) -> Iterator[Shown]:
    added, missing = found.keys() - known, nullable - found.keys()
    if added:
        yield Shown("fields-may-change", "fields-added", f"{kind}: {len(added)} unknown fields")
    elif missing:
        yield Shown("fields-may-change", "nulls-left-out", f"{kind}: without {', '.join(sorted(missing))}")
    else:
        yield Shown("fields-may-change", USUAL, f"{kind}: {len(found)} fields")


def _queue(body: Fields) -> Iterator[Shown]:
    entries = body.get("phoneCalls")
    if "phoneCalls" not in body:
        yield Shown("queue-has-calls", "no-phone-calls", f"{len(body)} fields")
    if not isinstance(entries, list):
        return
    yield Shown("queue-has-calls", USUAL, kind_of(entries))
    found = [entry for entry in entries[:ENTRIES] if isinstance(entry, dict)]
    for entry in found:
        yield from _entry(entry)
    yield from _order(found)


def _entry(entry: Fields) -> Iterator[Shown]:
    yield from _fields(entry, _ENTRY, _NULLABLE_ENTRY, "entry of the queue")
    if entry.get("persons") == []:
        yield Shown("queue-candidates", "persons-empty", "persons a list of 0")
    elif "persons" in entry and entry["persons"] is None:
        yield Shown("queue-candidates", USUAL, "persons null")
    number = entry.get("phoneNumber")
    if isinstance(number, str) and number:
        yield Shown("phone-digits", _number_form(number), f"phoneNumber a text of {len(number)}")
    voice_id = entry.get("voiceId")
    if isinstance(voice_id, str) and is_voice_id(voice_id):  # one that is none is left out, and counted there
        yield Shown("voice-id-alphabet", _id_form(voice_id), f"voiceId a text of {len(voice_id)}")
    start = entry.get("startDateTime")
    if isinstance(start, str) and start:
        yield Shown("clocks-two-days", "starts-in-year-1" if start.startswith("0001-") else USUAL, _instant_form(start))
        yield from _zone_seen(start)


def _number_form(number: str) -> str:
    if number.startswith("+"):
        return "numbers-e164"
    return USUAL if number.isascii() and number.isdigit() else "numbers-written"


def _id_form(voice_id: str) -> str:
    if _GUID.fullmatch(canonical_id(voice_id)):
        return USUAL
    if voice_id.isascii() and " " not in voice_id:
        return "ids-numbers" if voice_id.isdigit() else "ids-visible"
    return "ids-wide"


_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _order(entries: Sequence[Fields]) -> Iterator[Shown]:
    """Yield the order of a page, if its starts tell it."""
    starts = [start for entry in entries if isinstance(start := entry.get("startDateTime"), str)]
    if len(set(starts)) < _STARTS or len(starts) < len(entries):
        return
    numbers = [str(entry.get("phoneNumber")) for entry in entries]
    shape = f"{len(starts)} entries"
    if starts == sorted(starts):
        yield Shown("queue-order", USUAL, shape)
    elif starts == sorted(starts, reverse=True):
        yield Shown("queue-order", "queue-newest-first", shape)
    else:
        yield Shown("queue-order", "queue-by-number" if numbers == sorted(numbers) else "queue-unsorted", shape)


_STARTS: Final = 3
"""With at least this many different starts, the order of a page is no accident."""


def _details(body: Fields) -> Iterator[Shown]:
    nested, is_top = body.get("phoneCall"), "voiceId" in body
    record = nested if isinstance(nested, dict) else body
    shape = f"phoneCall {kind_of(nested)}, {len(body)} fields at the top level"
    if isinstance(nested, dict):
        yield Shown("details-place", USUAL if is_top else "record-nested", shape)
        if is_top:
            is_same = body["voiceId"] == nested.get("voiceId")
            yield Shown("details-two-records", USUAL if is_same else "records-differ", shape)
    elif is_top:
        yield Shown("details-place", "record-at-top", shape)
    else:
        return
    if record is nested:
        yield from _fields(record, _RECORD, _NULLABLE_RECORD, "record of a call")
    metadata = record.get("metaData")
    if metadata is None:
        yield Shown("metadata-without-policies", "metadata-null", "metaData null")
    elif isinstance(metadata, dict) and not metadata.get("vendorPolicies"):
        policies = metadata.get("vendorPolicies")
        answer = "policies-null" if policies is None else USUAL
        yield Shown("metadata-without-policies", answer, f"vendorPolicies {kind_of(policies)}")
    updated = record.get("updatedDateUtc")
    if isinstance(updated, str):
        yield from _zone_seen(updated)


def _zone(text: str) -> str:
    """Return how an instant is written; empty for a placeholder."""
    if text.startswith("0001-"):
        return ""
    if text.endswith(("Z", "+00:00")):
        return "Z"
    return "offset" if re.search(r"[+-]\d\d:\d\d$", text) else "none"


def _instant_form(text: str) -> str:
    return f"a text of {len(text)}, {ZONES.get(_zone(text), 'a placeholder')}"


def _zone_seen(text: str) -> Iterator[Shown]:
    """Yield how an instant is written. One without a zone says nothing alone: it may be in UTC or in local time."""
    zone = _zone(text)
    if zone in ("Z", "offset"):
        yield Shown("dates-without-zone", USUAL if zone == "Z" else "dates-offset", _instant_form(text))


def _zone_of(endpoint: Endpoint, body: object) -> str:
    if endpoint is not DETAILS or not isinstance(body, dict):
        return ""
    nested = body.get("phoneCall")
    updated = (nested if isinstance(nested, dict) else body).get("updatedDateUtc")
    return _zone(updated) if isinstance(updated, str) else ""


_NEAR: Final = timedelta(seconds=60)
_LIFE: Final = timedelta(minutes=30)


def _login(body: Fields, now: datetime) -> Iterator[Shown]:
    keys = body.get("institutionKeys")
    if isinstance(keys, list) and keys:
        odd = sum(not (isinstance(key, str) and is_institution_key(key)) for key in keys)
        answer = "odd-key" if odd else USUAL
        yield Shown("institution-key-alphabet", answer, f"{len(keys)} keys, {odd} of them cannot be used")
    expires = body.get("expiresOn")
    if not isinstance(expires, str):
        return
    if expires.startswith("0001-"):
        yield Shown("token-life", "expires-in-year-1", "a placeholder")
        return
    try:
        ahead = as_utc(msgspec.convert(expires, datetime)) - now
    except (msgspec.MsgspecError, ValueError):
        return
    shape = f"{ahead.total_seconds() / 60:+.0f} minutes from now"
    if abs(ahead) < _NEAR:
        yield Shown("token-life", "expires-at-login", shape)
    elif abs(ahead - _LIFE) < _NEAR:
        yield Shown("token-life", USUAL, shape)


def institutions_seen(body: object) -> Iterator[Shown]:
    """Yield how the list of institutions is wrapped, and what its entries look like."""
    if isinstance(body, list):
        yield Shown("institution-list-form", "list-bare", kind_of(body))
        yield from _institutions(body)
        return
    if not isinstance(body, dict):
        return
    arrays = {name: value for name, value in body.items() if isinstance(value, list) and name not in BASE_LISTS}
    if "institutions" in arrays:
        answer = USUAL if len(arrays) == 1 else "list-beside-arrays"
        yield Shown("institution-list-form", answer, f"institutions beside {len(arrays) - 1} other lists")
        yield from _institutions(arrays["institutions"])
    elif len(arrays) == 1:
        [entries] = arrays.values()
        yield Shown("institution-list-form", "list-items", f"another name, {kind_of(entries)}")
        yield from _institutions(entries)
    elif not arrays and any(isinstance(value, dict) for value in body.values()):
        yield Shown("institution-list-form", "list-nested", "in an object of the answer")


def _institutions(entries: Sequence[Any]) -> Iterator[Shown]:
    for entry in entries[:ENTRIES]:
        if not isinstance(entry, dict):
            continue
        parts = ("contacts", "voiceConfig", "billingConfig", "classification")
        shape = ", ".join(f"{name} {kind_of(entry.get(name))}" for name in parts)
        contacts, voice, billing, classification = (entry.get(name) for name in parts)
        is_odd = not isinstance(classification, str) or not all(
            value is None or isinstance(value, dict) for value in (voice, billing)
        )
        is_sparse = classification == "" and entry.get("name") is None
        is_odd |= isinstance(contacts, list) and not all(isinstance(each, dict) for each in contacts)
        answer = "institution-odd" if is_odd else "institution-sparse" if is_sparse else USUAL
        yield Shown("institution-shape", answer, shape)
        if not is_sparse and entry.get("status") == "Active":
            yield _vpn(entry.get("vpnConfig"))


def _vpn(config: object) -> Shown:
    if not isinstance(config, dict):
        return Shown("vpn-status", "vpn-none", f"vpnConfig {kind_of(config)}")
    words = [config.get(name) for name in ("confirmStatus", "institutionStatus")]
    known = [word if word in tuple(VpnStatus) else "another word" for word in words]
    is_connected = all(word == VpnStatus.CONNECTION_SUCCESSFUL for word in words)
    return Shown("vpn-status", USUAL if is_connected else "vpn-goes-back", ", ".join(map(str, known)))


def utc_now() -> datetime:
    """Return the present, in UTC."""
    return datetime.now(UTC)
