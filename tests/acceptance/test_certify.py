"""``callkeeper service certify`` on a running installation: a supervised call, its verdicts and its reports."""

import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from callkeeper.app.certification.verdicts import PROMISES
from callkeeper.app.cli import main
from callkeeper_sandbox.demo.fleet import plain_environment
from callkeeper_sandbox.service import population
from tests.harness.processes import KEY, Stack, end, stack
from tests.terminals import Terminal
from tests.waiting import until

WATCHING = {"CALLKEEPER_RULES": "watch-only"}
CALLER = population.phone(KEY, population.SHARED)


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run an installation in watch-only mode."""
    with stack(tmp_path_factory.mktemp("certify"), workers=1, worker_environ=WATCHING) as running:
        until(lambda: "cu-1" in str(certify(running, "--wait", "1").output), 30, "the institutions to be known")
        yield running


def certify(running: Stack, *options: str, redis: str | None = None) -> Result:
    """Run the command without a terminal; nothing is typed."""
    environ = {**running.demo.environ, **WATCHING} | ({} if redis is None else {"REDIS_URL": redis})
    output = [] if "--output" in options else ["--output", str(running.data / "certificate")]
    return CliRunner().invoke(main, ["service", "certify", *options, *output], env=environ)


def states(path: Path) -> dict[str, str]:
    """Return the verdict of each promise in a report."""
    return {each["id"]: each["state"] for each in json.loads(path.read_text())["promises"]}


def begin(running: Stack, *script: dict[str, object]) -> dict[str, Any]:
    """Start a call of a member."""
    body = {"institution_key": KEY, "phone_number": CALLER, "script": script}
    account: dict[str, Any] = running.control("POST", "/calls", body)
    return account


def test_person_at_a_terminal_certifies_a_silent_call(watching: Stack, tmp_path: Path) -> None:
    """Whoever does what the terminal says gets a certificate in which every required promise holds.

    The reports name neither the call nor its caller. The settled call can be certified again by its id.
    """
    environ = {**plain_environment(), **watching.demo.environ, **WATCHING, "PATH": os.environ["PATH"]}
    command = (sys.executable, "-m", "callkeeper", "service", "certify", "--institution", KEY)
    with Terminal(*command, cwd=tmp_path, environ=environ) as terminal:
        terminal.wait_for("send a sample", 20)
        watching.control("POST", "/push/sample", {"institution_key": KEY})
        terminal.press_enter()
        terminal.wait_for("Get ready to call", 20)
        terminal.press_enter()
        terminal.wait_for("Call now", 20)
        call = begin(watching, end(300))
        terminal.wait_for("Assign the call", 20)
        claimed = {"kind": "claimed", "text": "operator-2", "person_id": "p-7000"}
        watching.control("POST", f"/calls/{call['voice_id']}/now", claimed)
        terminal.press_enter()
        terminal.wait_for("Hang up", 60)
        watching.control("POST", f"/calls/{call['voice_id']}/now", {"kind": "end"})
        terminal.press_enter()
        terminal.wait_for("Every required promise holds.", 60)
        assert terminal.exit_code(10) == 0
        assert f"Found: {call['voice_id']}" in terminal.text
    reports = [tmp_path / "certificate.md", tmp_path / "certificate.json"]
    assert {name for name, state in states(reports[1]).items() if state == "not_seen"} == {"outcomes"}
    assert "| A silent caller is not authenticated | holds |" in reports[0].read_text()
    tells = {call["voice_id"], call["alternate_id"], CALLER, CALLER[-4:], "p-7000", "operator-2"}
    assert [text for text in tells for path in reports if text in path.read_text()] == []
    again = certify(watching, "--voice-id", call["voice_id"], "--output", str(tmp_path / "again"))
    assert (again.exit_code, states(tmp_path / "again.json")) == (0, states(reports[1]))
    assert re.search(r"CallEnd came at [\d:]+, [\d.]+ s (before|after) Enter was pressed", reports[0].read_text())
    spoke = certify(watching, "--voice-id", call["voice_id"], "--spoke", "--output", str(tmp_path / "spoke"))
    assert (spoke.exit_code, states(tmp_path / "spoke.json")["silence"]) == (0, "not_seen")
    assert watching.arrived(call).keys() <= {"check", "read"}


def test_faults_of_an_installation_are_verdicts(watching: Stack) -> None:
    """With a wrong header in the dashboard the pushes do not hold, with the remedy, and the exit code is 1."""
    url, right = f"{watching.demo.web_url}/push", watching.demo.environ["CALLKEEPER_PUSH_HEADERS"]
    wrong = "X-Push-Key: typed-wrongly-0123456789"
    watching.control("PUT", f"/institutions/{KEY}/push", {"url": url, "headers": wrong})
    starting = threading.Timer(2.0, begin, (watching, end(14)))
    starting.start()
    try:
        result = certify(watching, "--institution", KEY, "--yes", "--wait", "60")
    finally:
        starting.join()
        watching.control("PUT", f"/institutions/{KEY}/push", {"url": url, "headers": right})
    found = states(watching.data / "certificate.json")
    assert (result.exit_code, found["push-start"], found["found"]) == (1, "does_not_hold", "holds")
    assert (found["settled"], found["checks"], found["nothing-sent"]) == ("holds", "not_seen", "holds")
    assert "refused for a wrong or missing header" in result.output
    assert "-> copy CALLKEEPER_PUSH_HEADERS exactly into the dashboard" in result.output
    assert "Do not switch effects on yet: " in result.output


def test_call_that_never_comes_is_a_broken_promise(watching: Stack) -> None:
    """If no call comes, the report says so, and nothing is said of a call."""
    result = certify(watching, "--institution", KEY, "--yes", "--wait", "1")
    found = states(watching.data / "certificate.json")
    assert (result.exit_code, found["found"], found["checks"]) == (1, "does_not_hold", "not_seen")
    assert list(found) == [name for name, _, _ in PROMISES]


def test_live_rules_are_refused(watching: Stack) -> None:
    """If one worker has a live rule that enrolls or rejects, nothing begins, and the message says so."""
    live = watching.start("worker", environ={"CALLKEEPER_RULES": "demo"})
    try:
        result = until(
            lambda: _refused(certify(watching, "--institution", KEY, "--yes", "--wait", "1")), 30, "a refusal"
        )
    finally:
        live.stop()
    assert (
        "Error: NOT in watch-only mode: at cu-1 these rules are live, and enroll or reject: 'distrusted'"
        in result.output
    )
    assert "Start the workers with CALLKEEPER_RULES=watch-only" in result.output


def _refused(result: Result) -> Result | None:
    return result if result.exit_code == 2 else None


def test_what_cannot_be_run_exits_with_2(watching: Stack) -> None:
    """Without a worker, a call, an institution, a terminal or a place for the report, the message says what to do."""
    empty = f"{watching.demo.redis_url.rpartition('/')[0]}/9"
    for options, words in (
        (("--institution", "cu-9"), "callkeeper knows no institution with the key 'cu-9'"),
        ((), "give --institution: one of bank-1, cu-1, cu-2"),
        (("--voice-id", "v-nobody"), "nothing is known of a call 'v-nobody'"),
        (("--institution", KEY), "Without a terminal, give --yes or --voice-id ID"),
        (("--institution", KEY, "--output", "/nowhere/x"), "the report cannot be written in /nowhere"),
    ):
        result = certify(watching, *options)
        assert (result.exit_code, words in result.output) == (2, True), result.output
    for redis, words in ((empty, "callkeeper knows no institution yet"), ("redis://127.0.0.1:1", "does not answer")):
        result = certify(watching, "--yes", redis=redis)
        assert (result.exit_code, words in result.output) == (2, True), result.output
