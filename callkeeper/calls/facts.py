"""The facts of a call that rules and the law can use: a closed list. Policies are known by name only.

Raw provider scores are not among them: they "are not to be used for caller-handling decisions" (Spec: Vendor call, last
sentence).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_kind
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from zlib import crc32

import msgspec
from msgspec.structs import replace

from callkeeper.calls.claimed_item import LEASE
from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, EffectState
from callkeeper.calls.member_evidence import enrolled_person, is_assigned, usable_answers
from callkeeper.calls.notes import statement_order
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.person_lists import NO_LISTS, NamedLists
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import (
    CHECK_LIMIT,
    Call,
    Candidate,
    History,
    Identity,
    Life,
    Mark,
    Obstacles,
    Reading,
    Seen,
    Word,
)
from callkeeper.calls.statuses import FRAUD, PERSON_TYPES, RESEARCH, STATUSES, VALIDATION_TYPES, WEEKDAYS
from callkeeper.service.endpoints import is_same_id
from callkeeper.service.enumerations import CallStatus

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

_BY_COLOUR = {Colour.RED: "red", Colour.UNCLASSIFIED: "unclassified"}
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
        Says(
            "a policy without a colour was applied at any time in this call, for the member who is assigned now",
            by_voice=True,
        ),
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
    opted_out: Annotated[bool, Says("VoiceOptOut was seen at any time in this call, or a person at the desk said so")]
    opted_in: Annotated[bool, Says("VoiceOptIn was seen in this call")]
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
            "a result of the voice was to be expected, because the service has a voiceprint of the member or has shown "
            "Voice Pending, and no read has shown one: neither green nor red nor a mismatch"
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
    voice_enrolled: Annotated[bool, Says("the service has a voiceprint of the member (isVoiceEnrolled)")] = False
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
            "and the voice was not authenticated; see Other calls"
        ),
    ] = False
    voice_of_another: Annotated[
        bool, Says("in this call, the voice was authenticated as another member than the one who is assigned now")
    ] = False
    distrusted_as_another: Annotated[
        bool, Says("when the distrust was said, the member who is assigned now was not on the call")
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
        written = {name: value for name, value in zip(_WRITTEN, _VALUES(self), strict=True) if value}
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


# Python 3.11 takes long to look up a member of an enumeration, and facts are derived several times for each answer.
_RED, _GREEN, _UNCLASSIFIED, _PENDING, _EVERYTHING = (
    Colour.RED,
    Colour.GREEN,
    Colour.UNCLASSIFIED,
    CallStatus.VOICE_PENDING,
    PauseScope.ALL,
)
_REJECT_IN_DOUBT = frozenset({*IN_DOUBT, EffectState.UNRESOLVED})
_RESULTS = frozenset({_GREEN, _RED})
_REJECTED, _UNENROLLED, _FRAUD, _SUSPECTED = Mark.REJECTED, Mark.UNENROLLED, Mark.FRAUD, Mark.SUSPECTED


def facts_of(
    call: Call, obstacles: Obstacles, policies: Policies, now: datetime | None = None, *, lists: NamedLists = NO_LISTS
) -> Facts:
    """Derive the facts from a record. No other function does, but ``RuleBook.local`` adds the hour and the weekday.

    ``obstacles`` are what holds requests back now, or ``call.last_claim``: what held when the record was written.
    Without ``now`` it is the moment of the last write. ``lists`` are those that rules ask about.
    """
    now = call.saved_at if now is None else now
    life, seen, plan, ledger, said = call.life, call.seen, call.plan, call.ledger, call.statements
    reading = seen.reading or _UNREAD
    status, names = reading.status, reading.policies
    colours, by_hand = _colours_by_voice(seen, policies), _is_by_hand(call)
    red = _RED in colours
    authenticated = seen.authenticated and not by_hand and not red
    answers, is_final = usable_answers(seen).bit_count(), has_final_analysis(call)
    candidate = _candidate(call)
    identity, distrusted = said.identity, said.distrusted
    has_voiceprint_or_pending = seen.pending or seen.voiceprint or reading.is_voice_enrolled
    research, research_elsewhere = research_of(call)
    earlier = seen.earlier_marks.kinds if seen.earlier_marks is not None else ()
    history = coloured(seen.history, policies) if seen.history.policies else seen.history
    return Facts(
        green=authenticated or (_GREEN in colours and not red),
        manual=by_hand and _is_for_assigned(call),
        red=red,
        unclassified=_UNCLASSIFIED in colours,
        unclassified_seen=_UNCLASSIFIED in colours or "unclassified" in history.signs,
        red_seen=red or seen.red,
        rejected=is_rejected_by_anyone(call),
        enrolled=by_hand,
        verified=identity is not None,
        verified_by_desk=identity is not None and identity.by_desk,
        verified_in_time=identity is not None and _is_in_time(identity, life),
        verified_s=_seconds_since(identity.established_at if identity else None, now),
        verified_person_is_assigned=identity is not None
        and seen.person_id is not None
        and identity.person_id == seen.person_id
        and not _is_nobodys(call)
        and not _is_contradicted(identity, said.assign_wish),
        validation_type=identity.validation_type if identity else None,
        assigned=seen.person_id is not None,
        distrusted=distrusted is not None,
        verified_in_shadow=identity is not None and identity.in_shadow,
        distrusted_in_shadow=distrusted is not None and distrusted.in_shadow,
        distrusted_as_another=distrusted is not None
        and seen.person_id is not None
        and distrusted.member not in {None, seen.person_id},
        voice_of_another=any(one != seen.person_id for one in seen.authenticated_members),
        opted_out=seen.opted_out,
        opted_in=seen.opted_in,
        voice_mismatch=seen.mismatch,
        high_risk_device=seen.risky_device or reading.is_high_risk_device,
        voice_pending=status == _PENDING,
        voice_checked=_is_voice_checked(seen.reading, answers, is_final=is_final),
        voice_undecided=has_voiceprint_or_pending
        and not (authenticated or seen.mismatch or not colours.isdisjoint(_RESULTS)),
        checks_answered=answers,
        ended=life.ended_at is not None,
        ended_s=_seconds_since(life.ended_at, now),
        final_analysis=is_final,
        fraud=research == FRAUD,
        fraud_elsewhere=research_elsewhere == FRAUD,
        research=research,
        research_elsewhere=research_elsewhere,
        real_voice_id=has_real_voice_id(call),
        allowed=obstacles.standing is None,
        status=status,
        checks_used=plan.checks_used,
        candidates=len(seen.candidates),
        person_type=candidate.person_type if candidate is not None else None,
        person_is_candidate=candidate is not None,
        person=lists.of_person(seen.person_id) if lists.persons else (),
        number=lists.of_number(call.names.phone_number) if lists.numbers else (),
        hour=None,  # ``RuleBook.local``
        weekday=None,
        questions=reading.verification_questions,
        authenticated=authenticated,
        paused=obstacles.paused is not None,
        paused_entirely=obstacles.paused is _EVERYTHING,
        assigned_by_us=_is_ours(call),
        redis_changed=obstacles.effects_held_until is not None,
        standing_unconfirmed=obstacles.standing_held_until is not None,
        voice_enrolled=reading.is_voice_enrolled,
        account_enrolled=reading.is_account_enrolled,
        behavior_enrolled=reading.is_behavior_enrolled,
        device_enrolled=reading.is_device_enrolled,
        record_verified=reading.is_verified,
        record_enrolled=reading.is_enrolled,
        voice_match_rule=reading.has_voice_match_rule,
        validation_rule=reading.validation_rule,
        provider_error=reading.provider_error is not None,
        unenrolled=seen.unenrolled,
        fully_authenticated=seen.full_authentication or seen.authenticated,
        rejected_by_rule=seen.rejected_by_rule_only and ledger.reject.state not in DONE,
        failed_feedback=seen.failed_feedback,
        reject_in_doubt=ledger.reject.state in _REJECT_IN_DOUBT,
        rejected_before=_REJECTED in earlier,
        unenrolled_before=_UNENROLLED in earlier,
        fraud_before=_FRAUD in earlier,
        suspected_before=_SUSPECTED in earlier,
        green_policy=_GREEN in policies.colours(names),
        policies=names,
        assigned_s=(_seconds_since(plan.watch_from, now) or 0) if seen.person_id is not None else None,
        history=history,
        at=now,
    )


_UNREAD = Reading(read_at=datetime.min.replace(tzinfo=UTC))
"""A record of which nothing was read."""


def _colours_by_voice(seen: Seen, policies: Policies) -> frozenset[Colour]:
    """Return the colours of the policies applied, without green ones that may be about the member before."""
    if seen.reading is None:
        return frozenset()
    shown, doubtful = seen.reading.policies, seen.of_another
    names = [name for name in shown if name not in doubtful or policies.colour(name) is not _GREEN]
    return policies.colours([name for name in names if name != MANUAL_GREEN])


def _is_by_hand(call: Call) -> bool:
    """Tell whether the caller counts as authenticated because of somebody's enroll."""
    ours = call.ledger.enroll.state in DONE or call.ledger.enroll.state in IN_DOUBT
    shown = call.seen.reading is not None and MANUAL_GREEN in call.seen.reading.policies
    return not call.seen.unenrolled and (shown or ours or call.seen.enrolled)


