"""Replay: what other rules would have decided for recorded calls. Pure; the same calls and rules give the same result.

The trail holds the facts whenever they changed, so other rules can be applied at the same moments, with their own
colours. After the first difference the facts are corrected for what would and would not have been sent. What the
service and the caller would have done then is unknown. Assignments and check times stay as recorded. If time alone
changes what the other rules decide (dates, seconds since the assignment), they are applied at that instant too.
While a policy was red by the recorded rules, the trail does not tell whether the voice was authenticated; then it
counts as not authenticated.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace as with_fields

from callkeeper.calls.fact_derivation import coloured
from callkeeper.calls.facts import GROWING, Facts, Value
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import History
from callkeeper.calls.rules.book import Outcome, RuleBook
from callkeeper.calls.rules.matching import Verdict, judge, next_turn, table
from callkeeper.calls.statuses import FRAUD
from callkeeper.calls.story import shown
from callkeeper.calls.trail import Entry, Recorded, Tried

_DEEDS = (Outcome.ENROLL, Outcome.REJECT, Outcome.ASK)
"""The results of a call other than none."""


@dataclass(frozen=True, slots=True)
class Did:
    """One effect that rules decided on."""

    outcome: str
    rule: str
    at_s: float
    validation_type: str | None = None

    @property
    def words(self) -> str:
        how = f" with {self.validation_type}" if self.validation_type else ""
        return f"{self.outcome}{how} by {self.rule!r} at {self.at_s:.1f} s"


@dataclass(frozen=True, slots=True)
class Difference:
    """A call with another result: what the recorded rules did, what the others would have done, and why."""

    institution_key: str
    voice_id: str
    then: tuple[Did, ...]
    now: tuple[Did, ...]
    why: str


@dataclass(slots=True)
class Replay:
    """The number of calls. ``undecidable`` ones have no facts in their trail: nothing was ever decided.

    ``sums`` counts the different ones by what they did and what they would do: ``("enroll", "hold")``.
    """

    calls: int = 0
    same: int = 0
    different: int = 0
    undecidable: int = 0
    sums: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Moment:
    """The facts of a call at one moment, with the recorded decision if there was one."""

    at_s: float
    facts: Facts
    decision: Entry | None = None


_Played = dict[str, tuple[Did, _Moment]]
"""The results of a call by kind: the effect, and the moment of it."""


class _Court:
    """Applies other rules to facts. Many calls are alike, so verdicts are cached."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._verdicts: dict[object, Verdict] = {}

    def judge(self, facts: Facts, institution_key: str) -> Verdict:
        facts = self.book.local(facts, institution_key)
        at, history = facts.at, facts.history
        seconds = {name: getattr(facts, name) for name in GROWING}
        key = (
            frozenset(facts.as_dict().items() - seconds.items()),
            *(None if passed is None else bisect(self.book.turns_s[name], passed) for name, passed in seconds.items()),
            None if at is None else bisect(self.book.dates, at),
            *(facts.policies, history.answered, tuple(history.policies.items()), tuple(history.signs.items())),
            institution_key,
        )
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = judge(facts, self.book, institution_key)
        return verdict

    def coloured(self, facts: Facts) -> Facts:
        """Return facts with the colours that these rules give the policies."""
        return with_colours(with_fields(facts, **dict.fromkeys(_BY_COLOURS, False)), self.book.policies)


_BY_COLOURS: Final = ("green", "red", "red_seen", "unclassified", "unclassified_seen", "green_policy")


def with_colours(facts: Facts, policies: Policies) -> Facts:
    """Return recorded or written facts with the colours that rules give their policies. For a live call: `facts_of`."""
    colours = policies.colours(name for name in facts.policies if name != MANUAL_GREEN)
    red = facts.red or Colour.RED in colours
    unclassified = facts.unclassified or Colour.UNCLASSIFIED in colours
    history = coloured(facts.history, policies)
    return with_fields(
        facts,
        green=(facts.green or facts.authenticated or Colour.GREEN in colours) and not red,
        authenticated=facts.authenticated and not red,
        red=red,
        red_seen=facts.red_seen or red or "red" in history.signs,
        unclassified=unclassified,
        unclassified_seen=facts.unclassified_seen or unclassified or "unclassified" in history.signs,
        green_policy=facts.green_policy or Colour.GREEN in colours or MANUAL_GREEN in facts.policies,
        history=history,
    )


