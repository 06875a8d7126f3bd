"""What stored details prove about an effect whose answer was lost, or that was ignored or taken back. Pure functions.

Time proves nothing about an enroll or a reject: the service may still be at work on it. Without a trace it is absent only
if the service refused it or turned it away (401, 429). Otherwise it is unresolved: a person has to look, unless a later read
shows it. An assign may be repeated, so it is absent when it had time to appear.

When a member's voice is rejected in any call, the service takes back all earlier enrolls of that member, also in ended
calls (Spec: States, row reject-voice). Assumed (`reject-unenrolls`): it may do so at once or a little later, and it writes
FullAuthenticationUnenrolled, which later activities may overwrite, or takes the manual policy away.
"""

from datetime import datetime, timedelta
from math import inf
from zlib import crc32

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import DONE, Effect, EffectKind, EffectState
from callkeeper.calls.member_evidence import (
    ENROLLED,
    enrolled_member,
    is_enrolled,
    is_rejected,
    is_rejection_standing,
    may_be_rejected,
    rejected_member,
)
from callkeeper.calls.policies import MANUAL_GREEN
from callkeeper.calls.record import ASKED, Call, CallStatement, Identity, Phase, Reading, Reason
from callkeeper.calls.steps import Deed, Read, Rest, Wait
from callkeeper.service.enumerations import CallStatus

DOUBT_READS_S = (1.0, 3.0, 8.0, 20.0, 30.0, 60.0)
"""When stored details are read after an effect without a usable answer, in seconds. An assign must show by the fourth read.
After the last one, an enroll or a reject that does not show is unresolved."""

SHOWN_BY = timedelta(seconds=20)
"""When an assign must be visible if it was carried out, and when an enroll or a reject that was refused may be repeated."""

LAST_DOUBT_READ = timedelta(minutes=5)
"""How long after it was sent an unresolved enroll or reject is looked for once more, also if the call has ended."""

MAX_REQUESTS = 2
"""How many requests of one enroll, or one reject, may reach the service. A second one only after a 401, 429 or refusal."""

MAX_ASSIGNS = 3
"""Assigns sent for one call, including corrections by the desk, excluding those that got 401 or 429."""

ASSIGN_RETRY_S = (1.0, 3.0, 6.0, 12.0, 24.0, 48.0, 60.0)
"""Seconds that an assign waits after the first, second ... 401, 429 or refusal. The last one repeats."""

ASSIGN_FAILED = frozenset({EffectState.REFUSED, EffectState.UNRESOLVED})
"""States of an assign that failed, as far as is known. An absent one may be tried again without a new statement."""

_FAILED = frozenset({EffectState.REFUSED, EffectState.ABSENT})
"""States of an effect that certainly failed."""

DOUBT_RETRY = timedelta(seconds=5)
DOUBT_GIVE_UP = timedelta(minutes=10)
"""After this long without a readable answer a person must resolve the effect."""


def evidence(kind: EffectKind, call: Call, now: datetime) -> EffectState | None:
    """Return what is known about an effect in doubt, or unresolved; None while another read may tell."""
    effect, reading = call.effect(kind), call.seen.reading
    sent_at = effect.sent_at or effect.intended_at
    if sent_at is None:
        return EffectState.UNRESOLVED
    if reading is not None and reading.read_at > sent_at:
        is_another = reading.person_id not in {None, effect.person_id}
        if _shows(kind, effect, reading):
            # If that is the last activity, and another member stands there, it may be another tool's, about that one.
            is_last = kind is EffectKind.REJECT or reading.status in ENROLLED
            is_unclear = kind is not EffectKind.ASSIGN and is_another and is_last
            return EffectState.UNRESOLVED if is_unclear else EffectState.CONFIRMED
        if kind is EffectKind.ASSIGN and (is_another or effect.retry_at is not None):
            is_final = effect.refusal is not None and not is_another and assigned_too_often(effect)
            return EffectState.REFUSED if is_final else EffectState.ABSENT
        if kind is EffectKind.ASSIGN and reading.read_at >= sent_at + SHOWN_BY:
            return EffectState.ABSENT
        if effect.retry_at is not None and reading.read_at >= effect.retry_at:
            return EffectState.REFUSED if effect.arrived >= MAX_REQUESTS else EffectState.ABSENT
        if effect.retry_at is None and reading.read_at >= sent_at + timedelta(seconds=DOUBT_READS_S[-1]):
            return EffectState.UNRESOLVED
    return given_up(effect, now) if call.plan.reads_failed else None


