"""Effects: which are sent, in whose name, how often, and how their outcome is found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from callkeeper.calls.action_status import status_of
from callkeeper.calls.claimed_item import LEASE, ClaimedItem
from callkeeper.calls.effect_ledger import Effect, EffectKind, EffectState
from callkeeper.calls.effect_resolution import GIVEN_UP
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics.snapshot import read_present
from callkeeper.calls.notes import Distrusted, Resolved, Verified
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.pause import Pause, PauseScope
from callkeeper.calls.record import Reason, with_effect
from callkeeper.calls.record_storage import encode_call, parse_call
from callkeeper.calls.rules import load_rules
from callkeeper.calls.store.claims import Store
from callkeeper.calls.store.pausing import Pausing
from callkeeper.service import NotSent
from callkeeper_sandbox.service.effects import happen_now
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import Altered, Rig
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 45)
MFA, QUESTIONS = Happening(Kind.MFA_VALIDATED, 10), Happening(Kind.ANSWERED_QUESTIONS, 10)
ENROLLED, REJECTED = "enroll", "reject_voice"


class Seam(Store):
    """A store at which something happens: `after_keep` is told of every record that was kept."""

    def __init__(self, rig: Rig, after_keep: Callable[[Any], None]) -> None:
        super().__init__(rig.redis, now_ms=rig.now_ms, lease=rig.store.lease)
        self._after_keep = after_keep

    async def keep(self, item: ClaimedItem, record: bytes | None = None, **more: Any) -> None:
        """Keep, then let it happen."""
        await super().keep(item, record, **more)
        if record is not None and item.member.startswith("c:"):
            self._after_keep(parse_call(record))


class Unsent(Altered):
    """A service to which nothing can be sent for a while: every effect fails before its first byte."""

    def __init__(self, rig: Rig, times: int) -> None:
        super().__init__(rig)
        self.left = times

    async def enroll(self, *args: Any, **more: Any) -> None:
        """Fail, provably without a byte, or enroll."""
        if self.left:
            self.left -= 1
            raise NotSent("enroll", "no connection")
        await super().enroll(*args, **more)


def use(rig: Rig, **tools: Any) -> None:
    """Put something else among the tools of the rig's moves."""
    rig.tools = replace(rig.tools, **tools)
    rig.shift.tools = rig.tools


async def say(
    rig: Rig, call: Call, person_id: str = "p-1", validation_type: str = "Other", despite: tuple[str, ...] = ()
) -> None:
    """Let the desk say that the caller was verified."""
    said: dict[str, Any] = {"operator": "ann", "said_at": rig.clock.now, "despite": despite}
    assert await rig.note(call, Verified(person_id=person_id, validation_type=validation_type, **said))


async def distrust(rig: Rig, call: Call) -> None:
    """Let the desk say that the caller cannot be trusted."""
    assert await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason="sounds wrong"))


def ours(call: Call) -> list[tuple[str | None, str, str | None]]:
    """Return whom we enrolled, how and in whose name (an enroll leaves a note, the service's own verification none)."""
    return [(made.person_id, str(made.validation_type), made.by) for made in call.verifications if made.notes]


VERIFIED_BY = {"passcode": (MFA, "OneTimePasswordAuth"), "questions": (QUESTIONS, "KnowledgeBasedAuth")}


@pytest.mark.parametrize(("happening", "validation_type"), VERIFIED_BY.values(), ids=VERIFIED_BY)
async def test_enroll_follows_the_services_own_verification(
    rig: Rig, happening: Happening, validation_type: str
) -> None:
    """A caller whom the service verified is enrolled once, with that validation type, as the assigned person."""
    call = await rig.begin_call(happening, END, run_s=66, is_pushed=False)
    assert rig.ledger(call)[ENROLLED] == 1
    assert ours(call) == [("p-1", validation_type, "bot")]
    assert call.feedback == ["SUCCESSFUL"]
    assert (await rig.record(call)).life.reason is Reason.ENROLLED


