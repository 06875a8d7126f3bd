"""Who is enrolled, and when: the voice has its say first, and the end of a call does not lose a verification."""

from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.notes import Verified
from callkeeper.calls.record import Reason
from callkeeper.calls.rules import load_rules
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import EAGER, Rig
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 80)
PASSCODE = Happening(Kind.MFA_VALIDATED, 4, "ivr")
LONG_S = 320
BOOKS = ("default", "demo")


async def say(
    rig: Rig, call: Call, *, late_s: float = 0.0, person_id: str = "p-1", despite: tuple[str, ...] = ()
) -> None:
    """Let the desk say that the caller was verified; a worker reads it so many seconds later."""
    now = rig.clock.now
    word = Verified(person_id=person_id, validation_type="Other", operator="ann", said_at=now, despite=despite)
    assert await rig.store.note(rig.call_id(call), word, even_settled=True)
    rig.stage.advance(late_s)
    await rig.run(20)


async def live_until(asgi: Asgi, redis: Redis, book: str, *script: Happening, run_s: float = 130) -> tuple[Rig, Call]:
    """Let one call happen; return the rig and the call."""
    rig = Rig(asgi, redis, load_rules(book))
    call = await rig.begin_call(*script, run_s=run_s)
    return rig, call


IMPOSTORS: dict[str, tuple[Happening, ...]] = {
    "another voice": (Happening(Kind.MISMATCH, 12),),
    "a risky device": (Happening(Kind.HIGH_RISK, 12),),
    "a red policy": (Happening(Kind.RED, 12),),
    "a policy without a colour": (Happening(Kind.POLICY, 12, "Yellow Review"),),
    "another voice, known only by the final analysis": (Happening(Kind.MISMATCH, 79.5),),
    "a risky device, known only by the final analysis": (Happening(Kind.HIGH_RISK, 79.5),),
}


@pytest.mark.parametrize(
    ("book", "signs"),
    [
        pytest.param(book, signs, id=f"{book}-{name}", marks=pytest.mark.night if (book, n % 3) == ("demo", 0) else ())
        for book in BOOKS
        for n, (name, signs) in enumerate(IMPOSTORS.items(), 1)
    ],
)
async def test_stolen_passcode_enrolls_nobody(
    sandbox_asgi: Asgi, redis: Redis, book: str, signs: tuple[Happening, ...]
) -> None:
    """A passcode at 4 s enrolls nobody against whom the voice provider has something to say until the end."""
    rig, call = await live_until(sandbox_asgi, redis, book, PASSCODE, *signs, END)
    assert call.feedback == []
    assert (await rig.record(call)).ledger.enroll.state is EffectState.NONE


@pytest.mark.parametrize("is_by_desk", [False, True])
@pytest.mark.parametrize("book", BOOKS)
async def test_policy_without_a_colour_counts_also_when_it_is_gone(
    sandbox_asgi: Asgi, redis: Redis, book: str, is_by_desk: bool
) -> None:
    """It might be a red one, and a red one is remembered. Whoever verifies the caller after it decides."""
    rig, call = await live_until(
        sandbox_asgi, redis, book, PASSCODE, Happening(Kind.POLICY, 5, "Yellow Review"), END, run_s=30
    )
    call.policies = call.provider.policies = []
    if is_by_desk:
        await rig.run(20)
        await say(rig, call, despite=("unclassified_seen",))
    await rig.run(100)
    assert rig.ledger(call).get("enroll", 0) == int(is_by_desk)
    assert (await rig.record(call)).life.reason == (Reason.ENROLLED if is_by_desk else Reason.UNDECIDED)


@pytest.mark.parametrize(("at_s", "for_s"), [(102.0, 12.0), (140.0, 5.0)])
async def test_policy_without_a_colour_counts_if_only_reads_show_it(rig: Rig, at_s: float, for_s: float) -> None:
    """Another tool had checked the voice; or the first look at the final analysis showed it, and the next one did not."""
    call = await rig.begin_call(PASSCODE, Happening(Kind.END, 140), run_s=at_s)
    call.policies = ["Yellow Review"]
    await rig.run(for_s)
    call.policies = []
    await rig.run(100)
    assert "enroll" not in rig.ledger(call)


@pytest.mark.parametrize("at_s", [12.0, 60.0, 79.5])
async def test_voice_that_authenticates_in_time_is_not_enrolled(sandbox_asgi: Asgi, redis: Redis, at_s: float) -> None:
    """A member with a good voiceprint gives a passcode first: the voice is waited for, up to the final analysis."""
    rig, call = await live_until(sandbox_asgi, redis, "default", PASSCODE, Happening(Kind.GREEN, at_s), END)
    assert call.feedback == []
    assert (await rig.record(call)).life.reason is Reason.AUTHENTICATED


