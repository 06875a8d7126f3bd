"""Derives the facts of a call from its record, and answers the questions about a record that need no other fact."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, PERHAPS_DONE, UNDER_WAY, EffectKind, EffectState
from callkeeper.calls.effect_resolution import is_unresolved_overruled
from callkeeper.calls.facts import ENOUGH_ANSWERS, FINAL_APART, LEAST_ANSWERS, VERIFIED_AFTER_END, Facts
from callkeeper.calls.informed_words import unnamed
from callkeeper.calls.member_evidence import (
    enrolled_member,
    enrolled_person,
    is_assigned,
    is_rejected,
    may_be_rejected,
    named_by_desk,
    usable_answers,
)
from callkeeper.calls.notes import statement_order
from callkeeper.calls.pause import PauseScope
from callkeeper.calls.person_lists import NO_LISTS, NamedLists
from callkeeper.calls.policies import MANUAL_GREEN, Colour, Policies
from callkeeper.calls.record import (
    Call,
    CallStatement,
    Candidate,
    History,
    Identity,
    Life,
    Mark,
    Obstacles,
    Reading,
    Seen,
)
from callkeeper.calls.statuses import FRAUD
from callkeeper.service.endpoints import is_same_id
from callkeeper.service.enumerations import CallStatus

_BY_COLOUR = {Colour.RED: "red", Colour.UNCLASSIFIED: "unclassified"}

# Python 3.11 takes long to look up a member of an enumeration, and facts are derived several times for each answer.
_RED, _GREEN, _UNCLASSIFIED, _PENDING, _EVERYTHING = (
    Colour.RED,
    Colour.GREEN,
    Colour.UNCLASSIFIED,
    CallStatus.VOICE_PENDING,
    PauseScope.ALL,
)
_PERHAPS_SENT = frozenset({*IN_DOUBT, EffectState.UNRESOLVED})
_RESULTS = frozenset({_GREEN, _RED})
_REJECTED, _UNENROLLED, _FRAUD, _SUSPECTED = Mark.REJECTED, Mark.UNENROLLED, Mark.FRAUD, Mark.SUSPECTED
_OPTED_OUT = Mark.OPTED_OUT


def facts_of(
    call: Call, obstacles: Obstacles, policies: Policies, now: datetime | None = None, *, lists: NamedLists = NO_LISTS
) -> Facts:
    """Derive the facts from a record. No other function does, but ``RuleBook.local`` adds the hour and the weekday.

    ``obstacles`` are what holds requests back now, or ``call.last_claim``: what held when the record was written.
    Without ``now`` it is the moment of the last write. ``lists`` are those that rules ask about.
    """
    facts = _derived(call, obstacles, policies, call.saved_at if now is None else now, lists)
    if unnamed(call, facts):
        facts = replace(facts, evidence_against=True)
    if (facts.opted_out or facts.opted_out_before) and has_opted_in(call, policies):
        kept = call.ledger.kept_marks
        # Once it is stored, what was looked up since tells which of the member's opt-ins and opt-outs came last.
        is_stored = kept is not None and Mark.OPTED_IN in kept.kinds
        facts = replace(facts, opted_out=False, opted_out_before=facts.opted_out_before and is_stored)
    return facts


def _derived(call: Call, obstacles: Obstacles, policies: Policies, now: datetime | None, lists: NamedLists) -> Facts:
    """Derive the facts that do not depend on what a person said in knowledge of them."""
    life, seen, plan, ledger, said = call.life, call.seen, call.plan, call.ledger, call.statements
    reading = seen.reading or _UNREAD
    status, names = reading.status, reading.policies
    colours, by_hand = _colours_by_voice(seen, policies), _is_by_hand(call)
    red = _RED in colours
    authenticated = seen.authenticated and not by_hand and not red
    answers, is_final = usable_answers(seen).bit_count(), has_final_analysis(call)
    candidate = _candidate(call)
    identity, distrusted = said.identity, said.distrusted
    research, research_elsewhere = research_of(call)
    earlier = seen.earlier_marks.kinds if seen.earlier_marks is not None else ()
    history = coloured(seen.history, policies) if seen.history.policies else seen.history
    return Facts(
        green=authenticated or (_GREEN in colours and not red),
        # The policy of an enroll may stay on the call when somebody changes the member.
        manual=by_hand and enrolled_person(call) == seen.person_id,
        red=red,
        unclassified=_UNCLASSIFIED in colours,
        unclassified_seen=_UNCLASSIFIED in colours or "unclassified" in history.signs,
        red_seen=red or seen.red,
        rejected=is_rejected_by_anyone(call),
        enrolled=by_hand,
        verified=identity is not None,
        verified_by_desk=identity is not None and identity.by_desk,
        verified_in_time=identity is not None and _is_in_time(identity, life),
        verified_s=_seconds_since(identity.established_at if identity else None, now),
        verified_person_is_assigned=_is_verified_as_member(call),
        validation_type=identity.validation_type if identity else None,
        assigned=seen.person_id is not None,
        distrusted=distrusted is not None,
        verified_in_shadow=identity is not None and identity.in_shadow,
        distrusted_in_shadow=distrusted is not None and distrusted.in_shadow,
        distrusted_as_another=distrusted is not None
        and seen.person_id is not None
        and distrusted.member not in {None, seen.person_id},
        named_as_another=seen.person_id is not None and named_by_desk(call) is not None,
        same_member_live=bool(ledger.beside),
        member_changed=seen.member_changed,
        evidence_against=False,  # follows from the others
        opted_out=seen.opted_out,
        opted_in=seen.opted_in,
        voice_mismatch=seen.mismatch,
        high_risk_device=seen.risky_device or reading.is_high_risk_device,
        voice_pending=status == _PENDING,
        voice_checked=_is_voice_checked(seen.reading, answers, is_final=is_final),
        voice_undecided=(seen.pending or seen.expects_voice or reading.expects_voice)
        and not (authenticated or seen.mismatch or not colours.isdisjoint(_RESULTS)),
        checks_answered=answers,
        ended=life.ended_at is not None,
        ended_s=_seconds_since(life.ended_at, now),
        final_analysis=is_final,
        fraud=research == FRAUD,
        fraud_elsewhere=research_elsewhere == FRAUD,
        research=research,
        research_elsewhere=research_elsewhere,
        real_voice_id=has_real_voice_id(call),
        allowed=obstacles.standing is None,
        status=status,
        checks_used=plan.checks_used,
        candidates=len(seen.candidates),
        person_type=candidate.person_type if candidate is not None else None,
        person_is_candidate=candidate is not None,
        person=lists.of_person(seen.person_id) if lists.persons else (),
        number=lists.of_number(call.names.phone_number) if lists.numbers else (),
        hour=None,  # ``RuleBook.local``
        weekday=None,
        questions=reading.verification_questions,
        authenticated=authenticated,
        paused=obstacles.paused is not None,
        paused_entirely=obstacles.paused is _EVERYTHING,
        assigned_by_us=_is_ours(call),
        redis_changed=obstacles.effects_held_until is not None,
        standing_unconfirmed=obstacles.standing_held_until is not None,
        voice_enrolled=reading.is_voice_enrolled,
        account_enrolled=reading.is_account_enrolled,
        behavior_enrolled=reading.is_behavior_enrolled,
        device_enrolled=reading.is_device_enrolled,
        record_verified=reading.is_verified,
        record_enrolled=reading.is_enrolled,
        voice_match_rule=reading.has_voice_match_rule,
        validation_rule=reading.validation_rule,
        provider_error=reading.provider_error is not None,
        unenrolled=seen.unenrolled,
        fully_authenticated=seen.full_authentication or seen.authenticated,
        rejected_by_rule=seen.rejected_by_rule_only and ledger.reject.state not in DONE,
        failed_feedback=seen.failed_feedback,
        reject_in_doubt=ledger.reject.state in _PERHAPS_SENT,
        enroll_unresolved=ledger.enroll.state in _PERHAPS_SENT and not is_unresolved_overruled(EffectKind.ENROLL, call),
        rejected_before=_REJECTED in earlier,
        unenrolled_before=_UNENROLLED in earlier,
        fraud_before=_FRAUD in earlier,
        suspected_before=_SUSPECTED in earlier,
        opted_out_before=_OPTED_OUT in earlier,
        green_policy=_GREEN in policies.colours(names),
        policies=names,
        assigned_s=(_seconds_since(plan.watch_from, now) or 0) if seen.person_id is not None else None,
        history=history,
        at=now,
    )


def earlier_calls_of(call: Call) -> dict[str, str]:
    """Return the voice ids of the calls behind facts such as ``rejected_before``, as far as they are known."""
    calls = call.seen.earlier_marks.calls if call.seen.earlier_marks is not None else {}
    beside = {"same_member_live": call.ledger.beside[-1]} if call.ledger.beside else {}
    return {**{f"{kind}_before": voice_id for kind, voice_id in calls.items()}, **beside}


def naming_other_call(call: Call, rule: str, because: str) -> str:
    """Return why a person is asked, with the other call that it is about, if it is about one."""
    other = earlier_calls_of(call).get(rule)
    return because if other is None else f"{because} The other call is {other}."


_UNREAD = Reading(read_at=datetime.min.replace(tzinfo=UTC))
"""A record of which nothing was read."""


def _colours_by_voice(seen: Seen, policies: Policies) -> frozenset[Colour]:
    """Return the colours of the policies applied, without green ones that may be about the member before."""
    if seen.reading is None or not seen.reading.policies:
        return frozenset()
    shown, doubtful = seen.reading.policies, seen.of_another
    names = [name for name in shown if name not in doubtful or policies.colour(name) is not _GREEN]
    return policies.colours([name for name in names if name != MANUAL_GREEN])


def _is_by_hand(call: Call) -> bool:
    """Tell whether the caller counts as authenticated because of somebody's enroll."""
    shown = call.seen.reading is not None and MANUAL_GREEN in call.seen.reading.policies
    return not call.seen.unenrolled and (shown or call.ledger.enroll.state in PERHAPS_DONE or call.seen.enrolled)