async def test_enroll_follows_the_word_of_the_desk(rig: Rig) -> None:
    """A caller whom a person verified is enrolled once, in that person's name, with the given validation type."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    for _ in range(3):
        await say(rig, call)
        await rig.run(10)
    assert ours(call) == [("p-1", "Other", "ann")]
    assert rig.ledger(call)[ENROLLED] == 1


async def test_enroll_ends_the_checks(rig: Rig) -> None:
    """After an enroll no further check is made."""
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    await say(rig, call)
    await rig.run(10)
    made = rig.ledger(call)["check"]
    await rig.run(25)
    assert rig.ledger(call)["check"] == made


HELD: dict[str, tuple[tuple[Happening, ...], str, str]] = {
    "another person was verified": ((), "p-2", "verified_person_is_not_the_assigned"),
    "a red policy": ((Happening(Kind.RED, 5),), "p-1", "red_policy"),
    "an unclassified policy": ((Happening(Kind.POLICY, 5, "Yellow Review"),), "p-1", "unclassified_policy"),
    "an opt-out": ((Happening(Kind.OPT_OUT, 5), Happening(Kind.VIEWED, 12)), "p-1", "opted_out"),
    "rejected elsewhere": ((Happening(Kind.REJECTED, 5),), "p-1", "voice_rejected"),
    "rejected by the service's rule": ((Happening(Kind.REJECTED_BY_RULE, 5),), "p-1", "voice_rejected"),
    "enrolled elsewhere": ((Happening(Kind.ENROLLED, 5),), "p-1", "already_enrolled"),
    "determined fraud": ((Happening(Kind.CASE, 5, "DeterminedFraud"),), "p-1", "determined_fraud"),
}


@pytest.mark.parametrize(("script", "person_id", "reason"), HELD.values(), ids=HELD)
async def test_enroll_is_held_by_the_law_and_says_why(
    rig: Rig, script: tuple[Happening, ...], person_id: str, reason: str
) -> None:
    """An effect that the law forbids is not sent, and whoever asked for it is told the reason (E3, E6, E7, E8)."""
    call = await rig.begin_call(*script, END, run_s=19.5, is_pushed=False)
    await say(rig, call, person_id)
    await rig.run(10)
    assert ENROLLED not in rig.ledger(call)
    trail = await rig.trail(call)
    said = next(line for line in trail if line.what == "said")
    assert reason in status_of(await rig.record(call), trail, said).reasons


async def test_enroll_is_not_made_for_a_green_voice(rig: Rig) -> None:
    """A voice that is authenticated needs no enroll, verified or not."""
    call = await rig.begin_call(Happening(Kind.GREEN, 5), END, run_s=20, is_pushed=False)
    await say(rig, call)
    await rig.run(20)
    assert ENROLLED not in rig.ledger(call)


MEANWHILE: dict[str, Happening] = {
    "green": Happening(Kind.STATUS, text="FullAuthentication"),
    "opted out": Happening(Kind.OPT_OUT),
    "rejected elsewhere": Happening(Kind.REJECTED),
    "enrolled elsewhere": Happening(Kind.ENROLLED),
    "given to another person": Happening(Kind.CLAIMED, text="bob", person_id="p-9"),
    "determined fraud": Happening(Kind.CASE, text="DeterminedFraud"),
}


@pytest.mark.parametrize("happening", MEANWHILE.values(), ids=MEANWHILE)
async def test_enroll_is_not_sent_when_the_call_changed_after_the_intention(rig: Rig, happening: Happening) -> None:
    """The call is read between the saved intention and the request, and new facts are used (E2, E3)."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    happened: list[str] = []

    def change(record: Any) -> None:
        if record.ledger.enroll.state is EffectState.INTENDED and not happened:
            happened.append("once")
            rig.stage.happen(call, happening.kind, happening.text, happening.person_id)

    use(rig, store=Seam(rig, change))
    await say(rig, call)
    await rig.run(10)
    assert happened == ["once"]
    assert ENROLLED not in rig.ledger(call)
    assert "withdrawn enroll" in await rig.whats(call)


