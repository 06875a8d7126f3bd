"""Replay: what other rules would have made of recorded calls. Pure; the same calls and rules give the same answer.

The trail holds the facts at every moment they changed, so other rules can be asked at the same moments. Colours are those of
the other rules. From the first difference on the facts are corrected for what would and would not have been sent; what the
service and the caller would have done then, nobody knows. Assignments and check times are as they were. Where time alone
changes what the other rules come to (dates, seconds since the assignment), they are asked at that instant too.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from msgspec.structs import replace as with_fields

from calls.facts import MANUAL_GREEN, Colour, Facts, coloured
from calls.record import History
from calls.rules.book import Outcome, RuleBook
from calls.rules.verdict import Verdict, judge, table
from calls.story import shown
from calls.trail import Entry, Recorded, Tried

_DEEDS = (Outcome.ENROLL, Outcome.REJECT, Outcome.ASK)
"""What a call can come to besides nothing."""


@dataclass(frozen=True, slots=True)
class Did:
    """One effect that rules decided on."""

    outcome: str
    rule: str
    at_s: float
    validation_type: str | None = None

    @property
    def words(self) -> str:
        """Say it in a few words."""
        how = f" with {self.validation_type}" if self.validation_type else ""
        return f"{self.outcome}{how} by {self.rule!r} at {self.at_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Difference:
    """A call that comes out otherwise: what the recorded rules did, what the others would have, and why."""

    institution_key: str
    voice_id: str
    then: tuple[Did, ...]
    now: tuple[Did, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay found. ``undecidable`` calls have no facts in their trail: nothing was ever decided."""

    calls: int
    same: int
    undecidable: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class _Moment:
    """The facts of a call at one moment, and the recorded decision if one was made then."""

    at_s: float
    facts: Facts
    decision: Entry | None = None


_Played = dict[str, tuple[Did, _Moment]]
"""What a call came to, by kind: the deed, and the moment of it."""


class _Court:
    """Judges facts by other rules. Calls are much alike: what was judged once is remembered."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._verdicts: dict[object, Verdict] = {}

    def judge(self, facts: Facts, institution_key: str) -> Verdict:
        """Return the verdict on facts."""
        since, at, history = facts.assigned_s, facts.at, facts.history
        key = (
            frozenset(facts.as_dict().items() - {("assigned_s", since)}),
            None if since is None else bisect(self.book.turns_s, since),
            None if at is None else bisect(self.book.dates, at),
            *(facts.policies, history.answered, tuple(history.policies.items()), tuple(history.signs.items())),
            institution_key,
        )
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = judge(facts, self.book, institution_key)
        return verdict

    def coloured(self, facts: Facts) -> Facts:
        """Return facts with the policies' colours as these rules have them."""
        colours = self.book.policies.colours(name for name in facts.policies if name != MANUAL_GREEN)
        red = Colour.RED in colours
        return with_fields(
            facts,
            green=(facts.authenticated or Colour.GREEN in colours) and not red,
            red=red,
            unclassified=Colour.UNCLASSIFIED in colours,
            green_policy=Colour.GREEN in colours or MANUAL_GREEN in facts.policies,
            history=coloured(facts.history, self.book.policies),
        )


def replay(calls: Iterable[Recorded], book: RuleBook) -> Replay:
    """Ask other rules about recorded calls."""
    court = _Court(book)

    def compare(call: Recorded) -> Difference | None:
        moments = list(_moments(call, court))
        then, now = _recorded(moments), _played(call, moments, court)
        return _difference(call, then, now, court.book, lambda did, moment: _why_now(did, call, moment))

    return _replay(calls, compare)


def compare_books(calls: Iterable[Recorded], old: RuleBook, new: RuleBook) -> Replay:
    """Ask two rule books about recorded calls: which come out otherwise by the new one than by the old one."""
    before, after = _Court(old), _Court(new)

    def compare(call: Recorded) -> Difference | None:
        then = _played(call, list(_moments(call, before)), before)
        now = _played(call, list(_moments(call, after)), after)

        def why_now(did: Did, moment: _Moment) -> str:
            known = before.coloured(moment.facts)
            return f"{did.rule!r} matches; by the old rules {_why_not(did, table(known, old, call.institution_key))}"

        return _difference(call, then, now, new, why_now)

    return _replay(calls, compare)


