"""Small functions for variants that change the form of answers: wrappers, pages, refusals, date-times, ids."""

import datetime as dt
import re
import string
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from callkeeper_sandbox.service.answers import JSON, RefusedError
from callkeeper_sandbox.service.options import Options, oldest_first
from callkeeper_sandbox.service.records import NEVER
from callkeeper_sandbox.service.state import Call

T = TypeVar("T")

_INSTANT = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"')
_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))
_BEYOND_ASCII = "äßéñøłžαωжяשلअกあ漢字€…"


def written(answer: bytes, options: Options) -> bytes:
    """Return JSON with the date-times and the answer form of the options."""
    if options.write_instant is not Options.write_instant or options.clock_ahead_s:
        answer = _INSTANT.sub(lambda found: _instant(found[1].decode(), options), answer)
    if options.success_form is not Options.success_form:
        answer = msgspec.json.encode(options.success_form(msgspec.json.decode(answer)))
    if options.answer_form is not Options.answer_form:
        answer = msgspec.json.encode(options.answer_form(msgspec.json.decode(answer)))
    return answer


def _instant(text: str, options: Options) -> bytes:
    at = dt.datetime.fromisoformat(text)
    if at.year == NEVER.year:
        return f'"{text}"'.encode()
    return f'"{options.write_instant(at + dt.timedelta(seconds=options.clock_ahead_s))}"'.encode()


def in_zone(hours: float, *, is_named: bool) -> Callable[[dt.datetime], str]:
    """Return a function that writes an instant in a time zone, with or without the zone."""
    zone = dt.timezone(dt.timedelta(hours=hours))

    def write(at: dt.datetime) -> str:
        local = at.astimezone(zone)
        return (local if is_named else local.replace(tzinfo=None)).isoformat()

    return write


def year_one(_started_at: dt.datetime) -> dt.datetime:
    """Return a placeholder for the start of a call."""
    return NEVER


def in_ten_minutes(started_at: dt.datetime) -> dt.datetime:
    """Return an instant after the start of a call."""
    return started_at + dt.timedelta(minutes=10)


def cut_to(limit: int) -> Callable[[int], int]:
    """Return a function that limits the size of a page."""
    return lambda size: min(size, limit)


def count_pages(first: int) -> Callable[[Sequence[T], int, int], Sequence[T]]:
    """Return a function that reads `continueFrom` as a page number. Lower numbers mean the first page."""

    def page(entries: Sequence[T], number: int, size: int) -> Sequence[T]:
        begin = max(0, number - first) * size
        return entries[begin : begin + size]

    return page


def overlap(entries: Sequence[T], skip: int, size: int) -> Sequence[T]:
    """Begin every page but the first with the last two entries of the page before."""
    begin = max(0, skip - 2)
    return entries[begin : begin + size]


def refuse_past_end(_entries: Sequence[T], _size: int) -> Sequence[T]:
    """Refuse a page past the end."""
    raise RefusedError("continueFrom is out of range.", "OutOfRange")


def repeat_last_page(entries: Sequence[T], size: int) -> Sequence[T]:
    """Answer a page past the end with the last entries."""
    return entries[-size:]


def wrapped_in(*names: str) -> Callable[[Any], Any]:
    """Return a function that wraps a value in nested objects, outermost name first."""

    def wrap(value: Any) -> Any:
        for name in reversed(names):
            value = {name: value}
        return value

    return wrap


def beside_arrays(records: list[Any]) -> Any:
    """Return the institution list beside other arrays, one of them of objects with keys."""
    return {"classifications": [{"key": "standard", "name": "Standard"}], "tags": [], "institutions": records}


def all_but_last(keys: list[str]) -> list[str]:
    """Leave out the last key, unless it is the only one."""
    return keys[:-1] if len(keys) > 1 else keys


def first_page_only(records: list[Any]) -> Any:
    """Return a page of the institution list without the last institution, and with a sign that there are more."""
    shown = max(1, len(records) - 1)
    paging = {"page": 1, "pageSize": shown, "totalCount": len(records), "hasMore": shown < len(records)}
    return {"institutions": records[:shown], **paging}


def odd_institution(record: dict[str, Any]) -> dict[str, Any]:
    """Give the parts of an institution that the Spec does not show an unusual structure."""
    contact = {"id": 7, "name": {"first": "Ada"}, "phones": ["5550100000"], "isPrimary": True}
    odd = {"contacts": [contact, None], "voiceConfig": [1, {"a": []}], "billingConfig": "net-30", "classification": 3}
    return {**record, **odd}


def message_in(name: str) -> Callable[[Any], Any]:
    """Return a function that puts the message of a refusal into one field only, without a code."""

    def form(answer: dict[str, Any]) -> dict[str, Any]:
        bare = {**answer, "error": None, "errors": None, "messages": None, "code": None}
        return {**bare, name: answer["error"] if name == "error" else [answer["error"]]}

    return form


