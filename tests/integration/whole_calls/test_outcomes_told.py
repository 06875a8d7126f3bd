"""What the institution's software is told when effects are repeated, taken back, or about another member than before."""

import pytest

from callkeeper.calls.notes import Distrusted, Verified
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.courier import Courier
from tests.harness.virtual_time import KEY, Rig

END = Happening(Kind.END, 900)


def verified(rig: Rig, wish: str = "e1", *, despite: tuple[str, ...] = ()) -> Verified:
    """Return Ann's word that the caller is p-1, despite what she names."""
    how, now = "OneTimePasswordAuth", rig.clock.now
    return Verified(operator="ann", said_at=now, wish=wish, person_id="p-1", validation_type=how, despite=despite)


async def verify_again(rig: Rig, call: Call, *, after_s: float = 1.0) -> None:
    """Let Ann verify the caller, and again once she is told that something spoke against them in another call."""
    await rig.note(call, verified(rig))
    await rig.run(after_s)
    await rig.note(call, verified(rig, "e2", despite=("suspected_before",)))


async def test_settled_names_the_member_whose_enroll_it_tells(courier: Courier) -> None:
    """Ann's verification belongs into the file of the member whom she verified, whoever is assigned at the end."""
    courier.stage.world.add_member(KEY, "p-2", ["5550100002"])
    call = courier.stage.call(END)
    await courier.run(8)
    await courier.note(call, verified(courier))
    await courier.run(10)
    courier.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await courier.run(20)
    courier.stage.happen(call, Kind.END)
    await courier.run(60)
    told = {message["type"]: message["data"] for message in courier.receiver.taken}
    settled = told["call.settled"]
    assert (settled["reason"], settled["effect"], settled["operator"]) == ("enrolled", "enroll", "ann")
    assert (told["call.enrolled"]["person_id"], settled["person_id"]) == ("p-1", "p-1")


async def test_enroll_elsewhere_after_ours_was_taken_back_is_told_as_such(courier: Courier) -> None:
    """Otherwise the last word would be that the voice is not enrolled, and at the end that it is enrolled by Ann."""
    call = courier.stage.call(END)
    await courier.run(8)
    await courier.note(call, verified(courier))
    await courier.run(6)
    other = courier.stage.call(END)
    await courier.run(8)
    await courier.note(other, Distrusted(operator="bob", said_at=courier.clock.now, reason="impostor", wish="r1"))
    await courier.run(20)
    courier.stage.happen(call, Kind.ENROLLED, "zed", "p-1")
    await courier.run(30)
    told = [one for one in courier.receiver.taken if one["data"]["voice_id"] == call.voice_id]
    assert [(one["type"], one["data"]["operator"]) for one in told if one["type"] != "call.held"] == [
        ("call.enrolled", "ann"),
        ("call.unenrolled", None),
        ("call.enrolled", None),
    ]
    courier.stage.happen(call, Kind.END)
    await courier.run(60)
    settled = courier.receiver.taken[-1]["data"]
    assert (settled["reason"], settled["effect"], settled["operator"]) == ("enrolled", None, None)


async def test_verification_of_a_voice_that_another_tool_has_enrolled_is_told_as_held(courier: Courier) -> None:
    """Ann's software waits for what becomes of her word."""
    call = courier.stage.call(END)
    await courier.run(8)
    courier.stage.happen(call, Kind.ENROLLED, "zed", "p-1")
    await courier.run(20)
    await courier.note(call, verified(courier))
    await courier.run(20)
    told = [message["data"] for message in courier.receiver.taken if message["type"] == "call.held"]
    assert [(one["operator"], one["forbidden"][-1]) for one in told] == [("ann", "already_enrolled")]


@pytest.mark.parametrize("words", [("distrusted", "distrusted"), ("distrusted", "verified"), ("verified", "verified")])
async def test_effect_that_was_carried_out_is_not_told_as_held(courier: Courier, words: tuple[str, str]) -> None:
    """Two people say the same, or contradict each other: that nothing is sent twice does not make the first one held."""
    call = courier.stage.call(END)
    await courier.run(8)
    for n, word in enumerate(words):
        distrusted = Distrusted(operator="bob", said_at=courier.clock.now, reason="x", wish=f"w{n}")
        await courier.note(call, distrusted if word == "distrusted" else verified(courier, f"w{n}"))
        await courier.run(8)
    effect = "reject" if words[0] == "distrusted" else "enroll"
    told = [(one["type"], one["data"]["effect"]) for one in courier.receiver.taken]
    assert f"call.{effect}ed" in dict(told)
    assert ("call.held", effect) not in told


@pytest.mark.parametrize("after_s", [30, 300], ids=["in the call", "after it was settled"])
async def test_enroll_that_a_reject_of_the_same_call_took_back_is_told(courier: Courier, after_s: float) -> None:
    """Bob looks at the call again, and finds an impostor whom Ann has verified."""
    call = courier.stage.call(Happening(Kind.END, 100))
    await courier.run(8)
    await courier.note(call, verified(courier))
    await courier.run(after_s)
    bob = Distrusted(operator="bob", said_at=courier.clock.now, reason="impostor", wish="r1")
    await courier.note(call, bob, even_settled=True)
    await courier.run(200)
    assert (call.rejected, call.manual_person_id) == (True, None)
    told = [one["type"] for one in courier.receiver.taken if one["type"] not in {"call.held", "call.settled"}]
    assert sorted(told) == ["call.enrolled", "call.rejected", "call.unenrolled"]
    assert not await courier.queries.attention()
