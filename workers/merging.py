"""Two records that turned out to be one call: ours becomes a tombstone, what it knows a note to the other."""

from calls.keys import CallId
from calls.notes import Merged, encode_note
from workers.claim import Claim


async def merge_into(claim: Claim, voice_id: str) -> None:
    """Go on under the voice id that the service calls this call by.

    Raises:
        LeaseLost: Somebody else moves the call now.
    """
    other = CallId(claim.call_id.institution_key, voice_id)
    await claim.keep()
    note = encode_note(Merged(call=claim.call))
    await claim.tools.store.merge(claim.held, claim.call_id, other, note, checks=claim.call.checks_used)
    claim.is_over = True
    claim.tools.log.info("calls_merged", **claim.names, into=voice_id)
