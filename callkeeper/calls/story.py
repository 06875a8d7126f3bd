"""A call's story: its trail in words for people, in order, with times relative to the call's start. Pure functions.

The command line, the desk and the board use the same words. A ``Line`` says what happened. A decision has a row for
each rule that says whether it matched, or which condition failed on which fact. Names of people, rules and policies are
quoted: any of them may be a word that the story uses, too.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from callkeeper.calls.action_status import MEANINGS, ActionStatus
from callkeeper.calls.effect_ledger import PERHAPS_DONE, EffectState
from callkeeper.calls.effect_resolution import GIVEN_UP_BECAUSE, NO_CLEAR_ANSWER
from callkeeper.calls.informed_words import in_words
from callkeeper.calls.law import meaning_of
from callkeeper.calls.quantity import quantity
from callkeeper.calls.record import CHECK_LIMIT
from callkeeper.calls.trail import Entry, Recorded, Tried


class Tone(StrEnum):
    """The kind of a line, for example to colour it."""

    EVENT = "event"  # an event: a push, a listing, the end
    READ = "read"  # stored details, or facts that follow from them
    CHECK = "check"  # one of the 20
    SAID = "said"  # a person's statement
    DECIDED = "decided"
    EFFECT = "effect"  # intended, sent, answered, established
    TROUBLE = "trouble"  # something a person should look at


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one rule in a decision.

    ``mark``: ``+`` it decided, ``-`` a condition failed, ``~`` it matched in shadow, ``.`` it was not evaluated.
    """

    mark: str
    rule: str
    text: str


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the name of a reason means."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Line:
    """One event, ``at_s`` seconds after the call's start. Several equal ones share a line, up to ``until_s``.

    ``meanings`` explain the names of reasons that occur here for the first time. ``known``: the facts of a decision.
    """

    at_s: float
    tone: Tone
    text: str
    rows: tuple[Row, ...] = ()
    until_s: float | None = None
    meanings: tuple[Meaning, ...] = ()
    known: tuple[str, ...] = ()


_HOLD: Final = "decided: hold"

_NOTHING_SAID: Final[Mapping[str, ActionStatus]] = {}


@dataclass(frozen=True, slots=True)
class Story:
    """A call's whole story."""

    heading: str
    lines: tuple[Line, ...]
    ending: str


def story_of(call: Recorded, said: Mapping[str, ActionStatus] = _NOTHING_SAID) -> Story:
    """Return the story of a recorded call. ``said``: what came of its statements, by the ids of their actions."""
    return Story(_heading(call), (*_overruled(call), *_Narrator(call, said).lines()), _ending(call))


MOST_BRIEF: Final = 11
"""The lines of a brief story, besides its heading and its ending."""

_DECISIVE: Final = frozenset({Tone.SAID, Tone.DECIDED, Tone.EFFECT, Tone.TROUBLE})


def brief(story: Story) -> Story:
    """Return what decided: what was said, what was known at each decision to act and at the last one, and its effects.

    Where these are too many, the first line (which says what a word overruled) and the last ones stay.
    """
    last = max((n for n, line in enumerate(story.lines) if line.tone is Tone.DECIDED), default=None)
    kept: list[Line] = []
    for n, line in enumerate(story.lines):
        if line.tone is Tone.DECIDED and (n == last or not line.text.startswith(_HOLD)):
            kept += [Line(line.at_s, Tone.READ, f"known: {', '.join(line.known)}")] if line.known else []
            kept.append(replace(line, rows=(), meanings=()))
        elif line.tone in _DECISIVE - {Tone.DECIDED}:
            kept.append(replace(line, meanings=()))
    if len(kept) > MOST_BRIEF:
        kept = [kept[0], *kept[1 - MOST_BRIEF :]]
    return replace(story, lines=tuple(kept))


def _overruled(call: Recorded) -> Iterator[Line]:
    """Yield the line that stands before all others if the voice was enrolled although something spoke against it."""
    intended = [one for one in call.trail if one.what == "intended" and one.kind == "enroll"]
    if intended and intended[-1].despite and call.enroll in PERHAPS_DONE:
        by = f"on the word of {intended[-1].operator!r}" if intended[-1].operator else "by a rule"
        yield Line(0.0, Tone.TROUBLE, f"enrolled {by}, despite: {in_words(intended[-1].despite)}")


def _heading(call: Recorded) -> str:
    began = f", began {call.begins_at:%Y-%m-%d %H:%M:%S} UTC" if call.begins_at else ""
    alternate = f" (also {call.alternate_id})" if call.alternate_id else ""
    return f"{call.institution_key}  {call.voice_id}{alternate}{began}"


