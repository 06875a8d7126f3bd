"""A worker and a web process whose log nobody reads: a hung logging driver, or a stopped ``| logger``.

Each writes to a pipe that is full from the beginning, as it is some minutes after the reader has stopped.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from callkeeper.app.environment import SettingsSection
from callkeeper.app.settings import WebSettings, WorkerSettings
from callkeeper_sandbox.demo.fleet import STOP_S, plain_environment
from tests.harness.processes import PATIENCE_S, Stack, end
from tests.waiting import until


class UnreadPipe:
    """A full pipe that nobody reads until `read`."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._read = b""
        self.fill()

    def fill(self) -> None:
        """Fill it."""
        os.set_blocking(self.writer, False)
        with suppress(BlockingIOError):
            while os.write(self.writer, b"\n" * 4096):
                pass
        os.set_blocking(self.writer, True)

    def read(self) -> set[str]:
        """Read what is in it; return the names of all events that were read until now."""
        with suppress(BlockingIOError):
            while got := os.read(self._reader, 1 << 20):
                self._read += got
        return {json.loads(line)["event"] for line in self._read.splitlines() if line.endswith(b"}")}

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reader)
        os.close(self.writer)


@pytest.fixture
def pipe() -> Iterator[UnreadPipe]:
    """Return a pipe."""
    pipe = UnreadPipe()
    yield pipe
    pipe.close()


def started(
    running: Stack, section: type[SettingsSection], pipe: UnreadPipe, *command: str
) -> "subprocess.Popen[bytes]":
    """Start a process of the stack that logs into a pipe."""
    own = {name: value for name, value in running.demo.environ.items() if name in section.variables()}
    return subprocess.Popen(  # noqa: S603  (our own command)
        [sys.executable, "-m", "callkeeper", *command],
        env={**plain_environment(), **own},
        stdin=subprocess.DEVNULL,
        stdout=pipe.writer,
        stderr=pipe.writer,
    )


def ends_in_order(process: "subprocess.Popen[bytes]") -> None:
    """Assert that SIGTERM ends a process in its usual time."""
    process.terminate()
    try:
        assert process.wait(STOP_S) == 0
    finally:
        process.kill()


def test_worker_handles_calls_and_ends_while_nobody_reads_its_log(lonely: Stack, pipe: UnreadPipe) -> None:
    """A worker whose log hangs assigns calls as before, and SIGTERM ends it."""
    lonely.member("worker-1").stop()
    worker = started(lonely, WorkerSettings, pipe, "worker")
    try:
        call = lonely.call(end(60))
        until(lambda: lonely.arrived(call).get("assign"), PATIENCE_S, "the assign")
    finally:
        ends_in_order(worker)


def test_web_takes_pushes_and_ends_while_nobody_reads_its_log(lonely: Stack, pipe: UnreadPipe) -> None:
    """A web process whose log hangs takes pushes, and SIGTERM ends it. Its lines wait for the reader."""
    lonely.member("web").stop()
    url = lonely.demo.web_url
    web = started(lonely, WebSettings, pipe, "web", "--host", "127.0.0.1", "--port", url.rpartition(":")[2])
    try:
        with httpx.Client(base_url=url, trust_env=False) as http:
            until(lambda: http.get("/readyz").is_success, PATIENCE_S, "an answer", excused=(httpx.HTTPError,))
        lonely.call(end(60))
        until(lambda: lonely.member("worker-1").log.read_text().count("effect_answered"), PATIENCE_S, "the call")
        until(lambda: {"web_listening", "push_accepted"} <= pipe.read(), 10, "its lines")
        pipe.fill()
    finally:
        ends_in_order(web)
