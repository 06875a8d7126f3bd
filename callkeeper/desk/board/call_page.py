"""The page of one call: all that is known of it, its story as a time line, and forms for actions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from callkeeper.calls.action_status import MEANINGS, PENDING, ActionState, line_of, status_of, statuses_of
from callkeeper.calls.effect_ledger import DONE, EffectKind, EffectState
from callkeeper.calls.effect_resolution import (
    ENROLLED_AS_ANOTHER,
    OPTED_OUT,
    TAKEN_BACK,
    enroll_trouble,
    failure,
    failures,
    is_enrolled_despite_opt_out,
    may_assign,
    may_begin,
    needs_of,
    unresolved,
)
from callkeeper.calls.fact_derivation import earlier_calls_of, facts_of
from callkeeper.calls.facts import VERIFIED_AFTER_END
from callkeeper.calls.informed_words import evidence_in, forbidding, in_words
from callkeeper.calls.item_names import CallId
from callkeeper.calls.record import Call
from callkeeper.calls.rules.book import EFFECTS, RuleBook
from callkeeper.calls.rules.matching import may_act
from callkeeper.calls.schedule.plan import reserve_left
from callkeeper.calls.statement_folding import may_reopen, may_return
from callkeeper.calls.statuses import OTHERWISE
from callkeeper.calls.stop_rule import desk_check_obstacle
from callkeeper.calls.store.queries import Known
from callkeeper.calls.story import Line, story_of
from callkeeper.calls.trail import recorded
from callkeeper.desk.access.rights import Rights, Role
from callkeeper.desk.access.visitor import Visitor
from callkeeper.desk.board.alarms import Alarm, Words, words_of
from callkeeper.desk.board.renderer import Renderer, View
from callkeeper.desk.board.rows import CallRow, row_of
from callkeeper.desk.board.states import StateTone


@dataclass(frozen=True, slots=True)
class NamedPerson:
    """A person that a form offers."""

    person_id: str
    name: str


@dataclass(frozen=True, slots=True)
class AvailableForms:
    """Which forms a call's page shows.

    ``unresolved`` names the effect that a person has to look up, ``withdraw`` what was said and can be taken back.
    ``to_see`` says what "I have seen it" closes, ``seen`` names it (`needs_of`).
    ``waits`` says why a statement would lead to nothing now; empty if it may lead to something.
    ``only_watch``: no rule is live. ``evidence`` and ``forbidding`` say what speaks against the caller (`informed_words`).
    """

    people: tuple[NamedPerson, ...]
    is_assigned: bool
    is_enrolled: bool
    unresolved: str | None
    to_see: tuple[Words, ...]
    seen: str
    assign: bool
    verified: bool
    distrusted: bool
    opted_out: bool
    opted_in: bool
    evidence: str
    forbidding: str
    check: bool
    checks_left: int
    withdraw: tuple[str, ...]
    only_watch: bool
    waits: str

    def for_(self, person: Rights) -> "AvailableForms":
        if not person.may(Role.AGENT):
            return replace(self, people=(), **_SILENT, **_CLOSED)
        return self if person.may(Role.SUPERVISOR) else replace(self, **_CLOSED)

    @property
    def any(self) -> bool:
        to_close = bool(self.unresolved) or bool(self.to_see)
        may_speak = self.assign or self.verified or self.distrusted or self.opted_out or self.opted_in or self.check
        return to_close or may_speak or bool(self.withdraw)


_ENROLL_HINTS: Final = {
    TAKEN_BACK: "The voice was rejected in another call of this member.",
    ENROLLED_AS_ANOTHER: "Somebody has changed the member after the enroll, or said that the caller is another one. Find "
    "out who called, and have the voiceprint removed if it is not the member's.",
}

_CLOSED: Final[Mapping[str, Any]] = {
    "unresolved": None,
    "to_see": (),
    "seen": "",
}
"""Without the forms that resolve something."""

_SILENT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("assign", "verified", "distrusted", "opted_out", "opted_in", "check"), False),
    "withdraw": (),
}
"""Without those that act on a call."""


def available_forms(call: Call, book: RuleBook, now: datetime) -> AvailableForms:
    """Return the forms that a call's page shows."""
    facts = facts_of(call, call.last_claim, book.policies)
    is_settled = call.is_settled and not may_return(call)
    is_open = not is_settled and not facts.ended
    is_claimed = facts.assigned and (bool(call.seen.core_username) or call.ledger.assign.state in DONE)
    may_not_enroll = facts.enrolled or facts.unenrolled or facts.rejected or facts.fully_authenticated or facts.green
    doubts = unresolved(call)
    return AvailableForms(
        people=_people(call),
        is_assigned=facts.assigned,
        is_enrolled=facts.enrolled,
        unresolved=doubts[0] if doubts else None,
        to_see=tuple(_to_see(call)),
        seen=needs_of(call),
        assign=is_open and not facts.enrolled and not facts.rejected and (facts.assigned_by_us or not is_claimed),
        verified=not may_not_enroll
        and (
            may_reopen(call, EffectKind.ENROLL, now)
            if is_settled
            else call.life.ended_at is None or now - call.life.ended_at <= VERIFIED_AFTER_END
        ),
        distrusted=may_reopen(call, EffectKind.REJECT, now)
        if is_settled
        else not facts.rejected or facts.rejected_by_rule,
        opted_out=is_open and not facts.opted_out,
        opted_in=not is_settled and (facts.opted_out or facts.opted_out_before),
        evidence=in_words(evidence_in(facts)),
        forbidding=in_words(one for one in forbidding(facts) if one != "green"),
        check=is_open and desk_check_obstacle(call, call.last_claim, book.schedule, book.policies) is None,
        checks_left=reserve_left(call, book.schedule),
        withdraw=() if is_settled else tuple(_standing(call)),
        only_watch=_only_watch(call, book),
        waits=_waits(call, book),
    )