def _ending(call: Recorded) -> str:
    effects = {"assign": call.assign, "enroll": call.enroll, "reject": call.reject}
    states = [f"{kind} {state}" for kind, state in effects.items() if state is not EffectState.NONE]
    parts = [call.reason or call.phase, f"{call.checks_used} of {CHECK_LIMIT} checks", *states]
    return ", ".join(parts)


@dataclass(slots=True)
class _Narrator:
    """Goes through a trail and remembers what was said, so that each line says only what is new."""

    call: Recorded
    said: Mapping[str, ActionStatus]
    status: str | None = None
    policies: tuple[str, ...] = ()
    person_id: str | None = None
    listed: tuple[object, ...] = ()
    rules: str | None = None
    rows: tuple[Row, ...] = ()
    facts: frozenset[str] = field(default_factory=frozenset)
    explained: set[Meaning] = field(default_factory=set)

    def lines(self) -> Iterator[Line]:
        """Yield the story's lines. Entries without news are left out, and checks without news are combined."""
        quiet: list[tuple[Entry, float]] = []
        for entry in self.call.trail:
            at_s = self._at_s(entry)
            facts = self.facts
            text = self._text(entry)
            if entry.what == "checked" and text == "":
                quiet.append((entry, at_s))
                continue
            if text is None:
                continue
            if quiet:
                yield _quiet(quiet)
                quiet = []
            tone = _tone(entry)
            is_decision = entry.what == "decided"
            rows = self._rows(entry) if is_decision else ()
            known = tuple(sorted(_statements(entry))) if is_decision else ()
            meanings = tuple(self._new_meanings(entry, self.facts - facts))
            yield Line(at_s, tone, text, rows, meanings=meanings, known=known)
        if quiet:
            yield _quiet(quiet)

    def _at_s(self, entry: Entry) -> float:
        begins_at = self.call.begins_at or entry.at
        return (entry.at - begins_at).total_seconds()

    def _text(self, entry: Entry) -> str | None:
        """Return the text of an entry; None if it has no news, empty for a check without news that nobody asked for."""
        match entry.what:
            case "listed":
                return self._listed(entry)
            case "read":
                return self._changed(entry) or None
            case "checked":
                changed = self._changed(entry) or ("nothing new" if entry.operator else "")
                return changed and f"check {entry.n} of {CHECK_LIMIT}{_by(entry)}: {changed}{_took(entry)}"
            case "facts":
                return self._facts(entry)
            case "decided":
                return self._decided(entry)
            case "said":
                status = None if entry.forbidden else self.said.get(entry.wish or "")
                return f"{_plain(entry)} ({status.shortfall})" if status and status.shortfall else _plain(entry)
            case _:
                return _plain(entry)

    def _listed(self, entry: Entry) -> str | None:
        seen = (entry.person_id, entry.candidates, entry.operator)
        if seen == self.listed:
            return None
        self.listed = seen
        self.person_id = entry.person_id or self.person_id
        count = quantity(entry.candidates, "candidate") if entry.candidates else "no candidates"
        person = f", person {entry.person_id}" if entry.person_id else ""
        claimed = f", claimed by {entry.operator!r}" if entry.operator else ""
        return f"the queue lists it: {count}{person}{claimed}"

    def _changed(self, entry: Entry) -> str:
        """Return what an answer of the service changed."""
        parts = []
        if entry.status != self.status:
            parts.append(f"status {self.status or 'none'} -> {entry.status}")
        parts += [f"policy {name!r} applied" for name in entry.policies if name not in self.policies]
        parts += [f"policy {name!r} gone" for name in self.policies if name not in entry.policies]
        if entry.person_id != self.person_id:
            parts.append(f"person {entry.person_id or 'none'}")
        self.status, self.policies, self.person_id = entry.status, entry.policies, entry.person_id
        return ", ".join(parts)

    def _facts(self, entry: Entry) -> str | None:
        """Return which facts became true or false. Statuses and counts are left out: other lines show them."""
        before, now = self.facts, _statements(entry)
        self.facts = now
        new = now - before
        parts = [f"now {', '.join(sorted(new))}" if new else ""]
        parts.append(f"no longer {', '.join(sorted(before - now))}" if before - now else "")
        parts.append("no further checks" if new & _STOPS and not before & _STOPS else "")
        changes = "; ".join(part for part in parts if part)
        return f"facts: {changes}{_earlier_calls(entry, new)}" if changes else None

    def _decided(self, entry: Entry) -> str:
        if entry.asked == "assign" and entry.operator is not None:
            asked = f"{entry.operator!r} asks for assign, the law forbids it ({', '.join(entry.forbidden)})"
            return f"{_HOLD}; {asked}{_paused(entry)}"
        if entry.asked == "assign":
            return f"decided: nobody is assigned, {', '.join([entry.because or '', *entry.forbidden])}{_paused(entry)}"
        self.facts = _statements(entry)
        named = f"rule {entry.rule!r}" if entry.rule else "no rule matches"
        if entry.forbidden:
            asked = f"{named} asks for {entry.asked}, the law forbids it ({', '.join(entry.forbidden)})"
            return f"{_HOLD}; {asked}{_paused(entry)}{self._after(entry)}"
        how = f" with {entry.validation_type}" if entry.validation_type and entry.kind == "enroll" else ""
        kind = "ask a person, nothing is sent" if entry.kind == "ask" else entry.kind
        again = f" Asked again, because of: {', '.join(entry.signs)}." if entry.signs else ""
        return f"decided: {kind}{how}, by {named}: {entry.because}{again}{self._after(entry)}"

    def _new_meanings(self, entry: Entry, facts: Iterable[str]) -> Iterator[Meaning]:
        """Yield the meanings of the names in an entry; an article may have the name of the fact that it is about."""
        named = [(name, entry.asked) for name in entry.forbidden if entry.what != "said"]
        named += [(name, line.then) for line in entry.tried for name in line.forbidden]
        named += [(name, None) for name in sorted(facts) if entry.what == "facts"]
        named += [(entry.because, None)] if entry.what == "withdrawn" and entry.because else []
        for name, kind in named:
            words = meaning_of(name, kind) or MEANINGS.get(name)
            if words is not None and Meaning(name, words) not in self.explained:
                self.explained.add(Meaning(name, words))
                yield Meaning(name, words)

    def _after(self, entry: Entry) -> str:
        return f"{_shadow(entry)}{_earlier_calls(entry, entry.earlier_calls)}{self._digest(entry)}"

    def _digest(self, entry: Entry) -> str:
        if entry.rules == self.rules:
            return ""
        self.rules = entry.rules
        return f" [rules {entry.rules}]"

    def _rows(self, entry: Entry) -> tuple[Row, ...]:
        rows = tuple(row_of(line) for line in entry.tried)
        if rows and rows == self.rows:
            return (Row(".", "", "every rule as before"),)
        self.rows = rows
        return rows


