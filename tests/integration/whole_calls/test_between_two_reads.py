"""What comes between two reads together with another member may be about either: it is never taken for the wrong one."""

from collections.abc import Callable
from dataclasses import replace as with_options
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from callkeeper.calls.notes import Distrusted, Withdrawn
from callkeeper.calls.record import Identity
from callkeeper_sandbox.service.effects import check
from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.virtual_time import EAGER, KEY, Rig
from tests.integration.whole_calls.test_outcomes_told import verified
from tests.integration.whole_calls.test_pause import pause, resume
from tests.sandbox_fixtures import Asgi

OF_P2 = "5550100222"
"""A number that the service matches to p-2."""


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """Return a rig whose service knows p-2, too."""
    rig.stage.world.add_member(KEY, "p-2", [OF_P2])
    return rig


def keep_status(rig: Rig) -> None:
    """Let an assign leave a call's status as it is."""
    rig.stage.world.options = with_options(rig.stage.world.options, assign_writes_status=False)


def claimed(at_s: float, person_id: str) -> Happening:
    """Return that an operator elsewhere puts a member on the call."""
    return Happening(Kind.CLAIMED, at_s, "zed", person_id)


async def identity_of(rig: Rig, call: Call) -> Identity:
    """Return the identity that was established in a call."""
    identity = (await rig.record(call)).statements.identity
    assert identity is not None
    return identity


@pytest.mark.parametrize("at_s", [41.2, 61, 83, 98])
@pytest.mark.parametrize("after_s", [0.3, 1, 2, 4])
async def test_passcode_of_one_member_enrolls_no_other(rig: Rig, at_s: float, after_s: float) -> None:
    """The caller spoofs p-2's number, says that he is p-1 after all, proves that, and asks for "my wife's account"."""
    happenings = claimed(at_s, "p-1"), Happening(Kind.MFA_VALIDATED, at_s + after_s), claimed(at_s + 30, "p-2")
    call = await rig.begin_call(*happenings, Happening(Kind.END, 240), run_s=350, phone_number=OF_P2)
    assert call.verifications[0].person_id == "p-1"
    assert call.manual_person_id is None
    assert (await identity_of(rig, call)).person_id in {"p-1", ""}


@pytest.mark.parametrize("claimed_at_s", [42.3, 60])
async def test_passcode_before_anybody_was_assigned_enrolls_nobody(rig: Rig, claimed_at_s: float) -> None:
    """Two members share the number. Whoever is put on the call after the passcode is not the one who gave it."""
    keep_status(rig)
    rig.stage.world.add_member(KEY, "p-2", ["5550100001"])
    happenings = Happening(Kind.MFA_VALIDATED, 42), claimed(claimed_at_s, "p-2"), Happening(Kind.END, 200)
    call = await rig.begin_call(*happenings, run_s=300)
    assert (call.person_id, call.manual_person_id) == ("p-2", None)


@pytest.mark.parametrize("word", ["p-l", "p-1"], ids=["mistyped", "right, in a pause"])
async def test_passcode_stays_its_members_when_a_persons_word_is_withdrawn(rig: Rig, word: str) -> None:
    """While Ann's word counted, p-1 gave a passcode. The call is p-2's by the time that she takes it back."""
    keep_status(rig)
    happenings = Happening(Kind.MFA_VALIDATED, 42), claimed(70, "p-2"), Happening(Kind.END, 160)
    call = await rig.begin_call(*happenings, run_s=20)
    await pause(rig)
    await rig.note(call, replace(verified(rig), person_id=word))
    await rig.run(70)
    await rig.note(call, Withdrawn(operator="ann", said_at=rig.clock.now, wish="w1", what="verified"))
    await rig.run(20)
    await resume(rig)
    await rig.run(200)
    assert (await identity_of(rig, call)).person_id == "p-1"
    assert (call.person_id, call.manual_person_id) == ("p-2", None)


@pytest.mark.parametrize("at_s", [48.3, 63.1, 72.4, 85.0, 102.0])
async def test_mismatch_that_is_read_with_the_next_member_enrolls_nobody(rig: Rig, at_s: float) -> None:
    """The service said of p-2 that it is not their voice, or of p-1. A person is asked."""
    keep_status(rig)
    mismatch = Happening(Kind.STATUS, at_s, "VoiceMismatch"), claimed(at_s + 0.3, "p-1"), claimed(at_s + 20, "p-2")
    passcode = Happening(Kind.MFA_VALIDATED, at_s + 22), Happening(Kind.END, 240)
    call = await rig.begin_call(*mismatch, *passcode, run_s=350, phone_number=OF_P2)
    assert call.manual_person_id is None
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'member_changed'"]


async def shown_with_the_next_member(rig: Rig, kind: Kind, *more: Any) -> Call:
    """Let another tool's check show something, p-2 be put on the call before we read it, and it be gone after that."""
    call = await rig.begin_call(Happening(Kind.MFA_VALIDATED, 175), Happening(Kind.END, 320), run_s=121)
    rig.stage.happen(call, kind, *more)
    rig.stage.advance(0.5)
    check(call, "other-tool", rig.clock.now)
    rig.stage.advance(1)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(12)
    assert call.person_id == "p-2"
    call.fully_authenticated = call.voice_validated = False
    call.policies = call.provider.policies = []
    await rig.run(300)
    return call


