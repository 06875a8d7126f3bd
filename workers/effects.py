"""The steps that change something at the service: decisions and the ledger are written, then the one request is sent.

``sent`` is saved before the first byte, and nothing is ever repeated blindly. A decision is written into the trail with
all that explains it: which facts, which rule, what the law forbade.
"""

from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from calls.evidence import after_turning_away
from calls.facts import facts_of
from calls.fold import assigned
from calls.lease import LeaseLost
from calls.ledger import Effect, EffectKind, EffectState
from calls.pause import PauseScope
from calls.record import Asked, with_effect
from calls.rules import Outcome
from calls.rules.verdict import Assignment, Verdict, table
from calls.steps import Establish, Intend, Withdraw
from calls.trail import Entry
from reseller import (
    NotSent,
    OutcomeUnknown,
    ResellerError,
    ServiceRefused,
    TokenLapsed,
    TurnedAway,
    Unsendable,
    ValidationType,
)
from reseller.endpoints import is_same_id
from workers.checks import note_misnamed
from workers.claim import Claim


def note(claim: Claim, verdict: Verdict | Assignment) -> None:
    """Write a decision down."""
    if isinstance(verdict, Assignment):
        _note_assignment(claim, verdict)
        return
    book, reading = claim.tools.book, claim.call.reading
    facts = facts_of(claim.call, book.policies, claim.now)
    claim.call = replace(
        claim.call,
        last_verdict=verdict.fingerprint,
        last_facts=facts.signature,
        asked=_asked(claim, verdict),
    )
    claim.entries.append(
        Entry(
            at=claim.now,
            what="decided",
            kind=verdict.outcome,
            asked=verdict.asked,
            rule=verdict.rule,
            rules=book.digest,
            because=verdict.because,
            validation_type=verdict.validation_type,
            forbidden=verdict.forbidden,
            facts=facts.as_dict(),
            policies=reading.policies if reading else (),
            tried=table(facts, book, claim.call_id.institution_key),
            pause=claim.pause,
        )
    )


def _asked(claim: Claim, verdict: Verdict) -> Asked | None:
    """Return what a person is asked from now on. The same rule asks once; what nobody asks any more is gone."""
    if verdict.outcome is not Outcome.ASK:
        return None
    asked = claim.call.asked
    if asked is not None and asked.rule == verdict.rule:
        return asked
    claim.tools.log.warning("person_asked", **claim.names, rule=verdict.rule)
    return Asked(rule=verdict.rule, because=verdict.because, asked_at=claim.now)


def _note_assignment(claim: Claim, assignment: Assignment) -> None:
    claim.call = replace(claim.call, last_assignment=assignment.fingerprint)
    claim.entries.append(
        Entry(
            at=claim.now,
            what="decided",
            kind="hold",
            asked="assign",
            rules=assignment.rules,
            because=assignment.because,
            operator=assignment.operator,
            forbidden=assignment.forbidden,
            candidates=len(claim.call.candidates),
            pause=claim.pause,
        )
    )


def note_facts(claim: Claim) -> None:
    """Write facts down that changed without changing the decision."""
    facts, reading = facts_of(claim.call, claim.tools.book.policies, claim.now), claim.call.reading
    claim.call = replace(claim.call, last_facts=facts.signature)
    policies = reading.policies if reading else ()
    claim.entries.append(Entry(at=claim.now, what="facts", facts=facts.as_dict(), policies=policies))


async def intend(claim: Claim, step: Intend) -> None:
    """Write down what is about to be sent, by which rule or whose word.

    An assign's intention is saved together with its ``sent``: nothing has to be read in between, and an assign that was
    neither sent nor written down is decided anew. Enroll and reject are saved before the read that precedes them.
    """
    now, verdict, kind = claim.now, step.verdict, step.kind
    if isinstance(verdict, Verdict):
        note(claim, verdict)
    effect = replace(
        claim.call.effect(kind).emptied(),
        state=EffectState.INTENDED,
        person_id=step.person_id,
        validation_type=step.validation_type,
        operator=step.operator,
        rule=verdict.rule if isinstance(verdict, Verdict) else None,
        because=verdict.because,
        intended_at=now,
        remark=claim.call.identity.remark if kind is EffectKind.ENROLL and claim.call.identity else None,
    )
    claim.call = with_effect(claim.call, kind, effect)
    claim.entries.append(
        Entry(
            at=now,
            what="intended",
            kind=kind,
            person_id=step.person_id,
            validation_type=step.validation_type,
            because=verdict.because,
            operator=step.operator,
        )
    )
    if kind is not EffectKind.ASSIGN:
        await claim.keep()


def withdraw(claim: Claim, step: Withdraw) -> None:
    """Give an intention up: nothing was sent."""
    claim.call = with_effect(claim.call, step.kind, claim.call.effect(step.kind).emptied())
    claim.entries.append(Entry(at=claim.now, what="withdrawn", kind=step.kind, because=step.because))


def answered(claim: Claim, kind: EffectKind, state: EffectState, *, said: str | None = None) -> None:
    """Write down what came back; ``said`` is why the service declined, in words that name nobody."""
    effect = claim.call.effect(kind)
    claim.call = with_effect(claim.call, kind, replace(effect, state=state))
    claim.entries.append(
        Entry(at=claim.now, what="answered", kind=kind, state=state, because=said, trace=claim.call.trace)
    )
    if state is EffectState.APPLIED:
        _in_force(claim, kind)
    claim.tools.log.info("effect_answered", **claim.names, kind=kind, state=state, said=said)


