"""How a call ends: hints that are not confirmed, calls that have ended, and calls that are lost."""

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from callkeeper.calls.context import Context
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.institutions import FOREIGN, NO_VOICE_AUTH, NOT_ACTIVE, TEST_MODE, UNKNOWN
from callkeeper.calls.note_folding import fold_note
from callkeeper.calls.notes import Resolved
from callkeeper.calls.record import Call, Phase, Reason
from callkeeper.calls.rules import Outcome, Rule
from callkeeper.calls.rules.book import Between
from callkeeper.calls.settlement import (
    BY_PUSH,
    CONFIRM_LOOKS_S,
    HINT_LIVES,
    LISTED_FOR,
    LOOK_BACK_WITHIN,
    NOT_FOUND_FOR,
    SETTLE_AFTER,
    believed_end,
    close,
    confirm,
    is_lost,
    is_not_found,
    look_back,
    must_be_listed_again,
    settled_anew,
)
from callkeeper.calls.statement_folding import HEARD_AFTER_END
from callkeeper.calls.steps import Deed, Drop, LookBack, Read, RequestListing, Settle, Wait, Withdraw
from tests.records import facts_of_record, with_stored
from tests.unit.calls.specimens import BOOK, NOW, call, reading, seconds, word

CONTEXT = Context(call().last_claim)

HINT = Call(institution_key="cu-1", voice_id="v-1")


def hinted(ago_s: float, looks: int, **changes: Any) -> Call:
    """Return a hint of so long ago, for which the queue was looked at so often."""
    return with_stored(HINT, hinted_at=NOW - seconds(ago_s), confirm_looks=looks, **changes)


def next_of(hint: Call, *, is_lost: bool = False, is_late: bool = False, is_silent: bool = False) -> Deed:
    """Return the next step of a hint."""
    late = seconds(9 if is_late else 0)
    return confirm(hint, Context(hint.last_claim, late=late, is_silent=is_silent), NOW, is_lost=is_lost)


@pytest.mark.parametrize("n", range(len(CONFIRM_LOOKS_S)))
def test_queue_is_looked_at_at_each_time_after_a_hint(n: int) -> None:
    """And waited for until then."""
    due_s = CONFIRM_LOOKS_S[n]
    assert next_of(hinted(due_s, n)) == RequestListing()
    assert next_of(hinted(due_s - 0.1, n)) == Wait(NOW + seconds(0.1))


def test_hint_that_was_not_listed_is_dropped_after_its_life() -> None:
    """Not a moment earlier."""
    life_s, looks = HINT_LIVES.total_seconds(), len(CONFIRM_LOOKS_S)
    assert next_of(hinted(life_s - 1, looks)) == Wait(NOW + seconds(1))
    assert next_of(hinted(life_s, looks)) == Drop()


def test_hint_of_a_silent_queue_is_read_by_its_push() -> None:
    """Until the service does not know it; without the institution's standing nothing is sent."""
    assert next_of(hinted(3, 2), is_silent=True) == BY_PUSH
    assert next_of(hinted(3, 2), is_silent=True, is_lost=True) == Drop()
    assert next_of(hinted(3, 2, standing=UNKNOWN), is_silent=True) == Wait(NOW + seconds(0.5))


def test_hint_that_a_person_named_is_read_and_never_dropped() -> None:
    """It ends as unconfirmed."""
    said = {"has_statements": True}
    assert isinstance(next_of(hinted(3, 2, **said)), Read)
    assert next_of(hinted(99, 4, **said), is_lost=True) == Settle(Reason.UNCONFIRMED)
    assert next_of(hinted(99, 4, standing=FOREIGN, **said)) == Settle(Reason.UNCONFIRMED)
    assert next_of(hinted(99, 4, standing=UNKNOWN, **said)) == Wait(NOW + seconds(1))