def has_result(call: Call, policies: Policies) -> bool:
    """Tell whether the call is ``green`` or ``red``, without deriving the other facts."""
    colours = _colours_by_voice(call.seen, policies)
    return not colours.isdisjoint(_RESULTS) or (call.seen.authenticated and not _is_by_hand(call))


def is_decided(call: Call, policies: Policies) -> bool:
    """Tell whether the call is ``green``, ``red``, ``enrolled`` or ``fully_authenticated``, without the other facts."""
    return call.seen.full_authentication or _is_by_hand(call) or has_result(call, policies)


def is_rejected_by_anyone(call: Call) -> bool:
    """Tell whether the call is ``rejected``."""
    return call.seen.rejected or call.ledger.reject.state in DONE


def _is_nobodys(call: Call) -> bool:
    """Tell whether details name nobody.

    Somebody has taken the member off the call; or only the queue names the member, whom nobody has assigned or claimed.
    """
    reading, listed_at = call.seen.reading, call.life.listed_at
    if reading is None or reading.person_id is not None:
        return False
    return call.seen.was_named or (not is_assigned(call) and listed_at is not None and listed_at <= reading.read_at)


def _is_one_of_several(call: Call) -> bool:
    """Tell whether rules assigned the only candidate, and the queue has named another one since.

    The number belongs to both, or was another one at first: nothing tells who of them the caller is.
    """
    assign, member, candidates = call.ledger.assign, call.seen.person_id, call.seen.candidates
    if assign.operator is not None or not _is_ours(call):
        return False
    return call.seen.had_several_candidates or any(one.person_id != member for one in candidates)


