"""The service's answers about calls: one frozen record per table of the document.

Names are the document's in snake case; msgspec encodes them in camelCase. Records are built from the world's state and
encoded, never decoded.

Spec: Resources and their fields.
"""

import datetime as dt
from enum import StrEnum

import msgspec

NEVER = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
"""Placeholder for a date-time that may not be null (Assumed: the Spec does not show it)."""


class Wire(msgspec.Struct, frozen=True, rename="camel"):
    """A record that is encoded as a camelCase JSON object."""


class PersonType(StrEnum):
    """How a member is related to the account.

    Spec: Person match.
    """

    PRIMARY = "Primary"
    JOINT = "Joint"
    BENEFICIARY = "Beneficiary"
    AUTHORIZED_SIGNER = "AuthorizedSigner"
    CO_BORROWER = "CoBorrower"
    CO_SIGNER = "CoSigner"


class ValidationType(StrEnum):
    """How the reseller established a caller's identity.

    Spec: Other shapes.
    """

    VOICE_AUTH = "VoiceAuth"
    ONE_TIME_PASSWORD = "OneTimePasswordAuth"  # noqa: S105  (a name of the document, not a secret)
    KNOWLEDGE_BASED = "KnowledgeBasedAuth"
    NO_AUTH = "NoAuth"
    OTHER = "Other"


class Status(StrEnum):
    """Call activity status, also the name of the activity that wrote it.

    Spec: States and transitions.
    """

    CHECKED = "CheckRiskAndAuthentication"
    FULL_AUTHENTICATION = "FullAuthentication"
    UNENROLLED = "FullAuthenticationUnenrolled"
    ACCEPTED = "AcceptCallerVoice"
    ANSWERED_QUESTIONS = "AnsweredQuestions"
    MFA_VALIDATED = "MFAValidated"
    REJECTED = "RejectCallerVoice"
    ENDED = "CallEnded"
    STARTED = "CallStarted"
    SENT_EMAIL = "SentEmailMFA"
    SENT_SMS = "SentSmsMFA"
    OPT_IN = "VoiceOptIn"
    OPT_OUT = "VoiceOptOut"
    REJECTED_BY_RULE = "RejectCallerVoiceFromValidationRule"
    MISMATCH = "VoiceMismatch"
    GRABBED = "GrabbedCall"
    AGENT_VIEWED = "AgentViewed"
    PENDING = "Voice Pending"


class ResearchStatus(StrEnum):
    """The state of a research case.

    Spec: Research case.
    """

    NEEDS_REVIEW = "NeedsReview"
    IN_REVIEW = "InReview"
    DETERMINED_FRAUD = "DeterminedFraud"
    FALSE_POSITIVE = "FalsePositive"
    SYSTEM_ARCHIVED = "SystemArchived"


class DriverLicense(Wire, frozen=True):
    """A member's driving licence (invented in the stand-in)."""

    number: str | None
    issuer: str | None
    expiration_date: dt.date | None


class PersonMatch(Wire, frozen=True):
    """A member whom the core system matched by phone number.

    Spec: Person match.
    """

    first_name: str | None
    last_name: str
    person_id: str
    name: str
    last4_ssn: str | None
    full_ssn: str | None
    driver_license: DriverLicense | None
    value_for_core: str
    date_of_birth: dt.date | None
    support_password: str | None
    person_type: PersonType | None


class QueueEntry(Wire, frozen=True):
    """A live call in the queue.

    Spec: Queue entry. `persons` has a loose type because a script may set unusual candidates.
    """

    phone_number: str
    voice_id: str
    person_id: str | None
    core_username: str | None
    start_date_time: dt.datetime
    persons: list[PersonMatch] | msgspec.Raw | None


class MetaData(Wire, frozen=True):
    """Names of the policies that are applied to a call."""

    vendor_policies: list[str]


class VendorCall(Wire, frozen=True, kw_only=True):
    """The provider's view of a call. Raw scores appear only at its end.

    Spec: Vendor call.
    """

    account: str | None = None
    account_risk_last_updated: dt.datetime = NEVER
    account_risk_status: str | None = None
    agent_start_time: dt.datetime = NEVER
    assigned_analyst: str | None = None
    authentication_feedback: str | None = None
    authentication_policy: str = ""
    authentication_result: bool = False
    authentication_score: str | None = None
    behavior_risk: str | None = None
    call_end_time: dt.datetime = NEVER
    call_start_time: dt.datetime = NEVER
    caller_id_blacklisted: str | None = None
    caller_id_status: str | None = None
    caller_id_validated: bool = False
    caller_id_whitelisted: str | None = None
    carrier: str | None = None
    case_closed_at: dt.datetime = NEVER
    case_created_at: dt.datetime = NEVER
    case_notes: str | None = None
    case_policy_name: str | None = None
    case_ref_id: str | None = None
    case_status: str | None = None
    case_updated_at: dt.datetime = NEVER
    correlation_alt_id: str | None = None
    custom_status: str | None = None
    destination_phone_number: str | None = None
    device_risk: str | None = None
    device_score: str | None = None
    device_type: str | None = None
    duration: float = 0.0
    enrollment_policy: str | None = None
    event_id: str
    event_type: str | None = None
    fraud_status: str | None = None
    fraud_type: str | None = None
    ivr_start_time: dt.datetime = NEVER
    line_of_business: str | None = None
    location: str | None = None
    opened_by: str | None = None
    phone_number: str | None = None
    vendor_call_id: str | None = None
    risk_reasons: str | None = None
    risk_result: str | None = None
    risk_score: str = "0"
    spoofing_risk_reasons: str | None = None
    spoofing_risk_score: str | None = None
    version: str | None = None
    voice_risk: str | None = None
    voice_score: float | None = None


class VendorEvent(Wire, frozen=True):
    """An event that the provider posted to the service.

    Spec: Vendor event.
    """

    current_time: dt.datetime
    customer_id: str
    event_id: str
    event_type: str | None
    version: int
    call: VendorCall | None
    created_date_utc: dt.datetime | None
    vendor_event_db_id: str | None


class ResearchCase(Wire, frozen=True, kw_only=True):
    """A call under investigation.

    Spec: Research case.
    """

    id: str
    voice_id: str
    phone_number: str
    first_name: str | None = None
    last_name: str | None = None
    person_id: str | None = None
    user_name_assigned: str | None = None
    value_for_core: str | None = None
    comment: str | None = None
    call_start_date_utc: dt.datetime
    research_status: str
    other_calls: list["PhoneCall"]


class PhoneCall(Wire, frozen=True):
    """The service's record of a call.

    Spec: Phone call record.
    """

    phone_call_id: int
    phone_number: str | None
    voice_id: str | None
    person_id: str | None
    is_verified: bool
    is_enrolled: bool
    is_account_enrolled: bool
    is_voice_enrolled: bool
    is_behavior_enrolled: bool
    is_device_enrolled: bool
    successful_voice_enrollment: bool
    is_voice_verified: bool
    is_voice_mismatch: bool
    is_high_risk_device: bool
    verified_date_time_utc: dt.datetime
    notes: str | None
    core_username: str | None
    created_date_utc: dt.datetime
    updated_date_utc: dt.datetime
    status: str | None
    meta_data: MetaData | None
    voice_authentication_error: str | None
    call_ended: bool
    call_duration: str | None
    value_for_core: str | None
    validation_rule_id: str | None
    validation_rule_name: str | None
    verification_questions: list[str] | None
    has_voice_match_validation_rule: bool
    first_name: str | None
    last_name: str | None
    research_case: ResearchCase | None
    vendor_events: list[VendorEvent] | None
