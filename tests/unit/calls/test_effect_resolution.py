"""What stored details prove about an effect whose answer was lost."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import (
    DOUBT_READS_S,
    MAX_REQUESTS,
    RECHECK_S,
    SPREAD_S,
    after_refusal,
    after_turning_away,
    evidence,
    failures,
    is_repeated,
    may_assign,
    may_begin,
    next_doubt_read,
    recheck,
)
from callkeeper.calls.record import Call, Word
from callkeeper.calls.steps import Read, Rest, Wait
from tests.conftest import examples
from tests.records import with_stored
from tests.unit.calls.specimens import CALLS, INSTANTS, NOW, call, reading, seconds, verified

ASSIGN, ENROLL, REJECT = EffectKind.ASSIGN, EffectKind.ENROLL, EffectKind.REJECT
CONFIRMED, ABSENT, UNRESOLVED = EffectState.CONFIRMED, EffectState.ABSENT, EffectState.UNRESOLVED


def test_effect_of_which_a_record_says_nothing_was_never_sent() -> None:
    """Records leave out what is false, none or 0. With another default, stored requests would be counted otherwise."""
    stored = msgspec.json.decode(b"{}", type=Effect)
    said = {name: value for name, value in msgspec.structs.asdict(stored).items() if value}
    assert said == {"state": EffectState.NONE}


def in_doubt(kind: EffectKind, after_s: float, **seen: Any) -> Call:
    """Return a call with an effect sent now without an answer, whose details were read some seconds later."""
    effect = Effect(
        state=EffectState.UNKNOWN,
        person_id="p-1",
        sent_at=NOW,
        doubted_at=NOW + seconds(1),
        status_before="GrabbedCall",
        attempts=1,
    )
    last = reading(read_at=NOW + seconds(after_s), **{"status": "GrabbedCall", **seen})
    return with_stored(call(person_id=None, reading=last), **{kind: effect})


PROOFS: dict[str, tuple[EffectKind, float, dict[str, Any], EffectState | None]] = {
    "enroll shows in the status": (ENROLL, 1, {"status": "AcceptCallerVoice"}, CONFIRMED),
    "enroll shows in the next status": (ENROLL, 1, {"status": "FullAuthentication"}, CONFIRMED),
    "enroll shows in the policy": (ENROLL, 1, {"policies": ("Green Manual Authentication",)}, CONFIRMED),
    "enroll shows in the flag": (ENROLL, 1, {"was_voice_enrolled_now": True}, CONFIRMED),
    "the voice turned green meanwhile": (
        ENROLL,
        20,
        {"status": "FullAuthentication", "is_voice_verified": True},
        ABSENT,
    ),
    "enroll does not show yet": (ENROLL, 8, {}, None),
    "enroll does not show after 20 s": (ENROLL, 20, {}, ABSENT),
    "reject shows": (REJECT, 1, {"status": "RejectCallerVoice"}, CONFIRMED),
    "reject by the service's own rule proves none": (
        REJECT,
        1,
        {"status": "RejectCallerVoiceFromValidationRule"},
        None,
    ),
    "reject absent: the status is untouched": (REJECT, 20, {}, ABSENT),
    "reject: the status was overwritten": (REJECT, 20, {"status": "AgentViewed"}, UNRESOLVED),
    "assign shows": (ASSIGN, 1, {"person_id": "p-1"}, CONFIRMED),
    "assigned to somebody else": (ASSIGN, 1, {"person_id": "p-2"}, ABSENT),
    "nobody assigned yet": (ASSIGN, 8, {"person_id": None}, None),
    "nobody assigned after 20 s": (ASSIGN, 20, {"person_id": None}, ABSENT),
    "a reading from before it was sent": (ENROLL, -1, {"status": "AcceptCallerVoice"}, None),
}


@pytest.mark.parametrize(("kind", "after_s", "seen", "proved"), PROOFS.values(), ids=PROOFS)
def test_evidence_proves_only_what_details_show(
    kind: EffectKind, after_s: float, seen: dict[str, Any], proved: EffectState | None
) -> None:
    """Each trace proves its effect. Its absence proves something only after 20 s."""
    assert evidence(kind, in_doubt(kind, after_s, **seen), NOW + seconds(max(after_s, 0))) is proved


@pytest.mark.parametrize(("status", "proved"), [("GrabbedCall", ABSENT), ("AgentViewed", UNRESOLVED)])
def test_enroll_of_which_redis_has_only_the_intention_is_absent_only_if_nothing_happened_since(
    status: str, proved: EffectState
) -> None:
    """Redis was rolled back. A reject that it forgot, too, may have taken the traces of the enroll away."""
    seen = in_doubt(ENROLL, 20, status=status)
    forgotten = with_stored(seen, enroll=replace(seen.ledger.enroll, attempts=0))
    assert evidence(ENROLL, forgotten, NOW + seconds(20)) is proved
    assert evidence(ENROLL, seen, NOW + seconds(20)) is ABSENT


@pytest.mark.parametrize("kind", EffectKind)
def test_first_read_proves_no_absence(kind: EffectKind) -> None:
    """After a jump of the clock, a moment looks like half a minute, so another read follows."""
    seen = in_doubt(kind, 30, person_id=None)
    once = with_stored(seen, **{kind: replace(seen.effect(kind), doubted_at=None)})
    assert evidence(kind, once, NOW + seconds(30)) is None
    assert next_doubt_read(once.effect(kind), once, NOW + seconds(30)) == NOW + seconds(38)
    twice = with_stored(seen, **{kind: replace(seen.effect(kind), doubted_at=NOW + seconds(22))})
    assert evidence(kind, twice, NOW + seconds(30)) is ABSENT


@pytest.mark.parametrize("kind", EffectKind)
def test_evidence_leaves_what_cannot_be_read_to_a_person(kind: EffectKind) -> None:
    """After ten minutes without a readable answer, a person must resolve the effect."""
    seen = in_doubt(kind, 0)
    effect = replace(seen.effect(kind), doubted_at=None)
    blind = with_stored(seen, reading=None, reads_failed=9, **{kind: effect})
    assert evidence(kind, blind, NOW + seconds(600)) is None
    assert evidence(kind, blind, NOW + seconds(601)) is UNRESOLVED
    assert evidence(kind, replace(blind, plan=replace(blind.plan, reads_failed=0)), NOW + seconds(601)) is None, (
        "nobody has read it yet"
    )


def test_doubt_is_read_at_growing_distances() -> None:
    """Stored details are read 1, 3, 8 and 20 s after the sending."""
    slots = []
    for after_s in (0, *DOUBT_READS_S[:-1]):
        doubtful = in_doubt(ENROLL, after_s)
        slots.append((next_doubt_read(doubtful.ledger.enroll, doubtful, NOW + seconds(after_s)) - NOW).total_seconds())
    assert tuple(slots) == DOUBT_READS_S


@given(any_call=CALLS, now=INSTANTS)
@examples(60)
def test_doubt_after_a_failed_read_waits(any_call: Call, now: Any) -> None:
    """While the service cannot be read a doubt never asks again at once."""
    failing = replace(any_call, plan=replace(any_call.plan, reads_failed=1, next_read_at=now + seconds(2)))
    for kind in EffectKind:
        assert next_doubt_read(failing.effect(kind), failing, now) > now


def test_reject_that_was_refused_is_sent_again_for_a_later_word_only() -> None:
    """The order of statements decides which came later, because Redis's clock may have been set back."""
    word = Word(operator="ann", said_at=NOW, number=7)
    refused = Effect(state=EffectState.REFUSED, sent_at=NOW - seconds(600), attempts=1, last_word=7)
    assert not may_begin(REJECT, refused, call(distrusted=word))
    assert may_begin(REJECT, refused, call(distrusted=replace(word, number=8)))


