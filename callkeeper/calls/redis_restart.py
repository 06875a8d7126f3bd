"""Adjusts a record after Redis was restarted or replaced, or after its clock jumped. Pure functions.

Redis can lose its last writes when it restarts or fails over, so it is unknown what was sent in that time. But the
schedule bounds how many automatic checks can have been made since the record was written, and the reserve bounds those
of people. That many count as used. With fewer, a 21st check might be sent; with more, a failover would end all
watching.

Redis's clock jumps with an NTP step, or when a new server's clock differs. A process compares it with its own clock,
and shifts older records if it jumped ahead. If it was set back, the record itself shows it.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from callkeeper.calls.claimed_item import CLOCK_TOLERANCE, Epoch, Jump, LostWrites
from callkeeper.calls.effect_ledger import DONE, IN_DOUBT, Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import may_begin
from callkeeper.calls.member_evidence import is_assigned
from callkeeper.calls.record import Call, with_effect
from callkeeper.calls.rules.book import RuleBook
from callkeeper.calls.schedule.plan import (
    MOST_AHEAD,
    RETRY,
    Schedule,
    automatic_left,
    begin_watch,
    plan_anew,
    reserve_left,
)
from callkeeper.calls.statement_folding import may_return
from callkeeper.calls.trail import Entry

NEVER_FRESH = timedelta(seconds=5)
"""Added to the age of what the service last said, because its true age before the clock went back is unknown."""

_OF_LIFE = ("hinted_at", "first_seen_at", "absent_at", "end_hinted_at", "looked_back_at", "ended_at", "not_found_since")
_OF_PLAN = ("watch_from", "next_check_at", "next_read_at", "last_check_at", "answered_check_at", "recheck_from")
_OF_EFFECT = ("intended_at", "sent_at", "retry_at")


def catch_up(call: Call, jumps: Iterable[Jump]) -> Call:
    """Shift the instants of a record that was saved before Redis's clock jumped ahead. Rarely needed."""
    for jump in jumps:
        if call.saved_at is not None and call.saved_at <= jump.at + jump.by / 2:
            call = _shifted(call, -jump.by)
    return call


def before_jumps(instant: datetime, jumps: Sequence[Jump]) -> datetime:
    """Return what Redis's clock showed at an instant of a record that ``catch_up`` has shifted."""
    for jump in reversed(jumps):
        if instant - jump.by <= jump.at + CLOCK_TOLERANCE:
            instant -= jump.by
    return instant


def set_back(call: Call, saved_at: datetime, now: datetime) -> Call:
    """Shift a record's instants by as much as the clock went back since it was saved. Rarely needed."""
    if saved_at <= now + CLOCK_TOLERANCE:
        return call
    return _shifted(call, saved_at - now, stale=NEVER_FRESH)


def _shifted(call: Call, by: timedelta, *, stale: timedelta = timedelta()) -> Call:
    """Return a record with all instants earlier by ``by``, and those of what the service said by ``stale`` more."""
    life, seen, said, effects = call.life, call.seen, call.statements, call.ledger
    reading = seen.reading and _shift(seen.reading, ("read_at",), by + stale)
    identity = said.identity and _shift(said.identity, ("established_at",), by)  # it is compared with the end
    shown_identity = said.shown_identity and _shift(said.shown_identity, ("established_at",), by)
    call = replace(
        call,
        life=_shift(_shift(life, ("listed_at",), by + stale), _OF_LIFE, by),
        seen=_shift(replace(seen, reading=reading), ("final_since",), by),
        plan=_shift(call.plan, _OF_PLAN, by),
        ledger=replace(effects, **{kind: _shift(effects.of(kind), _OF_EFFECT, by) for kind in EffectKind}),
        statements=_shift(replace(said, identity=identity, shown_identity=shown_identity), ("heard_at",), by),
    )
    shifted: Call = _shift(call, ("saved_at",), by)
    return shifted


