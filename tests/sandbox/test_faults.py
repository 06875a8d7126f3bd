"""Scripted faults in process: whom they meet, whether the service acts, what is answered."""

import asyncio
import gzip
from typing import Any

import httpx
import pytest

from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.sandbox_fixtures import Asgi

CHECK = {"checkVoiceAuthentication": "true"}


async def enroll(stage: Asgi, voice_id: str) -> httpx.Response:
    """Send an enroll and return the raw answer."""
    stage.headers = stage.headers or await stage.login()
    body = {"personId": "p-1", "validationType": "Other"}
    return await stage.client.post(f"/external/calls/{voice_id}/enroll", json=body, headers=stage.headers)


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize(("action", "error"), [("reset", httpx.ReadError), ("drop", httpx.RemoteProtocolError)])
async def test_silent_fault_says_nothing_of_what_was_applied(
    sandbox_asgi: Asgi, action: str, error: type[Exception], applied: bool
) -> None:
    """A reset or a drop looks the same before and after applying; the ledger knows the difference."""
    call = sandbox_asgi.call()
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action(action), applied=applied))
    with pytest.raises(error):
        await enroll(sandbox_asgi, call.voice_id)
    tally = sandbox_asgi.sandbox.ledger.tally(call.voice_id)
    assert (tally.arrived, tally.authenticated) == ({"enroll": 1}, {"enroll": 1})
    assert (tally.applied, call.fully_authenticated) == ({"enroll": 1} if applied else {}, applied)


async def test_hang_never_answers(sandbox_asgi: Asgi) -> None:
    """A request that hangs is received and waits until its client gives up."""
    call = sandbox_asgi.call()
    sandbox_asgi.headers = await sandbox_asgi.login()
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.HANG, applied=True))
    task = asyncio.create_task(enroll(sandbox_asgi, call.voice_id))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (call.fully_authenticated, task.done()) == (True, False)
    task.cancel()
    await asyncio.wait([task])


ANSWERS: dict[str, tuple[dict[str, Any], int, str]] = {
    "status": ({"action": "answer", "status": 503, "body": "busy"}, 503, "busy"),
    "too many": ({"action": "answer", "status": 429, "headers": {"Retry-After": "2"}}, 429, ""),
    "redirect": ({"action": "answer", "status": 307, "headers": {"Location": "/other"}}, 307, ""),
    "html": ({"action": "html", "body": "<p>down"}, 200, "<p>down"),
    "foreign": ({"action": "foreign", "body": "[1]"}, 200, "[1]"),
    "empty": ({"action": "empty"}, 200, ""),
    "refused": ({"action": "refused", "body": '{"success":false,"code":"X"}'}, 200, '{"success":false,"code":"X"}'),
}


@pytest.mark.parametrize(("script", "status", "body"), ANSWERS.values(), ids=ANSWERS)
async def test_scripted_answer_replaces_the_services_own(
    sandbox_asgi: Asgi, script: dict[str, Any], status: int, body: str
) -> None:
    """Status, headers and body are sent as scripted."""
    await sandbox_asgi.client.post("/control/faults", json={"target": "enroll", **script})
    answer = await enroll(sandbox_asgi, sandbox_asgi.call().voice_id)
    assert (answer.status_code, answer.text) == (status, body)
    assert {name: answer.headers[name] for name in script.get("headers", {})} == script.get("headers", {})


async def test_default_refusal_carries_the_base_response(sandbox_asgi: Asgi) -> None:
    """A scripted refusal without a body is a base response with ``success`` false, and nothing was applied.

    Spec: Base response; Errors 1.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.REFUSED))
    answer = (await enroll(sandbox_asgi, call.voice_id)).json()
    assert (answer["success"], answer["errors"], call.feedback) == (False, [answer["error"]], [])


async def test_scripted_401_is_not_past_authentication(sandbox_asgi: Asgi) -> None:
    """An unauthorized fault refuses a good token: arrived, not authenticated, not applied.

    Spec: Errors 2.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.UNAUTHORIZED, times=1))
    assert (await enroll(sandbox_asgi, call.voice_id)).status_code == 401
    assert (await enroll(sandbox_asgi, call.voice_id)).status_code == 200
    tally = sandbox_asgi.sandbox.ledger.tally(call.voice_id)
    assert (tally.arrived["enroll"], tally.authenticated["enroll"]) == (2, 1)


