"""Alerts with real processes that miss a worker or a web process, and a local receiver."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx

from callkeeper.calls.store.keys import Keys
from tests.acceptance.troubles import web_dead
from tests.harness.processes import stack
from tests.http_servers import serving
from tests.waiting import until

SECRET = "canary-alert-0123456789"


class Chat:
    """What was received of alerts."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Receive an alert."""
        self.got.append(json.loads(request.content))
        return httpx.Response(200)

    def told(self, about: str) -> list[str]:
        """Return the received titles that contain a text."""
        return [each["title"] for each in self.got if about in each["title"]]


def test_missing_worker_and_its_return_are_alerted_once_each(tmp_path: Path) -> None:
    """Two web processes send one alert that no worker is alive, and one when it is over; no log has an address.

    An address that takes the connection and never answers holds up no push, and the next address for 20 s at most.
    """
    chat = Chat()

    with serving(chat) as port, socket.create_server(("127.0.0.1", 0)) as stuck:
        silent = f"json://user:{SECRET}@127.0.0.1:{stuck.getsockname()[1]}/?rto=600"
        wanted = {"CALLKEEPER_ALERT_URLS": f"{silent}, json://user:{SECRET}@127.0.0.1:{port}/, slak://{SECRET}"}
        with stack(tmp_path, workers=0, web_environ=wanted) as running:
            running.start("web")
            until(lambda: chat.told("No worker is alive"), 60, "the alert")
            running.control("POST", "/push/sample", {"institution_key": "cu-1"})
            until(lambda: running.redis.exists(Keys().sample("cu-1")), 5, "the sample")
            running.start("worker")
            until(lambda: chat.told("over: No worker"), 60, "that it is over")
            logs = "".join(member.log.read_text() for member in running.demo.fleet.members)
    assert chat.told("No worker") == ["callkeeper: No worker is alive", "callkeeper: over: No worker is alive"]
    assert chat.got[0]["type"] == "failure"
    assert "incident-no-worker" in chat.got[0]["message"]
    assert "not an address of apprise" in logs
    assert "3 (slak)" in logs
    assert "no answer within 20 s" in logs
    assert SECRET not in logs


def test_missing_web_process_and_its_return_are_alerted_by_a_worker(tmp_path: Path) -> None:
    """The board is gone then, and calls go on. A message says so, and none blames the push settings."""
    chat = Chat()

    with serving(chat) as port:
        wanted = {"CALLKEEPER_ALERT_URLS": f"json://127.0.0.1:{port}/"}
        with stack(tmp_path, workers=1, worker_environ=wanted) as running:
            with web_dead(running):
                until(lambda: chat.told("No web process is alive"), 60, "the alert")
            until(lambda: chat.told("over: No web process"), 60, "that it is over")
    assert chat.told("") == ["callkeeper: No web process is alive", "callkeeper: over: No web process is alive"]
    assert "incident-no-web" in chat.got[0]["message"]
    assert "workers find their calls in the queue some seconds later" in chat.got[0]["message"]
