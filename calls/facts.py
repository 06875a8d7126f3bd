"""The facts of a call that rules and the law may speak of: a closed list. Policies are known by name only.

Raw provider scores are not among them and never will be: they "are not to be used for caller-handling decisions" (Spec:
Vendor call, last sentence).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from calls.lease import LEASE
from calls.ledger import DONE, IN_DOUBT
from calls.pause import PauseScope
from calls.record import CHECK_LIMIT, Call, History, Reading
from calls.statuses import STATUSES, VALIDATION_TYPES, Status


class Colour(StrEnum):
    """What a policy's name says about the caller."""

    GREEN = "green"
    RED = "red"
    NEUTRAL = "neutral"
    UNCLASSIFIED = "unclassified"


MANUAL_GREEN = "Green Manual Authentication"
"""The policy that an enroll applies: green by a person's word, not by the voice. Spec: States, row enroll."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The colours of policies, by name or pattern (``*`` stands for anything).

    Assumed: names of green and red policies begin with the colour, as the one name in the Spec does.
    """

    green: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()

    def colour(self, name: str) -> Colour:
        """Classify a policy; red wins over green, and a name that no pattern covers is never guessed.

        ``Green Manual Authentication`` is green by its meaning, whatever the patterns say (Assumed: an enroll applies it).
        """
        if name == MANUAL_GREEN:
            return Colour.GREEN
        for colour, patterns in (
            (Colour.RED, self.red),
            (Colour.GREEN, self.green),
            (Colour.NEUTRAL, self.neutral),
        ):
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                return colour
        return Colour.UNCLASSIFIED

    def colours(self, names: Iterable[str]) -> frozenset[Colour]:
        """Return the colours that a call's policies have."""
        return frozenset(self.colour(name) for name in names)


_BY_COLOUR = {Colour.RED: "red", Colour.UNCLASSIFIED: "unclassified"}
Value = bool | int | str | None


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What is known of a call at the moment of a decision. Booleans read as statements.

    ``at`` is that moment, ``history`` what the checks showed; rules do not name these two, they are what dates and
    ``on_checks`` are held against.
    """

    green: bool
    manual: bool
    red: bool
    unclassified: bool
    rejected: bool
    enrolled: bool
    verified: bool
    verified_by_desk: bool
    verified_person_is_assigned: bool
    validation_type: str | None
    assigned: bool
    distrusted: bool
    opted_out: bool
    opted_in: bool
    voice_mismatch: bool
    high_risk_device: bool
    ended: bool
    fraud: bool
    real_voice_id: bool
    allowed: bool
    status: str | None
    checks_used: int
    candidates: int
    authenticated: bool = False
    paused: bool = False
    paused_entirely: bool = False
    assigned_by_us: bool = False
    redis_changed: bool = False
    rejected_by_rule: bool = False
    fully_authenticated: bool = False
    unenrolled: bool = False
    voice_enrolled: bool = False
    voice_match_rule: bool = False
    validation_rule: str | None = None
    provider_error: bool = False
    green_policy: bool = False
    policies: tuple[str, ...] = ()
    assigned_s: int | None = None
    history: History = History()
    at: datetime | None = None

    @property
    def checks_left(self) -> int:
        """Return how many of the call's checks are left."""
        return CHECK_LIMIT - self.checks_used

    def as_dict(self) -> dict[str, Value]:
        """Return the facts by name, as written into a trail: what is false, none or 0 is left out.

        Policies have a field of their own there, the history is in the lines of the checks.
        """
        return {name: value for name in _WRITTEN if (value := getattr(self, name))}

    @classmethod
    def from_dict(
        cls,
        known: Mapping[str, Any],
        *,
        policies: Iterable[str] = (),
        history: History = History(),  # noqa: B008  (frozen)
        at: datetime | None = None,
    ) -> "Facts":
        """Return the facts that were written down; what is left out is false, none or 0, names of other versions go."""
        written = {name: known.get(name, absent) for name, absent in _WRITTEN.items()}
        if written["assigned_s"] == 0 and not written["assigned"]:
            written["assigned_s"] = None
        return cls(**written, policies=tuple(policies), history=history, at=at)

    @property
    def signature(self) -> str:
        """Return a text that changes when any fact does, but for the checks, which have lines of their own, and the time."""
        flags = "".join(["1" if flag else "0" for flag in _FLAGS(self)])
        texts = f"{self.status or ''}/{self.validation_type or ''}/{self.validation_rule or ''}"
        named = f"/{crc32(chr(0).join(self.policies).encode()):x}" if self.policies else ""
        return f"{int(flags, 2):x}/{texts}/{self.candidates}{named}"


