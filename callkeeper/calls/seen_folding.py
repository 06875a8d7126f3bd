"""Folds what the service shows of a call into `Seen`: readings, answers of checks, another member, another record.

What was true once is remembered for the whole call. But what the voice showed while another member was assigned is no
evidence for or against the one who is assigned now: a caller who was authenticated may be that other member, and a mismatch
may only have meant that the first member was wrong. So it is forgotten when the member changes, and what the service goes
on showing is in doubt until it changes (``Seen.of_another``). What was seen of the device stays, as do policies that are red
or have no colour. A mismatch counts again if its member comes back. Pure functions.
"""

from datetime import datetime

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import PERHAPS_DONE
from callkeeper.calls.fact_derivation import has_green_voice, signs_of
from callkeeper.calls.member_evidence import answers_about_others, shows_green_voice
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import Call, Reading, Seen
from callkeeper.calls.settlement import SETTLE_AFTER
from callkeeper.calls.statuses import FRAUD, REFUTED, REJECTED
from callkeeper.service.enumerations import CallStatus

MISMATCH, FULL_AUTHENTICATION = "voice_mismatch", "full_authentication"
"""What ``Seen.of_another`` can hold besides names of policies."""


def with_reading(call: Call, reading: Reading, policies: Policies, *, ended_at: datetime | None) -> Seen:
    """Return what the service has shown of a call, with a reading added. ``ended_at``: when the call ended, if it has."""
    status, before = reading.status, call.seen
    seen = of_member(before, reading.person_id)
    shown = shown_of_voice(reading)
    of_another = in_doubt(before, seen.person_id, shown)
    opts_in = status == CallStatus.VOICE_OPT_IN and is_new_opt_in(before)
    opts_out = status == CallStatus.VOICE_OPT_OUT and (before.reading is None or before.reading.status != status)
    by_rule_only = seen.rejected_by_rule_only or (status == CallStatus.REJECT_BY_RULE and not seen.rejected)
    seen = replace(
        seen,
        reading=reading,
        frauds=_frauds(seen, reading),
        final_since=_final_since(call.seen, reading, ended_at),
        core_username=reading.core_username or seen.core_username,
        authenticated=seen.authenticated
        or (FULL_AUTHENTICATION not in of_another and _is_authenticated(call, reading)),
        full_authentication=seen.full_authentication or status == CallStatus.FULL_AUTHENTICATION,
        rejected=seen.rejected or status in REJECTED,
        rejected_by_rule_only=status != CallStatus.REJECT_CALLER_VOICE and by_rule_only,
        enrolled=seen.enrolled or status == CallStatus.ACCEPT_CALLER_VOICE or MANUAL_GREEN in reading.policies,
        opted_out=seen.opted_out or status == CallStatus.VOICE_OPT_OUT,
        opted_in=seen.opted_in or status == CallStatus.VOICE_OPT_IN,
        opted_in_last=(seen.opted_in_last or opts_in) and not opts_out,
        mismatch=seen.mismatch or (MISMATCH in shown and MISMATCH not in of_another),
        risky_device=seen.risky_device or reading.is_high_risk_device,
        red=seen.red or Colour.RED in policies.colours(reading.policies),
        pending=seen.pending or status == CallStatus.VOICE_PENDING,
        failed_feedback=seen.failed_feedback or reading.has_failed_feedback,
        expects_voice=seen.expects_voice or reading.expects_voice,
        was_named=seen.was_named or reading.person_id is not None,
        history=seen.history.with_read(
            [name for name in reading.policies if name not in of_another or not shows_green_voice(name, policies)]
        ),
        of_another=of_another,
    )
    return _with_former_member(before, seen, policies)


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


def with_recognised(call: Call, policies: Policies) -> Call:
    """Return a call that remembers as whom the voice is authenticated, also if only a green policy shows it."""
    member, known_as = call.seen.person_id, call.seen.authenticated_members
    if member is None or member in known_as or not has_green_voice(call, policies):
        return call
    return replace(call, seen=replace(call.seen, authenticated_members=(*known_as, member)))


def with_answered_check(seen: Seen, check: int, reading: Reading, signs: tuple[str, ...], *, can_tell: bool) -> Seen:
    """Add what the answer of one check shows of the member who is assigned now, if it can tell anything of the voice."""
    return replace(
        seen,
        history=seen.history.with_answer(check, reading.policies, signs),
        answered_for=seen.person_id or "",
        unusable_answers=answers_about_others(seen) | (0 if can_tell else 1 << (check - 1)),
        # A mismatch that the next reading still shows counts: the voice was compared with this member's.
        of_another=tuple([one for one in seen.of_another if one != MISMATCH]),
    )


