"""Alerts with real processes: two web processes, no worker, then one; a receiver of apprise's json on this machine."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from callkeeper.demo import demonstration, service_environment
from tests.acceptance.stack import until

SECRET = "canary-alert-0123456789"


class Chat:
    """Takes alerts."""

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
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://user:{SECRET}@127.0.0.1:{self.server.server_address[1]}/"

    def told(self, about: str) -> list[str]:
        """Return the titles that name something."""
        return [each["title"] for each in self.got if about in each["title"]]


def test_no_worker_is_told_once_and_that_one_is_back_once(tmp_path: Path) -> None:
    """No worker: one message, from two web processes. A worker comes: one message that it is over. No address in any log."""
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
