"""A call that is another member's than it seemed: what the voice showed of the first is no evidence about the second."""

from dataclasses import replace as with_options

import httpx
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.effect_resolution import ENROLLED_AS_ANOTHER, TAKEN_BACK
from callkeeper.calls.merging import merged
from callkeeper.calls.notes import Distrusted, Resolved
from callkeeper.calls.reading_folding import fold_check, fold_reading
from callkeeper.calls.record import Call as Record
from callkeeper.calls.record import Life
from callkeeper.desk.board.states import state_of
from callkeeper_sandbox.service.effects import check
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import DEMO, EAGER, KEY, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.records import facts_of_record
from tests.sandbox_fixtures import Asgi


def correct(rig: Rig, call: Call) -> None:
    """Let an operator elsewhere put p-2 on the call, of whose voice the service shows nothing."""
    rig.stage.happen(call, Kind.CLAIMED, "agent-9", "p-2")
    call.policies = call.provider.policies = []
    call.voice_validated = call.fully_authenticated = call.is_mismatch = call.provider.is_mismatch = False


async def put(rig: Rig, call: Call, person_id: str, *, run_s: float) -> None:
    """Let an operator elsewhere put a member on the call, and let time pass."""
    rig.stage.happen(call, Kind.CLAIMED, "agent-9", person_id)
    await rig.run(run_s)


async def green_then_another(rig: Rig) -> Call:
    """Return a call that is p-2's, whose voice was recognised as the one of p-1 before."""
    call = await rig.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 900), run_s=60)
    await put(rig, call, "p-2", run_s=60)
    return call


async def test_voice_of_one_member_authenticates_no_other(rig: Rig) -> None:
    """A caller who is authenticated as himself and then treated as another member is not green, and is checked anew."""
    call = await rig.begin_call(Happening(Kind.GREEN, 5), Happening(Kind.END, 300), run_s=60)
    record = await rig.record(call)
    assert facts_of_record(record, rig.book.policies).green
    checks = record.plan.checks_used
    correct(rig, call)
    await rig.run(60)
    record = await rig.record(call)
    assert record.seen.person_id == "p-2"
    assert not facts_of_record(record, rig.book.policies).green
    assert record.plan.checks_used > checks


async def test_enroll_of_one_member_vouches_for_no_other(sandbox_asgi: Asgi, redis: Redis) -> None:
    """An agent who is told that a person verified the caller must not be told so of somebody else."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 5), Happening(Kind.END, 900), run_s=500)
    assert rig.ledger(call)["enroll"] == 1
    assert facts_of_record(await rig.record(call), rig.book.policies).manual
    correct(rig, call)
    await rig.run(100)
    record = await rig.record(call)
    facts = facts_of_record(record, rig.book.policies)
    assert (record.seen.person_id, facts.enrolled, facts.manual) == ("p-2", True, False)
    assert record.ledger.enrolled_for == "p-1"
    assert state_of(record, rig.book).for_person
    await rig.run(700)
    record = await rig.record(call)
    assert (record.is_settled, state_of(record, rig.book).for_person) == (True, True)
    assert ENROLLED_AS_ANOTHER in (await rig.queries.attention()).values()
    seen = Resolved(operator="bob", said_at=rig.clock.now, wish="seen", applied=False, effect=None)
    await rig.note(call, seen, even_settled=True)
    await rig.run(5)
    assert not await rig.queries.attention()


@pytest.mark.parametrize("comes_first", ["enroll", "correction"])
async def test_enroll_that_is_read_with_the_next_member_may_be_the_one_befores(rig: Rig, comes_first: str) -> None:
    """No read came between an enroll in another tool and the correction of the member: the later one is the status."""
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=40)
    if comes_first == "enroll":
        rig.stage.happen(call, Kind.ENROLLED, "zed", "p-1")
        rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    else:
        rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
        rig.stage.happen(call, Kind.ENROLLED, "zed", "p-2")
    await rig.run(20)
    rig.stage.happen(call, Kind.VIEWED)
    await rig.run(80)
    record = await rig.record(call)
    assert (record.seen.person_id, facts_of_record(record, rig.book.policies).manual) == (
        "p-2",
        comes_first == "correction",
    )
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'member_changed'"]


async def test_mismatch_with_one_member_rejects_no_other(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The number's only candidate was the wrong person. The voice was not theirs, which says nothing of the right one."""
    rig = Rig(sandbox_asgi, redis, DEMO)
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = await rig.begin_call(Happening(Kind.MISMATCH, 3), Happening(Kind.END, 200), run_s=20)
    assert (await rig.record(call)).seen.mismatch
    correct(rig, call)
    rig.stage.happen(call, Kind.HIGH_RISK)
    await rig.run(100)
    record = await rig.record(call)
    assert (record.seen.person_id, record.seen.mismatch, record.seen.risky_device) == ("p-2", False, True)
    assert "reject_voice" not in rig.ledger(call)