async def test_enroll_is_sent_only_after_a_read_of_its_own(rig: Rig) -> None:
    """The saved intention, a read, the saved sending, the request: in this order."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await say(rig, call)
    await rig.run(15)
    order = [str(a.operation) for a in rig.stage.sandbox.ledger.arrivals(call.voice_id)]
    assert order[order.index(ENROLLED) - 1] == "read"
    whats = await rig.whats(call)
    assert whats.index("intended enroll") < whats.index("sent enroll") < whats.index("answered enroll")


async def test_note_that_comes_before_the_sending_is_read_first(rig: Rig) -> None:
    """The desk's distrust that arrives after the intention stops the enroll: nothing is sent over an unread note."""
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    told: list[str] = []

    class Interrupted(Seam):
        async def keep(self, item: ClaimedItem, record: bytes | None = None, **more: Any) -> None:
            if more.get("only_if_no_notes") and not told:
                told.append("once")
                await distrust(rig, call)
            await super().keep(item, record, **more)

    use(rig, store=Interrupted(rig, lambda _: None))
    await say(rig, call)
    await rig.run(10)
    assert told == ["once"]
    assert (rig.ledger(call).get(ENROLLED), rig.ledger(call).get(REJECTED)) == (None, 1)


LOST: dict[str, Fault] = {
    "reset, applied": Fault(target=ENROLLED, action=Action.RESET, applied=True, times=1),
    "reset, not applied": Fault(target=ENROLLED, action=Action.RESET, applied=False, times=1),
    "dropped, applied": Fault(target=ENROLLED, action=Action.DROP, applied=True, times=1),
    "500, applied": Fault(target=ENROLLED, action=Action.ANSWER, status=500, applied=True, times=1),
    "500, not applied": Fault(target=ENROLLED, action=Action.ANSWER, status=500, applied=False, times=1),
    "cut off": Fault(target=ENROLLED, action=Action.CUT, times=1),
    "empty": Fault(target=ENROLLED, action=Action.EMPTY, times=1),
    "a page of HTML": Fault(target=ENROLLED, action=Action.HTML, times=1),
}


FOR_EVERY_CHANGE = ("reset, applied", "500, not applied", "cut off")
"""One that was applied, one that was not, and one whose answer ends in its midst."""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=name, marks=() if name in FOR_EVERY_CHANGE else pytest.mark.night)
        for name, fault in LOST.items()
    ],
)
async def test_enroll_whose_answer_was_lost_is_looked_up_not_repeated(rig: Rig, fault: Fault) -> None:
    """There is one request. Stored details show that it was applied; else a person has to look (E1)."""
    fault = Fault(**{name: getattr(fault, name) for name in fault.__struct_fields__})
    rig.stage.sandbox.faults.add(fault)
    call = await rig.begin_call(MFA, END, run_s=400, is_pushed=False)
    assert rig.ledger(call)[ENROLLED] == 1
    state = (await rig.record(call)).ledger.enroll.state
    assert state is (EffectState.CONFIRMED if fault.is_applied else EffectState.UNRESOLVED)
    assert len(ours(call)) == (1 if fault.is_applied else 0)


@pytest.mark.parametrize("is_applied", [True, False], ids=["applied", "not applied"])
async def test_reject_whose_answer_was_lost_is_looked_up_not_repeated(rig: Rig, is_applied: bool) -> None:
    """One request. The status shows the reject; that it does not proves nothing (E1)."""
    rig.stage.sandbox.faults.add(Fault(target=REJECTED, action=Action.RESET, applied=is_applied, times=1))
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await distrust(rig, call)
    await rig.run(400)
    assert rig.ledger(call)[REJECTED] == 1
    state = (await rig.record(call)).ledger.reject.state
    assert state is (EffectState.CONFIRMED if is_applied else EffectState.UNRESOLVED)


