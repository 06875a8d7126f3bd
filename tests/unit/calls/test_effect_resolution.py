"""What stored details prove about an effect whose answer was lost."""

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import (
    DOUBT_READS_S,
    ENROLL_UNRESOLVED,
    ENROLLED_AS_ANOTHER,
    ENROLLED_SINCE,
    LAST_DOUBT_READ,
    RECHECK_S,
    SPREAD_S,
    TAKEN_BACK,
    after_refusal,
    after_turning_away,
    attention,
    attention_reasons,
    enroll_trouble,
    evidence,
    failures,
    fold_member_rejected,
    fold_unenrolled,
    ignored,
    is_repeated,
    last_doubt_read,
    may_assign,
    may_begin,
    needs_of,
    next_doubt_read,
    recheck,
    unresolved,
    without_service_words,
)
from callkeeper.calls.record import Asked, Call, CallStatement, Phase, Reason
from callkeeper.calls.steps import Read, Rest, Wait
from tests.conftest import examples
from tests.records import facts_of_record, with_stored
from tests.unit.calls.specimens import BOOK, CALLS, INSTANTS, NOW, call, reading, seconds, verified, word

ASSIGN, ENROLL, REJECT = EffectKind.ASSIGN, EffectKind.ENROLL, EffectKind.REJECT
CONFIRMED, ABSENT, UNRESOLVED = EffectState.CONFIRMED, EffectState.ABSENT, EffectState.UNRESOLVED
GREEN, UNENROLLED = ("Green Manual Authentication",), "FullAuthenticationUnenrolled"
REJECTED = "RejectCallerVoice"


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
        60,
        {"status": "FullAuthentication", "is_voice_verified": True},
        UNRESOLVED,
    ),
    "enroll does not show yet": (ENROLL, 59.9, {}, None),
    "enroll does not show after a minute": (ENROLL, 60, {}, UNRESOLVED),
    "enroll shows after a day": (ENROLL, 86400, {"status": "AcceptCallerVoice"}, CONFIRMED),
    "reject shows": (REJECT, 1, {"status": "RejectCallerVoice"}, CONFIRMED),
    "reject by the service's own rule proves none": (
        REJECT,
        1,
        {"status": "RejectCallerVoiceFromValidationRule"},
        None,
    ),
    "reject does not show yet": (REJECT, 59.9, {"status": "AgentViewed"}, None),
    "reject does not show after a minute": (REJECT, 60, {}, UNRESOLVED),
    "assign shows": (ASSIGN, 1, {"person_id": "p-1"}, CONFIRMED),
    "assigned to somebody else": (ASSIGN, 1, {"person_id": "p-2"}, ABSENT),
    "nobody assigned yet": (ASSIGN, 8, {"person_id": None}, None),
    "nobody assigned after 20 s": (ASSIGN, 20, {"person_id": None}, ABSENT),
    "a reading from before it was sent": (ENROLL, -1, {"status": "AcceptCallerVoice"}, None),
    "somebody else stood there at the instant it was sent": (ASSIGN, 0, {"person_id": "p-2"}, None),
}


@pytest.mark.parametrize(("kind", "after_s", "seen", "proved"), PROOFS.values(), ids=PROOFS)
def test_evidence_proves_only_what_details_show(
    kind: EffectKind, after_s: float, seen: dict[str, Any], proved: EffectState | None
) -> None:
    """Each trace proves its effect. That it is missing proves nothing about an enroll or a reject, however long it takes."""
    assert evidence(kind, in_doubt(kind, after_s, **seen), NOW + seconds(max(after_s, 0))) is proved


@pytest.mark.parametrize(
    ("kind", "seen", "proved"),
    [
        (ENROLL, {"status": "AcceptCallerVoice"}, UNRESOLVED),
        (ENROLL, {"status": "FullAuthentication"}, UNRESOLVED),
        (REJECT, {"status": "RejectCallerVoice"}, UNRESOLVED),
        (ENROLL, {"status": "AgentViewed", "policies": GREEN}, CONFIRMED),
    ],
)
def test_trace_that_may_be_of_another_member_is_a_persons(
    kind: EffectKind, seen: dict[str, Any], proved: EffectState
) -> None:
    """If the last activity is such an effect and another member stands there, it may be another tool's, about that one."""
    assert evidence(kind, in_doubt(kind, 1, person_id="p-2", **seen), NOW + seconds(1)) is proved
    for person_id in ("p-1", None):
        assert evidence(kind, in_doubt(kind, 1, person_id=person_id, **seen), NOW + seconds(1)) is CONFIRMED


