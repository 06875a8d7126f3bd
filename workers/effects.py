"""The steps that change something at the service: assign, enroll and reject.

The decision and the ledger are written first, then one request is sent. ``sent`` is saved before the first byte, and no
request is repeated without knowing the outcome of the last one.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from callkeeper.calls.assign_folding import unassigned
from callkeeper.calls.claimed_item import RefusedBy, WriteRefused
from callkeeper.calls.effect_ledger import DONE, Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import (
    ENROLLED_SINCE,
    NO_CLEAR_ANSWER,
    NOT_SHOWN,
    RECORD_LOST,
    TURNED_AWAY,
    after_refusal,
    after_turning_away,
    word_for,
)
from callkeeper.calls.fact_derivation import naming_other_call
from callkeeper.calls.informed_words import in_words
from callkeeper.calls.item_names import CallId
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.reading_folding import MOST_TEXT
from callkeeper.calls.record import Asked, CallStatements
from callkeeper.calls.record_storage import SCHEMA
from callkeeper.calls.rules import Outcome
from callkeeper.calls.rules.assignment import Assignment
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.settlement import settled_anew
from callkeeper.calls.steps import Establish, Intend, Withdraw, WriteDecision, WriteFacts
from callkeeper.calls.trail import Entry
from callkeeper.service import (
    NotSent,
    ResellerError,
    ServiceRefused,
    TokenLapsed,
    TurnedAway,
    Unsendable,
    ValidationType,
)
from callkeeper.service.endpoints import canonical_id, is_same_id, is_voice_id
from workers.checks import note_misnamed
from workers.claimed_call import Claim
from workers.other_calls import find_beside, would_undo_an_enroll

MOST_NOTES: Final = 500
"""How many characters of notes the service takes. Assumed (`notes-length`): no more, with any content."""


def write_decision(claim: Claim, step: WriteDecision) -> None:
    """Write a decision to the trail, with the pause in force."""
    match step.verdict:
        case Verdict() as verdict:
            statements, news = _with_question(claim, step, verdict)
            step = replace(step, entry=replace(step.entry, signs=news))
            claim.call = replace(
                claim.call,
                written=replace(claim.call.written, verdict=verdict.fingerprint, facts=step.facts),
                statements=statements,
            )
        case Assignment() as assignment:
            claim.call = replace(claim.call, written=replace(claim.call.written, assignment=assignment.fingerprint))
    claim.entries.append(replace(step.entry, pause=claim.pause))


def _with_question(claim: Claim, step: WriteDecision, verdict: Verdict) -> tuple[CallStatements, tuple[str, ...]]:
    """Return the statements with the question that is put to a person now, if any.

    A rule asks once about the same evidence, and the question ends with the verdict. What opens a closed one again is
    returned, too.
    """
    said = claim.call.statements
    asked = said.asked
    if verdict.outcome is not Outcome.ASK and not step.keeps_question:
        return replace(said, asked=None), ()
    if asked is not None and not (step.keeps_question or asked.rule == verdict.rule):
        asked = None
    known = asked.evidence if asked is not None else ()
    news = tuple([one for one in step.evidence if one not in known])
    if asked is not None and not news:
        return said, ()
    was_closed = asked is not None and asked.closed_by is not None
    if asked is None or was_closed:
        claim.tools.log.warning("person_asked", rule=verdict.rule if asked is None else asked.rule)
    because = naming_other_call(claim.call, verdict.rule, verdict.because)
    asked = asked or Asked(rule=verdict.rule, because=because, asked_at=claim.now)
    asked = replace(asked, asked_at=claim.now, closed_by=None, evidence=(*known, *news))
    return replace(said, asked=asked), news if was_closed else ()


def write_facts(claim: Claim, step: WriteFacts) -> None:
    """Write changed facts to the trail when the decision stays the same."""
    claim.call = replace(claim.call, written=replace(claim.call.written, facts=step.facts))
    claim.entries.append(step.entry)


async def intend(claim: Claim, step: Intend) -> None:
    """Save the intention to send an effect, with the rule or the person it comes from.

    The intention of an enroll or reject is saved before the confirming read. An assign's is saved with the next write,
    usually its ``sent``, because it often needs no read. If the claim is lost before, the assign is decided anew.
    """
    now, verdict, kind = claim.now, step.verdict, step.kind
    if step.decision is not None:
        write_decision(claim, step.decision)
    if kind is EffectKind.REJECT and claim.call.ledger.reject.state in DONE:
        # The earlier reject is forgotten with its effect; it must still count if this intention is withdrawn.
        seen = replace(claim.call.seen, rejected=True, rejected_by_rule_only=False)
        claim.call = replace(claim.call, seen=seen)
    before, identity = claim.call.effect(kind), claim.call.statements.identity
    effect = replace(
        _emptied(before),
        state=EffectState.INTENDED,
        failed=_failure(before),
        person_id=step.person_id,
        validation_type=step.validation_type,
        operator=step.operator,
        rule=verdict.rule if isinstance(verdict, Verdict) else None,
        because=verdict.because,
        intended_at=now,
        person_stood=kind is EffectKind.ASSIGN and claim.call.seen.person_id == step.person_id,
        remark=identity.remark if kind is EffectKind.ENROLL and identity is not None else None,
        despite=step.despite,
    )
    claim.set_effect(kind, effect)
    claim.entries.append(
        Entry(
            at=now,
            what="intended",
            kind=kind,
            person_id=step.person_id,
            validation_type=step.validation_type,
            because=verdict.because,
            operator=step.operator,
            despite=step.despite,
        )
    )
    if kind is EffectKind.REJECT:
        await claim.keep_marks()
    if kind is not EffectKind.ASSIGN:
        await claim.keep()


async def _why_given_up(claim: Claim, kind: EffectKind) -> str | None:
    """Return why an effect is given up: what was done to the call or its member before, or since; None if it is not."""
    match kind:
        case EffectKind.ENROLL:
            return RECORD_LOST if _may_have_been_rejected(claim) else None
        case EffectKind.REJECT:
            return ENROLLED_SINCE if await would_undo_an_enroll(claim) else None
        case EffectKind.ASSIGN:
            return None


def _may_have_been_rejected(claim: Claim) -> bool:
    """Tell whether a call that has ended may have had a record that Redis lost, with a reject that later activities hide.

    It may not if a read of this record has shown the call live. An entry in the queue is not enough: the queue may list a
    call that has ended. If a person asks for the enroll again, they have looked at the call, and it counts as not rejected.
    """
    call, now = claim.call, claim.now
    reading, was_told = call.seen.reading, bool(call.ledger.enroll.last_word)
    if was_told or reading is None or call.life.ended_at is None or call.life.was_live:
        return False
    epoch, oldest = claim.item.epoch, timedelta(seconds=claim.tools.book.maximum_age_s)
    here = now - epoch.since
    age = claim.tools.clock.age(reading.created_at, now, epoch, may_be_old=here < oldest)
    return epoch.is_replaced and (age is None or age > min(here, oldest))


_KEPT = ("attempts", "unsent", "unauthorized", "sent_at", "retry_at", "last_word")


def _emptied(effect: Effect) -> Effect:
    """Return a ledger without intention that keeps what was sent."""
    return replace(Effect(), **{name: getattr(effect, name) for name in _KEPT})


def _failure(effect: Effect) -> str | None:
    """Return why the last request failed for good, or that it is unresolved, if that must stand when a word is withdrawn."""
    if effect.resolved or effect.retry_at is not None:
        return None
    if effect.state is EffectState.UNRESOLVED:
        return EffectState.UNRESOLVED
    return effect.refusal if effect.state is EffectState.REFUSED else None


def withdraw(claim: Claim, step: Withdraw) -> None:
    """Withdraw an intention. Nothing was sent."""
    effect = claim.call.effect(step.kind)
    emptied, failed = _emptied(effect), effect.failed
    if failed == EffectState.UNRESOLVED:
        emptied = replace(emptied, state=EffectState.UNRESOLVED, person_id=effect.person_id)
    elif failed is not None:
        emptied = replace(emptied, state=EffectState.REFUSED, refusal=failed)
    claim.set_effect(step.kind, emptied)
    claim.entries.append(Entry(at=claim.now, what="withdrawn", kind=step.kind, because=step.because))


def answered(claim: Claim, kind: EffectKind, state: EffectState, *, said: str | None = None) -> None:
    """Record the outcome of a request. ``said`` tells what came back if it was no success, without personal data."""
    claim.set_effect(kind, replace(claim.call.effect(kind), state=state))
    claim.entries.append(
        Entry(at=claim.now, what="answered", kind=kind, state=state, because=said, trace=claim.call.trace)
    )
    if state is EffectState.APPLIED:
        claim.in_force(kind)
    claim.tools.log.info("effect_answered", kind=kind, state=state, said=said)


def establish(claim: Claim, step: Establish) -> None:
    """Record what became of an effect in doubt, if that was shown, that the service ignored an assign, or a giving up."""
    kind, state, effect = step.kind, step.state, claim.call.effect(step.kind)
    if step.given_up is not None:
        word = word_for(kind, claim.call)
        last_word = word.number if word is not None else effect.last_word
        effect = replace(effect, refusal=step.given_up, last_word=last_word)
    if state is EffectState.REFUSED and effect.refusal is None:
        effect = replace(effect, refusal=TURNED_AWAY)
    if effect.state is EffectState.APPLIED:  # it was not in doubt, so it is an assign that was ignored
        effect = replace(effect, refusal=NOT_SHOWN if state is EffectState.REFUSED else None)
        claim.call = unassigned(claim.call)
        claim.tools.log.warning("assign_ignored")
    claim.set_effect(
        kind, replace(effect, state=state, retry_at=effect.retry_at if state is EffectState.ABSENT else None)
    )
    because = effect.refusal if state is EffectState.REFUSED else None
    claim.entries.append(Entry(at=claim.now, what="established", kind=kind, state=state, because=because))
    if state is EffectState.REFUSED:
        claim.call = replace(claim.call, schema=SCHEMA)
        claim.tools.log.warning("effect_refused", kind=kind, said=because)
    if state is EffectState.CONFIRMED:
        claim.in_force(kind)
    if state is EffectState.UNRESOLVED:
        claim.tools.log.error("effect_unresolved", kind=kind)
    if claim.call.is_settled:
        claim.call = settled_anew(claim.call, claim.tools.book, claim.now)


UNSENT_WAITS_S = (3.0, 3.0, 3.0, 6.0, 12.0, 24.0, 48.0, 60.0)
"""The waits after failures before the first byte was written, in seconds.

