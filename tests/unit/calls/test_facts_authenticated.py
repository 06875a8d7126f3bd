"""A call is authenticated by a green policy or a verified voice, not by an enroll, and never with a red policy."""

from typing import Any

import pytest

from callkeeper.calls.context import Context
from callkeeper.calls.effect_ledger import EffectKind
from callkeeper.calls.fact_derivation import has_result
from callkeeper.calls.facts import Facts
from callkeeper.calls.law import forbidden
from callkeeper.calls.outcomes_of_trails import outcomes
from callkeeper.calls.record import Call, Reason
from callkeeper.calls.rules.replay import _Court
from callkeeper.calls.settlement import close
from callkeeper.calls.steps import Check, Settle, Wait
from callkeeper.calls.trail import Entry
from callkeeper.desk.board.states import StateName, state_of
from callkeeper.desk.views import call_view
from tests.records import facts_of_record
from tests.unit.calls.specimens import BOOK, NOW, call, next_deed, read_again, seconds

GREEN, MANUAL, RED = "Green Voice Authentication", "Green Manual Authentication", "Red High Risk"
FULL: dict[str, Any] = {"status": "FullAuthentication"}

CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a green policy": ([{"policies": (GREEN,)}], "green"),
    "a verified voice": ([FULL | {"is_voice_verified": True}], "green"),
    "a verified voice, overwritten": ([FULL | {"is_voice_verified": True}, {"status": "AgentViewed"}], "green"),
    "the flag alone": ([{"is_voice_verified": True}], "nothing"),
    "the status alone": ([FULL], "nothing"),
    "the status, then the manual policy": ([FULL, FULL | {"policies": (MANUAL,)}], "manual"),
    "the status, then the green policy": ([FULL, FULL | {"policies": (GREEN,)}], "green"),
    "a verified voice, then an enroll": (
        [FULL | {"is_voice_verified": True}, FULL | {"is_voice_verified": True, "policies": (MANUAL,)}],
        "manual",
    ),
    "an enroll, then a verified voice": (
        [{"status": "AcceptCallerVoice"}, FULL | {"is_voice_verified": True}],
        "manual",
    ),
    "green and red": ([{"policies": (GREEN, RED)}], "red"),
    "a verified voice and red": ([FULL | {"is_voice_verified": True, "policies": (RED,)}], "red"),
    "an enroll and red": ([FULL | {"policies": (MANUAL, RED)}], "red"),
    "red after green": ([{"policies": (GREEN,)}, {"policies": (GREEN, RED)}], "red"),
}
SHOWN = {"green": StateName.GREEN, "manual": StateName.ENROLLED, "red": StateName.RED, "nothing": StateName.WATCHED}
FILED = {
    "green": Reason.AUTHENTICATED,
    "manual": Reason.ENROLLED,
    "red": Reason.RED,
    "nothing": Reason.UNDECIDED,
}


def after(readings: list[dict[str, Any]]) -> Call:
    """Return a call after these readings."""
    read = call()
    for n, changes in enumerate(readings):
        read = read_again(read, NOW + seconds(n), **changes)
    return read


@pytest.mark.parametrize(("readings", "expected"), CASES.values(), ids=CASES)
def test_call_is_shown_filed_and_posted_as_what_it_is(readings: list[dict[str, Any]], expected: str) -> None:
    """Facts, board, desk, metrics, webhooks and the reason of a settled call agree. Red takes precedence over green."""
    read = after(readings)
    facts, view = facts_of_record(read, BOOK.policies), call_view(read, BOOK.policies)
    assert (facts.green, view.green, view.red) == (expected == "green", expected == "green", expected == "red")
    assert state_of(read, BOOK).name is SHOWN[expected]
    told = {outcome.type for outcome in outcomes([Entry(at=NOW, what="facts", facts=facts.as_dict())])}
    assert ("authenticated" in told) == (expected == "green")
    assert has_result(read, BOOK.policies) == (expected in {"green", "red"})
    ended = read_again(read, NOW + seconds(60), **readings[-1], has_ended=True)
    ended = read_again(ended, NOW + seconds(64), **readings[-1], has_ended=True)
    assert close(
        ended, Context(ended.last_claim), BOOK, facts_of_record(ended, BOOK.policies), NOW + seconds(64)
    ) == Settle(FILED[expected])


def test_full_authentication_of_unknown_origin_stops_checks_and_forbids_an_enroll() -> None:
    """After FullAuthentication, whoever caused it, the service makes no checks, and an enroll would count twice."""
    read = read_again(call(next_check_at=NOW), **FULL)
    assert type(next_deed(read)) is Wait
    assert type(next_deed(read_again(call(next_check_at=NOW)))) is Check
    viewed = read_again(read, status="AgentViewed")
    assert "fully_authenticated" in forbidden(EffectKind.ENROLL, facts_of_record(viewed, BOOK.policies))


def test_trail_of_an_earlier_release_with_green_and_red_is_not_posted_as_authenticated() -> None:
    """If a trail of an earlier release has red and green, no authentication is posted."""
    assert outcomes([Entry(at=NOW, what="facts", facts={"green": True, "red": True})]) == []


def test_replay_calls_red_together_with_green_red() -> None:
    """Rules with other colours follow the same law."""
    coloured = _Court(BOOK).coloured(Facts.from_dict({"authenticated": True}, policies=(GREEN, RED)))
    assert (coloured.green, coloured.red, coloured.green_policy) == (False, True, True)
