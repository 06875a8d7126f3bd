"""What a worker measures: a job's summary, and the figures of calls; and what it logs once however often it comes across it.

Figures are read off the lines that trails get, once those are written. So a figure and the trails say the same, and
what a lost lease left unwritten is not counted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from calls.facts import facts_of
from calls.metrics import catalogue as figure
from calls.metrics.counting import Figures
from calls.pause import EVERYWHERE, Pauses
from calls.record import Call, Phase, Reason
from calls.rules.book import RuleBook
from calls.trail import Entry

_QUEUE = (
    ("listed", "call in the queue", "calls in the queue"),
    ("told", "new or changed", "new or changed"),
    ("gone", "no longer in it", "no longer in it"),
)
_WORDS = (
    ("calls", "call", "calls"),
    ("institutions", "queue listed", "queues listed"),
    ("checks", "check", "checks"),
    ("reads", "read", "reads"),
    ("assigned", "assigned", "assigned"),
    ("enrolled", "enroll", "enrolls"),
    ("rejected", "reject", "rejects"),
    ("settled", "settled", "settled"),
    ("dropped", "hint dropped", "hints dropped"),
)
_FAILURES = (
    ("listings_failed", "listing failed", "listings failed"),
    ("checks_failed", "check failed", "checks failed"),
    ("reads_failed", "read failed", "reads failed"),
    ("effects_in_doubt", "effect in doubt", "effects in doubt"),
    ("steps_failed", "step failed", "steps failed"),
)

MOST_NAMED = 5
"""Of so many paused institutions the sentence names each."""


@dataclass(slots=True)
class JobSummary:
    """Counts by name.

    ``about`` is the institution whose queue the job was enqueued to list, ``queue`` what was found there; a job that moves
    on whatever is due is about none. ``attention`` is how many calls need a person. ``unreachable_since`` is when the
    service stopped answering; None while it answers. ``is_outage_report``: the job that carries this tally is to fail, so
    that the dashboard shows the outage. ``pauses`` are those in force at the last claim.
    """

    about: str = ""
    queue: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    pauses: Pauses = field(default_factory=Pauses)
    attention: int = 0
    unreachable_since: datetime | None = None
    is_outage_report: bool = False

    def add(self, name: str, n: int = 1) -> None:
        """Count something that happened."""
        self.counts[name] += n

    def found(self, institution_key: str, **queue: int) -> None:
        """Count what a full listing found, if the job is about that institution; ``gone`` comes last, and once."""
        if institution_key == self.about and not self._was_listed:
            self.queue.update(queue)

    def sentence(self) -> str:
        """Return for example ``37 calls, 35 checks; 4 listings failed; 2 need a human``. It holds no personal data.

        Of a job that is about a queue, that comes first: ``12 calls in the queue, 3 new or changed; meanwhile 37 calls``.
        """
        done = _list(_WORDS, self.counts)
        if self.about:
            queue = _list(_QUEUE, self.queue) or ("the queue is empty" if self._was_listed else "not listed yet")
            parts = [queue, f"meanwhile {done}" if done else ""]
        else:
            parts = [done or "nothing was due"]
        parts += [_list(_FAILURES, self.counts), self._paused()]
        if self.unreachable_since is not None:
            parts.append(f"service unreachable since {self.unreachable_since:%H:%M} UTC")
        if self.attention:
            parts.append(f"{self.attention} need{'s' if self.attention == 1 else ''} a human")
        return "; ".join(part for part in parts if part)

    def as_dict(self) -> dict[str, int | str]:
        """Return the counts as a job's result."""
        result: dict[str, int | str] = {name: n for name, n in sorted(self.counts.items()) if n}
        if self.about:
            result |= {"reconciled": self.about, **self.queue}
        if paused := self._paused():
            result["paused"] = paused.removeprefix("paused: ")
        if self.unreachable_since is not None:
            result["unreachable_since"] = self.unreachable_since.isoformat()
        return {**result, "attention": self.attention}

    @property
    def _was_listed(self) -> bool:
        return "gone" in self.queue

    def _paused(self) -> str:
        """Say what is paused, the pause of all institutions first; of many only some."""
        where = [
            f"{'every institution' if key == EVERYWHERE else key} ({pause.scope})"
            for key, pause in sorted(self.pauses.by_institution.items())
        ]
        if not where:
            return ""
        rest = len(where) - MOST_NAMED
        return f"paused: {', '.join(where[:MOST_NAMED])}" + (f" and {rest} more" if rest > 0 else "")


def _list(words: tuple[tuple[str, str, str], ...], counts: Counter[str]) -> str:
    return ", ".join(f"{n} {one if n == 1 else many}" for name, one, many in words if (n := counts[name]))


@dataclass(slots=True)
class PauseLog:
    """Remembers which pauses this process has logged."""

    known: Pauses = field(default_factory=Pauses)

    def see(self, pauses: Pauses, log: Any) -> None:
        """Log what is new since the last look; looks are frequent, and nearly all find nothing."""
        if pauses is self.known:
            return
        before, now = self.known.by_institution, pauses.by_institution
        self.known = pauses
        for key, pause in now.items():
            if before.get(key) != pause:
                log.warning("pause_seen", institution=key, scope=pause.scope, operator=pause.operator)
        for key in sorted(before.keys() - now.keys()):
            log.warning("pause_over", institution=key, scope=before[key].scope)


@dataclass(slots=True)
class UnreadableLog:
    """Logs and counts stored values that cannot be read, once each for a kind of value and an institution."""

    log: Any
    figures: Figures
    _known: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, what: str, institution_key: str) -> None:
        """Notice one; ``institution_key`` is empty where it belongs to none."""
        if (what, institution_key) in self._known:
            return
        self._known.add((what, institution_key))
        self.figures.count(figure.STORED_UNREADABLE, what)
        self.log.error("stored_unreadable", what=what, institution=institution_key)


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