They grow because each try of an enroll or a reject is written down, and a refused login can last for hours.
"""

_STOPPED_BY = {
    EffectKind.ASSIGN: PauseScope.ALL,
    EffectKind.ENROLL: PauseScope.EFFECTS,
    EffectKind.REJECT: PauseScope.EFFECTS,
}
"""The mildest pause that stops each effect. The write that saves ``sent`` checks it once more."""


class FrozenTooLong(Exception):
    """The process stood still between saving ``sent`` and sending: the lease no longer covers the request.

    It is the cause of ``NotSent``. The ledger goes back to ``intended``, unless another worker has the call by then.
    """


async def send(claim: Claim, kind: EffectKind) -> None:
    """Save ``sent``, send the one request, and record the outcome.

    Raises:
        WriteRefused: Another worker holds the call now; nothing was sent.
    """
    if (because := await _why_given_up(claim, kind)) is not None:
        establish(claim, Establish(kind, EffectState.REFUSED, because))
        return
    if kind is EffectKind.ENROLL:
        known = claim.call.ledger.beside
        await find_beside(claim, anew=True)
        if claim.call.ledger.beside != known:
            return  # it is decided again
        if claim.call.seen.person_id is not None:
            await claim.tools.store.members.announce(claim.call_id, claim.call.seen.person_id, claim.now)
    intended = claim.call
    effect = _booked(claim, kind)
    claim.set_effect(kind, effect)
    claim.entries.append(
        Entry(
            at=claim.now, what="sent", kind=kind, operator=effect.requested_by, n=effect.attempts, trace=intended.trace
        )
    )
    booked_at_s = claim.tools.monotonic()
    claim.item.is_sending = True
    try:
        await claim.keep(only_if_no_notes=True, unless_paused=_STOPPED_BY[kind], replicated=True)
    except WriteRefused as refused:
        if refused.why not in {RefusedBy.NOTES, RefusedBy.PAUSED}:
            raise
        claim.entries.pop()
        claim.call = intended
        await claim.let_go(claim.now)
        return
    state, said = await _request(claim, kind, effect, booked_at_s)
    answered(claim, kind, state, said=said)
    if state is EffectState.REFUSED:  # before it was sent: nothing else will tell anybody
        establish(claim, Establish(kind, state))
    if state is EffectState.INTENDED:
        effect = replace(claim.call.effect(kind), retry_at=intended.effect(kind).retry_at)
        claim.set_effect(kind, effect)
        await claim.let_go(claim.now + _unsent_wait(kind, effect))


def _unsent_wait(kind: EffectKind, effect: Effect) -> timedelta:
    """Return how long an effect waits whose request could not be sent.

    The wait of an assign does not grow: a caller waits for it.
    """
    tries = 1 if kind is EffectKind.ASSIGN else min(effect.unsent, len(UNSENT_WAITS_S))
    return timedelta(seconds=UNSENT_WAITS_S[tries - 1])


def _booked(claim: Claim, kind: EffectKind) -> Effect:
    """Return the ledger with one more request counted, and what stored details said directly before it."""
    effect, reading, word = claim.call.effect(kind), claim.call.seen.reading, word_for(kind, claim.call)
    requested_by = effect.operator or claim.bot
    return replace(
        effect,
        last_word=word.number if word else effect.last_word,
        state=EffectState.SENT,
        sent_at=claim.now,
        attempts=effect.attempts + 1,
        retry_at=None,
        status_before=reading.status if reading else None,
        requested_by=requested_by,
        is_operators=effect.person_stood and claim.call.seen.core_username not in {None, requested_by},
    )


async def _request(
    claim: Claim, kind: EffectKind, effect: Effect, booked_at_s: float
) -> tuple[EffectState, str | None]:
    """Send the request of an effect. Return the state for its ledger, and what came back if it was no success."""
    log = claim.tools.log

    def guard() -> None:
        # Redis may have executed the write, and started the lease, any time after we sent it. So measure from there.
        if claim.tools.monotonic() - booked_at_s > claim.tools.store.lease.first_byte_s:
            raise FrozenTooLong

    try:
        other_id = await _emit(claim, kind, effect, guard)
    except Unsendable as error:
        claim.set_effect(kind, replace(claim.call.effect(kind), refusal=f"nothing was sent: {error.plain}"[:MOST_TEXT]))
        return EffectState.REFUSED, error.plain
    except NotSent as error:
        log.warning("effect_not_sent", kind=kind, error=type(error.__cause__ or error).__name__)
        effect = claim.call.effect(kind)
        claim.set_effect(kind, replace(effect, unsent=effect.unsent + 1))
        return EffectState.INTENDED, None
    except ResellerError as error:
        claim.summary.add("effects_in_doubt")
        log.warning("effect_in_doubt", kind=kind, error=type(error).__name__, said=error.plain)
        refusal = error.plain[:MOST_TEXT] if isinstance(error, ServiceRefused) else None
        if refusal is not None:
            claim.set_effect(kind, after_refusal(kind, claim.call.effect(kind), refusal, claim.now))
        elif isinstance(error, TokenLapsed | TurnedAway):
            claim.set_effect(kind, after_turning_away(kind, claim.call.effect(kind), claim.now))
        said = f"{NO_CLEAR_ANSWER} ({error.brief})" if refusal is None else refusal
        return EffectState.UNKNOWN, said[:MOST_TEXT]
    return (EffectState.APPLIED, None) if other_id is None else await _moved(claim, other_id)


TWO_RECORDS = "two records of one call"
"""Stands in place of a rule's name where a person is asked whether two records are about one call."""


