"""The ledger of an effect as a move writes it: intended, withdrawn, answered, established.

What is sent, and when the ledger says ``sent``, is in ``workers.sending``.
"""

from msgspec.structs import replace

from calls.fold import assigned
from calls.record import EffectKind, EffectState, with_effect
from calls.rules.verdict import Verdict
from calls.steps import Establish, Intend, Withdraw
from calls.trail import Entry
from workers.claim import Claim
from workers.explaining import note


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
