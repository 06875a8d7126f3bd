"""The verdicts of a test call: what holds, what does not, and what was not seen."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace as changed

from callkeeper.app.certification.evidence import CallEvidence, Installation, OutcomeDelivery, Rules, StrayPush
from callkeeper.app.certification.report import as_json, conclusion, markdown
from callkeeper.app.certification.verdicts import PROMISES, PromiseState, PromiseVerdict, all_hold, verdicts
from callkeeper.calls.assumptions import Assumption, OtherAnswer
from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.metrics.snapshot import Process
from callkeeper.calls.record import Call, Phase, Reading, Reason
from callkeeper.calls.rules.file import read_rules_text
from callkeeper.calls.survey import Sight, SurveyRow, SurveyVerdict
from callkeeper.calls.trail import Entry, What
from tests.records import with_stored

HOLDS, BROKEN, UNSEEN = PromiseState.HOLDS, PromiseState.DOES_NOT_HOLD, PromiseState.NOT_SEEN
BEGUN = datetime(2026, 11, 21, 12, tzinfo=UTC)
PERSONAL = ("v-secret", "alt-secret", "5551234567", "p-secret", "agent-secret", "Because of Ada")


SEEN, WRONG, HIDDEN = SurveyVerdict.HOLDS, SurveyVerdict.CONTRADICTED, SurveyVerdict.NOT_SEEN


def row(id_: str, verdict: SurveyVerdict, otherwise: str = "") -> SurveyRow:
    """Return a row of a survey; ``otherwise``: what contradicts the assumption."""
    one = Assumption(id=id_, group="Queue", where=(), text="The page is whole", test="")
    others = [(OtherAnswer("other", otherwise, holds=False), Sight(1, 0.0, 0.0))] if otherwise else []
    return SurveyRow(one, verdict, None, others)


def at(seconds: float) -> datetime:
    """Return an instant of the test call."""
    return BEGUN + timedelta(seconds=seconds)


def entry(seconds: float, what: What, **more: Any) -> Entry:
    """Return an entry of its trail."""
    return Entry(at=at(seconds), what=what, **more)


TRAIL = (
    entry(10.0, "pushed", kind="start"),
    entry(10.4, "listed", candidates=1),
    entry(15.0, "read", person_id="p-secret", status="GrabbedCall"),
    entry(15.0, "decided", rules="digest-1", rule="otherwise", because="Because of Ada"),
    entry(25.0, "checked", n=1, took_ms=120, person_id="p-secret", operator="agent-secret"),
    entry(40.0, "pushed", kind="end"),
    entry(40.2, "ended"),
    entry(43.4, "settled", because="undecided", n=1),
)
CALL = with_stored(
    Call(institution_key="cu-1", voice_id="v-secret"),
    alternate_id="alt-secret",
    phone_number="5551234567",
    person_id="p-secret",
    core_username="agent-secret",
    phase=Phase.SETTLED,
    reason=Reason.UNDECIDED,
    started_at=at(9.5),
    first_seen_at=at(10),
    checks_used=1,
    reading=Reading(read_at=at(43), voice_id="v-secret", person_id="p-secret", has_ended=True),
)
WORKER = Process("host-1-aa", "worker", 1, BEGUN, "0.4.0", "digest-1")
GOOD = CallEvidence(
    institution_key="cu-1",
    began_at=BEGUN,
    taken_at=at(45),
    installation=Installation(workers=(WORKER,), rules=(Rules("digest-1"),)),
    sample_at=at(-5),
    call=CALL,
    trail=TRAIL,
    hung_up_at=at(39.9),
    requests={"answered": 30},
    survey=(row("paging", SEEN),),
)


def judged(evidence: CallEvidence) -> dict[str, PromiseVerdict]:
    """Return the verdicts by their ids."""
    return {verdict.id: verdict for verdict in verdicts(evidence)}


def without(*kinds: str) -> tuple[Entry, ...]:
    """Return the trail without some entries, named by what they say, or by that and their kind."""
    return tuple(line for line in TRAIL if not {line.what, f"{line.what} {line.kind}"} & set(kinds))


def retimed(what: str, seconds: float) -> tuple[Entry, ...]:
    """Return the trail with one kind of entry at another time."""
    return tuple(
        changed(line, at=at(seconds)) if what in {line.what, f"{line.what} {line.kind}"} else line for line in TRAIL
    )


def test_good_call_certifies_everything_that_is_required() -> None:
    """A silent call in watch-only mode whose trail is in order holds; what is not installed was not seen."""
    found = judged(GOOD)
    assert [name for name, each in found.items() if each.state is not HOLDS] == ["outcomes"]
    assert all_hold(tuple(found.values()))
    assert conclusion(verdicts(GOOD)) == "Every required promise holds."


CASES: dict[str, tuple[dict[str, Any], dict[str, PromiseState]]] = {
    "a live rule": (
        {"installation": Installation(workers=(WORKER,), rules=(Rules("digest-1", ("rejects",)),))},
        {"watch-only": BROKEN},
    ),
    "rules of unknown text": (
        {"installation": Installation(workers=(WORKER,), rules=(Rules("digest-1"),), unknown=("digest-2",))},
        {"watch-only": UNSEEN},
    ),
    "no sample": ({"sample_at": None}, {"sample": UNSEEN}),
    "an old sample": ({"sample_at": at(-3601)}, {"sample": UNSEEN}),
    "a sample with a wrong header": ({"sample_at": None, "refused": {"credentials": 1}}, {"sample": BROKEN}),
    "no start push": ({"trail": without("pushed start")}, {"push-start": BROKEN, "found": HOLDS}),
    "a late start push": ({"trail": retimed("pushed start", 21.0)}, {"push-start": BROKEN, "found": HOLDS}),
    "listed late": ({"trail": retimed("listed", 21.0)}, {"push-start": HOLDS, "found": BROKEN}),
    "never listed": ({"trail": without("listed")}, {"found": BROKEN, "one-call": HOLDS}),
    "only the queue knows it": (
        {"trail": without("pushed"), "call": with_stored(CALL, reading=None)},
        {"one-call": UNSEEN, "push-start": BROKEN, "push-end": BROKEN, "end": HOLDS},
    ),
    "pushes under another id": (
        {"trail": without("pushed"), "stray": (StrayPush("CallStart", at(9)), StrayPush("CallEnd", at(40)))},
        {"push-start": HOLDS, "one-call": BROKEN, "push-end": HOLDS},
    ),
    "pushes of both ids": ({"stray": (StrayPush("CallStart", at(9)),)}, {"push-start": HOLDS, "one-call": HOLDS}),
    "an answer names another call": ({"misnamed": 1}, {"one-call": BROKEN}),
    "its record names another call": ({"call": with_stored(CALL, other_voice_id="v-2")}, {"one-call": BROKEN}),
    "clock ahead": ({"call": with_stored(CALL, started_at=at(13.1))}, {"clocks": BROKEN}),
    "clock behind": ({"call": with_stored(CALL, started_at=at(-6))}, {"clocks": BROKEN}),
    "a machine of ours ahead": (
        {
            "installation": Installation(
                workers=(WORKER, replace(WORKER, ahead_s=-3.5)),
                rules=(Rules("digest-1"),),
            )
        },
        {"clocks": BROKEN},
    ),
    "no start told": ({"call": with_stored(CALL, started_at=None)}, {"clocks": UNSEEN}),
    "assigned by callkeeper": (
        {"trail": without("read", "checked"), "call": with_stored(CALL, assign=Effect(state=EffectState.APPLIED))},
        {"assigned": HOLDS, "checks": UNSEEN, "silence": UNSEEN},
    ),
    "assigned by nobody": (
        {"trail": without("read", "checked")},
        {"assigned": UNSEEN, "checks": UNSEEN, "silence": UNSEEN},
    ),
    "a person in the queue only": (
        {"trail": (*without("read", "checked"), entry(12, "listed", person_id="p-secret"))},
        {"assigned": UNSEEN, "checks": UNSEEN, "silence": UNSEEN},
    ),
    "checks without answers": (
        {"trail": (*without("checked"), entry(26, "check_failed", n=1))},
        {"checks": BROKEN, "silence": UNSEEN},
    ),
    "a check without an answer": ({"trail": (*TRAIL, entry(26, "check_failed", n=2))}, {"checks": HOLDS}),
    "too many checks": ({"call": with_stored(CALL, checks_used=21)}, {"checks": BROKEN}),
    "silence is authenticated": ({"call": with_stored(CALL, authenticated_seen=True)}, {"silence": BROKEN}),
    "the caller spoke": (
        {"call": with_stored(CALL, authenticated_seen=True), "was_silent": False},
        {"silence": UNSEEN},
    ),
    "no end push": ({"trail": without("pushed end")}, {"push-end": BROKEN, "end": HOLDS}),
    "a late end": ({"trail": retimed("ended", 50.1), "taken_at": at(60)}, {"end": BROKEN}),
    "a late end without a push": (
        {
            "trail": tuple(line for line in retimed("ended", 130.0) if (line.what, line.kind) != ("pushed", "end")),
            "taken_at": at(140),
        },
        {"end": BROKEN, "push-end": BROKEN},
    ),
    "an end that nobody can time": (
        {"trail": without("pushed end"), "hung_up_at": None},
        {"end": HOLDS, "push-end": BROKEN},
    ),
    "still live": (
        {"trail": without("pushed end", "ended", "settled"), "hung_up_at": None},
        {"push-end": UNSEEN, "end": UNSEEN, "settled": UNSEEN},
    ),
    "never ended": (
        {"trail": without("ended", "settled"), "taken_at": at(60)},
        {"push-end": HOLDS, "end": BROKEN, "settled": UNSEEN},
    ),
    "never settled": ({"trail": without("settled"), "taken_at": at(161)}, {"settled": BROKEN}),
    "settled late": ({"trail": retimed("settled", 161)}, {"settled": BROKEN}),
    "an enroll was sent": ({"trail": (*TRAIL, entry(44, "sent", kind="enroll"))}, {"nothing-sent": BROKEN}),
    "a reject was sent": ({"trail": (*TRAIL, entry(44, "sent", kind="reject"))}, {"nothing-sent": BROKEN}),
    "only an assign was sent": ({"trail": (*TRAIL, entry(44, "sent", kind="assign"))}, {"nothing-sent": HOLDS}),
    "a decision without rules": ({"trail": (*TRAIL, entry(44, "decided"))}, {"explained": BROKEN}),
    "no decision": ({"trail": without("decided")}, {"explained": UNSEEN}),
    "unreadable answers": ({"requests": {"answered": 30, "AnswerUnreadable": 1}}, {"readable": BROKEN}),
    "unusable entries of the queue": ({"skipped": 1}, {"readable": BROKEN}),
    "no requests": ({"requests": {}}, {"readable": UNSEEN, "unlimited": UNSEEN}),
    "turned away": ({"turned_away": 1}, {"unlimited": BROKEN}),
    "outcomes delivered": ({"deliveries": OutcomeDelivery(is_wanted=True, due=1, accepted=1)}, {"outcomes": HOLDS}),
    "outcomes refused": ({"deliveries": OutcomeDelivery(is_wanted=True, due=1)}, {"outcomes": BROKEN}),
    "no outcome yet": ({"deliveries": OutcomeDelivery(is_wanted=True)}, {"outcomes": UNSEEN}),
    "a survey": ({"survey": (row("page-size", SEEN), row("ids", HIDDEN))}, {"survey": HOLDS}),
    "a contradiction": ({"survey": (row("a", SEEN), row("b", WRONG))}, {"survey": BROKEN}),
    "an empty survey": ({"survey": (row("a", HIDDEN), row("b", HIDDEN))}, {"survey": UNSEEN}),
}
OPTIONAL = {"no start told", "the caller spoke"}


@pytest.mark.parametrize("name", CASES)
def test_each_fault_changes_its_own_verdict(name: str) -> None:
    """One change of a good call changes the verdicts that it is about, and no others."""
    changes, expected = CASES[name]
    found = judged(replace(GOOD, **changes))
    assert {each: found[each].state for each in expected} == expected
    others = {each for each, verdict in found.items() if verdict.state is not HOLDS} - expected.keys()
    assert others <= {"outcomes"}
    is_good = all(state is HOLDS for state in expected.values()) or name in OPTIONAL
    assert all_hold(tuple(found.values())) is is_good


def test_broken_and_required_verdicts_have_a_remedy() -> None:
    """Whatever stands in the way of a certificate says what to do about it."""
    for changes, _ in CASES.values():
        for verdict in verdicts(replace(GOOD, **changes)):
            assert verdict.is_good or verdict.remedy, verdict


def test_no_call_is_a_broken_promise_of_finding_it() -> None:
    """Without a call nothing about a call holds, and nothing else is said to be broken."""
    found = judged(replace(GOOD, call=None, trail=(), hung_up_at=None))
    assert [name for name, each in found.items() if each.state is BROKEN] == ["found"]
    assert {name for name, each in found.items() if each.state is HOLDS} == {
        "watch-only",
        "sample",
        "readable",
        "unlimited",
        "survey",
    }


@pytest.mark.parametrize("changes", [changes for changes, _ in CASES.values()], ids=list(CASES))
def test_reports_name_neither_call_nor_caller(changes: dict[str, Any]) -> None:
    """No report has an id, a number, a name, an operator or a sentence of the call."""
    evidence = replace(GOOD, **changes)
    found = verdicts(evidence)
    texts = markdown(evidence, found) + as_json(evidence, found).decode() + conclusion(found)
    assert [secret for secret in PERSONAL if secret in texts] == []


def test_reports_have_every_promise_and_the_survey() -> None:
    """Markdown has a row for each promise, what to do, and the survey; JSON has the same."""
    evidence = replace(GOOD, sample_at=None, survey=(row("paging", WRONG, "pages|count"),))
    found = verdicts(evidence)
    text, content = markdown(evidence, found), json.loads(as_json(evidence, found))
    assert all(f"| {promise} | " in text for _, promise, _ in PROMISES)
    assert "| A sample push arrives with the right header | **not seen** | none came |" in text
    assert "| Outcomes are delivered | not seen, not required | no worker posts outcomes |" in text
    assert "| paging | contradicted | pages\\|count |" in text
    assert "Do not switch effects on yet: survey does not hold, and sample was not seen." in text
    assert "- A sample push arrives with the right header: send a sample from the service's dashboard" in text
    assert [each["id"] for each in content["promises"]] == [name for name, _, _ in PROMISES]
    assert (content["format"], content["all_hold"], content["rules"]) == (1, False, ["digest-1"])
    assert content["survey"] == [{"id": "paging", "state": "contradicted", "text": "pages|count"}]


def test_watch_only_rules_send_nothing_and_the_others_do() -> None:
    """Of the shipped rules only ``watch-only`` has no live rule that enrolls or rejects."""
    parsed = {name: Rules.parse(name, read_rules_text(name), "cu-1") for name in ("watch-only", "default", "demo")}
    assert {name: bool(rules.sending) for name, rules in parsed.items()} == {
        "watch-only": False,
        "default": True,
        "demo": True,
    }
    assert not parsed["watch-only"].assigns


def test_rules_of_other_institutions_do_not_count() -> None:
    """A live rule counts only where it applies, and asking a person is no effect."""
    text = b"""
[[rule]]
name = "rejects there"
then = "reject"
institutions = ["cu-2"]
[[rule]]
name = "asks"
then = "ask"
[[rule]]
name = "would enroll"
then = "enroll"
stage = "shadow"
"""
    assert Rules.parse("d", text, "cu-1") == Rules("d", (), assigns=True)
    assert Rules.parse("d", text, "cu-2") == Rules("d", ("rejects there",), assigns=True)
