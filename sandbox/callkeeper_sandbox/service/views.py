"""The service's view of a call: the queue entry and the full record, built from the current state."""

import datetime as dt
import uuid
from typing import Literal

import msgspec

from callkeeper_sandbox.service import effects
from callkeeper_sandbox.service.records import (
    NEVER,
    MetaData,
    PersonMatch,
    PhoneCall,
    QueueEntry,
    ResearchCase,
    VendorCall,
    VendorEvent,
)
from callkeeper_sandbox.service.state import Call, Member
from callkeeper_sandbox.service.world import World

_IDS = uuid.UUID("00000000-0000-4000-8000-000000000000")
_CUSTOMER = str(uuid.uuid5(_IDS, "customer"))


def _listed_id(world: World, call: Call) -> str:
    return call.alternate_id if world.options.moves_id and call.person_id is None else call.voice_id


def queue_entry(world: World, call: Call) -> QueueEntry:
    """Show a live call with its candidates.

    Spec: Queue entry.
    """
    return QueueEntry(
        phone_number=call.phone_number,
        voice_id=world.spelled(_listed_id(world, call), "queue"),
        person_id=person_shown(world, call, "queue"),
        core_username=call.core_username,
        start_date_time=world.options.shown_start(call.started_at),
        persons=_persons(world, call),
    )


def _persons(world: World, call: Call) -> list[PersonMatch] | msgspec.Raw | None:
    if call.persons is not None:
        return msgspec.Raw(msgspec.json.encode(call.persons))
    return _matched(world, call) or None


def _matched(world: World, call: Call) -> list[PersonMatch]:
    return [member.person for member in world.candidates(call)]


def person_shown(world: World, call: Call, place: Literal["queue", "details"]) -> str | None:
    """Return the person whom the call shows: the assigned one, or the only match if that is filled in there."""
    matched = _matched(world, call) if place in world.options.prefills_person and call.persons is None else []
    return call.person_id or (matched[0].person_id if len(matched) == 1 else None)


def phone_call(world: World, call: Call) -> PhoneCall:
    """Show the whole record of a call.

    Assumed: which enrolment flags an enroll raises; the Spec names the flags only.

    Spec: Phone call record.
    """
    person_id = person_shown(world, call, "details")
    member = world.member(call.institution_key, person_id)
    enrolled = call.manual_person_id is not None
    return PhoneCall(
        phone_call_id=call.call_id,
        phone_number=call.phone_number,
        voice_id=world.spelled(call.voice_id, "details"),
        person_id=person_id,
        is_verified=call.verified_at is not None,
        is_enrolled=enrolled,
        is_account_enrolled=enrolled,
        is_voice_enrolled=enrolled or call.voice_validated,
        is_behavior_enrolled=False,
        is_device_enrolled=enrolled,
        successful_voice_enrollment=enrolled,
        is_voice_verified=call.voice_validated,
        is_voice_mismatch=call.is_mismatch,
        is_high_risk_device=call.is_high_risk_device,
        verified_date_time_utc=call.verified_at or NEVER,
        notes=call.notes,
        core_username=call.core_username,
        created_date_utc=call.started_at,
        updated_date_utc=call.updated_at,
        status=_status(world, call),
        meta_data=MetaData(_policies(world, call)),
        voice_authentication_error=call.error,
        call_ended=call.ended_at is not None,
        call_duration=str(dt.timedelta(seconds=int(_duration_s(call)))) if call.ended_at else None,
        value_for_core=member.person.value_for_core if member else None,
        validation_rule_id=None,
        validation_rule_name=None,
        verification_questions=None,
        has_voice_match_validation_rule=False,
        first_name=member.person.first_name if member else None,
        last_name=member.person.last_name if member else None,
        research_case=_research_case(call, member),
        vendor_events=[_end_event(call, call.ended_at)] if call.ended_at else None,
    )


def _status(world: World, call: Call) -> str | None:
    """Return the latest visible activity."""
    seen_until = world.clock() - dt.timedelta(seconds=world.options.status_lag_s)
    shown = [activity for activity in call.activities if activity.at <= seen_until] or call.activities[:1]
    return shown[-1].name


def _policies(world: World, call: Call) -> list[str]:
    """Return the visible policies. Those that verified the call may appear later than its status."""
    lag = dt.timedelta(seconds=world.options.policy_lag_s)
    if call.verified_at is None or call.verified_at + lag <= world.clock():
        return call.applied_policies
    return [policy for policy in call.applied_policies if not effects.is_green(policy)]


def _duration_s(call: Call) -> float:
    return (call.ended_at - call.started_at).total_seconds() if call.ended_at else 0.0


def _research_case(call: Call, member: Member | None) -> ResearchCase | None:
    if call.research_status is None:
        return None
    return ResearchCase(
        id=str(uuid.uuid5(_IDS, f"case {call.voice_id}")),
        voice_id=call.research_voice_id or call.voice_id,
        phone_number=call.phone_number,
        first_name=member.person.first_name if member else None,
        last_name=member.person.last_name if member else None,
        person_id=call.person_id,
        call_start_date_utc=call.started_at,
        research_status=call.research_status,
        other_calls=[],
    )


def _end_event(call: Call, ended_at: dt.datetime) -> VendorEvent:
    """Show the provider's final analysis, the only place where raw scores appear."""
    event_id = str(uuid.uuid5(_IDS, f"end {call.voice_id}"))
    return VendorEvent(
        current_time=ended_at,
        customer_id=_CUSTOMER,
        event_id=event_id,
        event_type="CallEnded",
        version=1,
        call=VendorCall(
            account=call.aliases[-1] if call.aliases else None,
            authentication_feedback=call.feedback[-1] if call.feedback else None,
            authentication_policy=call.policies[0] if call.policies else "None",
            authentication_result=call.voice_validated,
            call_end_time=ended_at,
            call_start_time=call.started_at,
            correlation_alt_id=call.alternate_id,
            destination_phone_number=call.destination,
            duration=_duration_s(call),
            event_id=event_id,
            event_type="CallEnded",
            phone_number=call.phone_number,
            risk_score="10",
            vendor_call_id=call.voice_id,
            voice_score=0.5,
        ),
        created_date_utc=ended_at,
        vendor_event_db_id=None,
    )