@pytest.mark.parametrize("after_s", [25, 120])
@pytest.mark.parametrize("target", [ENROLLED, REJECTED])
async def test_effect_that_the_service_carries_out_late_is_confirmed_and_never_repeated(
    rig: Rig, target: str, after_s: float
) -> None:
    """A service that needs 25 s is only slow. After a minute a person is told, and a later read closes that again.

    Also if the call has ended and is settled by then. A word without `despite` sends nothing meanwhile.
    """
    rig.stage.sandbox.faults.add(Fault(target=target, action=Action.RESET, applied=False, times=1))
    call, word = await rig.begin_call(END, run_s=5, is_pushed=False), distrust if target == REJECTED else say
    await word(rig, call)
    await rig.run(after_s - 4)
    kind = EffectKind.REJECT if target == REJECTED else EffectKind.ENROLL
    assert list((await rig.queries.attention()).values()) == ([] if after_s < 60 else [f"{kind} unresolved"])
    if after_s < 60:
        await word(rig, call)
    await rig.run(4)
    happen_now(
        rig.stage.world, call, Happening(Kind.REJECTED if target == REJECTED else Kind.ENROLLED, person_id="p-1")
    )
    await rig.run(300)
    record = await rig.record(call)
    assert (rig.ledger(call)[target], record.effect(kind).state) == (1, EffectState.CONFIRMED)
    assert record.life.reason is (Reason.REJECTED if target == REJECTED else Reason.ENROLLED)
    assert await rig.queries.attention() == {}


async def test_reject_whose_trace_was_overwritten_is_a_persons_to_resolve(rig: Rig) -> None:
    """An overwritten status proves nothing, so a person must resolve the effect (E1)."""
    seen = Happening(Kind.VIEWED)
    rig.stage.sandbox.faults.add(Fault(target=REJECTED, action=Action.RESET, applied=False, times=1, happening=seen))
    call = await rig.begin_call(END, run_s=5, is_pushed=False)
    await distrust(rig, call)
    await rig.run(80)
    record = await rig.record(call)
    assert (record.ledger.reject.state, record.life.reason) == (EffectState.UNRESOLVED, Reason.UNRESOLVED)
    member = CallId(call.institution_key, call.voice_id).member
    assert await rig.queries.attention() == {member: "reject unresolved"}
    resolved = Resolved(applied=False, operator="ann", said_at=rig.clock.now)
    await rig.store.note(CallId(call.institution_key, call.voice_id), resolved, even_settled=True)
    await rig.run(1)
    assert await rig.queries.attention() == {}
    assert rig.ledger(call)[REJECTED] == 1


async def test_assign_whose_answer_was_lost_is_looked_up(rig: Rig) -> None:
    """An assign that arrived shows in the details; one that did not is made again once that is proved."""
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.RESET, applied=True, times=1))
    arrived = await rig.begin_call(END, run_s=30, is_pushed=False)
    assert rig.ledger(arrived)["assign"] == 1
    rig.stage.sandbox.faults.add(Fault(target="assign", action=Action.RESET, applied=False, times=1))
    lost = await rig.begin_call(END, run_s=40, is_pushed=False)
    assert rig.ledger(lost)["assign"] == 2
    assert lost.aliases == arrived.aliases


BUSY = '{"success": false, "error": "The core system is busy, try again."}'


def refuse(rig: Rig, target: str, times: int | None = None) -> None:
    """Let the service refuse an operation, so often or always."""
    rig.stage.sandbox.faults.add(Fault(target=target, action=Action.REFUSED, times=times, body=BUSY))


