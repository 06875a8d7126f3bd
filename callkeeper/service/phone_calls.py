"""Calls as the service returns them: queue entries with candidates, full records, and events of the voice provider.

Raw scores are only read. Calls are handled by policies, never by scores (Spec, Vendor call).
"""

from datetime import UTC, datetime

from msgspec import field

from callkeeper.service.answer_parsing import Listed, Record
from callkeeper.service.endpoints import canonical_id


class VendorCall(Record, frozen=True, kw_only=True):
    """A call as the provider sees it.

    ``duration`` is in the provider's unit, which the Spec does not name.

    Spec: Vendor call.
    """

    account: str | None = None
    account_risk_updated_at: datetime | None = field(name="accountRiskLastUpdated", default=None)
    account_risk_status: str | None = None
    agent_started_at: datetime | None = field(name="agentStartTime", default=None)
    assigned_analyst: str | None = None
    authentication_feedback: str | None = None
    authentication_policy: str = ""
    authentication_result: bool | None = None
    authentication_score: str | None = None
    behavior_risk: str | None = None
    call_ended_at: datetime | None = field(name="callEndTime", default=None)
    call_started_at: datetime | None = field(name="callStartTime", default=None)
    caller_id_blacklisted: str | None = None
    caller_id_status: str | None = None
    caller_id_validated: bool | None = None
    caller_id_whitelisted: str | None = None
    carrier: str | None = None
    case_closed_at: datetime | None = None
    case_created_at: datetime | None = None
    case_notes: str | None = None
    case_policy_name: str | None = None
    case_ref_id: str | None = None
    case_status: str | None = None
    case_updated_at: datetime | None = None
    correlation_alt_id: str | None = None
    custom_status: str | None = None
    destination_phone_number: str | None = None
    device_risk: str | None = None
    device_score: str | None = None
    device_type: str | None = None
    duration: float = 0.0
    enrollment_policy: str | None = None
    event_id: str | None = None
    event_type: str | None = None
    fraud_status: str | None = None
    fraud_type: str | None = None
    ivr_started_at: datetime | None = field(name="ivrStartTime", default=None)
    line_of_business: str | None = None
    location: str | None = None
    opened_by: str | None = None
    phone_number: str | None = None
    vendor_call_id: str | None = None
    risk_reasons: str | None = None
    risk_result: str | None = None
    risk_score: str = ""
    spoofing_risk_reasons: str | None = None
    spoofing_risk_score: str | None = None
    version: str | None = None
    voice_risk: str | None = None
    voice_score: float | None = None


class VendorEvent(Record, frozen=True, kw_only=True):
    """One event of the provider about a call. Spec: Vendor event."""

    current_time_at: datetime | None = field(name="currentTime", default=None)
    customer_id: str = ""
    event_id: str = ""
    event_type: str | None = None
    version: int = 0
    call: VendorCall | None = None
    created_at: datetime | None = field(name="createdDateUtc", default=None)
    vendor_event_db_id: str | None = None


UNTOLD = datetime(1970, 1, 1, tzinfo=UTC)
"""The start of a call whose entry does not give one."""


class PersonMatch(Record, frozen=True, kw_only=True):
    """A member who may be the caller, found in the core system by phone number.

    A candidate that cannot be read has an empty ``person_id``. It still counts as a candidate, but can never be
    assigned. ``person_type`` is a `PersonType` or a word newer than the Spec.

    Social security number, licence, date of birth and support password are not read, because nothing here needs them.

    Spec: Person match.
    """

    first_name: str | None = None
    last_name: str = ""
    person_id: str = ""
    name: str = ""
    value_for_core: str = ""
    person_type: str | None = None


class QueueEntry(Record, frozen=True, kw_only=True):
    """An active call as the queue lists it.

    ``core_username`` is the operator who has claimed the call, if any. An entry that cannot be read has the default
    values: no voice id. Assumed (`queue-entry-usable`): entries can be read, and name their call.

    Assumed (`queue-candidates`): no candidates are null or an empty list; they may come later than the call.

    Spec: Queue entry.
    """

    vital = frozenset({"voice_id", "person_id", "core_username", "persons"})

    phone_number: str = ""
    voice_id: str = ""
    person_id: str | None = None
    core_username: str | None = None
    started_at: datetime = field(name="startDateTime", default=UNTOLD)
    persons: Listed[PersonMatch] = ()

    @property
    def id(self) -> str:
        """The call's id in the canonical spelling; ``voice_id`` is spelled as the service does."""
        return canonical_id(self.voice_id)