def research_of(call: Call) -> tuple[str | None, str | None]:
    """Return the state of the record's research case: first if it is about this call, second if about another one.

    A determined fraud counts until it is refuted, also if the record shows another case since.

    Assumed (`research-case`): the case's voice id, real or alternate, is that of the call under investigation;
    ``otherCalls`` are calls that were looked at as well. A case without a voice id is about another call.
    """
    reading = call.seen.reading
    if reading is None:
        return None, None
    shown, is_ours = reading.research_status, is_about(call, reading.research_voice_id)
    ours, other = (shown, None) if is_ours else (None, shown)
    are_ours = [is_about(call, about) for about in call.seen.frauds]
    return FRAUD if True in are_ours else ours, FRAUD if False in are_ours else other


def is_about(call: Call, voice_id: str | None) -> bool:
    """Tell whether a voice id, real or alternate, is this call's."""
    ours = (call.voice_id, call.names.alternate_id)
    return voice_id is not None and any(is_same_id(voice_id, one) for one in ours if one is not None)


def has_real_voice_id(call: Call) -> bool:
    """Tell whether the last answer gave this record's id as the call's voice id, or gave none and the service uses it.

    Spec: Phone call record (``voiceId`` can be null), Queue entry (there it cannot).
    """
    reading = call.seen.reading
    return reading is not None and (
        reading.voice_id == call.voice_id or (not reading.voice_id and is_named_by_service(call))
    )


