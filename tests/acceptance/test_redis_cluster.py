"""A Redis Cluster is refused by every process when it starts, and by the doctor, with the variable and the remedy."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from callkeeper_sandbox.demo.embedded_redis import find_server

BUS_PORTS_ABOVE = 10_000
"""A node of a cluster also listens on a port that is so much higher."""


def _node(port: int, folder: Path) -> subprocess.Popen[bytes]:
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "cluster-enabled": "yes", "save": "", "logfile": "log"}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    return subprocess.Popen([find_server(), *words])  # noqa: S603  (our own arguments, no shell)


@pytest.fixture
def cluster_url(tmp_path: Path) -> Iterator[str]:
    """Run a cluster of one node, and return its URL. A port may be taken by another process: then try the next."""
    for port in random.sample(range(20_000, 65_535 - BUS_PORTS_ABOVE), 20):
        process = _node(port, tmp_path)
        try:
            with Redis(port=port) as redis:
                for _ in range(100):
                    with suppress(RedisError):
                        if process.poll() is None and redis.info("server")["process_id"] == process.pid:
                            yield f"redis://127.0.0.1:{port}/0"
                            return
                    time.sleep(0.05)
        finally:
            process.terminate()
            process.wait()
    raise AssertionError("no free port")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("web --port 0", 2, marks=pytest.mark.night),
        ("worker", 2),
        pytest.param("doctor --only worker", 1, marks=pytest.mark.night),
        ("doctor --before-deploy", 1),
    ],
)
def test_cluster_is_refused(cluster_url: str, command: str, code: int) -> None:
    """Its nodes refuse our scripts, so nothing would work: the process ends and says what to set instead."""
    settings = {
        "REDIS_URL": cluster_url,
        "CALLKEEPER_SERVICE_URL": "http://127.0.0.1:9",
        "CALLKEEPER_ACCESS_TOKEN": "3f9d0c4e5b7a41d2",
        "CALLKEEPER_EMAIL": "service-account@reseller.example",
        "CALLKEEPER_PASSWORD": "q8Zt-4rWx-71Lk",
        "CALLKEEPER_REQUESTED_BY": "callkeeper",
        "CALLKEEPER_PUSH_HEADERS": "X-Key: 9b1f7c3e5d0a4826-4c07a65e93d2-4c07a65e93d2",
    }
    words = [sys.executable, "-m", "callkeeper", *command.split()]
    told = subprocess.run(  # noqa: S603  (our own arguments, no shell)
        words, env={**os.environ, **settings}, capture_output=True, text=True, timeout=30, check=False
    )
    output = " ".join((told.stdout + told.stderr).split())
    assert told.returncode == code, output
    assert "Redis Cluster" in output
    assert "REDIS_URL must lead to a single Redis, or to sentinels" in output
