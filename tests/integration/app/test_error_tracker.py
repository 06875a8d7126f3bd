"""docs/examples/error_tracker.py as a process: errors of a web process reach a tracker as well as the log."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.rollout.test_extras import WEB, eventually

EXAMPLE = Path(__file__).parents[3] / "docs/examples/error_tracker.py"


@pytest.fixture
def tracker() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Run a tracker; return its address, and what it got."""
    taken: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/events", taken
    server.shutdown()
    serving.join()
    server.server_close()


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
            until_s = time.monotonic() + 20
            while not taken:
                assert time.monotonic() < until_s, said.read_text()
                time.sleep(0.05)
        finally:
            web.terminate()
            web.wait(20)
    assert [(line["event"], line["institution"]) for line in taken] == [("push_not_recorded", "cu-1")]
    assert taken[0]["trace_id"] in said.read_text()
    assert "5550100001" not in json.dumps(taken)
