"""Steps of one claim: when it is released, how a call is settled, and when a hint is dropped."""

import pytest
from msgspec.structs import replace

from callkeeper.calls.claimed_item import Placement
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.institutions import FOREIGN
from callkeeper.calls.record import Call, Phase, Reason
from callkeeper.calls.rules import Outcome
from callkeeper.calls.rules.assignment import Assignment
from callkeeper.calls.rules.matching import Verdict
from callkeeper.calls.settlement import HINT_LIVES
from callkeeper.calls.steps import Establish, Intend, Send, Settle, Step, Wait, WriteDecision, WriteFacts
from callkeeper.calls.trail import Entry
from callkeeper.service.tracing import SpanAttributes
from tests.records import with_stored
from tests.unit.calls.specimens import NOW, call, seconds
from tests.unit.workers.claims import HeldClaim, as_claim
from workers import move as steps
from workers.move import LISTED_WITHIN, drop, settle
from workers.service_gate import Held, Why

HINT = call(phase=Phase.HINTED, hinted_at=NOW - seconds(20), listed_at=None, reading=None)


AWAY_S = 9.0


async def moved(known: Call, age_s: float) -> list[object]:
    """Return what ends a move whose first request would be held up for 9 s."""
    held = HeldClaim(known, age_s=age_s, held_up=[Held(Why.AWAY, AWAY_S)])
    await steps.move(as_claim(held))
    assert len(held.wanted) == (held.saved != [NOW])
    return held.saved


DUE = call(next_read_at=NOW - seconds(1), next_check_at=None)


@pytest.mark.parametrize(
    ("age_s", "is_released"), [(0.0, False), (1.0, False), (1.01, True)], ids=["young", "just in time", "old"]
)
async def test_old_claim_is_released_before_its_next_request(age_s: float, is_released: bool) -> None:
    """A read that follows another step waits for the call's next turn once the claim is older than a second."""
    assert await moved(DUE, age_s) == [NOW if is_released else NOW + seconds(AWAY_S)]


async def test_first_request_of_an_old_claim_is_made() -> None:
    """Else a call would never get anywhere while the service is slow."""
    decided = HeldClaim(DUE, held_up=[Held(Why.AWAY)])
    await steps.move(as_claim(decided))
    assert await moved(decided.call, 60.0) == [NOW + seconds(AWAY_S)]


async def test_settled_call_says_why_and_is_due_again_only_for_its_members_enroll() -> None:
    """The trail has the reason and how many checks were used."""
    held = HeldClaim(call(checks_used=7, end_seen_at=NOW))
    await settle(as_claim(held), Reason.UNDECIDED)
    (entry,) = held.entries
    assert (entry.what, entry.because, entry.n) == ("settled", Reason.UNDECIDED, 7)
    assert (held.call.life.phase, held.call.life.settled_at, held.counted) == (Phase.SETTLED, NOW, ["settled"])
    assert held.saved == [Placement(None, listed="settled")]
    again = HeldClaim(call(end_seen_at=NOW, recheck_from=NOW, alternate_id="a-1"))
    await settle(as_claim(again), Reason.UNDECIDED)
    assert again.saved == [Placement(0, listed="settled"), ("cu-1", "a-1")]


async def test_unconfirmed_and_lost_calls_are_listed_as_such() -> None:
    """They may be shown again."""
    unconfirmed, lost = HeldClaim(), HeldClaim(with_stored(call(), not_found_since=NOW))
    await settle(as_claim(unconfirmed), Reason.UNCONFIRMED)
    await settle(as_claim(lost), Reason.LOST)
    assert [unconfirmed.saved[0].listed, lost.saved[0].listed] == ["unconfirmed", "lost"]


async def test_hint_is_dropped_once_a_late_enough_look_did_not_list_it() -> None:
    """A look that began too early proves nothing, because a push may be faster than the queue."""
    hinted_at = NOW - seconds(20)
    early = HeldClaim(HINT, last_listed_at=hinted_at + LISTED_WITHIN - seconds(0.001))
    await drop(as_claim(early))
    assert early.saved == [NOW + seconds(5)]
    never = HeldClaim(HINT)
    await drop(as_claim(never))
    assert never.saved == [NOW + seconds(5)]
    proved = HeldClaim(HINT, last_listed_at=hinted_at + LISTED_WITHIN)
    await drop(as_claim(proved))
    assert (proved.saved, proved.counted, proved.entries[0].what) == (["forgotten"], ["dropped"], "dropped")


