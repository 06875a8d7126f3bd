"""Small functions for variants that change the form of answers: wrappers, pages, refusals, date-times, ids."""

import datetime as dt
import re
import string
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from callkeeper_sandbox.service.answers import JSON, RefusedError
from callkeeper_sandbox.service.options import Options
from callkeeper_sandbox.service.records import NEVER
from callkeeper_sandbox.service.state import Call

T = TypeVar("T")

_INSTANT = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"')


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


def json_if_any(content_type: str, has_body: bool) -> bool:
    """Accept JSON, and a missing content type if there is no body."""
    return content_type.partition(";")[0].strip() == JSON or not (has_body or content_type)


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


def with_empty_base(answer: Any) -> Any:
    """Return empty texts and lists instead of nulls in a successful answer."""
    is_good = isinstance(answer, dict) and answer.get("success") is True
    return {**answer, "error": "", "errors": [], "messages": [], "code": ""} if is_good else answer


def enrolled_as(flags: bool) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that sets all flags of a record that an enroll could set."""
    enrolled = [f"is{what}Enrolled" for what in ("", "Account", "Voice", "Behavior", "Device")]
    names = [*enrolled, "isVerified", "isVoiceVerified", "successfulVoiceEnrollment"]
    return lambda record: {**record, **dict.fromkeys(names, flags)}


def case_that_goes_on(call: Call, now: dt.datetime) -> str:
    """Return the status of a case that people work on."""
    age_s = (now - call.started_at).total_seconds()
    return "NeedsReview" if age_s < 5 else "InReview" if age_s < 15 else "FalsePositive"


def is_guid(text: str) -> bool:
    """Tell whether an id is a GUID."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def digits(given: str) -> str:
    """Return an id of digits."""
    return "".join(character for character in given if character in string.digits)[:18].rjust(6, "7")