def _shift(record: Any, names: tuple[str, ...], by: timedelta) -> Any:
    instants: dict[str, datetime] = {name: at - by for name in names if (at := getattr(record, name)) is not None}
    return replace(record, **instants) if instants else record


def fold_epoch(call: Call, epoch: str, *, must_verify: bool, now: datetime) -> tuple[Call, list[Entry]]:
    """Adopt a record in the current Redis.

    After a restart or failover the last writes may be missing, so an intention may have been sent. Instants in the
    future mean that Redis's clock was set back.
    """
    if call.saved_at is not None:
        call = set_back(call, call.saved_at, now)
    if call.epoch == epoch and not must_verify:
        return call, []
    first = not call.epoch
    call = replace(call, epoch=epoch)
    if (first and not must_verify) or call.is_settled:
        return call, []
    for kind in EffectKind:
        call = with_effect(call, kind, _as_if_sent(kind, call, now))
    call = replace(call, ledger=replace(call.ledger, established_for=None))  # what calls beside it find may be lost
    return replace(call, plan=replace(call.plan, needs_verifying=True)), [
        Entry(at=now, what="verifying", n=call.plan.checks_used)
    ]


def _as_if_sent(kind: EffectKind, call: Call, now: datetime) -> Effect:
    """Return a ledger that counts everything that Redis may have lost.

    The sender of an intended effect may still wait for the answer, so it counts as sent now, not when it was intended.
    The same holds for an enroll or reject in doubt, or open after a 401, because it may have been sent a second time.
    One whose second intention was withdrawn may have been intended and sent since.
    """
    effect = call.effect(kind)
    if effect.state is EffectState.INTENDED:
        shown = call.seen.reading
        return replace(
            effect,
            state=EffectState.UNKNOWN,
            sent_at=now,
            status_before=shown.status if shown else None,
            retry_at=None,
        )
    if kind is EffectKind.ASSIGN:
        return effect
    may_be_repeated = effect.state in IN_DOUBT or (effect.state is EffectState.ABSENT and may_begin(kind, effect, call))
    if may_be_repeated:
        return replace(effect, state=EffectState.UNKNOWN, sent_at=now, retry_at=None)
    return replace(effect, retry_at=None)


class Window(NamedTuple):
    """The time in which writes may have been lost: from ``after`` to ``until``."""

    after: datetime
    until: datetime


def charge_lost_writes(call: Call, book: RuleBook, lost: LostWrites) -> Call:
    """Count the checks that may have been used since the last known write of a call.

    The instants of the record and the window are by the clock of the Redis that lost the writes.
    """
    return _charge(call, book, _window(call, lost))


def charge_earlier_record(call: Call, book: RuleBook, epoch: Epoch, now: datetime, *, age: timedelta | None) -> Call:
    """Count the checks that a completely lost record may have used on a call that has just been listed.

    Only a call that is older than this Redis can have had a record; ``age`` is how old the call is now at the most, None
    if that cannot be known. It was watched for at most its age at that time, and for at most the time in which writes
    were lost.
    """
    oldest = timedelta(seconds=book.maximum_age_s)
    if age is None and epoch.lost is None:
        began_here = now - epoch.since > oldest
        return charge_unknown_age(replace(call, plan=replace(call.plan, is_age_unknown=not began_here)), book, epoch)
    age = oldest if age is None else age
    # If the call seems older than the maximum age, a clock or a zone differs. The call is not given up for that.
    watched = min(age - (now - epoch.since), timedelta(seconds=book.maximum_age_s / 2))
    if watched <= timedelta():
        return call
    watched = watched if epoch.lost is None else min(watched, epoch.lost)
    # The schedule continues where the lost record was. A new schedule would use more checks than are counted here.
    call = replace(call, life=replace(call.life, first_seen_at=now - watched))
    call = _charge(call, book, Window(now - watched, now))
    return begin_watch(call, book.schedule, now - watched, now) if is_assigned(call) else call