@pytest.mark.parametrize(
    ("after_s", "seen", "proved"),
    [
        (1, {"core_username": "bot"}, CONFIRMED),
        (1, {"core_username": None}, None),
        (1, {"core_username": "ann"}, None),
        (20, {"core_username": None}, ABSENT),
        (1, {"core_username": "bot", "person_id": "p-2"}, ABSENT),
    ],
)
def test_assign_of_the_person_who_stood_there_shows_in_the_username(
    after_s: float, seen: dict[str, Any], proved: EffectState | None
) -> None:
    """That the person stands there proves neither that the assign was carried out, nor that it was not."""
    doubtful = in_doubt(ASSIGN, after_s, **{"person_id": "p-1", **seen})
    assign = replace(doubtful.ledger.assign, person_stood=True, requested_by="bot")
    assert evidence(ASSIGN, with_stored(doubtful, assign=assign), NOW + seconds(after_s)) is proved


@pytest.mark.parametrize(
    ("attempts", "person_id", "refusal", "proved"),
    [
        (3, None, "no", EffectState.REFUSED),
        (2, None, "no", ABSENT),
        (3, "p-2", "no", ABSENT),
        (3, None, None, ABSENT),
        (3, "p-1", "no", CONFIRMED),
    ],
)
def test_assign_that_was_refused_is_absent_until_it_was_tried_often_enough(
    attempts: int, person_id: str | None, refusal: str | None, proved: EffectState
) -> None:
    """The next read is enough to tell. Where somebody else stands, the assign is not what needs a person."""
    doubtful = in_doubt(ASSIGN, 1, person_id=person_id)
    assign = replace(doubtful.ledger.assign, attempts=attempts, refusal=refusal, retry_at=NOW)
    assert evidence(ASSIGN, with_stored(doubtful, assign=assign), NOW + seconds(1)) is proved


@pytest.mark.parametrize("kind", [ENROLL, REJECT])
@pytest.mark.parametrize("refusal", [None, "no"], ids=["turned away", "refused"])
@pytest.mark.parametrize(("attempts", "state"), [(1, ABSENT), (2, EffectState.REFUSED)])
def test_effect_that_the_service_did_not_accept_is_sent_once_more(
    kind: EffectKind, refusal: str | None, attempts: int, state: EffectState
) -> None:
    """After 401, 429 or a refusal it is absent unless a read shows it, whatever else has changed on the record since."""
    changed = in_doubt(kind, 20, status="AgentViewed", updated_at=NOW + seconds(5))
    effect = replace(changed.effect(kind), attempts=attempts, refusal=refusal, retry_at=NOW + seconds(20))
    doubtful = with_stored(changed, rejected_seen=kind is ENROLL, **{kind: effect})
    assert evidence(kind, doubtful, NOW + seconds(20)) is state
    early = with_stored(doubtful, reading=reading(read_at=NOW + seconds(19.9)))
    assert evidence(kind, early, NOW + seconds(20)) is None
    assert next_doubt_read(effect, early, NOW + seconds(19.9)) == NOW + seconds(20)


@pytest.mark.parametrize(
    ("despite", "number", "may"),
    [
        ((), 8, False),
        ((ENROLL_UNRESOLVED,), 8, True),
        ((ENROLL_UNRESOLVED,), 7, False),
        (("voice_mismatch",), 8, False),
    ],
)
def test_unresolved_enroll_is_sent_again_only_for_a_word_that_knows_of_it(
    despite: tuple[str, ...], number: int, may: bool
) -> None:
    """The service may have carried it out, or may still do so. An unresolved reject is resolved by a person first."""
    effect = Effect(state=UNRESOLVED, sent_at=NOW, attempts=1, last_word=7)
    identity = replace(verified(), number=number, despite=despite)
    said = call(identity=identity, distrusted=word(number=number), enroll=effect, reject=effect)
    assert may_begin(ENROLL, effect, said) is may
    assert not may_begin(REJECT, effect, said)
    assert facts_of_record(said, BOOK.policies).enroll_unresolved is not may
    under_way = with_stored(said, enroll=replace(effect, state=EffectState.UNKNOWN))
    assert not may_begin(ENROLL, under_way.ledger.enroll, under_way)
    assert facts_of_record(under_way, BOOK.policies).enroll_unresolved


