"""Pauses with the whole stack: a mistyped institution is refused, and a pause holds a reject until it ends."""

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from callkeeper.app.cli import main
from callkeeper.calls.store.keys import Keys
from tests.harness.processes import KEY, Stack, end, stack
from tests.waiting import until

WHY = ("--reason", "core migration", "--operator", "jane")
PROVIDER = {
    "CALLKEEPER_OIDC_ISSUER": "http://127.0.0.1:1",
    "CALLKEEPER_OIDC_CLIENT_ID": "callkeeper",
    "CALLKEEPER_OIDC_CLIENT_SECRET": "canary-client-5d0b7f2c91-4c07a65e93d2",
    "CALLKEEPER_PUBLIC_URL": "https://callkeeper.example",
}
HARBOUR = "cu-1 (Harbour Example Credit Union)"


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Run a stack whose processes each have a setting that names an unknown institution."""
    data = tmp_path_factory.mktemp("pause")
    web = {**PROVIDER, "CALLKEEPER_OIDC_ROLES": "staff=viewer@CU-2"}
    worker = {"CALLKEEPER_REQUESTED_BY": "bot, CU-1=svc1", "CALLKEEPER_RULES": "demo"}
    with stack(data, workers=1, web_environ=web, worker_environ=worker) as running:
        until(lambda: running.redis.hlen(Keys().standings), 10, "the service's list of institutions")
        yield running


def type_in(running: Stack, *words: str) -> Result:
    """Run a command with the installation's settings."""
    return CliRunner().invoke(main, list(words), env=dict(running.demo.environ))


def written(running: Stack) -> tuple[dict[bytes, bytes], int]:
    """Return the pauses in Redis, and the length of their history."""
    return running.redis.hgetall(Keys().pause), running.redis.llen(Keys().pause_history)


def test_pause_holds_a_reject_until_it_is_resumed(paused: Stack) -> None:
    """A pause of ``CU-1`` is refused and stores nothing; one of ``cu-1`` holds a reject until it is resumed."""
    call = paused.call(end(300))
    until(lambda: paused.arrived(call).get("assign"), 15, "the assign")
    before = written(paused)
    refused = type_in(paused, "pause", "--institution", "CU-1", *WHY)
    assert (refused.exit_code, f"did you mean {HARBOUR}?" in refused.stderr) == (1, True)
    assert written(paused) == before
    held = type_in(paused, "pause", "--institution", KEY, *WHY)
    assert held.exit_code == 0, held.output
    assert f"{HARBOUR}: 1 live call" in held.output
    for kind in ("mismatch", "high_risk_device"):
        paused.control("POST", f"/calls/{call['voice_id']}/now", {"kind": kind})
    until(lambda: _is_held(paused, call), 30, "the rule's reject to be held")
    time.sleep(2)
    assert not paused.arrived(call).get("reject_voice")
    resumed = type_in(paused, "resume", "--institution", KEY, *WHY)
    assert (resumed.exit_code, resumed.output) == (0, f"resumed: {HARBOUR}\nnothing is paused\n")
    until(lambda: paused.arrived(call).get("reject_voice"), 15, "the reject after the resumption")


def _is_held(running: Stack, call: dict[str, Any]) -> bool:
    return any(entry.asked == "reject" and entry.forbidden == ("paused",) for entry in running.trail(call))


def test_pause_on_the_board_is_refused_as_on_the_command_line(paused: Stack) -> None:
    """The page shows the same error, keeps what was typed, and stores nothing."""
    user, _, password = paused.demo.admin.partition(":")
    before = written(paused)
    with httpx.Client(base_url=paused.demo.web_url, auth=(user, password), trust_env=False) as browser:
        token = re.search(r'name="form_token" value="([^"]+)"', browser.get("/board/pausing").text)
        assert token is not None
        form = {
            "form_token": token[1],
            "scope": "all",
            "institution": "CU-1",
            "because": "migration",
        }
        answer = browser.post("/board/pause", data=form)
    assert (answer.status_code, f"did you mean {HARBOUR}?" in answer.text) == (400, True)
    assert 'value="migration"' in answer.text
    assert written(paused) == before


def test_doctor_tells_a_pause_that_holds_nothing(paused: Stack) -> None:
    """The doctor names pauses and settings with unknown institutions, and says that such a pause holds no call."""
    assert type_in(paused, "pause", "--institution", "cu-11", "--force", *WHY).exit_code == 0
    told = type_in(paused, "doctor").stdout
    assert type_in(paused, "resume", "--institution", "cu-11", *WHY).exit_code == 0
    assert "it holds no call now: callkeeper knows no institution with the key 'cu-11'; did you mean cu-1" in told
    for setting, key in (("CALLKEEPER_OIDC_ROLES", "CU-2"), ("CALLKEEPER_REQUESTED_BY", "CU-1")):
        assert (
            f"fault    institutions {setting}: the account may not manage '{key}'; did you mean {key.lower()}" in told
        )


@pytest.mark.parametrize(("member", "key"), [("web", "CU-2"), ("worker-1", "CU-1")])
def test_start_warns_of_a_setting_that_names_an_unknown_institution(paused: Stack, member: str, key: str) -> None:
    """Each process logs once which of its settings names an unknown institution."""
    log = paused.member(member).log
    until(lambda: "institution_unknown" in log.read_text(), 20, "the warning")
    [line] = [line for line in log.read_text().splitlines() if "institution_unknown" in line]
    assert f'"{key}"' in line
    assert f'"{key.lower()}"' in line
