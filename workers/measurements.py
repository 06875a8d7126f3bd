"""What a worker measures: the summary of a job, the figures about calls, and the offset of the service's clock.

Figures are counted from trail entries after these were written. So figures and trails agree, and a write that failed
because of a lost lease is not counted. ``ServiceClock`` computes a call's age by the service's clock, which may differ
from ours by hours.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from callkeeper.calls.answer_signs import HEARD_ENOUGH, is_voice_expected, is_voice_shown, signs_shown, unknown_names
from callkeeper.calls.claimed_item import Epoch
from callkeeper.calls.facts import Policies, has_result
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.metrics.counting import Figures
from callkeeper.calls.pause import EVERYWHERE, Pauses
from callkeeper.calls.record import Call, Phase, Reason
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import automatic_left
from callkeeper.calls.settlement import NOT_LISTED
from callkeeper.calls.trail import Entry

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
"""The summary names at most this many paused institutions."""


@dataclass(slots=True)
class JobSummary:
    """Counts of what a job did, by name.

    ``about`` is the institution whose queue the job was enqueued to list; empty for a job that handles whatever is due.
    ``queue`` counts what was found in that queue. ``attention`` is how many calls need a person. ``unreachable_since``
    is when the service stopped answering; None while it answers. ``is_outage_report``: this job is to fail, so that the
    dashboard shows the outage. ``pauses`` are those in force at the last claim.
    """

    about: str = ""
    queue: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    pauses: Pauses = field(default_factory=Pauses)
    attention: int = 0
    unreachable_since: datetime | None = None
    is_outage_report: bool = False

    def add(self, name: str, n: int = 1) -> None:
        """Add ``n`` to a count."""
        self.counts[name] += n

    def found(self, institution_key: str, **queue: int) -> None:
        """Count what a full listing found, if the job is about that institution. ``gone`` comes last, and once."""
        if institution_key == self.about and not self._was_listed:
            self.queue.update(queue)

    def sentence(self) -> str:
        """Return for example ``37 calls, 35 checks; 4 listings failed; 2 need a human``. It holds no personal data.

        A job about a queue starts with that queue: ``12 calls in the queue, 3 new or changed; meanwhile 37 calls``.
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
        """Return the counts for the job's result."""
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
        """List the pauses, that of all institutions first, and at most `MOST_NAMED` of them."""
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
        """Log pauses that are new or over. Most looks find no change."""
        if pauses is self.known:
            return
        before, now = self.known.by_institution, pauses.by_institution
        self.known = pauses
        for key, pause in now.items():
            if before.get(key) != pause:
                log.warning("pause_seen", institution=key, scope=pause.scope, operator=pause.operator)
        for key in sorted(before.keys() - now.keys()):
            log.warning("pause_over", institution=key, scope=before[key].scope)


FOUND_WITHIN_S = 10.0
"""A call is found within this many seconds of its start. A process that has listed for that long knows older calls."""

LISTED_ANEW = timedelta(seconds=120)
"""How long after Redis was emptied a found call may be an old one, even if it was not in the first look."""

MOST_LEARNED = 100


class ServiceClock:
    """Estimates the service's clock from the start times of the calls that it lists.

    No call starts in the future, so the service's clock is at least at the newest start ever listed, plus the time
    since. A new call is found within 10 s, so once this process has found one, the clock is at most 10 s past that.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """Start without any observation. ``monotonic`` is this process's own clock, in seconds."""
        self._monotonic = monotonic
        self._began_s: float | None = None
        self._found_s: float | None = None
        self._learned: list[tuple[float, float]] = []  # when, and by how much the service's clock is ahead of ours

    def see(self, starts: Iterable[datetime]) -> None:
        """Learn from the start times on a page of a queue, which may be empty."""
        now_s = self._monotonic()
        self._began_s = now_s if self._began_s is None else self._began_s
        ahead_s = max((started_at.timestamp() - now_s for started_at in starts), default=None)
        if ahead_s is not None and (not self._learned or ahead_s > self._learned[-1][1]):
            self._learned = [*self._learned[1 - MOST_LEARNED :], (now_s, ahead_s)]

    def found(self, started_at: datetime | None, now: datetime, epoch: Epoch, *, may_be_old: bool) -> timedelta | None:
        """Return the maximum age of a call that was just found, and learn from it if it must be new. As `age`."""
        may_be_old = may_be_old or now - epoch.since < LISTED_ANEW
        age = self.age(started_at, now, epoch, may_be_old=may_be_old)
        if started_at is not None and not may_be_old:
            self.see([started_at])
            self._found_s = self._monotonic() if self._found_s is None else self._found_s
        return age

    def age(self, started_at: datetime | None, now: datetime, epoch: Epoch, *, may_be_old: bool) -> timedelta | None:
        """Return the maximum age of a call; None if it may have any.

        Args:
            started_at: When it started, by the service's clock; None if the service does not tell.
            now: Redis's time.
            epoch: The Redis instance it was found with. If this process saw that instance begin, calls found now may be
                old ones that were lost, so their start times say nothing about the service's clock.
            may_be_old: Whether the call may be older than that instance. If so, a process that did not find a call
                before the instance began cannot tell by how much the service's clock is ahead.
        """
        if started_at is None:
            return None if may_be_old else timedelta()
        now_s = self._monotonic()
        if epoch.was_seen_to_begin:
            began_s = now_s - (now - epoch.since).total_seconds()
            known = [ahead_s for at_s, ahead_s in self._learned if at_s < began_s]
            if known and self._found_s is not None and self._found_s < began_s:
                return timedelta(seconds=now_s + known[-1] + FOUND_WITHIN_S - started_at.timestamp())
        if may_be_old and epoch.is_replaced:
            return None
        ahead = [timedelta(seconds=now_s + self._learned[-1][1] - started_at.timestamp())] if self._learned else []
        return max([*ahead, timedelta()] if self._was_familiar(now_s) else [*ahead, now - started_at])

    def _was_familiar(self, at_s: float) -> bool:
        return self._began_s is not None and at_s - self._began_s >= FOUND_WITHIN_S