def test_unresolved_effect_is_read_once_more_before_its_call_is_settled() -> None:
    """After five minutes. One that a person resolved is not."""
    effect = Effect(state=UNRESOLVED, sent_at=NOW, attempts=1)
    assert last_doubt_read(call(enroll=effect)) == NOW + LAST_DOUBT_READ
    assert last_doubt_read(call(enroll=effect, reading=reading(read_at=NOW + LAST_DOUBT_READ))) is None
    assert last_doubt_read(call(reject=replace(effect, state=CONFIRMED))) is None
    assert last_doubt_read(call(assign=effect)) is None


@pytest.mark.parametrize("kind", EffectKind)
def test_evidence_leaves_what_cannot_be_read_to_a_person(kind: EffectKind) -> None:
    """After ten minutes without a readable answer, a person must resolve the effect."""
    seen = in_doubt(kind, 0)
    blind = with_stored(seen, reading=None, reads_failed=9)
    assert evidence(kind, blind, NOW + seconds(600)) is None
    assert evidence(kind, blind, NOW + seconds(601)) is UNRESOLVED
    assert evidence(kind, replace(blind, plan=replace(blind.plan, reads_failed=0)), NOW + seconds(601)) is None, (
        "nobody has read it yet"
    )


def test_doubt_is_read_at_growing_distances() -> None:
    """Stored details are read 1, 3, 8, 20, 30 and 60 s after the sending."""
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


@pytest.mark.parametrize("kind", [ENROLL, REJECT])
@pytest.mark.parametrize("state", EffectState)
def test_effect_begins_anew_only_if_it_failed(kind: EffectKind, state: EffectState) -> None:
    """One that may be in force never does. One that failed does for a person's later word, or once if it was turned away.

    The order of statements decides which came later, because Redis's clock may have been set back.
    """
    is_failed = state in {EffectState.REFUSED, ABSENT, EffectState.NONE}
    for sent_at, refusal, arrived, retry_at in product((NOW, None), (None, "no"), (0, 1, 2), (None, NOW)):
        effect = Effect(
            state=state,
            sent_at=sent_at,
            refusal=refusal,
            attempts=3,
            unsent=3 - arrived,
            retry_at=retry_at,
            last_word=7,
        )
        is_unsent = state is EffectState.NONE and not arrived
        is_open = arrived < 2 and (is_unsent or (state in {ABSENT, EffectState.NONE} and retry_at is not None))
        was_tried = sent_at is not None or refusal is not None
        for number in (None, 7, 8):
            said = {"distrusted": word(number=number), "identity": replace(verified(), number=number)} if number else {}
            may = (is_failed and was_tried and number == 8) or is_open
            assert may_begin(kind, effect, call(**said)) is may
        by_service = call(identity=replace(verified(by_desk=False), number=8))
        assert may_begin(kind, effect, by_service) is is_open


UNDONE: dict[str, Any] = {"enrolled_seen": True, "reading": reading(policies=GREEN)}
"""The voice was enrolled after the reject."""


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"state": CONFIRMED}, True),
        ({"state": EffectState.UNKNOWN}, False),
        ({"state": UNRESOLVED}, False),
        ({"last_word": 8}, False),
        ({"sent_at": NOW - seconds(5)}, True),
        ({"sent_at": NOW - seconds(4)}, False),
        ({"enrolled_seen": False}, False),
        ({"unenrolled_seen": True}, False),
        ({"reading": reading()}, False),
        ({"reading": None}, False),
    ],
)
def test_reject_that_was_carried_out_begins_anew_only_against_a_later_enroll(
    changes: dict[str, Any], may: bool
) -> None:
    """For a later word, if details that were read long enough after it show an enroll: that was not taken back by it."""
    seen = {name: value for name, value in changes.items() if name in {"unenrolled_seen", *UNDONE}}
    effect = Effect(state=EffectState.APPLIED, sent_at=NOW - seconds(60), attempts=1, last_word=7)
    reject = replace(effect, **{name: value for name, value in changes.items() if name not in seen})
    assert may_begin(REJECT, reject, call(distrusted=word(number=8), reject=reject, **UNDONE | seen)) is may


