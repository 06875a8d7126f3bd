"""The effects of requests and happenings on a call: one function per row of the Spec's table of states.

Spec: States and transitions.
"""

import datetime as dt

from callkeeper_sandbox.service.answers import RefusedError
from callkeeper_sandbox.service.records import Status, ValidationType
from callkeeper_sandbox.service.state import (
    GREEN_POLICY,
    PROVIDER_KINDS,
    RED_POLICY,
    Call,
    Happening,
    Kind,
    Truth,
    Verification,
    write,
)
from callkeeper_sandbox.service.world import World

MAX_CHECKS = 20
"""Spec: Limits."""

_ACTIVITIES = {
    Kind.ANSWERED_QUESTIONS: Status.ANSWERED_QUESTIONS,
    Kind.MFA_VALIDATED: Status.MFA_VALIDATED,
    Kind.SENT_SMS: Status.SENT_SMS,
    Kind.SENT_EMAIL: Status.SENT_EMAIL,
    Kind.OPT_IN: Status.OPT_IN,
    Kind.OPT_OUT: Status.OPT_OUT,
    Kind.VIEWED: Status.AGENT_VIEWED,
    Kind.REJECTED_BY_RULE: Status.REJECTED_BY_RULE,
}
_VALIDATION_TYPES = {
    Kind.ANSWERED_QUESTIONS: ValidationType.KNOWLEDGE_BASED,
    Kind.MFA_VALIDATED: ValidationType.ONE_TIME_PASSWORD,
}
_OVERWRITTEN_BY_A_CHECK = frozenset(
    {Status.STARTED, Status.GRABBED, Status.AGENT_VIEWED, Status.PENDING, Status.CHECKED}
)


def is_green(policy: str) -> bool:
    """Tell whether a policy authenticates (Assumed: by its first word, as in `Green Manual Authentication`)."""
    return policy.startswith("Green")


def is_red(policy: str) -> bool:
    """Tell whether a policy is red (Assumed: by its first word)."""
    return policy.startswith("Red")


def assign(world: World, call: Call, person_id: str, by: str, at: dt.datetime) -> None:
    """Record an operator's claim and correlate the account with the provider.

    Assumed: the claim is written as the activity GrabbedCall.

    Spec: Rules per operation 1; What the service does 6 (c).
    """
    if call.person_id not in {None, person_id} and world.options.assign_over != "replaces":
        if world.options.assign_over == "refused":
            raise RefusedError("The call is assigned.", "AlreadyAssigned")
        return
    call.person_id = person_id
    call.core_username = by
    call.aliases.append(f"{call.institution_key}-{person_id}")
    if world.options.assign_writes_status:
        write(call, Status.GRABBED, at, by)


def is_stopped(call: Call) -> bool:
    """Tell whether the service no longer queries the provider for a call.

    Spec: Polling stop rule for authentication checks.
    """
    return (
        call.fully_authenticated
        or call.rejected
        or any(map(is_red, call.applied_policies))
        or call.ended_at is not None
        or call.checks_used >= MAX_CHECKS
    )


def check(call: Call, by: str, at: dt.datetime) -> bool:
    """Query the provider unless a stop condition holds; return whether it was queried.

    Assumed: a check without a decision writes CheckRiskAndAuthentication (or `Voice Pending`) only over a status that
    means that the call began or was seen.

    Spec: States and transitions, row 1; Rules per operation 2.
    """
    if is_stopped(call):
        return False
    call.checks_used += 1
    had_mismatch = call.is_mismatch
    _settle(call)
    if any(map(is_green, call.policies)):
        _authenticate(call, by, at)
    elif call.is_mismatch and not had_mismatch:
        write(call, Status.MISMATCH, at)
    elif call.status in _OVERWRITTEN_BY_A_CHECK:
        status = Status.PENDING if call.provider.is_pending else Status.CHECKED
        if status != call.status:
            write(call, status, at, by)
    return True


def _settle(call: Call) -> None:
    call.policies = list(call.provider.policies)
    call.is_mismatch = call.provider.is_mismatch
    call.is_high_risk_device = call.provider.is_high_risk_device


def _authenticate(call: Call, by: str, at: dt.datetime) -> None:
    call.fully_authenticated = True
    call.voice_validated = True
    call.verified_at = at
    call.verifications.append(Verification(call.person_id, ValidationType.VOICE_AUTH, at, by))
    write(call, Status.FULL_AUTHENTICATION, at, by)


def enroll(
    world: World, call: Call, person_id: str, kind: ValidationType, notes: str | None, by: str | None, at: dt.datetime
) -> None:
    """Accept the caller's voice as the person's, also on a green call.

    Spec: States and transitions, row 2; Rules per operation 3.
    """
    if call.person_id is None:
        call.person_id = person_id
    for status in (Status.ACCEPTED, Status.FULL_AUTHENTICATION):
        write(call, status, at, by)
    call.manual_person_id = person_id
    call.fully_authenticated = True
    call.verified_at = at
    call.notes = notes if notes is not None else call.notes
    call.verifications.append(Verification(person_id, kind, at, by, notes))
    call.feedback.append("SUCCESSFUL")
    world.manual[call.institution_key, person_id][call.voice_id] = call


