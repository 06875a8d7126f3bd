"""Folds what the service shows of a call into `Seen`: readings, answers of checks, another member, another record.

What was true once is remembered for the whole call. But once the member is changed after the first check, what the voice
showed until then counts for and against nobody, also if the first member comes back: it may be about either of them, and a
mismatch may only have meant that the first one was wrong. So it is forgotten, and what the service goes on showing is in
doubt until it changes (``Seen.of_another``). What was seen of the device stays, as do policies that are red or have no
colour. Pure functions.
"""

from datetime import datetime

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import PERHAPS_DONE
from callkeeper.calls.fact_derivation import has_green_voice, signs_of
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import Call, Reading, Seen
from callkeeper.calls.settlement import SETTLE_AFTER
from callkeeper.calls.statuses import FRAUD, REFUTED, REJECTED
from callkeeper.service.enumerations import CallStatus

MISMATCH, FULL_AUTHENTICATION = "voice_mismatch", "full_authentication"
"""What ``Seen.of_another`` can hold besides names of policies."""


def with_reading(call: Call, reading: Reading, policies: Policies, *, ended_at: datetime | None) -> Seen:
    """Return what the service has shown of a call, with a reading added. ``ended_at``: when the call ended, if it has.

    What it shows together with another member was perhaps there before that one came. So it is folded first.
    """
    status, before = reading.status, call.seen
    seen = before if before.person_id is not None else replace(before, person_id=reading.person_id)
    shown = shown_of_voice(reading)
    of_another = tuple([one for one in shown if one in before.of_another])
    new = [one for one in shown if one not in of_another]
    opts_in = status == CallStatus.VOICE_OPT_IN and is_new_opt_in(before)
    opts_out = status == CallStatus.VOICE_OPT_OUT and (before.reading is None or before.reading.status != status)
    by_rule_only = seen.rejected_by_rule_only or (status == CallStatus.REJECT_BY_RULE and not seen.rejected)
    seen = replace(
        seen,
        reading=reading,
        frauds=_frauds(seen, reading),
        final_since=_final_since(call.seen, reading, ended_at),
        core_username=reading.core_username or seen.core_username,
        authenticated=seen.authenticated or (FULL_AUTHENTICATION in new and _is_authenticated(call, reading)),
        full_authentication=seen.full_authentication or FULL_AUTHENTICATION in new,
        rejected=seen.rejected or status in REJECTED,
        rejected_by_rule_only=status != CallStatus.REJECT_CALLER_VOICE and by_rule_only,
        enrolled=seen.enrolled or status == CallStatus.ACCEPT_CALLER_VOICE or MANUAL_GREEN in reading.policies,
        opted_out=seen.opted_out or status == CallStatus.VOICE_OPT_OUT,
        opted_in=seen.opted_in or status == CallStatus.VOICE_OPT_IN,
        opted_in_last=(seen.opted_in_last or opts_in) and not opts_out,
        mismatch=seen.mismatch or MISMATCH in new,
        risky_device=seen.risky_device or reading.is_high_risk_device,
        red=seen.red or Colour.RED in policies.colours(reading.policies),
        pending=seen.pending or status == CallStatus.VOICE_PENDING,
        failed_feedback=seen.failed_feedback or reading.has_failed_feedback,
        was_named=seen.was_named or reading.person_id is not None,
        history=seen.history.with_read(reading.policies),
        of_another=of_another,
    )
    is_known = seen.person_id is not None and has_green_voice(replace(call, seen=seen), policies)
    seen = replace(seen, recognised=seen.recognised or is_known)
    seen = of_member(seen, reading.person_id, call.plan.checks_used)
    return replace(seen, expects_voice=seen.expects_voice or reading.expects_voice)


def is_new_opt_in(before: Seen) -> bool:
    """Tell whether an opt-in that a reading shows is new: the last reading did not show it.

    In the first reading it is new, unless a person has already said that the caller opted out.
    """
    return not before.opted_out if before.reading is None else before.reading.status != CallStatus.VOICE_OPT_IN


def _is_authenticated(call: Call, reading: Reading) -> bool:
    """Tell whether the voice led to FullAuthentication, and no enroll did."""
    by_hand = call.ledger.enroll.state in PERHAPS_DONE or call.seen.enrolled
    by_voice = reading.status == CallStatus.FULL_AUTHENTICATION and reading.is_voice_verified
    return by_voice and not by_hand and MANUAL_GREEN not in reading.policies


def _final_since(before: Seen, reading: Reading, ended_at: datetime | None) -> datetime | None:
    """Return since when reads after the end have shown the same policies and signs; None before the end.

    A read within ``SETTLE_AFTER`` of the end begins nothing: the provider's analysis comes with the end or after it.
    """
    if ended_at is None:
        return None
    shown, since = before.reading, before.final_since
    if shown is None or since is None or since > reading.read_at or since < ended_at + SETTLE_AFTER:
        return reading.read_at
    is_same = (set(shown.policies), signs_of(shown)) == (set(reading.policies), signs_of(reading))
    return since if is_same else reading.read_at


