"""Looks at the other calls of a call's member: once the caller is established, and before an enroll or a reject is sent.

Two callers at once who are both established as the member are two people: no rule enrolls either, and a person finds out who
is who. And a reject takes back every enroll of its member, also one that came after its reason.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from callkeeper.calls.effect_ledger import UNDER_WAY, EffectKind
from callkeeper.calls.effect_resolution import is_repeated
from callkeeper.calls.item_names import CallId
from callkeeper.calls.member_evidence import established_member, is_enrolled
from callkeeper.calls.note_folding import fold_beside
from callkeeper.calls.notes import SameMember
from callkeeper.calls.record import Call
from callkeeper.calls.redis_restart import before_jumps, catch_up
from callkeeper.calls.statement_folding import received_at
from workers.claimed_call import Claim


async def find_beside(claim: Claim, *, anew: bool = False) -> None:
    """Find the calls at the same time whose callers are established as the same member, and tell them of this one.

    It is done once the caller is established, while another one is known, and (``anew``) directly before an enroll. This
    call is stored before the others are looked up, so of two at the same moment at least one finds the other; and its record
    is written before that, because whoever finds it looks there.

    Raises:
        WriteRefused: Another worker holds the call now.
    """
    members, person_id, ledger = claim.tools.store.members, established_member(claim.call), claim.call.ledger
    is_news = person_id is not None and person_id != ledger.established_for
    if claim.call.is_settled or not (is_news or ledger.beside or anew):
        return
    found: dict[CallId, Call] = {}
    if person_id is not None:
        if is_news:
            await claim.keep()
        await members.establish(claim.call_id, person_id, claim.now)
        found = await _beside(claim, person_id)
    claim.call, lines = fold_beside(claim.call, [other.voice_id for other in found], claim.now)
    claim.entries += lines
    for call_id, other in found.items():
        if claim.call_id.voice_id not in other.ledger.beside:
            note = SameMember(voice_id=claim.call_id.voice_id)
            await claim.tools.store.note(call_id, note, even_settled=True)
    claim.call = replace(claim.call, ledger=replace(claim.call.ledger, established_for=person_id))


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


async def _beside(claim: Claim, person_id: str) -> dict[CallId, Call]:
    """Return the other calls of a person who is established in them, and which went on while this one did."""
    key, began_at = claim.call_id.institution_key, _began_at(claim, claim.call)
    if began_at is None:
        return {}
    longest = timedelta(seconds=claim.tools.book.maximum_age_s)  # no call goes on for longer
    since = before_jumps(began_at, claim.tools.store.jumps) - longest
    beside = {}
    for call_id in await _others(claim, await claim.tools.store.members.established_since(key, person_id, since)):
        other = await claim.tools.store.record(call_id)
        if other is None or established_member(other) != person_id:
            continue
        other = catch_up(other, claim.tools.store.jumps)
        if not (_was_over(other, claim.call, began_at) or _was_over(claim.call, other, _began_at(claim, other))):
            beside[call_id] = other
    return beside


async def _others(claim: Claim, found: Iterable[str]) -> list[CallId]:
    """Return the other calls that are found by these voice ids. A record that was merged stands for the one it is in now."""
    key, ours = claim.call_id
    ends = [await claim.tools.store.end_of(CallId(key, voice_id)) for voice_id in found if voice_id != ours]
    return [end for end in dict.fromkeys(ends) if end != claim.call_id]


def _was_over(one: Call, other: Call, other_began_at: datetime | None) -> bool:
    """Tell whether a call was over when another one began: by Redis's clock, or else by the service's.

    If the end was read late, only the service's record shows when it was. One that was lost or given up has no end.
    """
    over_at, changed_at, started_at = (
        one.life.ended_at or one.life.settled_at,
        one.life.changed_at_end,
        _started_at(other),
    )
    if over_at is not None and other_began_at is not None and over_at <= other_began_at:
        return True
    return changed_at is not None and started_at is not None and changed_at <= started_at


def _began_at(claim: Claim, call: Call) -> datetime | None:
    """Return when a call began, by Redis's clock; None if that is not known.

    The service says how old it is, as far as its clock is known. We may have heard of it late.
    """
    life, now = call.life, claim.now
    heard_at = min((at for at in (life.hinted_at, life.first_seen_at) if at is not None), default=None)
    age = claim.tools.clock.age(_started_at(call), now, claim.item.epoch, may_be_old=False)
    return heard_at if heard_at is None or age is None else min(heard_at, now - age)


def _started_at(call: Call) -> datetime | None:
    """Return when a call began, by the service's clock: by its queue or its record, whichever says the earlier time."""
    reading = call.seen.reading
    known = (call.life.started_at, reading.created_at if reading is not None else None)
    return min((at for at in known if at is not None), default=None)


def _may_be_enrolled(call: Call) -> bool:
    """Tell whether an enroll of a call is in force or under way."""
    return is_enrolled(call) or call.ledger.enroll.state in UNDER_WAY