def _to_see(call: Call) -> Iterator[Words]:
    """Yield what of a call a person has to see, the most important first."""
    if trouble := enroll_trouble(call):
        yield Words(trouble.capitalize(), _ENROLL_HINTS[trouble])
    if is_enrolled_despite_opt_out(call):
        yield words_of(OPTED_OUT, there="below")
    for kind in failures(call):
        yield words_of(failure(kind, call), there="below")
    if (question := call.statements.open_question) is not None:
        advice = f"{question.because} Say below what you know of the caller, or that you have seen it."
        yield Words(f"Rule “{question.rule}” asks a person", advice)


def _standing(call: Call) -> Iterator[str]:
    """Yield what people said of a call that nothing was sent for yet."""
    if (
        call.statements.identity is not None
        and call.statements.identity.by_desk
        and may_begin(EffectKind.ENROLL, call.ledger.enroll, call)
    ):
        yield "verified"
    if call.statements.distrusted is not None and may_begin(EffectKind.REJECT, call.ledger.reject, call):
        yield "distrusted"
    if (
        call.statements.assign_wish is not None
        and call.statements.assign_wish.person_id != call.seen.person_id
        and may_assign(call)
    ):
        yield "assign"


def _only_watch(call: Call, book: RuleBook) -> bool:
    return not any(may_act(book, outcome, call.institution_key) for outcome in EFFECTS)


def _waits(call: Call, book: RuleBook) -> str:
    if _only_watch(call, book):
        return (
            "The rules only watch: what you say is recorded, the story shows what would have been done, and nothing is "
            "enrolled or rejected, also not later."
        )
    if call.last_claim.paused is not None:
        return "Effects are paused: what you say is recorded, and decided again when the pause ends."
    return ""


def _people(call: Call) -> tuple[NamedPerson, ...]:
    found = {c.person_id: NamedPerson(c.person_id, c.name or c.person_id) for c in call.seen.candidates if c.person_id}
    if call.seen.person_id and call.seen.person_id not in found:
        found[call.seen.person_id] = NamedPerson(call.seen.person_id, f"{call.seen.person_id} (assigned)")
    return tuple(found.values())


_RESULTS: Final = {
    ActionState.PENDING: (StateTone.BUSY, "arrow", "Accepted. What comes of it is shown here."),
    ActionState.DONE: (StateTone.GOOD, "tick", "Done."),
    ActionState.HELD: (StateTone.WARN, "bars", "Recorded, and held:"),
    ActionState.SUPERSEDED: (StateTone.WARN, "dash", "A later statement replaced it."),
    ActionState.REFUSED: (StateTone.BAD, "cross", "Sent, and the service refused it."),
    ActionState.FAILED: (StateTone.WARN, "question", "A check was used, but it got no answer."),
    ActionState.ABSENT: (
        StateTone.WARN,
        "question",
        "Sent, and not applied: the service refused it, or a person has looked.",
    ),
    ActionState.UNRESOLVED: (
        StateTone.BAD,
        "triangle",
        "Sent, but it is not known whether it was applied. A person has to look.",
    ),
}


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action."""

    tone: StateTone
    shape: str
    words: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the table of what is known. ``is_personal``: it holds a name, a number or somebody's words."""

    name: str
    value: str
    is_personal: bool


