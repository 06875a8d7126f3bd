"""The record of one call: what we know of it, what we did, and when it is due next.

It is immutable: a new fact makes a new record (``msgspec.structs.replace``). It is stored as JSON. Instants are aware UTC.

Two releases share one Redis during an upgrade, so every new field is optional and has a default: that is how a record of an
earlier release is read. A field of ``Call`` that this release does not know is kept when the record is saved; one inside an
inner value (a ledger, a reading) is lost. If an earlier release would break a promise by acting on a record (a new phase, a
new meaning, a new line of the trail that has an outcome), the new release raises ``schema`` in that record.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind
from callkeeper.calls.pause import PauseScope

SCHEMA: Final = 2
"""The highest schema number that this release reads. 2: a trail with a refusal that stands, which has an outcome."""

CHECK_LIMIT = 20
"""Authentication checks the service makes for one call. Spec: Limits."""


class Phase(StrEnum):
    """The phase of a call's life."""

    HINTED = "hinted"  # somebody pushed or named it; the service has not confirmed it
    LIVE = "live"  # the queue listed it, or its details were read
    ENDED = "ended"  # stored details say so; a last look is due
    SETTLED = "settled"  # over: nothing more is sent, unless a note reopens it


class Reason(StrEnum):
    """Why a call is settled."""

    AUTHENTICATED = "authenticated"
    REJECTED = "rejected"
    RED = "red"
    ENROLLED = "enrolled"
    UNDECIDED = "undecided"
    UNASSIGNED = "unassigned"
    UNENROLLED = "unenrolled"  # enrolled, until a reject of the member took it back
    PROVIDER_ERROR = "provider_error"  # the voice provider gave no result
    UNRESOLVED = "unresolved"
    LOST = "lost"
    UNCONFIRMED = "unconfirmed"  # a person made a statement about it, and the service never showed it


class Candidate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A member the service matched to the caller's number. No more of a person is kept.

    Spec: Person match (five of its fields are sensitive and are dropped when parsed).
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
    is_verified: bool = False
    is_enrolled: bool = False
    is_account_enrolled: bool = False
    is_behavior_enrolled: bool = False
    is_device_enrolled: bool = False
    research_status: str | None = None
    research_voice_id: str | None = None
    """The call that the research case is about; None in readings of earlier releases."""
    validation_rule: str | None = None
    """Name of the validation rule that the institution has applied at the service."""
    has_voice_match_rule: bool = False
    provider_error: str | None = None
    """Why the provider could not authenticate the voice, without personal data."""
    verification_questions: int = 0
    """How many questions there are. Their texts are about the member, and are not kept."""
    updated_at: datetime | None = None
    """When the service's record last changed, by the service's clock."""
    created_at: datetime | None = None
    """When the service created its record, by the service's clock."""


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which checks showed what, as bit sets: bit ``n - 1`` is check ``n``.

    ``answered`` are the checks that got an answer. ``policies`` is by policy name, ``signs`` by fact name.
    """

    answered: int = 0
    policies: dict[str, int] = {}
    signs: dict[str, int] = {}

    def with_answer(self, check: int, policies: Iterable[str], signs: Iterable[str]) -> "History":
        """Return the history with the answer of one check added."""
        bit = 1 << (check - 1)
        return History(
            answered=self.answered | bit,
            policies=self.policies | {name: self.policies.get(name, 0) | bit for name in policies},
            signs=self.signs | {name: self.signs.get(name, 0) | bit for name in signs},
        )

    def joined(self, other: "History") -> "History":
        """Return the union of two histories of one call."""
        return History(
            answered=self.answered | other.answered,
            policies=_joined(self.policies, other.policies),
            signs=_joined(self.signs, other.signs),
        )


def _joined(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) | other.get(name, 0) for name in one | other}


class Identity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The caller's identity was established by other means: by whom, how, and as which person."""

    person_id: str
    validation_type: str
    by_desk: bool
    established_at: datetime
    operator: str | None = None
    remark: str | None = None
    number: int = 0
    """Number of the statement; see ``Word``."""
    in_shadow: bool = False
    """See ``Word``."""


ASKED = "asked by rule"
"""The beginning of the attention reason of a call on which a rule asks a person. The rule's name follows."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule asks a person about the call. ``closed_by`` is who has handled it; None before."""

    rule: str
    because: str
    asked_at: datetime
    closed_by: str | None = None