async def test_scripted_429_is_not_past_authentication(sandbox_asgi: Asgi) -> None:
    """A request too many is turned away before anybody looks at it, unless the fault says that it was applied."""
    call = sandbox_asgi.call()
    for applied in (None, True):
        fault = Fault(target="enroll", action=Action.ANSWER, status=429, applied=applied, times=1)
        sandbox_asgi.sandbox.faults.add(fault)
        assert (await enroll(sandbox_asgi, call.voice_id)).status_code == 429
    tally = sandbox_asgi.sandbox.ledger.tally(call.voice_id)
    assert (tally.arrived["enroll"], tally.authenticated["enroll"], tally.applied["enroll"]) == (2, 1, 1)


async def test_scripted_401_may_come_after_the_deed(sandbox_asgi: Asgi) -> None:
    """A fault that says ``applied`` lets the service act before it answers 401."""
    call = sandbox_asgi.call()
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.UNAUTHORIZED, applied=True))
    assert (await enroll(sandbox_asgi, call.voice_id)).status_code == 401
    assert sandbox_asgi.sandbox.ledger.tally(call.voice_id).applied == {"enroll": 1}


async def test_cut_body_is_half_of_the_json(sandbox_asgi: Asgi) -> None:
    """A cut answer is complete for HTTP and broken for JSON; the service has acted."""
    call = sandbox_asgi.call()
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.CUT))
    answer = await enroll(sandbox_asgi, call.voice_id)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        answer.json()
    assert call.fully_authenticated


async def test_gzip_answer_reads_as_the_plain_one(sandbox_asgi: Asgi) -> None:
    """A compressed answer unpacks to the service's own."""
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.GZIP))
    answer = await enroll(sandbox_asgi, sandbox_asgi.call().voice_id)
    assert (answer.headers["content-encoding"], answer.json()["success"]) == ("gzip", True)


async def test_gzip_bomb_is_small_on_the_wire(sandbox_asgi: Asgi) -> None:
    """A bomb is a small body that would unpack to 100 MB."""
    sandbox_asgi.sandbox.faults.add(Fault(target="institutions", action=Action.GZIP_BOMB))
    headers = await sandbox_asgi.login()
    async with sandbox_asgi.client.stream("GET", "/external/institutions", headers=headers) as answer:
        raw = b"".join([chunk async for chunk in answer.aiter_raw()])
    assert len(raw) < 1_000_000
    assert len(gzip.decompress(raw)) == 100_000_000


async def test_cookie_is_set_on_the_services_own_answer(sandbox_asgi: Asgi) -> None:
    """Headers can be added to an answer that is otherwise the service's own."""
    sandbox_asgi.sandbox.faults.add(Fault(target="institutions", headers={"Set-Cookie": "a=b"}))
    answer = await sandbox_asgi.client.get("/external/institutions", headers=await sandbox_asgi.login())
    assert (answer.headers["set-cookie"], answer.json()["success"]) == ("a=b", True)


async def test_latency_passes_before_the_request_is_served(sandbox_asgi: Asgi) -> None:
    """What happens during the latency is seen by the request: it is served afterwards."""
    call = sandbox_asgi.call(Happening(Kind.GREEN, 3))
    sandbox_asgi.sandbox.faults.add(Fault(target="check", latency_s=5))
    assert (await sandbox_asgi.details(call.voice_id, check=True))["status"] == "FullAuthentication"
    (arrival,) = sandbox_asgi.sandbox.ledger.arrivals(call.voice_id)
    assert (arrival.monotonic_s, sandbox_asgi.clock.monotonic()) == (0, 5)


async def test_happening_comes_between_arrival_and_serving(sandbox_asgi: Asgi) -> None:
    """A fault can let something happen exactly when a request arrives."""
    call = sandbox_asgi.call()
    sandbox_asgi.sandbox.faults.add(Fault(target="read", times=1, happening=Happening(Kind.MFA_VALIDATED)))
    assert (await sandbox_asgi.details(call.voice_id))["status"] == "MFAValidated"


