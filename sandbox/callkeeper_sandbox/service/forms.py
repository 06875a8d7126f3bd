"""Small functions for variants that change the form of answers: wrappers, pages, refusals, date-times, ids."""

import datetime as dt
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from callkeeper_sandbox.service.answers import RefusedError
from callkeeper_sandbox.service.options import Options
from callkeeper_sandbox.service.records import NEVER

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


def beside_arrays(records: list[Any]) -> Any:
    """Return the institution list beside other arrays, one of them of objects with keys."""
    return {"classifications": [{"key": "standard", "name": "Standard"}], "tags": [], "institutions": records}


def first_page_only(records: list[Any]) -> Any:
    """Return a page of the institution list without the last institution, and with a sign that there are more."""
    shown = max(1, len(records) - 1)
    paging = {"page": 1, "pageSize": shown, "totalCount": len(records), "hasMore": shown < len(records)}
    return {"institutions": records[:shown], **paging}


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


def is_guid(text: str) -> bool:
    """Tell whether an id is a GUID."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
