"""``callkeeper web`` as a process on a real Redis."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from redis import Redis

from callkeeper.app.cli import main
from callkeeper.app.settings import WebSettings
from callkeeper.calls.store.job_queue import calls_queue
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.fleet import ManagedProcess
from tests.harness.fork_server import ForkingFleet
from tests.harness.processes import start_web, web_url

PUSH_KEY = "canary-push-1f8b32d9-4c07a65e93d2"
LOGIN = ("ops", "canary-admin-0123456-4c07a65e93d2")
EVENT = {"Type": "CallStart", "VoiceId": "voice-1", "InstitutionKey": "cu-1", "PhoneNumber": "+15550100"}
AUTHENTIC = {"X-Push-Key": PUSH_KEY}


class Web:
    """A running web process."""

    def __init__(self, member: ManagedProcess) -> None:
        self.member = member
        self.client = httpx.Client(base_url=web_url(member), trust_env=False)

    def push(self) -> httpx.Response:
        """Send one event."""
        return self.client.post("/push", json=EVENT, headers=AUTHENTIC)

    def end(self, number: signal.Signals) -> list[dict[str, Any]]:
        """Send a signal and return everything that was logged."""
        self.member.process.send_signal(number)
        self.member.process.wait(10)
        return [json.loads(line) for line in self.member.log.read_text().splitlines()]


@pytest.fixture
def start(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Web]]:
    """Return a function that starts a web process, on the real Redis unless told otherwise."""
    with ForkingFleet(tmp_path / "logs") as fleet, ExitStack() as clients:

        def start(redis_url: str = redis_url, **environ: str) -> Web:
            headers = {"CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {PUSH_KEY}"}
            web = Web(start_web(fleet, redis_url, name=f"web-{len(fleet.members)}", environ={**headers, **environ}))
            clients.enter_context(web.client)
            return web

        yield start


def test_web_takes_an_event_to_the_queue(start: Callable[..., Web], redis_url: str) -> None:
    """A pushed event is stored in Redis, and its ``advance`` job is in a standard queue, readable at /rq."""
    web = start(CALLKEEPER_ADMIN=":".join(LOGIN))
    assert web.push().status_code == 202
    lines = web.end(signal.SIGTERM)  # the job is enqueued after the answer, and before the process ends
    with Redis.from_url(redis_url) as redis:
        assert redis.zcard(Keys().events) == 1
        [job] = calls_queue(redis).jobs
    described = "CallStart voice-1 of cu-1: waiting for a worker"
    assert (job.func_name, job.description) == ("workers.jobs.advance", described)
    assert [line["event"] for line in lines] == ["web_listening", "push_accepted", "web_stopped"]
    shown = start(CALLKEEPER_ADMIN=":".join(LOGIN)).client.get(f"/rq/0/data/job/{job.id}.json", auth=LOGIN).json()
    assert (shown["description"], shown["status"]) == (described, "queued")


def test_accepted_events_survive_a_kill(start: Callable[..., Web], redis_url: str) -> None:
    """Promise 1, C5: every event answered with 202 is in Redis after a kill -9."""
    web = start()
    event_ids = {web.push().json()["event_id"] for _ in range(5)}
    web.end(signal.SIGKILL)
    with Redis.from_url(redis_url) as redis:
        stored = {json.loads(entry)["id"] for entry in redis.zrange(Keys().events, 0, -1)}
    assert stored == event_ids


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_web_ends_cleanly(number: signal.Signals, start: Callable[..., Web]) -> None:
    """A signal ends the process within ten seconds, with status 0 and ``web_stopped`` as the last log line."""
    web = start()
    web.push()
    assert web.end(number)[-1]["event"] == "web_stopped"
    assert web.member.process.wait() == 0


def test_web_answers_health_checks(start: Callable[..., Web]) -> None:
    """Liveness and readiness are separate, and neither answer names the server's software."""
    web = start()
    for path, expected in (("/healthz", {"healthy": True}), ("/readyz", {"ready": True, "service": "there"})):
        answer = web.client.get(path)
        assert (answer.status_code, answer.json()) == (200, expected)
        assert "server" not in answer.headers