def _shadow(entry: Entry) -> str:
    """Return what the first rule in shadow that asked for something would have done, if it is not done anyway."""
    shadowed = (line for line in entry.tried if line.result == "shadowed" and line.then in _WOULD)
    first = next(shadowed, None)
    return f" In shadow, {first.rule!r} {would(first)}." if first is not None and first.then != entry.kind else ""


def _earlier_calls(entry: Entry, facts: Collection[str]) -> str:
    """Return which calls are behind some facts about earlier calls, as far as the entry names them."""
    return "".join([f" [{name}: call {one}]" for name, one in sorted(entry.earlier_calls.items()) if name in facts])


_STOPS = frozenset({"green", "manual", "rejected", "red", "fully_authenticated"})
"""Facts after which no more checks are made. Spec: Polling stop rule for authentication checks."""

_TOLD = frozenset({"assigned", "ended"})
"""Facts that have lines of their own."""


_STATES = frozenset({"research", "research_elsewhere"})
"""Facts that are told with their value."""


def _statements(entry: Entry) -> frozenset[str]:
    known = (entry.facts or {}).items()
    changes = (
        f"{name} {value}" if name in _STATES else name for name, value in known if value is True or name in _STATES
    )
    return frozenset(changes) - _TOLD


def _quiet(checks: list[tuple[Entry, float]]) -> Line:
    """Return one line for checks without news."""
    (first, at_s), (last, until_s) = checks[0], checks[-1]
    if len(checks) == 1:
        return Line(at_s, Tone.CHECK, f"check {first.n} of {CHECK_LIMIT}: nothing new{_took(first)}")
    text = f"checks {first.n} to {last.n} of {CHECK_LIMIT}: nothing new"
    return Line(at_s, Tone.CHECK, text, until_s=until_s)


def row_of(line: Tried) -> Row:
    """Return the result of a rule as a row."""
    match line.result:
        case "matched":
            held = f", the law forbids it ({', '.join(line.forbidden)})" if line.forbidden else ""
            return Row("+", line.rule, f"matches: {line.then}{held}")
        case "shadowed":
            return Row("~", line.rule, f"in shadow: {would(line)}")
        case "failed":
            return Row("-", line.rule, f"{line.fact} is {shown(line.was)}, must be {shown(line.wanted)}")
        case "elsewhere":
            return Row(".", line.rule, "not for this institution")
        case "unasked":
            return Row(".", line.rule, "not asked: a rule before it decided")


