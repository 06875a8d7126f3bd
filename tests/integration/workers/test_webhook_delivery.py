"""Outcomes on their way out: in order, at least once, never in a call's way."""

import json
from random import Random

import pytest

from callkeeper.calls.item_names import CallId
from callkeeper.calls.notes import Distrusted, Resolved
from callkeeper.calls.store.keys import KEPT_S, Keys
from callkeeper.calls.store.queries import Lookup, Queries
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.courier import Courier
from tests.harness.virtual_time import KEY, Rig
from workers.webhook_delivery import Deliveries

END = Happening(Kind.END, 60)


def verified_calls(courier: Courier, count: int) -> list[Call]:
    """Begin calls of as many members, who prove a passcode."""
    calls = []
    for n in range(count):
        number = f"555010030{n}"
        courier.stage.world.add_member(KEY, f"p-3{n}", [number])
        script = (Happening(Kind.MFA_VALIDATED, 5 + n, "elsewhere"), END)
        calls.append(courier.stage.call(*script, phone_number=number))
    return calls


async def test_outcomes_arrive_in_order_with_valid_signatures(courier: Courier) -> None:
    """A call that is authenticated and ends is told as that, in that order, once, without a caller's number or name."""
    call = await courier.begin_call(Happening(Kind.GREEN, 5), END, run_s=80, is_pushed=False)
    assert [message["type"] for message in courier.receiver.taken] == ["call.authenticated", "call.settled"]
    assert {message["data"]["voice_id"] for message in courier.receiver.taken} == {call.voice_id}
    assert courier.receiver.taken[-1]["data"]["reason"] == "authenticated"
    text = json.dumps(courier.receiver.taken)
    assert call.phone_number not in text
    assert "Ada" not in text


@pytest.mark.parametrize("voice_id", ["caf\u00e9-1", "\u260e 1", "v|1"], ids=ascii)
async def test_outcomes_of_any_voice_id_arrive(courier: Courier, voice_id: str) -> None:
    """A voice id beyond ASCII is in the message as it is; the id of the message is one that a header can carry."""
    await courier.begin_call(Happening(Kind.GREEN, 5), END, voice_id=voice_id, run_s=80, is_pushed=False)
    assert [message["data"]["voice_id"] for message in courier.receiver.taken] == [voice_id] * 2
    assert all(message_id.isascii() and " " not in message_id for message_id in courier.receiver.ids)
    assert len(set(courier.receiver.ids)) == 2


async def test_sink_that_was_down_gets_everything_in_order(courier: Courier) -> None:
    """Through two hours of silence nothing is lost, nothing overtakes, and no call waits for it."""
    courier.receiver.status = lambda: 0
    calls = verified_calls(courier, 3)
    await courier.run(90)
    await courier.leap(120)
    assert [(await courier.record(call)).is_settled for call in calls] == [True] * 3
    assert courier.receiver.taken == []
    courier.receiver.status = lambda: 200
    await courier.leap(65)
    for call in calls:
        types = [m["type"] for m in courier.receiver.taken if m["data"]["voice_id"] == call.voice_id]
        assert types == ["call.enrolled", "call.settled"]
    assert len(set(courier.receiver.ids)) == len(courier.receiver.ids) == 6


async def test_sink_that_is_down_is_left_alone(courier: Courier) -> None:
    """A sink that does not answer is tried once in a while by all calls together, not by each of them."""
    courier.receiver.status = lambda: 503
    for n in range(20):
        courier.stage.call(Happening(Kind.GREEN, 5 + n / 10), END)
    await courier.run(20)
    seen = courier.receiver.seen
    await courier.run(30)
    assert courier.receiver.seen - seen <= 30 / 3 + 1


async def test_outcome_not_taken_for_a_day_is_parked_and_shown(courier: Courier) -> None:
    """After a day of refusals the call is on the list of what needs a person; asking again sends the rest, in order."""
    courier.receiver.status = lambda: 400
    call = await courier.begin_call(Happening(Kind.GREEN, 5), END, run_s=70, is_pushed=False)
    for _ in range(40):
        courier.stage.advance(3600)
        await courier.run(0)
    attention = await Queries(courier.redis).attention()
    member = CallId(call.institution_key, call.voice_id).member
    assert attention == {member: "outcome authenticated not delivered for a day"}
    assert await courier.redis.ttl(Keys().outbox.item(member)) > 0, "a sink that is gone for good must not fill Redis"
    seen = courier.receiver.seen
    await courier.run(5)
    assert courier.receiver.seen == seen, "it waits for a person"
    courier.receiver.status = lambda: 200
    await courier.replays.call(CallId(call.institution_key, call.voice_id))
    await courier.run(1)
    assert [message["type"] for message in courier.receiver.taken] == ["call.authenticated", "call.settled"]
    assert await Queries(courier.redis).attention() == {}