def is_named_by_service(call: Call) -> bool:
    """Tell whether the service uses this record's id as a call's voice id, in its queue or in an answer."""
    return call.life.listed_at is not None or is_named_in_answer(call)


def is_named_in_answer(call: Call) -> bool:
    """Tell whether an answer of the service has given this record's id as the call's own."""
    reading = call.seen.reading
    return call.names.is_confirmed or (reading is not None and reading.voice_id == call.voice_id)


def signs_of(reading: Reading) -> tuple[str, ...]:
    """Return the facts that one answer shows by itself. Colours are left out: they depend on the rules in force."""
    shown = (
        ("voice_mismatch", reading.is_voice_mismatch or reading.status == CallStatus.VOICE_MISMATCH),
        ("high_risk_device", reading.is_high_risk_device),
        ("provider_error", reading.provider_error is not None),
        ("voice_pending", reading.status == CallStatus.VOICE_PENDING),
    )
    return tuple([name for name, holds in shown if holds])


def begun_at(call: Call) -> dict[str, datetime | None]:
    """Return when each fact of ``GROWING`` began to count; None if it has not."""
    identity = call.statements.identity
    return {
        "verified_s": identity.established_at if identity is not None else None,
        "ended_s": call.life.ended_at,
        # Checks are planned from the call's first person on too.
        "assigned_s": call.plan.watch_from if call.seen.person_id is not None else None,
    }


def _candidate(call: Call) -> Candidate | None:
    """Return the candidate who is assigned; None if nobody is, or somebody who is not among the candidates."""
    for candidate in call.seen.candidates if call.seen.person_id is not None else ():
        if candidate.person_id == call.seen.person_id:
            return candidate
    return None


def _seconds_since(instant: datetime | None, now: datetime | None) -> int | None:
    """Return how many seconds ago something happened; None if it has not. 0 if the present is unknown."""
    if instant is None:
        return None
    return 0 if now is None else max(0, int((now - instant).total_seconds()))


def has_final_analysis(call: Call) -> bool:
    """Tell whether two reads after the end, far enough apart, showed the same."""
    reading, since = call.seen.reading, call.seen.final_since
    return (
        call.life.ended_at is not None
        and reading is not None
        and since is not None
        and reading.read_at - since >= FINAL_APART
    )


def _is_voice_checked(reading: Reading | None, answers: int, *, is_final: bool) -> bool:
    """Tell whether the voice had its say. Until then the absence of evidence says nothing."""
    is_open = reading is None or reading.provider_error is not None or reading.status == CallStatus.VOICE_PENDING
    return answers >= ENOUGH_ANSWERS or (answers >= LEAST_ANSWERS and is_final and not is_open)


def is_suspected(call: Call, policies: Policies) -> bool:
    """Tell whether something spoke against the caller, and the voice was not authenticated, whatever people said.

    The voice says nothing of the members of a call whose member was changed.
    """
    seen = call.seen
    is_mismatch, is_green = seen.mismatch and not seen.member_changed, has_green_voice(call, policies)
    return (seen.risky_device or seen.red or is_mismatch) and not is_green


def is_established_as_member(call: Call, policies: Policies) -> bool:
    """Tell whether the caller is the member who stands on the call: verified or enrolled as such, or by the voice."""
    seen = call.seen
    if seen.person_id is None or named_by_desk(call) is not None:
        return False
    if unnamed(call, _derived(call, call.last_claim, policies, call.saved_at, NO_LISTS)):
        return False
    is_enrolled_as_such = enrolled_member(call) == seen.person_id
    return is_enrolled_as_such or _is_verified_as_member(call) or has_green_voice(call, policies)


