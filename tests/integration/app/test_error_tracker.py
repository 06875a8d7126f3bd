"""docs/examples/error_tracker.py as a process: errors of a web process reach a tracker as well as the log."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http_servers import serving
from tests.rollout.test_extras import WEB, eventually
from tests.waiting import until

EXAMPLE = Path(__file__).parents[3] / "docs/examples/error_tracker.py"


@pytest.fixture
def tracker() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a tracker; return its address, and what it got."""
    taken: list[dict[str, Any]] = []

    def take(request: httpx.Request) -> httpx.Response:
        taken.append(json.loads(request.content))
        return httpx.Response(204)

    with serving(take) as port:
        yield f"http://127.0.0.1:{port}/events", taken


def test_tracker_gets_the_errors_of_a_process(tracker: tuple[str, list[dict[str, Any]]], tmp_path: Path) -> None:
    """A push that cannot be recorded is reported with the trace that the log has, and without the caller's number."""
    url, taken = tracker
    environ = {"PATH": os.environ["PATH"], "TRACKER_URL": url, **WEB}
    said = tmp_path / "log"
    with said.open("w") as sink:
        command = [sys.executable, str(EXAMPLE), "web", "--port", "0"]
        web = subprocess.Popen(command, env=environ, stdout=sink, stderr=sink)  # noqa: S603  (our own)
        try:
            address = eventually(said, r'"url":"([^"]+)"')[1]
            push = {"Type": "CallStart", "InstitutionKey": "cu-1", "VoiceId": "v-1", "PhoneNumber": "5550100001"}
            name, _, value = WEB["CALLKEEPER_PUSH_HEADERS"].partition(": ")
            assert httpx.post(f"{address}/push", json=push, headers={name: value}, trust_env=False).status_code == 503
            until(lambda: taken, 20, "the report")
        finally:
            web.terminate()
            web.wait(20)
    assert [(line["event"], line["institution"]) for line in taken] == [("push_not_recorded", "cu-1")]
    assert taken[0]["trace_id"] in said.read_text()
    assert "5550100001" not in json.dumps(taken)