async def test_call_whose_outcomes_cannot_be_made_is_parked_and_shown(courier: Courier) -> None:
    """An unexpected error is logged, tried five times and shown to a person; the outcomes of other calls are sent."""
    courier.receiver.status = lambda: 0
    numbers = [courier.stage.other_member(n) for n in range(2)]
    broken, other = (courier.stage.call(Happening(Kind.GREEN, 5), END, phone_number=number) for number in numbers)
    await courier.run(90)
    member = CallId(broken.institution_key, broken.voice_id).member
    record = await courier.redis.hget(Keys().item(member), "rec")
    await courier.redis.hset(Keys().item(member), "rec", b"[]")
    courier.receiver.status = lambda: 204
    await courier.leap(7)
    assert courier.receiver.told(other.voice_id) == ["call.authenticated", "call.settled"]
    failed = [each for each in courier.log.entries if each["event"] == "outcomes_failed"]
    assert [(each["failures"], each["parked"]) for each in failed] == [(n, n == 5) for n in range(1, 6)]
    assert {each["voice_id"] for each in failed} == {broken.voice_id}
    attention = await Queries(courier.redis).attention()
    assert attention[member].startswith("outcomes not sent: ValidationError at ")
    await courier.redis.hset(Keys().item(member), "rec", record)
    await courier.replays.call(CallId(broken.institution_key, broken.voice_id))
    await courier.run(2)
    assert courier.receiver.told(broken.voice_id) == ["call.authenticated", "call.settled"]
    assert member not in await Queries(courier.redis).attention()


async def test_outcome_is_not_sent_anew_when_a_person_closes_a_call_after_weeks(courier: Courier) -> None:
    """How far the sending is, is kept as long as the call: what needs a person for longer than is kept comes once."""
    seen = Happening(Kind.VIEWED)
    lost = Fault(target="reject_voice", action=Action.RESET, applied=False, times=1, happening=seen)
    courier.stage.sandbox.faults.add(lost)
    call = await courier.begin_call(Happening(Kind.END, 40), run_s=5, is_pushed=False)
    await courier.note(call, Distrusted(operator="ann", said_at=courier.clock.now))
    await courier.run(90)
    sent = [message["type"] for message in courier.receiver.taken]
    assert sent == ["call.unresolved", "call.settled"]
    cursor = Keys().outbox.item(courier.call_id(call).member)
    assert await courier.redis.ttl(cursor) == -1
    resolved = Resolved(applied=False, operator="ann", said_at=courier.clock.now)
    await courier.store.note(courier.call_id(call), resolved, even_settled=True)
    await courier.run(5)
    assert [message["type"] for message in courier.receiver.taken] == [*sent, "call.not_carried_out"]
    assert 0 < await courier.redis.ttl(cursor) <= KEPT_S


async def test_two_workers_send_one_outcome_once(courier: Courier) -> None:
    """Who sends for a call holds it: two workers that look at the same time send each outcome once."""
    ours = courier.deliveries
    other = Deliveries(ours.store, Lookup(courier.redis), ours.client, courier.attempts, courier.tools.log)
    courier.stage.call(Happening(Kind.GREEN, 5), END)
    for _ in range(320):
        await Rig.tick(courier)
        for deliveries in (courier.deliveries, other):
            await deliveries.claim()
        await courier.deliveries.settle()
        await other.settle()
        courier.stage.advance(0.25)
    assert len(courier.receiver.ids) == len(set(courier.receiver.ids)) == 2


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.night) for seed in (1, 2))])
async def test_receiver_that_flaps_gets_each_outcome_once_in_order(courier: Courier, seed: int) -> None:
    """Whatever it answers from post to post: nothing it took comes again, nothing overtakes, nothing is lost."""
    dice = Random(seed)  # noqa: S311  (a fixed sequence)
    courier.receiver.status = lambda: dice.choice([204, 204, 400, 500, 0, 410, 429, 301])
    calls = verified_calls(courier, 5)
    await courier.run(90)
    await courier.leap(90)
    courier.receiver.status = lambda: 204
    await courier.leap(65)
    assert len(set(courier.receiver.ids)) == len(courier.receiver.ids) == 2 * len(calls)
    for call in calls:
        types = [m["type"] for m in courier.receiver.taken if m["data"]["voice_id"] == call.voice_id]
        assert types == ["call.enrolled", "call.settled"]
