"""The audit reports every broken promise, and nothing if all were kept."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from callkeeper.calls.effect_ledger import Effect, EffectState
from callkeeper.calls.record import Call, Ledger, Life, Phase, Plan, Reason
from tests.faults.audit import Evidence, faults, found_in_s, next_after, noticed_in_s

START = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def at(seconds: float) -> str:
    """Return an instant as the sandbox writes it."""
    return (START + dt.timedelta(seconds=seconds)).isoformat()


def account(**changes: Any) -> dict[str, Any]:
    """Return the sandbox's account of a call that was assigned and enrolled."""
    sent = {"assign": 1, "check": 2, "enroll": 1}
    return {
        "institution_key": "cu-1",
        "listed_at": at(0),
        "listed_s": 40.0,
        "rejected": False,
        "activities": [{"name": "AcceptCallerVoice", "at": at(12)}],
        "policies": ["Green Manual Authentication"],
        "persons_shown": ["p-1"],
        "truth": [{"kind": "green", "at": at(5)}],
        "tally": {"arrived": dict(sent), "authenticated": dict(sent)},
        "arrivals": [
            {"operation": "assign", "at": at(1)},
            {"operation": "check", "at": at(4)},
            {"operation": "check", "at": at(8)},
        ],
        **changes,
    }


RECORD = Call(
    institution_key="cu-1",
    voice_id="v-1",
    life=Life(phase=Phase.SETTLED, reason=Reason.ENROLLED),
    plan=Plan(checks_used=2),
    ledger=Ledger(assign=Effect(state=EffectState.APPLIED), enroll=Effect(state=EffectState.APPLIED)),
)


def evidence(**changes: Any) -> Evidence:
    """Return data in which every promise was kept, with changes."""
    honest = Evidence(
        accounts={"v-1": account()},
        unknown={},
        records={"v-1": RECORD},
        accepted=frozenset({"e-1"}),
        logged=frozenset({"e-1", "e-2"}),
        bugs=(),
        found_after_s=25.0,
    )
    return replace(honest, **changes)


APPLIED: dict[str, Any] = {"success": True, "applied": True, "status": 200, "fault": None}
LOST = {**APPLIED, "success": None, "applied": False, "status": None, "fault": "reset"}
REFUSED = {**APPLIED, "success": False, "applied": False}
TURNED_AWAY = {**REFUSED, "success": None, "status": 429}


def enrolled_by(*answers: dict[str, Any], gap_s: float = 20) -> Evidence:
    """Return evidence about a call with several enrolls, which met these answers."""
    arrival = {"operation": "enroll", "at": at(9)}
    enrolls = [{**arrival, "monotonic_s": n * gap_s, **answer} for n, answer in enumerate(answers)]
    found = sent(enroll=len(answers))["v-1"]
    return evidence(accounts={"v-1": {**found, "arrivals": [*found["arrivals"], *enrolls]}})


def sent(**counts: int) -> dict[str, dict[str, Any]]:
    """Return accounts with other counts."""
    tally = {"assign": 1, "check": 2, "enroll": 1, **counts}
    return {"v-1": account(tally={"arrived": tally, "authenticated": tally})}


BROKEN: dict[str, Callable[[], Evidence]] = {
    "forgotten": lambda: evidence(records={}, accounts={"v-1": account(tally={"arrived": {}, "authenticated": {}})}),
    "not settled": lambda: evidence(
        records={"v-1": replace(RECORD, life=replace(RECORD.life, phase=Phase.LIVE, reason=None))}
    ),
    "settled as undecided": lambda: evidence(
        records={"v-1": replace(RECORD, life=replace(RECORD.life, reason=Reason.UNDECIDED))}
    ),
    "in doubt": lambda: evidence(
        records={"v-1": replace(RECORD, ledger=replace(RECORD.ledger, enroll=Effect(state=EffectState.SENT)))}
    ),
    "2 of enroll": lambda: evidence(accounts=sent(enroll=2)),
    "2 of reject_voice": lambda: evidence(accounts=sent(reject_voice=2)),
    "3 of enroll": lambda: enrolled_by(REFUSED, TURNED_AWAY, APPLIED),
    "4 of assign": lambda: evidence(accounts=sent(assign=4)),
    "21 of check": lambda: evidence(
        accounts=sent(check=21), records={"v-1": replace(RECORD, plan=replace(RECORD.plan, checks_used=20))}
    ),
    "3 checks arrived, 2 were booked": lambda: evidence(accounts=sent(check=3)),
    "our ledger does not know": lambda: evidence(
        records={"v-1": replace(RECORD, ledger=replace(RECORD.ledger, enroll=Effect()))}
    ),
    "event e-3 was accepted": lambda: evidence(accepted=frozenset({"e-3"})),
    "no call": lambda: evidence(unknown={"v-9": {}}),
    "raised at": lambda: evidence(bugs=("worker-1",)),
}


def test_audit_reports_nothing_if_every_promise_was_kept() -> None:
    """If every promise was kept, there are no faults."""
    assert faults(evidence()) == []