def _replay(calls: Iterable[Recorded], compare: Callable[[Recorded], Difference | None]) -> Replay:
    total = same = undecidable = 0
    differences: list[Difference] = []
    for call in calls:
        total += 1
        if not any(entry.facts is not None for entry in call.trail):
            undecidable += 1
            continue
        difference = compare(call)
        if difference is None:
            same += 1
        else:
            differences.append(difference)
    return Replay(total, same, undecidable, tuple(differences))


def _moments(call: Recorded, court: _Court) -> Iterator[_Moment]:
    """Yield the facts at every moment they changed, and at which time changed what the rules come to."""
    last: tuple[Facts, datetime, datetime | None] | None = None
    for facts, decision, assigned_at in _changes(call):
        if last is not None and facts.at is not None:
            yield from _turns(call, court, *last, facts.at)
        assert facts.at is not None  # noqa: S101  (every line of a trail has its time)
        last = (facts, facts.at, assigned_at)
        yield _Moment(_seconds(facts.at, call.begins_at), court.coloured(facts), decision)
    if last is not None:
        yield from _turns(call, court, *last, call.trail[-1].at)


def _turns(
    call: Recorded, court: _Court, facts: Facts, after: datetime, assigned_at: datetime | None, before: datetime
) -> Iterator[_Moment]:
    """Yield the moments between two at which time alone may change what the rules come to."""
    while (turn_at := court.book.next_turn(assigned_at, after)) is not None and turn_at < before:
        since = None if assigned_at is None else int((turn_at - assigned_at).total_seconds())
        known = with_fields(court.coloured(facts), at=turn_at, assigned_s=since)
        yield _Moment(_seconds(turn_at, call.begins_at), known)
        after = turn_at


def _changes(call: Recorded) -> Iterator[tuple[Facts, Entry | None, datetime | None]]:
    """Yield the facts after every line that changes them, with the recorded decision, and since when there is a person.

    A check's answer and the facts that follow from it are one change.
    """
    known: Facts | None = None
    history, assigned_at, waiting = History(), None, False
    for entry in call.trail:
        if waiting and known is not None and (entry.facts is None or entry.what == "checked"):
            yield known, None, assigned_at
        waiting = False
        if entry.facts is not None:
            known = Facts.from_dict(entry.facts, policies=entry.policies, history=history, at=entry.at)
            since = timedelta(seconds=known.assigned_s or 0)
            assigned_at = (assigned_at or entry.at - since) if known.assigned else None
            is_decision = entry.what == "decided" and entry.asked != "assign"
            yield known, entry if is_decision else None, assigned_at
        elif entry.what in {"checked", "check_failed"}:
            if entry.what == "checked" and entry.n:
                history = history.with_answer(entry.n, entry.policies, entry.signs)
            if known is not None:
                since_s = None if assigned_at is None else int((entry.at - assigned_at).total_seconds())
                known = with_fields(known, checks_used=entry.n or 0, history=history, at=entry.at, assigned_s=since_s)
                waiting = True
    if waiting and known is not None:
        yield known, None, assigned_at


def _seconds(at: datetime, begins_at: datetime | None) -> float:
    return (at - begins_at).total_seconds() if begins_at else 0.0


def _recorded(moments: Sequence[_Moment]) -> _Played:
    """Return what the recorded rules did."""
    found: _Played = {}
    for moment in moments:
        entry = moment.decision
        if entry is not None and entry.kind in _DEEDS and entry.kind not in found:
            found[entry.kind] = (Did(entry.kind, entry.rule or "", moment.at_s, entry.validation_type), moment)
    return found


def _played(call: Recorded, moments: Sequence[_Moment], court: _Court) -> _Played:
    """Return what other rules would have done."""
    then: set[str] = set()
    now: _Played = {}
    for moment in moments:
        facts = _corrected(moment.facts, then, now)
        verdict = court.judge(facts, call.institution_key)
        if verdict.outcome in _DEEDS and verdict.outcome not in now:
            now[verdict.outcome] = (_did(verdict, moment), replace(moment, facts=facts))
        if moment.decision is not None and moment.decision.kind in _DEEDS:
            then.add(moment.decision.kind)
    return now


