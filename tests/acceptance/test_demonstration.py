"""The commands and addresses that ``callkeeper run`` prints work as printed."""

import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib.resources import files
from itertools import islice
from pathlib import Path

import httpx
import msgspec
import pytest
from redis import Redis as BlockingRedis
from standardwebhooks import Webhook

from callkeeper.calls.record_storage import parse_call
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.commands.run import addresses
from callkeeper_sandbox.demo.demonstration import Secrets, demonstration
from callkeeper_sandbox.demo.embedded_redis import CHOSEN, embedded_redis
from tests.harness.processes import Stack, end
from tests.http_servers import serving
from tests.ports import free_port
from tests.waiting import until


def printed(running: Stack) -> dict[str, str]:
    """Return the lines that are printed at the start, by their first word."""
    return dict(line.split(maxsplit=1) for line in addresses(running.demo).plain.replace("desk ", "desk-").splitlines())


def test_curl_line_of_the_desk_works_as_printed(running: Stack) -> None:
    """The curl line contains the desk token and lists calls."""
    call = running.call(end(30))
    curl, header_option, header, url = shlex.split(printed(running)["desk-API"])
    assert (curl, header_option) == ("curl", "-H")
    assert printed(running)["desk-token"] in header
    name, value = header.split(": ")

    def listed() -> bool:
        answer = httpx.get(url.replace("limit=2", "limit=500"), headers={name: value}, trust_env=False)
        return call["voice_id"] in {each["voice_id"] for each in answer.raise_for_status().json()["calls"]}

    until(listed, 15, "the call on the desk")


def test_bare_address_leads_to_the_board(running: Stack) -> None:
    """The printed login opens the board at the bare address of the web process."""
    user, password = printed(running)["login"].split(":")
    answer = httpx.get(running.demo.web_url, auth=(user, password), follow_redirects=True, trust_env=False)
    assert (answer.status_code, answer.url.path) == (200, "/board")


