"""Holds answers to the call that was asked about; two records that turned out to be one call become one.

Nothing of an answer that names another call enters a record. Either this record's id is an alternate id: then it becomes a
tombstone, and what it knows a note to the other record. Or the service mixed two calls up: then the answer counts as
unreadable.
"""

from msgspec.structs import replace

from calls.figures import catalogue as figure
from calls.hints import may_be_alternate
from calls.keys import CallId
from calls.notes import Merged, encode_note
from reseller import AnswerUnreadable
from reseller.keys import is_same_id, is_voice_id
from workers.claim import Claim


async def hold_to_name(claim: Claim, named: str | None, kind: str) -> None:
    """Compare the voice id in an answer with the one that was asked about; the claim may be over afterwards.

    Args:
        claim: The call that was asked about.
        named: The voice id in the answer. Assumed: an answer without one is about the call that was asked about.
        kind: What was asked: ``read`` or ``check``.

    Raises:
        AnswerUnreadable: The answer names another call.
        LeaseLost: Somebody else moves the call now, or the queue has just listed it.

    Spec: Rules per operation 2 (alternate ids are resolved).
    """
    if not named or is_same_id(named, claim.call_id.voice_id):
        return
    if await _is_alternate(claim, named) and await _merge_into(claim, named):
        return
    claim.call = replace(claim.call, other_voice_id=named)
    note_misnamed(claim, named, kind)
    raise AnswerUnreadable(kind, "the answer names another call")


def note_misnamed(claim: Claim, named: str, kind: str) -> None:
    """Log and count an answer that names another call."""
    claim.tools.log.warning("answer_misnamed", **claim.names, kind=kind, other=named)
    counting = claim.tools.counting
    counting.figures.count(figure.ANSWERS_MISNAMED, counting.label(claim.call_id.institution_key), kind)


async def _is_alternate(claim: Claim, named: str) -> bool:
    if not is_voice_id(named):
        return False
    is_pushed_alias = await claim.tools.store.alias(claim.call_id) == named
    return may_be_alternate(claim.call, named, claim.now, is_pushed_alias=is_pushed_alias)


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
