"""Fixtures of the audit. ``TEST_AUDIT`` sets how many inputs they try: ``short`` (for every change) or ``full``."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from secrets import token_hex
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser
from redis import Redis as BlockingRedis

from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from tests.audit.raw_requests import ADMIN, PUSH_KEY, TOKEN
from tests.harness.browser import running_browser
from tests.harness.desk_tokens import give_token
from tests.harness.fork_server import ForkingFleet
from tests.harness.processes import start_web, web_url
from tests.longest_first import longest_first

LONGEST_FIRST = ["connections", "canaries", "terminal", "secrets_of_processes", "redis_users", "supply", "login"]
"""Files by how long they take."""

ENVIRON = {
    "CALLKEEPER_PUSH_HEADERS": f"X-Push-Key: {PUSH_KEY}",
    "CALLKEEPER_ADMIN": ADMIN,
    "CALLKEEPER_FORWARDED_HOPS": "1",
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first."""
    longest_first(items, LONGEST_FIRST)


@dataclass(frozen=True)
class Effort:
    """How many inputs each test tries."""

    requests: int
    """Raw HTTP requests."""
    examples: int
    """Inputs for each parser."""
    calls: int
    """Requests for each operation of the desk's API."""


EFFORTS = {"short": Effort(3_000, 100, 4), "full": Effort(50_000, 3_000, 100)}
EFFORT = EFFORTS[os.environ.get("TEST_AUDIT", "short")]

settings.register_profile(
    "audit",
    max_examples=EFFORT.examples,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EFFORT is EFFORTS["short"],
)
settings.load_profile("audit")


@pytest.fixture(scope="session")
def effort() -> Effort:
    """Return how many inputs each test tries."""
    return EFFORT


class Target:
    """A running web process and its log."""

    def __init__(self, web: ManagedProcess) -> None:
        self.url = web_url(web)
        self.log = web.log
        self.pid = web.process.pid
        self.port = int(self.url.rpartition(":")[2])

    def events(self, *levels: str) -> list[dict[str, Any]]:
        """Return the log lines of some levels."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if line["level"] in levels]


@contextmanager
def web_process(redis_url: str, folder: Path, *, files: int | None = None, **more: str) -> Iterator[Target]:
    """Run ``callkeeper web`` with all of its features.

    Args:
        redis_url: The Redis that it uses.
        folder: For its log.
        files: How many files and sockets it may open, if fewer than usual. This limits its connections.
        more: Further environment variables.
    """
    with (ForkingFleet if files is None else Fleet)(folder) as fleet:
        with BlockingRedis.from_url(redis_url) as redis:
            give_token(redis, "desktop", TOKEN)
        own, hard = getrlimit(RLIMIT_NOFILE)
        setrlimit(RLIMIT_NOFILE, (files or own, hard))  # a new process inherits it, a forked one does not
        try:
            web = start_web(fleet, redis_url, name=f"web-{token_hex(3)}", environ={**ENVIRON, **more})
        finally:
            setrlimit(RLIMIT_NOFILE, (own, hard))
        yield Target(web)


@pytest.fixture
def target(redis_url: str, tmp_path: Path) -> Iterator[Target]:
    """Run a web process."""
    with web_process(redis_url, tmp_path) as target:
        yield target


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run the system's Chromium. Asynchronous tests cannot run in the same module."""
    with running_browser() as browser:
        yield browser
