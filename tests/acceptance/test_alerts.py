"""Alerts with real processes: two web processes without a worker, then with one, and a local receiver."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from callkeeper_sandbox.demo.demonstration import demonstration, service_environment
from tests.waiting import until

SECRET = "canary-alert-0123456789"


class Chat:
    """Receives alerts."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                chat.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://user:{SECRET}@127.0.0.1:{self.server.server_address[1]}/"

    def told(self, about: str) -> list[str]:
        """Return the received titles that contain a text."""
        return [each["title"] for each in self.got if about in each["title"]]


def test_missing_worker_and_its_return_are_alerted_once_each(tmp_path: Path) -> None:
    """Two web processes send one alert that no worker is alive, and one when it is over; no log has an address."""
    chat = Chat()
    serving = threading.Thread(target=chat.server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    wanted = {"CALLKEEPER_ALERT_URLS": f"{chat.url}, slak://{SECRET}"}
    try:
        with demonstration(tmp_path, workers=0, seed=1, scenario="none", web_environ=wanted) as demo:
            demo.fleet.start("web-2", "web", "--host", "127.0.0.1", "--port", "0", environ={**demo.environ, **wanted})
            until(lambda: chat.told("No worker is alive"), 60, "the alert")
            environ = {**demo.environ, **wanted, **service_environment(demo.service_url)}
            demo.fleet.start("worker-1", "worker", environ=environ)
            until(lambda: chat.told("over: No worker"), 60, "that it is over")
            logs = "".join(member.log.read_text() for member in demo.fleet.members)
        assert chat.told("No worker") == ["callkeeper: No worker is alive", "callkeeper: over: No worker is alive"]
        assert chat.got[0]["type"] == "failure"
        assert "incident-no-worker" in chat.got[0]["message"]
        assert "alert_address_wrong" in logs
        assert "2 (slak)" in logs
        assert SECRET not in logs
    finally:
        chat.server.shutdown()
        serving.join()
        chat.server.server_close()
