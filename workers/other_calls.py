"""Looks at the other calls of a call's member before an enroll or a reject is sent, and when the voice is recognised.

Two callers at once who are both taken for the member are two people: a person finds out who is who. And a reject takes
back every enroll of its member, also one that came after its reason.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import DONE, UNDER_WAY, EffectKind
from callkeeper.calls.effect_resolution import ENROLLED_SINCE, RECOGNISED_BESIDE, is_repeated
from callkeeper.calls.item_names import CallId
from callkeeper.calls.member_evidence import is_enrolled, recognised_member
from callkeeper.calls.notes import EnrolledBeside
from callkeeper.calls.record import Call
from callkeeper.calls.redis_restart import before_jumps, catch_up
from callkeeper.calls.statement_folding import received_at
from workers.claimed_call import Claim


async def why_not_enroll(claim: Claim) -> str | None:
    """Return why an enroll is left to a person: the member was enrolled, or is recognised, in a call beside this one.

    If a person verified this caller, the enroll is sent. A call beside it that a rule has enrolled is then listed for a
    person. It is not if this enroll was given up before: whoever says it again knows of both calls.

    This call's enroll is announced before the others are looked up, so of two enrolls that are sent at the same moment
    at least one finds the other.
    """
    members, person_id = claim.tools.store.members, claim.call.seen.person_id
    if person_id is not None:
        await members.announce(claim.call_id, person_id, claim.now)
    if person_id is None or (began_at := _began_at(claim)) is None:
        return None
    key, since = claim.call_id.institution_key, _oldest_since(claim, began_at)
    enrolled = await _beside(claim, began_at, await members.enrolled_since(key, person_id, since), _may_be_enrolled)
    enroll = claim.call.ledger.enroll
    if enroll.operator is None:
        if enrolled:
            return ENROLLED_SINCE
        others = await members.recognised_since(key, person_id, since)
        is_beside = await _beside(claim, began_at, others, lambda other: recognised_member(other) == person_id)
        return RECOGNISED_BESIDE if is_beside else None
    if enroll.failed != ENROLLED_SINCE:
        await _note_enrolled_beside(claim, enrolled)
    return None


async def note_recognised(claim: Claim) -> None:
    """Store that the caller has the member's voice, and have calls beside this one that a rule has enrolled listed.

    It is stored before the others are looked up, for the same reason as in `why_not_enroll`. The record is written before
    that: whoever finds this call looks there for what the voice showed.

    Raises:
        WriteRefused: Another worker holds the call now.
    """
    members, person_id = claim.tools.store.members, recognised_member(claim.call)
    if person_id is None or person_id == claim.call.ledger.recognised_for or claim.call.is_settled:
        return
    await claim.keep()
    await members.recognise(claim.call_id, person_id, claim.now)
    if (began_at := _began_at(claim)) is not None:
        found = await members.enrolled_since(claim.call_id.institution_key, person_id, _oldest_since(claim, began_at))
        await _note_enrolled_beside(claim, await _beside(claim, began_at, found, _may_be_enrolled))
    claim.call = replace(claim.call, ledger=replace(claim.call.ledger, recognised_for=person_id))


async def _note_enrolled_beside(claim: Claim, enrolled: dict[CallId, Call]) -> None:
    """Note in the calls that a rule has enrolled that this caller is the member, too. They are then listed for a person."""
    for call_id, other in enrolled.items():
        if other.ledger.enroll.state in {*DONE, *UNDER_WAY} and other.ledger.enroll.operator is None:
            note = EnrolledBeside(voice_id=claim.call_id.voice_id)
            await claim.tools.store.note(call_id, note, even_settled=True)


async def would_undo_an_enroll(claim: Claim) -> bool:
    """Tell whether a reject would take back an enroll of the member that came after its reason.

    The reason is a person's last word; else the first request; else, if a rule's reject has waited, its intention.
    """
    reject, word, person_id = claim.call.ledger.reject, claim.call.statements.distrusted, claim.call.seen.person_id
    began_at = reject.sent_at or reject.intended_at
    since = before_jumps(began_at, claim.tools.store.jumps) if began_at is not None else None
    if word is not None and not is_repeated(EffectKind.REJECT, claim.call):
        since = received_at(word, claim.now)
    if since is None or person_id is None:
        return False
    found = await claim.tools.store.members.enrolled_since(claim.call_id.institution_key, person_id, since)
    for call_id in await _others(claim, found):
        other = await claim.tools.store.record(call_id)
        if other is None or _may_be_enrolled(other):  # if there is no record any more, it was in force
            return True
    return False


def _oldest_since(claim: Claim, began_at: datetime) -> datetime:
    """Return the earliest time at which a call that went on when this one began may have been enrolled."""
    longest = timedelta(seconds=claim.tools.book.maximum_age_s)
    return before_jumps(began_at, claim.tools.store.jumps) - longest


async def _beside(
    claim: Claim, began_at: datetime, found: Iterable[str], speaks: Callable[[Call], bool]
) -> dict[CallId, Call]:
    """Return the other calls of ``found`` that went on while this one did, and of which ``speaks`` holds."""
    beside = {}
    for call_id in await _others(claim, found):
        other = await claim.tools.store.record(call_id)
        if other is not None and speaks(other) and not _was_over(claim, other, began_at):
            beside[call_id] = other
    return beside


async def _others(claim: Claim, found: Iterable[str]) -> list[CallId]:
    """Return the other calls that are found by these voice ids. A record that was merged stands for the one it is in now."""
    key, ours = claim.call_id
    ends = [await claim.tools.store.end_of(CallId(key, voice_id)) for voice_id in found if voice_id != ours]
    return [end for end in dict.fromkeys(ends) if end != claim.call_id]


def _was_over(claim: Claim, other: Call, began_at: datetime) -> bool:
    """Tell whether another call was over when this one began: by Redis's clock, or else by the service's.

    If the end was read late, only the service's record shows when it was. One that was lost or given up has no end.
    """
    life, started_at = catch_up(other, claim.tools.store.jumps).life, _started_at(claim.call)
    over_at, changed_at = life.ended_at or life.settled_at, life.changed_at_end
    if over_at is not None and over_at <= began_at:
        return True
    return changed_at is not None and started_at is not None and changed_at <= started_at


def _began_at(claim: Claim) -> datetime | None:
    """Return when the call began, by Redis's clock; None if that is not known.

    The service says how old it is, as far as its clock is known. We may have heard of it late.
    """
    life, now = claim.call.life, claim.now
    heard_at = min((at for at in (life.hinted_at, life.first_seen_at) if at is not None), default=None)
    age = claim.tools.clock.age(_started_at(claim.call), now, claim.item.epoch, may_be_old=False)
    return heard_at if heard_at is None or age is None else min(heard_at, now - age)


def _started_at(call: Call) -> datetime | None:
    """Return when a call began, by the service's clock: by its queue or its record, whichever says the earlier time."""
    reading = call.seen.reading
    known = (call.life.started_at, reading.created_at if reading is not None else None)
    return min((at for at in known if at is not None), default=None)


def _may_be_enrolled(call: Call) -> bool:
    """Tell whether an enroll of a call is in force or under way."""
    return is_enrolled(call) or call.ledger.enroll.state in UNDER_WAY
