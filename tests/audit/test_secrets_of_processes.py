"""Each process has only its own secrets: in the files of deploy/, and in its environment as the kernel shows it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from callkeeper.app.settings import VARIABLES, WebSettings, WorkerSettings
from callkeeper_sandbox.demo.fleet import Fleet, ManagedProcess
from tests.harness.processes import wait_for_work
from tests.unit.deploy.manifests import given_to

READS = {"web": WebSettings.variables(), "worker": WorkerSettings.variables()}
SECRETS = {name for name, variable in VARIABLES.items() if variable.is_secret}
REQUIRED = {name for name, variable in VARIABLES.items() if variable.is_required}
EVERYTHING = {
    "CALLKEEPER_SERVICE_URL": "http://127.0.0.1:1",
    "CALLKEEPER_ACCESS_TOKEN": "canary-worker-access-token",
    "CALLKEEPER_EMAIL": "canary-worker@reseller.example",
    "CALLKEEPER_PASSWORD": "canary-worker-password",
    "CALLKEEPER_OUTCOME_SECRET": "whsec_Y2FuYXJ5LXdvcmtlci1vdXRjb21lLXNlY3JldC0wMTIz",
    "CALLKEEPER_OUTCOME_URL": "https://outcomes.example/",
    "CALLKEEPER_REQUESTED_BY": "bot",
    "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: canary-web-push-0123456789-4c07a65e93d2",
    "CALLKEEPER_PUSH_HEADERS_PREVIOUS": "X-Push-Key: canary-web-push-previous-0123-4c07a65e93d2",
    "CALLKEEPER_ADMIN": "ops:canary-web-admin-0123-4c07a65e93d2",
    "CALLKEEPER_METRICS_TOKEN": "canary-web-metrics-0123456789-4c07a65e93d2",
    "CALLKEEPER_OIDC_ISSUER": "https://login.example",
    "CALLKEEPER_OIDC_CLIENT_ID": "callkeeper",
    "CALLKEEPER_OIDC_CLIENT_SECRET": "canary-web-client-0123456789-4c07a65e93d2",
    "CALLKEEPER_PROXY": "http://ops:canary-proxy-0123@127.0.0.1:1",
    "CALLKEEPER_OIDC_ROLES": "staff=viewer",
    "CALLKEEPER_PUBLIC_URL": "https://callkeeper.example",
    "CALLKEEPER_ARCHIVE_URL": "postgresql://ops:canary-archive-0123@127.0.0.1:1/archive",
    "CALLKEEPER_ARCHIVE_KEY": "canary-worker-archive-key-0123456789",
    "CALLKEEPER_ALERT_URLS": "json://ops:canary-alerts-0123@127.0.0.1:1/",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
}

pytestmark = pytest.mark.timeout(300)  # on a busy machine processes start slowly, and one of these starts twice


@pytest.mark.parametrize("process", ["web", "worker"])
@pytest.mark.parametrize("platform", ["compose", "render", "kubernetes"])
def test_process_is_given_what_it_reads_and_nothing_else(platform: str, process: str) -> None:
    """A platform's files give a process every variable that it needs, and none that it does not read."""
    given = given_to(platform, process)
    assert given - READS[process].keys() == set()
    required = {name for name, variable in READS[process].items() if variable.is_required} & REQUIRED
    assert required - given == set()


def test_web_and_worker_share_no_secret_but_four() -> None:
    """Web and worker share only the URLs of Redis, archive, alerts and the outgoing proxy.

    They have different roles in the archive. Both need the alert URLs, because either may be the last that can send
    one.
    """
    shared = {"REDIS_URL", "CALLKEEPER_ARCHIVE_URL", "CALLKEEPER_ALERT_URLS", "CALLKEEPER_PROXY"}
    assert READS["web"].keys() & READS["worker"].keys() & SECRETS == shared
    assert set(EVERYTHING) & SECRETS == SECRETS - {"REDIS_URL"}


@contextmanager
def running(process: str, given: dict[str, str], folder: Path) -> Iterator[ManagedProcess]:
    """Start a process with these variables, wait until it works, and yield it."""
    options = ["--host", "127.0.0.1", "--port", "0"] if process == "web" else []
    with Fleet(folder) as fleet:
        member = fleet.start(process, process, *options, environ=given)
        wait_for_work(member)
        yield member


def events(log: Path) -> list[dict[str, object]]:
    """Return the events of a log file."""
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.parametrize(("process", "other"), [("web", "worker"), ("worker", "web")])
def test_process_removes_the_secrets_of_the_other(process: str, other: str, redis_url: str, tmp_path: Path) -> None:
    """If a platform gives a process the other's secrets, it restarts without them and logs it once."""
    with running(process, {"REDIS_URL": redis_url, **EVERYTHING}, tmp_path) as member:
        log, environ = member.log, Path(f"/proc/{member.process.pid}/environ").read_bytes().decode()
        names = {pair.partition("=")[0] for pair in environ.split("\0")}
        if process == "web":
            [url] = [entry["url"] for entry in events(log) if entry["event"] == "web_listening"]
            assert httpx.get(f"{url}/healthz", trust_env=False, timeout=60).status_code == 200
    assert f"canary-{other}" not in environ
    assert names & SECRETS == READS[process].keys() & SECRETS
    [told] = [entry for entry in events(log) if entry["event"] == "secrets_removed"]
    assert told["level"] == "info", "on a platform that gives every process all settings, this is the usual start"
    assert told["variables"] == sorted(SECRETS - READS[process].keys())
    assert "canary" not in log.read_text()


def test_process_with_its_own_secrets_only_starts_once(redis_url: str, tmp_path: Path) -> None:
    """If a process has only its own secrets, nothing is removed or logged."""
    own = {
        "REDIS_URL": redis_url,
        "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: 7d1f0c2b9a8e4d6f51-4c07a65e93d2-4c07a65e93d2",
    }
    with running("web", own, tmp_path) as member:
        pass
    assert "secrets_removed" not in member.log.read_text()


WEAK = {
    "a password that is too short": ("CALLKEEPER_ADMIN", "ops:", "Password1234", ""),
    "a placeholder": ("CALLKEEPER_PUSH_HEADERS", "X-Push-Key: ", "change-me-0123456789-abcdefghijkl", ""),
}


@pytest.mark.parametrize(("name", "before", "secret", "after"), WEAK.values(), ids=WEAK)
def test_weak_secret_stops_the_start(name: str, before: str, secret: str, after: str, redis_url: str) -> None:
    """With a weak secret the web process exits with 2 and names the setting and its requirement, not the secret."""
    strong = {
        "CALLKEEPER_PUSH_HEADERS": "X-Push-Key: 7d1f0c2b9a8e4d6f51-4c07a65e93d2-4c07a65e93d2",
        "PATH": os.environ["PATH"],
    }
    environ = {**strong, "REDIS_URL": redis_url, name: before + secret + after}
    command = [sys.executable, "-m", "callkeeper", "web", "--host", "127.0.0.1", "--port", "0"]
    ended = subprocess.run(command, env=environ, capture_output=True, check=False, text=True)  # noqa: S603  (our own)
    output = ended.stdout + ended.stderr
    assert ended.returncode == 2
    assert f"  {name}: " in output
    assert "32 random characters" in output or "a placeholder" in output
    assert secret not in output
    assert "Traceback" not in output