def would(line: Tried) -> str:
    """Return what a rule in shadow would have done."""
    if line.forbidden:
        return f"would have asked for {line.then}, which the law forbids ({', '.join(line.forbidden)})"
    return _WOULD.get(line.then, "would have held")


_WOULD = {"enroll": "would have enrolled", "reject": "would have rejected", "ask": "would have asked a person"}


def shown(value: object) -> str:
    """Return a fact's value as it is written in a rules file."""
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _by(entry: Entry) -> str:
    return f" by {entry.operator!r}" if entry.operator else ""


def _took(entry: Entry) -> str:
    return f" ({entry.took_ms} ms)" if entry.took_ms is not None else ""


def _paused(entry: Entry) -> str:
    return f"; paused: {entry.pause}" if entry.pause else ""


def _tone(entry: Entry) -> Tone:
    if entry.what in {"check_failed", "dropped", "parked", "verifying"} or entry.state in _TROUBLE:
        return Tone.TROUBLE
    return _TONES.get(entry.what, Tone.EVENT)


_TROUBLE = {EffectState.UNKNOWN, EffectState.UNRESOLVED, EffectState.REFUSED}

_TONES = {
    "read": Tone.READ,
    "facts": Tone.READ,
    "checked": Tone.CHECK,
    "said": Tone.SAID,
    "decided": Tone.DECIDED,
    "intended": Tone.EFFECT,
    "withdrawn": Tone.EFFECT,
    "sent": Tone.EFFECT,
    "answered": Tone.EFFECT,
    "established": Tone.EFFECT,
}


def _is_unclear(said: str | None) -> bool:
    return said is None or said.startswith(NO_CLEAR_ANSWER)


def _plain(entry: Entry) -> str:
    """Return the text of an entry that does not depend on earlier ones."""
    because = f": {entry.because}" if entry.because else ""
    person = f" person {entry.person_id}" if entry.person_id else ""
    how = f" with {entry.validation_type}" if entry.validation_type else ""
    match entry.what:
        case "pushed":
            return f"push: the call {'ended' if entry.kind == 'end' else 'started'}"
        case "unlisted":
            return "a full listing of the queue does not contain it"
        case "dropped":
            return f"forgotten{because}"
        case "merged":
            return f"the same call as {entry.voice_id}: the two records are one now"
        case "said":
            token = f" (token {entry.token})" if entry.token else ""
            if entry.kind == "withdrawn":
                return f"{entry.operator!r}{token} takes back: {entry.asked}{because}"
            if entry.forbidden:
                return (
                    f"{entry.operator!r}{token} says: {entry.kind}{person}{how}; refused: {in_words(entry.forbidden)}"
                )
            despite = f"; despite: {in_words(entry.despite)}" if entry.despite else ""
            return f"{entry.operator!r}{token} says: {entry.kind}{person}{how}{because}{despite}"
        case "check_failed":
            return f"check {entry.n} of {CHECK_LIMIT} brought no answer{because}"
        case "intended":
            return f"{entry.kind} intended:{person or ' this voice'}{how}{because if entry.kind == 'assign' else ''}"
        case "withdrawn":
            return f"{entry.kind} withdrawn, nothing was sent{because}"
        case "sent":
            return f"{entry.kind} sent{_by(entry)}"
        case "answered" if entry.state == EffectState.UNKNOWN and not _is_unclear(entry.because):
            return f"{entry.kind} refused by the service{because}; reads will show if it was applied all the same"
        case "answered":
            return f"{entry.kind} answered: {entry.state}{because}"
        case "established":
            if entry.wish:
                return f"{entry.kind}: {entry.operator!r} says that it is {entry.state}"
            if entry.because in GIVEN_UP_BECAUSE or (entry.state == EffectState.ABSENT and entry.because):
                return f"{entry.kind} not carried out{because}"
            if entry.state == EffectState.REFUSED:
                return f"{entry.kind} refused for good: nothing was applied{because}"
            if entry.state == EffectState.UNRESOLVED:
                return f"{entry.kind} unresolved: nothing proves whether it was applied"
            return f"{entry.kind}: stored details show it {entry.state}{_by(entry)}"
        case "verifying" if entry.because:
            return f"Redis was restarted or replaced: {entry.n} checks may have been made before, and count as used"
        case "verifying":
            return "Redis was restarted or replaced: the service's record is read before anything else"
        case "ended":
            return "the call has ended"
        case "settled":
            return f"settled{because}"
        case what:
            return f"{what.replace('_', ' ')}{because}"