def spent_checks(before: Call, charged: Call, now: datetime) -> list[Entry]:
    """Return what the trail says of checks that count as spent since the record ``before``; nothing if none does."""
    spent = charged.plan.checks_used - before.plan.checks_used
    return [Entry(at=now, what="verifying", n=spent, because="checks_spent")] if spent else []


def charge_unknown_age(call: Call, book: RuleBook, epoch: Epoch) -> Call:
    """Count all checks as spent if nobody knows how old a call was when Redis lost its data.

    A process that knew the lost data may report later than the call is found, so this is asked at every claim.
    """
    if not (call.plan.is_age_unknown and epoch.is_replaced):
        return call
    return _charge(replace(call, plan=replace(call.plan, is_age_unknown=False)), book, None)


def most_automatic(call: Call, book: RuleBook, window: Window | None) -> int:
    """Return a bound on the automatic checks that can have been made in a window; all that are left in an unknown one.

    A call that was not assigned is counted as if it had been when the window began, because it may have been.
    """
    left = automatic_left(call, book.schedule.automatic_limit)
    if window is None:
        return left
    if call.plan.watch_from is not None:
        return min(left, _most_watched(call, book.schedule, window))
    slots = book.schedule.slots_between(min(call.life.first_seen_at or window.after, window.after), *window)
    unassigned = min(automatic_left(call, book.checks_unassigned), 1 + slots)
    begun = begin_watch(call, book.schedule, window.after, window.after)
    return min(left, unassigned + _most_watched(begun, book.schedule, window))


def _window(call: Call, lost: LostWrites) -> Window | None:
    """Return the time in which writes about a call may have been lost; None if unknown.

    Redis loses only its last writes. So nothing is missing from before the record was saved, nor from before the last
    known claim.
    """
    known = [at for at in (call.saved_at, lost.after) if at is not None]
    if not known or lost.until is None or lost.until < max(known):
        return None
    return Window(max(known), lost.until)


def _charge(call: Call, book: RuleBook, window: Window | None) -> Call:
    if _takes_no_checks(call):
        return call
    automatic, by_people = most_automatic(call, book, window), reserve_left(call, book.schedule)  # who ask at any time
    used, by_desk = call.plan.checks_used + automatic + by_people, call.plan.checks_by_desk + by_people
    charged = replace(call, plan=replace(call.plan, checks_used=used, checks_by_desk=by_desk))
    return plan_anew(charged, book.schedule, window.until) if automatic and window is not None else charged


def _takes_no_checks(call: Call) -> bool:
    """Tell whether the service makes no more checks of the call, for good. Spec: Polling stop rule."""
    is_decided = call.seen.authenticated or call.seen.full_authentication or call.seen.enrolled or call.seen.rejected
    is_ours = call.ledger.enroll.state in DONE or call.ledger.reject.state in DONE
    is_over = call.is_settled and not may_return(call)
    return is_over or call.life.ended_at is not None or is_decided or is_ours


def _most_watched(call: Call, schedule: Schedule, window: Window) -> int:
    """Return a bound on the automatic checks of a watched call: one, the slots after it, and those that replace lost ones.

    The first one is the planned one. It comes sooner if the last known check may have failed (``check_failed``) or if
    there are checks to spare (``take_turns``). Replacements come a second after another check at the earliest, and at most
    ``MOST_AHEAD`` are ahead of the slots.
    """
    plan, paced, left = call.plan, schedule.paced(call.voice_id), automatic_left(call, schedule.automatic_limit)
    watch_from, slots = plan.watch_from or window.after, len(schedule.at_s)
    first = max(plan.next_check_at or window.after, window.after)
    if plan.last_check_at != plan.answered_check_at:
        first = min(first, window.after + RETRY)
    if left > slots - paced.slots_passed(watch_from, window.after):
        first = window.after
    if first > window.until:
        return 0
    planned = 1 + paced.slots_between(watch_from, first, window.until)
    ahead = left + MOST_AHEAD - slots + paced.slots_passed(watch_from, window.until)
    return max(planned, min(planned + (window.until - first) // RETRY, ahead))
