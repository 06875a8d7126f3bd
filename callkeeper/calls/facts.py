"""The facts of a call that rules and the law can use: a closed list. Policies are known by name only.

Raw provider scores are not among them: they "are not to be used for caller-handling decisions" (Spec: Vendor call, last
sentence). `callkeeper.calls.fact_derivation` derives them from a record.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_kind
from datetime import datetime, timedelta
from itertools import compress
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from zlib import crc32

import msgspec

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.record import CHECK_LIMIT, History
from callkeeper.calls.statuses import PERSON_TYPES, RESEARCH, STATUSES, VALIDATION_TYPES, WEEKDAYS

ENOUGH_ANSWERS = 18
"""After how many answered checks the voice had its say. docs/decisions.md has the figures behind it."""

LEAST_ANSWERS = 2
"""How many checks must have been answered before the final analysis says something of the voice: a caller who hangs up
before that was not heard."""

FINAL_APART = timedelta(seconds=5)
"""How far two equal reads after the end must be apart to show the provider's final analysis.

Assumed (`ended-record-final`): the service's record of an ended call is final once it has stayed the same for this long."""

VERIFIED_AFTER_END = timedelta(minutes=10)
"""How long after the end of a call a person's word still leads to an enroll."""

Value = bool | int | str | None


@dataclass(frozen=True, slots=True)
class Says:
    """The meaning of a fact, and its values if these are a closed list (other than true and false).

    ``most``: the maximum of a number. ``since``: it counts the seconds since this other fact came true, and is None
    before. ``by_check``: every check's answer shows it anew, so that rules can ask on how many checks it was seen.
    ``by_voice``: it is evidence that the voice provider brings, so that its absence is unknown until ``voice_checked``.
    ``by_list``: the names of lists, see ``NamedLists``. ``kind``: its type, if known.
    """

    meaning: str
    named: tuple[str, ...] = ()
    most: int | None = None
    since: str = ""
    by_check: bool = False
    by_voice: bool = False
    by_list: bool = False
    kind: type[bool] | type[int] | type[str] | type[tuple[str, ...]] = bool

    @property
    def is_open(self) -> bool:
        """Tell whether any text can be its value: names given by the institution."""
        return self.kind is str and not self.named

    @property
    def values(self) -> tuple[Value, ...]:
        """Return every possible value; empty for a number or free text."""
        if self.kind is bool:
            return (True, False)
        return (*self.named, None) if self.named else ()

    @property
    def unit(self) -> str:
        """Return the unit of a number; empty for a count."""
        return "seconds" if self.since else ""


_CHECKS_LEFT = Says(f"authentication checks left, of {CHECK_LIMIT}", most=CHECK_LIMIT, kind=int)