@dataclass(frozen=True, slots=True)
class CallPage:
    """Everything on the page of one call.

    ``institution`` is the institution's name. ``alarms`` may explain why nothing happens.
    """

    call_id: CallId
    institution: str
    alarms: Sequence[Alarm]
    call: Call
    row: CallRow
    facts: tuple[Fact, ...]
    story: tuple[Line, ...]
    ending: str
    forms: AvailableForms
    result: ActionResult | None


def call_page(
    known: Known,
    book: RuleBook,
    action_id: str | None,
    now: datetime,
    *,
    institution: str,
    alarms: Sequence[Alarm] = (),
) -> CallPage:
    """Return the page of a call at an instant, with the result of ``action_id`` if there is one."""
    call = known.call
    story = story_of(recorded(call, known.trail), statuses_of(call, known.trail))
    return CallPage(
        call_id=known.call_id,
        institution=institution,
        alarms=alarms,
        call=call,
        row=row_of(call, book),
        facts=tuple(_facts(call, book)),
        story=story.lines,
        ending=story.ending,
        forms=available_forms(call, book, now),
        result=_result_of(known, action_id) if action_id else None,
    )


class CallRenderer:
    """Renders the pieces of a call's page, with a token in its forms."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def view(self, page: CallPage, now: datetime, visitor: Visitor, typed: Mapping[str, str] | None = None) -> View:
        """Render the page, with the forms that the visitor may send. ``typed``: the fields of one that was refused."""
        person = visitor.person
        page = replace(page, forms=page.forms.for_(person), result=page.result if person.sees_people else None)
        piece = self._renderer.piece
        html = {
            "call-head": piece("call_head", page),
            "alarms": piece("alarms", page.alarms, 0, False),
            "action": piece("action_result", page.result),
            "call-facts": piece("call_facts", page),
            "story": piece("story", page),
            "forms": piece("forms", page, visitor.forms.issue(), visitor, OTHERWISE, typed or {}),
        }
        # Forms are sent again when something else is offered, not because each has a token of its own.
        return View(now, html, {}, {"forms": repr(page.forms)}, page.row.style.word)


def _result_of(known: Known, action_id: str) -> ActionResult:
    line = line_of(known.trail, action_id)
    answer = status_of(known.call, known.trail, line) if line else PENDING
    tone, shape, words = _RESULTS[answer.state]
    reasons = "; ".join(MEANINGS.get(reason, reason) for reason in answer.reasons)
    by = f" By {answer.operator}." if answer.operator and answer.state is ActionState.DONE else ""
    by = f" By {answer.operator}: {answer.because}" if answer.because else by
    return ActionResult(tone, shape, f"{words} {reasons}".rstrip() + by)


_PERSONAL: Final = frozenset(
    {"Phone", "Claimed by", "Identity", "Distrusted by", *(str(k).capitalize() for k in EffectKind)}
)


def _facts(call: Call, book: RuleBook) -> list[Fact]:
    facts, reading = facts_of(call, call.last_claim, book.policies), call.seen.reading
    rows = (
        ("Institution", call.institution_key),
        ("Voice id", call.voice_id),
        ("Alternate id", call.names.alternate_id),
        ("Phone", call.names.phone_number),
        ("Status", facts.status),
        ("Policies", ", ".join(reading.policies) if reading else None),
        ("Provider error", reading.provider_error if reading else None),
        ("Validation rule", facts.validation_rule),
        ("Person", call.seen.person_id),
        ("Claimed by", call.seen.core_username),
        ("Identity", _identity(call)),
        (
            "Distrusted by",
            f"{call.statements.distrusted.operator}: {call.statements.distrusted.reason}"
            if call.statements.distrusted
            else None,
        ),
        *((str(kind).capitalize(), _effect(call, kind)) for kind in EffectKind),
        ("Earlier calls", ", ".join(f"{name}: {voice_id}" for name, voice_id in earlier_calls_of(call).items())),
        ("Settled as", call.life.reason),
    )
    return [Fact(name, str(value), name in _PERSONAL) for name, value in rows if value]


def _identity(call: Call) -> str | None:
    identity = call.statements.identity
    if identity is None:
        return None
    by = f"by {identity.operator}" if identity.operator else "by the service"
    return ", ".join(part for part in (identity.person_id, identity.validation_type, by) if part)


def _effect(call: Call, kind: EffectKind) -> str | None:
    effect = call.effect(kind)
    if effect.state is EffectState.NONE:
        return None
    whom = f" for {effect.person_id}" if effect.person_id else ""
    return f"{effect.state}{whom}" + (f", by {effect.operator}" if effect.operator else "")
