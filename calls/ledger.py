"""The ledger of an effect: how far an assign, an enroll or a reject has come. Written before its request is sent."""

from datetime import datetime
from enum import StrEnum

import msgspec


class EffectKind(StrEnum):
    """What we may ask the service to do to a call."""

    ASSIGN = "assign"
    ENROLL = "enroll"
    REJECT = "reject"


class EffectState(StrEnum):
    """The ledger of one effect. Only ``none`` and ``intended`` prove that nothing was sent."""

    NONE = "none"
    INTENDED = "intended"  # decided and saved; nothing sent
    SENT = "sent"  # saved before the first byte; the answer is not known (yet)
    APPLIED = "applied"  # the service said so
    REFUSED = "refused"  # the service declined
    UNKNOWN = "unknown"  # sent, and no usable answer: stored details will tell
    CONFIRMED = "confirmed"  # stored details show it
    ABSENT = "absent"  # stored details prove that it was not applied
    UNRESOLVED = "unresolved"  # nothing proves it either way: a person has to look
    TAKEN_BACK = "taken_back"  # an enroll that was in force until a reject of the member


IN_DOUBT = frozenset({EffectState.SENT, EffectState.UNKNOWN})
"""States in which stored details have to be read before anything else."""

DONE = frozenset({EffectState.APPLIED, EffectState.CONFIRMED})
"""States in which the effect is known to be in force."""


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One effect and how far it got.

    ``was_read_since``: stored details were read after it was intended; ``status_before`` is the status they had.
    """

    state: EffectState = EffectState.NONE
    person_id: str | None = None
    validation_type: str | None = None
    operator: str | None = None
    rule: str | None = None
    because: str | None = None
    intended_at: datetime | None = None
    was_read_since: bool = False
    sent_at: datetime | None = None
    attempts: int = 0
    """Requests that were booked."""
    unsent: int = 0
    """Those of them of which provably no byte was written."""
    unauthorized: int = 0
    """Those of them that were answered 401 or 429."""
    retry_at: datetime | None = None
    """From when on it may be sent again after a 401 or a 429, once it is absent. None: it may not."""
    status_before: str | None = None
    updated_before: datetime | None = None
    """When the service's record had last changed, by the same read as ``status_before``."""
    requested_by: str | None = None
    """The core username it was sent as."""
    remark: str | None = None
    resolved: int = 0
    """Order of the statement by which a person resolved it (``calls.notes.statement_order``); 0 if nobody did."""

    @property
    def arrived(self) -> int:
        """Return how many requests may have reached the service."""
        return self.attempts - self.unsent

    def emptied(self) -> "Effect":
        """Return a ledger without an intention that remembers how many requests were sent."""
        return Effect(attempts=self.attempts, unsent=self.unsent, unauthorized=self.unauthorized)
