"""Replay: what other rules would have made of recorded calls. Pure; the same calls and rules give the same answer.

The trail holds the facts at every moment they changed, so other rules can be asked at the same moments. Colours are those of
the other rules. From the first difference on the facts are corrected for what would and would not have been sent; what the
service and the caller would have done then, nobody knows. Assignments and check times are as they were.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from calls.facts import MANUAL_GREEN, Colour, Facts
from calls.rules.book import Outcome, RuleBook
from calls.rules.verdict import Verdict, judge, table
from calls.story import shown
from calls.trail import Entry, Recorded, Tried

_EFFECTS = (Outcome.ENROLL, Outcome.REJECT)


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


Known = dict[str, str | bool | int | None]
"""Facts by name, as a trail has them: what is missing is false, none or 0."""


@dataclass(frozen=True, slots=True)
class _Moment:
    """The facts of a call at one moment, and the recorded decision if one was made then."""

    at_s: float
    known: Known
    decision: Entry | None


class _Court:
    """Judges facts by the other rules. Calls are much alike: what was judged once is remembered."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._verdicts: dict[tuple[frozenset[tuple[str, object]], str], Verdict] = {}
        self._colours: dict[tuple[str, ...], frozenset[Colour]] = {}

    def judge(self, known: Known, institution_key: str) -> Verdict:
        """Return the verdict on facts."""
        key = (frozenset(known.items()), institution_key)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = judge(Facts.from_dict(known), self.book, institution_key)
        return verdict

    def colour(self, known: Known, names: tuple[str, ...]) -> Known:
        """Return facts with the policies' colours as the other rules have them."""
        colours = self._colours.get(names)
        if colours is None:
            named = (name for name in names if name != MANUAL_GREEN)
            colours = self._colours[names] = self.book.policies.colours(named)
        red = Colour.RED in colours
        return {
            **known,
            "green": (bool(known.get("authenticated")) or Colour.GREEN in colours) and not red,
            "red": red,
            "unclassified": Colour.UNCLASSIFIED in colours,
        }


def replay(calls: Iterable[Recorded], book: RuleBook) -> Replay:
    """Ask other rules about recorded calls."""
    court = _Court(book)
    total = same = undecidable = 0
    differences: list[Difference] = []
    for call in calls:
        total += 1
        moments = list(_moments(call, court))
        if not moments:
            undecidable += 1
            continue
        difference = _compare(call, moments, court)
        if difference is None:
            same += 1
        else:
            differences.append(difference)
    return Replay(total, same, undecidable, tuple(differences))


def _moments(call: Recorded, court: _Court) -> Iterator[_Moment]:
    """Yield the facts at every moment they are known to have changed, coloured anew."""
    begins_at = call.begins_at
    known: Known | None = None
    for entry in call.trail:
        decision = entry if entry.what == "decided" and entry.asked != "assign" else None
        if entry.facts is not None:
            known = court.colour(entry.facts, entry.policies)
        elif entry.what in {"checked", "check_failed"} and known is not None:
            known = {**known, "checks_used": entry.n}
        else:
            continue
        yield _Moment(_seconds(entry.at, begins_at), known, decision)


def _seconds(at: datetime, begins_at: datetime | None) -> float:
    return (at - begins_at).total_seconds() if begins_at else 0.0


def _compare(call: Recorded, moments: list[_Moment], court: _Court) -> Difference | None:
    then: dict[str, tuple[Did, _Moment]] = {}
    now: dict[str, tuple[Did, _Moment]] = {}
    for moment in moments:
        known = _corrected(moment.known, then, now)
        verdict = court.judge(known, call.institution_key)
        if verdict.outcome in _EFFECTS and verdict.outcome not in now:
            now[verdict.outcome] = (_did(verdict, moment), replace(moment, known=known))
        entry = moment.decision
        if entry is not None and entry.kind in _EFFECTS and entry.kind not in then:
            did = Did(entry.kind, entry.rule or "", moment.at_s, entry.validation_type)
            then[entry.kind] = (did, replace(moment, known=known))
    if {kind: did.validation_type for kind, (did, _) in then.items()} == {
        kind: did.validation_type for kind, (did, _) in now.items()
    }:
        return None
    return Difference(
        call.institution_key,
        call.voice_id,
        tuple(did for did, _ in then.values()),
        tuple(did for did, _ in now.values()),
        "; ".join(_reasons(call, then, now, court.book)),
    )


def _corrected(known: Known, then: dict[str, tuple[Did, _Moment]], now: dict[str, tuple[Did, _Moment]]) -> Known:
    """Return the facts as they would be had the other rules' effects been sent, and only those."""
    if Outcome.ENROLL in then or Outcome.ENROLL in now:
        enrolled = Outcome.ENROLL in now
        known = {**known, "enrolled": enrolled, "manual": enrolled}
    if Outcome.REJECT in then or Outcome.REJECT in now:
        known = {**known, "rejected": Outcome.REJECT in now}
    return known


def _did(verdict: Verdict, moment: _Moment) -> Did:
    validation = verdict.validation_type if verdict.outcome is Outcome.ENROLL else None
    return Did(verdict.outcome, verdict.rule, moment.at_s, validation)


def _reasons(
    call: Recorded, then: dict[str, tuple[Did, _Moment]], now: dict[str, tuple[Did, _Moment]], book: RuleBook
) -> Iterator[str]:
    for kind, (did, moment) in then.items():
        if kind not in now:
            yield _why_not(did, table(Facts.from_dict(moment.known), book, call.institution_key))
        elif now[kind][0].validation_type != did.validation_type:
            yield f"{now[kind][0].rule!r} enrolls with another validation type"
    for kind, (did, moment) in now.items():
        if kind not in then:
            yield _why_now(did, call, moment)


def _why_not(did: Did, tried: tuple[Tried, ...]) -> str:
    """Say why the other rules did not do what the recorded ones did."""
    decided = next((line for line in tried if line.result == "matched"), None)
    line = next((line for line in tried if line.rule == did.rule), None)
    if decided is not None and decided.forbidden:
        return f"{decided.rule!r} asks for {decided.then}, the law forbids it ({', '.join(decided.forbidden)})"
    if line is None:
        return f"there is no rule {did.rule!r}" + (f", {decided.rule!r} decides" if decided else "")
    return _fared(line, decided.rule if decided else None)


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
        return f"{did.rule!r} matches, and was not among the rules then"
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