@pytest.mark.parametrize("kind", [Kind.MISMATCH, Kind.HIGH_RISK])
async def test_person_is_asked_about_a_verified_caller_with_a_sign_against(
    sandbox_asgi: Asgi, redis: Redis, kind: Kind
) -> None:
    """Verified, but another voice or a risky device: a person decides, and the question stays after the end."""
    rig, call = await live_until(sandbox_asgi, redis, "default", PASSCODE, Happening(kind, 12), END)
    (because,) = (await rig.queries.attention()).values()
    assert because.startswith("asked by rule 'verified, but ")
    assert (await rig.record(call)).is_settled


async def test_shipped_rules_enroll_nobody_in_the_call_on_the_services_word(sandbox_asgi: Asgi, redis: Redis) -> None:
    """However long the call, the provider may still find something: it is enrolled after its end."""
    rig, call = await live_until(
        sandbox_asgi, redis, "default", PASSCODE, Happening(Kind.END, LONG_S), run_s=LONG_S - 1
    )
    assert (call.feedback, rig.ledger(call)["check"]) == ([], 18)
    await rig.run(20)
    assert call.feedback == ["SUCCESSFUL"]


async def test_rules_may_enroll_in_the_call_once_the_voice_was_checked(sandbox_asgi: Asgi, redis: Redis) -> None:
    """18 answers that brought nothing are the voice's say: rules that do not wait for the end enroll then, not before."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(PASSCODE, run_s=200)
    assert (call.feedback, rig.ledger(call)["check"]) == ([], 17)
    await rig.run(50)
    assert (call.feedback, call.ended_at, rig.ledger(call)["check"]) == (["SUCCESSFUL"], None, 18)


OPEN: dict[str, tuple[Happening, ...]] = {
    "the provider is still evaluating": (Happening(Kind.PENDING, 1), Happening(Kind.STATUS, 20, "Voice Pending")),
    "the provider has an error": (Happening(Kind.ERROR, 2),),
}


@pytest.mark.parametrize("script", OPEN.values(), ids=OPEN)
async def test_person_is_asked_if_the_voice_was_never_checked(
    sandbox_asgi: Asgi, redis: Redis, script: tuple[Happening, ...]
) -> None:
    """Answers without a result say nothing of the voice, however many: nobody is enrolled without a person."""
    sandbox_asgi.sandbox.choose(["end-keeps-status"])
    rig, call = await live_until(sandbox_asgi, redis, "default", PASSCODE, *script, Happening(Kind.END, 300), run_s=330)
    assert call.feedback == []
    (because,) = (await rig.queries.attention()).values()
    assert because.startswith("asked by rule 'verified, but the voice was ")


async def test_caller_who_hangs_up_before_the_voice_was_heard_asks_a_person(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A passcode, and the end before a check was answered: the final analysis of a voice that nobody heard says nothing."""
    rig, call = await live_until(sandbox_asgi, redis, "default", PASSCODE, Happening(Kind.END, 9))
    assert call.feedback == []
    assert "asked by rule 'verified, but the voice was never checked'" in (await rig.queries.attention()).values()


