"""Other forms of what the stand-in sends: wrappers, pages, refusals, date-times, ids; small functions that variants name."""

import datetime as dt
import re
import string
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from sandbox.answers import RefusedError
from sandbox.options import Options
from sandbox.records import NEVER

T = TypeVar("T")

_INSTANT = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)"')
_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))
_BEYOND_ASCII = "äßéñøłžαωжяשلअกあ漢字€…"


def written(answer: bytes, options: Options) -> bytes:
    """Return JSON with its date-times as the service writes them, and in the form that all its answers have."""
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
    """Return what writes an instant as the time of a zone, with or without naming the zone."""
    zone = dt.timezone(dt.timedelta(hours=hours))

    def write(at: dt.datetime) -> str:
        local = at.astimezone(zone)
        return (local if is_named else local.replace(tzinfo=None)).isoformat()

    return write


def year_one(_started_at: dt.datetime) -> dt.datetime:
    """Say nothing of when a call started."""
    return NEVER


def in_ten_minutes(started_at: dt.datetime) -> dt.datetime:
    """Return an instant after the start of a call."""
    return started_at + dt.timedelta(minutes=10)


def cut_to(limit: int) -> Callable[[int], int]:
    """Return the rule that a page never has more entries than that, whatever was asked for."""
    return lambda size: min(size, limit)


def count_pages(first: int) -> Callable[[Sequence[T], int, int], Sequence[T]]:
    """Return what reads `continueFrom` as the number of a page; anything below the first number is the first page."""

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
    """Return what puts a value into objects, from the outermost name inwards."""

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
    """Return a page of the institution list that leaves out the last institution, and says that there is more."""
    shown = max(1, len(records) - 1)
    paging = {"page": 1, "pageSize": shown, "totalCount": len(records), "hasMore": shown < len(records)}
    return {"institutions": records[:shown], **paging}


def odd_institution(record: dict[str, Any]) -> dict[str, Any]:
    """Give the parts of an institution whose structure is not shown another structure."""
    contact = {"id": 7, "name": {"first": "Ada"}, "phones": ["5550100000"], "isPrimary": True}
    odd = {"contacts": [contact, None], "voiceConfig": [1, {"a": []}], "billingConfig": "net-30", "classification": 3}
    return {**record, **odd}


def message_in(name: str) -> Callable[[Any], Any]:
    """Return what puts the message of a refusal into one field only, and gives no code."""

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


def visible_id(given: str) -> str:
    """Return an id with every visible character of ASCII."""
    return given + _VISIBLE


def wide_id(given: str) -> str:
    """Return an id with blanks inside, and letters and signs far beyond ASCII."""
    return f"{given[:8]} {_BEYOND_ASCII} {given[8:]}"


def upper_guid(given: str) -> str:
    """Return an id in capital letters."""
    return given.upper()


def digits(given: str) -> str:
    """Return an id of digits."""
    return "".join(character for character in given if character in string.digits)[:18].rjust(6, "7")