async def test_policy_that_stands_on_the_record_authenticates_no_other_member(rig: Rig) -> None:
    """A caller authenticates as himself, and then another member is put on the call, whose record keeps the policy."""
    call = await green_then_another(rig)
    record = await rig.record(call)
    assert record.seen.reading is not None
    assert record.seen.reading.policies
    facts = facts_of_record(record, rig.book.policies)
    assert (record.seen.person_id, facts.green, facts.authenticated) == ("p-2", False, False)


async def test_mismatch_that_stands_on_the_record_counts_once_it_is_checked_anew(rig: Rig) -> None:
    """The flag is the first member's until a check has compared the voice with the second one's."""
    call = await rig.begin_call(Happening(Kind.MISMATCH, 3), Happening(Kind.END, 900), run_s=20)
    record = await rig.record(call)
    assert record.seen.reading is not None
    now = rig.clock.now
    reading = replace(record.seen.reading, person_id="p-2", read_at=now)
    changed = fold_reading(record, reading, rig.book, now)
    assert (changed.seen.person_id, changed.seen.mismatch) == ("p-2", False)
    again = fold_reading(changed, reading, rig.book, now)
    assert not again.seen.mismatch
    checked = fold_reading(fold_check(again, 9, reading), reading, rig.book, now)
    assert checked.seen.mismatch


async def test_checks_of_a_member_prove_nothing_after_another_one_in_between(sandbox_asgi: Asgi, redis: Redis) -> None:
    """The mismatch of the first time is forgotten when the member comes back, so its checks do not count either."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.MISMATCH, 3), Happening(Kind.END, 900), run_s=245)
    assert (await rig.record(call)).seen.mismatch
    rig.stage.happen(call, Kind.CLAIMED, "agent-9", "p-2")
    call.is_mismatch = call.provider.is_mismatch = False
    await rig.run(20)
    await put(rig, call, "p-1", run_s=20)
    rig.stage.happen(call, Kind.MFA_VALIDATED)
    await rig.run(100)
    assert "enroll" not in rig.ledger(call)


class NoPerson(httpx.AsyncBaseTransport):
    """Answers as another transport, but details name no person."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        answer = await self.inner.handle_async_request(request)
        await answer.aread()
        body = answer.json() if request.url.path.endswith("/details") else {}
        if not body.get("phoneCall"):
            return answer
        body["phoneCall"]["personId"] = body["personId"] = None
        return httpx.Response(200, json=body)


async def test_verification_is_the_members_whom_we_assigned_if_details_name_nobody(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """`personId` is nullable. The member is the one of the queue, or of our assign."""
    rig = Rig(sandbox_asgi, redis, transport=NoPerson(sandbox_asgi.transport))
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 30), Happening(Kind.END, 200), run_s=300)
    assert (await rig.record(call)).seen.person_id == "p-1"
    assert rig.ledger(call).get("enroll") == 1


async def test_correction_in_the_queue_stands_if_details_name_nobody(sandbox_asgi: Asgi, redis: Redis) -> None:
    """An operator elsewhere says that the caller is p-2. The next read does not make p-1, whom we assigned, the member."""
    rig = Rig(sandbox_asgi, redis, transport=NoPerson(sandbox_asgi.transport))
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 30), Happening(Kind.END, 200), run_s=40)
    await put(rig, call, "p-2", run_s=260)
    assert (await rig.record(call)).seen.person_id == "p-2"
    assert "enroll" not in rig.ledger(call)


async def test_member_who_was_taken_off_is_not_replaced_by_the_one_before(rig: Rig) -> None:
    """The voice is p-1's, and the call was p-2's: a person still has to know of it."""
    call = await rig.begin_call(Happening(Kind.ENROLLED, 5, None, "p-1"), Happening(Kind.END, 900), run_s=40)
    await put(rig, call, "p-2", run_s=20)
    call.person_id = None
    await rig.run(70)
    assert list((await rig.queries.attention()).values()) == [ENROLLED_AS_ANOTHER]


async def test_doubt_about_evidence_outlasts_a_merge(rig: Rig) -> None:
    """The record that stays takes the member from the other one, with what may be about the member before."""
    call = await green_then_another(rig)
    record, now = await rig.record(call), rig.clock.now
    assert record.seen.reading is not None
    other = Record(institution_key=record.institution_key, voice_id="other", life=Life(first_seen_at=now))
    reading = replace(record.seen.reading, voice_id="other", read_at=now)
    read = fold_reading(merged(other, record, now), reading, rig.book, now)
    assert not facts_of_record(read, rig.book.policies).green


