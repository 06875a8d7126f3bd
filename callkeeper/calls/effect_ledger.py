"""The ledger of an effect: the state of an assign, an enroll or a reject. It is written before the request is sent."""

from datetime import datetime
from enum import StrEnum

import msgspec


class EffectKind(StrEnum):
    """What we may ask the service to change about a call."""

    ASSIGN = "assign"
    ENROLL = "enroll"
    REJECT = "reject"


class EffectState(StrEnum):
    """The state of one effect. Only ``none`` and ``intended`` prove that nothing was sent."""

    NONE = "none"
    INTENDED = "intended"  # decided and saved; nothing sent
    SENT = "sent"  # saved before the first byte; the answer is not known (yet)
    APPLIED = "applied"  # the service said so
    REFUSED = "refused"  # the service refused it, or accepted an assign and ignored it each time
    UNKNOWN = "unknown"  # sent, but no usable answer; stored details will show the outcome
    CONFIRMED = "confirmed"  # stored details show it
    ABSENT = (
        "absent"  # refused or turned away, or a person says so; an assign: stored details show that it was not applied
    )
    UNRESOLVED = "unresolved"  # nothing proves the outcome, so a person has to look
    TAKEN_BACK = "taken_back"  # an enroll that was in force until a reject of the member


IN_DOUBT = frozenset({EffectState.SENT, EffectState.UNKNOWN})
"""States that require a read of stored details before anything else."""

DONE = frozenset({EffectState.APPLIED, EffectState.CONFIRMED})
"""States in which the effect is known to be in force."""

PERHAPS_DONE = DONE | IN_DOUBT
"""States in which the effect is in force, or was sent and may be."""

UNDER_WAY = frozenset({EffectState.INTENDED, *IN_DOUBT, EffectState.UNRESOLVED})
"""States in which the effect may still turn out to be in force, until a read shows it or a person says it."""


class Effect(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One effect and its state.

    ``was_read_since``: stored details were read after the intention. ``status_before`` is the status they had.
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
    """How many requests were booked."""
    unsent: int = 0
    """How many of them certainly sent no byte."""
    unauthorized: int = 0
    """How many of them got 401 or 429."""
    retry_at: datetime | None = None
    """When it may be sent again after a 401, a 429 or a refusal. None: it may not."""
    refusal: str | None = None
    """The service's words, without personal data, if it refused the last request; or why none was sent."""
    failed: str | None = None
    """Why the request before this intention failed for good, or `UNRESOLVED`. If it is withdrawn, that stands again."""
    person_stood: bool = False
    """An assign: the person stood on the record before, so the person alone does not show that it was carried out."""
    was_shown: bool = False
    """An assign that was answered: the queue or the details have shown its person since."""
    is_operators: bool = False
    """An assign: an operator elsewhere had put the person there. The person stays theirs, and is only correlated."""
    status_before: str | None = None
    requested_by: str | None = None
    """The core username it was sent under."""
    last_word: int = 0
    """``CallStatement.number`` of the last statement about it when it was sent; 0 for none."""
    remark: str | None = None
    despite: tuple[str, ...] = ()
    """An enroll: what spoke against the caller when it was intended, and was overruled (`informed_words`)."""
    resolved: int = 0
    """Order of the statement by which a person resolved it, or marked its refusal as seen; 0 if nobody did.

    See ``callkeeper.calls.notes.statement_order``."""

    @property
    def arrived(self) -> int:
        """Return how many requests may have reached the service."""
        return self.attempts - self.unsent