async def _moved(claim: Claim, voice_id: str) -> tuple[EffectState, str | None]:
    """Return the state of an assign that was answered with another voice id.

    It may be the id to use from now on, which the next read finds out, unless the queue lists it as another call. If a
    person works on a call with that id, a person decides.
    """
    note_misnamed(claim, voice_id, EffectKind.ASSIGN)
    claim.summary.add("effects_in_doubt")
    other = await claim.tools.store.record(CallId(claim.call_id.institution_key, canonical_id(voice_id)))
    if other is not None and other.life.listed_at is not None:
        return EffectState.UNKNOWN, None
    if other is not None and other.statements.were_made and not other.is_settled:
        because = "the service goes on under the id of a call about which a person has spoken"
        claim.call = replace(
            claim.call,
            statements=replace(
                claim.call.statements, asked=Asked(rule=TWO_RECORDS, because=because, asked_at=claim.now)
            ),
        )
        claim.tools.log.warning("person_asked", rule=TWO_RECORDS)
        return EffectState.UNRESOLVED, because
    if is_voice_id(voice_id):
        claim.call = replace(claim.call, names=replace(claim.call.names, assigned_id=voice_id))
    return EffectState.UNKNOWN, None


def _notes(effect: Effect) -> str | None:
    """Return what the service is told with an enroll: first what speaks against it, and was overruled."""
    said = effect.remark or effect.because
    despite = f"Despite: {in_words(effect.despite)}." if effect.despite else ""
    return " ".join(filter(None, (despite, said)))[:MOST_NOTES] or None


async def _emit(claim: Claim, kind: EffectKind, effect: Effect, guard: Callable[[], None]) -> str | None:
    """Send the request. Return the voice id that an assign was answered with, if it is not the one that was asked for."""
    service, institution_key, voice_id = claim.tools.service, claim.call_id.institution_key, claim.spelled_id
    person_id, requested_by = effect.person_id or "", effect.requested_by or claim.bot
    match kind:
        case EffectKind.ASSIGN:
            real = await service.assign(
                institution_key, person_id=person_id, requested_by=requested_by, voice_id=voice_id, guard=guard
            )
            if not is_same_id(real, claim.call_id.voice_id):
                return real
        case EffectKind.ENROLL:
            await service.enroll(
                institution_key,
                voice_id,
                person_id=person_id,
                validation_type=ValidationType(effect.validation_type or ValidationType.OTHER),
                notes=_notes(effect),
                requested_by=requested_by,
                guard=guard,
            )
        case EffectKind.REJECT:
            await service.reject_voice(institution_key, voice_id, requested_by=requested_by, guard=guard)
    return None
