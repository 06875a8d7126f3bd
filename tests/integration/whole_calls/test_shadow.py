"""Rules in shadow on a busy scenario are recorded and not acted on."""

from dataclasses import replace

from callkeeper.calls.rules import Outcome, Rule, RuleBook, Stage
from callkeeper.calls.rules.report import report
from callkeeper.calls.trail import Recorded
from tests.harness.virtual_time import DEMO, Rig
from tests.integration.whole_calls.conftest import MakeRig

RUN_S = 110

SHADOWS = (
    Rule("reject every mismatch", (("voice_mismatch", True),), Outcome.REJECT, "Would we?", stage=Stage.SHADOW),
    Rule("enroll all", (("assigned", True),), Outcome.ENROLL, "Would we?", "Other", Stage.SHADOW),
    Rule("hold the red", (("red", True),), Outcome.HOLD, "Would we?", stage=Stage.SHADOW),
)


def with_shadows(book: RuleBook) -> RuleBook:
    """Return the rules with three more in shadow, before, between and after."""
    first, *rest, last = book.rules
    return replace(book, rules=(SHADOWS[0], first, SHADOWS[1], *rest, SHADOWS[2], last))


async def sent(rig: Rig) -> list[tuple[str, str | None, str]]:
    """Run the scenario; return every assign, check, enroll and reject that the stand-in saw, in order, with its time."""
    await rig.run(RUN_S)
    entries = rig.stage.sandbox.ledger.entries
    arrivals = [arrival for of_call in entries.of_calls.values() for arrival in of_call]
    deeds = [a for a in arrivals if a.operation in {"assign", "check", "enroll", "reject_voice"}]
    return [
        (a.operation, a.voice_id, f"{a.at:%H:%M:%S.%f}") for a in sorted(deeds, key=lambda a: (a.at, a.voice_id or ""))
    ]


async def recordings(rig: Rig) -> list[Recorded]:
    """Return all calls with their trails."""
    return [call async for call in rig.queries.recordings()]


async def test_shadow_rules_change_nothing_that_is_sent(busy: MakeRig) -> None:
    """The same seed with and without rules in shadow: the same requests for the same calls at the same times."""
    plain, shadowed = await sent(busy(DEMO)), await sent(busy(with_shadows(DEMO)))
    assert shadowed == plain
    assert {"assign", "check", "enroll", "reject_voice"} == {operation for operation, *_ in plain}


async def test_shadow_rules_are_reported_with_what_they_would_have_done(busy: MakeRig) -> None:
    """The report counts what rules in shadow would have done, and names the calls in which live rules did otherwise."""
    rig = busy(with_shadows(DEMO))
    await rig.run(RUN_S)
    calls = await recordings(rig)
    found = report(calls, rig.book.policies)
    would = sum(tally.would["reject"] for (_, rule), tally in found.rules.items() if rule == "reject every mismatch")
    seen = [call for call in calls if any((e.facts or {}).get("voice_mismatch") for e in call.trail)]
    assert would == len(seen) > 0
    disagreeing = {one.voice_id for one in found.disagreements if one.rule == "reject every mismatch"}
    assert disagreeing == {call.voice_id for call in seen if call.reject == "none"}
    assert all(one.would == "would have rejected" for one in found.disagreements if one.rule == "reject every mismatch")


async def test_report_counts_what_was_sent_and_how_it_ended(busy: MakeRig) -> None:
    """The report's figures agree with the sandbox's."""
    rig = busy(DEMO)
    await rig.run(RUN_S)
    found = report(await recordings(rig), rig.book.policies)
    applied = rig.stage.sandbox.ledger.entries.totals.applied
    assert sum(tally.sent["enroll"] for tally in found.rules.values()) == applied["enroll"] > 0
    assert sum(tally.sent["reject"] for tally in found.rules.values()) == applied["reject_voice"] > 0
    assert sum(tally.ended["applied"] for tally in found.rules.values()) == applied["enroll"] + applied["reject_voice"]
    assert set(found.digests) == {DEMO.digest}
    assert set(found.colourless) <= {"Yellow Review"}
