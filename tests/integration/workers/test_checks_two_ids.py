"""One call with two ids becomes one record. Two calls that the service mixes up stay two."""

import dataclasses
import itertools

import pytest
from redis.asyncio import Redis

from callkeeper.calls.claimed_item import WriteRefused
from callkeeper.calls.effect_ledger import EffectState
from callkeeper.calls.item_names import CallId
from callkeeper.calls.metrics import catalogue as figure
from callkeeper.calls.notes import AssignWish, Distrusted, Listed
from callkeeper.calls.record import Call, Candidate, Phase, Reason
from callkeeper.calls.rules import load_rules
from callkeeper_sandbox.service.state import Call as SandboxCall
from callkeeper_sandbox.service.state import Happening, Kind
from tests.harness.virtual_time import KEY, Rig
from tests.mixed_up import MixedUp
from tests.sandbox_fixtures import Asgi

END = Happening(Kind.END, 30)
WISHES = (f"{n:032x}" for n in itertools.count(1))


@pytest.fixture
def mixed_up(sandbox_asgi: Asgi) -> MixedUp:
    """Return a service that can be told to mix calls up."""
    return MixedUp(sandbox_asgi.transport)


@pytest.fixture
def rig(sandbox_asgi: Asgi, redis: Redis, mixed_up: MixedUp) -> Rig:
    """Return a rig in front of such a service, with a second member."""
    sandbox_asgi.world.add_member(KEY, "p-2", ["5550100002"])
    return Rig(sandbox_asgi, redis, transport=mixed_up)


def two_calls(rig: Rig) -> tuple[SandboxCall, SandboxCall]:
    """Return two calls of two members."""
    one = rig.stage.call(Happening(Kind.END, 200), voice_id="v-a", alternate_id="alt-a")
    other = rig.stage.call(
        Happening(Kind.OPT_OUT, 5),
        Happening(Kind.END, 200),
        voice_id="v-b",
        alternate_id="alt-b",
        phone_number="5550100002",
    )
    return one, other


def distrust(rig: Rig) -> Distrusted:
    """Return what an agent says of a caller."""
    return Distrusted(operator="ann", said_at=rig.clock.now, reason="sounds wrong", wish=next(WISHES))


@pytest.mark.parametrize("kind", ["read", "check", "assign"])
async def test_answer_about_another_call_changes_nothing_of_this_one(rig: Rig, mixed_up: MixedUp, kind: str) -> None:
    """An answer that names another call changes neither the record nor the trail of a listed call."""
    one, other = two_calls(rig)
    mixed_up.only = kind
    if kind != "assign":
        await rig.run(20)
    mixed_up.mix["v-a"] = ("v-b", 1)
    await rig.run(60)
    assert mixed_up.met == 1
    record = await rig.record(one)
    assert (record.voice_id, record.seen.person_id, record.life.phase) == ("v-a", "p-1", Phase.LIVE)
    assert record.seen.reading is not None
    assert (record.seen.reading.voice_id, record.seen.opted_out) == ("v-a", False)
    assert "p-2" not in {line.person_id for line in await rig.trail(one)}
    assert [line["kind"] for line in rig.log.entries if line["event"] == "answer_misnamed"] == [kind]
    assert rig.ledger(one)["assign"] == 1
    assert record.ledger.assign.state is (EffectState.CONFIRMED if kind == "assign" else EffectState.APPLIED)
    assert (await rig.record(other)).voice_id == "v-b"


async def test_call_that_assign_mixes_up_with_one_of_the_same_caller_stays_a_call_of_its_own(
    rig: Rig, mixed_up: MixedUp
) -> None:
    """The caller rang twice within a minute, so details look alike. The queue lists both ids: what is said of one stays."""
    other = rig.stage.call(Happening(Kind.END, 200), voice_id="v-b", alternate_id="alt-b", listed_after_s=12)
    one = rig.stage.call(Happening(Kind.END, 200), voice_id="v-a", alternate_id="alt-a")
    mixed_up.mix["v-a"] = ("v-b", 3)
    await rig.push(one)
    await rig.note(one, AssignWish(person_id="p-1", operator="ann", said_at=rig.clock.now))
    await rig.note(one, distrust(rig))
    await rig.run(60)
    assert mixed_up.met >= 1
    record = await rig.record(one)
    assert (record.voice_id, record.ledger.assign.state) == ("v-a", EffectState.CONFIRMED)
    assert (rig.ledger(one).get("reject_voice"), rig.ledger(other).get("reject_voice")) == (1, None)
    assert "merged" not in await rig.whats(other)