def back(hint: Call, hinted_at: datetime = NOW, **context: Any) -> Deed:
    """Return what becomes of a hint that was not listed."""
    return look_back(hint, Context(hint.last_claim, **context), hinted_at, NOW)


def test_hint_whose_end_was_pushed_is_read_once_before_it_is_dropped() -> None:
    """If the read fails, again when reads are; for a day, so that no outage is too long."""
    ended = hinted(20, 4, end_hinted_at=NOW)
    assert back(ended) == LookBack()
    assert back(with_stored(ended, reads_failed=1, next_read_at=NOW + seconds(3))) == Wait(NOW + seconds(3))
    assert back(with_stored(ended, reads_failed=1, next_read_at=NOW)) == LookBack()
    assert back(ended, NOW - LOOK_BACK_WITHIN) == LookBack()
    assert back(ended, NOW - LOOK_BACK_WITHIN - seconds(1)) == Drop()
    for changes in ({"end_hinted_at": None}, {"standing": FOREIGN}, {"looked_back_at": NOW}):
        assert back(with_stored(ended, **changes)) == Drop()


def test_call_is_not_found_only_after_a_delay() -> None:
    """The service may show it late."""
    assert not is_not_found(call(), NOW)
    assert not is_not_found(call(not_found_since=NOW - NOT_FOUND_FOR), NOW)
    assert is_not_found(call(not_found_since=NOW - NOT_FOUND_FOR - seconds(1)), NOW)


@pytest.mark.parametrize("known", ["first_seen_at", "listed_at", "started_at"])
def test_age_of_a_call_counts_from_what_is_known_first(known: str) -> None:
    """From when it was first seen; records without that have a listing, or only the service's word."""
    born = NOW - seconds(BOOK.maximum_age_s)
    unknown = dict.fromkeys(("first_seen_at", "listed_at", "started_at"))
    went_on = {**unknown, "is_unlisted": True, "next_read_at": NOW + seconds(1)}
    assert not is_lost(call(**{**went_on, known: born}), CONTEXT, BOOK, NOW)
    assert is_lost(call(**{**went_on, known: born - seconds(1)}), CONTEXT, BOOK, NOW)
    assert not is_lost(call(**unknown), CONTEXT, BOOK, NOW)


def test_call_that_is_listed_is_never_too_old() -> None:
    """Whatever its institution's standing. Nor one whose read is due. If it is not listed any more, its age counts."""
    old = call(first_seen_at=NOW - seconds(BOOK.maximum_age_s + 1), next_read_at=NOW + seconds(1))
    for standing in (None, UNKNOWN, NOT_ACTIVE, TEST_MODE, NO_VOICE_AUTH):
        listed = with_stored(old, listed_at=NOW - seconds(9999), standing=standing)
        assert not is_lost(listed, Context(listed.last_claim), BOOK, NOW)
    unlisted = with_stored(old, listed_at=NOW - seconds(9999), is_unlisted=True)
    assert is_lost(unlisted, CONTEXT, BOOK, NOW)
    assert not is_lost(with_stored(unlisted, next_read_at=NOW), CONTEXT, BOOK, NOW)
    assert is_lost(with_stored(unlisted, next_read_at=NOW), Context(call(standing=TEST_MODE).last_claim), BOOK, NOW)
    foreign = Context(call(standing=FOREIGN).last_claim)
    assert is_lost(with_stored(old, listed_at=NOW - seconds(9999)), foreign, BOOK, NOW)