def marks_against(call: Call, policies: Policies) -> tuple[Mark, ...]:
    """Return the marks of what speaks against the caller of a call."""
    found = (
        (Mark.REJECTED, is_rejected(call)),
        (Mark.UNENROLLED, call.seen.unenrolled),
        (Mark.FRAUD, research_of(call)[0] == FRAUD),
        (Mark.SUSPECTED, is_suspected(call, policies) or (_speaks_of_reject(call) and not is_rejected(call))),
    )
    return tuple([mark for mark, is_so in found if is_so])


def has_opted_in(call: Call, policies: Policies) -> bool:
    """Tell whether the member opted in on the call: after any opt-out of it, and the caller is known to be the member.

    An impostor's opt-in is not the member's. If nothing establishes that the caller is the member, or something speaks
    against it, earlier opt-outs of the member stay, and a person is asked.
    """
    is_shown = call.seen.opted_in and (call.seen.opted_in_last or not call.seen.opted_out)
    if not is_shown or _speaks_of_reject(call) or not is_established_as_member(call, policies):
        return False
    # A person who verified the caller has named what is suspicious: otherwise nobody would be established.
    overruled = {Mark.SUSPECTED} if is_verified_by_desk(call) else set()
    return set(marks_against(call, policies)) <= overruled


def is_verified_by_desk(call: Call) -> bool:
    """Tell whether a person at the desk verified that the caller is the member who stands on the call now."""
    identity = call.statements.identity
    if identity is None or not identity.by_desk or identity.is_past:
        return False
    return identity.person_id == call.seen.person_id


def _speaks_of_reject(call: Call) -> bool:
    """Tell whether a person's distrust, our ledger or the provider's feedback speaks of a reject.

    While one is under way, no other call is enrolled.
    """
    is_ours = call.statements.distrusted is not None or call.ledger.reject.state in UNDER_WAY
    return is_ours or may_be_rejected(call)


def _is_verified_as_member(call: Call) -> bool:
    """Tell whether the caller was verified as the member who is assigned now (``verified_person_is_assigned``)."""
    identity, member = call.statements.identity, call.seen.person_id
    return (
        identity is not None
        and member is not None
        and identity.person_id == member
        and not identity.is_past
        and not _is_nobodys(call)
        and not _is_contradicted(identity, call.statements.assign_wish)
        and (identity.by_desk or not _is_one_of_several(call))
    )


def has_green_voice(call: Call, policies: Policies) -> bool:
    """Tell whether the voice is that of the member who is assigned now.

    Unlike the fact ``green``, this stays true if the voice is enrolled later, or a red policy comes.
    """
    colours = _colours_by_voice(call.seen, policies)
    return call.seen.authenticated or (_GREEN in colours and _RED not in colours)


def _is_in_time(identity: Identity, life: Life) -> bool:
    """Tell whether identity was established early enough for an enroll.

    Once a word has reopened a settled call, only a person's identity counts. Otherwise that word, if it is taken back, would
    let what the service once established enroll the voice hours later.
    """
    ended_at = life.ended_at
    if life.is_reopened and not identity.by_desk:
        return False
    allowance = VERIFIED_AFTER_END if identity.by_desk else timedelta()
    return ended_at is None or identity.established_at <= ended_at + allowance


def _is_contradicted(identity: Identity, wish: CallStatement | None) -> bool:
    """Tell whether a person at the desk says that the caller is somebody else, whether or not that could be assigned."""
    if wish is None or wish.person_id in {None, identity.person_id}:
        return False
    verified = statement_order(identity.number, identity.established_at)
    return not identity.by_desk or statement_order(wish.number, wish.said_at) > verified


def coloured(history: History, policies: Policies) -> History:
    """Add on which checks a policy of each colour was applied."""
    signs = {name: mask for name, mask in history.signs.items() if name not in _BY_COLOUR.values()}
    for policy, mask in history.policies.items():
        sign = _BY_COLOUR.get(policies.colour(policy))
        if sign is not None:
            signs[sign] = signs.get(sign, 0) | mask
    return replace(history, signs=signs)


def _is_ours(call: Call) -> bool:
    """Tell whether the current assignment is ours: our person, and no core username on the call but ours."""
    is_our_person = call.ledger.assigned_person_id is not None and call.ledger.assigned_person_id == call.seen.person_id
    # Assumed (`username-is-claimer`): the core username on a record is that of whoever assigned or claimed the call last.
    return is_our_person and call.seen.core_username in {None, call.ledger.assigned_as}
