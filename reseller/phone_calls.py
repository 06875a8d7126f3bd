"""Calls as the service tells them: the queue's entries with their candidates, and a call's full record."""

from datetime import UTC, datetime

from msgspec import field

from reseller.record import Listed, Record
from reseller.secret import Secret
from reseller.vendor import VendorEvent

UNTOLD = datetime(1970, 1, 1, tzinfo=UTC)
"""Start of a call whose entry does not say when it started."""


class DriverLicense(Record, frozen=True, kw_only=True):
    """A candidate's driver licence, all of it sensitive.

    Spec: Person match.
    """

    number: Secret | None = None
    issuer: Secret | None = None
    expiration_date: Secret | None = None


class PersonMatch(Record, frozen=True, kw_only=True):
    """A member who may be the caller, found in the core system by phone number.

    A candidate that cannot be read is still a candidate: it has an empty ``person_id``, so that it counts
    when candidates are counted and can never be assigned. ``person_type`` is a `PersonType` or a word newer
    than the Spec; ``date_of_birth`` reveals an ISO date.

    Spec: Person match.
    """

    first_name: str | None = None
    last_name: str = ""
    person_id: str = ""
    name: str = ""
    last4_ssn: Secret | None = None
    full_ssn: Secret | None = None
    driver_license: DriverLicense | None = None
    value_for_core: str = ""
    date_of_birth: Secret | None = None
    support_password: Secret | None = None
    person_type: str | None = None


class QueueEntry(Record, frozen=True, kw_only=True):
    """An active call as the queue lists it.

    ``core_username`` is the operator who has claimed the call, if any. The defaults are what an entry that
    cannot be read becomes; `is_usable` tells it from a real one.

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
    def is_usable(self) -> bool:
        """Whether the entry names its call."""
        return bool(self.voice_id)


class MetaData(Record, frozen=True, kw_only=True):
    """What was applied to a call: the names of policies.

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

    ``status`` is a `CallStatus` or a word newer than the Spec. ``verified_at`` may be a placeholder (the
    year 1) on a call that was never verified. Decisions use `policies`, never the raw scores in
    ``vendor_events``.

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
    def policies(self) -> tuple[str, ...]:
        """Names of the policies applied to the call, in the service's order."""
        return () if self.meta_data is None else self.meta_data.vendor_policies

    @property
    def alternate_ids(self) -> frozenset[str]:
        """Ids that the provider's events in the record name as the call's alternate id.

        Assumed: that is what ``correlationAltId`` holds (Spec: Vendor call).
        """
        calls = (event.call for event in self.vendor_events)
        return frozenset(call.correlation_alt_id for call in calls if call is not None and call.correlation_alt_id)