class MetaData(Record, frozen=True, kw_only=True):
    """What was applied to a call: the names of policies.

    Assumed (`metadata-without-policies`): none are an empty list, or null in any place.

    Spec: Phone call record.
    """

    vital = frozenset({"vendor_policies"})

    vendor_policies: Listed[str] = ()


class ResearchCase(Record, frozen=True, kw_only=True):
    """A fraud investigation that a call belongs to. ``research_status`` is a `ResearchStatus` or newer.

    Spec: Research case.
    """

    vital = frozenset({"research_status"})

    id: str = ""
    voice_id: str = ""
    phone_number: str = ""
    first_name: str | None = None
    last_name: str | None = None
    person_id: str | None = None
    user_name_assigned: str | None = None
    value_for_core: str | None = None
    comment: str | None = None
    call_started_at: datetime | None = field(name="callStartDateUtc", default=None)
    research_status: str = ""
    other_calls: "Listed[PhoneCall]" = ()


class PhoneCall(Record, frozen=True, kw_only=True):
    """A call's full record.

    ``status`` is a `CallStatus` or a word newer than the Spec. ``verified_at`` may be a placeholder (the year 1) on a
    call that was never verified. Decisions use `policies`, never the raw scores in ``vendor_events``.

    Spec: Phone call record.
    """

    vital = frozenset(
        {
            "voice_id",
            "person_id",
            "core_username",
            "status",
            "meta_data",
            "call_ended",
            "research_case",
            "is_verified",
            "is_enrolled",
            "is_account_enrolled",
            "is_voice_enrolled",
            "is_behavior_enrolled",
            "is_device_enrolled",
            "successful_voice_enrollment",
            "is_voice_verified",
            "is_voice_mismatch",
            "is_high_risk_device",
            "has_voice_match_validation_rule",
        }
    )

    phone_call_id: int = 0
    phone_number: str | None = None
    voice_id: str | None = None
    person_id: str | None = None
    is_verified: bool = False
    is_enrolled: bool = False
    is_account_enrolled: bool = False
    is_voice_enrolled: bool = False
    is_behavior_enrolled: bool = False
    is_device_enrolled: bool = False
    successful_voice_enrollment: bool = False
    is_voice_verified: bool = False
    is_voice_mismatch: bool = False
    is_high_risk_device: bool = False
    verified_at: datetime | None = field(name="verifiedDateTimeUtc", default=None)
    notes: str | None = None
    core_username: str | None = None
    created_at: datetime | None = field(name="createdDateUtc", default=None)
    updated_at: datetime | None = field(name="updatedDateUtc", default=None)
    status: str | None = None
    meta_data: MetaData | None = None
    voice_authentication_error: str | None = None
    call_ended: bool = False
    call_duration: str | None = None
    value_for_core: str | None = None
    validation_rule_id: str | None = None
    validation_rule_name: str | None = None
    verification_questions: Listed[str] = ()
    has_voice_match_validation_rule: bool = False
    first_name: str | None = None
    last_name: str | None = None
    research_case: ResearchCase | None = None
    vendor_events: Listed[VendorEvent] = ()

    @property
    def alternate_ids(self) -> frozenset[str]:
        """The ids that the provider's events in the record give as the call's alternate id.

        Assumed (`alternate-id-field`): that is what ``correlationAltId`` holds (Spec: Vendor call).
        """
        calls = (event.call for event in self.vendor_events)
        return frozenset(call.correlation_alt_id for call in calls if call is not None and call.correlation_alt_id)

    @property
    def has_failed_feedback(self) -> bool:
        """Tell whether the provider got FAILED feedback about the call. Spec: States and transitions, row reject-voice.

        Assumed (`feedback-in-events`): the provider's events in the record show it as ``authenticationFeedback``.
        """
        calls = (event.call for event in self.vendor_events)
        return any(call is not None and call.authentication_feedback == "FAILED" for call in calls)