def given_up(effect: Effect, now: datetime) -> EffectState | None:
    """Return the state of an effect in doubt whose call cannot be read; None while a read may still come in time."""
    began_at = effect.sent_at or effect.intended_at
    if began_at is not None and now - began_at <= DOUBT_GIVE_UP:
        return None
    return EffectState.UNRESOLVED if effect.retry_at is None else EffectState.REFUSED


def after_turning_away(kind: EffectKind, effect: Effect, now: datetime) -> Effect:
    """Return the ledger of an effect that got 401 or 429. It may be sent again, unless a read shows it.

    Assumed (`refused-401-before-acting`, `busy-before-acting`): both are given before anything is done. It is looked up
    all the same.
    """
    return _with_retry(kind, replace(effect, unauthorized=effect.unauthorized + 1), now)


def after_refusal(kind: EffectKind, effect: Effect, reason: str, now: datetime) -> Effect:
    """Return the ledger of an effect that the service refused. It may be sent again, unless a read shows it.

    Assumed (`refusal-may-pass`): ``success: false`` can be a passing trouble, because the document shows no other form
    of failure.
    """
    return _with_retry(kind, replace(effect, refusal=reason), now)


def _with_retry(kind: EffectKind, effect: Effect, now: datetime) -> Effect:
    tries = min(max(1, effect.arrived), len(ASSIGN_RETRY_S))
    wait = timedelta(seconds=ASSIGN_RETRY_S[tries - 1]) if kind is EffectKind.ASSIGN else SHOWN_BY
    return replace(effect, retry_at=now + wait)


DOUBTFUL = (EffectKind.ENROLL, EffectKind.REJECT)
"""The effects whose outcome a person may have to find out."""


def unresolved(call: Call) -> list[EffectKind]:
    """Return the effects whose outcome nothing proves, so that a person has to look."""
    return [kind for kind in DOUBTFUL if call.effect(kind).state is EffectState.UNRESOLVED]


REFUSED_BY_SERVICE = "refused by the service"
"""Part of the attention reason of a call with such an effect. The kind stands before it, the service's words after it."""


def without_service_words(why: str) -> str:
    """Return an attention reason without what the service said in a refusal, so that reasons can be counted."""
    refused = f"{why.partition(' ')[0]} {REFUSED_BY_SERVICE}"
    return refused if why.startswith(refused) else why  # a rule's name may contain these words, too


NO_CLEAR_ANSWER = "no clear answer came"

ENROLLED_SINCE = "the member was enrolled since"
"""The ``refusal`` of a reject that is given up because it would take back a later enroll of the member."""

RECORD_LOST = "Redis has lost the call's record"
"""The ``refusal`` of an enroll that is given up because the call had ended and its lost record may have had a reject."""

HELD_BACK = "the law held it back until the call was settled"
"""The ``refusal`` of a reject that a person's distrust asked for. The trail's decisions say by which of its articles."""

GIVEN_UP_BECAUSE = {
    ENROLLED_SINCE: "enrolled_since",
    RECORD_LOST: "record_lost",
    HELD_BACK: "call_settled",
}
"""Each ``refusal`` of an effect that is given up, and its name in `callkeeper.calls.action_status.MEANINGS`."""

GIVEN_UP = f"not carried out: {ENROLLED_SINCE}"
"""The attention reason of calls with an effect that was given up, without the kind, which stands before it."""

TURNED_AWAY = "turned away each time (401 or 429)"
"""The ``refusal`` of an effect that the service turned away as often as it may be sent."""


def failures(call: Call) -> list[EffectKind]:
    """Return the effects that the service refused for good, that nothing has replaced, and that no person has seen."""
    return [kind for kind in EffectKind if _stands_failed(kind, call)]


def failure(kind: EffectKind, call: Call) -> str:
    """Return the attention reason of a call with an effect that failed."""
    refusal = call.effect(kind).refusal
    return f"{kind} {'not carried out' if refusal in GIVEN_UP_BECAUSE else REFUSED_BY_SERVICE}: {refusal}"