Report = Callable[[Difference], object]
"""Gets each difference when it is found. A replay keeps none, because there may be millions."""


def replay(calls: Iterable[Recorded], book: RuleBook, report: Report) -> Replay:
    """Apply other rules to recorded calls."""
    court = _Court(book)

    def compare(call: Recorded) -> Difference | None:
        moments = list(_moments(call, court))
        then, now = _recorded(moments), _played(call, moments, court)
        return _difference(call, then, now, court.book, lambda did, moment: _why_now(did, call, moment))

    return _replay(calls, compare, report)


def compare_books(calls: Iterable[Recorded], old: RuleBook, new: RuleBook, report: Report) -> Replay:
    """Apply two rule books to recorded calls: which calls have another result under the new one?"""
    before, after = _Court(old), _Court(new)

    def compare(call: Recorded) -> Difference | None:
        then = _played(call, list(_moments(call, before)), before)
        now = _played(call, list(_moments(call, after)), after)

        def why_now(did: Did, moment: _Moment) -> str:
            known = before.coloured(moment.facts)
            return f"{did.rule!r} matches; by the old rules {_why_not(did, table(known, old, call.institution_key))}"

        return _difference(call, then, now, new, why_now)

    return _replay(calls, compare, report)


def _replay(calls: Iterable[Recorded], compare: Callable[[Recorded], Difference | None], report: Report) -> Replay:
    found = Replay()
    for call in calls:
        found.calls += 1
        if not any(entry.facts is not None for entry in call.trail):
            found.undecidable += 1
        elif (difference := compare(call)) is None:
            found.same += 1
        else:
            found.different += 1
            found.sums[_outcomes(difference.then), _outcomes(difference.now)] += 1
            report(difference)
    return found


def _outcomes(effects: Sequence[Did]) -> str:
    return " and ".join(did.outcome for did in effects) or "hold"


def _moments(call: Recorded, court: _Court) -> Iterator[_Moment]:
    """Yield the facts whenever they changed, and whenever time alone changed what the rules decide."""
    last: tuple[Facts, datetime, _Begun] | None = None
    for facts, decision, begun in _changes(call):
        if last is not None and facts.at is not None:
            yield from _turns(call, court, *last, facts.at)
        assert facts.at is not None  # noqa: S101  (every entry of a trail has its time)
        last = (facts, facts.at, begun)
        yield _Moment(_seconds(facts.at, call.begins_at), court.coloured(facts), decision)
    if last is not None:
        yield from _turns(call, court, *last, call.trail[-1].at)


_Begun = Mapping[str, datetime]
"""When the facts that count seconds began to."""


def _turns(
    call: Recorded, court: _Court, facts: Facts, after: datetime, begun: _Begun, before: datetime
) -> Iterator[_Moment]:
    """Yield the moments between two instants at which time alone may change what the rules decide."""
    while (turn_at := next_turn(court.book, begun, after, call.institution_key)) is not None and turn_at < before:
        yield _Moment(_seconds(turn_at, call.begins_at), _as_of(court.coloured(facts), turn_at, begun))
        after = turn_at


def _changes(call: Recorded) -> Iterator[tuple[Facts, Entry | None, _Begun]]:
    """Yield the facts after every entry that changes them, the recorded decision, and since when seconds are counted.

    A check's answer and the facts that follow from it count as one change.
    """
    known: Facts | None = None
    history, waiting = History(), False
    begun: _Begun = {}
    for entry in call.trail:
        if waiting and known is not None and (entry.facts is None or entry.what == "checked"):
            yield known, None, begun
        waiting = False
        if entry.facts is not None:
            known = Facts.from_dict(_as_named_now(entry.facts), policies=entry.policies, history=history, at=entry.at)
            begun = _begun(known, entry.at, begun)
            known = _as_of(known, entry.at, begun)
            is_decision = entry.what == "decided" and entry.asked != "assign"
            yield known, entry if is_decision else None, begun
        elif entry.what == "read":
            history = history.with_read(entry.policies)
        elif entry.what in {"checked", "check_failed"}:
            if entry.what == "checked" and entry.n:
                history = history.with_answer(entry.n, entry.policies, entry.signs)
            if known is not None:
                known = _as_of(with_fields(known, checks_used=entry.n or 0, history=history), entry.at, begun)
                waiting = True
    if waiting and known is not None:
        yield known, None, begun