async def test_enroll_of_another_member_after_one_was_taken_back_is_followed(sandbox_asgi: Asgi, redis: Redis) -> None:
    """A later reject of the second member finds the call; closing one question does not close the next."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 5), Happening(Kind.END, 2900), run_s=500)
    await put(rig, call, "p-2", run_s=70)
    assert ENROLLED_AS_ANOTHER in (await rig.queries.attention()).values()
    await rig.note(call, Resolved(operator="bob", said_at=rig.clock.now, wish="seen", applied=False, effect=None))
    await rig.run(5)
    rig.stage.happen(call, Kind.UNENROLLED, "x")
    await rig.run(70)
    assert TAKEN_BACK in (await rig.queries.attention()).values()
    rig.stage.happen(call, Kind.ENROLLED, "agent-9", "p-2")
    await rig.run(100)
    record = await rig.record(call)
    assert await redis.zrange(rig.store.keys.enrolled(KEY, "p-2"), 0, -1)
    assert facts_of_record(record, rig.book.policies).manual


@pytest.mark.parametrize("is_ours", [True, False])
async def test_reject_of_the_next_member_does_not_close_the_enroll_of_the_first(rig: Rig, is_ours: bool) -> None:
    """The service takes back what the call's member has enrolled. The voice still stands for the first one."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100002"])
    call = rig.stage.call(Happening(Kind.END, 900))
    await rig.run(8)
    if is_ours:
        await rig.note(call, verified(rig))
    else:
        rig.stage.happen(call, Kind.ENROLLED, "zed", "p-1")
    await rig.run(20)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(20)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1"))
    await rig.run(20)
    rig.stage.happen(call, Kind.END)
    await rig.run(60)
    assert (call.rejected, call.manual_person_id) == (True, "p-1")
    assert list((await rig.queries.attention()).values()) == [ENROLLED_AS_ANOTHER]


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_voice_that_is_known_as_one_members_is_not_enrolled_as_anothers(rig: Rig, is_hidden: bool) -> None:
    """A son is authenticated as himself, says that he calls for his mother, and answers the passcode on her telephone.

    Another activity may hide FullAuthentication, if another tool has asked the provider.
    """
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    call = rig.stage.call(Happening(Kind.GREEN, 5), Happening(Kind.END, 400))
    await rig.push(call)
    await rig.run(6)
    if is_hidden:
        check(call, "zed", rig.clock.now)
        rig.stage.happen(call, Kind.VIEWED)
    await rig.run(54)
    assert (await rig.record(call)).seen.authenticated is not is_hidden
    correct(rig, call)  # the agent puts the mother on the call; the provider's policies are now about her account
    await rig.run(30)
    rig.stage.happen(call, Kind.MFA_VALIDATED)
    await rig.run(400)
    assert "enroll" not in rig.ledger(call)


@pytest.mark.parametrize("members", [("p-2", "p-1"), ("p-2",)], ids=" then ".join)
async def test_policy_without_a_colour_counts_whoever_is_put_on_the_call(rig: Rig, members: tuple[str, ...]) -> None:
    """It might be a red one, and was gone before another member stood on the call."""
    call = await rig.begin_call(Happening(Kind.POLICY, 5, "Yellow Review"), Happening(Kind.END, 400), run_s=30)
    call.policies = call.provider.policies = []
    await rig.run(20)
    for person_id in members:
        await put(rig, call, person_id, run_s=40)
    rig.stage.happen(call, Kind.MFA_VALIDATED)
    await rig.run(400)
    assert "enroll" not in rig.ledger(call)


@pytest.mark.parametrize("enrolled", ["p-1", "p-2"])
async def test_enroll_in_doubt_is_not_confirmed_by_one_of_the_next_member(rig: Rig, enrolled: str) -> None:
    """Its answer was lost. Another tool puts p-2 on the call and enrolls the voice: whose it is, a person must find out."""
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=20)
    is_applied = enrolled == "p-1"
    rig.stage.sandbox.faults.add(Fault(target="enroll", action=Action.CUT, times=1, applied=is_applied))
    await rig.note(call, verified(rig))
    await rig.run(0.2)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    if not is_applied:
        rig.stage.happen(call, Kind.ENROLLED, "zed", "p-2")
    await rig.run(60)
    assert call.manual_person_id == enrolled
    state = EffectState.CONFIRMED if is_applied else EffectState.UNRESOLVED
    assert (await rig.record(call)).ledger.enroll.state is state
    why = ENROLLED_AS_ANOTHER if is_applied else "enroll unresolved"
    assert list((await rig.queries.attention()).values()) == [why]


