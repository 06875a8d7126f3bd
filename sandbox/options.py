"""How the stand-in answers what the document leaves open: one field for each choice, the friendliest as its default.

`sandbox.questions` names the other answers.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sandbox.answers import RefusedError

T = TypeVar("T")

Form = Callable[[Any], Any]
"""Gives a plain JSON value another form."""


def unchanged(value: T) -> T:
    """Return what was given."""
    return value


def refuse_larger(limit: int) -> Callable[[int], int]:
    """Return the rule that a page has at most so many entries, and that a larger one is refused."""

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


def write_utc(at: dt.datetime) -> str:
    """Write an instant in UTC, with its zone."""
    return at.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is done where the document says "not shown" or can be read in two ways.

    Attributes:
        wrap_institutions: Form of the answer of the institution list.
        institution_form: Form of one institution, in the list and by its key.
        token_keys: The `institutionKeys` of a login, made from the keys of all institutions of the reseller.
        login_ends_earlier: Whether a login ends the tokens of earlier logins.
        login_refusal_status: HTTP status of a login with wrong credentials.
        page_size: The size of a page, made from `pageSize`.
        page: The entries of a page, from all entries, `continueFrom` and the size.
        past_end: The entries of a page that lies past the end.
        newest_first: Whether the queue lists the newest call first.
        bounds_are_exclusive: Whether a call that starts exactly at `startDate` or `endDate` is left out.
        listed_after_end_s: For how long the queue lists a call that has ended.
        lists_assigned: Whether the queue lists a live call whose person is known.
        null_persons: Whether a caller without candidates has `persons` null, or an empty list.
        needs_json: Whether a content type other than JSON is refused with 415.
        refusal_status: HTTP status of a refusal, by its code.
        refusal_form: Form of a refusal.
        problem_form: Form of a problem response.
        success_form: Form of every answer, for what an answer that succeeds says besides.
        answer_form: Form of every answer.
        shows_nested, shows_top: Where details carries the record.
        requests_per_s: How many requests are answered within one second; more get a 429. 0: all.
        write_instant: How date-times are written in answers and pushes.
        clock_ahead_s: By how much the clock of the service is ahead of true time.
        shown_start: What `startDateTime` says, and the bounds compare, made from the start of a call.
        end_writes_status: Whether the end of a call overwrites `status` with CallEnded.
        assign_writes_status: Whether an assign writes the activity GrabbedCall.
        viewed_after_s: After how many seconds AgentViewed overwrites a status that says how the call was decided.
        status_lag_s: By how much the shown status is behind what was written.
        policy_lag_s: By how much the shown policies are behind the status that they belong to.
        unenroll_after_s: Seconds from a reject until the member's other manual authentications are un-enrolled.
        id_form: Form of the ids that the provider gives to a call.
        addition_needs_key: Whether an institution can be added without a key.
    """

    wrap_institutions: Form = lambda records: {"institutions": records}
    institution_form: Form = unchanged
    token_keys: Callable[[list[str]], list[str]] = unchanged
    login_ends_earlier: bool = False
    login_refusal_status: int = 200
    page_size: Callable[[int], int] = refuse_over_1000
    page: Callable[[Sequence[Any], int, int], Sequence[Any]] = skip_entries
    past_end: Callable[[Sequence[Any], int], Sequence[Any]] = end_empty
    newest_first: bool = False
    bounds_are_exclusive: bool = False
    listed_after_end_s: float = 0.0
    lists_assigned: bool = True
    null_persons: bool = True
    needs_json: bool = False
    refusal_status: Callable[[str], int] = lambda _code: 200
    refusal_form: Form = unchanged
    problem_form: Form = unchanged
    success_form: Form = unchanged
    answer_form: Form = unchanged
    shows_nested: bool = True
    shows_top: bool = True
    requests_per_s: int = 0
    write_instant: Callable[[dt.datetime], str] = write_utc
    clock_ahead_s: float = 0.0
    shown_start: Callable[[dt.datetime], dt.datetime] = unchanged
    end_writes_status: bool = True
    assign_writes_status: bool = True
    viewed_after_s: float | None = None
    status_lag_s: float = 0.0
    policy_lag_s: float = 0.0
    unenroll_after_s: float = 0.0
    id_form: Callable[[str], str] = unchanged
    addition_needs_key: bool = False