async def test_voice_that_was_recognised_just_before_the_next_member_came_is_not_enrolled_as_theirs(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """The voice is p-1's. A passcode of p-2 that somebody passes on does not make it p-2's."""
    rig = Rig(sandbox_asgi, redis, EAGER)
    rig.stage.world.add_member(KEY, "p-2", [OF_P2])
    call = await shown_with_the_next_member(rig, Kind.GREEN, "Green Voice Authentication")
    assert call.manual_person_id is None


async def test_policy_without_a_colour_counts_also_if_the_next_member_is_read_with_it(rig: Rig) -> None:
    """It is of the caller, whoever stands on the call."""
    call = await shown_with_the_next_member(rig, Kind.POLICY, "Yellow Review")
    assert call.manual_person_id is None
    assert {"unclassified_policy_seen"} <= {name for entry in await rig.trail(call) for name in entry.forbidden}


async def test_distrust_before_the_first_read_is_of_the_member_whom_that_read_shows(rig: Rig) -> None:
    """Bob distrusts the caller as p-1. When the call is corrected to p-2, they keep what they have."""
    theirs = await rig.begin_call(Happening(Kind.END, 60), phone_number=OF_P2, run_s=20)
    await rig.note(theirs, replace(verified(rig), person_id="p-2"))
    await rig.run(100)
    assert theirs.manual_person_id == "p-2"
    await pause(rig)
    call = rig.stage.call(claimed(0, "p-1"), claimed(40, "p-2"), Happening(Kind.END, 200))
    await rig.push(call)
    await rig.note(call, Distrusted(operator="bob", said_at=rig.clock.now, reason="a robot"))
    await rig.run(60)
    await resume(rig)
    await rig.run(200)
    assert (call.person_id, call.rejected, theirs.manual_person_id) == ("p-2", False, "p-2")


async def test_sign_that_an_outage_hid_asks_for_the_word_again(rig: Rig) -> None:
    """Ann could not know of the other voice, although the first read after her word shows it: it comes a minute later."""
    call = await rig.begin_call(Happening(Kind.MISMATCH, 25), Happening(Kind.END, 900), run_s=20)
    for target in ("details", "check"):
        rig.stage.sandbox.faults.add(Fault(target=target, action=Action.DROP))
    await rig.note(call, verified(rig))
    await rig.run(60)
    check(call, "other-tool", rig.clock.now)
    rig.stage.sandbox.faults.clear()
    await rig.run(60)
    assert call.manual_person_id is None
    assert "asked by rule 'verified, but evidence against it'" in (await rig.queries.attention()).values()


async def test_voice_of_another_member_asks_for_the_word_again(rig: Rig) -> None:
    """Ann verified the caller as p-1. Before that could be carried out, the voice was recognised as p-2's."""
    call = await rig.begin_call(Happening(Kind.END, 900), run_s=15)
    await pause(rig)
    await rig.note(call, verified(rig))
    await rig.run(15)
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(12)
    rig.stage.happen(call, Kind.GREEN)
    check(call, "other-tool", rig.clock.now)
    await rig.run(12)
    call.policies = call.provider.policies = []
    call.fully_authenticated = call.voice_validated = False
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-1")
    await rig.run(30)
    await resume(rig)
    await rig.run(60)
    assert (call.person_id, call.manual_person_id) == ("p-1", None)
    assert list((await rig.queries.attention()).values()) == ["asked by rule 'member_changed'"]


class Overtaking(httpx.AsyncBaseTransport):
    """Lets something happen while an assign is on its way."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner, self.happens = inner, list[Callable[[], None]]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Pass a request on."""
        if request.url.path.endswith("/assign"):
            self.happens.pop()()
        return await self._inner.handle_async_request(request)


async def test_claim_that_our_assign_overtakes_enrolls_nobody_and_stays_once_it_is_made_again(
    sandbox_asgi: Asgi, redis: Redis
) -> None:
    """The service knows no assign of a call that is still free. The operator sees another member there, and corrects it."""
    transport = Overtaking(sandbox_asgi.transport)
    rig = Rig(sandbox_asgi, redis, EAGER, transport=transport)
    rig.stage.world.add_member(KEY, "p-2", ["5550100002"])
    call = rig.stage.call(Happening(Kind.END, 400))

    def grab() -> None:
        rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
        rig.stage.happen(call, Kind.MFA_VALIDATED)

    transport.happens.append(grab)
    await rig.push(call)
    await rig.run(30)
    assert (call.person_id, call.verifications[0].person_id) == ("p-1", "p-2")
    rig.stage.happen(call, Kind.CLAIMED, "zed", "p-2")
    await rig.run(450)
    assert (call.person_id, call.manual_person_id, rig.ledger(call)["assign"]) == ("p-2", None, 1)