def test_enroll_that_details_show_never_begins_anew() -> None:
    """Whoever verifies the caller once more asks for nothing that is not there."""
    enroll = Effect(state=EffectState.APPLIED, sent_at=NOW - seconds(60), attempts=1, last_word=7)
    assert not may_begin(ENROLL, enroll, call(identity=replace(verified(), number=8), enroll=enroll, **UNDONE))


@pytest.mark.parametrize("kind", EffectKind)
def test_word_that_reopened_an_effect_outlives_a_withdrawal(kind: EffectKind) -> None:
    """If what a person asked for once more is withdrawn, by the end of the call or a pause, it can be sent afterwards."""
    word = CallStatement(operator="ann", said_at=NOW, person_id="p-1", number=8)
    withdrawn = Effect(state=EffectState.NONE, sent_at=NOW - seconds(60), attempts=3, last_word=7)
    asked = call(
        person_id=None, distrusted=word, assign_wish=word, identity=replace(verified(), number=8), **{kind: withdrawn}
    )
    assert may_assign(asked) if kind is ASSIGN else may_begin(kind, withdrawn, asked)
    heard = with_stored(asked, **{kind: replace(withdrawn, last_word=8)})
    assert not (may_assign(heard) if kind is ASSIGN else may_begin(kind, heard.effect(kind), heard))


def test_assign_that_was_turned_away_is_none_of_those_that_were_tried() -> None:
    """Otherwise an outage of the login would use up the assigns of a call."""
    tried = Effect(state=ABSENT, attempts=5, unauthorized=2, unsent=1)
    assert may_assign(call(assign=tried))
    assert not may_assign(call(assign=replace(tried, unsent=0)))


@pytest.mark.parametrize("kind", EffectKind)
def test_nobody_has_to_look_for_an_assign_whose_outcome_is_not_known(kind: EffectKind) -> None:
    """A person finds out what became of an enroll or a reject; an assign shows, or is tried again."""
    open_ = call(**{kind: Effect(state=UNRESOLVED, attempts=1, sent_at=NOW)})
    assert unresolved(open_) == ([] if kind is ASSIGN else [kind])


@pytest.mark.parametrize(("tries", "wait_s"), [(0, 1.0), (1, 1.0), (2, 3.0), (3, 6.0), (7, 60.0), (9, 60.0)])
def test_assign_that_was_turned_away_waits_longer_each_time(tries: int, wait_s: float) -> None:
    """An enroll or reject waits 20 s, in which reads would show it."""
    effect = Effect(attempts=tries + 2, unsent=2)
    assert after_turning_away(EffectKind.ASSIGN, effect, NOW).retry_at == NOW + seconds(wait_s)
    assert after_turning_away(EffectKind.ENROLL, effect, NOW).retry_at == NOW + seconds(20)
    assert after_refusal(EffectKind.REJECT, effect, "no", NOW).retry_at == NOW + seconds(20)
    assert after_turning_away(EffectKind.ASSIGN, effect, NOW).unauthorized == 1


@pytest.mark.parametrize("kind", [EffectKind.ENROLL, EffectKind.REJECT])
def test_effect_is_begun_again_only_if_it_is_absent_and_may_be_sent(kind: EffectKind) -> None:
    """It was never sent, or was turned away and is absent; at most twice past authentication."""
    assert may_begin(kind, Effect(), call())
    turned_away = Effect(state=EffectState.ABSENT, attempts=1, sent_at=NOW, retry_at=NOW)
    assert may_begin(kind, turned_away, call())
    assert not may_begin(kind, replace(turned_away, attempts=2), call())
    assert may_begin(kind, replace(turned_away, attempts=2, unsent=1), call())
    assert not may_begin(kind, replace(turned_away, retry_at=None), call())
    assert not may_begin(kind, replace(turned_away, state=EffectState.UNKNOWN), call())


