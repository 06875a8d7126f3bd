"""The Redis users of deploy/redis/users.acl.example: each process works as its user, and web cannot read the token."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from callkeeper.app.redis_rights import COMMANDS
from callkeeper.calls.store.keys import Keys
from callkeeper_sandbox.demo.demonstration import service_environment
from callkeeper_sandbox.demo.embedded_redis import embedded_redis, find_server
from callkeeper_sandbox.service import population
from tests.audit.conftest import ENVIRON
from tests.audit.raw_requests import ADMIN, PUSH_KEY, TOKEN
from tests.harness.desk_tokens import give_token
from tests.harness.fork_server import ForkingFleet
from tests.harness.processes import Sides, start_sandbox, start_web, start_worker, wait_for_work, web_url
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
USERS = (ROOT / "deploy" / "redis" / "users.acl.example").read_text(encoding="utf-8")
PASSWORD = "0123456789abcdef-of-{}"
TOKEN_KEY = "ck:token"


@dataclass(frozen=True)
class Site:
    """A web process, a worker and a sandbox, on a Redis with users."""

    admin: Any
    """A client with the rights of the default user."""
    redis_url: str
    web_url: str
    sides: Sides

    def redis_as(self, user: str) -> Any:
        """Connect as one of the users."""
        return Redis.from_url(url_of(self.redis_url, user))

    def refusals(self) -> list[str]:
        """Return every command or key that Redis refused to a user since the last reset.

        ``CLIENT SETINFO`` and ``MAINT_NOTIFICATIONS`` are left out: our Redis client tries them with every connection
        and works without them.
        """
        log = [(entry["username"], entry["reason"], entry["object"]) for entry in self.admin.acl_log()]
        return [f"{user} {reason} {what}" for user, reason, what in log if not what.startswith("client")]


def url_of(redis_url: str, user: str) -> str:
    """Return the URL for a user."""
    return redis_url.replace("redis://", f"redis://{user}:{PASSWORD.format(user)}@")


def set_up(admin: Any) -> None:
    """Create the users of the file."""
    for line in USERS.splitlines():
        _, user, *rules = line.split()
        if user != "default":  # the test itself uses this one
            password = f">PASSWORD-OF-{user.upper()}"
            assert password in rules
            rules[rules.index(password)] = f">{PASSWORD.format(user)}"
            admin.execute_command("ACL", "SETUSER", user, *rules)
    admin.acl_log_reset()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Run all processes, each as its own Redis user."""
    with embedded_redis(tmp_path / "redis") as redis, ForkingFleet(tmp_path / "logs") as fleet:
        admin: Any = Redis.from_url(redis.url)
        set_up(admin)
        give_token(admin, "desktop", TOKEN)
        admin.acl_log_reset()
        web = web_url(start_web(fleet, url_of(redis.url, "web"), environ={**ENVIRON, "CALLKEEPER_RULES": "demo"}))
        push = ("--push-url", f"{web}/push", "--push-headers", f"X-Push-Key: {PUSH_KEY}")
        service = start_sandbox(fleet, *push)
        wait_for_work(start_worker(fleet, url_of(redis.url, "worker"), service))
        sides = Sides(redis.url, service)
        try:
            yield Site(admin, redis.url, web, sides)
        finally:
            sides.close()
            admin.close()


UNTRIED = {"acl", "auth", "client", "config", "discard", "exec", "hello", "multi", "select"}
"""Commands that the doctor does not try: of connections and transactions, and this test's own."""


def call(site: Site, *script: dict[str, object]) -> dict[str, Any]:
    """Start a call of a known member."""
    body = {"institution_key": "cu-1", "phone_number": population.phone("cu-1", population.SHARED), "script": script}
    started: dict[str, Any] = site.sides.control("POST", "/calls", body)
    return started


PAGES = (
    *("/readyz", "/metrics", "/board", "/board/calls", "/board/pauses", "/rq/0/view/workers", "/rq/0/view/jobs"),
    *("/rq/0/data/queues.json", "/rq/0/data/workers.json", "/rq/0/view/jobs/calls:2/failed/8/asc/1"),
    *(f"/rq/0/data/jobs/calls:2/{registry}/8/asc/1.json" for registry in ("queued", "failed", "finished")),
)


def test_web_and_worker_do_everything_as_their_own_users(site: Site) -> None:
    """Redis refuses nothing during a whole call, on any page and at the desk."""
    started = call(site, {"kind": "mfa_validated", "after_s": 4}, {"kind": "end", "after_s": 15})
    at = f"/desk/calls/cu-1/{started['voice_id']}"
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    until(lambda: site.sides.record(started), 10, "the call to be known")
    with httpx.Client(
        base_url=site.web_url, trust_env=False, timeout=10, auth=httpx.BasicAuth(*ADMIN.split(":"))
    ) as http:
        answers = {page: http.get(page, follow_redirects=True).status_code for page in PAGES}
        assert {page: status for page, status in answers.items() if status not in {200, 404}} == {}
        assert [answers[page] for page in ("/readyz", "/metrics", "/board", "/rq/0/data/workers.json")] == [200] * 4
        same = {"Sec-Fetch-Site": "same-origin"}
        assert http.post("/board/find", data={"q": "cu-1"}, headers=same).status_code in {200, 404}
        assert http.get("/board", auth=("nobody", "wrong-password")).status_code == 401
    with httpx.Client(base_url=site.web_url, trust_env=False, timeout=10, headers=bearer) as desk:
        assert desk.get("/desk/calls").status_code == 200
        assert desk.get(at).status_code == 200
        ticket = desk.post("/desk/tickets").json()["ticket"]
        with desk.stream("GET", "/desk/stream", params={"ticket": ticket}) as stream:
            assert stream.status_code == 200
        asked = desk.post(f"{at}/check", json={"operator": "ann"}, headers={"Idempotency-Key": "k-1"})
        assert asked.status_code < 500  # refused if the call has just ended
    site.sides.settled(started)
    assert site.refusals() == []
    assert site.admin.exists(TOKEN_KEY) == 1
    ran = {name.removeprefix("cmdstat_").partition("|")[0] for name in site.admin.info("commandstats")}
    assert ran - {name.partition("|")[0] for name in COMMANDS} <= UNTRIED