async def test_late_listing_hides_a_call_from_the_queue(sandbox_asgi: Asgi) -> None:
    """With a listing fault a call is known at once and listed only later.

    Spec: Events, rule 3.
    """
    sandbox_asgi.sandbox.faults.add(Fault(target="listing", latency_s=3))
    call = sandbox_asgi.call()
    assert (await sandbox_asgi.queue(), (await sandbox_asgi.details(call.voice_id))["success"]) == ([], True)
    sandbox_asgi.advance(3)
    assert len(await sandbox_asgi.queue()) == 1


TARGETS = {
    "another operation": ({"target": "reject_voice"}, False),
    "any operation": ({"target": "*"}, True),
    "details": ({"target": "details"}, False),
    "this call": ({"target": "enroll", "voice_id": "v-1"}, True),
    "this call by its alternate id": ({"target": "enroll", "voice_id": "a-1"}, True),
    "another call": ({"target": "enroll", "voice_id": "v-2"}, False),
    "this institution": ({"target": "enroll", "institution_key": "cu-1"}, True),
    "another institution": ({"target": "enroll", "institution_key": "cu-2"}, False),
    "used up": ({"target": "enroll", "times": 0}, False),
    "still skipping": ({"target": "enroll", "skip": 1}, False),
    "never drawn": ({"target": "enroll", "share": 0.0}, False),
}


@pytest.mark.parametrize(("aim", "is_met"), TARGETS.values(), ids=TARGETS)
async def test_fault_meets_only_what_it_aims_at(sandbox_asgi: Asgi, aim: dict[str, Any], is_met: bool) -> None:
    """Operation, call, institution, count, skip and chance all have to fit."""
    sandbox_asgi.headers = await sandbox_asgi.login()
    sandbox_asgi.call(voice_id="v-1", alternate_id="a-1")
    await sandbox_asgi.client.post("/control/faults", json={"action": "answer", "status": 500, **aim})
    assert ((await enroll(sandbox_asgi, "v-1")).status_code == 500) == is_met


async def test_details_target_means_checks_and_reads(sandbox_asgi: Asgi) -> None:
    """``details`` aims at both ways of asking, ``check`` and ``read`` at one."""
    call = sandbox_asgi.call()
    for target in ("details", "check", "read"):
        sandbox_asgi.sandbox.faults.add(Fault(target=target, action=Action.REFUSED, times=1))
    made = [(await sandbox_asgi.details(call.voice_id, check=check))["success"] for check in (True, True, False, False)]
    assert made == [False, False, False, True]


async def test_chance_repeats_itself(sandbox_asgi: Asgi) -> None:
    """The same script meets the same requests every time it is run."""
    runs = []
    for _ in range(2):
        sandbox_asgi.sandbox.faults.clear()
        fault = Fault(target="institutions", action=Action.REFUSED, share=0.5, seed=7)
        sandbox_asgi.sandbox.faults.add(fault).id = 1
        runs.append([(await sandbox_asgi.ask("GET", "/institutions"))["success"] for _ in range(20)])
    assert runs[0] == runs[1]
    assert {True, False} == set(runs[0])


@pytest.mark.parametrize("script", [{"target": "moon"}, {"target": "read", "share": 2}, {"target": "read", "typo": 1}])
async def test_script_that_cannot_work_is_refused(sandbox_asgi: Asgi, script: dict[str, Any]) -> None:
    """A wrong target, share or name is a 400 that says so."""
    answer = await sandbox_asgi.client.post("/control/faults", json=script)
    assert (answer.status_code, sandbox_asgi.sandbox.faults.scripted) == (400, [])
    assert answer.json()["error"]


async def test_faults_can_be_lifted(sandbox_asgi: Asgi) -> None:
    """One fault is lifted by its id, or all at once."""
    answer = await sandbox_asgi.client.post("/control/faults", json=[{"target": "read"}] * 3)
    await sandbox_asgi.client.delete(f"/control/faults/{answer.json()[0]['id']}")
    left = (await sandbox_asgi.client.get("/control/faults")).json()
    await sandbox_asgi.client.delete("/control/faults")
    assert ([fault["id"] for fault in left], sandbox_asgi.sandbox.faults.scripted) == ([2, 3], [])
