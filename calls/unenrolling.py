"""An enroll that a reject of the same member took back: how it is noticed, when stored details are read for it. Pure.

The service takes back every earlier enroll of a member whose voice is rejected in any call, also those of calls that are
over (Spec: States, row reject-voice). Assumed: it may do so at once or a little later, and it writes
FullAuthenticationUnenrolled, which later activities may overwrite, or takes the manual policy away.
"""

from datetime import datetime, timedelta
from zlib import crc32

from msgspec.structs import replace

from calls.facts import Status
from calls.policies import MANUAL_GREEN
from calls.record import DONE, Call, EffectState, Reading, Reason
from calls.steps import Read, Rest, Step, Wait

RECHECK_S = (2.0, 60.0, 600.0)
"""When after a reject of the member a settled call is read; not again once it says that the enroll was taken back."""

SPREAD_S = 30
"""Over how many seconds the calls of a member are read, so that they do not compete with live ones."""

TAKEN_BACK = "enroll taken back"
"""The attention item of such a call."""

_ENROLLED_ANEW = frozenset({Status.ACCEPT_CALLER_VOICE, Status.FULL_AUTHENTICATION})


def is_enrolled(call: Call) -> bool:
    """Tell whether an enroll of the call is known to be in force, whoever made it."""
    return not call.unenrolled_seen and (call.enroll.state in DONE or call.enrolled_seen)


def is_rejected(call: Call) -> bool:
    """Tell whether a reject of the call is recorded; one by a validation rule takes no enroll back."""
    return call.reject.state in DONE or (call.rejected_seen and not call.rejected_by_rule_only)


def needs_person(call: Call) -> bool:
    """Tell whether somebody has to be told that the enroll was taken back; whoever rejected the call itself knows."""
    return call.unenrolled_seen and call.unenroll_closed_by is None and not is_rejected(call)


def fold_member_rejected(call: Call, now: datetime) -> Call:
    """Take note of a reject in another call of the member."""
    if not is_enrolled(call):
        return call
    next_read_at = call.next_read_at if call.is_settled else now + timedelta(seconds=RECHECK_S[0])
    return replace(call, recheck_from=now, next_read_at=next_read_at)


def fold_unenrolled(before: Call, call: Call, reading: Reading) -> Call:
    """Return a call with what a reading says about its enroll being taken back.

    ``before`` is the call as it was before the reading, ``call`` with all else that the reading says.
    """
    had_policy = before.reading is not None and MANUAL_GREEN in before.reading.policies
    is_policy_gone = had_policy and MANUAL_GREEN not in reading.policies
    is_told = reading.status == Status.FULL_AUTHENTICATION_UNENROLLED
    was_taken = is_told or (is_policy_gone and (call.recheck_from is not None or is_rejected(call)))
    if not was_taken or (is_policy_gone and not is_told and reading.status in _ENROLLED_ANEW):
        is_anew = reading.status in _ENROLLED_ANEW
        return replace(call, unenrolled_seen=False) if call.unenrolled_seen and is_anew else call
    enroll = replace(call.enroll, state=EffectState.TAKEN_BACK) if call.enroll.state in DONE else call.enroll
    return replace(
        call,
        enroll=enroll,
        unenrolled_seen=True,
        recheck_from=None,
        enrolled_seen=False,
        authenticated_seen=False,
        full_authentication_seen=False,
        reason=Reason.UNENROLLED if call.reason is Reason.ENROLLED else call.reason,
    )


def recheck(call: Call, now: datetime) -> Step:
    """Return the next step of a settled call whose enroll may have been taken back."""
    if call.recheck_from is None or call.not_found_since is not None:
        return Rest()
    spread = timedelta(seconds=crc32(call.voice_id.encode()) % SPREAD_S)
    read_at = call.reading.read_at if call.reading else None
    times = [call.recheck_from + spread + timedelta(seconds=after_s) for after_s in RECHECK_S]
    due = next((at for at in times if read_at is None or read_at < at), None)
    if due is None or now > times[-1] + timedelta(seconds=RECHECK_S[-1]):
        return Rest()
    if call.reads_failed and call.next_read_at is not None:
        due = max(due, call.next_read_at)
    return Read("a reject of the member") if due <= now else Wait(due)