def _stands_failed(kind: EffectKind, call: Call) -> bool:
    effect = call.effect(kind)
    if effect.state is not EffectState.REFUSED or effect.refusal is None or effect.resolved:
        return False
    match kind:
        case EffectKind.ASSIGN:
            wish = call.statements.assign_wish
            is_open = call.seen.person_id is None or (effect.person_stood and not call.seen.core_username)
            return is_open or (wish is not None and wish.person_id != call.seen.person_id)
        case EffectKind.ENROLL:
            return not (call.seen.enrolled or is_rejection_standing(call))
        case EffectKind.REJECT:
            return not is_rejection_standing(call)


NOT_SHOWN = "it answered with success, but neither the queue nor the details show the member"
"""The ``refusal`` of an assign that the service ignored each time."""


def ignored(call: Call) -> EffectState | None:
    """Return the state of an assign that the service accepted and then ignored; None if it did not.

    Both the queue and the details must have shown the call without its member, after it had time to appear. After an
    assign the queue's entry becomes a note only if it is not the one that was expected.

    Assumed (`entry-after-assign`): the queue or the details name the member whom we have assigned.
    """
    effect, reading, listed_at = call.ledger.assign, call.seen.reading, call.life.listed_at
    is_known = effect.was_shown or effect.person_stood or is_enrolled(call)
    if effect.state is not EffectState.APPLIED or is_known or effect.sent_at is None:
        return None
    shown_by = effect.sent_at + SHOWN_BY
    if reading is None or reading.read_at < shown_by or listed_at is None or listed_at <= effect.sent_at:
        return None
    if call.seen.person_id not in {effect.person_id, reading.person_id}:  # the queue names whom somebody has put there
        return None
    return EffectState.REFUSED if assigned_too_often(effect) else EffectState.ABSENT


def assigned_too_often(effect: Effect) -> bool:
    """Tell whether no further assign may be sent for a call, unless a person asks for it once more."""
    return effect.arrived - effect.unauthorized >= MAX_ASSIGNS


def may_assign(call: Call) -> bool:
    """Tell whether another assign may be sent: by the budget, or because a person asks again after a failed one."""
    effect = call.ledger.assign
    is_asked = effect.state in {*ASSIGN_FAILED, EffectState.NONE} and is_later(call.statements.assign_wish, effect)
    return is_asked or not assigned_too_often(effect)


def may_begin(kind: EffectKind, effect: Effect, call: Call) -> bool:
    """Tell whether an enroll or a reject may be intended: it was never sent, or was turned away or refused and is absent.

    One that certainly failed may also be intended if a person has asked for another one since it was sent. So may a
    reject that was carried out, if the voice was enrolled after it, and an unresolved enroll, if the word overrules that. An
    intention that was withdrawn changes none of this.
    """
    is_undone = kind is EffectKind.REJECT and effect.state in DONE and _is_enrolled_after(effect, call)
    is_answerable = is_undone or effect.state in {*_FAILED, EffectState.NONE} or is_unresolved_overruled(kind, call)
    if is_answerable and is_later(word_for(kind, call), effect):
        return True
    is_unsent = effect.state is EffectState.NONE and not effect.arrived
    is_repeatable = effect.state in {EffectState.NONE, EffectState.ABSENT} and effect.retry_at is not None
    return (is_unsent or is_repeatable) and effect.arrived < MAX_REQUESTS


ENROLL_UNRESOLVED = "enroll_unresolved"
"""The fact, and the article of the law, that a person's word must name in ``despite`` to enroll again."""


def is_unresolved_overruled(kind: EffectKind, call: Call) -> bool:
    """Tell whether a person has asked for another enroll although they know that the last one is unresolved."""
    identity, effect = call.statements.identity, call.effect(kind)
    is_enroll = kind is EffectKind.ENROLL and effect.state is EffectState.UNRESOLVED
    return is_enroll and identity is not None and ENROLL_UNRESOLVED in identity.despite and is_later(identity, effect)


def _is_enrolled_after(reject: Effect, call: Call) -> bool:
    """Tell whether stored details show an enroll after a reject, which has taken back every earlier one by then."""
    reading = call.seen.reading
    if reading is None or reject.sent_at is None or reading.read_at < reject.sent_at + POLICY_SHOWS:
        return False
    return is_enrolled(call) and _shows(EffectKind.ENROLL, call.ledger.enroll, reading)