@pytest.mark.parametrize("target", ["assign", ENROLLED, REJECTED])
async def test_passing_refusal_loses_nothing(rig: Rig, target: str) -> None:
    """One ``success: false`` and then none: the effect is sent again once reads show nothing of it, and applied once."""
    refuse(rig, target, times=1)
    call = await rig.begin_call(Happening(Kind.END, 90), run_s=10, is_pushed=False)
    await (distrust if target == REJECTED else say)(rig, call)
    await rig.run(60)
    assert rig.ledger(call)[target] == 2
    assert call.feedback == (["FAILED"] if target == REJECTED else ["SUCCESSFUL"])
    assert await rig.queries.attention() == {}
    assert "refused" not in {one.type for one in outcomes(await rig.trail(call))}


@pytest.mark.parametrize(("target", "times"), [("assign", 3), (ENROLLED, 2), (REJECTED, 2)])
async def test_refusal_that_stands_is_told(rig: Rig, target: str, times: int) -> None:
    """A refused effect is sent twice, an assign three times (D3). Then a person is told, with the service's words."""
    refuse(rig, target)
    call = await rig.begin_call(Happening(Kind.END, 200), run_s=10, is_pushed=False)
    if target != "assign":
        await (distrust if target == REJECTED else say)(rig, call)
    await rig.run(100)
    kind = "reject" if target == REJECTED else target
    assert rig.ledger(call)[target] == times
    (why,) = (await rig.queries.attention()).values()
    assert why.startswith(f"{kind} refused by the service: ")
    assert "system is busy, try again" in why
    assert (await read_present(rig.redis, keys=rig.store.keys)).attention == {f"{kind} refused by the service": 1}
    (told,) = [one for one in outcomes(await rig.trail(call)) if one.type == "refused"]
    assert told.cause.effect == kind
    seen = Resolved(applied=False, operator="ann", said_at=rig.clock.now)
    await rig.store.note(CallId(call.institution_key, call.voice_id), seen, even_settled=True)
    await rig.run(1)
    assert await rig.queries.attention() == {}
    await rig.run(150)
    assert rig.ledger(call)[target] == times
    assert [one.type for one in outcomes(await rig.trail(call))].count("refused") == 1


@pytest.mark.parametrize("target", [ENROLLED, REJECTED])
async def test_later_word_reopens_what_was_refused(rig: Rig, target: str) -> None:
    """A person who says it again is heard: one more request, and the call leaves the list when it is applied."""
    refuse(rig, target, times=2)
    call = await rig.begin_call(Happening(Kind.END, 300), run_s=10, is_pushed=False)
    word = distrust if target == REJECTED else say
    await word(rig, call)
    await rig.run(60)
    assert (rig.ledger(call)[target], call.feedback) == (2, [])
    await word(rig, call)
    await rig.run(10)
    assert (rig.ledger(call)[target], len(call.feedback)) == (3, 1)
    assert await rig.queries.attention() == {}


@pytest.mark.parametrize(("target", "feedback"), [(ENROLLED, "SUCCESSFUL"), (REJECTED, "FAILED")])
async def test_later_word_sends_what_a_person_found_absent(rig: Rig, target: str, feedback: str) -> None:
    """Two requests left no trace, and a person found that neither was applied: the next word is carried out."""
    call = await rig.begin_call(Happening(Kind.END, 300), run_s=10, is_pushed=False)
    kind = EffectKind.REJECT if target == REJECTED else EffectKind.ENROLL
    doubt = Effect(state=EffectState.UNRESOLVED, attempts=2, sent_at=rig.clock.now, last_word=1, person_id="p-1")
    record = with_effect(await rig.record(call), kind, doubt)
    await rig.redis.hset(rig.store.keys.item(rig.call_id(call).member), "rec", encode_call(record))
    await rig.note(call, Resolved(applied=False, operator="ann", said_at=rig.clock.now))
    await rig.run(10)
    assert ((await rig.record(call)).effect(kind).state, call.feedback) == (EffectState.ABSENT, [])
    await (distrust if target == REJECTED else say)(rig, call)
    await rig.run(10)
    assert call.feedback == [feedback]