def _frauds(seen: Seen, reading: Reading) -> tuple[str, ...]:
    """Return the calls whose case was determined as fraud, until it is refuted. The record shows one case at a time.

    Assumed (`research-case`): a case that is archived or opened again was not refuted.
    """
    frauds, last = dict.fromkeys(seen.frauds), seen.reading
    if last is not None and last.research_status == FRAUD:  # records of earlier versions have it only here
        frauds[last.research_voice_id or ""] = None
    if reading.research_status == FRAUD:
        frauds[reading.research_voice_id or ""] = None
    elif reading.research_status == REFUTED:
        frauds.pop(reading.research_voice_id or "", None)
    return tuple(frauds)


def with_answered_check(seen: Seen, check: int, reading: Reading, signs: tuple[str, ...], *, can_tell: bool) -> Seen:
    """Add what the answer of one check shows of the member who is assigned now, if it can tell anything of the voice."""
    return replace(
        seen,
        history=seen.history.with_answer(check, reading.policies, signs),
        unusable_answers=seen.unusable_answers | (0 if can_tell else 1 << (check - 1)),
        # A mismatch that the next reading still shows counts: the voice was compared with this member's.
        of_another=tuple([one for one in seen.of_another if one != MISMATCH]),
    )


def of_member(seen: Seen, person_id: str | None, checks_used: int) -> Seen:
    """Return what was seen, as far as it is about the member who is assigned now.

    ``person_id`` is that member; None if a reading does not name one, so that the member stays. Somebody else may have made
    a check, too: then the record has shown something of the voice.
    """
    if person_id is None or person_id == seen.person_id:
        return seen
    if seen.person_id is None:
        return replace(seen, person_id=person_id)
    has_shown = seen.recognised or seen.authenticated or seen.full_authentication or seen.mismatch or seen.enrolled
    if not (checks_used or has_shown):
        return replace(seen, person_id=person_id, expects_voice=False)
    return replace(
        seen,
        person_id=person_id,
        member_changed=True,
        recognised=False,
        expects_voice=False,
        authenticated=False,
        full_authentication=False,
        mismatch=False,
        history=seen.history.without_voice(),
        unusable_answers=seen.history.answered,
        of_another=tuple(dict.fromkeys((*seen.of_another, *shown_of_voice(seen.reading)))),
    )


def shown_of_voice(reading: Reading | None) -> tuple[str, ...]:
    """Return what a reading shows of the voice, in the words of ``Seen.of_another``."""
    if reading is None:
        return ()
    is_mismatch = reading.status == CallStatus.VOICE_MISMATCH or reading.is_voice_mismatch
    is_full = reading.status == CallStatus.FULL_AUTHENTICATION
    return (*reading.policies, *([MISMATCH] if is_mismatch else ()), *([FULL_AUTHENTICATION] if is_full else ()))


def joined(one: Call, other: Call) -> Seen:
    """Return what two records of one call have seen. The member of the first counts."""
    ours, theirs = one.seen, other.seen
    rejected = [each for each in (ours, theirs) if each.rejected]
    opted_out = [each for each in (ours, theirs) if each.opted_out]
    both = replace(
        ours,
        person_id=theirs.person_id or ours.person_id,
        core_username=ours.core_username or theirs.core_username,
        candidates=ours.candidates or theirs.candidates,
        had_several_candidates=ours.had_several_candidates or theirs.had_several_candidates,
        authenticated=ours.authenticated or theirs.authenticated,
        full_authentication=ours.full_authentication or theirs.full_authentication,
        rejected=bool(rejected),
        rejected_by_rule_only=bool(rejected) and all(each.rejected_by_rule_only for each in rejected),
        enrolled=ours.enrolled or theirs.enrolled,
        unenrolled=ours.unenrolled or theirs.unenrolled,
        opted_out=bool(opted_out),
        opted_in=ours.opted_in or theirs.opted_in,
        opted_in_last=bool(opted_out) and all(each.opted_in_last for each in opted_out),
        mismatch=ours.mismatch or theirs.mismatch,
        risky_device=ours.risky_device or theirs.risky_device,
        red=ours.red or theirs.red,
        pending=ours.pending or theirs.pending,
        recognised=ours.recognised or theirs.recognised,
        member_changed=ours.member_changed or theirs.member_changed,
        of_another=tuple(dict.fromkeys((*ours.of_another, *theirs.of_another))),
        history=ours.history.joined(theirs.history),
        frauds=tuple(dict.fromkeys((*ours.frauds, *theirs.frauds))),
        failed_feedback=ours.failed_feedback or theirs.failed_feedback,
        expects_voice=ours.expects_voice or theirs.expects_voice,
        was_named=ours.was_named or theirs.was_named,
        unusable_answers=ours.unusable_answers | theirs.unusable_answers,
    )
    joint = of_member(both, ours.person_id, one.plan.checks_used + other.plan.checks_used)
    if joint.person_id == both.person_id or not joint.member_changed:
        return joint
    return replace(joint, of_another=tuple(dict.fromkeys((*joint.of_another, *shown_of_voice(theirs.reading)))))
