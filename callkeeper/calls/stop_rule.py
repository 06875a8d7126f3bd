"""The stop rule: what forbids a further authentication check of a call. Pure functions.

Spec: Polling stop rule for authentication checks.
"""

from callkeeper.calls.fact_derivation import is_decided, is_rejected_by_anyone
from callkeeper.calls.policies import Policies
from callkeeper.calls.record import CHECK_LIMIT, Call, Obstacles
from callkeeper.calls.schedule.plan import Schedule, reserve_left

NO_CHECKS_LEFT = "no_checks_left"


def check_obstacle(call: Call, obstacles: Obstacles, policies: Policies) -> str | None:
    """Return what forbids a further check; None if nothing."""
    if obstacles.standing is not None:
        return "institution_not_allowed"
    if call.life.ended_at is not None:
        return "call_ended"
    if is_rejected_by_anyone(call):
        return "voice_rejected"
    if call.plan.checks_used >= CHECK_LIMIT:
        return NO_CHECKS_LEFT
    return "already_decided" if is_decided(call, policies) else None


def desk_check_obstacle(call: Call, obstacles: Obstacles, schedule: Schedule, policies: Policies) -> str | None:
    """Return what forbids a check that a person asks for: what forbids any check, or a spent reserve."""
    return check_obstacle(call, obstacles, policies) or (None if reserve_left(call, schedule) else "reserve_spent")
