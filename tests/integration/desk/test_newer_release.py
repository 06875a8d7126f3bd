"""What the board, the desk, the doctor and the commands say of a call that a newer release wrote."""

import pytest

from callkeeper.calls.record_storage import NEWER
from callkeeper_sandbox.service.state import Call, Happening, Kind
from tests.harness.desk import BoardRig
from tests.harness.virtual_time import KEY
from tests.integration.app.test_calls_commands import callkeeper
from tests.integration.app.test_doctor import environment, findings
from tests.integration.calls.store.test_claims_newer_records import a_minute_later
from tests.sandbox_fixtures import ServedSandbox

REMEDY = "roll forward, or start a worker of that release"


pytestmark = pytest.mark.usefixtures("begun_now")


async def another(rig: BoardRig) -> Call:
    """Return a call that this release can read."""
    return await rig.begin_call(Happening(Kind.END, 300), run_s=5)


async def test_board_and_desk_name_the_remedy(rig: BoardRig) -> None:
    """The board has an alarm, the call's page and the API answer 503, and other calls are shown as ever."""
    call = await a_minute_later(rig)
    other = await another(rig)
    shown = await rig.page()
    assert "Written by a newer release" in shown
    assert "Roll forward, or start a worker of that release." in shown
    assert f"calls/{KEY}/{other.voice_id}" in shown
    assert REMEDY in await rig.page(f"/calls/{KEY}/{call.voice_id}", 503)
    answer = await rig.http.get(f"/calls/{KEY}/{call.voice_id}")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    listed = (await rig.http.get("/calls")).json()["calls"]
    assert [each["voice_id"] for each in listed] == [other.voice_id]
    said = await rig.say(call, "distrusted", reason="sounds wrong")
    assert said.status_code == 503


async def test_doctor_and_commands_name_the_remedy(
    rig: BoardRig, redis_url: str, sandbox_server: ServedSandbox
) -> None:
    """The doctor warns, `calls list` names call and remedy, and commands about this call end with one line."""
    call = await a_minute_later(rig)
    other = await another(rig)
    found = (await findings(environment(redis_url, sandbox_server)))["attention"]
    assert REMEDY in f"{found.detail} {found.remedy}"
    listed = await callkeeper(redis_url, "calls", "list")
    assert listed.exit_code == 0, listed.output
    assert " ".join(listed.output.split()).endswith(f"needs a person: {KEY} {call.voice_id}: {NEWER}")
    assert other.voice_id[:8] in listed.output
    questions: tuple[tuple[str, ...], ...] = (("explain",), ("resolve", "--seen", "--operator", "ann"))
    for words in questions:
        shown = await callkeeper(redis_url, "calls", *words, call.voice_id)
        assert (shown.exit_code, REMEDY in shown.output, "Traceback" in shown.output) == (1, True, False), shown.output
    reports: tuple[tuple[str, ...], ...] = (("calls", "list", other.voice_id), ("rules", "report", "--since", "1d"))
    for words in reports:
        shown = await callkeeper(redis_url, *words)
        assert shown.exit_code == 0, shown.output