@pytest.mark.parametrize("kind", EffectKind)
def test_word_that_reopened_an_effect_outlives_a_withdrawal(kind: EffectKind) -> None:
    """If what a person asked for once more is withdrawn, by the end of the call or a pause, it can be sent afterwards."""
    word = Word(operator="ann", said_at=NOW, person_id="p-1", number=8)
    withdrawn = Effect(state=EffectState.NONE, sent_at=NOW - seconds(60), attempts=3, last_word=7)
    asked = call(
        person_id=None, distrusted=word, assign_wish=word, identity=replace(verified(), number=8), **{kind: withdrawn}
    )
    assert may_assign(asked) if kind is ASSIGN else may_begin(kind, withdrawn, asked)
    heard = with_stored(asked, **{kind: replace(withdrawn, last_word=8)})
    assert not (may_assign(heard) if kind is ASSIGN else may_begin(kind, heard.effect(kind), heard))


@pytest.mark.parametrize(("tries", "wait_s"), [(0, 1.0), (1, 1.0), (2, 3.0), (3, 6.0), (7, 60.0), (9, 60.0)])
def test_assign_that_was_turned_away_waits_longer_each_time(tries: int, wait_s: float) -> None:
    """An enroll or reject waits for nothing but the proof that it is absent."""
    effect = Effect(attempts=tries + 2, unsent=2)
    assert after_turning_away(EffectKind.ASSIGN, effect, NOW).retry_at == NOW + seconds(wait_s)
    assert after_turning_away(EffectKind.ENROLL, effect, NOW).retry_at == NOW
    assert after_refusal(EffectKind.REJECT, effect, "no", NOW).retry_at == NOW
    assert after_turning_away(EffectKind.ASSIGN, effect, NOW).unauthorized == 1


