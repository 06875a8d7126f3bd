"""The steps a mover can take for a call: a closed set, returned by ``decide`` and carried out by ``workers.checks``."""

from dataclasses import dataclass
from datetime import datetime

from calls.ledger import EffectKind, EffectState
from calls.record import Reason
from calls.rules.verdict import Assignment, Verdict


@dataclass(frozen=True, slots=True)
class Look:
    """Ask for a look at the institution's queue; what it lists comes back as a note."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the stored details: free, and never a question to the voice provider."""

    because: str


@dataclass(frozen=True, slots=True)
class LookBack:
    """Read the stored details of a call that ended unlisted, if this minute's allowance has one left."""


@dataclass(frozen=True, slots=True)
class Check:
    """Book and make one of the 20 authentication checks."""

    by_desk: bool = False


@dataclass(frozen=True, slots=True)
class Intend:
    """Save the intention of an effect; nothing is sent yet."""

    kind: EffectKind
    person_id: str | None
    validation_type: str | None
    operator: str | None
    verdict: Verdict | Assignment


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give an intention up that nothing was sent for."""

    kind: EffectKind
    because: str


@dataclass(frozen=True, slots=True)
class Decline:
    """Give up a check that a person asked for; ``because`` is the name of the reason."""

    because: str


@dataclass(frozen=True, slots=True)
class Send:
    """Save ``sent`` and send the one request of an effect."""

    kind: EffectKind


@dataclass(frozen=True, slots=True)
class Establish:
    """Stored details show what became of an effect in doubt: note it in the ledger."""

    kind: EffectKind
    state: EffectState


@dataclass(frozen=True, slots=True)
class Note:
    """Write a new verdict into the trail."""

    verdict: Verdict | Assignment


@dataclass(frozen=True, slots=True)
class NoteFacts:
    """Write the facts into the trail: they changed, and the verdict did not."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Let go until an instant; notes come earlier."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a hint that the queue never confirmed."""

    because: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Close the call for good."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is ever due again by itself."""


Step = (
    Look
    | Read
    | LookBack
    | Check
    | Intend
    | Withdraw
    | Decline
    | Send
    | Establish
    | Note
    | NoteFacts
    | Wait
    | Drop
    | Settle
    | Rest
)