NOT_OURS: Final = "unknown"
"""The label for institutions that the service account does not own."""


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

    def folded(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Count a call that its notes have just confirmed, by what reported it first, and a spent budget."""
        self.found(before, after)
        if before.hinted_at is None and after.hinted_at is not None:
            self.figures.count(figure.CALLS_PUSHED, self.label(after.institution_key), "came")
        self._spent(before, after, book, now)

    def found(self, before: Call, after: Call) -> None:
        """Count a call that the service has just confirmed, by what reported it first."""
        if before.phase is Phase.HINTED and after.phase is not Phase.HINTED:
            by = "push" if after.hinted_at is not None else "queue"
            self.figures.count(figure.CALLS_FOUND, self.label(after.institution_key), by)
            if by == "queue":
                self.figures.count(figure.CALLS_PUSHED, self.label(after.institution_key), "missing")
            else:
                result = "unlisted" if after.listed_at is None else "listed"
                self.figures.count(figure.PUSHED_CALLS, self.label(after.institution_key), result)

    def shown(self, before: Call, after: Call, policies: Policies) -> None:
        """Count what a call's record shows for the first time: classified policies, others, an unknown status."""
        label = self.label(after.institution_key)
        for result in signs_shown(after, policies) - signs_shown(before, policies):
            self.figures.count(figure.POLICIES_SHOWN, label, result)
        for name in unknown_names(after, policies):
            self.figures.say(name, figure.POLICIES_SHOWN, label)

    def booked(self, call: Call, now: datetime) -> None:
        """Measure how late a check is booked. A check that a person asked for has no planned time and is left out."""
        if call.next_check_at is not None and call.check_wish is None:
            self.figures.observe(figure.CHECK_LATE, max(0.0, (now - call.next_check_at).total_seconds()))

    def answered(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Measure how long a new result may have waited, or count that no checks are left.

        Args:
            before: The call before the check.
            after: The call after it.
            book: The rules.
            now: When the answer was folded.
        """
        since = before.answered_check_at or before.watch_from
        if since is not None and has_result(after, book.policies) and not has_result(before, book.policies):
            self.figures.observe(figure.DETECTION_LAG, (now - since).total_seconds())
        self._provided(before, after, book)
        self._spent(before, after, book, now)

    def _provided(self, before: Call, after: Call, book: RuleBook) -> None:
        """Count a call once its voice shows, and once eight checks were answered without that."""
        label, is_shown = self.label(after.institution_key), is_voice_shown(after, book.policies)
        if is_shown and not is_voice_shown(before, book.policies):
            self.figures.count(figure.PROVIDER_ANSWERS, label, "shown")
        answers = after.history.answered.bit_count()
        if not is_shown and answers == HEARD_ENOUGH > before.history.answered.bit_count():
            self.figures.count(figure.PROVIDER_ANSWERS, label, "pending" if is_voice_expected(after) else "silent")

    def _spent(self, before: Call, after: Call, book: RuleBook, now: datetime) -> None:
        """Count a call whose last automatic check was just spent without a result."""
        schedule, watch_from = book.schedule, after.watch_from
        limit = schedule.automatic_limit
        if watch_from is None or not automatic_left(before, limit) or automatic_left(after, limit):
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


def _is_end_first_hint(call: Call) -> bool:
    """Tell whether the CallEnd push came first. The record keeps only the times, so within a second counts as first."""
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
        return  # a person's request for a check that was declined
    state = entry.state if entry.what in {"answered", "established"} else entry.what
    counting.figures.count(figure.EFFECTS, entry.kind or "?", state or "?")


def _settled(counting: Counting, call: Call, entry: Entry) -> None:
    if call.is_reopened:
        return  # it was counted when it was first settled
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


def _dropped(counting: Counting, call: Call, entry: Entry) -> None:
    label = counting.label(call.institution_key)
    counting.figures.count(figure.HINTS_DROPPED, label)
    if entry.because == NOT_LISTED and call.standing is None and not _is_end_first_hint(call):
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