def of_member(seen: Seen, person_id: str | None) -> Seen:
    """Return what was seen, as far as it is about the member who is assigned now.

    ``person_id`` is that member; None if a reading does not name one, so that the member stays.
    """
    if person_id is None or person_id == seen.person_id:
        return seen
    if seen.person_id is None:
        return replace(seen, person_id=person_id)
    mismatched = seen.mismatched_members
    if seen.mismatch and seen.person_id not in mismatched:
        mismatched = (*mismatched, seen.person_id)
    known_as = seen.authenticated_members
    if seen.authenticated and seen.person_id not in known_as:  # it was read before they came
        known_as = (*known_as, seen.person_id)
    return replace(
        seen,
        person_id=person_id,
        authenticated_members=known_as,
        expects_voice=False,
        authenticated=False,
        full_authentication=False,
        mismatch=person_id in mismatched,
        mismatched_members=mismatched,
        history=seen.history.without_voice(),
        answered_for=person_id,
        unusable_answers=seen.history.answered,
        of_another=in_doubt(seen, person_id, shown_of_voice(seen.reading)),
        member_before=seen.person_id,
    )


def in_doubt(before: Seen, person_id: str | None, shown: tuple[str, ...]) -> tuple[str, ...]:
    """Return what of ``shown`` may be about another member than ``person_id``, who is assigned after ``before``."""
    doubtful = before.of_another
    if before.person_id in {None, person_id}:
        return tuple([one for one in shown if one in doubtful])
    if person_id == before.member_before:  # what was there before the other member came is theirs again
        return tuple([one for one in shown if one not in doubtful])
    return shown


def _with_former_member(before: Seen, seen: Seen, policies: Policies) -> Seen:
    """Return what was seen, with evidence about the former member.

    A mismatch or a recognised voice that first showed together with the next member may be about the former one, too.
    """
    former = before.person_id
    if former is None or former == seen.person_id:
        return seen
    came = [one for one in seen.of_another if one not in before.of_another]
    mismatched, known_as = seen.mismatched_members, seen.authenticated_members
    if MISMATCH in came and former not in mismatched:
        mismatched = (*mismatched, former)
    is_known = any(one == FULL_AUTHENTICATION or (one != MISMATCH and shows_green_voice(one, policies)) for one in came)
    if is_known and former not in known_as:
        known_as = (*known_as, former)
    return replace(seen, mismatched_members=mismatched, authenticated_members=known_as)


def shown_of_voice(reading: Reading | None) -> tuple[str, ...]:
    """Return what a reading shows of the voice, in the words of ``Seen.of_another``."""
    if reading is None:
        return ()
    is_mismatch = reading.status == CallStatus.VOICE_MISMATCH or reading.is_voice_mismatch
    is_full = reading.status == CallStatus.FULL_AUTHENTICATION and reading.is_voice_verified
    return (*reading.policies, *([MISMATCH] if is_mismatch else ()), *([FULL_AUTHENTICATION] if is_full else ()))


def joined(ours: Seen, theirs: Seen) -> Seen:
    """Return what two records of one call have seen. The member of ``ours`` counts."""
    is_other_person = ours.answered_for is not None and theirs.answered_for not in {None, ours.answered_for}
    unusable = theirs.history.answered if is_other_person else theirs.unusable_answers
    rejected = [one for one in (ours, theirs) if one.rejected]
    opted_out = [one for one in (ours, theirs) if one.opted_out]
    another = theirs.person_id if ours.person_id not in {None, theirs.person_id} else None
    voice = theirs if another is None else Seen()
    mismatched = dict.fromkeys((*ours.mismatched_members, *theirs.mismatched_members))
    authenticated = dict.fromkeys((*ours.authenticated_members, *theirs.authenticated_members))
    if another is not None and theirs.mismatch:
        mismatched[another] = None
    if another is not None and theirs.authenticated:
        authenticated[another] = None
    return replace(
        ours,
        person_id=ours.person_id or theirs.person_id,
        core_username=ours.core_username or theirs.core_username,
        candidates=ours.candidates or theirs.candidates,
        had_several_candidates=ours.had_several_candidates or theirs.had_several_candidates,
        authenticated=ours.authenticated or voice.authenticated,
        full_authentication=ours.full_authentication or voice.full_authentication,
        rejected=bool(rejected),
        rejected_by_rule_only=bool(rejected) and all(one.rejected_by_rule_only for one in rejected),
        enrolled=ours.enrolled or theirs.enrolled,
        unenrolled=ours.unenrolled or theirs.unenrolled,
        opted_out=bool(opted_out),
        opted_in=ours.opted_in or theirs.opted_in,
        opted_in_last=bool(opted_out) and all(one.opted_in_last for one in opted_out),
        mismatch=ours.mismatch or voice.mismatch or (ours.person_id or theirs.person_id) in mismatched,
        risky_device=ours.risky_device or theirs.risky_device,
        red=ours.red or theirs.red,
        pending=ours.pending or theirs.pending,
        of_another=tuple(dict.fromkeys((*ours.of_another, *theirs.of_another))),
        member_before=ours.member_before or theirs.member_before,
        mismatched_members=tuple(mismatched),
        authenticated_members=tuple(authenticated),
        history=ours.history.joined(theirs.history if another is None else theirs.history.without_voice()),
        frauds=tuple(dict.fromkeys((*ours.frauds, *theirs.frauds))),
        failed_feedback=ours.failed_feedback or theirs.failed_feedback,
        expects_voice=ours.expects_voice or voice.expects_voice,
        was_named=ours.was_named or theirs.was_named,
        answered_for=ours.answered_for if ours.answered_for is not None else theirs.answered_for,
        unusable_answers=ours.unusable_answers | unusable,
    )
