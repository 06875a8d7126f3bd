"""Rules in shadow on a busy scenario are recorded and not acted on."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

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


BOOKS = {"plain": DEMO, "shadowed": with_shadows(DEMO)}


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of the scenario under rules.

    Attributes:
        sent: Every assign, check, enroll and reject that the stand-in saw, in order, with its call and time.
        calls: All calls with their trails.
        applied: How many requests of each kind the stand-in applied.
    """

    sent: list[tuple[str, str | None, str]]
    calls: list[Recorded]
    applied: dict[str, int]


@pytest.fixture(scope="module")
def known() -> dict[str, Ran]:
    """Hold what became of the scenario, by the rules; filled by whoever asks first."""
    return {}


@pytest.fixture
async def ran(busy: MakeRig, known: dict[str, Ran]) -> Callable[[str], Awaitable[Ran]]:
    """Return what runs the scenario with one of the books, once for all tests here."""

    async def run(book: str) -> Ran:
        if book not in known:
            rig = busy(BOOKS[book])
            await rig.run(RUN_S)
            calls = [call async for call in rig.queries.recordings()]
            known[book] = Ran(sent(rig), calls, dict(rig.stage.sandbox.ledger.entries.totals.applied))
        return known[book]

    return run


def sent(rig: Rig) -> list[tuple[str, str | None, str]]:
    """Return every assign, check, enroll and reject that the stand-in saw, in order, with its time."""
    entries = rig.stage.sandbox.ledger.entries
    arrivals = [arrival for of_call in entries.of_calls.values() for arrival in of_call]
    deeds = [a for a in arrivals if a.operation in {"assign", "check", "enroll", "reject_voice"}]
    return [
        (a.operation, a.voice_id, f"{a.at:%H:%M:%S.%f}") for a in sorted(deeds, key=lambda a: (a.at, a.voice_id or ""))
    ]


async def test_shadow_rules_change_nothing_that_is_sent(ran: Callable[[str], Awaitable[Ran]]) -> None:
    """The same seed with and without rules in shadow: the same requests for the same calls at the same times."""
    plain, shadowed = (await ran("plain")).sent, (await ran("shadowed")).sent
    assert shadowed == plain
    assert {"assign", "check", "enroll", "reject_voice"} == {operation for operation, *_ in plain}


async def test_shadow_rules_are_reported_with_what_they_would_have_done(ran: Callable[[str], Awaitable[Ran]]) -> None:
    """The report counts what rules in shadow would have done, and names the calls in which live rules did otherwise."""
    calls = (await ran("shadowed")).calls
    found = report(calls, DEMO.policies)
    would = sum(tally.would["reject"] for (_, rule), tally in found.rules.items() if rule == "reject every mismatch")
    seen = [call for call in calls if any((e.facts or {}).get("voice_mismatch") for e in call.trail)]
    assert would == len(seen) > 0
    disagreeing = {one.voice_id for one in found.disagreements if one.rule == "reject every mismatch"}
    assert disagreeing == {call.voice_id for call in seen if call.reject == "none"}
    assert all(one.would == "would have rejected" for one in found.disagreements if one.rule == "reject every mismatch")


async def test_report_counts_what_was_sent_and_how_it_ended(ran: Callable[[str], Awaitable[Ran]]) -> None:
    """The report's figures agree with the sandbox's."""
    plain = await ran("plain")
    found, applied = report(plain.calls, DEMO.policies), plain.applied
    assert sum(tally.sent["enroll"] for tally in found.rules.values()) == applied["enroll"] > 0
    assert sum(tally.sent["reject"] for tally in found.rules.values()) == applied["reject_voice"] > 0
    assert sum(tally.ended["applied"] for tally in found.rules.values()) == applied["enroll"] + applied["reject_voice"]
    assert set(found.digests) == {DEMO.digest}
    assert set(found.colourless) <= {"Yellow Review"}
