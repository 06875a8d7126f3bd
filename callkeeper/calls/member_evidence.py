"""Answers from a record whose evidence it is: who is assigned, enrolled, rejected, and what speaks against them.

`callkeeper.calls.seen_folding` keeps apart what a call showed of each member. Pure functions.
"""

from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, PERHAPS_DONE
from callkeeper.calls.notes import statement_order
from callkeeper.calls.policies import MANUAL_GREEN
from callkeeper.calls.record import Call, Seen
from callkeeper.service.enumerations import CallStatus

ENROLLED = frozenset({CallStatus.ACCEPT_CALLER_VOICE, CallStatus.FULL_AUTHENTICATION})
"""The activities that an enroll writes. Spec: States, row enroll."""


def named_by_desk(call: Call) -> str | None:
    """Return whom the desk has named as the caller, if that is not who is assigned; else None.

    It counts whether or not they could be assigned, until that is done or withdrawn, or the desk verifies somebody else.
    """
    wish, identity, assign = call.statements.assign_wish, call.statements.identity, call.ledger.assign
    if wish is None or wish.person_id in {None, call.seen.person_id}:
        return None
    is_done = assign.state in DONE and assign.person_id == wish.person_id and wish.number <= assign.last_word
    said = statement_order(wish.number, wish.said_at)
    is_over = (
        identity is not None
        and identity.by_desk
        and identity.person_id != wish.person_id
        and statement_order(identity.number, identity.established_at) > said
    )
    return None if is_done or is_over else wish.person_id


def usable_answers(seen: Seen) -> int:
    """Return the checks for the assigned member that said something, as a bit set."""
    signs = seen.history.signs
    silent = signs.get("provider_error", 0) | signs.get("voice_pending", 0)
    return seen.history.answered & ~silent & ~seen.unusable_answers


def is_assigned(call: Call) -> bool:
    """Tell whether somebody has assigned the member who stands on the call, as far as is known."""
    ours = call.ledger.assigned_person_id
    return call.seen.core_username is not None or (ours is not None and ours == call.seen.person_id)


def enrolled_person(call: Call) -> str | None:
    """Return for whom the voice was or may have been enrolled; None if for nobody, or if that is not known.

    A policy that was first read with the next member may be the one before's, unless the enroll is the last activity.
    """
    enroll, reading = call.ledger.enroll, call.seen.reading
    known = (enroll.person_id if enroll.state in PERHAPS_DONE else None) or call.ledger.enrolled_for
    is_doubtful = MANUAL_GREEN in call.seen.of_another and reading is not None and reading.status not in ENROLLED
    return known or (None if is_doubtful else call.seen.person_id)


def is_enrolled(call: Call) -> bool:
    """Tell whether an enroll of the call is known to be in force, by whomever."""
    return not call.seen.unenrolled and (call.ledger.enroll.state in DONE or call.seen.enrolled)


def is_perhaps_enrolled(call: Call) -> bool:
    """Tell whether an enroll of the call is in force, or ours was sent and may be."""
    return is_enrolled(call) or call.ledger.enroll.state in IN_DOUBT


def is_rejected(call: Call) -> bool:
    """Tell whether a reject of the call is recorded. A reject by a validation rule does not count: it keeps enrolls."""
    return call.ledger.reject.state in DONE or (call.seen.rejected and not call.seen.rejected_by_rule_only)


def is_rejection_standing(call: Call) -> bool:
    """Tell whether a reject of the call is recorded, and no enroll that came after it is in force."""
    return is_rejected(call) and not is_enrolled(call)


def may_be_rejected(call: Call) -> bool:
    """Tell whether the provider got FAILED feedback: perhaps by a reject that a later status hides.

    Not if a validation rule rejected the voice: that explains the feedback, and takes no enroll back.
    """
    return call.seen.failed_feedback and not call.seen.rejected_by_rule_only


def enrolled_member(call: Call) -> str | None:
    """Return whose voice was enrolled in the call, as far as is known; None if nobody's."""
    return enrolled_person(call) if is_enrolled(call) else None


def established_member(call: Call) -> str | None:
    """Return as whom the caller is established: the member who stands on the call, and nobody if the voice was rejected.

    It does not matter how: verified by a person or by the service, enrolled, or recognised by the voice.
    """
    member, identity = call.seen.person_id, call.statements.identity
    is_verified = identity is not None and identity.person_id == member
    is_known = is_verified or enrolled_member(call) == member or call.seen.recognised
    return member if is_known and not is_rejected(call) else None


def rejected_member(call: Call) -> str | None:
    """Return whose voice was rejected in the call or, by the provider's feedback, may have been; None if nobody's."""
    reject = call.ledger.reject
    person_id = reject.person_id if reject.state in DONE else call.seen.person_id
    return person_id if is_rejected(call) or may_be_rejected(call) else None
