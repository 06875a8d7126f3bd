"""Counts what becomes of calls: read off the lines that their trails get, once those are written.

So a figure and the trails say the same, and what a lost lease left unwritten is not counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from calls.facts import facts_of
from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures
from calls.record import Call, Phase, Reason
from calls.rules.book import RuleBook
from calls.trail import Entry


@dataclass(frozen=True, slots=True)
class Counting:
    """What a worker counts of the calls that it moves.

    ``label`` returns under which name an institution is counted.
    """

    figures: Figures = field(default_factory=Figures)
    label: Callable[[str], str] = str

    def folded(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Count, by a call as stored and with its notes, that the service has confirmed it; what told of it first."""
        self.found(before, after)
        self._spent(before, after, book, now)

    def found(self, before: Call, after: Call) -> None:
        """Count a call that the service has just confirmed, by what told of it first."""
        if before.phase is Phase.HINTED and after.phase is not Phase.HINTED:
            by = "push" if after.hinted_at is not None else "queue"
            self.figures.count(figure.CALLS_FOUND, self.label(after.institution_key), by)

    def booked(self, call: Call, now: datetime) -> None:
        """Measure how late a check is booked; one that a person asked for has no time that it was planned for."""
        if call.next_check_at is not None and call.check_wish is None:
            self.figures.observe(figure.CHECK_LATE, max(0.0, (now - call.next_check_at).total_seconds()))

    def answered(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Measure, by a call before and after a check, how long a result can have waited; or that no checks are left."""
        since = before.answered_check_at or before.watch_from
        if since is not None and _has_result(after, book) and not _has_result(before, book):
            self.figures.observe(figure.DETECTION_LAG, (now - since).total_seconds())
        self._spent(before, after, book, now)

    def _spent(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Count a call whose automatic checks have just been spent without a result."""
        schedule, watch_from = book.schedule, after.watch_from
        if watch_from is None or not before.automatic_checks < schedule.automatic_limit <= after.automatic_checks:
            return
        if not _has_result(after, book):
            last_but_one_s = schedule.paced(after.voice_id).at_s[-2:][0]
            is_early = (now - watch_from).total_seconds() < last_but_one_s
            self.figures.count(
                figure.BUDGET_SPENT, self.label(after.institution_key), "early" if is_early else "planned"
            )

    def wrote(self, call: Call, entries: Sequence[Entry]) -> None:
        """Count what lines say that have just been written to a call's trail."""
        for entry in entries:
            count = _COUNTS.get(entry.what)
            if count is not None:
                count(self, call, entry)


def _has_result(call: Call, book: RuleBook) -> bool:
    """Tell whether a check has shown something: the voice is authenticated, or a red policy applied."""
    facts = facts_of(call, book.policies)
    return facts.green or facts.red


def _is_end_first_hint(call: Call) -> bool:
    """Tell whether the push of the end was the first of all: the record keeps when, not which."""
    if call.hinted_at is None or call.end_hinted_at is None:
        return False
    return call.end_hinted_at - call.hinted_at < timedelta(seconds=1)


def _checked(counting: Counting, _call: Call, entry: Entry) -> None:
    counting.figures.count(figure.CHECKS, "answered" if entry.what == "checked" else entry.because or "?")


def _decided(counting: Counting, _call: Call, entry: Entry) -> None:
    figures = counting.figures
    for tried in entry.tried:
        if tried.result == "shadowed":
            figures.count(figure.DECISIONS, tried.rule, "shadow", "hold" if tried.forbidden else tried.then)
    if entry.asked != "assign":
        figures.count(figure.DECISIONS, entry.rule or "none", "live", entry.kind or "hold")


def _effect(counting: Counting, _call: Call, entry: Entry) -> None:
    if entry.kind == "check":
        return  # a person's wish that was declined
    state = entry.state if entry.what in {"answered", "established"} else entry.what
    counting.figures.count(figure.EFFECTS, entry.kind or "?", state or "?")


def _settled(counting: Counting, call: Call, entry: Entry) -> None:
    if call.is_reopened:
        return  # it was counted when it was settled first
    figures, institution = counting.figures, counting.label(call.institution_key)
    figures.count(figure.CALLS_SETTLED, institution, entry.because or "?")
    if entry.because == Reason.UNCONFIRMED:
        figures.count(figure.HINTS_DROPPED, institution)
        return
    figures.observe(figure.CHECKS_SPENT, call.checks_used)
    if call.end_hinted_at is None:
        figures.count(figure.PUSHES_LOST, institution, "CallEnd")
    if call.hinted_at is None or _is_end_first_hint(call):
        figures.count(figure.PUSHES_LOST, institution, "CallStart")


def _dropped(counting: Counting, call: Call, _entry: Entry) -> None:
    counting.figures.count(figure.HINTS_DROPPED, counting.label(call.institution_key))


_COUNTS: dict[str, Callable[[Counting, Call, Entry], None]] = {
    "checked": _checked,
    "check_failed": _checked,
    "decided": _decided,
    "intended": _effect,
    "sent": _effect,
    "answered": _effect,
    "established": _effect,
    "withdrawn": _effect,
    "settled": _settled,
    "dropped": _dropped,
}