class Facts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known of a call at the moment of a decision. Each fact is declared here and derived by ``facts_of``.

    Booleans read as statements. ``at`` is that moment and ``history`` what the checks showed. Rules do not name these
    two: they are used for dates and ``on_checks``. ``..._in_shadow``: the person's statement was taken up under rules that
    only watched. Only the law asks for these two, and trails do not hold them, so that a replay shows what rules ask for.
    """

    green: Annotated[
        bool,
        Says(
            "the voice is authenticated: a green policy, or FullAuthentication with isVoiceVerified and without anybody's "
            "enroll; never together with a red policy",
            by_voice=True,
        ),
    ]
    manual: Annotated[
        bool,
        Says(
            "the member who is assigned now was authenticated only by a person's statement: Green Manual Authentication, or "
            "an enroll for this member"
        ),
    ]
    red: Annotated[bool, Says("a policy classified red is applied", by_check=True, by_voice=True)]
    red_seen: Annotated[bool, Says("a policy classified red was applied at any time in this call", by_voice=True)] = (
        False
    )
    green_policy: Annotated[
        bool, Says("a green policy is applied, by voice or by a person, also beside red ones", by_voice=True)
    ] = False
    unclassified: Annotated[
        bool, Says("a policy is applied that the rules file gives no colour", by_check=True, by_voice=True)
    ]
    unclassified_seen: Annotated[
        bool,
        Says("a policy without a colour was applied at any time in this call", by_voice=True),
    ] = False
    policies: Annotated[
        tuple[str, ...], Says("the names of the policies applied, as last read", by_check=True, by_voice=True)
    ] = ()
    rejected: Annotated[bool, Says("the voice was rejected at any time in this call, by anybody")]
    enrolled: Annotated[bool, Says("the voice was enrolled in this call, by us or by somebody else")]
    verified: Annotated[
        bool, Says("identity was established by other means (a statement at the desk, AnsweredQuestions, MFAValidated)")
    ]
    verified_by_desk: Annotated[bool, Says("the desk established identity")]
    verified_in_time: Annotated[
        bool,
        Says(
            "identity was established before the call ended, or stated by a person within "
            f"{VERIFIED_AFTER_END.seconds // 60} minutes after; once a person's word has reopened a settled call, only a "
            "person can have established it"
        ),
    ] = False
    verified_s: Annotated[
        int | None, Says("since identity was established, by our clock; none before", since="verified")
    ] = None
    verified_person_is_assigned: Annotated[
        bool,
        Says(
            "the verified person is the one the call is assigned to, not only filled in by the queue or taken off the "
            "call, and nobody at the desk has asked to assign another, unless the desk has verified this one since"
        ),
    ]
    validation_type: Annotated[str | None, Says("how identity was established", VALIDATION_TYPES)]
    assigned: Annotated[bool, Says("the service has a person for this call")]
    distrusted: Annotated[bool, Says("a person at the desk said that the caller cannot be trusted")]
    opted_out: Annotated[
        bool,
        Says(
            "VoiceOptOut was seen in this call, or a person at the desk said so, and no opt-in came later of a caller who "
            "is established as the member"
        ),
    ]
    opted_in: Annotated[bool, Says("VoiceOptIn was seen in this call, or a person at the desk said so")]
    voice_mismatch: Annotated[
        bool,
        Says(
            "at any time in this call, the voice did not match the enrolled one of the member who is assigned now",
            by_check=True,
            by_voice=True,
        ),
    ]
    high_risk_device: Annotated[
        bool, Says("the service called the device a high risk at any time in this call", by_check=True, by_voice=True)
    ]
    voice_pending: Annotated[
        bool, Says("the voice provider is still evaluating (the status Voice Pending)", by_check=True)
    ] = False
    voice_checked: Annotated[
        bool,
        Says(
            f"the voice had its say: {ENOUGH_ANSWERS} checks for the assigned member, made since somebody assigned them, "
            f"were answered without Voice Pending and without a provider error; or {LEAST_ANSWERS} were, and the final "
            "analysis was read and shows neither"
        ),
    ] = False
    voice_undecided: Annotated[
        bool,
        Says(
            "a result of the voice was to be expected, because a flag says that the member was enrolled before, a "
            "validation rule asks for a voice match, or Voice Pending was shown, and no read has shown one: neither green "
            "nor red nor a mismatch"
        ),
    ] = False
    checks_answered: Annotated[
        int,
        Says(
            "checks for the assigned member, made since somebody assigned them, that were answered without Voice Pending "
            "and without a provider error",
            most=CHECK_LIMIT,
        ),
    ] = 0
    ended: Annotated[bool, Says("the call has ended")]
    ended_s: Annotated[int | None, Says("since the call ended; none before", since="ended")] = None
    final_analysis: Annotated[
        bool,
        Says(
            f"two reads at least {FINAL_APART.seconds} s apart, both after the end of the call, showed the same policies "
            "and signs"
        ),
    ] = False
    fraud: Annotated[bool, Says("an investigator determined fraud in this call: `research` is DeterminedFraud")]
    fraud_elsewhere: Annotated[
        bool,
        Says(
            "the same of another call: `research_elsewhere` is DeterminedFraud. Its victim may be the one who calls now, "
            "so no rule may reject on it"
        ),
    ] = False
    research: Annotated[str | None, Says("the state of a research case about this call", RESEARCH)] = None
    research_elsewhere: Annotated[
        str | None, Says("the state of a research case that the record shows and that is about another call", RESEARCH)
    ] = None
    real_voice_id: Annotated[bool, Says("the service itself uses this voice id for the call")]
    allowed: Annotated[bool, Says("the institution is ours, active, with voice authentication, not in test mode")]
    status: Annotated[str | None, Says("the call activity status last read", STATUSES)]
    checks_used: Annotated[int, Says(f"authentication checks made, of {CHECK_LIMIT}", most=CHECK_LIMIT)]
    assigned_s: Annotated[int | None, Says("since the call got a person; none while it has none", since="assigned")] = (
        None
    )
    candidates: Annotated[int, Says("members the service matched to the caller's number")]
    person_type: Annotated[
        str | None, Says("the person type of the call's member, if that is one of the candidates", PERSON_TYPES)
    ] = None
    person_is_candidate: Annotated[
        bool, Says("the call's member is one of those whom the service matched to the caller's number")
    ] = False
    person: Annotated[tuple[str, ...], Says("lists that the call's member is in; see Lists", by_list=True)] = ()
    number: Annotated[
        tuple[str, ...], Says("lists and patterns that the caller's number is in; see Lists", by_list=True)
    ] = ()
    questions: Annotated[int, Says("verification questions that the record names")] = 0
    hour: Annotated[int | None, Says("the hour in the institution's zone, at the moment of the decision", most=23)] = (
        None
    )
    weekday: Annotated[str | None, Says("the day of the week there", WEEKDAYS)] = None
    authenticated: Annotated[
        bool, Says("FullAuthentication by the voice, not by an enroll; no red policy now", by_voice=True)
    ] = False
    paused: Annotated[bool, Says("a person paused enrolls and rejects for this institution")] = False
    paused_entirely: Annotated[bool, Says("a person paused assigns and automatic checks as well")] = False
    assigned_by_us: Annotated[
        bool, Says("the call's person is the one we assigned, and no operator has claimed the call")
    ] = False
    redis_changed: Annotated[
        bool,
        Says(f"Redis was restarted or replaced in the last {LEASE.seconds:g} s: requests it lost may be in flight"),
    ] = False
    standing_unconfirmed: Annotated[
        bool,
        Says("the institution was last known to be active more than 15 minutes ago, and the service does not answer"),
    ] = False
    voice_enrolled: Annotated[bool, Says("the record says isVoiceEnrolled")] = False
    account_enrolled: Annotated[bool, Says("the record says isAccountEnrolled")] = False
    behavior_enrolled: Annotated[bool, Says("the record says isBehaviorEnrolled")] = False
    device_enrolled: Annotated[bool, Says("the record says isDeviceEnrolled")] = False
    record_verified: Annotated[
        bool, Says("the record says isVerified. By what is not documented, so an enroll needs `verified` as well")
    ] = False
    record_enrolled: Annotated[bool, Says("the record says isEnrolled, for this call or from an earlier one")] = False
    voice_match_rule: Annotated[bool, Says("one of the member's validation rules asks for a voice match")] = False
    validation_rule: Annotated[
        str | None, Says("the name of the validation rule applied to the call, as the institution calls it")
    ] = None
    provider_error: Annotated[
        bool, Says("the voice provider gave no result and said why; this differs from undecided", by_check=True)
    ] = False
    unenrolled: Annotated[bool, Says("a reject of the member took an enroll of this call back")] = False
    fully_authenticated: Annotated[
        bool,
        Says("the service called the caller fully authenticated, by the voice or by anybody's enroll", by_voice=True),
    ] = False
    failed_feedback: Annotated[
        bool,
        Says(
            "the provider got FAILED feedback about the call, as after a reject, whatever status the record shows since"
        ),
    ] = False
    reject_in_doubt: Annotated[
        bool, Says("our reject was sent, and nothing proves whether the service carried it out")
    ] = False
    enroll_unresolved: Annotated[
        bool,
        Says(
            "our enroll was sent, nothing proves whether the service carried it out, and nobody who knows that has asked "
            "for another one"
        ),
    ] = False
    rejected_by_rule: Annotated[
        bool, Says("rejected, but only by a validation rule of the service: nobody has rejected the voice since")
    ] = False
    rejected_before: Annotated[
        bool,
        Says(
            "the voice was rejected, not only by a validation rule, in another call of the member or the number "
            "within `[history] days`; see Other calls"
        ),
    ] = False
    unenrolled_before: Annotated[
        bool, Says("a reject of the member took the enroll of such a call back; see Other calls")
    ] = False
    fraud_before: Annotated[bool, Says("an investigator determined fraud in such a call; see Other calls")] = False
    suspected_before: Annotated[
        bool,
        Says(
            "in such a call the voice may have been rejected; or there was another voice, a risky device or a red policy, "
            "and the voice was not authenticated, whatever a person said; see Other calls"
        ),
    ] = False
    opted_out_before: Annotated[
        bool,
        Says(
            "in another call of the member, however long ago, VoiceOptOut was seen, or a person at the desk said so, and no "
            "opt-in came later of a caller who was established as the member; see Other calls"
        ),
    ] = False
    same_member_live: Annotated[
        bool,
        Says(
            "another call went on at the same time, and both callers are the same member: verified, enrolled or by the voice"
        ),
    ] = False
    member_changed: Annotated[
        bool,
        Says(
            "the call's member was changed after its first check, also if the first one came back. What the voice showed "
            "until then is forgotten; what was seen of the device, and policies that are red or have no colour, is not"
        ),
    ] = False
    evidence_against: Annotated[
        bool,
        Says(
            "something speaks against the caller that the person at the desk who verified them did not name, or that was "
            "read after our enroll: a mismatch, a risky device, FAILED feedback, a policy that was red or has no colour, "
            "an open case about this call, or an earlier call that was rejected, un-enrolled, suspected or a fraud"
        ),
    ] = False
    distrusted_as_another: Annotated[
        bool, Says("when the distrust was said, the member who is assigned now was not on the call")
    ] = False
    named_as_another: Annotated[
        bool, Says("a person at the desk said that the caller is another member than the one who is assigned")
    ] = False
    history: History = History()
    at: datetime | None = None
    verified_in_shadow: bool = False
    distrusted_in_shadow: bool = False

    @property
    def checks_left(self) -> int:
        """Return how many of the call's checks are left. This fact follows from another one, see ``_CHECKS_LEFT``."""
        return CHECK_LIMIT - self.checks_used

    def as_dict(self) -> dict[str, Value]:
        """Return the facts by name, as written to a trail. What is false, none or 0 is left out.

        Policies have a field of their own there, and the history is in the entries of the checks.
        """
        values = _VALUES(self)
        written = dict(compress(zip(_WRITTEN, values, strict=True), values))
        for name in _LISTED:
            if name in written:
                written[name] = ",".join(written[name])
        return written

    @classmethod
    def from_dict(
        cls,
        known: Mapping[str, Any],
        *,
        policies: Iterable[str] = (),
        history: History = History(),  # noqa: B008  (frozen)
        at: datetime | None = None,
    ) -> "Facts":
        """Restore facts from a trail. Missing ones are false, none or 0; names of other versions are ignored."""
        written = {name: known.get(name, absent) for name, absent in _WRITTEN.items()}
        for name in _LISTED:
            if not isinstance(written[name], tuple):
                written[name] = tuple(written[name].split(",")) if written[name] else ()
        for seconds, began in GROWING.items():
            if written[seconds] == 0 and not written[began]:
                written[seconds] = None
        return cls(**written, policies=tuple(policies), history=history, at=at)

    @property
    def signature(self) -> str:
        """Return a text that changes when any fact does, except the number of checks and the time."""
        flags = bytes(_FLAGS(self)).translate(_DIGITS)
        texts = "/".join([text or "" for text in _TEXTS(self)])
        names = (*self.policies, *self.person, *self.number)
        named = f"/{crc32(chr(0).join(names).encode()):x}" if names else ""
        return f"{int(flags, 2):x}/{texts}/{self.candidates}/{self.questions}{named}"


