"""The possible steps for a call, a closed set. ``decide`` returns one, and ``workers.move`` carries it out."""

from dataclasses import dataclass
from datetime import datetime

from callkeeper.calls.effect_ledger import EffectKind, EffectState
from callkeeper.calls.record import Reason
from callkeeper.calls.rules.assignment import Assignment
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.trail import Entry


@dataclass(frozen=True, slots=True)
class RequestListing:
    """Ask for a look at the institution's queue. What it lists comes back as a note."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the stored details. This costs no check, and the service does not ask the voice provider."""

    because: str


@dataclass(frozen=True, slots=True)
class LookBack:
    """Read the stored details of a call that ended unlisted, if this minute's allowance permits it."""


@dataclass(frozen=True, slots=True)
class Check:
    """Book and make one of the 20 authentication checks."""

    by_desk: bool = False


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Write a new decision to the trail.

    The verdict's fingerprint and ``facts`` (the signature of the facts; None for an assignment) are kept in the record,
    so that a repeated decision is written once. ``keeps_question``: the law holds what is decided, so the question that is
    open is not answered by it.
    """

    verdict: Verdict | Assignment
    entry: Entry
    facts: str | None = None
    keeps_question: bool = False


@dataclass(frozen=True, slots=True)
class Intend:
    """Note the intention of an effect, and save that of an enroll or a reject. Nothing is sent yet.

    ``decision`` is written first, if it is given.
    """

    kind: EffectKind
    person_id: str | None
    validation_type: str | None
    operator: str | None
    verdict: Verdict | Assignment
    decision: WriteDecision | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Withdraw an intention for which nothing was sent."""

    kind: EffectKind
    because: str


@dataclass(frozen=True, slots=True)
class Decline:
    """Drop a check that a person asked for. ``because`` is the name of the reason."""

    because: str


@dataclass(frozen=True, slots=True)
class Send:
    """Save ``sent`` and send the one request of an effect."""

    kind: EffectKind


@dataclass(frozen=True, slots=True)
class Establish:
    """Record in the ledger what became of an effect in doubt, or that the service ignored an assign."""

    kind: EffectKind
    state: EffectState


@dataclass(frozen=True, slots=True)
class WriteFacts:
    """Write the facts to the trail because they changed but the verdict did not, then take the step ``then``.

    ``facts`` is their signature.
    """

    entry: Entry
    facts: str
    then: "Deed"


@dataclass(frozen=True, slots=True)
class Wait:
    """Release the call until an instant. A note makes it due earlier."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a hint that the queue never listed."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle the call."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Rest:
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