async def test_refused_reject_is_not_repeated_over_a_later_enroll(rig: Rig) -> None:
    """A reject takes the member's earlier enrolls back: if one came since in another call, a person decides."""
    refuse(rig, REJECTED, times=1)
    call = await rig.begin_call(Happening(Kind.END, 200), run_s=10, is_pushed=False)
    await distrust(rig, call)
    await rig.run(5)
    other = await rig.begin_call(Happening(Kind.END, 200), run_s=5, is_pushed=False)
    await say(rig, other, despite=("suspected_before",))
    await rig.run(60)
    assert (rig.ledger(call)[REJECTED], other.feedback) == (1, ["SUCCESSFUL"])
    assert list((await rig.queries.attention()).values()) == [f"reject {GIVEN_UP}"]
    assert [one.type for one in outcomes(await rig.trail(call))][-1] == "not_carried_out"
    await distrust(rig, call)
    await rig.run(10)
    assert call.feedback == ["FAILED"]


@pytest.mark.parametrize("target", ["assign", ENROLLED, REJECTED])
@pytest.mark.parametrize("times", [1, 9])
async def test_not_found_is_a_refusal_like_any_other(rig: Rig, target: str, times: int) -> None:
    """Reads show the call, so it is there: the effect is sent again once, and if that fails too, a person is told."""
    body = '{"success": false, "error": "Phone call not found."}'
    rig.stage.sandbox.faults.add(Fault(target=target, action=Action.REFUSED, body=body, times=times))
    call = await rig.begin_call(Happening(Kind.END, 200), run_s=10, is_pushed=False)
    if target != "assign":
        await (distrust if target == REJECTED else say)(rig, call)
    await rig.run(100)
    assert rig.ledger(call)[target] == (3 if target == "assign" and times > 1 else 2)
    kind = "reject" if target == REJECTED else target
    told = [why.partition(":")[0] for why in (await rig.queries.attention()).values()]
    assert told == ([] if times == 1 else [f"{kind} refused by the service"])


async def test_enroll_that_could_not_be_sent_is_tried_again(rig: Rig) -> None:
    """If certainly no byte was written, the intention stays, and it is sent once later."""
    use(rig, service=Unsent(rig, times=4))
    call = await rig.begin_call(MFA, END, run_s=90, is_pushed=False)
    assert rig.ledger(call)[ENROLLED] == 1
    assert (await rig.record(call)).ledger.enroll.state is EffectState.APPLIED
    assert len(ours(call)) == 1


@pytest.mark.parametrize("frozen_s", [LEASE.first_byte_s + 0.1, pytest.param(9.0, marks=pytest.mark.night), 60.0])
async def test_enroll_of_a_process_that_froze_over_its_booking_is_not_sent(rig: Rig, frozen_s: float) -> None:
    """A worker that froze while booking may not send afterwards; another sends it once (C18)."""
    frozen: list[float] = []

    def freeze(record: Any) -> None:
        if record.ledger.enroll.state is EffectState.SENT and not frozen:
            frozen.append(frozen_s)
            rig.clock.advance(frozen_s)

    use(rig, store=Seam(rig, freeze))
    call = rig.stage.call(MFA, END)
    while not frozen:
        await rig.run(0.25)
    assert ENROLLED not in rig.ledger(call), "nothing was sent for the frozen booking"
    await rig.run(30)
    assert rig.ledger(call).get(ENROLLED, 0) <= 1


MISCHIEF = (Happening(Kind.MISMATCH, 5), Happening(Kind.HIGH_RISK, 6), Happening(Kind.RED, 20))