@dataclass(frozen=True, slots=True)
class FactMeaning:
    """The type of a fact, what it says, and its values where these are a closed list (other than true and false).

    ``most``: the largest value of a number that has one. ``unit``: of a number. ``by_check``: every check's answer shows it
    anew, so that rules can ask on how many checks it was seen.
    """

    kind: type[bool] | type[int] | type[str] | type[tuple[str, ...]]
    meaning: str
    named: tuple[str, ...] = ()
    most: int | None = None
    unit: str = ""
    by_check: bool = False

    @property
    def is_open(self) -> bool:
        """Tell whether any text is a value: the institution's own names."""
        return self.kind is str and not self.named

    @property
    def values(self) -> tuple[Value, ...]:
        """Return every value that the fact can have; nothing for a number or any text."""
        if self.kind is bool:
            return (True, False)
        return (*self.named, None) if self.named else ()


FACTS: Mapping[str, FactMeaning] = {
    "green": FactMeaning(
        bool,
        "the voice is authenticated: a green policy, or FullAuthentication with isVoiceVerified and without anybody's "
        "enroll; never beside a red policy",
    ),
    "manual": FactMeaning(
        bool, "authenticated by a person's word only: Green Manual Authentication, or our own enroll"
    ),
    "red": FactMeaning(bool, "a policy classified red is applied", by_check=True),
    "green_policy": FactMeaning(bool, "a green policy is applied, by the voice or by hand, whatever else is"),
    "unclassified": FactMeaning(bool, "a policy is applied that the rules file gives no colour", by_check=True),
    "policies": FactMeaning(tuple, "the names of the policies applied, as last read", by_check=True),
    "rejected": FactMeaning(bool, "the voice was rejected, by whomever, at any time in this call"),
    "enrolled": FactMeaning(bool, "somebody, or we, enrolled the voice in this call"),
    "verified": FactMeaning(
        bool, "identity was established otherwise (the desk's word, AnsweredQuestions, MFAValidated)"
    ),
    "verified_by_desk": FactMeaning(bool, "it was the desk that established identity"),
    "verified_person_is_assigned": FactMeaning(bool, "the verified person is the one the call is assigned to"),
    "validation_type": FactMeaning(str, "how identity was established", VALIDATION_TYPES),
    "assigned": FactMeaning(bool, "the service has a person for this call"),
    "distrusted": FactMeaning(bool, "a person at the desk said that the caller cannot be trusted"),
    "opted_out": FactMeaning(bool, "VoiceOptOut was seen at any time in this call"),
    "opted_in": FactMeaning(bool, "VoiceOptIn was seen in this call"),
    "voice_mismatch": FactMeaning(bool, "the voice does not match the enrolled one", by_check=True),
    "high_risk_device": FactMeaning(bool, "the service calls the device a high risk", by_check=True),
    "ended": FactMeaning(bool, "the call has ended"),
    "fraud": FactMeaning(bool, "a research case is DeterminedFraud"),
    "real_voice_id": FactMeaning(bool, "the service itself named this voice id as the call's"),
    "allowed": FactMeaning(bool, "the institution is ours, active, with voice authentication, not in test mode"),
    "status": FactMeaning(str, "the call activity status last read", STATUSES),
    "checks_used": FactMeaning(int, "authentication checks made, of 20", most=CHECK_LIMIT),
    "checks_left": FactMeaning(int, "authentication checks left, of 20", most=CHECK_LIMIT),
    "assigned_s": FactMeaning(int, "since the call has had a person; none while it has nobody", unit="seconds"),
    "candidates": FactMeaning(int, "members the service matched to the caller's number"),
    "authenticated": FactMeaning(bool, "FullAuthentication was seen in this call without anybody's enroll"),
    "paused": FactMeaning(bool, "a person paused enrolls and rejects for this institution"),
    "paused_entirely": FactMeaning(bool, "a person paused assigns and automatic checks as well"),
    "assigned_by_us": FactMeaning(
        bool, "the call's person is the one we assigned, and no operator has claimed the call"
    ),
    "redis_changed": FactMeaning(
        bool, f"Redis was restarted or replaced in the last {LEASE.seconds:g} s: what it forgot may still be under way"
    ),
    "voice_enrolled": FactMeaning(bool, "the service has a voiceprint of the member (isVoiceEnrolled)"),
    "voice_match_rule": FactMeaning(bool, "one of the member's validation rules asks for a voice match"),
    "validation_rule": FactMeaning(
        str, "the name of the validation rule applied to the call, as the institution calls it"
    ),
    "provider_error": FactMeaning(
        bool, "the voice provider could not tell, and said why: not the same as undecided", by_check=True
    ),
    "unenrolled": FactMeaning(bool, "a reject of the member took an enroll of this call back"),
    "fully_authenticated": FactMeaning(
        bool, "the service called the caller fully authenticated, by the voice or by anybody's enroll"
    ),
    "rejected_by_rule": FactMeaning(
        bool, "rejected, but only by a validation rule of the service: nobody has rejected the voice since"
    ),
}