def test_doctor_examines_an_installation_as_each_user(site: Site) -> None:
    """The doctor finds no fault if it runs with the Redis user of each process."""
    environs = {"web": ENVIRON, "worker": service_environment(site.sides.service_url)}
    for process, environ in environs.items():
        told = subprocess.run(  # noqa: S603  (our own command)
            [sys.executable, "-m", "callkeeper", "doctor", "--before-deploy", "--only", process, "--json"],
            env={"PATH": os.environ["PATH"], **environ, "REDIS_URL": url_of(site.redis_url, process)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        found = {row["what"]: row["state"] for row in map(json.loads, told.stdout.splitlines())}
        assert found["settings"] == found["redis"] == found["attention"] == "ok", told.stdout
        assert "fault" not in found.values(), told.stdout


def test_web_is_refused_the_token_whatever_it_tries(site: Site) -> None:
    """The web process's Redis user cannot read the service's token, and cannot log in as another user."""
    site.sides.settled(call(site, {"kind": "end", "after_s": 2}))
    assert site.admin.exists(TOKEN_KEY) == 1
    web = site.redis_as("web")
    script = "return redis.call('HGETALL', 'ck:token')"
    attempts = [
        *(("HGETALL", TOKEN_KEY), ("HGET", TOKEN_KEY, "token"), ("DUMP", TOKEN_KEY), ("HSCAN", TOKEN_KEY, "0")),
        *(("COPY", TOKEN_KEY, "ck:x"), ("RENAME", TOKEN_KEY, "ck:x"), ("EVAL", script, "0"), ("DEL", TOKEN_KEY)),
        *(("EVAL", "return redis.call('HGETALL', KEYS[1])", "1", TOKEN_KEY), ("HSET", TOKEN_KEY, "token", "x")),
        *(("SORT", "ck:x", "BY", "nosort", "GET", "ck:token->token"), ("MIGRATE", "h", "1", TOKEN_KEY, "0", "9")),
        *(
            ("ACL", "LIST"),
            ("ACL", "SETUSER", "web", "allkeys"),
            ("CONFIG", "GET", "*"),
            ("MONITOR",),
            ("DEBUG", "OBJECT", TOKEN_KEY),
        ),
        *(("REPLICAOF", "h", "1"), ("SYNC",), ("SLOWLOG", "GET"), ("KEYS", "*"), ("FLUSHALL",), ("MODULE", "LIST")),
        *(
            ("PUBLISH", "rq:pubsub:worker-1", "{}"),
            ("CLIENT", "LIST"),
            ("CLIENT", "KILL", "TYPE", "normal"),
            ("SHUTDOWN",),
            ("SAVE",),
            ("RESTORE", TOKEN_KEY, "0", "x"),
        ),
    ]
    got_through = []
    for attempt in attempts:
        try:
            web.execute_command(*attempt)
        except NoPermissionError:
            continue
        except RedisError as error:  # of a script that Redis stopped, and of DEBUG on newer servers
            if any(words in str(error) for words in ("ermission", "can't access", "can't run", "not allowed")):
                continue
        got_through.append(attempt)
    assert got_through == []
    guessed = Redis.from_url(site.redis_url, username="web", password=PASSWORD.format("worker"))
    with guessed, pytest.raises(AuthenticationError):
        guessed.ping()


def test_redis_accepts_the_file_and_refuses_a_client_that_has_no_password(tmp_path: Path) -> None:
    """Redis starts with the file once its passwords are filled in, and refuses clients without a password."""
    path = tmp_path / "users.acl"
    path.write_text(re.sub(r">PASSWORD-OF-(\w+)", lambda found: f">{PASSWORD.format(found[1].lower())}", USERS))
    port = free_port()
    options = ["--port", str(port), "--aclfile", str(path), "--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen([find_server(), *options], stdout=subprocess.DEVNULL) as server:  # noqa: S603  (our own)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            with Redis.from_url(url_of(url, "worker")) as worker:
                until(worker.ping, 10, "Redis to start", excused=(RedisConnectionError,))
            with Redis.from_url(url) as stranger, pytest.raises(AuthenticationError):
                stranger.get(TOKEN_KEY)
            with Redis.from_url(url_of(url, "default")) as stranger, pytest.raises(AuthenticationError):
                stranger.ping()
        finally:
            server.terminate()
            server.wait(10)


def test_no_two_keys_share_what_web_may_read_with_the_token() -> None:
    """The ACL patterns of web cover every key that starts with `ck:t`, except the token and its gate."""
    keys = Keys()
    named = {value for value in vars(keys).values() if isinstance(value, str) and value.startswith("ck:t")}
    built = {keys.trail(""), keys.ticket("")}
    assert named == {keys.token, keys.login_gate}
    assert built == {"ck:2:trail:", "ck:2:ticket:"}
