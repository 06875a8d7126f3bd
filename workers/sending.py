"""Sends the one request of an effect: ``sent`` is saved before the first byte, and nothing is ever repeated blindly."""

from collections.abc import Callable
from datetime import timedelta

from msgspec.structs import replace

from calls.claimed import LeaseLost
from calls.effects import after_turning_away
from calls.pause import PauseScope
from calls.record import Effect, EffectKind, EffectState, with_effect
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
from workers.claim import Claim
from workers.ledger import answered
from workers.merging import note_misnamed

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
