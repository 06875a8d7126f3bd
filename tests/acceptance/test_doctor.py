"""``callkeeper doctor`` on a running installation finds each planted fault and names its remedy."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from redis import Redis

from callkeeper.app.cli import main
from tests.harness.processes import KEY, Stack, stack
from tests.waiting import until


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Result]]:
    """Run an installation that got a sample push from each institution; yield it with the doctor's first result."""
    with stack(tmp_path_factory.mktemp("doctor"), workers=1) as running:
        for key in institutions(running):
            running.control("POST", "/push/sample", {"institution_key": key})
        yield running, until(lambda: _well(examine(running)), 20, "the doctor to find no fault")


@pytest.fixture
def installation(examined: tuple[Stack, Result]) -> Stack:
    """Return the installation."""
    return examined[0]


def institutions(running: Stack) -> list[str]:
    """Return the keys of the institutions that the service account manages."""
    rows = lines(examine(running, "--before-deploy"))
    return [row["about"] for row in rows if row["topic"] == "queue"]


def examine(running: Stack, *options: str, json_lines: bool = True, **changed: str) -> Result:
    """Run the doctor with the installation's settings and changes to them."""
    environ: Mapping[str, str] = {**running.demo.environ, **changed}
    return CliRunner().invoke(main, ["doctor", *options, *(["--json"] if json_lines else [])], env=dict(environ))


def lines(result: Result) -> list[dict[str, Any]]:
    """Return the findings."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def faults(result: Result) -> list[str]:
    """Return the subjects of the findings that are faults."""
    return [row["what"] for row in lines(result) if row["state"] == "fault"]


@contextmanager
def set_in_redis(url: str, name: str, value: str) -> Iterator[None]:
    """Change a setting of Redis until the block ends."""
    with Redis.from_url(url) as redis:
        before = redis.config_get(name)[name]
        redis.config_set(name, value)
        try:
            yield
        finally:
            redis.config_set(name, before)


def test_doctor_finds_no_fault_in_a_running_installation(examined: tuple[Stack, Result]) -> None:
    """Without a planted fault the doctor exits with 0 and has checked every topic."""
    rows = lines(examined[1])
    assert {"redis latency", "clock", "workers", "web", "web from outside", "dashboard"} <= {
        row["what"] for row in rows
    }


def _well(result: Result) -> Result | None:
    noticed = {row["what"] for row in lines(result) if row["state"] != "ok"}
    return result if result.exit_code == 0 and noticed <= {"attention", "rules"} else None


def test_doctor_says_what_a_call_showed(installation: Stack) -> None:
    """Of a call that was pushed, checked and settled ten lines say so; of an unknown one that nothing is known."""
    call = installation.call({"kind": "end", "after_s": 14})
    looked = until(lambda: _settled(examine(installation, "--call", call["voice_id"])), 60, "the settled call")
    assert (looked.exit_code, len(lines(looked)), faults(looked)) == (0, 10, [])
    unknown = examine(installation, "--call", "v-nobody")
    assert (unknown.exit_code, "nothing is known of a call 'v-nobody'" in unknown.output) == (1, True)


def _settled(result: Result) -> Result | None:
    return result if "settled as" in result.output else None


def test_doctor_before_a_deploy_does_not_expect_processes(installation: Stack) -> None:
    """With ``--before-deploy`` missing processes and pushes are no fault, because a release step runs before them."""
    fresh = f"{installation.demo.redis_url.rpartition('/')[0]}/7"
    assert {"incident no web", "incident no worker"} <= set(faults(examine(installation, REDIS_URL=fresh)))
    result = examine(installation, "--before-deploy", REDIS_URL=fresh)
    assert (result.exit_code, faults(result)) == (0, [])
    assert not {"web", "workers", "incident", "pushes", "dashboard"} & {row["topic"] for row in lines(result)}


def test_doctor_names_a_wrong_password(installation: Stack) -> None:
    """A wrong password is a fault even while the workers' token is still valid."""
    result = examine(installation, json_lines=False, CALLKEEPER_PASSWORD="not-the-right-one-at-all")
    assert result.exit_code == 1
    assert f"fault    login: {installation.demo.service_url}: " in result.stdout
    assert "-> correct CALLKEEPER_EMAIL, _PASSWORD and _ACCESS_TOKEN" in result.stdout
    assert "not-the-right-one-at-all" not in result.stdout


