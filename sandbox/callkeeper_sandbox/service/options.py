"""Options for the open questions of the document: one field per choice, with the friendliest answer as default.

`callkeeper_sandbox.service.questions` has the other answers.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from callkeeper_sandbox.service.answers import RefusedError
from callkeeper_sandbox.service.institutions import InstitutionStatus

T = TypeVar("T")

Form = Callable[[Any], Any]
"""Changes the form of a plain JSON value."""


def unchanged(value: T) -> T:
    """Return the value unchanged."""
    return value


def refuse_larger(limit: int) -> Callable[[int], int]:
    """Return a function that refuses larger pages."""

    def bounded(size: int) -> int:
        if size > limit:
            raise RefusedError(f"pageSize must be 1 to {limit}.", "Malformed")
        return size

    return bounded


refuse_over_1000 = refuse_larger(1000)


def skip_entries(entries: Sequence[T], skip: int, size: int) -> Sequence[T]:
    """Read `continueFrom` as the number of entries to skip."""
    return entries[skip : skip + size]


def end_empty(_entries: Sequence[T], _size: int) -> Sequence[T]:
    """Answer a page past the end with no entries."""
    return ()


def oldest_first(calls: Iterable[Any]) -> list[Any]:
    """List the oldest call first."""
    return sorted(calls, key=lambda call: (call.started_at, call.call_id))


def write_utc(at: dt.datetime) -> str:
    """Write an instant in UTC, with its zone."""
    return at.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The behaviour where the document says "not shown" or is ambiguous. Each `..._form` changes one part of an answer.

    Attributes:
        status_with_calls: Status of the reseller's last institution from its first call on.
        token_keys: The `institutionKeys` of a login, made from the keys of all institutions of the reseller.
        page_size: The size of a page, made from `pageSize`.
        listed_after_end_s: For how long the queue lists a call that has ended.
        prefills_person: Where a call that nobody has assigned shows the only matched member as its person.
        refusal_status: HTTP status of a refusal, by its code.
        success_form: Additional form of every answer, for extras in successful ones.
        shows_top: Whether the record is also at the top level of the answer to details.
        requests_per_s: Requests answered within one second; more get a 429. 0: no limit.
        clock_ahead_s: By how much the clock of the service is ahead of true time.
        shown_start: What `startDateTime` says, and the bounds compare, made from the start of a call.
        policy_lag_s: Delay of the shown policies after their status.
        unenroll_after_s: Seconds from a reject until the member's other manual authentications are un-enrolled.
        moves_id: Whether the queue lists a call under its alternate id until somebody is assigned.
        capital_ids: Where these are written in capital letters. Requests may then spell them either way.
    """

    wrap_institutions: Form = lambda records: {"institutions": records}
    status_with_calls: InstitutionStatus | None = None
    token_keys: Callable[[list[str]], list[str]] = unchanged
    login_ends_earlier: bool = False
    page_size: Callable[[int], int] = refuse_over_1000
    page: Callable[[Sequence[Any], int, int], Sequence[Any]] = skip_entries
    past_end: Callable[[Sequence[Any], int], Sequence[Any]] = end_empty
    queue_order: Callable[[Iterable[Any]], list[Any]] = oldest_first
    listed_after_end_s: float = 0.0
    prefills_person: frozenset[Literal["queue", "details"]] = frozenset()
    refusal_status: Callable[[str], int] = lambda _code: 200
    success_form: Form = unchanged
    answer_form: Form = unchanged
    shows_top: bool = True
    requests_per_s: int = 0
    write_instant: Callable[[dt.datetime], str] = write_utc
    clock_ahead_s: float = 0.0
    shown_start: Callable[[dt.datetime], dt.datetime] = unchanged
    end_writes_status: bool = True
    assign_writes_status: bool = True
    assign_over: Literal["replaces", "refused", "ignored"] = "replaces"
    refused_after_end: frozenset[str] = frozenset()
    status_lag_s: float = 0.0
    policy_lag_s: float = 0.0
    unenroll_writes_status: bool = True
    unenroll_after_s: float = 0.0
    id_form: Callable[[str], str] = unchanged
    moves_id: bool = False
    capital_ids: frozenset[Literal["push", "queue", "details", "assign"]] = frozenset()
