"""``then = "ask"``, dates, times and histories in a whole callkeeper: what is sent, and what is put before a person."""

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.effect_resolution import needs_of
from callkeeper.calls.notes import Distrusted, Resolved, Verified
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.person_lists import NamedLists
from callkeeper.calls.rules import Outcome, Rule, RuleBook
from callkeeper.calls.rules.book import Between, Includes, InList, OnChecks
from callkeeper.calls.statuses import FRAUD
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import DEMO, Rig
from tests.integration.whole_calls.test_pause import pause
from tests.sandbox_fixtures import KEY, Asgi

END = Happening(Kind.END, 60)
ASK = Rule("zebra twice", (("policies", OnChecks(Includes(("Zebra *",)), 2)),), Outcome.ASK, "A device seen in frauds.")
ZEBRA = Happening(Kind.POLICY, 1, "Zebra Device Policy")


def book(*rules: Rule) -> RuleBook:
    """Return rules: a person's distrust first, these, then the final hold; Zebra is neutral."""
    policies = replace(DEMO.policies, neutral=("Zebra *",))
    return replace(DEMO, rules=(DEMO.rules[0], *rules, DEMO.rules[-1]), policies=policies)


@pytest.fixture
async def stage(sandbox_asgi: Asgi) -> Asgi:
    """Return the stand-in."""
    return sandbox_asgi


async def test_ask_puts_the_call_before_a_person_and_sends_nothing(stage: Asgi, redis: Redis) -> None:
    """Attention, an outcome for the webhook, a line in the trail with the sentence; no enroll, no reject."""
    rig = Rig(stage, redis, book(ASK))
    call = await rig.begin_call(ZEBRA, END, run_s=3)
    assert (await rig.record(call)).statements.asked is None, "one check has shown it"
    await rig.run(10)
    record = await rig.record(call)
    assert record.statements.asked is not None
    assert (record.statements.asked.rule, record.statements.asked.because) == (
        "zebra twice",
        "A device seen in frauds.",
    )
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'zebra twice'"]
    [told] = [one for one in outcomes(await rig.queries.trail(rig.call_id(call))) if one.type == "asked"]
    assert (told.line.rule, told.line.because) == ("zebra twice", "A device seen in frauds.")
    await rig.run(70)
    record = await rig.record(call)
    assert record.is_settled
    assert {record.ledger.enroll.state, record.ledger.reject.state} == {EffectState.NONE}
    assert await rig.queries.attention(), "after the end it waits until somebody has seen to it"
    note = Resolved(applied=False, operator="ann", said_at=rig.clock.now)
    await rig.store.note(rig.call_id(call), note, even_settled=True)
    await rig.run(5)
    assert not await rig.queries.attention()


async def test_rule_that_asks_again_asks_since_the_first_time(stage: Asgi, redis: Redis) -> None:
    """A statement lets the rules decide anew: the same question is asked since the same instant, and logged once."""
    rig = Rig(stage, redis, book(ASK))
    call = await rig.begin_call(ZEBRA, Happening(Kind.END, 600), run_s=12, is_pushed=False)
    asked, decided = (await rig.record(call)).statements.asked, (await rig.whats(call)).count("decided ask")
    verified = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now)
    await rig.note(call, verified)
    await rig.run(12)
    assert (await rig.whats(call)).count("decided ask") == decided + 1
    assert (await rig.record(call)).statements.asked == asked
    assert [entry["event"] for entry in rig.log.entries].count("person_asked") == 1


async def test_closed_question_opens_again_with_another_sign(rig: Rig) -> None:
    """Sue has seen the risky device. That it stays asks nobody, but nothing has told her that the voice is another one."""
    call = await rig.begin_call(Happening(Kind.END, 600), run_s=20)
    await rig.note(call, Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now))
    await rig.run(30)
    assert call.manual_person_id == "p-1"
    call.is_high_risk_device = True
    await rig.run(70)
    doubted = ["asked by rule 'verified, but evidence against it'"]
    assert list((await rig.queries.attention()).values()) == doubted
    await rig.note(call, Resolved(applied=False, operator="sue", said_at=rig.clock.now))
    await rig.run(130)
    assert not await rig.queries.attention()
    call.is_mismatch = True
    await rig.run(70)
    assert list((await rig.queries.attention()).values()) == doubted
    asked = [one.line.signs for one in outcomes(await rig.trail(call)) if one.type == "asked"]
    assert asked == [(), ("voice_mismatch",)]
    assert [entry["event"] for entry in rig.log.entries].count("person_asked") == 2


