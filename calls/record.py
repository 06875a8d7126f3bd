"""The record of one call: all that we know of it, all that we did to it, and when it wants to be looked at next.

Immutable; a new fact makes a new record (``msgspec.structs.replace``). Stored as JSON with unknown fields ignored and
every field of a later version optional, so that old and new processes can share one Redis. Instants are aware UTC.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from calls.ledger import Effect, EffectKind
from calls.pause import PauseScope

CHECK_LIMIT = 20
"""Authentication checks the service makes for one call. Spec: Limits."""


class Phase(StrEnum):
    """Where in its life a call is."""

    HINTED = "hinted"  # somebody pushed it; the service has not confirmed it
    LIVE = "live"  # the queue listed it, or its details were read
    ENDED = "ended"  # stored details say so; a last look is due
    SETTLED = "settled"  # over: nothing is sent for it any more, unless a person distrusts the caller within a day


class Reason(StrEnum):
    """Why a call is settled."""

    AUTHENTICATED = "authenticated"
    REJECTED = "rejected"
    RED = "red"
    ENROLLED = "enrolled"
    UNDECIDED = "undecided"
    UNASSIGNED = "unassigned"
    UNENROLLED = "unenrolled"  # enrolled, until a reject of the member took that back
    PROVIDER_ERROR = "provider_error"  # the voice provider could not tell
    UNRESOLVED = "unresolved"
    LOST = "lost"
    UNCONFIRMED = "unconfirmed"  # a person spoke of it, and the service never showed it


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member the service matched to the caller's number: never more of a person than this.

    Spec: Person match (five of its fields are sensitive and are dropped at the border).
    """

    person_id: str
    name: str = ""
    person_type: str | None = None


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the service's record of the call said when it was last read. Spec: Phone call record."""

    read_at: datetime
    voice_id: str | None = None
    person_id: str | None = None
    core_username: str | None = None
    status: str | None = None
    policies: tuple[str, ...] = ()
    has_ended: bool = False
    is_voice_verified: bool = False
    is_voice_mismatch: bool = False
    is_high_risk_device: bool = False
    is_voice_enrolled: bool = False
    was_voice_enrolled_now: bool = False
    research_status: str | None = None
    validation_rule: str | None = None
    """Name of the validation rule that the institution has applied at the service."""
    has_voice_match_rule: bool = False
    provider_error: str | None = None
    """Why the provider could not authenticate the voice, in words that name nobody."""
    verification_questions: int = 0
    """How many there are to ask; what they ask is about the member, and stays at the service."""
    updated_at: datetime | None = None
    """When the service's record last changed, by the service's clock."""
    created_at: datetime | None = None
    """When the service began its record, by the service's clock."""


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """On which checks an answer showed what: sets of checks, bit ``n - 1`` for check ``n``.

    ``answered`` are the checks that had an answer, ``policies`` are by the policy's name, ``signs`` by a fact's name.
    """

    answered: int = 0
    policies: dict[str, int] = {}
    signs: dict[str, int] = {}

    def with_answer(self, check: int, policies: Iterable[str], signs: Iterable[str]) -> "History":
        """Return the history with the answer of one check."""
        bit = 1 << (check - 1)
        return History(
            answered=self.answered | bit,
            policies=self.policies | {name: self.policies.get(name, 0) | bit for name in policies},
            signs=self.signs | {name: self.signs.get(name, 0) | bit for name in signs},
        )

    def joined(self, other: "History") -> "History":
        """Return what two histories of one call know together."""
        return History(
            answered=self.answered | other.answered,
            policies=_joined(self.policies, other.policies),
            signs=_joined(self.signs, other.signs),
        )


def _joined(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) | other.get(name, 0) for name in one | other}


class Identity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caller's identity was established otherwise: by whom, how, and as whom."""

    person_id: str
    validation_type: str
    by_desk: bool
    established_at: datetime
    operator: str | None = None
    remark: str | None = None
    number: int = 0
    """Of the statement that said so; see ``Word``."""


ASKED = "asked by rule"
"""Begins the attention item of a call that a rule puts before a person; the rule's name follows."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule put the call before a person. ``closed_by`` is who has seen to it; None before."""

    rule: str
    because: str
    asked_at: datetime
    closed_by: str | None = None


