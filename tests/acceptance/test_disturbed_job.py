"""The main job during disturbances, with real processes, Redis, RQ and HTTP."""

import json

from callkeeper.calls.rules import load_rules
from tests.harness.processes import KEY, Stack, end
from tests.waiting import until


def test_main_job_survives_a_thousand_repetitions_of_a_push(running: Stack) -> None:
    """A thousand duplicates of an event lead to one assign, and to no more checks than one event."""
    call = running.call(end(7))
    payload = {
        "Type": "CallStart",
        "StartDateTime": call["started_at"],
        "VoiceId": call["voice_id"],
        "AlternateVoiceId": call["alternate_id"],
        "PhoneNumber": call["phone_number"],
        "IsTest": None,
        "InstitutionKey": KEY,
    }
    headers = dict([_push_header(running)])
    answers = [
        running.http.post(f"{running.demo.web_url}/push", json=payload, headers=headers).status_code
        for _ in range(1000)
    ]
    assert set(answers) == {202}
    record = running.settled(call)
    counts = running.arrived(call)
    assert counts["assign"] == 1
    assert counts["check"] <= 6, "the demo rules check at 2, 4, 6, 8 s"
    assert record.plan.checks_used >= counts["check"]


def _push_header(running: Stack) -> tuple[str, str]:
    key = json.loads((running.data / "secrets.json").read_text())["push_key"]
    return "X-Push-Key", key


def test_main_job_delays_no_call_because_of_a_hung_request(running: Stack) -> None:
    """While a check of one call hangs, the checks of another are made on time."""
    hung = running.call(end(15))
    until(lambda: running.arrived(hung).get("assign"), 10, "the assign")
    running.fault("check", "hang", voice_id=hung["voice_id"], times=1)
    until(lambda: running.arrived(hung).get("check"), 10, "the check that hangs")
    other = running.call(end(9))
    record = running.settled(other)
    checked = [entry for entry in running.trail(other) if entry.what == "checked"]
    assert record.plan.watch_from is not None
    assert checked, "the other call was not checked"
    due_s = dict(enumerate(load_rules("demo").schedule.paced(record.voice_id).at_s, 1))
    late_s = [(e.at - record.plan.watch_from).total_seconds() - due_s[e.n] for e in checked if e.n in due_s]
    assert max(late_s) < 1.5, late_s  # the request hangs for longer than all checks take
