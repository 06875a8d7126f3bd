"""The summary of an RQ job: what was done, as a sentence for the dashboard and as counts for the job's result."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from callkeeper.calls.pause import EVERYWHERE, Pauses
from callkeeper.calls.quantity import quantity

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
"""The sentence names at most this many paused institutions, and this many calls: the latest."""

MOST_CALLS = 100
"""The result names at most this many calls: the latest."""


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
    calls: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    """What happened to each call, by voice id, and how many checks it has spent. The latest are last."""
    pauses: Pauses = field(default_factory=Pauses)
    attention: int = 0
    unreachable_since: datetime | None = None
    is_outage_report: bool = False

    def add(self, name: str, n: int = 1) -> None:
        self.counts[name] += n

    def handled(self, voice_id: str, happened: Iterable[str], checks: int) -> None:
        """Name a call with what happened to it."""
        before, _ = self.calls.pop(voice_id, ((), 0))
        self.calls[voice_id] = tuple(dict.fromkeys((*before, *happened))), checks
        if len(self.calls) > MOST_CALLS:
            del self.calls[next(iter(self.calls))]

    def found(self, institution_key: str, **queue: int) -> None:
        """Count what a full listing found, if the job is about that institution.

        Of several listings the first counts. It ends with the call that passes ``gone``.
        """
        if institution_key == self.about and not self._was_listed:
            self.queue.update(queue)

    def sentence(self) -> str:
        """Return for example ``37 calls, 35 checks; 4 listings failed; 2 need a person``. It holds no personal data.

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
            parts.append(f"{self.attention} need{'s' if self.attention == 1 else ''} a person")
        return "; ".join(part for part in parts if part)

    def description(self) -> str:
        """Return the sentence with the latest calls: ``2 calls, 5 checks; 3f2...: assigned, green, 4 checks; ...``."""
        named = [f"{voice_id}: {self._of(voice_id)}" for voice_id in [*reversed(self.calls)][:MOST_NAMED]]
        rest = len(self.calls) - len(named)
        return "; ".join([self.sentence(), *named, *([f"and {rest} more"] if rest else [])])

    def as_dict(self) -> dict[str, int | str | dict[str, str]]:
        result: dict[str, int | str | dict[str, str]] = {name: n for name, n in sorted(self.counts.items()) if n}
        if self.about:
            result |= {"reconciled": self.about, **self.queue}
        if paused := self._paused():
            result["paused"] = paused.removeprefix("paused: ")
        if self.unreachable_since is not None:
            result["unreachable_since"] = self.unreachable_since.isoformat()
        named = {voice_id: self._of(voice_id) for voice_id in self.calls}
        return {**result, "attention": self.attention, **({"latest": named} if named else {})}

    def _of(self, voice_id: str) -> str:
        happened, checks = self.calls[voice_id]
        return ", ".join([*happened, quantity(checks, "check")])

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
