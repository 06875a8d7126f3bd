"""What the desk shows: calls, their stories, actions, tickets. API, stream and webhooks send these records only.

Of a candidate it shows id, name and person type. Nothing else about a person is kept (see ``callkeeper.calls.notes``).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from callkeeper.calls.action_status import ActionState, ActionStatus, statuses_of
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.fact_derivation import earlier_calls_of, facts_of
from callkeeper.calls.informed_words import WORDS, evidence_in, forbidding
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import CHECK_LIMIT, Asked, Call, Identity, Phase, Reason
from callkeeper.calls.story import Line, Tone, story_of
from callkeeper.calls.trail import Entry, recorded
from callkeeper.desk.problems import ReasonView, reasons_of


class CandidateView(msgspec.Struct, frozen=True):
    """A member whom the service matched to the caller's number."""

    person_id: str
    name: str
    person_type: str | None


class EffectView(msgspec.Struct, frozen=True):
    """How far one effect has got. ``operator`` is None if only a rule asked for it."""

    state: EffectState
    person_id: str | None
    validation_type: str | None
    operator: str | None
    sent_at: datetime | None


class EffectsView(msgspec.Struct, frozen=True):
    """The effects of a call."""

    assign: EffectView
    enroll: EffectView
    reject: EffectView


class VerifiedView(msgspec.Struct, frozen=True):
    """How the caller's identity was established other than by voice: as whom, how, and by the desk or by the service."""

    person_id: str
    validation_type: str
    by_desk: bool
    operator: str | None
    at: datetime


class AskedView(msgspec.Struct, frozen=True):
    """What a rule asks a person about the call, and since when."""

    rule: str
    because: str
    at: datetime


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """A call as it is now. Instants are UTC.

    ``green``: the voice is authenticated. ``red``: a red policy is applied; never together with ``green``. ``manual``:
    authenticated by a person's word only. ``unenrolled``: a reject of the member took that back. ``claimed_by``: the core
    username on the service's record. ``assigned_by_us``: the person may still be replaced. ``voice_checked``: the voice
    had its say, so that what was not seen is absent. ``voice_undecided``: a result of the voice was to be expected,
    and the service says neither that it matches nor that it does not. ``research``: the state of a research case about this
    call, ``research_elsewhere``: about another one. ``..._before``: what earlier calls of the member or the number showed.
    ``earlier_calls``: the voice id of the latest call behind each of these, by its name. ``voice_enrolled``: the record's
    ``isVoiceEnrolled``. ``provider_error``: why the voice could not be judged, in words that name nobody.
    ``evidence``: what a word that verifies the caller has to name in ``despite``. ``forbidding``: what no word overrules.
    ``asked``: what a rule asks a person; None once somebody has handled it. ``revision`` grows whenever the call's record
    is written: of two views of a call the one with the higher number is newer, wherever it came from. After ``reset``
    numbers begin anew.
    """

    institution_key: str
    voice_id: str
    revision: int
    alternate_id: str | None
    phone_number: str | None
    phase: Phase
    reason: Reason | None
    started_at: datetime | None
    ended_at: datetime | None
    settled_at: datetime | None
    person_id: str | None
    claimed_by: str | None
    assigned_by_us: bool
    candidates: tuple[CandidateView, ...]
    status: str | None
    policies: tuple[str, ...]
    green: bool
    red: bool
    manual: bool
    unenrolled: bool
    rejected: bool
    distrusted: bool
    opted_out: bool
    voice_mismatch: bool
    high_risk_device: bool
    red_seen: bool
    voice_checked: bool
    voice_undecided: bool
    research: str | None
    research_elsewhere: str | None
    rejected_before: bool
    unenrolled_before: bool
    fraud_before: bool
    suspected_before: bool
    opted_out_before: bool
    earlier_calls: dict[str, str]
    voice_enrolled: bool
    voice_match_rule: bool
    validation_rule: str | None
    verification_questions: int
    provider_error: str | None
    paused: bool
    verified: VerifiedView | None
    asked: AskedView | None
    evidence: tuple[ReasonView, ...]
    forbidding: tuple[ReasonView, ...]
    checks_used: int
    checks_left: int
    next_check_at: datetime | None
    effects: EffectsView


class RowView(msgspec.Struct, frozen=True):
    """One rule's result in a decision. ``mark``: ``+`` decided, ``-`` did not match, ``~`` in shadow, ``.`` not asked."""

    mark: str
    rule: str
    text: str


class LineView(msgspec.Struct, frozen=True):
    """One thing that happened, in seconds after the call's start. Several of the same kind in a row are one line."""

    at_s: float
    until_s: float | None
    tone: Tone
    text: str
    rows: tuple[RowView, ...]


class StoryView(msgspec.Struct, frozen=True):
    """A call and everything that happened to it, oldest line first."""

    call: CallView
    story: tuple[LineView, ...]
    ending: str


class PageView(msgspec.Struct, frozen=True):
    """A page of calls. Send ``next`` as ``after`` for the next one. A page may be short; the last has no ``next``."""

    calls: tuple[CallView, ...]
    next: str | None


