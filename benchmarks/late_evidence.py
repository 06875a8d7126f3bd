"""How many enrolls are lost because the evidence was noticed after the end of the call? Exact for each of many calls.

Each call is assigned, and its voice decides nothing. The functions that workers use move it from its assign to its end,
without Redis and HTTP. The member answers the questions at a random moment of the call, each equally likely.
Answers after the last read or check before the end are lost. So each call yields the probability of a loss, and a few
thousand calls are enough to resolve about one percent. Both ways see the same calls.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import sqrt
from random import Random
from statistics import fmean, stdev

from msgspec.structs import replace

from benchmarks.due_calls import due_call
from callkeeper.calls.context import Context
from callkeeper.calls.decide import decide
from callkeeper.calls.record import Call
from callkeeper.calls.rules import RuleBook
from callkeeper.calls.schedule.model import PRIOR_CALL
from callkeeper.calls.schedule.plan import begin_watch, check_answered, check_booked
from callkeeper.calls.schedule.reads import next_read
from callkeeper.calls.steps import Check, Read, Wait

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

FIRST_S = 5.0
"""The earliest moment at which a member has answered the questions."""

SHORTEST_S = 10.0


@dataclass(frozen=True, slots=True)
class Share:
    """A mean over many calls, in percent, with its 95 % interval."""

    percent: float
    margin: float

    @classmethod
    def of(cls, shares: list[float]) -> "Share":
        """Return the mean of shares between 0 and 1."""
        return cls(100 * fmean(shares), 196 * stdev(shares) / sqrt(len(shares)))

    def __str__(self) -> str:
        return f"{self.percent:.2f} ± {self.margin:.2f}"


def losses(books: list[RuleBook], *, live: int, calls: int, seed: int) -> list[list[float]]:
    """Return each call's probability that its evidence is noticed too late, for each rule book."""
    chance = Random(seed)  # noqa: S311
    lengths = [max(SHORTEST_S, PRIOR_CALL.quantile(chance.random())) for _ in range(calls)]
    return [[_lost(book, f"v-{seed}-{n}", lives_s, live) for n, lives_s in enumerate(lengths)] for book in books]


def _lost(book: RuleBook, voice_id: str, lives_s: float, live: int) -> float:
    unseen_s = lives_s - max(FIRST_S, last_look_s(book, voice_id, lives_s, live))
    return unseen_s / (lives_s - FIRST_S)


def last_look_s(book: RuleBook, voice_id: str, lives_s: float, live: int) -> float:
    """Return when an undecided call is last read or checked before its end, in seconds after its assign."""
    due = due_call(voice_id, BEGIN, book)
    plan, life = replace(due.plan, watch_from=None, next_check_at=None), replace(due.life, first_seen_at=BEGIN)
    fresh = replace(due, plan=plan, life=life)
    call = _looked(begin_watch(fresh, book.schedule, BEGIN, BEGIN), book, BEGIN, live)
    now, looked_at, end = BEGIN, BEGIN, BEGIN + timedelta(seconds=lives_s)
    while now < end:
        match decide(call, Context(call.last_claim), book, now):
            case Wait(until):
                now = until
            case Read():
                call, looked_at = _looked(call, book, now, live), now
            case Check():
                call = check_answered(check_booked(call, book.schedule, now))
                call, looked_at = _looked(call, book, now, live), now
            case step:
                raise AssertionError(f"an undecided call needs no {step}")
    return (looked_at - BEGIN).total_seconds()


def _looked(call: Call, book: RuleBook, now: datetime, live: int) -> Call:
    """Return a call that was just read, and when it is read next."""
    call = (
        replace(call, seen=replace(call.seen, reading=replace(call.seen.reading, read_at=now)))
        if call.seen.reading
        else call
    )
    periods = (book.reads_undecided_s, book.reads_decided_s)
    read_at = next_read(
        call, Context(call.last_claim, live), book.policies, now, undecided_s=periods[0], decided_s=periods[1]
    )
    return replace(call, plan=replace(call.plan, next_read_at=read_at))
