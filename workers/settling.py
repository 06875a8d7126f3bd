"""Closes calls: settles one with its reason, drops a hint that was no call."""

from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace
from redis.exceptions import RedisError

from calls.claimed import Placement
from calls.closing import CONFIRM_LOOKS_S
from calls.institutions import FOREIGN
from calls.record import Phase, Reason
from calls.steps import Drop
from calls.trail import Entry
from workers.claim import Claim, attention


async def settle(claim: Claim, reason: Reason) -> None:
    """Close the call: nothing is ever sent for it again, unless the queue lists one that was never confirmed."""
    now = claim.now
    claim.call = replace(claim.call, phase=Phase.SETTLED, reason=reason, settled_at=now)
    digest = claim.tools.book.digest
    claim.entries.append(Entry(at=now, what="settled", because=reason, n=claim.call.checks_used, rules=digest))
    listed = "unconfirmed" if reason is Reason.UNCONFIRMED else "settled"
    await claim.save(Placement(None, listed=listed, attention=attention(claim.call)))
    if claim.call.alternate_id is not None:
        with suppress(RedisError):
            await claim.tools.store.keep_alias(claim.call_id.institution_key, claim.call.alternate_id)
    claim.tally.add("settled")
    claim.tools.log.info("call_settled", **claim.names, reason=reason, checks=claim.call.checks_used)


LISTED_WITHIN = timedelta(seconds=CONFIRM_LOOKS_S[-1])
"""How long after a hint a look at the queue has to begin to show that there is no such call: an event may outrun it."""

LOOK_AGAIN = timedelta(seconds=5)


async def drop(claim: Claim, step: Drop) -> None:
    """Forget a hint that the queue does not list, after a complete look at it: one that failed says nothing."""
    now, hinted_at = claim.now, claim.call.hinted_at or claim.now
    if claim.call.standing != FOREIGN:
        looked_at = await claim.tools.store.looked_at(claim.call_id.institution_key)
        if looked_at is None or looked_at < hinted_at + LISTED_WITHIN:
            # A listing that shows the call makes it due at once: the wait may grow.
            await claim.let_go(now + max(LOOK_AGAIN, (now - hinted_at) / 8))
            return
    claim.entries.append(Entry(at=claim.now, what="dropped", because=step.because, rules=claim.tools.book.digest))
    await claim.forget()
    claim.tally.add("dropped")
    claim.tools.log.info("hint_dropped", **claim.names)