def test_effect_is_repeated_if_nobody_asked_for_it_since() -> None:
    """One that was never sent is not."""
    sent = Effect(state=EffectState.ABSENT, attempts=1, sent_at=NOW, last_word=3)
    said = CallStatement(operator="ann", said_at=NOW, number=4)
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
    assert failures(call(assign=refused, assign_wish=word(person_id="p-2"))) == [EffectKind.ASSIGN]
    assert failures(call(assign=refused, assign_wish=word(person_id="p-1"))) == []


def test_reasons_for_a_person_come_by_importance() -> None:
    """What comes anew has another name, and the service's words are no part of what is counted."""
    refused = Effect(state=EffectState.REFUSED, refusal="no such voice", attempts=1, sent_at=NOW)
    asked = Asked(rule="odd, refused by the service", because="Is it her?", asked_at=NOW)
    needy = call(enroll=Effect(state=UNRESOLVED), reject=refused, unenrolled_seen=True, asked=asked)
    reasons = attention_reasons(needy)
    assert reasons == [
        "enroll unresolved",
        TAKEN_BACK,
        "reject refused by the service: no such voice",
        "asked by rule 'odd, refused by the service'",
    ]
    assert attention(needy) == reasons[0]
    assert [without_service_words(one) for one in reasons] == [
        *reasons[:2],
        "reject refused by the service",
        reasons[3],
    ]
    given_up = call(reject=replace(refused, refusal=ENROLLED_SINCE))
    assert attention(given_up) == f"reject not carried out: {ENROLLED_SINCE}"
    anew = (
        {"reject": replace(refused, attempts=2)},
        {"asked": replace(asked, asked_at=NOW + seconds(1))},
        {"asked": None},
        {"unenroll_closed_by": "ann"},
    )
    names = {needs_of(needy), *(needs_of(with_stored(needy, **changes)) for changes in anew)}
    assert len(names - {""}) == len(anew) + 1
    assert (needs_of(call()), attention_reasons(call()), attention(call())) == ("", [], "")


TAKEN = Effect(state=EffectState.APPLIED, person_id="p-1", sent_at=NOW - seconds(20), attempts=1)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, ABSENT),
        ({"assign": replace(TAKEN, attempts=3)}, EffectState.REFUSED),
        ({"assign": replace(TAKEN, attempts=3, unauthorized=1)}, ABSENT),
        ({"assign": replace(TAKEN, state=CONFIRMED)}, None),
        ({"assign": replace(TAKEN, was_shown=True)}, None),
        ({"assign": replace(TAKEN, person_stood=True)}, None),
        ({"assign": replace(TAKEN, sent_at=None)}, None),
        ({"enrolled_seen": True}, None),
        ({"reading": None}, None),
        ({"reading": reading(person_id=None, read_at=NOW - seconds(0.1))}, None),
        ({"listed_at": None}, None),
        ({"listed_at": NOW - seconds(20)}, None),
        ({"person_id": None}, ABSENT),
        ({"person_id": "p-2"}, None),
        ({"person_id": "p-2", "reading": reading(person_id="p-2")}, ABSENT),
    ],
)
def test_assign_was_ignored_if_neither_queue_nor_details_show_its_member(
    changes: dict[str, Any], state: EffectState | None
) -> None:
    """Both were read since, the details after it had time to appear. An enroll shows that the service knows the member."""
    known = {"assign": TAKEN, "reading": reading(person_id=None), "listed_at": NOW - seconds(19.9)}
    assert ignored(call(**known | changes)) is state


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
    missed, last = call(recheck_from=NOW, reading=reading()), NOW + seconds(waits[-1] + RECHECK_S[-1])
    assert recheck(missed, last) == Read("a reject of the member")
    assert recheck(missed, last + seconds(0.001)) == Rest()
    failed = call(recheck_from=NOW, reading=reading(), reads_failed=1, next_read_at=NOW + seconds(300))
    assert recheck(failed, NOW) == Wait(NOW + seconds(300))