def reject(world: World, call: Call, by: str | None, at: dt.datetime) -> None:
    """Reject the caller's voice and un-enroll all manual authentications of the member, including this call's.

    Assumed: the un-enrolled calls lose the manual policy, and RejectCallerVoice is written last.

    Spec: States and transitions, row 3.
    """
    if call.person_id is not None:
        enrolled = world.manual.pop((call.institution_key, call.person_id), {})
        later_s = world.options.unenroll_after_s
        for other in enrolled.values():
            if other is call or not later_s:
                _unenroll(world, other, at, by)
            else:
                world.schedule(other, Happening(Kind.UNENROLLED, later_s, by), at)
    call.rejected = True
    call.feedback.append("FAILED")
    write(call, Status.REJECTED, at, by)


def _unenroll(world: World, call: Call, at: dt.datetime, by: str | None) -> None:
    call.manual_person_id = None
    call.fully_authenticated = False
    call.truth.append(Truth(Kind.UNENROLLED, at))
    if world.options.unenroll_writes_status:
        write(call, Status.UNENROLLED, at, by)


def end(world: World, call: Call, at: dt.datetime) -> None:
    """End a call: apply the provider's final analysis, remove the call from the queue, and send a push.

    Spec: States and transitions, row 4; What the service does 6 (f).
    """
    _settle(call)
    call.ended_at = at
    call.updated_at = at
    if world.options.end_writes_status:
        write(call, Status.ENDED, at)
    world.ended(call, at)


def happen_now(world: World, call: Call, happening: Happening) -> None:
    """Change a call at once, whatever the happening's own delay."""
    happen(world, call, happening, world.clock())


def happen(world: World, call: Call, happening: Happening, at: dt.datetime) -> None:
    """Change a call without a request. After its end, results of the provider have no effect."""
    kind = happening.kind
    if call.ended_at is not None and (kind in PROVIDER_KINDS or kind is Kind.END):
        return
    if kind is not Kind.UNENROLLED:  # recorded elsewhere
        call.truth.append(Truth(kind, at, happening.text))
    if kind in PROVIDER_KINDS:
        _analyse(call, happening)
    elif kind in _ACTIVITIES:
        _act_elsewhere(call, happening, at)
    else:
        _change(world, call, happening, at)


def _analyse(call: Call, happening: Happening) -> None:
    provider = call.provider
    provider.is_pending = happening.kind is Kind.PENDING
    match happening.kind:
        case Kind.GREEN:
            provider.policies.append(happening.text or GREEN_POLICY)
        case Kind.RED:
            provider.policies.append(happening.text or RED_POLICY)
        case Kind.POLICY:
            provider.policies.append(happening.text or "Yellow Review")
        case Kind.MISMATCH:
            provider.is_mismatch = True
        case Kind.HIGH_RISK:
            provider.is_high_risk_device = True
        case _:
            pass


def _act_elsewhere(call: Call, happening: Happening, at: dt.datetime) -> None:
    kind, by = happening.kind, happening.text or "elsewhere"
    write(call, _ACTIVITIES[kind], at, by)
    if kind is Kind.REJECTED_BY_RULE:
        call.rejected = True
    if kind in _VALIDATION_TYPES:
        person = happening.person_id or call.person_id
        call.verifications.append(Verification(person, _VALIDATION_TYPES[kind], at, by))


def _change(world: World, call: Call, happening: Happening, at: dt.datetime) -> None:
    text, person_id = happening.text, happening.person_id
    match happening.kind:
        case Kind.CLAIMED if person_id is not None:
            assign(world, call, person_id, text or "elsewhere", at)
        case Kind.CLAIMED:
            call.core_username = text or "elsewhere"
            write(call, Status.GRABBED, at, call.core_username)
        case Kind.ENROLLED:
            person_id = person_id or call.person_id or "unknown"
            enroll(world, call, person_id, ValidationType.OTHER, None, text or "elsewhere", at)
        case Kind.REJECTED:
            reject(world, call, text or "elsewhere", at)
        case Kind.UNENROLLED:
            world.manual.get((call.institution_key, call.manual_person_id or ""), {}).pop(call.voice_id, None)
            _unenroll(world, call, at, text)
        case Kind.STATUS:
            write(call, text or "", at)
        case Kind.CASE:
            call.research_status, call.research_voice_id = text or "NeedsReview", None
        case Kind.CASE_ELSEWHERE:
            call.research_status, call.research_voice_id = text or "NeedsReview", f"other-{call.voice_id}"
        case Kind.ERROR:
            call.error = text or "voice authentication failed"
        case _:
            end(world, call, at)