async def test_reject_in_doubt_is_not_confirmed_by_one_of_the_next_member(rig: Rig) -> None:
    """Another tool puts p-2 on the call and rejects: what p-2 has is taken back, and p-1 keeps everything."""
    rig.stage.world.add_member(KEY, "p-2", ["5550100002"])
    other = await rig.begin_call(Happening(Kind.END, 900), run_s=20, phone_number="5550100002")
    await rig.note(other, replace(verified(rig), person_id="p-2"))
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=20)
    assert rig.ledger(other)["enroll"] == 1
    rig.stage.sandbox.faults.add(Fault(target="reject_voice", action=Action.CUT, times=1, applied=False))
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="impostor", wish="r1"))
    await rig.run(0.2)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    rig.stage.happen(call, Kind.REJECTED, "zed")
    await rig.run(120)
    assert other.manual_person_id is None
    assert (await rig.record(call)).ledger.reject.state is EffectState.UNRESOLVED
    assert sorted((await rig.queries.attention()).values()) == [TAKEN_BACK, "reject unresolved"]


@pytest.mark.parametrize("variant", [None, "starts-in-year-1", "clock-3-min-ahead", "clock-3-min-behind"])
@pytest.mark.parametrize("is_pushed", [True, False], ids=["pushed", "found"])
async def test_passcode_is_nobodys_if_the_first_read_comes_late(rig: Rig, variant: str | None, is_pushed: bool) -> None:
    """It is the first member's, and the first read shows the second. How late that is, the service's clock does not say."""
    rig.stage.sandbox.choose([variant] if variant else [])
    rig.stage.world.options = with_options(rig.stage.world.options, assign_writes_status=False)
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    await rig.run(10)
    on_it = (
        Happening(Kind.CLAIMED, 2, "zed", "p-1"),
        Happening(Kind.MFA_VALIDATED, 10),
        Happening(Kind.CLAIMED, 18, "zed", "p-2"),
    )
    call = rig.stage.call(*on_it, Happening(Kind.END, 240), persons=[])
    if is_pushed:
        await rig.push(call)
    rig.stage.advance(20)  # no worker runs meanwhile
    await rig.run(300)
    assert rig.ledger(call).get("enroll", 0) == 0
    [asked] = (await rig.queries.attention()).values()
    assert asked == "asked by rule 'verified, but perhaps as another member'"


@pytest.mark.parametrize("changed", ["second candidate", "another number"])
async def test_passcode_vouches_for_nobody_once_the_queue_names_another_candidate(rig: Rig, changed: str) -> None:
    """Rules assigned the only candidate. Seconds later the number belongs to two members, or it was another one."""
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 30), Happening(Kind.END, 120), run_s=3)
    assert rig.ledger(call)["assign"] == 1
    if changed == "second candidate":
        rig.stage.world.add_member(KEY, "p-3", [call.phone_number])
    else:
        rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
        call.phone_number = "5550100222"
    await rig.run(200)
    assert rig.ledger(call).get("enroll", 0) == 0
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but perhaps as another member'"]


@pytest.mark.parametrize("variant", [None, "clock-3-min-ahead", "clock-3-min-behind"])
async def test_passcode_is_nobodys_if_the_queue_shows_the_call_late(
    sandbox_asgi: Asgi, redis: Redis, variant: str | None
) -> None:
    """A look before may have missed it. Against the start of another call, its own tells that it went on then."""
    late: set[str] = set()

    class Late(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            answer = await sandbox_asgi.transport.handle_async_request(request)
            if not request.url.path.endswith("/queue"):
                return answer
            await answer.aread()
            shown = [entry for entry in answer.json()["phoneCalls"] if entry["voiceId"] not in late]
            return httpx.Response(200, json={"success": True, "phoneCalls": shown})

    rig = Rig(sandbox_asgi, redis, transport=Late())
    rig.stage.sandbox.choose([variant] if variant else [])
    rig.stage.world.options = with_options(rig.stage.world.options, assign_writes_status=False)
    rig.stage.world.add_member(KEY, "p-2", ["5550100222"])
    await rig.begin_call(Happening(Kind.END, 300), run_s=30)
    on_it = (
        Happening(Kind.CLAIMED, 2, "zed", "p-1"),
        Happening(Kind.MFA_VALIDATED, 10),
        Happening(Kind.CLAIMED, 30, "zed", "p-2"),
    )
    call = rig.stage.call(*on_it, Happening(Kind.END, 240), phone_number="5559999999", persons=[])
    late.add(call.voice_id)
    await rig.run(60)
    late.clear()
    await rig.run(300)
    assert (await rig.record(call)).seen.person_id == "p-2"
    assert rig.ledger(call).get("enroll", 0) == 0
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'verified, but perhaps as another member'"]
