"""The record of one call: what we know of it, what we did, and when it is due next.

It is immutable: a new fact makes a new record (``msgspec.structs.replace``). Instants are aware UTC. How it is stored, and
what a new field must keep to: `callkeeper.calls.record_storage`.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.phone_number import digits_of

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


class Candidate(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A member the service matched to the caller's number. No more of a person is kept.

    Spec: Person match (five of its fields are sensitive and are dropped when parsed).
    """

    person_id: str
    name: str = ""
    person_type: str | None = None


class Reading(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
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
    """The call that the research case is about."""
    has_failed_feedback: bool = False
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

    @property
    def expects_voice(self) -> bool:
        """Tell whether the voice provider should have a result: the member was enrolled before, or a rule asks for a match.

        Assumed (`earlier-enrolment`): any of the enrollment flags may be the only sign of an earlier enroll.
        """
        return (
            self.is_voice_enrolled
            or self.was_voice_enrolled_now
            or self.is_enrolled
            or self.is_account_enrolled
            or self.is_behavior_enrolled
            or self.is_device_enrolled
            or self.has_voice_match_rule
        )


class History(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Which checks showed what, as bit sets: bit ``n - 1`` is check ``n``.

    ``answered`` are the checks that got an answer. ``policies`` is by policy name, and 0 for one that only stored details
    have shown. ``signs`` is by fact name.
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

    def with_read(self, policies: Iterable[str]) -> "History":
        """Return the history with the policies that stored details show."""
        new = {name: 0 for name in policies if name not in self.policies}
        return replace(self, policies=self.policies | new) if new else self

    def without_voice(self) -> "History":
        """Return what the checks showed, without mismatches: they were of another member.

        Of policies the names stay: one that has no colour might be a red one, which counts for the whole call.
        """
        signs = {name: mask for name, mask in self.signs.items() if name != "voice_mismatch"}
        return replace(self, policies=dict.fromkeys(self.policies, 0), signs=signs)

    def joined(self, other: "History") -> "History":
        """Return the union of two histories of one call."""
        return History(
            answered=self.answered | other.answered,
            policies=_joined(self.policies, other.policies),
            signs=_joined(self.signs, other.signs),
        )


def _joined(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) | other.get(name, 0) for name in one | other}


class Identity(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The caller's identity was established by other means: by whom, how, and as which person."""

    person_id: str
    validation_type: str
    by_desk: bool
    established_at: datetime
    operator: str | None = None
    remark: str | None = None
    number: int = 0
    """Number of the statement; see ``CallStatement``."""
    in_shadow: bool = False
    """See ``CallStatement``."""
    despite: tuple[str, ...] = ()
    """What the person knew to speak against the caller, and overruled (`callkeeper.calls.informed_words`)."""
    is_past: bool = False
    """Another member came after it, once a check was made: it counts no more, also if its own member comes back."""


ASKED = "asked by rule"
"""The beginning of the attention reason of a call on which a rule asks a person. The rule's name follows."""


class Asked(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A rule asks a person about the call. ``closed_by`` is who has handled it; None before.

    ``evidence`` is what spoke against the caller then. With more of it, it is another question.
    """

    rule: str
    because: str
    asked_at: datetime
    closed_by: str | None = None
    evidence: tuple[str, ...] = ()


class CallStatement(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A person's statement at the desk as it is kept: to distrust the caller, to assign, or to make a check."""

    operator: str
    said_at: datetime
    person_id: str | None = None
    reason: str = ""
    number: int = 0
    """The order in which Redis received statements (`notes.statement_order`); 0 if nobody said it."""
    in_shadow: bool = False
    """When a worker took it up, no live rule could act on it. It never causes an effect, whatever later rules say."""
    member: str | None = None
    """A distrust: who stood on the call when it was said, or whom the desk had asked to assign to it; "" for nobody, None
    if that was not known."""


def named_in(note: CallStatement | Identity | Effect) -> str | None:
    """Return the member whom a note is about: the one it names, or of a distrust the one who stood on the call."""
    return note.person_id or (note.member or None if isinstance(note, CallStatement) else None)


class Mark(StrEnum):
    """What is kept of a call for later calls of the same member or number."""

    REJECTED = "rejected"
    UNENROLLED = "unenrolled"
    FRAUD = "fraud"
    SUSPECTED = "suspected"  # the voice was not authenticated, and something spoke against it; or it may be rejected
    OPTED_OUT = "opted_out"  # of the member, never of a number
    OPTED_IN = "opted_in"  # the same, if the caller is the member; it takes back the earlier opt-outs


class Marks(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Marks of one or more calls (``kinds``; a newer release may know others), and by what they are found.

    ``person_id`` is the member, ``has_number`` tells whether there is a phone number too. ``by_number`` are those of other
    calls that were found by a number of the call, whoever the member was. ``calls``: of each kind that was found, the
    voice id of the newest call with the number, else of the member's newest one.
    """

    person_id: str | None = None
    has_number: bool = False
    kinds: tuple[str, ...] = ()
    by_number: tuple[str, ...] = ()
    calls: dict[str, str] = {}

    def without(self, kind: Mark) -> "Marks":
        """Return the marks without those of a kind."""
        calls = {one: voice_id for one, voice_id in self.calls.items() if one != kind}
        return replace(self, kinds=tuple([one for one in self.kinds if one != kind]), calls=calls)


class RecordPart(msgspec.Struct, frozen=True, gc=False):
    """A part of a record. It is in no cycle, so Python's collector need not visit it (``gc``): 2 % of a check's CPU time."""


class Names(RecordPart, frozen=True):
    """The ids of a call, their spelling, and its number."""

    spelled: str | None = None
    """How the service last spelled this id, if not in the canonical way. Requests spell it so."""
    alternate_id: str | None = None
    assigned_id: str | None = None
    """The id that assign returned, "to use afterwards", if it is another one. It counts once details confirm it."""
    other_voice_id: str | None = None
    """The id in the last answer that was not used because it names another call."""
    is_confirmed: bool = False
    """An answer gave this id as the call's own. The record is then never merged into another one."""
    phone_number: str | None = None

    @property
    def last_digits(self) -> str:
        """Return the last four digits of the number; empty if there is none, or if it is withheld."""
        return digits_of(self.phone_number or "")[-4:]


class Life(RecordPart, frozen=True):
    """How far the call is: from the first hint to the end, and to the settled record."""

    phase: Phase = Phase.HINTED
    first_seen_at: datetime | None = None
    hinted_at: datetime | None = None
    confirm_looks: int = 0
    looked_back_at: datetime | None = None
    """When the look-back of an ended, unlisted call was made, or skipped because too many such calls waited."""
    listed_at: datetime | None = None
    absent_at: datetime | None = None
    """When the queue was last listed without the call, before it was found, or when it began, if that was earlier; None if
    nothing shows that."""
    started_at: datetime | None = None
    was_live: bool = False
    """A read has shown it going on. The queue may list a call that has ended."""
    is_unlisted: bool = False
    not_found_since: datetime | None = None
    end_hinted_at: datetime | None = None
    ended_at: datetime | None = msgspec.field(name="end_seen_at", default=None)
    """When it ended: when its end was pushed, else when a read showed it."""
    changed_at_end: datetime | None = None
    """When the service's record had last changed by the read that first showed the end, by the service's clock: the call did
    not end later. None if the end was not what had changed it last."""
    settled_at: datetime | None = None
    reason: Reason | None = None
    is_reopened: bool = False
    """It was settled before, and reopened because of a person's word after the end."""

    @property
    def began_at(self) -> datetime | None:
        """When the call started; when it was first heard of, if the service has not said that."""
        return self.started_at or self.first_seen_at or self.hinted_at

    @property
    def was_absent_at(self) -> datetime | None:
        """Return the last instant, by Redis's clock, at which the call was certainly not going on; None if none is known.

        A push of the start comes with it, unless the call was known before. Nor does a queue that lacks a known call say
        that it was not there.
        """
        known = [self.absent_at] if self.hinted_at == self.end_hinted_at else [self.hinted_at, self.absent_at]
        first_seen_at = self.first_seen_at
        return max((at for at in known if at and (first_seen_at is None or at <= first_seen_at)), default=None)


class Seen(RecordPart, frozen=True):
    """What the service has shown of the call. What was true once is remembered for the whole call.

    What the voice showed is remembered for the member who is assigned only. The names in storage are older: most end in
    ``_seen``.
    """

    person_id: str | None = None
    core_username: str | None = None
    candidates: tuple[Candidate, ...] = ()
    had_several_candidates: bool = False
    """The queue has shown more than one. If it shows one now, that need not be the caller."""
    reading: Reading | None = None
    final_since: datetime | None = None
    """Since when reads after the end have shown the same policies and signs; None before the end."""
    authenticated: bool = msgspec.field(name="authenticated_seen", default=False)
    full_authentication: bool = msgspec.field(name="full_authentication_seen", default=False)
    rejected: bool = msgspec.field(name="rejected_seen", default=False)
    rejected_by_rule_only: bool = False
    """``rejected`` is only due to a validation rule: nobody has rejected the voice since."""
    enrolled: bool = msgspec.field(name="enrolled_seen", default=False)
    unenrolled: bool = msgspec.field(name="unenrolled_seen", default=False)
    """A reject of the member took an enroll back, ours or somebody else's."""
    opted_out: bool = msgspec.field(name="opted_out_seen", default=False)
    """Also if a person at the desk said so."""
    opted_in: bool = msgspec.field(name="opted_in_seen", default=False)
    opted_in_last: bool = False
    """The opt-in came after the opt-out, which then counts in this call only, and no more in later ones."""
    mismatch: bool = msgspec.field(name="mismatch_seen", default=False)
    risky_device: bool = msgspec.field(name="risky_device_seen", default=False)
    red: bool = msgspec.field(name="red_seen", default=False)
    pending: bool = msgspec.field(name="pending_seen", default=False)
    history: History = History()
    """What the checks' answers showed. A release without this field drops it, and rules then see too few checks."""
    unusable_answers: int = 0
    """The checks of ``history`` that say nothing of the member's voice: answered before somebody assigned them, or after
    the end of the call, when the service no longer asks the provider (Spec: Polling stop rule)."""
    recognised: bool = False
    """The voice was authenticated as the member's, also if only a green policy has shown that."""
    member_changed: bool = False
    """The member was changed after the first check, also if the first one came back."""
    of_another: tuple[str, ...] = ()
    """What stood on the service's record then, and still does: names of policies, ``voice_mismatch`` (until a check has
    compared the voice anew) and ``full_authentication``. It may be about the member before."""
    failed_feedback: bool = msgspec.field(name="failed_feedback_seen", default=False)
    expects_voice: bool = msgspec.field(name="voiceprint_seen", default=False)
    """A read has shown that a result of the voice of the member who is assigned now is to be expected."""
    was_named: bool = False
    """Details have named a person. If they name nobody now, somebody has taken that person off the call."""
    frauds: tuple[str, ...] = ()
    """The calls whose research case an investigator determined as fraud, and did not refute; "" if it named none."""
    earlier_marks: Marks | None = None
    """What other calls of its member or number showed, when this was last looked up."""


class Plan(RecordPart, frozen=True):
    """When the service is asked again, and how many of the 20 checks were used."""

    checks_used: int = 0
    checks_by_desk: int = 0
    """How many of them people asked for."""
    checks_moved: int = 0
    """How many of this record's checks were counted on another one, into which it was merged."""
    is_age_unknown: bool = False
    """It may be older than the data in Redis. If any process knew other data, all its checks may have been made."""
    watch_from: datetime | None = None
    next_check_at: datetime | None = None
    last_check_at: datetime | None = None
    answered_check_at: datetime | None = None
    """When the last check was made that got an answer."""
    checks_failed: int = 0
    """Checks without an answer since then."""
    next_read_at: datetime | None = None
    reads_failed: int = 0
    needs_verifying: bool = False
    """Stored details must be read before anything else is done."""
    recheck_from: datetime | None = None
    """Since when a reject of the member may have taken the enroll back. Stored details will show it."""

    def retry_at(self, now: datetime) -> datetime:
        """Return when details may be read: when the wait after a failed read is over, else now."""
        return self.next_read_at if self.reads_failed and self.next_read_at is not None else now


class Ledger(RecordPart, frozen=True):
    """What we have done to the call, effect by effect, and what other calls must know of it."""

    assign: Effect = Effect()
    enroll: Effect = Effect()
    reject: Effect = Effect()
    assigned_person_id: str | None = None
    """Whom we have assigned. The current assignment is ours if this equals ``Seen.person_id``."""
    assigned_as: str | None = None
    """The core username we assigned under."""
    enrolled_for: str | None = None
    """For whom the voice was enrolled. Later rejects find the call by it (``callkeeper.calls.store.inbox``)."""
    established_for: str | None = None
    """As whom the caller is established (`member_evidence.established_member`). Calls beside this one find it by that."""
    beside: tuple[str, ...] = ()
    """The calls at the same time whose callers are established as the same member."""
    rejected_for: str | None = None
    """The person whose other calls got a note about the reject."""
    kept_marks: Marks | None = None
    """What was stored of this call for later calls of its member or number (``callkeeper.calls.store.earlier_calls``)."""
    marks_before: tuple[Marks, ...] = ()
    """What is still stored of it for members who stood on the call before."""
    marked_numbers: tuple[str, ...] = ()
    """Under which numbers of the call its marks are stored, as keyed hashes."""

    def of(self, kind: EffectKind) -> Effect:
        effect: Effect = getattr(self, kind)
        return effect


class CallStatements(RecordPart, frozen=True):
    """What people said about the call, and what a rule asks them."""

    were_made: bool = msgspec.field(name="has_statements", default=False)
    """The record is kept until the outcome of them is known."""
    heard_at: datetime | None = None
    """When the last statement was taken up. The call is not given up for a minute from then on."""
    identity: Identity | None = None
    """What counts: a person's statement, else what the service established."""
    shown_identity: Identity | None = None
    """What the service established, if a person's statement counts instead. It counts again if that is taken back."""
    distrusted: CallStatement | None = None
    assign_wish: CallStatement | None = None
    check_wish: CallStatement | None = None
    withdrawn: Mapping[str, int] = {}
    """Up to which number statements of a kind were taken back, by kind (``callkeeper.calls.notes.Withdrawn``)."""
    asked: Asked | None = None
    """What a rule asks a person. It stays after the call's end until somebody has handled it."""
    unenroll_closed_by: str | None = None
    """Core username of the person who acknowledged that an enroll was taken back, or is another member's; None before."""
    unenroll_closed_members: tuple[str, ...] | None = None
    """Who the caller might be then (`other_callers`): somebody else is a new question. None: one of release 0.4.0."""
    opt_out_closed_by: str | None = None
    """Core username of the person who acknowledged that the caller opted out and the voice is enrolled; None before."""

    @property
    def open_question(self) -> Asked | None:
        """What a rule asks a person, if nobody has handled it."""
        return self.asked if self.asked is not None and self.asked.closed_by is None else None


class Written(RecordPart, frozen=True):
    """What the trail has, so that a repeated line is written once."""

    verdict: str | None = msgspec.field(name="last_verdict", default=None)
    """Fingerprint of the last decision."""
    facts: str | None = msgspec.field(name="last_facts", default=None)
    """Signature of the last facts."""
    assignment: str | None = msgspec.field(name="last_assignment", default=None)
    """Fingerprint of the last decision about an assign."""
    held_back: str | None = None
    """Why no request can be sent; None once the service has answered."""


class Obstacles(RecordPart, frozen=True):
    """What keeps requests for a call back at the moment of a claim. It is the institution's or Redis's, not the call's."""

    standing: str | None = None
    """Why nothing may be done for this institution; None if there is no obstacle."""
    standing_held_until: datetime | None = None
    """Set if the institution's standing is too old and the service did not answer. Then it is asked again."""
    paused: PauseScope | None = None
    """What a person has paused."""
    effects_held_until: datetime | None = None
    """Set if Redis has changed: until then an effect that it lost may still be in flight."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """Everything we keep of one call. See the module's docstring."""

    institution_key: str
    voice_id: str
    schema: int = 1
    """The lowest ``SCHEMA`` of a release that may act on this record."""
    epoch: str = ""
    saved_at: datetime | None = None
    revision: int = 0
    """How often this record was written: of two views of a call the one with the higher number is the newer one. A release
    without this field keeps the number and does not raise it."""
    trace: str | None = None
    """The trace of the event that the call is handled for."""
    names: Names = Names()
    life: Life = Life()
    seen: Seen = Seen()
    plan: Plan = Plan()
    ledger: Ledger = Ledger()
    statements: CallStatements = CallStatements()
    written: Written = Written()
    last_claim: Obstacles = Obstacles()
    """What kept requests back at the last claim, for those who show the record. A decision uses the present."""
    unknown: Mapping[str, msgspec.Raw] = MappingProxyType({})
    """Fields that a newer release wrote. msgspec cannot encode this mapping, so that no record is stored in
    parts by mistake: only `callkeeper.calls.record_storage` knows the stored form."""

    def effect(self, kind: EffectKind) -> Effect:
        return self.ledger.of(kind)

    @property
    def is_settled(self) -> bool:
        """Tell whether nothing is sent for this call any more, unless a note reopens it."""
        return self.life.phase is Phase.SETTLED


def with_effect(call: Call, kind: EffectKind, effect: Effect) -> Call:
    """Return the record with one ledger replaced."""
    return replace(call, ledger=replace(call.ledger, **{kind: effect}))
