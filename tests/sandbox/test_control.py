"""The control interface and the ledger that audits read."""

import json
from typing import Any

import pytest

from callkeeper_sandbox.service.faults import Action, Fault
from callkeeper_sandbox.service.state import Happening, Kind
from tests.sandbox_fixtures import KEY, PHONE, Asgi


async def control(stage: Asgi, method: str, path: str, body: object = None) -> Any:
    """Send a control request that works and return its JSON."""
    answer = await stage.client.request(method, f"/control{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_index_lists_the_interface(sandbox_asgi: Asgi) -> None:
    """``GET /control`` names every path with a sentence."""
    listed = await control(sandbox_asgi, "GET", "")
    assert "GET /control/ledger: " in " ".join(listed)
    assert all(line.endswith(".") for line in listed)


async def test_stage_can_be_set_over_http(sandbox_asgi: Asgi) -> None:
    """Institution, member and call with a script are added over HTTP, and the script runs."""
    await control(sandbox_asgi, "PUT", "/institutions/cu-9", {"has_voice_auth": False, "ignored": ["1"]})
    await control(sandbox_asgi, "POST", "/members", {"institution_key": "cu-9", "person_id": "m", "phones": ["2"]})
    script = [{"kind": "answered_questions", "after_s": 5}, {"kind": "end", "after_s": 9}]
    body = {"institution_key": "cu-9", "phone_number": "2", "voice_id": "v-9", "script": script}
    await control(sandbox_asgi, "POST", "/calls", body)
    sandbox_asgi.advance(5)
    assert (await control(sandbox_asgi, "GET", "/calls/v-9"))["status"] == "AnsweredQuestions"
    sandbox_asgi.advance(5)
    account = await control(sandbox_asgi, "GET", "/calls/v-9")
    assert (account["status"], account["ended_at"]) == ("CallEnded", "2026-11-21T12:00:09Z")


@pytest.mark.parametrize("kind", list(Kind), ids=str)
async def test_anything_can_be_made_to_happen_now(sandbox_asgi: Asgi, kind: Kind) -> None:
    """Every kind of happening works at once and is noted in the call's truth."""
    call = sandbox_asgi.call()
    account = await control(sandbox_asgi, "POST", f"/calls/{call.voice_id}/now", {"kind": kind})
    assert [(truth["kind"], truth["at"]) for truth in account["truth"]] == [(kind, "2026-11-21T12:00:00Z")]


async def test_operator_elsewhere_can_claim_and_assign(sandbox_asgi: Asgi) -> None:
    """A claim names the operator, and the person when there is one."""
    call = sandbox_asgi.call()
    sandbox_asgi.happen(call, Kind.CLAIMED, "op-1")
    assert (call.core_username, call.person_id) == ("op-1", None)
    sandbox_asgi.happen(call, Kind.CLAIMED, "op-2", "p-1")
    assert (call.core_username, call.person_id, call.aliases) == ("op-2", "p-1", ["cu-1-p-1"])


WRONG = {
    "no json": ("POST", "/calls", "{", 400),
    "unknown field": ("POST", "/calls", '{"institution_key": "cu-1", "phone_number": "1", "typo": 1}', 400),
    "unknown institution": ("POST", "/calls", '{"institution_key": "?", "phone_number": "1"}', 404),
    "taken id": ("POST", "/calls", '{"institution_key": "cu-1", "phone_number": "1", "voice_id": "taken"}', 400),
    "unknown call": ("GET", "/calls/unknown", "", 404),
    "unknown happening": ("POST", "/calls/taken/now", '{"kind": "flood"}', 400),
    "unknown event type": ("POST", "/push/sample", '{"institution_key": "cu-1", "type": "CallPause"}', 400),
    "no scenario": ("PUT", "/scenario", '{"is_paused": true}', 404),
}


@pytest.mark.parametrize(("method", "path", "body", "status"), WRONG.values(), ids=WRONG)
async def test_request_that_cannot_work_says_why(
    sandbox_asgi: Asgi, method: str, path: str, body: str, status: int
) -> None:
    """A wrong request is a 400 or 404 with a message and changes nothing."""
    sandbox_asgi.call(voice_id="taken")
    headers = {"Content-Type": "application/json"}
    answer = await sandbox_asgi.client.request(method, f"/control{path}", content=body, headers=headers)
    assert (answer.status_code, bool(answer.json()["error"])) == (status, True)
    assert len(sandbox_asgi.world.state.calls) == 1


async def test_tokens_can_be_made_to_lapse(sandbox_asgi: Asgi) -> None:
    """After a lapse every token is refused, as if its time were up.

    Spec: Errors 2.
    """
    headers = await sandbox_asgi.login()
    assert await control(sandbox_asgi, "POST", "/tokens/lapse") == {"lapsed": 1}
    assert (await sandbox_asgi.client.get("/external/institutions", headers=headers)).status_code == 401


async def test_push_settings_and_ignored_numbers_can_be_set(sandbox_asgi: Asgi) -> None:
    """Settings of an institution are set over HTTP."""
    await control(sandbox_asgi, "PUT", f"/institutions/{KEY}/push", {"url": "http://us/", "headers": "A: b"})
    await control(sandbox_asgi, "PUT", f"/institutions/{KEY}/ignored", [PHONE])
    child = sandbox_asgi.world.state.institutions[KEY]
    assert (child.push.url, child.push.headers, child.ignored) == ("http://us/", "A: b", [PHONE])


async def test_ledger_counts_every_request_of_a_call(sandbox_asgi: Asgi) -> None:
    """Arrived, authenticated and applied are counted per operation, whichever id was used."""
    call = sandbox_asgi.call()
    for voice_id in (call.voice_id, call.alternate_id):
        await sandbox_asgi.details(voice_id)
        await sandbox_asgi.details(voice_id, check=True)
    await sandbox_asgi.ask("POST", f"/calls/{call.alternate_id}/reject-voice")
    account = (await control(sandbox_asgi, "GET", "/ledger"))["calls"][call.voice_id]
    assert account["tally"]["arrived"] == {"read": 2, "check": 2, "reject_voice": 1}
    assert account["tally"]["authenticated"] == {"read": 2, "check": 2, "reject_voice": 1}
    assert account["tally"]["applied"] == {"read": 2, "check": 2}


async def test_ledger_keeps_arrivals_in_order_with_both_clocks(sandbox_asgi: Asgi) -> None:
    """Each arrival has its number, its wall time and its monotonic time."""
    call = sandbox_asgi.call()
    await sandbox_asgi.details(call.voice_id)
    sandbox_asgi.advance(3)
    await sandbox_asgi.details(call.voice_id, check=True)
    report = await control(sandbox_asgi, "GET", "/ledger?arrivals=true")
    first, second = report["calls"][call.voice_id]["arrivals"]
    assert (first["operation"], second["operation"]) == ("read", "check")
    assert first["number"] < second["number"]
    assert second["monotonic_s"] - first["monotonic_s"] == 3
    assert (second["at"], second["requested_by"]) == ("2026-11-21T12:00:03Z", "bot")


async def test_ledger_says_when_a_result_first_existed(sandbox_asgi: Asgi) -> None:
    """The truth of a call has the instant of each result, whether or not it was ever asked for."""
    call = sandbox_asgi.call(Happening(Kind.MISMATCH, 2), Happening(Kind.GREEN, 7.5))
    sandbox_asgi.advance(60)
    truth = (await control(sandbox_asgi, "GET", f"/calls/{call.voice_id}"))["truth"]
    assert [(item["kind"], item["at"]) for item in truth] == [
        ("mismatch", "2026-11-21T12:00:02Z"),
        ("green", "2026-11-21T12:00:07.500000Z"),
    ]


async def test_summary_finds_what_must_not_be(sandbox_asgi: Asgi) -> None:
    """Too many checks, a second enroll or reject past authentication and unknown ids are counted."""
    call = sandbox_asgi.call()
    for _ in range(21):
        await sandbox_asgi.details(call.voice_id, check=True)
    for _ in range(2):
        await sandbox_asgi.enroll(call.voice_id)
        await sandbox_asgi.ask("POST", f"/calls/{call.voice_id}/reject-voice")
    await sandbox_asgi.details("forged")
    summary = await control(sandbox_asgi, "GET", "/summary")
    assert (summary["most_checks_arrived"], summary["checks_over_budget"]) == (21, 1)
    assert (summary["enrolled_twice"], summary["rejected_twice"], summary["unknown_ids"]) == (1, 1, 1)


async def test_repeat_after_a_401_is_no_second_enroll(sandbox_asgi: Asgi) -> None:
    """Only what passed authentication counts as a second enroll.

    Spec: Errors 2.
    """
    call = sandbox_asgi.call()
    sandbox_asgi.sandbox.faults.add(Fault(target="enroll", action=Action.UNAUTHORIZED, times=1))
    for _ in range(2):
        await sandbox_asgi.enroll(call.voice_id)
    summary = await control(sandbox_asgi, "GET", "/summary")
    assert (summary["requests"]["arrived"]["enroll"], summary["enrolled_twice"]) == (2, 0)


async def test_requests_that_name_no_call_are_kept_apart(sandbox_asgi: Asgi) -> None:
    """Logins and listings are listed with their times."""
    await sandbox_asgi.queue()
    arrivals = await control(sandbox_asgi, "GET", "/arrivals")
    assert [arrival["operation"] for arrival in arrivals] == ["token", "queue"]


@pytest.mark.parametrize(("origin", "status"), [("http://evil.example", 403), ("http://sandbox", 200), (None, 200)])
async def test_other_sites_cannot_steer_it(sandbox_asgi: Asgi, origin: str | None, status: int) -> None:
    """A browser's request on behalf of another site is refused."""
    headers = {"Origin": origin} if origin else {}
    answer = await sandbox_asgi.client.post("/control/tokens/lapse", headers=headers)
    assert answer.status_code == status


async def test_ledger_says_for_how_long_the_queue_showed_a_call(sandbox_asgi: Asgi) -> None:
    """The time begins with the listing and ends with the call; a number on the ignore list was never shown."""
    sandbox_asgi.sandbox.faults.add(Fault(target="listing", latency_s=3, times=1))
    late = sandbox_asgi.call(Happening(Kind.END, 10))
    ignored = sandbox_asgi.call(phone_number="5550999999")
    sandbox_asgi.world.state.institutions[KEY].ignored = ["5550999999"]
    sandbox_asgi.advance(2)
    assert (await control(sandbox_asgi, "GET", f"/calls/{late.voice_id}"))["listed_s"] == 0
    sandbox_asgi.advance(20)
    accounts = (await control(sandbox_asgi, "GET", "/ledger"))["calls"]
    assert (accounts[late.voice_id]["listed_s"], accounts[ignored.voice_id]["listed_s"]) == (7, 0)


async def test_ledger_holds_no_personal_data(sandbox_asgi: Asgi) -> None:
    """The ledger can be kept and shown: no candidate's data, no token is in it."""
    sandbox_asgi.call()
    await sandbox_asgi.queue()
    written = json.dumps(await control(sandbox_asgi, "GET", "/ledger?arrivals=true"))
    assert "fake-" not in written
    assert (sandbox_asgi.headers or {})["SsoToken"] not in written
