"""The extras in empty environments: each installs what its commands need; other commands name the missing extra."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LACKS = "needs more than is installed: pip install 'callkeeper[{}]'"
NOWHERE = "redis://127.0.0.1:1/0"

WEB = {"REDIS_URL": NOWHERE, "CALLKEEPER_PUSH_HEADERS": "X-Push-Secret: 5f0c1e6fd9a84b7cbd13-4c07a65e93d2"}
WORKER = {
    "REDIS_URL": NOWHERE,
    "CALLKEEPER_SERVICE_URL": "https://service.example",
    "CALLKEEPER_ACCESS_TOKEN": "5f0c1e6fd9a84b7cbd13-4c07a65e93d2",
    "CALLKEEPER_EMAIL": "bot@bank.example",
    "CALLKEEPER_PASSWORD": "c1a84b7cbd135f0ce6fd9",
    "CALLKEEPER_REQUESTED_BY": "bot",
}
OIDC = {
    "CALLKEEPER_OIDC_ISSUER": "https://login.example",
    "CALLKEEPER_OIDC_CLIENT_ID": "callkeeper",
    "CALLKEEPER_OIDC_CLIENT_SECRET": "c1a84b7cbd135f0ce6fd9-4c07a65e93d2",
    "CALLKEEPER_OIDC_ROLES": "voice=agent",
    "CALLKEEPER_PUBLIC_URL": "https://calls.bank.example",
}
ARCHIVE = {"CALLKEEPER_ARCHIVE_URL": "sqlite:////nowhere/archive.db"}
OTEL = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}

pytestmark = [pytest.mark.night, pytest.mark.timeout(400)]


class Environment:
    """A new virtual environment with callkeeper, without anything of the tests' own environment."""

    def __init__(self, place: Path, wanted: str, wheels: Path) -> None:
        self.place = place
        self._uv("venv", "--python", sys.executable, str(place))
        pins = re.findall(r"^[\w.-]+==[^\\\n]+", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
        constraints = place / "constraints.txt"
        constraints.write_text("\n".join(pins))
        python, ours = str(place / "bin" / "python"), ("--find-links", str(wheels))
        self._uv("pip", "install", "--python", python, "-c", str(constraints), *ours, wanted)

    def _uv(self, *words: str) -> None:
        done = subprocess.run([BIN / "uv", *words], capture_output=True, text=True, check=False)  # noqa: S603  (our own)
        assert done.returncode == 0, done.stderr

    def command(self, *words: str) -> list[str]:
        """Return the command line of a callkeeper command in this environment."""
        return [str(self.place / "bin" / "callkeeper"), *words]

    def environ(self, given: dict[str, str]) -> dict[str, str]:
        """Return the environment variables of its processes."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.place)} | given

    def run(self, *words: str, **given: str) -> tuple[int, str]:
        """Run a command; return its exit status and output."""
        done = subprocess.run(  # noqa: S603  (our own)
            self.command(*words), env=self.environ(given), capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    @contextmanager
    def running(self, *words: str, **given: str) -> Iterator[Path]:
        """Run a long-running command until the block ends; yield the file of its output."""
        said = self.place / f"{words[0]}.log"
        with said.open("w") as sink:
            process = subprocess.Popen(self.command(*words), env=self.environ(given), stdout=sink, stderr=sink)  # noqa: S603
        try:
            yield said
            assert process.poll() is None, said.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)

    def lacks(self, extra: str, *words: str, **given: str) -> None:
        """Assert that a command fails with one line that names an extra."""
        status, said = self.run(*words, **given)
        assert (status, said.count("\n")) == (1, 1), said
        assert LACKS.format(extra) in said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, and beside it that of the sandbox."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    for part in (ROOT, ROOT / "sandbox"):
        subprocess.run(build, cwd=part, capture_output=True, check=True)  # noqa: S603  (our own)
    return next(folder.glob("callkeeper-*.whl"))


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Callable[[str], Environment]:
    """Return a function that installs the wheel with extras into an empty environment."""
    return lambda extras: Environment(tmp_path / "empty", f"{wheel}[{extras}]", wheel.parent)


def eventually(said: Path, pattern: str, seconds: float = 30) -> re.Match[str]:
    """Wait until the output of a process matches a pattern."""
    return until(lambda: re.search(pattern, said.read_text()), seconds, f"{pattern} in {said}", every_s=0.1)


def get(url: str) -> int:
    """Request a page of a local web server; return the status."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  (our own)
        return int(answer.status)


def serves_web(place: Environment, **given: str) -> None:
    """Assert that the web process answers its health check without Redis."""
    port = free_port()
    with place.running("web", "--host", "127.0.0.1", "--port", str(port), **WEB, **given) as said:
        eventually(said, "listening|web_started|started")
        assert get(f"http://127.0.0.1:{port}/healthz") == 200


def runs_worker(place: Environment, **given: str) -> None:
    """Assert that a worker starts and waits for Redis."""
    with place.running("worker", **WORKER, **given) as said:
        eventually(said, "redis_away|redis_unreachable|Redis")


def serves_sandbox(place: Environment) -> None:
    """Assert that the sandbox shows its page."""
    with place.running("sandbox") as said:
        assert get(eventually(said, r"listening on (\S+)")[1]) == 200


def test_plain_install_runs_web_workers_and_commands(install: Callable[[str], Environment]) -> None:
    """Without an extra, processes run; settings and commands of the archive and the sandbox name what they need."""
    place = install("")
    for words in (["--help"], ["rules", "check", "default"], ["secret", "new"], ["reseller", "--help"]):
        assert place.run(*words)[0] == 0, words
    for words in (["pauses"], ["calls", "list"], ["tokens", "list"], ["audit"], ["alerts", "list"]):
        status, said = place.run(*words, REDIS_URL=NOWHERE)
        assert status == 1
        assert "Redis at" in said
    serves_web(place, **OIDC)
    serves_web(place, **OTEL)  # calls are handled without traces
    runs_worker(place)
    place.lacks("sandbox", "sandbox")
    place.lacks("sandbox", "run")
    place.lacks("archive", "archive", "verify")
    place.lacks("archive", "calls", "list", "7", REDIS_URL=NOWHERE, **ARCHIVE)
    for process, given in (("web", WEB), ("worker", WORKER)):
        place.lacks("archive", process, **given, **ARCHIVE)
    _, said = place.run("alerts", "test", CALLKEEPER_ALERT_URLS="json://127.0.0.1:1/")
    assert "not accepted" in said


def test_archive_and_collector(install: Callable[[str], Environment], tmp_path: Path) -> None:
    """With `archive` tables can be created; with `otel` web runs with a collector, also if nobody is there."""
    place = install("archive,otel")
    status, said = place.run("archive", "migrate", CALLKEEPER_ARCHIVE_URL=f"sqlite:///{tmp_path}/archive.db")
    assert status == 0, said
    serves_web(place, **OTEL)


def test_everything(install: Callable[[str], Environment]) -> None:
    """With `all,sandbox` every part runs, also `callkeeper run` with its embedded Redis."""
    place = install("all,sandbox")
    serves_web(place, **OIDC)
    runs_worker(place)
    serves_sandbox(place)
    work = place.place / "somewhere"
    work.mkdir()
    status, said = place.run("run", "--seconds", "8", "--data", str(work))
    assert status == 0, said
    assert "Audit passed" in said