async def test_question_is_about_a_sign_that_its_page_did_not_show(rig: Rig) -> None:
    """Sue's page shows the risky device. Before she says that she has seen it, another voice is read."""
    call = await rig.begin_call(Happening(Kind.END, 600), run_s=20)
    await rig.note(call, Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now))
    await rig.run(30)
    call.is_high_risk_device = True
    await rig.run(70)
    shown = needs_of(await rig.record(call))
    call.is_mismatch = True
    await rig.run(70)
    await rig.note(call, Resolved(applied=False, operator="sue", said_at=rig.clock.now, seen=shown))
    await rig.run(20)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but evidence against it'"]
    assert [one.type for one in outcomes(await rig.trail(call))].count("asked") == 1, "it was open all the time"


@pytest.mark.parametrize(
    ("kind", "named"),
    [(Kind.POLICY, "Yellow Review"), (Kind.CASE, "NeedsReview"), (Kind.CASE_ELSEWHERE, FRAUD)],
    ids=["policy", "open case", "fraud elsewhere"],
)
async def test_closed_question_opens_again_with_a_policy_or_a_case(rig: Rig, kind: Kind, named: str) -> None:
    """Nobody enrolls the voice of a stolen SIM. Sue has seen that it is another one; then more speaks against the caller."""
    call = await rig.begin_call(
        Happening(Kind.MFA_VALIDATED, 10), Happening(Kind.MISMATCH, 15), Happening(Kind.END, 600), run_s=60
    )
    await rig.note(call, Resolved(applied=False, operator="sue", said_at=rig.clock.now))
    await rig.run(20)
    assert not await rig.queries.attention()
    rig.stage.happen(call, kind, named)
    await rig.run(70)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but another voice'"]


async def test_a_person_s_word_answers_what_a_rule_asks(stage: Asgi, redis: Redis) -> None:
    """Who is distrusted is rejected by the rule that comes first, and nothing is asked any more."""
    rig = Rig(stage, redis, book(ASK))
    call = await rig.begin_call(ZEBRA, END, run_s=12, is_pushed=False)
    assert await rig.queries.attention()
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now))
    await rig.run(5)
    assert (await rig.record(call)).ledger.reject.state is EffectState.APPLIED
    assert not await rig.queries.attention()


async def test_time_since_the_assignment_is_not_late(stage: Asgi, redis: Redis) -> None:
    """A rule on seconds since the assignment decides when they have passed, whatever else is due."""
    late = Rule("nothing for long", (("assigned_s", Between(31)),), Outcome.ASK, "Nothing came.")
    rig = Rig(stage, redis, replace(book(late), reads_undecided_s=20.0))
    call = await rig.begin_call(END, run_s=28, is_pushed=False)
    assert (await rig.record(call)).statements.asked is None
    await rig.run(5)
    record = await rig.record(call)
    assert record.statements.asked is not None
    assert record.plan.watch_from is not None
    assert 31 <= (record.statements.asked.asked_at - record.plan.watch_from).total_seconds() < 32


async def test_rule_comes_into_force_in_the_midst_of_a_call(stage: Asgi, redis: Redis) -> None:
    """Dates are held against the call's clock: before, the rule is passed over, and from its instant on it decides."""
    begins_at = stage.clock.now + timedelta(seconds=20)
    rig = Rig(stage, redis, book(replace(ASK, when=(("assigned", True),), valid_from=begins_at)))
    call = await rig.begin_call(END, run_s=19, is_pushed=False)
    assert (await rig.record(call)).statements.asked is None
    await rig.run(3)
    record = await rig.record(call)
    assert record.statements.asked is not None
    assert begins_at <= record.statements.asked.asked_at < begins_at + timedelta(seconds=1)