async def test_answer_about_another_call_is_logged_and_counted(rig: Rig, mixed_up: MixedUp) -> None:
    """Such answers are logged and counted by institution and operation."""
    two_calls(rig)
    await rig.run(20)
    mixed_up.mix["v-a"] = ("v-b", 3)
    await rig.run(60)
    logged = [line for line in rig.log.entries if line["event"] == "answer_misnamed"]
    assert {(line["institution"], line["voice_id"], line["other"]) for line in logged} == {(KEY, "v-a", "v-b")}
    assert len(logged) == 3
    assert (await rig.counted()).count(figure.ANSWERS_MISNAMED, institution=KEY) == 3


async def test_distrust_rejects_the_caller_whom_it_is_about(rig: Rig, mixed_up: MixedUp) -> None:
    """A distrust together with an answer about another call rejects only its own call."""
    one, other = two_calls(rig)
    await rig.run(20)
    mixed_up.mix["v-a"] = ("v-b", 2)
    await rig.note(one, distrust(rig))
    await rig.run(60)
    assert mixed_up.met == 2
    assert rig.ledger(one)["reject_voice"] == 1
    assert "reject_voice" not in rig.ledger(other)
    assert (await rig.record(other)).statements.distrusted is None


async def test_call_that_an_answer_confirmed_is_not_merged(rig: Rig, mixed_up: MixedUp) -> None:
    """A call that an answer called by this very id stays itself, whatever a push and later answers say (late listing)."""
    one = rig.stage.call(Happening(Kind.END, 200), voice_id="v-a", listed_after_s=100)
    other = rig.stage.call(Happening(Kind.END, 200), voice_id="v-b", phone_number="5550100002")
    await rig.push(one, alternate_voice_id=None)
    await rig.run(1)
    await rig.store.note(CallId(KEY, "v-a"), distrust(rig))
    await rig.run(5)
    await rig.push(other, alternate_voice_id="v-a")
    mixed_up.mix["v-a"] = ("v-b", 50)
    await rig.run(90)
    assert (await rig.record(one)).voice_id == "v-a"
    assert "reject_voice" not in rig.ledger(other)
    assert (await rig.record(other)).statements.distrusted is None


async def test_answers_alone_never_carry_a_statement_to_another_call(rig: Rig, mixed_up: MixedUp) -> None:
    """However often answers name another call, a distrust stays with the call it is about until something confirms them."""
    one = rig.stage.call(Happening(Kind.END, 400), voice_id="v-a", listed_after_s=120)
    other = rig.stage.call(Happening(Kind.END, 400), voice_id="v-b", alternate_id="alt-b", phone_number="5550100002")
    await rig.push(one, alternate_voice_id=None)
    await rig.push(other)
    await rig.run(1)
    mixed_up.mix["v-a"] = ("v-b", 10**6)
    await rig.store.note(CallId(KEY, "v-a"), distrust(rig))
    await rig.run(30)
    assert mixed_up.met > 2
    assert (await rig.record(one)).voice_id == "v-a"
    await rig.run(60)
    record = await rig.record(one)
    assert (record.life.phase, record.life.reason) == (Phase.SETTLED, Reason.UNCONFIRMED)
    mixed_up.mix.clear()
    await rig.run(60)
    assert "reject_voice" not in rig.ledger(other)
    assert (await rig.record(other)).statements.distrusted is None
    assert rig.ledger(one)["reject_voice"] == 1, "the queue has listed it"


