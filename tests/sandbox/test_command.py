"""``callkeeper sandbox`` as a process."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from callkeeper.app.cli import main
from tests.waiting import until


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command and yield the process and its address."""
    command = [sys.executable, "-m", "callkeeper", "sandbox", *arguments]
    with subprocess.Popen(  # noqa: S603  (our own interpreter with our own arguments)
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().removeprefix("sandbox listening on ").strip()
        finally:
            process.kill()


@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, id="SIGTERM"), pytest.param(signal.SIGINT, id="SIGINT", marks=pytest.mark.night)],
)
def test_command_goes_on_after_a_stop_with_what_it_had(tmp_path: Path, number: signal.Signals) -> None:
    """A stopped process exits cleanly with its state written, and the next one has the same call."""
    state = ("--scenario", "none", "--state-file", str(tmp_path / "state.json"))
    with running(*state) as (process, url):
        body = {"institution_key": "cu-1", "phone_number": "1", "voice_id": "v-1"}
        httpx.post(f"{url}/control/calls", json=body, trust_env=False).raise_for_status()
        process.send_signal(number)
        output, _ = process.communicate(timeout=10)
        assert (process.returncode, output) == (0, "")
    with running(*state) as (process, url):
        assert httpx.get(f"{url}/control/calls/v-1", trust_env=False).json()["voice_id"] == "v-1"


def test_command_stops_while_a_request_hangs() -> None:
    """A request that hangs delays a stop by a second or two, not more."""
    with running("--scenario", "none") as (process, url), httpx.Client(base_url=url, trust_env=False) as client:
        client.post("/control/faults", json={"target": "institutions", "action": "hang"}).raise_for_status()
        with pytest.raises(httpx.ReadTimeout):
            client.get("/external/institutions", timeout=0.2)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=5)
        assert (process.returncode, output) == (0, "")


def test_command_takes_credentials_and_seed() -> None:
    """Only the given credentials log in, and the scenario's calls come by themselves."""
    own = ("--access-token", "a", "--email", "e", "--password", "p", "--seed", "3")
    with running(*own) as (_, url):
        login = {"email": "e", "password": "p"}
        answer = httpx.post(
            f"{url}/external/token/request", json=login, headers={"accessToken": "a"}, trust_env=False
        ).json()
        assert answer["institutionKeys"] == ["cu-1", "cu-2", "bank-1"]
        assert httpx.get(f"{url}/control/summary", trust_env=False).json()["calls"] >= 1


def test_command_brings_calls_as_often_as_told() -> None:
    """With a short gap a call comes every few milliseconds."""
    with running("--gap", "0.02") as (_, url), httpx.Client(base_url=url, trust_env=False) as client:
        until(lambda: client.get("/control/summary").json()["calls"] >= 20, 10, "twenty calls")


def test_command_refuses_a_broken_state_file(tmp_path: Path) -> None:
    """A state file that cannot be read stops the start with its name."""
    (tmp_path / "state.json").write_text("{")
    result = CliRunner().invoke(main, ["sandbox", "--state-file", str(tmp_path / "state.json")])
    assert result.exit_code == 1
    assert "state.json cannot be read" in result.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--push-url", "foo"),
            "--push-url: must be an http or https address with a host, such as http://127.0.0.1:8000/",
        ),
        (("--push-url", "http://[x/push"), "--push-url: must be an http or https address"),
        (
            ("--push-url", "http://h/push", "--push-headers", "X-Key: a; foo"),
            "--push-headers: must be `Header: value; Header2: value2`",
        ),
        (("--push-headers", "X-Key: a"), "--push-headers: needs --push-url"),
        (("--state-file", "/missing/x"), "--state-file: /missing is no folder that can be written; create it, or"),
    ],
)
def test_command_refuses_options_that_it_cannot_use(options: tuple[str, ...], said: str) -> None:
    """Nothing is started, no folder is made, and the error names the option and what belongs there."""
    result = CliRunner().invoke(main, ["sandbox", "--variant", "no-such-variant", *options])
    assert (result.exit_code, f"Invalid value for {said}" in result.output) == (2, True), result.output
    assert not Path("/missing").exists()


def test_command_names_the_port_that_is_in_use() -> None:
    """The README's three terminals need three free ports: the error says which one is not."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["sandbox", "--port", port])
    assert (result.exit_code, result.output) == (
        1,
        f"Error: cannot listen on 127.0.0.1:{port}: Address already in use\n",
    )


def test_help_says_how_to_script_it() -> None:
    """The help shows the page, the interface, the control interface and examples."""
    output = CliRunner().invoke(main, ["sandbox", "--help"]).output
    parts = ("/external", "/control/calls", "/control/faults", "/control/ledger")
    assert [part for part in parts if part not in output] == []
