"""The example of a desk client, while the desk restarts, answers 503, and gets another token."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.harness.desk_tokens import give_token
from tests.harness.processes import stack, web_url
from tests.http_servers import serving
from tests.waiting import until

ROOT = Path(__file__).parents[2]
OLD, NEW = "ckt_canary-desktop-0123456789-4c07a65e93d2", "ckt_canary-desktop-9876543210-7be2f14d0a96"


@contextmanager
def answering(port: int, status: int) -> Iterator[list[str]]:
    """Answer every request on a port with a status; yield the requested paths."""
    asked: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return httpx.Response(status)

    with serving(refuse, port):
        yield asked


class Client:
    """The example as a process that follows the calls of one phone number."""

    def __init__(self, address: str, token: Path, phone: str) -> None:
        arguments = [sys.executable, str(ROOT / "docs/examples/desk_client.py"), address, str(token), "agent-9", phone]
        self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)  # noqa: S603

    def line(self) -> str:
        """Wait for the next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def cpu_s(self) -> float:
        """Return how much CPU time it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.timeout(180)
def test_example_survives_restarts_503_and_a_new_token(tmp_path: Path) -> None:
    """The example verifies a call before and after an outage in which the desk is down, answers 503 and 401."""
    token = tmp_path / "token.txt"
    token.write_text(OLD)
    with stack(tmp_path / "data", workers=1) as running:
        give_token(running.redis, "desktop", OLD)
        web = running.member("web")
        address, phone = web_url(web), running.next_phone()
        port = int(address.rpartition(":")[2])
        client = Client(address, token, phone)
        try:
            assert client.line() == "following\n"
            call = running.call({"kind": "end", "after_s": 15}, phone_number=phone)
            assert json.loads(client.line())["state"] == "done"

            web.stop()
            begun_s = client.cpu_s()
            time.sleep(3)
            with answering(port, 503) as asked:
                until(lambda: asked or None, 40, "an attempt of the client")  # a few seconds after the one before
                time.sleep(3)
            assert len(asked) <= 6
            assert client.cpu_s() - begun_s < 0.5

            running.redis.delete(running.keys.issued_tokens)
            give_token(running.redis, "desktop", NEW)
            again = running.start("web", port=port)
            assert web_url(again) == address
            time.sleep(3)
            assert client.process.poll() is None, "the client ended after 401"
            token.write_text(NEW)
            other = running.call({"kind": "end", "after_s": 90}, phone_number=phone)
            said = json.loads(client.line())
            assert (said["state"], said["operator"]) == ("done", "agent-9")
            assert running.arrived(call)["enroll"] == running.arrived(other)["enroll"] == 1
        finally:
            client.process.terminate()
            client.process.communicate(timeout=10)