class Word(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's word at the desk: to distrust the caller, to assign, or to look now."""

    operator: str
    said_at: datetime
    person_id: str | None = None
    reason: str = ""
    heard_at: datetime | None = None
    """When it was folded into the record, by Redis's clock."""
    number: int = 0
    """In which order Redis received statements; 0 where an earlier release wrote it (``calls.notes.statement_order``)."""


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything we keep of one call. See the module."""

    institution_key: str
    voice_id: str
    version: int = 1
    phase: Phase = Phase.HINTED
    epoch: str = ""
    saved_at: datetime | None = None
    needs_verifying: bool = False

    trace: str | None = None
    """Of the event that the call is moved by."""
    alternate_id: str | None = None
    phone_number: str | None = None
    hinted_at: datetime | None = None
    confirm_looks: int = 0
    looked_back_at: datetime | None = None
    """When stored details were read, or not for lack of allowance, because a push said that the unlisted call had ended."""
    listed_at: datetime | None = None
    started_at: datetime | None = None
    first_seen_at: datetime | None = None
    is_unlisted: bool = False
    is_confirmed: bool = False
    """An answer called the call by this very id; whatever later answers say, it is never merged away."""
    other_voice_id: str | None = None
    """By which the last answer called it that was therefore not used."""
    not_found_since: datetime | None = None
    held_back: str | None = None
    """Why nothing can be asked, as last written to the trail; None once the service has answered."""
    end_hinted_at: datetime | None = None
    end_seen_at: datetime | None = None
    settled_at: datetime | None = None
    reason: Reason | None = None
    is_reopened: bool = False
    """It was settled before: a person distrusted the caller after the end."""

    person_id: str | None = None
    core_username: str | None = None
    assigned_person_id: str | None = None
    """Whom we have assigned; whose assignment the present one is shows in comparing it with ``person_id``."""
    assigned_as: str | None = None
    """The core username we did it as."""
    candidates: tuple[Candidate, ...] = ()
    standing: str | None = None
    """Why nothing may be done for this institution; None where everything may."""
    paused: PauseScope | None = None
    """What a person has paused, as of the last claim."""
    effects_held_until: datetime | None = None
    """Redis is new, as of the last claim: until then an effect that it forgot may still be under way."""

    reading: Reading | None = None
    authenticated_seen: bool = False
    full_authentication_seen: bool = False
    rejected_seen: bool = False
    rejected_by_rule_only: bool = False
    """Of what ``rejected_seen`` says: a validation rule did it, and nobody has rejected the voice since."""
    enrolled_seen: bool = False
    unenrolled_seen: bool = False
    """A reject of the member took an enroll back, ours or somebody else's."""
    unenroll_closed_by: str | None = None
    """Core username of the person who acknowledged that; None before."""
    recheck_from: datetime | None = None
    """Since when a reject of the member may have taken the enroll back: stored details tell."""
    enrolled_for: str | None = None
    """The person under whom the enroll is noted down for later rejects (``calls.store.inbox``)."""
    rejected_for: str | None = None
    """The person whose other calls have been told of the reject."""
    opted_out_seen: bool = False
    opted_in_seen: bool = False
    mismatch_seen: bool = False
    identity: Identity | None = None
    distrusted: Word | None = None
    assign_wish: Word | None = None
    check_wish: Word | None = None
    has_statements: bool = False
    """A person said something about it: the record is kept until it is known what came of that."""

    checks_used: int = 0
    checks_by_desk: int = 0
    """How many of them people asked for."""
    checks_if_assigned: int = 0
    """Automatic checks that a record which Redis lost may have made as well, if the call had a person by then."""
    watch_from: datetime | None = None
    next_check_at: datetime | None = None
    next_read_at: datetime | None = None
    reads_failed: int = 0
    last_check_at: datetime | None = None
    answered_check_at: datetime | None = None
    """When the last check was made that had an answer."""
    checks_failed: int = 0
    """Checks without an answer since then."""
    asked: Asked | None = None
    """What a rule asks a person; it stays after the call's end until somebody has seen to it."""
    history: History = History()
    """What the checks' answers showed. A release that does not know it drops it: then rules see too few checks."""
    last_verdict: str | None = None
    """Name of the last decision written to the trail, so that one decision is one line."""
    last_facts: str | None = None
    """Signature of the facts last written to the trail."""
    last_assignment: str | None = None
    """Name of the last decision about an assign written to the trail."""

    assign: Effect = Effect()
    enroll: Effect = Effect()
    reject: Effect = Effect()

    def effect(self, kind: EffectKind) -> Effect:
        """Return the ledger of one kind of effect."""
        match kind:
            case EffectKind.ASSIGN:
                return self.assign
            case EffectKind.ENROLL:
                return self.enroll
            case EffectKind.REJECT:
                return self.reject

    @property
    def automatic_checks(self) -> int:
        """Return how many checks were made without anybody asking."""
        return self.checks_used - self.checks_by_desk

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is sent for this call any more, unless a person's distrust opens it again."""
        return self.phase is Phase.SETTLED

    @property
    def has_real_voice_id(self) -> bool:
        """Tell whether the service itself named this record's id as the call's voice id."""
        return self.reading is not None and self.reading.voice_id == self.voice_id

    @property
    def is_named_by_service(self) -> bool:
        """Tell whether the service uses this record's id as a call's voice id: in its queue or in an answer."""
        return self.listed_at is not None or self.is_confirmed or self.has_real_voice_id


def with_effect(call: Call, kind: EffectKind, effect: Effect) -> Call:
    """Return the record with one ledger replaced."""
    match kind:
        case EffectKind.ASSIGN:
            return replace(call, assign=effect)
        case EffectKind.ENROLL:
            return replace(call, enroll=effect)
        case EffectKind.REJECT:
            return replace(call, reject=effect)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Call)


def encode_call(call: Call) -> bytes:
    """Write a record as stored."""
    return _ENCODER.encode(call)


def parse_call(stored: bytes) -> Call:
    """Read a stored record.

    Raises:
        msgspec.ValidationError: The stored state holds a value that no version writes.
    """
    return _DECODER.decode(stored)