async def test_push_that_names_other_ids_confirms_nothing(rig: Rig, mixed_up: MixedUp) -> None:
    """A push that names the id together with a third call does not confirm an answer."""
    other = rig.stage.call(Happening(Kind.END, 400), voice_id="v-b", phone_number="5550100002")
    third = rig.stage.call(Happening(Kind.END, 400), voice_id="v-c", alternate_id="alt-c")
    await rig.push(third, voice_id=None)
    await rig.push(third)
    mixed_up.mix["alt-c"] = ("v-b", 10**6)
    await rig.store.note(CallId(KEY, "alt-c"), distrust(rig))
    await rig.run(90)
    for call in (other, third):
        assert "reject_voice" not in rig.ledger(call)
        assert (await rig.record(call)).statements.distrusted is None


async def test_call_that_is_listed_after_it_was_merged_goes_on_by_itself(rig: Rig, mixed_up: MixedUp) -> None:
    """What the queue lists is a call of its own: it has its statements again, and its listing enters no other record."""
    one = rig.stage.call(Happening(Kind.END, 200), voice_id="v-a", listed_after_s=60)
    other = rig.stage.call(Happening(Kind.END, 200), voice_id="v-b", phone_number="5550100002")
    await rig.push(one, alternate_voice_id=None)
    await rig.push(other, alternate_voice_id="v-a")
    await rig.run(1)
    mixed_up.mix["v-a"] = ("v-b", 5)
    statement = distrust(rig)
    await rig.store.note(CallId(KEY, "v-a"), statement)
    await rig.run(30)
    assert (await rig.record(one)).voice_id == "v-b", "a push and an answer say so: merged"
    mixed_up.mix.clear()
    await rig.run(60)
    assert (await rig.record(one)).voice_id == "v-a"
    assert rig.ledger(one)["reject_voice"] == 1
    assert statement.wish in {line.wish for line in await rig.trail(one)}
    beside = await rig.record(other)
    assert (beside.seen.person_id, [candidate.person_id for candidate in beside.seen.candidates]) == ("p-2", ["p-2"])


async def test_merge_is_refused_in_the_moment_in_which_the_queue_lists_the_call(rig: Rig) -> None:
    """A listing that comes while a record is about to be merged keeps it, and enters no other record."""
    place, other = CallId(KEY, "v-a"), CallId(KEY, "v-b")
    await rig.store.note(place, distrust(rig))
    [held] = await rig.store.claim(1)
    listed = Listed(listed_at=rig.clock.now, started_at=rig.clock.now, candidates=(Candidate(person_id="p-1"),))
    await rig.store.note(place, listed)
    with pytest.raises(WriteRefused, match="notes"):
        await rig.store.merge(held, Call(institution_key=KEY, voice_id="v-a"), other)
    assert not await rig.redis.exists(rig.store.keys.inbox(other.member))


CIRCLES = {"each other": ("v-1", "v-2"), "three in a circle": ("v-1", "v-2", "v-3")}


@pytest.mark.parametrize("ids", CIRCLES.values(), ids=CIRCLES)
async def test_listed_calls_that_answers_mix_up_stay_and_come_to_an_end(
    sandbox_asgi: Asgi, redis: Redis, mixed_up: MixedUp, ids: tuple[str, ...]
) -> None:
    """If every answer names the next call, no call is merged, nothing is enrolled or rejected, and each settles (B11)."""
    book = dataclasses.replace(load_rules(None), maximum_age_s=120.0)
    rig = Rig(sandbox_asgi, redis, book, transport=mixed_up)
    calls = [rig.stage.call(Happening(Kind.MFA_VALIDATED, 5), END, voice_id=voice_id) for voice_id in ids]
    for voice_id, following in zip(ids, (*ids[1:], ids[0]), strict=True):
        mixed_up.mix[voice_id] = (following, 10**6)
    await rig.run(10)
    for call in calls:
        await rig.note(call, distrust(rig))
    await rig.run(900)
    for call in calls:
        record = await rig.record(call)
        assert (record.voice_id, record.life.phase, record.seen.reading) == (call.voice_id, Phase.SETTLED, None)
        assert record.ledger.reject.state is EffectState.NONE
        assert not {"enroll", "reject_voice"} & set(rig.ledger(call))
        assert (await rig.whats(call)).count("settled") == 1
    assert not rig.shift.failures