def test_doctor_names_a_wrong_push_header(installation: Stack, tmp_path: Path) -> None:
    """If pushes are refused because the dashboard has another header, the doctor says so until a sample is accepted."""
    with stack(tmp_path / "own", workers=1) as running:
        settings = {"url": f"{running.demo.web_url}/push", "headers": "X-Push-Key: typed-wrongly-0123456789"}
        running.control("PUT", f"/institutions/{KEY}/push", settings)
        for _ in range(3):
            running.control("POST", "/push/sample", {"institution_key": KEY})
        examine(running)  # also sends a sample with the right header, which does not count
        refused = "3 refused in the last hour for a wrong or missing header, none accepted"
        result = until(lambda: _saying(refused, examine(running)), 20, "all refusals")
        [row] = [row for row in lines(result) if row["what"] == "pushes"]
        assert row["state"] == "fault"
        assert row["remedy"] == (
            "copy CALLKEEPER_PUSH_HEADERS exactly into the dashboard (Settings, Push Notifications), "
            "and send a sample from there"
        )
        settings["headers"] = running.demo.environ["CALLKEEPER_PUSH_HEADERS"]
        running.control("PUT", f"/institutions/{KEY}/push", settings)
        running.control("POST", "/push/sample", {"institution_key": KEY})
        repaired = until(lambda: _without_fault("pushes", examine(running)), 20, "the sample")
        assert "last sample" in next(row["detail"] for row in lines(repaired) if row["what"] == f"pushes {KEY}")


def _saying(detail: str, result: Result) -> Result | None:
    return result if detail in {row["detail"] for row in lines(result)} else None


def _without_fault(what: str, result: Result) -> Result | None:
    return None if what in faults(result) else result


def test_doctor_names_a_web_process_with_other_headers(installation: Stack) -> None:
    """If the settings were changed without a restart, the doctor's own sample is refused and a restart is advised.

    This also holds if so many pushes were refused that further ones get 429, and Redis is not blamed.
    """
    wrong = {"X-Push-Key": "changed-and-not-restarted-0123-4c07a65e93d2"}
    push = partial(httpx.post, f"{installation.demo.web_url}/push", json={}, headers=wrong, trust_env=False)
    for is_limited in (False, True):
        if is_limited:
            until(lambda: push().status_code == 429, 20, "wrong headers to be counted only")
        result = examine(
            installation, CALLKEEPER_PUSH_HEADERS="X-Push-Key: changed-and-not-restarted-0123-4c07a65e93d2"
        )
        assert "pushes from outside" in faults(result)
        [row] = [row for row in lines(result) if row["what"] == "pushes from outside"]
        assert row["remedy"].startswith("restart the web process")
        assert "Redis" not in row["detail"] + row["remedy"]


def test_doctor_names_an_evicting_redis(installation: Stack) -> None:
    """An eviction policy that would delete calls is a fault, even if there is enough memory now."""
    with set_in_redis(installation.demo.redis_url, "maxmemory-policy", "allkeys-lru"):
        result = examine(installation, json_lines=False)
    assert result.exit_code == 1
    assert "fault    redis eviction: allkeys-lru: Redis would delete calls when memory is short" in result.stdout
    assert "-> set maxmemory-policy to noeviction" in result.stdout


def test_doctor_names_missing_workers(installation: Stack) -> None:
    """Without a worker there is a fault, because calls are recorded but not handled."""
    fresh = f"{installation.demo.redis_url.rpartition('/')[0]}/8"
    result = examine(installation, json_lines=False, REDIS_URL=fresh)
    assert result.exit_code == 1
    assert "fault    incident no worker: No worker is alive" in result.stdout
    assert "Calls are not handled. Start workers." in result.stdout


def test_doctor_names_every_fault_of_a_rules_file(installation: Stack, tmp_path: Path) -> None:
    """A faulty rules file is reported with its line and a remedy."""
    path = tmp_path / "rules.toml"
    path.write_text('[checks]\nat = [10]\n\n[[rule]]\nname = "one"\nthen = "enrol"\nbecause = "x"\n')
    result = examine(installation, json_lines=False, CALLKEEPER_RULES=str(path))
    assert result.exit_code == 1
    assert f"fault    rules: {path}:6: " in result.stdout
    assert "-> correct the file (callkeeper rules check names every fault); workers do not start on it" in result.stdout


def test_doctor_names_an_institution_without_rights(installation: Stack) -> None:
    """If the service account has no rights for an institution in the settings, the doctor names it."""
    result = examine(installation, json_lines=False, CALLKEEPER_INSTITUTIONS=f"{KEY}, cu-99")
    assert result.exit_code == 1
    assert "fault    institutions CALLKEEPER_INSTITUTIONS: the account may not manage 'cu-99'" in result.stdout
    assert "-> correct CALLKEEPER_INSTITUTIONS, or have the service operator give the account rights" in result.stdout


def test_doctor_shows_no_secret(installation: Stack) -> None:
    """Promise 6: the doctor's output contains no secret."""
    environ = installation.demo.environ
    told = examine(installation, json_lines=False).stdout + examine(installation, CALLKEEPER_PASSWORD="x").stdout
    for name in ("CALLKEEPER_PASSWORD", "CALLKEEPER_ACCESS_TOKEN", "CALLKEEPER_PUSH_HEADERS", "CALLKEEPER_ADMIN"):
        secret = environ[name].replace("=", ":").rpartition(":")[2].strip()
        assert secret not in told, name