def test_web_without_redis_is_alive_and_not_ready(start: Callable[..., Web]) -> None:
    """C1: without Redis the process is alive but not ready, and answers an event with 503 and a log line."""
    web = start("redis://127.0.0.1:1")
    assert web.client.get("/healthz").status_code == 200
    assert web.client.get("/readyz").status_code == 503
    assert web.push().status_code == 503
    assert "push_not_recorded" in {line["event"] for line in web.end(signal.SIGTERM)}


def test_web_serves_no_dashboard_without_a_login(start: Callable[..., Web]) -> None:
    """Without CALLKEEPER_ADMIN there is no dashboard; with it, the dashboard asks for the login."""
    assert start().client.get("/rq/", follow_redirects=True).status_code == 404
    web = start(CALLKEEPER_ADMIN=":".join(LOGIN))
    assert web.client.get("/rq", follow_redirects=True).status_code == 401
    assert web.client.get("/rq/", auth=LOGIN).status_code == 200


def test_web_logs_and_shows_no_secret(start: Callable[..., Web], redis_url: str) -> None:
    """Promise 6: the log and the dashboard contain no secret, and the log no caller's number."""
    web = start(CALLKEEPER_ADMIN=":".join(LOGIN))
    web.push()
    web.client.post("/push", json=EVENT, headers={"X-Push-Key": "canary-wrong"})
    page = web.client.get("/rq/", auth=LOGIN).text
    text = json.dumps(web.end(signal.SIGTERM))
    assert "canary" not in text + page
    assert "5550100" not in text


def test_web_warns_of_an_unknown_variable(start: Callable[..., Web]) -> None:
    """An unknown variable is logged at the start with the nearest known name and without its value."""
    web = start(CALLKEEPER_FORWARDED="canary")
    [line] = [line for line in web.end(signal.SIGTERM) if line["event"] == "setting_unknown"]
    assert (line["setting"], line["nearest"]) == ("CALLKEEPER_FORWARDED", "CALLKEEPER_FORWARDED_HOPS")
    assert "canary" not in json.dumps(line)


def test_web_refuses_to_start_without_its_settings() -> None:
    """A4: a missing variable ends the start with its name, the reason and an example, and no traceback."""
    environ = {name: "" for name in os.environ if name.startswith("CALLKEEPER_")} | {"REDIS_URL": ""}
    result = CliRunner(env=environ).invoke(main, ["web"])
    assert result.exit_code == 2
    for expected in ("REDIS_URL: is required", "CALLKEEPER_PUSH_HEADERS: is required", "for example: "):
        assert expected in result.output
    assert "Traceback" not in result.output


def test_web_reports_that_it_cannot_listen() -> None:
    """With an address of another machine the start fails with the reason and no traceback."""
    environ = {"REDIS_URL": "redis://127.0.0.1:1", "CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {PUSH_KEY}"}
    process = subprocess.run(
        [sys.executable, "-m", "callkeeper", "web", "--host", "192.0.2.1", "--port", "0"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert "cannot listen on 192.0.2.1:0" in process.stderr
    assert "Traceback" not in process.stderr


def test_secret_new_prints_what_the_settings_accept() -> None:
    """The printed lines for the dashboard and for the environment have the same header, and the settings accept it."""
    output = CliRunner().invoke(main, ["secret", "new"]).output
    for_dashboard, for_environ = (line for line in output.splitlines() if not line.startswith("#"))
    name, _, value = for_environ.partition("=")
    assert value == for_dashboard
    settings = WebSettings.load({"REDIS_URL": "redis://localhost", name: value})
    [(header, secret)] = settings.push_headers
    assert (header, len(secret.reveal())) == ("x-push-key", 43)


def test_secret_new_is_new_every_time() -> None:
    """Each call prints another secret."""
    outputs = {CliRunner().invoke(main, ["secret", "new"]).output for _ in range(20)}
    assert len(outputs) == 20