@pytest.mark.parametrize("kind", [EffectKind.ENROLL, EffectKind.REJECT])
def test_effect_is_begun_again_only_if_it_is_absent_and_may_be_sent(kind: EffectKind) -> None:
    """It was never sent, or was turned away and is absent; at most twice past authentication."""
    assert may_begin(kind, Effect(), call())
    turned_away = Effect(state=EffectState.ABSENT, attempts=1, sent_at=NOW, retry_at=NOW)
    assert may_begin(kind, turned_away, call())
    assert not may_begin(kind, replace(turned_away, attempts=MAX_REQUESTS), call())
    assert may_begin(kind, replace(turned_away, attempts=MAX_REQUESTS, unsent=1), call())
    assert not may_begin(kind, replace(turned_away, retry_at=None), call())
    assert not may_begin(kind, replace(turned_away, state=EffectState.UNKNOWN), call())


def test_effect_is_repeated_if_nobody_asked_for_it_since() -> None:
    """One that was never sent is not."""
    sent = Effect(state=EffectState.ABSENT, attempts=1, sent_at=NOW, last_word=3)
    said = Word(operator="ann", said_at=NOW, number=4)
    assert not is_repeated(EffectKind.REJECT, call())
    assert is_repeated(EffectKind.REJECT, call(reject=sent))
    assert not is_repeated(EffectKind.REJECT, call(reject=sent, distrusted=said))
    assert is_repeated(EffectKind.REJECT, call(reject=sent, distrusted=replace(said, number=3)))
    assert not is_repeated(EffectKind.REJECT, call(reject=replace(sent, unsent=1)))


def test_refusal_stands_until_something_replaces_it() -> None:
    """Or until a person has seen it."""
    refused = Effect(state=EffectState.REFUSED, refusal="no", attempts=1, sent_at=NOW)
    assert failures(call(enroll=refused)) == [EffectKind.ENROLL]
    assert failures(call(enroll=refused, enrolled_seen=True)) == []
    assert failures(call(enroll=replace(refused, refusal=None))) == []
    assert failures(call(enroll=replace(refused, state=EffectState.ABSENT))) == []
    assert failures(call(reject=refused)) == [EffectKind.REJECT]
    assert failures(call(reject=refused, rejected_seen=True)) == []
    assert failures(call(reject=refused, rejected_seen=True, rejected_by_rule_only=True)) == [EffectKind.REJECT]
    assert failures(call(assign=refused)) == []
    assert failures(call(assign=refused, person_id=None)) == [EffectKind.ASSIGN]


def test_settled_call_is_read_after_a_reject_of_its_member() -> None:
    """Three times, spread by its id, until the enroll shows as taken back; then it rests."""
    assert recheck(call(), NOW) == Rest()
    assert recheck(call(recheck_from=NOW, not_found_since=NOW), NOW) == Rest()
    waits: list[float] = []
    for after_s in RECHECK_S:
        due = call(recheck_from=NOW, reading=reading(read_at=NOW + seconds(waits[-1]) if waits else NOW))
        step = recheck(due, NOW)
        assert isinstance(step, Wait)
        waits.append((step.until - NOW).total_seconds())
        assert 0 <= waits[-1] - after_s < SPREAD_S
        assert recheck(due, step.until) == Read("a reject of the member")
    assert len({wait - after_s for wait, after_s in zip(waits, RECHECK_S, strict=True)}) == 1
    assert recheck(call(recheck_from=NOW, reading=reading(read_at=NOW + seconds(waits[-1]))), NOW) == Rest()
    failed = call(recheck_from=NOW, reading=reading(), reads_failed=1, next_read_at=NOW + seconds(300))
    assert recheck(failed, NOW) == Wait(NOW + seconds(300))


@pytest.mark.parametrize("kind", [EffectKind.ENROLL, EffectKind.REJECT])
def test_effect_that_was_sent_twice_and_does_not_show_is_a_persons(kind: EffectKind) -> None:
    """Unless the service refused it; one that was sent once is absent."""
    sent_at = NOW - seconds(600)
    effect = Effect(state=EffectState.UNKNOWN, attempts=1, sent_at=sent_at, doubted_at=sent_at + seconds(1))
    known = reading(read_at=NOW)
    effect = replace(effect, status_before=known.status, updated_before=known.updated_at)
    twice = replace(effect, attempts=MAX_REQUESTS)
    refused = replace(twice, refusal="no")
    states = {EffectState.ABSENT: effect, EffectState.UNRESOLVED: twice, EffectState.REFUSED: refused}
    for state, ledger in states.items():
        assert evidence(kind, call(**{kind.value: ledger}, reading=known), NOW) is state
