"""Research cases: the service's record shows one, and another may take its place."""

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.fact_derivation import research_of
from callkeeper.calls.notes import Resolved
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import EAGER, SHIPPED, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.records import facts_of_record
from tests.sandbox_fixtures import Asgi

H = Happening
HERE, FRAUD = None, "DeterminedFraud"


async def show(rig: Rig, call: Call, about: str | None, status: str) -> tuple[str | None, str | None]:
    """Let the record show a case about a call; None is this one. Return what is known of this call and of others."""
    call.research_voice_id, call.research_status = about, status
    rig.stage.happen(call, Kind.VIEWED)
    await rig.run(20)
    return research_of(await rig.record(call))


@pytest.mark.parametrize(
    ("first", "second"), [("other-1", "other-2"), ("other-1", HERE), (HERE, "other-1")], ids=["others", "this", "other"]
)
async def test_second_fraud_stays_when_the_first_is_refuted(rig: Rig, first: str | None, second: str | None) -> None:
    """And so does the first when the second is."""
    call = await rig.begin_call(H(Kind.MFA_VALIDATED, 10), H(Kind.END, 200), run_s=20)
    await show(rig, call, first, FRAUD)
    both = await show(rig, call, second, FRAUD)
    assert both == (FRAUD if HERE in {first, second} else None, FRAUD)
    refuted = await show(rig, call, first, "FalsePositive")
    assert refuted[0 if second is HERE else 1] == FRAUD
    assert first is not HERE or refuted[0] == "FalsePositive"
    await rig.run(200)
    assert "enroll" not in rig.ledger(call)


async def test_fraud_that_is_refuted_in_both_calls_counts_no_more(rig: Rig) -> None:
    """Each is refuted by its own case only."""
    call = await rig.begin_call(H(Kind.END, 200), run_s=20)
    for about in ("other-1", "other-2"):
        await show(rig, call, about, FRAUD)
    assert await show(rig, call, "other-3", "FalsePositive") == (None, FRAUD)
    assert await show(rig, call, "other-2", "FalsePositive") == (None, FRAUD)
    assert await show(rig, call, "other-1", "FalsePositive") == (None, "FalsePositive")


@pytest.mark.parametrize("by", ["desk", "passcode"])
async def test_fraud_elsewhere_asks_also_after_the_enroll(sandbox_asgi: Asgi, redis: Redis, by: str) -> None:
    """The voice that was enrolled may be the fraudster's. It leaves the list if the case is refuted."""
    rig = Rig(sandbox_asgi, redis, SHIPPED if by == "desk" else EAGER)
    passcode = () if by == "desk" else (H(Kind.MFA_VALIDATED, 10),)
    call = await rig.begin_call(*passcode, H(Kind.END, 900), run_s=20)
    if by == "desk":
        await rig.note(call, verified(rig))
    await rig.run(400)
    assert (call.manual_person_id, await rig.queries.attention()) == ("p-1", {})
    await show(rig, call, "other-1", FRAUD)
    await rig.run(60)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'enrolled, but fraud in another call'"]
    await show(rig, call, "other-1", "FalsePositive")
    await rig.run(60)
    assert not await rig.queries.attention()


@pytest.mark.parametrize("by", ["desk", "passcode"])
@pytest.mark.parametrize(("about", "is_asked"), [(HERE, True), ("other-1", False)], ids=["this", "another"])
async def test_case_that_is_opened_about_an_enrolled_call_asks_a_person(
    sandbox_asgi: Asgi, redis: Redis, by: str, about: str | None, is_asked: bool
) -> None:
    """The enrolled voice may be a fraudster's. A case of another call may be what the member has just reported."""
    rig = Rig(sandbox_asgi, redis, SHIPPED if by == "desk" else EAGER)
    passcode = () if by == "desk" else (H(Kind.MFA_VALIDATED, 10),)
    call = await rig.begin_call(*passcode, H(Kind.END, 900), run_s=20)
    if by == "desk":
        await rig.note(call, verified(rig))
    await rig.run(400)
    assert (call.manual_person_id, await rig.queries.attention()) == ("p-1", {})
    await show(rig, call, about, "NeedsReview")
    await rig.run(60)
    asked = ["asked by rule 'verified, but evidence against it'"] if is_asked else []
    assert list((await rig.queries.attention()).values()) == asked
    await rig.note(call, Resolved(operator="eve", said_at=rig.clock.now, applied=True, wish="s1"))
    await show(rig, call, about, "InReview")
    await rig.run(60)
    assert not await rig.queries.attention(), "a person has seen it"


async def test_case_that_the_word_names_asks_nobody(rig: Rig) -> None:
    """The person who verified the caller knew of it."""
    call = await rig.begin_call(H(Kind.END, 900), run_s=20)
    await show(rig, call, HERE, "NeedsReview")
    await rig.run(60)
    await rig.note(call, replace(verified(rig), despite=("research",)))
    await rig.run(100)
    assert (call.manual_person_id, await rig.queries.attention()) == ("p-1", {})


async def test_number_that_only_details_show_is_known_from_an_earlier_call(rig: Rig) -> None:
    """The fraudster withholds the number; the provider finds it out in the call."""
    number = "5550100999"
    await rig.begin_call(H(Kind.CASE, 5, FRAUD), H(Kind.END, 30), run_s=60, phone_number=number, persons=[])
    claimed = H(Kind.CLAIMED, 15, "zed", "p-1")
    script = (claimed, H(Kind.MFA_VALIDATED, 50), H(Kind.END, 200))
    call = await rig.begin_call(*script, run_s=30, phone_number="", persons=[])
    call.phone_number = number
    await rig.run(300)
    assert facts_of_record(await rig.record(call), rig.book.policies).fraud_before
    assert "enroll" not in rig.ledger(call)