_FLAGS = attrgetter(*(name for name, fact in FACTS.items() if fact.kind is bool))
_ABSENT: Mapping[type, Any] = {bool: False, int: 0, str: None, tuple: ()}
_WRITTEN = {name: _ABSENT[fact.kind] for name, fact in FACTS.items() if name not in {"policies", "checks_left"}}
"""Facts that trails hold, and what is left out there."""


def facts_of(call: Call, policies: Policies, now: datetime | None = None) -> Facts:
    """Derive the facts from a record; the only place that does.

    ``now`` is the moment of the decision; None stands for that of the last write.
    """
    now = call.saved_at if now is None else now
    reading = call.reading
    status = reading.status if reading else None
    names = reading.policies if reading else ()
    colours = policies.colours(name for name in names if name != MANUAL_GREEN)
    ours = call.enroll.state in DONE or call.enroll.state in IN_DOUBT
    by_hand = not call.unenrolled_seen and (MANUAL_GREEN in names or ours or call.enrolled_seen)
    verified = call.identity is not None
    red = Colour.RED in colours
    authenticated = call.authenticated_seen and not by_hand and not red
    return Facts(
        green=authenticated or (Colour.GREEN in colours and not red),
        manual=by_hand,
        red=red,
        unclassified=Colour.UNCLASSIFIED in colours,
        rejected=call.rejected_seen or call.reject.state in DONE,
        enrolled=by_hand,
        verified=verified,
        verified_by_desk=call.identity is not None and call.identity.by_desk,
        verified_person_is_assigned=call.identity is not None
        and call.person_id is not None
        and call.identity.person_id == call.person_id,
        validation_type=call.identity.validation_type if call.identity else None,
        assigned=call.person_id is not None,
        distrusted=call.distrusted is not None,
        opted_out=call.opted_out_seen,
        opted_in=call.opted_in_seen,
        voice_mismatch=call.mismatch_seen,
        high_risk_device=reading is not None and reading.is_high_risk_device,
        ended=call.end_seen_at is not None,
        fraud=reading is not None and reading.research_status == "DeterminedFraud",
        real_voice_id=call.has_real_voice_id,
        allowed=call.standing is None,
        status=status,
        checks_used=call.checks_used,
        candidates=len(call.candidates),
        authenticated=authenticated,
        paused=call.paused is not None,
        paused_entirely=call.paused is PauseScope.ALL,
        assigned_by_us=_is_ours(call),
        redis_changed=call.effects_held_until is not None,
        voice_enrolled=reading is not None and reading.is_voice_enrolled,
        voice_match_rule=reading is not None and reading.has_voice_match_rule,
        validation_rule=reading.validation_rule if reading else None,
        provider_error=reading is not None and reading.provider_error is not None,
        unenrolled=call.unenrolled_seen,
        fully_authenticated=call.full_authentication_seen or call.authenticated_seen,
        rejected_by_rule=call.rejected_by_rule_only and call.reject.state not in DONE,
        green_policy=Colour.GREEN in colours or MANUAL_GREEN in names,
        policies=names,
        assigned_s=_assigned_s(call, now),
        history=coloured(call.history, policies) if call.history.policies else call.history,
        at=now,
    )


def signs_of(reading: Reading) -> tuple[str, ...]:
    """Return the facts that an answer shows by itself; colours follow from its policies, by the rules in force."""
    shown = (
        ("voice_mismatch", reading.is_voice_mismatch or reading.status == Status.MISMATCH),
        ("high_risk_device", reading.is_high_risk_device),
        ("provider_error", reading.provider_error is not None),
    )
    return tuple(name for name, holds in shown if holds)


def _assigned_s(call: Call, now: datetime | None) -> int | None:
    """Return how many seconds ago the call got its first person; checks are counted from then too."""
    if call.person_id is None:
        return None
    if now is None or call.watch_from is None:
        return 0
    return max(0, int((now - call.watch_from).total_seconds()))


def coloured(history: History, policies: Policies) -> History:
    """Add on which checks a policy of a colour was applied."""
    signs = {name: mask for name, mask in history.signs.items() if name not in _BY_COLOUR.values()}
    for policy, mask in history.policies.items():
        sign = _BY_COLOUR.get(policies.colour(policy))
        if sign is not None:
            signs[sign] = signs.get(sign, 0) | mask
    return replace(history, signs=signs)


def _is_ours(call: Call) -> bool:
    """Tell whether the present assignment is ours: our person, and no name on the call but the one we used."""
    is_our_person = call.assigned_person_id is not None and call.assigned_person_id == call.person_id
    # Assumed: the core username on a record is that of whoever assigned or claimed the call last.
    return is_our_person and call.core_username in {None, call.assigned_as}
