"""The Procfile under a process manager: the release step, web and worker, and a call from push to end."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

from callkeeper.calls.record import Phase
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.demo.fleet import Fleet
from callkeeper_sandbox.service import population
from tests.harness.processes import KEY, Sides, start_sandbox
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PROCFILE = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text(encoding="utf-8").splitlines())
SETTINGS = dict(
    line.split("=", 1)
    for line in shlex.split((ROOT / "deploy" / "sandbox.env").read_text(encoding="utf-8"), comments=True)
    if "=" in line
)


@contextmanager
def honcho(log: Path, port: int, environ: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``honcho start web worker`` until the block ends, with a port for the web process."""
    command = [sys.executable, "-m", "honcho", "start", "-p", str(port), "web", "worker"]
    with log.open("wb") as sink:
        process = subprocess.Popen(  # noqa: S603  (our own arguments, no shell)
            command, cwd=ROOT, env=environ, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_procfile_carries_a_call_from_push_to_end(tmp_path: Path) -> None:
    """The release step passes, both processes start from their environment, settle a pushed call, and end cleanly."""
    port = free_port()
    with embedded_redis(tmp_path / "redis") as redis, Fleet(tmp_path / "logs") as fleet:
        push = ("--push-url", f"http://127.0.0.1:{port}/push", "--push-headers", SETTINGS["CALLKEEPER_PUSH_HEADERS"])
        service_url = start_sandbox(fleet, *push)
        settings = {**SETTINGS, "REDIS_URL": redis.url, "CALLKEEPER_SERVICE_URL": service_url}
        python = str(Path(sys.executable).parent)
        environ = {"PATH": f"{python}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **settings}

        release = subprocess.run(  # noqa: S603  (the Procfile is ours)
            shlex.split(PROCFILE["release"]), cwd=ROOT, env=environ, capture_output=True, text=True, check=False
        )
        assert release.returncode == 0, release.stdout

        log = tmp_path / "honcho.log"
        with honcho(log, port, environ) as manager, closing(Sides(redis.url, service_url)) as sides:
            until(lambda: _is_ready(port), 30, "the web process")
            body = {"institution_key": KEY, "phone_number": population.phone(KEY, population.SHARED)}
            call = sides.control("POST", "/calls", {**body, "script": [{"kind": "end", "after_s": 2}]})
            assert sides.settled(call).life.phase is Phase.SETTLED
            [attempt] = [each for each in sides.control("GET", "/push") if each["voice_id"] == call["voice_id"]][:1]
            assert attempt["status"] == 202
            manager.terminate()
            manager.wait(30)
        lines = log.read_text()
        assert "web_stopped" in lines
        assert "worker_stopped" in lines


def _is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