def word_for(kind: EffectKind, call: Call) -> CallStatement | Identity | None:
    """Return the last statement of a person that asks for an effect."""
    said = call.statements
    match kind:
        case EffectKind.ASSIGN:
            return said.assign_wish
        case EffectKind.ENROLL:
            return said.identity if said.identity is not None and said.identity.by_desk else None
        case EffectKind.REJECT:
            return said.distrusted


def is_repeated(kind: EffectKind, call: Call) -> bool:
    """Tell whether an effect that is to be sent again was not asked for since: only because it failed."""
    effect = call.effect(kind)
    return effect.arrived > 0 and not is_later(word_for(kind, call), effect)


def is_later(word: CallStatement | Identity | None, effect: Effect) -> bool:
    """Tell whether a statement came after an effect was sent, or was given up unsent.

    Compares statement numbers, as clocks can be set back.
    """
    is_over = effect.sent_at is not None or effect.refusal is not None
    return word is not None and is_over and word.number > effect.last_word


def next_doubt_read(effect: Effect, call: Call, now: datetime) -> datetime:
    """Return when to read next for an effect in doubt. A failed read is repeated a little later."""
    sent_at = effect.sent_at or effect.intended_at or now
    read_at = call.seen.reading.read_at if call.seen.reading else sent_at
    slots = [sent_at + timedelta(seconds=s) for s in DOUBT_READS_S]
    if effect.retry_at is not None:
        slots = sorted([*slots, effect.retry_at])
    slot = next((slot for slot in slots if slot > read_at), now)
    if call.plan.reads_failed and call.plan.next_read_at is not None:
        return max(slot, min(call.plan.next_read_at, now + DOUBT_RETRY))
    return slot


def _shows(kind: EffectKind, effect: Effect, reading: Reading) -> bool:
    """Tell whether an effect has left its trace.

    Assumed (`assign-shows-username`): an assign leaves the core username it was sent under, which counts if the person
    stood there before.

    Assumed (`enroll-traces`): an enroll leaves one of AcceptCallerVoice, FullAuthentication, the policy Green Manual
    Authentication and ``successfulVoiceEnrollment``; a reject leaves RejectCallerVoice, until a later activity
    overwrites it.
    """
    match kind:
        case EffectKind.ASSIGN:
            is_theirs = reading.person_id is not None and reading.person_id == effect.person_id
            return is_theirs and (not effect.person_stood or reading.core_username == effect.requested_by)
        case EffectKind.ENROLL:
            by_hand = reading.status == CallStatus.FULL_AUTHENTICATION and not reading.is_voice_verified
            by_status = reading.status == CallStatus.ACCEPT_CALLER_VOICE or by_hand
            return by_status or MANUAL_GREEN in reading.policies or reading.was_voice_enrolled_now
        case EffectKind.REJECT:
            return reading.status == CallStatus.REJECT_CALLER_VOICE


def last_doubt_read(call: Call) -> datetime | None:
    """Return when an unresolved enroll or reject is looked for the last time; None if that was done, or there is none."""
    sent = [call.effect(kind).sent_at for kind in unresolved(call)]
    last = max((at for at in sent if at is not None), default=None)
    reading = call.seen.reading
    if last is None or (reading is not None and reading.read_at >= last + LAST_DOUBT_READ):
        return None
    return last + LAST_DOUBT_READ


RECHECK_S = (2.0, 60.0, 600.0)
"""When a settled call is read after a reject of the member, in seconds, until the enroll shows as taken back."""

SPREAD_S = 30
"""Over how many seconds the reads of a member's calls are spread, so that they do not compete with live calls."""

POLICY_SHOWS = timedelta(seconds=5)
"""After this time the policy of an enroll must be visible. Assumed (`policy-with-status`): the Spec names no time."""

TAKEN_BACK = "enroll taken back"
"""The attention reason of such a call."""

ENROLLED_AS_ANOTHER = "voice enrolled as another member's"
"""The attention reason of a call whose member was changed after the enroll, or whose caller the desk has since named as
another member: the enrolled voice may be a stranger's."""


OPTED_OUT = "caller opted out, voice still enrolled"
"""The attention reason of a call whose caller opted out, and whose enroll is in force: nothing takes that back by itself."""


