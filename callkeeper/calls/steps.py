"""The possible steps for a call, a closed set. ``decide`` returns one, and ``workers.move`` carries it out."""

from datetime import datetime

import msgspec

from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.record import Reason
from callkeeper.calls.rules.assignment import Assignment
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.trail import Entry


class RequestListing(msgspec.Struct, frozen=True):
    """Ask for a look at the institution's queue. What it lists comes back as a note."""


class Read(msgspec.Struct, frozen=True):
    """Read the stored details. This costs no check, and the service does not ask the voice provider."""

    because: str


class LookBack(msgspec.Struct, frozen=True):
    """Read the stored details of a call that ended unlisted, if this minute's allowance permits it."""


class Check(msgspec.Struct, frozen=True):
    """Book and make one of the 20 authentication checks."""

    by_desk: bool = False


class WriteDecision(msgspec.Struct, frozen=True):
    """Write a new decision to the trail.

    The verdict's fingerprint and ``facts`` (the signature of the facts; None for an assignment) are kept in the record,
    so that a repeated decision is written once. ``keeps_question``: the law holds what is decided, so it does not answer
    the question that is open. ``evidence``: what speaks against the caller.
    """

    verdict: Verdict | Assignment
    entry: Entry
    facts: str | None = None
    keeps_question: bool = False
    evidence: tuple[str, ...] = ()


class Intend(msgspec.Struct, frozen=True):
    """Note the intention of an effect, and save that of an enroll or a reject. Nothing is sent yet.

    ``decision`` is written first, if it is given. ``despite``: what speaks against the caller of an enroll all the same.
    """

    kind: EffectKind
    person_id: str | None
    validation_type: str | None
    operator: str | None
    verdict: Verdict | Assignment
    decision: WriteDecision | None = None
    despite: tuple[str, ...] = ()


class Withdraw(msgspec.Struct, frozen=True):
    """Withdraw an intention for which nothing was sent."""

    kind: EffectKind
    because: str


class Decline(msgspec.Struct, frozen=True):
    """Drop a check that a person asked for. ``because`` is the name of the reason."""

    because: str


class Send(msgspec.Struct, frozen=True):
    """Save ``sent`` and send the one request of an effect."""

    kind: EffectKind


class Establish(msgspec.Struct, frozen=True):
    """Record in the ledger what became of an effect in doubt, or that the service ignored an assign.

    ``given_up``: why it was not sent and must not be without a person (`GIVEN_UP_BECAUSE`); only a later word asks for it.
    """

    kind: EffectKind
    state: EffectState
    given_up: str | None = None


class WriteFacts(msgspec.Struct, frozen=True):
    """Write the facts to the trail because they changed but the verdict did not, then take the step ``then``.

    ``facts`` is their signature. ``then`` is kept, because deciding again would cost 8 % of a check (*measured*).
    """

    entry: Entry
    facts: str
    then: "Deed"


class Wait(msgspec.Struct, frozen=True):
    """Release the call until an instant. A note makes it due earlier."""

    until: datetime


class Drop(msgspec.Struct, frozen=True):
    """Forget a hint that the queue never listed."""


class Settle(msgspec.Struct, frozen=True):
    """Settle the call."""

    reason: Reason


class Rest(msgspec.Struct, frozen=True):
    """Release the call for good. Only a note makes it due again."""


Deed = (
    RequestListing
    | Read
    | LookBack
    | Check
    | Intend
    | Withdraw
    | Decline
    | Send
    | Establish
    | WriteDecision
    | Wait
    | Drop
    | Settle
    | Rest
)
"""What is done next."""

Step = Deed | WriteFacts
"""A deed, or changed facts and a deed."""