def _begun(facts: Facts, at: datetime, before: _Begun) -> _Begun:
    """Return since when the facts that count seconds do. Earlier releases did not record all of them."""
    return {
        name: before.get(name, at - timedelta(seconds=getattr(facts, name) or 0))
        for name, begins in GROWING.items()
        if getattr(facts, begins)
    }


def _as_of(facts: Facts, at: datetime, begun: _Begun) -> Facts:
    """Return facts as they are at an instant, if only time has passed."""
    passed = {
        name: max(getattr(facts, name) or 0, int((at - begun[name]).total_seconds())) if name in begun else None
        for name in GROWING
    }
    return with_fields(facts, at=at, **passed)


def _as_named_now(facts: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return recorded facts, with those that earlier releases did not write.

    They did not tell which call a case was about: then it is about another one. What was verified before the end was
    verified in time.
    """
    if facts.get("fraud") and "research" not in facts:
        facts = {**facts, "fraud": False, "fraud_elsewhere": True, "research_elsewhere": FRAUD}
    if facts.get("verified") and not facts.get("ended"):
        facts = {**facts, "verified_in_time": True}
    return facts


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
    """Return the facts as if the other rules' effects had been sent, and no others."""
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
    turned = {did.rule: kind for kind, (did, _) in now.items() if kind not in then}
    for kind, (did, moment) in then.items():
        if kind not in now and did.rule in turned:
            reasons.append(f"{did.rule!r} asks {_asked(turned.pop(did.rule))}, and not {_asked(kind)}")
        elif kind not in now:
            reasons.append(_why_not(did, table(moment.facts, book, call.institution_key)))
        elif now[kind][0].validation_type != did.validation_type:
            reasons.append(f"{now[kind][0].rule!r} enrolls with another validation type")
    reasons += [why_now(did, moment) for did, moment in now.values() if did.rule in turned]
    return Difference(
        call.institution_key,
        call.voice_id,
        tuple(did for did, _ in then.values()),
        tuple(did for did, _ in now.values()),
        "; ".join(reasons),
    )


def _why_not(did: Did, tried: tuple[Tried, ...]) -> str:
    """Return why other rules do not do what some rules did: the failed condition of the same or a similar one."""
    decided = next((line for line in tried if line.result == "matched"), None)
    line = next((line for line in tried if line.rule == did.rule), None)
    if decided is not None and decided.forbidden:
        return f"{decided.rule!r} asks for {decided.then}, the law forbids it ({', '.join(decided.forbidden)})"
    if line is not None:
        return _fared(line, decided.rule if decided else None)
    return f"{_alike(did, tried)}" + (f", and {decided.rule!r} decides" if decided else "")


def _alike(did: Did, tried: Iterable[Tried]) -> str:
    """Return the results of the first rules that ask for the same as a missing one."""
    alike = [_fared(line, None) for line in tried if line.then == did.outcome and line.result in _TOLD]
    if not alike:
        return f"no rule asks {_asked(did.outcome)}"
    if len(alike) <= _MOST_ALIKE:
        return "; ".join(alike)
    some = "; ".join(alike[:_MOST_ALIKE])
    return f"none of {len(alike)} rules that ask {_asked(did.outcome)} decided: {some}; ..."


_MOST_ALIKE = 3
"""How many rules are named that might have done the same. A rules file can have dozens."""


_TOLD = frozenset({"failed", "shadowed", "elsewhere"})


def _why_now(did: Did, call: Recorded, moment: _Moment) -> str:
    """Return why the recorded rules did not do what the others do, from the last decision before that moment."""
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


def _asked(outcome: str) -> str:
    return "a person" if outcome == Outcome.ASK else f"for {outcome}"


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
                else f"{line.rule!r} asks {_asked(line.then)}"
            )