def _is_for_assigned(call: Call) -> bool:
    """Tell whether an enroll of this call was for the member who is assigned now, as far as is known.

    The policy that it applied may stay on the call when somebody changes the member.
    """
    return enrolled_person(call) in {None, call.seen.person_id}


def has_result(call: Call, policies: Policies) -> bool:
    """Tell whether the call is ``green`` or ``red``, without deriving the other facts."""
    colours = _colours_by_voice(call.seen, policies)
    return not colours.isdisjoint(_RESULTS) or (call.seen.authenticated and not _is_by_hand(call))


def is_decided(call: Call, policies: Policies) -> bool:
    """Tell whether the call is ``green``, ``red``, ``manual`` or ``fully_authenticated``, without the other facts."""
    is_full = call.seen.full_authentication or call.seen.authenticated
    return is_full or _is_by_hand(call) or has_result(call, policies)


def is_rejected_by_anyone(call: Call) -> bool:
    """Tell whether the call is ``rejected``."""
    return call.seen.rejected or call.ledger.reject.state in DONE


def _is_nobodys(call: Call) -> bool:
    """Tell whether details name nobody.

    Somebody has taken the member off the call; or only the queue names the member, whom nobody has assigned or claimed.
    """
    reading, listed_at = call.seen.reading, call.life.listed_at
    if reading is None or reading.person_id is not None:
        return False
    return call.seen.was_named or (not is_assigned(call) and listed_at is not None and listed_at <= reading.read_at)