def _declared() -> Iterator[tuple[str, Says]]:
    """Yield every fact that rules can name, in the order of the class, with the checks left after the checks used."""
    hints = get_type_hints(Facts, include_extras=True)
    for name, hint in hints.items():
        if get_origin(hint) is Annotated:
            yield name, _of_kind(hint)
        if name == "checks_used":
            yield "checks_left", _CHECKS_LEFT


def _of_kind(hint: Any) -> Says:
    """Return a declared fact with its type, without the None for unknown."""
    declared = hint.__origin__
    kind = get_origin(declared) if get_origin(declared) is tuple else next(iter(get_args(declared)), declared)
    fact: Says = with_kind(hint.__metadata__[0], kind=kind)
    return fact


FACTS: Mapping[str, Says] = dict(_declared())
"""Every fact that rules can use, by name."""

BY_VOICE = frozenset(name for name, fact in FACTS.items() if fact.by_voice)
"""Facts that are true as soon as any read shows them, and false only once the voice had its say."""

_DIGITS = bytes.maketrans(b"\0\1", b"01")
_FLAGS = attrgetter(*(name for name, fact in FACTS.items() if fact.kind is bool))
_TEXTS = attrgetter(*(name for name, fact in FACTS.items() if fact.kind is str))
_ABSENT: Mapping[type, Any] = {bool: False, int: 0, str: None, tuple: ""}
_WRITTEN = {name: _ABSENT[fact.kind] for name, fact in FACTS.items() if name not in {"policies", "checks_left"}}
_WRITTEN["hour"] = None  # ``RuleBook.local``; 0 is midnight
"""The facts that trails hold, and the value for which each is left out."""

_VALUES = attrgetter(*_WRITTEN)
_LISTED = tuple(name for name, fact in FACTS.items() if fact.by_list)

GROWING: Mapping[str, str] = {name: fact.since for name, fact in FACTS.items() if fact.since}
"""Facts that count seconds, each with the fact that tells whether they have begun."""
