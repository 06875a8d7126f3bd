"""Counts what happens to calls, for the metrics.

Figures are counted from trail entries after these were written. So figures and trails agree, and a write that failed
because of a lost lease is not counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from callkeeper.calls.fact_derivation import has_result
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.metrics.hourly import Slot, slot_of_delay, slot_of_reason
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.quiet_outages import NOT_OURS
from callkeeper.calls.record import Call, Phase, Reading, Reason
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import automatic_left
from callkeeper.calls.settlement import MAY_HAVE_ENDED
from callkeeper.calls.statuses import STATUSES
from callkeeper.calls.trail import Entry

HEARD_ENOUGH: Final = 8
"""After this many answered checks, 36 s after the assign, most calls have a result if the provider knows the voice."""


@dataclass(slots=True)
class Counting:
    """Counts what happens to calls. ``ours`` are the institutions we act for; None: every key is its own label."""

    figures: Figures = field(default_factory=Figures)
    ours: frozenset[str] | None = None

    def label(self, institution_key: str) -> str:
        """Return the label under which figures count an institution. All that are not ours share one.

        Anyone who may push can invent keys, and every label stays in Redis for weeks.
        """
        return institution_key if self.ours is None or institution_key in self.ours else NOT_OURS

    def listed(self, institution_key: str, outcome: str) -> None:
        """Count a look at an institution's queue."""
        self.figures.count(figure.LISTINGS, self.label(institution_key), outcome)

    def folded(self, before: Call, after: Call, book: RuleBook, now: datetime, *, is_first_look: bool) -> None:
        """Count a call that its notes have just confirmed, by what reported it first, and a spent budget.

        ``is_first_look``: it was in the first look at its queue, at all or since Redis was emptied.
        """
        self.found(before, after, is_first_look=is_first_look)
        if before.life.hinted_at is None and after.life.hinted_at is not None:
            self.figures.count(figure.CALLS_PUSHED, self.label(after.institution_key), "came")
        self._spent(before, after, book, now)

    def found(self, before: Call, after: Call, *, is_first_look: bool = False) -> None:
        """Count a call that the service has just confirmed, by what reported it first. As `folded`."""
        if before.life.phase is Phase.HINTED and after.life.phase is not Phase.HINTED:
            by = "push" if after.life.hinted_at is not None else "queue"
            self.figures.count(figure.CALLS_FOUND, self.label(after.institution_key), by)
            self.figures.sum_up(self.label(after.institution_key), Slot.STARTED)
            if by == "queue":
                if not is_first_look:  # else its push may have come before
                    self.figures.count(figure.CALLS_PUSHED, self.label(after.institution_key), "missing")
            elif after.life.listed_at is not None:
                self.figures.count(figure.PUSHED_CALLS, self.label(after.institution_key), "listed")
            elif not (_had_ended_when_found(before) or _had_ended_when_found(after)):
                # The start of an unlisted call was counted when its hint was dropped. `after` may count as claimed earlier,
                # because checks may be lost; `before` lacks what is folded now.
                self.figures.count(figure.PUSHED_CALLS, self.label(after.institution_key), "unlisted")

    def shown(self, before: Call, after: Call, policies: Policies) -> None:
        """Count what a call's record shows for the first time: classified policies, others, an unknown status."""
        label, reading = self.label(after.institution_key), after.seen.reading
        for result in signs_shown(reading, policies) - signs_shown(before.seen.reading, policies):
            self.figures.count(figure.POLICIES_SHOWN, label, result)
        names, status = unknown_names(reading, policies)
        for name in (*(f"policy {name!r}" for name in names), *([f"status {status!r}"] if status is not None else [])):
            self.figures.note_name(name, figure.POLICIES_SHOWN, label)

    def booked(self, call: Call, now: datetime) -> None:
        """Measure how late a check is booked. A check that a person asked for has no planned time and is left out."""
        if call.plan.next_check_at is not None and call.statements.check_wish is None:
            self.figures.observe(figure.CHECK_LATE, max(0.0, (now - call.plan.next_check_at).total_seconds()))

    def answered(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Measure how long a new result may have waited, or count that no checks are left."""
        since, label = before.plan.answered_check_at or before.plan.watch_from, self.label(after.institution_key)
        if since is not None and has_result(after, book.policies) and not has_result(before, book.policies):
            lag_s = (now - since).total_seconds()
            self.figures.observe(figure.DETECTION_LAG, lag_s)
            self.figures.sum_up(label, slot_of_delay(lag_s))
        if after.seen.reading is not None and after.seen.reading.provider_error is not None:
            self.figures.sum_up(label, Slot.PROVIDER_ERRORS)
        self._provided(before, after, book)
        self._spent(before, after, book, now)

    def _provided(self, before: Call, after: Call, book: RuleBook) -> None:
        """Count a call once its voice shows, and once eight checks were answered without that."""
        label, is_shown = self.label(after.institution_key), is_voice_shown(after, book.policies)
        if is_shown and not is_voice_shown(before, book.policies):
            self.figures.count(figure.PROVIDER_ANSWERS, label, "shown")
        answers = after.seen.history.answered.bit_count()
        if not is_shown and answers == HEARD_ENOUGH > before.seen.history.answered.bit_count():
            self.figures.count(figure.PROVIDER_ANSWERS, label, "pending" if is_voice_expected(after) else "silent")

    def _spent(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Count a call whose last automatic check was just spent without a result."""
        schedule, watch_from = book.schedule, after.plan.watch_from
        limit = schedule.automatic_limit
        if watch_from is None or automatic_left(after, limit) or not automatic_left(before, limit):
            return
        if not has_result(after, book.policies):
            last_but_one_s = schedule.paced(after.voice_id).at_s[-2:][0]
            is_early = (now - watch_from).total_seconds() < last_but_one_s
            self.figures.count(
                figure.BUDGET_SPENT, self.label(after.institution_key), "early" if is_early else "planned"
            )

    def wrote(self, call: Call, entries: Sequence[Entry]) -> None:
        """Count the entries that were just written to a call's trail."""
        for entry in entries:
            count = _COUNTS.get(entry.what)
            if count is not None:
                count(self, call, entry)


def is_voice_shown(call: Call, policies: Policies) -> bool:
    """Tell whether the provider has said anything of the voice: a result, a mismatch, a risk, or any policy."""
    has_policy = call.seen.reading is not None and any(name != MANUAL_GREEN for name in call.seen.reading.policies)
    return has_policy or call.seen.mismatch or call.seen.risky_device or has_result(call, policies)


def is_voice_expected(call: Call) -> bool:
    """Tell whether the provider must have something to say: it is still evaluating, or it has a voiceprint."""
    return call.seen.pending or (call.seen.reading is not None and call.seen.reading.is_voice_enrolled)


def unknown_names(reading: Reading | None, policies: Policies) -> tuple[list[str], str | None]:
    """Return the policies of a reading that have no colour, and its status if the Spec does not name it."""
    if reading is None:
        return [], None
    names = [name for name in reading.policies if policies.colour(name) is Colour.UNCLASSIFIED]
    return names, None if reading.status in STATUSES else reading.status


def signs_shown(reading: Reading | None, policies: Policies) -> set[str]:
    """Return whether the policies of a reading are classified, and whether its status is unknown: labels of a figure."""
    names, status = unknown_names(reading, policies)
    shown = {"unclassified" if names else "classified"} if reading is not None and reading.policies else set()
    return shown if status is None else shown | {"status_unknown"}


def _is_end_first_hint(call: Call) -> bool:
    """Tell whether the CallEnd push came first. The record keeps only the times, so within a second counts as first."""
    if call.life.hinted_at is None or call.life.end_hinted_at is None:
        return False
    return call.life.end_hinted_at - call.life.hinted_at < timedelta(seconds=1)


def _had_ended_when_found(call: Call) -> bool:
    """Tell whether a call had ended before its queue could be listed. Then no listing could show it.

    Workers were away, only its end was pushed, or the service was away.
    """
    end_hinted_at, first_seen_at = call.life.end_hinted_at, call.life.first_seen_at
    is_known_at_once = end_hinted_at is not None and first_seen_at is not None and end_hinted_at <= first_seen_at
    hinted_at, looked_at = call.life.hinted_at, call.life.looked_back_at
    is_of_outage = hinted_at is not None and looked_at is not None and looked_at - hinted_at > MAY_HAVE_ENDED
    return is_known_at_once or is_of_outage or _is_end_first_hint(call)


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
        return  # a person's request for a check that was declined
    state = entry.state if entry.what in {"answered", "established"} else entry.what
    counting.figures.count(figure.EFFECTS, entry.kind or "?", state or "?")


def _settled(counting: Counting, call: Call, entry: Entry) -> None:
    if call.life.is_reopened:
        return  # it was counted when it was first settled
    figures, institution = counting.figures, counting.label(call.institution_key)
    figures.count(figure.CALLS_SETTLED, institution, entry.because or "?")
    if entry.because == Reason.UNCONFIRMED:
        figures.count(figure.HINTS_DROPPED, institution)
        return
    figures.sum_up(institution, slot_of_reason(entry.because))
    figures.observe(figure.CHECKS_SPENT, call.plan.checks_used)
    if call.life.end_hinted_at is None:
        figures.count(figure.PUSHES_LOST, institution, "CallEnd")
    if call.life.hinted_at is None or _is_end_first_hint(call):
        figures.count(figure.PUSHES_LOST, institution, "CallStart")


def _dropped(counting: Counting, call: Call, _entry: Entry) -> None:
    label = counting.label(call.institution_key)
    counting.figures.count(figure.HINTS_DROPPED, label)
    if call.last_claim.standing is None and not _had_ended_when_found(call):
        counting.figures.count(figure.PUSHED_CALLS, label, "unlisted")


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