async def test_sign_of_an_earlier_call_asks_a_person(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Caught once, the caller hangs up earlier the next time: what the first call showed is not forgotten."""
    rig, _ = await live_until(sandbox_asgi, redis, "default", PASSCODE, Happening(Kind.RED, 12), END)
    again = await rig.begin_call(PASSCODE, Happening(Kind.END, 30), run_s=60)
    assert again.feedback == []
    assert "asked by rule 'verified, but suspected before'" in (await rig.queries.attention()).values()


async def test_sign_that_vanishes_is_remembered(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A risky device and a red policy that the record shows for some seconds only still count at the end."""
    rig = Rig(sandbox_asgi, redis, load_rules("default"))
    call = await rig.begin_call(PASSCODE, Happening(Kind.HIGH_RISK, 10), END, run_s=30)
    call.is_high_risk_device = False
    await rig.run(100)
    assert call.feedback == []
    assert "asked by rule 'verified, but a risky device'" in (await rig.queries.attention()).values()


async def test_word_of_a_person_does_not_wait_for_the_voice(rig: Rig) -> None:
    """The desk's word enrolls at once, also against a mismatch, if it says that it overrules it."""
    call = await rig.begin_call(Happening(Kind.MISMATCH, 2), END, run_s=15, is_pushed=False)
    await say(rig, call)
    assert call.feedback == []
    await say(rig, call, despite=("voice_mismatch",))
    assert call.feedback == ["SUCCESSFUL"]


async def test_short_call_is_enrolled_after_its_end(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A call that is too short for 18 answers is decided once two reads after its end show the same."""
    rig, call = await live_until(sandbox_asgi, redis, "default", PASSCODE, END)
    assert call.feedback == ["SUCCESSFUL"]
    assert call.ended_at is not None
    enrolled = next(one for one in call.activities if one.name == "AcceptCallerVoice")
    assert timedelta(seconds=5) <= enrolled.at - call.ended_at <= timedelta(seconds=12)
    assert (await rig.record(call)).life.reason is Reason.ENROLLED


async def test_passcode_that_only_the_read_after_the_end_shows_enrolls(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Identity that the first read after the end shows was established before it; what comes later was not."""
    sandbox_asgi.sandbox.choose(["end-keeps-status"])
    last = Happening(Kind.MFA_VALIDATED, 79.9, "operator-2")
    _, call = await live_until(sandbox_asgi, redis, "default", last, END)
    assert call.feedback == ["SUCCESSFUL"]
    after = Happening(Kind.MFA_VALIDATED, 82.5, "operator-2")
    rig, late = await live_until(sandbox_asgi, redis, "default", after, END)
    assert late.feedback == []
    held = {name for entry in await rig.trail(late) for name in entry.forbidden}
    assert "verified_too_late" in held


@pytest.mark.parametrize(("after_s", "is_enrolled"), [(1, True), (30, True), (590, True), (615, False)])
async def test_word_after_the_end_enrolls_for_ten_minutes(rig: Rig, after_s: float, is_enrolled: bool) -> None:
    """An agent who verifies the caller after the hang-up is heard, also if the call is settled; later it is too late."""
    call = await rig.begin_call(Happening(Kind.END, 30), run_s=31 + after_s, is_pushed=False)
    await say(rig, call)
    assert bool(call.feedback) is is_enrolled
    assert (await rig.record(call)).is_settled
    assert (await rig.record(call)).life.reason is (Reason.ENROLLED if is_enrolled else Reason.UNDECIDED)


async def test_late_word_counts_from_when_it_was_said(rig: Rig) -> None:
    """A word that reached a worker late was said in time."""
    call = await rig.begin_call(Happening(Kind.END, 30), run_s=400, is_pushed=False)
    await say(rig, call, late_s=300)
    assert call.feedback == ["SUCCESSFUL"]


AGAINST: dict[str, Any] = {
    "red": Kind.RED,
    "a rejected voice": Kind.REJECTED,
    "an opt-out": Kind.OPT_OUT,
    "an enroll elsewhere": Kind.ENROLLED,
}


@pytest.mark.parametrize("kind", AGAINST.values(), ids=AGAINST)
async def test_law_holds_after_the_end_as_before(rig: Rig, kind: Kind) -> None:
    """Everything else that forbids an enroll forbids it after the end too."""
    call = await rig.begin_call(Happening(kind, 5), Happening(Kind.END, 60), run_s=70, is_pushed=False)
    await say(rig, call)
    assert rig.ledger(call).get("enroll", 0) == 0


async def test_assign_is_not_made_after_the_end(rig: Rig) -> None:
    """Whom nobody assigned in the call is not assigned after it, so nobody is enrolled either."""
    call = await rig.begin_call(Happening(Kind.END, 20), persons=[], run_s=21, is_pushed=False)
    await say(rig, call)
    assert not {"assign", "enroll"} & set(rig.ledger(call))


SIGNS = {
    "another voice": Happening(Kind.MISMATCH, 299.5),
    "a risky device": Happening(Kind.HIGH_RISK, 299.5),
    "a policy without a colour": Happening(Kind.POLICY, 299.5),
    "a red policy": Happening(Kind.RED, 299.5),
}


@pytest.mark.parametrize("sign", SIGNS.values(), ids=SIGNS)
async def test_sign_after_an_enroll_on_a_passcode_asks(sandbox_asgi: Asgi, redis: Redis, sign: Happening) -> None:
    """Rules that do not wait for the final analysis have enrolled an impostor. A person is asked, as after a word."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 30), sign, Happening(Kind.END, 300), run_s=280)
    assert (call.manual_person_id, await rig.queries.attention()) == ("p-1", {})
    await rig.run(120)
    assert (await rig.record(call)).is_settled
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but evidence against it'"]


async def test_sign_that_comes_with_the_proof_of_an_enroll_asks(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The answer to the enroll was lost. The read that shows the enroll shows another voice, too."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.EMPTY))
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 30), Happening(Kind.END, 600), run_s=20)
    for _ in range(1000):
        if call.manual_person_id is None:
            await rig.run(0.25)
    assert (call.manual_person_id, (await rig.record(call)).ledger.enroll.state) == ("p-1", EffectState.UNKNOWN)
    call.is_mismatch = True
    await rig.run(60)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but evidence against it'"]


async def test_answered_questions_do_not_take_a_doubt_away(sandbox_asgi: Asgi, redis: Redis) -> None:
    """Whoever has the stolen SIM may know the answers, too."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 30), Happening(Kind.END, 900), run_s=280)
    call.is_mismatch = True
    await rig.run(70)
    rig.stage.happen(call, Kind.ANSWERED_QUESTIONS)
    await rig.run(70)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but evidence against it'"]


async def test_sign_that_was_known_before_an_enroll_in_another_tool_asks_nobody(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """Somebody looked at the caller there, and enrolled the voice all the same."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    script = (Happening(Kind.MFA_VALIDATED, 10), Happening(Kind.MISMATCH, 15), Happening(Kind.END, 300))
    call = await rig.begin_call(*script, run_s=60)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but another voice'"]
    rig.stage.happen(call, Kind.ENROLLED, "zed")
    await rig.run(400)
    assert (await rig.record(call)).is_settled
    assert not await rig.queries.attention()