def research_of(call: Call) -> tuple[str | None, str | None]:
    """Return the state of the record's research case: first if it is about this call, second if about another one.

    A determined fraud counts until it is refuted, also if the record shows another case since.

    Assumed (`research-case`): the case's voice id, real or alternate, is that of the call under investigation;
    ``otherCalls`` are calls that were looked at as well. A case without a voice id is about another call.
    """
    reading = call.seen.reading
    if reading is None:
        return None, None
    shown, is_ours = reading.research_status, _is_about(call, reading.research_voice_id)
    ours, other = (shown, None) if is_ours else (None, shown)
    are_ours = [_is_about(call, about) for about in call.seen.frauds]
    return FRAUD if True in are_ours else ours, FRAUD if False in are_ours else other


def _is_about(call: Call, voice_id: str | None) -> bool:
    """Tell whether a research case that names a voice id is about this call."""
    ours = (call.voice_id, call.names.alternate_id)
    return voice_id is not None and any(is_same_id(voice_id, one) for one in ours if one is not None)


def has_real_voice_id(call: Call) -> bool:
    """Tell whether an answer of the service gave this record's id as the call's voice id."""
    return call.seen.reading is not None and call.seen.reading.voice_id == call.voice_id


def is_named_by_service(call: Call) -> bool:
    """Tell whether the service uses this record's id as a call's voice id, in its queue or in an answer."""
    return call.life.listed_at is not None or is_named_in_answer(call)


def is_named_in_answer(call: Call) -> bool:
    """Tell whether an answer of the service has given this record's id as the call's own."""
    return call.names.is_confirmed or has_real_voice_id(call)


def signs_of(reading: Reading) -> tuple[str, ...]:
    """Return the facts that one answer shows by itself. Colours are left out: they depend on the rules in force."""
    shown = (
        ("voice_mismatch", reading.is_voice_mismatch or reading.status == CallStatus.VOICE_MISMATCH),
        ("high_risk_device", reading.is_high_risk_device),
        ("provider_error", reading.provider_error is not None),
        ("voice_pending", reading.status == CallStatus.VOICE_PENDING),
    )
    return tuple(name for name, holds in shown if holds)