@pytest.mark.parametrize("words", BROKEN)
def test_audit_finds_each_broken_promise(words: str) -> None:
    """Each broken promise is reported."""
    assert any(words in fault for fault in faults(BROKEN[words]()))


@pytest.mark.parametrize("first", [REFUSED, TURNED_AWAY, {**TURNED_AWAY, "status": 401}, {**REFUSED, "fault": "pass"}])
def test_audit_lets_an_effect_that_was_not_applied_be_repeated_once(first: dict[str, Any]) -> None:
    """If the service said so, reads show nothing of it for 20 s, and then one more is sent, whatever becomes of it."""
    for second in (APPLIED, REFUSED, LOST):
        assert faults(enrolled_by(first, second)) == []
    assert faults(enrolled_by(first, APPLIED, gap_s=18)) == ["v-1: 2 of enroll"]


@pytest.mark.parametrize(
    "first",
    [APPLIED, LOST, {**LOST, "status": 503}, {**REFUSED, "fault": "truncated"}, {**TURNED_AWAY, "applied": True}],
)
def test_audit_excuses_no_blind_repetition(first: dict[str, Any]) -> None:
    """The first request was carried out, or nobody knows. A refusal of the second one excuses nothing."""
    for second in (APPLIED, REFUSED, TURNED_AWAY):
        assert faults(enrolled_by(first, second)) == ["v-1: 2 of enroll"]


@pytest.mark.parametrize(
    ("shown", "reason", "is_right"),
    [
        (["p-1"], Reason.UNDECIDED, True),
        (["p-1"], Reason.UNASSIGNED, False),
        ([None], Reason.UNASSIGNED, True),
        ([None], Reason.UNDECIDED, False),
        (["p-1", None], Reason.UNDECIDED, True),
        (["p-1", None], Reason.UNASSIGNED, True),
    ],
)
def test_audit_knows_whether_anybody_was_assigned(shown: list[str | None], reason: Reason, is_right: bool) -> None:
    """If only the queue shows a member whom nobody has assigned, it depends on what was read."""
    found = account(persons_shown=shown, activities=[], policies=[], truth=[])
    record = replace(RECORD, life=replace(RECORD.life, reason=reason))
    assert (faults(evidence(accounts={"v-1": found}, records={"v-1": record})) == []) is is_right


def test_audit_forgives_a_call_that_was_hardly_shown() -> None:
    """A call that the queue showed only for a moment need not be found."""
    hardly = account(listed_s=2.0, tally={"arrived": {}, "authenticated": {}})
    assert faults(evidence(accounts={"v-1": hardly}, records={})) == []


def test_audit_forgives_calls_of_an_institution_that_nobody_names() -> None:
    """Calls of an institution that neither login nor list names need not be found."""
    forgotten = BROKEN["forgotten"]()
    assert faults(replace(forgotten, unnamed=frozenset({"cu-1"}))) == []
    assert faults(replace(forgotten, unnamed=frozenset({"cu-2"})))


def test_audit_takes_unresolved_as_the_reason_where_a_ledger_says_so() -> None:
    """If an effect is unresolved, `unresolved` is the right reason, whatever the service did."""
    record = replace(
        RECORD,
        life=replace(RECORD.life, reason=Reason.UNRESOLVED),
        ledger=replace(RECORD.ledger, enroll=Effect(state=EffectState.UNRESOLVED)),
    )
    assert faults(evidence(records={"v-1": record})) == []


def test_audit_takes_a_withdrawn_effect_for_known_if_its_requests_are_counted() -> None:
    """An effect that was refused with 401 or 429, repeated and then withdrawn is known by its counted attempts."""
    refused = account(
        policies=[],
        truth=[],
        activities=[],
        tally={"arrived": {"assign": 2, "enroll": 1}, "authenticated": {"assign": 2}},
    )
    counted = Effect(state=EffectState.NONE, attempts=2, unauthorized=2)
    record = replace(
        RECORD,
        life=replace(RECORD.life, reason=Reason.UNDECIDED),
        ledger=replace(RECORD.ledger, assign=counted, enroll=replace(counted, attempts=1, unauthorized=1)),
    )
    assert faults(evidence(accounts={"v-1": refused}, records={"v-1": record})) == []
    assert faults(
        evidence(
            accounts={"v-1": refused},
            records={"v-1": replace(record, ledger=replace(record.ledger, enroll=replace(counted, unsent=2)))},
        )
    )


def test_figures_are_differences_of_instants() -> None:
    """Found: listing to assign. Noticed: result to the next check. Next: each instant to the moment after it."""
    assert found_in_s(evidence()) == [1.0]
    assert noticed_in_s(evidence()) == [3.0]
    moments = [START + dt.timedelta(seconds=s) for s in (5, 1, 9)]
    assert next_after([START, START + dt.timedelta(seconds=8), START + dt.timedelta(seconds=10)], moments) == [1.0, 1.0]