def _corrected(facts: Facts, then: set[str], now: _Played) -> Facts:
    """Return the facts as they would be had the other rules' effects been sent, and only those."""
    if Outcome.ENROLL in then or Outcome.ENROLL in now:
        enrolled = Outcome.ENROLL in now
        facts = with_fields(facts, enrolled=enrolled, manual=enrolled)
    if Outcome.REJECT in then or Outcome.REJECT in now:
        facts = with_fields(facts, rejected=Outcome.REJECT in now)
    return facts


def _did(verdict: Verdict, moment: _Moment) -> Did:
    validation = verdict.validation_type if verdict.outcome is Outcome.ENROLL else None
    return Did(verdict.outcome, verdict.rule, moment.at_s, validation)


def _difference(
    call: Recorded, then: _Played, now: _Played, book: RuleBook, why_now: Callable[[Did, _Moment], str]
) -> Difference | None:
    if {kind: did.validation_type for kind, (did, _) in then.items()} == {
        kind: did.validation_type for kind, (did, _) in now.items()
    }:
        return None
    reasons: list[str] = []
    for kind, (did, moment) in then.items():
        if kind not in now:
            reasons.append(_why_not(did, table(moment.facts, book, call.institution_key)))
        elif now[kind][0].validation_type != did.validation_type:
            reasons.append(f"{now[kind][0].rule!r} enrolls with another validation type")
    reasons += [why_now(did, moment) for kind, (did, moment) in now.items() if kind not in then]
    return Difference(
        call.institution_key,
        call.voice_id,
        tuple(did for did, _ in then.values()),
        tuple(did for did, _ in now.values()),
        "; ".join(reasons),
    )


def _why_not(did: Did, tried: tuple[Tried, ...]) -> str:
    """Say why other rules do not do what some rules did: the condition that failed, of the same rule or of its like."""
    decided = next((line for line in tried if line.result == "matched"), None)
    line = next((line for line in tried if line.rule == did.rule), None)
    if decided is not None and decided.forbidden:
        return f"{decided.rule!r} asks for {decided.then}, the law forbids it ({', '.join(decided.forbidden)})"
    if line is not None:
        return _fared(line, decided.rule if decided else None)
    return f"{_alike(did, tried)}" + (f", and {decided.rule!r} decides" if decided else "")


def _alike(did: Did, tried: Iterable[Tried]) -> str:
    """Say how the rules fared that ask for the same as one that is not there."""
    alike = [_fared(line, None) for line in tried if line.then == did.outcome and line.result in _TOLD]
    return (
        "; ".join(alike)
        if alike
        else "no rule asks " + ("a person" if did.outcome == Outcome.ASK else f"for {did.outcome}")
    )


_TOLD = frozenset({"failed", "shadowed", "elsewhere"})


def _why_now(did: Did, call: Recorded, moment: _Moment) -> str:
    """Say why the recorded rules did not do what the other ones do: by the last decision up to then."""
    decision = None
    for entry in call.trail:
        if entry.what == "decided" and entry.asked != "assign" and _seconds(entry.at, call.begins_at) <= moment.at_s:
            decision = entry
    if decision is None:
        return f"{did.rule!r} matches"
    line = next((line for line in decision.tried if line.rule == did.rule), None)
    if line is None:
        return f"{did.rule!r} matches, and was not among the rules then; then {_alike(did, decision.tried)}"
    if line.result == "matched" and decision.forbidden:
        return f"{did.rule!r} matches; then the law forbade it ({', '.join(decision.forbidden)})"
    return f"{did.rule!r} matches; then {_fared(line, decision.rule)}"


def _fared(line: Tried, decided: str | None) -> str:
    match line.result:
        case "failed":
            return f"{line.rule!r} wants {line.fact} {shown(line.wanted)}, it was {shown(line.was)}"
        case "shadowed":
            return f"{line.rule!r} was in shadow"
        case "elsewhere":
            return f"{line.rule!r} was not for this institution"
        case _:
            return (
                f"{decided!r} decided before {line.rule!r}"
                if decided != line.rule
                else f"{line.rule!r} asks for {line.then}"
            )