async def test_shipped_rules_never_reject_by_themselves(rig: Rig) -> None:
    """On mismatch, high-risk device and red policy, the cautious rules do not reject."""
    call = await rig.begin_call(*MISCHIEF, END, run_s=66, is_pushed=False)
    assert not {ENROLLED, REJECTED} & set(rig.ledger(call))
    assert (await rig.record(call)).life.reason is Reason.RED


async def test_demo_rules_reject_what_they_say(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Rules that may reject do so, once, in the configured operator's name."""
    rig = Rig(sandbox_asgi, redis, load_rules("demo"))
    call = await rig.begin_call(*MISCHIEF[:2], END, run_s=30, is_pushed=False)
    assert (rig.ledger(call)[REJECTED], call.feedback) == (1, ["FAILED"])
    assert [a.by for a in call.activities if a.name == "RejectCallerVoice"] == ["bot"]


async def test_distrusted_caller_is_rejected_once_in_the_operators_name(rig: Rig) -> None:
    """A person's word rejects: one request by the real voice id, her name, no check and no enroll after it."""
    call = await rig.begin_call(MFA, END, run_s=5, is_pushed=False)
    for _ in range(3):
        await distrust(rig, call)
        await rig.run(10)
    await rig.run(40)
    assert rig.ledger(call)[REJECTED] == 1
    assert not {ENROLLED, "check"} & set(rig.ledger(call))
    assert [a.by for a in call.activities if a.name == "RejectCallerVoice"] == ["ann"]
    assert (await rig.record(call)).life.reason is Reason.REJECTED


async def test_refused_enroll_is_sent_again_although_its_second_intention_was_withdrawn(rig: Rig) -> None:
    """Of the second request no byte could be sent; then there was a pause. The service has seen one of two requests."""
    rig.stage.sandbox.faults.add(Fault(target="enroll", action=Action.REFUSED, times=1))
    call = await rig.begin_call(Happening(Kind.END, 300), run_s=5, is_pushed=False)
    await say(rig, call)
    await rig.run(10)
    use(rig, service=Unsent(rig, times=1000))
    await rig.run(20)
    assert (await rig.record(call)).ledger.enroll.unsent
    pausing, drill = (
        Pausing(rig.redis),
        Pause(scope=PauseScope.EFFECTS, operator="jane", because="drill", at=rig.clock.now),
    )
    await pausing.pause(None, drill)
    use(rig, service=rig.service)
    await rig.run(10)
    assert (await rig.record(call)).ledger.enroll.state is EffectState.NONE
    await pausing.resume(None, operator="jane", because="done", at=rig.clock.now)
    await rig.run(30)
    assert rig.ledger(call)[ENROLLED] == 2


async def test_effects_wait_for_the_services_own_voice_id(rig: Rig) -> None:
    """While the service has not named the call by this id, nothing is enrolled or rejected under it."""
    call = rig.stage.call(END, persons=[])
    rig.stage.sandbox.faults.add(Fault(target="read", action=Action.ANSWER, status=500))
    await rig.run(2)
    await distrust(rig, call)
    await rig.run(10)
    assert REJECTED not in rig.ledger(call)


async def test_restarted_redis_is_verified_before_anything_is_sent(rig: Rig) -> None:
    """After Redis came back another, details are read first, and an intention is not sent again (C15)."""
    use(rig, service=Unsent(rig, times=1000))
    call = await rig.begin_call(END, run_s=10, is_pushed=False)
    await say(rig, call)
    await rig.run(10)
    member = CallId(call.institution_key, call.voice_id).member
    assert (await rig.record(call)).ledger.enroll.state is EffectState.INTENDED
    happen_now(rig.stage.world, call, Happening(Kind.ENROLLED, person_id="p-1"))
    await rig.redis.hset(rig.store.keys.item(member), "epoch", "before the restart")
    use(rig, service=rig.service)
    await rig.run(30)
    assert ENROLLED not in rig.ledger(call)
    assert (await rig.record(call)).ledger.enroll.state is EffectState.CONFIRMED
    assert "verifying" in await rig.whats(call)
