"""Which event a call is moved by: every request and every log line until the next one belongs to its trace. Pure.

An event is a push, or a person's word at the desk; the number by which it was answered is its trace. A call that the queue
showed first has one of its own.
"""

from collections.abc import Sequence
from datetime import datetime

from calls.notes import AssignWish, CheckWish, Distrusted, Note, Pushed, Resolved, Verified
from reseller.tracing import is_trace


def trace_of(notes: Sequence[Note]) -> str | None:
    """Return the trace of the newest event among notes; None if there is no event among them."""
    events = [event for event in map(_event, notes) if event is not None]
    return max(events)[1] if events else None


def _event(note: Note) -> tuple[datetime, str] | None:
    match note:
        case Pushed():
            at, trace = note.received_at, note.event_id
        case AssignWish() | Verified() | Distrusted() | CheckWish() | Resolved():
            at, trace = note.said_at, note.wish or ""
        case _:
            return None
    return (at, trace) if is_trace(trace) else None
