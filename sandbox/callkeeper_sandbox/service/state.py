"""The state of the sandbox, as plain mutable records that can be written to a file and read back.

Times are aware UTC instants. The behaviour is in `effects`, the passing of time in `world`.
"""

import datetime as dt
from enum import StrEnum
from typing import Any

import msgspec

from callkeeper_sandbox.service.institutions import Institution
from callkeeper_sandbox.service.records import PersonMatch

MANUAL_POLICY = "Green Manual Authentication"
"""The policy that an enroll applies: the only policy name that the Spec gives."""

GREEN_POLICY = "Green Voice Authentication"
RED_POLICY = "Red High Risk"
"""Names of the provider's policies (Assumed: by the pattern of the one name that the Spec gives)."""


class Kind(StrEnum):
    """Changes of a call without a request."""

    GREEN = "green"
    RED = "red"
    POLICY = "policy"
    MISMATCH = "mismatch"
    HIGH_RISK = "high_risk_device"
    PENDING = "pending"
    ANSWERED_QUESTIONS = "answered_questions"
    MFA_VALIDATED = "mfa_validated"
    SENT_SMS = "sent_sms"
    SENT_EMAIL = "sent_email"
    OPT_IN = "opt_in"
    OPT_OUT = "opt_out"
    VIEWED = "viewed"
    STATUS = "status"
    CLAIMED = "claimed"
    ENROLLED = "enrolled"
    REJECTED = "rejected"
    UNENROLLED = "unenrolled"
    REJECTED_BY_RULE = "rejected_by_rule"
    CASE = "case"
    CASE_ELSEWHERE = "case_elsewhere"
    ERROR = "error"
    END = "end"


PROVIDER_KINDS = frozenset({Kind.GREEN, Kind.RED, Kind.POLICY, Kind.MISMATCH, Kind.HIGH_RISK, Kind.PENDING})
"""Results of the provider. They reach the service's record only by a check or at the end of the call."""


class Happening(msgspec.Struct, frozen=True):
    """One change of a call.

    Attributes:
        after_s: Seconds after the call's start; ignored for an immediate change.
        text: Depends on `kind`: a policy name, a status text, a core username, a research status.
        person_id: The person whom an operator elsewhere assigned, enrolled or verified.
    """

    kind: Kind
    after_s: float = 0.0
    text: str | None = None
    person_id: str | None = None


class Due(msgspec.Struct, frozen=True, order=True):
    """A change with its time; `number` keeps equal times in order."""

    at: dt.datetime
    number: int
    voice_id: str
    happening: Happening


class Truth(msgspec.Struct, frozen=True):
    """The instant at which a result of a call existed, whether or not it was requested."""

    kind: Kind
    at: dt.datetime
    text: str | None = None


class Activity(msgspec.Struct, frozen=True):
    """An activity written to a call; `by` is the operator's core username, None for the service itself."""

    name: str
    at: dt.datetime
    by: str | None = None


class Verification(msgspec.Struct, frozen=True):
    """A verification recorded against a member and pushed to the core."""

    person_id: str | None
    validation_type: str
    at: dt.datetime
    by: str | None = None
    notes: str | None = None


class Provider(msgspec.Struct):
    """The voice provider's current data of a call."""

    policies: list[str] = []
    is_mismatch: bool = False
    is_high_risk_device: bool = False
    is_pending: bool = False


class Call(msgspec.Struct, kw_only=True):
    """A call: the service's record, and data that it does not show yet (`provider`, `truth`).

    Attributes:
        listed_at: When the queue begins to show it. A late listing is after the start.
        persons: Candidates that replace the members matched by phone number, as raw JSON objects.
        policies: The provider's policies as of the last check.
        manual_person_id: The person for whom an enroll is in force. The manual policy is then applied.
        checks_used: Checks that made the service query the provider.
        feedback: What was sent to the provider, in order: SUCCESSFUL or FAILED.
        aliases: Account aliases correlated with the provider, in order.
    """

    call_id: int
    voice_id: str
    alternate_id: str
    institution_key: str
    phone_number: str
    destination: str
    started_at: dt.datetime
    listed_at: dt.datetime
    updated_at: dt.datetime
    ended_at: dt.datetime | None = None
    persons: list[dict[str, Any]] | None = None
    person_id: str | None = None
    core_username: str | None = None
    status: str | None = None
    notes: str | None = None
    error: str | None = None
    policies: list[str] = []
    manual_person_id: str | None = None
    fully_authenticated: bool = False
    rejected: bool = False
    voice_validated: bool = False
    is_mismatch: bool = False
    is_high_risk_device: bool = False
    verified_at: dt.datetime | None = None
    checks_used: int = 0
    research_status: str | None = None
    research_voice_id: str | None = None
    provider: Provider
    activities: list[Activity] = []
    verifications: list[Verification] = []
    feedback: list[str] = []
    aliases: list[str] = []
    truth: list[Truth] = []

    @property
    def applied_policies(self) -> list[str]:
        """Name the policies on the record: the provider's as of the last check, then the manual one."""
        return [*self.policies, MANUAL_POLICY] if self.manual_person_id is not None else self.policies


def write(call: Call, status: str, at: dt.datetime, by: str | None = None) -> None:
    """Write an activity to a call; the record's status is the latest activity's name."""
    call.activities.append(Activity(status, at, by))
    call.status = status
    call.updated_at = at


class Member(msgspec.Struct, frozen=True):
    """A member of an institution with the numbers that the core system knows."""

    institution_key: str
    phones: list[str]
    person: PersonMatch


class PushSettings(msgspec.Struct, frozen=True):
    """An institution's settings under Settings, Push Notifications."""

    url: str = ""
    headers: str = ""


class Child(msgspec.Struct):
    """An institution with data that the interface does not show; `owned` is False for another reseller's."""

    record: Institution
    owned: bool = True
    ignored: list[str] = []
    push: PushSettings = PushSettings()


class UserToken(msgspec.Struct, frozen=True):
    """A login token for one institution."""

    institution_key: str
    expires_at: dt.datetime


class State(msgspec.Struct):
    """The whole state; `variants` names the variants in force."""

    institutions: dict[str, Child] = {}
    members: list[Member] = []
    calls: dict[str, Call] = {}
    due: list[Due] = []
    tokens: dict[str, dt.datetime] = {}
    user_tokens: dict[str, UserToken] = {}
    variants: list[str] = []
    number: int = 0