class Word(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's statement at the desk: to distrust the caller, to assign, or to make a check."""

    operator: str
    said_at: datetime
    person_id: str | None = None
    reason: str = ""
    number: int = 0
    """The order in which Redis received statements; 0 in records of earlier releases (`notes.statement_order`)."""
    in_shadow: bool = False
    """When a worker took it up, no live rule could act on it. It never causes an effect, also not under later rules."""


class Mark(StrEnum):
    """What is kept of a call for later calls of the same member or number."""

    REJECTED = "rejected"
    UNENROLLED = "unenrolled"
    FRAUD = "fraud"
    SUSPECTED = "suspected"  # another voice, a risky device or a red policy, and the voice was not authenticated


class Marks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Marks of one or more calls (``kinds``; a newer release may know others), and by what they are found.

    ``person_id`` is the member, ``has_number`` tells whether there is a phone number too.
    """

    person_id: str | None = None
    has_number: bool = False
    kinds: tuple[str, ...] = ()

    def is_found_as(self, other: "Marks") -> bool:
        """Tell whether both are found by the same member and number, whatever their kinds are."""
        return self.person_id == other.person_id and self.has_number == other.has_number


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything we keep of one call. See the module's docstring."""

    institution_key: str
    voice_id: str
    schema: int = 1
    """The lowest ``SCHEMA`` of a release that may act on this record."""
    unknown: Mapping[str, msgspec.Raw] = {}
    """Fields that a newer release wrote. They are stored beside the others, not under this name."""
    spelled: str | None = None
    """How the service last spelled this id, if not in the canonical way. Requests spell it so."""
    spelling_sought: str | None = None
    """The spelling under which an earlier release may have kept a record of this call, once there is none."""
    assigned_id: str | None = None
    """The id that assign returned, "to use afterwards", if it is another one. It counts once details confirm it."""
    checks_moved: int = 0
    """How many of this record's checks were counted on another one, into which it was merged."""
    phase: Phase = Phase.HINTED
    epoch: str = ""
    saved_at: datetime | None = None
    revision: int = 0
    """How often this record was written: of two views of a call the one with the higher number is the newer one. A release
    without this field keeps the number and does not raise it."""
    needs_verifying: bool = False

    trace: str | None = None
    """The trace of the event that the call is handled for."""
    alternate_id: str | None = None
    phone_number: str | None = None
    hinted_at: datetime | None = None
    confirm_looks: int = 0
    looked_back_at: datetime | None = None
    """When the look-back of an ended, unlisted call was made, or skipped because the allowance was used up."""
    listed_at: datetime | None = None
    started_at: datetime | None = None
    first_seen_at: datetime | None = None
    is_unlisted: bool = False
    is_confirmed: bool = False
    """An answer gave this id as the call's own. The record is then never merged into another one."""
    other_voice_id: str | None = None
    """The id in the last answer that was not used because it names another call."""
    not_found_since: datetime | None = None
    held_back: str | None = None
    """Why no request can be sent, as last written to the trail; None once the service has answered."""
    end_hinted_at: datetime | None = None
    end_seen_at: datetime | None = None
    final_since: datetime | None = None
    """Since when reads after the end have shown the same policies and signs; None before the end."""
    settled_at: datetime | None = None
    reason: Reason | None = None
    is_reopened: bool = False
    """It was settled before, and reopened because a person distrusted the caller after the end."""

    person_id: str | None = None
    core_username: str | None = None
    assigned_person_id: str | None = None
    """Whom we have assigned. The current assignment is ours if this equals ``person_id``."""
    assigned_as: str | None = None
    """The core username we assigned under."""
    candidates: tuple[Candidate, ...] = ()
    standing: str | None = None
    """Why nothing may be done for this institution; None if there is no obstacle."""
    paused: PauseScope | None = None
    """What a person has paused, as of the last claim."""
    standing_held_until: datetime | None = None
    """Set if the institution's standing is too old and the service did not answer, as of the last claim. Then it is asked
    again."""
    effects_held_until: datetime | None = None
    """Set if Redis has changed, as of the last claim: until then an effect that it lost may still be in flight."""

    reading: Reading | None = None
    authenticated_seen: bool = False
    full_authentication_seen: bool = False
    rejected_seen: bool = False
    rejected_by_rule_only: bool = False
    """``rejected_seen`` is only due to a validation rule: nobody has rejected the voice since."""
    enrolled_seen: bool = False
    unenrolled_seen: bool = False
    """A reject of the member took an enroll back, ours or somebody else's."""
    unenroll_closed_by: str | None = None
    """Core username of the person who acknowledged that; None before."""
    recheck_from: datetime | None = None
    """Since when a reject of the member may have taken the enroll back. Stored details will show it."""
    enrolled_for: str | None = None
    """The person for whom the enroll was stored for later rejects (``callkeeper.calls.store.inbox``)."""
    rejected_for: str | None = None
    """The person whose other calls got a note about the reject."""
    kept_marks: Marks | None = None
    """What was stored of this call for later calls of its member or number (``callkeeper.calls.store.earlier_calls``)."""
    earlier_marks: Marks | None = None
    """What other calls of its member or number showed, when this was last looked up."""
    opted_out_seen: bool = False
    opted_in_seen: bool = False
    mismatch_seen: bool = False
    risky_device_seen: bool = False
    red_seen: bool = False
    pending_seen: bool = False
    identity: Identity | None = None
    distrusted: Word | None = None
    assign_wish: Word | None = None
    check_wish: Word | None = None
    withdrawn: Mapping[str, int] = {}
    """Up to which number statements of a kind were taken back, by kind (``callkeeper.calls.notes.Withdrawn``)."""
    has_statements: bool = False
    """A person made a statement about it. The record is kept until the outcome of that is known."""
    heard_at: datetime | None = None
    """When the last statement was taken up. The call is not given up for a minute from then on."""

    checks_used: int = 0
    checks_by_desk: int = 0
    """How many of them people asked for."""
    checks_if_assigned: int = 0
    """Automatic checks that a record lost by Redis may have made in addition, if the call had a person by then."""
    is_age_unknown: bool = False
    """It may be older than the data in Redis. If any process knew other data, all its checks may have been made."""
    watch_from: datetime | None = None
    next_check_at: datetime | None = None
    next_read_at: datetime | None = None
    reads_failed: int = 0
    last_check_at: datetime | None = None
    answered_check_at: datetime | None = None
    """When the last check was made that got an answer."""
    checks_failed: int = 0
    """Checks without an answer since then."""
    asked: Asked | None = None
    """What a rule asks a person. It stays after the call's end until somebody has handled it."""
    history: History = History()
    """What the checks' answers showed. A release without this field drops it, and rules then see too few checks."""
    answered_for: str | None = None
    """Who was assigned when a check was last answered; "" for nobody, None in records of 0.2.0."""
    unusable_answers: int = 0
    """The checks of ``history`` that say nothing of that person's voice: answered before they were assigned, or after the
    end of the call, when the service no longer asks the provider (Spec: Polling stop rule)."""
    last_verdict: str | None = None
    """Fingerprint of the last decision in the trail, so that a repeated decision is written once."""
    last_facts: str | None = None
    """Signature of the facts last written to the trail."""
    last_assignment: str | None = None
    """Fingerprint of the last decision about an assign in the trail."""

    assign: Effect = Effect()
    enroll: Effect = Effect()
    reject: Effect = Effect()

    @property
    def all_unusable_answers(self) -> int:
        """Return the checks of ``history`` that say nothing of the voice of the person who is assigned now."""
        is_same = self.answered_for in {None, self.person_id or ""}
        return self.unusable_answers if is_same else self.history.answered

    def effect(self, kind: EffectKind) -> Effect:
        ledger: Effect = getattr(self, kind)
        return ledger

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is sent for this call any more, unless a note reopens it."""
        return self.phase is Phase.SETTLED


def with_effect(call: Call, kind: EffectKind, effect: Effect) -> Call:
    """Return the record with one ledger replaced."""
    match kind:
        case EffectKind.ASSIGN:
            return replace(call, assign=effect)
        case EffectKind.ENROLL:
            return replace(call, enroll=effect)
        case EffectKind.REJECT:
            return replace(call, reject=effect)


NEWER: Final = "written by a newer release: roll forward, or start a worker of that release"
"""The attention reason of a call that no worker of a newer release has taken for a minute."""


class NewerRecord(Exception):
    """A newer release wrote this record or note, and an earlier one must not act on it."""

    def __init__(self) -> None:
        super().__init__(NEWER)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Call)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN: Final = frozenset(Call.__struct_fields__) - {"unknown"}


def encode_call(call: Call) -> bytes:
    """Encode a record for storage, with the fields that this release does not know."""
    if not call.unknown:
        return _ENCODER.encode(call)
    return _ENCODER.encode(without_unknown(call))[:-1] + b"," + msgspec.json.encode(call.unknown)[1:]


def without_unknown(call: Call) -> Call:
    """Return the record without the fields that this release does not know. They may be personal."""
    return replace(call, unknown={})


def parse_call(stored: bytes) -> Call:
    """Decode a stored record.

    Raises:
        NewerRecord: This release must not act on the record.
        msgspec.MsgspecError: The stored record holds a value that no release writes.
    """
    fields = _FIELDS.decode(stored)
    if "schema" in fields and msgspec.json.decode(fields["schema"], type=int) > SCHEMA:
        raise NewerRecord
    call = _DECODER.decode(stored)
    if fields.keys() <= _KNOWN:
        return call
    return replace(call, unknown={name: fields[name].copy() for name in fields.keys() - _KNOWN})


def readable_call(stored: bytes) -> Call | None:
    """Decode a stored record for a list; None if it cannot be read. What needs a person is in the attention list."""
    try:
        return parse_call(stored)
    except (NewerRecord, msgspec.MsgspecError):
        return None