Action = Literal["assign", "verified", "distrusted", "opted-out", "opted-in", "check", "withdraw", "resolve"]
"""The last part of an action's address."""


class ActionView(msgspec.Struct, frozen=True, kw_only=True):
    """An action and its result. ``operator``: whose statement had this result, if any. ``because``: why they took it back.

    ``watch``: the address to poll.
    """

    action_id: str
    action: Action
    state: ActionState
    reasons: tuple[ReasonView, ...]
    operator: str | None
    because: str | None
    watch: str


class TicketView(msgspec.Struct, frozen=True):
    """A ticket for one connection to the stream, valid for a short time."""

    ticket: str
    expires_in_s: int


class AgentTokenView(msgspec.Struct, frozen=True):
    """A token for one agent's page: whom it speaks for, whose calls it reads, and for how long."""

    token: str
    operator: str
    institutions: tuple[str, ...]
    expires_in_s: int


class GoneView(msgspec.Struct, frozen=True):
    """A call that turned out not to exist: pushed, and never listed."""

    institution_key: str
    voice_id: str


_FACTS: Final = (
    *("assigned_by_us", "status", "policies", "green", "red", "manual", "unenrolled", "rejected", "distrusted"),
    *("voice_mismatch", "high_risk_device", "red_seen", "voice_checked", "voice_undecided", "voice_enrolled", "paused"),
    *("research", "research_elsewhere", "rejected_before", "unenrolled_before", "fraud_before", "suspected_before"),
    *("opted_out", "opted_out_before", "voice_match_rule", "validation_rule"),
)
"""The facts that the view of a call shows as they are."""


def call_view(call: Call, policies: Policies, *, sees_people: bool = True) -> CallView:
    """Return a call as the desk shows it; without names and numbers for viewers."""
    view = _call_view(call, policies)
    if sees_people:
        return view
    effects = EffectsView(*(replace(effect, operator=None) for effect in msgspec.structs.astuple(view.effects)))
    verified = replace(view.verified, operator=None) if view.verified else None
    return replace(view, phone_number=None, candidates=(), claimed_by=None, verified=verified, effects=effects)


def _call_view(call: Call, policies: Policies) -> CallView:
    facts, reading = facts_of(call, call.last_claim, policies), call.seen.reading
    return CallView(
        institution_key=call.institution_key,
        voice_id=call.voice_id,
        revision=call.revision,
        alternate_id=call.names.alternate_id,
        phone_number=call.names.phone_number,
        phase=call.life.phase,
        reason=call.life.reason,
        started_at=call.life.started_at,
        ended_at=call.life.ended_at,
        settled_at=call.life.settled_at,
        person_id=call.seen.person_id,
        claimed_by=call.seen.core_username,
        candidates=tuple(CandidateView(c.person_id, c.name, c.person_type) for c in call.seen.candidates),
        verification_questions=reading.verification_questions if reading else 0,
        provider_error=reading.provider_error if reading else None,
        earlier_calls=earlier_calls_of(call),
        verified=_verified(call.statements.identity),
        asked=_asked(call.statements.open_question),
        evidence=reasons_of(evidence_in(facts), WORDS),
        forbidding=reasons_of(forbidding(facts), WORDS),
        checks_used=call.plan.checks_used,
        checks_left=max(0, CHECK_LIMIT - call.plan.checks_used),
        next_check_at=call.plan.next_check_at,
        effects=EffectsView(_effect(call.ledger.assign), _effect(call.ledger.enroll), _effect(call.ledger.reject)),
        **{name: getattr(facts, name) for name in _FACTS},
    )


def story_view(call: Call, trail: Sequence[Entry], policies: Policies, *, sees_people: bool) -> StoryView:
    """Return a call and its story as the desk shows them. Viewers get no story, because it quotes people."""
    story = story_of(recorded(call, trail), statuses_of(call, trail))
    if not sees_people:
        return StoryView(call_view(call, policies, sees_people=False), (), story.ending)
    return StoryView(call_view(call, policies), tuple(map(_line, story.lines)), story.ending)


def _line(line: Line) -> LineView:
    rows = tuple(RowView(row.mark, row.rule, row.text) for row in line.rows)
    return LineView(line.at_s, line.until_s, line.tone, line.text, rows)


def action_view(action_id: str, action: Action, status: ActionStatus, watch: str) -> ActionView:
    """Return an action as the desk shows it."""
    return ActionView(
        action_id=action_id,
        action=action,
        state=status.state,
        reasons=reasons_of(status.reasons),
        operator=status.operator,
        because=status.because,
        watch=watch,
    )


def _effect(effect: Effect) -> EffectView:
    return EffectView(effect.state, effect.person_id, effect.validation_type, effect.operator, effect.sent_at)


def _asked(asked: Asked | None) -> AskedView | None:
    return None if asked is None else AskedView(asked.rule, asked.because, asked.asked_at)


def _verified(identity: Identity | None) -> VerifiedView | None:
    if identity is None:
        return None
    return VerifiedView(
        identity.person_id, identity.validation_type, identity.by_desk, identity.operator, identity.established_at
    )