async def test_old_hint_waits_longer_for_a_look() -> None:
    """A listing that shows the call makes it due at once."""
    old = HeldClaim(with_stored(HINT, hinted_at=NOW - seconds(800)))
    await drop(as_claim(old))
    assert old.saved == [NOW + seconds(100)]


async def test_hint_of_a_foreign_institution_is_dropped_without_a_look() -> None:
    """Its queue cannot be listed."""
    foreign = HeldClaim(with_stored(HINT, standing=FOREIGN))
    await drop(as_claim(foreign))
    assert foreign.saved == ["forgotten"]


@pytest.mark.parametrize(
    ("looks", "age_s", "listed_s", "is_silent"),
    [
        (1, 5, None, False),
        (2, 5, None, True),
        (2, 5, -1, True),
        (2, 5, 0, False),
        (2, HINT_LIVES.total_seconds(), 7.4, True),
        (2, HINT_LIVES.total_seconds(), 7.5, False),
    ],
)
async def test_queue_is_silent_if_two_looks_brought_no_listing(
    looks: int, age_s: float, listed_s: float | None, is_silent: bool
) -> None:
    """Seconds are counted from the hint. At the end of a hint's life only a late listing counts."""
    hinted_at = NOW - seconds(age_s)
    listed_at = None if listed_s is None else hinted_at + seconds(listed_s)
    held = HeldClaim(with_stored(HINT, hinted_at=hinted_at, confirm_looks=looks), last_listed_at=listed_at)
    assert await steps._is_silent(as_claim(held)) is is_silent
    assert not await steps._is_silent(as_claim(HeldClaim(with_stored(HINT, hinted_at=None, confirm_looks=9))))


VERDICT = Verdict(Outcome.ENROLL, "passcode", "the passcode was right")
DECISION = WriteDecision(VERDICT, Entry(at=NOW, what="decided"))
INTENTION = Intend(EffectKind.ENROLL, "p-1", "Other", None, VERDICT, DECISION)
WORDS: list[tuple[Step, SpanAttributes]] = [
    (Wait(NOW), {"step": "Wait"}),
    (WriteFacts(Entry(at=NOW, what="facts"), "", Send(EffectKind.ENROLL)), {"step": "Send", "effect": "enroll"}),
    (Establish(EffectKind.REJECT, EffectState.ABSENT), {"step": "Establish", "effect": "reject"}),
    (Settle(Reason.RED), {"step": "Settle", "reason": Reason.RED}),
    (DECISION, {"step": "WriteDecision", "rule": "passcode", "outcome": Outcome.ENROLL}),
    (INTENTION, {"step": "Intend", "effect": "enroll", "rule": "passcode", "outcome": Outcome.ENROLL}),
    (replace(INTENTION, verdict=Assignment("p-1", "the only one")), {"step": "Intend", "effect": "enroll"}),
]


@pytest.mark.parametrize(("step", "words"), WORDS, ids=[type(step).__name__ for step, _ in WORDS])
def test_span_of_a_decision_says_what_was_decided(step: Step, words: SpanAttributes) -> None:
    """Its step, its effect and its rule: whoever reads a trace looks for these."""
    assert steps._words_of(step) == words


class Forgetful(HeldClaim):
    """A claim whose ledger cannot be changed: the same step comes again and again."""

    def set_effect(self, kind: object, effect: object) -> None:
        """Change nothing."""


async def test_steps_without_end_are_a_bug_that_is_named() -> None:
    """Sixteen of them."""
    held = Forgetful(call(reject=Effect(state=EffectState.INTENDED)))
    with pytest.raises(RuntimeError, match="did not end after 16"):
        await steps.move(as_claim(held))
    assert [entry.what for entry in held.entries].count("withdrawn") >= 14