def establish(claim: Claim, step: Establish) -> None:
    """Write down what stored details proved about an effect in doubt, or that they never will."""
    kind, state = step.kind, step.state
    claim.call = with_effect(claim.call, kind, replace(claim.call.effect(kind), state=state))
    claim.entries.append(Entry(at=claim.now, what="established", kind=kind, state=state))
    if state is EffectState.CONFIRMED:
        _in_force(claim, kind)
    if state is EffectState.UNRESOLVED:
        claim.tools.log.error("effect_unresolved", **claim.names, kind=kind)


def _in_force(claim: Claim, kind: EffectKind) -> None:
    claim.tally.add({"assign": "assigned", "enroll": "enrolled", "reject": "rejected"}[kind])
    if kind is EffectKind.ASSIGN:
        claim.call = assigned(claim.call, claim.tools.book, claim.now)
    claim.call = replace(claim.call, next_read_at=claim.now)


UNSENT_RETRY = timedelta(seconds=3)
"""After a failure in which no byte was written."""

_STOPPED_BY = {
    EffectKind.ASSIGN: PauseScope.ALL,
    EffectKind.ENROLL: PauseScope.EFFECTS,
    EffectKind.REJECT: PauseScope.EFFECTS,
}
"""The least pause under which an effect is not sent, asked once more by the write that books it."""


class FrozenTooLong(Exception):
    """The process stood still between booking an effect and sending it: the lease no longer covers the request."""


async def send(claim: Claim, kind: EffectKind) -> None:
    """Save ``sent``, send the one request, write down what came back.

    Raises:
        LeaseLost: Somebody else moves the call now; nothing was sent.
        FrozenTooLong: The process stood still; nothing was sent, and the ledger says ``sent``.
    """
    intended = claim.call
    effect = _booked(claim, kind)
    claim.call = with_effect(intended, kind, effect)
    claim.entries.append(
        Entry(
            at=claim.now, what="sent", kind=kind, operator=effect.requested_by, n=effect.attempts, trace=intended.trace
        )
    )
    booked_at_s = claim.tools.monotonic()
    try:
        await claim.keep(only_if_no_notes=True, unless_paused=_STOPPED_BY[kind], replicated=True)
    except LeaseLost as lost:
        if lost.why not in {"notes", "paused"}:
            raise
        claim.entries.pop()
        claim.call = intended
        await claim.let_go(claim.now)
        return
    state = await _request(claim, kind, effect, booked_at_s)
    if not claim.is_over:
        if claim.call.effect(kind).state is not state:
            answered(claim, kind, state)
        if state is EffectState.INTENDED:
            await claim.let_go(claim.now + UNSENT_RETRY)


def _booked(claim: Claim, kind: EffectKind) -> Effect:
    """Return the ledger with one request more, and what stored details said directly before."""
    effect, reading = claim.call.effect(kind), claim.call.reading
    return replace(
        effect,
        state=EffectState.SENT,
        sent_at=claim.now,
        attempts=effect.attempts + 1,
        retry_at=None,
        status_before=reading.status if reading else None,
        updated_before=reading.updated_at if reading else None,
        requested_by=effect.operator or claim.bot,
    )


async def _request(claim: Claim, kind: EffectKind, effect: Effect, booked_at_s: float) -> EffectState:
    """Send the request of an effect and return what its ledger has to say of it."""
    log = claim.tools.log

    def guard() -> None:
        # Redis may have written `sent`, and begun the lease, at any time since it was asked to: that is what counts.
        if claim.tools.monotonic() - booked_at_s > claim.tools.store.lease.first_byte_s:
            raise FrozenTooLong

    try:
        await _emit(claim, kind, effect, guard)
    except (ServiceRefused, Unsendable) as error:
        answered(claim, kind, EffectState.REFUSED, said=error.plain)
        return EffectState.REFUSED
    except NotSent as error:
        log.warning("effect_not_sent", **claim.names, kind=kind, error=type(error).__name__)
        effect = claim.call.effect(kind)
        claim.call = with_effect(claim.call, kind, replace(effect, unsent=effect.unsent + 1))
        return EffectState.INTENDED
    except ResellerError as error:
        claim.tally.add("effects_in_doubt")
        log.warning("effect_in_doubt", **claim.names, kind=kind, error=type(error).__name__, said=error.plain)
        if isinstance(error, TokenLapsed | TurnedAway):
            claim.call = with_effect(claim.call, kind, after_turning_away(kind, claim.call.effect(kind), claim.now))
        return EffectState.UNKNOWN
    return EffectState.APPLIED


async def _emit(claim: Claim, kind: EffectKind, effect: Effect, guard: Callable[[], None]) -> None:
    service, (institution_key, voice_id) = claim.tools.service, claim.call_id
    person_id, requested_by = effect.person_id or "", effect.requested_by or claim.bot
    match kind:
        case EffectKind.ASSIGN:
            real = await service.assign(
                institution_key, person_id=person_id, requested_by=requested_by, voice_id=voice_id, guard=guard
            )
            if not is_same_id(real, voice_id):
                note_misnamed(claim, real, kind)
                raise OutcomeUnknown(kind, "the answer names another call")
        case EffectKind.ENROLL:
            await service.enroll(
                institution_key,
                voice_id,
                person_id=person_id,
                validation_type=ValidationType(effect.validation_type or ValidationType.OTHER),
                notes=effect.remark or effect.because,
                requested_by=requested_by,
                guard=guard,
            )
        case EffectKind.REJECT:
            await service.reject_voice(institution_key, voice_id, requested_by=requested_by, guard=guard)
