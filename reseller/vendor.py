"""The voice provider's events, as the service hands them on inside a call's record.

Raw scores are for reading only: caller handling is decided by policies, never by them (Spec, Vendor call).
"""

from datetime import datetime

from msgspec import field

from reseller.record import Record


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
    """One event of the provider about a call.

    Spec: Vendor event.
    """

    current_time_at: datetime | None = field(name="currentTime", default=None)
    customer_id: str = ""
    event_id: str = ""
    event_type: str | None = None
    version: int = 0
    call: VendorCall | None = None
    created_at: datetime | None = field(name="createdDateUtc", default=None)
    vendor_event_db_id: str | None = None
