"""The image: its steps are run in folders of this machine, and the resulting program works."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from callkeeper_sandbox.demo.embedded_redis import EmbeddedRedis
from tests.rollout.dockerfile import Build, Stage

ROOT = Path(__file__).parents[2]

LARGEST = 150 * 2**20
"""In bytes. 140 MiB were measured: 40 of them for the archive (SQLAlchemy, Alembic, psycopg), 18 for OpenID Connect
(cryptography, Authlib) and 13 for alerts (Apprise)."""

pytestmark = [pytest.mark.night, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Run the steps of deploy/Dockerfile: a virtual environment from the lock file, and our wheel in it."""
    return Build(ROOT / "deploy" / "Dockerfile", ROOT, tmp_path_factory.mktemp("image")).run()


def program(image: Stage) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment that start the image's program here.

    A virtual environment's scripts contain its folder at build time, so the copied interpreter is started with the
    copied packages instead.
    """
    packages = next(image.at("/opt/callkeeper/lib").glob("python3*/site-packages"))
    return [str(image.at("/opt/callkeeper/bin/python")), "-m", "callkeeper"], {
        "PYTHONPATH": str(packages),
        "PATH": os.environ["PATH"],
    }


def ask(image: Stage, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the image, in a folder without our sources."""
    start, plain = program(image)
    return subprocess.run(  # noqa: S603  (our own arguments, no shell)
        [*start, *arguments],
        env={**plain, **environ},
        cwd=image.at(""),
        capture_output=True,
        text=True,
        check=False,
    )


def test_image_holds_a_program_that_runs(image: Stage) -> None:
    """The image contains a working program with its data files, and neither pip nor test packages."""
    told = ask(image, "--version")
    assert told.returncode == 0, told.stderr
    assert re.search(r"\d+\.\d+\.\d+", told.stdout)
    packages = next(image.at("/opt/callkeeper/lib").glob("python3*/site-packages"))
    assert (packages / "callkeeper" / "calls" / "lua" / "claim.lua").exists()
    assert (packages / "callkeeper" / "calls" / "rulebooks" / "default.toml").exists()
    assert not (packages / "pip").exists()
    assert not (packages / "pytest").exists()


def test_image_is_small(image: Stage) -> None:
    """The second stage adds less than `LARGEST` to its base image."""
    files = [path for path in image.at("/opt").rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files)
    assert size < LARGEST, size / 2**20


def test_image_has_a_user_a_command_and_a_health_check(image: Stage) -> None:
    """The image names a numeric user other than root, an entry point, a default command and a health check."""
    assert image.user == "10001:10001"
    assert json.loads(image.commands["ENTRYPOINT"]) == ["callkeeper"]
    assert json.loads(image.commands["CMD"]) == ["web"]
    assert "/healthz" in image.commands["HEALTHCHECK"]


def test_image_serves_and_its_health_check_agrees(image: Stage, redis_server: EmbeddedRedis) -> None:
    """The image's web process starts on the given port, and the health check tells whether it runs."""
    start, plain = program(image)
    environ = {
        **plain,
        "REDIS_URL": redis_server.url,
        "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: 7d1f0c2b9a8e4d6f51-4c07a65e93d2-4c07a65e93d2",
    }
    process = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
        [*start, "web", "--host", "127.0.0.1", "--port", "0"],
        env=environ,
        cwd=image.at("/tmp"),  # noqa: S108  (of the image)
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["url"].rpartition(":")[2]
        assert _health(image, port) == 0
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert _health(image, port) != 0


def _health(image: Stage, port: str) -> int:
    command = json.loads(image.commands["HEALTHCHECK"].partition("CMD ")[2])
    start, plain = program(image)
    return subprocess.run(  # noqa: S603  (our own arguments, no shell)
        [start[0], *command[1:]], env={**plain, "PORT": port}, stderr=subprocess.DEVNULL, check=False
    ).returncode
