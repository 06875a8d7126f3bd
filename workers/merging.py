"""Two records that turned out to be one call: ours becomes a tombstone, what it knows a note to the other."""

from calls.keys import CallId
from calls.notes import Merged, encode_note
from workers.claim import Claim


async def merge_into(claim: Claim, voice_id: str) -> bool:
    """Go on under the voice id that the service calls this call by.

    Returns:
        Whether the claim is over. Where the other id was merged into this one before, this is the one that stays.

    Raises:
        LeaseLost: Somebody else moves the call now.
    """
    other = CallId(claim.call_id.institution_key, voice_id)
    await claim.keep()
    note = encode_note(Merged(call=claim.call))
    checks = claim.call.checks_used
    claim.is_over = await claim.tools.store.merge(claim.held, claim.call_id, other, note, checks=checks)
    if claim.is_over:
        claim.tools.log.info("calls_merged", **claim.names, into=voice_id)
    else:
        claim.tools.log.warning("merge_refused", **claim.names, other=voice_id)
    return claim.is_over