def begun_at(call: Call) -> dict[str, datetime | None]:
    """Return when each fact of ``GROWING`` began to count; None if it has not."""
    return {name: _came_true_at(call, fact) for name, fact in GROWING.items()}


def _came_true_at(call: Call, fact: str) -> datetime | None:
    match fact:
        case "assigned":  # Checks are planned from the call's first person on too.
            return call.plan.watch_from if call.seen.person_id is not None else None
        case "ended":
            return call.life.ended_at
        case _:
            return call.statements.identity.established_at if call.statements.identity is not None else None


def _candidate(call: Call) -> Candidate | None:
    """Return the candidate who is assigned; None if nobody is, or somebody who is not among the candidates."""
    for candidate in call.seen.candidates if call.seen.person_id is not None else ():
        if candidate.person_id == call.seen.person_id:
            return candidate
    return None


def _seconds_since(instant: datetime | None, now: datetime | None) -> int | None:
    """Return how many seconds ago something happened; None if it has not. 0 if the present is unknown."""
    if instant is None:
        return None
    return 0 if now is None else max(0, int((now - instant).total_seconds()))


def has_final_analysis(call: Call) -> bool:
    """Tell whether two reads after the end, far enough apart, showed the same."""
    reading, since = call.seen.reading, call.seen.final_since
    return (
        call.life.ended_at is not None
        and reading is not None
        and since is not None
        and reading.read_at - since >= FINAL_APART
    )


def _is_voice_checked(reading: Reading | None, answers: int, *, is_final: bool) -> bool:
    """Tell whether the voice had its say. Until then the absence of evidence says nothing."""
    is_open = reading is None or reading.provider_error is not None or reading.status == CallStatus.VOICE_PENDING
    return answers >= ENOUGH_ANSWERS or (answers >= LEAST_ANSWERS and is_final and not is_open)


def is_suspected(call: Call, policies: Policies) -> bool:
    """Tell whether something spoke against the caller, and the voice was not authenticated."""
    is_suspicious = call.seen.mismatch or call.seen.risky_device or call.seen.red
    return is_suspicious and not has_green_voice(call, policies)


def has_green_voice(call: Call, policies: Policies) -> bool:
    """Tell whether the voice is that of the member who is assigned now."""
    colours = _colours_by_voice(call.seen, policies)
    return call.seen.authenticated or (_GREEN in colours and _RED not in colours)


def _is_in_time(identity: Identity, life: Life) -> bool:
    """Tell whether identity was established early enough for an enroll.

    Once a word has reopened a settled call, only a person's identity counts. Otherwise that word, if it is taken back, would
    let what the service once established enroll the voice hours later.
    """
    ended_at = life.ended_at
    if life.is_reopened and not identity.by_desk:
        return False
    allowance = VERIFIED_AFTER_END if identity.by_desk else timedelta()
    return ended_at is None or identity.established_at <= ended_at + allowance


def _is_contradicted(identity: Identity, wish: Word | None) -> bool:
    """Tell whether a person at the desk says that the caller is somebody else, whether or not that could be assigned."""
    if wish is None or wish.person_id in {None, identity.person_id}:
        return False
    verified = statement_order(identity.number, identity.established_at)
    return not identity.by_desk or statement_order(wish.number, wish.said_at) > verified


def coloured(history: History, policies: Policies) -> History:
    """Add on which checks a policy of each colour was applied."""
    signs = {name: mask for name, mask in history.signs.items() if name not in _BY_COLOUR.values()}
    for policy, mask in history.policies.items():
        sign = _BY_COLOUR.get(policies.colour(policy))
        if sign is not None:
            signs[sign] = signs.get(sign, 0) | mask
    return replace(history, signs=signs)


def _is_ours(call: Call) -> bool:
    """Tell whether the current assignment is ours: our person, and no core username on the call but ours."""
    is_our_person = call.ledger.assigned_person_id is not None and call.ledger.assigned_person_id == call.seen.person_id
    # Assumed (`username-is-claimer`): the core username on a record is that of whoever assigned or claimed the call last.
    return is_our_person and call.seen.core_username in {None, call.ledger.assigned_as}