HELD = {"distrusted": word(), "end_seen_at": NOW}


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, True),
        ({"reject": Effect(state=EffectState.INTENDED, attempts=2)}, True),
        ({"reject": Effect(state=EffectState.UNKNOWN, attempts=2)}, True),
        ({"reject": Effect(state=EffectState.REFUSED, attempts=2)}, False),
        ({"reject": Effect(state=EffectState.APPLIED, attempts=1)}, False),
        ({"rejected_seen": True}, False),
        ({"rejected_seen": True, "enrolled_seen": True}, True),
        ({"distrusted": None}, False),
        ({"distrusted": word(in_shadow=True)}, False),
        ({"reading": None}, False),
    ],
)
def test_call_that_a_person_distrusted_is_kept_for_a_day(changes: dict[str, Any], waits: bool) -> None:
    """While a reject may still follow: a pause may hold it up. It counts from the end, or from the beginning."""
    known = call(**HELD | changes)
    assert is_lost(known, CONTEXT, BOOK, NOW + seconds(BOOK.maximum_age_s + 1)) is not waits
    if waits:
        assert not is_lost(known, CONTEXT, BOOK, NOW + HEARD_AFTER_END)
        assert is_lost(known, CONTEXT, BOOK, NOW + HEARD_AFTER_END + seconds(1))
        unlisted = with_stored(known, end_seen_at=None, is_unlisted=True, next_read_at=NOW + 2 * HEARD_AFTER_END)
        assert is_lost(unlisted, CONTEXT, BOOK, NOW - seconds(29) + HEARD_AFTER_END)


def test_call_that_is_not_found_is_lost_unless_the_queue_has_just_listed_it() -> None:
    """A listing counts for three minutes, and after 20 s the queue is asked again."""
    missing = call(not_found_since=NOW - NOT_FOUND_FOR - seconds(1), listed_at=NOW - LISTED_FOR)
    assert not is_lost(missing, CONTEXT, BOOK, NOW)
    assert is_lost(with_stored(missing, listed_at=NOW - LISTED_FOR - seconds(1)), CONTEXT, BOOK, NOW)
    assert is_lost(with_stored(missing, is_unlisted=True), CONTEXT, BOOK, NOW)
    assert must_be_listed_again(missing, NOW)
    assert not must_be_listed_again(with_stored(missing, listed_at=NOW - seconds(20)), NOW)
    assert must_be_listed_again(with_stored(missing, listed_at=NOW - seconds(20.1)), NOW)
    assert not must_be_listed_again(with_stored(missing, not_found_since=None), NOW)


def test_end_is_believed_to_the_services_record_only() -> None:
    """It is when the end was pushed, unless a later read showed the call going on."""
    assert believed_end(call(end_hinted_at=NOW), reading(), NOW) is None
    assert believed_end(call(), reading(has_ended=True), NOW) == NOW
    assert believed_end(call(), reading(status="CallEnded"), NOW) == NOW
    earlier = NOW - seconds(9)
    assert believed_end(call(end_seen_at=earlier), reading(has_ended=True), NOW) == earlier
    hinted = call(end_hinted_at=earlier, reading=None)
    assert believed_end(hinted, reading(has_ended=True), NOW) == earlier
    went_on = with_stored(hinted, reading=reading(read_at=earlier + seconds(1)))
    assert believed_end(went_on, reading(has_ended=True), NOW) == NOW


def closed(known: Call) -> Deed | None:
    """Return how a call is closed."""
    return close(known, Context(known.last_claim), BOOK, facts_of_record(known, BOOK.policies, NOW), NOW)


def test_ended_call_is_read_once_more_and_settled() -> None:
    """After the service has settled its record; an intention is withdrawn first."""
    assert closed(call()) is None
    ended_at = NOW - SETTLE_AFTER
    assert closed(call(end_seen_at=NOW)) == Wait(NOW + SETTLE_AFTER)
    unread = call(end_seen_at=ended_at, reading=reading(read_at=NOW - seconds(1)))
    assert closed(unread) == Read("last read")
    assert closed(with_stored(unread, reading=reading())) == Settle(Reason.UNDECIDED)
    intended = with_stored(unread, reject=Effect(state=EffectState.INTENDED))
    assert closed(intended) == Withdraw(EffectKind.REJECT, "call ended")