@pytest.mark.parametrize("verified", [False, True])
async def test_red_alone_rejects_only_whom_nobody_has_verified(stage: Asgi, redis: Redis, verified: bool) -> None:
    """An institution that accepts it rejects on red alone; the law holds it back where a person has verified the caller."""
    rule = Rule(
        "red",
        (("red", True),),
        Outcome.REJECT,
        "Red.",
        institutions=frozenset({KEY}),
        on_red_alone=True,
    )
    rig = Rig(stage, redis, replace(book(rule), red_alone=frozenset({KEY})))
    call = await rig.begin_call(Happening(Kind.RED, 8), END, run_s=3, is_pushed=False)
    if verified:
        person = (await rig.record(call)).seen.person_id or ""
        word = Verified(person_id=person, validation_type="Other", operator="ann", said_at=rig.clock.now)
        await rig.note(call, word)
    await rig.run(15)
    assert (await rig.record(call)).ledger.reject.state is (EffectState.NONE if verified else EffectState.APPLIED)


async def test_rule_asks_about_a_listed_member(stage: Asgi, redis: Redis) -> None:
    """A member in a list is put before a person as soon as the call is assigned; the trail names the list, not the id."""
    listed = Rule(
        "a member of the board", (("person", InList("board")),), Outcome.ASK, "Please take this call yourself."
    )
    lists = NamedLists(persons={"board": frozenset({"p-1"})})
    rig = Rig(stage, redis, replace(book(listed), lists=lists))
    call, other = (rig.stage.call(END, persons=[{"personId": person}]) for person in ("p-1", "p-2"))
    await rig.run(5)
    assert (await rig.record(call)).statements.asked is not None
    assert (await rig.record(other)).statements.asked is None
    [decided] = [line for line in await rig.queries.trail(rig.call_id(call)) if line.rule == listed.name and line.facts]
    assert decided.facts is not None
    assert decided.facts["person"] == "board"


async def test_rule_is_applied_when_the_hour_comes(stage: Asgi, redis: Redis) -> None:
    """Nothing happens in the call, but the clock strikes: the rule for the next hour decides."""
    now = stage.clock.now
    later = Rule("after hours", (("hour", (now.hour + 1) % 24),), Outcome.ASK, "The desk is closed.")
    rig = Rig(stage, redis, replace(book(later), zones={"": ZoneInfo("UTC")}))
    stage.advance(3600 - now.minute * 60 - now.second - 60)
    call = await rig.begin_call(Happening(Kind.END, 600), run_s=55, is_pushed=False)
    assert (await rig.record(call)).statements.asked is None
    await rig.run(6)
    assert (await rig.record(call)).statements.asked is not None


@pytest.mark.parametrize(
    ("evidence", "rule"),
    [
        (Happening(Kind.RED, 60), "verified, but a red policy"),
        (Happening(Kind.CASE, 60, "DeterminedFraud"), "fraud in this call"),
    ],
    ids=["red", "fraud"],
)
@pytest.mark.parametrize(("named", "enrolled"), [("p-1", "p-1"), ("p-l", None)], ids=["enrolled", "mistyped"])
async def test_evidence_that_comes_after_a_word_of_the_desk_asks(
    rig: Rig, evidence: Happening, rule: str, named: str, enrolled: str | None
) -> None:
    """Ann was talked into verifying him. A person is asked, whether the voice was enrolled or the law holds her word."""
    call = await rig.begin_call(evidence, Happening(Kind.END, 120), run_s=20)
    word = Verified(person_id=named, validation_type="Other", operator="ann", said_at=rig.clock.now)
    await rig.note(call, word)
    await rig.run(20)
    assert (call.manual_person_id, await rig.queries.attention()) == (enrolled, {})
    await rig.run(200)
    assert (await rig.record(call)).is_settled
    assert list((await rig.queries.attention()).values()) == [f"asked by rule {rule!r}"]
    assert ("enroll" in rig.ledger(call)) == (enrolled is not None)