def test_refused_assign_of_the_person_who_stood_there_is_open_until_the_call_is_claimed() -> None:
    """The person is there without it, but nothing ties the account to the call."""
    refused = Effect(state=EffectState.REFUSED, refusal="no", attempts=3, sent_at=NOW, person_stood=True)
    assert failures(call(assign=refused)) == [EffectKind.ASSIGN]
    assert failures(call(assign=refused, core_username="ann")) == []


ENROLLED = Effect(state=EffectState.APPLIED, person_id="p-1", sent_at=NOW, attempts=1)
DONE_REJECT = replace(ENROLLED, state=EffectState.CONFIRMED)


def closed_about(*person_ids: str) -> dict[str, Any]:
    """Return that Eve has seen it when the caller could be one of these."""
    return {"unenroll_closed_by": "eve", "unenroll_closed_members": person_ids}


@pytest.mark.parametrize(
    ("seen", "trouble"),
    [
        ({}, ""),
        ({"enroll": ENROLLED}, ""),
        ({"unenrolled_seen": True}, TAKEN_BACK),
        ({"unenrolled_seen": True, "unenroll_closed_by": "eve"}, ""),
        ({"unenrolled_seen": True, "reject": DONE_REJECT}, ""),
        ({"unenrolled_seen": True, "reject": DONE_REJECT, "enroll": replace(ENROLLED, person_id="p-2")}, TAKEN_BACK),
        ({"unenrolled_seen": True, "failed_feedback_seen": True}, TAKEN_BACK),
        ({"enroll": ENROLLED, "person_id": "p-2"}, ENROLLED_AS_ANOTHER),
        ({"enroll": ENROLLED, "person_id": "p-2", "unenroll_closed_by": "eve"}, ""),
        ({"enroll": ENROLLED, "person_id": "p-2", **closed_about("p-2")}, ""),
        ({"enroll": ENROLLED, "person_id": "p-2", **closed_about("p-3")}, ENROLLED_AS_ANOTHER),
        ({"enroll": ENROLLED, "person_id": None, **closed_about("p-2")}, ENROLLED_AS_ANOTHER),
        ({"enroll": ENROLLED, "person_id": None, **closed_about("")}, ""),
        ({"enroll": ENROLLED, "person_id": "p-2", "reject": DONE_REJECT}, ""),
        ({"enroll": ENROLLED, "person_id": "p-2", "rejected_seen": True}, ENROLLED_AS_ANOTHER),
    ],
)
def test_enroll_needs_a_person_if_it_was_taken_back_or_may_stand_for_a_stranger(
    seen: dict[str, Any], trouble: str
) -> None:
    """Until a person has seen it. This call's own reject of the enrolled member answers it."""
    assert enroll_trouble(call(**seen)) == trouble


def test_reject_of_the_member_has_an_enrolled_call_read_soon() -> None:
    """A settled one is read when its rechecks are due. A call without an enroll is left alone."""
    enrolled, later = call(enroll=ENROLLED), NOW + seconds(5)
    assert fold_member_rejected(call(), NOW) == call()
    assert fold_member_rejected(enrolled, NOW) == with_stored(
        enrolled, recheck_from=NOW, next_read_at=NOW + seconds(RECHECK_S[0])
    )
    settled = with_stored(enrolled, phase=Phase.SETTLED, next_read_at=later)
    assert fold_member_rejected(settled, NOW) == with_stored(settled, recheck_from=NOW)