@pytest.mark.parametrize("unread_s", [1, 0], ids=["last read", "final analysis"])
def test_read_of_an_ended_call_waits_after_one_that_failed(unread_s: int) -> None:
    """A service that fails is not asked again and again, because the call has ended."""
    known = call(end_seen_at=NOW - SETTLE_AFTER, reading=reading(read_at=NOW - seconds(unread_s)))
    book = replace(BOOK, rules=(Rule("final", (("final_analysis", True),), Outcome.ASK, "because"),))
    for again_at, step in ((NOW, Read), (NOW + seconds(2), Wait)):
        failed = with_stored(known, reads_failed=1, next_read_at=again_at)
        facts = facts_of_record(failed, book.policies, NOW)
        assert isinstance(close(failed, Context(failed.last_claim), book, facts, NOW), step)


@pytest.mark.parametrize(("turn_s", "is_kept"), [(600, True), (601, False)])
def test_ended_call_is_kept_ten_minutes_for_a_rule_that_waits(turn_s: int, is_kept: bool) -> None:
    """The rule may decide something then. One that waits longer decides nothing."""
    waiting = Rule("later", (("ended_s", Between(turn_s, None)),), Outcome.HOLD, "because")
    book = replace(BOOK, rules=(waiting, *BOOK.rules))
    ended_at = NOW - SETTLE_AFTER
    known = call(end_seen_at=ended_at)
    step = close(known, Context(known.last_claim), book, facts_of_record(known, book.policies, NOW), NOW)
    assert step == (Wait(ended_at + seconds(turn_s)) if is_kept else Settle(Reason.UNDECIDED))


REASONS: dict[Reason, dict[str, Any]] = {
    Reason.REJECTED: {"rejected_seen": True},
    Reason.RED: {"reading": reading(policies=("Red High Risk", "Green Voice Authentication"))},
    Reason.AUTHENTICATED: {"reading": reading(policies=("Green Voice Authentication",))},
    Reason.UNASSIGNED: {"person_id": None, "assign": Effect()},
    Reason.UNRESOLVED: {"reject": Effect(state=EffectState.UNRESOLVED, sent_at=NOW - seconds(300), attempts=1)},
}


@pytest.mark.parametrize(("reason", "changes"), REASONS.items(), ids=REASONS)
def test_settled_call_has_the_most_important_reason(reason: Reason, changes: dict[str, Any]) -> None:
    """A red policy counts before a green one, a doubt before everything."""
    assert closed(call(end_seen_at=NOW - SETTLE_AFTER, **changes)) == Settle(reason)


RESOLVED: dict[str, tuple[bool, dict[str, Any], Reason]] = {
    "enrolled": (True, {}, Reason.ENROLLED),
    "undecided": (False, {}, Reason.UNDECIDED),
    "red": (False, {"reading": reading(policies=("Red High Risk",))}, Reason.RED),
    "authenticated": (False, {"reading": reading(policies=("Green Voice Authentication",))}, Reason.AUTHENTICATED),
    "another doubt": (True, {"reject": Effect(state=EffectState.UNRESOLVED)}, Reason.UNRESOLVED),
    "lost": (False, {"end_seen_at": None}, Reason.LOST),
}


@pytest.mark.parametrize(("applied", "changes", "reason"), RESOLVED.values(), ids=RESOLVED)
def test_reason_after_a_person_has_resolved_an_effect(applied: bool, changes: dict[str, Any], reason: Reason) -> None:
    """It is what it would have been without the doubt."""
    known: dict[str, Any] = {"end_seen_at": NOW, "enroll": Effect(state=EffectState.UNRESOLVED), **changes}
    doubtful = call(phase=Phase.SETTLED, reason=Reason.UNRESOLVED, **known)
    answer = Resolved(applied=applied, effect="enroll", operator="ann", said_at=NOW, number=1)
    assert settled_anew(fold_note(doubtful, answer, NOW)[0], BOOK, NOW).life.reason is reason