def is_enrolled_despite_opt_out(call: Call) -> bool:
    """Tell whether the caller opted out, the voice stays enrolled, and nobody has seen that.

    Whoever opted in after that wants the voice to be enrolled.
    """
    is_out = call.seen.opted_out and not call.seen.opted_in_last
    return is_out and is_enrolled(call) and call.statements.opt_out_closed_by is None


def enroll_trouble(call: Call) -> str:
    """Return what a person must learn of the call's enroll; empty if nothing, or if a reject of that member answers it."""
    others, rejected, said = other_callers(call), rejected_member(call), call.statements
    if said.unenroll_closed_by is not None and said.unenroll_closed_members in {None, others}:
        return ""
    if others and enrolled_member(call) != rejected:
        return ENROLLED_AS_ANOTHER
    is_answered = rejected == (call.ledger.enroll.person_id or call.seen.person_id)
    return TAKEN_BACK if call.seen.unenrolled and not (is_rejected(call) and is_answered) else ""


def other_callers(call: Call) -> tuple[str, ...]:
    """Return who may have called instead of the member as whom the voice is enrolled, if somebody has.

    They are the call's member and whom the desk has named since; an empty text stands for nobody.
    """
    enrolled = enrolled_member(call)
    if enrolled is None:
        return ()
    named = {call.seen.person_id, _named_since_enroll(call) or enrolled} - {enrolled}
    return tuple(sorted([person_id or "" for person_id in named]))


def _named_since_enroll(call: Call) -> str | None:
    """Return the member whom the desk named last since our enroll was sent; None if it has named nobody.

    An enroll keeps the number of the last verification before it, so a wish to assign from before it may count as later.
    """
    words = (call.statements.assign_wish, word_for(EffectKind.ENROLL, call))
    since = [word for word in words if word is not None and is_later(word, call.ledger.enroll)]
    return max(since, key=lambda word: word.number).person_id if since else None


def attention_reasons(call: Call) -> list[str]:
    """Return why a call needs a person who can close it, the most important reason first."""
    question = call.statements.open_question
    return [
        *(f"{kind} unresolved" for kind in unresolved(call)),
        *([trouble] if (trouble := enroll_trouble(call)) else []),
        *([OPTED_OUT] if is_enrolled_despite_opt_out(call) else []),
        *(failure(kind, call) for kind in failures(call)),
        *([f"{ASKED} {question.rule!r}"] if question is not None else []),
    ]


UNREAD = "its details cannot be read"
"""The attention reason of a call for which nothing can be done until they can. Nobody can close it."""

UNREAD_FOR_LONG = 8
"""Failed reads in a row after which a person has to look: 90 s. If all fail, there is an incident before."""


ENDLESS = "it never ends"
"""The attention reason of a call that the queue lists for longer than calls are watched. Nobody can close it."""


def attention(call: Call, longest_s: float = inf) -> str:
    """Return the most important reason for which a call needs a person; empty if it needs none.

    A hinted call is left out: anyone who may push can invent one that was never listed. ``longest_s``: for how many seconds
    calls are watched.
    """
    life = call.life
    is_open = life.phase not in {Phase.HINTED, Phase.SETTLED}
    is_unread = is_open and call.plan.reads_failed >= UNREAD_FOR_LONG
    went_on = call.saved_at - life.first_seen_at if call.saved_at and life.first_seen_at else timedelta()
    is_endless = is_open and life.ended_at is None and went_on.total_seconds() > longest_s
    return next(iter(attention_reasons(call)), UNREAD if is_unread else ENDLESS if is_endless else "")


def needs_of(call: Call) -> str:
    """Return a digest of everything that needs a person now; empty if nothing does. A new need changes it."""
    reasons, question = attention_reasons(call), call.statements.open_question
    requests = [call.effect(kind).attempts for kind in failures(call)]
    known = repr((reasons, requests, question and question.asked_at))
    return f"{crc32(known.encode()):x}" if reasons else ""


def fold_member_rejected(call: Call, now: datetime) -> Call:
    """Record a reject in another call of the member."""
    if not is_enrolled(call):
        return call
    next_read_at = call.plan.next_read_at if call.is_settled else now + timedelta(seconds=RECHECK_S[0])
    return replace(call, plan=replace(call.plan, recheck_from=now, next_read_at=next_read_at))


