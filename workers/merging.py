"""Holds answers to the call that was asked about; two records that turned out to be one call become one.

Nothing of an answer that names another call enters a record. If a push, or the other call's own record, says too that this
record's id is an alternate id, this record becomes a tombstone, and what it knows a note to the other record. Otherwise the
service may have mixed two calls up: the answer counts as unreadable.
"""

from msgspec.structs import replace

from calls.metrics import catalogue as figure
from calls.notes import Merged, encode_note
from calls.store.keys import CallId
from reseller import AnswerUnreadable, PhoneCall
from reseller.endpoints import is_same_id, is_voice_id
from workers.claim import Claim


class AnswerMisnamed(AnswerUnreadable):
    """The answer is about another call, and nothing confirms that the two ids are one call."""


async def hold_to_name(claim: Claim, phone_call: PhoneCall, kind: str) -> None:
    """Compare the voice id in an answer with the one that was asked about; the claim may be over afterwards.

    Args:
        claim: The call that was asked about.
        phone_call: The answer. Assumed: one without a voice id is about the call that was asked about.
        kind: What was asked: ``read`` or ``check``.

    Raises:
        AnswerMisnamed: The answer names another call.
        LeaseLost: Somebody else moves the call now, or the queue has just listed it.

    Spec: Rules per operation 2 (alternate ids are resolved).
    """
    named = phone_call.voice_id
    if not named or is_same_id(named, claim.call_id.voice_id):
        return
    real_id = await _real_id(claim, named, phone_call.alternate_ids)
    if real_id is not None and await _merge_into(claim, real_id):
        return
    claim.call = replace(claim.call, other_voice_id=named)
    note_misnamed(claim, named, kind)
    raise AnswerMisnamed(kind, "the answer names another call")


def note_misnamed(claim: Claim, named: str, kind: str) -> None:
    """Log and count an answer that names another call."""
    claim.tools.log.warning("answer_misnamed", **claim.names, kind=kind, other=named)
    counting = claim.tools.counting
    counting.figures.count(figure.ANSWERS_MISNAMED, counting.label(claim.call_id.institution_key), kind)


async def _real_id(claim: Claim, named: str, alternate_ids: frozenset[str]) -> str | None:
    """Return the id that this record's id is an alternate id of, if that is certain.

    An answer about somebody else's call, by a mistake of the service, looks like one about an alternate id: people's
    statements would be carried out for the wrong caller. So a second source has to say the same, a push or the call's
    own record; answers alone confirm nothing, however often they are repeated. The record of a real call, one that the
    queue has listed or that an answer called by this very id, is never an alternate id.
    """
    voice_id = claim.call_id.voice_id
    if claim.call.is_named_by_service or not is_voice_id(named):
        return None
    pushed = await claim.tools.store.alias(claim.call_id)
    if pushed is not None and is_same_id(pushed, named):
        return pushed
    return named if voice_id in alternate_ids else None


async def _merge_into(claim: Claim, voice_id: str) -> bool:
    """Go on under the voice id that the service calls this call by.

    Returns:
        Whether the claim is over. Where the other id was merged into this one before, this is the one that stays.

    Raises:
        LeaseLost: Somebody else moves the call now, or the queue has just listed it.
    """
    other = CallId(claim.call_id.institution_key, voice_id)
    # If the queue lists it after all, this record goes on: stored details are then read before anything else is done.
    claim.call = replace(claim.call, needs_verifying=True)
    await claim.keep()
    note = encode_note(Merged(call=claim.call))
    checks = claim.call.checks_used
    claim.is_over = await claim.tools.store.merge(claim.held, claim.call_id, other, note, checks=checks)
    if claim.is_over:
        claim.tools.log.info("calls_merged", **claim.names, into=voice_id)
    return claim.is_over