def test_commands_work_with_the_settings_file(running: Stack) -> None:
    """The printed command lists the calls of the demonstration; only its owner can read the settings file.

    It uses nothing that an installed wheel lacks, such as honcho.
    """
    call = running.call(end(30))
    command = printed(running)["commands"]
    assert "honcho" not in command
    assert running.demo.environ_file.stat().st_mode & 0o077 == 0

    def listed() -> bool:
        found = subprocess.run(  # noqa: S603  (a command of ours)
            ["/bin/sh", "-c", command],
            env={"PATH": os.environ["PATH"], "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=True,
        )
        return call["voice_id"] in found.stdout

    until(listed, 15, "the call in the list")


def test_second_run_on_the_same_data_says_why_it_ends(tmp_path: Path) -> None:
    """While one `make run` uses a data folder, another one ends with one line that names the folder."""
    with embedded_redis(tmp_path / "redis"):
        second = subprocess.run(  # noqa: S603  (a command of ours)
            [sys.executable, "-m", "callkeeper", "run", "--data", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert second.returncode == 1
    assert f"{tmp_path}/redis is in use by another process. Is another `make run` running?" in second.stderr
    assert "Traceback" not in second.stderr


@contextmanager
def run_beside(data: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``callkeeper run`` until the block ends, from when it has printed the addresses."""
    command = [sys.executable, "-m", "callkeeper", "run", "--data", str(data), "--workers", "1", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:  # noqa: S603
        try:
            output = run.stdout
            assert output is not None
            until(lambda: "commands " in output.readline(), 60, "all addresses")
            yield run
        finally:
            run.kill()


def part_of(run: subprocess.Popen[str], word: str) -> int:
    """Return the id of a running part whose command has a word."""

    def found() -> list[int]:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
        texts = {child: Path(f"/proc/{child}/cmdline").read_bytes().decode() for child in children}
        lines = {child: text.replace("\0", " ").split() for child, text in texts.items()}  # Redis writes its own
        return [int(child) for child, words in lines.items() if word in words and "-c" not in words]

    until(found, 30, word)
    return found()[0]


@pytest.mark.timeout(120)
def test_run_goes_on_when_a_part_is_killed(tmp_path: Path) -> None:
    """A killed worker, web process or Redis is started again at its address, and no promise is broken."""
    with run_beside(tmp_path) as run:
        settings = dict(line.split("=", 1) for line in (tmp_path / "demo.env").read_text().splitlines() if "=" in line)
        redis_place = settings["REDIS_URL"].removeprefix("redis://").removesuffix("/0")
        output = run.stdout
        assert output is not None
        for word, name in (("worker", "worker-1"), ("web", "web"), (redis_place, "redis")):
            killed = part_of(run, word)
            os.kill(killed, signal.SIGKILL)
            until(lambda: f"{name} had ended" in output.readline(), 30, f"{name} to be started again")  # noqa: B023
            assert part_of(run, word) != killed
        ready = f"{settings['CALLKEEPER_PUBLIC_URL']}/readyz"
        until(lambda: httpx.get(ready, trust_env=False).is_success, 30, "readiness", excused=(httpx.HTTPError,))
        with BlockingRedis.from_url(settings["REDIS_URL"]) as redis:
            before = redis.zcard(Keys().settled)
            until(lambda: redis.zcard(Keys().settled) > before, 60, "a call to be settled")
        run.send_signal(signal.SIGTERM)
        told, _ = run.communicate(timeout=30)
    assert (run.returncode, "Audit passed" in told) == (0, True), told


def test_run_ends_when_the_sandbox_does(tmp_path: Path) -> None:
    """Only the stand-in knows what was done to it, so without it there is nothing to audit."""
    with run_beside(tmp_path) as run:
        os.kill(part_of(run, "sandbox"), signal.SIGKILL)
        told, _ = run.communicate(timeout=30)
    assert (run.returncode, "does not answer: sandbox (connection refused). See " in told) == (1, True), told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("started", ["silent", "logs/sandbox.log", "logs/worker-1.log"])
def test_run_that_is_stopped_while_it_starts_says_so_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, started: str
) -> None:
    """It starts nothing more, ends what has started, in order, and is no failure; also while Redis does not answer."""
    marker = f"MARKER={tmp_path}"
    silent = tmp_path / "redis-server"
    silent.write_text(f"#!/bin/sh\ntouch '{tmp_path}/silent'\nexec sleep 600\n")
    silent.chmod(0o755)
    with subprocess.Popen(  # noqa: S603  (a command of ours)
        [sys.executable, "-m", "callkeeper", "run", "--data", str(tmp_path), "--workers", "1"],
        env={**os.environ, "MARKER": str(tmp_path), **({CHOSEN: str(silent)} if started == "silent" else {})},
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            until((tmp_path / started).exists, 30, started)
            run.send_signal(number)
            told, _ = run.communicate(timeout=30)
        finally:
            run.kill()
    assert (run.returncode, told.splitlines()[1:]) == (
        0,
        ["Stopping.", "All processes stopped. They had not all started, so there is nothing to audit."],
    )
    assert having(marker) == []


def having(variable: str) -> list[str]:
    """Return the commands of processes that have inherited a variable."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
    return found


def test_new_demonstration_counts_no_check_that_was_not_made(tmp_path: Path) -> None:
    """Redis is registered before the first call begins, so no call is charged for checks on an earlier Redis."""
    with demonstration(tmp_path, workers=1, seed=1) as demo, BlockingRedis.from_url(demo.redis_url) as redis:
        until(lambda: redis.zcard(Keys().live), 15, "the first call")
        known_since = datetime.fromtimestamp(int(redis.hget(Keys().epoch, "since") or 0) / 1000, UTC)
        ledger = httpx.get(f"{demo.service_url}/control/ledger", trust_env=False).json()
        assert known_since <= min(datetime.fromisoformat(call["started_at"]) for call in ledger["calls"].values())
        [member] = redis.zrange(Keys().live, 0, 0)
        assert parse_call(redis.hget(Keys().item(member.decode()), "rec")).plan.checks_by_desk == 0


def test_data_of_an_older_release_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run on a folder of an older release continues with its data, and says so."""
    with embedded_redis(tmp_path / "redis") as redis, BlockingRedis.from_url(redis.url) as client:
        client.sadd("ck:disowned", "cu-9")
        client.zadd("ck:events", {"{}": 1})
    with (
        demonstration(tmp_path, workers=0, seed=1, scenario="none") as demo,
        BlockingRedis.from_url(demo.redis_url) as client,
    ):
        assert client.smembers(Keys().disowned) == client.smembers("ck:disowned") == {b"cu-9"}
    assert "2 keys of an older release copied" in capsys.readouterr().out


@pytest.mark.parametrize("lacking", ["outcome_key", "push_key"])
def test_secrets_of_an_older_run_are_completed(tmp_path: Path, lacking: str) -> None:
    """A data folder of an earlier version keeps its secrets, and missing ones are added once."""
    path = tmp_path / "secrets.json"
    first = Secrets.keep(path)
    older = {name: value for name, value in msgspec.structs.asdict(first).items() if name != lacking}
    path.write_bytes(msgspec.json.encode(older))
    again = Secrets.keep(path)
    assert Secrets.keep(path) == again
    assert {name: getattr(again, name) for name in older} == older
    assert getattr(again, lacking) != getattr(first, lacking)


@pytest.mark.timeout(120)
def test_run_tries_every_integration_on_one_machine(tmp_path: Path) -> None:
    """Outcomes are signed with the key in the printed file, an origin is allowed, own rules decide, an archive is used."""
    taken: list[tuple[bytes, dict[str, str]]] = []

    def take(request: httpx.Request) -> httpx.Response:
        taken.append((request.content, dict(request.headers)))
        return httpx.Response(204)

    shipped = files("callkeeper.calls.rulebooks") / "demo.toml"
    (tmp_path / "my-rules.toml").write_text(shipped.read_text().replace('"distrusted"', '"my own rule"'))
    port, archive = free_port(), tmp_path / "calls.db"
    with serving(take) as receiver_port:
        (tmp_path / "my.env").write_text(
            f"CALLKEEPER_OUTCOME_URL=http://127.0.0.1:{receiver_port}/\n"
            f"CALLKEEPER_RULES={tmp_path}/my-rules.toml\n"
            f"CALLKEEPER_ARCHIVE_URL=sqlite:///{archive}\n"
        )
        arguments = ("--data", str(tmp_path / "data"), "--env-file", str(tmp_path / "my.env"), "--port", str(port))
        origin = ("-e", "CALLKEEPER_DESK_ORIGINS=https://agents.example", "--seconds", "30")
        command = [sys.executable, "-m", "callkeeper", "run", *arguments, *origin]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
            assert process.stdout is not None
            shown = dict(line.split(maxsplit=1) for line in islice(process.stdout, 9) if len(line.split()) > 1)
            lines = (tmp_path / "data/demo.env").read_text().splitlines()
            written = dict(line.split("=", 1) for line in lines if "=" in line)
            asked = httpx.get(
                f"http://127.0.0.1:{port}/desk/calls", headers={"Origin": "https://agents.example"}, trust_env=False
            )
            rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert asked.headers["access-control-allow-origin"] == "https://agents.example"
    (key,) = shlex.split(written["CALLKEEPER_OUTCOME_SECRET"])
    assert "demo.env" in shown["outcomes"]
    assert key not in "".join(shown.values())
    assert {Webhook(key).verify(body, dict(headers))["type"] for body, headers in taken} >= {"call.authenticated"}
    with closing(sqlite3.connect(archive)) as kept:
        tables = [name for (name,) in kept.execute("select name from sqlite_master where type = 'table'")]
        assert any(kept.execute(f"select count(*) from {table}").fetchone()[0] for table in tables)  # noqa: S608
    with embedded_redis(tmp_path / "data/redis") as server_again, BlockingRedis.from_url(server_again.url) as redis:
        assert any(b"my own rule" in text for text in redis.hvals(Keys().rules_texts))