def fold_rejected(call: Call, now: datetime) -> Call:
    """Record that the call's own reject is in force.

    It takes back an enroll of this call, too. The member's other calls are told of it, even if they were told of an
    earlier reject.
    """
    call = fold_member_rejected(call, now)
    return replace(call, ledger=replace(call.ledger, rejected_for=None))


def fold_unenrolled(before: Call, call: Call, reading: Reading) -> Call:
    """Return the call with what a reading says about its enroll being taken back.

    ``before`` is the call before the reading, ``call`` the call with everything else that the reading says.
    """
    is_policy_gone = MANUAL_GREEN not in reading.policies and _showed_policy(before, reading)
    is_stated = reading.status == CallStatus.FULL_AUTHENTICATION_UNENROLLED
    is_expected = call.plan.recheck_from is not None or is_rejected(call) or may_be_rejected(call)
    was_taken = is_stated or (is_policy_gone and is_expected)
    if not was_taken or (is_policy_gone and not is_stated and _is_enrolled_anew(before, reading)):
        if not call.seen.unenrolled or not _is_enrolled_anew(before, reading):
            return call
        return replace(call, seen=replace(call.seen, unenrolled=False), ledger=replace(call.ledger, enrolled_for=None))
    enroll = (
        replace(call.ledger.enroll, state=EffectState.TAKEN_BACK)
        if call.ledger.enroll.state in DONE
        else call.ledger.enroll
    )
    return replace(
        call,
        ledger=replace(call.ledger, enroll=enroll),
        statements=call.statements if before.seen.unenrolled else replace(call.statements, unenroll_closed_by=None),
        seen=replace(call.seen, unenrolled=True, enrolled=False, authenticated=False, full_authentication=False),
        plan=replace(call.plan, recheck_from=None),
        life=replace(call.life, reason=Reason.UNENROLLED if call.life.reason is Reason.ENROLLED else call.life.reason),
    )


def _is_enrolled_anew(before: Call, reading: Reading) -> bool:
    """Tell whether a reading shows another enroll: a status that was not there before, or the policy again.

    The policy alone shows one too, if it has come back with a later activity, which may hide the status.
    """
    last, has_policy = before.seen.reading, MANUAL_GREEN in reading.policies
    if last is not None and has_policy and MANUAL_GREEN not in last.policies and last.updated_at != reading.updated_at:
        return True
    is_new = last is None or last.status != reading.status or has_policy
    return is_new and reading.status in ENROLLED


def _showed_policy(before: Call, reading: Reading) -> bool:
    """Tell whether an enroll's policy was there: it was read, or it had time to appear before the reject was known.

    Two other activities in a row can hide both ends of an enroll from us, but the member's reject is known anyway. The
    status is that of the last activity, so a reject that it shows came after our enroll.
    """
    enroll = before.ledger.enroll
    if before.seen.reading is not None and MANUAL_GREEN in before.seen.reading.policies:
        return True
    rejected = CallStatus.REJECT_CALLER_VOICE
    if enroll.state in DONE and reading.status == rejected and enroll.status_before != rejected:
        return True
    enrolled_at = enroll.sent_at if enroll.state in DONE else before.plan.recheck_from
    is_late = enrolled_at is not None and reading.read_at >= enrolled_at + POLICY_SHOWS
    return is_late and before.plan.recheck_from is not None and is_enrolled(before)


def recheck(call: Call, now: datetime) -> Deed:
    """Return the next step of a settled call whose enroll may have been taken back, or has an unresolved effect."""
    if call.life.not_found_since is not None:
        return Rest()
    if (doubt_at := last_doubt_read(call)) is not None and now <= doubt_at + DOUBT_GIVE_UP:
        doubt_at = max(doubt_at, call.plan.retry_at(doubt_at))
        return Read("unresolved") if doubt_at <= now else Wait(doubt_at)
    if call.plan.recheck_from is None:
        return Rest()
    spread = timedelta(seconds=crc32(call.voice_id.encode()) % SPREAD_S)
    read_at = call.seen.reading.read_at if call.seen.reading else None
    times = [call.plan.recheck_from + spread + timedelta(seconds=after_s) for after_s in RECHECK_S]
    due = next((at for at in times if read_at is None or read_at < at), None)
    if due is None or now > times[-1] + timedelta(seconds=RECHECK_S[-1]):
        return Rest()
    due = max(due, call.plan.retry_at(due))
    return Read("a reject of the member") if due <= now else Wait(due)