def with_unknown_fields(answer: Any) -> Any:
    """Add fields that the document does not have to every object."""
    if isinstance(answer, list):
        return [with_unknown_fields(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    known = {name: with_unknown_fields(value) for name, value in answer.items()}
    return {"$type": "v1.next", **known, "extensions": {"traits": [{"name": "x"}], "since": 2}}


def with_message(answer: Any) -> Any:
    """Add an informational message to every answer that succeeds."""
    is_good = isinstance(answer, dict) and answer.get("success") is True
    return {**answer, "messages": ["Maintenance on Sunday."]} if is_good else answer


def without_nulls(answer: Any) -> Any:
    """Leave out every property that is null."""
    if isinstance(answer, list):
        return [without_nulls(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: without_nulls(value) for name, value in answer.items() if value is not None}


def always_400(_code: str) -> int:
    """Return the HTTP status of a refusal."""
    return 400


def not_found_404(code: str) -> int:
    """Return the HTTP status of a refusal with this code."""
    return 404 if code.endswith("NotFound") else 400


def json_if_any(content_type: str, has_body: bool) -> bool:
    """Accept JSON, and a missing content type if there is no body."""
    return content_type.partition(";")[0].strip() == JSON or not (has_body or content_type)


def exact_json(content_type: str, has_body: bool) -> bool:
    """Accept exactly the media type with a body, and none without one."""
    return content_type == (JSON if has_body else "")


def newest_first(calls: Iterable[Any]) -> list[Any]:
    """List the newest call first."""
    return oldest_first(calls)[::-1]


def by_number(calls: Iterable[Any]) -> list[Any]:
    """List calls by their phone numbers."""
    return sorted(oldest_first(calls), key=lambda call: call.phone_number)


def whole_minute(at: dt.datetime) -> dt.datetime:
    """Return the minute of an instant."""
    return at.replace(second=0, microsecond=0)


def e164(phone_number: str) -> str:
    """Write a number with its country."""
    return f"+1{phone_number}"


def with_brackets(phone_number: str) -> str:
    """Write a number as people do."""
    return f"({phone_number[:3]}) {phone_number[3:6]}-{phone_number[6:]}"


def sparse_institution(record: dict[str, Any]) -> dict[str, Any]:
    """Set all nullable fields of an institution to null."""
    kept = {
        "id",
        "key",
        "isTestMode",
        "hasVoiceAuth",
        "core",
        "status",
        "usesIpWhitelisting",
        "contacts",
        "classification",
    }
    return {name: value if name in kept else None for name, value in record.items()} | {"classification": ""}


def pending_vpn(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a tunnel with its initial statuses."""
    return config and {**config, "confirmStatus": "Pending", "institutionStatus": "Configured"}


def without_base(answer: dict[str, Any]) -> dict[str, Any]:
    """Leave out the base response."""
    return {name: value for name, value in answer.items() if name in {"token", "actions"}}


def errors_only(problem: dict[str, Any]) -> dict[str, Any]:
    """Return a problem with only its messages."""
    return {"errors": [problem["detail"]]}


def with_empty_base(answer: Any) -> Any:
    """Return empty texts and lists instead of nulls in a successful answer."""
    is_good = isinstance(answer, dict) and answer.get("success") is True
    return {**answer, "error": "", "errors": [], "messages": [], "code": ""} if is_good else answer


def null_if_no_policies(metadata: dict[str, Any]) -> dict[str, Any] | None:
    """Return null for `metaData` if there are no policies."""
    return metadata if metadata["vendorPolicies"] else None


def null_policies(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return `metaData` with null instead of an empty list."""
    return {"vendorPolicies": metadata["vendorPolicies"] or None}


def enrolled_as(flags: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that sets all flags of a record that an enroll could set."""
    enrolled = [f"is{what}Enrolled" for what in ("", "Account", "Voice", "Behavior", "Device")]
    names = [*enrolled, "isVerified", "isVoiceVerified", "successfulVoiceEnrollment"]
    return lambda record: {**record, **dict.fromkeys(names, flags)}


def case_that_goes_on(call: Call, now: dt.datetime) -> str:
    """Return the status of a case that people work on."""
    age_s = (now - call.started_at).total_seconds()
    return "NeedsReview" if age_s < 5 else "InReview" if age_s < 15 else "FalsePositive"


def case_archived_at_the_end(call: Call, _now: dt.datetime) -> str:
    """Return the status of a case that nobody works on."""
    return "NeedsReview" if call.ended_at is None else "SystemArchived"


def visible_id(given: str) -> str:
    """Return an id with every visible character of ASCII."""
    return given + _VISIBLE


def wide_id(given: str) -> str:
    """Return an id with inner blanks and with letters and signs outside ASCII."""
    return f"{given[:8]} {_BEYOND_ASCII} {given[8:]}"


def is_guid(text: str) -> bool:
    """Tell whether an id is a GUID."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def upper_guid(given: str) -> str:
    """Return an id in capital letters."""
    return given.upper()


def digits(given: str) -> str:
    """Return an id of digits."""
    return "".join(character for character in given if character in string.digits)[:18].rjust(6, "7")