@pytest.mark.parametrize(
    ("before", "after_s", "now_reads", "is_taken"),
    [
        ({}, 1, {}, False),
        ({}, 1, {"status": UNENROLLED}, True),
        ({}, 1, {"status": UNENROLLED, "policies": GREEN}, True),
        ({"recheck_from": NOW}, 4.9, {}, False),
        ({"recheck_from": NOW}, 5, {}, True),
        ({"recheck_from": NOW}, 5, {"policies": GREEN}, False),
        ({"recheck_from": NOW}, 5, {"status": "AcceptCallerVoice"}, False),
        ({"recheck_from": NOW, "enroll": Effect()}, 60, {}, False),
        ({"recheck_from": NOW, "enroll": Effect(), "enrolled_seen": True}, 4.9, {}, False),
        ({"recheck_from": NOW, "enroll": Effect(), "enrolled_seen": True}, 5, {}, True),
        ({"reading": reading(policies=GREEN)}, 1, {}, False),
        ({"reading": reading(policies=GREEN), "recheck_from": NOW}, 1, {}, True),
        ({"reading": reading(policies=GREEN), "rejected_seen": True}, 1, {}, True),
        ({"reading": reading(policies=GREEN), "failed_feedback_seen": True}, 1, {}, True),
        ({"rejected_seen": True}, 1, {"status": REJECTED}, True),
        ({"rejected_seen": True}, 1, {}, False),
        ({"rejected_seen": True, "enroll": Effect()}, 1, {"status": REJECTED}, False),
        ({"rejected_seen": True, "enroll": replace(ENROLLED, status_before=REJECTED)}, 1, {"status": REJECTED}, False),
        (
            {"reading": reading(policies=GREEN, status="AcceptCallerVoice"), "recheck_from": NOW},
            1,
            {"status": "AcceptCallerVoice"},
            True,
        ),
    ],
)
def test_enroll_was_taken_back_if_the_service_says_so_or_its_policy_is_gone_after_a_reject(
    before: dict[str, Any], after_s: float, now_reads: dict[str, Any], is_taken: bool
) -> None:
    """A policy that was never read must have had time to appear, unless the reject shows as the last activity.

    A new status of an enroll shows another enroll.
    """
    known = call(**{"enroll": ENROLLED, **before})
    found = fold_unenrolled(known, known, reading(read_at=NOW + seconds(after_s), **now_reads))
    if not is_taken:
        assert found == known
        return
    assert (found.seen.unenrolled, found.plan.recheck_from) == (True, None)
    assert found.ledger.enroll.state is (EffectState.TAKEN_BACK if known.ledger.enroll.attempts else EffectState.NONE)


@pytest.mark.parametrize(
    ("last", "now_reads", "is_anew"),
    [
        ("AgentViewed", {"status": "AcceptCallerVoice"}, True),
        ("AgentViewed", {"status": "FullAuthentication"}, True),
        ("AcceptCallerVoice", {"status": "AcceptCallerVoice"}, False),
        ("AcceptCallerVoice", {"status": "AcceptCallerVoice", "policies": GREEN}, True),
        ("AgentViewed", {"status": "GrabbedCall", "policies": GREEN}, False),
        ("GrabbedCall", {"status": "GrabbedCall", "policies": GREEN, "updated_at": NOW + seconds(1)}, True),
    ],
)
def test_enroll_that_was_taken_back_is_in_force_again_if_another_one_shows(
    last: str, now_reads: dict[str, Any], is_anew: bool
) -> None:
    """The status that stood there before says nothing new, unless the policy came back with it or with a later activity."""
    known = call(reading=reading(status=last), unenrolled_seen=True)
    found = fold_unenrolled(known, known, reading(read_at=NOW + seconds(1), **now_reads))
    assert found.seen.unenrolled is not is_anew


def test_enroll_that_is_taken_back_once_more_needs_a_person_once_more() -> None:
    """Who closed it before closed the earlier one. What the enroll had shown holds no longer."""
    shown = dict.fromkeys(("enrolled_seen", "authenticated_seen", "full_authentication_seen"), True)
    closed = call(enroll=ENROLLED, unenroll_closed_by="eve", phase=Phase.SETTLED, reason=Reason.ENROLLED, **shown)
    stated = reading(read_at=NOW + seconds(1), status=UNENROLLED)
    found = fold_unenrolled(closed, closed, stated)
    assert (found.statements.unenroll_closed_by, found.life.reason) == (None, Reason.UNENROLLED)
    assert not any([found.seen.enrolled, found.seen.authenticated, found.seen.full_authentication])
    known = with_stored(found, unenroll_closed_by="eve")
    assert fold_unenrolled(known, known, stated).statements.unenroll_closed_by == "eve"
