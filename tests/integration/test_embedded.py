"""The embedded Redis server."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from redis import Redis

from callkeeper_sandbox.demo.embedded_redis import (
    CHOSEN,
    EmbeddedRedis,
    EmbeddedRedisFailed,
    _answers,
    embedded_redis,
    find_server,
)
from tests.waiting import until


def test_embedded_redis_keeps_its_promises(tmp_path: Path) -> None:
    """It appends every write to a file, never evicts, and listens on this machine only."""
    with embedded_redis(tmp_path) as server, Redis.from_url(server.url, decode_responses=True) as redis:
        settings = redis.config_get("*")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["bind"] == "127.0.0.1"


def test_embedded_redis_goes_on_with_its_data(tmp_path: Path) -> None:
    """A second start in the same folder finds what the first has written."""
    with embedded_redis(tmp_path) as server, Redis.from_url(server.url) as redis:
        redis.set("seen", "before")
    with embedded_redis(tmp_path) as server, Redis.from_url(server.url) as redis:
        assert redis.get("seen") == b"before"


def test_embedded_redis_leaves_no_process(tmp_path: Path) -> None:
    """When the block ends the server is gone, also when the block fails."""
    with pytest.raises(ZeroDivisionError), embedded_redis(tmp_path) as server:
        raise ZeroDivisionError
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_embedded_redis_stopped_by_itself_is_no_error(tmp_path: Path) -> None:
    """If the server was killed meanwhile, the end of the block raises no error."""
    with embedded_redis(tmp_path) as server:
        os.kill(server.pid, signal.SIGKILL)


def test_embedded_redis_guards_its_folder(tmp_path: Path) -> None:
    """Two servers never write to one folder: the second is refused with the reason."""
    with embedded_redis(tmp_path), pytest.raises(EmbeddedRedisFailed, match="in use"), embedded_redis(tmp_path):
        pass


KILLED = """
import sys, time
from pathlib import Path
from callkeeper_sandbox.demo.embedded_redis import embedded_redis
from callkeeper_sandbox.demo.fleet import Fleet

folder = Path(sys.argv[1])
with embedded_redis(folder) as server, Fleet(folder) as fleet:
    member = fleet.start("sleeper", "import time; time.sleep(600)", module=("timeit",))
    print(server.pid, member.process.pid, flush=True)
    time.sleep(600)
"""


def has_ended(pid: int) -> bool:
    """Tell whether a process has ended, also if nobody has collected its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """Also if it is killed: nothing goes on in the dark, and the folder can be used again."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:  # noqa: S603  (our own arguments)
        assert owner.stdout is not None
        started = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(started) == 2
        owner.kill()
    for pid in started:
        until(partial(has_ended, pid), 20, f"the end of {pid}")
    with embedded_redis(tmp_path) as server, Redis.from_url(server.url) as redis:
        assert redis.ping()


def test_embedded_redis_starts_in_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative data folder is relative to where the caller is, not to where Redis changes to."""
    monkeypatch.chdir(tmp_path)
    with embedded_redis(Path("data") / "redis") as server, Redis.from_url(server.url) as redis:
        assert redis.config_get("dir") == {"dir": str(tmp_path / "data" / "redis")}
    assert "Ready to accept connections" in (tmp_path / "data" / "redis" / "redis.log").read_text()


def test_embedded_redis_starts_in_a_folder_with_spaces(tmp_path: Path) -> None:
    """A folder's name may contain spaces and quotes."""
    with embedded_redis(tmp_path / "a 'folder' of \"mine\"") as server, Redis.from_url(server.url) as redis:
        assert redis.ping()


def test_embedded_redis_says_why_it_did_not_start(tmp_path: Path) -> None:
    """If the server cannot read its data, the error shows what the server said about it."""
    (tmp_path / "appendonly.aof").write_text("this is not an append-only file")
    (tmp_path / "appendonlydir").write_text("nor is this a folder")
    with (
        pytest.raises(EmbeddedRedisFailed, match=r"(?s)exit code 1\. It said .*append") as failed,
        embedded_redis(tmp_path),
    ):
        pass
    assert str(tmp_path / "redis.log") in str(failed.value)


def test_embedded_redis_shows_what_a_server_without_a_log_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server ends before it opens any log, the error shows its standard error."""
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho 'cannot load libexample.so' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv(CHOSEN, str(broken))
    with pytest.raises(EmbeddedRedisFailed, match=r"(?s)exit code 127.*libexample"), embedded_redis(tmp_path / "data"):
        pass


def test_embedded_redis_knows_its_own_server(redis_server: EmbeddedRedis) -> None:
    """Another server that took the port is not mistaken for ours."""
    with Redis.from_url(redis_server.url) as redis:
        assert _answers(redis, redis_server.pid)
        assert not _answers(redis, redis_server.pid + 1)


def test_find_server_returns_a_program() -> None:
    """What is found can be executed."""
    assert os.access(find_server(), os.X_OK)