async def test_red_policy_that_a_person_has_overruled_is_not_asked_about_again(rig: Rig) -> None:
    """It was gone when Ann verified the caller: that was her answer, and the voice is enrolled."""
    call = await rig.begin_call(Happening(Kind.RED, 5), Happening(Kind.END, 120), run_s=20)
    call.policies = call.provider.policies = []
    rig.stage.happen(call, Kind.VIEWED)
    await rig.run(20)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'a red policy'"]
    despite, now = ("red_seen",), rig.clock.now
    word = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=now, despite=despite)
    await rig.note(call, word)
    await rig.run(20)
    assert (call.manual_person_id, await rig.queries.attention()) == ("p-1", {})
    await rig.run(200)
    assert not await rig.queries.attention()


async def test_word_that_the_law_holds_answers_no_question(rig: Rig) -> None:
    """Ann mistypes the member's id, so nothing comes of her word, and only she learns of it. The question stays open."""
    call = await rig.begin_call(
        Happening(Kind.MISMATCH, 5), Happening(Kind.MFA_VALIDATED, 20), Happening(Kind.END, 90), run_s=50
    )
    asked = (await rig.record(call)).statements.asked
    assert asked is not None
    assert asked.rule == "verified, but another voice"
    word = Verified(person_id="p-l", validation_type="Other", operator="ann", said_at=rig.clock.now)
    await rig.note(call, word)
    await rig.run(200)
    assert (await rig.record(call)).statements.asked == asked
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but another voice'"]
    assert "enroll" not in rig.ledger(call)


async def test_word_that_was_said_on_red_enrolls_nobody_once_it_is_gone(rig: Rig) -> None:
    """Until then, a person is asked; and then again, because the word did not name that there had been one."""
    call = await rig.begin_call(Happening(Kind.RED, 5), Happening(Kind.END, 120), run_s=20)
    word = Verified(person_id="p-1", validation_type="Other", operator="ann", said_at=rig.clock.now)
    await rig.note(call, word)
    await rig.run(10)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but a red policy'"]
    call.provider.policies.clear()
    call.policies.clear()
    await rig.run(200)
    assert call.manual_person_id is None
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but evidence against it'"]


async def test_question_ends_with_its_cause_also_while_the_law_holds_a_word(rig: Rig) -> None:
    """Another tool has rejected the voice during a pause, so nobody has to look at the caller any more."""
    call = await rig.begin_call(Happening(Kind.RED, 5), Happening(Kind.END, 90), run_s=20)
    await pause(rig)
    await rig.note(call, Distrusted(operator="ann", said_at=rig.clock.now, reason="impostor"))
    await rig.run(10)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'a red policy'"]
    rig.stage.happen(call, Kind.REJECTED, "zed")
    await rig.run(100)
    assert not await rig.queries.attention()


async def test_question_ends_as_it_would_have_without_the_word_that_the_law_holds(rig: Rig) -> None:
    """It was p-1 after all: the voice is green now. Ann's mistyped id must not keep the call on the list."""
    call = await rig.begin_call(
        Happening(Kind.MISMATCH, 5), Happening(Kind.MFA_VALIDATED, 20), Happening(Kind.END, 200), run_s=50
    )
    word = Verified(person_id="p-l", validation_type="Other", operator="ann", said_at=rig.clock.now)
    await rig.note(call, word)
    await rig.run(20)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but another voice'"]
    call.provider.is_mismatch = False
    rig.stage.happen(call, Kind.GREEN)
    await rig.run(60)
    assert not await rig.queries.attention()


async def test_question_ends_with_its_cause_also_if_the_law_holds_the_word_as_before(stage: Asgi, redis: Redis) -> None:
    """The policy is gone, and what is decided of the word is not new. The call leaves the list at once."""
    ask = Rule("zebra", (("policies", Includes(("Zebra *",))),), Outcome.ASK, "A device seen in frauds.")
    by_word = next(rule for rule in DEMO.rules if rule.name == "verified at the desk")
    rig = Rig(stage, redis, book(by_word, ask))
    call = await rig.begin_call(ZEBRA, Happening(Kind.END, 200), run_s=20)
    word = Verified(person_id="p-l", validation_type="Other", operator="ann", said_at=rig.clock.now)
    await rig.note(call, word)
    await rig.run(20)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'zebra'"]
    call.policies = call.provider.policies = []
    rig.stage.happen(call, Kind.VIEWED)
    await rig.run(60)
    assert not await rig.queries.attention()
